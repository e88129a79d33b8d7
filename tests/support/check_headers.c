/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads safetensors files from standard input, each behind its length in 8 bytes of this machine,
 * and prints for each "no REASON", or "ok" with a word for each tensor, in the order of the data:
 * NAME:TYPE:SHAPE:BEGIN:END, where NAME is in hexadecimal, and TYPE and SHAPE are of the header.
 */
#include "formats/safetensors/safetensors.h"

struct file {
    unsigned char *data;
    uint64_t size;
};

static int read_file(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct file *file = ctx;

    memcpy(buf, file->data + offset, n);
    return 0;
}

static void print_tensor(const struct rfs_tables *tables, const struct rfs_index *index, size_t i)
{
    const struct rfs_entry *entry = &index->entries[i];
    const struct rfs_type *type = rfs_intern_bytes(tables->types, entry->type, NULL);
    const enum rfs_dtype dtype = (enum rfs_dtype)type->dtype;
    const uint64_t begin = entry->offset - index->header_bytes - sizeof(uint64_t);

    putchar(' ');
    for (const char *at = rfs_intern_text(tables->names, entry->name); *at; at++)
        printf("%02x", (unsigned char)*at);
    printf(":%s:", rfs_dtype_safetensors(dtype));
    for (unsigned k = 0; k < type->ndim; k++)
        printf("%s%llu", k ? "," : "",
               (unsigned long long)(type->dims[k] *
                                    (k + 1U == type->ndim ? rfs_dtype_packed(dtype) : 1)));
    printf(":%llu:%llu", (unsigned long long)begin, (unsigned long long)(begin + type->bytes));
}

static void check(struct file *file)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_index *index = NULL;
    struct rfs_error err = {0};

    if (rfs_safetensors_walk(RFS_BYTES_SOURCE(read_file, file, file->size, "x"), &tables, NULL,
                             &index, &err) < 0) {
        printf("no %s\n", err.text);
    } else {
        fputs("ok", stdout);
        for (size_t i = 0; i < index->n; i++)
            print_tensor(&tables, index, i);
        putchar('\n');
    }
    rfs_index_free(index);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}

int main(void)
{
    struct file file;

    while (fread(&file.size, sizeof file.size, 1, stdin) == 1) {
        file.data = malloc(file.size + 1);
        if (!file.data || fread(file.data, 1, file.size, stdin) != file.size)
            return 2;
        check(&file);
        free(file.data);
    }
    return 0;
}
