/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a view, and its general properties. */
#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"
#include "catalog/saved/folder.h"
#include "store/beneath.h"
#include "store/encrypted.h"
#include "store/remote/remote.h"
#include "view/convert.h"
#include "view/crypt.h"
#include "view/dcp.h"
#include "view/hfai_view.h"
#include "view/hidden.h"
#include "view/internal.h"
#include "view/mindformers.h"
#include "view/objects.h"
#include "view/outputs.h"
#include "view/planned.h"
#include "view/rules.h"
#include "view/saved_sizes.h"
#include "view/saves.h"

#include <unistd.h>

#define POOL_MAX 8
#define LINE_BYTES 2200 /* a message, and the name of its save before it */

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

int rfs_view_log_failure(struct rfs_view *view, int rc, const struct rfs_error *err)
{
    if (rc != -EINTR && err->text[0])
        rfs_log_limited(&view->log, RFS_ERROR, "%s", err->text);
    return rc;
}

static uint64_t count_parameters(const struct rfs_view *view)
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

/*
 * Only while the view is opened: later, several threads may call it. Not reported for several
 * saves.
 */
static void forward_progress(const void *ctx, uint64_t done, uint64_t total)
{
    const struct reshard_view *set = ctx;

    if (set->config.progress && !set->several)
        set->config.progress(set->config.progress_ctx, done, total);
}

struct rfs_source_spec rfs_view_spec(const struct reshard_view *set,
                                     const struct rfs_options *options, const char *source)
{
    struct rfs_source_spec spec = rfs_options_spec(options, source);

    spec.fds = set->has_fds ? (struct rfs_fds *)&set->fds : NULL;
    spec.beneath = set->beneath;
    spec.for_others = set->config.for_others;
    spec.encrypted = set->encrypted;
    spec.saved = set->saved;
    spec.indexed = forward_progress;
    spec.indexed_ctx = set;
    return spec;
}

/* Options for sources or outputs of torch.save, and there are none. */
static int check_torch_options(const struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_options *options = &view->options;
    const struct rfs_option *unused =
        rfs_options_first(options, RFS_OPTION_OF_PARTS, RFS_OPTION_OF_RANKS);

    if (unused)
        return rfs_fail_usage(err, "the folder that dist_ckpt.save wrote",
                              "option %s is for hfai's PART_000.pt and so on, which the source "
                              "does not have",
                              unused->name);
    if (options->entry && rfs_catalog_format(view->stored) != RFS_FORMAT_TORCH)
        return rfs_fail_usage(err, "leave entry out",
                              "option entry says where in a .pt file the tensors are, and the "
                              "source has none");
    if (options->zip_crc && rfs_view_format(options) != RFS_FORMAT_TORCH)
        return rfs_fail_usage(err, "-o format=pt", "option zip_crc is for .pt files");
    return 0;
}

static int open_planned(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_output_map_config output_map = {view->options.names, view->options.dtype};
    int rc = rfs_view_strategies(view, err)
            ?: check_torch_options(view, err)
            ?: rfs_output_map_open(&output_map, &view->output_map, err)
            ?: rfs_objects_check_unread(view, err);

    if (rc)
        return rc;
    const struct rfs_planner_config config = {
        .catalog = view->catalog,
        .src = view->src,
        .dst = view->dst,
        .pool = view->set->pool,
        .log = &view->log,
        .strict = view->options.strict,
        .keep_empty = rfs_view_format(&view->options) != RFS_FORMAT_CKPT,
        .output_map = view->output_map,
        .late = view->set->late,
        .converted = view->convert.made,
    };
    rc = rfs_planner_new(&config, &view->planner, err);
    if (rc)
        return rc;
    rfs_planner_scale(view->planner, &view->scale);
    view->n_ranks = view->scale.dst_devices * view->scale.dst_stages;
    view->parameters = count_parameters(view);
    return rfs_view_show_planned(view, err);
}

static int open_files(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_use use; /* opening uses indexes of planned ranks */

    view->assembler = rfs_assembler_new(view->stored, view->options.cache, view->set->pool);
    if (!view->assembler)
        return rfs_fail_memory(err);
    rfs_catalog_begin(view->stored, &use);
    const int rc = rfs_catalog_has_parts(view->stored) ? rfs_hfai_view_open(view, err)
                                                       : open_planned(view, err);
    rfs_catalog_end(view->stored, &use);
    return rc;
}

/* Of several saves, each line begins with its name. */
static void forward_log(void *ctx, enum rfs_level level, const char *line)
{
    const struct rfs_view *view = ctx;
    const reshard_config *config = &view->set->config;
    char named[LINE_BYTES + sizeof view->save];

    if (view->save[0]) {
        snprintf(named, sizeof named, "%s: %s", view->save, line);
        line = named;
    }
    config->log(config->log_ctx, (enum reshard_level)level, line);
}

