/* SPDX-License-Identifier: Apache-2.0 */
/* Several saves side by side. */
#include "base/wait.h"
#include "tests/unit/view/support.h"
#include "view/internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static unsigned looks;     /* at what is followed */
static uint64_t stands_at; /* the clock; 0: it goes */

int __real_rfs_view_list_saves(struct reshard_view *set, const char *path,
                               const struct rfs_known_saves *known, struct rfs_saves *out,
                               struct rfs_error *err);
int __wrap_rfs_view_list_saves(struct reshard_view *set, const char *path,
                               const struct rfs_known_saves *known, struct rfs_saves *out,
                               struct rfs_error *err);
int __wrap_rfs_view_list_saves(struct reshard_view *set, const char *path,
                               const struct rfs_known_saves *known, struct rfs_saves *out,
                               struct rfs_error *err)
{
    looks++;
    return __real_rfs_view_list_saves(set, path, known, out, err);
}

uint64_t __real_rfs_wait_now(void);
uint64_t __wrap_rfs_wait_now(void);
uint64_t __wrap_rfs_wait_now(void)
{
    return stands_at > 0 ? stands_at : __real_rfs_wait_now();
}

/* net-1_2.ckpt of each rank, whose value STEPS tells the saves apart, under another name. */
static void save(struct fixture *f, unsigned rank, const char *name, unsigned char steps)
{
    char old[64];
    char renamed[64];

    write_source_rank(f->root, rank, steps);
    snprintf(old, sizeof old, "src/rank_%u/net-1_2.ckpt", rank);
    snprintf(renamed, sizeof renamed, "src/rank_%u/%s", rank, name);
    char *from = strdup(tree_path(f->root, old));
    assert_int_equal(rename(from, tree_path(f->root, renamed)), 0);
    free(from);
}

static void two_saves(struct fixture *f)
{
    for (unsigned rank = 0; rank < 4; rank++) {
        save(f, rank, "net-10_7.ckpt", 77);
        save(f, rank, "net-9_7.ckpt", 66);
    }
}

static uint64_t find(struct fixture *f, uint64_t parent, const char *name)
{
    uint64_t id = 0;
    if (reshard_lookup(f->view, parent, name, &id))
        fail_msg("no %s", name);
    return id;
}

static uint64_t find_file(struct fixture *f, const char *folder, unsigned rank)
{
    char dir[32];
    char file[64];
    snprintf(dir, sizeof dir, "rank_%u", rank);
    snprintf(file, sizeof file, "checkpoint_%u.ckpt", rank);
    return find(f, find(f, find(f, RESHARD_ROOT, folder), dir), file);
}

static void expect(struct fixture *f, const char *folder, unsigned rank, unsigned char steps)
{
    struct bytes want = {0};
    unsigned char got[1024];
    reshard_stat st = {.struct_size = sizeof st};
    const uint64_t id = find_file(f, folder, rank);

    expected_rank(&want, rank, steps);
    assert_int_equal(reshard_getattr(f->view, id, &st, NULL), 0);
    assert_int_equal(st.id, id);
    assert_int_equal(st.size, want.n);
    assert_true(S_ISREG(st.mode));
    assert_int_equal(reshard_pread(f->view, id, got, sizeof got, 0), want.n);
    assert_memory_equal(got, want.data, want.n);
    memset(got, 0, sizeof got);
    reshard_reader *reader;
    assert_int_equal(reshard_reader_open(f->view, id, &reader), 0);
    assert_int_equal(reshard_reader_pread(reader, got, sizeof got, 0), want.n);
    assert_memory_equal(got, want.data, want.n);
    reshard_reader_close(reader);
    bytes_free(&want);
}

