/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A view whose k-th allocation fails, for each k until all succeed: opened, listed, stat'ed, read
 * and closed.
 *
 * The allocations of libc itself (strdup, opendir, a thread's start) fail as well. They count and
 * fail only between arm() and disarm().
 *
 * Of each run is wanted: every call that fails says -ENOMEM (and a line of text, where it gives
 * one), every call that succeeds gives the right bytes, and a later attempt succeeds in the same
 * view. Leaks are for the address sanitizer to find; where there is one, it is asked now and then,
 * and at the end.
 */
#include "base/options.h"
#include "tests/support/allocations.h"
#include "tests/support/sealer.h"
#include "tests/support/torch_file.h"
#include "tests/unit/view/support.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static atomic_bool armed;
static atomic_long left; /* allocations until one fails */
static bool for_good;    /* and all after it */
static atomic_bool failed;

EARLY static bool allocation_fails(void)
{
    if (spared || !atomic_load(&armed))
        return false;
    const long before = atomic_fetch_sub(&left, 1);
    if (before > 1 || (before < 1 && !for_good))
        return false;
    atomic_store(&failed, true);
    errno = ENOMEM;
    return true;
}

static void arm(long k)
{
    atomic_store(&left, k);
    atomic_store(&failed, false);
    atomic_store(&armed, true);
}

static void disarm(void)
{
    atomic_store(&armed, false);
}

/* ---- one run --------------------------------------------------------------------------------- */

struct run {
    struct fixture *f;
    long k;
    struct bytes want[2];
};

#define MOST (1u << 20) /* bytes of a file */
static unsigned char got[MOST];

static void refused(const struct run *run, const char *call, long rc)
{
    disarm();
    if (rc != -ENOMEM)
        fail_msg("allocation %ld%s: %s gives %ld (%s)", run->k, for_good ? " and on" : "", call, rc,
                 run->f->err.message);
}

static void read_through(const struct run *run, unsigned rank, ssize_t n, const char *call)
{
    const struct bytes *want = &run->want[rank];

    if (n < 0) {
        refused(run, call, n);
        return;
    }
    disarm();
    if ((size_t)n != want->n || memcmp(got, want->data, want->n) != 0)
        fail_msg("allocation %ld: %s gives %zd wrong bytes", run->k, call, n);
}

/*
 * Each disarms where it ends, so that the next has nothing that fails but what is armed for good.
 */
static void again(void)
{
    if (for_good || !atomic_load(&failed))
        atomic_store(&armed, true);
}

static void stat_it(struct run *run, unsigned rank)
{
    reshard_error err = {.struct_size = sizeof err};
    reshard_stat st = {.struct_size = sizeof st};
    const int rc = reshard_getattr(run->f->view, 3 + 2 * rank, &st, &err);

    disarm();
    if (rc != 0) {
        refused(run, "reshard_getattr", rc);
        assert_int_equal(err.code, rc);
        assert_true(err.message[0] != '\0');
    } else {
        assert_int_equal(st.size, run->want[rank].n);
    }
}

static void borrow_it(struct run *run, reshard_reader *reader, unsigned rank)
{
    static unsigned char scratch[MOST + RESHARD_SCRATCH_EXTRA];
    struct iovec iov[64];
    reshard_loan *loan = NULL;
    int n_iov = 0;
    size_t at = 0;

    again();
    const ssize_t n = reshard_reader_borrow(reader, scratch, MOST, 0, iov, 64, &n_iov, &loan);
    disarm();
    for (int i = 0; n >= 0 && i < n_iov; at += iov[i++].iov_len)
        memcpy(got + at, iov[i].iov_base, iov[i].iov_len);
    read_through(run, rank, n, "reshard_reader_borrow");
    reshard_return(loan);
}

static void read_it(struct run *run, unsigned rank)
{
    reshard_reader *reader = NULL;

    again();
    read_through(run, rank, reshard_pread(run->f->view, 3 + 2 * rank, got, MOST, 0),
                 "reshard_pread");
    again();
    const int rc = reshard_reader_open(run->f->view, 3 + 2 * rank, &reader);
    disarm();
    if (rc != 0) {
        refused(run, "reshard_reader_open", rc);
        assert_null(reader);
        return;
    }
    again();
    read_through(run, rank, reshard_reader_pread(reader, got, MOST, 0), "reshard_reader_pread");
    borrow_it(run, reader, rank);
    reshard_reader_close(reader);
}

#define TENSORS 8 /* of a file, at most */

/* Lists the loads of all tensors, one behind the other from TO on. Returns their number. */
static size_t list_loads(const reshard_tensors *tensors, reshard_load *loads, unsigned char *to)
{
    reshard_tensor tensor = {.struct_size = sizeof tensor};
    size_t n = 0;
    size_t bytes = 0;

    for (; reshard_tensors_get(tensors, n, &tensor) == 0; n++, bytes += tensor.bytes) {
        assert_true(n < TENSORS && bytes + tensor.bytes <= MOST);
        loads[n] = (reshard_load){.tensor = n, .to = to + bytes};
    }
    memset(to, 0xa5, bytes);
    return n;
}

/* Loads all tensors of a rank. A load that succeeds gives what one gives when there is memory. */
static void load_it(const struct run *run, unsigned rank)
{
    static unsigned char later[MOST];
    reshard_error err = {.struct_size = sizeof err};
    reshard_load loads[TENSORS];
    reshard_tensors *tensors;
    char folder[32];

    snprintf(folder, sizeof folder, "rank_%u", rank);
    again();
    int rc = reshard_tensors_open(run->f->view, folder, &tensors, &err);
    disarm();
    if (rc != 0) {
        refused(run, "reshard_tensors_open", rc);
        assert_null(tensors);
        assert_true(err.message[0] != '\0');
        return;
    }
    const size_t n = list_loads(tensors, loads, got);
    again();
    rc = reshard_tensors_load(tensors, loads, n, NULL, NULL, &err);
    disarm();
    if (rc != 0) {
        refused(run, "reshard_tensors_load", rc);
        assert_int_equal(err.code, rc);
        assert_true(err.message[0] != '\0');
    }
    assert_int_equal(list_loads(tensors, loads, later), n);
    assert_int_equal(reshard_tensors_load(tensors, loads, n, NULL, NULL, NULL), 0);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const size_t at = (size_t)((unsigned char *)loads[i].to - later);
        reshard_tensor tensor = {.struct_size = sizeof tensor};
        reshard_tensors_get(tensors, i, &tensor);
        assert_memory_equal(got + at, later + at, tensor.bytes);
    }
    reshard_tensors_close(tensors);
}

