/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests of exports: written and read back, damaged in every way, and several as one; and the
 * folder of one.
 */
#include "tests/support/tree.h"
#include "tool/common/manifest.h"
#include "tool/export/dest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- round trips ----------------------------------------------------------------------------- */

static void put(struct rfs_manifest *manifest, const char *path, uint64_t number, uint64_t written)
{
    const struct rfs_manifest_entry entry = {
        .size = number,
        .hash = {number, ~number},
        .made_of = {number * 3, number << 40},
        .written_ms = written,
    };
    assert_int_equal(rfs_manifest_put(manifest, path, &entry), 0);
}

static void expect(const struct rfs_manifest *manifest, const char *path, uint64_t number)
{
    const struct rfs_manifest_entry *entry = rfs_manifest_find(manifest, path);
    assert_non_null(entry);
    assert_int_equal(entry->size, number);
    assert_true(rfs_hash_equal(entry->hash, (struct rfs_hash){number, ~number}));
    assert_true(rfs_hash_equal(entry->made_of, (struct rfs_hash){number * 3, number << 40}));
}

static void fill(struct rfs_manifest *manifest)
{
    assert_int_equal(rfs_manifest_init(manifest, RFS_MANIFEST_FILES), 0);
    manifest->source = strdup("/data/with \"quotes\" and \\ and \xff");
    manifest->options = strdup("src_strategy=a\\,b");
    manifest->task = 1;
    manifest->tasks = 3;
    manifest->total_files = 5;
    put(manifest, "rank_0/checkpoint_0.ckpt", UINT64_C(0x8000000000000001), 5);
    put(manifest, "rank_1/\xc3\xa4 \\ \"1.ckpt", 7, 6);
}

static void manifests_are_read_as_they_were_written(void **state)
{
    struct rfs_manifest written, read;
    char *text;
    size_t size;
    (void)state;
    fill(&written);
    assert_int_equal(rfs_manifest_text(&written, NULL, &text, &size), 0);
    assert_int_equal(rfs_manifest_init(&read, RFS_MANIFEST_FILES), 0);
    struct rfs_error err = {0};
    if (rfs_manifest_parse("m", text, size, &read, &err))
        fail_msg("%s", err.text);
    assert_int_equal(read.entries.n, 2);
    expect(&read, "rank_0/checkpoint_0.ckpt", UINT64_C(0x8000000000000001));
    expect(&read, "rank_1/\xc3\xa4 \\ \"1.ckpt", 7);
    assert_null(rfs_manifest_find(&read, "rank_2/checkpoint_2.ckpt"));
    assert_int_equal(read.task, 1);
    assert_int_equal(read.tasks, 3);
    assert_int_equal(read.total_files, 5);
    assert_string_equal(read.source, "/data/with \"quotes\" and \\ and \\xff");
    assert_string_equal(read.options, "src_strategy=a\\,b");
    free(text);
    rfs_manifest_free(&written);
    rfs_manifest_free(&read);
}

static void the_later_entry_of_a_file_counts(void **state)
{
    struct rfs_manifest parts[2], read;
    (void)state;
    for (unsigned first = 0; first < 2; first++) {
        assert_int_equal(rfs_manifest_init(&read, RFS_MANIFEST_FILES), 0);
        for (unsigned i = 0; i < 2; i++) {
            struct rfs_manifest *part = &parts[i];
            const unsigned later = i == first;
            char *text;
            size_t size;
            assert_int_equal(rfs_manifest_init(part, RFS_MANIFEST_FILES), 0);
            put(part, "a", later ? 9 : 8, later ? 1000 : 999);
            put(part, i == 0 ? "b" : "c", 1, 1);
            assert_int_equal(rfs_manifest_text(part, NULL, &text, &size), 0);
            assert_int_equal(rfs_manifest_parse("m", text, size, &read, NULL), 0);
            free(text);
            rfs_manifest_free(part);
        }
        assert_int_equal(read.entries.n, 3);
        expect(&read, "a", 9);
        expect(&read, "b", 1);
        expect(&read, "c", 1);
        rfs_manifest_free(&read);
    }
}

