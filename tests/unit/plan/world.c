/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/plan/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t below(struct world *world, uint32_t n)
{
    return test_below(&world->random, n);
}

static bool in_strategy(const struct side *side, uint32_t param)
{
    for (uint32_t s = 0; s < side->stages; s++)
        if (side->lay[param][s].has)
            return true;
    return false;
}

/* One device axis after the other, as the slow model of the interop tests does (model.py). */
struct box world_box(const struct world *world, const struct lay *lay, uint32_t param,
                     uint32_t rank)
{
    struct box box = {{0, 0}, {world->dims[param][0], world->dims[param][1]}, 0};
    uint32_t at[3] = {0};
    uint32_t shard[3][2];
    uint32_t n_shard = 0;
    uint32_t left = lay->opt;

    for (uint32_t k = 3; k-- > 0;) {
        at[k] = rank % lay->dev[k];
        rank /= lay->dev[k];
    }
    for (uint32_t axis = 0; axis < 2; axis++)
        if (lay->map[axis] >= 0) {
            const uint32_t k = 2 - (uint32_t)lay->map[axis];
            box.len[axis] /= lay->dev[k];
            box.lo[axis] += at[k] * box.len[axis];
        }
    for (uint32_t k = 3; k-- > 0;) {
        const uint32_t size = lay->dev[k];
        if (lay->map[0] == 2 - (int)k || lay->map[1] == 2 - (int)k)
            continue;
        const uint32_t take = left < size ? left : size;
        shard[n_shard][0] = take;
        shard[n_shard++][1] = at[k] % take;
        box.free = box.free * DEVICES + at[k] / take;
        left /= take;
    }
    while (n_shard-- > 0) {
        box.len[0] /= shard[n_shard][0];
        box.lo[0] += shard[n_shard][1] * box.len[0];
    }
    return box;
}

static bool same_box(const struct box *a, const struct box *b)
{
    return memcmp(a->lo, b->lo, sizeof a->lo) == 0 && memcmp(a->len, b->len, sizeof a->len) == 0;
}

/* The layout of a parameter in a stage, or in the lowest that has one; NULL when there is none. */
static const struct lay *near(const struct side *side, uint32_t param, uint32_t stage)
{
    if (side->any && stage < side->stages && side->lay[param][stage].has)
        return &side->lay[param][stage];
    for (uint32_t s = 0; side->any && s < side->stages; s++)
        if (side->lay[param][s].has)
            return &side->lay[param][s];
    return NULL;
}

static const struct lay whole = {true, {1, 1, 1}, {-1, -1}, 1};

static void make_lay(struct world *world, uint32_t devices, uint32_t param, struct lay *lay)
{
    uint32_t left = devices;

    *lay = (struct lay){true, {1, 1, 1}, {-1, -1}, 1};
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t take;
        do
            take = 1 + below(world, left);
        while (left % take);
        lay->dev[k] = take;
        left /= take;
    }
    lay->dev[2] = left;
    for (uint32_t axis = 0; axis < 2; axis++) {
        const int pick = (int)below(world, 5) - 1; /* -1 … 3: often none */
        if (pick < 3 && world->dims[param][axis] && (axis == 0 || pick != lay->map[0]))
            lay->map[axis] = pick;
    }
    /*
     * An optimizer shard over whole free axes from the right, or over a part of the last of them.
     */
    for (uint32_t k = 3; k-- > 0 && below(world, 2);) {
        if (lay->map[0] == 2 - (int)k || lay->map[1] == 2 - (int)k)
            continue;
        lay->opt *= lay->dev[k];
    }
    if (lay->opt % 2 == 0 && below(world, 4) == 0)
        lay->opt = 2;
    uint32_t rest = lay->opt;
    for (uint32_t k = 3; k-- > 0;) {
        const uint32_t size = lay->dev[k];
        if (lay->map[0] == 2 - (int)k || lay->map[1] == 2 - (int)k)
            continue;
        if (rest < size ? size % rest : rest % size) {
            lay->opt = rest = 1;
            break;
        }
        rest = rest < size ? 1 : rest / size;
    }
}