/* Returns whether an allocation failed. */
static bool run_one(struct run *run, const char *options)
{
    struct fixture *f = run->f;
    bool any;

    arm(run->k);
    const int rc = open_with(f, options);
    disarm();
    if (rc != 0) {
        refused(run, "reshard_open", rc);
        assert_null(f->view);
        assert_int_equal(f->err.code, rc);
        assert_int_equal(f->err.usage, 0);
        assert_true(f->err.message[0] != '\0');
        return true;
    }
    for (unsigned rank = 0; rank < 2; rank++) {
        again();
        stat_it(run, rank);
        read_it(run, rank);
        load_it(run, rank);
    }
    any = atomic_load(&failed);
    for (unsigned rank = 0; rank < 2; rank++) /* there is memory again */
        expect_file(f, rank, &run->want[rank]);
    reshard_close(f->view);
    f->view = NULL;
    return any;
}

/*
 * Looking for leaks takes longer than a run, and what leaked stays leaked: one look for many runs
 * is enough to see that there is one. RFS_EACH_LEAK tells which.
 */
static void look_for_leaks(const struct run *run, bool last)
{
    static const long often = 64;

    if (!last && run->k % often != 0 && !getenv("RFS_EACH_LEAK"))
        return;
    if (LEAKS() != 0)
        fail_msg("an allocation up to %ld leaks; RFS_EACH_LEAK=1 looks after each", run->k);
}

static void walk(struct run *run, const char *options)
{
    for (run->k = 1; run_one(run, options); run->k++) {
        look_for_leaks(run, false);
        assert_true(run->k < 100000);
    }
    look_for_leaks(run, true);
    print_message("%ld allocations%s\n", run->k - 1, for_good ? ", each with all after it" : "");
    assert_true(run->k > 50);
}

/* One allocation fails, and then all from one on. */
static void walk_both(struct run *run, const char *options)
{
    for_good = false;
    walk(run, options);
    for_good = true;
    walk(run, options);
    for (unsigned rank = 0; rank < 2; rank++)
        bytes_free(&run->want[rank]);
}

/* ---- the strategies -------------------------------------------------------------------------- */

static void put_number(struct bytes *out, unsigned field, uint64_t value)
{
    bytes_varint(out, field << 3);
    bytes_varint(out, value);
}

static void put_message(struct bytes *out, unsigned field, struct bytes *message)
{
    bytes_varint(out, field << 3 | 2);
    bytes_varint(out, message->n);
    bytes_add(out, message->data, message->n);
    bytes_free(message);
    *message = (struct bytes){0};
}

/* A layout of proto/node_strategy.proto over DEVICES in a line. */
static void put_layout(struct bytes *out, const char *name, uint64_t devices, const int64_t *map,
                       unsigned axes)
{
    struct bytes text = {0};
    struct bytes part = {0};
    struct bytes layout = {0};
    struct bytes both = {0};

    put_number(&part, 1, devices);
    put_message(&layout, 1, &part);
    for (unsigned i = 0; i < axes; i++)
        put_number(&part, 1, (uint64_t)map[i]);
    put_message(&layout, 2, &part);
    for (unsigned field = 5; field <= 7; field++)
        put_number(&layout, field, 0);
    bytes_add(&text, name, strlen(name));
    put_message(&both, 1, &text);
    put_message(&both, 2, &layout);
    put_message(out, 3, &both);
}

