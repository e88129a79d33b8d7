/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees that can be parsed and are hostile: the input chooses formats, shapes, cuts and options,
 * and then what is wrong with a few tensors: a size, a type, a name, content that is missing or too
 * much, a parameter that comes twice.
 */
#ifndef TESTS_FUZZ_FORGE_TREE_H
#define TESTS_FUZZ_FORGE_TREE_H

#include "reshard.h"

#include <stddef.h>
#include <stdint.h>

/* The input, used up from its beginning; zeros behind its end. */
struct forge_choices {
    const uint8_t *data;
    size_t left;
    unsigned options; /* the row of FORGE_OPTIONS that forge_tree has taken */
};
uint8_t forge_next(struct forge_choices *in);
/* Returns a number below N. */
unsigned forge_below(struct forge_choices *in, unsigned n);

/* What forge_tree adds to the options of a view. */
#define FORGE_OPTIONS                                                                              \
    "", ",format=safetensors", ",format=pt", ",format=pt,zip_crc", ",crc", ",strict",              \
        ",dtype=bfloat16", ",check=crc", ",cache=1K", ",prefix=x",                                 \
        ",format=safetensors,order=layers", ",dtype=*w=float32;float16"

/* Writes a tree into the fuzz folder, and opens a view of it; NULL when that is refused. */
reshard_view *forge_tree(struct forge_choices *in);

#endif
