/* SPDX-License-Identifier: Apache-2.0 */
/* Strings and map tensors, which nothing cuts: in whole checkpoints, and by other names. */
#include "tests/unit/view/support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const unsigned char note[] = {'h', 0, 0, 0, 'i', 0, 0, 0};

/*
 * One message of a map tensor, whose three tensors have N values each, as _write_mapparameter
 * writes it.
 */
static void add_map(struct bytes *file, const char *name, uint64_t n, unsigned char first)
{
    struct bytes map = {0}, value = {0};

    for (unsigned k = 0; k < 3; k++) {
        struct bytes tensor = {0};
        bytes_add(&tensor, "\x08", 1);
        bytes_varint(&tensor, n);
        bytes_add(&tensor, "\x12\x04int8\x1a", 7);
        bytes_varint(&tensor, n);
        for (uint64_t i = 0; i < n; i++)
            bytes_add(&tensor, &(unsigned char){(unsigned char)(first + k * 40 + i)}, 1);
        bytes_add(&map, "\x0a", 1);
        bytes_varint(&map, tensor.n);
        bytes_add(&map, tensor.data, tensor.n);
        bytes_free(&tensor);
    }
    bytes_add(&value, "\x0a", 1);
    bytes_varint(&value, strlen(name));
    bytes_add(&value, name, strlen(name));
    bytes_add(&value, "\x1a", 1);
    bytes_varint(&value, map.n);
    bytes_add(&value, map.data, map.n);
    bytes_add(file, "\x0a", 1);
    bytes_varint(file, value.n);
    bytes_add(file, value.data, value.n);
    bytes_free(&map);
    bytes_free(&value);
}

/* "w", then a string, then a map tensor of two messages, and "b". */
static void whole_file(struct bytes *file)
{
    *file = (struct bytes){0};
    ckpt_tensor(file, "w", "Int8", 1, (uint64_t[]){4}, "abcd", 4);
    ckpt_tensor(file, "note", "str", 1, (uint64_t[]){0}, note, sizeof note);
    add_map(file, "table", 3, 1);
    add_map(file, "table", 2, 9);
    ckpt_tensor(file, "b", "Int8", 1, (uint64_t[]){2}, "xy", 2);
}

/* Opens one whole checkpoint. */
static int open_whole(struct fixture *f, const char *options)
{
    struct bytes file;

    whole_file(&file);
    tree_write(f->root, "whole/net.ckpt", file.data, file.n);
    bytes_free(&file);
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    f->err = (reshard_error){.struct_size = sizeof f->err};
    return reshard_open(tree_path(f->root, "whole/net.ckpt"), &config, &f->view, &f->err);
}

static void open_whole_or_fail(struct fixture *f, const char *options)
{
    if (open_whole(f, options))
        fail_msg("%s", f->err.message);
}

static uint64_t find(struct fixture *f, uint64_t parent, const char *name)
{
    uint64_t id = 0;

    if (reshard_lookup(f->view, parent, name, &id))
        fail_msg("no %s", name);
    return id;
}

/* The last N bytes of a tensor in .reshardfs are CONTENT. */
static void expect_end(struct fixture *f, const char *name, const void *content, size_t n)
{
    reshard_stat st = {.struct_size = sizeof st};
    unsigned char data[1024];
    uint64_t id = find(f, RESHARD_ROOT, RESHARD_CONTROL);

    id = find(f, find(f, find(f, id, "tensors"), "full"), name);
    if (reshard_getattr(f->view, id, &st, &f->err))
        fail_msg("%s", f->err.message);
    assert_in_range(st.size, n, sizeof data);
    assert_int_equal(reshard_pread(f->view, id, data, sizeof data, 0), st.size);
    assert_memory_equal(data + st.size - n, content, n);
}

static void test_whole(void **state)
{
    struct fixture *f = *state;
    struct bytes file;

    open_whole_or_fail(f, "format=ckpt");
    whole_file(&file);
    expect_file(f, 0, &file);
    expect_end(f, "note.npy", note, sizeof note);
    expect_end(f, "w.npy", "abcd", 4);
    bytes_free(&file);
}

/* What a format has no form for is refused with the way out, which works. */
static void test_formats_without_them(void **state)
{
    static const char *const refused[] = {"format=safetensors", "format=pt", "view=huggingface",
                                          "view=unified"};
    struct fixture *f = *state;
    char options[1024];
    reshard_stat st;

    tree_write(f->root, "names.json", "{\"note\": null, \"table\": null}", 29);
    for (size_t i = 0; i < 4; i++) {
        int rc = open_whole(f, refused[i]);
        if (rc == 0) {
            uint64_t id = find(f, RESHARD_ROOT, "rank_0");
            id = find(f, id, i == 0 ? "checkpoint_0.safetensors" : "checkpoint_0.pt");
            st = (reshard_stat){.struct_size = sizeof st};
            rc = reshard_getattr(f->view, id, &st, &f->err);
        }
        assert_int_equal(rc, -EINVAL);
        if (!strstr(f->err.message, "is a string") && !strstr(f->err.message, "is a map tensor"))
            fail_msg("%s", f->err.message);
        assert_non_null(strstr(f->err.message, "names="));
        reshard_close(f->view);
        snprintf(options, sizeof options, "%s,names=%s", refused[i],
                 tree_path(f->root, "names.json"));
        open_whole_or_fail(f, options);
        expect_end(f, "w.npy", "abcd", 4);
        reshard_close(f->view);
        f->view = NULL;
    }
}

/* Names are those of what leaves: of map tensors as well, and in each of their messages. */
static void test_other_names(void **state)
{
    static const char map[] = "{\"table\": \"a longer name\", \"w\": \"table\", \"note\": \"n\"}";
    struct fixture *f = *state;
    struct bytes want = {0};
    char options[1024];

    tree_write(f->root, "names.json", map, sizeof map - 1);
    snprintf(options, sizeof options, "format=ckpt,names=%s", tree_path(f->root, "names.json"));
    open_whole_or_fail(f, options);
    ckpt_tensor(&want, "table", "Int8", 1, (uint64_t[]){4}, "abcd", 4);
    ckpt_tensor(&want, "n", "str", 1, (uint64_t[]){0}, note, sizeof note);
    add_map(&want, "a longer name", 3, 1);
    add_map(&want, "a longer name", 2, 9);
    ckpt_tensor(&want, "b", "Int8", 1, (uint64_t[]){2}, "xy", 2);
    expect_file(f, 0, &want);
    bytes_free(&want);
}

/* Ranks whose map tensors have as many bytes, in messages of other lengths. */
static void test_messages_of_ranks(void **state)
{
    struct fixture *f = *state;
    struct bytes files[2] = {{0}};
    char path[64];

    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes *file = &files[rank % 2];
        if (rank < 2) {
            ckpt_tensor(file, "w", "Int8", 1, (uint64_t[]){4}, "abcd", 4);
            add_map(file, "table", 1 + rank, 1);
            add_map(file, "table", 2 - rank, 9);
        }
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file->data, file->n);
    }
    assert_int_equal(files[0].n, files[1].n);
    write_strategy(f->root, "src.json", LAYOUT("w", "[4]", "[-1]", "[4]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[-1]", "[4]"));
    open_view(f);
    for (unsigned rank = 0; rank < 2; rank++) {
        expect_file(f, rank, &files[rank]);
        bytes_free(&files[rank]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_formats_without_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_messages_of_ranks, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view: values that are not tensors", tests, NULL, NULL);
}
