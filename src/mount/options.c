/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/options.h"

#include "base/cleanup.h"
#include "base/pathlist.h"
#include "base/text.h"
#include "mount/paths.h"
#include "mount/suggest.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_THREADS = 16, MOST_THREADS = 256, SUGGEST_WITHIN = 3 };

enum kind {
    VIEW,       /* passed on */
    VIEW_FILE,  /* passed on with its path made absolute */
    VIEW_FILES, /* likewise, of several with ':' between */
    VIEW_TEXT,  /* the same if there is a file of that path; else it is passed on as it is */
    OWN,
    IGNORED,
};

enum own {
    IO,
    NONEMPTY,
    OTHER,
    ROOT,
    PERMISSIONS,
    AUTO_UNMOUNT,
    NOEXEC,
    THREADS,
    FSNAME,
    SUBTYPE,
    DEBUG,
    DECRYPTED
};

struct known {
    const char *name;
    enum kind kind;
    bool valued;
    enum own own;
};

/* dev and suid are ignored because the mount is always nodev and nosuid; rw, because mount(8) adds it
 * unasked: nothing here can be written whatever is said. */
static const struct known known[] = {
    {"src_strategy", VIEW_FILES, true, 0},
    {"dst_strategy", VIEW_FILES, true, 0},
    {"src_rules", VIEW_TEXT, true, 0},
    {"dst_rules", VIEW_TEXT, true, 0},
    {"src_ranks", VIEW, true, 0},
    {"dst_ranks", VIEW, true, 0},
    {"rank_dir", VIEW, true, 0},
    {"file", VIEW, true, 0},
    {"files", VIEW_FILE, true, 0},
    {"group_info", VIEW_FILE, true, 0},
    {"step", VIEW, true, 0},
    {"epoch", VIEW, true, 0},
    {"entry", VIEW, true, 0},
    {"segmented", VIEW, false, 0},
    {"segmented_skip", VIEW, true, 0},
    {"check", VIEW, true, 0},
    {"key_file", VIEW_FILE, true, 0},
    {"key_env", VIEW, true, 0},
    {"key_fd", VIEW, true, 0},
    {"key_mode", VIEW, true, 0},
    {"format", VIEW, true, 0},
    {"view", VIEW, true, 0},
    {"file_size", VIEW, true, 0},
    {"names", VIEW_FILE, true, 0},
    {"dtype", VIEW, true, 0},
    {"crc", VIEW, false, 0},
    {"nshards", VIEW, true, 0},
    {"large_size", VIEW, true, 0},
    {"uneven_steps", VIEW, false, 0},
    {"zip_crc", VIEW, false, 0},
    {"prefix", VIEW, true, 0},
    {"cache", VIEW, true, 0},
    {"index_cache", VIEW, true, 0},
    {"strict", VIEW, false, 0},
    {"io", OWN, true, IO},
    {"nonempty", OWN, false, NONEMPTY},
    {"allow_other", OWN, false, OTHER},
    {"allow_root", OWN, false, ROOT},
    {"allow_decrypted", OWN, false, DECRYPTED},
    {"default_permissions", OWN, false, PERMISSIONS},
    {"auto_unmount", OWN, false, AUTO_UNMOUNT},
    {"noexec", OWN, false, NOEXEC},
    {"max_threads", OWN, true, THREADS},
    {"fsname", OWN, true, FSNAME},
    {"subtype", OWN, true, SUBTYPE},
    {"debug", OWN, false, DEBUG},
    {"ro", IGNORED, false, 0},
    {"rw", IGNORED, false, 0},
    {"dev", IGNORED, false, 0},
    {"nodev", IGNORED, false, 0},
    {"suid", IGNORED, false, 0},
    {"nosuid", IGNORED, false, 0},
    {"exec", IGNORED, false, 0},
    {"async", IGNORED, false, 0},
    {"sync", IGNORED, false, 0},
    {"dirsync", IGNORED, false, 0},
    {"atime", IGNORED, false, 0},
    {"noatime", IGNORED, false, 0},
    {"diratime", IGNORED, false, 0},
    {"nodiratime", IGNORED, false, 0},
    {"relatime", IGNORED, false, 0},
    {"norelatime", IGNORED, false, 0},
    {"strictatime", IGNORED, false, 0},
    {"nostrictatime", IGNORED, false, 0},
    {"lazytime", IGNORED, false, 0},
    {"nolazytime", IGNORED, false, 0},
    {"auto", IGNORED, false, 0},
    {"noauto", IGNORED, false, 0},
    {"user", IGNORED, false, 0},
    {"nouser", IGNORED, false, 0},
    {"users", IGNORED, false, 0},
    {"owner", IGNORED, false, 0},
    {"group", IGNORED, false, 0},
    {"nofail", IGNORED, false, 0},
    {"defaults", IGNORED, false, 0},
    {"_netdev", IGNORED, false, 0},
};

