/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of 20 MB that cost as much as they can: each is taken or refused within five times the
 * seconds, of the processor, that doc/SEMANTICS.md promises, and within the memory that it
 * promises.
 */
#include "base/options.h"
#include "catalog/catalog.h"
#include "catalog/scan/group.h"
#include "formats/dcp/dcp.h"
#include "formats/fsdp/fsdp.h"
#include "formats/gguf/gguf.h"
#include "formats/hfai/hfai.h"
#include "formats/hyper_parallel/hyper_parallel.h"
#include "formats/mindformers/mindformers.h"
#include "formats/shards/shards.h"
#include "formats/zero/zero.h"
#include "layout/strategy.h"
#include "store/mapfile.h"
#ifdef WITH_OBJECTS
#include "store/remote/listing.h"
#include "store/remote/retries.h"
#endif
#include "formats/torch/torch.h"
#include "tests/support/hostile.h"
#include "tests/support/smaps.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1 << 20)
#define KEPT ((size_t)64 * MIB) /* of headers, with a cache of up to 256 MiB */
/* Sanitizers take several times as long: less is enough for what they look for. */
#define INPUT ((size_t)(SMAPS_NO_LOCKS ? 3 : 20) * MIB)
#define SECONDS (SMAPS_NO_LOCKS ? 40 : 10)

/* What is said of one input: 0, or -errno with the error filled. */
typedef int parse_fn(const struct bytes *input, struct rfs_error *err);

/* KiB that /proc/self/status has by that name. */
static long status(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "re");

    if (!file)
        abort();
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), ":%ld", &kib);
    fclose(file);
    return kib;
}

static void forget_peak(void)
{
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "5", 1) != 1 || close(fd))
        abort();
}

struct outcome {
    int rc;
    long kib; /* of memory, at most, beyond what there was before */
    struct rfs_error err;
};

static void parse_here(parse_fn *parse, const struct bytes *input, int fd)
{
    struct outcome out = {0};
    const struct rlimit limit = {SECONDS, SECONDS + 1};

    if (setrlimit(RLIMIT_CPU, &limit))
        abort();
    forget_peak();
    const long before = status("VmRSS");
    out.rc = parse(input, &out.err);
    out.kib = status("VmHWM") - before;
    if (write(fd, &out, sizeof out) != (ssize_t)sizeof out)
        abort();
}

/* In a process of its own, which is stopped when it takes too long: an input of N bytes. */
static void check(const struct hostile *hostile, parse_fn *parse, size_t n, size_t most)
{
    struct bytes input = {0};
    struct outcome out;
    struct rusage usage;
    int fds[2];
    int how;

    hostile_make(hostile, &input, n);
    assert_return_code(pipe(fds), errno);
    const pid_t child = fork();
    assert_return_code(child, errno);
    if (child == 0) {
        parse_here(parse, &input, fds[1]);
        _exit(0);
    }
    close(fds[1]);
    const ssize_t got = read(fds[0], &out, sizeof out);
    close(fds[0]);
    assert_int_equal(wait4(child, &how, 0, &usage), child);
    bytes_free(&input);
    if (got != (ssize_t)sizeof out || how != 0)
        fail_msg("%s: ended with %d after %ld s", hostile->name, how, usage.ru_utime.tv_sec);
    print_message("%s: %ld.%02ld s, %ld MiB: %s\n", hostile->name, usage.ru_utime.tv_sec,
                  usage.ru_utime.tv_usec / 10000, out.kib >> 10, out.rc ? out.err.text : "taken");
    if (out.rc && (!out.err.text[0] || strchr(out.err.text, '\n')))
        fail_msg("%s: %d without one line that says why", hostile->name, out.rc);
    if (!SMAPS_NO_LOCKS && (size_t)out.kib << 10 > most)
        fail_msg("%s: %ld KiB of memory", hostile->name, out.kib);
}

static void check_all(const struct hostile *list, parse_fn *parse, size_t most)
{
    const char *only = getenv("RFS_HOSTILE");

    for (; list->name; list++)
        if (!only || strstr(list->name, only))
            check(list, parse, INPUT, most);
}

static int read_memory(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct bytes *input = ctx;

    if (offset > input->n || n > input->n - offset)
        abort();
    memcpy(buf, input->data + offset, n);
    return 0;
}

