/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of the pickle in .metadata of torch's distributed checkpoints, and of HyperParallel's,
 * which has classes like torch's. dcp.h reads what they describe.
 *
 * Nothing in it is executed: a name is one of a short list, and stands for itself. What is called
 * makes a plain value (torch.Size(x) is x), or nothing that is looked at. Any other name, and any
 * opcode that torch does not write, is refused. It is read in one pass, a window at a time, and
 * without recursion.
 *
 * Cost: linear time. Memory: rfs_dcp_memory at most, about twice the file for those of torch.
 *
 * Values may be shared, and a list may contain itself: code that goes through values bounds what it
 * visits, and goes no deeper than it knows the fields to be. Immutable once read.
 */
#pragma once

#include "base/error.h"
#include "base/intern.h"
#include "base/vec.h"
#include "formats/dtype.h"
#include "formats/walker.h"

#define RFS_DCP_MOST ((uint64_t)1 << 30) /* bytes of a file that is read */

/* Returns the bytes of memory that reading a file of N bytes may take. */
static inline size_t rfs_dcp_memory(uint64_t n)
{
    return (size_t)(3 * (n < RFS_DCP_MOST ? n : RFS_DCP_MOST)) + ((size_t)1 << 20);
}

/* The values are words in an array: a kind in the three lowest bits, and above them a number. */
enum rfs_dcp_kind {
    RFS_DCP_PLAIN,  /* enum rfs_dcp_plain, or number of a name */
    RFS_DCP_INT,    /* the integer */
    RFS_DCP_BIG,    /* place of an integer of two words */
    RFS_DCP_TEXT,   /* id in texts; the first ids are enum rfs_dcp_word */
    RFS_DCP_TUPLE,  /* place of: how many items, the items */
    RFS_DCP_LIST,   /* place of: how many items, the first and the last block of them */
    RFS_DCP_DICT,   /* place of a list of keys and values in turn; a key may come again */
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

static inline uint32_t rfs_dcp_value(enum rfs_dcp_kind kind, uint32_t number)
{
    return number << RFS_DCP_KIND_BITS | kind;
}

/* Returns the number in a value. */
static inline uint32_t rfs_dcp_number(uint32_t value)
{
    return value >> RFS_DCP_KIND_BITS;
}

/* Ids of the texts that mean something. */
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
    RFS_DCP_INDEX_HINT,
    RFS_DCP_PLANNER_DATA,
    RFS_DCP_STORAGE_META_FIELD,
    RFS_DCP_TENSOR_KEY,
    RFS_DCP_WORDS
};
extern const char *const rfs_dcp_words[RFS_DCP_WORDS];

enum rfs_dcp_class {
    RFS_DCP_METADATA,
    RFS_DCP_TENSOR,
    RFS_DCP_BYTES,
    RFS_DCP_CHUNK,
    RFS_DCP_TENSOR_PROPERTIES,
    RFS_DCP_INDEX,
    RFS_DCP_STORAGE_INFO,
    RFS_DCP_STORAGE_META,
    RFS_DCP_PLAN, /* plan of a save, from Megatron-Core, and its parts; not looked at */
    RFS_DCP_NO_CLASS
};
/* The programs that have such classes. */
enum rfs_dcp_program {
    RFS_DCP_TORCH, /* with Megatron-Core */
    RFS_DCP_HYPER, /* HyperParallel */
};
/* Gives the names of a class as the program writes them today. */
void rfs_dcp_class_name(enum rfs_dcp_program program, enum rfs_dcp_class class, const char **module,
                        const char **name);

/* Zero-initialise, free by rfs_dcp_pickle_free. */
struct rfs_dcp_pickle {
    RFS_VEC(uint32_t) words; /* at places; there is nothing at place 0 */
    struct rfs_intern *texts;
    uint32_t root;
    bool programs[RFS_DCP_HYPER + 1]; /* whose classes the objects have */
};

/*
 * Reads the pickle. 0; -EINVAL for a damaged pickle, -ENOTSUP for one with other opcodes or names,
 * -EFBIG for one that would take more memory, -ENOMEM, or a read's error, each with *err filled.
 */
int rfs_dcp_pickle_read(const struct rfs_bytes_source *from, struct rfs_dcp_pickle *out,
                        struct rfs_error *err);
void rfs_dcp_pickle_free(struct rfs_dcp_pickle *pickle);

/* ---- looking at values ---- */

/* Gives the integer that a value is. False when it is none. */
bool rfs_dcp_integer(const struct rfs_dcp_pickle *pickle, uint32_t value, int64_t *integer);
/* Returns a text; NULL if it is none. A NUL that does not count follows; others may be in it. */
const char *rfs_dcp_text(const struct rfs_dcp_pickle *pickle, uint32_t value, size_t *bytes);
/* Says whether a value is that text. */
static inline bool rfs_dcp_is_word(uint32_t value, enum rfs_dcp_word word)
{
    return value == rfs_dcp_value(RFS_DCP_TEXT, word);
}
/* Returns the items of a tuple, valid as long as the pickle; NULL when it is none. */
const uint32_t *rfs_dcp_tuple(const struct rfs_dcp_pickle *pickle, uint32_t value, uint32_t *n);
/* Returns the class of an object; RFS_DCP_NO_CLASS of all else. */
enum rfs_dcp_class rfs_dcp_class(const struct rfs_dcp_pickle *pickle, uint32_t value);
/* Returns the state of an object, a DICT or a TUPLE; None of one without, and of all else. */
uint32_t rfs_dcp_state(const struct rfs_dcp_pickle *pickle, uint32_t object);
/* Returns the value of a dict by a key; None when it is not among the first 16. O(1). */
uint32_t rfs_dcp_get(const struct rfs_dcp_pickle *pickle, uint32_t dict, enum rfs_dcp_word key);
/* Returns a field of an object whose state is a dict; None when it is not there. O(1). */
static inline uint32_t rfs_dcp_field(const struct rfs_dcp_pickle *pickle, uint32_t object,
                                     enum rfs_dcp_word name)
{
    return rfs_dcp_get(pickle, rfs_dcp_state(pickle, object), name);
}
/* A walk over the items of a list, or the keys and values of a dict in turn. */
struct rfs_dcp_each {
    const struct rfs_dcp_pickle *pickle;
    uint32_t block, at;
    uint32_t n; /* how many items there are in all */
};
/* Begins a walk; over nothing if a value is neither list nor dict. */
struct rfs_dcp_each rfs_dcp_each(const struct rfs_dcp_pickle *pickle, uint32_t value);
/* Gives the next item; false behind the last one. */
bool rfs_dcp_next(struct rfs_dcp_each *each, uint32_t *value);
/*
 * Finds the dtype that a value is; *WHY is NULL, or "its elements are torch.qint8" for one that is
 * not read. False when it is no dtype.
 */
bool rfs_dcp_dtype(uint32_t value, enum rfs_dtype *dtype, const char **why);
