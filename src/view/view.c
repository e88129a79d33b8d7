/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, checking, cancelling and closing a view. A set has one plain view, or one for each of
 * several saves, which lie side by side (step=all) and share the pool, the descriptors, the key
 * and, in equal parts, the budget of the cache.
 */
#include "base/cancel.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/text.h"
#include "catalog/kept.h"
#include "formats/chunks/chunks.h"
#include "store/access.h"
#include "store/beneath.h"
#include "store/crypt/cipher.h"
#include "store/encrypted.h"
#include "store/remote/remote.h"
#include "view/follow.h"
#include "view/hidden.h"
#include "view/internal.h"
#include "view/kinds.h"
#include "view/rules_view.h"
#include "view/sizes.h"

#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define POOL_MAX 8
#define LINE_BYTES 2200                 /* a message, and the name of its save before it */
#define KEYS_TRIED 2                    /* sources: one may be damaged */
#define ITEM_SLACK (UINT64_C(16) << 10) /* bytes for the last pages of a compressed item */
/* The least cache with a key: room for one block, and for the pieces that are made of blocks. */
#define KEYED_CACHE (RFS_CIPHER_BLOCK + (UINT64_C(16) << 20))

/* ---- the key --------------------------------------------------------------------------------- */

/*
 * Gives decrypted blocks their share of the cache: half, if that is enough for one. A default cache
 * that is too small for a key is enlarged; an explicit one is refused.
 */
static int share_cache(struct reshard_view *set, struct rfs_error *err)
{
    uint64_t *cache = &set->options.cache;
    if (*cache < KEYED_CACHE && !set->options.cache_given)
        *cache = KEYED_CACHE;
    if (*cache < KEYED_CACHE)
        return rfs_fail_usage(
            err, "cache=80M or more",
            "the cache is too small for encrypted sources: a block of 64 MiB must "
            "fit, and 16 MiB beside it");
    const uint64_t share = rfs_max_u64(*cache / 2, RFS_CIPHER_BLOCK);
    set->encrypted = rfs_encrypted_new(set->key, share, &set->log);
    *cache -= share;
    return set->encrypted ? 0 : rfs_fail_memory(err);
}

/* Loads the key, if the options name one, and sets set->encrypted. Before a catalogue is opened. */
static int load_key(struct reshard_view *set, struct rfs_error *err)
{
    if (!rfs_options_keyed(&set->options))
        return set->options.key_mode >= 0
                   ? rfs_fail_usage(err, "key_file=FILE", "there is a key_mode, but no key")
                   : 0;
    const int rc = rfs_view_options_key(&set->options, &set->log, &set->key, err);
    return rc < 0 ? rc : share_cache(set, err);
}

/*
 * Opens a file and reads its last byte, which lies in its last and shortest block. Returns 1 if the
 * file is empty.
 */
static int try_file(struct rfs_files *files, uint32_t id)
{
    struct rfs_reading reading;
    unsigned char byte = 0;
    int rc = rfs_reading_begin_quiet(files, id, &reading);
    if (rc < 0)
        return rc;
    if (reading.size > 0)
        rc = rfs_reading_pread(&reading, &byte, 1, reading.size - 1);
    else
        rc = 1;
    rfs_secret_wipe(&byte, 1);
    const int end = rfs_reading_end(&reading);
    return end < 0 ? end : rc;
}

/*
 * Checks that the key, if any, opens the first source, or else the second, so that a wrong key is
 * reported now. Starts no thread. Returns 0, or -errno with *err filled for the first.
 */
static int try_key(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(view->source);
    int first = 0;
    unsigned tried = 0;
    if (!view->set->encrypted || view->set->key_fits)
        return 0;
    for (uint32_t rank = 0; rank < rfs_catalog_ranks(view->source) && tried < KEYS_TRIED; rank++) {
        if (!rfs_catalog_has(view->source, rank))
            continue;
        const uint32_t id = rfs_catalog_file(view->source, rank);
        const int rc = try_file(files, id);
        tried += rc <= 0;
        if (rc == 0) {
            view->set->key_fits = true;
            first = 0;
            break;
        }
        /* Errors unrelated to the key are reported when the file is needed. */
        if (first == 0 && rfs_files_reason(files, id, rc, err))
            first = rc;
    }
    return first;
}

