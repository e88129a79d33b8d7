/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's .ckpt file, which image/ckpt.c draws. */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "image/image.h"
#include "tool/example/value.h"
#include "tool/example/write.h"

#define BUFFER ((size_t)1 << 20)

/* A rank's part of a tensor, as a sequence of runs that are contiguous in the whole tensor. */
struct slice {
    uint64_t key;
    enum rfs_dtype dtype;
    uint64_t run;    /* elements */
    uint64_t stride; /* elements from run to run */
    uint64_t first;  /* place of the first element in the whole tensor */
    struct rfs_type type;
    uint64_t elements;
};

static struct slice slice_of(const struct rfs_net_param *param, uint64_t seed, uint32_t rank)
{
    struct slice slice = {.dtype = param->dtype, .elements = 1};
    uint64_t dims[RFS_NET_DIMS] = {1, 1};
    uint32_t pieces[RFS_NET_DIMS] = {1, 1};
    uint32_t cell[RFS_NET_DIMS] = {0, 0};
    char name[sizeof param->name + 16];
    snprintf(name, sizeof name, "%s", param->name);
    if (param->per_rank)
        snprintf(name, sizeof name, "%s@%u", param->name, rank);
    slice.key = rfs_value_key(seed, name);
    if (param->shared) {
        rfs_cut_pieces(&param->cut[0], param->ndim, pieces);
        rfs_cut_cell(&param->cut[0], param->ndim, rank, cell);
    }
    for (uint32_t axis = 0; axis < param->ndim; axis++) {
        dims[axis] = param->dims[axis] / pieces[axis];
        slice.elements *= dims[axis];
    }
    slice.type = (struct rfs_type){.ndim = (uint8_t)param->ndim,
                                   .dtype = (uint8_t)param->dtype,
                                   .kind = RFS_TENSOR,
                                   .dims = {dims[0], dims[1]}};
    const uint64_t row = param->ndim == 2 ? param->dims[1] : 1;
    slice.first = cell[0] * dims[0] * row + cell[1] * dims[1];
    slice.run = pieces[1] == 1 ? slice.elements : dims[1];
    slice.stride = row;
    return slice;
}

/* COUNT elements from the slice's element BEGIN on. */
static void fill(const struct slice *slice, uint64_t begin, uint64_t count, unsigned char *out)
{
    const uint32_t bytes = rfs_value_bytes(slice->dtype);
    uint64_t run = begin / slice->run;
    uint64_t in_run = begin % slice->run;
    while (count > 0) {
        const uint64_t n = rfs_min_u64(count, slice->run - in_run);
        rfs_value_fill(slice->key, slice->dtype, slice->first + run * slice->stride + in_run, n,
                       out);
        out += n * bytes;
        count -= n;
        in_run = 0;
        run++;
    }
}

/* A file in the making, written in large pieces. */
struct sink {
    int fd;
    unsigned char *buffer; /* [BUFFER] */
    size_t used;
    const char *param;   /* whose bytes are added, and */
    const char *pending; /* of the oldest that are not written, or of those that could not be */
};

static int flush(struct sink *sink)
{
    const size_t n = sink->used;
    const int rc = rfs_write_all(sink->fd, sink->buffer, n);
    sink->used = 0;
    if (rc == 0)
        sink->pending = sink->param;
    return rc;
}

static int write_head(struct sink *sink, const struct rfs_bytes *head)
{
    const int rc = head->n > BUFFER - sink->used ? flush(sink) : 0;
    if (rc != 0 || head->n > BUFFER)
        return rc != 0 ? rc : rfs_write_all(sink->fd, head->data, head->n);
    memcpy(sink->buffer + sink->used, head->data, head->n);
    sink->used += head->n;
    return 0;
}

/* BYTES of the slice's content, from AT on. */
static int write_content(struct sink *sink, const struct slice *slice, uint64_t at, uint64_t bytes)
{
    const uint64_t element = rfs_value_bytes(slice->dtype);
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < bytes;) {
        const uint64_t n = rfs_min_u64((bytes - done) / element, (BUFFER - sink->used) / element);
        fill(slice, (at + done) / element, n, sink->buffer + sink->used);
        sink->used += (size_t)(n * element);
        done += n * element;
        if (done < bytes)
            rc = flush(sink);
    }
    return rc;
}

static int write_param(const struct rfs_net_param *param, const struct slice *slice,
                       struct rfs_bytes *head, struct sink *sink)
{
    const uint64_t whole = slice->elements * rfs_value_bytes(param->dtype);
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < whole; at += RFS_CKPT_CHUNK) {
        const uint64_t chunk = rfs_min_u64(whole - at, RFS_CKPT_CHUNK);
        head->n = 0;
        rc = rfs_image_ckpt_head(head, param->name, strlen(param->name), &slice->type, chunk)
                 ? write_head(sink, head)
                 : -ENOMEM;
        if (rc == 0)
            rc = write_content(sink, slice, at, chunk);
    }
    return rc;
}

int rfs_write_rank(const struct rfs_net *net, uint64_t seed, uint32_t rank, int fd,
                   const char *path, struct rfs_error *err)
{
    RFS_FREE unsigned char *buffer = malloc(BUFFER);
    struct sink sink = {fd, buffer, 0, NULL, NULL};
    struct rfs_bytes head = {0};
    int rc = buffer == NULL ? -ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < net->params.n; i++) {
        const struct slice slice = slice_of(&net->params.data[i], seed, rank);
        sink.param = net->params.data[i].name;
        sink.pending = sink.used == 0 ? sink.param : sink.pending;
        rc = write_param(&net->params.data[i], &slice, &head, &sink);
    }
    if (rc == 0)
        rc = flush(&sink);
    if (buffer == NULL)
        rfs_fail(err, rc, RFS_NOWHERE, NULL, "out of memory");
    else if (rc != 0)
        rfs_fail(err, rc, RFS_OF(path, sink.pending), "a file system with more room",
                 "cannot write: %s", strerror(-rc));
    rfs_bytes_free(&head);
    return rc;
}
