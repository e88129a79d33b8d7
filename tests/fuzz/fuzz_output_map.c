/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How outputs are named and converted: an odd first byte means a map of names in JSON, an even one
 * the rules of dtype=, a line break and a name to look up.
 */
#include "plan/names.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("a map of names", "a rule that converts");

/* No two are shown by one name; what is shown has no control character. */
static void check_names(const struct rfs_names *output_map, const char *name)
{
    const char *shown = rfs_names_shown(output_map, name);
    char line[200];

    REQUIRE(rfs_names_dtype(output_map, name, RFS_FLOAT32) == RFS_FLOAT32);
    if (shown && shown != name)
        for (const char *at = shown; *at || at == shown; at++)
            REQUIRE((unsigned char)*at >= 0x20 && *at != 0x7f);
    rfs_names_unused(output_map, RFS_NAMES_MAP, line, sizeof line);
}

static void parse_names(const uint8_t *data, size_t size)
{
    struct rfs_names *output_map = NULL;
    struct rfs_error err = {0};
    const struct rfs_names_config config = {.names = fuzz_file("names", data, size)};

    if (require_result(rfs_names_open(&config, &output_map, &err), &err)) {
        check_names(output_map, "a");
        fuzz_reached(0);
    }
    rfs_names_free(output_map);
}

static void parse_rules(char *text)
{
    char *name = strchr(text, '\n');
    struct rfs_names *output_map = NULL;
    struct rfs_error err = {0};

    if (name)
        *name++ = '\0';
    const struct rfs_names_config config = {.dtype = text};
    if (rfs_names_open(&config, &output_map, &err))
        REQUIRE(err.code < 0 && err.usage && err.text[0] && !strpbrk(err.text, "\n\r\t\033"));
    for (unsigned d = 0; output_map && d < RFS_DTYPE_COUNT; d++) {
        const enum rfs_dtype to = rfs_names_dtype(output_map, name ? name : "a", (enum rfs_dtype)d);
        if (to != d)
            fuzz_reached(1);
        REQUIRE(to == d ||
                (rfs_dtype_is_float((enum rfs_dtype)d) && rfs_dtype_is_float_target(to)));
    }
    rfs_names_free(output_map);
}

/* A pattern costs its length times that of the name, for each type. */
#define TEXT_MOST 2048

void fuzz_one(const uint8_t *data, size_t size)
{
    if (size == 0 || size > TEXT_MOST)
        return;
    if (data[0] % 2) {
        parse_names(data + 1, size - 1);
        return;
    }
    char *text = fuzz_text(data + 1, size - 1);
    parse_rules(text);
    free(text);
}
