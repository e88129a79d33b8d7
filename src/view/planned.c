/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views whose files a planner plans: one for each destination rank, or in the root those of one
 * whole checkpoint, whose images are all made when the view is opened.
 */
#include "base/cleanup.h"
#include "base/text.h"
#include "formats/dcp/dcp.h"
#include "formats/formats.h"
#include "formats/hyper_parallel/hyper_parallel.h"
#include "formats/torch/document.h"
#include "view/kinds.h"
#include "view/rules_view.h"
#include "view/strategy_options.h"

/* ---- values that are not tensors, of a source in chunks -------------------------------------- */

/*
 * A file of torch.save has an object as a part of its dict, which is written again from the nodes
 * of the object's own pickle. Left out are an object with tensors in it, whose storages the file
 * would need; one with names that are not read; and the rest once the memory for all of them is
 * used up.
 */

#define MEMORY_MOST (UINT64_C(256) << 20)

/* Logs that N of them are left out; 0: nothing. */
static void log_objects(struct rfs_view *view, size_t n)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);

    if (n > 0)
        rfs_log(&view->log, RFS_WARNING,
                n == 1 ? "%s: %zu value that is not a tensor is left out"
                       : "%s: %zu values that are not tensors are left out",
                rfs_files_path(chunked->files, chunked->metadata), n);
}

bool rfs_view_objects_passed(const struct rfs_view *view)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    const int shown = view->options.shown;

    return chunked && ((shown == RFS_SHOW_DCP && rfs_dcp_owns(chunked)) ||
                       (shown == RFS_SHOW_HYPER_PARALLEL && rfs_hyper_parallel_owns(chunked)));
}

/*
 * Logs how many of them the files of the view do not have. Logs nothing where files can
 * have them, since the first file that is made logs it, nor in a view that opens late, for a
 * comparison.
 */
static void log_unshown(struct rfs_view *view)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    const bool tried =
        rfs_formats[view->options.format].objects && view->options.shown != RFS_SHOW_DCP;
    const bool taken = tried || rfs_view_objects_passed(view);

    if (chunked && !taken && !view->set->how.late)
        log_objects(view, chunked->objects.n);
}

/*
 * Checks that all tensors of the source that can't be shown are left out. Returns 0, or -ENOTSUP
 * with *err filled: it names the first that is not.
 */
static int check_unread(const struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->source);

    for (size_t i = 0; chunked && i < chunked->unread.n; i++) {
        struct rfs_intern *names = chunked->tables->names;
        const char *name = rfs_intern_text(names, chunked->unread.data[i].name);
        /* If convert= is given, names= has other names. */
        if (!view->rules && !rfs_names_shown(view->names, name))
            continue;
        return rfs_fail(err, -ENOTSUP,
                        RFS_OF(rfs_files_path(chunked->files, chunked->metadata), name),
                        view->rules ? "convert= of an export that leaves it out (names=)"
                                    : "names= mapping it to null to leave it out",
                        "is not read: %s", rfs_intern_text(names, chunked->unread.data[i].why));
    }
    return 0;
}

int rfs_view_objects_same_name(const char *source, const char *name, struct rfs_error *err)
{
    return rfs_fail(err, -EINVAL, RFS_OF(source, name), "names= with another name for one of them",
                    "two values, of which one is no tensor, are both shown by this name");
}

int rfs_view_objects_check_names(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    struct rfs_intern *seen = rfs_intern_new();
    int rc = seen ? 0 : rfs_fail_memory(err);

    for (size_t i = 0; rc == 0 && i < chunked->objects.n; i++) {
        const char *shown = rfs_names_shown(
            view->names, rfs_catalog_name(view->catalog, chunked->objects.data[i].name));
        const uint32_t n = rfs_intern_count(seen);
        const uint32_t id = shown ? rfs_intern_add(seen, shown, strlen(shown)) : n;
        if (id == RFS_NO_ID)
            rc = rfs_fail_memory(err);
        else if (id < n)
            rc = rfs_view_objects_same_name(rfs_catalog_path(view->catalog), shown, err);
    }
    rfs_intern_free(seen);
    return rc;
}

