/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/source.h"

#include "base/store.h"
#include "store/crypt/key.h"
#include "store/encrypted.h"
#include "tool/common/open.h"
#include "tool/common/tool.h"
#include "view/crypt.h"

/* Reading headers waits for disks and servers, not for processors. */
#define THREADS 8
/* Of decrypted blocks, each of 64 MiB; the threads wait for room. */
#define BUDGET (UINT64_C(192) << 20)

static void print_line(void *ctx, enum rfs_level level, const char *line)
{
    (void)ctx;
    if (level == RFS_ERROR)
        rfs_tool_print_error(line);
    else if (level == RFS_WARNING)
        rfs_tool_warn(line, NULL);
}

static int load_key(struct rfs_tool_source *source, struct rfs_error *err)
{
    const struct rfs_options *options = &source->options;

    if (!rfs_options_keyed(options))
        return 0;
    int rc = rfs_tool_harden(options, err)
                 ?: rfs_view_read_key(options, &source->log, &source->key, err);
    if (rc)
        return rc;
    source->encrypted = rfs_encrypted_new(source->key, BUDGET, &source->log);
    return source->encrypted ? 0 : rfs_fail_memory(err);
}

int rfs_tool_source_prepare(const struct rfs_settings *options, const char *path,
                            rfs_log_sink *sink, void *ctx, struct rfs_tool_source *out,
                            struct rfs_error *err)
{
    memset(out, 0, sizeof *out);
    rfs_log_init(&out->log, sink ? sink : print_line, ctx);
    int rc = rfs_options_take(options, &out->options, err)
            ?: load_key(out, err)
            ?: rfs_tool_objects(&out->options, path, err);
    if (rc)
        return rc;
    out->pool = rfs_pool_new(THREADS);
    if (out->pool && path && rfs_is_url(path))
        rfs_pool_expect_waits(out->pool);
    return out->pool ? 0 : rfs_fail_memory(err);
}

struct rfs_source_spec rfs_tool_source_spec(const struct rfs_tool_source *source, const char *path)
{
    struct rfs_source_spec spec = rfs_options_spec(&source->options, path);

    spec.encrypted = source->encrypted;
    return spec;
}

int rfs_tool_source_open(struct rfs_tool_source *source, const char *path, struct rfs_error *err)
{
    const struct rfs_source_spec spec = rfs_tool_source_spec(source, path);

    return rfs_catalog_open(&spec, &source->log, source->pool, &source->catalog, err);
}

void rfs_tool_source_close(struct rfs_tool_source *source)
{
    if (source->pool)
        rfs_pool_free(source->pool); /* first: its jobs use the rest */
    rfs_catalog_close(source->catalog);
    rfs_encrypted_free(source->encrypted);
    rfs_key_free(source->key);
    rfs_options_free(&source->options);
    rfs_log_destroy(&source->log);
    memset(source, 0, sizeof *source);
}
