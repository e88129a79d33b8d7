/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of a HuggingFace config.json: numbers and texts by key. A key inside of an object has
 * the object's before it, as in text_config.hidden_size. true and false are 1 and 0; a null counts
 * as a missing key, and 4.0 is 4. A list has its entries; lists and objects in it, and fractions,
 * are there, but have no value for rules. A key that comes twice is refused, unless both values are
 * one number or text.
 *
 * A config that a user gives may know the one that its source has itself: heads and groups that are
 * looked up and differ between them are remembered, and refused by rfs_hf_config_check.
 *
 * Only what was found to differ changes once a config is read. Threads: all functions but open,
 * read, free and compare. Cost: the texts and 56 bytes a key, and as many for each entry of a list.
 */
#pragma once

#include "base/error.h"

struct rfs_store;

/* RFS_HF_NOTHING: none that is found. */
enum rfs_hf_kind { RFS_HF_NUMBER, RFS_HF_TEXT, RFS_HF_LIST, RFS_HF_OTHER, RFS_HF_NOTHING };

struct rfs_hf_value {
    const char *key; /* NULL: an entry of a list */
    enum rfs_hf_kind kind;
    int64_t number;
    double real; /* the number, or a fraction, whose kind is RFS_HF_OTHER */
    const char *text;
    const struct rfs_hf_value *list;
    size_t n; /* entries of the list, or bytes of the text */
};

struct rfs_hf_config;

/*
 * Reads the file at PATH, a URL by STORE. 0 with *out owned by the caller, or -errno with *err
 * filled.
 */
int rfs_hf_config_open(struct rfs_store *store, const char *path, struct rfs_hf_config **out,
                       struct rfs_error *err);
/* Reads a text; NAME is for messages. */
int rfs_hf_config_read(const char *name, const char *text, size_t n, struct rfs_hf_config **out,
                       struct rfs_error *err);
void rfs_hf_config_free(struct rfs_hf_config *config);

#define RFS_HF_CUTS 4
/* Ranges of a text of BYTES bytes that are left out, ascending, with bytes between them. */
struct rfs_hf_cuts {
    size_t n, bytes;
    struct {
        size_t from, to;
    } cut[RFS_HF_CUTS];
};
/*
 * Gives the bytes of the members that say how the model is quantized, with their commas:
 * quantization_config of the whole and of its text_config, and compression_config. Without these
 * bytes the text is the config without those members. False if there is none.
 */
bool rfs_hf_config_quantization(const struct rfs_hf_config *config, struct rfs_hf_cuts *cuts);
/*
 * Compares heads and groups that are looked up from now on with those of OWN, which the config then
 * owns.
 * 0; or -ENOMEM with *err filled, and OWN is freed.
 */
int rfs_hf_config_compare(struct rfs_hf_config *config, struct rfs_hf_config *own,
                          struct rfs_error *err);
/* Refuses a config if a value that was looked up differs. 0, or -EINVAL with *err filled. */
int rfs_hf_config_check(const struct rfs_hf_config *config, struct rfs_error *err);
/* Returns the name of the config, for messages. */
const char *rfs_hf_config_name(const struct rfs_hf_config *config);
/* Returns the value of a key, or NULL. O(log keys). */
const struct rfs_hf_value *rfs_hf_config_find(const struct rfs_hf_config *config, const char *key);
/* Returns a value by its number, ascending by key; NULL beyond the last. */
const struct rfs_hf_value *rfs_hf_config_at(const struct rfs_hf_config *config, size_t i);
