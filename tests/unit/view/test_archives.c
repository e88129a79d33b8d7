/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints shown as files of torch.save: their archives, and the checksums in them. */
#include "formats/torch/torch.h"
#include "tests/unit/view/support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

struct memory {
    const unsigned char *data;
    size_t n;
};

static int memory_read(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct memory *memory = ctx;
    assert_true(offset <= memory->n && n <= memory->n - offset);
    memcpy(buf, memory->data + offset, n);
    return 0;
}

/* The checksum that the directory gives of an entry, and the one behind its content. */
static void expect_sums(const unsigned char *data, const struct rfs_zip_entry *entry, bool summed)
{
    const unsigned char *content = data + entry->offset;
    const unsigned char *after = content + entry->bytes;
    const uint32_t sum = summed ? (uint32_t)crc32(0, content, (uInt)entry->bytes) : 0;
    assert_int_equal(entry->crc, sum);
    assert_memory_equal(after, "PK\7\10", 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(after[4 + i], sum >> 8 * i & 0xff);
}

static void look(struct fixture *f, bool summed)
{
    struct rfs_torch torch;
    struct rfs_error err = {0};
    reshard_stat st = {.struct_size = sizeof st};
    uint64_t id;
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_0", &id), 0);
    assert_int_equal(reshard_lookup(f->view, id, "checkpoint_0.pt", &id), 0);
    assert_int_equal(reshard_getattr(f->view, id, &st, NULL), 0);
    const size_t n = (size_t)st.size;
    unsigned char *data = malloc(n);
    assert_non_null(data);
    assert_int_equal(reshard_pread(f->view, id, data, n, 0), n);
    struct memory memory = {data, n};
    if (rfs_torch_open(RFS_BYTES_SOURCE(memory_read, &memory, n, "rank_0.pt"), 0, &torch, &err))
        fail_msg("%s", err.text);
    assert_int_equal(torch.prefix_bytes, strlen("archive"));
    for (size_t i = 0; i < torch.zip.n; i++) {
        const struct rfs_zip_entry *entry = &torch.zip.entries[i];
        assert_int_equal(entry->offset % 64, 0);
        expect_sums(data, entry, summed || !strstr(entry->name, "/data/"));
    }
    rfs_torch_free(&torch);
    free(data);
}

/* Sums are of what is shown, whatever the sources' elements are. */
static void test_sums(void **state)
{
    struct fixture *f = *state;
    const float numbers[4] = {0.5f, -1, 3, 1e6f};
    struct bytes file = {0};

    for (unsigned rank = 0; rank < 4; rank++) {
        char path[64];
        const uint64_t dims[2] = {2, 2};
        file.n = 0;
        ckpt_tensor(&file, "w", "Float32", 2, dims, numbers, sizeof numbers);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
    }
    bytes_free(&file);
    write_strategy(f->root, "src.json", LAYOUT("w", "[4]", "[0, -1]", "[8, 2]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[0, -1]", "[8, 2]"));
    assert_int_equal(open_with(f, "format=pt"), 0);
    look(f, false);
    reshard_close(f->view);
    f->view = NULL;
    assert_int_equal(open_with(f, "format=pt,zip_crc"), 0);
    look(f, true);
    reshard_close(f->view);
    f->view = NULL;
    assert_int_equal(open_with(f, "format=pt,zip_crc,dtype=bfloat16"), 0);
    look(f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sums, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
