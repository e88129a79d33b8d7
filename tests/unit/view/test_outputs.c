/* SPDX-License-Identifier: Apache-2.0 */
/* What is shown in other forms than .ckpt files of ranks: through the public interface. */
#include "tests/unit/view/support.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)

static int open_options(struct fixture *f, const char *options)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};

    f->err = (reshard_error){.struct_size = sizeof f->err};
    return reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err);
}

static void expect_usage(struct fixture *f, const char *more, const char *fragment)
{
    assert_int_equal(open_with(f, more), -EINVAL);
    assert_null(f->view);
    assert_int_equal(f->err.usage, 1);
    if (!strstr(f->err.message, fragment))
        fail_msg("'%s' is not in '%s'", fragment, f->err.message);
}

static uint64_t find(struct fixture *f, uint64_t parent, const char *name)
{
    uint64_t id = 0;

    if (reshard_lookup(f->view, parent, name, &id))
        fail_msg("no %s", name);
    return id;
}

static uint64_t size_of(struct fixture *f, uint64_t id)
{
    reshard_stat st = {.struct_size = sizeof st};

    if (reshard_getattr(f->view, id, &st, &f->err))
        fail_msg("%s", f->err.message);
    return st.size;
}

static unsigned char *read_file(struct fixture *f, uint64_t id, size_t *n)
{
    *n = size_of(f, id);
    unsigned char *data = malloc(*n + 1);
    assert_non_null(data);
    assert_int_equal(reshard_pread(f->view, id, data, *n + 1, 0), *n);
    data[*n] = 0;
    return data;
}

/* The file is LENGTH, TEXT and padding, and then CONTENT. */
static void expect_safetensors(struct fixture *f, uint64_t id, const char *text,
                               const void *content, size_t content_bytes)
{
    const size_t padded = (strlen(text) + 7) / 8 * 8;
    size_t n;
    unsigned char *data = read_file(f, id, &n);

    assert_int_equal(n, 8 + padded + content_bytes);
    assert_int_equal(data[0] | data[1] << 8, padded);
    assert_memory_equal(data + 8, text, strlen(text));
    for (size_t i = strlen(text); i < padded; i++)
        assert_int_equal(data[8 + i], ' ');
    assert_memory_equal(data + 8 + padded, content, content_bytes);
    free(data);
}

/* The destination's rank: steps and b are copied, w is cut along axis 1. Of one size: by name. */
static void test_safetensors_of_ranks(void **state)
{
    struct fixture *f = *state;
    reshard_summary sum = {.struct_size = sizeof sum};

    assert_int_equal(open_with(f, "format=safetensors,prefix=net-"), 0);
    reshard_summarize(f->view, &sum);
    assert_true(sum.mapped);
    assert_int_equal(sum.entries, 5);
    for (unsigned rank = 0; rank < 2; rank++) {
        unsigned char content[21];
        char name[64];
        content[0] = 42;
        for (unsigned row = 0; row < 8; row++)
            fill(content + 1 + row * 2, "w", row * 4 + rank * 2, 2);
        fill(content + 17, "b", 0, 4);
        snprintf(name, sizeof name, "rank_%u", rank);
        const uint64_t dir = find(f, RESHARD_ROOT, name);
        snprintf(name, sizeof name, "net-%u.safetensors", rank);
        const uint64_t id = find(f, dir, name);
        assert_int_equal(dir, 2 + 2 * rank);
        assert_int_equal(id, 3 + 2 * rank);
        expect_safetensors(f, id,
                           "{\"__metadata__\":{\"format\":\"ms\"},"
                           "\"steps\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]},"
                           "\"w\":{\"dtype\":\"I8\",\"shape\":[8,2],\"data_offsets\":[1,17]},"
                           "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[17,21]}}",
                           content, sizeof content);
    }
}

static void test_contradictions(void **state)
{
    struct fixture *f = *state;

    expect_usage(f, "file_size=1G", "option file_size");
    expect_usage(f, "crc,format=safetensors", "option crc is for .ckpt files");
    expect_usage(f, "view=huggingface", "view=huggingface shows one whole checkpoint");
    expect_usage(f, "view=unified", "view=unified shows one whole checkpoint");
    expect_usage(f, "view=unified,format=ckpt", "view=unified is made of safetensors files");
    expect_usage(f, "view=unified,prefix=x", "view=unified has file names of its own");
    expect_usage(f, "view=unified,file_size=0", "option file_size=0: not a size");
    expect_usage(f, "order=layers", "option order=layers is for safetensors files");
    expect_usage(f, "order=layers,view=dcp", "option order=layers is for safetensors files");
    expect_usage(f, "order=layers,view=mindformers", "option order=layers is for");
    expect_usage(f, "order=layer", "option order=layer");
    expect_usage(f, "segmented_skip=w", "option segmented_skip leaves out");
    assert_int_equal(open_options(f, "view=huggingface,crc"), -EINVAL);
    assert_int_equal(f->err.usage, 1);
}

