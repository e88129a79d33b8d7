/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors and boxes that are loaded into memory, through the public interface. Reads of sources go
 * through a pread of this program, which can be slow.
 */
#include "tests/support/loads.h"
#include "tests/support/sealer.h"
#include "tests/unit/plan/world.h"
#include "tests/unit/view/support.h"
#include "view/internal.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WORLDS 120

static atomic_bool slow; /* reads of sources wait */

static ssize_t slow_pread(int fd, void *buf, size_t n, off_t offset)
{
    if (atomic_load(&slow))
        nanosleep(&(struct timespec){0, 3000000}, NULL);
    return syscall(SYS_pread64, fd, buf, n, offset);
}

ssize_t pread(int fd, void *buf, size_t n, off_t offset);
ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
    return slow_pread(fd, buf, n, offset);
}

ssize_t pread64(int fd, void *buf, size_t n, off_t offset);
ssize_t pread64(int fd, void *buf, size_t n, off_t offset)
{
    return slow_pread(fd, buf, n, offset);
}

static reshard_tensors *open_list(struct fixture *f, const char *folder)
{
    reshard_tensors *tensors;

    f->err = (reshard_error){.struct_size = sizeof f->err};
    if (reshard_tensors_open(f->view, folder, &tensors, &f->err))
        fail_msg("%s: %s", folder, f->err.message);
    return tensors;
}

static size_t number_of(reshard_tensors *tensors, const char *name)
{
    size_t i = SIZE_MAX;

    assert_int_equal(reshard_tensors_find(tensors, name, &i), 0);
    return i;
}

static int load(struct fixture *f, reshard_tensors *tensors, const reshard_load *loads, size_t n)
{
    f->err = (reshard_error){.struct_size = sizeof f->err};
    return reshard_tensors_load(tensors, loads, n, NULL, NULL, &f->err);
}

static void expect_tensor(reshard_tensors *tensors, size_t i, const char *name, const char *dtype,
                          uint64_t bytes, uint32_t ndim, uint64_t rows, uint64_t columns)
{
    reshard_tensor tensor = {.struct_size = sizeof tensor};

    assert_int_equal(reshard_tensors_get(tensors, i, &tensor), 0);
    assert_string_equal(tensor.name, name);
    assert_string_equal(tensor.dtype, dtype);
    assert_int_equal(tensor.bytes, bytes);
    assert_int_equal(tensor.ndim, ndim);
    assert_int_equal(tensor.shape[0], rows);
    assert_int_equal(tensor.shape[1], columns);
    assert_int_equal(number_of(tensors, name), i);
}

/* The list of a rank has its slices, and the list of the whole checkpoint whole tensors. */
static void test_lists(void **state)
{
    struct fixture *f = *state;
    size_t i;

    open_view(f);
    reshard_tensors *rank = open_list(f, "rank_1");
    assert_int_equal(reshard_tensors_count(rank), 3);
    expect_tensor(rank, 0, "w", "Int8", 16, 2, 8, 2);
    expect_tensor(rank, 1, "b", "UInt8", 4, 1, 4, 0);
    expect_tensor(rank, 2, "steps", "Int8", 1, 0, 0, 0);
    assert_int_equal(reshard_tensors_find(rank, "rank", &i), -ENOENT);
    assert_int_equal(reshard_tensors_get(rank, 3, &(reshard_tensor){.struct_size = 8}), -ENOENT);
    reshard_tensors_close(rank);
    reshard_tensors *full = open_list(f, "full");
    expect_tensor(full, number_of(full, "w"), "w", "Int8", 32, 2, 8, 4);
    reshard_tensors_close(full);
    reshard_tensors_close(NULL);
}