static int open_plain(struct rfs_view *view, const char *source, struct rfs_error *err)
{
    const struct rfs_source_spec spec = rfs_view_spec(view->set, &view->options, source);

    int rc = rfs_catalog_open(&spec, &view->log, view->set->pool, &view->stored, err);
    view->catalog = view->stored;
    if (rc == 0)
        rc = rfs_view_try_key(view, err);
    if (rc == 0)
        rc = open_files(view, err);
    view->opened = rc == 0;
    return rc;
}

static void close_plain(struct rfs_view *view)
{
    if (view->opened)
        rfs_view_save(view);
    rfs_view_sizes_free(atomic_load(&view->sizes.loaded));
    rfs_view_hidden_end(view);
    rfs_assembler_free(view->assembler);
    rfs_hfai_view_free(view->hfai);
    rfs_dcp_view_free(view->dcp);
    rfs_mf_view_free(view->mf);
    rfs_planner_free(view->planner);
    rfs_output_map_free(view->output_map);
    rfs_view_convert_free(view);
    rfs_catalog_close(view->stored);
    rfs_strategy_free(view->src);
    rfs_strategy_free(view->dst);
    for (size_t i = 0; i < view->images.n; i++)
        rfs_image_free(view->images.data[i]);
    free(view->images.data);
    free(view->params);
    for (size_t f = 0; f < view->n_files; f++) {
        free(view->files[f].name);
        free(view->files[f].storage_crcs);
        rfs_image_free(view->files[f].own);
        if (view->files[f].plan)
            free(view->files[f].plan->sources);
        free(view->files[f].plan);
    }
    free(view->files);
    for (size_t f = 0; f < view->n_folders; f++)
        free(view->folders[f].name);
    free(view->folders);
    rfs_log_destroy(&view->log);
    pthread_cond_destroy(&view->made);
    pthread_mutex_destroy(&view->lock);
    free(view);
}

int rfs_view_add(struct reshard_view *set, const char *source, const struct rfs_save *save,
                 uint64_t cache, struct rfs_error *err)
{
    struct rfs_view *view = calloc(1, sizeof *view);

    if (!view)
        return rfs_fail_memory(err);
    view->set = set;
    view->options = set->options;
    view->options.cache = cache;
    if (save) {
        view->base = (uint64_t)(set->n + 1) << RFS_SAVE_SHIFT;
        rfs_save_name(save, view->save);
        view->options.all_steps = false;
        view->options.step = save->step;
        view->options.epoch = save->epoch;
    }
    pthread_mutex_init(&view->lock, NULL);
    rfs_cancel_init_cond(&view->made);
    rfs_log_init(&view->log, set->config.log ? forward_log : NULL, view);
    const int rc = open_plain(view, source, err);
    if (rc)
        close_plain(view);
    else
        set->data[set->n++] = view;
    return rc;
}

/*
 * Without a strategy the view is one whole checkpoint of another: worth having if something
 * changes.
 */
static bool asks_for_something(const struct rfs_options *options)
{
    return options->all_steps || rfs_options_first(options, RFS_OPTION_ASKS, 0);
}

bool rfs_view_has_parts(const char *source)
{
    RFS_FREE char *first = rfs_text_printf("%s/PART_000.pt", source);

    return first && rfs_store_there(first);
}

/* Users that may write to the source must not choose the files that root reads for others. */
static bool stays_beneath(const struct reshard_view *set)
{
    return !set->options.follow_links && (geteuid() == 0 || set->config.for_others);
}

static int open_only(struct reshard_view *set, const char *source, struct rfs_error *err)
{
    set->data = calloc(1, sizeof *set->data);
    return set->data ? rfs_view_add(set, source, NULL, set->options.cache, err)
                     : rfs_fail_memory(err);
}

static int open_set(struct reshard_view *set, const char *source,
                    const struct rfs_settings *settings, struct rfs_error *err)
{
    const struct rfs_options *options = &set->options;
    int rc = rfs_options_take(settings, &set->options, err)
                 ?: rfs_options_take_objects(options, source, &set->objects, err);

    if (rc)
        return rc;
    /* hfai's parts are always shown merged, too, and chunks put together. */
    if (!asks_for_something(options) && !rfs_view_has_parts(source) &&
        !rfs_scan_is_described(source))
        return rfs_fail_usage(err, "-o src_strategy=FILE,dst_strategy=FILE",
                              "neither src_strategy nor dst_strategy is given, so there is "
                              "nothing to reshard");
    rc = rfs_view_check_outputs(options, err);
    if (rc)
        return rc;
    set->several = options->all_steps;
    set->pool = rfs_pool_new(pool_threads());
    if (!set->pool)
        return rfs_fail_memory(err);
    if (rfs_is_url(source))
        rfs_pool_expect_waits(set->pool);
    rfs_pool_hold(set->pool, true); /* the caller may fork yet */
    if (!options->index_cache || strcmp(options->index_cache, "no") != 0)
        set->saved = rfs_saved_open(options->index_cache, &set->log);
    rc = rfs_view_load_key(set, err);
    if (rc == 0 && stays_beneath(set))
        rc = rfs_beneath_open(source, &set->beneath, err);
    if (rc == 0)
        rc = set->several ? rfs_saves_open(set, source, err) : open_only(set, source, err);
    if (rc == 0)
        rfs_view_take_folder(set, rfs_catalog_path(set->data[0]->catalog));
    return rc;
}

