/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a view, and what is said of it as a whole. */
#include "base/cancel.h"
#include "source/io/beneath.h"
#include "source/io/encrypted.h"
#include "source/saved/folder.h"
#include "view/bundle.h"
#include "view/crypt.h"
#include "view/hidden.h"
#include "view/internal.h"
#include "view/outputs.h"
#include "view/saved_sizes.h"
#include "view/side.h"
#include "view/strategies.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POOL_MAX 8
#define INDEX_LEAST (UINT64_C(64) << 20) /* of memory for indexes, or a quarter of the cache */

void rfs_view_give(void *to, void *from, size_t size)
{
    size_t theirs;

    memcpy(&theirs, to, sizeof theirs);
    memcpy(from, &theirs, sizeof theirs);
    memcpy(to, from, theirs < size ? theirs : size);
}

int rfs_view_report(reshard_error *out, const struct rfs_error *err, int code)
{
    reshard_error full = {.code = code, .usage = err->usage};

    if (!out || code == 0)
        return code;
    snprintf(full.message, sizeof full.message, "%s", err->text);
    rfs_view_give(out, &full, sizeof full);
    return code;
}

int rfs_view_log_failure(struct reshard_view *view, int rc, const struct rfs_error *err)
{
    if (rc != -EINTR && err->text[0])
        rfs_log_limited(&view->log, RFS_ERROR, "%s", err->text);
    return rc;
}

static uint64_t count_parameters(const struct reshard_view *view)
{
    uint64_t n = view->src ? rfs_strategy_count(view->src) : 0;

    for (size_t i = 0; view->dst && i < rfs_strategy_count(view->dst); i++)
        n += !view->src || rfs_strategy_find(view->src, rfs_strategy_param(view->dst, i)) < 0;
    return n;
}

static unsigned pool_threads(void)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 2 ? 2 : cores > POOL_MAX ? POOL_MAX : (unsigned)cores;
}

/* Only while the view is opened: later, several threads may call it. */
static void forward_progress(const void *ctx, uint64_t done, uint64_t total)
{
    const struct reshard_view *view = ctx;

    if (view->log_config.progress)
        view->log_config.progress(view->log_config.progress_ctx, done, total);
}

struct rfs_source_spec rfs_view_spec(const struct reshard_view *view, const char *source)
{
    const uint64_t share = view->options.cache / 4;
    struct rfs_source_spec spec = rfs_options_spec(&view->options, source);

    spec.fds = view->above ? &view->above->side->fds : NULL;
    spec.beneath = view->above ? view->above->beneath : view->beneath;
    spec.for_others = view->log_config.for_others;
    spec.sealed = view->sealed;
    spec.saved = view->saved;
    spec.indexed = forward_progress;
    spec.indexed_ctx = view;
    spec.index_most = share > INDEX_LEAST ? share : INDEX_LEAST;
    return spec;
}

static int open_source(struct reshard_view *view, const char *source, struct rfs_error *err)
{
    const struct rfs_source_spec spec = rfs_view_spec(view, source);

    int rc = rfs_catalog_open(&spec, &view->log, view->pool, &view->catalog, err);
    if (rc == 0)
        rc = rfs_view_try_key(view, err);
    if (rc == 0 && !rfs_catalog_has_parts(view->catalog))
        rc = rfs_view_strategies(view, err);
    if (rc)
        return rc;
    rfs_view_take_folder(view, rfs_catalog_path(view->catalog));
    return 0;
}

static int open_bundle(struct reshard_view *view, struct rfs_error *err)
{
    view->assembler = rfs_assembler_new(view->catalog, view->options.cache, view->pool);
    return view->assembler ? rfs_view_bundle_open(view, err) : rfs_fail_memory(err);
}

