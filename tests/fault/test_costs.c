/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What views of fast sources cost, counted and not timed: source bytes for each byte given, system
 * calls on source files, allocations. System calls are counted by taking their place, which proves
 * what the statistics say of them. Files are sparse: the contents don't matter here.
 */
#undef _FORTIFY_SOURCE /* which has inline functions in the place of those that are defined here */

#include "tests/support/allocations.h"
#include "tests/support/smaps.h"
#include "tests/unit/view/support.h"

#include "assemble/internal.h"
#include "base/cleanup.h"
#include "view/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define RANKS 4

static atomic_uint_least64_t allocations, stats, opens, reads, bytes, listed;

EARLY static bool allocation_fails(void)
{
    if (!spared)
        atomic_fetch_add(&allocations, 1);
    return false;
}

/* ---- system calls, as the library makes them ------------------------------------------------- */

INSTEAD int stat(const char *restrict path, struct stat *restrict st)
{
    atomic_fetch_add(&stats, 1);
    return fstatat(AT_FDCWD, path, st, 0);
}

INSTEAD int fstat(int fd, struct stat *st)
{
    atomic_fetch_add(&stats, 1);
    return fstatat(fd, "", st, AT_EMPTY_PATH);
}

INSTEAD int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list more;
    va_start(more, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(more, mode_t);
    va_end(more);
    atomic_fetch_add(&opens, 1);
    return openat(AT_FDCWD, path, flags, mode);
}

INSTEAD struct dirent *readdir(DIR *dir)
{
    _Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "they are the same");
    atomic_fetch_add(&listed, 1);
    return (struct dirent *)readdir64(dir);
}

INSTEAD ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
    const ssize_t got = syscall(SYS_pread64, fd, buf, n, offset);
    atomic_fetch_add(&reads, 1);
    atomic_fetch_add(&bytes, got > 0 ? (uint64_t)got : 0);
    return got;
}

INSTEAD ssize_t preadv(int fd, const struct iovec *spans, int count, off_t offset)
{
    const ssize_t got = syscall(SYS_preadv, fd, spans, count, offset, 0);
    atomic_fetch_add(&reads, 1);
    atomic_fetch_add(&bytes, got > 0 ? (uint64_t)got : 0);
    return got;
}

/*
 * No read waits for storage. A page fault may wait for another thread, and under load that takes as
 * long as a slow source; then windows are read ahead that nobody may need, as they should be.
 */
INSTEAD int getrusage(__rusage_who_t who, struct rusage *usage)
{
    const int rc = (int)syscall(SYS_getrusage, who, usage);

    usage->ru_nvcsw = 0;
    return rc;
}

/* ---- trees ----------------------------------------------------------------------------------- */

#define TENSORS 3

/* Writes the layouts of N tensors of [ROWS, 1024], by its device matrix and tensor map. */
static void write_layouts(const char *root, const char *file, const char *cut, unsigned n,
                          uint64_t rows)
{
    static char items[32 * KIB];
    size_t used = 0;

    for (unsigned i = 0; i < n; i++)
        used += (size_t)snprintf(items + used, sizeof items - used,
                                 "%s\"%c%u\": {%s, \"tensor_shape\": [%llu, 1024], "
                                 "\"field\": 0, \"opt_weight_shard_step\": 0, "
                                 "\"opt_weight_shard_size\": 0}",
                                 i > 0 ? ", " : "", 'u', i, cut, (unsigned long long)rows);
    assert_true(used < sizeof items);
    write_strategy(root, file, items);
}

/* Writes sparse files of RANKS ranks with N slices of [ROWS, 1024]. */
static void write_ranks(const char *root, unsigned ranks, unsigned n, uint64_t rows)
{
    const uint64_t dims[] = {rows, KIB};

    for (unsigned rank = 0; rank < ranks; rank++) {
        uint64_t end = 0;
        char path[64];
        char name[16];
        snprintf(path, sizeof path, "src/rank_%u/net-1_2.ckpt", rank);
        tree_write(root, path, "", 0);
        FILE *file = fopen(tree_path(root, path), "r+b");
        assert_non_null(file);
        for (unsigned i = 0; i < n; i++) {
            struct bytes header = {0};
            snprintf(name, sizeof name, "u%u", i);
            ckpt_header(&header, name, "Int8", 2, dims, dims[0] * dims[1]);
            assert_int_equal(fwrite(header.data, 1, header.n, file), header.n);
            end += header.n + dims[0] * dims[1];
            assert_int_equal(fseeko(file, (off_t)end, SEEK_SET), 0);
            bytes_free(&header);
        }
        assert_int_equal(fclose(file), 0);
        assert_int_equal(truncate(tree_path(root, path), (off_t)end), 0);
    }
}

