/* SPDX-License-Identifier: Apache-2.0 */
/* The hidden folder and the attributes, through the public interface. */
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

#define HEADER 128 /* bytes of these .npy files */

static uint64_t find(struct fixture *f, uint64_t parent, const char *name)
{
    uint64_t id = 0;

    if (reshard_lookup(f->view, parent, name, &id))
        fail_msg("no %s", name);
    return id;
}

/* Finds .reshardfs/tensors, FOLDER in it, or NAME in that. */
static uint64_t find_tensor(struct fixture *f, const char *folder, const char *name)
{
    const uint64_t top = find(f, RESHARD_ROOT, RESHARD_CONTROL);
    const uint64_t tensors = find(f, top, "tensors");
    const uint64_t group = *folder ? find(f, tensors, folder) : tensors;

    return *name ? find(f, group, name) : group;
}

static reshard_stat stat_of(struct fixture *f, uint64_t id)
{
    reshard_stat st = {.struct_size = sizeof st};

    if (reshard_getattr(f->view, id, &st, &f->err))
        fail_msg("%s", f->err.message);
    assert_int_equal(st.id, id);
    return st;
}

/* The file, to be freed by the caller; read at once, by pieces, and borrowed. */
static char *read_file(struct fixture *f, uint64_t id, size_t *n)
{
    reshard_reader *reader;
    char scratch[4096 + RESHARD_SCRATCH_EXTRA];

    *n = (size_t)stat_of(f, id).size;
    assert_true(*n <= 4096);
    char *data = calloc(1, *n + 1);
    assert_non_null(data);
    assert_int_equal(reshard_pread(f->view, id, data, *n + 1, 0), *n);
    assert_int_equal(reshard_reader_open(f->view, id, &reader), 0);
    for (size_t at = 0; at < *n; at += 7) {
        struct iovec iov[4];
        reshard_loan *loan;
        int count;
        const size_t want = *n - at < 7 ? *n - at : 7;
        assert_int_equal(reshard_reader_borrow(reader, scratch, 7, at, iov, 4, &count, &loan),
                         want);
        size_t done = 0;
        for (int i = 0; i < count; done += iov[i++].iov_len)
            assert_memory_equal(iov[i].iov_base, data + at + done, iov[i].iov_len);
        assert_int_equal(done, want);
        reshard_return(loan);
    }
    reshard_reader_close(reader);
    return data;
}

static void expect_npy(struct fixture *f, const char *folder, const char *name, const char *dict,
                       const void *content, size_t bytes)
{
    size_t n;
    char *data = read_file(f, find_tensor(f, folder, name), &n);

    assert_int_equal(n, HEADER + bytes);
    assert_memory_equal(data, "\x93NUMPY\x01\x00", 8);
    assert_memory_equal(data + 10, dict, strlen(dict));
    assert_memory_equal(data + HEADER, content, bytes);
    free(data);
}

static void test_tensors(void **state)
{
    struct fixture *f = *state;
    unsigned char w[32];
    unsigned char cut[16];
    const char steps = 42;

    open_view(f);
    fill(w, "w", 0, 32);
    expect_npy(f, "full", "w.npy", "{'descr': '|i1', 'fortran_order': False, 'shape': (8, 4), }", w,
               32);
    for (unsigned rank = 0; rank < 2; rank++) {
        char folder[16];
        for (unsigned row = 0; row < 8; row++)
            memcpy(cut + row * 2, w + row * 4 + rank * 2, 2);
        snprintf(folder, sizeof folder, "rank_%u", rank);
        expect_npy(f, folder, "w.npy",
                   "{'descr': '|i1', 'fortran_order': False, 'shape': (8, 2), }", cut, 16);
        expect_npy(f, folder, "steps.npy",
                   "{'descr': '|i1', 'fortran_order': False, 'shape': (), }", &steps, 1);
    }
}