static void make_side(struct world *world, struct side *side, bool target)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 6, 8, 12};

    *side = (struct side){.any = below(world, 8) > 0, .devices = 1, .stages = 1};
    if (!side->any)
        return;
    side->devices = counts[below(world, 7)];
    side->stages = below(world, 2) ? 1 : 1 + below(world, STAGES);
    for (uint32_t s = 0; s < side->stages; s++)
        for (uint32_t p = 0; p < PARAMS; p++) {
            /*
             * p0 is in stage 0 and each stage has something; extras are the destination's at most.
             */
            const bool must = (p == 0 && s == 0) || p == s + 1;
            const bool may = p < EXTRA ? below(world, 3) > 0 : target && below(world, 4) == 0;
            if (!must && !may)
                continue;
            /* Often that of the parameter before: both have one geometry then. */
            if (p > 0 && side->lay[p - 1][s].has && below(world, 3) > 0 &&
                world->dims[p][1] == world->dims[p - 1][1])
                side->lay[p][s] = side->lay[p - 1][s];
            else
                make_lay(world, side->devices, p, &side->lay[p][s]);
        }
}

/* A group of ranks with the same slice keeps it in KEEP of them. */
static void remove_redundancy(struct world *world, uint32_t s, uint32_t p, uint32_t keep)
{
    const struct side *src = &world->src;
    const uint32_t base = s * src->devices;
    const uint32_t turn = below(world, DEVICES);

    for (uint32_t r = 0; r < src->devices; r++) {
        const struct box mine = world_box(world, &src->lay[p][s], p, r);
        uint32_t n = 0;
        uint32_t place = 0;
        for (uint32_t other = 0; other < src->devices; other++) {
            const struct box theirs = world_box(world, &src->lay[p][s], p, other);
            place = other == r ? n : place;
            n += same_box(&mine, &theirs);
        }
        world->has[base + r][p] = (place + turn) % n < keep;
    }
}

static void make_files(struct world *world)
{
    const uint32_t mode = below(world, 4);
    const uint32_t keep = 1 + below(world, 4) / 3;
    const bool bare = mode == 1 && below(world, 3) == 0; /* nothing but the network's */

    for (uint32_t s = 0; s < world->src.stages; s++)
        for (uint32_t p = 0; p < PARAMS; p++) {
            const bool listed = p >= EXTRA || !world->src.any || world->src.lay[p][s].has;
            const bool nowhere = (below(world, 8) == 0 && p > 0) || (bare && p >= EXTRA);
            const uint32_t one = below(world, world->src.devices);
            const bool single = p >= EXTRA && below(world, 4) == 0 && mode > 0;
            for (uint32_t r = 0; r < world->src.devices; r++)
                world->has[s * world->src.devices + r][p] = listed && !nowhere &&
                                                            (!single || r == one) &&
                                                            (mode != 2 || below(world, 12) > 0);
            if (mode == 1 && listed && !nowhere && world->src.any && p < EXTRA)
                remove_redundancy(world, s, p, keep);
        }
}

void world_make(struct world *world, uint64_t seed)
{
    *world = (struct world){.random = seed};
    for (uint32_t p = 0; p < PARAMS; p++) {
        world->dims[p][0] = 48;
        world->dims[p][1] = below(world, 2) ? 24 : 0;
        world->same[p] = below(world, 2);
    }
    /* Extras of one element and of two. */
    world->dims[EXTRA][0] = world->dims[EXTRA][1] = 0;
    world->dims[EXTRA + 1][0] = 2;
    world->dims[EXTRA + 1][1] = 0;
    make_side(world, &world->src, false);
    make_side(world, &world->dst, true);
    memset(world->dst.lay[EXTRA], 0, sizeof world->dst.lay[EXTRA]);
    memset(world->dst.lay[EXTRA + 1], 0, sizeof world->dst.lay[EXTRA + 1]);
    for (uint32_t s = 0; s < world->src.stages; s++) {
        for (uint32_t i = 0; i < PARAMS; i++)
            world->order[s][i] = i;
        for (uint32_t i = PARAMS; i-- > 1;) {
            const uint32_t k = below(world, i + 1);
            const uint32_t swap = world->order[s][i];
            world->order[s][i] = world->order[s][k];
            world->order[s][k] = swap;
        }
    }
    make_files(world);
    const bool losses = below(world, 3) == 0;
    for (uint32_t r = 0; r < world->src.devices * world->src.stages; r++) {
        world->lost[r] = losses && below(world, 8) == 0;
    }
}

static unsigned char content(const struct world *world, uint32_t p, uint32_t rank, uint32_t element)
{
    const uint32_t noise = p >= EXTRA && world->same[p] ? 0 : rank;
    return (unsigned char)((element * 2654435761U + p * 97 + noise * 40503U) >> 7);
}