enum { N_KNOWN = sizeof known / sizeof known[0] };

static const struct known *find(const char *name)
{
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

/* What mount(8) keeps for itself and its helpers, with or without a value. */
static bool is_for_others(const char *name)
{
    return strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0 ||
           strcmp(name, "comment") == 0 || strcmp(name, "user") == 0 ||
           strcmp(name, "uhelper") == 0 || strcmp(name, "helper") == 0;
}

static int refuse_unknown(const char *name, struct rfs_error *err)
{
    const struct known *nearest = NULL;
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

/* In place: "\," and "\\" become the second character; any other backslash stays. */
static void unescape(char *value)
{
    char *to = value;

    for (; *value; value++) {
        if (*value == '\\' && (value[1] == ',' || value[1] == '\\'))
            value++;
        *to++ = *value;
    }
    *to = '\0';
}

static int set_text(char **slot, const char *value)
{
    char *copy = strdup(value);

    if (!copy)
        return -ENOMEM;
    free(*slot);
    *slot = copy;
    return 0;
}

/* Appends "name=value" or "name", with value as it is to stand in the list. */
static int pass_on(char **list, const char *name, const char *value)
{
    char *joined;

    if (asprintf(&joined, "%s%s%s%s%s", *list ? *list : "", *list ? "," : "", name,
                 value ? "=" : "", value ? value : "") < 0)
        return -ENOMEM;
    free(*list);
    *list = joined;
    return 0;
}

/* Escaped anew: a backslash that ended the value as written would take in the comma that follows. */
static int pass_on_value(char **list, const char *name, const char *value)
{
    RFS_FREE char *escaped = rfs_text_option_value(value);

    return escaped ? pass_on(list, name, escaped) : -ENOMEM;
}

static int pass_on_file(char **list, const char *name, const char *value)
{
    RFS_FREE char *absolute = rfs_path_absolute(value);

    return absolute ? pass_on_value(list, name, absolute) : -ENOMEM;
}

/* Empty paths stay, for the view to refuse. */
static int pass_on_files(char **list, const char *name, const char *value)
{
    RFS_CLEANUP(rfs_pathlist_free) struct rfs_pathlist paths = {0};
    RFS_FREE char *joined = NULL;
    int rc = rfs_pathlist_split(value, &paths);

    for (size_t i = 0; rc == 0 && i < paths.n; i++) {
        RFS_FREE char *before = RFS_STEAL(joined);
        RFS_FREE char *absolute = *paths.data[i] ? rfs_path_absolute(paths.data[i]) : strdup("");
        if (!absolute ||
            asprintf(&joined, "%s%s%s", before ? before : "", before ? ":" : "", absolute) < 0) {
            joined = NULL;
            rc = -ENOMEM;
        }
    }
    return rc ? rc : pass_on_value(list, name, joined);
}

static int set_io(struct rfs_mount_options *o, const char *value, struct rfs_error *err)
{
    static const char *const names[] = {"auto", "direct", "cached"};

    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(value, names[i]) == 0) {
            o->io = (enum rfs_io)i;
            return 0;
        }
    }
    return rfs_fail_usage(err, "io=auto, io=direct or io=cached", "option 'io' cannot be '%s'",
                          value);
}

static int set_threads(struct rfs_mount_options *o, const char *value, struct rfs_error *err)
{
    char *end;
    const unsigned long n = strtoul(value, &end, 10);

    if (*value < '0' || *value > '9' || *end || n < 1 || n > MOST_THREADS)
        return rfs_fail_usage(err, "max_threads=16",
                              "option 'max_threads' must be 1 to %d, not '%s'", MOST_THREADS,
                              value);
    o->max_threads = (unsigned)n;
    return 0;
}