/*
 * Tensors with ROWS of 1 KiB, cut by rows over the source's ranks and along DST_AXIS over the
 * destination's two: 0 makes contiguous files, 1 such of runs of half a KiB. Opens the view, and
 * compares its ranks, as a mount does.
 */
static void lay_out(struct fixture *f, uint64_t rows, unsigned dst_axis, const char *more)
{
    write_layouts(f->root, "src.json", "\"dev_matrix\": [4], \"tensor_map\": [0, -1]", TENSORS,
                  rows);
    write_layouts(f->root, "dst.json",
                  dst_axis == 0 ? "\"dev_matrix\": [2], \"tensor_map\": [0, -1]"
                                : "\"dev_matrix\": [2], \"tensor_map\": [-1, 0]",
                  TENSORS, rows);
    write_ranks(f->root, RANKS, TENSORS, rows / RANKS);
    if (open_with(f, more) || reshard_check_strategies(f->view, &f->err))
        fail_msg("%s", f->err.message);
}

static void restart(void)
{
    allocations = stats = opens = reads = bytes = listed = 0;
}

/* All that is read ahead has been. */
static void settle(struct fixture *f)
{
    struct rfs_assembler *assembler = rfs_view_only(f->view)->assembler;

    pthread_mutex_lock(&assembler->lock);
    while (assembler->n_runners > 0)
        pthread_cond_wait(&assembler->idle, &assembler->lock);
    pthread_mutex_unlock(&assembler->lock);
}

static reshard_statistics counted(struct fixture *f)
{
    reshard_statistics s = {.struct_size = sizeof s};

    settle(f);
    reshard_get_statistics(f->view, &s);
    return s;
}

/* Reads [from, to) of a file as a mount does, in requests of STEP. */
static void read_range(reshard_reader *reader, uint64_t from, uint64_t to, uint64_t step)
{
    static unsigned char scratch[MIB + RESHARD_SCRATCH_EXTRA];
    struct iovec iov[64];

    for (uint64_t at = from; at < to; at += step) {
        reshard_loan *loan;
        int count;
        const uint64_t size = to - at < step ? to - at : step;
        assert_int_equal(
            reshard_reader_borrow(reader, scratch, (size_t)size, at, iov, 64, &count, &loan), size);
        reshard_return(loan);
    }
}

static reshard_reader *open_rank(struct fixture *f, unsigned rank)
{
    reshard_reader *reader;

    assert_int_equal(reshard_reader_open(f->view, file_id(f, rank), &reader), 0);
    return reader;
}