static void test_content(void **state)
{
    struct fixture *f = *state;
    two_saves(f);
    if (open_with(f, "step=all"))
        fail_msg("%s", f->err.message);
    for (unsigned rank = 0; rank < 2; rank++) {
        expect(f, "9_7", rank, 66);
        expect(f, "10_7", rank, 77);
    }
    assert_string_equal(f->lines.text, "");
    /* Only the save whose source changes is concerned, and the log says which it is. */
    assert_int_equal(truncate(tree_path(f->root, "src/rank_0/net-9_7.ckpt"), 5), 0);
    unsigned char buf[1024];
    assert_int_equal(reshard_pread(f->view, find_file(f, "9_7", 0), buf, sizeof buf, 0), -ESTALE);
    expect(f, "10_7", 0, 77);
    reshard_close(f->view); /* a thread that read ahead may still be writing the line */
    f->view = NULL;
    assert_non_null(strstr(f->lines.text, "0:9_7: "));
}

static void test_tree(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"9_7", "10_7"};
    reshard_dirent entry = {.struct_size = sizeof entry};
    reshard_stat st = {.struct_size = sizeof st};
    uint64_t id = 0;
    two_saves(f);
    if (open_with(f, "step=all"))
        fail_msg("%s", f->err.message);
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(reshard_list(f->view, RESHARD_ROOT, i, &entry), 1);
        assert_string_equal(entry.name, names[i]);
        assert_true(entry.is_dir);
        const uint64_t folder = entry.id;
        assert_int_equal(folder, find(f, RESHARD_ROOT, names[i]));
        assert_int_equal(folder, rfs_view_save_base(i + 1) + RESHARD_ROOT);
        assert_int_equal(reshard_getattr(f->view, folder, &st, NULL), 0);
        assert_int_equal(st.id, folder);
        assert_int_equal(st.mode, S_IFDIR | 0700);
        assert_int_equal(st.nlink, 4);
        assert_int_equal(reshard_list(f->view, folder, 1, &entry), 1);
        assert_string_equal(entry.name, "rank_1");
        const uint64_t dir = entry.id;
        assert_int_equal(reshard_list(f->view, folder, 2, &entry), 0);
        assert_int_equal(reshard_list(f->view, dir, 0, &entry), 1);
        assert_string_equal(entry.name, "checkpoint_1.ckpt");
        assert_false(entry.is_dir);
        assert_int_equal(entry.id, find_file(f, names[i], 1));
        assert_false(reshard_is_ready(f->view, entry.id));
        assert_true(reshard_is_ready(f->view, dir));
        assert_int_equal(find(f, dir, ".."), folder);
        assert_int_equal(find(f, folder, ".."), RESHARD_ROOT);
        assert_int_equal(reshard_lookup(f->view, folder, "9_7", &id), -ENOENT);
        assert_int_equal(reshard_lookup(f->view, entry.id, "x", &id), -ENOTDIR);
        assert_int_equal(reshard_pread(f->view, dir, NULL, 0, 0), -EISDIR);
    }
    assert_int_equal(reshard_list(f->view, RESHARD_ROOT, 2, &entry), 0);
    assert_int_equal(find(f, RESHARD_ROOT, ".."), RESHARD_ROOT);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_0", &id), -ENOENT);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "1_7", &id), -ENOENT);
    assert_int_equal(reshard_getattr(f->view, RESHARD_ROOT, &st, NULL), 0);
    assert_int_equal(st.nlink, 4);
    for (uint64_t bad = 0; bad < 8; bad++) {
        if (bad != RESHARD_ROOT) /* without a save's number there is nothing but the root */
            assert_int_equal(reshard_getattr(f->view, bad, &st, NULL), -ENOENT);
        assert_int_equal(reshard_getattr(f->view, rfs_view_save_base(3) + bad, &st, NULL), -ENOENT);
        assert_int_equal(reshard_pread(f->view, UINT64_MAX - bad, NULL, 0, 0), -ENOENT);
    }
    assert_int_equal(reshard_getattr(f->view, rfs_view_save_base(1), &st, NULL), -ENOENT);
    assert_int_equal(reshard_getattr(f->view, rfs_view_save_base(1) + 6, &st, NULL), -ENOENT);
    for (uint64_t below = 1; below <= RFS_VIEW_SAVE_STEP; below++) {
        const uint64_t bad = rfs_view_save_base(1) - below;
        assert_int_equal(reshard_getattr(f->view, bad, &st, NULL), -ENOENT);
        assert_int_equal(reshard_pread(f->view, bad, NULL, 0, 0), -ENOENT);
        assert_int_equal(reshard_list(f->view, bad, 0, &entry), -ENOENT);
        assert_int_equal(reshard_lookup(f->view, bad, "x", &id), -ENOENT);
    }
}