/* The same as SRC_ITEMS and DST_ITEMS. */
static void write_protobuf(const char *root, const char *name, uint64_t devices, const int64_t *w)
{
    struct bytes file = {0};
    struct bytes item = {0};
    struct bytes part = {0};
    struct bytes inner = {0};

    put_number(&file, 1, 1);
    bytes_add(&part, "op", 2);
    put_message(&item, 1, &part);
    put_number(&part, 1, 0);
    put_number(&inner, 1, 1);
    put_message(&part, 2, &inner);
    put_message(&item, 2, &part);
    put_message(&file, 2, &item);
    put_layout(&file, "w", devices, w, 2);
    put_layout(&file, "b", devices, (int64_t[]){-1}, 1);
    tree_write(root, name, file.data, file.n);
    bytes_free(&file);
}

static void test_strategies_in_json(void **state)
{
    struct run run = {.f = *state};

    for (unsigned rank = 0; rank < 2; rank++)
        expected_rank(&run.want[rank], rank, 42);
    walk_both(&run, "");
}

static void test_strategies_in_protobuf(void **state)
{
    struct run run = {.f = *state};
    const char *root = run.f->root;
    char options[512];

    write_protobuf(root, "src.ckpt", 4, (int64_t[]){0, -1});
    write_protobuf(root, "dst.ckpt", 2, (int64_t[]){-1, 0});
    snprintf(options, sizeof options, "src_strategy=%s,dst_strategy=%s",
             tree_path(root, "src.ckpt"), tree_path(root, "dst.ckpt"));
    for (unsigned rank = 0; rank < 2; rank++)
        expected_rank(&run.want[rank], rank, 42);
    walk_both(&run, options);
}

/* Another rank's slice stands in, and one value is proved by the ranks that are left. */
static void test_a_lost_rank(void **state)
{
    struct run run = {.f = *state};
    const unsigned char steps = 42;
    unsigned char w[8];

    replicate(run.f, (unsigned char[]){steps, steps, steps, steps});
    assert_int_equal(unlink(tree_path(run.f->root, "src/rank_0/net-1_2.ckpt")), 0);
    fill(w, "w", 0, 8);
    for (unsigned rank = 0; rank < 2; rank++) {
        ckpt_tensor(&run.want[rank], "w", "Int8", 1, (uint64_t[]){8}, w, 8);
        ckpt_tensor(&run.want[rank], "steps", "Int8", 0, NULL, &steps, 1);
    }
    walk_both(&run, "");
}

/* Rows to columns of 1.5 MiB: pieces that go through the cache and are lent from it. */
/* rank_1 keeps no "b", and the moments that the strategy names are nowhere. */
static void test_removed_redundancy(void **state)
{
    struct fixture *f = *state;
    struct run run = {.f = f};
    struct bytes file = {0};
    unsigned char w[8];

    write_strategy(f->root, "src.json", SRC_ITEMS ", " LAYOUT("m", "[4]", "[-1]", "[4]"));
    fill(w, "w", 8, 8);
    ckpt_tensor(&file, "steps", "Int8", 0, NULL, "\x2a", 1);
    ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){2, 4}, w, 8);
    tree_write(f->root, "src/rank_1/net-1_2.ckpt", file.data, file.n);
    bytes_free(&file);
    for (unsigned rank = 0; rank < 2; rank++)
        expected_rank(&run.want[rank], rank, 42);
    walk_both(&run, "cache=1M");
}

static void test_pieces_of_the_cache(void **state)
{
    enum { ROWS = 384, COLUMNS = 4096, PART = ROWS / 4 * COLUMNS, WIDTH = COLUMNS / 2 };
    struct run run = {.f = *state};
    unsigned char *w = malloc(ROWS * COLUMNS);
    unsigned char *slice = malloc(ROWS * WIDTH);

    assert_true(w && slice);
    write_strategy(run.f->root, "src.json", LAYOUT("w", "[4]", "[0, -1]", "[384, 4096]"));
    write_strategy(run.f->root, "dst.json", LAYOUT("w", "[2]", "[-1, 0]", "[384, 4096]"));
    fill(w, "w", 0, ROWS * COLUMNS);
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        char path[64];
        ckpt_tensor(&file, "w", "Int8", 2, (uint64_t[]){ROWS / 4, COLUMNS}, w + rank * PART, PART);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(run.f->root, path, file.data, file.n);
        bytes_free(&file);
    }
    for (unsigned rank = 0; rank < 2; rank++) {
        for (size_t row = 0; row < ROWS; row++)
            memcpy(slice + row * WIDTH, w + row * COLUMNS + rank * WIDTH, WIDTH);
        ckpt_tensor(&run.want[rank], "w", "Int8", 2, (uint64_t[]){ROWS, WIDTH}, slice,
                    ROWS * WIDTH);
    }
    free(w);
    free(slice);
    walk_both(&run, "");
}

/*
 * A map of names and rules for dtypes: BFloat16 from 0x3f00 up, of which Float32 has the bits above
 * others.
 */