/* ---- flat views ------------------------------------------------------------------------------ */

/* Three parameters over two ranks, of 8, 6 and 4 bytes, and a value in rank 0 alone. */
static void write_flat_source(struct fixture *f, const char *options)
{
    char text[1024];

    write_strategy(
        f->root, "flat.json",
        LAYOUT("w", "[2]", "[0, -1]", "[2, 4]") ", " LAYOUT("v", "[2]", "[-1]", "[6]") ", " LAYOUT(
            "accu_grads.w", "[2]", "[0]", "[4]") ", " LAYOUT("b", "[2]", "[0]", "[4]"));
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        unsigned char data[8];
        snprintf(text, sizeof text, "src/rank_%u", rank);
        if (rank > 1) { /* the fixture's, which this strategy does not have */
            snprintf(text, sizeof text, "%s/src/rank_%u/net-1_2.ckpt", f->root, rank);
            assert_int_equal(remove(text), 0);
            snprintf(text, sizeof text, "%s/src/rank_%u", f->root, rank);
            assert_int_equal(remove(text), 0);
            continue;
        }
        fill(data, "w", rank * 4, 4);
        ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){1, 4}, data, 4);
        fill(data, "v", 0, 6);
        ckpt_tensor(&file, "v", "Int8", 1, (uint64_t[]){6}, data, 6);
        fill(data, "g", rank * 2, 2);
        ckpt_tensor(&file, "accu_grads.w", "Int8", 1, (uint64_t[]){2}, data, 2);
        fill(data, "b", rank * 2, 2);
        ckpt_tensor(&file, "b", "Int8", 1, (uint64_t[]){2}, data, 2);
        ckpt_tensor(&file, "steps", "Int8", 0, NULL, "\x05", 1);
        snprintf(text, sizeof text, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, text, file.data, file.n);
        bytes_free(&file);
    }
    snprintf(text, sizeof text, "src_strategy=%s,%s", tree_path(f->root, "flat.json"), options);
    if (open_options(f, text))
        fail_msg("%s", f->err.message);
}

static void expect_names(struct fixture *f, const char *const *names)
{
    reshard_dirent entry = {.struct_size = sizeof entry};
    uint64_t at = 0;
    uint64_t id;

    for (; names[at]; at++) {
        assert_int_equal(reshard_list(f->view, RESHARD_ROOT, at, &entry), 1);
        assert_string_equal(entry.name, names[at]);
        assert_false(entry.is_dir);
        assert_int_equal(entry.id, find(f, RESHARD_ROOT, names[at]));
        assert_int_equal(entry.id, 2 + at);
        assert_true(reshard_is_ready(f->view, entry.id));
        assert_int_equal(reshard_list(f->view, entry.id, 0, &entry), -ENOTDIR);
        assert_int_equal(reshard_lookup(f->view, 2 + at, "x", &id), -ENOTDIR);
    }
    assert_int_equal(reshard_list(f->view, RESHARD_ROOT, at, &entry), 0);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_0", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, 2 + at, "x", &id), -ENOENT);
    reshard_stat st = {.struct_size = sizeof st};
    assert_int_equal(reshard_getattr(f->view, RESHARD_ROOT, &st, NULL), 0);
    assert_int_equal(st.nlink, 2);
    assert_int_equal(reshard_check(f->view, NULL, NULL, NULL), 0);
}

static void expect_text(struct fixture *f, const char *name, const char *want)
{
    size_t n;
    unsigned char *data = read_file(f, find(f, RESHARD_ROOT, name), &n);

    assert_string_equal((char *)data, want);
    free(data);
}

