/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of torch.save: its object, as a graph of nodes, and where the bytes of its storages
 * lie. No storage is read.
 *
 * Cost: that of the pickle (pickle.h) and of the directory (zip.h). Immutable once open.
 */
#pragma once

#include "formats/index.h"
#include "formats/torch/pickle.h"
#include "formats/torch/zip.h"

struct rfs_torch {
    struct rfs_zip zip;
    struct rfs_pickle pickle;
    const char *prefix; /* of all entries, "PART_000" or "archive"; the zip's, not terminated */
    size_t prefix_bytes;
    size_t share; /* of the memory for headers (base/share.h); 0 once it is kept */
};

/*
 * READ, SIZE and FILE as of rfs_ckpt_walk; nodes get ORIGIN. 0; -EINVAL for an invalid file,
 * -ENOTSUP for one of the format before torch 1.6, a TorchScript, or of another byte order, the
 * errors of rfs_zip_open and rfs_pickle_read; each with *err filled. The caller is to free it
 * before it reads other headers.
 */
int rfs_torch_open(rfs_read_fn *read, void *ctx, uint64_t size, uint16_t origin, const char *file,
                   struct rfs_torch *out, struct rfs_error *err);
/*
 * The same of a file with pieces of tensors, DTensors, which are calls of RFS_CALL_WRAPPED there.
 */
int rfs_torch_open_pieces(rfs_read_fn *read, void *ctx, uint64_t size, const char *file,
                          struct rfs_torch *out, struct rfs_error *err);
/* The same of a file that is kept, whose memory BUDGET pays. */
int rfs_torch_keep(rfs_read_fn *read, void *ctx, uint64_t size, uint16_t origin, const char *file,
                   struct rfs_budget *budget, struct rfs_torch *out, struct rfs_error *err);
void rfs_torch_free(struct rfs_torch *torch);

/*
 * Proves that a file of torch.save is there, whatever classes its pickle names: its directory, and
 * that data.pkl, or each entry with ALL, has the CRC-32 that the directory says, unless that is 0.
 * Returns 0, 1 with ALL if entries lack it, or an error of rfs_torch_open or rfs_zip_verify with
 * *err filled. Cost: reads those entries once.
 */
int rfs_torch_prove(rfs_read_fn *read, void *ctx, uint64_t size, const char *file, bool all,
                    struct rfs_error *err);

/* The entry NAME of the archive's folder, or NULL. O(log n). */
const struct rfs_zip_entry *rfs_torch_entry(const struct rfs_torch *torch, const char *name,
                                            size_t name_bytes);

/* A tensor of the graph. Strides and offset are in elements, as torch has them. */
struct rfs_torch_tensor {
    const struct rfs_node *storage;
    const struct rfs_zip_entry *record; /* the storage's bytes */
    enum rfs_dtype dtype;
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS];
    uint64_t strides[RFS_MAX_DIMS];
    uint64_t offset;   /* 0 when there are no elements */
    uint64_t elements; /* times 16 they fit an int64_t */
    bool contiguous;   /* row-major, so that its bytes are one range */
    bool is_parameter;
};

/*
 * Whether the node is a tensor, or a parameter that wraps one: 1 with *out filled, 0 when it is
 * something else, -EINVAL with *err filled when it is one that reaches out of its storage, or whose
 * storage is not in the file or of another size, or -ENOTSUP for a valid tensor whose values are
 * not the stored bytes. PARAM is for messages.
 */
int rfs_torch_tensor(const struct rfs_torch *torch, const struct rfs_node *node, const char *file,
                     const char *param, struct rfs_torch_tensor *out, struct rfs_error *err);

/*
 * Bytes that the tensors of a file have together when each is written by itself. Strides of 0, and
 * storages that many tensors share, can multiply a few bytes without limit: this is the most that
 * is summed, exported or shown as another format.
 */
#define RFS_TORCH_SHOWN_TIMES 64
#define RFS_TORCH_SHOWN_MORE (UINT64_C(64) << 20)
struct rfs_torch_shown {
    uint64_t bytes;      /* so far */
    uint64_t file_bytes; /* of the file, or of all parts */
};
/* Adds a tensor's BYTES: 0, or -EFBIG with *err filled. */
int rfs_torch_show(struct rfs_torch_shown *shown, uint64_t bytes, const char *file,
                   const char *param, struct rfs_error *err);

/*
 * Where the bytes of a STORAGE node lie: 0 with *record set, or -EINVAL with *err filled when they
 * are not in the file or of another size than the node says.
 */
int rfs_torch_record(const struct rfs_torch *torch, const struct rfs_node *storage,
                     const char *file, const char *param, const struct rfs_zip_entry **record,
                     struct rfs_error *err);

/* Bytes of a STORAGE node, by its own fields; UINT64_MAX when these are impossible. */
uint64_t rfs_torch_storage_bytes(const struct rfs_node *storage);

/*
 * Checks every tensor and storage of the graph, also those that are never read. 0, -EINVAL with
 * *err filled, or -ENOMEM. O(nodes).
 */
int rfs_torch_check(const struct rfs_torch *torch, const char *file, struct rfs_error *err);

/* "float32" and so on; NULL for dtypes that torch does not have. */
const char *rfs_torch_dtype_name(enum rfs_dtype dtype);
/* "FloatStorage" and so on; NULL for dtypes that only UntypedStorage holds. */
const char *rfs_torch_storage_class(enum rfs_dtype dtype);
