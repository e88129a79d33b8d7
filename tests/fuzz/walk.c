/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/walk.h"

#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/loads.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST (UINT64_C(1) << 20) /* bytes of a file that are read */

static void require_error(int rc, const reshard_error *err)
{
    REQUIRE(rc < 0 && rc == err->code && err->message[0] && !strpbrk(err->message, "\n\r\t\033"));
}

reshard_view *walk_open(const char *source, const char *options)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};
    reshard_error err = {.struct_size = sizeof err};
    reshard_view *view = NULL;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), source);
    REQUIRE(access(path, F_OK) == 0);
    const int rc = reshard_open(path, &config, &view, &err);
    if (rc)
        require_error(rc, &err);
    return view;
}

/*
 * Of a range [FROM, TO): in pieces of STEP bytes. Returns 0, or the error of the first piece that
 * fails.
 */
static ssize_t read_range(reshard_view *view, uint64_t id, uint64_t from, uint64_t to, size_t step,
                          uint8_t *out)
{
    reshard_reader *reader;
    const int rc = reshard_reader_open(view, id, &reader);
    ssize_t n = rc;

    for (uint64_t at = from; n >= 0 && at < to; at += (uint64_t)n) {
        const size_t wanted = to - at < step ? (size_t)(to - at) : step;
        n = reshard_reader_pread(reader, out + (at - from), wanted, at);
        REQUIRE(n < 0 || n == (ssize_t)wanted);
    }
    reshard_reader_close(reader);
    return n < 0 ? n : 0;
}

static bool check_range(reshard_view *view, uint64_t id, uint64_t from, uint64_t to)
{
    const size_t n = (size_t)(to - from);
    uint8_t *first = malloc(n + 1);
    uint8_t *second = malloc(n + 1);

    REQUIRE(first && second);
    const ssize_t a = read_range(view, id, from, to, 4096, first);
    const ssize_t b = read_range(view, id, from, to, 1021, second);
    REQUIRE(a == b && (a < 0 || memcmp(first, second, n) == 0));
    free(first);
    free(second);
    return a == 0 && n > 0;
}

/* Whether bytes of the file could be read. */
static bool check_file(reshard_view *view, uint64_t id)
{
    reshard_stat st = {.struct_size = sizeof st};
    reshard_error err = {.struct_size = sizeof err};
    uint8_t byte;

    const int rc = reshard_getattr(view, id, &st, &err);
    if (rc) {
        require_error(rc, &err);
        REQUIRE(reshard_pread(view, id, &byte, 1, 0) < 0);
        return false;
    }
    REQUIRE(st.size <= INT64_MAX);
    const bool has_bytes = check_range(view, id, 0, st.size < MOST ? st.size : MOST);
    if (st.size > MOST)
        check_range(view, id, st.size - MOST, st.size);
    const ssize_t past = reshard_pread(view, id, &byte, 1, st.size);
    REQUIRE(past <= 0);
    return has_bytes;
}

static bool check_folder(reshard_view *view, uint64_t id)
{
    bool has_bytes = false;
    reshard_dirent entry = {.struct_size = sizeof entry};

    for (uint64_t i = 0; reshard_list(view, id, i, &entry) == 1; i++) {
        uint64_t found;
        REQUIRE(reshard_lookup(view, id, entry.name, &found) == 0 && found == entry.id);
        if (entry.is_dir)
            has_bytes |= check_folder(view, entry.id);
        else
            has_bytes |= check_file(view, entry.id);
    }
    return has_bytes;
}

bool walk_all(reshard_view *view)
{
    struct loads loads;
    uint64_t hidden;

    const bool has_bytes = check_folder(view, RESHARD_ROOT);
    if (reshard_lookup(view, RESHARD_ROOT, RESHARD_CONTROL, &hidden) == 0)
        check_folder(view, hidden);
    loads_check(view, 1, false, &loads);
    REQUIRE(!loads.why[0]);
    return has_bytes;
}
