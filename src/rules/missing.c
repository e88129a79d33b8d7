/* SPDX-License-Identifier: Apache-2.0 */
#include "rules/missing.h"

#include "base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS_MOST 4096
#define LAYERS_DISTINCT 16 /* that are compared */
#define WHOLE "a whole checkpoint, or the config.json that belongs to it"

/* A checkpoint by its names. */
struct names {
    const struct rfs_known *known;
    const char *const *data;
    size_t n;
};

/* Tensors of layers, by their kinds. */
struct layers {
    size_t n, kinds;
    uint32_t *counts; /* [n][kinds]; owned */
    bool any;
};

static void free_layers(struct layers *layers)
{
    free(layers->counts);
}

/* Counts the tensors of N layers. 0 or -ENOMEM. */
static int count_layers(const struct names *names, size_t n, struct layers *out)
{
    struct rfs_known_tensor of;

    *out = (struct layers){.n = n, .kinds = rfs_known_kinds(names->known)};
    out->counts = calloc(n * out->kinds + 1, sizeof *out->counts);
    for (size_t k = 0; out->counts && k < names->n; k++)
        if (rfs_known_layer(names->known, names->data[k], &of) && of.layer < n) {
            out->counts[of.layer * out->kinds + of.kind]++;
            out->any = true;
        }
    return out->counts ? 0 : -ENOMEM;
}

static const uint32_t *counts_of(const struct layers *layers, size_t layer)
{
    return layers->counts + layer * layers->kinds;
}

static bool is_empty(const struct layers *layers, size_t layer)
{
    for (size_t k = 0; k < layers->kinds; k++)
        if (counts_of(layers, layer)[k] > 0)
            return false;
    return true;
}

/* Returns a kind that layer A has less of than B, where B has all that A has; else SIZE_MAX. */
static size_t find_less(const struct layers *layers, size_t a, size_t b)
{
    const uint32_t *x = counts_of(layers, a);
    const uint32_t *y = counts_of(layers, b);
    size_t less = SIZE_MAX;

    for (size_t k = 0; k < layers->kinds; k++) {
        if (x[k] > y[k])
            return SIZE_MAX;
        less = x[k] < y[k] && less == SIZE_MAX ? k : less;
    }
    return less;
}

/* Finds the first layers that differ from all before them. Returns how many there are. */
static size_t find_distinct(const struct layers *layers, size_t distinct[LAYERS_DISTINCT])
{
    const size_t bytes = layers->kinds * sizeof *layers->counts;
    size_t n = 0;

    for (size_t i = 0; i < layers->n && n < LAYERS_DISTINCT; i++) {
        bool again = false;
        for (size_t k = 0; k < n; k++)
            again |= memcmp(counts_of(layers, i), counts_of(layers, distinct[k]), bytes) == 0;
        distinct[n] = i;
        n += !again;
    }
    return n;
}

/*
 * Looks for a layer that has all of its kinds of tensors in common with another one, which has
 * more. Layers of two kinds, such as those with experts and without, each have some of their own.
 */
static int find_poor_layer(const struct names *names, const struct layers *layers,
                           const char *source, struct rfs_error *missed)
{
    size_t distinct[LAYERS_DISTINCT];
    const size_t n = find_distinct(layers, distinct);

    for (size_t i = 0; i < n * n; i++) {
        const size_t a = distinct[i / n], b = distinct[i % n];
        const size_t less = find_less(layers, a, b);
        if (less == SIZE_MAX)
            continue;
        rfs_fail(missed, -EINVAL, RFS_IN(source), WHOLE,
                 "layer %zu has %" PRIu32 " tensors like '%s', and layer %zu has %" PRIu32
                 ": a loader would make random weights",
                 a, counts_of(layers, a)[less], rfs_known_kind(names->known, less), b,
                 counts_of(layers, b)[less]);
        return 1;
    }
    return 0;
}

/* Looks for layers of the model without a tensor, and for those that have less than others. */
static int find_layer(const struct names *names, const struct rfs_hf_config *config,
                      const char *source, struct rfs_error *missed)
{
    const struct rfs_hf_value *value = rfs_hf_config_find(config, "num_hidden_layers");
    const size_t n =
        value && value->number > 0 && value->number <= LAYERS_MOST ? (size_t)value->number : 0;
    RFS_CLEANUP(free_layers) struct layers layers;

    if (count_layers(names, n, &layers))
        return -ENOMEM;
    for (size_t i = 0; i < n && layers.any; i++)
        if (is_empty(&layers, i)) {
            rfs_fail(missed, -EINVAL, RFS_IN(source), WHOLE,
                     "no tensor is of layer %zu, and the model has %zu: a loader would make random "
                     "weights",
                     i, n);
            return 1;
        }
    return find_poor_layer(names, &layers, source, missed);
}

/* Says whether a tensor is there. *others says whether there is one of another model, too. */
static bool has_tensor(const struct names *names, const char *name, bool *others)
{
    *others = false;
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->data[i], name) == 0)
            return true;
        *others = *others || !rfs_known_has(names->known, names->data[i]);
    }
    return false;
}

/*
 * Looks for the tensors that a model has once. The output layer may be tied to another tensor, if
 * config.json does not deny it, or another one may be in its place: that of a classifier.
 */
static int find_single(const struct names *names, const struct rfs_hf_config *config,
                       const char *source, struct rfs_error *missed)
{
    static const char *const singles[] = {"model.embed_tokens.weight", "model.norm.weight",
                                          "lm_head.weight"};
    const struct rfs_hf_value *tied = rfs_hf_config_find(config, "tie_word_embeddings");
    const bool untied = tied && tied->kind == RFS_HF_NUMBER && tied->number == 0;
    const size_t n = sizeof singles / sizeof *singles - !untied;

    for (size_t i = 0; i < n; i++) {
        bool others;
        if (!rfs_known_has(names->known, singles[i]) || has_tensor(names, singles[i], &others) ||
            (i == 2 && others))
            continue;
        rfs_fail(missed, -EINVAL, RFS_IN(source), WHOLE,
                 "the tensor '%s' of the model is not there: a loader would make random weights",
                 singles[i]);
        return 1;
    }
    return 0;
}

int rfs_missing_find(const struct rfs_known *known, const struct rfs_hf_config *config,
                     const char *const *data, size_t n, const char *source,
                     struct rfs_error *missed)
{
    const struct names names = {known, data, n};

    return find_layer(&names, config, source, missed)
               ?: find_single(&names, config, source, missed);
}
