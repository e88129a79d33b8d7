/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexes that are kept on disk: what is believed of them, and what becomes of all that could be
 * wrong with them.
 */
#include "base/options.h"
#include "catalog/catalog.h"
#include "catalog/kept.h"
#include "tests/unit/store/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 5
#define FLIPS 300

struct fixture {
    struct tree tree;
    struct lines lines;
};

/* The indexes of one look at the tree. */
struct look {
    struct rfs_kept *kept;
    struct rfs_catalog *catalog;
    const struct rfs_index *index[RANKS];
    struct rfs_catalog_counters count;
    uint64_t opens;
};

/* Ranks 0 to 2 list the same; 3 has a tensor in three pieces, and 4 another order. */
static void write_rank(const struct fixture *f, unsigned rank, unsigned more)
{
    struct bytes file = {0};
    char name[64];

    for (unsigned i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "layer.%u.w", rank == 4 ? 11 - i : i);
        put_tensor(&file, name, (int64_t[]){i + 1, 3}, 2, "Int8", filler(64), (i + 1) * 3);
    }
    for (unsigned i = 0; rank == 3 && i < 3; i++)
        put_tensor(&file, "cut", (int64_t[]){30}, 1, "Int8", filler(10), 10);
    put_tensor(&file, "scalar", NULL, 0, "Float32", filler(4), 4);
    for (unsigned i = 0; i < more; i++)
        put_tensor(&file, "more", (int64_t[]){4}, 1, "Int8", filler(4), 4);
    snprintf(name, sizeof name, "src/rank_%u", rank);
    assert_true(mkdir(tree_path(&f->tree, name), 0755) == 0 || errno == EEXIST);
    snprintf(name, sizeof name, "src/rank_%u/a.ckpt", rank);
    tree_file(&f->tree, name, file.p, file.n);
    bytes_free(&file);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    tree_new(&f->tree);
    lines_init(&f->lines);
    tree_folder(&f->tree, "src");
    for (unsigned r = 0; r < RANKS; r++)
        write_rank(f, r, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    tree_remove(&f->tree);
    free(f);
    return 0;
}

/* Looks at all ranks, LATER seconds from now. */
static void look(struct fixture *f, struct look *look, long later)
{
    struct rfs_error err = {0};
    struct rfs_files_counters files;
    *look = (struct look){.kept = rfs_kept_open(tree_path(&f->tree, "kept"), &f->lines.log)};
    const struct rfs_source_spec spec = {.path = tree_path(&f->tree, "src"),
                                         .options = &rfs_options_defaults,
                                         .kept = look->kept,
                                         .opened = {.tv_sec = time(NULL) + later}};
    if (rfs_catalog_open(&spec, &f->lines.log, NULL, &look->catalog, &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t r = 0; r < RANKS; r++)
        if (rfs_catalog_index(look->catalog, r, r > 0 ? 0 : RFS_NO_RANK, &look->index[r], &err) < 0)
            fail_msg("%s", err.text);
    rfs_catalog_count(look->catalog, &look->count);
    rfs_files_count(rfs_catalog_files(look->catalog), &files);
    look->opens = files.opens;
}

static void end(struct look *look)
{
    rfs_catalog_close(look->catalog);
    rfs_kept_close(look->kept);
}

static void save(struct fixture *f, long later)
{
    struct look first;
    look(f, &first, later);
    rfs_catalog_keep(first.catalog);
    end(&first);
}

static void expect_same(struct look *a, struct look *b)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct rfs_index *x = a->index[r];
        const struct rfs_index *y = b->index[r];
        assert_int_equal(x->n, y->n);
        assert_int_equal(x->n_extents, y->n_extents);
        assert_int_equal(x->file_bytes, y->file_bytes);
        for (size_t i = 0; i < x->n; i++) {
            const struct rfs_entry *p = &x->entries[i];
            const struct rfs_entry *q = &y->entries[i];
            assert_string_equal(rfs_catalog_name(a->catalog, p->name),
                                rfs_catalog_name(b->catalog, q->name));
            assert_memory_equal(rfs_catalog_type(a->catalog, p->type),
                                rfs_catalog_type(b->catalog, q->type), sizeof(struct rfs_type));
            assert_int_equal(p->offset, q->offset);
            assert_int_equal(p->extent_count, q->extent_count);
            assert_ptr_equal(rfs_index_find(y, q->name), q);
        }
        if (x->n_extents)
            assert_memory_equal(x->extents, y->extents, x->n_extents * sizeof *x->extents);
    }
}

