/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views whose files lie in the root: one whole checkpoint is divided into shards, a safetensors
 * file each, and a JSON file maps parameters to files. All are planned when the view is opened.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "formats/formats.h"
#include "view/adapter.h"
#include "view/kinds.h"
#include "view/model_files.h"
#include "view/rules_view.h"

/* ---- shards ---------------------------------------------------------------------------------- */

/* The state of the view: shards of a whole checkpoint. Shard P is file P; the last may be empty. */
struct shards {
    const struct rfs_params *params;
    bool own;             /* PARAMS is a list of the view's own, not the planner's */
    const char *metadata; /* text for the metadata of the files */
    size_t n;             /* targets that are in some shard */
    uint32_t *targets;    /* [n] positions in the parameter list, in the order of the map */
    uint32_t *shard_of;   /* [n] */
    uint32_t n_shards;
    const char **names; /* [n_shards] names of the files */
    uint32_t *order;    /* [n] targets by shard, in order: set by group_targets */
    size_t *ends;       /* [n_shards] where each shard ends in ORDER */
};

/* Begins shards with room for N targets of a parameter list. NULL when out of memory. */
static struct shards *shards_new(struct rfs_view *view, const struct rfs_params *params, size_t n)
{
    struct shards *shards = view->state = rfs_arena_zeros(&view->memory, 1, sizeof *shards);

    if (shards) {
        shards->params = params;
        shards->targets = rfs_arena_zeros(&view->memory, n, sizeof *shards->targets);
        shards->shard_of = rfs_arena_zeros(&view->memory, n, sizeof *shards->shard_of);
    }
    return view->memory.failed ? NULL : shards;
}

/* Returns the bytes of a target as shown. */
static uint64_t shown_bytes(const struct rfs_view *view, const struct rfs_target *target)
{
    return rfs_catalog_type(view->catalog, target->shown_type)->bytes;
}

/*
 * Groups the targets by shard, and makes room for the names, and for the files and MORE others.
 * Returns 0, or -ENOMEM with *err filled.
 */
static int group_targets(struct rfs_view *view, struct shards *shards, size_t more,
                         struct rfs_error *err)
{
    struct rfs_arena *memory = &view->memory;

    shards->names = rfs_arena_zeros(memory, shards->n_shards, sizeof *shards->names);
    shards->order = rfs_arena_zeros(memory, shards->n, sizeof *shards->order);
    shards->ends = rfs_arena_zeros(memory, shards->n_shards + 1, sizeof *shards->ends);
    if (memory->failed)
        return rfs_fail_memory(err);
    /* Ends are begins first: each moves on with the targets that are put there. */
    for (size_t i = 0; i < shards->n; i++)
        shards->ends[shards->shard_of[i] + 1]++;
    for (uint32_t p = 1; p <= shards->n_shards; p++)
        shards->ends[p] += shards->ends[p - 1];
    for (size_t i = 0; i < shards->n; i++)
        shards->order[shards->ends[shards->shard_of[i]]++] = shards->targets[i];
    return rfs_view_make_room(view, (size_t)shards->n_shards + more, err);
}

/* Returns where a shard begins in the order. */
static size_t begin_of(const struct shards *shards, size_t shard)
{
    return shard > 0 ? shards->ends[shard - 1] : 0;
}

static int list(struct rfs_view *view, size_t file, struct rfs_view_listing *out,
                struct rfs_error *err)
{
    const struct shards *shards = view->state;

    out->params = shards->params;
    out->row = &rfs_formats[view->options.format];
    out->metadata = shards->metadata;
    out->divide = "-o file_size=";
    for (size_t i = begin_of(shards, file); i < shards->ends[file]; i++) {
        const struct rfs_target *target = &shards->params->targets[shards->order[i]];
        if (!RFS_PUSH(&out->pieces, (struct rfs_view_piece){shards->order[i], target->shown_type,
                                                            target->shown_name, 0}))
            return rfs_fail_memory(err);
    }
    return 0;
}

/* Shows every shard that has a target. Returns 0 or -errno with *err filled. */
static int show_shards(struct rfs_view *view, struct shards *shards, const char *metadata,
                       struct rfs_error *err)
{
    int rc = view->memory.failed ? rfs_fail_memory(err) : 0;
    uint64_t bytes;

