/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/view/support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

void write_strategy(const char *root, const char *name, const char *items)
{
    static char text[32768];
    const int n = snprintf(text, sizeof text,
                           "{\"current_stage\": 1, \"parallel_strategy_item\": {\"op\": "
                           "{\"stage\": 0, \"parallel_strategy\": [[1]]}}, "
                           "\"parallel_layout_item\": {%s}}",
                           items);
    assert_in_range(n, 1, sizeof text - 1);
    tree_write(root, name, text, (size_t)n);
}

static unsigned char pattern(const char *name, uint64_t element)
{
    return (unsigned char)(element * 7 + (element >> 8) * 3 + (element >> 16) * 5 +
                           (unsigned char)name[0] * 3);
}

void fill(unsigned char *out, const char *name, uint64_t from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = pattern(name, from + i);
}

static void keep_line(void *ctx, enum reshard_level level, const char *line)
{
    struct log_lines *lines = ctx;
    const size_t used = strlen(lines->text);
    snprintf(lines->text + used, sizeof lines->text - used, "%d:%s\n", (int)level, line);
}

int open_with(struct fixture *f, const char *more)
{
    return open_following(f, more, 0);
}

int open_following(struct fixture *f, const char *more, uint32_t seconds)
{
    char options[8192];

    snprintf(options, sizeof options, "src_strategy=%s,dst_strategy=%s%s%s",
             tree_path(f->root, "src.json"), tree_path(f->root, "dst.json"), *more ? "," : "",
             more);
    const reshard_config config = {.struct_size = sizeof config,
                                   .options = options,
                                   .log = keep_line,
                                   .log_ctx = &f->lines,
                                   .follow = seconds};
    f->err = (reshard_error){.struct_size = sizeof f->err};
    return reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err);
}

void open_view(struct fixture *f)
{
    if (open_with(f, ""))
        fail_msg("%s", f->err.message);
}

uint64_t file_id(struct fixture *f, unsigned rank)
{
    char dir[32];
    char file[64];
    uint64_t id;

    snprintf(dir, sizeof dir, "rank_%u", rank);
    snprintf(file, sizeof file, "checkpoint_%u.ckpt", rank);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, dir, &id), 0);
    assert_int_equal(reshard_lookup(f->view, id, file, &id), 0);
    return id;
}

int stat_rank(struct fixture *f, unsigned rank, reshard_stat *st)
{
    *st = (reshard_stat){.struct_size = sizeof *st};
    f->err = (reshard_error){.struct_size = sizeof f->err};
    return reshard_getattr(f->view, file_id(f, rank), st, &f->err);
}

unsigned char *read_rank(struct fixture *f, unsigned rank, size_t *n)
{
    reshard_stat st;

    if (stat_rank(f, rank, &st))
        fail_msg("%s", f->err.message);
    unsigned char *data = malloc(st.size + 1);
    assert_non_null(data);
    assert_int_equal(reshard_pread(f->view, st.id, data, st.size + 1, 0), st.size);
    *n = st.size;
    return data;
}

void expect_file(struct fixture *f, unsigned rank, const struct bytes *expected)
{
    size_t n;
    unsigned char *data = read_rank(f, rank, &n);

    assert_int_equal(n, expected->n);
    assert_memory_equal(data, expected->data, n);
    free(data);
}

void write_source_rank(const char *root, unsigned rank, unsigned char steps)
{
    struct bytes file = {0};
    unsigned char w[8];
    unsigned char b[4];
    char path[64];

    fill(w, "w", rank * 8, 8);
    fill(b, "b", 0, 4);
    ckpt_tensor(&file, "steps", "Int8", 0, NULL, &steps, 1);
    ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){2, 4}, w, 8);
    ckpt_tensor(&file, "b", "UInt8", 1, (uint64_t[]){4}, b, 4);
    snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
    tree_write(root, path, file.data, file.n);
    bytes_free(&file);
}

void expected_rank(struct bytes *file, unsigned rank, unsigned char steps)
{
    unsigned char w[16];
    unsigned char b[4];

    for (unsigned row = 0; row < 8; row++)
        fill(w + row * 2, "w", row * 4 + rank * 2, 2);
    fill(b, "b", 0, 4);
    ckpt_tensor(file, "w", "Int8", 2, (uint64_t[]){8, 2}, w, 16);
    ckpt_tensor(file, "b", "UInt8", 1, (uint64_t[]){4}, b, 4);
    ckpt_tensor(file, "steps", "Int8", 0, NULL, &steps, 1);
}

int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    f->root = tree_new();
    write_strategy(f->root, "src.json", SRC_ITEMS);
    write_strategy(f->root, "dst.json", DST_ITEMS);
    for (unsigned rank = 0; rank < 4; rank++)
        write_source_rank(f->root, rank, 42);
    *state = f;
    return 0;
}

int tear_down(void **state)
{
    struct fixture *f = *state;

    reshard_close(f->view);
    tree_remove(f->root);
    free(f);
    return 0;
}

void replicate(struct fixture *f, const unsigned char *steps)
{
    write_strategy(f->root, "src.json", LAYOUT("w", "[2, 2]", "[0]", "[8]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[2, 2]", "[-1]", "[8]"));
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        unsigned char w[4];
        char path[64];
        fill(w, "w", rank % 2 * 4, 4);
        ckpt_tensor(&file, "w", "Int8", 1, (uint64_t[]){4}, w, 4);
        ckpt_tensor(&file, "steps", "Int8", 0, NULL, &steps[rank], 1);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        bytes_free(&file);
    }
}
