/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options as they were given, before anybody looks at what they mean: from -o lists, from the environment, and
 * from a file.
 *
 *     reshardfs SRC MNT -o cache=2G,strict        a comma inside a value is "\,", a backslash before either "\\"
 *
 *     RESHARDFS_CACHE=2G RESHARDFS_STRICT=yes     the name in capitals; a switch is yes, true, on or 1, or left
 *                                                 alone by no, false, off, 0 or an empty value
 *
 *     # a file: of lines
 *     [reshardfs]                                 may be left out; no other section
 *     cache = 2G                                  blanks around name and value don't count, nor do one pair of
 *     prefix = "my "                              double quotes around the value
 *     strict                                      or strict = yes, as in the environment
 *
 *     {"cache": "2G", "strict": true}             or of JSON: texts, whole numbers, true and false; a list of
 *                                                 texts for what takes several paths
 *
 * Paths in a file are looked for from the folder of the file. Not thread-safe.
 */
#ifndef RFS_MOUNT_SETTINGS_H
#define RFS_MOUNT_SETTINGS_H

#include "base/error.h"
#include "base/vec.h"

#include <stdbool.h>

#define RFS_SETTINGS_VARIABLE "RESHARDFS_"
#define RFS_SETTINGS_FILE_BYTES ((size_t)1 << 20) /* larger ones are refused */

struct rfs_setting {
    char *name;  /* owned */
    char *value; /* owned; NULL for a switch, which is on */
    char *
        origin; /* owned; where it was given, for messages: "FILE: line 3"; NULL: on the command line */
};

/* Zero-initialise. */
struct rfs_settings {
    RFS_VEC(struct rfs_setting) list;
};

void rfs_settings_free(struct rfs_settings *settings);

/* Appends; VALUE and ORIGIN may be NULL. 0 or -ENOMEM. */
int rfs_settings_add(struct rfs_settings *settings, const char *name, const char *value,
                     const char *origin);

/* Of the names, the last setting, or NULL. */
const struct rfs_setting *rfs_settings_last(const struct rfs_settings *settings, const char *name);

/* Those of a list after -o. 0 or -ENOMEM. */
int rfs_settings_add_list(struct rfs_settings *settings, const char *list);

/* Those of ENVIRONMENT (a list of "NAME=value" that ends with NULL). 0 or -ENOMEM. */
int rfs_settings_add_environment(struct rfs_settings *settings, char *const *environment);

/* Those of a file. 0, or -errno with *err filled. */
int rfs_settings_add_file(struct rfs_settings *settings, const char *path, struct rfs_error *err);

/* TEXT is that of a JSON file, with a NUL behind it. 0, or -errno with *err filled. */
int rfs_settings_add_json(struct rfs_settings *settings, const char *path, const char *text,
                          struct rfs_error *err);

/* What is in a file or a variable of a switch: 1 on, 0 off, -1 neither. */
int rfs_settings_switch(const char *value);

#endif
