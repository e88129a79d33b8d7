/* SPDX-License-Identifier: Apache-2.0 */
#include "view/inspect.h"

#include "assemble/cast.h"
#include "base/cleanup.h"
#include "formats/ckpt/ckpt.h"
#include "formats/npy/npy.h"
#include "plan/by_rules.h"
#include "plan/needed.h"
#include "rules/rules.h"
#include "view/internal.h"
#include "view/rules_view.h"

/* ---- needed ranks ---------------------------------------------------------------------------- */

void rfs_inspect_ranks_close(struct rfs_inspect_ranks *ranks)
{
    if (!ranks)
        return;
    rfs_needed_free(ranks->needed);
    rfs_strategy_free(ranks->src);
    rfs_strategy_free(ranks->dst);
    free(ranks);
}

RFS_CLEANUP_OF(close_ranks, struct rfs_inspect_ranks *, rfs_inspect_ranks_close)

int rfs_inspect_ranks_open(struct rfs_store *store, const char *src, const char *dst,
                           struct rfs_inspect_ranks **out, struct rfs_error *err)
{
    RFS_CLEANUP(close_ranks) struct rfs_inspect_ranks *ranks = calloc(1, sizeof *ranks);

    *out = NULL;
    if (!ranks)
        return rfs_fail_memory(err);
    const int rc = (src ? rfs_view_read_strategy(store, src, &ranks->src, err) : 0)
                       ?: (dst ? rfs_view_read_strategy(store, dst, &ranks->dst, err) : 0)
                       ?: rfs_needed_open(ranks->src, ranks->dst, &ranks->needed, err);
    if (rc)
        return rc;
    ranks->sources = rfs_needed_sources(ranks->needed);
    ranks->destinations = rfs_needed_ranks(ranks->needed);
    *out = RFS_STEAL(ranks);
    return 0;
}

int rfs_inspect_ranks_needed(struct rfs_inspect_ranks *ranks, uint32_t rank, unsigned char *wanted,
                             struct rfs_error *err)
{
    return rfs_needed_by(ranks->needed, rank, wanted, err);
}

/* ---- conversion rules ------------------------------------------------------------------------ */

/* The lists of shipped rules, as texts in the making. */
struct shipped_lists {
    FILE *models, *options;
};

static void put_words(void *ctx, const char *option, const struct rfs_rules_word *words)
{
    const struct shipped_lists *lists = ctx;
    FILE *out = option ? lists->options : lists->models;
    const char *before = ftell(out) > 0 ? " " : "";

    if (option)
        fprintf(out, "%s%s=", before, option);
    for (; words; words = words->next) {
        fprintf(out, "%s%s", option ? "" : before, words->text);
        fputs(option && words->next ? "|" : "", out);
        before = " ";
    }
}

/* Writes the two lists of RULES. 0 or -ENOMEM. */
static int write_lists(const struct rfs_rules *rules, char **models, char **options)
{
    size_t n;
    struct shipped_lists lists = {open_memstream(models, &n), open_memstream(options, &n)};
    bool good = lists.models && lists.options;

    if (good)
        rfs_rules_each_words(rules, put_words, &lists);
    good = good && !ferror(lists.models) && !ferror(lists.options);
    good = (!lists.models || fclose(lists.models) == 0) && good;
    good = (!lists.options || fclose(lists.options) == 0) && good;
    return good ? 0 : -ENOMEM;
}

int rfs_inspect_shipped(int (*each)(void *ctx, const struct rfs_inspect_shipped *rules,
                                    struct rfs_error *err),
                        void *ctx, struct rfs_error *err)
{
    char *name;
    int rc = 0;

    for (size_t i = 0; rc == 0 && (name = rfs_rules_name_at(i)); i++) {
        struct rfs_rules *rules;
        char *models = NULL;
        char *options = NULL;
        rc = rfs_rules_named(name, &rules, err);
        if (rc == 0 && write_lists(rules, &models, &options))
            rc = rfs_fail_memory(err);
        if (rc == 0)
            rc = each(
                ctx,
                &(struct rfs_inspect_shipped){
                    name, {rfs_rules_side(rules, 0), rfs_rules_side(rules, 1)}, models, options},
                err);
        rfs_rules_free(rules);
        free(models);
        free(options);
        free(name);
    }
    return rc;
}

