/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategy: parameters by name, each with a layout in one or more pipeline stages.
 *
 * Files merged over stages name parameters "<stage>-<name>"; a name without "-" is in stage 0, and
 * one with two is refused, as MindSpore splits at "-". Stages 0 to n-1 must all be there. Source:
 * _convert_to_list, _extract_pipeline_stage_num and _get_device_num_from_strategy of MindSpore
 * 2.10, except that each stage keeps its own layout, and that all layouts must agree in their
 * devices (MindSpore believes the first).
 */
#include "layout/strategy.h"

#include "base/cleanup.h"
#include "base/intern.h"
#include "base/order.h"
#include "base/text.h"
#include "base/vec.h"

#include <xxhash.h>

#define REMEDY_MERGE "the files of all stages, or a strategy merged from them"

/* A parameter in a stage. While reading, seq is its place in the file. */
struct placement {
    uint32_t param;
    uint32_t stage;
    uint32_t layout;
    uint32_t seq;
};

struct rfs_strategy {
    char *name;
    struct rfs_intern *params; /* id = position */
    struct rfs_intern *edges;  /* of manual splits */
    size_t n_params;
    uint32_t *first; /* parameter i's placements are first[i] … first[i+1]-1, ascending by stage */
    struct placement *placements;
    struct rfs_layout *layouts;
    size_t n_layouts;
    uint32_t stages;
    uint32_t devices;
    struct rfs_strategy_facts facts;
};

/* ---- what a strategy has --------------------------------------------------------------------- */

bool rfs_strategy_is_json(const char *name)
{
    return rfs_text_ends(name, ".json");
}

void rfs_strategy_free(struct rfs_strategy *strategy)
{
    if (strategy == NULL)
        return;
    rfs_intern_free(strategy->params);
    rfs_intern_free(strategy->edges);
    free(strategy->first);
    free(strategy->placements);
    free(strategy->layouts);
    free(strategy->name);
    free(strategy);
}

const char *rfs_strategy_name(const struct rfs_strategy *strategy)
{
    return strategy->name;
}

uint32_t rfs_strategy_stages(const struct rfs_strategy *strategy)
{
    return strategy->stages;
}

uint32_t rfs_strategy_devices(const struct rfs_strategy *strategy)
{
    return strategy->devices;
}

const struct rfs_strategy_facts *rfs_strategy_facts(const struct rfs_strategy *strategy)
{
    return &strategy->facts;
}

bool rfs_strategy_has_splits(const struct rfs_strategy *strategy)
{
    return rfs_intern_count(strategy->edges) > 0;
}

size_t rfs_strategy_count(const struct rfs_strategy *strategy)
{
    return strategy->n_params;
}

const char *rfs_strategy_param(const struct rfs_strategy *strategy, size_t i)
{
    return rfs_intern_text(strategy->params, (uint32_t)i);
}

size_t rfs_strategy_layouts(const struct rfs_strategy *strategy)
{
    return strategy->n_layouts;
}

ptrdiff_t rfs_strategy_find(const struct rfs_strategy *strategy, const char *param)
{
    const uint32_t id = rfs_intern_find(strategy->params, param, strlen(param));

    return id == RFS_NO_ID ? -1 : (ptrdiff_t)id;
}

/* Returns the first placement of parameter I in STAGE or a higher one, or NULL. */
static const struct placement *placement_from(const struct rfs_strategy *strategy, size_t i,
                                              uint32_t stage)
{
    const struct placement *placements = &strategy->placements[strategy->first[i]];
    const size_t n = strategy->first[i + 1] - strategy->first[i];
    const size_t at = RFS_BISECT(k, n, placements[k].stage >= stage);

    return at < n ? &placements[at] : NULL;
}

const struct rfs_layout *rfs_strategy_layout(const struct rfs_strategy *strategy, size_t i,
                                             uint32_t stage)
{
    const struct placement *at = placement_from(strategy, i, stage);

    return at != NULL && at->stage == stage ? &strategy->layouts[at->layout] : NULL;
}

uint32_t rfs_strategy_next_stage(const struct rfs_strategy *strategy, size_t i, uint32_t stage)
{
    const struct placement *at = placement_from(strategy, i, stage);

    return at != NULL ? at->stage : RFS_NO_STAGE;
}

/* ---- making it ------------------------------------------------------------------------------- */