/* At most 1.1 source bytes for each that was given since restart(), read ahead or not. */
static void within_a_tenth(struct fixture *f, uint64_t given)
{
    const reshard_statistics s = counted(f);

    assert_int_equal(s.reads_failed, 0);
    if (bytes * 10 > given * 11)
        fail_msg("%llu source bytes for %llu", (unsigned long long)bytes,
                 (unsigned long long)given);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Attributes cost one open and a read of each header of the ranks that they need. */
static void test_stat(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    lay_out(f, 32 * KIB, 0, "");
    const reshard_statistics before = counted(f);
    restart();
    assert_int_equal(stat_rank(f, 1, &st), 0);
    const reshard_statistics s = counted(f);
    assert_int_equal(s.ranks_indexed - before.ranks_indexed,
                     2 + 1); /* its own two, and the first, which tells their headers */
    assert_int_equal(s.source_opens, RANKS); /* those that are compared are open already */
    assert_int_equal(s.source_reads - before.source_reads, reads);
    assert_int_equal(s.source_bytes - before.source_bytes, bytes);
    assert_true(reads <= 3 * TENSORS);
    assert_true(bytes <= 3 * TENSORS * 4 * KIB);
    restart();
    assert_int_equal(stat_rank(f, 1, &st), 0); /* known by now */
    assert_int_equal(reads + opens + stats, 0);
}

/* What a comparison of the ranks reads, but for the N headers of the first. */
static uint64_t compare_ranks(struct fixture *f, unsigned ranks, unsigned n)
{
    char cut[64];

    snprintf(cut, sizeof cut, "\"dev_matrix\": [%u, 4], \"tensor_map\": [0, -1]", ranks / 4);
    write_layouts(f->root, "src.json", cut, n, 256);
    write_layouts(f->root, "dst.json", "\"dev_matrix\": [1], \"tensor_map\": [-1, -1]", n, 256);
    write_ranks(f->root, ranks, n, 64);
    if (open_with(f, ""))
        fail_msg("%s", f->err.message);
    restart();
    if (reshard_check_strategies(f->view, &f->err))
        fail_msg("%s", f->err.message);
    const reshard_statistics s = counted(f);
    assert_int_equal(s.ranks_indexed, 1);
    assert_int_equal(s.source_reads, reads);
    assert_true(bytes <= reads * 4 * KIB);
    reshard_close(f->view);
    f->view = NULL;
    return reads - n;
}

/*
 * Three tensors of a kind in the first rank and its farthest replica, in three places; two of them
 * in one place of the ranks one step away, two headers of each of these ranks, and its end.
 */
static uint64_t reads_of(unsigned steps)
{
    return UINT64_C(3) * 3 * 2 + UINT64_C(2) * steps + UINT64_C(3) * (1 + steps);
}

/* Ranks cost a few reads for each time that their number doubles, and parameters none. */
static void test_ranks_are_compared_by_few_reads(void **state)
{
    struct fixture *f = *state;

    assert_true(compare_ranks(f, 16, 8) <= reads_of(4));
    assert_true(compare_ranks(f, 16, 128) <= reads_of(4));
    assert_true(compare_ranks(f, 512, 128) <= reads_of(9));
}

/* A strategy that ranks contradict is refused for each file, and they are compared once. */
static void test_a_refused_strategy_is_not_compared_again(void **state)
{
    struct fixture *f = *state;
    const char *path = "src/rank_3/net-1_2.ckpt";
    reshard_stat st;
    struct stat file;

    write_layouts(f->root, "src.json", "\"dev_matrix\": [4], \"tensor_map\": [-1, -1]", TENSORS,
                  64);
    write_layouts(f->root, "dst.json", "\"dev_matrix\": [2], \"tensor_map\": [0, -1]", TENSORS, 64);
    write_ranks(f->root, RANKS, TENSORS, 64);
    assert_int_equal(stat(tree_path(f->root, path), &file), 0);
    FILE *other = fopen(tree_path(f->root, path), "r+b");
    assert_non_null(other);
    for (off_t i = 1; i <= TENSORS; i++) { /* the last byte of each */
        assert_int_equal(fseeko(other, file.st_size / TENSORS * i - 1, SEEK_SET), 0);
        assert_int_equal(fputc(1, other), 1);
    }
    assert_int_equal(fclose(other), 0);
    if (open_with(f, ""))
        fail_msg("%s", f->err.message);
    restart();
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    assert_true(reads > 0);
    restart();
    assert_int_equal(stat_rank(f, 0, &st), -EINVAL);
    assert_int_equal(reads, 0);
}

/*
 * Of what is contiguous each byte is read once, with about a call for each request, and none is
 * opened again.
 */
static void test_a_whole_contiguous_file(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    lay_out(f, 64 * KIB, 0, "cache=256M");
    reshard_reader *reader = open_rank(f, 1);
    assert_int_equal(stat_rank(f, 1, &st), 0);
    const uint64_t content = TENSORS * 32 * MIB;
    const reshard_statistics before = counted(f);
    restart();
    read_range(reader, 0, st.size, MIB);
    const reshard_statistics s = counted(f);
    assert_int_equal(bytes, content);
    assert_int_equal(s.source_bytes - before.source_bytes, bytes);
    assert_int_equal(s.source_reads - before.source_reads, reads);
    assert_int_equal(s.bytes_replied, st.size);
    assert_int_equal(s.read_ahead_unread, 0);
    assert_int_equal(opens, 0);
    const uint64_t requests = s.reads;
    const uint64_t edges =
        2 * TENSORS * 2; /* parts of a request where a tensor or a source file ends */
    assert_true(reads <= requests + s.read_ahead_pieces + edges);
    assert_true(stats <= 2 * (requests + s.read_ahead_pieces + edges));
    assert_true(allocations <= 8 * requests);
    reshard_reader_close(reader);
}

/*
 * What must be gathered is read once for all that share it, with the gaps of half a KiB between the
 * runs.
 */
static void test_gathered_files_of_several_readers(void **state)
{
    struct fixture *f = *state;
    reshard_stat st;

    lay_out(f, 32 * KIB, 1, "cache=256M");
    assert_int_equal(stat_rank(f, 1, &st), 0);
    reshard_reader *readers[] = {open_rank(f, 1), open_rank(f, 1), open_rank(f, 1)};
    restart();
    for (uint64_t at = 0; at < st.size; at += MIB)
        for (int i = 0; i < 3; i++)
            read_range(readers[i], at, at + MIB < st.size ? at + MIB : st.size, MIB);
    const reshard_statistics s = counted(f);
    assert_true(bytes <= TENSORS * 32 * MIB);
    assert_int_equal(opens, 0);
    assert_int_equal(s.cache_inserts, TENSORS * 16); /* each piece is made once */
    assert_int_equal(s.cache_misses + s.read_ahead_pieces, s.cache_inserts);
    assert_true(s.cache_hits >= 2 * s.cache_inserts);
    assert_int_equal(s.cache_regrets, 0);
    assert_true(allocations <= 8 * s.reads);
    for (int i = 0; i < 3; i++)
        reshard_reader_close(readers[i]);
}

/* Reads here and there cost just their bytes, a call, a look at the file, and no memory. */
static void test_random_reads(void **state)
{
    struct fixture *f = *state;
    uint64_t seed = test_seed();
    reshard_stat st;

    lay_out(f, 64 * KIB, 0, "");
    assert_int_equal(stat_rank(f, 0, &st), 0);
    reshard_reader *reader = open_rank(f, 0);
    /* Within the last tensor: the slice at hand stays. */
    const uint32_t pages = 32 * MIB / 4096 - 1;
    const uint64_t first = st.size - 32 * MIB;
    read_range(reader, first, first + 4096, 4096);
    restart();
    for (int i = 0; i < 1000; i++) {
        const uint64_t at = first + test_below(&seed, pages) * (uint64_t)4096;
        read_range(reader, at, at + 4096, 4096);
    }
    settle(f);
    assert_in_range(bytes, 1000 * 4096, 1000 * 4096 * 11 / 10);
    assert_in_range(reads, 1000, 1002); /* one that crosses from a source file to the next is two */
    assert_true(stats <= 2 * reads);
    assert_int_equal(opens, 0);
    assert_true(allocations <=
                4); /* where by chance some followed each other, a little may be read ahead */
    reshard_reader_close(reader);
}

/* All over a file that is small enough for reads to lie near each other often. */
static void test_random_reads_near_each_other(void **state)
{
    struct fixture *f = *state;
    uint64_t seed = test_seed();
    reshard_stat st;

    lay_out(f, 8 * KIB, 0, "");
    assert_int_equal(stat_rank(f, 0, &st), 0);
    reshard_reader *reader = open_rank(f, 0);
    restart();
    for (int i = 0; i < 20000; i++) {
        const uint64_t at = test_below(&seed, (uint32_t)(st.size / 4096)) * (uint64_t)4096;
        read_range(reader, at, at + 4096, 4096);
    }
    within_a_tenth(f, 20000 * 4096);
    reshard_reader_close(reader);
}

/* head -c, of all lengths, in requests of all sizes. */
static void test_the_beginning_of_a_file(void **state)
{
    static const uint64_t lengths[] = {1,       100,      4096,     8 * KIB,  128 * KIB, MIB,
                                       5 * MIB, 12 * MIB, 21 * MIB, 47 * MIB, 70 * MIB};
    static const uint64_t steps[] = {8 * KIB, 128 * KIB, MIB};
    struct fixture *f = *state;
    reshard_stat st;

    lay_out(f, 64 * KIB, 0, "");
    assert_int_equal(stat_rank(f, 1, &st), 0);
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            reshard_reader *reader = open_rank(f, 1);
            restart();
            read_range(reader, 0, lengths[k], steps[i]);
            within_a_tenth(f, lengths[k]);
            reshard_reader_close(reader);
        }
    }
}