static int set_own(struct rfs_mount_options *o, enum own own, const char *value,
                   struct rfs_error *err)
{
    switch (own) {
    case IO:
        return set_io(o, value, err);
    case THREADS:
        return set_threads(o, value, err);
    case FSNAME:
        return set_text(&o->fsname, value);
    case SUBTYPE:
        return set_text(&o->subtype, value);
    case NONEMPTY:
        o->nonempty = true;
        break;
    case OTHER:
        o->allow_other = true;
        break;
    case ROOT:
        o->allow_root = true;
        break;
    case PERMISSIONS:
        o->default_permissions = true;
        break;
    case AUTO_UNMOUNT:
        o->auto_unmount = true;
        break;
    case NOEXEC:
        o->noexec = true;
        break;
    case DEBUG:
        o->debug = true;
        break;
    case DECRYPTED:
        o->allow_decrypted = true;
        break;
    }
    return 0;
}

/* One option, "name" or "name=value", still escaped; may be changed. */
static int take(struct rfs_mount_options *o, char *option, struct rfs_error *err)
{
    char *value = strchr(option, '=');
    const struct known *k;

    if (value)
        *value++ = '\0';
    if (is_for_others(option))
        return 0;
    if (strcmp(option, "key") == 0) /* what follows it is not shown to anybody else */
        return rfs_fail_usage(err, "-o key_file=FILE, key_env=NAME or key_fd=N",
                              "a key is not taken from a command line, which everybody sees");
    k = find(option);
    if (!k)
        return refuse_unknown(option, err);
    /* The view knows which of its own may be empty. */
    if (k->valued && (!value || (k->kind != VIEW && !*value)))
        return rfs_fail_usage(err, RFS_PROGRAM_HELP, "option '%s' needs a value", option);
    if (!k->valued && value)
        return rfs_fail_usage(err, k->kind == IGNORED ? NULL : option, "option '%s' takes no value",
                              option);
    if (value)
        unescape(value);
    o->keyed |= strncmp(option, "key_", 4) == 0;
    switch (k->kind) {
    case VIEW:
        return value ? pass_on_value(&o->view, option, value) : pass_on(&o->view, option, NULL);
    case VIEW_TEXT:
        return access(value, F_OK) == 0 ? pass_on_file(&o->view, option, value)
                                        : pass_on_value(&o->view, option, value);
    case VIEW_FILE:
        return pass_on_file(&o->view, option, value);
    case VIEW_FILES:
        return pass_on_files(&o->view, option, value);
    case OWN:
        return set_own(o, k->own, value, err);
    case IGNORED:
        break;
    }
    return 0;
}

static int take_list(struct rfs_mount_options *o, const char *list, struct rfs_error *err)
{
    RFS_FREE char *copy = strdup(list);
    int rc = 0;

    if (!copy)
        return -ENOMEM;
    for (char *start = copy, *at = copy; rc == 0; at++) {
        const bool last = *at == '\0';

        if (*at == '\\' && at[1]) {
            at++;
        } else if (last || *at == ',') {
            *at = '\0';
            if (*start)
                rc = take(o, start, err);
            start = at + 1;
        }
        if (last)
            break;
    }
    return rc;
}

