/* SPDX-License-Identifier: Apache-2.0 */
/* Views of small trees whose every byte is written down in support.c. All fail the test. */
#ifndef TESTS_UNIT_VIEW_SUPPORT_H
#define TESTS_UNIT_VIEW_SUPPORT_H

#include "reshard.h"
#include "tests/support/tree.h"

/* A JSON strategy of one-axis cuts: each parameter's axis 0 (or none) over DEVICES in a line. */
void write_strategy(const char *root, const char *name, const char *items);

#define LAYOUT(name, dev, map, shape)                                                              \
    "\"" name "\": {\"dev_matrix\": " dev ", \"tensor_map\": " map ", \"tensor_shape\": " shape    \
    ", \"field\": 0, \"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}"

/* N elements of a parameter's content from element FROM on. */
void fill(unsigned char *out, const char *name, uint64_t from, uint64_t n);

struct log_lines {
    char text[4096];
};

struct fixture {
    char *root;
    reshard_view *view;
    reshard_error err;
    struct log_lines lines;
};

int open_with(struct fixture *f, const char *more);
/* Opens a view that follows the source, as the config's follow says. */
int open_following(struct fixture *f, const char *more, uint32_t seconds);
void open_view(struct fixture *f);
uint64_t file_id(struct fixture *f, unsigned rank);
int stat_rank(struct fixture *f, unsigned rank, reshard_stat *st);
/* The whole file, to be freed by the caller. */
unsigned char *read_rank(struct fixture *f, unsigned rank, size_t *n);
void expect_file(struct fixture *f, unsigned rank, const struct bytes *expected);

/*
 * "w" [8, 4] of one byte each cut along axis 0 over four ranks; "b" [4] in both strategies, never
 * cut; "steps", a scalar in neither. The destination cuts w along axis 1 over two.
 */
#define SRC_ITEMS LAYOUT("w", "[4]", "[0, -1]", "[8, 4]") ", " LAYOUT("b", "[4]", "[-1]", "[4]")
#define DST_ITEMS LAYOUT("w", "[2]", "[-1, 0]", "[8, 4]") ", " LAYOUT("b", "[2]", "[-1]", "[4]")

void write_source_rank(const char *root, unsigned rank, unsigned char steps);
void expected_rank(struct bytes *file, unsigned rank, unsigned char steps);

/* "w" on a 2 x 2 matrix, cut over the inner axis: ranks 0 and 2, 1 and 3 hold the same slices. */
void replicate(struct fixture *f, const unsigned char *steps);

/* Set up each test: *state is a fixture with the strategies and sources above, no view open yet. */
int set_up(void **state);
int tear_down(void **state);

#endif
