/* SPDX-License-Identifier: Apache-2.0 */
/* Rules while they are applied to a source. Inside the room only. */
#pragma once

#include "base/intern.h"
#include "rules/compile.h"
#include "rules/statements.h"

#define NO_TENSOR UINT32_MAX
#define ANY_SIZE UINT64_MAX /* a size that is not known yet */
/* The most work for rules: numbers that are evaluated, and characters of names by the dozen. */
#define RULES_MOST_WORK (UINT64_C(1) << 27)

struct shape {
    bool known; /* how many axes it has */
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS]; /* or ANY_SIZE */
};

/* The meaning of a name: a number, the values of an index, or the word of an option. */
struct rfs_rules_known {
    enum { KNOWN_NUMBER, KNOWN_INDEX, KNOWN_OPTION } kind;
    const char *name;
    int64_t value;    /* number, or present value of an index */
    int64_t from, to; /* range of an index */
    bool bound;       /* an index has a present value */
    bool tied;        /* a number depends on tie_word_embeddings */
    const char *word; /* the one that an option has */
    const struct rfs_rules_word *words;
};

/* A selection of the rows of an axis that one use of a tensor takes. */
struct rfs_rules_rows {
    uint32_t axis;
    uint64_t first, count, step;
    uint32_t next; /* another selection of the tensor: 1 + its place in takings; or 0 */
};

/* A tensor of either side. */
struct side_tensor {
    struct shape shape;
    uint8_t dtype;
    uint8_t kind;
    bool there;                    /* the source has it, or a rule makes it */
    bool dropped;                  /* left out */
    bool loose;                    /* a rule takes rows of it; other rows are left out */
    bool original;                 /* a copy of it is left out of the source */
    const struct statement *taken; /* the rule that takes or makes it */
    uint32_t takings;              /* its first selection of rows: 1 + its place; 0: all of it */
};

struct side {
    struct rfs_intern *names; /* ids are numbers of tensors */
    RFS_VEC(struct side_tensor) tensors;
};

/* A statement that counts and waits for all rules: repeat, copy, keep or drop. */
struct waiting {
    const struct statement *statement;
    bool tied; /* it counts because of tie_word_embeddings */
};

struct compiling {
    const struct rfs_rules *rules;
    const struct rfs_rules_input *input;
    struct rfs_error *err;
    const struct statement *statement; /* the present one */
    uint64_t *work;                    /* done so far, by all attempts to compile the rules */
    struct rfs_intern *known_names;    /* ids are numbers of KNOWN */
    RFS_VEC(struct rfs_rules_known) known;
    struct side sides[2];
    int source; /* the side of the source */
    RFS_VEC(struct rfs_rules_rows) takings;
    RFS_VEC(struct rfs_rules_piece) pieces; /* those of the present rule; rule.c */
    RFS_VEC(char) text;                     /* the name that was spelled last */
    struct rfs_rules_map *map;
    RFS_VEC(const struct statement *) applied; /* rules that count */
    RFS_VEC(struct waiting) waiting;
    bool tied; /* the number at hand depends on tie_word_embeddings, which is true */
};

/* Fails at the present statement. */
#define RULES_FAIL(c, param, remedy, ...)                                                          \
    rfs_lex_fail((c)->statement->file, (c)->statement->line, param, remedy, (c)->err, __VA_ARGS__)

/* ---- numbers and names (values.c): 0 or -errno ----------------------------------------------- */

/* Counts so much work. */
int rfs_rules_work(struct compiling *c, uint64_t work);
/* Evaluates a number. */
int rfs_rules_number(struct compiling *c, const struct number *number, int64_t *value);
/* Evaluates a number of at least LEAST; NAME is for messages. */
int rfs_rules_count(struct compiling *c, const struct number *number, const char *name,
                    int64_t least, uint64_t *value);
/* Returns the meaning of a name, or NULL. */
struct rfs_rules_known *rfs_rules_known(struct compiling *c, const char *name);
/* Spells a name with the present values of indexes, in c->text, with a NUL. */
int rfs_rules_spell(struct compiling *c, const struct name_part *name);
/* The indexes that a name's holes use; each turn gives them other values. */
struct turns {
    struct rfs_rules_known *index[4];
    uint32_t n;
    bool begun;
};
int rfs_rules_turns_begin(struct compiling *c, const struct name_part *name, struct turns *turns);
bool rfs_rules_turns_next(struct turns *turns);
void rfs_rules_turns_end(struct turns *turns);

/* ---- tensors of both sides (sides.c) --------------------------------------------------------- */

/* Returns the number of a tensor, added if it is new; NO_TENSOR: it failed. */
uint32_t rfs_rules_tensor_add(struct compiling *c, int side, const char *name);
/* Returns the number of a tensor, or NO_TENSOR. */
uint32_t rfs_rules_tensor_find(const struct compiling *c, int side, const char *name);
const char *rfs_rules_tensor_name(const struct compiling *c, int side, uint32_t tensor);
/* Finds the tensor of the source that a rule needs. */
int rfs_rules_need(struct compiling *c, const char *name, uint32_t *tensor);
/* Notes that the present rule takes or makes a tensor, or rows of it. */
int rfs_rules_take_all(struct compiling *c, int side, uint32_t tensor);
int rfs_rules_take_rows(struct compiling *c, int side, uint32_t tensor,
                        const struct rfs_rules_rows *rows);
/* Proves that every tensor is used once, and completely. */
int rfs_rules_prove(struct compiling *c);
/* Says whether rules have a tensor of the source with this name, whatever numbers are in it. */
bool rfs_rules_is_named(const struct compiling *c, const char *name);

/* ---- one rule (rule.c) ----------------------------------------------------------------------- */

/* Shows dims as "[2, 3]". */
struct rfs_rules_shape_text {
    char text[160];
};
struct rfs_rules_shape_text rfs_rules_show(const struct shape *shape);
/* Makes the links of the present rule, for all values of its indexes. */
int rfs_rules_make(struct compiling *c);
/* Links a made tensor of that name to a tensor of the source that it equals. */
int rfs_rules_link_same(struct compiling *c, uint32_t source, const char *name);