    shards->metadata = metadata;
    for (uint32_t p = 0; rc == 0 && p < shards->n_shards; p++) {
        const size_t n = shards->ends[p] - begin_of(shards, p);
        if (n == 0)
            continue;
        struct rfs_view_file *file = rfs_view_show(view, "%s", shards->names[p]);
        file->mapped = true;
        file->parameters = n;
        rc = rfs_view_plan_file(view, p, &bytes, err);
    }
    return rc;
}

/* Shows a text, which it takes over. */
static void show_text(struct rfs_view *view, const char *name, const struct rfs_image *image)
{
    struct rfs_view_file *file = rfs_view_show(view, "%s", name);

    file->mapped = true;
    rfs_view_give_image(file, image);
}

/*
 * Shows a map of each target of the first N shards to its file. Returns 0, or -ENOMEM with *err
 * filled.
 */
static int show_map(struct rfs_view *view, const struct shards *shards, uint32_t n,
                    const char *name, enum rfs_weight_map_style style, struct rfs_error *err)
{
    RFS_FREE uint32_t *names = calloc(shards->n + 1, sizeof *names);
    RFS_FREE const char **files = calloc(shards->n + 1, sizeof *files);
    struct rfs_weight_map map = {.style = style, .names = names, .files = files};
    struct rfs_image *image;
    size_t at = 0;

    if (!names || !files)
        return rfs_fail_memory(err);
    for (uint32_t p = 0; p < n; p++)
        for (; at < shards->ends[p]; at++) {
            const struct rfs_target *target = &shards->params->targets[shards->order[at]];
            names[at] = target->shown_name;
            files[at] = shards->names[p];
            map.total_size += shown_bytes(view, target);
        }
    map.n = at;
    if (rfs_safetensors_encode_map(rfs_catalog_tables(view->catalog), &map, &image))
        return rfs_fail_memory(err);
    show_text(view, name, image);
    return 0;
}

/* ---- view=huggingface ------------------------------------------------------------------------ */

/*
 * The files that save_torch_state_dict of huggingface_hub and save_pretrained of transformers make:
 * model.safetensors, or model-00001-of-0000N.safetensors and so on with
 * model.safetensors.index.json. They are filled in the order of the parameters
 * (split_state_dict_into_shards_factory): one that is larger than a file may be has a file for
 * itself, one that the file at hand has no room for begins the next. In the order of layers, one
 * that is larger ends the file at hand, too.
 */
#define FILE_BYTES UINT64_C(5000000000) /* the 5GB that both have for a default */
#define NO_SHARD UINT32_MAX

/* Gives a shard of their own to the targets from *first on that have none, if there is any. */
static void close_shard(struct shards *shards, size_t *first, size_t end)
{
    bool any = false;

    for (; *first < end; ++*first)
        if (shards->shard_of[*first] == NO_SHARD) {
            shards->shard_of[*first] = shards->n_shards;
            any = true;
        }
    shards->n_shards += any;
}

/* Takes all targets, in the order of the parameters or of layers. False when out of memory. */
static bool take_in_order(const struct rfs_view *view, struct shards *shards)
{
    const size_t n = shards->params->n;
    RFS_FREE struct rfs_image_tensor *tensors =
        rfs_view_list_tensors(view->catalog, shards->params, NULL, n);

    if (!tensors ||
        (view->options.order == RFS_BY_LAYERS && rfs_safetensors_sort_layers(tensors, n, false)))
        return false;
    for (size_t i = 0; i < n; i++)
        shards->targets[i] = tensors[i].target;
    shards->n = n;
    return true;
}

