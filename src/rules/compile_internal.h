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
    enum { KNOWN_NUMBER, KNOWN_INDEX, KNOWN_OPTION, KNOWN_FAILED } kind;
    const char *name;
    int64_t value;    /* number, or present value of an index */
    int64_t from, to; /* range of an index */
    /*
     * the N values of an index that a condition chooses, of the map's arena, or NULL: all of them
     */
    const uint32_t *chosen;
    size_t n;
    uint64_t at;      /* place of the present value among the values */
    bool bound;       /* an index has a present value */
    bool stacked;     /* an index is an axis of left tensors */
    bool tied;        /* a number depends on tie_word_embeddings */
    bool counts;      /* an option has a number, VALUE, and no words */
    const char *word; /* the one that an option has */
    const struct rfs_rules_word *words;
};

/* Counts the values of an index. */
static inline uint64_t rfs_rules_values(const struct rfs_rules_known *index)
{
    return index->chosen             ? index->n
           : index->to > index->from ? (uint64_t)index->to - (uint64_t)index->from
                                     : 0;
}

/* Gives an index its value AT, below the number of its values. */
static inline void rfs_rules_bind(struct rfs_rules_known *index, uint64_t at)
{
    index->at = at;
    index->value = index->chosen ? (int64_t)index->chosen[at] : index->from + (int64_t)at;
    index->bound = true;
}

/* A selection of the rows of an axis that one use of a tensor takes, of each of its equal parts. */
struct rfs_rules_rows {
    uint32_t axis;
    uint64_t first, count, step;
    uint64_t parts, part; /* how many; the rows in each, 0 with one */
    /* 1 + places in takings, where selections are kept, or 0 */
    uint32_t next;  /* another selection of the tensor, or of the same rows of it */
    uint32_t inner; /* one along another axis, of the rows that this one selects */
};

/* A tensor of either side. */
struct side_tensor {
    const struct shape *shape; /* one of those that are kept */
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
    uint32_t last; /* the tensor that was found last: a rule asks for it several times */
};

/* Lists, each of them kept once. */
struct lists {
    struct rfs_intern *known; /* their bytes */
    RFS_VEC(size_t) first;    /* by id, where each begins */
};

/* A statement that counts and waits for all rules: repeat, copy, keep or drop. */
struct waiting {
    const struct statement *statement;
    bool tied; /* it counts because of tie_word_embeddings */
};

/* Whether the source has a name like the pattern of a number. */
struct sought {
    const struct number *number;
    bool found;
};

/* Errors that are reported together. */
struct rfs_rules_failures {
    size_t n;
    bool more;
    struct rfs_error list[RFS_RULES_ERRORS];
    uint32_t unused[RFS_RULES_ERRORS]; /* reported tensors that no rule takes */
    size_t n_unused;
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
    struct rfs_intern *shapes;
    struct lists digits, ats; /* those of the map */
    int source;               /* the side of the source */
    RFS_VEC(struct rfs_rules_rows) takings;
    RFS_VEC(struct rfs_rules_piece) pieces; /* those of the present rule; rule.c */
    RFS_VEC(char) text;                     /* the name that was spelled last */
    struct rfs_rules_map *map;
    RFS_VEC(const struct statement *) applied; /* rules that count */
    RFS_VEC(struct waiting) waiting;
    RFS_VEC(struct sought) sought;
    bool tied; /* the number at hand depends on tie_word_embeddings, which is true */
    struct rfs_rules_failures *failures; /* NULL: the first one ends the compiling */
    RFS_VEC(const struct statement *) failed;
    bool follows; /* the failure at hand follows from an earlier one */
    bool doubt;   /* a condition failed: other statements may count than those that did */
};

/* Fails at the present statement. */
#define RULES_FAIL(c, param, remedy, ...)                                                          \
    rfs_lex_fail((c)->statement->file, (c)->statement->line, param, remedy, (c)->err, __VA_ARGS__)

/*
 * Appends to a vector. When out of memory nothing is appended, and the map's arena has FAILED set,
 * at which rfs_rules_survive and rfs_rules_failures_end look.
 */
#define RULES_PUSH(c, v, ...) ((void)(RFS_PUSH(v, __VA_ARGS__) || ((c)->map->arena.failed = true)))

/* ---- failures (failures.c) ------------------------------------------------------------------- */

/*
 * Takes the failure RC of the present statement, with its hint. 0 if the compiling can go on with
 * the next statement, else RC.
 */
int rfs_rules_survive(struct compiling *c, int rc);
/* Keeps a last failure. Returns RC, or -EINVAL if there were failures before. */
int rfs_rules_failures_end(struct compiling *c, int rc);
/* Says whether a statement that failed has a tensor with this name. */
bool rfs_rules_is_blamed(const struct compiling *c, int side, const char *name);
/*
 * Puts "; " and TEXT before the remedy of an error, and BETWEEN in place of the words before that.
 */
void rfs_rules_insert(struct rfs_error *err, const char *text, const char *between);

/* ---- numbers and names (values.c): 0 or -errno ----------------------------------------------- */

/* Counts so much work. */
int rfs_rules_work(struct compiling *c, uint64_t work);
/* Refuses work that is to come if there is more of it than rules may take. */
int rfs_rules_room(struct compiling *c, uint64_t work);
/* Evaluates a number. */
int rfs_rules_number(struct compiling *c, const struct number *number, int64_t *value);
/* Evaluates a number of at least LEAST; NAME is for messages. */
int rfs_rules_count(struct compiling *c, const struct number *number, const char *name,
                    int64_t least, uint64_t *value);
/* Says whether a word is one of a list. */
bool rfs_rules_has_word(const struct rfs_rules_word *words, const char *word);
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

#define RULES_MOST_TENSORS ((size_t)1 << 22) /* of a side; a config may have hostile numbers */

/* Returns a shape that is equal and stays; NULL: no memory. */
const struct shape *rfs_rules_keep_shape(struct compiling *c, const struct shape *shape);

/* Returns the number of a tensor, added if it is new; NO_TENSOR: c->err has a failure. */
uint32_t rfs_rules_tensor_add(struct compiling *c, int side, const char *name);
/* Returns the number of a tensor, or NO_TENSOR. */
uint32_t rfs_rules_tensor_find(struct compiling *c, int side, const char *name);
const char *rfs_rules_tensor_name(const struct compiling *c, int side, uint32_t tensor);
/* Finds the tensor of the source that a rule needs. */
int rfs_rules_need(struct compiling *c, const char *name, uint32_t *tensor);
/*
 * Notes that the present rule takes or makes a tensor, or rows of it along N axes, the axis that
 * is cut first last.
 */
int rfs_rules_take_all(struct compiling *c, int side, uint32_t tensor);
int rfs_rules_take_rows(struct compiling *c, int side, uint32_t tensor,
                        const struct rfs_rules_rows *rows, uint32_t n);
/* Proves that every tensor is used once, and completely. */
int rfs_rules_prove(struct compiling *c);
/* Says whether rules have a tensor of the source with this name, whatever numbers are in it. */
bool rfs_rules_is_named(const struct compiling *c, const char *name);
/* Says whether a rule, repeat or copy has a tensor of the side with this name, likewise. */
bool rfs_rules_has_name(const struct statement *statement, int side, const char *name);

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