static void test_no_such_folder(void **state)
{
    static const char *const wrong[] = {"",   "rank_2",          "rank_",      "ful",
                                        "..", "../tensors/full", "full/w.npy", "/full"};
    struct fixture *f = *state;
    reshard_tensors *tensors;

    open_view(f);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        f->err = (reshard_error){.struct_size = sizeof f->err};
        assert_int_equal(reshard_tensors_open(f->view, wrong[i], &tensors, &f->err), -ENOENT);
        assert_null(tensors);
        assert_non_null(strstr(f->err.message, "there is no folder '"));
    }
}

/* Each box of each axis, against the pattern that the sources were written with. */
static void test_all_boxes(void **state)
{
    struct fixture *f = *state;

    open_view(f);
    reshard_tensors *full = open_list(f, "full");
    const size_t w = number_of(full, "w");
    for (uint64_t a = 0; a <= 8; a++)
        for (uint64_t b = a; b <= 8; b++)
            for (uint64_t c = 0; c <= 4; c++)
                for (uint64_t d = c; d <= 4; d++) {
                    unsigned char got[33], want[33];
                    memset(got, 0xa5, sizeof got);
                    memset(want, 0xa5, sizeof want);
                    for (uint64_t row = a; row < b; row++)
                        fill(want + (row - a) * (d - c), "w", row * 4 + c, d - c);
                    assert_int_equal(
                        load(f, full,
                             &(reshard_load){w, (uint64_t[]){a, c}, (uint64_t[]){b, d}, got}, 1),
                        0);
                    assert_memory_equal(got, want, sizeof got);
                }
    reshard_tensors_close(full);
}

static void test_refused_boxes(void **state)
{
    static const uint64_t bad[][4] = {{0, 0, 9, 4},          {0, 0, 8, 5},
                                      {5, 0, 4, 4},          {0, 3, 8, 2},
                                      {0, 0, UINT64_MAX, 1}, {UINT64_MAX, 0, UINT64_MAX, 1}};
    struct fixture *f = *state;
    unsigned char got[32] = {0};

    open_view(f);
    reshard_tensors *full = open_list(f, "full");
    const size_t w = number_of(full, "w");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        /* Nothing is read, not even what is right. */
        const reshard_load loads[] = {{w, NULL, NULL, got}, {w, bad[i], bad[i] + 2, got}};
        assert_int_equal(load(f, full, loads, 2), -EINVAL);
        assert_non_null(strstr(f->err.message, "parameter 'w': axis "));
        assert_int_equal(got[1], 0);
    }
    assert_int_equal(load(f, full, &(reshard_load){w, bad[0], NULL, got}, 1), -EINVAL);
    assert_int_equal(load(f, full, &(reshard_load){3, NULL, NULL, got}, 1), -EINVAL);
    assert_int_equal(load(f, full, NULL, 0), 0);
    reshard_tensors_close(full);
}

/* Two loads that would write to one byte are refused, whatever their order; neighbours are not. */
static void test_overlapping_memory(void **state)
{
    static const uint64_t row[] = {5, 0, 6, 4};
    static const uint64_t none[] = {5, 0, 5, 4};
    struct fixture *f = *state;
    unsigned char got[40] = {0};
    unsigned char want[4];

    open_view(f);
    reshard_tensors *full = open_list(f, "full");
    const size_t w = number_of(full, "w");
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; at <= 36; at++) {
            const reshard_load whole = {w, NULL, NULL, got + 4}, part = {w, row, row + 2, got + at};
            const reshard_load loads[] = {i ? whole : part, i ? part : whole};
            const bool apart = at == 0 || at == 36;
            assert_int_equal(load(f, full, loads, 2), apart ? 0 : -EINVAL);
            if (!apart) {
                assert_non_null(
                    strstr(f->err.message, "parameter 'w': its memory overlaps that of 'w'"));
                assert_int_equal(got[1], 0);
            }
            memset(got, 0, sizeof got);
        }
    /* A load of nothing touches nothing. */
    const reshard_load loads[] = {{w, row, row + 2, got}, {w, none, none + 2, got + 1}};
    assert_int_equal(load(f, full, loads, 2), 0);
    fill(want, "w", 20, 4);
    assert_memory_equal(got, want, 4);
    reshard_tensors_close(full);
}