static void test_what_is_said(void **state)
{
    struct fixture *f = *state;
    char want[4096];
    size_t n;

    open_view(f);
    char *real = realpath(tree_path(f->root, "src"), NULL);
    char *json = read_file(f, find_tensor(f, "rank_1", "w.json"), &n);
    snprintf(want, sizeof want,
             "{\n  \"name\": \"w\",\n  \"rank\": 1,\n  \"dtype\": \"Int8\",\n  \"numpy\": "
             "\"|i1\",\n  \"shape\": [8, 2],\n  \"bytes\": 16,\n  \"whole\": [8, 4],\n  "
             "\"source_pieces\": [4, 1],\n  \"pieces\": [1, 2],\n  \"boxes\": [[[0, 8], [2, "
             "4]]],\n  \"source_ranks\": [0, 1, 2, 3],\n  \"source_files\": [\n    "
             "\"%s/rank_0/net-1_2.ckpt\",\n    \"%s/rank_1/net-1_2.ckpt\",\n    "
             "\"%s/rank_2/net-1_2.ckpt\",\n    \"%s/rank_3/net-1_2.ckpt\"\n  ]\n}\n",
             real, real, real, real);
    assert_string_equal(json, want);
    free(json);
    json = read_file(f, find_tensor(f, "full", "steps.json"), &n);
    snprintf(want, sizeof want,
             "{\n  \"name\": \"steps\",\n  \"dtype\": \"Int8\",\n  \"numpy\": \"|i1\",\n  "
             "\"shape\": [],\n  \"bytes\": 1,\n  \"source_ranks\": [0],\n  \"source_files\": [\n "
             "   \"%s/rank_0/net-1_2.ckpt\"\n  ]\n}\n",
             real);
    assert_string_equal(json, want);
    free(json);
    free(real);
}

static size_t list(struct fixture *f, uint64_t dir, const char *const *names, size_t n)
{
    reshard_dirent entry = {.struct_size = sizeof entry};
    size_t at = 0;

    for (int rc; (rc = reshard_list(f->view, dir, at, &entry)) != 0; at++) {
        uint64_t id;
        assert_int_equal(rc, 1);
        assert_true(at < n);
        assert_string_equal(entry.name, names[at]);
        assert_int_equal(reshard_lookup(f->view, dir, entry.name, &id), 0);
        assert_int_equal(id, entry.id);
        assert_int_equal(entry.is_dir, S_ISDIR(stat_of(f, id).mode));
    }
    return at;
}

static void expect_list(struct fixture *f, uint64_t dir, const char *const *names, size_t n)
{
    assert_int_equal(list(f, dir, names, n), n);
}

static void test_lists(void **state)
{
    struct fixture *f = *state;
    reshard_statistics none = {.struct_size = sizeof none};
    uint64_t id;

    open_view(f);
    const uint64_t top = find(f, RESHARD_ROOT, RESHARD_CONTROL);
    const uint64_t tensors = find(f, top, "tensors");
    expect_list(f, RESHARD_ROOT, (const char *const[]){"rank_0", "rank_1"}, 2);
    expect_list(f, top, (const char *const[]){"tensors"}, 1);
    expect_list(f, tensors, (const char *const[]){"full", "rank_0", "rank_1"}, 3);
    assert_int_equal(find(f, top, ".."), RESHARD_ROOT);
    assert_int_equal(find(f, tensors, ".."), top);
    assert_int_equal(find(f, find(f, tensors, "rank_1"), ".."), tensors);
    reshard_get_statistics(f->view, &none);
    assert_int_equal(none.ranks_indexed, 0); /* so far nobody asked for a parameter */
    expect_list(
        f, find(f, tensors, "rank_1"),
        (const char *const[]){"w.npy", "w.json", "b.npy", "b.json", "steps.npy", "steps.json"}, 6);
    expect_list(
        f, find(f, tensors, "full"),
        (const char *const[]){"w.npy", "w.json", "b.npy", "b.json", "steps.npy", "steps.json"}, 6);

    static const char *const missing[] = {"rank_2",  "rank_01", "rank_",   "rank_4294967295", "x_0",
                                          "rank_-1", "fully",   "model_0", "rank_ 1",         ""};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        assert_int_equal(reshard_lookup(f->view, tensors, missing[i], &id), -ENOENT);
    static const char *const no_files[] = {"w",  "x.npy",   "w.npz", ".npy",
                                           "w.", "%77.npy", "%.json"};
    for (size_t i = 0; i < sizeof no_files / sizeof *no_files; i++)
        assert_int_equal(reshard_lookup(f->view, find(f, tensors, "full"), no_files[i], &id),
                         -ENOENT);
    id = find_tensor(f, "full", "w.npy");
    assert_int_equal(reshard_lookup(f->view, id, "w", &id), -ENOTDIR);
    assert_int_equal(reshard_pread(f->view, tensors, NULL, 0, 0), -EISDIR);
}

