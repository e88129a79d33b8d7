/* SPDX-License-Identifier: Apache-2.0 */
/* A build without hfai's parts: no state opens, so no other function gets one. */
#include "formats/hfai/hfai.h"

#include <assert.h>

int rfs_hfai_open(const struct rfs_chunks_parts *source, struct rfs_hfai **out,
                  struct rfs_error *err)
{
    *out = NULL;
    return rfs_fail(err, -ENOTSUP, RFS_IN(source->folder), "a build without --without-hfai",
                    "this build reads no parts of hfai's");
}

void rfs_hfai_free(struct rfs_hfai *hfai)
{
    assert(!hfai);
}

uint32_t rfs_hfai_parts(const struct rfs_hfai *hfai)
{
    assert(!hfai);
    return 0;
}

size_t rfs_hfai_models(const struct rfs_hfai *hfai)
{
    assert(!hfai);
    return 0;
}

size_t rfs_hfai_optimizers(const struct rfs_hfai *hfai)
{
    assert(!hfai);
    return 0;
}

const struct rfs_torch *rfs_hfai_torch(const struct rfs_hfai *hfai, uint32_t part)
{
    assert(!hfai);
    (void)part;
    return NULL;
}

int rfs_hfai_divide(const struct rfs_hfai *hfai, uint32_t n, uint64_t large,
                    struct rfs_hfai_division **out, struct rfs_error *err)
{
    assert(!hfai);
    (void)n;
    (void)large;
    (void)err;
    *out = NULL;
    return -ENOTSUP;
}

void rfs_hfai_division_free(struct rfs_hfai_division *division)
{
    assert(!division);
}

int rfs_hfai_part(const struct rfs_hfai_division *division, uint32_t part, struct rfs_document *out,
                  struct rfs_error *err)
{
    assert(!division);
    (void)part;
    (void)out;
    (void)err;
    return -ENOTSUP;
}

int rfs_hfai_whole(const struct rfs_hfai *hfai, struct rfs_document *out, struct rfs_error *err)
{
    assert(!hfai);
    (void)out;
    (void)err;
    return -ENOTSUP;
}

int rfs_hfai_model(const struct rfs_hfai *hfai, size_t model, struct rfs_document *out,
                   struct rfs_error *err)
{
    (void)model;
    return rfs_hfai_whole(hfai, out, err);
}

int rfs_hfai_optimizer(const struct rfs_hfai *hfai, size_t optimizer, struct rfs_document *out,
                       struct rfs_error *err)
{
    (void)optimizer;
    return rfs_hfai_whole(hfai, out, err);
}

int rfs_hfai_list(const struct rfs_hfai *hfai, const struct rfs_hfai_listing *how,
                  struct rfs_hfai_list *out, struct rfs_error *err)
{
    assert(!hfai);
    (void)how;
    (void)err;
    *out = (struct rfs_hfai_list){.n_models = 0};
    return -ENOTSUP;
}

void rfs_hfai_list_free(struct rfs_hfai_list *list)
{
    assert(list->tensors.n == 0);
}

int rfs_hfai_hold(const struct rfs_hfai_division *division, const struct rfs_hfai_list *list,
                  uint32_t *parts, struct rfs_error *err)
{
    assert(!division);
    (void)list;
    (void)parts;
    (void)err;
    return -ENOTSUP;
}

void rfs_hfai_chunk(uint64_t elements, uint32_t n, uint32_t part, uint64_t *begin, uint64_t *end)
{
    (void)elements;
    (void)n;
    (void)part;
    *begin = *end = 0;
}

int rfs_hfai_state(const struct rfs_chunks_parts *parts, const struct rfs_chunks_source *to,
                   rfs_index_each_fn *each, void *ctx,
                   struct rfs_chunks_state out[RFS_CHUNKS_STATE], struct rfs_error *err)
{
    struct rfs_hfai *none;

    (void)to;
    (void)each;
    (void)ctx;
    (void)out;
    return rfs_hfai_open(parts, &none, err);
}
