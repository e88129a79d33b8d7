/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the values of a .metadata. dcp_pickle.c makes them. */
#include "formats/chunks/dcp_value.h"

/* No class of torch has as many fields; an object that has more is looked at no further. */
#define FIELDS_MOST 16

static const uint32_t *at(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    return pickle->words.data + rfs_dcp_number(value);
}

bool rfs_dcp_integer(const struct rfs_dcp_pickle *pickle, uint32_t value, int64_t *integer)
{
    if (rfs_dcp_kind(value) == RFS_DCP_INT)
        *integer = rfs_dcp_number(value);
    else if (rfs_dcp_kind(value) == RFS_DCP_BIG)
        memcpy(integer, at(pickle, value), sizeof *integer);
    else
        return false;
    return true;
}

const char *rfs_dcp_text(const struct rfs_dcp_pickle *pickle, uint32_t value, size_t *bytes)
{
    return rfs_dcp_kind(value) == RFS_DCP_TEXT
               ? rfs_intern_bytes(pickle->texts, rfs_dcp_number(value), bytes)
               : NULL;
}

const uint32_t *rfs_dcp_tuple(const struct rfs_dcp_pickle *pickle, uint32_t value, uint32_t *n)
{
    if (rfs_dcp_kind(value) != RFS_DCP_TUPLE)
        return NULL;
    *n = *at(pickle, value);
    return at(pickle, value) + 1;
}

enum rfs_dcp_class rfs_dcp_class(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    return rfs_dcp_kind(value) == RFS_DCP_OBJECT ? (enum rfs_dcp_class) * at(pickle, value)
                                                 : RFS_DCP_NO_CLASS;
}

uint32_t rfs_dcp_state(const struct rfs_dcp_pickle *pickle, uint32_t object)
{
    return rfs_dcp_kind(object) == RFS_DCP_OBJECT ? at(pickle, object)[1]
                                                  : rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

uint32_t rfs_dcp_get(const struct rfs_dcp_pickle *pickle, uint32_t dict, enum rfs_dcp_word key)
{
    struct rfs_dcp_each each = rfs_dcp_each(pickle, dict);
    uint32_t name;
    uint32_t value;

    for (int i = 0; i < FIELDS_MOST && rfs_dcp_next(&each, &name) && rfs_dcp_next(&each, &value);
         i++)
        if (rfs_dcp_is_word(name, key))
            return value;
    return rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
}

uint32_t rfs_dcp_field(const struct rfs_dcp_pickle *pickle, uint32_t object, enum rfs_dcp_word name)
{
    return rfs_dcp_get(pickle, rfs_dcp_state(pickle, object), name);
}

static bool has_items(uint32_t value)
{
    return rfs_dcp_kind(value) == RFS_DCP_LIST || rfs_dcp_kind(value) == RFS_DCP_DICT;
}

uint32_t rfs_dcp_count(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    return has_items(value) ? *at(pickle, value) : 0;
}

struct rfs_dcp_each rfs_dcp_each(const struct rfs_dcp_pickle *pickle, uint32_t value)
{
    return (struct rfs_dcp_each){pickle, has_items(value) ? at(pickle, value)[1] : 0, 0};
}

bool rfs_dcp_next(struct rfs_dcp_each *each, uint32_t *value)
{
    /* A block: the place of the next one, how many items, the items; none is empty. */
    const uint32_t *block = each->pickle->words.data + each->block;

    if (each->block == 0)
        return false;
    *value = block[2 + each->at++];
    if (each->at == block[1]) {
        each->block = block[0];
        each->at = 0;
    }
    return true;
}