static void test_attributes_of_files(void **state)
{
    struct fixture *f = *state;

    open_view(f);
    const uint64_t id = find_tensor(f, "rank_0", "w.npy");
    const reshard_stat st = stat_of(f, id);
    assert_int_equal(st.mode, S_IFREG | 0400); /* as their sources */
    assert_true(st.mapped && st.hidden);
    assert_int_equal(st.nlink, 1);
    const reshard_stat json = stat_of(f, find_tensor(f, "rank_0", "w.json"));
    assert_false(json.mapped);
    assert_true(json.hidden);
    assert_false(stat_of(f, file_id(f, 0)).hidden);
    assert_true(reshard_is_ready(f->view, id));
    assert_false(reshard_is_ready(f->view, json.id));
    const reshard_stat dir = stat_of(f, find_tensor(f, "", ""));
    assert_int_equal(dir.mode, S_IFDIR | 0700); /* as the source's */
}

/* Ids that nothing belongs to: right beside what there is, and anywhere. */
static void test_wrong_ids(void **state)
{
    struct fixture *f = *state;
    reshard_stat st = {.struct_size = sizeof st};
    reshard_dirent entry = {.struct_size = sizeof entry};
    reshard_reader *reader;
    uint64_t seed = test_seed();
    char value[64];
    uint64_t id;

    open_view(f);
    const uint64_t top = find(f, RESHARD_ROOT, RESHARD_CONTROL);
    const uint64_t last = find_tensor(f, "rank_1", "steps.json");
    uint64_t wrong[200] = {
        top + 2,         last + 1,          last + 2, find_tensor(f, "rank_1", "") + 1,
        UINT64_MAX,      UINT64_C(1) << 62, top << 1, top << 2,
        top | 1ull << 46};
    for (size_t i = 9; i < 200; i++)
        wrong[i] = top | (uint64_t)test_below(&seed, UINT32_MAX) << (i % 24) | UINT64_C(1) << 30;
    for (size_t i = 0; i < 200; i++) {
        assert_int_equal(reshard_getattr(f->view, wrong[i], &st, NULL), -ENOENT);
        assert_true(reshard_lookup(f->view, wrong[i], "w.npy", &id) < 0);
        assert_true(reshard_list(f->view, wrong[i], 0, &entry) < 0);
        assert_int_equal(reshard_reader_open(f->view, wrong[i], &reader), -ENOENT);
        assert_null(reader);
        assert_int_equal(
            reshard_get_attribute(f->view, wrong[i], "user.reshardfs.dtype", value, sizeof value),
            -ENOENT);
        (void)reshard_is_ready(f->view, wrong[i]);
    }
}

static void expect_attribute(struct fixture *f, uint64_t id, const char *name, const char *want)
{
    char full[64];
    char value[4096];
    const size_t n = strlen(want);

    snprintf(full, sizeof full, "user.reshardfs.%s", name);
    assert_int_equal(reshard_get_attribute(f->view, id, full, NULL, 0), n);
    assert_int_equal(reshard_get_attribute(f->view, id, full, value, sizeof value), n);
    assert_memory_equal(value, want, n);
    assert_int_equal(reshard_get_attribute(f->view, id, full, value, n), n);
    if (n > 1)
        assert_int_equal(reshard_get_attribute(f->view, id, full, value, n - 1), -ERANGE);
}

static void expect_attributes(struct fixture *f, uint64_t id, const char *want, size_t n)
{
    char names[1024];

    assert_int_equal(reshard_list_attributes(f->view, id, NULL, 0), n);
    assert_int_equal(reshard_list_attributes(f->view, id, names, n), n);
    assert_memory_equal(names, want, n);
    if (n > 1)
        assert_int_equal(reshard_list_attributes(f->view, id, names, n - 1), -ERANGE);
}

#define NAME "user.reshardfs."

