/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy files, in either form. */
#include "base/cleanup.h"
#include "layout/builder.h"
#include "layout/document.h"

int rfs_strategy_doc_read(const char *name, const void *data, size_t size,
                          struct rfs_strategy_doc *doc, struct rfs_strategy **out,
                          struct rfs_error *err)
{
    struct rfs_strategy_builder *builder RFS_CLEANUP(rfs_strategy_builder_cleanup) =
        rfs_strategy_builder_new(name);
    struct rfs_layout_builder item RFS_CLEANUP(rfs_layout_end) = {
        .file = name, .err = err, .doc = doc};
    int rc;

    *out = NULL;
    if (builder == NULL)
        return rfs_fail_memory(err);
    if (size == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(name), NULL, "the strategy file is empty");
    rc = rfs_strategy_is_json(name) ? rfs_strategy_read_json(builder, &item, data, size)
                                    : rfs_strategy_read_protobuf(builder, &item, data, size);
    return rc == 0 ? rfs_strategy_builder_finish(builder, out, err) : rc;
}

int rfs_strategy_parse(const char *name, const void *data, size_t size, struct rfs_strategy **out,
                       struct rfs_error *err)
{
    return rfs_strategy_doc_read(name, data, size, NULL, out, err);
}

int rfs_strategy_doc_parse(const char *name, const void *data, size_t size,
                           struct rfs_strategy_doc *doc, struct rfs_strategy **out,
                           struct rfs_error *err)
{
    *out = NULL;
    if (!rfs_strategy_doc_begin(doc, name))
        return rfs_fail_memory(err);
    const int rc = rfs_strategy_doc_read(name, data, size, doc, out, err);
    if (rc != 0 || doc->lost.code == 0)
        return rc;
    rfs_strategy_free(RFS_STEAL(*out));
    if (err)
        *err = doc->lost;
    return doc->lost.code;
}