/* ---- a plain view ---------------------------------------------------------------------------- */

/*
 * Reports progress while the view is opened, by one thread; later several might call it. Nothing is
 * reported of several saves.
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
    struct rfs_source_spec spec = rfs_view_options_spec(options, set->store, source);

    spec.fds = set->has_fds ? (struct rfs_fds *)&set->fds : NULL;
    spec.beneath = set->beneath;
    spec.for_others = set->config.for_others;
    spec.encrypted = set->encrypted;
    spec.kept = set->kept;
    spec.indexed = forward_progress;
    spec.indexed_ctx = set;
    return spec;
}

/*
 * Gives compressed items their share of CACHE: half of it, or what the largest takes, up to three
 * quarters. Returns the rest.
 */
static uint64_t share_items(const struct rfs_view *view, uint64_t cache)
{
    const struct rfs_chunks *chunks = rfs_catalog_chunks(view->source);
    struct rfs_blocks *blocks = rfs_files_packed(rfs_catalog_files(view->source));

    if (!chunks || !blocks)
        return cache;
    const uint64_t share =
        rfs_min_u64(rfs_max_u64(cache / 2, chunks->unpacking + ITEM_SLACK), cache / 4 * 3);
    rfs_blocks_limit(blocks, share);
    return cache - share;
}

/* Refuses a checkpoint with an item that has no room in the cache as a whole. */
static int check_items(struct rfs_view *view, struct rfs_error *err)
{
    const struct rfs_chunks *chunks = rfs_catalog_chunks(view->source);
    char remedy[64];

    const uint64_t room = view->options.cache / 4 * 3;
    if (!chunks || chunks->unpacking == 0 ||
        (room >= ITEM_SLACK && chunks->unpacking <= room - ITEM_SLACK))
        return 0;
    /* Several saves share the cache. */
    const uint64_t saves = view->set->options.cache / rfs_max_u64(view->options.cache, 1);
    const uint64_t most = rfs_min_u64(chunks->unpacking, INT64_MAX / 4096);
    const uint64_t least = (most + ITEM_SLACK) / 3 * 4 * rfs_max_u64(saves, 1) >> 20;
    snprintf(remedy, sizeof remedy, "cache=%" PRIu64 "M or more", least + 1);
    return rfs_fail(err, -EFBIG,
                    RFS_OF(rfs_files_path(chunks->files, chunks->metadata),
                           rfs_catalog_name(view->source, chunks->unpacking_name)),
                    remedy,
                    "is compressed by zstd, and the cache is too small: %" PRIu64
                    " bytes must fit into three quarters of it",
                    chunks->unpacking);
}

void rfs_view_limit(struct rfs_view *view, uint64_t cache)
{
    rfs_assembler_limit(view->assembler, share_items(view, cache));
}

static int open_files(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_use use; /* opening uses indexes of planned ranks */

    const int fits = check_items(view, err);
    if (fits)
        return fits;
    view->options.cache = share_items(view, view->options.cache);
    view->assembler = rfs_assembler_new(view->source, view->options.cache, view->set->pool);
    if (!view->assembler)
        return rfs_fail_memory(err);
    rfs_catalog_begin(view->source, &use);
    const int rc = rfs_kind_open(view, err);
    rfs_catalog_end(view->source, &use);
    return rc ? rc : view->memory.failed ? rfs_fail_memory(err) : 0;
}

/* Logs a line of a plain view; of several, it begins with the name of the save. */
static void forward_log(void *ctx, enum rfs_level level, const char *line)
{
    const struct rfs_view *view = ctx;
    const reshard_config *config = &view->set->config;
    char named[LINE_BYTES + sizeof view->save.text];

    if (atomic_load(&view->save.quiet))
        return;
    if (view->save.text[0]) {
        snprintf(named, sizeof named, "%s: %s", view->save.text, line);
        line = named;
    }
    config->log(config->log_ctx, (enum reshard_level)level, line);
}

/* Logs a note of a planner. */
static void log_note(void *ctx, const struct rfs_note *note)
{
    struct rfs_view *view = ctx;

    if (note->kind == RFS_NOTE_NEWER_FILE)
        atomic_store(&view->save.doubted, true);
    if (note->kind == RFS_NOTE_ALIKE && !view->options.trust_strategy)
        atomic_store(&view->save.contradicted, true);
    (note->kind >= RFS_NOTE_REPEATED ? rfs_log_limited : rfs_log)(&view->log, note->level, "%s",
                                                                  note->text);
}