static void test_extended_attributes(void **state)
{
    struct fixture *f = *state;
    char value[16];
    char options[1024];

    if (open_with(f, "cache=1M,strict"))
        fail_msg("%s", f->err.message);
    char *real = realpath(tree_path(f->root, "src"), NULL);
    expect_attribute(f, RESHARD_ROOT, "version", reshard_version());
    expect_attribute(f, RESHARD_ROOT, "source", real);
    expect_attribute(f, RESHARD_ROOT, "format", "ckpt");
    expect_attribute(f, RESHARD_ROOT, "ranks", "2");
    expect_attribute(f, RESHARD_ROOT, "source_ranks", "0-3");
    expect_attribute(f, RESHARD_ROOT, "parameters", "2");
    snprintf(options, sizeof options,
             "src_strategy=%s,dst_strategy=%s,view=ranks,order=program,format=ckpt,prefix="
             "checkpoint_,cache=1048576,strict",
             tree_path(f->root, "src.json"), tree_path(f->root, "dst.json"));
    expect_attribute(f, RESHARD_ROOT, "options", options);
    free(real);

    const uint64_t file = file_id(f, 1);
    static const char of_file[] = NAME "format\0" NAME "source_ranks\0" NAME "parameters";
    expect_attributes(f, file, of_file, sizeof of_file);
    assert_false(reshard_is_ready(f->view, file)); /* their names take no plan */
    expect_attribute(f, file, "format", "ckpt");
    assert_false(reshard_is_ready(f->view, file));
    expect_attribute(f, file, "source_ranks", "0-3");
    expect_attribute(f, file, "parameters", "3");

    const uint64_t tensor = find_tensor(f, "rank_0", "b.npy");
    static const char of_tensor[] =
        NAME "format\0" NAME "source_ranks\0" NAME "parameter\0" NAME "dtype";
    expect_attributes(f, tensor, of_tensor, sizeof of_tensor);
    expect_attribute(f, tensor, "format", "npy");
    expect_attribute(f, tensor, "parameter", "b");
    expect_attribute(f, tensor, "dtype", "UInt8");
    expect_attribute(f, tensor, "source_ranks", "0");
    expect_attribute(f, find_tensor(f, "rank_0", "b.json"), "format", "json");

    expect_attributes(f, find(f, RESHARD_ROOT, "rank_0"), "", 0);
    assert_int_equal(reshard_get_attribute(f->view, RESHARD_ROOT, "user.other", value, 16),
                     -ENODATA);
    assert_int_equal(reshard_get_attribute(f->view, tensor, NAME "version", value, 16), -ENODATA);
    assert_int_equal(reshard_get_attribute(f->view, tensor, NAME, value, 16), -ENODATA);
}

/* Options as they are told open the same view. */
static void test_options_in_effect(void **state)
{
    struct fixture *f = *state;
    char told[4096] = {0};
    char again[4096] = {0};

    if (open_with(f, "prefix=a\\,b\\\\,format=safetensors,dtype=float32,check=crc,step=2"))
        fail_msg("%s", f->err.message);
    assert_true(reshard_get_attribute(f->view, RESHARD_ROOT, NAME "options", told, 4095) > 0);
    assert_non_null(strstr(told, ",prefix=a\\,b\\\\,"));
    assert_non_null(strstr(told, ",step=2,"));
    assert_non_null(strstr(told, ",check=crc,"));
    reshard_close(f->view);
    const reshard_config config = {.struct_size = sizeof config, .options = told};
    if (reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err))
        fail_msg("%s", f->err.message);
    assert_true(reshard_get_attribute(f->view, RESHARD_ROOT, NAME "options", again, 4095) > 0);
    assert_string_equal(told, again);
}

/* Two views agree on ids, whatever was looked at first. */
static void test_ids_are_stable(void **state)
{
    struct fixture *f = *state;

    open_view(f);
    const uint64_t full = find_tensor(f, "full", "w.npy");
    const uint64_t rank = find_tensor(f, "rank_1", "b.json");
    reshard_close(f->view);
    open_view(f);
    assert_int_equal(find_tensor(f, "rank_1", "b.json"), rank);
    assert_int_equal(stat_of(f, full).size, HEADER + 32); /* never looked up in this one */
}

