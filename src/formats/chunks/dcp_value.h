/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of the pickle in .metadata of torch's distributed checkpoints, in an array of words.
 *
 * Values may be shared, and a list may contain itself: code that goes through values bounds what it
 * visits, and goes no deeper than it knows the fields to be. Immutable once read.
 */
#pragma once

#include "base/intern.h"
#include "base/vec.h"

/* A value is a kind in the three lowest bits, and above them a number. */
enum rfs_dcp_kind {
    RFS_DCP_PLAIN,  /* the number is an enum rfs_dcp_plain, or a name's */
    RFS_DCP_INT,    /* it is the integer */
    RFS_DCP_BIG,    /* place of an integer of two words */
    RFS_DCP_TEXT,   /* id in texts; an enum rfs_dcp_word for those */
    RFS_DCP_TUPLE,  /* place of: how many items, the items */
    RFS_DCP_LIST,   /* place of: how many items, the first and the last block of them */
    RFS_DCP_DICT,   /* the same, of keys and values in turn; a key may come again */
    RFS_DCP_OBJECT, /* place of: its class (enum rfs_dcp_class), its state, a DICT or a TUPLE */
};

enum rfs_dcp_plain {
    RFS_DCP_NONE,
    RFS_DCP_FALSE,
    RFS_DCP_TRUE,
    RFS_DCP_OPAQUE, /* a float, a path and the like */
    RFS_DCP_NAMES,  /* from here on: names */
};

enum { RFS_DCP_KIND_BITS = 3 };

static inline enum rfs_dcp_kind rfs_dcp_kind(uint32_t value)
{
    return (enum rfs_dcp_kind)(value & ((1u << RFS_DCP_KIND_BITS) - 1));
}

static inline uint32_t rfs_dcp_number(uint32_t value)
{
    return value >> RFS_DCP_KIND_BITS;
}

static inline uint32_t rfs_dcp_value(enum rfs_dcp_kind kind, uint32_t number)
{
    return number << RFS_DCP_KIND_BITS | kind;
}

/* Texts that mean something: their ids are these. */
enum rfs_dcp_word {
    RFS_DCP_STATE_DICT_METADATA,
    RFS_DCP_STORAGE_DATA,
    RFS_DCP_VERSION,
    RFS_DCP_PROPERTIES,
    RFS_DCP_SIZE,
    RFS_DCP_CHUNKS,
    RFS_DCP_OFFSETS,
    RFS_DCP_SIZES,
    RFS_DCP_FQN,
    RFS_DCP_OFFSET,
    RFS_DCP_RELATIVE_PATH,
    RFS_DCP_LENGTH,
    RFS_DCP_TRANSFORMS,
    RFS_DCP_DTYPE,
    RFS_DCP_LAYOUT,
    RFS_DCP_STRIDED,
    RFS_DCP_MCORE_DATA,
    RFS_DCP_ORIGINAL_SHAPE,
    RFS_DCP_WORDS
};

enum rfs_dcp_class {
    RFS_DCP_METADATA,
    RFS_DCP_TENSOR,
    RFS_DCP_BYTES,
    RFS_DCP_CHUNK,
    RFS_DCP_TENSOR_PROPERTIES,
    RFS_DCP_INDEX,
    RFS_DCP_STORAGE_INFO,
    RFS_DCP_STORAGE_META,
    RFS_DCP_PLAN, /* of a save, which Megatron-Core keeps; not looked at, as are its parts */
    RFS_DCP_NO_CLASS
};

/* Zero-initialise, free by rfs_dcp_pickle_free. */
struct rfs_dcp_pickle {
    RFS_VEC(uint32_t) words; /* at places; there is nothing at place 0 */
    struct rfs_intern *texts;
    uint32_t root;
};

/* ---- looking at values ---- */

/* False when it is no integer. */
bool rfs_dcp_integer(const struct rfs_dcp_pickle *pickle, uint32_t value, int64_t *integer);
/* NULL if it is not a text. A NUL that does not count follows; others may be in it. */
const char *rfs_dcp_text(const struct rfs_dcp_pickle *pickle, uint32_t value, size_t *bytes);
static inline bool rfs_dcp_is_word(uint32_t value, enum rfs_dcp_word word)
{
    return value == rfs_dcp_value(RFS_DCP_TEXT, word);
}
/* The items of a tuple, valid as long as the pickle; NULL when it is none. */
const uint32_t *rfs_dcp_tuple(const struct rfs_dcp_pickle *pickle, uint32_t value, uint32_t *n);
/* RFS_DCP_NO_CLASS when it is no object. */
enum rfs_dcp_class rfs_dcp_class(const struct rfs_dcp_pickle *pickle, uint32_t value);
/* The state of an object, a DICT or a TUPLE; None of one that has none, and of all else. */
uint32_t rfs_dcp_state(const struct rfs_dcp_pickle *pickle, uint32_t object);
/* A field of an object whose state is a dict; None when it is not there. O(1). */
uint32_t rfs_dcp_field(const struct rfs_dcp_pickle *pickle, uint32_t object,
                       enum rfs_dcp_word name);
/* The value of a dict by a key; None when it is not among the first, as above. O(1). */
uint32_t rfs_dcp_get(const struct rfs_dcp_pickle *pickle, uint32_t dict, enum rfs_dcp_word key);
/* The items of a list, or the keys and values of a dict in turn. */
struct rfs_dcp_each {
    const struct rfs_dcp_pickle *pickle;
    uint32_t block, at;
};

/* How many items it has in all; 0 of a value that is neither list nor dict. */
uint32_t rfs_dcp_count(const struct rfs_dcp_pickle *pickle, uint32_t value);
struct rfs_dcp_each rfs_dcp_each(const struct rfs_dcp_pickle *pickle, uint32_t value);
/* False behind the last one. */
bool rfs_dcp_next(struct rfs_dcp_each *each, uint32_t *value);