/* A parameter list whose objects are added to a document. */
struct adding {
    struct rfs_view *view;
    const struct rfs_params *params;
    RFS_VEC(struct rfs_torch) open; /* those that the document takes nodes from */
};

/* Ends it after the document. */
static void adding_end(struct adding *adding)
{
    for (size_t i = 0; i < adding->open.n; i++)
        rfs_torch_free(&adding->open.data[i]);
    free(adding->open.data);
}

/*
 * Opens an object. Returns 1 with *out to be freed, 0 if it is left out, or -errno with *err
 * filled.
 */
static int open_object(struct rfs_chunks *chunked, const struct rfs_chunked_object *object,
                       struct rfs_budget *budget, struct rfs_torch *out, struct rfs_error *err)
{
    struct rfs_error why = {0};

    if (!rfs_dcp_owns(chunked))
        return 0;
    const int rc = rfs_dcp_open_object(chunked, object, budget, out, &why);

    if (rc == -ENOTSUP || rc == -EFBIG)
        return 0;
    if (rc) {
        *err = why;
        return rc;
    }
    if (!rfs_torch_has_storages(out))
        return 1;
    rfs_torch_free(out);
    return 0;
}

/* Marks the names, by id, that the tensors have. NULL when out of memory. */
static unsigned char *names_taken(struct rfs_view *view, const struct rfs_params *params)
{
    const size_t n = rfs_intern_count(rfs_catalog_tables(view->catalog)->names);
    unsigned char *taken = calloc(n + 1, 1);

    for (size_t i = 0; taken && i < params->n; i++)
        taken[params->targets[i].shown_name] = 1;
    return taken;
}

static int check_name(struct rfs_view *view, const unsigned char *taken, const char *shown,
                      struct rfs_error *err)
{
    const uint32_t id =
        rfs_intern_find(rfs_catalog_tables(view->catalog)->names, shown, strlen(shown));

    return id == RFS_NO_ID || !taken[id]
               ? 0
               : rfs_view_objects_same_name(rfs_catalog_path(view->catalog), shown, err);
}

static int add(struct rfs_document *document, const char *name, const struct rfs_torch *torch,
               struct rfs_error *err)
{
    struct rfs_node *dict = (struct rfs_node *)(uintptr_t)document->root; /* its own */

    rfs_document_add(document, dict, rfs_document_text(document, name));
    rfs_document_add(document, dict, torch->pickle.root);
    return document->failed ? rfs_fail_memory(err) : 0;
}

/*
 * Adds the objects that can be read to a document, whose root is a dict of the tensors, by their
 * shown names, and logs once how many are left out. Returns 0 or -errno with *err filled.
 */