static void test_odd_names(void **state)
{
    struct fixture *f = *state;
    static const char *const names[][2] = {{"a/b", "a%2Fb"},
                                           {".w", "%2Ew"},
                                           {"5%", "5%25"},
                                           {"x\ny", "x%0Ay"},
                                           {"\xe6\x9d\x83", "\xe6\x9d\x83"}};
    struct bytes file = {0};
    char longest[2][300];

    write_strategy(f->root, "src.json", LAYOUT("w", "[1]", "[-1, -1]", "[2, 4]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[-1, 0]", "[2, 4]"));
    for (size_t i = 0; i < 5; i++)
        ckpt_tensor(&file, names[i][0], "Int8", 1, (uint64_t[]){1}, &(char){(char)i}, 1);
    for (int i = 0; i < 2; i++) {
        memset(longest[i], 'n', 299);
        longest[i][298] = (char)('0' + i);
        longest[i][299] = '\0';
        ckpt_tensor(&file, longest[i], "Int8", 1, (uint64_t[]){1}, &(char){(char)(50 + i)}, 1);
    }
    tree_remove(f->root);
    f->root = tree_new();
    write_strategy(f->root, "src.json", LAYOUT("w", "[1]", "[-1, -1]", "[2, 4]"));
    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[-1, 0]", "[2, 4]"));
    tree_write(f->root, "src/rank_0/a.ckpt", file.data, file.n);
    bytes_free(&file);
    open_view(f);
    const uint64_t dir = find_tensor(f, "rank_0", "");
    for (size_t i = 0; i < 5; i++) {
        char name[64];
        size_t n;
        snprintf(name, sizeof name, "%s.npy", names[i][1]);
        char *data = read_file(f, find(f, dir, name), &n);
        assert_int_equal(data[HEADER], i);
        free(data);
        expect_attribute(f, find(f, dir, name), "parameter", names[i][0]);
    }
    /* Names too long for a file are listed short, and these differ. */
    reshard_dirent entry = {.struct_size = sizeof entry};
    for (uint64_t i = 0; i < 2; i++) {
        size_t n;
        assert_int_equal(reshard_list(f->view, dir, 2 * (5 + i), &entry), 1);
        assert_true(strlen(entry.name) == 254 && strstr(entry.name, "%~"));
        assert_int_equal(find(f, dir, entry.name), entry.id);
        char *data = read_file(f, entry.id, &n);
        assert_int_equal(data[HEADER], 50 + i);
        free(data);
        expect_attribute(f, entry.id, "parameter", longest[i]);
    }
}

/* Elements and names as they are shown. */
static void test_converted(void **state)
{
    struct fixture *f = *state;
    struct bytes file = {0};
    const float values[4] = {1, -2, 0.5f, 3};

    ckpt_tensor(&file, "v", "Float32", 1, (uint64_t[]){4}, values, sizeof values);
    tree_remove(f->root);
    f->root = tree_new();
    write_strategy(f->root, "src.json", LAYOUT("v", "[1]", "[-1]", "[4]"));
    write_strategy(f->root, "dst.json", LAYOUT("v", "[2]", "[0]", "[4]"));
    tree_write(f->root, "src/rank_0/a.ckpt", file.data, file.n);
    tree_write(f->root, "names.json", "{\"v\": \"u\"}", 10);
    bytes_free(&file);
    char more[300];
    snprintf(more, sizeof more, "dtype=bfloat16,names=%s", tree_path(f->root, "names.json"));
    if (open_with(f, more))
        fail_msg("%s", f->err.message);
    expect_npy(f, "full", "u.npy", "{'descr': '<V2', 'fortran_order': False, 'shape': (4,), }",
               "\x80\x3f\x00\xc0\x00\x3f\x40\x40", 8);
    size_t n;
    char *json = read_file(f, find_tensor(f, "full", "u.json"), &n);
    assert_non_null(strstr(json, "\"name\": \"u\",\n  \"source_name\": \"v\",\n  \"dtype\": "
                                 "\"BFloat16\",\n  \"source_dtype\": \"Float32\",\n"));
    free(json);
}