static bool fill_in_order(const struct rfs_view *view, struct shards *shards, uint64_t most)
{
    uint64_t filled = 0;
    size_t first = 0;

    if (!take_in_order(view, shards))
        return false;
    for (size_t i = 0; i < shards->n; i++) {
        const uint64_t bytes = shown_bytes(view, &shards->params->targets[shards->targets[i]]);
        shards->shard_of[i] = NO_SHARD;
        if (bytes > most) {
            if (view->options.order == RFS_BY_LAYERS) {
                close_shard(shards, &first, i);
                filled = 0;
            }
            shards->shard_of[i] = shards->n_shards++;
            continue;
        }
        if (bytes > most - filled) {
            close_shard(shards, &first, i);
            filled = 0;
        }
        filled += bytes;
    }
    close_shard(shards, &first, shards->n);
    return true;
}

/* Marks the names of an index that are none of weights, and counts those that are new. */
static size_t count_states(const struct rfs_view *view, const struct rfs_index *index,
                           unsigned char *marks, const char **first)
{
    size_t n = 0;

    for (size_t i = 0; index && i < index->n; i++) {
        const uint32_t id = index->entries[i].name;
        const char *name = rfs_catalog_name(view->catalog, id);
        if (marks[id] || !rfs_names_is_state(view->names, name))
            continue;
        marks[id] = 1;
        if (n++ == 0)
            *first = name;
    }
    return n;
}

/* Logs how many values are left out because they are none of weights. */
static int log_states(struct rfs_view *view, struct rfs_error *err)
{
    const size_t names = rfs_intern_count(rfs_catalog_tables(view->catalog)->names);
    RFS_FREE unsigned char *marks = calloc(names + 1, 1);
    const char *first = NULL;
    size_t n = 0;

    if (!marks)
        return rfs_fail_memory(err);
    for (uint32_t r = 0; r < rfs_catalog_ranks(view->catalog); r++) {
        const char *of_rank = NULL;
        n += count_states(view, rfs_catalog_ready(view->catalog, r), marks, &of_rank);
        first = first ? first : of_rank;
    }
    if (n > 0 && !view->set->how.late)
        rfs_log(&view->log, RFS_WARNING,
                "%zu value%s of the training beside the weights %s left out: '%s'%s; only=* shows "
                "%s",
                n, n == 1 ? "" : "s", n == 1 ? "is" : "are", first, n == 1 ? "" : " and others",
                n == 1 ? "it" : "them");
    return 0;
}

static int show_huggingface(struct rfs_view *view, const struct rfs_params *params,
                            struct rfs_error *err)
{
    const uint64_t most = view->options.file_size ? view->options.file_size : FILE_BYTES;
    struct shards *shards = shards_new(view, params, params->n);
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list names = {0};
    RFS_CLEANUP(rfs_view_model_config_end) struct rfs_view_model_config own = {0};
    struct rfs_view_model_config *model = view->rules ? &view->rules->model : &own;

    if (!shards || !fill_in_order(view, shards, most))
        return rfs_fail_memory(err);
    int rc = (view->rules ? 0 : rfs_view_model_find(view, &own, err))
                 ?: rfs_view_model_check(view, model, params, err)
                 ?: rfs_view_model_list(view, model, &names, err)
                 ?: group_targets(view, shards, 2 + names.n, err);
    for (uint32_t p = 0; !rc && p < shards->n_shards; p++)
        shards->names[p] = shards->n_shards == 1
                               ? "model.safetensors"
                               : rfs_arena_printf(&view->memory, "model-%05u-of-%05u.safetensors",
                                                  p + 1, shards->n_shards);
    if (!rc)
        rc = show_shards(view, shards, "pt", err);
    if (!rc && shards->n_shards > 1)
        rc = show_map(view, shards, shards->n_shards, "model.safetensors.index.json",
                      RFS_WEIGHT_MAP_HUGGINGFACE, err);
    if (!rc)
        rc = log_states(view, err);
    return rc ? rc : rfs_view_model_show(view, model, &names, err);
}

/* ---- view=peft ------------------------------------------------------------------------------- */

/* The files that save_pretrained of a PeftModel makes. */
static int show_peft(struct rfs_view *view, const struct rfs_params *params, struct rfs_error *err)
{
    struct shards *shards = shards_new(view, params, params->n);
    struct rfs_image *config;

    if (!shards || !fill_in_order(view, shards, UINT64_MAX))
        return rfs_fail_memory(err);
    int rc =
        group_targets(view, shards, 1, err) ?: rfs_view_adapter_config(view, params, &config, err);
    if (rc)
        return rc;
    /* There is a shard: without tensors there is no config. Shards have the first files (list). */
    shards->names[0] = RFS_PEFT_MODEL;
    rc = show_shards(view, shards, "pt", err);
    show_text(view, RFS_PEFT_CONFIG, config);
    return rc;
}

