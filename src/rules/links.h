/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The result of rules for a source: the tensors of the other side, and links, which say where their
 * elements are in the source's tensors.
 *
 * A link relates elements of one made tensor to as many of one source tensor. Its digits count
 * them: digits d0, d1, … name one element of each of the two tensors. The made one is that of the
 * source, or computed of it: the link says how. On axis a of either tensor, the place of the
 * element is
 *     at[a] + Σ d_k * step_k over the digits of axis a
 * with that tensor's at and steps. Each digit belongs to one axis of either tensor. So every
 * operation of the language (groups, stacked, transposed and joined axes) is a list of links, and
 * each link works in both directions.
 *
 * Links of a tensor cover each of its elements exactly once: rfs_rules_compile proves that.
 *
 * Immutable. Cost: 40 bytes a link, and 200 a tensor and its name. Lists of digits and of ats, 32
 * and 8 bytes an entry, are shared by the links that have equal ones.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/intern.h"
#include "base/vec.h"
#include "formats/index.h"

#define RFS_RULES_DIGITS 12 /* most digits of a link */

struct rfs_rules_digit {
    uint64_t count;
    uint64_t step[2]; /* along the axis, by side: made tensor, source tensor */
    uint8_t axis[2];
};
enum { RFS_MADE, RFS_SOURCE }; /* sides of a link */

struct rfs_rules_link {
    uint32_t made, source; /* tensors, by number */
    uint32_t digits, n;    /* the first of them in the map's digits, and how many */
    size_t at[2];          /* the first axis' at of either tensor, in the map's ats */
    int16_t plus;          /* the made element is that of the source and this */
    bool zeros;            /* the made elements are 0; all steps in the source are 0, too */
};

/* A tensor that rules make. */
struct rfs_rules_made {
    const char *name;
    struct rfs_type type; /* its elements are as in the source; bytes are set */
    enum rfs_dtype shown; /* after a cast */
    const char *file;     /* where the rule is, for reports; NULL: the tensor stays as it is */
    uint32_t line;
    size_t links, n; /* the first of them, and how many */
    bool compared;   /* it is made of the original of a copy */
};

/*
 * A tensor of the source that rules leave out because it should be a copy of another, of the same
 * type. Only its bytes tell whether it is.
 */
struct rfs_rules_copy {
    uint32_t copy, original; /* source tensors, by number */
    const char *file;        /* where the rule is, for messages */
    uint32_t line;
    const char *remedy; /* if it is no copy */
};

struct rfs_rules_map {
    struct rfs_arena arena;               /* owns other texts */
    struct rfs_intern *names;             /* owns names of tensors and of files */
    bool from_left;                       /* the source has the names of the left side */
    const char *side[2];                  /* names of the left and of the right side */
    RFS_VEC(struct rfs_rules_made) made;  /* tensors in the order of their sources */
    RFS_VEC(struct rfs_rules_link) links; /* by made tensor */
    RFS_VEC(struct rfs_rules_digit) digits;
    RFS_VEC(uint64_t) ats;
    RFS_VEC(struct rfs_rules_copy) copies;
    size_t dropped;            /* tensors of the source that rules leave out */
    const char *first_dropped; /* borrowed from the source */
    size_t lost; /* the first of the input's lost names that rules do not drop; n_lost: none */
};

void rfs_rules_map_free(struct rfs_rules_map *map);

/* ---- boxes of links -------------------------------------------------------------------------- */

/* The values that each digit of a link may have: first … end, exclusive. */
struct rfs_rules_span {
    uint64_t first[RFS_RULES_DIGITS];
    uint64_t end[RFS_RULES_DIGITS];
};

struct rfs_rules_spans {
    struct rfs_rules_span *data;
    size_t n, cap;
};

/*
 * Appends the spans of a link's digits whose elements lie in the box from LO to HI (exclusive) of
 * the tensor SIDE, of NDIM axes, each element in one span; within FROM, if it is not NULL. 0 or
 * -ENOMEM. A box that cuts through digits makes some more spans: at most 2 for each digit but one,
 * for each axis.
 */
int rfs_rules_spans_in(const struct rfs_rules_map *map, const struct rfs_rules_link *link, int side,
                       uint32_t ndim, const uint64_t *lo, const uint64_t *hi,
                       const struct rfs_rules_span *from, struct rfs_rules_spans *out);
/* Gives all values of a link's digits. */
void rfs_rules_span_all(const struct rfs_rules_map *map, const struct rfs_rules_link *link,
                        struct rfs_rules_span *span);
/* Gives the box of the tensor SIDE that holds all elements of a span. */
void rfs_rules_span_box(const struct rfs_rules_map *map, const struct rfs_rules_link *link,
                        int side, uint32_t ndim, const struct rfs_rules_span *span, uint64_t *lo,
                        uint64_t *hi);
