/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/options.h"

#include "base/cleanup.h"
#include "base/pathlist.h"
#include "base/text.h"
#include "mount/known.h"
#include "mount/paths.h"
#include "mount/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_THREADS = 16, MOST_THREADS = 256 };

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

static int pass_on_folder(char **list, const char *name, const char *value)
{
    RFS_FREE char *whole = strcmp(value, "no") == 0 ? strdup(value) : rfs_path_from_here(value);

    return whole ? pass_on_value(list, name, whole) : -ENOMEM;
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

static int set_control(struct rfs_mount_options *o, const char *value, struct rfs_error *err)
{
    static const char *const names[] = {"hide", "show", "no"};

    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(value, names[i]) == 0) {
            o->control = (enum rfs_control)i;
            return 0;
        }
    }
    return rfs_fail_usage(err, "control=show, control=hide or control=no",
                          "option 'control' cannot be '%s'", value);
}

static int set_sandbox(struct rfs_mount_options *o, const char *value, struct rfs_error *err)
{
    static const char *const names[] = {"auto", "on", "log", "off"};

    for (unsigned i = 0; i < 4; i++) {
        if (strcmp(value, names[i]) == 0) {
            o->sandbox = (enum rfs_sandbox_mode)i;
            return 0;
        }
    }
    return rfs_fail_usage(err, "sandbox=auto, on, log or off", "option 'sandbox' cannot be '%s'",
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

static int set_log_level(struct rfs_mount_options *o, const char *value, struct rfs_error *err)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};

    for (int i = 0; i < 4; i++) {
        if (strcmp(value, names[i]) == 0) {
            o->log_level = (enum reshard_level)i;
            return 0;
        }
    }
    return rfs_fail_usage(err, "log_level=error, warning, info or debug",
                          "option 'log_level' cannot be '%s'", value);
}

static int set_own(struct rfs_mount_options *o, enum rfs_own own, const char *value,
                   struct rfs_error *err)
{
    switch (own) {
    case RFS_OWN_IO:
        return set_io(o, value, err);
    case RFS_OWN_CONTROL:
        return set_control(o, value, err);
    case RFS_OWN_SANDBOX:
        return set_sandbox(o, value, err);
    case RFS_OWN_THREADS:
        return set_threads(o, value, err);
    case RFS_OWN_LOG_LEVEL:
        return set_log_level(o, value, err);
    case RFS_OWN_CONFIG: /* it was read before */
        break;
    case RFS_OWN_WRITABLE:
        o->writable = true;
        break;
    case RFS_OWN_FSNAME:
        return set_text(&o->fsname, value);
    case RFS_OWN_SUBTYPE:
        return set_text(&o->subtype, value);
    case RFS_OWN_NONEMPTY:
        o->nonempty = true;
        break;
    case RFS_OWN_OTHER:
        o->allow_other = true;
        break;
    case RFS_OWN_ROOT:
        o->allow_root = true;
        break;
    case RFS_OWN_PERMISSIONS:
        o->default_permissions = true;
        break;
    case RFS_OWN_AUTO_UNMOUNT:
        o->auto_unmount = true;
        break;
    case RFS_OWN_NOEXEC:
        o->noexec = true;
        break;
    case RFS_OWN_DEBUG:
        o->debug = true;
        break;
    case RFS_OWN_DECRYPTED:
        o->allow_decrypted = true;
        break;
    }
    return 0;
}

static int set_view(struct rfs_mount_options *o, const struct rfs_known *known, const char *value)
{
    o->keyed |= strncmp(known->name, "key_", 4) == 0;
    switch (known->kind) {
    case RFS_VIEW_TEXT:
        return access(value, F_OK) == 0 ? pass_on_file(&o->view, known->name, value)
                                        : pass_on_value(&o->view, known->name, value);
    case RFS_VIEW_FILE:
        return pass_on_file(&o->view, known->name, value);
    case RFS_VIEW_FOLDER:
        return pass_on_folder(&o->view, known->name, value);
    case RFS_VIEW_FILES:
        return pass_on_files(&o->view, known->name, value);
    default:
        return value ? pass_on_value(&o->view, known->name, value)
                     : pass_on(&o->view, known->name, NULL);
    }
}