/* Options for sources or outputs of torch.save, and there are none. */
static int check_torch_options(const struct reshard_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;

    if (options->nshards > 0 || options->large_size != RFS_NO_SIZE || options->uneven_steps)
        return rfs_fail_usage(err, "the folder that dist_ckpt.save wrote",
                              "option %s is for hfai's PART_000.pt and so on, which the source "
                              "does not have",
                              options->nshards > 0                 ? "nshards"
                              : options->large_size != RFS_NO_SIZE ? "large_size"
                                                                   : "uneven_steps");
    if (options->entry && rfs_catalog_format(view->catalog) != RFS_FORMAT_TORCH)
        return rfs_fail_usage(err, "leave entry out",
                              "option entry says where in a .pt file the tensors are, and the "
                              "source has none");
    if (options->zip_crc && rfs_view_format(options) != RFS_FORMAT_TORCH)
        return rfs_fail_usage(err, "-o format=pt", "option zip_crc is for .pt files");
    return 0;
}

static int open_target(struct reshard_view *view, struct rfs_error *err)
{
    if (rfs_catalog_has_parts(view->catalog))
        return open_bundle(view, err);
    const struct rfs_output_map_config output_map = {view->options.names, view->options.dtype};
    int rc = check_torch_options(view, err);
    if (rc == 0)
        rc = rfs_output_map_open(&output_map, &view->output_map, err);
    if (rc)
        return rc;
    const struct rfs_planner_config config = {
        .catalog = view->catalog,
        .src = view->src,
        .dst = view->dst,
        .pool = view->pool,
        .log = &view->log,
        .strict = view->options.strict,
        .keep_empty = rfs_view_format(&view->options) != RFS_FORMAT_CKPT,
        .output_map = view->output_map,
        .late = view->late,
    };
    rc = rfs_planner_new(&config, &view->planner, err);
    if (rc)
        return rc;
    rfs_planner_scale(view->planner, &view->scale);
    view->n_ranks = view->scale.dst_devices * view->scale.dst_stages;
    view->parameters = count_parameters(view);
    view->assembler = rfs_assembler_new(view->catalog, view->options.cache, view->pool);
    return view->assembler ? rfs_view_list_files(view, err) : rfs_fail_memory(err);
}

static void forward_log(void *ctx, enum rfs_level level, const char *line)
{
    const reshard_config *config = ctx;
    config->log(config->log_ctx, (enum reshard_level)level, line);
}

/* Without a strategy the view is one whole checkpoint of another: worth mounting if something changes. */
static bool asks_for_something(const struct rfs_options *options)
{
    return options->src_strategy || options->dst_strategy || options->src_rules ||
           options->dst_rules || options->segmented || options->files || options->key_file ||
           options->key_env || options->key_fd >= 0 || options->format_given ||
           options->shown != RFS_SHOW_RANKS || options->names || options->dtype || options->crc ||
           options->all_steps || options->nshards > 0 || options->entry;
}

bool rfs_view_has_parts(const char *source)
{
    char *first;

    if (asprintf(&first, "%s/PART_000.pt", source) < 0)
        return false;
    const bool there = access(first, F_OK) == 0;
    free(first);
    return there;
}

/* Whoever may write to the source must not choose what root reads for others. */
static bool stays_beneath(const struct reshard_view *view)
{
    return !view->options.follow_links && (geteuid() == 0 || view->log_config.for_others);
}

static void take_part(struct reshard_view *view, const struct rfs_view_part *part)
{
    view->above = part->above;
    view->saved = part->above->saved;
    view->base = part->base;
    view->log_config.for_others = part->above->log_config.for_others;
    view->options.all_steps = false;
    view->options.step = part->save.step;
    view->options.epoch = part->save.epoch;
    view->options.cache = part->cache;
}