static void forward_set_log(void *ctx, enum rfs_level level, const char *line)
{
    const reshard_config *config = ctx;
    config->log(config->log_ctx, (enum reshard_level)level, line);
}

int rfs_view_start(const char *source, const struct rfs_settings *settings,
                   const reshard_config *config, const struct rfs_view_how *how,
                   struct reshard_view **out, struct rfs_error *err)
{
    struct reshard_view *set = calloc(1, sizeof *set);

    *out = NULL;
    if (!set)
        return rfs_fail_memory(err);
    set->late = how && how->late;
    set->exported_names = how ? how->names : NULL;
    pthread_mutex_init(&set->lock, NULL);
    set->config = (reshard_config){.struct_size = sizeof set->config};
    if (config)
        memcpy(&set->config, config,
               config->struct_size < sizeof *config ? config->struct_size : sizeof *config);
    rfs_log_init(&set->log, set->config.log ? forward_set_log : NULL, &set->config);
    const int rc = open_set(set, source, settings, err);
    set->config.progress = NULL;
    set->exported_names = NULL;
    if (rc) {
        reshard_close(set);
        return rc;
    }
    rfs_pool_hold(set->pool, false);
    if (set->encrypted) /* memory is not locked over a fork */
        rfs_blocks_drop(rfs_encrypted_blocks(set->encrypted));
    *out = set;
    return 0;
}

/* The options of a caller that may use an older struct with fewer members. */
static int take_config(const reshard_config *config, struct rfs_settings *out)
{
    reshard_config full = {0};

    if (config)
        memcpy(&full, config,
               config->struct_size < sizeof full ? config->struct_size : sizeof full);
    int rc = rfs_settings_add_text(out, full.options);
    for (size_t i = 0; rc == 0 && i < full.pair_count; i++)
        rc = rfs_settings_add(out, full.pairs[i].name, full.pairs[i].value, NULL);
    return rc;
}

int reshard_open(const char *source, const reshard_config *config, reshard_view **out,
                 reshard_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings settings = {0};
    struct rfs_error failure = {0};

    *out = NULL;
    const int rc = take_config(config, &settings)
                       ? rfs_fail_memory(&failure)
                       : rfs_view_start(source, &settings, config, NULL, out, &failure);
    return rfs_view_report(err, &failure, rc);
}

void reshard_refuse_device(reshard_view *set, dev_t device)
{
    for (size_t i = 0; i < set->n; i++)
        rfs_files_set_home(rfs_catalog_files(set->data[i]->catalog), device);
}

void reshard_close(reshard_view *set)
{
    if (!set)
        return;
    /* First, so that the pool has only to end jobs that have begun. */
    for (size_t i = 0; i < set->n; i++)
        rfs_assembler_stop(set->data[i]->assembler);
    rfs_pool_free(set->pool); /* first: read-ahead jobs use all the rest */
    for (size_t i = 0; i < set->n; i++)
        close_plain(set->data[i]);
    free(set->data);
    if (set->has_fds)
        rfs_fds_destroy(&set->fds);
    rfs_encrypted_free(set->encrypted);
    rfs_key_free(set->key);
    rfs_saved_close(set->saved);
    rfs_beneath_free(set->beneath);
    rfs_remote_give(&set->objects);
    rfs_options_free(&set->options);
    rfs_log_destroy(&set->log);
    pthread_mutex_destroy(&set->lock);
    free(set);
}

void reshard_summarize(reshard_view *set, reshard_summary *out)
{
    /* Strategies and options are the same for all saves. */
    const struct rfs_view *first = set->data[0];
    reshard_summary full = {
        .source_ranks = first->scale.src_devices * first->scale.src_stages,
        .source_stages = first->scale.src_stages,
        .target_ranks = first->n_ranks,
        .target_stages = first->scale.dst_stages,
        .parameters = first->parameters,
        .entries = set->several,
        .mapped = first->n_files > 0 && first->files[first->n_files - 1].mapped, /* come last */
    };

    for (size_t i = 0; i < set->n; i++)
        full.entries += 1 + set->data[i]->n_files + set->data[i]->n_folders;
    rfs_view_give(out, &full, sizeof full);
}