static int parse_torch(const struct bytes *input, struct rfs_error *err)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_index *index;
    size_t left_out;
    struct rfs_torch torch;
    void *const ctx = (void *)(uintptr_t)input;

    int rc = rfs_torch_walk(RFS_BYTES_SOURCE(read_memory, ctx, input->n, "x.pt"), NULL, &tables,
                            &index, &left_out, NULL, err);
    if (rc == 0 &&
        rfs_torch_open(RFS_BYTES_SOURCE(read_memory, ctx, input->n, "x.pt"), 0, &torch, err) == 0) {
        rc = rfs_torch_check(&torch, "x.pt", err);
        rfs_torch_free(&torch);
    }
    return rc;
}

static void test_torch(void **state)
{
    (void)state;
    check_all(hostile_torch, parse_torch, 12 * INPUT);
}

static int parse_within(const struct bytes *input, uint64_t index_most, struct rfs_error *err)
{
    char *root = tree_new();
    struct rfs_catalog *catalog;
    struct rfs_hfai *hfai;
    struct rfs_hfai_division *division;
    struct rfs_document document;
    struct rfs_hfai_list list;

    tree_write(root, "PART_000.pt", input->data, input->n);
    tree_write(root, "PART_001.pt", input->data, input->n);
    const struct rfs_source_spec spec = {
        .path = root, .options = &rfs_options_defaults, .index_most = index_most};
    int rc = rfs_catalog_open(&spec, NULL, NULL, &catalog, err);
    if (rc == 0) {
        rc = rfs_catalog_open_parts(catalog, false, &hfai, err);
        if (rc == 0)
            rc = rfs_hfai_divide(hfai, 3, 2, &division, err);
        for (uint32_t p = 0; rc == 0 && p < 3; p++) {
            rc = rfs_hfai_part(division, p, &document, err);
            rfs_document_free(&document);
        }
        if (rc == 0) {
            struct rfs_catalog *listed;
            rc = rfs_catalog_list_parts(catalog, hfai, (struct rfs_hfai_listing){.rows = division},
                                        &list, &listed, err);
            rfs_catalog_close(listed);
            rfs_hfai_list_free(&list);
        }
    }
    tree_remove(root);
    return rc;
}

static int parse_parts(const struct bytes *input, struct rfs_error *err)
{
    return parse_within(input, 0, err);
}

static int parse_parts_kept(const struct bytes *input, struct rfs_error *err)
{
    return parse_within(input, KEPT, err);
}

/* How long they take, if they may take any memory. */
static void test_parts(void **state)
{
    (void)state;
    check_all(hostile_parts, parse_parts, 100 * INPUT);
}

/* Small ones are not refused for their pickles alone. */
static void test_parts_kept(void **state)
{
    (void)state;
    for (size_t n = INPUT; n > INPUT / 20; n /= 4)
        for (const struct hostile *hostile = hostile_parts; hostile->name; hostile++)
            check(hostile, parse_parts_kept, n, KEPT + 64 * MIB);
}

static int parse_dcp(const struct bytes *input, struct rfs_error *err)
{
    static const struct rfs_chunks_format format = {.name = "test"};
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);

    if (!files || rfs_files_add(files, "/c/.metadata") != 0)
        abort();
    struct rfs_chunks *chunks = rfs_chunks_new(
        &format, &(struct rfs_chunks_source){.folder = "/c", .files = files, .tables = &tables});
    return rfs_dcp_describe(
        RFS_BYTES_SOURCE(read_memory, (void *)(uintptr_t)input, input->n, "/c/.metadata"), chunks,
        err);
}

static int parse_map(const struct bytes *input, struct rfs_error *err)
{
    struct rfs_mapfile map;
    char *data = malloc(input->n + 1);

    if (!data)
        abort();
    memcpy(data, input->data, input->n);
    data[input->n] = '\0';
    return rfs_mapfile_parse("map.json", data, input->n,
                             (struct rfs_mapfile_form){"weight_map", false}, &map, err);
}

static int parse_json(const struct bytes *input, struct rfs_error *err)
{
    struct rfs_strategy *strategy;
    return rfs_strategy_parse("s.json", input->data, input->n, &strategy, err);
}