static void test_names_and_dtypes(void **state)
{
    struct run run = {.f = *state};
    const char *root = run.f->root;
    const char names[] = "{\"w\": \"shown\", \"left out\": null}";
    char options[600];

    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        uint16_t w[8];
        char path[64];
        for (unsigned i = 0; i < 8; i++)
            w[i] = (uint16_t)(0x3f00 + rank * 8 + i);
        ckpt_tensor(&file, "w", "BFloat16", 2, (uint64_t[]){2, 4}, w, sizeof w);
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(root, path, file.data, file.n);
        bytes_free(&file);
    }
    for (unsigned rank = 0; rank < 2; rank++) {
        uint32_t w[16];
        for (unsigned i = 0; i < 16; i++)
            w[i] = (0x3f00 + i / 2 * 4 + rank * 2 + i % 2) << 16;
        ckpt_tensor(&run.want[rank], "shown", "Float32", 2, (uint64_t[]){8, 2}, w, sizeof w);
    }
    tree_write(root, "map.json", names, strlen(names));
    snprintf(options, sizeof options,
             "src_strategy=%s,dst_strategy=%s,names=%s,dtype=bfloat16;sh*=float32",
             tree_path(root, "src.json"), tree_path(root, "dst.json"), tree_path(root, "map.json"));
    walk_both(&run, options);
}

/*
 * Sources of all modes, and what OpenSSL allocates: its tables are there from a first run that
 * nothing fails.
 */
static void test_encrypted(void **state)
{
    static const enum rfs_cipher_mode modes[] = {RFS_AES_GCM, RFS_AES_CBC, RFS_SM4_CBC,
                                                 RFS_AES_GCM};
    struct run run = {.f = *state};
    const char *root = run.f->root;
    char options[512];

    for (unsigned rank = 0; rank < 4; rank++) {
        const struct seal how = {modes[rank], NULL, 16, RFS_CIPHER_BLOCK, false};
        char path[64];
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        seal_file(tree_path(root, path), &how, rank);
    }
    tree_write(root, "key", seal_key(16), 16);
    snprintf(options, sizeof options, "key_file=%s,cache=80M", tree_path(root, "key"));
    for (unsigned rank = 0; rank < 2; rank++)
        expected_rank(&run.want[rank], rank, 42);
    run.k = 1000000;
    assert_false(run_one(&run, options));
    walk_both(&run, options);
}

/* ---- other outputs --------------------------------------------------------------------------- */

/* What a view of the source alone shows: the bytes of its files, one after the other. */
struct shown {
    struct bytes all;
    bool failed; /* a call said -ENOMEM, or another error that fails the test */
};

static bool show_file(struct run *run, uint64_t id, struct shown *shown)
{
    again();
    const ssize_t n = reshard_pread(run->f->view, id, got, MOST, 0);
    disarm();
    if (n < 0) {
        refused(run, "reshard_pread", n);
        return false;
    }
    bytes_add(&shown->all, got, (size_t)n);
    return true;
}

/* The files of a folder, or of the folders in it. */
static bool show_folder(struct run *run, uint64_t dir, struct shown *shown)
{
    reshard_dirent entry = {.struct_size = sizeof entry};
    bool ok = true;

    for (uint64_t at = 0; reshard_list(run->f->view, dir, at, &entry) > 0; at++)
        ok &= entry.is_dir ? show_folder(run, entry.id, shown) : show_file(run, entry.id, shown);
    return ok;
}

static void show_all(struct run *run, const char *options, struct shown *shown)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    struct fixture *f = run->f;
    reshard_dirent entry = {.struct_size = sizeof entry};

    f->err = (reshard_error){.struct_size = sizeof f->err};
    again();
    const int rc = reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err);
    disarm();
    if (rc != 0) {
        refused(run, "reshard_open", rc);
        assert_null(f->view);
        shown->failed = true;
        return;
    }
    for (uint64_t at = 0; reshard_list(f->view, RESHARD_ROOT, at, &entry) > 0; at++)
        shown->failed |=
            entry.is_dir ? !show_folder(run, entry.id, shown) : !show_file(run, entry.id, shown);
    reshard_close(f->view);
    f->view = NULL;
}

static char walked[16384]; /* the options of all walks, each between commas */

#define CLOSELY 600 /* allocations that fail one by one; of more, those of shipped rules, */
#define FAR 7       /* which each view makes, each so many-th */

/*
 * Whatever succeeds gives the bytes that are given when nothing fails. STEP: of thousands of
 * allocations only each so many-th fails.
 */
