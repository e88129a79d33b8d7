/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.save written by hand: a pickle, put together opcode by opcode, and storages. For
 * tests.
 */
#ifndef TESTS_SUPPORT_TORCH_FILE_H
#define TESTS_SUPPORT_TORCH_FILE_H

#include "tests/support/archive.h"

struct torch_file {
    struct bytes pickle;
    struct archive archive; /* with the storages */
};

/* Opcodes as they are, "]" or "(". */
void torch_ops(struct torch_file *file, const char *ops);
void torch_text(struct torch_file *file, const char *text);
void torch_int(struct torch_file *file, int64_t number);
/* "module", "name" without calling it. */
void torch_global(struct torch_file *file, const char *module, const char *name);
void torch_tuple(struct torch_file *file, unsigned n, const int64_t *numbers);

/* A tensor in the storage "data/KEY". Without STRIDES it is row-major. */
struct torch_tensor {
    const char *class; /* "FloatStorage" */
    const char *key;
    int64_t elements; /* of the storage */
    int64_t offset;
    unsigned ndim;
    const int64_t *dims;
    const int64_t *strides;
};
void torch_tensor(struct torch_file *file, const struct torch_tensor *tensor);
void torch_storage(struct torch_file *file, const char *key, const void *content, size_t n);
/* Ends the pickle and the archive: the file's bytes, valid until torch_free. */
const struct bytes *torch_end(struct torch_file *file);
void torch_free(struct torch_file *file);

#endif