static void test_huggingface(void **state)
{
    struct fixture *f = *state;
    unsigned char w[8];
    unsigned char rest[9];

    /* In the order of the source: w 8, v 6, accu_grads.w 4, b 4; then steps 1. */
    write_flat_source(f, "view=huggingface,file_size=8,only=*");
    expect_names(f, (const char *const[]){
                        "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                        "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                        "model.safetensors.index.json", NULL});
    fill(w, "w", 0, 8);
    expect_safetensors(f, 2,
                       "{\"__metadata__\":{\"format\":\"pt\"},"
                       "\"w\":{\"dtype\":\"I8\",\"shape\":[2,4],\"data_offsets\":[0,8]}}",
                       w, 8);
    fill(rest, "g", 0, 4);
    fill(rest + 4, "b", 0, 4);
    expect_safetensors(f, 4,
                       "{\"__metadata__\":{\"format\":\"pt\"},"
                       "\"accu_grads.w\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                       "\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                       rest, 8);
    expect_text(f, "model.safetensors.index.json",
                "{\n  \"metadata\": {\n    \"total_size\": 23\n  },\n  \"weight_map\": {\n"
                "    \"accu_grads.w\": \"model-00003-of-00004.safetensors\",\n"
                "    \"b\": \"model-00003-of-00004.safetensors\",\n"
                "    \"steps\": \"model-00004-of-00004.safetensors\",\n"
                "    \"v\": \"model-00002-of-00004.safetensors\",\n"
                "    \"w\": \"model-00001-of-00004.safetensors\"\n  }\n}\n");
}

/* States of an optimizer are left out, unless only= asks for them. */
static void test_huggingface_weights(void **state)
{
    struct fixture *f = *state;

    write_flat_source(f, "view=huggingface,file_size=8");
    expect_text(f, "model.safetensors.index.json",
                "{\n  \"metadata\": {\n    \"total_size\": 19\n  },\n  \"weight_map\": {\n"
                "    \"b\": \"model-00003-of-00003.safetensors\",\n"
                "    \"steps\": \"model-00003-of-00003.safetensors\",\n"
                "    \"v\": \"model-00002-of-00003.safetensors\",\n"
                "    \"w\": \"model-00001-of-00003.safetensors\"\n  }\n}\n");
}

/* One that is too large for a file has its own before the one that was begun is full. */
static void test_huggingface_of_large_tensors(void **state)
{
    struct fixture *f = *state;

    write_flat_source(f, "view=huggingface,file_size=5,only=*");
    expect_text(f, "model.safetensors.index.json",
                "{\n  \"metadata\": {\n    \"total_size\": 23\n  },\n  \"weight_map\": {\n"
                "    \"accu_grads.w\": \"model-00003-of-00004.safetensors\",\n"
                "    \"b\": \"model-00004-of-00004.safetensors\",\n"
                "    \"steps\": \"model-00004-of-00004.safetensors\",\n"
                "    \"v\": \"model-00002-of-00004.safetensors\",\n"
                "    \"w\": \"model-00001-of-00004.safetensors\"\n  }\n}\n");
}

/* By name here, and a large one ends the file that was begun. */
static void test_huggingface_by_layers(void **state)
{
    struct fixture *f = *state;

    write_flat_source(f, "view=huggingface,file_size=5,only=*,order=layers");
    expect_text(f, "model.safetensors.index.json",
                "{\n  \"metadata\": {\n    \"total_size\": 23\n  },\n  \"weight_map\": {\n"
                "    \"accu_grads.w\": \"model-00001-of-00004.safetensors\",\n"
                "    \"b\": \"model-00002-of-00004.safetensors\",\n"
                "    \"steps\": \"model-00002-of-00004.safetensors\",\n"
                "    \"v\": \"model-00003-of-00004.safetensors\",\n"
                "    \"w\": \"model-00004-of-00004.safetensors\"\n  }\n}\n");
}

/* Of one size: by name, not by dtype as the library has it. */
static void test_layers_of_ranks(void **state)
{
    struct fixture *f = *state;
    unsigned char content[21];

    assert_int_equal(open_with(f, "format=safetensors,order=layers"), 0);
    fill(content, "b", 0, 4);
    content[4] = 42;
    for (unsigned row = 0; row < 8; row++)
        fill(content + 5 + row * 2, "w", row * 4, 2);
    const uint64_t dir = find(f, RESHARD_ROOT, "rank_0");
    expect_safetensors(f, find(f, dir, "checkpoint_0.safetensors"),
                       "{\"__metadata__\":{\"format\":\"ms\"},"
                       "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                       "\"steps\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[4,5]},"
                       "\"w\":{\"dtype\":\"I8\",\"shape\":[8,2],\"data_offsets\":[5,21]}}",
                       content, sizeof content);
}

static void test_huggingface_of_one_file(void **state)
{
    struct fixture *f = *state;

    write_flat_source(f, "view=huggingface");
    expect_names(f, (const char *const[]){"model.safetensors", NULL});
}

