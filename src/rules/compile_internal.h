/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that apply rules; between internal.h and compile.h. */
#pragma once

#include "base/intern.h"
#include "rules/compile.h"
#include "rules/internal.h"

#define NO_TENSOR UINT32_MAX
#define ANY_SIZE UINT64_MAX /* not known yet */
/* The most names and links that rules make: a config may have hostile numbers. */
#define CONVERT_MOST_TENSORS ((size_t)1 << 22)
#define CONVERT_MOST_LINKS ((size_t)1 << 23)
/* The most work for rules: numbers that are evaluated, and characters of names by the dozen. */
#define CONVERT_MOST_WORK (UINT64_C(1) << 27)

struct shape {
    bool known; /* how many axes it has */
    uint32_t ndim;
    uint64_t dims[RFS_MAX_DIMS]; /* or ANY_SIZE */
};

/* The meaning of a name: a number, the values of an index, or the word of an option. */
struct known {
    enum { KNOWN_NUMBER, KNOWN_INDEX, KNOWN_OPTION } kind;
    const char *name;
    int64_t value;    /* of a number, or the present one of an index */
    int64_t from, to; /* of an index */
    bool bound;       /* an index has a present value */
    bool tied;        /* of a number: it is what it is because of tie_word_embeddings */
    const char *word;
    const struct word *words;
};

/* A selection of the rows of an axis that one use of a tensor takes. */
struct taking {
    uint32_t axis;
    uint64_t first, count, step;
    uint32_t next; /* 1 + another of the same tensor, or 0 */
};

/* A tensor of either side. */
struct side_tensor {
    struct shape shape;
    uint8_t dtype;
    uint8_t kind;
    bool there;    /* of the source: it has it; of the other side: a rule makes it */
    bool dropped;  /* left out */
    bool loose;    /* rows of it on the left: the rest is left out */
    bool original; /* of the source: a copy of it is left out */
    const struct statement *taken; /* the rule that takes or makes it */
    uint32_t takings;              /* 1 + the first of parts; 0: all of it */
};

struct side {
    struct rfs_intern *names; /* by tensor */
    RFS_VEC(struct side_tensor) tensors;
};

struct digit {
    uint64_t count, step; /* along the axis of the tensor in the making */
    uint64_t leaf_step;
    uint8_t axis, leaf_axis;
};

/* A right tensor's place in the tensor in the making. */
struct piece {
    uint32_t tensor;
    uint32_t n;
    uint64_t at[RFS_MAX_DIMS];
    uint64_t leaf_at[RFS_MAX_DIMS];
    struct digit digits[RFS_RULES_DIGITS];
    bool casts[2];
    enum rfs_dtype dtypes[2];
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
    struct rfs_intern *known_names;    /* by number of KNOWN */
    RFS_VEC(struct known) known;
    struct side sides[2];
    int source; /* the side of the source */
    RFS_VEC(struct taking) takings;
    RFS_VEC(struct piece) pieces; /* of the present rule */
    RFS_VEC(char) text;           /* of the name at hand */
    struct rfs_rules_map *map;
    RFS_VEC(const struct statement *) applied; /* rules that count */
    RFS_VEC(struct waiting) waiting;
    bool tied; /* the number at hand depends on tie_word_embeddings, which is true */
};

/* Fails at the present statement. */
#define CONVERT_FAIL(c, param, remedy, ...)                                                        \
    rfs_rules_fail((c)->statement->file, (c)->statement->line, param, remedy, (c)->err, __VA_ARGS__)

/* values.c: numbers, names. 0 or -errno. */
/* Counts so much work. */
int rfs_rules_work(struct compiling *c, uint64_t work);
int rfs_rules_number(struct compiling *c, const struct number *number, int64_t *value);
/* A number of at least LEAST; NAME is for messages. */
int rfs_rules_count(struct compiling *c, const struct number *number, const char *name,
                    int64_t least, uint64_t *value);