/* ---- view=unified ---------------------------------------------------------------------------- */

/*
 * The files that unified_safetensors of MindSpore makes (parallel/transform_safetensors.py):
 *
 *     part0.safetensors …      whole tensors of the source strategy, without accu_grads*
 *     param_name_map.json      which of them each of these is in
 *     hyper_param.safetensors  rank 0's other values, as they are there, accu_grads* included
 *
 * There are as many as files of 3 GiB would hold all bytes. The tensors, the largest first, each go
 * to the shard that has the least so far. Those of one size go in the order in which they come up
 * in the files of rank 0, rank 1, … (MindSpore: of the folders as the file system lists them).
 * Parameters that are neither in the strategy nor in rank 0's file are lost; here they are reported
 * in a warning. If rank 0 has no file, parameters that are proved equal on the other ranks are
 * taken.
 */
#define SHARD_BYTES (UINT64_C(3) << 30)

struct unifying {
    struct rfs_view *view;
    struct rfs_arena memory;        /* of what is needed until the shards are made */
    const struct rfs_params *whole; /* the planner's */
    struct rfs_params *own;         /* the view's: WHOLE, and additions */
    uint32_t *position_of;          /* by name id: position in WHOLE, or RFS_NO_ID */
    unsigned char *done;            /* [whole->n] 1: in a shard */
    size_t n_names;
    struct shards *shards; /* of OWN */
    struct rfs_error *err;
};

static void unifying_end(struct unifying *u)
{
    rfs_arena_free(&u->memory);
}

/* Returns whether NAME, the source's, is of a gradient. */
static bool is_gradient(const char *name)
{
    return strncmp(name, "accu_grads", strlen("accu_grads")) == 0;
}

/* Returns whether MindSpore takes NAME into the shards of tensors. */
static bool is_parameter(const struct rfs_view *view, const char *name)
{
    return !is_gradient(name) && (!view->src || rfs_strategy_find(view->src, name) >= 0);
}

/* Makes room for all, and a parameter list to which rank 0's own values can be added. */
static int prepare(struct unifying *u)
{
    const struct rfs_index *first = rfs_catalog_ready(u->view->catalog, 0);
    const size_t most = u->whole->n + (first ? first->n : 0);
    struct rfs_params *params =
        rfs_arena_alloc(&u->view->memory, sizeof *params + most * sizeof *params->targets);

    u->n_names = rfs_intern_count(rfs_catalog_tables(u->view->catalog)->names);
    u->position_of = rfs_arena_zeros(&u->memory, u->n_names, sizeof *u->position_of);
    u->done = rfs_arena_zeros(&u->memory, u->whole->n, 1);
    u->own = params;
    u->shards = shards_new(u->view, params, most);
    if (!u->shards || u->memory.failed)
        return rfs_fail_memory(u->err);
    u->shards->own = true;
    memcpy(params, u->whole, sizeof *params + u->whole->n * sizeof *params->targets);
    for (size_t i = 0; i < u->n_names; i++)
        u->position_of[i] = RFS_NO_ID;
    for (size_t i = 0; i < u->whole->n; i++)
        u->position_of[u->whole->targets[i].name] = (uint32_t)i;
    return 0;
}

static void take(struct unifying *u, uint32_t position, uint32_t shard)
{
    u->shards->shard_of[u->shards->n] = shard;
    u->shards->targets[u->shards->n++] = position;
    if (position < u->whole->n)
        u->done[position] = 1;
}

struct occurrence {
    uint64_t offset;
    size_t entry;
    uint32_t shard;
    uint32_t name;
};

RFS_COMPARE(by_occurrence, struct occurrence, x, y,
            RFS_ORDER(x->shard, y->shard)
                ?: RFS_ORDER(x->offset, y->offset)
                ?: RFS_ORDER(x->entry, y->entry))