static void walk_some(struct run *run, const char *options, long step)
{
    struct shown want = {0};
    const size_t n = strlen(walked);

    assert_true(n + strlen(options) + 3 < sizeof walked);
    snprintf(walked + n, sizeof walked - n, n > 0 ? "%s," : ",%s,", options);
    arm(LONG_MAX);
    show_all(run, options, &want);
    assert_false(want.failed);
    assert_true(want.all.n > 0);
    for (unsigned good = 0; good < 2; good++) {
        for_good = good;
        for (run->k = 1;; run->k += run->k < CLOSELY || step > 1 ? step : FAR) {
            struct shown shown = {0};
            arm(run->k);
            show_all(run, options, &shown);
            if (!shown.failed) {
                assert_int_equal(shown.all.n, want.all.n);
                assert_memory_equal(shown.all.data, want.all.data, want.all.n);
            }
            bytes_free(&shown.all);
            const bool last = !atomic_load(&failed);
            look_for_leaks(run, last);
            if (last)
                break;
        }
        const char *more = strchr(options, ',');
        print_message("%s: %ld allocations\n", more ? more + 1 : options, run->k - 1);
    }
    bytes_free(&want.all);
}

static void walk_view(struct run *run, const char *options)
{
    walk_some(run, options, 1);
}

static void test_other_outputs(void **state)
{
    static const char *const outputs[] = {"crc",
                                          "format=safetensors",
                                          "format=pt,zip_crc",
                                          "view=ranks,only=w;b,drop=b",
                                          "view=huggingface,file_size=9",
                                          "view=unified,file_size=16",
                                          "view=huggingface,file_size=9,order=layers"};
    struct run run = {.f = *state};
    char options[512];

    for (unsigned i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        snprintf(options, sizeof options, "src_strategy=%s,%s", tree_path(run.f->root, "src.json"),
                 outputs[i]);
        walk_view(&run, options);
    }
}

/* Writes the files of a folder of a view, as they are, into a folder of the tree. */
static void copy_folder(struct fixture *f, uint64_t dir, const char *to)
{
    reshard_dirent entry = {.struct_size = sizeof entry};
    char path[256];

    for (uint64_t at = 0; reshard_list(f->view, dir, at, &entry) > 0; at++) {
        assert_true(snprintf(path, sizeof path, "%s/%s", to, entry.name) < (int)sizeof path);
        if (entry.is_dir) {
            copy_folder(f, entry.id, path);
            continue;
        }
        const ssize_t n = reshard_pread(f->view, entry.id, got, MOST, 0);
        assert_true(n >= 0);
        tree_write(f->root, path, got, (size_t)n);
    }
}

/* Views that describe how they cut, and each of them as a source. */
static void test_outputs_that_describe_themselves(void **state)
{
    static const char *const outputs[] = {"view=dcp,chunk_size=9", "view=mindformers",
                                          "view=hyper_parallel"};
    struct fixture *f = *state;
    struct run run = {.f = f};
    char options[512];
    char copy[16];

    for (unsigned i = 0; i < 3; i++) {
        snprintf(options, sizeof options, "src_strategy=%s,dst_strategy=%s,%s",
                 tree_path(f->root, "src.json"), tree_path(f->root, "dst.json"), outputs[i]);
        walk_view(&run, options);
        const reshard_config config = {.struct_size = sizeof config, .options = options};
        if (reshard_open(tree_path(f->root, "src"), &config, &f->view, &f->err))
            fail_msg("%s", f->err.message);
        snprintf(copy, sizeof copy, "copy%u", i);
        copy_folder(f, RESHARD_ROOT, copy);
        reshard_close(f->view);
        f->view = NULL;
    }
    assert_int_equal(rename(tree_path(f->root, "src"), tree_path(f->root, "ranks")), 0);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(copy, sizeof copy, "copy%u", i);
        assert_int_equal(rename(tree_path(f->root, copy), tree_path(f->root, "src")), 0);
        walk_view(&run, "format=safetensors,dst_ranks=2,dst_rules=w: axis 0 over all;*: whole");
        assert_int_equal(rename(tree_path(f->root, "src"), tree_path(f->root, copy)), 0);
    }
}

/* A folder of two files of one stage, which are merged; its rows are given one by one. */
static void test_files_of_a_stage(void **state)
{
    struct run run = {.f = *state};
    const char *root = run.f->root;
    char text[1024];
    char options[512];

    for (unsigned k = 0; k < 2; k++) {
        const int n = snprintf(
            text, sizeof text,
            "{\"parallel_strategy_item\":{\"op\":{\"stage\":0}},%s\"parallel_layout_item\":{"
            "\"w\":{\"dev_matrix\":[4],\"tensor_map\":[0,-1],\"tensor_shape\":[8,4],"
            "\"param_split_shape\":[2,2,2,2],\"indices_offset\":[0,2,4,6],\"field\":0,"
            "\"opt_weight_shard_step\":0,\"opt_weight_shard_size\":0},"
            "\"b\":{\"dev_matrix\":[4],\"tensor_map\":[-1],\"field\":0,"
            "\"opt_weight_shard_step\":0,\"opt_weight_shard_size\":0}}}",
            k > 0 ? "\n" : "");
        tree_write(root, k > 0 ? "stages/a.json" : "stages/b.json", text, (size_t)n);
    }
    snprintf(options, sizeof options, "src_strategy=%s,dst_strategy=%s", tree_path(root, "stages"),
             tree_path(root, "dst.json"));
    for (unsigned rank = 0; rank < 2; rank++)
        expected_rank(&run.want[rank], rank, 42);
    walk_both(&run, options);
}

