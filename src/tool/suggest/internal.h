/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `reshard suggest`: one search for what a path is and what may be wanted of it. */
#pragma once

#include "base/text.h"
#include "survey/headers/inspect_file.h"
#include "survey/headers/needed_ranks.h"
#include "survey/rules_report.h"
#include "tool/common/source.h"
#include "tool/suggest/near.h"

enum { RFS_ADVICE_MOST = 4 /* commands */ };

/* The command line. */
struct rfs_advice_request {
    const char *path;
    struct rfs_settings options; /* options of the view */
    bool json;
};

/* A command, and what it is for. */
struct rfs_wanted {
    char *why, *command; /* owned */
};

/* The search. Its functions note in it when memory runs out. */
struct rfs_advice {
    const struct rfs_advice_request *request;
    char *path; /* without slashes at its end; owned */
    char *run;  /* the folder that PATH is the newest save in; owned; NULL: PATH is the user's */
    struct rfs_near near;
    struct rfs_path_list
        given; /* the config that the user gives for rules, in place of those near */
    struct rfs_inspect_model config; /* what the nearest config says */
    char *misfit;                    /* why rules for its model do not fit; owned; or NULL */
    char *unread;                    /* why no config is read; owned; or NULL */
    struct rfs_headers_source source;
    char *about;               /* owned */
    struct rfs_settings basis; /* the user's options, and the strategy of the source */
    struct rfs_settings model; /* entry= of a trainer's dict, dequantize, names=unwrap */
    struct rfs_settings rules; /* the options of conversion rules, or none */
    char *to;                  /* the side that they make; owned */
    uint32_t ranks;
    bool whole; /* the source is one whole checkpoint, as programs publish it */
    RFS_VEC(struct rfs_wanted) list;
    RFS_VEC(char *) notes; /* owned texts */
    struct rfs_error why;  /* the first failure of an attempt */
    bool failed;           /* out of memory */
};

/* ---- attempts -------------------------------------------------------------------------------- */

/* Adds a note, and takes TEXT; NULL: out of memory. */
void rfs_advice_note(struct rfs_advice *advice, char *text);
/* Frees the notes, so that there are none. */
void rfs_advice_free_notes(struct rfs_advice *advice);
/* Adds "PROGRAM PATH PLACE OPTIONS" and what it is for; PLACE may be NULL. */
void rfs_advice_command(struct rfs_advice *advice, const char *why, const char *program,
                        const char *path, const char *place, const struct rfs_settings *options);
/*
 * Opens a view by OPTIONS and plans its files, counting ENTRIES of its root. A WARY one is refused
 * if ranks contradict the strategy. 0, or -errno with *err filled.
 */
int rfs_advice_try(struct rfs_advice *advice, const struct rfs_settings *options, bool wary,
                   unsigned *entries, struct rfs_error *err);
/*
 * Returns whether a view by OPTIONS can show its files; ENTRIES may be NULL, else those of its root
 * are counted.
 */
bool rfs_advice_shows(struct rfs_advice *advice, const struct rfs_settings *options,
                      unsigned *entries);
/*
 * Opens a view through rules. Gives the side that they make in *to, malloc'ed, unless TO is NULL.
 * 0 or -errno with *err filled.
 */
int rfs_advice_open_rules(const struct rfs_advice *advice, const struct rfs_settings *options,
                          char **to, struct rfs_error *err);
/* Adds options, by names and values to a NULL; PAIRS may be NULL. */
void rfs_advice_pairs(struct rfs_advice *advice, struct rfs_settings *to, const char *const *pairs);

/* A command that may be wanted. */
struct rfs_offer {
    const char *why, *program, *place;
    bool converts;            /* through the rules that were found */
    const char *const *pairs; /* options: names and values, to a NULL; NULL: none */
    bool of_model;            /* with the options of the model; what converts has them, too */
};
#define RFS_PAIRS(...)                                                                             \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* Adds the command of an offer, unless there are enough, if it works. Returns whether it does. */
bool rfs_advice_offer(struct rfs_advice *advice, struct rfs_offer offer);

/* ---- the model ------------------------------------------------------------------------------- */

/* Finds the dict of the model among DICTS, as trainers call it. */
void rfs_advice_find_dict(struct rfs_advice *advice, const struct rfs_path_list *dicts);
/* Finds the dict of the model in a file of torch.save. */
void rfs_advice_find_dict_inside(struct rfs_advice *advice);
/* Returns the configs that count: that of the user, or those of the nearest place. */
const struct rfs_path_list *rfs_advice_configs(const struct rfs_advice *advice);
/* Reads what a config says of its model, or why it cannot be read. 0 or -ENOMEM. */
int rfs_advice_learn_config(struct rfs_advice *advice, const char *path, struct rfs_error *err);
/* Finds rules and a config that fit the tensors of the source. 0 or -errno with *err filled. */
int rfs_advice_find_rules(struct rfs_advice *advice, struct rfs_error *err);
/*
 * Finds rules that fit names which begin with a trainer's dict, though nothing says that it is one.
 * 0 or -errno with *err filled.
 */
int rfs_advice_find_rules_in_names(struct rfs_advice *advice, struct rfs_error *err);
/* Notes why no rules fit the model of the config. */
void rfs_advice_note_misfit(struct rfs_advice *advice);