static void count(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *seen = ctx;
    assert_int_equal(done, ++*seen);
    assert_int_equal(total, 4);
}

static void test_sums(void **state)
{
    struct fixture *f = *state;
    reshard_summary summary = {.struct_size = sizeof summary};
    reshard_statistics statistics = {.struct_size = sizeof statistics};
    uint64_t seen = 0;
    two_saves(f);
    if (open_with(f, "step=all,cache=64M"))
        fail_msg("%s", f->err.message);
    reshard_summarize(f->view, &summary);
    assert_int_equal(summary.source_ranks, 4);
    assert_int_equal(summary.target_ranks, 2);
    assert_int_equal(summary.parameters, 2);
    assert_int_equal(summary.entries, 11);
    assert_int_equal(reshard_check(f->view, count, &seen, &f->err), 0);
    assert_int_equal(seen, 4);
    reshard_get_statistics(f->view, &statistics);
    assert_int_equal(statistics.ranks_indexed, 8);
    assert_int_equal(statistics.source_opens, 8);
    assert_int_equal(statistics.cache_budget, 64 << 20);
    expect(f, "9_7", 0, 66);
    expect(f, "10_7", 1, 77);
    reshard_get_statistics(f->view, &statistics);
    assert_int_equal(statistics.reads, 4);
}

/* A save that a rank lacks is left out, and nothing else. */
static void test_incomplete_save(void **state)
{
    struct fixture *f = *state;
    uint64_t id;
    two_saves(f);
    assert_int_equal(unlink(tree_path(f->root, "src/rank_3/net-9_7.ckpt")), 0);
    if (open_with(f, "step=all"))
        fail_msg("%s", f->err.message);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "9_7", &id), -ENOENT);
    assert_non_null(strstr(f->lines.text, "1:9_7: left out: "));
    assert_non_null(strstr(f->lines.text, "rank_3"));
    expect(f, "10_7", 1, 77);
    reshard_close(f->view);
    f->view = NULL;
    assert_int_not_equal(open_with(f, "step=all,strict"), 0);
    assert_null(f->view);
    assert_int_equal(unlink(tree_path(f->root, "src/rank_3/net-10_7.ckpt")), 0);
    assert_int_not_equal(open_with(f, "step=all"), 0);
    assert_non_null(strstr(f->err.message, "rank_3"));
}

static void test_choice(void **state)
{
    struct fixture *f = *state;
    uint64_t id;
    two_saves(f);
    if (open_with(f, "step=all,epoch=9"))
        fail_msg("%s", f->err.message);
    expect(f, "9_7", 0, 66);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "10_7", &id), -ENOENT);
    reshard_close(f->view);
    f->view = NULL;
    assert_int_equal(open_with(f, "step=all,file=x*"), -ENOENT);
    assert_int_equal(open_with(f, "step=all,rank_dir=x"), -EINVAL);
    assert_int_equal(f->err.usage, 1);
    assert_int_equal(open_with(f, "step=all,view=unified"), -EINVAL);
    assert_int_equal(f->err.usage, 1);
}