static int parse_protobuf(const struct bytes *input, struct rfs_error *err)
{
    struct rfs_strategy *strategy;
    return rfs_strategy_parse("s.ckpt", input->data, input->n, &strategy, err);
}

static int parse_group(const struct bytes *input, struct rfs_error *err)
{
    struct rfs_group group;
    return rfs_scan_group_parse("g.pb", input->data, input->n, &group, err);
}

static void test_maps(void **state)
{
    (void)state;
    check_all(hostile_maps, parse_map, 8 * INPUT);
}

static void test_strategies(void **state)
{
    (void)state;
    check_all(hostile_json, parse_json, 3 * INPUT);
    check_all(hostile_protobuf, parse_protobuf, 17 * MIB);
}

static void test_groups(void **state)
{
    (void)state;
    check_all(hostile_groups, parse_group, 64 * MIB / 4);
}

/* As the file NAME, in a folder with the file "a"; and the layouts, of chunks that are good. */
static int parse_chunks(const struct bytes *input, const char *name, rfs_chunks_open_fn *open,
                        struct rfs_error *err)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_chunks *chunks = NULL;
    struct rfs_mindformers_strategy layouts;
    char *root = tree_new();

    tree_write(root, "a", "", 0);
    tree_write(root, name, input->data, input->n);
    if (!files || rfs_files_add(files, tree_path(root, name)) != 0)
        abort();
    int rc = open(&(struct rfs_chunks_source){.folder = root, .files = files, .tables = &tables},
                  &chunks, err);
    if (rc == 0 && rfs_mindformers_owns(chunks)) {
        rc = rfs_mindformers_read_strategy(chunks, &layouts, err);
        rfs_mindformers_strategy_free(&layouts);
    }
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    tree_remove(root);
    return rc;
}

static int parse_metadata(const struct bytes *input, struct rfs_error *err)
{
    return parse_chunks(input, "metadata.json", rfs_mindformers_open, err);
}

static int parse_fsdp(const struct bytes *input, struct rfs_error *err)
{
    return parse_chunks(input, "model_world_size_1_rank_0.pt", rfs_fsdp_open, err);
}

static int parse_shards(const struct bytes *input, struct rfs_error *err)
{
    return parse_chunks(input, "shard-00001-model-00001-of-00001.safetensors", rfs_shards_open,
                        err);
}

/* Each of N files is the input, or, from FULL on, empty. */
static int parse_some(const struct bytes *input, const char *const *names, unsigned n,
                      unsigned full, rfs_chunks_open_fn *open_chunks, struct rfs_error *err)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_chunks *chunks = NULL;
    char *root = tree_new();

    for (unsigned i = 0; i < n; i++) {
        tree_write(root, names[i], input->data, i < full ? input->n : 0);
        if (!files || rfs_files_add(files, tree_path(root, names[i])) == UINT32_MAX)
            abort();
    }
    const int rc =
        open_chunks(&(struct rfs_chunks_source){.folder = root, .files = files, .tables = &tables},
                    &chunks, err);
    rfs_chunks_free(chunks);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    tree_remove(root);
    return rc;
}

static int parse_files(const struct bytes *input, const char *const *names, unsigned n,
                       rfs_chunks_open_fn *open_chunks, struct rfs_error *err)
{
    return parse_some(input, names, n, n, open_chunks, err);
}

static int parse_zero_ranks(const struct bytes *input, struct rfs_error *err)
{
    char texts[HOSTILE_ZERO_RANKS + 1][64] = {"mp_rank_00_model_states.pt"};
    const char *names[HOSTILE_ZERO_RANKS + 1] = {texts[0]};

    for (unsigned i = 1; i <= HOSTILE_ZERO_RANKS; i++) {
        snprintf(texts[i], sizeof texts[i], "zero_pp_rank_%u_mp_rank_00_optim_states.pt", i - 1);
        names[i] = texts[i];
    }
    return parse_some(input, names, HOSTILE_ZERO_RANKS + 1, 2, rfs_zero_open, err);
}

static int parse_zero(const struct bytes *input, struct rfs_error *err)
{
    static const char *const names[] = {"mp_rank_00_model_states.pt",
                                        "zero_pp_rank_0_mp_rank_00_optim_states.pt"};

    return parse_files(input, names, 2, rfs_zero_open, err);
}