/* Returns what planners of the source's files do where ranks contradict the strategy. */
static enum rfs_unlike unlike_of(const struct rfs_view *view)
{
    const struct reshard_view *set = view->set;

    if (set->how.late) /* verify compares all copies itself */
        return RFS_UNLIKE_UNASKED;
    if (view->options.trust_strategy || set->follow) /* follow asks rfs_view_check_alike */
        return RFS_UNLIKE_TOLD;
    return view->options.strict || set->how.wary ? RFS_UNLIKE_REFUSED : RFS_UNLIKE_JUDGED;
}

struct rfs_planner_config rfs_view_planning(struct rfs_view *view)
{
    return (struct rfs_planner_config){
        .catalog = view->catalog,
        .src = view->src,
        .pool = view->set->pool,
        .notes = &view->notes,
        .strict = view->options.strict,
        .unlike = unlike_of(view),
    };
}

int rfs_view_check_alike(const struct rfs_view *view, struct rfs_error *err)
{
    return atomic_load(&view->save.contradicted)
               ? rfs_fail(err, -EINVAL, RFS_IN(rfs_catalog_path(view->source)),
                          "the right strategy or rules, or files of one save; or without what "
                          "differs, by drop=; or trust_strategy",
                          "ranks are not as %s says",
                          rfs_strategy_name(view->src ? view->src : view->rules->src))
               : 0;
}

static int open_plain(struct rfs_view *view, const char *source, const struct rfs_saves *saves,
                      struct rfs_error *err)
{
    struct rfs_source_spec spec = rfs_view_spec(view->set, &view->options, source);

    spec.saves = saves;
    int rc = rfs_catalog_open(&spec, &view->log, view->set->pool, &view->source, err);
    view->catalog = view->source;
    if (rc == 0)
        rc = rfs_catalog_tell_aside(view->source, &view->log, saves != NULL, view->options.strict,
                                    err);
    if (rc == 0)
        view->save.n_files = rfs_files_count_paths(rfs_catalog_files(view->source));
    rc = rc ?: try_key(view, err) ?: open_files(view, err);
    view->save.opened = rc == 0;
    return rc;
}

void rfs_view_close(struct rfs_view *view)
{
    if (!view)
        return;
    if (view->save.gone) /* its files may be, too, whose indexes would be kept */
        atomic_store(&view->save.quiet, true);
    rfs_view_sizes_close(view);
    rfs_view_hidden_end(view);
    rfs_assembler_free(view->assembler);
    if (view->kind && view->kind->free && view->state)
        view->kind->free(view);
    rfs_planner_free(view->planner);
    rfs_names_free(view->names);
    rfs_view_rules_free(view->rules);
    rfs_catalog_close(view->source);
    rfs_strategy_free(view->src);
    rfs_strategy_free(view->dst);
    rfs_view_images_end(&view->images);
    for (size_t f = 0; f < view->n_files; f++) {
        free(view->files[f].storage_crcs);
        rfs_image_free(RFS_PUBLISHED(&view->files[f].own));
        if (view->files[f].plan)
            free(view->files[f].plan->sources);
        free(view->files[f].plan);
    }
    rfs_arena_free(&view->memory);
    rfs_notes_free(&view->notes);
    rfs_log_destroy(&view->log);
    pthread_cond_destroy(&view->made);
    pthread_mutex_destroy(&view->lock);
    free(view);
}

int rfs_view_open(struct reshard_view *set, const char *source, const struct rfs_saves *saves,
                  const struct rfs_save *save, uint64_t cache, bool quiet, struct rfs_view **out,
                  struct rfs_error *err)
{
    struct rfs_view *view = calloc(1, sizeof *view);

