/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/known.h"

#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

enum { SUGGEST_WITHIN = 3 };

/* dev and suid are ignored because the mount is always nodev and nosuid. */
static const struct rfs_known known[] = {
    {"src_strategy", RFS_VIEW_FILES, true, 0},
    {"dst_strategy", RFS_VIEW_FILES, true, 0},
    {"src_rules", RFS_VIEW_TEXT, true, 0},
    {"dst_rules", RFS_VIEW_TEXT, true, 0},
    {"src_ranks", RFS_VIEW, true, 0},
    {"dst_ranks", RFS_VIEW, true, 0},
    {"rank_dir", RFS_VIEW, true, 0},
    {"file", RFS_VIEW, true, 0},
    {"files", RFS_VIEW_FILE, true, 0},
    {"group_info", RFS_VIEW_FILE, true, 0},
    {"step", RFS_VIEW, true, 0},
    {"epoch", RFS_VIEW, true, 0},
    {"entry", RFS_VIEW, true, 0},
    {"segmented", RFS_VIEW, false, 0},
    {"segmented_skip", RFS_VIEW, true, 0},
    {"check", RFS_VIEW, true, 0},
    {"follow_links", RFS_VIEW, false, 0},
    {"key_file", RFS_VIEW_FILE, true, 0},
    {"key_env", RFS_VIEW, true, 0},
    {"key_fd", RFS_VIEW, true, 0},
    {"key_mode", RFS_VIEW, true, 0},
    {"format", RFS_VIEW, true, 0},
    {"view", RFS_VIEW, true, 0},
    {"file_size", RFS_VIEW, true, 0},
    {"names", RFS_VIEW_FILE, true, 0},
    {"dtype", RFS_VIEW, true, 0},
    {"crc", RFS_VIEW, false, 0},
    {"nshards", RFS_VIEW, true, 0},
    {"large_size", RFS_VIEW, true, 0},
    {"uneven_steps", RFS_VIEW, false, 0},
    {"zip_crc", RFS_VIEW, false, 0},
    {"prefix", RFS_VIEW, true, 0},
    {"cache", RFS_VIEW, true, 0},
    {"index_cache", RFS_VIEW_FOLDER, true, 0},
    {"strict", RFS_VIEW, false, 0},
    {"io", RFS_OWN, true, RFS_OWN_IO},
    {"control", RFS_OWN, true, RFS_OWN_CONTROL},
    {"sandbox", RFS_OWN, true, RFS_OWN_SANDBOX},
    {"nonempty", RFS_OWN, false, RFS_OWN_NONEMPTY},
    {"allow_other", RFS_OWN, false, RFS_OWN_OTHER},
    {"allow_root", RFS_OWN, false, RFS_OWN_ROOT},
    {"allow_decrypted", RFS_OWN, false, RFS_OWN_DECRYPTED},
    {"default_permissions", RFS_OWN, false, RFS_OWN_PERMISSIONS},
    {"auto_unmount", RFS_OWN, false, RFS_OWN_AUTO_UNMOUNT},
    {"noexec", RFS_OWN, false, RFS_OWN_NOEXEC},
    {"max_threads", RFS_OWN, true, RFS_OWN_THREADS},
    {"fsname", RFS_OWN, true, RFS_OWN_FSNAME},
    {"subtype", RFS_OWN, true, RFS_OWN_SUBTYPE},
    {"debug", RFS_OWN, false, RFS_OWN_DEBUG},
    {"log_level", RFS_OWN, true, RFS_OWN_LOG_LEVEL},
    {"config", RFS_OWN, true, RFS_OWN_CONFIG},
    {"rw", RFS_OWN, false, RFS_OWN_WRITABLE},
    {"ro", RFS_IGNORED, false, 0},
    {"dev", RFS_IGNORED, false, 0},
    {"nodev", RFS_IGNORED, false, 0},
    {"suid", RFS_IGNORED, false, 0},
    {"nosuid", RFS_IGNORED, false, 0},
    {"exec", RFS_IGNORED, false, 0},
    {"async", RFS_IGNORED, false, 0},
    {"sync", RFS_IGNORED, false, 0},
    {"dirsync", RFS_IGNORED, false, 0},
    {"atime", RFS_IGNORED, false, 0},
    {"noatime", RFS_IGNORED, false, 0},
    {"diratime", RFS_IGNORED, false, 0},
    {"nodiratime", RFS_IGNORED, false, 0},
    {"relatime", RFS_IGNORED, false, 0},
    {"norelatime", RFS_IGNORED, false, 0},
    {"strictatime", RFS_IGNORED, false, 0},
    {"nostrictatime", RFS_IGNORED, false, 0},
    {"lazytime", RFS_IGNORED, false, 0},
    {"nolazytime", RFS_IGNORED, false, 0},
    {"auto", RFS_IGNORED, false, 0},
    {"noauto", RFS_IGNORED, false, 0},
    {"user", RFS_IGNORED, false, 0},
    {"nouser", RFS_IGNORED, false, 0},
    {"users", RFS_IGNORED, false, 0},
    {"owner", RFS_IGNORED, false, 0},
    {"group", RFS_IGNORED, false, 0},
    {"nofail", RFS_IGNORED, false, 0},
    {"defaults", RFS_IGNORED, false, 0},
    {"_netdev", RFS_IGNORED, false, 0},
};

enum { N_KNOWN = sizeof known / sizeof known[0] };

const struct rfs_known *rfs_known_find(const char *name)
{
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

bool rfs_known_is_for_others(const char *name)
{
    return strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0 ||
           strcmp(name, "comment") == 0 || strcmp(name, "user") == 0 ||
           strcmp(name, "uhelper") == 0 || strcmp(name, "helper") == 0;
}

int rfs_known_refuse(const char *name, struct rfs_error *err)
{
    const struct rfs_known *nearest = NULL;
    unsigned least = SUGGEST_WITHIN + 1;
    char remedy[96] = RFS_PROGRAM_HELP;

    for (size_t i = 0; i < N_KNOWN; i++) {
        const unsigned edits = rfs_suggest_distance(name, known[i].name);

        /* At least half of the word must be right. */
        if (edits < least && 2 * (size_t)edits <= strlen(name)) {
            least = edits;
            nearest = &known[i];
        }
    }
    if (nearest)
        snprintf(remedy, sizeof remedy, "-o %s%s", nearest->name, nearest->valued ? "=VALUE" : "");
    return rfs_fail_usage(err, remedy, "unknown option '%s'", name);
}