/* Takes the parameters of one rank that did not come up before. */
static int take_of_rank(struct unifying *u, const struct rfs_index *index)
{
    RFS_FREE struct occurrence *found = calloc(index->n + 1, sizeof *found);

    if (!found)
        return rfs_fail_memory(u->err);
    for (size_t i = 0; i < index->n; i++)
        found[i] =
            (struct occurrence){index->entries[i].offset, i, index->file_of ? index->file_of[i] : 0,
                                index->entries[i].name};
    /* An index of safetensors files is sorted by name; here MindSpore goes by the header. */
    if (rfs_formats[rfs_catalog_format(u->view->catalog)].by_name)
        RFS_SORT(found, index->n, by_occurrence);
    for (size_t i = 0; i < index->n; i++) {
        const uint32_t position = u->position_of[found[i].name];
        if (position != RFS_NO_ID && !u->done[position] &&
            is_parameter(u->view, rfs_catalog_name(u->view->catalog, found[i].name)))
            take(u, position, 0);
    }
    return 0;
}

/* Takes the parameters in the order in which they come up; their shards are found later. */
static int take_parameters(struct unifying *u)
{
    int rc = 0;

    for (uint32_t r = 0; rc == 0 && r < rfs_catalog_ranks(u->view->catalog); r++) {
        const struct rfs_index *index = rfs_catalog_ready(u->view->catalog, r);
        rc = index ? take_of_rank(u, index) : 0;
    }
    return rc;
}

struct weighed {
    uint64_t bytes;
    size_t order; /* the order of coming up */
    uint32_t target;
};

RFS_COMPARE(by_weight, struct weighed, x, y,
            RFS_ORDER(y->bytes, x->bytes) ?: RFS_ORDER(x->order, y->order))

static uint32_t lightest(const uint64_t *filled, uint32_t n)
{
    uint32_t least = 0;

    for (uint32_t p = 1; p < n; p++)
        if (filled[p] < filled[least])
            least = p;
    return least;
}

/* Puts the parameters into as many shards as their size requires. */
static int divide(struct unifying *u)
{
    const uint64_t limit = u->view->options.file_size ? u->view->options.file_size : SHARD_BYTES;
    struct shards *shards = u->shards;
    RFS_FREE struct weighed *weighed = calloc(shards->n + 1, sizeof *weighed);
    RFS_FREE uint64_t *filled = calloc(shards->n + 1, sizeof *filled);
    uint64_t total = 0;

    if (!weighed || !filled)
        return rfs_fail_memory(u->err);
    for (size_t i = 0; i < shards->n; i++) {
        const uint32_t target = shards->targets[i];
        weighed[i] =
            (struct weighed){shown_bytes(u->view, &shards->params->targets[target]), i, target};
        total += weighed[i].bytes;
    }
    RFS_SORT(weighed, shards->n, by_weight);
    const uint64_t wanted = rfs_ceil_u64(total, limit);
    shards->n_shards = (uint32_t)(wanted < shards->n ? wanted : shards->n);
    if (shards->n > 0 && shards->n_shards == 0)
        shards->n_shards = 1; /* all are empty tensors, for which MindSpore fails */
    for (size_t i = 0; i < shards->n; i++) {
        const uint32_t shard = lightest(filled, shards->n_shards);
        shards->targets[i] = weighed[i].target;
        shards->shard_of[i] = shard;
        filled[shard] += weighed[i].bytes;
    }
    return 0;
}

/* Takes a value of rank 0 as it is there, which the planner would not, into the last shard. */
static int take_raw(struct unifying *u, const struct rfs_entry *entry)
{
    struct rfs_params *params = u->own;
    struct rfs_target *target = &params->targets[params->n];

    *target = (struct rfs_target){
        .name = entry->name, .type = entry->type, .geometry = RFS_NO_ID, .lengths = RFS_NO_ID};
    const int rc = rfs_planner_show(u->view->planner, target, u->err);
    if (rc || target->shown_name == RFS_NO_ID)
        return rc;
    take(u, (uint32_t)params->n++, u->shards->n_shards - 1);
    return 0;
}