/* Only the source that has a box is read, and no more of it than the box. */
static void test_source_bytes(void **state)
{
    struct fixture *f = *state;
    reshard_statistics before = {.struct_size = sizeof before};
    reshard_statistics after = {.struct_size = sizeof after};
    unsigned char got[4];
    unsigned char want[4];

    open_view(f);
    reshard_tensors *full = open_list(f, "full");
    const size_t w = number_of(full, "w");
    reshard_get_statistics(f->view, &before);
    assert_int_equal(
        load(f, full, &(reshard_load){w, (uint64_t[]){5, 0}, (uint64_t[]){6, 4}, got}, 1), 0);
    reshard_get_statistics(f->view, &after);
    fill(want, "w", 20, 4);
    assert_memory_equal(got, want, 4);
    assert_int_equal(after.source_bytes - before.source_bytes, 4);
    assert_int_equal(after.source_reads - before.source_reads, 1);
    assert_int_equal(after.cache_inserts, 0);
    reshard_tensors_close(full);
}

/* The error of a source that was changed names the tensor and the file. */
static void test_changed_source(void **state)
{
    struct fixture *f = *state;
    unsigned char got[32];

    open_view(f);
    reshard_tensors *full = open_list(f, "full");
    const size_t w = number_of(full, "w");
    assert_int_equal(load(f, full, &(reshard_load){w, NULL, NULL, got}, 1), 0);
    assert_int_equal(truncate(tree_path(f->root, "src/rank_3/net-1_2.ckpt"), 10), 0);
    assert_int_equal(load(f, full, &(reshard_load){w, NULL, NULL, got}, 1), -ESTALE);
    assert_non_null(strstr(f->err.message, "parameter 'w': "));
    assert_non_null(strstr(f->err.message, "rank_3/net-1_2.ckpt: the file was changed"));
    reshard_tensors_close(full);
}

/* A rank that was there when the list was made, and one that was lost before. */
static void test_lost_rank(void **state)
{
    struct fixture *f = *state;
    reshard_tensors *tensors;
    unsigned char got[32];

    open_view(f);
    reshard_tensors *full = open_list(f, "full");
    assert_int_equal(unlink(tree_path(f->root, "src/rank_2/net-1_2.ckpt")), 0);
    const reshard_load all = {number_of(full, "w"), NULL, NULL, got};
    assert_int_equal(load(f, full, &all, 1), -ESTALE);
    assert_non_null(strstr(f->err.message, "parameter 'w': "));
    assert_non_null(strstr(f->err.message, "rank_2/net-1_2.ckpt: the file was changed or removed"));
    reshard_tensors_close(full);
    reshard_close(f->view);
    replicate(f, (unsigned char[]){5, 6, 5, 5});
    assert_int_equal(unlink(tree_path(f->root, "src/rank_2/net-1_2.ckpt")), 0);
    open_view(f);
    f->err = (reshard_error){.struct_size = sizeof f->err};
    assert_int_equal(reshard_tensors_open(f->view, "rank_2", &tensors, &f->err), -ENOENT);
    assert_null(tensors);
    assert_non_null(strstr(f->err.message, "parameter 'steps'"));
    reshard_tensors_close(open_list(f, "rank_0"));
}

