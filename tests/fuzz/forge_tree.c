/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/forge_tree.h"

#include "tests/fuzz/folder.h"
#include "tests/fuzz/forge.h"
#include "tests/fuzz/walk.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint8_t forge_next(struct forge_choices *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->data++;
}

unsigned forge_below(struct forge_choices *in, unsigned n)
{
    return forge_next(in) % n;
}

#define PARAMS 4
#define RANKS 4
#define CONTENT_BYTES (1u << 16) /* of a tensor, at most */

struct kind {
    const char *ckpt, *safetensors;
    unsigned bytes;
};
static const struct kind kinds[] = {
    {"Float32", "F32", 4}, {"Int8", "I8", 1},   {"BFloat16", "BF16", 2}, {"Float16", "F16", 2},
    {"Int64", "I64", 8},   {"Bool", "BOOL", 1}, {"Int4", "I4", 1},       {"Odd", "ODD", 1}};
#define KINDS (sizeof kinds / sizeof *kinds)

struct param {
    const char *name;
    unsigned kind, ndim;
    uint64_t dims[FORGE_DIMS]; /* whole */
    int cut[2];                /* axis, or -1, of the source and the destination */
    bool known[2];             /* in their strategies */
};

struct world {
    unsigned ranks[2], n;
    struct param params[PARAMS];
    bool safetensors;
};

static void choose_world(struct forge_choices *in, struct world *world)
{
    static const char *const names[] = {
        "w",  "layer.0.weight", "moments.w", "global_step", "\xc3\xa4",
        "w.", "accu_grads.w",   "rank_0"};

    world->safetensors = forge_below(in, 3) == 0;
    for (int side = 0; side < 2; side++)
        world->ranks[side] = 1 + forge_below(in, RANKS);
    world->n = 1 + forge_below(in, PARAMS);
    for (unsigned i = 0; i < world->n; i++) {
        struct param *param = &world->params[i];
        const uint8_t how = forge_next(in);
        *param = (struct param){.name = names[(forge_below(in, 2) * 4 + i) % 8],
                                .kind = forge_below(in, KINDS - 1),
                                .ndim = forge_below(in, FORGE_DIMS),
                                .known = {how % 8 > 0, how / 8 % 8 > 0}};
        for (unsigned k = 0; k < param->ndim; k++)
            param->dims[k] = (uint64_t)world->ranks[0] * world->ranks[1] * (1 + forge_below(in, 3));
        for (int side = 0; side < 2; side++)
            param->cut[side] = param->ndim > 0 ? (int)forge_below(in, param->ndim + 1) - 1 : -1;
    }
}

static void write_strategy(struct forge_choices *in, const struct world *world, int side,
                           const char *name)
{
    struct forged text = {0};
    bool first = true;

    forge_print(&text, "{\"current_stage\":1,\"parallel_layout_item\":{");
    for (unsigned i = 0; i < world->n; i++) {
        const struct param *param = &world->params[i];
        if (!param->known[side])
            continue;
        const uint8_t odd = forge_next(in);
        forge_print(&text,
                    "%s\"%s\":{\"dev_matrix\":[%u],\"field\":0,\"opt_weight_shard_size\":%d,",
                    first ? "" : ",", param->name, world->ranks[side] + (odd == 255),
                    odd == 254   ? (int)world->ranks[side]
                    : odd == 253 ? -1
                                 : 0);
        forge_print(&text, "\"opt_weight_shard_step\":%d,\"tensor_map\":[", odd == 254);
        for (unsigned k = 0; k < param->ndim; k++)
            forge_print(&text, "%s%d", k > 0 ? "," : "", (int)k == param->cut[side] ? 0 : -1);
        forge_print(&text, "],\"tensor_shape\":[");
        for (unsigned k = 0; k < param->ndim; k++)
            forge_print(&text, "%s%" PRIu64, k > 0 ? "," : "", param->dims[k] + (odd == 252));
        forge_print(&text, "]}");
        first = false;
    }
    forge_print(&text, "},\"parallel_strategy_item\":{}}");
    fuzz_file(name, text.data, text.n);
    free(text.data);
}

