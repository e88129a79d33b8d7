/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/reshape.h"

bool rfs_rules_divide(struct piece *piece, uint32_t axis, uint64_t size)
{
    uint64_t last = piece->at[axis] % size; /* within a block */

    for (uint32_t k = 0; k < piece->n; k++) {
        struct digit *digit = &piece->digits[k];
        if (digit->axis != axis || digit->step % size == 0)
            continue;
        if (digit->step > size || size % digit->step != 0)
            return false;
        const uint64_t inner = size / digit->step;
        if (digit->count > inner) {
            if (digit->count % inner != 0 || piece->n == RFS_RULES_DIGITS)
                return false;
            piece->digits[piece->n] = *digit;
            piece->digits[piece->n].count = digit->count / inner;
            piece->digits[piece->n].step = size;
            piece->digits[piece->n++].leaf_step = digit->leaf_step * inner;
            digit->count = inner;
        }
        last += (digit->count - 1) * digit->step;
    }
    return last < size;
}

void rfs_rules_insert(struct piece *piece, uint32_t axis, uint64_t at)
{
    memmove(&piece->at[axis + 1], &piece->at[axis], (RFS_MAX_DIMS - axis - 1) * sizeof *piece->at);
    piece->at[axis] = at;
    for (uint32_t k = 0; k < piece->n; k++)
        piece->digits[k].axis = (uint8_t)(piece->digits[k].axis + (piece->digits[k].axis >= axis));
}

void rfs_rules_swap(struct piece *piece, uint32_t last)
{
    const uint64_t at = piece->at[last];

    piece->at[last] = piece->at[last - 1];
    piece->at[last - 1] = at;
    for (uint32_t k = 0; k < piece->n; k++) {
        uint8_t *axis = &piece->digits[k].axis;
        if (*axis + 1 >= (int)last && *axis <= last)
            *axis = (uint8_t)(*axis == last ? last - 1 : last);
    }
}

void rfs_rules_join(struct piece *piece, uint32_t axis, uint64_t inner)
{
    piece->at[axis] = piece->at[axis] * inner + piece->at[axis + 1];
    memmove(&piece->at[axis + 1], &piece->at[axis + 2],
            (RFS_MAX_DIMS - axis - 2) * sizeof *piece->at);
    piece->at[RFS_MAX_DIMS - 1] = 0;
    for (uint32_t k = 0; k < piece->n; k++) {
        struct digit *digit = &piece->digits[k];
        if (digit->axis == axis)
            digit->step *= inner;
        digit->axis = (uint8_t)(digit->axis - (digit->axis > axis));
    }
}

bool rfs_rules_split(struct piece *piece, uint32_t axis, uint64_t inner)
{
    if (!rfs_rules_divide(piece, axis, inner))
        return false;
    const uint64_t at = piece->at[axis];
    rfs_rules_insert(piece, axis, at / inner); /* the former axis is behind it now */
    piece->at[axis + 1] = at % inner;
    for (uint32_t k = 0; k < piece->n; k++) {
        struct digit *digit = &piece->digits[k];
        if (digit->axis == axis + 1 && digit->step % inner == 0) {
            digit->axis = (uint8_t)axis;
            digit->step /= inner;
        }
    }
    return true;
}