static int take_flags(struct rfs_mount_options *o, int argc, char **argv, struct rfs_error *err)
{
    static const struct option flags[] = {{"check", no_argument, NULL, 'c'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {NULL, 0, NULL, 0}};
    int rc = 0, flag;

    opterr = 0;
    while (rc == 0 && (flag = getopt_long(argc, argv, ":o:fdshV", flags, NULL)) != -1) {
        const char *arg = optind > 0 && optind <= argc ? argv[optind - 1] : "";

        switch (flag) {
        case 'o':
            rc = take_list(o, optarg, err);
            break;
        case 'f':
            o->foreground = true;
            break;
        case 'd':
            o->debug = true;
            break;
        case 's':
            o->single = true;
            break;
        case 'c':
            o->action = RFS_ACTION_CHECK;
            break;
        case 'h':
            o->action = RFS_ACTION_HELP;
            return 0;
        case 'V':
            o->action = RFS_ACTION_VERSION;
            return 0;
        case ':':
            return rfs_fail_usage(err, RFS_PROGRAM_HELP, "'%s' needs a value", arg);
        default:
            return optopt > 0 && optopt < 128 && strncmp(arg, "--", 2) != 0
                       ? rfs_fail_usage(err, RFS_PROGRAM_HELP, "unknown flag '-%c'", optopt)
                       : rfs_fail_usage(err, RFS_PROGRAM_HELP, "unknown flag '%s'", arg);
        }
    }
    return rc;
}

static int take_places(struct rfs_mount_options *o, int n, char **places, struct rfs_error *err)
{
    /* "" is a variable of the caller's that is not set, not the current folder. */
    if (n < 1 || !*places[0])
        return rfs_fail_usage(err, RFS_PROGRAM_HELP, "the source folder is missing");
    if (n < 2 ? o->action != RFS_ACTION_CHECK : !*places[1])
        return rfs_fail_usage(err, RFS_PROGRAM_HELP, "the mount point is missing");
    if (n > 2)
        return rfs_fail_usage(err, RFS_PROGRAM_HELP, "unexpected argument '%s'", places[2]);
    o->source = rfs_path_absolute(places[0]);
    o->mountpoint = n > 1 ? strdup(places[1]) : NULL;
    return o->source && (n < 2 || o->mountpoint) ? 0 : -ENOMEM;
}

/* What is decrypted is for its owner alone, and for no cache that outlives this process. */
static int check_keyed(const struct rfs_mount_options *o, struct rfs_error *err)
{
    if (o->keyed && o->io == RFS_IO_CACHED)
        return rfs_fail_usage(
            err, "io=direct",
            "io=cached with a key would keep decrypted content in the page cache");
    if (o->keyed && (o->allow_other || o->allow_root) && !o->allow_decrypted)
        return rfs_fail_usage(err, "allow_decrypted as well, if that is what you want",
                              "%s with a key would let others at decrypted content",
                              o->allow_other ? "allow_other" : "allow_root");
    return 0;
}

int rfs_mount_options_parse(int argc, char **argv, struct rfs_mount_options *out,
                            struct rfs_error *err)
{
    int rc;

    *out = (struct rfs_mount_options){.max_threads = DEFAULT_THREADS};
    *err = (struct rfs_error){0};
    rc = take_flags(out, argc, argv, err);
    if (rc == 0 && (out->action == RFS_ACTION_MOUNT || out->action == RFS_ACTION_CHECK))
        rc = take_places(out, argc - optind, argv + optind, err);
    if (rc == 0 && (out->action == RFS_ACTION_MOUNT || out->action == RFS_ACTION_CHECK))
        rc = check_keyed(out, err);
    if (rc == -ENOMEM && err->code == 0)
        rfs_fail(err, rc, RFS_NOWHERE, NULL, "out of memory");
    out->foreground |= out->debug;
    return rc;
}

void rfs_mount_options_free(struct rfs_mount_options *options)
{
    free(options->source);
    free(options->mountpoint);
    free(options->view);
    free(options->fsname);
    free(options->subtype);
    *options = (struct rfs_mount_options){0};
}

void rfs_mount_options_help(void)
{
    fputs("usage: reshardfs SRC MNT [-o OPTION,...] [-f] [-d] [-s]\n"
          "       reshardfs --check SRC [-o OPTION,...] | --help | --version\n"
          "Shows the sharded MindSpore checkpoint in SRC (rank_N/*.ckpt), cut for another\n"
          "strategy, as a read-only file system on MNT (rank_N/checkpoint_N.ckpt).\n"
          "\n"
          "  -o src_strategy=FILE  strategy of SRC; or all stages' files: a folder, A:B:C\n"
          "  -o dst_strategy=FILE  strategy to show (without one: one whole checkpoint)\n"
          "  -o {src,dst}_rules=, {src,dst}_ranks=N  rules instead (man reshardfs: RULES)\n"
          "  -o format=safetensors|pt, view=huggingface|unified, crc  other outputs\n"
          "  -o prefix=, names=FILE, dtype=RULES  names of files, of tensors; types\n"
          "  -o nshards=M, large_size=, uneven_steps, zip_crc  hfai's PART_*.pt, for M\n"
          "  -o rank_dir=, file=, files=, step=, epoch=, entry=, group_info=  what SRC has\n"
          "  -o segmented, segmented_skip=A:B  a folder's files are one; without A*, B*\n"
          "  -o cache=SIZE         memory for assembled pieces, as 512M or 2G\n"
          "  -o strict, check=crc  refuse what one strategy lacks; verify SRC's checksums\n"
          "  -o key_file=, key_fd=, key_env=, key_mode=  the key of encrypted files in SRC\n"
          "  -o io=auto|direct|cached, max_threads=N  the page cache; threads that answer\n"
          "  -o allow_other, nonempty  let other users in; mount over a folder with files\n"
          "  -o fsname=, subtype=, allow_root, auto_unmount, ...  as in mount.fuse3(8)\n"
          "  -f, -d, -s            stay in the foreground; print requests; one at a time\n"
          "  --check               plan every rank, report, mount nothing\n"
          "\n"
          "A comma inside a value is written \"\\,\". Unmount with: fusermount3 -u MNT\n",
          stdout);
}