/* Rank 3 has another key than the other ranks. */
static void test_wrong_key(void **state)
{
    static const struct seal seals[] = {
        {RFS_AES_GCM, NULL, 16, RFS_CIPHER_BLOCK, false},
        {RFS_AES_GCM, (const unsigned char *)"0123456789abcdef", 16, RFS_CIPHER_BLOCK, false}};
    struct fixture *f = *state;
    reshard_tensors *tensors;
    unsigned char got[16];
    unsigned char want[16];
    char text[512];

    write_strategy(f->root, "dst.json", LAYOUT("w", "[2]", "[0, -1]", "[8, 4]"));
    for (unsigned rank = 0; rank < 4; rank++) {
        snprintf(text, sizeof text, "src/rank_%u/net-1_2.ckpt", rank);
        seal_file(tree_path(f->root, text), &seals[rank == 3], rank);
    }
    tree_write(f->root, "key", seal_key(16), 16);
    snprintf(text, sizeof text, "key_file=%s", tree_path(f->root, "key"));
    if (open_with(f, text))
        fail_msg("%s", f->err.message);
    reshard_tensors *right = open_list(f, "rank_0");
    assert_int_equal(load(f, right, &(reshard_load){number_of(right, "w"), NULL, NULL, got}, 1), 0);
    fill(want, "w", 0, 16);
    assert_memory_equal(got, want, 16);
    reshard_tensors_close(right);
    assert_int_equal(reshard_tensors_open(f->view, "rank_1", &tensors, &f->err), -EBADMSG);
    assert_null(tensors);
    assert_non_null(strstr(f->err.message, "rank_3/net-1_2.ckpt: offset 0: block 0 fails its "
                                           "AES-GCM check: the key is wrong"));
}

static void test_cancelled(void **state)
{
    struct fixture *f = *state;
    reshard_cancel *cancel;
    unsigned char got[32];

    open_view(f);
    reshard_tensors *full = open_list(f, "full");
    const reshard_load all = {number_of(full, "w"), NULL, NULL, got};
    assert_int_equal(reshard_cancel_new(f->view, &cancel), 0);
    reshard_cancel_use(cancel);
    reshard_cancel_set(cancel, true);
    assert_int_equal(load(f, full, &all, 1), -EINTR);
    reshard_cancel_set(cancel, false);
    assert_int_equal(load(f, full, &all, 1), 0);
    reshard_cancel_use(NULL);
    reshard_cancel_free(cancel);
    reshard_tensors_close(full);
}

struct heard {
    pthread_t caller;
    uint64_t last, total;
};

static void hear(void *ctx, uint64_t done, uint64_t total)
{
    struct heard *heard = ctx;

    assert_true(pthread_equal(heard->caller, pthread_self()));
    assert_true(done > heard->last && done <= total);
    heard->last = done;
    heard->total = total;
}

static void test_progress(void **state)
{
    struct fixture *f = *state;
    unsigned char got[36];
    struct heard heard = {.caller = pthread_self()};

    open_view(f);
    reshard_tensors *full = open_list(f, "full");
    const reshard_load loads[] = {{number_of(full, "w"), NULL, NULL, got},
                                  {number_of(full, "b"), NULL, NULL, got + 32}};
    assert_int_equal(reshard_tensors_load(full, loads, 2, hear, &heard, NULL), 0);
    assert_int_equal(heard.last, 36);
    assert_int_equal(heard.total, 36);
    reshard_tensors_close(full);
}

/* Threads that load from one list at once. */
static atomic_uint wrong;

static void *load_often(void *arg)
{
    struct fixture *f = arg;
    reshard_tensors *full;
    unsigned char got[32], want[32];

    fill(want, "w", 0, 32);
    if (reshard_tensors_open(f->view, "full", &full, NULL)) {
        wrong++;
        return NULL;
    }
    size_t w = 0;
    reshard_tensors_find(full, "w", &w);
    for (unsigned i = 0; i < 200; i++) {
        memset(got, 0, sizeof got);
        if (reshard_tensors_load(full, &(reshard_load){w, NULL, NULL, got}, 1, NULL, NULL, NULL) ||
            memcmp(got, want, sizeof got) != 0)
            wrong++;
    }
    reshard_tensors_close(full);
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t threads[4];

    open_view(*state);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_often, *state), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(wrong, 0);
}

#define MANY 64 /* tensors of ROW bytes for each of four ranks */
#define ROW 4096