static int add_objects(void *ctx, struct rfs_document *document, struct rfs_error *err)
{
    struct adding *adding = ctx;
    struct rfs_view *view = adding->view;
    struct rfs_chunks *chunked = rfs_catalog_chunks(view->catalog);
    RFS_FREE unsigned char *taken = chunked ? names_taken(view, adding->params) : NULL;
    struct rfs_budget budget = {.most = MEMORY_MOST};
    size_t left_out = 0;
    int rc = 0;

    if (chunked)
        rc = taken ? rfs_view_objects_check_names(view, err) : rfs_fail_memory(err);
    for (size_t i = 0; chunked && rc >= 0 && i < chunked->objects.n; i++) {
        const struct rfs_chunked_object *object = &chunked->objects.data[i];
        const char *shown =
            rfs_names_shown(view->names, rfs_catalog_name(view->catalog, object->name));
        struct rfs_torch torch;
        if (!shown)
            continue;
        rc = check_name(view, taken, shown, err)
                 ?: open_object(chunked, object, &budget, &torch, err);
        left_out += rc == 0;
        if (rc > 0 && !RFS_PUSH(&adding->open, torch)) {
            rfs_torch_free(&torch);
            rc = rfs_fail_memory(err);
        }
        if (rc > 0)
            rc = add(document, shown, &torch, err);
    }
    if (left_out > 0 && !atomic_exchange((atomic_bool *)view->state, true))
        log_objects(view, left_out);
    return rc;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Returns the first file of the lowest rank that has one. */
static uint32_t first_file(const struct rfs_catalog *source)
{
    uint32_t rank = 0;

    while (rank + 1 < rfs_catalog_ranks(source) && !rfs_catalog_has(source, rank))
        rank++;
    return rfs_catalog_file(source, rank);
}

/*
 * Says whether files keep the values beside the tensors, by their names: those of the source are of
 * the format, and what they say is so of the view.
 */
static bool keeps_values(const struct rfs_view *view)
{
    const enum rfs_format format = (enum rfs_format)view->options.format;

    return rfs_formats[format].values && !rfs_catalog_chunks(view->source) &&
           rfs_catalog_format(view->source) == format && !view->rules && !view->options.hf_config;
}

static int encode(struct rfs_view *view, const struct rfs_view_listing *listing,
                  struct rfs_format_content *content, struct rfs_image **out, struct rfs_error *err)
{
    RFS_CLEANUP(adding_end) struct adding adding = {.view = view, .params = listing->params};
    struct rfs_format_content more = *content;

    more.add = add_objects;
    more.ctx = &adding;
    if (!keeps_values(view))
        return listing->row->encode(&more, out, err);
    struct rfs_files *files = rfs_catalog_files(view->source);
    const uint32_t file = first_file(view->source);
    struct rfs_reading reading;
    int rc = rfs_reading_begin(files, file, &reading);
    if (rc)
        return rfs_files_fail(err, rfs_files_path(files, file), rc);
    more.like = RFS_READING_SOURCE(&reading, rfs_files_path(files, file));
    rc = listing->row->encode(&more, out, err);
    const int end = rfs_reading_end(&reading);
    return rc || end == 0 ? rc : rfs_files_fail(err, rfs_files_path(files, file), end);
}

static int list(struct rfs_view *view, size_t file, struct rfs_view_listing *out,
                struct rfs_error *err)
{
    const struct rfs_rank_plan *plan;
    const int rc = rfs_planner_rank(view->planner, view->files[file].rank, &plan, err);

    if (rc == 0)
        *out = (struct rfs_view_listing){.params = plan->params,
                                         .whole = true,
                                         .row = &rfs_formats[view->options.format],
                                         .metadata = "ms"};
    return rc;
}

/* Shows rank_R/{prefix}R with the format's ending, or {prefix}R_part{stage} by stage. */
static void show_rank(struct rfs_view *view, uint32_t rank)
{
    const struct rfs_format_row *row = &rfs_formats[view->options.format];
    const int64_t part = rfs_planner_single_stage(view->planner);
    const struct rfs_view_folder folder = {rfs_arena_printf(&view->memory, "rank_%u", rank), rank,
                                           1};
    char stage[32] = "";

    if (part >= 0)
        snprintf(stage, sizeof stage, "_part%lld", (long long)part);
    struct rfs_view_file *file =
        rfs_view_show(view, "%s%u%s%s", view->options.prefix, rank, stage, row->endings[0]);
    file->rank = rank;
    file->parameters = RFS_IN_PLAN;
    file->mapped = row->mapped;
    RFS_ADD(&view->memory, &view->folders, folder);
}

static int show_ranks(struct rfs_view *view, struct rfs_error *err)
{
    /* Whether the log has the number of objects that are left out. */
    view->state = rfs_arena_zeros(&view->memory, 1, sizeof(atomic_bool));
    const int rc = rfs_view_make_room(view, rfs_view_ranks(view), err);

    for (uint32_t r = 0; rc == 0 && r < rfs_view_ranks(view); r++)
        show_rank(view, r);
    return rc;
}

const struct rfs_view_kind rfs_kind_ranks = {
    .by_rank = true, .open = show_ranks, .list = list, .encode = encode};

/* Shows one file in the root, of all tensors. */
static int show_one(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_format_row *row = &rfs_formats[view->options.format];
    const int rc = rfs_view_make_room(view, 1, err);

    if (rc)
        return rc;
    struct rfs_view_file *file = rfs_view_show(view, "model%s", row->endings[0]);
    file->parameters = RFS_IN_PLAN;
    file->mapped = row->mapped;
    return 0;
}

static const struct rfs_view_kind kind_one = {.open = show_one, .list = list, .encode = encode};

static const struct rfs_view_kind *kind_of(const struct rfs_view *view)
{
    static const struct rfs_view_kind *const kinds[] = {
        [RFS_SHOW_RANKS] = &rfs_kind_ranks,
        [RFS_SHOW_HUGGINGFACE] = &rfs_kind_flat,
        [RFS_SHOW_UNIFIED] = &rfs_kind_flat,
        [RFS_SHOW_PEFT] = &rfs_kind_flat,
        [RFS_SHOW_DCP] = &rfs_kind_dcp,
        [RFS_SHOW_HYPER_PARALLEL] = &rfs_kind_dcp,
        [RFS_SHOW_MINDFORMERS] = &rfs_kind_mindformers,
        [RFS_SHOW_GGUF] = &kind_one,
    };

    return rfs_catalog_has_parts(view->source) ? &rfs_kind_parts : kinds[view->options.shown];
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Refuses options for sources of torch.save where there are none. */
static int check_torch_options(const struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    const struct rfs_option *unused =
        rfs_options_first(options, RFS_OPTION_OF_PARTS, RFS_OPTION_OF_RANKS);
    const struct rfs_chunks *chunked = rfs_catalog_chunks(view->source);
    const bool has_dicts =
        !chunked || chunked->format->keyed || rfs_formats[rfs_catalog_format(view->source)].keyed;

    if (unused)
        return rfs_fail_usage(err, "the folder that dist_ckpt.save wrote",
                              "option %s is for hfai's PART_000.pt and so on, which the source "
                              "does not have",
                              unused->name);
    if (options->entry && !has_dicts)
        return rfs_fail_usage(err, "leave entry out",
                              "option entry says where in a state dict the tensors are, and the "
                              "source has none");
    return 0;
}

uint64_t rfs_view_count_parameters(const struct rfs_view *view)
{
    uint64_t n = view->src ? rfs_strategy_count(view->src) : 0;

    for (size_t i = 0; view->dst && i < rfs_strategy_count(view->dst); i++)
        n += !view->src || rfs_strategy_find(view->src, rfs_strategy_param(view->dst, i)) < 0;
    return n;
}

/*
 * Chooses the format of the files, which may follow that of the source, and checks the options
 * that are for one format alone.
 */
static int choose_format(struct rfs_view *view, struct rfs_error *err)
{
    const bool asked = view->options.format >= 0 || view->options.shown != RFS_SHOW_RANKS;
    const enum rfs_format format = rfs_view_options_format(
        &view->options, asked ? RFS_FORMAT_COUNT : rfs_catalog_gives(view->source));
    const int rc = rfs_options_check_limits(&view->options, rfs_format_words[format], err);

    view->options.format = (int)format;
    return rc;
}

/* Makes the planner, and all that it needs. */
static int plan(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    int rc = choose_format(view, err)
                 ?: rfs_view_take_strategies(view, err)
                 ?: check_torch_options(view, err)
                 ?: check_unread(view, err);

    if (rc)
        return rc;
    struct rfs_planner_config config = rfs_view_planning(view);
    config.dst = view->dst;
    config.keep_empty = !rfs_formats[options->format].no_empty;
    config.names = view->names;
    config.lost = view->set->how.late ? RFS_LOST_REPORTED : RFS_LOST_REFUSED;
    config.by_rules = rfs_view_by_rules(view);
    rc = rfs_planner_new(&config, &view->planner, err);
    if (rc) {
        rfs_view_offer_cuts(view, err);
        return rc;
    }
    rfs_planner_scale(view->planner, &view->scale);
    if (keeps_values(view))
        rfs_catalog_keep_values(view->source);
    log_unshown(view);
    return 0;
}

int rfs_kind_open(struct rfs_view *view, struct rfs_error *err)
{
    view->kind = kind_of(view);
    return (rfs_catalog_has_parts(view->source) ? 0 : plan(view, err))
               ?: view->kind->open(view, err);
}
