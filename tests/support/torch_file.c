/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/torch_file.h"

#include <stdio.h>
#include <string.h>

static void begin(struct torch_file *file)
{
    if (file->pickle.n == 0)
        bytes_add(&file->pickle, "\x80\x02", 2);
}

void torch_ops(struct torch_file *file, const char *ops)
{
    begin(file);
    bytes_add(&file->pickle, ops, strlen(ops));
}

static void put(struct torch_file *file, const char *op, uint64_t number, unsigned n)
{
    unsigned char little[8];
    begin(file);
    for (unsigned i = 0; i < n; i++)
        little[i] = (unsigned char)(number >> 8 * i);
    bytes_add(&file->pickle, op, strlen(op));
    bytes_add(&file->pickle, little, n);
}

void torch_text(struct torch_file *file, const char *text)
{
    put(file, "X", strlen(text), 4);
    bytes_add(&file->pickle, text, strlen(text));
}

void torch_int(struct torch_file *file, int64_t number)
{
    put(file, "\x8a\x08", (uint64_t)number, 8);
}

void torch_global(struct torch_file *file, const char *module, const char *name)
{
    torch_ops(file, "c");
    torch_ops(file, module);
    torch_ops(file, "\n");
    torch_ops(file, name);
    torch_ops(file, "\n");
}

void torch_tuple(struct torch_file *file, unsigned n, const int64_t *numbers)
{
    torch_ops(file, "(");
    for (unsigned i = 0; i < n; i++)
        torch_int(file, numbers[i]);
    torch_ops(file, "t");
}

void torch_tensor(struct torch_file *file, const struct torch_tensor *tensor)
{
    int64_t strides[32];
    uint64_t step = 1; /* dims may be impossible */

    for (unsigned i = tensor->ndim; i-- > 0; step *= (uint64_t)tensor->dims[i])
        strides[i] = (int64_t)step;
    torch_global(file, "torch._utils", "_rebuild_tensor_v2");
    torch_ops(file, "((");
    torch_text(file, "storage");
    torch_global(file, "torch", tensor->class);
    torch_text(file, tensor->key);
    torch_text(file, "cuda:0");
    torch_int(file, tensor->elements);
    torch_ops(file, "tQ");
    torch_int(file, tensor->offset);
    torch_tuple(file, tensor->ndim, tensor->dims);
    torch_tuple(file, tensor->ndim, tensor->strides ? tensor->strides : strides);
    torch_ops(file, "\x89"
                    "ccollections\nOrderedDict\n)RtR");
}

void torch_storage(struct torch_file *file, const char *key, const void *content, size_t n)
{
    char name[300];
    snprintf(name, sizeof name, "data/%s", key);
    archive_put(&file->archive, name, content, n);
}

const struct bytes *torch_end(struct torch_file *file)
{
    torch_ops(file, ".");
    archive_put(&file->archive, "data.pkl", file->pickle.data, file->pickle.n);
    archive_put(&file->archive, "version", "3\n", 2);
    archive_end(&file->archive, END_WIDE);
    return &file->archive.file;
}

void torch_free(struct torch_file *file)
{
    bytes_free(&file->pickle);
    archive_free(&file->archive);
    *file = (struct torch_file){0};
}
