/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion rules: those that are shipped, and the result of those of a view. */
#pragma once

#include "base/error.h"
#include "base/store.h"
#include "formats/index.h"
#include "reshard.h"

/* Rules that are shipped. The texts last for the call; words have blanks between. */
struct rfs_inspect_shipped {
    const char *name; /* as convert= takes it */
    const char *sides[2];
    const char *models;  /* each a model_type of config.json */
    const char *options; /* each as "NAME=WORD|WORD", the default first */
};
/*
 * Calls EACH for all shipped rules, by name, until it gives an error. 0, or -errno with *err
 * filled.
 */
int rfs_inspect_shipped(int (*each)(void *ctx, const struct rfs_inspect_shipped *rules,
                                    struct rfs_error *err),
                        void *ctx, struct rfs_error *err);

/* What the config.json of a model says. */
struct rfs_inspect_model {
    char *type;     /* model_type; owned; NULL: none */
    bool quantized; /* its weights are, by the config or the file of ModelOpt beside it */
};
/* Reads a config. 0, or -errno with *err filled; *out is empty then, else to be freed. */
int rfs_inspect_model(struct rfs_store *store, const char *path, struct rfs_inspect_model *out,
                      struct rfs_error *err);
void rfs_inspect_model_free(struct rfs_inspect_model *model);

/* A tensor that rules make; all is the view's. */
struct rfs_inspect_made {
    const char *name;
    const struct rfs_type *type; /* with the dtype of its sources */
    enum rfs_dtype shown;        /* after a cast */
    size_t sources;              /* tensors of the source that it is made of */
    const char *file;            /* where the rule is */
    uint32_t line;
};

/* The result of the rules of a view, whose memory the texts are. */
struct rfs_inspect_rules {
    const char *from, *to; /* names of the two sides */
    size_t sources, dropped, made;
    const char *first_dropped; /* unless dropped is 0 */
    size_t incomplete;         /* made tensors that need a lost part of the source */
};
/*
 * Compares the copies that a view's rules leave out with their originals, in all saves. Then gives
 * the result of the rules, unless OUT is NULL. 0, or -errno with *err filled: a copy differs; with
 * OUT, the source cannot be converted, or several saves are shown.
 */
int rfs_inspect_rules(reshard_view *view, struct rfs_inspect_rules *out, struct rfs_error *err);
/* Gives made tensor I, below out->made, of a view for which rfs_inspect_rules gave 0. */
void rfs_inspect_made(reshard_view *view, size_t i, struct rfs_inspect_made *out);