static void test_rules(void **state)
{
    struct run run = {.f = *state};
    char options[512];

    walk_view(&run, "src_ranks=4,src_rules=axes a=4;w: axis 0 over a;*: whole,"
                    "dst_ranks=2,dst_rules=x: whole;w: axis -1 over all;*: whole");
    snprintf(options, sizeof options,
             "src_strategy=%s,dst_ranks=8,dst_rules=like source with dp 1 -> 2;b: axis 0 over all",
             tree_path(run.f->root, "src.json"));
    write_strategy(run.f->root, "src.json",
                   LAYOUT("w", "[4]", "[0, -1]", "[8, 4]") "," LAYOUT("b", "[4]", "[0]", "[16]"));
    walk_view(&run, options);
}

static void write_bytes(const char *root, const char *path, const char *header, const void *data,
                        size_t size)
{
    struct bytes file = {0};
    const size_t n = strlen(header);

    bytes_add(&file, (unsigned char[8]){(unsigned char)n, (unsigned char)(n >> 8)}, 8);
    bytes_add(&file, header, n);
    bytes_add(&file, data, size);
    tree_write(root, path, file.data, file.n);
    bytes_free(&file);
}

static void write_safetensors(const char *root, const char *path, const char *header,
                              const char *data)
{
    write_bytes(root, path, header, data, strlen(data));
}

/* Sources in safetensors: two parts with a map of what they have, and one file with a checksum. */
static void test_safetensors_sources(void **state)
{
    struct run run = {.f = *state};
    const char *root = run.f->root;
    char path[64];

    for (unsigned rank = 0; rank < 4; rank++) {
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        assert_int_equal(unlink(tree_path(root, path)), 0);
        snprintf(path, sizeof path, "src/rank_%u", rank);
        assert_int_equal(rmdir(tree_path(root, path)), 0);
    }
    write_safetensors(
        root, "src/part0.safetensors",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"__metadata__\":"
        "{\"v\":\"Int4\"},\"v\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[4,6]}}",
        "abcdef");
    write_safetensors(root, "src/hyper_param.safetensors",
                      "{\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", "x");
    const char *map = "{\"weight_map\":{\"v\":\"part0.safetensors\",\"w\":\"part0.safetensors\"}}";
    tree_write(root, "src/param_name_map.json", map, strlen(map));
    walk_view(&run, "format=ckpt,check=crc");
    assert_int_equal(unlink(tree_path(root, "src/param_name_map.json")), 0);
    assert_int_equal(unlink(tree_path(root, "src/hyper_param.safetensors")), 0);
    /* crc32 of "wabcd" */
    write_safetensors(
        root, "src/part0.safetensors",
        "{\"__metadata__\":{\"crc_num\":\"1092016591\"},\"w\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[0,4]}}",
        "abcd");
    walk_view(&run, "format=ckpt,check=crc");
}

/* Conversion rules, of which one computes and one pads; and an adapter. */
static void test_conversion(void **state)
{
    static const char rules[] = "sides training huggingface\nindex i = 0 .. config.n\n"
                                "n.{i} = plus(1, l.{i}.norm [4])\n"
                                "t = pad(0, config.n + 1, t.weight [config.n, 2])\n"
                                "drop right *.inv_freq\n";
    static const unsigned char data[64] = {0, 63, 64, 0, 63};
    struct run run = {.f = *state};
    const char *root = run.f->root;
    char options[512];

    assert_int_equal(rename(tree_path(root, "src"), tree_path(root, "ranks")), 0);
    tree_write(root, "own.rules", rules, strlen(rules));
    tree_write(root, "src/config.json", "{\"n\": 2}", 8);
    write_bytes(root, "src/model.safetensors",
                "{\"l.0.norm\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                "\"l.1.norm\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]},"
                "\"t.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]},"
                "\"x.inv_freq\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]}}",
                data, 40);
    snprintf(options, sizeof options,
             "convert=%s,dst_ranks=2,dst_rules=t: axis 1 over all;*: whole",
             tree_path(root, "own.rules"));
    walk_view(&run, options);
    assert_int_equal(unlink(tree_path(root, "src/config.json")), 0);
    write_bytes(root, "src/model.safetensors",
                "{\"base_model.model.l.0.q.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                "\"data_offsets\":[0,24]},\"base_model.model.l.0.q.lora_B.weight\":"
                "{\"dtype\":\"F32\",\"shape\":[5,2],\"data_offsets\":[24,64]}}",
                data, 64);
    walk_some(&run, "view=peft,lora_alpha=4", 13);
}

