/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include "base/text.h"

/*
 * Limits of the parts of a message, in bytes, so that a long path never pushes the reason or the
 * remedy out.
 */
enum { FILE_SHOWN = 640, PARAM_SHOWN = 320, WRONG_SHOWN = 640 };

struct text {
    char *out;
    size_t n, cap;
};

static void put(struct text *t, const char *part)
{
    t->n += rfs_text_printable(t->out + t->n, t->cap - t->n, part);
}

/* The end of a path is more useful than its beginning. */
static void put_path(struct text *t, const char *path)
{
    const size_t length = strlen(path);

    if (length > FILE_SHOWN) {
        put(t, "...");
        path += length - FILE_SHOWN;
    }
    put(t, path);
}

static void put_name(struct text *t, const char *name)
{
    char head[PARAM_SHOWN + 1];
    const size_t length = strnlen(name, PARAM_SHOWN + 1);

    if (length <= PARAM_SHOWN) {
        put(t, name);
        return;
    }
    memcpy(head, name, PARAM_SHOWN);
    head[PARAM_SHOWN] = 0;
    put(t, head);
    put(t, "...");
}

static void put_where(struct text *t, struct rfs_where where)
{
    char number[48];

    if (where.file) {
        put_path(t, where.file);
        put(t, ": ");
    }
    if (where.offset >= 0) {
        snprintf(number, sizeof number, "offset %lld: ", (long long)where.offset);
        put(t, number);
    }
    if (where.param) {
        put(t, "parameter '");
        put_name(t, where.param);
        put(t, "': ");
    }
}

/*
 * The parts may point into err->text (a failure reported again with more context), so it is set
 * last.
 */
static int fill(struct rfs_error *err, int code, bool usage, struct rfs_where where,
                const char *remedy, const char *wrong)
{
    char message[sizeof err->text];
    struct text t = {message, 0, sizeof message};

    put_where(&t, where);
    put(&t, wrong);
    if (remedy) {
        put(&t, "; try: ");
        put(&t, remedy);
    }
    err->code = code;
    err->usage = usage;
    memcpy(err->text, message, t.n + 1);
    return code;
}

int rfs_fail(struct rfs_error *err, int code, struct rfs_where where, const char *remedy,
             const char *fmt, ...)
{
    char wrong[WRONG_SHOWN];
    va_list args;

    if (!err)
        return code;
    va_start(args, fmt);
    vsnprintf(wrong, sizeof wrong, fmt, args);
    va_end(args);
    return fill(err, code, false, where, remedy, wrong);
}

int rfs_fail_usage(struct rfs_error *err, const char *remedy, const char *fmt, ...)
{
    char wrong[WRONG_SHOWN];
    va_list args;

    if (!err)
        return -EINVAL;
    va_start(args, fmt);
    vsnprintf(wrong, sizeof wrong, fmt, args);
    va_end(args);
    return fill(err, -EINVAL, true, RFS_NOWHERE, remedy, wrong);
}

int rfs_fail_memory(struct rfs_error *err)
{
    return rfs_fail_memory_of(err, NULL);
}

int rfs_fail_memory_of(struct rfs_error *err, const char *file)
{
    return rfs_fail(err, -ENOMEM, RFS_IN(file), NULL, "out of memory");
}