static void write_many(struct fixture *f)
{
    static unsigned char row[ROW];
    char items[MANY * 160] = "";
    char text[64];

    for (unsigned i = 0; i < MANY; i++) {
        const size_t used = strlen(items);
        snprintf(items + used, sizeof items - used,
                 "%s" LAYOUT("p%02u", "[4]", "[0, -1]", "[4, %d]"), i > 0 ? ", " : "", i, ROW);
    }
    write_strategy(f->root, "src.json", items);
    write_strategy(f->root, "dst.json", items);
    for (unsigned rank = 0; rank < 4; rank++) {
        struct bytes file = {0};
        for (unsigned i = 0; i < MANY; i++) {
            memset(row, (int)(rank * MANY + i), sizeof row);
            snprintf(text, sizeof text, "p%02u", i);
            ckpt_tensor(&file, text, "UInt8", 2, (uint64_t[]){1, ROW}, row, ROW);
        }
        snprintf(text, sizeof text, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(f->root, text, file.data, file.n);
        bytes_free(&file);
    }
}

/*
 * The tensors of a slow source, one behind the other in its files: reads ahead are for many of them
 * at once, while each tensor alone takes a read of each file.
 */
static void test_slow_source(void **state)
{
    static unsigned char got[MANY][4 * ROW];
    struct fixture *f = *state;
    reshard_statistics before = {.struct_size = sizeof before};
    reshard_statistics after = {.struct_size = sizeof after};
    reshard_load loads[MANY];

    write_many(f);
    open_view(f);
    reshard_tensors *full = open_list(f, "full");
    assert_int_equal(reshard_tensors_count(full), MANY);
    for (size_t i = 0; i < MANY; i++)
        loads[i] = (reshard_load){i, NULL, NULL, got[i]};
    struct rfs_assembler *assembler = rfs_view_take(f->view, RESHARD_ROOT)->assembler;
    assert_int_equal(rfs_assemble_reach(assembler), 0);
    atomic_store(&slow, true);
    for (unsigned i = 0; i < 8 && rfs_assemble_reach(assembler) == 0; i++)
        assert_int_equal(load(f, full, loads, 1), 0);
    assert_true(rfs_assemble_reach(assembler) > 0);
    reshard_get_statistics(f->view, &before);
    assert_int_equal(load(f, full, loads, MANY), 0);
    reshard_get_statistics(f->view, &after);
    atomic_store(&slow, false);
    for (unsigned i = 0; i < MANY; i++)
        for (unsigned rank = 0; rank < 4; rank++) {
            unsigned char want[ROW];
            memset(want, (int)(rank * MANY + i), ROW);
            assert_memory_equal(got[i] + rank * ROW, want, ROW);
        }
    assert_in_range(after.source_reads - before.source_reads, 4, MANY);
    reshard_tensors_close(full);
}

/* ---- threads that load from one view, and one that is stopped again and again ---------------- */

struct loader {
    struct fixture *f;
    reshard_cancel *cancel; /* NULL: never stopped */
    atomic_bool done;
};

static void *load_many(void *arg)
{
    struct loader *loader = arg;
    unsigned char(*got)[4 * ROW] = malloc(sizeof(unsigned char[MANY][4 * ROW]));
    reshard_load loads[MANY];
    reshard_tensors *full;

    if (!got || reshard_tensors_open(loader->f->view, "full", &full, NULL))
        abort();
    for (size_t i = 0; i < MANY; i++)
        loads[i] = (reshard_load){i, NULL, NULL, got[i]};
    reshard_cancel_use(loader->cancel);
    for (unsigned round = 0; round < 20; round++) {
        memset(got, 0, MANY * sizeof *got);
        const int rc = reshard_tensors_load(full, loads, MANY, NULL, NULL, NULL);
        if (rc != 0 && !(loader->cancel && rc == -EINTR))
            wrong++;
        for (unsigned i = 0; rc == 0 && i < MANY; i++)
            for (unsigned rank = 0; rank < 4; rank++)
                if (got[i][rank * ROW] != (unsigned char)(rank * MANY + i))
                    wrong++;
    }
    reshard_cancel_use(NULL);
    reshard_tensors_close(full);
    free(got);
    atomic_store(&loader->done, true);
    return NULL;
}

static void test_one_is_cancelled(void **state)
{
    struct fixture *f = *state;
    struct loader loaders[4] = {{.f = f}, {.f = f}, {.f = f}, {.f = f}};
    pthread_t threads[4];

    write_many(f);
    open_view(f);
    wrong = 0;
    assert_int_equal(reshard_cancel_new(f->view, &loaders[0].cancel), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_many, &loaders[i]), 0);
    for (bool stop = true; !atomic_load(&loaders[0].done); stop = !stop) {
        reshard_cancel_set(loaders[0].cancel, stop);
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    reshard_cancel_free(loaders[0].cancel);
    assert_int_equal(wrong, 0);
}

/* What one random world loads is what the slow model says, and its files. */
static unsigned check_world(const struct world *world, struct fixture *f)
{
    static struct wanted wanted[PARAMS + EXTRA];
    struct loads loads;
    unsigned compared = 0;
    char folder[32];

    loads_check(f->view, world->random, true, &loads);
    assert_string_equal(loads.why, "");
    for (uint32_t r = 0; r < world->dst.devices * world->dst.stages; r++) {
        reshard_tensors *tensors;
        const int n = world_file(world, r, wanted);
        snprintf(folder, sizeof folder, "rank_%u", r);
        const int rc = reshard_tensors_open(f->view, folder, &tensors, NULL);
        if (rc) /* the model knows names only, and refuses less */
            continue;
        assert_true(n >= 0);
        assert_int_equal(reshard_tensors_count(tensors), n);
        for (size_t i = 0; i < (size_t)n; i++) {
            unsigned char got[sizeof wanted->bytes];
            if (wanted[i].n == 0)
                continue;
            assert_int_equal(load(f, tensors, &(reshard_load){i, NULL, NULL, got}, 1), 0);
            assert_memory_equal(got, wanted[i].bytes, wanted[i].n);
            compared++;
        }
        reshard_tensors_close(tensors);
    }
    return compared;
}

static void test_worlds(void **state)
{
    const char *seed = getenv("RFS_SEED");
    const uint64_t first = seed ? strtoull(seed, NULL, 10) : 20260101;
    unsigned compared = 0;

    (void)state;
    print_message("RFS_SEED=%llu\n", (unsigned long long)first);
    for (uint64_t i = 0; i < WORLDS; i++) {
        struct fixture f = {.root = tree_new()};
        struct world world;
        char options[512];
        world_make(&world, first + i);
        if (!world.src.any || !world.dst.any || !world_is_plain(&world)) {
            tree_remove(f.root);
            continue;
        }
        world_write(&world, f.root);
        char *src = world_strategy(&world, &world.src);
        char *dst = world_strategy(&world, &world.dst);
        tree_write(f.root, "src.json", src, strlen(src));
        tree_write(f.root, "dst.json", dst, strlen(dst));
        snprintf(options, sizeof options, "src_strategy=%s,dst_strategy=%s",
                 tree_path(f.root, "src.json"), tree_path(f.root, "dst.json"));
        const reshard_config config = {.struct_size = sizeof config, .options = options};
        if (reshard_open(tree_path(f.root, "src"), &config, &f.view, NULL) == 0)
            compared += check_world(&world, &f);
        reshard_close(f.view);
        free(src);
        free(dst);
        tree_remove(f.root);
    }
    assert_true(compared > 100);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_lists),          TEST(test_no_such_folder),     TEST(test_all_boxes),
        TEST(test_refused_boxes),  TEST(test_overlapping_memory), TEST(test_source_bytes),
        TEST(test_changed_source), TEST(test_lost_rank),          TEST(test_wrong_key),
        TEST(test_cancelled),      TEST(test_progress),           TEST(test_threads),
        TEST(test_slow_source),    TEST(test_one_is_cancelled),   cmocka_unit_test(test_worlds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
