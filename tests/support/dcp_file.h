/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .metadata of torch.distributed.checkpoint by hand, right or wrong: dcp_begin, the tensors,
 * dcp_storage, the places, dcp_end. Without a memo, so larger than torch's.
 */
#ifndef TESTS_SUPPORT_DCP_FILE_H
#define TESTS_SUPPORT_DCP_FILE_H

#include "tests/support/tree.h"

#include <stdint.h>

/*
 * The classes that follow: "checkpoint" or "distributed_checkpoint", HyperParallel's package; NULL:
 * torch's, as at the start.
 */
extern const char *dcp_package;

/* Opcodes, a text of letters for each of those that have no argument. */
void dcp_ops(struct bytes *out, const char *ops);
/* Bytes, with the NULs in them. */
#define DCP_BYTES(out, bytes) bytes_add(out, bytes, sizeof(bytes) - 1)
void dcp_text(struct bytes *out, const char *text);
void dcp_int(struct bytes *out, int64_t value);
void dcp_name(struct bytes *out, const char *module, const char *name);
/* An object of a class of …checkpoint.metadata, or of …filesystem: its state's items follow. */
void dcp_object(struct bytes *out, const char *class);
#define DCP_BUILD "ub" /* behind them */
/* torch.Size of N numbers. */
void dcp_shape(struct bytes *out, unsigned n, const int64_t *numbers);

void dcp_begin(struct bytes *out);
/* Up to its chunks, which follow, and then dcp_tensor_end. */
void dcp_tensor(struct bytes *out, const char *name, const char *dtype, unsigned ndim,
                const int64_t *dims);
void dcp_chunk(struct bytes *out, unsigned ndim, const int64_t *offset, const int64_t *size);
void dcp_tensor_end(struct bytes *out);
/* A value that is not a tensor. */
void dcp_left_out(struct bytes *out, const char *name);
void dcp_storage(struct bytes *out);
/* OFFSET: NULL for a value that is not a tensor. */
void dcp_place(struct bytes *out, const char *name, unsigned ndim, const int64_t *offset,
               const char *path, int64_t at, int64_t bytes);
/* A place of an item that went through N extensions of torch's writer, the last first. */
void dcp_place_through(struct bytes *out, const char *name, unsigned ndim, const int64_t *offset,
                       const char *path, int64_t at, int64_t bytes, unsigned n,
                       const char *const *extensions);
/* A place in a file of HyperParallel; KEY: NULL for none. */
void dcp_place_key(struct bytes *out, const char *name, unsigned ndim, const int64_t *offset,
                   const char *path, const char *key);
/* After the places: the paths of names, which follow, and then dcp_end. */
void dcp_paths(struct bytes *out);
/* A path of N keys; "#3" is the number of an item of a list. */
void dcp_path(struct bytes *out, const char *name, unsigned n, const char *const *keys);
/* VERSION: NULL for none. */
void dcp_end(struct bytes *out, const char *version);

#endif