/* As safetensors is read: the length of the header, the header, one tensor. */
static void read_one_tensor(struct fixture *f, uint64_t rows)
{
    static const uint64_t steps[] = {4 * KIB, 128 * KIB, MIB};
    const uint64_t size = rows / 2 * KIB;
    unsigned char length[8];
    uint64_t header = 0;
    uint64_t dir;
    uint64_t id;
    reshard_stat st = {.struct_size = sizeof st};

    lay_out(f, rows, 0, "format=safetensors");
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, "rank_1", &dir), 0);
    assert_int_equal(reshard_lookup(f->view, dir, "checkpoint_1.safetensors", &id), 0);
    assert_int_equal(reshard_getattr(f->view, id, &st, NULL), 0);
    assert_int_equal(reshard_pread(f->view, id, length, sizeof length, 0), sizeof length);
    for (size_t i = sizeof length; i-- > 0;)
        header = header << 8 | length[i];
    assert_int_equal(st.size, 8 + header + TENSORS * size);
    for (size_t tensor = 0; tensor < TENSORS; tensor++) {
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            const uint64_t begin = 8 + header + tensor * size;
            reshard_reader *reader;
            assert_int_equal(reshard_reader_open(f->view, id, &reader), 0);
            restart();
            read_range(reader, 0, 8, 8);
            read_range(reader, 8, 8 + header, header);
            assert_int_equal(bytes, 0); /* it is made, not read */
            read_range(reader, begin, begin + size, steps[i]);
            within_a_tenth(f, 8 + header + size);
            reshard_reader_close(reader);
        }
    }
    reshard_close(f->view);
    f->view = NULL;
}