/* Codes with scales and zero points for each column, and such with biases, whole and cut. */
static void test_columns(void **state)
{
    static const char gptq[] = "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
                               "\"group_size\":8}}";
    static const char mlx[] = "{\"quantization\":{\"bits\":4,\"group_size\":16,\"b\":{\"bits\":8,"
                              "\"group_size\":8}}}";
    static const unsigned char data[64] = {0};
    static const char *const views[] = {
        "dequantize,view=huggingface",
        "dequantize,format=safetensors,dst_ranks=2,dst_rules=*: axis 1 over all"};
    struct run run = {.f = *state};
    const char *root = run.f->root;

    assert_int_equal(rename(tree_path(root, "src"), tree_path(root, "ranks")), 0);
    tree_write(root, "src/config.json", gptq, strlen(gptq));
    write_bytes(root, "src/model.safetensors",
                "{\"a.g_idx\":{\"dtype\":\"I32\",\"shape\":[8],\"data_offsets\":[0,32]},"
                "\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[1,4],\"data_offsets\":[32,48]},"
                "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[48,52]},"
                "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[1,4],\"data_offsets\":[52,60]}}",
                data, 60);
    walk_view(&run, views[0]);
    walk_view(&run, views[1]);
    tree_write(root, "src/config.json", mlx, strlen(mlx));
    write_bytes(root, "src/model.safetensors",
                "{\"b.biases\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
                "\"b.scales\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[8,16]},"
                "\"b.weight\":{\"dtype\":\"U32\",\"shape\":[2,4],\"data_offsets\":[16,48]}}",
                data, 48);
    walk_view(&run, views[0]);
    walk_view(&run, views[1]);
}

/* Blocks that gguf has written (tests/fixtures/make_gguf.py), as they are and as numbers. */
static void test_gguf(void **state)
{
    struct run run = {.f = *state};
    const char *top = getenv("top_srcdir");
    unsigned char data[8192];
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/tests/fixtures/gguf/blocks.gguf", top ? top : ".");
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    const size_t n = fread(data, 1, sizeof data, file);
    fclose(file);
    assert_int_equal(rename(tree_path(run.f->root, "src"), tree_path(run.f->root, "ranks")), 0);
    tree_write(run.f->root, "src/model.gguf", data, n);
    walk_view(&run, "dequantize,format=safetensors");
    walk_view(&run, "dequantize,dtype=float16,format=gguf");
    walk_view(&run, "format=gguf,prefix=out_");
    walk_view(&run, "view=gguf");
}

/* ---- files of torch.save --------------------------------------------------------------------- */

static void put_vector(struct torch_file *file, const char *key, int64_t n)
{
    torch_tensor(
        file,
        &(struct torch_tensor){
            .class = "FloatStorage", .key = key, .elements = n, .ndim = 1, .dims = (int64_t[]){n}});
}

/*
 * A part of two: "w" in the first, "v", which lies column by column, in the other, and a piece of
 * "big" in each.
 */
static void write_part(const char *root, unsigned part)
{
    static const float numbers[6] = {0.5f, 1, 2, 3, 4, 5};
    struct torch_file file = {0};

    torch_ops(&file, "}(");
    torch_text(&file, "__nshards__");
    torch_int(&file, 2);
    torch_text(&file, "__version__");
    torch_text(&file, "2.0.0");
    torch_text(&file, "model");
    torch_ops(&file, "]ccollections\nOrderedDict\n)R");
    torch_text(&file, part == 0 ? "w" : "v");
    torch_tensor(&file, &(struct torch_tensor){
                            .class = "FloatStorage",
                            .key = "0",
                            .elements = 6,
                            .ndim = 2,
                            .dims = (int64_t[]){2, 3},
                            .strides = part == 0 ? NULL : (int64_t[]){1, 2},
                        });
    torch_ops(&file, "s}");
    torch_text(&file, "big");
    torch_global(&file, "torch", "Size");
    torch_tuple(&file, 2, (int64_t[]){2, 4});
    torch_ops(&file, "\x85R");
    put_vector(&file, "1", 4);
    torch_ops(&file, "\x86s\x86"
                     "a");
    torch_text(&file, "optimizer");
    torch_ops(&file, "]}(");
    torch_text(&file, "state");
    torch_ops(&file, "ccollections\nOrderedDict\n)R");
    torch_int(&file, part);
    torch_ops(&file, "}(");
    torch_text(&file, "step");
    torch_tensor(&file, &(struct torch_tensor){.class = "FloatStorage", .key = "2", .elements = 1});
    torch_text(&file, "m");
    put_vector(&file, "0", 6);
    torch_ops(&file, "us");
    torch_text(&file, "param_groups");
    torch_ops(&file, "]}");
    torch_text(&file, "params");
    torch_tuple(&file, 2, (int64_t[]){0, 1});
    torch_ops(&file, "sau}\x86"
                     "a");
    if (part == 0) {
        torch_text(&file, "epoch");
        torch_int(&file, 70000);
    }
    torch_ops(&file, "u");
    torch_storage(&file, "0", numbers, sizeof numbers);
    torch_storage(&file, "1", numbers + part, 16);
    torch_storage(&file, "2", numbers + 3, 4);
    const struct bytes *bytes = torch_end(&file);
    tree_write(root, part == 0 ? "src/PART_000.pt" : "src/PART_001.pt", bytes->data, bytes->n);
    torch_free(&file);
}