struct rfs_strategy_builder {
    struct rfs_strategy *strategy; /* its layouts and placements are not in it yet */
    struct rfs_intern *keys;       /* of layouts, by content; id = position */
    RFS_VEC(struct placement) placements;
    RFS_VEC(struct rfs_layout) layouts;
    bool failed; /* for want of memory */
};

static void builder_free(struct rfs_strategy_builder *builder)
{
    if (builder == NULL)
        return;
    rfs_strategy_free(builder->strategy);
    rfs_intern_free(builder->keys);
    free(builder->placements.data);
    free(builder->layouts.data);
    free(builder);
}

struct rfs_strategy_builder *rfs_strategy_builder_new(const char *name,
                                                      const struct rfs_strategy_facts *facts)
{
    struct rfs_strategy_builder *builder = calloc(1, sizeof *builder);
    struct rfs_strategy *strategy = calloc(1, sizeof *strategy);

    if (builder == NULL || strategy == NULL) {
        free(builder);
        free(strategy);
        return NULL;
    }
    builder->strategy = strategy;
    builder->keys = rfs_intern_new();
    strategy->name = strdup(name);
    if (facts != NULL)
        strategy->facts = *facts;
    strategy->params = rfs_intern_new();
    strategy->edges = rfs_intern_new();
    if (builder->keys != NULL && strategy->name != NULL && strategy->params != NULL &&
        strategy->edges != NULL)
        return builder;
    builder_free(builder);
    return NULL;
}

void rfs_strategy_builder_cleanup(struct rfs_strategy_builder **builder)
{
    builder_free(*builder);
}

/* Splits "<stage>-<name>"; *name is left at the name proper. */
static int split_name(const struct rfs_layout_builder *item, const char **name, size_t *bytes,
                      uint32_t *stage)
{
    const char *dash = item->name_bytes > 0 ? memchr(item->name, '-', item->name_bytes) : NULL;

    *stage = 0;
    *name = item->name;
    *bytes = item->name_bytes;
    if (dash != NULL) {
        *name = dash + 1;
        *bytes -= (size_t)(*name - item->name);
        if (memchr(*name, '-', *bytes) != NULL)
            return rfs_layout_fail(item, "parameter names without \"-\"",
                                   "the name has more than one \"-\"; it must be <stage>-<name>");
        for (const char *p = item->name; p < dash; p++) {
            if (*p < '0' || *p > '9')
                return rfs_layout_fail(item, "parameter names without \"-\"",
                                       "the text before \"-\" in the name is not a stage number");
            *stage = *stage * 10 + (uint32_t)(*p - '0');
            if (*stage >= RFS_MAX_DEVICES)
                return rfs_layout_fail(item, NULL, "the stage in the name is too large");
        }
        if (dash == item->name)
            return rfs_layout_fail(item, "parameter names without \"-\"",
                                   "no stage number stands before \"-\" in the name");
    }
    if (*bytes == 0)
        return rfs_layout_fail(item, NULL, "a parameter without a name");
    if (memchr(*name, '\0', *bytes) != NULL)
        return rfs_layout_fail(item, NULL, "the parameter's name has a NUL in it");
    return 0;
}

#define KEY_WORDS (5 + RFS_MAX_DEVICE_AXES + 3 * RFS_MAX_CUTS)

/*
 * Writes a key that is equal for equal layouts, without the unused ends of the arrays. Returns its
 * words.
 */
static size_t layout_key(const struct rfs_layout *layout, uint64_t *key)
{
    size_t n = 0;

    key[n++] = (uint64_t)layout->n_dev << 48 | (uint64_t)layout->n_axes << 32 |
               (uint64_t)layout->n_expanded << 16 | (uint64_t)layout->unclear;
    key[n++] = (uint64_t)layout->n_edges << 32 | (uint64_t)layout->field_axis << 24 | layout->field;
    key[n++] =
        (uint64_t)layout->line << 32 | (uint64_t)layout->n_tail << 1 | (uint64_t)layout->open;
    key[n++] = (uint64_t)layout->opt_step << 32 | layout->opt_size;
    for (uint32_t i = 0; i < layout->n_dev; i++)
        key[n++] = layout->dev[i];
    for (uint32_t i = 0; i < layout->n_axes; i++)
        key[n++] = layout->start[i + 1];
    for (uint32_t i = 0; i < rfs_layout_cuts(layout); i++)
        key[n++] = (uint64_t)(int64_t)layout->map[i];
    for (uint32_t i = 0; i < layout->n_expanded; i++)
        key[n++] = layout->expanded[i];
    return n;
}