static void test_a_header_and_one_tensor(void **state)
{
    read_one_tensor(*state, 64 * KIB); /* of 32 MiB */
    read_one_tensor(*state, 10 * KIB); /* of 5 MiB */
}

/* ---- files that describe each tensor of all ranks -------------------------------------------- */

#define BESIDE_METADATA (4 * MIB) /* of memory that making .metadata takes, and its bytes */

/* Gives the bytes of memory that /proc/self/status has by that name. */
static uint64_t status(const char *name)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");

    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), ":%llu", &kib);
    assert_int_equal(fclose(file), 0);
    return kib * KIB;
}

static void forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");

    assert_non_null(file);
    assert_int_equal(fputs("5", file) < 0 || fclose(file), 0);
}

/* Looks at the size of the metadata NAME of many ranks; its text is KEPT, or made for readers. */
static void look_at_metadata(struct fixture *f, const char *options, const char *name, bool kept)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    reshard_stat st = {.struct_size = sizeof st};
    uint64_t id;

    f->err = (reshard_error){.struct_size = sizeof f->err};
    if (reshard_open(tree_path(f->root, "src/rank_0/net-1_2.ckpt"), &config, &f->view, &f->err))
        fail_msg("%s", f->err.message);
    assert_int_equal(reshard_lookup(f->view, RESHARD_ROOT, name, &id), 0);
    forget_peak();
    const uint64_t before = status("VmRSS");
    assert_int_equal(reshard_getattr(f->view, id, &st, NULL), 0);
    const uint64_t taken = status("VmHWM") - before;
    assert_true(st.size > 10 * BESIDE_METADATA); /* it has much more than is allowed beside it */
    if (!SMAPS_NO_LOCKS && taken > (kept ? st.size : 0) + BESIDE_METADATA)
        fail_msg("%s: %llu bytes of memory for %llu", options, (unsigned long long)taken,
                 (unsigned long long)st.size);
    reshard_close(f->view);
    f->view = NULL;
}

/* The chunks of all ranks are never listed at once. */
static void test_metadata_of_many_chunks(void **state)
{
    struct fixture *f = *state;

    write_ranks(f->root, 1, 4000, 64);
    look_at_metadata(f, "view=dcp,dst_ranks=64,index_cache=no", ".metadata", true);
    look_at_metadata(f, "view=hyper_parallel,dst_ranks=64,index_cache=no", ".metadata", true);
    look_at_metadata(f,
                     "view=mindformers,dst_ranks=128,index_cache=no,"
                     "dst_rules=axes dp=2 tp=64;*: axis 0 over tp",
                     "metadata.json", false);
}

/* ---- several saves --------------------------------------------------------------------------- */

#define PER_SAVE (64 * KIB) /* of memory, for a view of which nothing has been read */