static void test_hfai_parts(void **state)
{
    struct run run = {.f = *state};

    for (unsigned part = 0; part < 2; part++)
        write_part(run.f->root, part);
    walk_view(&run, "cache=8M,nshards=3,large_size=16,zip_crc");
}

/* ---- other sources --------------------------------------------------------------------------- */

static void write_text(const struct run *run, const char *name, const char *text)
{
    tree_write(run->f->root, name, text, strlen(text));
}

static void test_trees_of_other_kinds(void **state)
{
    struct run run = {.f = *state};
    const char *root = run.f->root;
    char options[1024];

    write_text(&run, "map.json",
               "{\"0\": \"src/rank_0/net-1_2.ckpt\", \"1\": \"src/rank_1/net-1_2.ckpt\", "
               "\"2\": \"src/rank_2/net-1_2.ckpt\", \"3\": \"src/rank_3/net-1_2.ckpt\"}");
    write_text(&run, "src/rank_0/group_info.pb", "\x12\x04\x08\x01\x08\x02");
    snprintf(options, sizeof options, "src_strategy=%s,files=%s", tree_path(root, "src.json"),
             tree_path(root, "map.json"));
    walk_view(&run, options);
    for (unsigned rank = 0; rank < 4; rank++) {
        char path[64];
        snprintf(path, sizeof path, "src/rank_%u/net-2_2.ckpt", rank);
        struct bytes file = {0};
        expected_rank(&file, 0, 42); /* another save, which is not opened */
        tree_write(root, path, file.data, file.n);
        bytes_free(&file);
    }
    snprintf(options, sizeof options, "src_strategy=%s,rank_dir=rank_%%d,file=n*,step=2,epoch=1",
             tree_path(root, "src.json"));
    walk_view(&run, options);
    snprintf(options, sizeof options, "src_strategy=%s,step=all,epoch=1",
             tree_path(root, "src.json"));
    walk_view(&run, options);
    assert_int_equal(unlink(tree_path(root, "src/rank_1/net-1_2.ckpt")), 0);
    snprintf(options, sizeof options, "src_strategy=%s,epoch=1,group_info=%s",
             tree_path(root, "src.json"), tree_path(root, "src"));
    walk_view(&run, options); /* rank 2 stands in */
}

/* One tensor of four bytes in a safetensors file. */
static void write_one(const struct run *run, const char *path, const char *name)
{
    char file[256] = {0};
    const int n =
        snprintf(file + 8, sizeof file - 8,
                 "{\"%s\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", name);
    assert_true(n > 0 && n < 128);
    file[0] = (char)n;
    memcpy(file + 8 + n, "abcd", 4);
    tree_write(run->f->root, path, file, (size_t)n + 12);
}

static void test_folders_of_an_unsharded_model(void **state)
{
    struct run run = {.f = *state};
    const char *root = run.f->root;

    assert_int_equal(rename(tree_path(root, "src"), tree_path(root, "ranks")), 0);
    write_one(&run, "src/model-00001-of-00002.safetensors", "a");
    write_one(&run, "src/model-00002-of-00002.safetensors", "b");
    write_text(&run, "src/model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", "
               "\"b\": \"model-00002-of-00002.safetensors\"}}");
    walk_view(&run, "format=ckpt,prefix=out_");
    assert_int_equal(unlink(tree_path(root, "src/model.safetensors.index.json")), 0);
    write_one(&run, "src/hyper_param.safetensors", "c");
    write_text(&run, "src/param_name_map.json", "{\"a\": \"model-00001-of-00002.safetensors\"}");
    walk_view(&run, "format=ckpt,prefix=out_");
    assert_int_equal(unlink(tree_path(root, "src/param_name_map.json")), 0);
    walk_view(&run, "format=ckpt,segmented");
}

/* What is added to these options is walked, too: this test is the last one. */
static void test_all_words_are_walked(void **state)
{
    static const char *const options[] = {"view", "format", "check"};
    char given[64];
    (void)state;

    for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
        const char *word;
        assert_non_null(rfs_option_word(options[i], 0));
        for (int k = 0; (word = rfs_option_word(options[i], k)) != NULL; k++) {
            snprintf(given, sizeof given, ",%s=%s,", options[i], word);
            if (!strstr(walked, given))
                fail_msg("no walk has %s=%s", options[i], word);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_strategies_in_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strategies_in_protobuf, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files_of_a_stage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_removed_redundancy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pieces_of_the_cache, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_and_dtypes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_encrypted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_outputs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_outputs_that_describe_themselves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rules, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hfai_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_safetensors_sources, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_conversion, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_columns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_gguf, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_trees_of_other_kinds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folders_of_an_unsharded_model, set_up, tear_down),
        cmocka_unit_test(test_all_words_are_walked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