/* Files and variables say of a switch whether it is on: sets *VALUE to NULL, or *OFF. */
static int read_switch(const struct rfs_setting *setting, const char **value, bool *off,
                       struct rfs_error *err)
{
    if (!*value || !setting->origin)
        return 0;
    const int on = rfs_settings_switch(*value);
    if (on < 0)
        return rfs_fail_usage(err, "yes or no", "option '%s' is on or off, not '%s'", setting->name,
                              *value);
    *off = on == 0;
    *value = NULL;
    return 0;
}

static int take(struct rfs_mount_options *o, const struct rfs_setting *setting,
                struct rfs_error *err)
{
    const char *name = setting->name, *value = setting->value;
    bool off = false;

    if (rfs_known_is_for_others(name))
        return 0;
    if (strcmp(name, "key") == 0) /* what follows it is not shown to anybody else */
        return rfs_fail_usage(err, "-o key_file=FILE, key_env=NAME or key_fd=N",
                              "a key is not taken from a command line, which everybody sees");
    const struct rfs_known *known = rfs_known_find(name);
    if (!known)
        return rfs_known_refuse(name, err);
    if (!known->valued && read_switch(setting, &value, &off, err))
        return -EINVAL;
    /* The view knows which of its own may be empty. */
    if (known->valued && (!value || (known->kind != RFS_VIEW && !*value)))
        return rfs_fail_usage(err, RFS_PROGRAM_HELP, "option '%s' needs a value", name);
    if (!known->valued && value)
        return rfs_fail_usage(err, known->kind == RFS_IGNORED ? NULL : name,
                              "option '%s' takes no value", name);
    if (off || known->kind == RFS_IGNORED)
        return 0;
    return known->kind == RFS_OWN ? set_own(o, known->own, value, err) : set_view(o, known, value);
}

/* Says where, if it was not the command line. */
static int place(const struct rfs_setting *setting, int rc, struct rfs_error *err)
{
    char text[sizeof err->text];

    if (setting->origin && err->code) {
        memcpy(text, err->text, sizeof text);
        rfs_fail_usage(err, NULL, "%s: %s", setting->origin, text);
    }
    return rc;
}

static int take_all(struct rfs_mount_options *o, const struct rfs_settings *settings,
                    struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < settings->list.n; i++)
        rc = place(&settings->list.data[i], take(o, &settings->list.data[i], err), err);
    return rc;
}

/* A variable that is no option is the one with the key, if that is how it is named, or a mistake. */
static int take_environment(struct rfs_mount_options *o, struct rfs_settings *settings,
                            const struct rfs_settings *file, const struct rfs_settings *command,
                            struct rfs_error *err)
{
    const struct rfs_setting *key = rfs_settings_last(command, "key_env");

