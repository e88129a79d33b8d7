/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/options.h"

#include "base/cleanup.h"
#include "base/pathlist.h"
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

/* Several paths, each made absolute. Empty ones stay, for the view to refuse. 0 or -ENOMEM. */
static int join_absolute(const char *value, char **out)
{
    RFS_CLEANUP(rfs_pathlist_free) struct rfs_pathlist paths = {0};
    int rc = rfs_pathlist_split(value, &paths);

    for (size_t i = 0; rc == 0 && i < paths.n; i++) {
        RFS_FREE char *before = RFS_STEAL(*out);
        RFS_FREE char *absolute = *paths.data[i] ? rfs_path_absolute(paths.data[i]) : strdup("");
        if (!absolute ||
            asprintf(out, "%s%s%s", before ? before : "", before ? ":" : "", absolute) < 0) {
            *out = NULL;
            rc = -ENOMEM;
        }
    }
    return rc;
}

/* Appends an option of the view's, with its paths made absolute. */
static int add_to_view(struct rfs_settings *view, const struct rfs_option *option,
                       const char *value)
{
    RFS_FREE char *path = NULL;
    int rc = 0;

    if (option->kind == RFS_OPTION_PATHS)
        rc = join_absolute(value, &path);
    else if (option->kind == RFS_OPTION_PATH ||
             (option->kind == RFS_OPTION_RULES && access(value, F_OK) == 0))
        rc = (path = rfs_path_absolute(value)) ? 0 : -ENOMEM;
    else if (option->kind == RFS_OPTION_FOLDER && strcmp(value, "no") != 0)
        rc = (path = rfs_path_from_here(value)) ? 0 : -ENOMEM;
    return rc ? rc : rfs_settings_add(view, option->name, path ? path : value, NULL);
}

/* Whether mount(8) keeps it for itself and its helpers, with or without a value. */
static bool is_for_others(const char *name)
{
    return strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0 ||
           strcmp(name, "comment") == 0 || strcmp(name, "user") == 0 ||
           strcmp(name, "uhelper") == 0 || strcmp(name, "helper") == 0;
}

static int take(struct rfs_mount_options *o, const struct rfs_setting *setting,
                struct rfs_error *err)
{
    const struct rfs_option *option = rfs_option_find(setting->name);
    const char *value = setting->value;

    if (is_for_others(setting->name))
        return 0;
    /* Files and variables say of a switch whether it is on. */
    if (option && !rfs_option_is_valued(option) && value && setting->origin) {
        const int on = rfs_option_switch(value);
        if (on < 0)
            return rfs_fail_usage(err, "yes or no", "option %s is on or off, not '%s'",
                                  option->name, value);
        if (on == 0)
            return 0;
        value = NULL;
    }
    const int rc = rfs_options_set(&o->set, 0, setting->name, value, err);
    return rc || !(option->flags & RFS_OPTION_OF_VIEW) ? rc : add_to_view(&o->view, option, value);
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
    if (rc == 0 && o->set.rw && !rfs_settings_last(command, "suid") &&
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
            rc = rfs_settings_add_text(settings, optarg);
            break;
        case 'f':
            o->foreground = true;
            break;
        case 'd':
            o->set.debug = true;
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
static int check_keyed(const struct rfs_options *o, struct rfs_error *err)
{
    if (!rfs_options_keyed(o))
        return 0;
    if (o->io == RFS_IO_CACHED)
        return rfs_fail_usage(
            err, "io=direct",
            "io=cached with a key would keep decrypted content in the page cache");
    if ((o->allow_other || o->allow_root) && !o->allow_decrypted)
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

    *out = (struct rfs_mount_options){0};
    *err = (struct rfs_error){0};
    rc = rfs_options_init(&out->set);
    if (rc == 0)
        rc = take_flags(out, argc, argv, &settings, err);
    if (rc == 0 && (out->action == RFS_ACTION_MOUNT || out->action == RFS_ACTION_CHECK)) {
        rc = take_settings(out, &settings, err);
        if (rc == 0)
            rc = take_places(out, argc - optind, argv + optind, err);
        if (rc == 0)
            rc = check_keyed(&out->set, err);
    }
    if (rc == -ENOMEM && err->code == 0)
        rfs_fail_memory(err);
    out->set.default_permissions |= out->set.allow_other || out->set.allow_root;
    if (out->single)
        out->set.max_threads = 1;
    out->foreground |= out->set.debug;
    if (out->set.debug)
        out->set.log_level = RFS_DEBUG;
    return rc;
}

void rfs_mount_options_free(struct rfs_mount_options *options)
{
    free(options->source);
    free(options->mountpoint);
    rfs_options_free(&options->set);
    rfs_settings_free(&options->view);
    *options = (struct rfs_mount_options){0};
}

enum { HELP_COLUMN = 28 };

/* "  name=VALUE  what it does", in a line, which completions read. */
static void help_option(const struct rfs_option *option)
{
    char takes[64];
    const int n = printf("  %s%s%s  ", option->name, rfs_option_is_valued(option) ? "=" : "",
                         rfs_option_takes(option, takes, sizeof takes));

    printf("%*s%s\n", n < HELP_COLUMN ? HELP_COLUMN - n : 0, "", option->help);
}

void rfs_mount_options_help(void)
{
    const struct rfs_option *option;

    fputs("usage: reshardfs SRC MNT [-o OPTION,...] [-f] [-d] [-s]\n"
          "       reshardfs --check SRC [-o OPTION,...] | --help | --version\n"
          "Shows the checkpoint of many ranks in SRC as that of others on MNT, read-only.\n"
          "\n"
          "  -f            stay in the foreground\n"
          "  -d            likewise, and print requests\n"
          "  -s            one request at a time\n"
          "  --check       plan every rank, report, mount nothing\n",
          stdout);
    for (size_t i = 0; (option = rfs_option_at(i)); i++) {
        if (option->heading)
            printf("\n%s:\n", option->heading);
        if (option->help)
            help_option(option);
    }
    fputs("\n"
          "ro, nofail, noatime and what else mount(8) adds is accepted.\n"
          "Options also come from RESHARDFS_NAME=VALUE, and lines NAME = VALUE of config=.\n"
          "A comma inside a value is \\, here. Unmount with: fusermount3 -u MNT\n",
          stdout);
}