/* The slice of a source rank, in its own order. */
static size_t read_slice(const struct world *world, uint32_t stage, uint32_t p, uint32_t rank,
                         struct box *box, unsigned char *out)
{
    const struct lay *lay = near(&world->src, p, stage);
    size_t n = 0;

    *box = world_box(world, lay ? lay : &whole, p, rank % world->src.devices);
    for (uint32_t i = 0; i < (box->len[0] ? box->len[0] : 1); i++)
        for (uint32_t k = 0; k < (box->len[1] ? box->len[1] : 1); k++)
            out[n++] = content(world, p, rank,
                               (box->lo[0] + i) * (world->dims[p][1] ? world->dims[p][1] : 1) +
                                   box->lo[1] + k);
    return n;
}

static unsigned axes(const struct world *world, uint32_t p)
{
    return world->dims[p][0] == 0 ? 0 : world->dims[p][1] == 0 ? 1 : 2;
}

static void encode(const struct world *world, uint32_t r, struct bytes *file)
{
    const uint32_t s = r / world->src.devices;
    unsigned char bytes[48 * 24];

    *file = (struct bytes){0};
    for (uint32_t i = 0; i < PARAMS; i++) {
        const uint32_t p = world->order[s][i];
        struct box box;
        if (!world->has[r][p])
            continue;
        const size_t n = read_slice(world, s, p, r, &box, bytes);
        ckpt_tensor(file, (const char[]){'p', (char)('0' + p), '\0'}, "Int8", axes(world, p),
                    (const uint64_t[]){box.len[0], box.len[1]}, bytes, n);
    }
}

bool world_is_plain(const struct world *world)
{
    for (uint32_t s = 0; s < world->src.stages; s++) {
        const uint32_t base = s * world->src.devices;
        size_t first_bytes = 0;
        uint32_t first = RANKS;
        bool differ = false;
        bool sizes = false;
        for (uint32_t r = base; r < base + world->src.devices; r++) {
            struct bytes file;
            if (world->lost[r])
                continue;
            encode(world, r, &file);
            if (first == RANKS) {
                first = r;
                first_bytes = file.n;
            }
            differ |= memcmp(world->has[r], world->has[first], PARAMS) != 0;
            sizes |= file.n != first_bytes;
            bytes_free(&file);
        }
        if (differ && !sizes)
            return false;
    }
    return true;
}

void world_write(const struct world *world, const char *root)
{
    for (uint32_t r = 0; r < world->src.devices * world->src.stages; r++) {
        struct bytes file;
        char path[64];
        if (world->lost[r])
            continue;
        encode(world, r, &file);
        snprintf(path, sizeof path, "src/rank_%u/net-1_1.ckpt", r);
        tree_write(root, path, file.data, file.n);
        bytes_free(&file);
    }
}

/* The stride of the rightmost repeated axis longer than 1. */
static uint32_t opt_step(const struct lay *lay)
{
    uint32_t stride = 1;

    for (uint32_t k = 3; k-- > 0; stride *= lay->dev[k])
        if (lay->dev[k] > 1 && lay->map[0] != 2 - (int)k && lay->map[1] != 2 - (int)k)
            return stride;
    return 0;
}

static void add_item(char *text, size_t cap, const struct world *world, uint32_t p,
                     const struct lay *lay, const char *prefix)
{
    char maps[32] = "";
    char shape[32] = "";
    const size_t used = strlen(text);

    for (unsigned axis = 0; axis < axes(world, p); axis++) {
        snprintf(maps + strlen(maps), sizeof maps - strlen(maps), "%s%d", axis ? ", " : "",
                 lay->map[axis]);
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%u", axis ? ", " : "",
                 world->dims[p][axis]);
    }
    snprintf(text + used, cap - used,
             "%s\"%sp%u\": {\"dev_matrix\": [%u, %u, %u], \"tensor_map\": [%s], "
             "\"tensor_shape\": [%s], \"field\": 0, \"opt_weight_shard_step\": %u, "
             "\"opt_weight_shard_size\": %u}",
             used ? ", " : "", prefix, p, lay->dev[0], lay->dev[1], lay->dev[2], maps, shape,
             lay->opt > 1 ? opt_step(lay) : 0, lay->opt > 1 ? lay->opt : 0);
}