/* So many saves that a view may have descriptors for two of them. */
static void test_descriptors_are_shared(void **state)
{
    struct fixture *f = *state;
    char name[64];
    reshard_statistics statistics = {.struct_size = sizeof statistics};
    enum { SAVES = 100 };
    for (unsigned rank = 0; rank < 4; rank++)
        for (unsigned i = 1; i <= SAVES; i++) {
            snprintf(name, sizeof name, "net-%u_1.ckpt", i);
            save(f, rank, name, (unsigned char)i);
        }
    if (open_with(f, "step=all"))
        fail_msg("%s", f->err.message);
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 1; i <= SAVES; i++) {
            snprintf(name, sizeof name, "%u_1", i);
            expect(f, name, i % 2, (unsigned char)i);
        }
    reshard_get_statistics(f->view, &statistics);
    assert_true(statistics.source_opens > 4 * SAVES);
    int open_now = 0;
    for (int fd = 0; fd < 1024; fd++)
        open_now += access((snprintf(name, sizeof name, "/proc/self/fd/%d", fd), name), F_OK) == 0;
    assert_in_range(open_now, RFS_MAX_OPEN, RFS_MAX_OPEN + 32);
}

/* Looks until the root has N entries. */
static void look_for(struct fixture *f, uint64_t n)
{
    for (unsigned tries = 0; tries < 6000; tries++) {
        reshard_dirent entry = {.struct_size = sizeof entry};
        uint64_t found = 0;
        reshard_look(f->view, RESHARD_LOOK_NOW);
        for (uint64_t at = 0; reshard_list(f->view, RESHARD_ROOT, at, &entry) == 1; at = entry.next)
            found++;
        if (found == n)
            return;
        usleep(10000);
    }
    char *said = reshard_describe_saves(f->view);
    fail_msg("not %lu entries: %s", (unsigned long)n, said ? said : "");
}

static void remove_save(struct fixture *f, const char *name)
{
    char path[64];
    for (unsigned rank = 0; rank < 4; rank++) {
        snprintf(path, sizeof path, "src/rank_%u/net-%s.ckpt", rank, name);
        assert_int_equal(unlink(tree_path(f->root, path)), 0);
    }
}

/* What a caller holds of a save goes on when the save has gone; its ids are never another's. */
/*
 * Another run saves with the numbers of what is shown: its files take the place when all are there.
 */
static void test_following_another_run(void **state)
{
    struct fixture *f = *state;

    two_saves(f);
    if (open_following(f, "", 1))
        fail_msg("%s", f->err.message);
    look_for(f, 3);
    expect(f, "9_7", 0, 66);
    const uint64_t id = find_file(f, "9_7", 0);
    for (unsigned rank = 0; rank < 4; rank++) {
        save(f, rank, "net_1-9_7.ckpt", 99);
        if (rank < 3)
            reshard_look(f->view, RESHARD_LOOK_NOW);
        expect(f, "9_7", 0, 66); /* of the first run as a whole, so far */
        expect(f, "9_7", 1, 66);
    }
    for (unsigned tries = 0; tries < 6000 && find_file(f, "9_7", 0) == id; tries++) {
        usleep(10000);
        reshard_look(f->view, RESHARD_LOOK_NOW);
    }
    expect(f, "9_7", 0, 99);
    expect(f, "9_7", 1, 99);
    expect(f, "10_7", 0, 77);
}

