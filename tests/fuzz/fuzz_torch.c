/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a file of torch.save, or as the pickle in one: the graph, its tensors, the index of
 * a state dict, the list of all tensors, what the arguments of a training say, and the pickle
 * written again, which must say the same.
 */
#include "formats/torch/arguments.h"
#include "formats/torch/pickler.h"
#include "formats/torch/torch.h"
#include "rules/hf_config.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wrap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("a tensor", "a tensor with strides", "a pickle that is written again",
           "arguments of a training");

static int read_input(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct wrapped *input = ctx;
    REQUIRE(offset <= input->size && n <= input->size - offset);
    memcpy(buf, input->data + offset, n);
    return 0;
}

static void check_error(const struct rfs_error *err, int rc)
{
    REQUIRE(rc < 0 && err->code == rc && err->text[0] && !strpbrk(err->text, "\n\r\t\033"));
}

/* The end of an entry's last element, in the file. */
static uint64_t end_of(const struct rfs_index *index, const struct rfs_entry *entry,
                       const struct rfs_type *type)
{
    const uint64_t *strides = rfs_index_strides(index, entry);
    uint64_t end = entry->offset + rfs_dtype_bytes((enum rfs_dtype)type->dtype);

    if (!strides || type->bytes == 0)
        return entry->offset + type->bytes;
    for (unsigned i = 0; i < type->ndim; i++)
        end += (type->dims[i] - 1) * strides[i];
    return end;
}

static void check_index(struct wrapped *input)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_index *index = NULL;
    struct rfs_error err = {0};
    size_t left_out;

    REQUIRE(tables.names && tables.types);
    const int rc = rfs_torch_walk(RFS_BYTES_SOURCE(read_input, input, input->size, "x.pt"), NULL,
                                  &tables, &index, &left_out, NULL, &err);
    if (rc)
        check_error(&err, rc);
    for (size_t i = 0; rc == 0 && i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const struct rfs_type *type = rfs_intern_bytes(tables.types, entry->type, NULL);
        REQUIRE(type->ndim <= RFS_MAX_DIMS && type->dtype < RFS_DTYPE_COUNT);
        REQUIRE(end_of(index, entry, type) <= input->size);
        REQUIRE(rfs_index_find(index, entry->name) == entry);
        fuzz_reached(rfs_index_strides(index, entry) != NULL);
    }
    rfs_index_free(index);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}

static bool check_listed(void *ctx, const char *name, const struct rfs_type *type, uint64_t offset)
{
    const struct wrapped *input = ctx;

    REQUIRE(name && type->ndim <= RFS_MAX_DIMS && type->dtype < RFS_DTYPE_COUNT);
    REQUIRE(offset <= input->size);
    return true;
}

static void check_list(struct wrapped *input)
{
    struct rfs_error err = {0};
    size_t others;
    const int rc = rfs_torch_list(RFS_BYTES_SOURCE(read_input, input, input->size, "x.pt"),
                                  check_listed, input, &others, &err);

    if (rc)
        check_error(&err, rc);
}

/* What the arguments of a training say is a config. */
static void check_arguments(struct wrapped *input)
{
    struct rfs_bytes out = {0};
    struct rfs_hf_config *config = NULL;
    struct rfs_error err = {0};
    const int rc =
        rfs_torch_arguments(RFS_BYTES_SOURCE(read_input, input, input->size, "x.pt"), &out, &err);

    if (rc)
        check_error(&err, rc);
    if (rc == 0 && out.n > 0) {
        REQUIRE(rfs_hf_config_read("x.pt", (const char *)out.data, out.n, &config, &err) == 0);
        REQUIRE(rfs_hf_config_find(config, "num_attention_heads") != NULL);
        fuzz_reached(3);
    }
    rfs_hf_config_free(config);
    rfs_bytes_free(&out);
}

/* The pickle is reached: what is put around it can be read. */
static void check_wrapped(struct wrapped *input)
{
    struct rfs_zip zip;
    struct rfs_error err = {0};

    REQUIRE(rfs_zip_open(RFS_BYTES_SOURCE(read_input, input, input->size, "x.pt"), NULL, &zip,
                         &err) == 0);
    REQUIRE(rfs_zip_find(&zip, "x/data.pkl", 10) != NULL);
    rfs_zip_free(&zip);
}

/* A storage's key in what is written: the number in the key that it has, or 0. */
static int key_of(void *ctx, const struct rfs_node *storage, uint32_t *key)
{
    const struct rfs_node *text = storage->of.items.data[2];

    (void)ctx;
    *key = text->of.text.n == 1 && text->of.text.data[0] >= '0' && text->of.text.data[0] <= '9'
               ? (uint32_t)(text->of.text.data[0] - '0')
               : 0;
    return 0;
}

/* Written, read and written once more: the same bytes. What is nested too deep is refused. */
static void check_written(const struct rfs_pickle *pickle)
{
    const struct rfs_pickle_from from = {"y.pt", 0, 0, NULL, false};
    struct rfs_bytes out = {0};
    struct rfs_bytes again = {0};
    struct rfs_pickle second;
    struct rfs_error err = {0};

    if (!require_result(rfs_pickler_write(pickle->root, key_of, NULL, &out, &err), &err)) {
        free(out.data);
        return;
    }
    unsigned char *copy = malloc(out.n);
    REQUIRE(copy != NULL);
    memcpy(copy, out.data, out.n);
    REQUIRE(rfs_pickle_read(copy, out.n, &from, &second, &err) == 0);
    REQUIRE(rfs_pickler_write(second.root, key_of, NULL, &again, &err) == 0);
    REQUIRE(again.n == out.n && memcmp(again.data, out.data, out.n) == 0);
    fuzz_reached(2);
    rfs_pickle_free(&second);
    free(out.data);
    free(again.data);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct wrapped input = wrap_torch(data, size);
    struct rfs_torch torch;
    struct rfs_error err = {0};

    if (size >= 2 && data[0] == 0x80 && data[1] == 2)
        check_wrapped(&input);
    int rc =
        rfs_torch_open(RFS_BYTES_SOURCE(read_input, &input, input.size, "x.pt"), 3, &torch, &err);
    if (rc == 0) {
        rc = rfs_torch_check(&torch, "x.pt", &err);
        if (rc == 0)
            check_written(&torch.pickle);
        rfs_torch_free(&torch);
    }
    if (rc)
        check_error(&err, rc);
    check_index(&input);
    check_list(&input);
    check_arguments(&input);
    free(input.data);
}