static void an_entry_that_is_put_again_is_replaced(void **state)
{
    struct rfs_manifest manifest;
    (void)state;
    assert_int_equal(rfs_manifest_init(&manifest, RFS_MANIFEST_FILES), 0);
    for (uint64_t i = 0; i < 1000; i++) {
        char path[32];
        snprintf(path, sizeof path, "rank_%" PRIu64, i % 300);
        put(&manifest, path, i, i);
    }
    assert_int_equal(manifest.entries.n, 300);
    expect(&manifest, "rank_99", 999);
    expect(&manifest, "rank_100", 700);
    rfs_manifest_free(&manifest);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static int parse_text(const char *text, size_t size, struct rfs_error *err)
{
    struct rfs_manifest manifest;
    char *copy = malloc(size + 1); /* so that a sanitizer sees who reads too far */

    assert_non_null(copy);
    memcpy(copy, text, size);
    copy[size] = '\0';
    assert_int_equal(rfs_manifest_init(&manifest, RFS_MANIFEST_FILES), 0);
    *err = (struct rfs_error){0};
    const int rc = rfs_manifest_parse("m", copy, size, &manifest, err);
    rfs_manifest_free(&manifest);
    free(copy);
    return rc;
}

static void what_is_no_manifest_is_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "it ends too early"},
        {"[]", "an object is expected"},
        {"{}", "not a manifest of reshard export"},
        {"{\"format\":\"something else\"}", "not a manifest of reshard export"},
        {"{\"format\":\"reshard-manifest\",\"version\":2}", "another version"},
        {"{\"format\":\"reshard-manifest\"} x", "something follows"},
        {"{\"format\":\"reshard-manifest\",\"files\":{}}", "an array is expected"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{}]}", "a file has no path"},
        {"{\"format\":\"reshard-manifest\",\"tasks\":4294967296}", "a number is too large"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"path\":\"/etc/passwd\"}]}", "leads out"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"path\":\"a/../../b\"}]}", "leads out"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"path\":\"..\"}]}", "leads out"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"path\":\"a//b\"}]}", "leads out"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"path\":\"\"}]}", "leads out"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"path\":\"a\\nb\"}]}", "no export writes"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"path\":\"a\x7f\"}]}", "no export writes"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"xxh3_128\":\"12\"}]}", "hexadecimal"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"made_of\":"
         "\"0123456789ABCDEF0123456789ABCDEF\"}]}",
         "hexadecimal"},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"size\":-1}]}", ""},
        {"{\"format\":\"reshard-manifest\",\"files\":[{\"size\":1.5}]}", ""},
    };
    struct rfs_error err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (parse_text(bad[i].text, strlen(bad[i].text), &err) != -EINVAL ||
            !strstr(err.text, bad[i].why) || strncmp(err.text, "m: offset ", 10) != 0)
            fail_msg("%s: %s", bad[i].text, err.text);
    }
}

static void members_that_are_not_known_are_passed_over(void **state)
{
    static const char text[] =
        "{\"format\":\"reshard-manifest\",\"new\":{\"a\":[1,{}]},\"files\":[]}";
    struct rfs_error err;
    (void)state;
    assert_int_equal(parse_text(text, sizeof text - 1, &err), 0);
}

/*
 * Cut anywhere it is refused; with a bit changed anywhere it is refused or says something else, and
 * no more.
 */