static void test_following(void **state)
{
    struct fixture *f = *state;
    reshard_stat st = {.struct_size = sizeof st};
    reshard_statistics before = {.struct_size = sizeof before}, after = before;
    reshard_tensors *tensors;
    reshard_reader *reader;
    unsigned char got[1024];
    char target[48];
    uint64_t latest, gone;
    if (open_following(f, "", 1))
        fail_msg("%s", f->err.message);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, RESHARD_LATEST, &latest), -ENOENT);
    two_saves(f);
    look_for(f, 3);
    expect(f, "9_7", 0, 66);
    expect(f, "10_7", 1, 77);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, RESHARD_LATEST, &latest), 0);
    assert_int_equal(reshard_getattr(f->view, latest, &st, NULL), 0);
    assert_true(S_ISLNK(st.mode) && st.passing && st.size == 4);
    assert_int_equal(reshard_read_link(f->view, latest, target, sizeof target), 0);
    assert_string_equal(target, "10_7");
    assert_int_equal(reshard_read_link(f->view, latest, target, 4), -ERANGE);
    assert_int_equal(reshard_read_link(f->view, RESHARD_ROOT, target, sizeof target), -ENOENT);
    /* The first of the list goes, while it is used. */
    gone = find_file(f, "9_7", 0);
    assert_int_equal(reshard_reader_open(f->view, gone, &reader), 0);
    assert_int_equal(reshard_tensors_open(f->view, "9_7/full", &tensors, NULL), 0);
    remove_save(f, "9_7");
    look_for(f, 2);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "9_7", &latest), -ENOENT);
    assert_int_equal(reshard_getattr(f->view, gone, &st, NULL), 0);
    assert_true(reshard_tensors_count(tensors) > 0);
    assert_int_equal(reshard_reader_pread(reader, got, sizeof got, 0), -ESTALE);
    reshard_reader_close(reader);
    reshard_tensors_close(tensors);
    reshard_get_statistics(f->view, &before);
    look_for(f, 2);
    assert_int_equal(reshard_getattr(f->view, gone, &st, NULL), -ESTALE);
    assert_int_equal(reshard_pread(f->view, gone, got, sizeof got, 0), -ESTALE);
    assert_int_equal(reshard_lookup(f->view, gone - 1, "checkpoint_0.ckpt", &latest), -ESTALE);
    reshard_get_statistics(f->view, &after);
    assert_true(after.source_bytes >= before.source_bytes && after.reads == before.reads);
    /* It comes again, under ids of its own. */
    for (unsigned rank = 0; rank < 4; rank++)
        save(f, rank, "net-9_7.ckpt", 88);
    look_for(f, 3);
    expect(f, "9_7", 0, 88);
    assert_true(find_file(f, "9_7", 0) != gone);
    assert_int_equal(reshard_getattr(f->view, gone, &st, NULL), -ESTALE);
    remove_save(f, "9_7");
    remove_save(f, "10_7");
    look_for(f, 0);
}

/* Returns the number of looks that 20 calls make. */
static unsigned looks_of(struct fixture *f, enum reshard_looks when)
{
    looks = 0;
    for (unsigned i = 0; i < 20; i++)
        reshard_look(f->view, when);
    return looks;
}

/* Who lists the root often costs the source one look a second, and one at what the kernel tells. */
static void test_looks_once_a_second(void **state)
{
    enum { SECOND = 1000000000, EVERY = 3 };
    struct fixture *f = *state;

    two_saves(f);
    stands_at = __real_rfs_wait_now();
    looks = 0;
    if (open_following(f, "", EVERY))
        fail_msg("%s", f->err.message);
    assert_int_equal(looks, 1);
    assert_int_equal(looks_of(f, RESHARD_LOOK_FRESH), 0);
    stands_at += SECOND - 1;
    assert_int_equal(looks_of(f, RESHARD_LOOK_FRESH), 0);
    stands_at += 1;
    assert_int_equal(looks_of(f, RESHARD_LOOK_DUE), 0);
    assert_int_equal(looks_of(f, RESHARD_LOOK_FRESH), 1);
    assert_int_equal(looks_of(f, RESHARD_LOOK_NOW), 20);
    assert_int_equal(looks_of(f, RESHARD_LOOK_FRESH), 0);
    stands_at += (EVERY - 1) * (uint64_t)SECOND;
    assert_int_equal(looks_of(f, RESHARD_LOOK_DUE), 0);
    assert_int_equal(looks_of(f, RESHARD_LOOK_FRESH), 1);
    assert_int_equal(mkdir(tree_path(f->root, "src/step-30"), 0700), 0); /* the kernel tells */
    assert_int_equal(looks_of(f, RESHARD_LOOK_FRESH), 1);
    stands_at += EVERY * (uint64_t)SECOND;
    assert_int_equal(looks_of(f, RESHARD_LOOK_DUE), 1);
    reshard_close(f->view);
    f->view = NULL;
    stands_at = 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_content),
        TEST(test_tree),
        TEST(test_sums),
        TEST(test_incomplete_save),
        TEST(test_choice),
        TEST(test_descriptors_are_shared),
        TEST(test_following),
        TEST(test_following_another_run),
        TEST(test_looks_once_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
