/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/args.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "reshard COMMAND --help" */
static int refuse(const struct rfs_args *args, const char *what, const char *given,
                  struct rfs_error *err)
{
    char remedy[64];

    snprintf(remedy, sizeof remedy, "reshard %s --help", args->argv[0]);
    return rfs_fail_usage(err, remedy, "%s '%s'", what, given);
}

int rfs_args_next(struct rfs_args *args, struct rfs_error *err)
{
    char letters[64];
    int index = -1;

    if (args->only_places) {
        args->value = args->argv[optind];
        return optind < args->argc ? (optind++, RFS_ARGS_PLACE) : RFS_ARGS_END;
    }
    if (!args->begun) {
        opterr = 0;
        optind = 0; /* glibc's: begin anew, also with what the first characters of the list say */
        args->begun = true;
    }
    snprintf(letters, sizeof letters, "-:%s", args->letters ? args->letters : "");
    const int at = optind > 0 ? optind : 1;
    const int option = getopt_long(args->argc, args->argv, letters, args->names, &index);

    args->value = optarg;
    switch (option) {
    case -1:
        args->only_places = true;
        return rfs_args_next(args, err);
    case RFS_ARGS_PLACE:
        return RFS_ARGS_PLACE;
    case '?':
        return refuse(args, "unknown option", args->argv[at], err);
    case ':':
        return refuse(args, "a value is missing after", args->argv[at], err);
    default:
        break;
    }
    if (index < 0) {
        snprintf(args->letter, sizeof args->letter, "-%c", option);
        args->name = args->letter;
    } else {
        args->name = args->argv[at];
    }
    return option;
}

int rfs_args_refuse(const struct rfs_args *args, const char *remedy, struct rfs_error *err)
{
    const char *end = strchrnul(args->name, '=');

    return rfs_fail_usage(err, remedy, "%.*s cannot be '%s'", (int)(end - args->name), args->name,
                          args->value ? args->value : "");
}

int rfs_args_add(char **list, const char *key, const char *value, struct rfs_error *err)
{
    RFS_FREE char *before = RFS_STEAL(*list);
    RFS_FREE char *escaped = key ? rfs_text_option_value(value) : strdup(value);

    if (!escaped || asprintf(list, "%s%s%s%s%s", before ? before : "", before ? "," : "",
                             key ? key : "", key ? "=" : "", escaped) < 0) {
        *list = NULL;
        return rfs_fail_memory(err);
    }
    return 0;
}

int rfs_args_view(const struct rfs_args *args, int option, char **list, struct rfs_error *err)
{
    const char *key = option == 's'               ? "src_strategy"
                      : option == 'd'             ? "dst_strategy"
                      : option == RFS_ARGS_FORMAT ? "format"
                                                  : NULL;
    if (!key && option != 'o')
        return 0;
    if (!key && !*args->value)
        return 1;
    const int rc = rfs_args_add(list, key, args->value, err);
    return rc ? rc : 1;
}