/*
 * The names in all ranks' folders once, with those that each folder has beside, and the root's a
 * few times: which kind of source is it?
 */
static void listed_once(unsigned saves)
{
    assert_in_range(listed, 1, (saves + 3) * RANKS + 10 * (RANKS + 3));
}

struct costs {
    uint64_t allocations, stats, opens, reads, listed, memory;
};

static struct costs costs_of(size_t memory)
{
    return (struct costs){allocations, stats, opens, reads, listed, mallinfo2().uordblks - memory};
}

static void more_saves(struct fixture *f, unsigned from, unsigned to)
{
    for (unsigned epoch = from; epoch < to; epoch++)
        for (unsigned rank = 0; rank < RANKS; rank++) {
            char old[64];
            char renamed[64];
            write_source_rank(f->root, rank, 42);
            snprintf(old, sizeof old, "src/rank_%u/net-1_2.ckpt", rank);
            snprintf(renamed, sizeof renamed, "src/rank_%u/net-%u_7.ckpt", rank, epoch);
            RFS_FREE char *name = strdup(tree_path(f->root, old));
            assert_int_equal(rename(name, tree_path(f->root, renamed)), 0);
        }
}

static void at_most(const char *what, uint64_t few, uint64_t many, uint64_t times)
{
    if (many > few * times + few / 4)
        fail_msg("%s: %llu, and %llu for %llu times as many saves", what, (unsigned long long)few,
                 (unsigned long long)many, (unsigned long long)times);
}

static void are_linear(const struct costs *few, const struct costs *many, uint64_t times)
{
    at_most("allocations", few->allocations, many->allocations, times);
    at_most("stats", few->stats, many->stats, times);
    at_most("opens", few->opens, many->opens, times);
    at_most("reads", few->reads, many->reads, times);
    at_most("entries of folders", few->listed, many->listed, times);
}

/* Each folder is listed once for all saves, and nothing grows faster than their number. */
static void test_many_saves(void **state)
{
    enum { FEW = 25, TIMES = 6 };
    struct fixture *f = *state;
    struct costs costs[2];

    for (int i = 0; i < 2; i++) {
        more_saves(f, i == 0 ? 0 : FEW, i == 0 ? FEW : FEW * TIMES);
        const size_t memory = mallinfo2().uordblks;
        restart();
        if (open_with(f, "step=all,cache=1,index_cache=no"))
            fail_msg("%s", f->err.message);
        costs[i] = costs_of(memory);
        listed_once(FEW * (i == 0 ? 1 : TIMES));
        reshard_close(f->view);
        f->view = NULL;
    }
    are_linear(&costs[0], &costs[1], TIMES);
    if (costs[1].memory > costs[0].memory) /* a sanitizer's is not counted */
        assert_in_range((costs[1].memory - costs[0].memory) / (FEW * (TIMES - 1)), 0, PER_SAVE);
}

/* So does a look at saves that are shown, and one at those that are not complete. */
static void test_looks_at_many_saves(void **state)
{
    enum { FEW = 25, TIMES = 6 };
    struct fixture *f = *state;
    struct costs costs[2];

    for (int i = 0; i < 2; i++) {
        more_saves(f, i == 0 ? 0 : FEW, i == 0 ? FEW : FEW * TIMES);
        for (unsigned epoch = 0; epoch < FEW * (i == 0 ? 1 : TIMES); epoch += 2) {
            char name[64];
            snprintf(name, sizeof name, "src/rank_3/net-%u_7.ckpt", epoch);
            (void)unlink(tree_path(f->root, name));
        }
        if (open_following(f, "cache=1,index_cache=no", 1))
            fail_msg("%s", f->err.message);
        restart();
        reshard_look(f->view, RESHARD_LOOK_NOW);
        costs[i] = costs_of(0);
        listed_once(FEW * (i == 0 ? 1 : TIMES));
        reshard_close(f->view);
        f->view = NULL;
    }
    are_linear(&costs[0], &costs[1], TIMES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stat, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ranks_are_compared_by_few_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_refused_strategy_is_not_compared_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_whole_contiguous_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_gathered_files_of_several_readers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_reads_near_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_beginning_of_a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_header_and_one_tensor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_metadata_of_many_chunks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_saves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_looks_at_many_saves, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("costs", tests, NULL, NULL);
}