struct known *rfs_rules_known(struct compiling *c, const char *name);
/* A name with the present values of indexes, in c->text, with a NUL. */
int rfs_rules_spell(struct compiling *c, const struct name_part *name);
/* Runs the values of an index that a name's holes use; see values.c. */
struct turns {
    struct known *index[4];
    uint32_t n;
    bool begun;
};
int rfs_rules_turns_begin(struct compiling *c, const struct node *left, struct turns *turns);
bool rfs_rules_turns_next(struct turns *turns);
void rfs_rules_turns_end(struct turns *turns);
int rfs_rules_turns_of_name(struct compiling *c, const struct name_part *name, struct turns *turns);

/* shapes.c */
/* The shape of a tensor expression, as far as its operands give it. */
int rfs_rules_shape(struct compiling *c, const struct node *node, struct shape *shape);
/* Completes SHAPE by WANT, axis by axis; they must agree. NAME for messages. */
int rfs_rules_unify(struct compiling *c, const char *name, const struct shape *want,
                    struct shape *shape);
/* The number of an axis of NDIM. */
int rfs_rules_axis(struct compiling *c, const struct number *number, uint32_t ndim, uint32_t *axis);
/* The dims as "[2, 3]". */
struct shape_text {
    char text[160];
};
struct shape_text rfs_rules_show(const struct shape *shape);
/* The right tensor of a leaf, by name, in *tensor. */
int rfs_rules_leaf(struct compiling *c, const struct node *node, uint32_t *tensor);
/* The first leaf's name, in c->text, for messages. */
const char *rfs_rules_leaf_name(struct compiling *c, const struct node *node);
int rfs_rules_annotated(struct compiling *c, const struct node *node, struct shape *shape);

/* learn.c: the present statement. 0, or -errno with c->err filled. */
int rfs_rules_check_model(struct compiling *c);
int rfs_rules_learn_number(struct compiling *c);
int rfs_rules_learn_index(struct compiling *c);
int rfs_rules_learn_option(struct compiling *c);
int rfs_rules_check_required(struct compiling *c);
/* That every option which the user gave is one of the rules. */
int rfs_rules_check_options(const struct compiling *c);
/* Whether the user gave this option. */
bool rfs_rules_is_given(const struct compiling *c, const char *option);

/* compile.c: a tensor of the source is left out. */
void rfs_rules_drop(struct compiling *c, uint32_t tensor);

/*
 * repeat.c: makes the copies that rules name, or leaves them out of the source and notes with what
 * they are to be compared. 0 or -errno.
 */
int rfs_rules_repeat(struct compiling *c);

/* pieces.c: adds the pieces of an expression of that shape, which is complete. */
int rfs_rules_pieces(struct compiling *c, const struct node *node, const struct shape *want);

/* sides.c */
uint32_t rfs_rules_tensor_add(struct compiling *c, int side, const char *name);
uint32_t rfs_rules_tensor_find(const struct compiling *c, int side, const char *name);
const char *rfs_rules_tensor_name(const struct compiling *c, int side, uint32_t tensor);
/* The tensor of the source that a rule needs. */
int rfs_rules_need(struct compiling *c, const char *name, uint32_t *tensor);
/* Notes that the present rule takes or makes a tensor, or rows of it. */
int rfs_rules_take_all(struct compiling *c, int side, uint32_t tensor);
int rfs_rules_take_rows(struct compiling *c, int side, uint32_t tensor,
                        const struct taking *taking);
/* Proves that every tensor is used once, and completely. */
int rfs_rules_prove(struct compiling *c);
/* Whether a rule or a copy has a tensor of the source with this name, whatever numbers are in it. */
bool rfs_rules_is_named(const struct compiling *c, const char *name);

/* links.c: the links of the present rule, from the pieces. */
struct left_rows {
    uint32_t axis;
    uint64_t first, step;
};
int rfs_rules_link(struct compiling *c, uint32_t left, const struct left_rows *rows,
                   uint32_t n_rows, const struct shape *shape);
int rfs_rules_link_same(struct compiling *c, uint32_t source, const char *name);
/* Orders links by the tensor that they make, and lists those tensors. */
int rfs_rules_link_finish(struct compiling *c);