static void a_damaged_manifest_does_no_harm(void **state)
{
    struct rfs_manifest manifest;
    struct rfs_error err;
    char *text;
    size_t size;
    (void)state;
    fill(&manifest);
    assert_int_equal(rfs_manifest_text(&manifest, NULL, &text, &size), 0);
    for (size_t n = 0; n + 1 < size; n++) /* the last byte is the end of a line */
        if (parse_text(text, n, &err) != -EINVAL)
            fail_msg("cut at %zu it was taken", n);
    for (size_t i = 0; i < size * 8; i++) {
        text[i / 8] = (char)(text[i / 8] ^ (1 << i % 8));
        const int rc = parse_text(text, size, &err);
        assert_true(rc == 0 || rc == -EINVAL);
        text[i / 8] = (char)(text[i / 8] ^ (1 << i % 8));
    }
    free(text);
    rfs_manifest_free(&manifest);
}

static void expect_name(uint32_t task, uint32_t tasks, const char *want)
{
    struct rfs_manifest manifest;
    char *name;
    char *text;
    size_t size;

    assert_int_equal(rfs_manifest_init(&manifest, RFS_MANIFEST_FILES), 0);
    manifest.task = task;
    manifest.tasks = tasks;
    assert_int_equal(rfs_manifest_text(&manifest, &name, &text, &size), 0);
    assert_string_equal(name, want);
    free(name);
    free(text);
    rfs_manifest_free(&manifest);
}