bool rfs_strategy_same_layout(const struct rfs_layout *a, const struct rfs_layout *b)
{
    uint64_t keys[2][KEY_WORDS];
    const size_t n = layout_key(a, keys[0]);

    return layout_key(b, keys[1]) == n && memcmp(keys[0], keys[1], n * sizeof *keys[0]) == 0 &&
           (a->n_edges == 0 || memcmp(a->edge, b->edge, a->n_edges * sizeof *a->edge) == 0);
}

uint32_t rfs_strategy_builder_layout(struct rfs_strategy_builder *builder,
                                     struct rfs_layout *layout)
{
    uint64_t key[KEY_WORDS];
    size_t n = layout_key(layout, key);
    uint32_t edges = 0;

    if (layout->n_edges > 0) {
        edges = rfs_intern_add(builder->strategy->edges, layout->edge,
                               layout->n_edges * sizeof *layout->edge);
        key[n++] = edges;
    }
    layout->id = edges == RFS_NO_ID ? edges : rfs_intern_add(builder->keys, key, n * sizeof *key);
    builder->failed |= layout->id == RFS_NO_ID;
    if (builder->failed)
        return layout->id = 0;
    if (layout->n_edges > 0)
        layout->edge = rfs_intern_bytes(builder->strategy->edges, edges, NULL);
    if (layout->id == builder->layouts.n)
        builder->failed = !RFS_PUSH(&builder->layouts, *layout);
    return layout->id;
}

int rfs_strategy_builder_place(struct rfs_strategy_builder *builder, const char *name, size_t bytes,
                               uint32_t stage, uint32_t layout_id, struct rfs_error *err)
{
    struct placement at = {
        .stage = stage, .layout = layout_id, .seq = (uint32_t)builder->placements.n};
    const char *file = builder->strategy->name;

    if (builder->placements.n >= UINT32_MAX)
        return rfs_fail(err, -EINVAL, RFS_IN(file), NULL, "the strategy has too many layouts");
    at.param = rfs_intern_add(builder->strategy->params, name, bytes);
    builder->failed |= at.param == RFS_NO_ID || !RFS_PUSH(&builder->placements, at);
    return 0;
}

int rfs_strategy_builder_add(struct rfs_strategy_builder *builder, struct rfs_layout_builder *item)
{
    const char *name;
    size_t bytes;
    uint32_t stage;
    const int rc = rfs_layout_check(item) ?: split_name(item, &name, &bytes, &stage);

    if (rc != 0)
        return rc;
    builder->strategy->facts.merged |= bytes < item->name_bytes;
    return rfs_strategy_builder_place(builder, name, bytes, stage,
                                      rfs_strategy_builder_layout(builder, &item->layout),
                                      item->err);
}

RFS_COMPARE(by_stage, struct placement, x, y,
            RFS_ORDER(x->stage, y->stage) ?: RFS_ORDER(x->seq, y->seq))