static int open_view(struct reshard_view *view, const char *source, const char *options,
                     const struct rfs_view_part *part, struct rfs_error *err)
{
    int rc = rfs_options_parse(options, &view->options, err);
    if (rc)
        return rc;
    /* hfai's parts are shown merged, too, whatever else is asked for. */
    if (!asks_for_something(&view->options) && !rfs_view_has_parts(source))
        return rfs_fail_usage(err, "-o src_strategy=FILE,dst_strategy=FILE",
                              "neither src_strategy nor dst_strategy is given, so there is "
                              "nothing to reshard");
    rc = rfs_view_check_outputs(&view->options, err);
    if (rc)
        return rc;
    view->pool = part ? part->above->pool : rfs_pool_new(pool_threads());
    if (!view->pool)
        return rfs_fail_memory(err);
    if (part)
        take_part(view, part);
    else
        rfs_pool_hold(view->pool, true); /* the caller may fork yet */
    if (!part && !(view->options.index_cache && strcmp(view->options.index_cache, "no") == 0))
        view->saved = rfs_saved_open(view->options.index_cache, &view->log);
    rc = rfs_view_load_key(view, err);
    if (rc == 0 && !part && stays_beneath(view))
        rc = rfs_beneath_open(source, &view->beneath, err);
    if (rc)
        return rc;
    if (view->options.all_steps)
        return rfs_side_open(view, source, options, err);
    rc = open_source(view, source, err);
    if (rc)
        return rc;
    struct rfs_use use; /* what is opened looks at indexes of planned ranks */
    rfs_catalog_begin(view->catalog, &use);
    rc = open_target(view, err);
    rfs_catalog_end(view->catalog, &use);
    view->opened = rc == 0;
    return rc;
}

int rfs_view_open(const char *source, const reshard_config *config,
                  const struct rfs_view_part *part, bool late, struct reshard_view **out,
                  struct rfs_error *err)
{
    struct reshard_view *view = calloc(1, sizeof *view);

    *out = NULL;
    if (!view)
        return rfs_fail_memory(err);
    view->late = late;
    pthread_mutex_init(&view->lock, NULL);
    rfs_cancel_init_cond(&view->summed);
    view->log_config = (reshard_config){.struct_size = sizeof view->log_config};
    if (config)
        memcpy(&view->log_config, config,
               config->struct_size < sizeof *config ? config->struct_size : sizeof *config);
    rfs_log_init(&view->log, view->log_config.log ? forward_log : NULL, &view->log_config);
    const int rc = open_view(view, source, view->log_config.options, part, err);
    view->log_config.options = NULL; /* the caller's */
    view->log_config.progress = NULL;
    if (rc) {
        reshard_close(view);
        return rc;
    }
    *out = view;
    return 0;
}

int rfs_view_start(const char *source, const reshard_config *config, bool late,
                   struct reshard_view **out, struct rfs_error *err)
{
    const int rc = rfs_view_open(source, config, NULL, late, out, err);

    if (rc == 0)
        rfs_pool_hold((*out)->pool, false);
    if (rc == 0 && (*out)->sealed) /* memory is not locked over a fork */
        rfs_blocks_drop(rfs_encrypted_blocks((*out)->sealed));
    return rc;
}

int reshard_open(const char *source, const reshard_config *config, reshard_view **out,
                 reshard_error *err)
{
    struct rfs_error failure = {0};

    return rfs_view_report(err, &failure, rfs_view_start(source, config, false, out, &failure));
}

void reshard_refuse_device(reshard_view *view, dev_t device)
{
    if (view->catalog)
        rfs_files_set_home(rfs_catalog_files(view->catalog), device);
    for (size_t i = 0; view->side && i < view->side->n; i++)
        reshard_refuse_device(view->side->data[i].view, device);
}

/* So that the pool has only to end what it has begun. */
static void stop(struct reshard_view *view)
{
    if (view->assembler)
        rfs_assembler_stop(view->assembler);
    for (size_t i = 0; view->side && i < view->side->n; i++)
        stop(view->side->data[i].view);
}