/* Takes, if rank 0 is lost, values that the planner proved equal elsewhere. */
static void take_proved(struct unifying *u)
{
    for (uint32_t i = 0; i < u->whole->n; i++) {
        const struct rfs_target *target = &u->whole->targets[i];
        const char *name = rfs_catalog_name(u->view->catalog, target->name);
        if (!u->done[i] && target->geometry == RFS_NO_ID && !is_gradient(name))
            take(u, i, u->shards->n_shards - 1);
    }
}

/* Takes rank 0's values that are no parameters into a shard of their own. */
static int take_rest(struct unifying *u)
{
    const struct rfs_index *index = rfs_catalog_ready(u->view->catalog, 0);

    u->shards->n_shards++;
    if (!rfs_catalog_has(u->view->catalog, 0))
        take_proved(u);
    for (size_t i = 0; index && i < index->n; i++) {
        const struct rfs_entry *entry = &index->entries[i];
        const uint32_t position = u->position_of[entry->name];
        int rc = 0;
        if (position != RFS_NO_ID && u->done[position])
            continue;
        if (position != RFS_NO_ID && u->whole->targets[position].geometry == RFS_NO_ID)
            take(u, position, u->shards->n_shards - 1);
        else
            rc = take_raw(u, entry);
        if (rc)
            return rc;
        if (position != RFS_NO_ID)
            u->done[position] = 1;
    }
    return 0;
}

/* Warns of values that are lost; gradients of the other stages are not missed. */
static void warn_of_lost(const struct unifying *u)
{
    const struct rfs_target *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < u->whole->n; i++)
        if (!u->done[i] &&
            !is_gradient(rfs_catalog_name(u->view->catalog, u->whole->targets[i].name)) && n++ == 0)
            first = &u->whole->targets[i];
    if (first)
        rfs_log(&u->view->log, RFS_WARNING,
                "view=unified takes other values than parameters from rank_0 alone, as "
                "unified_safetensors "
                "does: "
                "%zu value%s that rank_0 lacks %s left out: '%s'%s",
                n, n == 1 ? "" : "s", n == 1 ? "is" : "are",
                rfs_catalog_name(u->view->catalog, first->name), n == 1 ? "" : " and others");
}

static void name_shards(struct unifying *u)
{
    struct shards *shards = u->shards;

    for (uint32_t p = 0; p < shards->n_shards; p++)
        shards->names[p] = p + 1 == shards->n_shards
                               ? "hyper_param.safetensors"
                               : rfs_arena_printf(&u->view->memory, "part%u.safetensors", p);
}

static int show_unified(struct rfs_view *view, const struct rfs_params *params,
                        struct rfs_error *err)
{
    RFS_CLEANUP(unifying_end)
    struct unifying u = {.view = view, .whole = params, .err = err};

    int rc = prepare(&u)
            ?: take_parameters(&u)
            ?: divide(&u)
            ?: take_rest(&u)
            ?: group_targets(view, u.shards, 2, err);
    if (rc)
        return rc;
    name_shards(&u);
    rc = show_shards(view, u.shards, "ms", err);
    if (rc)
        return rc;
    warn_of_lost(&u);
    return show_map(view, u.shards, u.shards->n_shards - 1, RFS_WEIGHT_MAP_MINDSPORE_NAME,
                    RFS_WEIGHT_MAP_MINDSPORE, err);
}

/* ---- the kind of view ------------------------------------------------------------------------ */

static const struct rfs_params *params_of(const struct rfs_view *view)
{
    const struct shards *shards = view->state;

    return shards->own ? shards->params : NULL;
}

static int open_flat(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_rank_plan *plan;
    const int rc = rfs_planner_rank(view->planner, 0, &plan, err);
    if (rc)
        return rc;
    switch (view->options.shown) {
    case RFS_SHOW_HUGGINGFACE:
        return show_huggingface(view, plan->params, err);
    case RFS_SHOW_PEFT:
        return show_peft(view, plan->params, err);
    default:
        return show_unified(view, plan->params, err);
    }
}

const struct rfs_view_kind rfs_kind_flat = {.open = open_flat, .list = list, .params = params_of};