/* Something wrong with a tensor, now and then. */
static void spoil(struct forge_choices *in, struct forge_tensor *tensor, const struct world *world)
{
    static const uint64_t numbers[] = {0,         1,         7, UINT32_MAX, UINT64_C(1) << 61,
                                       INT64_MAX, UINT64_MAX};
    const uint8_t how = forge_next(in);

    if (how < 200)
        return;
    switch (how % 6) {
    case 0:
        tensor->dims[forge_below(in, FORGE_DIMS)] =
            numbers[forge_below(in, sizeof numbers / sizeof *numbers)];
        break;
    case 1:
        tensor->bytes = forge_below(in, 2) ? 0 : tensor->bytes / 2;
        break;
    case 2:
        tensor->ndim = forge_below(in, FORGE_DIMS + 1);
        break;
    case 3:
        tensor->dtype = world->safetensors ? kinds[forge_below(in, KINDS)].safetensors
                                           : kinds[forge_below(in, KINDS)].ckpt;
        break;
    case 4:
        tensor->name = world->params[forge_below(in, world->n)].name;
        break;
    default:
        tensor->name = "stray";
    }
}

/* Returns the bytes of a rank's tensors, which no other rank has. */
static const uint8_t *content_of(unsigned rank)
{
    static uint8_t content[CONTENT_BYTES + RANKS];
    static bool made;

    for (size_t i = 0; !made && i < sizeof content; i++)
        content[i] = (uint8_t)(i * 31);
    made = true;
    return content + rank;
}

static void write_rank(struct forge_choices *in, const struct world *world, unsigned rank)
{
    struct forge_tensor tensors[PARAMS];
    struct forged file = {0};
    char path[64];
    size_t n = 0;

    const uint8_t *content = content_of(rank);
    for (unsigned i = 0; i < world->n; i++) {
        const struct param *param = &world->params[i];
        struct forge_tensor tensor = {.name = param->name, .ndim = param->ndim, .content = content};
        uint64_t elements = 1;
        for (unsigned k = 0; k < param->ndim; k++) {
            tensor.dims[k] = param->dims[k] / ((int)k == param->cut[0] ? world->ranks[0] : 1);
            elements *= tensor.dims[k];
        }
        tensor.bytes = (size_t)elements * kinds[param->kind].bytes;
        tensor.bytes = tensor.bytes <= CONTENT_BYTES ? tensor.bytes : CONTENT_BYTES;
        tensor.dtype =
            world->safetensors ? kinds[param->kind].safetensors : kinds[param->kind].ckpt;
        spoil(in, &tensor, world);
        if (forge_next(in) < 250) /* else the rank lacks it */
            tensors[n++] = tensor;
    }
    for (size_t i = 0; i < n && !world->safetensors; i++)
        forge_ckpt(&file, &tensors[i]);
    if (world->safetensors)
        forge_safetensors(&file, tensors, n);
    const uint8_t tail = forge_next(in);
    if (tail > 250)
        file.n = file.n * (tail - 250u) / 6;
    else if (tail > 245)
        forge_add(&file, content, tail - 245u);
    snprintf(path, sizeof path, "src/rank_%u/w.%s", rank,
             world->safetensors ? "safetensors" : "ckpt");
    fuzz_file(path, file.data, file.n);
    free(file.data);
}

static const char *choose_options(struct forge_choices *in)
{
    static const char *const more[] = {FORGE_OPTIONS};
    static char options[512];
    const unsigned sides = forge_below(in, 4);

    /* The ranks' contents differ, whatever the strategy says. */
    snprintf(options, sizeof options, "cache=1M,index_cache=no,trust_strategy");
    if (sides != 1)
        snprintf(options + strlen(options), sizeof options - strlen(options),
                 ",src_strategy=%s/src.json", fuzz_folder());
    if (sides != 2)
        snprintf(options + strlen(options), sizeof options - strlen(options),
                 ",dst_strategy=%s/dst.json", fuzz_folder());
    else if (forge_below(in, 2))
        strcat(options, ",view=huggingface,file_size=1K");
    in->options = forge_below(in, sizeof more / sizeof *more);
    return strcat(options, more[in->options]);
}

reshard_view *forge_tree(struct forge_choices *in)
{
    struct world world;

    fuzz_folder_clear("");
    choose_world(in, &world);
    const char *options = choose_options(in);
    write_strategy(in, &world, 0, "src.json");
    write_strategy(in, &world, 1, "dst.json");
    for (unsigned rank = 0; rank < world.ranks[0]; rank++)
        if (rank == 0 || forge_next(in) < 250) /* else it is lost */
            write_rank(in, &world, rank);
    return walk_open("src", options);
}
