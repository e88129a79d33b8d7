/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of torch.save: its object, as a graph of nodes, and where the bytes of its storages lie.
 * No storage is read.
 *
 * Cost: that of the pickle (pickle.h) and of the directory (zip.h). Immutable once open.
 */
#pragma once

#include "base/text.h"
#include "formats/index.h"
#include "formats/torch/pickle.h"
#include "formats/torch/zip.h"

struct rfs_torch {
    struct rfs_zip zip;
    struct rfs_pickle pickle;
    const char *prefix; /* folder of all entries, such as "archive"; owned by zip; not terminated */
    size_t prefix_bytes;
    size_t
        share; /* bytes taken of the memory for headers (base/budget.h); 0 after rfs_torch_keep */
};

/* Says whether the first N bytes of a file are those of the format before torch 1.6. */
bool rfs_torch_is_legacy(const unsigned char *head, size_t n);
/*
 * Opens a file, whose nodes get ORIGIN. 0; -EINVAL for an invalid file, -ENOTSUP for one of the
 * format before torch 1.6, a TorchScript, or of another byte order, the errors of rfs_zip_open and
 * rfs_pickle_read; each with *err filled. The caller is to free it before it reads other headers.
 */
int rfs_torch_open(const struct rfs_bytes_source *from, uint16_t origin, struct rfs_torch *out,
                   struct rfs_error *err);
/*
 * Opens a file that may have other names, too. DTensors and ShardedTensors are calls of
 * RFS_CALL_WRAPPED.
 */
int rfs_torch_open_named(const struct rfs_bytes_source *from, enum rfs_pickle_names names,
                         struct rfs_torch *out, struct rfs_error *err);
/* Opens a file that stays open while other headers are read; BUDGET pays for its memory. */
int rfs_torch_keep(const struct rfs_bytes_source *from, uint16_t origin, struct rfs_budget *budget,
                   struct rfs_torch *out, struct rfs_error *err);
void rfs_torch_free(struct rfs_torch *torch);
/* Returns whether the pickle names storages, which the archive then has in its folder data. */
bool rfs_torch_has_storages(const struct rfs_torch *torch);

/*
 * Proves that a file of torch.save is there, whatever classes its pickle names: its directory, and
 * that data.pkl, or each entry with ALL, has the CRC-32 that the directory says, unless that is 0.
 * Returns 0, 1 with ALL if entries lack it, or an error of rfs_torch_open or rfs_zip_verify with
 * *err filled. Cost: reads those entries once.
 */
int rfs_torch_prove(const struct rfs_bytes_source *from, bool all, struct rfs_error *err);

/* A tensor of the graph. Strides and offset are in elements, as in torch. */
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
 * Reads a node that may be a tensor, or a parameter that wraps one: 1 with *out filled, 0 when it
 * is something else, -EINVAL with *err filled when it is one that reaches out of its storage, or
 * whose storage is not in the file or of another size, or -ENOTSUP for a valid tensor whose values
 * are not the stored bytes. PARAM is for messages.
 */
int rfs_torch_tensor(const struct rfs_torch *torch, const struct rfs_node *node, const char *file,
                     const char *param, struct rfs_torch_tensor *out, struct rfs_error *err);

/*
 * Gives the numbers of a tuple, a list or a torch.Size. False: NODE (or NULL) is none of these, has
 * more than RFS_MAX_DIMS items, or one that is no integer from 0 on.
 */
bool rfs_torch_numbers(const struct rfs_node *node, uint32_t *n, uint64_t *out);

/*
 * Bytes that the tensors of a file have together when each is written by itself. Strides of 0, and
 * storages that many tensors share, can multiply a few bytes without limit: no more than 64 times
 * the file, and 64 MiB, is summed, exported or shown as another format.
 */
struct rfs_torch_shown {
    uint64_t bytes;      /* of the tensors so far */
    uint64_t file_bytes; /* bytes of the file, or of all parts */
};
/* Adds a tensor's BYTES: 0, or -EFBIG with *err filled. */
int rfs_torch_show(struct rfs_torch_shown *shown, uint64_t bytes, const char *file,
                   const char *param, struct rfs_error *err);

/*
 * Finds the bytes of a STORAGE node: 0 with *record set, or -EINVAL with *err filled when they are
 * not in the file or of another size than the node says.
 */
int rfs_torch_record(const struct rfs_torch *torch, const struct rfs_node *storage,
                     const char *file, const char *param, const struct rfs_zip_entry **record,
                     struct rfs_error *err);

/*
 * Checks every tensor and storage of the graph, also those that are never read. 0, -EINVAL with
 * *err filled, or -ENOMEM. O(nodes).
 */
int rfs_torch_check(const struct rfs_torch *torch, const char *file, struct rfs_error *err);

/* Gives the dtype that a GLOBAL of RFS_CALL_DTYPE names. False: it is none. */
bool rfs_torch_dtype(const struct rfs_node *name, enum rfs_dtype *out);
/* Returns "float32" and so on; NULL for dtypes that torch does not have. */
const char *rfs_torch_dtype_name(enum rfs_dtype dtype);
/* Returns "FloatStorage" and so on; NULL for dtypes that only UntypedStorage holds. */
const char *rfs_torch_storage_class(enum rfs_dtype dtype);

/*
 * Builds the index of a file that holds a state dict. TABLES are filled as by rfs_ckpt_walk. ENTRY,
 * "model" or "state.model", is the path of the state dict in the file's object; NULL: the object
 * itself; or what keys begin with. *outside (or NULL) then gets the tensors of other keys. Values
 * that are not tensors are left out; *left_out is their number. Objects of any class
 * may be beside the entry, and within its values, but a value of it that is one is refused. 0 with
 * *out owned by the caller (rfs_index_free), or an error of rfs_torch_open; -EINVAL for an object
 * that is no dict with a tensor in it.
 */
int rfs_torch_walk(const struct rfs_bytes_source *from, const char *entry,
                   struct rfs_tables *tables, struct rfs_index **out, size_t *left_out,
                   struct rfs_outside *outside, struct rfs_error *err);

enum { RFS_TORCH_ENTRIES_SHOWN = 8, RFS_TORCH_ENTRY_SHOWN = 64 }; /* names, bytes of each */
/* Reports that a file has nothing at ENTRY: -EINVAL with *err filled. DICTS are what it has. */
int rfs_torch_no_entry(const char *file, const char *entry, const struct rfs_text_names *dicts,
                       struct rfs_error *err);
/*
 * Finds the dict at ENTRY of a file's object, or the one whose keys begin with what is left of
 * ENTRY, *prefix; NULL: all of its keys count. 0 with *out set, or -EINVAL with *err filled: there
 * is none.
 */
int rfs_torch_find_dict(const struct rfs_torch *torch, const char *file, const char *entry,
                        const struct rfs_node **out, const char **prefix, struct rfs_error *err);
/* Returns the text of a key behind PREFIX (or NULL) and a dot; NULL: it has not that beginning. */
const char *rfs_torch_key_behind(const struct rfs_node *key, const char *prefix, size_t *n);
/*
 * Lists the tensors of a file, which need not be in one dict: "model.layer.weight". *others is the
 * number of other values. 0, or -errno with *err filled.
 */
int rfs_torch_list(const struct rfs_bytes_source *from, rfs_index_each_fn *each, void *each_ctx,
                   size_t *others, struct rfs_error *err);
