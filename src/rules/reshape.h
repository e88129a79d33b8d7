/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on the axes of a piece. */
#pragma once

#include "rules/compile_internal.h"

/*
 * Makes every digit of the axis count either whole blocks of SIZE or entries within one. False when
 * that cannot be done.
 */
bool rfs_rules_divide(struct piece *piece, uint32_t axis, uint64_t size);
/* A new axis, in which the piece is at AT. */
void rfs_rules_insert(struct piece *piece, uint32_t axis, uint64_t at);
/* Axis LAST and the one before it change places. */
void rfs_rules_swap(struct piece *piece, uint32_t last);
/* The axis and the one behind it, of INNER entries, become one. */
void rfs_rules_join(struct piece *piece, uint32_t axis, uint64_t inner);
/* An axis becomes two, the second of INNER entries. False when that cannot be done. */
bool rfs_rules_split(struct piece *piece, uint32_t axis, uint64_t inner);