char *world_strategy(const struct world *world, const struct side *side)
{
    char items[8192] = "";
    char prefix[16] = "";
    char *text = NULL;

    for (uint32_t s = 0; s < side->stages; s++)
        for (uint32_t p = 0; p < PARAMS; p++) {
            if (side->stages > 1)
                snprintf(prefix, sizeof prefix, "%u-", s);
            if (side->lay[p][s].has)
                add_item(items, sizeof items, world, p, &side->lay[p][s], prefix);
        }
    assert_true(asprintf(&text,
                         "{\"current_stage\": 1, \"parallel_strategy_item\": {\"op\": {\"stage\": "
                         "0, \"parallel_strategy\": [[1]]}}, \"parallel_layout_item\": {%s}}",
                         items) > 0);
    return text;
}

bool world_is_part(const struct world *world)
{
    bool more = false;

    if (!world->src.any || !world->dst.any || world->src.stages > 1 || world->dst.stages > 1)
        return false;
    for (uint32_t p = 0; p < PARAMS; p++) {
        if (world->src.lay[p][0].has && !world->dst.lay[p][0].has)
            return false;
        more |= !world->src.lay[p][0].has && world->dst.lay[p][0].has;
    }
    return more;
}

bool world_is_lost(const struct world *world)
{
    const struct side *src = &world->src;

    for (uint32_t p = 0; p < PARAMS; p++) {
        uint32_t stages = 0;
        uint32_t s = 0;
        for (uint32_t i = 0; i < src->stages; i++)
            if (src->any && src->lay[p][i].has) {
                stages++;
                s = i;
            }
        if (stages != 1 || (world->dst.any && !in_strategy(&world->dst, p)))
            continue;
        for (uint32_t r = 0; r < src->devices; r++) {
            const struct box mine = world_box(world, &src->lay[p][s], p, r);
            bool left = false;
            for (uint32_t k = 0; k < src->devices; k++) {
                const struct box theirs = world_box(world, &src->lay[p][s], p, k);
                left |= same_box(&mine, &theirs) && !world->lost[s * src->devices + k];
            }
            if (!left)
                return true;
        }
    }
    return false;
}

static bool gives(const struct world *world, uint32_t s, uint32_t r, uint32_t p)
{
    return !world->lost[s * world->src.devices + r] && world->has[s * world->src.devices + r][p];
}

/* The rank that gives one element, or RANKS. */
static uint32_t provider(const struct world *world, uint32_t s, uint32_t p, uint32_t template,
                         uint32_t i, uint32_t k)
{
    const struct lay *lay = near(&world->src, p, s);
    const struct box ours = world_box(world, lay ? lay : &whole, p, template);
    uint32_t lowest = RANKS;

    for (uint32_t r = world->src.devices; r-- > 0;) {
        const struct box box = world_box(world, lay ? lay : &whole, p, r);
        if (i < box.lo[0] || i >= box.lo[0] + (box.len[0] ? box.len[0] : 1) || k < box.lo[1] ||
            k >= box.lo[1] + (box.len[1] ? box.len[1] : 1) || !gives(world, s, r, p))
            continue;
        if (box.free == ours.free)
            return r;
        lowest = r;
    }
    return lowest;
}

static bool slice(const struct world *world, uint32_t s, uint32_t template, const struct box *box,
                  struct wanted *out)
{
    const uint32_t p = out->param;
    const uint32_t row = world->dims[p][1] ? world->dims[p][1] : 1;

    out->n = 0;
    for (uint32_t i = box->lo[0]; i < box->lo[0] + (box->len[0] ? box->len[0] : 1); i++)
        for (uint32_t k = box->lo[1]; k < box->lo[1] + (box->len[1] ? box->len[1] : 1); k++) {
            const uint32_t r = provider(world, s, p, template, i, k);
            if (r == RANKS)
                return false;
            out->bytes[out->n++] = content(world, p, s * world->src.devices + r, i * row + k);
        }
    return true;
}

/* The rank that a copied parameter comes from, or RANKS. */
static uint32_t copier(const struct world *world, uint32_t s, uint32_t p, uint32_t template)
{
    const struct lay *lay = near(&world->src, p, s);
    uint32_t lowest = RANKS;
    uint32_t n = 0;
    uint32_t present = 0;
    bool agree = true;

    if (gives(world, s, template, p))
        return template;
    for (uint32_t r = world->src.devices; r-- > 0;) {
        present += !world->lost[s * world->src.devices + r];
        if (!gives(world, s, r, p))
            continue;
        if (lay) {
            const struct box mine = world_box(world, lay, p, template);
            const struct box theirs = world_box(world, lay, p, r);
            lowest = same_box(&mine, &theirs) ? r : lowest;
            continue;
        }
        agree &= n++ == 0 || content(world, p, s * world->src.devices + r, 0) ==
                                 content(world, p, s * world->src.devices + lowest, 0);
        lowest = r;
    }
    if (lay || (n == 1 && present > 1))
        return lowest;
    return agree && axes(world, p) == 0 ? lowest : RANKS;
}