void reshard_close(reshard_view *view)
{
    if (!view)
        return;
    if (!view->above)
        stop(view);
    if (!view->above)
        rfs_pool_free(view->pool); /* first: read-ahead jobs use all the rest */
    rfs_side_close(view);
    if (view->opened)
        rfs_view_save(view);
    rfs_view_sizes_free(atomic_load(&view->sizes));
    rfs_view_hidden_end(view);
    rfs_assembler_free(view->assembler);
    rfs_planner_free(view->planner);
    rfs_view_bundle_free(view->bundle);
    rfs_output_map_free(view->output_map);
    rfs_catalog_close(view->catalog);
    if (!view->above) {
        rfs_encrypted_free(view->sealed);
        rfs_key_free(view->key);
        rfs_saved_close(view->saved);
    }
    rfs_beneath_free(view->beneath);
    rfs_strategy_free(view->src);
    rfs_strategy_free(view->dst);
    for (size_t i = 0; i < view->images.n; i++)
        rfs_image_free(view->images.data[i]);
    free(view->images.data);
    free(view->params);
    for (size_t f = 0; f < view->n_files; f++) {
        free(view->files[f].dir);
        free(view->files[f].name);
        free(view->files[f].storage_crcs);
    }
    free(view->files);
    rfs_options_free(&view->options);
    rfs_log_destroy(&view->log);
    pthread_cond_destroy(&view->summed);
    pthread_mutex_destroy(&view->lock);
    free(view);
}

static void summarize(const struct reshard_view *view, reshard_summary *out)
{
    *out = (reshard_summary){
        .source_ranks = view->scale.src_devices * view->scale.src_stages,
        .source_stages = view->scale.src_stages,
        .target_ranks = view->n_ranks,
        .target_stages = view->scale.dst_stages,
        .parameters = view->parameters,
        .entries = 1 + view->n_files + (view->flat ? view->folder != NULL : view->n_ranks),
        /* Those that are, come last. */
        .mapped = view->n_files > 0 && rfs_view_is_mapped(view, view->n_files - 1),
    };
}

void reshard_summarize(reshard_view *view, reshard_summary *out)
{
    reshard_summary full;
    uint64_t entries = 1;

    for (size_t i = 0; view->side && i < view->side->n; i++) {
        summarize(view->side->data[i].view, &full);
        entries += full.entries;
    }
    /* Strategies and options are the same for all saves. */
    summarize(view->side ? view->side->data[0].view : view, &full);
    if (view->side)
        full.entries = entries;
    rfs_view_give(out, &full, sizeof full);
}

/* Plans the files of a view that has no saves of its own. DONE of TOTAL were before. */
static int check_files(struct reshard_view *view, reshard_progress_fn *progress, void *ctx,
                       uint64_t *done, uint64_t total, struct rfs_error *err)
{
    int rc = 0;

    if (view->planner)
        rfs_planner_report(view->planner, RFS_TELL_EACH);
    for (size_t f = 0; rc == 0 && f < view->n_files; f++) {
        const struct rfs_image *image;
        rc = rfs_view_image(view, f, &image, err);
        if (rc)
            break;
        ++*done;
        if (progress)
            progress(ctx, *done, total);
    }
    if (view->planner)
        rfs_planner_report(view->planner, RFS_TELL_SOME);
    return rc;
}

int reshard_check(reshard_view *view, reshard_progress_fn *progress, void *ctx, reshard_error *err)
{
    struct rfs_error failure = {0};
    const struct rfs_side *side = view->side;
    uint64_t done = 0;
    uint64_t total = view->n_files;
    int rc = 0;

    for (size_t i = 0; side && i < side->n; i++)
        total += side->data[i].view->n_files;
    if (!side)
        rc = check_files(view, progress, ctx, &done, total, &failure);
    for (size_t i = 0; side && i < side->n && rc == 0; i++)
        rc = check_files(side->data[i].view, progress, ctx, &done, total, &failure);
    return rfs_view_report(err, &failure, rc);
}
