/* SPDX-License-Identifier: Apache-2.0 */
/* Files of folders beside the checkpoints that count, and manifests of exports. */
#include "base/cleanup.h"
#include "base/path.h"
#include "base/read_whole.h"
#include "base/store.h"
#include "base/text.h"
#include "tool/export/manifest.h"
#include "tool/info/info.h"

#include <sys/stat.h>

static bool is_checkpoint(const char *name)
{
    return name[0] != '.' && (rfs_text_ends(name, ".ckpt") || rfs_text_ends(name, ".safetensors") ||
                              rfs_text_ends(name, ".pt"));
}

/* As programs name unfinished files. */
static bool is_temporary(const char *name)
{
    static const char *const ends[] = {".tmp", ".temp", ".part", ".partial", ".lock", "~"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (rfs_text_ends(name + 1, ends[i])) /* a name that is only an ending does not count */
            return true;
    return strstr(name, ".reshard-") != NULL;
}

static void keep_first(uint32_t *count, char out[512], const char *folder, const char *name)
{
    if ((*count)++ == 0)
        snprintf(out, 512, "%s%s%s", folder, *folder ? "/" : "", name);
}

void rfs_info_look_beside(const char *folder, const char *name, struct rfs_beside *beside)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    uint32_t checkpoints = 0;
    bool temporary = false;
    bool empty = false;

    if (rfs_dir_open(folder, &dir))
        return;
    beside->folders++;
    for (const struct dirent *entry; (entry = rfs_dir_next(&dir)) != NULL;) {
        RFS_FREE char *path = rfs_path_join(folder, entry->d_name);
        struct stat st;
        if (!temporary && is_temporary(entry->d_name)) {
            keep_first(&beside->temporary, beside->first_temporary, name, entry->d_name);
            temporary = true;
        }
        if (!is_checkpoint(entry->d_name))
            continue;
        checkpoints++;
        if (!empty && path && rfs_store_stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
            st.st_size == 0) {
            keep_first(&beside->empty, beside->first_empty, name, entry->d_name);
            empty = true;
        }
    }
    if (checkpoints > 1 && beside->several++ == 0)
        snprintf(beside->first_several, sizeof beside->first_several, "%s", name);
    beside->most = checkpoints > beside->most ? checkpoints : beside->most;
}

static struct rfs_fit_finding finding(const char *kind)
{
    return (struct rfs_fit_finding){kind, false, NULL, -1, -1, NULL};
}

bool rfs_info_tell_beside(const struct rfs_beside *beside, struct rfs_fit_findings *findings)
{
    char more[600] = "";

    if (beside->several > 0 && beside->folders > 1)
        snprintf(more, sizeof more, " (%" PRIu32 " folder%s, %s the first)", beside->several,
                 beside->several == 1 ? "" : "s", beside->first_several);
    if (beside->several > 0 &&
        !rfs_fit_findings_add(findings, finding("several checkpoints"),
                              "up to %" PRIu32 " in a folder%s: the last by name counts",
                              beside->most, more))
        return false;
    snprintf(more, sizeof more, " (%" PRIu32 " folder%s)", beside->empty,
             beside->empty == 1 ? "" : "s");
    if (beside->empty > 0 &&
        !rfs_fit_findings_add(findings, finding("empty file"), "%s has 0 bytes%s",
                              beside->first_empty, beside->folders > 1 ? more : ""))
        return false;
    snprintf(more, sizeof more, " (%" PRIu32 " folder%s)", beside->temporary,
             beside->temporary == 1 ? "" : "s");
    return beside->temporary == 0 ||
           rfs_fit_findings_add(findings, finding("temporary file"),
                                "%s is left over, or being written%s", beside->first_temporary,
                                beside->folders > 1 ? more : "");
}

/* ---- exports ---- */

static int add_manifest(const char *folder, const char *name, struct rfs_manifest *manifest,
                        struct rfs_error *err)
{
    RFS_FREE char *path = rfs_path_join(folder, name);
    RFS_FREE char *text = NULL;
    size_t size = 0;

    if (!path)
        return rfs_fail_memory(err);
    const int rc = rfs_read_whole(path, RFS_MANIFEST_BYTES, &text, &size, err);
    return rc ? rc : rfs_manifest_parse(path, text, size, manifest, err);
}

/* Files that are not as long as the manifest says, or not there. */
static size_t count_wrong(const char *folder, const struct rfs_manifest *manifest, char *first,
                          size_t size)
{
    size_t wrong = 0;

    for (size_t i = 0; i < manifest->entries.n; i++) {
        const char *name = rfs_intern_text(manifest->paths, (uint32_t)i);
        RFS_FREE char *path = rfs_printed_memory(rfs_path_join(folder, name));
        struct stat st;
        if (rfs_store_stat(path, &st) == 0 &&
            (uint64_t)st.st_size == manifest->entries.data[i].size)
            continue;
        if (wrong++ == 0)
            snprintf(first, size, "%s", name);
    }
    return wrong;
}

static int tell_manifest(struct rfs_report *report, const char *folder,
                         const struct rfs_manifest *manifest, struct rfs_error *err)
{
    char first[512] = "";
    const size_t wrong = count_wrong(folder, manifest, first, sizeof first);

    fprintf(report->say, "export: %zu of %" PRIu64 " files completed, of %s\n", manifest->entries.n,
            manifest->total_files,
            manifest->source ? manifest->source : "a source that it does not name");
    rfs_json_object(&report->json, "export", RFS_JSON_TIGHT);
    rfs_json_put_u64(&report->json, "files", manifest->entries.n);
    rfs_json_put_u64(&report->json, "total_files", manifest->total_files);
    rfs_json_put_text(&report->json, "source", manifest->source ? manifest->source : "");
    rfs_json_put_u64(&report->json, "wrong_files", wrong);
    rfs_json_end(&report->json);
    if (wrong > 0 && !rfs_fit_findings_add(
                         &report->findings, finding("export"),
                         "%zu file%s of the manifest %s not there, or not as long as it says: %s",
                         wrong, wrong == 1 ? "" : "s", wrong == 1 ? "is" : "are", first))
        return rfs_fail_memory(err);
    return 0;
}

int rfs_info_manifest(struct rfs_report *report, const char *path, struct rfs_error *err)
{
    struct rfs_manifest manifest;
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const bool listed = rfs_dir_open(path, &dir) == 0;
    bool found = false;
    int rc = rfs_manifest_init(&manifest) ? rfs_fail_memory(err) : 0;

    for (const struct dirent *entry; listed && rc == 0 && (entry = rfs_dir_next(&dir)) != NULL;)
        if (rfs_manifest_is_name(entry->d_name)) {
            rc = add_manifest(path, entry->d_name, &manifest, err);
            found = true;
        }
    if (rc == 0 && found)
        rc = tell_manifest(report, path, &manifest, err);
    rfs_manifest_free(&manifest);
    return rc;
}