/* Orders placements by parameter and stage; of several in one stage the last written stays. */
static int sort_placements(struct rfs_strategy_builder *builder)
{
    struct rfs_strategy *strategy = builder->strategy;
    const size_t n = builder->placements.n, n_params = rfs_intern_count(strategy->params);
    const struct placement *in = builder->placements.data;
    struct placement *out = calloc(n, sizeof *out);
    uint32_t *first = calloc(n_params + 2, sizeof *first);
    uint32_t kept = 0, begin = 0;

    strategy->placements = out;
    strategy->first = first;
    strategy->n_params = n_params;
    if (out == NULL || first == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        first[in[i].param + 2]++;
    for (size_t p = 0; p < n_params; p++)
        first[p + 2] += first[p + 1];
    for (size_t i = 0; i < n; i++)
        out[first[in[i].param + 1]++] = in[i];
    /* Here first[p + 1] is the end of p; from here on first[p] becomes its new begin. */
    for (size_t p = 0; p < n_params; p++) {
        const uint32_t end = first[p + 1];
        RFS_SORT(out + begin, end - begin, by_stage);
        first[p] = kept;
        for (uint32_t i = begin; i < end; i++)
            if (i + 1 == end || out[i].stage != out[i + 1].stage)
                out[kept++] = out[i];
        begin = end;
    }
    first[n_params] = kept;
    return 0;
}

static int check_stages(struct rfs_strategy *strategy, struct rfs_error *err)
{
    const uint32_t n = strategy->first[strategy->n_params];
    uint32_t stages = 0, missing = 0;

    for (uint32_t i = 0; i < n; i++)
        if (strategy->placements[i].stage >= stages)
            stages = strategy->placements[i].stage + 1;
    unsigned char *seen RFS_FREE = calloc(stages, 1);
    if (seen == NULL)
        return rfs_fail_memory_of(err, strategy->name);
    for (uint32_t i = 0; i < n; i++)
        seen[strategy->placements[i].stage] = 1;
    while (missing < stages && seen[missing])
        missing++;
    if (missing < stages)
        return rfs_fail(err, -EINVAL, RFS_IN(strategy->name), REMEDY_MERGE,
                        "it has a stage %u but no stage %u", stages - 1, missing);
    strategy->stages = stages;
    return 0;
}

static int check_devices(struct rfs_strategy *strategy, struct rfs_error *err)
{
    const uint32_t n = strategy->first[strategy->n_params];
    const uint32_t devices = strategy->layouts[strategy->placements[0].layout].devices;

    for (uint32_t i = 1; i < n; i++) {
        const struct placement *at = &strategy->placements[i];
        const uint32_t other = strategy->layouts[at->layout].devices;
        if (other != devices)
            return rfs_fail(err, -EINVAL,
                            RFS_OF(strategy->name, rfs_strategy_param(strategy, at->param)), NULL,
                            "its device matrix has %u devices in stage %u, but that of '%s' has %u",
                            other, at->stage, rfs_strategy_param(strategy, 0), devices);
    }
    if ((uint64_t)devices * strategy->stages > RFS_MAX_DEVICES)
        return rfs_fail(err, -EINVAL, RFS_IN(strategy->name), NULL,
                        "%u stages of %u devices are more than %u devices", strategy->stages,
                        devices, RFS_MAX_DEVICES);
    strategy->devices = devices;
    return 0;
}

int rfs_strategy_builder_finish(struct rfs_strategy_builder *builder, struct rfs_strategy **out,
                                struct rfs_error *err)
{
    struct rfs_strategy *strategy = builder->strategy;
    int rc;

    if (builder->failed)
        return rfs_fail_memory_of(err, strategy->name);
    if (builder->placements.n == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(strategy->name),
                        "a strategy saved by a run with tensor or data parallelism",
                        "the strategy is empty: it has no parameter layouts");
    strategy->n_layouts = builder->layouts.n;
    strategy->layouts = RFS_STEAL(builder->layouts.data);
    if (sort_placements(builder) != 0)
        return rfs_fail_memory_of(err, strategy->name);
    rc = check_stages(strategy, err) ?: check_devices(strategy, err);
    if (rc == 0)
        *out = RFS_STEAL(builder->strategy);
    return rc;
}

/* ---- other names ----------------------------------------------------------------------------- */

/* The parameters in the making: their names, and the old position of each. */
struct renaming {
    struct rfs_intern *names; /* owned */
    uint32_t *of;             /* owned; [twice the old number] */
};

static void renaming_end(struct renaming *renaming)
{
    rfs_intern_free(renaming->names);
    free(renaming->of);
}

/* Adds a name, unless a parameter has it. False when out of memory. */
static bool add_name(struct renaming *renaming, const char *name, uint32_t of)
{
    const uint32_t n = rfs_intern_count(renaming->names);
    const uint32_t id = rfs_intern_add(renaming->names, name, strlen(name));

    if (id == n)
        renaming->of[id] = of;
    return id != RFS_NO_ID;
}

/* Makes the placements of the parameters by their new positions. 0 or -ENOMEM. */
static int place_again(struct rfs_strategy *strategy, const struct renaming *renaming)
{
    const size_t n = rfs_intern_count(renaming->names);
    const uint32_t *first = strategy->first;
    uint32_t *begin RFS_FREE = calloc(n + 1, sizeof *begin);

    if (begin == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        begin[i + 1] = begin[i] + first[renaming->of[i] + 1] - first[renaming->of[i]];
    struct placement *placements = calloc((size_t)begin[n] + 1, sizeof *placements);
    if (placements == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = begin[i]; k < begin[i + 1]; k++) {
            placements[k] = strategy->placements[first[renaming->of[i]] + k - begin[i]];
            placements[k].param = (uint32_t)i;
        }
    free(strategy->placements);
    free(strategy->first);
    strategy->placements = placements;
    strategy->first = RFS_STEAL(begin);
    strategy->n_params = n;
    return 0;
}

int rfs_strategy_rename(struct rfs_strategy *strategy,
                        const char *(*shown)(const void *ctx, const char *name), const void *ctx)
{
    RFS_CLEANUP(renaming_end)
    struct renaming renaming = {rfs_intern_new(),
                                calloc(2 * strategy->n_params + 1, sizeof *renaming.of)};
    bool ok = renaming.names && renaming.of;

    for (uint32_t i = 0; ok && !strategy->facts.by_rules && i < strategy->n_params; i++)
        ok = add_name(&renaming, rfs_strategy_param(strategy, i), i);
    for (uint32_t i = 0; ok && i < strategy->n_params; i++) {
        const char *name = shown(ctx, rfs_strategy_param(strategy, i));
        ok = !name || add_name(&renaming, name, i);
    }
    if (!ok || place_again(strategy, &renaming))
        return -ENOMEM;
    rfs_intern_free(strategy->params);
    strategy->params = RFS_STEAL(renaming.names);
    strategy->facts.by_rules = false; /* they have seen the names of the source */
    strategy->facts.exported = true;
    return 0;
}

/* ---- digests --------------------------------------------------------------------------------- */

static void add_word(XXH3_state_t *state, uint64_t word)
{
    XXH3_128bits_update(state, &word, sizeof word);
}

static void add_text(XXH3_state_t *state, const char *text)
{
    XXH3_128bits_update(state, text, strlen(text) + 1);
}

static void add_layout(XXH3_state_t *state, const struct rfs_layout *layout)
{
    const uint64_t words[] = {layout->n_dev,      layout->n_axes,  layout->n_expanded,
                              layout->open,       layout->n_tail,  layout->opt_step,
                              layout->opt_size,   layout->n_edges, layout->field,
                              layout->field_axis, layout->unclear, layout->devices};

    XXH3_128bits_update(state, words, sizeof words);
    XXH3_128bits_update(state, layout->dev, sizeof layout->dev);
    XXH3_128bits_update(state, layout->start, sizeof layout->start);
    XXH3_128bits_update(state, layout->map, sizeof layout->map);
    XXH3_128bits_update(state, layout->expanded, sizeof layout->expanded);
    if (layout->n_edges > 0)
        XXH3_128bits_update(state, layout->edge, layout->n_edges * sizeof *layout->edge);
}

int rfs_strategy_digest(const struct rfs_strategy *strategy, uint64_t digest[2])
{
    XXH3_state_t *state = XXH3_createState();
    unsigned char *known = calloc(rfs_strategy_layouts(strategy) + 1, 1);
    const bool ready = state && known;

    if (ready)
        XXH3_128bits_reset(state);
    for (size_t i = 0; ready && i < rfs_strategy_count(strategy); i++) {
        add_text(state, rfs_strategy_param(strategy, i));
        for (uint32_t s = rfs_strategy_next_stage(strategy, i, 0); s != RFS_NO_STAGE;
             s = rfs_strategy_next_stage(strategy, i, s + 1)) {
            const struct rfs_layout *layout = rfs_strategy_layout(strategy, i, s);
            add_word(state, s);
            add_word(state, layout->id);
            if (!known[layout->id])
                add_layout(state, layout);
            known[layout->id] = 1;
        }
        add_word(state, RFS_NO_STAGE);
    }
    if (ready) {
        const uint64_t words[] = {rfs_strategy_stages(strategy), rfs_strategy_devices(strategy),
                                  strategy->facts.first_item_stage, strategy->facts.by_rules};
        XXH3_128bits_update(state, words, sizeof words);
        const XXH128_hash_t hash = XXH3_128bits_digest(state);
        digest[0] = hash.low64;
        digest[1] = hash.high64;
    }
    XXH3_freeState(state);
    free(known);
    return ready ? 0 : -1;
}