    *out = NULL;
    if (!view)
        return rfs_fail_memory(err);
    view->set = set;
    view->options = set->options;
    view->options.cache = cache;
    view->save.name = view->save.text;
    atomic_init(&view->save.quiet, quiet);
    if (save) {
        rfs_view_name_save(save, view->save.text);
        view->options.all_steps = false;
        view->options.step = save->step;
        view->options.epoch = save->epoch;
    }
    pthread_mutex_init(&view->lock, NULL);
    rfs_cancel_init_cond(&view->made);
    rfs_log_init(&view->log, set->config.log ? forward_log : NULL, view);
    const int rc = rfs_notes_init(&view->notes, log_note, view)
                       ? rfs_fail_memory(err)
                       : open_plain(view, source, saves, err);
    if (rc)
        rfs_view_close(view);
    else
        *out = view;
    return rc;
}

/* Opens a plain view in the next place of a set, which stays free when that fails. */
static int open_next(struct reshard_view *set, const char *source, const struct rfs_saves *saves,
                     const struct rfs_save *save, uint64_t cache, struct rfs_error *err)
{
    struct rfs_view *view;
    const int rc = rfs_view_open(set, source, saves, save, cache, false, &view, err);

    if (rc)
        return rc;
    if (save)
        view->save.base = rfs_view_save_base(set->n + 1);
    set->data[set->n++] = view;
    return 0;
}

static int open_only(struct reshard_view *set, const char *source, struct rfs_error *err)
{
    set->data = calloc(1, sizeof *set->data);
    return set->data ? open_next(set, source, NULL, NULL, set->options.cache, err)
                     : rfs_fail_memory(err);
}

/* ---- several saves --------------------------------------------------------------------------- */

/* Returns whether another save could be opened nevertheless. */
static bool is_of_one_save(const struct rfs_error *err)
{
    return !err->usage && err->code != -ENOMEM && err->code != -EMFILE && err->code != -ENFILE;
}

static int open_saves(struct reshard_view *set, const char *source, const struct rfs_saves *saves,
                      struct rfs_error *err)
{
    struct rfs_error first = {0};

    set->data = calloc(saves->n, sizeof *set->data);
    if (!set->data)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < saves->n; i++) {
        struct rfs_error failure = {0};
        char name[48];
        const int rc =
            open_next(set, source, saves, &saves->data[i], set->options.cache / saves->n, &failure);
        if (rc == 0)
            continue;
        if (!is_of_one_save(&failure) || set->options.strict) {
            *err = failure;
            return rc;
        }
        if (first.code == 0)
            first = failure;
        rfs_view_name_save(&saves->data[i], name);
        rfs_log(&set->log, RFS_WARNING, "%s: left out: %s", name, failure.text);
    }
    if (set->n > 0)
        return 0;
    *err = first;
    return first.code;
}

int rfs_view_list_saves(struct reshard_view *set, const char *path,
                        const struct rfs_known_saves *known, struct rfs_saves *out,
                        struct rfs_error *err)
{
    struct rfs_source_spec spec = rfs_view_spec(set, &set->options, path);

    spec.known = known;
    const int rc = rfs_scan_saves(&spec, out, err);

    return rc || out->n <= RFS_FOLLOW_MOST
               ? rc
               : rfs_fail(err, -EINVAL, RFS_IN(path), "those of one epoch, by epoch=",
                          "there are %zu saves, and %" PRIu64 " can be shown side by side", out->n,
                          RFS_FOLLOW_MOST);
}

/*
 * Opens the view of each save in SOURCE. A save that cannot be opened is left out with a line in
 * the log, unless the view is strict; at least one is opened.
 */