static void test_unified(void **state)
{
    struct fixture *f = *state;
    unsigned char content[10];

    /* 18 bytes in files of 8: three parts, filled with w 8, v 6 and b 4. */
    write_flat_source(f, "view=unified,file_size=8");
    expect_names(f, (const char *const[]){"part0.safetensors", "part1.safetensors",
                                          "part2.safetensors", "hyper_param.safetensors",
                                          "param_name_map.json", NULL});
    expect_text(f, "param_name_map.json",
                "{\n    \"metadata\": {\n        \"total_size\": 18\n    },\n"
                "    \"weight_map\": {\n"
                "        \"w\": \"part0.safetensors\",\n"
                "        \"v\": \"part1.safetensors\",\n"
                "        \"b\": \"part2.safetensors\"\n    }\n}");
    fill(content, "b", 0, 4);
    expect_safetensors(f, 4,
                       "{\"__metadata__\":{\"format\":\"ms\"},"
                       "\"b\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                       content, 4);
    /* What rank 0 holds of the gradients, and not the whole. */
    fill(content, "g", 0, 2);
    content[2] = 5;
    expect_safetensors(f, 5,
                       "{\"__metadata__\":{\"format\":\"ms\"},"
                       "\"accu_grads.w\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                       "\"steps\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[2,3]}}",
                       content, 3);
}

static void test_unified_two_parts(void **state)
{
    struct fixture *f = *state;

    write_flat_source(f, "view=unified,file_size=9"); /* w; v and b, as that part has less */
    expect_text(f, "param_name_map.json",
                "{\n    \"metadata\": {\n        \"total_size\": 18\n    },\n"
                "    \"weight_map\": {\n"
                "        \"w\": \"part0.safetensors\",\n"
                "        \"v\": \"part1.safetensors\",\n"
                "        \"b\": \"part1.safetensors\"\n    }\n}");
}

/* What rank 0 would have given to the last file, the ranks that are left prove. */
static void test_unified_without_rank_0(void **state)
{
    struct fixture *f = *state;
    char path[512];

    write_flat_source(f, "view=unified");
    reshard_close(f->view);
    f->view = NULL;
    write_strategy(f->root, "same.json", LAYOUT("v", "[2]", "[-1]", "[6]"));
    for (unsigned rank = 0; rank < 2; rank++) {
        struct bytes file = {0};
        unsigned char data[6];
        fill(data, "v", 0, 6);
        ckpt_tensor(&file, "v", "Int8", 1, (uint64_t[]){6}, data, 6);
        ckpt_tensor(&file, "steps", "Int8", 0, NULL, "\x05", 1);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        bytes_free(&file);
    }
    snprintf(path, sizeof path, "%s/src/rank_0/net-1_2.ckpt", f->root);
    assert_int_equal(remove(path), 0);
    snprintf(path, sizeof path, "src_strategy=%s,view=unified", tree_path(f->root, "same.json"));
    if (open_options(f, path))
        fail_msg("%s", f->err.message);
    expect_names(f, (const char *const[]){"part0.safetensors", "hyper_param.safetensors",
                                          "param_name_map.json", NULL});
    expect_safetensors(f, 3,
                       "{\"__metadata__\":{\"format\":\"ms\"},"
                       "\"steps\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}",
                       (const unsigned char *)"\x05", 1);
}

static unsigned count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    unsigned n = 0;

    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* The headers of both ranks are read when the view is opened, and yet the caller may fork then. */
static void test_no_thread_when_opened(void **state)
{
    struct fixture *f = *state;
    reshard_statistics stats = {.struct_size = sizeof stats};
    const unsigned before = count_threads();

    write_flat_source(f, "view=unified");
    assert_int_equal(count_threads(), before);
    reshard_get_statistics(f->view, &stats);
    assert_int_equal(stats.ranks_indexed, 2);
}

static void test_damaged_source_of_flat_view(void **state)
{
    struct fixture *f = *state;
    char text[512];

    write_flat_source(f, "view=unified");
    reshard_close(f->view);
    f->view = NULL;
    tree_write(f->root, "src/rank_1/net-1_2.ckpt", "\x0a\xff", 2);
    snprintf(text, sizeof text, "src_strategy=%s,view=unified", tree_path(f->root, "flat.json"));
    assert_int_equal(open_options(f, text), -EINVAL);
    assert_non_null(strstr(f->err.message, "rank_1"));
    assert_int_equal(f->err.usage, 0);
}

/* ---- checksums ------------------------------------------------------------------------------- */

static uint32_t crc32_by_bits(const unsigned char *data, size_t n)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static void test_crc(void **state)
{
    struct fixture *f = *state;
    reshard_statistics stats = {.struct_size = sizeof stats};

    assert_int_equal(open_with(f, "crc"), 0);
    for (unsigned rank = 0; rank < 2; rank++) {
        struct bytes want = {0};
        expected_rank(&want, rank, 42);
        const uint32_t crc = crc32_by_bits(want.data, want.n);
        const unsigned char trailer[17] = {'c',
                                           'r',
                                           'c',
                                           '_',
                                           'n',
                                           'u',
                                           'm',
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           (unsigned char)(crc >> 24),
                                           (unsigned char)(crc >> 16),
                                           (unsigned char)(crc >> 8),
                                           (unsigned char)crc};
        bytes_add(&want, trailer, sizeof trailer);
        const uint64_t id = file_id(f, rank);
        for (size_t from = want.n - 20; from < want.n; from++)
            for (size_t to = from + 1; to <= want.n; to++) {
                unsigned char buf[32];
                assert_int_equal(reshard_pread(f->view, id, buf, to - from, from), to - from);
                assert_memory_equal(buf, want.data + from, to - from);
            }
        expect_file(f, rank, &want);
        bytes_free(&want);
    }
    /* 20 * 21 / 2 reads of a rank and one of the whole, and not those that sum it up. */
    reshard_get_statistics(f->view, &stats);
    assert_int_equal(stats.reads, 2 * (210 + 1));
}

struct tail {
    struct fixture *f;
    uint64_t id, size;
    unsigned char bytes[4];
};

static void *read_tail(void *arg)
{
    struct tail *tail = arg;
    const ssize_t n = reshard_pread(tail->f->view, tail->id, tail->bytes, 4, tail->size - 4);
    return n == 4 ? NULL : tail;
}

/* A file of several pieces is summed up once, however many ask. */
static void test_crc_of_a_large_file(void **state)
{
    struct fixture *f = *state;
    const size_t rows = 8;
    const size_t columns = MIB;
    unsigned char *data = malloc(columns * 2);
    reshard_statistics stats = {.struct_size = sizeof stats};
    pthread_t threads[8];
    struct tail tails[8];
    size_t n;

    write_strategy(f->root, "src.json", LAYOUT("w", "[4]", "[0, -1]", "[8, 1048576]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[-1, 0]", "[8, 1048576]"));
    assert_non_null(data);
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        char path[64];
        fill(data, "w", rank * columns * 2, columns * 2);
        ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){rows / 4, columns}, data, columns * 2);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, path, file.data, file.n);
        bytes_free(&file);
    }
    free(data);
    assert_int_equal(open_with(f, "crc,cache=2M"), 0);
    const uint64_t id = file_id(f, 1);
    for (unsigned i = 0; i < 8; i++) {
        tails[i] = (struct tail){.f = f, .id = id, .size = size_of(f, id)};
        assert_int_equal(pthread_create(&threads[i], NULL, read_tail, &tails[i]), 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
        assert_memory_equal(tails[i].bytes, tails[0].bytes, 4);
    }
    reshard_get_statistics(f->view, &stats);
    const uint64_t once = stats.source_bytes;
    assert_true(once < 6 * MIB); /* 4 MiB of the file, and headers */
    unsigned char *file = read_rank(f, 1, &n);
    const uint32_t crc = crc32_by_bits(file, n - 17);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(tails[0].bytes[i], crc >> (24 - 8 * i) & 0xff);
    free(file);
}

/*
 * A source that changes before the sum is known: the tail cannot be read, and nobody waits for
 * ever.
 */
static void test_crc_of_changed_source(void **state)
{
    struct fixture *f = *state;
    unsigned char buf[4];

    assert_int_equal(open_with(f, "crc"), 0);
    const uint64_t id = file_id(f, 0);
    const uint64_t size = size_of(f, id);
    tree_write(f->root, "src/rank_2/net-1_2.ckpt", "gone", 4);
    assert_int_equal(reshard_pread(f->view, id, buf, 4, size - 4), -ESTALE);
    assert_int_equal(reshard_pread(f->view, id, buf, 4, size - 4), -ESTALE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_safetensors_of_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_contradictions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_huggingface, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_huggingface_weights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_huggingface_of_large_tensors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_huggingface_by_layers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layers_of_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_huggingface_of_one_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unified, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unified_two_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unified_without_rank_0, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_thread_when_opened, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damaged_source_of_flat_view, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_crc, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_crc_of_a_large_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_crc_of_changed_source, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