static void names_of_manifests(void **state)
{
    static const char *const good[] = {"reshard-manifest.json", "reshard-manifest.0.json",
                                       "reshard-manifest.1023.json"};
    static const char *const bad[] = {"reshard-manifest",
                                      "reshard-manifest.",
                                      "reshard-manifest.x.json",
                                      "reshard-manifest.1.json.part",
                                      ".reshard-manifest.json.part",
                                      "manifest.json",
                                      "reshard-manifest..json"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(rfs_manifest_is_name(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(rfs_manifest_is_name(bad[i]));
    expect_name(0, 1, good[0]);
    expect_name(1023, 1024, good[2]);
    assert_true(rfs_manifest_takes("rank_0/\xc3\xa4.ckpt"));
    assert_false(rfs_manifest_takes("rank_0/\xff.ckpt"));
    assert_false(rfs_manifest_takes("a\nb"));
}

/* ---- the folder ------------------------------------------------------------------------------ */

struct folder {
    char *root;
    struct rfs_dest dest;
};

static int set_up(void **state)
{
    static struct folder folder;
    struct rfs_error err = {0};
    folder.root = tree_new();
    const int rc = rfs_dest_find(tree_path(folder.root, "out"), NULL, &folder.dest, &err);
    *state = &folder;
    return rc ? rc : folder.dest.kind->make(&folder.dest, &err);
}

static int tear_down(void **state)
{
    struct folder *folder = *state;
    rfs_dest_close(&folder->dest);
    tree_remove(folder->root);
    return 0;
}

static int try_begin(struct folder *f, const char *path, struct rfs_dest_partial *partial,
                     struct rfs_error *err)
{
    *partial = (struct rfs_dest_partial){.dest = &f->dest, .path = path, .mode = 0400};
    return rfs_dest_begin(partial, err);
}

static void begin(struct folder *f, const char *path, struct rfs_dest_partial *partial)
{
    struct rfs_error err = {0};
    if (try_begin(f, path, partial, &err))
        fail_msg("%s", err.text);
}

static int look(const struct folder *f, const char *path, struct stat *st)
{
    return f->dest.kind->stat(&f->dest, path, st);
}

static void sweep(const struct folder *f, const char *path)
{
    assert_int_equal(f->dest.kind->sweep(&f->dest, &path, 1, NULL), 0);
}

static uint64_t partial_bytes(const struct folder *f, const char *path)
{
    return f->dest.kind->partial_bytes(&f->dest, path);
}

static bool is_there(const struct folder *f, const char *path)
{
    struct stat st;
    return look(f, path, &st) == 0;
}

static void files_appear_when_they_are_complete(void **state)
{
    struct folder *f = *state;
    struct rfs_dest_partial partial;
    struct stat st;
    for (int sync = 0; sync < 2; sync++) {
        const char *path = sync ? "1_2/rank_3/c.ckpt" : "rank_3/c.ckpt";
        begin(f, path, &partial);
        partial.sync = sync;
        assert_int_equal(
            f->dest.kind->write(&partial, &(struct iovec){(char[]){"-abc"}, 4}, 1, 1, 4, 0), 0);
        assert_int_equal(pwrite(partial.fd, "x", 1, 0), 1);
        assert_false(is_there(f, path));
        assert_int_equal(rfs_dest_finish(&partial, NULL), 0);
        assert_int_equal(look(f, path, &st), 0);
        assert_int_equal(st.st_size, 4);
        assert_int_equal(st.st_mode & 0777, 0400);
        begin(f, path, &partial);
        rfs_dest_drop(&partial);
        rfs_dest_drop(&partial);
        assert_true(is_there(f, path));
    }
    assert_false(is_there(f, "rank_3/.c.ckpt.part"));
}

static void what_is_there_is_not_overwritten_unasked(void **state)
{
    struct folder *f = *state;
    struct rfs_dest_partial partial;
    struct rfs_error err = {0};
    struct stat st;
    tree_write(f->root, "out/a", "old", 3);
    begin(f, "a", &partial);
    assert_int_equal(rfs_dest_finish(&partial, &err), -EEXIST);
    assert_int_equal(look(f, "a", &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_false(is_there(f, ".a.part"));
    begin(f, "a", &partial);
    partial.replace = true;
    assert_int_equal(rfs_dest_finish(&partial, &err), 0);
    assert_int_equal(look(f, "a", &st), 0);
    assert_int_equal(st.st_size, 0);
}

static void a_temporary_that_somebody_writes_is_left_alone(void **state)
{
    struct folder *f = *state;
    struct rfs_dest_partial partial, other;
    struct rfs_error err = {0};
    begin(f, "r/a", &partial);
    assert_int_equal(try_begin(f, "r/a", &other, &err), -EBUSY);
    assert_non_null(strstr(err.text, "another export"));
    sweep(f, "r/a");
    assert_true(is_there(f, "r/.a.part"));
    rfs_dest_drop(&partial);
    /* One that was killed has no lock. */
    tree_write(f->root, "out/r/.a.part", "half", 4);
    assert_true(partial_bytes(f, "r/a") > 0);
    begin(f, "r/a", &partial);
    assert_int_equal(rfs_dest_finish(&partial, &err), 0);
    tree_write(f->root, "out/r/.a.part", "half", 4);
    sweep(f, "r/a");
    assert_false(is_there(f, "r/.a.part"));
    assert_int_equal(partial_bytes(f, "r/a"), 0);
}

static void links_are_not_followed(void **state)
{
    struct folder *f = *state;
    struct rfs_dest_partial partial;
    struct rfs_dest_file file;
    struct stat st;
    tree_write(f->root, "elsewhere/a", "abc", 3);
    assert_int_equal(symlink("../elsewhere", tree_path(f->root, "out/rank_0")), 0);
    assert_int_equal(symlink("../elsewhere/a", tree_path(f->root, "out/b")), 0);
    assert_true(try_begin(f, "rank_0/a", &partial, NULL) < 0);
    assert_true(f->dest.kind->open(&f->dest, "rank_0/a", &file) < 0);
    assert_true(f->dest.kind->open(&f->dest, "b", &file) < 0);
    assert_int_equal(look(f, "b", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

static int find_at(const struct folder *f, const char *path, const char *source)
{
    struct rfs_dest dest;
    char *from = source ? strdup(tree_path(f->root, source)) : NULL;
    const int rc = rfs_dest_find(tree_path(f->root, path), from, &dest, NULL);
    rfs_dest_close(&dest);
    free(from);
    return rc;
}

static void source_and_folder_do_not_overlap(void **state)
{
    struct folder *f = *state;
    tree_write(f->root, "src/rank_0/a", "", 0);
    assert_int_equal(find_at(f, "src", "src"), -ELOOP);
    assert_int_equal(find_at(f, "src/", "src"), -ELOOP);
    assert_int_equal(find_at(f, "src/new", "src"), -ELOOP);
    assert_int_equal(find_at(f, "src/rank_0", "src"), -ELOOP);
    assert_int_equal(find_at(f, ".", "src"), -ELOOP);
    assert_int_equal(find_at(f, "src2", "src"), 0);
    assert_int_equal(find_at(f, "out/new/", "src"), 0);
    assert_int_equal(find_at(f, "no/new", "src"), -ENOENT);
    assert_int_equal(find_at(f, "src/rank_0/a", NULL), -ENOTDIR);
    assert_int_equal(symlink("src", tree_path(f->root, "link")), 0);
    assert_int_equal(find_at(f, "link", "src"), -ELOOP);
    assert_int_equal(find_at(f, "link/x", "src"), -ELOOP);
}

static void too_little_room_is_told(void **state)
{
    struct folder *f = *state;
    struct rfs_error err = {0};
    assert_int_equal(f->dest.kind->room(&f->dest, 0, &err), 0);
    assert_int_equal(f->dest.kind->room(&f->dest, UINT64_C(1) << 62, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "4.0 EiB are to be written, and "));
}

/*
 * Whether or not the file system can share blocks: what is said to be there is there, and nothing
 * else is.
 */
static void what_is_taken_over_is_the_same(void **state)
{
    struct folder *f = *state;
    const size_t n = 5 << 20;
    unsigned char *data = malloc(n);
    unsigned char *got = malloc(n);
    assert_true(data && got);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    tree_write(f->root, "source", data, n);
    const int source = open(tree_path(f->root, "source"), O_RDONLY);
    assert_true(source >= 0);
    for (int way = RFS_DEST_COPY_NOT; way <= RFS_DEST_COPY_SERVER; way++) {
        for (uint64_t shift = 0; shift < 3; shift++) {
            struct rfs_dest_copier copier;
            const struct rfs_origins_run plain = {
                .begin = 8192 + shift, .end = n, .source = 4096 + shift / 2};
            uint64_t begin = 0;
            uint64_t end = 0;
            const int fd = open(tree_path(f->root, "copy"), O_RDWR | O_CREAT | O_TRUNC, 0600);
            assert_true(fd >= 0);
            rfs_dest_copier_init(&copier, fd);
            atomic_store(&copier.way, way);
            rfs_dest_copier_take(&copier, source, &plain, fd, &begin, &end);
            assert_true(begin >= plain.begin && begin <= end && end <= plain.end);
            assert_true(way == RFS_DEST_COPY_SERVER ? end == plain.end
                                                    : way != RFS_DEST_COPY_NOT || begin == end);
            assert_int_equal(pread(fd, got, end - begin, (off_t)begin), end - begin);
            assert_memory_equal(got, data + plain.source + (begin - plain.begin), end - begin);
            assert_int_equal(copier.bytes_taken, end - begin);
            close(fd);
        }
    }
    close(source);
    free(data);
    free(got);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifests_are_read_as_they_were_written),
        cmocka_unit_test(the_later_entry_of_a_file_counts),
        cmocka_unit_test(an_entry_that_is_put_again_is_replaced),
        cmocka_unit_test(what_is_no_manifest_is_refused),
        cmocka_unit_test(members_that_are_not_known_are_passed_over),
        cmocka_unit_test(a_damaged_manifest_does_no_harm),
        cmocka_unit_test(names_of_manifests),
        IN_FOLDER(files_appear_when_they_are_complete),
        IN_FOLDER(what_is_there_is_not_overwritten_unasked),
        IN_FOLDER(a_temporary_that_somebody_writes_is_left_alone),
        IN_FOLDER(links_are_not_followed),
        IN_FOLDER(source_and_folder_do_not_overlap),
        IN_FOLDER(too_little_room_is_told),
        IN_FOLDER(what_is_taken_over_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
