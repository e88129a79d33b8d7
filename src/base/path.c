/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"

#include <sys/stat.h>

char *rfs_path_join(const char *folder, const char *name)
{
    const size_t n = strlen(folder);
    const char *slash = n > 0 && folder[n - 1] == '/' ? "" : "/";
    return rfs_text_printf("%s%s%s", folder, slash, name);
}

int rfs_path_parent(const char *path, char **folder, char **name, struct rfs_error *err)
{
    *folder = rfs_store_parent(path);
    if (!*folder)
        return errno == ENOMEM ? rfs_fail_memory(err)
                               : rfs_fail(err, -errno, RFS_IN(path), NULL,
                                          "its folder cannot be reached: %s", strerror(errno));
    if (name && !(*name = strdup(rfs_path_name(path))))
        return rfs_fail_memory(err);
    return 0;
}

int rfs_path_refuse_overlap(const char *path, const char *source, const char *what,
                            const char *remedy, struct rfs_error *err)
{
    if (strcmp(path, source) == 0)
        return rfs_fail(err, -ELOOP, RFS_IN(path), remedy, "%s is the source", what);
    if (rfs_path_within(path, source))
        return rfs_fail(err, -ELOOP, RFS_IN(path), remedy, "%s is inside the source %s", what,
                        source);
    if (rfs_path_within(source, path))
        return rfs_fail(err, -ELOOP, RFS_IN(path), remedy, "the source %s is inside %s", source,
                        what);
    return 0;
}

static int resolve_file(const char *source, char **path, struct rfs_error *err)
{
    RFS_FREE char *folder = NULL;
    RFS_FREE char *name = NULL;
    *path = NULL;
    const int rc = rfs_path_parent(source, &folder, &name, err);
    if (rc < 0)
        return rc;
    *path = rfs_path_join(folder, name);
    return *path ? 0 : rfs_fail_memory(err);
}

int rfs_path_fail(const char *source, int code, struct rfs_error *err)
{
    const bool url = rfs_store_is_url(source) || rfs_store_is_foreign(source);

    code = code < 0 ? -code : code;
    if (code == ENOENT && !rfs_store_is_foreign(source))
        return rfs_fail(err, -code, RFS_IN(source),
                        url ? rfs_store_remedy(source, code) : "check the path",
                        "the source does not exist");
    return rfs_fail(err, -code, RFS_IN(source),
                    url              ? rfs_store_remedy(source, code)
                    : code == EACCES ? "check the permissions of the folders above it"
                                     : NULL,
                    "the source cannot be reached: %s", rfs_store_why(source, code));
}

int rfs_path_resolve(struct rfs_store *store, const char *source, char **path,
                     struct rfs_error *err)
{
    struct stat st;

    *path = rfs_store_realpath(store, source);
    if (!*path)
        return rfs_path_fail(source, errno, err);
    const int rc = rfs_store_stat(store, *path, &st);
    if (rc < 0 && rfs_store_is_url(source)) {
        free(*path);
        *path = NULL;
        return rfs_path_fail(source, rc, err);
    }
    if (rc < 0 || !S_ISREG(st.st_mode) || rfs_store_is_url(source))
        return 0;
    free(*path);
    return resolve_file(source, path, err);
}

/* ---- lists of paths -------------------------------------------------------------------------- */

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* Counts the bytes of TEXT that are a URL: up to the first ':' behind its host and its port. */
static size_t next_url(const char *text)
{
    const char *host = strstr(text, "://") + 3;
    const char *end = host + (*host == '[' ? strcspn(host, "]/") : strcspn(host, ":/"));

    end += *end == ']';
    const size_t digits = *end == ':' ? strspn(end + 1, "0123456789") : 0;
    if (digits > 0 && strchr("/:", end[1 + digits]))
        end += 1 + digits;
    return (size_t)(end - text) + strcspn(end, ":");
}

/*
 * Counts the bytes of TEXT, up to a ':' or the end, that are the next path. Names longer than the
 * system takes do not exist, so that the time is in the length of the text, not its square.
 */
static size_t next_path(const char *text)
{
    const size_t first = strcspn(text, ":");
    char path[PATH_MAX];

    if (rfs_store_is_url(text))
        return next_url(text);
    for (size_t n = strnlen(text, sizeof path - 1); n > first; n--) {
        if (text[n] != ':' && text[n] != '\0')
            continue;
        memcpy(path, text, n);
        path[n] = '\0';
        if (exists(path))
            return n;
    }
    /* A URL that is not read is refused as a whole. */
    return rfs_store_is_foreign(text) && strncmp(text + first, "://", 3) == 0 ? next_url(text)
                                                                              : first;
}

bool rfs_path_list_add(struct rfs_path_list *list, char *path)
{
    if (path && RFS_PUSH(list, path))
        return true;
    free(path);
    return false;
}

int rfs_path_list_split(const char *text, struct rfs_path_list *out)
{
    for (;;) {
        const size_t n = next_path(text);
        if (!rfs_path_list_add(out, strndup(text, n)))
            return -ENOMEM;
        if (text[n] == '\0')
            return 0;
        text += n + 1;
    }
}

RFS_COMPARE(by_bytes, char *, x, y, strcmp(*x, *y))

void rfs_path_list_sort(struct rfs_path_list *list)
{
    RFS_SORT_ALL(list, by_bytes);
}

void rfs_path_list_free(struct rfs_path_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->data[i]);
    free(list->data);
    *list = (struct rfs_path_list){0};
}