static int compare_copies(reshard_view *set, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < set->n; i++)
        rc = rfs_view_compare_copies(set->data[i], err);
    return rc;
}

int rfs_inspect_rules(reshard_view *set, struct rfs_inspect_rules *out, struct rfs_error *err)
{
    struct rfs_view *view = rfs_view_only(set);

    if (!out)
        return compare_copies(set, err);
    if (!view)
        return rfs_fail_usage(err, "-o step=N, or -o epoch=N", "step=all shows several saves");
    const struct rfs_by_rules *by_rules = view->rules.made;
    if (!by_rules)
        return rfs_fail_usage(err, "a checkpoint of a model", "the source cannot be converted");
    const struct rfs_rules_map *map = rfs_by_rules_map(by_rules);
    *out = (struct rfs_inspect_rules){.from = map->side[!map->from_left],
                                      .to = map->side[map->from_left],
                                      .sources = rfs_by_rules_sources(by_rules),
                                      .dropped = map->dropped,
                                      .made = map->made.n,
                                      .incomplete = rfs_by_rules_incomplete(by_rules)};
    return compare_copies(set, err);
}

void rfs_inspect_made(reshard_view *set, size_t i, struct rfs_inspect_made *out)
{
    const struct rfs_rules_map *map = rfs_by_rules_map(rfs_view_only(set)->rules.made);
    const struct rfs_rules_made *made = &map->made.data[i];

    *out = (struct rfs_inspect_made){.name = made->name,
                                     .type = &made->type,
                                     .shown = made->shown,
                                     .file = made->file,
                                     .line = made->line};
    for (size_t k = 0; k < made->n; k++) {
        const struct rfs_rules_link *link = &map->links.data[made->links + k];
        const bool again = k > 0 && link->source == link[-1].source && !link[-1].zeros;
        out->sources += !again && !link->zeros;
    }
}

/* ---- one tensor as a file -------------------------------------------------------------------- */

RFS_CLEANUP_OF(free_image, struct rfs_image *, rfs_image_free)

int rfs_inspect_head(const struct rfs_whole *whole, const struct rfs_whole_tensor *tensor,
                     bool safetensors, struct rfs_bytes *out, struct rfs_error *err)
{
    const uint32_t position = (uint32_t)(tensor->target - whole->params->targets);
    const struct rfs_safetensors_content alone = {.n = 1};
    RFS_CLEANUP(free_image) struct rfs_image *image = NULL;
    int rc;

    *out = (struct rfs_bytes){0};
    if (safetensors)
        rc = rfs_view_encode_safetensors(whole->catalog, whole->params, &position, alone, &image,
                                         err);
    else if ((rc = rfs_npy_encode(tensor->type, position, &image)) != 0)
        rc = rc == -ENOMEM ? rfs_fail_memory(err)
                           : rfs_fail(err, rc, RFS_OF(whole->path, tensor->name), NULL,
                                      "the file would be too large");
    if (rc)
        return rc;
    rfs_bytes_put(out, image->literals, image->literal_bytes);
    return out->failed ? rfs_fail_memory(err) : 0;
}

_Static_assert(RFS_INSPECT_CKPT_CHUNK == RFS_CKPT_CHUNK, "the tool writes as the encoder does");

bool rfs_inspect_ckpt_head(struct rfs_bytes *out, const char *name, const struct rfs_type *type,
                           uint64_t content)
{
    return rfs_ckpt_put_head(out, name, strlen(name), type, content);
}

void rfs_inspect_floats(enum rfs_dtype from, const void *src, float *out, size_t n)
{
    rfs_cast(RFS_FLOAT32, out, from, src, n);
}
