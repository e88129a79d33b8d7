/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of a command, as all commands read them: options anywhere, getopt_long's forms, "--" before
 * paths that begin with '-'. One at a time in a process, because getopt's state is global.
 *
 *     struct rfs_args args = {.argc = argc, .argv = argv, .letters = "s:d:o:", .names = names};
 *     for (int option; (option = rfs_args_next(&args, err)) != RFS_ARGS_END;) {
 *         if (option < 0) …          -EINVAL with *err filled
 *         if (option == RFS_ARGS_PLACE) … args.value is a path …
 *         else …                     args.value (NULL: none), args.name as it was given
 */
#ifndef RFS_TOOL_COMMON_ARGS_H
#define RFS_TOOL_COMMON_ARGS_H

#include "base/error.h"

#include <getopt.h>
#include <stdbool.h>

enum {
    RFS_ARGS_END = 0,
    RFS_ARGS_PLACE = 1, /* an argument that is no option */
    RFS_ARGS_LONG = 256 /* the first value for options that have no letter */
};

struct rfs_args {
    int argc;
    char **argv;                /* [0] is the command's name, for messages */
    const char *letters;        /* as getopt's, without a mode at the front */
    const struct option *names; /* as getopt_long's */
    /* of the last one */
    const char *value;
    const char *name; /* "-s" or "--json", valid until the next */
    bool begun, only_places;
    char letter[3];
};

/* The next option's value, RFS_ARGS_PLACE, RFS_ARGS_END, or -EINVAL with *err filled. */
int rfs_args_next(struct rfs_args *args, struct rfs_error *err);

/* The option that args is at cannot have its value. -EINVAL. */
int rfs_args_refuse(const struct rfs_args *args, const char *remedy, struct rfs_error *err);

/*
 * Appends "KEY=VALUE" to a list of view options such as reshard_open takes, VALUE escaped; or, when KEY is
 * NULL, VALUE alone, which is such a list. *LIST is malloc'ed (NULL: empty) and the caller's in any case.
 * 0, or -ENOMEM with *err filled.
 */
int rfs_args_add(char **list, const char *key, const char *value, struct rfs_error *err);

/*
 * The options that all commands which open a view have: -s FILE, -d FILE, -o OPTIONS, and --format if it is
 * named RFS_ARGS_FORMAT. 1 if OPTION is one of them and was appended to *LIST, 0 if not, or -ENOMEM with *err
 * filled.
 */
enum { RFS_ARGS_FORMAT = 4096 };
#define RFS_ARGS_VIEW "s:d:o:" /* their letters */
int rfs_args_view(const struct rfs_args *args, int option, char **list, struct rfs_error *err);

#endif