static void find_needed(const struct world *world, uint32_t dst_stage, bool *needed)
{
    memset(needed, 0, STAGES);
    needed[0] = !world->src.any || world_is_part(world);
    for (uint32_t p = 0; world->src.any && p < PARAMS; p++) {
        if (world->dst.any && in_strategy(&world->dst, p) && !world->dst.lay[p][dst_stage].has)
            continue;
        for (uint32_t s = 0; s < world->src.stages; s++)
            needed[s] |= world->src.lay[p][s].has;
    }
}

enum { CUT, COPY, DROP };

static int role(const struct world *world, uint32_t p, uint32_t dst_stage)
{
    const bool in_src = !world->src.any || in_strategy(&world->src, p);
    const bool in_dst = !world->dst.any || in_strategy(&world->dst, p);
    const bool here = !world->dst.any || world->dst.lay[p][dst_stage].has;

    if (in_src && in_dst)
        return here ? CUT : DROP;
    return COPY;
}

/* Files of a whole stage that hold nothing were cut off, rather than made so. */
static bool whole_stage_lost(const struct world *world, uint32_t s)
{
    for (uint32_t r = 0; r < world->src.devices; r++)
        for (uint32_t p = 0; p < PARAMS; p++)
            if (gives(world, s, r, p))
                return false;
    return true;
}

/*
 * Names in the order of first appearance over the files of the needed stages, and the stage that
 * gives each.
 */
static uint32_t list_names(const struct world *world, const bool *needed, uint32_t *names,
                           uint32_t *stage_of)
{
    const uint32_t devices = world->src.devices;
    bool taken[PARAMS] = {false};
    uint32_t n = 0;

    for (uint32_t s = world->src.stages; s-- > 0;)
        for (uint32_t step = 0; needed[s] && step < devices; step++) {
            const uint32_t r = world_is_part(world) ? step : devices - 1 - step;
            for (uint32_t i = 0; i < PARAMS; i++) {
                const uint32_t p = world->order[s][i];
                if (!gives(world, s, r, p))
                    continue;
                if (!taken[p])
                    names[n++] = p;
                taken[p] = true;
                stage_of[p] = s;
            }
        }
    return n;
}

static bool fill(const struct world *world, uint32_t s, uint32_t rank, int kind, struct wanted *out)
{
    const uint32_t template = rank % world->dst.devices % world->src.devices;
    const uint32_t p = out->param;
    struct box box;

    if (kind == COPY) {
        const uint32_t from = copier(world, s, p, template);
        if (from == RANKS)
            return false;
        out->n = read_slice(world, s, p, s * world->src.devices + from, &box, out->bytes);
    } else {
        const struct lay *lay =
            world->dst.any ? &world->dst.lay[p][rank / world->dst.devices] : &whole;
        box = world_box(world, lay, p, rank % world->dst.devices);
        if (!slice(world, s, template, &box, out))
            return false;
    }
    out->dims[0] = box.len[0];
    out->dims[1] = box.len[1];
    return true;
}

int world_file(const struct world *world, uint32_t rank, struct wanted *out)
{
    const uint32_t stage = rank / world->dst.devices;
    bool needed[STAGES];
    uint32_t names[PARAMS];
    uint32_t stage_of[PARAMS] = {0};
    int n = 0;

    find_needed(world, stage, needed);
    for (uint32_t s = 0; s < world->src.stages; s++)
        if (needed[s] && whole_stage_lost(world, s))
            return -1;
    const uint32_t n_names = list_names(world, needed, names, stage_of);
    for (int kind = CUT; kind <= COPY; kind++)
        for (uint32_t i = 0; i < n_names; i++) {
            if (role(world, names[i], stage) != kind)
                continue;
            out[n].param = names[i];
            if (!fill(world, stage_of[names[i]], rank, kind, &out[n]))
                return -1;
            n++;
        }
    return n > 0 ? n : -1;
}
