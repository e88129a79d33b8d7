/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/numbered.h"

#include "base/glob.h"

#define NUMBER_MOST 9 /* digits that are read */

enum { SHARD_FORM, FSDP_FORM, MODEL_FORM, OPT_FORM, N_FORMS };

static const struct rfs_numbered_form forms[N_FORMS] = {
    [SHARD_FORM] = {.kind = RFS_NUMBERED_SHARDS,
                    .similar = "shard-*-model-*-of-*.safetensors",
                    .words = {"shard-", "-model-", "-of-", ".safetensors"},
                    .roles = {RFS_NUMBERED_RANK, RFS_NUMBERED_PART, RFS_NUMBERED_COUNT},
                    .digits = 5,
                    .first = 1},
    [FSDP_FORM] = {.kind = RFS_NUMBERED_FSDP,
                   .similar = "model_world_size_*_rank_*.pt",
                   .words = {"model_world_size_", "_rank_", ".pt"},
                   .roles = {RFS_NUMBERED_COUNT, RFS_NUMBERED_RANK},
                   .digits = 1},
    [MODEL_FORM] = {.kind = RFS_NUMBERED_MINDFORMERS,
                    .similar = "*.safetensors",
                    .words = {"model-", "-", ".safetensors"},
                    .roles = {RFS_NUMBERED_RANK, RFS_NUMBERED_COUNT},
                    .digits = 7,
                    .prefixed = true},
    [OPT_FORM] = {.kind = RFS_NUMBERED_MINDFORMERS,
                  .words = {"opt-", "-", ".safetensors"},
                  .roles = {RFS_NUMBERED_RANK, RFS_NUMBERED_COUNT},
                  .digits = 7,
                  .prefixed = true,
                  .part = 1},
};

/* Reads the digits at *AT, which is moved behind them. False: none, or too many. */
static bool read_number(const char **at, unsigned digits, uint32_t *number, bool *exact)
{
    const size_t n = strspn(*at, "0123456789");

    if (n == 0 || n > NUMBER_MOST)
        return false;
    *exact = *exact && (n == digits || (n > digits && **at != '0'));
    *number = 0;
    for (size_t i = 0; i < n; i++)
        *number = *number * 10 + (uint32_t)((*at)[i] - '0');
    *at += n;
    return true;
}

static bool in_bounds(const struct rfs_numbered_name *file)
{
    const uint32_t first = file->form->first;
    const uint32_t count = file->of[RFS_NUMBERED_COUNT];
    const uint32_t rank = file->of[RFS_NUMBERED_RANK];
    const bool in_count =
        file->form == &forms[SHARD_FORM]
            ? file->of[RFS_NUMBERED_PART] >= first && file->of[RFS_NUMBERED_PART] <= count
            : rank < count;

    return count > 0 && count <= RFS_MAX_RANK && rank >= first && rank - first <= RFS_MAX_RANK &&
           in_count;
}

/* Reads a name from AT on by a form. */
static bool read_form(const struct rfs_numbered_form *form, const char *at,
                      struct rfs_numbered_name *out)
{
    *out = (struct rfs_numbered_name){.form = form, .exact = true};
    out->of[RFS_NUMBERED_PART] = form->part;
    for (unsigned i = 0; i <= RFS_NUMBERED_ROLES && form->words[i]; i++) {
        const size_t n = strlen(form->words[i]);
        if (strncmp(at, form->words[i], n) != 0)
            return false;
        at += n;
        if (i < RFS_NUMBERED_ROLES && form->words[i + 1] &&
            !read_number(&at, form->digits, &out->of[form->roles[i]], &out->exact))
            return false;
    }
    return *at == '\0' && in_bounds(out);
}

/*
 * Finds where the form begins behind a prefix, in a name that its writer would write. SIZE_MAX: it
 * does not.
 */
static size_t find_prefix(const struct rfs_numbered_form *form, const char *name)
{
    const size_t n = strlen(name);
    const size_t tail = strlen(form->words[0]) + strlen(form->words[1]) + strlen(form->words[2]) +
                        (size_t)2 * form->digits;

    return n < tail || (n > tail && name[n - tail - 1] != '-') ? SIZE_MAX : n - tail;
}

bool rfs_numbered_read(enum rfs_numbered kind, const char *name, struct rfs_numbered_name *out)
{
    for (size_t i = 0; i < N_FORMS; i++) {
        const struct rfs_numbered_form *form = &forms[i];
        const size_t prefix = form->prefixed ? find_prefix(form, name) : 0;
        if (form->kind != kind || prefix == SIZE_MAX || !read_form(form, name + prefix, out))
            continue;
        out->prefix = prefix;
        return !form->prefixed || out->exact;
    }
    return false;
}

bool rfs_numbered_like(enum rfs_numbered kind, const char *name)
{
    for (size_t i = 0; i < N_FORMS; i++)
        if (forms[i].kind == kind && forms[i].similar && rfs_glob_match(forms[i].similar, name))
            return true;
    return false;
}

uint32_t rfs_numbered_count(enum rfs_numbered kind, const char *name)
{
    struct rfs_numbered_name file;

    return rfs_numbered_read(kind, name, &file) ? file.of[RFS_NUMBERED_COUNT] : 0;
}

const struct rfs_numbered_form *rfs_numbered_model_form(void)
{
    return &forms[MODEL_FORM];
}
