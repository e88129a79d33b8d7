/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of option order=layers:
 *
 *     model.embed_tokens.weight              names with a word of embeddings
 *     model.layers.2.mlp.down_proj.weight    names with a number between dots, up to which they are
 *     model.layers.10.mlp.down_proj.weight   of one layer; there the widest elements first
 *     model.norm.weight                      the others
 *     lm_head.weight                         names with a word of heads
 *
 * Digits compare as numbers. Words count in front of the number only, as layers have heads, too.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "formats/safetensors/safetensors.h"

enum part { EMBEDDINGS, LAYERS, OTHERS, HEADS };

/* The first that a name has decides: embed_out is a head. */
static const struct {
    const char *word;
    enum part part;
} words[] = {
    {"embed_out", HEADS}, {"head", HEADS},     {"output", HEADS},   {"embed", EMBEDDINGS},
    {"_emb", EMBEDDINGS}, {"wte", EMBEDDINGS}, {"wpe", EMBEDDINGS}, {"shared", EMBEDDINGS},
};

struct placed {
    struct rfs_image_tensor tensor;
    enum part part;
    size_t layer;   /* bytes of the name up to the end of its layer's number; 0: it has none */
    size_t at;      /* number by part and name */
    size_t group;   /* number of the layer */
    uint32_t width; /* bytes that it is aligned to */
    bool late;      /* behind all others: it would move the next layers off their alignment */
};

static size_t find_layer(const char *name)
{
    for (const char *at = name; at; at = strchr(at, '.')) {
        at += *at == '.';
        const size_t digits = strspn(at, "0123456789");
        if (digits > 0 && (at[digits] == '.' || !at[digits]))
            return (size_t)(at - name) + digits;
    }
    return 0;
}

/* Several numbers in an element are read as bytes. */
static uint32_t width_of(enum rfs_dtype dtype)
{
    return rfs_dtype_packed(dtype) > 1 ? 1 : rfs_dtype_bytes(dtype);
}

static struct placed place(const struct rfs_image_tensor *tensor)
{
    const size_t layer = find_layer(tensor->name);
    struct placed placed = {.tensor = *tensor,
                            .part = layer > 0 ? LAYERS : OTHERS,
                            .layer = layer,
                            .width = width_of((enum rfs_dtype)tensor->type->dtype)};

    for (size_t i = sizeof words / sizeof *words; i-- > 0;) {
        const char *found = strstr(tensor->name, words[i].word);
        if (found && (layer == 0 || found < tensor->name + layer))
            placed.part = words[i].part;
    }
    return placed;
}

RFS_COMPARE(by_name, struct placed, x, y,
            RFS_ORDER(x->part, y->part)
                ?: strverscmp(x->tensor.name, y->tensor.name)
                ?: RFS_ORDER(x->tensor.target, y->tensor.target))
RFS_COMPARE(in_file, struct placed, x, y,
            RFS_ORDER(x->late, y->late)
                ?: (x->late ? 0 : RFS_ORDER(x->group, y->group))
                ?: RFS_ORDER(y->width, x->width)
                ?: RFS_ORDER(x->at, y->at))

static bool are_of_one_layer(const struct placed *a, const struct placed *b)
{
    return a->part == b->part && a->layer == b->layer &&
           memcmp(a->tensor.name, b->tensor.name, a->layer) == 0;
}

/*
 * Numbers the layers. If tensors are to be ALIGNED, makes some late, so that every layer has a
 * multiple of the bytes of the widest element. As widths are powers of 2 and descend in a layer,
 * that suffices.
 */
static void group(struct placed *placed, size_t n, bool aligned)
{
    uint32_t widest = 1;

    for (size_t i = 0; i < n; i++)
        widest = placed[i].width > widest ? placed[i].width : widest;
    for (size_t begin = 0, end = 0; begin < n; begin = end) {
        uint64_t rest = 0;
        for (; end < n && are_of_one_layer(&placed[begin], &placed[end]); end++) {
            placed[end].at = end;
            placed[end].group = begin;
            rest = (rest + placed[end].tensor.type->bytes % widest) % widest;
        }
        for (size_t i = begin; aligned && rest > 0 && i < end; i++)
            placed[i].late = placed[i].tensor.type->bytes % widest > 0;
    }
}

int rfs_safetensors_sort_layers(struct rfs_image_tensor *tensors, size_t n, bool aligned)
{
    RFS_FREE struct placed *placed = calloc(n + 1, sizeof *placed);

    if (!placed)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        placed[i] = place(&tensors[i]);
    RFS_SORT(placed, n, by_name);
    group(placed, n, aligned);
    RFS_SORT(placed, n, in_file);
    for (size_t i = 0; i < n; i++)
        tensors[i] = placed[i].tensor;
    return 0;
}