static int parse_universal(const struct bytes *input, struct rfs_error *err)
{
    static const char *const names[] = {"mp_rank_00_model_states.pt", "zero/0/exp_avg.pt",
                                        "zero/0/fp32.pt"};

    return parse_files(input, names, 3, rfs_zero_open, err);
}

static int parse_hyper(const struct bytes *input, struct rfs_error *err)
{
    return parse_chunks(input, ".metadata", rfs_hyper_parallel_open, err);
}

/* Either rank's metadata is the input. */
static int parse_hyper_ranks(const struct bytes *input, struct rfs_error *err)
{
    static const char *const names[] = {"0.metadata", "1.metadata"};

    return parse_files(input, names, 2, rfs_hyper_parallel_open, err);
}

static int parse_dcp_ranks(const struct bytes *input, struct rfs_error *err)
{
    static const char *const names[] = {"__0.metadata", "__1.metadata"};

    return parse_files(input, names, 2, rfs_dcp_open, err);
}

static void test_dcp(void **state)
{
    (void)state;
    check_all(hostile_dcp, parse_dcp_ranks, 24 * INPUT);
    check_all(hostile_dcp, parse_dcp, 12 * INPUT);
    check_all(hostile_hyper, parse_hyper, 12 * INPUT);
    check_all(hostile_hyper, parse_hyper_ranks, 24 * INPUT);
}

static void test_metadata(void **state)
{
    (void)state;
    check_all(hostile_metadata, parse_metadata, 3 * INPUT);
}

static void test_pieces(void **state)
{
    (void)state;
    check_all(hostile_fsdp, parse_fsdp, 20 * INPUT);
    check_all(hostile_shards, parse_shards, 12 * INPUT);
    check_all(hostile_zero, parse_zero, 20 * INPUT);
    check_all(hostile_zero, parse_universal, 20 * INPUT);
    check_all(hostile_zero_ranks, parse_zero_ranks, 20 * INPUT);
}

static int read_bytes(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct bytes *input = ctx;

    memcpy(buf, input->data + offset, n);
    return 0;
}

static int parse_gguf(const struct bytes *input, struct rfs_error *err)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_index *index;
    struct bytes copy = *input;
    size_t count;
    const int rc = rfs_gguf_walk(RFS_BYTES_SOURCE(read_bytes, &copy, copy.n, "m.gguf"), &tables,
                                 &index, &count, err);

    rfs_index_free(index);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
    return rc;
}

static void test_gguf(void **state)
{
    (void)state;
    check_all(hostile_gguf, parse_gguf, 8 * INPUT);
}

#ifdef WITH_OBJECTS
static int refused(struct rfs_remote_listing *listing, int rc, struct rfs_error *err)
{
    rfs_remote_listing_free(listing);
    return rc ? rfs_fail(err, rc, RFS_NOWHERE, NULL, "%s", strerror(-rc)) : 0;
}

static int parse_page(const struct bytes *input, struct rfs_error *err)
{
    struct rfs_remote_listing listing = {0};
    char next[64];
    const char *text = (const char *)input->data;

    return refused(&listing, rfs_listing_page(text, input->n, "run/", &listing, next, sizeof next),
                   err);
}

static int parse_index(const struct bytes *input, bool json, struct rfs_error *err)
{
    struct rfs_remote_listing listing = {0};

    return refused(&listing, rfs_listing_index((const char *)input->data, input->n, json, &listing),
                   err);
}

static int parse_links(const struct bytes *input, struct rfs_error *err)
{
    return parse_index(input, false, err);
}

static int parse_list(const struct bytes *input, struct rfs_error *err)
{
    return parse_index(input, true, err);
}

static void test_lists_of_objects(void **state)
{
    (void)state;
    check_all(hostile_pages, parse_page, RFS_RETRIES_MEMORY);
    check_all(hostile_links, parse_links, RFS_RETRIES_MEMORY);
    check_all(hostile_lists, parse_list, RFS_RETRIES_MEMORY);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_kept),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_strategies),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_dcp),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_gguf),
#ifdef WITH_OBJECTS
        cmocka_unit_test(test_lists_of_objects),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
