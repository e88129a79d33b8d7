/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that DeepSpeed gives files: [bf16_][zero_pp_rank_D_]mp_rank_MM_model_states.pt or
 * …_optim_states.pt, layer_NN… of pipelines, and …expert_N… of experts.
 *
 * Source: _get_ckpt_name, _get_zero_ckpt_name and others in deepspeed/runtime/engine.py of 0.19.8.
 */
#include "formats/zero/zero.h"

/* Moves *AT behind TEXT, if that is there. */
static bool skip(const char **at, const char *text)
{
    const size_t n = strlen(text);
    const bool there = strncmp(*at, text, n) == 0;

    *at += there ? n : 0;
    return there;
}

/* Moves *AT behind a number of up to 9 digits. */
static bool skip_number(const char **at, uint32_t *number)
{
    const size_t n = strspn(*at, "0123456789");

    *number = 0;
    for (size_t i = 0; i < n && n <= 9; i++)
        *number = *number * 10 + (uint32_t)((*at)[i] - '0');
    *at += n;
    return n > 0 && n <= 9;
}

static bool read_ranks(const char **at, struct rfs_zero_name *out)
{
    out->ranked = skip(at, "zero_pp_rank_");
    return (!out->ranked || (skip_number(at, &out->rank) && skip(at, "_"))) &&
           skip(at, "mp_rank_") && skip_number(at, &out->mp);
}

/* "layer_" and so on, of pipelines and of experts. */
static bool read_other(const char *at, struct rfs_zero_name *out)
{
    uint32_t number;
    const bool expert = skip(&at, "expert_") || skip(&at, "expp_rank_");

    if (!expert && !skip(&at, "layer_"))
        return false;
    if (!skip_number(&at, &number))
        return false;
    out->role = expert || strncmp(at, "_expert_", 8) == 0 ? RFS_ZERO_EXPERT : RFS_ZERO_LAYER;
    const char *end = strstr(at, "_states.pt");
    return end && strcmp(end, "_states.pt") == 0;
}

bool rfs_zero_read_name(const char *name, struct rfs_zero_name *out)
{
    const char *at = name;

    *out = (struct rfs_zero_name){.role = RFS_ZERO_MODEL};
    if (read_other(name, out))
        return true;
    out->bf16 = skip(&at, "bf16_");
    if (!read_ranks(&at, out))
        return false;
    if (!out->bf16 && strcmp(at, "_model_states.pt") == 0)
        return true;
    out->role = RFS_ZERO_OPTIMIZER;
    return out->ranked && strcmp(at, "_optim_states.pt") == 0;
}

static unsigned see(const char *name)
{
    struct rfs_zero_name unused;

    return rfs_zero_read_name(name, &unused) ? RFS_SEEN_FILE : 0;
}

static struct rfs_seen settle(unsigned bits)
{
    return (struct rfs_seen){.as = bits ? RFS_SEEN_STATES : RFS_SEEN_NOTHING};
}

const struct rfs_seen_kind rfs_zero_seen = {.name = see, .settle = settle};