static int open_all_saves(struct reshard_view *set, const char *source, struct rfs_error *err)
{
    RFS_FREE char *path = NULL;
    RFS_CLEANUP(rfs_scan_saves_free) struct rfs_saves saves = {0};

    if (rfs_fds_init(&set->fds, rfs_limits_files(RFS_MAX_OPEN)))
        return rfs_fail_memory(err);
    set->has_fds = true;
    if (set->config.follow)
        return rfs_follow_open(set, source, err);
    const int rc = rfs_path_resolve(set->store, source, &path, err)
                       ?: rfs_view_list_saves(set, path, NULL, &saves, err);
    return rc ?: open_saves(set, path, &saves, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static unsigned pool_threads(void)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 2 ? 2 : cores > POOL_MAX ? POOL_MAX : (unsigned)cores;
}

/*
 * Returns whether options change anything: without a strategy, a view is one whole checkpoint made
 * of another.
 */
static bool asks_for_something(const struct rfs_options *options)
{
    return options->all_steps || rfs_options_first(options, RFS_OPTION_ASKS, 0);
}

/*
 * Returns whether links that lead out of the source are refused: users that may write to the source
 * must not choose the files that root reads for others.
 */
static bool stays_beneath(const struct reshard_view *set)
{
    return !set->options.follow_links && (geteuid() == 0 || set->config.for_others);
}

/*
 * Takes the access to the folders shown from the source at PATH, which is resolved, and from the
 * folders above it if other users are allowed at all.
 */
static void take_folder(struct reshard_view *set, const char *path)
{
    struct rfs_access access = rfs_access_own();
    unsigned list = 0444;
    struct stat st, now;

    if (rfs_store_stat(set->store, path, &st) == 0) {
        const bool folder = S_ISDIR(st.st_mode);
        access = rfs_access_of(path, &st, folder ? RFS_MAY_SEARCH : RFS_MAY_READ);
        if (set->config.for_others)
            access = rfs_access_below(rfs_access_above(NULL, path), access);
        if (folder)
            list = rfs_access_mode(rfs_access_of(path, &st, RFS_MAY_READ), 0444);
        if (set->config.for_others &&
            (rfs_store_stat(set->store, path, &now) != 0 || !rfs_access_is_of(&st, &now)))
            access = rfs_access_own();
        if (list != 0444 && (access.uid != st.st_uid || access.gid != st.st_gid))
            list = 0400; /* they are not the same people */
        set->dir_mtime = st.st_mtim;
    }
    set->dir_uid = access.uid;
    set->dir_gid = access.gid;
    /*
     * cp -r gives a copy this mode: without S_IWUSR its owner could not remove it. Writing here is
     * EROFS.
     */
    set->dir_mode = S_IWUSR | rfs_access_mode(access, 0111 | list);
}

/* Refuses to follow a source that shows one save, or that never changes. */
static int check_follow(const struct rfs_options *options, const char *source,
                        struct rfs_error *err)
{
    if (options->step != RFS_ANY_NUMBER)
        return rfs_fail_usage(err, "follow without step=, or with step=all",
                              "option follow shows all saves, and step= one");
    if (strncmp(source, "hf://", 5) == 0)
        return rfs_fail_usage(err, "a mount without follow",
                              "option follow: a source on a hub stays at one commit");
    return 0;
}

static int open_set(struct reshard_view *set, const char *source,
                    const struct rfs_settings *settings, struct rfs_error *err)
{
    const struct rfs_options *options = &set->options;
    int rc = rfs_view_options_take(settings, &set->options, err)
                 ?: (set->config.follow ? check_follow(options, source, err) : 0)
                 ?: rfs_view_options_take_store(options, source, &set->store, err);

    if (rc)
        return rc;
    set->options.all_steps |= set->config.follow > 0;
    /* hfai's parts are always shown merged, too, and chunks put together. */
    if (!set->how.tensors && !asks_for_something(options) &&
        !rfs_scan_has_parts(set->store, source) && !rfs_scan_is_described(set->store, source) &&
        !rfs_scan_is_model_parallel(set->store, source))
        return rfs_fail_usage(err,
                              "-o src_strategy=FILE,dst_strategy=FILE; reshard suggest SRC "
                              "says what else there is",
                              "neither src_strategy nor dst_strategy is given, so there is "
                              "nothing to reshard");
    rc = rfs_options_check_limits(
        options, rfs_format_words[rfs_view_options_format(options, RFS_FORMAT_COUNT)], err);
    if (rc)
        return rc;
    set->several = options->all_steps;
    set->pool = rfs_pool_new(pool_threads());
    if (!set->pool)
        return rfs_fail_memory(err);
    if (rfs_store_is_url(source))
        rfs_pool_expect_waits(set->pool);
    rfs_pool_hold(set->pool, true); /* the caller may fork yet */
    if (!options->index_cache || strcmp(options->index_cache, "no") != 0)
        set->kept = rfs_kept_open(options->index_cache, &set->log);
    rc = load_key(set, err);
    if (rc == 0 && stays_beneath(set))
        rc = rfs_beneath_open(source, &set->beneath, err);
    if (rc == 0)
        rc = set->several ? open_all_saves(set, source, err) : open_only(set, source, err);
    if (rc == 0)
        take_folder(set, set->follow ? rfs_follow_source(set->follow)
                                     : rfs_catalog_path(set->data[0]->catalog));
    return rc;
}

static void forward_set_log(void *ctx, enum rfs_level level, const char *line)
{
    const reshard_config *config = ctx;
    config->log(config->log_ctx, (enum reshard_level)level, line);
}

/* Opens a view with SETTINGS instead of the options in CONFIG. HOW may be NULL. */
static int start(const char *source, const struct rfs_settings *settings,
                 const reshard_config *config, const struct rfs_view_how *how,
                 struct reshard_view **out, struct rfs_error *err)
{
    struct reshard_view *set = calloc(1, sizeof *set);

    *out = NULL;
    if (!set)
        return rfs_fail_memory(err);
    if (how)
        set->how = *how;
    pthread_mutex_init(&set->lock, NULL);
    set->config = (reshard_config){.struct_size = sizeof set->config};
    if (config)
        memcpy(&set->config, config,
               config->struct_size < sizeof *config ? config->struct_size : sizeof *config);
    rfs_log_init(&set->log, set->config.log ? forward_set_log : NULL, &set->config);
    const int rc = open_set(set, source, settings, err);
    set->config.progress = NULL;
    set->how.maker = NULL;
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

/*
 * Finds the checkpoint that counts in the folder of a rank, when PATH is one and no option says
 * that it is a tree: *OUT, owned by the caller, or NULL. 0, or -errno with *err filled.
 */
static int lone_rank(struct rfs_store *store, const char *path, const struct rfs_options *options,
                     char **out, struct rfs_error *err)
{
    RFS_FREE char *folder = rfs_store_realpath(store, path);
    RFS_FREE char *name = NULL;
    const char *slash = folder ? strrchr(folder, '/') : NULL;
    struct stat st;

    *out = NULL;
    if (!slash || !rfs_scan_is_rank(slash + 1) || rfs_store_stat(store, folder, &st) != 0 ||
        !S_ISDIR(st.st_mode) || options->src_strategy || options->src_rules || options->file ||
        options->files || options->segmented || options->all_steps ||
        options->step != RFS_ANY_NUMBER || options->epoch != RFS_ANY_NUMBER)
        return 0;
    const int rc = rfs_scan_folder(store, folder, &name, err);
    if (rc || !name)
        return rc;
    *out = rfs_text_printf("%s/%s", folder, name);
    return *out ? 0 : rfs_fail_memory(err);
}

/*
 * Adds to ALL the options that the tensors of SOURCE are read by, whatever is shown. A view has an
 * output format: .ckpt holds all tensors; hfai's parts have no other format.
 */
static int choose_tensors(struct rfs_store *store, const char *source,
                          const struct rfs_view_how *how, const struct rfs_options *options,
                          struct rfs_settings *all, char **file, struct rfs_error *err)
{
    const struct rfs_view *maker = how->maker;

    if (!how->files && options->format < 0 && options->shown == RFS_SHOW_RANKS &&
        !rfs_scan_has_parts(store, source) && rfs_settings_add(all, "format", "ckpt", NULL))
        return rfs_fail_memory(err);
    return maker && maker->dst ? 0 : lone_rank(store, source, options, file, err);
}

int rfs_view_start(const char *source, const struct rfs_settings *settings,
                   const struct rfs_view_how *how, struct reshard_view **out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings all = {0};
    RFS_CLEANUP(rfs_remote_give) struct rfs_store *store = NULL; /* that of the view, too */
    RFS_FREE char *file = NULL;
    const reshard_config config = {
        .struct_size = sizeof config, .log = how->log, .log_ctx = how->log_ctx};
    struct rfs_options options = {0};
    int rc =
        rfs_view_options_take(settings, &options, err) ?: rfs_view_options_harden(&options, err);

    *out = NULL;
    if (rc == 0 && how->tensors)
        rc = rfs_view_options_take_store(&options, source, &store, err)
                 ?: choose_tensors(store, source, how, &options, &all, &file, err);
    const bool keyed = rfs_options_keyed(&options);
    rfs_options_free(&options);
    if (rc)
        return rc;
    /* The user's cache= comes later, and counts. */
    rc = rfs_settings_add(&all, "cache", keyed ? RFS_VIEW_CACHE_KEYED : RFS_VIEW_CACHE, NULL)
             ?: rfs_settings_add_all(&all, settings);
    return rc ? rfs_fail_memory(err) : start(file ? file : source, &all, &config, how, out, err);
}

/* Takes the options of a caller, whose struct may be older and have fewer members. */
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
                       : start(source, &settings, config, NULL, out, &failure);
    return rfs_view_report(err, &failure, rc);
}

/* ---- the plain views of a set ---------------------------------------------------------------- */

/* Returns the view of a number, from 0 on, and counts its user if the source is followed. */
static struct rfs_view *take(struct reshard_view *set, uint64_t number)
{
    struct rfs_view *view = number < set->n ? set->data[number] : NULL;

    if (view && set->follow)
        view->save.users++;
    return view;
}

struct rfs_view *rfs_view_take(struct reshard_view *set, uint64_t id)
{
    if (!set->several)
        return set->data[0];
    if (!set->follow)
        return take(set, (id >> RFS_VIEW_SAVE_SHIFT) - 1);
    RFS_LOCKED(&set->lock);
    return take(set, (id >> RFS_VIEW_SAVE_SHIFT) - 1);
}

void rfs_view_leave(struct rfs_view *view)
{
    if (!view || !view->set->follow)
        return;
    RFS_LOCKED(&view->set->lock);
    view->save.users--;
}

struct rfs_view *rfs_view_next(struct reshard_view *set, size_t *at)
{
    struct rfs_view *view = NULL;

    if (!set->follow)
        return take(set, (*at)++);
    RFS_LOCKED(&set->lock);
    while (!view && *at < set->n)
        view = take(set, (*at)++);
    return view;
}

void reshard_refuse_device(reshard_view *set, dev_t device)
{
    struct rfs_view *view;

    atomic_store(&set->home, (uint64_t)device + 1); /* first: for views that are opened meanwhile */
    for (size_t at = 0; (view = rfs_view_next(set, &at)); rfs_view_leave(view))
        rfs_files_set_home(rfs_catalog_files(view->catalog), device);
}

void reshard_close(reshard_view *set)
{
    if (!set)
        return;
    /* First, so that the pool has only to end jobs that have begun. */
    for (size_t i = 0; i < set->n; i++)
        if (set->data[i])
            rfs_assembler_stop(set->data[i]->assembler);
    rfs_pool_free(set->pool); /* first: read-ahead jobs use all the rest */
    for (size_t i = 0; i < set->n; i++)
        rfs_view_close(set->data[i]);
    free(set->data);
    rfs_follow_close(set->follow);
    if (set->has_fds)
        rfs_fds_destroy(&set->fds);
    rfs_encrypted_free(set->encrypted);
    rfs_key_free(set->key);
    rfs_kept_close(set->kept);
    rfs_beneath_free(set->beneath);
    rfs_remote_give(&set->store);
    rfs_options_free(&set->options);
    rfs_log_destroy(&set->log);
    pthread_mutex_destroy(&set->lock);
    free(set);
}

/* ---- an open view ---------------------------------------------------------------------------- */

void reshard_summarize(reshard_view *set, reshard_summary *out)
{
    reshard_summary full = {.entries = set->several, .mapped = set->follow != NULL};
    struct rfs_view *view;

    for (size_t at = 0; (view = rfs_view_next(set, &at)); rfs_view_leave(view)) {
        if (full.source_ranks == 0) { /* strategies and options are the same for all saves */
            full.source_ranks = view->scale.src_devices * view->scale.src_stages;
            full.source_stages = view->scale.src_stages;
            full.target_ranks = rfs_view_ranks(view);
            full.target_stages = view->scale.dst_stages;
            full.parameters = rfs_view_count_parameters(view);
            full.mapped |= view->n_files > 0 && view->files[view->n_files - 1].mapped; /* last */
        }
        full.entries += 1 + view->n_files + view->folders.n;
    }
    rfs_view_give(out, &full, sizeof full);
}

/* Errors of a check, each text once. */
#define ERRORS_MOST 100 /* more end the check */
struct check {
    reshard_progress_fn *progress; /* or NULL */
    void *ctx;
    uint64_t done, total;       /* files of the set */
    int rc;                     /* of the last error; 0: there was none */
    struct rfs_error last;      /* not yet told */
    uint64_t told[ERRORS_MOST]; /* hashes of the texts */
    size_t n;
};

/*
 * Takes an error: the one before goes to the log. 0, or RC if the check cannot go on.
 */
static int take_error(struct check *check, struct rfs_log *log, int rc, const struct rfs_error *err)
{
    const uint64_t hash = XXH3_64bits(err->text, strlen(err->text));

    if (rc == 0)
        return 0;
    for (size_t i = 0; i < check->n; i++)
        if (check->told[i] == hash)
            return 0;
    if (check->n > 0)
        rfs_log(log, RFS_ERROR, "%s", check->last.text);
    check->last = *err;
    check->rc = rc;
    check->told[check->n++] = hash;
    return rc == -ENOMEM || rc == -EINTR || check->n == ERRORS_MOST ? rc : 0;
}

/* Plans the files of one plain view. 0, or -errno if the check cannot go on. */
static int check_files(struct rfs_view *view, struct check *check)
{
    const size_t before = check->n;
    struct rfs_error err = {0};
    int rc = 0;

    atomic_store(&view->notes.telling, RFS_TELL_EACH);
    for (size_t f = 0; rc == 0 && f < view->n_files; f++) {
        uint64_t bytes;
        rc = take_error(check, &view->log, rfs_view_plan_file(view, f, &bytes, &err), &err);
        if (++check->done, check->progress)
            check->progress(check->ctx, check->done, check->total);
    }
    atomic_store(&view->notes.telling, RFS_TELL_SOME);
    /* A plan ends at the first source that is damaged: there may be others. */
    const uint32_t ranks = view->planner && check->n > before ? rfs_catalog_ranks(view->source) : 0;
    for (uint32_t r = 0; rc == 0 && r < ranks; r++) {
        const struct rfs_index *index;
        if (!rfs_catalog_has(view->source, r))
            continue;
        rc = rfs_catalog_index(view->source, r, RFS_NO_RANK, &index, &err);
        /* Whether an empty file is an error has been found out by the plans. */
        rc = rfs_catalog_is_empty(view->source, r) ? 0 : take_error(check, &view->log, rc, &err);
    }
    return rc || check->n > before
               ? rc
               : take_error(check, &view->log,
                            rfs_view_check_alike(view, &err) ?: rfs_view_compare_copies(view, &err),
                            &err);
}

int reshard_check(reshard_view *set, reshard_progress_fn *progress, void *ctx, reshard_error *err)
{
    struct check check = {.progress = progress, .ctx = ctx};
    struct rfs_view *view;
    int rc = 0;

    for (size_t at = 0; (view = rfs_view_next(set, &at)); rfs_view_leave(view))
        check.total += view->n_files;
    for (size_t at = 0; rc == 0 && (view = rfs_view_next(set, &at)); rfs_view_leave(view))
        rc = check_files(view, &check);
    return rfs_view_report(err, &check.last, check.rc);
}

int reshard_check_strategies(reshard_view *set, reshard_error *err)
{
    struct rfs_error failure = {0};
    struct rfs_view *view;
    size_t at = 0;
    int rc = 0;

    while (!set->follow && (view = rfs_view_next(set, &at))) { /* those followed were planned */
        rc = view->planner ? rfs_planner_check_shapes(view->planner, &failure) : 0;
        if (rc == 0) /* another save may be of another network */
            break;
    }
    return rfs_view_report(err, &failure, rc);
}

/* A thread's wish to cancel, below that of the view's own threads. */
struct reshard_cancel {
    struct rfs_cancel work;
};

int reshard_cancel_new(reshard_view *view, reshard_cancel **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return -ENOMEM;
    (*out)->work.above = rfs_pool_cancel(view->pool);
    return 0;
}

void reshard_cancel_free(reshard_cancel *cancel)
{
    free(cancel);
}

void reshard_cancel_use(reshard_cancel *cancel)
{
    rfs_cancel_enter(cancel ? &cancel->work : NULL);
}

void reshard_cancel_set(reshard_cancel *cancel, bool cancelled)
{
    atomic_store(&cancel->work.now, cancelled);
}

void reshard_cancel_all(reshard_view *view)
{
    atomic_store(&rfs_pool_cancel(view->pool)->now, true);
}
