/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/digest.h"

#include <xxhash.h>

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
    const uint64_t words[] = {layout->n_dev,  layout->n_axes,   layout->n_expanded, layout->open,
                              layout->n_tail, layout->opt_step, layout->opt_size,   layout->n_edges,
                              layout->field,  layout->unclear,  layout->devices};

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
                                  rfs_strategy_first_item_stage(strategy),
                                  rfs_strategy_by_rules(strategy)};
        XXH3_128bits_update(state, words, sizeof words);
        const XXH128_hash_t hash = XXH3_128bits_digest(state);
        digest[0] = hash.low64;
        digest[1] = hash.high64;
    }
    XXH3_freeState(state);
    free(known);
    return ready ? 0 : -1;
}
