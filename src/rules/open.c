/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/read_whole.h"
#include "base/text.h"
#include "rules/internal.h"
#include "rules/shipped.h"

#include <unistd.h>

/* The name of the folder of shipped rules in messages. */
#define FOLDER "share/reshardfs/convert/"
#define ENDING ".rules"

static const struct rfs_rules_file *find_shipped(const char *name)
{
    const struct rfs_rules_file *file = rfs_rules_shipped;

    while (file->name && strcmp(file->name, name) != 0)
        file++;
    return file->name ? file : NULL;
}

static bool is_shipped(const char *path)
{
    return strncmp(path, FOLDER, strlen(FOLDER)) == 0 && find_shipped(path + strlen(FOLDER));
}

/* Beside the file that includes it, or a shipped one; these include none but each other. */
static int include_file(void *ctx, const char *from, const char *name, char **full, char **text,
                        size_t *n, struct rfs_error *err)
{
    const char *slash = strrchr(from, '/');
    const struct rfs_rules_file *shipped = find_shipped(name);

    (void)ctx;
    *full = rfs_text_printf("%.*s/%s", slash ? (int)(slash - from) : 1, slash ? from : ".", name);
    if (!*full)
        return rfs_fail_memory(err);
    if (!shipped || (!is_shipped(from) && access(*full, F_OK) == 0))
        return rfs_read_whole(*full, CONVERT_BYTES, text, n, err);
    free(*full);
    *full = rfs_text_printf(FOLDER "%s", name);
    *text = strdup(shipped->text);
    *n = strlen(shipped->text);
    return *full && *text ? 0 : rfs_fail_memory(err);
}

int rfs_rules_open(const char *path, struct rfs_rules **out, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t n;

    *out = NULL;
    const int rc = rfs_read_whole(path, CONVERT_BYTES, &text, &n, err);
    return rc ? rc : rfs_rules_parse(path, text, n, include_file, NULL, out, err);
}

int rfs_rules_named(const char *name, struct rfs_rules **out, struct rfs_error *err)
{
    *out = NULL;
    RFS_FREE char *path = rfs_text_printf(FOLDER "%s" ENDING, name);
    if (!path)
        return rfs_fail_memory(err);
    const struct rfs_rules_file *shipped = find_shipped(path + strlen(FOLDER));
    if (shipped)
        return rfs_rules_parse(path, shipped->text, strlen(shipped->text), include_file, NULL, out,
                               err);
    char names[400] = "";
    size_t n = 0;
    for (const struct rfs_rules_file *file = rfs_rules_shipped; file->name && n < sizeof names;
         file++)
        if (strncmp(file->name, "common", strlen("common")) != 0)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%.*s", n > 0 ? ", " : "convert=",
                                  (int)(strlen(file->name) - strlen(ENDING)), file->name);
    return rfs_fail_usage(err, names, "there are no conversion rules '%s'", name);
}