/* The one kept file that there is; NULL when there is none. */
static const char *kept_file(struct fixture *f)
{
    static char path[512];
    const char *folder = tree_path(&f->tree, "kept");
    DIR *dir = opendir(folder);
    const char *found = NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.' && strncmp(e->d_name, ".draft", 6) != 0)
            continue;
        assert_null(found);
        snprintf(path, sizeof path, "%s/%.100s", folder, e->d_name);
        found = path;
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Looks again: WANTED ranks come from the disk, and all are what they are. */
static void expect_from_disk(struct fixture *f, unsigned wanted)
{
    struct look plain;
    struct look again;
    const char *kept = kept_file(f);
    look(f, &again, 10);
    assert_int_equal(again.count.kept, wanted);
    assert_int_equal(again.opens, RANKS - wanted);
    char *away = kept ? strdup(tree_path(&f->tree, "away")) : NULL;
    if (kept)
        assert_int_equal(rename(kept, away), 0);
    look(f, &plain, 10);
    assert_int_equal(plain.count.kept, 0);
    expect_same(&plain, &again);
    if (kept)
        assert_int_equal(rename(away, kept), 0);
    free(away);
    end(&plain);
    end(&again);
}

static void test_is_as_it_was(void **state)
{
    struct fixture *f = *state;
    struct look first;

    look(f, &first, 10);
    assert_int_equal(first.count.kept, 0);
    assert_null(kept_file(f)); /* nothing is made by looking */
    rfs_catalog_keep(first.catalog);
    assert_non_null(kept_file(f));
    end(&first);
    expect_from_disk(f, RANKS);
    struct stat st;
    assert_int_equal(stat(kept_file(f), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(tree_path(&f->tree, "kept"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(f->lines.n, 0);
}

static void test_ranks_share_as_before(void **state)
{
    struct fixture *f = *state;
    struct look first;
    struct look second;
    save(f, 10);
    look(f, &first, 0);
    assert_ptr_equal(first.index[0], first.index[2]);
    assert_ptr_not_equal(first.index[0], first.index[3]);
    look(f, &second, 0);
    assert_int_equal(first.count.index_bytes, second.count.index_bytes);
    end(&second);
    end(&first);
}

static void test_changed_later_than_read(void **state)
{
    struct fixture *f = *state;
    save(f, 0); /* the files are of this very second */
    assert_null(kept_file(f));
    save(f, 1);
    assert_null(kept_file(f));
    save(f, 10);
    assert_non_null(kept_file(f));
    expect_from_disk(f, RANKS);
}

static void times_of(struct fixture *f, const char *name, struct timespec times[2])
{
    struct stat st;
    assert_int_equal(stat(tree_path(&f->tree, name), &st), 0);
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
}

static void test_changed_source(void **state)
{
    struct fixture *f = *state;
    struct timespec times[2];
    save(f, 10);
    /* Written again in place: of the same size and mtime, but for its ctime. */
    times_of(f, "src/rank_1/a.ckpt", times);
    usleep(20000);
    write_rank(f, 1, 0);
    assert_int_equal(utimensat(AT_FDCWD, tree_path(&f->tree, "src/rank_1/a.ckpt"), times, 0), 0);
    expect_from_disk(f, RANKS - 1);
    /* Another file of the same content, size and mtime. */
    times_of(f, "src/rank_2/a.ckpt", times);
    assert_int_equal(rename(tree_path(&f->tree, "src/rank_2/a.ckpt"), tree_path(&f->tree, "old")),
                     0);
    write_rank(f, 2, 0);
    assert_int_equal(utimensat(AT_FDCWD, tree_path(&f->tree, "src/rank_2/a.ckpt"), times, 0), 0);
    expect_from_disk(f, RANKS - 2);
    write_rank(f, 3, 1);
    expect_from_disk(f, RANKS - 3);
    /* Two ranks change places. */
    assert_int_equal(rename(tree_path(&f->tree, "src/rank_0"), tree_path(&f->tree, "src/x")), 0);
    assert_int_equal(rename(tree_path(&f->tree, "src/rank_4"), tree_path(&f->tree, "src/rank_0")),
                     0);
    assert_int_equal(rename(tree_path(&f->tree, "src/x"), tree_path(&f->tree, "src/rank_4")), 0);
    expect_from_disk(f, 0);
    save(f, 10);
    expect_from_disk(f, RANKS);
}

static void test_new_ranks_are_added(void **state)
{
    struct fixture *f = *state;
    struct look some;
    save(f, 10);
    write_rank(f, 1, 1);
    save(f, 10); /* of which four come from the disk and are written again */
    expect_from_disk(f, RANKS);
    /* One that asks for a single rank keeps the others as they are on the disk. */
    write_rank(f, 2, 1);
    look(f, &some, 10);
    assert_int_equal(some.count.kept, RANKS - 1);
    end(&some);
    some.kept = rfs_kept_open(tree_path(&f->tree, "kept"), NULL);
    const struct rfs_source_spec spec = {.path = tree_path(&f->tree, "src"),
                                         .options = &rfs_options_defaults,
                                         .kept = some.kept,
                                         .opened = {.tv_sec = time(NULL) + 10}};
    assert_int_equal(rfs_catalog_open(&spec, NULL, NULL, &some.catalog, NULL), 0);
    assert_int_equal(rfs_catalog_index(some.catalog, 2, RFS_NO_RANK, &some.index[2], NULL), 0);
    rfs_catalog_keep(some.catalog);
    end(&some);
    expect_from_disk(f, RANKS);
}

static void read_file(const char *path, struct bytes *out)
{
    unsigned char buf[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (size_t n; (n = fread(buf, 1, sizeof buf, file)) > 0;)
        bytes_add(out, buf, n);
    fclose(file);
}

static void write_file(const char *path, const unsigned char *bytes, size_t n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void test_damaged_anywhere(void **state)
{
    struct fixture *f = *state;
    struct random random = {random_seed()};
    struct look truth;
    struct bytes good = {0};
    uint64_t believed = 0;
    save(f, 10);
    char *path = strdup(kept_file(f));
    read_file(path, &good);
    look(f, &truth, 10);
    for (unsigned i = 0; i < FLIPS; i++) {
        struct look again;
        const size_t at = (size_t)random_below(&random, good.n);
        const unsigned char bit = (unsigned char)(1 << random_below(&random, 8));
        good.p[at] ^= bit;
        write_file(path, good.p, i % 5 == 4 ? at : good.n);
        good.p[at] ^= bit;
        look(f, &again, 10);
        expect_same(&truth, &again);
        believed += again.count.kept;
        end(&again);
    }
    assert_true(believed > 0); /* a body that is damaged takes none with it but its own ranks */
    assert_true(believed < (uint64_t)FLIPS * RANKS);
    end(&truth);
    write_file(path, good.p, good.n);
    expect_from_disk(f, RANKS);
    write_file(path, good.p, good.n / 2);
    save(f, 10); /* made anew */
    expect_from_disk(f, RANKS);
    bytes_free(&good);
    free(path);
}

static void test_not_to_be_trusted(void **state)
{
    struct fixture *f = *state;
    char *folder = strdup(tree_path(&f->tree, "kept"));
    save(f, 10);
    char *path = strdup(kept_file(f));
    assert_int_equal(chmod(path, 0620), 0);
    expect_from_disk(f, 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(chmod(folder, 0770), 0);
    expect_from_disk(f, 0);
    assert_true(f->lines.n > 0 && strstr(f->lines.last, "no index is kept here: other users"));
    assert_int_equal(chmod(folder, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        expect_from_disk(f, 0);
        assert_int_equal(chown(path, 0, 0), 0);
        assert_int_equal(chown(folder, 65534, 65534), 0);
        expect_from_disk(f, 0);
        save(f, 10);
        assert_int_equal(chown(folder, 0, 0), 0);
    }
    expect_from_disk(f, RANKS);
    char *elsewhere = strdup(tree_path(&f->tree, "elsewhere"));
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    struct look again;
    look(f, &again, 10);
    assert_int_equal(again.count.kept, 0);
    end(&again);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(elsewhere, path), 0);
    assert_int_equal(rename(folder, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, folder), 0);
    look(f, &again, 10);
    assert_int_equal(again.count.kept, 0);
    rfs_catalog_keep(again.catalog);
    end(&again);
    assert_int_equal(unlink(folder), 0);
    assert_int_equal(rename(elsewhere, folder), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* does not hang */
    look(f, &again, 10);
    assert_int_equal(again.count.kept, 0);
    end(&again);
    free(elsewhere);
    free(folder);
    free(path);
}

static void test_cannot_be_written(void **state)
{
    struct fixture *f = *state;
    struct rlimit before;
    tree_file(&f->tree, "kept", "x", 1); /* a file is in the way */
    save(f, 10);
    assert_int_equal(f->lines.n, 1);
    assert_non_null(strstr(f->lines.last, "it is not a folder"));
    assert_int_equal(unlink(tree_path(&f->tree, "kept")), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){600, before.rlim_max}), 0);
    save(f, 10);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_null(kept_file(f)); /* nor a draft */
    assert_non_null(strstr(f->lines.last, strerror(EFBIG)));
    assert_int_equal(f->lines.n, 2);
    save(f, 10);
    expect_from_disk(f, RANKS);
}

static void test_deleted_in_use(void **state)
{
    struct fixture *f = *state;
    struct look open;
    save(f, 10);
    struct rfs_kept *kept = rfs_kept_open(tree_path(&f->tree, "kept"), &f->lines.log);
    const struct rfs_source_spec spec = {.path = tree_path(&f->tree, "src"),
                                         .options = &rfs_options_defaults,
                                         .kept = kept,
                                         .opened = {.tv_sec = time(NULL) + 10}};
    assert_int_equal(rfs_catalog_open(&spec, NULL, NULL, &open.catalog, NULL), 0);
    assert_int_equal(rfs_catalog_index(open.catalog, 0, RFS_NO_RANK, &open.index[0], NULL), 0);
    assert_int_equal(unlink(kept_file(f)), 0);
    for (uint32_t r = 1; r < RANKS; r++)
        assert_int_equal(rfs_catalog_index(open.catalog, r, 0, &open.index[r], NULL), 0);
    rfs_catalog_count(open.catalog, &open.count);
    assert_int_equal(open.count.kept, RANKS); /* who has it open still has it */
    rfs_catalog_close(open.catalog);
    rfs_kept_close(kept);
    assert_null(kept_file(f)); /* nothing new was found */
    expect_from_disk(f, 0);
}

static unsigned count_files(struct fixture *f)
{
    DIR *dir = opendir(tree_path(&f->tree, "kept"));
    unsigned n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void test_as_many_as_may_be(void **state)
{
    struct fixture *f = *state;
    char name[80];
    tree_folder(&f->tree, "kept");
    assert_int_equal(chmod(tree_path(&f->tree, "kept"), 0700), 0);
    for (unsigned i = 0; i < RFS_KEPT_FILES + 20; i++) {
        snprintf(name, sizeof name, "kept/%032x.%s", i, i % 2 ? "index" : "sizes");
        tree_file(&f->tree, name, "x", 1);
        tree_touch(&f->tree, name, 1000000 + (long)i, 0);
    }
    tree_file(&f->tree, "kept/mine.index", "x", 1);
    tree_touch(&f->tree, "kept/mine.index", 1, 0);
    /* Two of a gigabyte each, and a draft that somebody left. */
    snprintf(name, sizeof name, "kept/%032x.index", 5);
    assert_int_equal(truncate(tree_path(&f->tree, name), 1L << 30), 0);
    tree_touch(&f->tree, name, 5000000, 0);
    tree_file(&f->tree, "kept/.draft-1-1", "x", 1);
    tree_touch(&f->tree, "kept/.draft-1-1", 1000, 0);
    save(f, 10);
    assert_int_equal(count_files(f),
                     2); /* ours is the last that was used; the large one is too much beside it */
    assert_int_equal(access(tree_path(&f->tree, "kept/mine.index"), F_OK), 0);
    assert_int_not_equal(access(tree_path(&f->tree, "kept/.draft-1-1"), F_OK), 0);
    for (unsigned i = 0; i < RFS_KEPT_FILES + 20; i++) {
        snprintf(name, sizeof name, "kept/%032x.%s", i, i % 2 ? "index" : "sizes");
        tree_file(&f->tree, name, "x", 1);
        tree_touch(&f->tree, name, 1000000 + (long)i, 0);
    }
    write_rank(f, 0, 1);
    save(f, 10);
    assert_int_equal(count_files(f), RFS_KEPT_FILES + 1);
    assert_int_not_equal(
        access(tree_path(&f->tree, "kept/00000000000000000000000000000014.sizes"), F_OK), 0);
    assert_int_equal(
        access(tree_path(&f->tree, "kept/00000000000000000000000000000015.index"), F_OK), 0);
}

static void test_what_is_never_kept(void **state)
{
    struct fixture *f = *state;
    struct look look;
    struct rfs_options options = rfs_options_defaults;
    options.check = 0; /* each view is to verify */
    const struct rfs_source_spec spec = {.path = tree_path(&f->tree, "src"),
                                         .options = &options,
                                         .kept = look.kept =
                                             rfs_kept_open(tree_path(&f->tree, "kept"), NULL),
                                         .opened = {.tv_sec = time(NULL) + 10}};
    assert_int_equal(rfs_catalog_open(&spec, NULL, NULL, &look.catalog, NULL), 0);
    assert_int_equal(rfs_catalog_index(look.catalog, 0, RFS_NO_RANK, &look.index[0], NULL), 0);
    rfs_catalog_keep(look.catalog);
    assert_null(rfs_catalog_kept(look.catalog));
    end(&look);
    assert_null(kept_file(f));
}

/* What the map says is not seen in the files. */
static void test_map_of_files_is_never_kept(void **state)
{
    struct fixture *f = *state;
    static const char header[] =
        "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   ";
    static const char map[] = "{\"weight_map\": {\"w\": \"a.safetensors\"}}";
    unsigned char file[8 + sizeof header - 1 + 4] = {sizeof header - 1};
    struct rfs_catalog *catalog;
    struct rfs_kept *kept = rfs_kept_open(tree_path(&f->tree, "kept"), NULL);

    memcpy(file + 8, header, sizeof header - 1);
    tree_folder(&f->tree, "one");
    tree_file(&f->tree, "one/a.safetensors", file, sizeof file);
    tree_file(&f->tree, "one/model.safetensors.index.json", map, sizeof map - 1);
    const struct rfs_source_spec spec = {.path = tree_path(&f->tree, "one"),
                                         .options = &rfs_options_defaults,
                                         .kept = kept,
                                         .opened = {.tv_sec = time(NULL) + 10}};
    const struct rfs_index *index;
    assert_int_equal(rfs_catalog_open(&spec, NULL, NULL, &catalog, NULL), 0);
    assert_int_equal(rfs_catalog_index(catalog, 0, RFS_NO_RANK, &index, NULL), 0);
    rfs_catalog_keep(catalog);
    assert_null(rfs_catalog_kept(catalog)); /* for sizes, too */
    assert_null(kept_file(f));
    rfs_catalog_close(catalog);
    rfs_kept_close(kept);
}

/* What file system all files seem to be on; 0: theirs. */
static long file_system;

int statfs(const char *path, struct statfs *out)
{
    const int rc = (int)syscall(SYS_statfs, path, out);
    if (rc == 0 && file_system != 0)
        out->f_type = file_system;
    return rc;
}

int statfs64(const char *path, struct statfs64 *out)
{
    return statfs(path, (struct statfs *)out);
}

/* Two images may have equal inodes and times, and files that differ. */
static void test_images_are_never_kept(void **state)
{
    struct fixture *f = *state;
    file_system = SQUASHFS_MAGIC;
    save(f, 10);
    assert_null(kept_file(f));
    file_system = EXT4_SUPER_MAGIC;
    save(f, 10);
    assert_non_null(kept_file(f));
    file_system = 0;
}

static char *key_of(const struct fixture *f, const struct rfs_options *options)
{
    struct rfs_catalog *catalog;
    struct rfs_kept *kept = rfs_kept_open(tree_path(&f->tree, "kept"), NULL);
    const struct rfs_source_spec spec = {
        .path = tree_path(&f->tree, "src"), .options = options, .kept = kept};

    assert_int_equal(rfs_catalog_open(&spec, NULL, NULL, &catalog, NULL), 0);
    char *key = strdup(rfs_catalog_key(catalog));
    rfs_catalog_close(catalog);
    rfs_kept_close(kept);
    return key;
}

/* Whatever is in the texts. */
static void test_options_have_keys_of_their_own(void **state)
{
    struct fixture *f = *state;
    static const char *const pairs[][4] = {
        {NULL},
        {"entry", "-"},
        {"entry", "a", "segmented_skip", "-"},
        {"entry", "a"},
        {"entry", "b", "segmented_skip", "a,-"},
        {"entry", "b,segmented_skip=a,-"},
        {"entry", "-,b", "segmented_skip", "a"},
        {"step", "1"},
        {"epoch", "1"},
        {"segmented", NULL},
        {"file", "*.ckpt"},
    };
    char *keys[sizeof pairs / sizeof *pairs];

    for (unsigned r = 0; r < RANKS; r++) { /* of a save that all of these let through */
        char from[32], to[32];
        snprintf(from, sizeof from, "src/rank_%u/a.ckpt", r);
        snprintf(to, sizeof to, "src/rank_%u/a-1_1.ckpt", r);
        assert_int_equal(rename(tree_path(&f->tree, from), tree_path(&f->tree, to)), 0);
    }
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct rfs_options options;
        assert_int_equal(rfs_options_init(&options), 0);
        for (size_t k = 0; k < 4 && pairs[i][k]; k += 2)
            assert_int_equal(rfs_options_set(&options, 0, pairs[i][k], pairs[i][k + 1], NULL), 0);
        keys[i] = key_of(f, &options);
        rfs_options_free(&options);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(keys[k], keys[i]);
    }
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        free(keys[i]);
}

/* Root that has kept its HOME in another's session leaves nothing there. */
static void test_place_of_another(void **state)
{
    struct fixture *f = *state;
    struct rfs_kept_draft draft;
    struct stat st;

    if (geteuid() != 0)
        skip();
    char *cache = getenv("XDG_CACHE_HOME") ? strdup(getenv("XDG_CACHE_HOME")) : NULL;
    tree_folder(&f->tree, "theirs");
    assert_int_equal(chown(tree_path(&f->tree, "theirs"), 65534, 65534), 0);
    for (unsigned i = 0; i < 2; i++) {
        setenv("XDG_CACHE_HOME", tree_path(&f->tree, i == 0 ? "theirs" : "theirs/.cache"), 1);
        struct rfs_kept *kept = rfs_kept_open(NULL, &f->lines.log);
        assert_non_null(kept);
        assert_false(rfs_kept_begin(kept, RFS_KEPT_INDEX, "key", &draft));
        assert_false(rfs_kept_begin(kept, RFS_KEPT_INDEX, "key", &draft));
        rfs_kept_close(kept);
        assert_int_equal(f->lines.n, i + 1);
        assert_non_null(
            strstr(f->lines.last, ": no index is kept here: other users may write there"));
    }
    /*
     * A link to a folder of root's, in their folder and theirs: nothing is kept or believed behind
     * it.
     */
    tree_folder(&f->tree, "roots");
    assert_int_equal(symlink("../roots", tree_path(&f->tree, "theirs/link")), 0);
    assert_int_equal(lchown(tree_path(&f->tree, "theirs/link"), 65534, 65534), 0);
    setenv("XDG_CACHE_HOME", tree_path(&f->tree, "theirs/link"), 1);
    struct rfs_kept *behind = rfs_kept_open(NULL, &f->lines.log);
    assert_false(rfs_kept_begin(behind, RFS_KEPT_INDEX, "key", &draft));
    rfs_kept_close(behind);
    assert_int_equal(f->lines.n, 3);
    assert_int_equal(stat(tree_path(&f->tree, "roots/reshardfs"), &st), -1);
    assert_int_equal(stat(tree_path(&f->tree, "theirs/reshardfs"), &st), -1);
    assert_int_equal(stat(tree_path(&f->tree, "theirs/.cache"), &st), -1);
    if (cache)
        setenv("XDG_CACHE_HOME", cache, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    free(cache);
}

static void test_places(void **state)
{
    struct fixture *f = *state;
    struct rfs_kept_draft draft;
    struct rfs_bytes table = {0};
    char *cache = getenv("XDG_CACHE_HOME") ? strdup(getenv("XDG_CACHE_HOME")) : NULL;
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_null(rfs_kept_open(NULL, NULL));
    setenv("HOME", "relative", 1);
    assert_null(rfs_kept_open(NULL, NULL));
    setenv("HOME", f->tree.root, 1);
    setenv("XDG_CACHE_HOME", "relative", 1); /* to be ignored, by the specification of XDG */
    for (unsigned i = 0; i < 2; i++) {
        struct rfs_kept *kept = rfs_kept_open(NULL, NULL);
        assert_non_null(kept);
        assert_true(rfs_kept_begin(kept, RFS_KEPT_INDEX, "key", &draft));
        assert_true(rfs_kept_finish(&draft, &table));
        rfs_kept_close(kept);
        const char *where = i == 0 ? ".cache/reshardfs" : "xdg/reshardfs";
        struct stat st;
        assert_int_equal(stat(tree_path(&f->tree, where), &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
        setenv("XDG_CACHE_HOME", tree_path(&f->tree, "xdg"), 1);
    }
    if (cache)
        setenv("XDG_CACHE_HOME", cache, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    if (home)
        setenv("HOME", home, 1);
    free(cache);
    free(home);
}

static void delete_kept(struct fixture *f)
{
    DIR *dir = opendir(tree_path(&f->tree, "kept"));
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
}

static void keep_often(struct fixture *f, uint64_t *kept)
{
    for (unsigned i = 0; i < 30; i++) {
        struct look one;
        look(f, &one, 10);
        *kept += one.count.kept;
        rfs_catalog_keep(one.catalog);
        end(&one);
        if (i % 7 == 3)
            delete_kept(f); /* so that there is something to write */
    }
}

static void test_many_at_once(void **state)
{
    struct fixture *f = *state;
    pid_t children[4];
    /* Processes, as each of them is a mount of its own. */
    for (unsigned i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            uint64_t kept = 0;
            keep_often(f, &kept);
            _exit(kept > 0 && f->lines.n == 0 ? 0 : 1);
        }
        assert_true(children[i] > 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    expect_from_disk(f, RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_is_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ranks_share_as_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_later_than_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_source, setup, teardown),
        cmocka_unit_test_setup_teardown(test_new_ranks_are_added, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_to_be_trusted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cannot_be_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deleted_in_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_as_many_as_may_be, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_never_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_map_of_files_is_never_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_images_are_never_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_options_have_keys_of_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_of_another, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_at_once, setup, teardown),
    };
    return cmocka_run_group_tests_name("source: kept", tests, NULL, NULL);
}