    key = key ? key : rfs_settings_last(settings, "key_env");
    key = key ? key : rfs_settings_last(file, "key_env");
    for (size_t i = 0; i < settings->list.n; i++) {
        struct rfs_setting *setting = &settings->list.data[i];
        const bool is_key = key && key->value && strcmp(setting->origin, key->value) == 0;
        const int rc = is_key ? 0 : place(setting, take(o, setting, err), err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Paths in the file are looked for from its folder. */
static int take_file(struct rfs_mount_options *o, const char *path,
                     const struct rfs_settings *settings, struct rfs_error *err)
{
    RFS_CLOSE int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    RFS_FREE char *absolute = rfs_path_absolute(path);
    int rc = here >= 0 ? 0 : -errno;

    if (!absolute)
        return -ENOMEM;
    if (rc == 0 && chdir(dirname(absolute)) != 0)
        rc = -errno;
    if (rc)
        return rfs_fail(err, rc, RFS_IN(path), NULL, "cannot look from its folder: %s",
                        strerror(-rc));
    rc = take_all(o, settings, err);
    if (fchdir(here) != 0 && rc == 0)
        rc = rfs_fail(err, -errno, RFS_IN("."), NULL, "cannot go back: %s", strerror(errno));
    return rc;
}

/*
 * The command line counts before the environment, and that before the file: what is taken last counts. mount(8) says
 * rw where nobody did, with dev and suid or their opposites; asked for on its own it is a mistake.
 */
static int take_settings(struct rfs_mount_options *o, const struct rfs_settings *command,
                         struct rfs_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings environment = {0};
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings file = {0};
    int rc = rfs_settings_add_environment(&environment, environ);
    const struct rfs_setting *config = rfs_settings_last(command, "config");

    config = config ? config : rfs_settings_last(&environment, "config");
    if (rc == 0 && config && config->value && *config->value)
        rc = rfs_settings_add_file(&file, config->value, err);
    if (rc == 0 && file.list.n > 0)
        rc = take_file(o, config->value, &file, err);
    if (rc == 0)
        rc = take_environment(o, &environment, &file, command, err);
    if (rc == 0)
        rc = take_all(o, command, err);
    if (rc == 0 && o->writable && !rfs_settings_last(command, "suid") &&
        !rfs_settings_last(command, "nosuid"))
        rc = rfs_fail_usage(err, "ro, or nothing: it is read-only in any case",
                            "option 'rw' cannot be had: what is shown is made from the source, "
                            "and nothing can be written to it");
    return rc;
}

static int take_flags(struct rfs_mount_options *o, int argc, char **argv,
                      struct rfs_settings *settings, struct rfs_error *err)
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
            rc = rfs_settings_add_list(settings, optarg);
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
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings settings = {0};
    int rc;

    *out = (struct rfs_mount_options){.max_threads = DEFAULT_THREADS,
                                      .log_level = RESHARD_LOG_INFO,
                                      .sandbox = RFS_SANDBOX_DEFAULT};
    *err = (struct rfs_error){0};
    rc = take_flags(out, argc, argv, &settings, err);
    if (rc == 0 && (out->action == RFS_ACTION_MOUNT || out->action == RFS_ACTION_CHECK))
        rc = take_settings(out, &settings, err);
    if (rc == 0 && (out->action == RFS_ACTION_MOUNT || out->action == RFS_ACTION_CHECK))
        rc = take_places(out, argc - optind, argv + optind, err);
    if (rc == 0 && (out->action == RFS_ACTION_MOUNT || out->action == RFS_ACTION_CHECK))
        rc = check_keyed(out, err);
    if (rc == -ENOMEM && err->code == 0)
        rfs_fail(err, rc, RFS_NOWHERE, NULL, "out of memory");
    out->foreground |= out->debug;
    if (out->debug)
        out->log_level = RESHARD_LOG_DEBUG;
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
          "Shows the checkpoint of many ranks in SRC as that of others on MNT, read-only.\n"
          "\n"
          "strategies    src_strategy=FILE, dst_strategy=FILE (stages: a folder, A:B); or\n"
          "              {src,dst}_rules=RULES, {src,dst}_ranks=N; no dst: a whole file\n"
          "what SRC has  rank_dir=, file=GLOB, files=MAP, step=N|all, epoch=N, entry=,\n"
          "              group_info=, segmented, segmented_skip=A:B, check=crc, strict,\n"
          "              follow_links\n"
          "its key       key_file=FILE, key_fd=N, key_env=NAME, key_mode=MODE\n"
          "what is shown format=ckpt|safetensors|pt, view=ranks|huggingface|unified,\n"
          "              prefix=, file_size=, names=MAP, dtype=RULES, crc, zip_crc;\n"
          "              of hfai's parts: nshards=M, large_size=, uneven_steps\n"
          "the mount     cache=SIZE, io=auto|direct|cached, max_threads=N, index_cache=,\n"
          "              allow_other, allow_root, allow_decrypted, nonempty, auto_unmount,\n"
          "              fsname=, subtype=, default_permissions, noexec; ro, nofail, ...\n"
          "in general    config=FILE, log_level=error|warning|info|debug, control=show|no,\n"
          "              sandbox=auto|on|log|off\n"
          "\n"
          "-f, -d, -s    stay in the foreground; print requests as well; one at a time\n"
          "--check       plan every rank, report, mount nothing\n"
          "Options also come from RESHARDFS_NAME=VALUE, and lines NAME = VALUE of config=.\n"
          "A comma inside a value is \\, here. Unmount with: fusermount3 -u MNT\n",
          stdout);
}
