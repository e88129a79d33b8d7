/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of sizes that an earlier view has kept, with a right checksum and the key of the view
 * at hand. An even first byte: the input is the table. An odd one: it is changes to the true table,
 * which tells inodes and times that no input can guess: each a place (u16, from the end) and a
 * byte, and the second byte how many bytes are cut off. Whatever the table says, each file is read
 * as it is, or refused because its size was another.
 */
#include "catalog/kept.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/forge.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/walk.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

FUZZ_GOALS("a file as it is", "a file whose size was another");

enum { RANKS = 2, FILE_BYTES_MOST = 4096 };

static char kept[NAME_MAX + 8]; /* the file, below the fuzz folder */
static uint8_t *whole;          /* the file as the first view has written it */
static size_t whole_bytes,
    start_bytes; /* and what precedes the table's content: header, body and key */
static struct {
    uint8_t bytes[FILE_BYTES_MOST];
    ssize_t n;
} want[RANKS];

static void write_source(void)
{
    static const char strategy[] =
        "{\"current_stage\":1,\"parallel_strategy_item\":{},\"parallel_layout_item\":{\"w\":{"
        "\"dev_matrix\":[2],\"field\":0,\"opt_weight_shard_size\":0,\"opt_weight_shard_step\":0,"
        "\"tensor_map\":[0,-1],\"tensor_shape\":[4,8]}}}";

    fuzz_file("s.json", strategy, sizeof strategy - 1);
    for (unsigned rank = 0; rank < RANKS; rank++) {
        struct forged file = {0};
        char path[64];
        uint8_t content[16];
        memset(content, (int)rank + 1, sizeof content);
        const struct forge_tensor tensor = {"w", "Int8", 2, {2, 8}, content, sizeof content};
        forge_ckpt(&file, &tensor);
        snprintf(path, sizeof path, "src/rank_%u/w.ckpt", rank);
        fuzz_file(path, file.data, file.n);
        free(file.data);
    }
}

static reshard_view *open_view(void)
{
    char options[PATH_MAX];

    snprintf(options, sizeof options,
             "src_strategy=%s/s.json,dst_strategy=%s/s.json,index_cache=%s/kept", fuzz_folder(),
             fuzz_folder(), fuzz_folder());
    reshard_view *view = walk_open("src", options);
    REQUIRE(view);
    return view;
}

static uint64_t file_of(reshard_view *view, unsigned rank)
{
    char name[32];
    uint64_t folder, file;

    snprintf(name, sizeof name, "rank_%u", rank);
    REQUIRE(reshard_lookup(view, RESHARD_ROOT, name, &folder) == 0);
    snprintf(name, sizeof name, "checkpoint_%u.ckpt", rank);
    REQUIRE(reshard_lookup(view, folder, name, &file) == 0);
    return file;
}

static void take_kept(void)
{
    char path[PATH_MAX];
    uint64_t table;
    uint32_t key;
    struct dirent *entry;

    snprintf(path, sizeof path, "%s/kept", fuzz_folder());
    DIR *folder = opendir(path);
    REQUIRE(folder);
    while ((entry = readdir(folder)))
        if (strstr(entry->d_name, "sizes"))
            snprintf(kept, sizeof kept, "kept/%s", entry->d_name);
    closedir(folder);
    REQUIRE(kept[0] != '\0');
    REQUIRE(snprintf(path, sizeof path, "%s/%s", fuzz_folder(), kept) < (int)sizeof path);
    whole = malloc(1 << 16);
    FILE *file = fopen(path, "rb");
    REQUIRE(whole && file);
    whole_bytes = fread(whole, 1, 1 << 16, file);
    fclose(file);
    memcpy(&table, whole + 16, sizeof table);
    memcpy(&key, whole + table, sizeof key);
    start_bytes = (size_t)table + sizeof key + key;
    REQUIRE(whole_bytes > start_bytes);
}

/* Sizes are kept of sources that were settled before the view was opened. */
void fuzz_prepare(void)
{
    write_source();
    sleep(3);
    reshard_view *view = open_view();
    for (unsigned rank = 0; rank < RANKS; rank++) {
        reshard_stat st = {.struct_size = sizeof st};
        const uint64_t id = file_of(view, rank);
        REQUIRE(reshard_getattr(view, id, &st, NULL) == 0);
        want[rank].n = reshard_pread(view, id, want[rank].bytes, sizeof want[rank].bytes, 0);
        REQUIRE(want[rank].n > 0 && (uint64_t)want[rank].n == st.size);
    }
    reshard_close(view);
    take_kept();
}

static void change(struct forged *file, const uint8_t *data, size_t size)
{
    const size_t n = file->n - start_bytes;

    for (size_t i = 1; size - i >= 3; i += 3)
        file->data[file->n - 1 - (data[i] | (size_t)data[i + 1] << 8) % n] = data[i + 2];
    file->n -= data[0] % n;
}

static void write_kept(const uint8_t *data, size_t size)
{
    struct forged file = {0};
    uint64_t table;

    const bool changes = size > 1 && data[0] % 2;
    forge_add(&file, whole, changes ? whole_bytes : start_bytes);
    if (changes)
        change(&file, data + 1, size - 1);
    else if (size > 0)
        forge_add(&file, data + 1, size - 1);
    memcpy(&table, file.data + 16, sizeof table);
    const uint64_t bytes = file.n - table;
    const uint64_t hash = XXH3_64bits(file.data + table, (size_t)bytes);
    memcpy(file.data + 24, &bytes, sizeof bytes);
    memcpy(file.data + 32, &hash, sizeof hash);
    fuzz_file(kept, file.data, file.n);
    free(file.data);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    write_kept(data, size);
    reshard_view *view = open_view();
    for (unsigned rank = 0; rank < RANKS; rank++) {
        reshard_stat st = {.struct_size = sizeof st};
        uint8_t got[FILE_BYTES_MOST];
        const uint64_t id = file_of(view, rank);
        const int rc = reshard_getattr(view, id, &st, NULL);
        const ssize_t n = reshard_pread(view, id, got, sizeof got, 0);
        REQUIRE(n == want[rank].n || n < 0);
        REQUIRE(n < 0 || memcmp(got, want[rank].bytes, (size_t)n) == 0);
        REQUIRE(n < 0 || rc < 0 || st.size == (uint64_t)n);
        fuzz_reached(n < 0);
    }
    reshard_close(view);
}