/* Several saves: each has its tensors in a folder of its name, and there is one hidden folder. */
static void test_saves(void **state)
{
    struct fixture *f = *state;
    uint64_t id;

    for (unsigned rank = 0; rank < 4; rank++) {
        char old[64];
        char renamed[64];
        snprintf(old, sizeof old, "src/rank_%u/net-1_2.ckpt", rank);
        snprintf(renamed, sizeof renamed, "src/rank_%u/net-1_1.ckpt", rank);
        char *from = strdup(tree_path(f->root, old));
        assert_int_equal(rename(from, tree_path(f->root, renamed)), 0);
        free(from);
        write_source_rank(f->root, rank, 77);
    }
    if (open_with(f, "step=all"))
        fail_msg("%s", f->err.message);
    const uint64_t tensors = find(f, find(f, RESHARD_ROOT, RESHARD_CONTROL), "tensors");
    expect_list(f, tensors, (const char *const[]){"1_1", "1_2"}, 2);
    const uint64_t save = find(f, tensors, "1_2");
    expect_list(f, save, (const char *const[]){"full", "rank_0", "rank_1"}, 3);
    assert_int_equal(find(f, save, ".."), tensors);
    assert_int_equal(find(f, find(f, save, "full"), ".."), save);
    for (int i = 1; i <= 2; i++) {
        size_t n;
        char name[16];
        snprintf(name, sizeof name, "1_%d", i);
        char *data =
            read_file(f, find(f, find(f, find(f, tensors, name), "rank_1"), "steps.npy"), &n);
        assert_int_equal(data[n - 1], i == 1 ? 42 : 77);
        free(data);
    }
    assert_int_equal(reshard_lookup(f->view, find(f, RESHARD_ROOT, "1_2"), RESHARD_CONTROL, &id),
                     -ENOENT);
    expect_attribute(f, RESHARD_ROOT, "parameters", "2");
    expect_attribute(f, find(f, RESHARD_ROOT, "1_2"), "format", "ckpt");
}

/* A view of whole files has whole tensors. */
static void test_flat(void **state)
{
    struct fixture *f = *state;
    unsigned char w[32];
    char options[300];

    snprintf(options, sizeof options, "src_strategy=%s,view=huggingface",
             tree_path(f->root, "src.json"));
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    if (reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err))
        fail_msg("%s", f->err.message);
    fill(w, "w", 0, 32);
    expect_list(f, find_tensor(f, "", ""), (const char *const[]){"full"}, 1);
    expect_npy(f, "full", "w.npy", "{'descr': '|i1', 'fortran_order': False, 'shape': (8, 4), }", w,
               32);
    const uint64_t file = find(f, RESHARD_ROOT, "model.safetensors");
    expect_attribute(f, file, "format", "safetensors");
    expect_attribute(f, file, "parameters", "3");
    expect_attribute(f, file, "source_ranks", "0-3");
}

/* What is lost is an error of the folder's, not an absence: the log says which. */
static void test_damage(void **state)
{
    struct fixture *f = *state;
    reshard_dirent entry = {.struct_size = sizeof entry};
    uint64_t id;

    tree_write(f->root, "src/rank_2/net-1_2.ckpt", "\x0a\x7f", 2);
    open_view(f);
    const uint64_t dir = find_tensor(f, "rank_0", "");
    assert_int_equal(reshard_lookup(f->view, dir, "w.npy", &id), -EINVAL);
    assert_non_null(strstr(f->lines.text, "rank_2/net-1_2.ckpt"));
    assert_int_equal(reshard_list(f->view, dir, 0, &entry), -EINVAL);
}

/* A source that changes makes its tensors stale. */
static void test_stale(void **state)
{
    struct fixture *f = *state;
    char byte;

    open_view(f);
    const uint64_t id = find_tensor(f, "full", "w.npy");
    assert_int_equal(reshard_pread(f->view, id, &byte, 1, HEADER + 31), 1);
    write_source_rank(f->root, 3, 43);
    assert_int_equal(truncate(tree_path(f->root, "src/rank_3/net-1_2.ckpt"), 10), 0);
    assert_int_equal(reshard_pread(f->view, id, &byte, 1, HEADER + 31), -ESTALE);
    assert_int_equal(reshard_pread(f->view, id, &byte, 1, 0), -ESTALE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tensors),
        TEST(test_what_is_said),
        TEST(test_lists),
        TEST(test_attributes_of_files),
        TEST(test_wrong_ids),
        TEST(test_extended_attributes),
        TEST(test_options_in_effect),
        TEST(test_ids_are_stable),
        TEST(test_odd_names),
        TEST(test_converted),
        TEST(test_saves),
        TEST(test_flat),
        TEST(test_damage),
        TEST(test_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
