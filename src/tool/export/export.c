/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/export.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/options.h"
#include "base/patience.h"
#include "base/store.h"
#include "base/text.h"
#include "reshard.h"
#include "survey/headers/inspect_file.h"
#include "survey/rules_report.h"
#include "tool/common/command.h"
#include "tool/common/show.h"
#include "tool/common/source.h"
#include "tool/common/tool.h"

#include <signal.h>
#include <unistd.h>

/* ---- the command line ------------------------------------------------------------------------ */

/* Reads "K/N" into *out. False when it is not that. */
static bool parse_task(const char *text, struct rfs_task *out)
{
    const char *slash = strchr(text, '/');
    RFS_FREE char *first = slash ? strndup(text, (size_t)(slash - text)) : NULL;
    uint64_t n = 0;
    uint64_t of = 0;

    if (!first || !rfs_tool_number(slash + 1, false, 1, UINT32_MAX, &of) ||
        !rfs_tool_number(first, false, 0, of - 1, &n))
        return false;
    *out = (struct rfs_task){.number = (uint32_t)n, .count = (uint32_t)of};
    return true;
}

static int take_task(const struct rfs_given *given, void *request, struct rfs_error *err)
{
    struct rfs_export_options *options = request;

    return parse_task(given->value, &options->task)
               ? 0
               : rfs_args_refuse(given, "--task K/N, K from 0 to N - 1", err);
}

const struct rfs_argument rfs_export_arguments[] = {
    RFS_ARG_OPERAND("SRC", struct rfs_export_options, source, NULL),
    RFS_ARG_OPERAND("DST", struct rfs_export_options, target, "one SRC and one DST"),
    RFS_ARG_DESTINATION(struct rfs_export_options, view,
                        "strategies of SRC and of DST (none: one whole checkpoint)",
                        "any option of the view, as of reshardfs: view=huggingface"),
    RFS_ARG_VIEW_NAMED("format", "FORMAT", "format", struct rfs_export_options, view,
                       "ckpt, safetensors, pt or gguf (as SRC)"),
    RFS_ARG_RANKS("ranks", "0-63,70", "ranks and ranges of them, such as --ranks 0-63,70",
                  struct rfs_export_options, ranks, "only the files of these ranks"),
    RFS_ARG_THREADS(NULL, struct rfs_export_options, threads),
    RFS_ARG_FLAG("no-fsync", struct rfs_export_options, no_fsync,
                 "do not wait until all is on the disk"),
    RFS_ARG_FLAG("force", struct rfs_export_options, force,
                 "replace files that differ; write into any folder"),
    RFS_ARG_FLAG("trust", struct rfs_export_options, trust,
                 "keep files of the manifest without reading them again"),
    RFS_ARG_FLAG("verify", struct rfs_export_options, verify,
                 "write nothing: compare all with the manifest"),
    RFS_ARG_OWN("task", "K/N", take_task,
                "the files of task K of N (srun, mpirun, torchrun set it)"),
    RFS_ARG_FLAG("json", struct rfs_export_options, json,
                 "progress and result as JSON, a line each"),
    {0},
};

/* Returns whether all options say how a store is reached. */
static bool is_of_store(const struct rfs_settings *settings)
{
    for (size_t i = 0; i < settings->list.n; i++) {
        const struct rfs_option *option = rfs_option_find(settings->list.data[i].name);
        if (!option || !(option->flags & RFS_OPTION_OF_STORE))
            return false;
    }
    return true;
}

/* Refuses to make a folder by the name of a file, which its user would give to a loader. */
static int check_target(const char *target, struct rfs_error *err)
{
    struct stat st;

    if (!rfs_inspect_is_name(target) || rfs_store_is_url(target) || stat(target, &st) == 0)
        return 0;
    return rfs_fail_usage(err, "a name without that ending; the files will be in it",
                          "an export writes a folder, and '%s' is the name of a file", target);
}

int rfs_export_options_check(struct rfs_export_options *options, struct rfs_error *err)
{
    if (!options->source || (!options->target && !options->verify))
        return rfs_fail_usage(err, "reshard export SRC DST -s FILE -d FILE",
                              "export takes a source and a folder to write to");
    /* "" is a variable of the caller's that is not set, not the current folder. */
    if (!*options->source || (options->target && !*options->target))
        return rfs_fail_usage(err, "reshard export SRC DST", "a path is empty");
    if (options->target)
        return check_target(options->target, err);
    options->target = options->source;
    options->source = NULL;
    return !is_of_store(&options->view) || options->ranks.n > 0
               ? rfs_fail_usage(err, "reshard export SRC DST --verify, or --verify DST alone",
                                "options of a source are given, and no source")
               : 0;
}

/* ---- output ---------------------------------------------------------------------------------- */

/*
 * Prints a line of the view's log, as a mount on a terminal does; lines that are only of use in a
 * log are left out.
 */
static void print_line(void *ctx, enum reshard_level level, const char *line)
{
    struct rfs_export *export = ctx;

    if (level > RESHARD_LOG_WARNING)
        return;
    rfs_progress_end(&export->progress);
    rfs_tool_log(NULL, level, line);
}

static void print_json(const struct rfs_export *export, double seconds, const struct rfs_error *err)
{
    reshard_statistics statistics = {.struct_size = sizeof statistics};
    struct rfs_json_write json = {.file = stdout};

    if (export->view)
        reshard_get_statistics(export->view, &statistics);
    const struct {
        const char *key;
        uint64_t n;
    } counts[] = {
        {"task", export->task.number},
        {"tasks", export->task.count},
        {"files_written", export->files_written},
        {"bytes_written", export->bytes_written},
        {"files_kept", export->files_kept},
        {"bytes_kept", export->bytes_kept},
        {"files_removed", export->files_removed},
        {"bytes_taken_over", export->bytes_taken},
        {"source_reads", statistics.source_reads},
        {"source_bytes", statistics.source_bytes},
        {"index_bytes", statistics.index_bytes},
    };
    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "event", "result");
    rfs_json_put_bool(&json, "ok", !err->code);
    rfs_json_put_text(&json, "folder", export->dest.path ? export->dest.path : "");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        rfs_json_put_u64(&json, counts[i].key, counts[i].n);
    rfs_json_print(&json, "seconds", "%.3f", seconds);
    rfs_json_put_text(&json, "error", err->code ? err->text : NULL);
    rfs_json_finish(&json);
}

static void print_summary(const struct rfs_export *export, double seconds)
{
    char written[RFS_TEXT_AMOUNT], kept[RFS_TEXT_AMOUNT];
    const bool tasks = export->task.count > 1;

    if (tasks)
        printf("task %" PRIu32 " of %" PRIu32 ": ", export->task.number, export->task.count);
    rfs_text_amount(export->bytes_kept, kept);
    if (export->options->verify) {
        printf("%s: %" PRIu64 " file%s, %s: all as the manifest says\n", export->dest.path,
               export->files_kept, export->files_kept == 1 ? "" : "s", kept);
        return;
    }
    printf("%s: %" PRIu64 " file%s written, %s in %.1f s; %" PRIu64 " %s there, %s",
           export->dest.path, export->files_written, export->files_written == 1 ? "" : "s",
           rfs_text_amount(export->bytes_written, written), seconds, export->files_kept,
           export->files_kept == 1 ? "was" : "were", kept);
    if (export->files_removed > 0)
        printf("; %" PRIu64 " of another export removed", export->files_removed);
    putchar('\n');
}

/* ---- before the first byte ------------------------------------------------------------------- */

/* Refuses if there is no room for what all tasks still have to write, less temporary files. */
static int check_room(const struct rfs_export *export, struct rfs_error *err)
{
    uint64_t needed = 0;
    uint64_t begun = 0;

    for (size_t i = 0; i < export->files.n; i++) {
        const struct rfs_export_file *file = &export->files.data[i];
        const bool mine = rfs_export_is_mine(export, file);
        struct stat st;
        const bool there = !mine && export->dest.there &&
                           export->dest.kind->stat(&export->dest, file->path, &st) == 0;
        if (mine ? file->todo == RFS_EXPORT_KEEP : there)
            continue;
        needed += (file->size + 4095) / 4096 * 4096;
        if (export->dest.there)
            begun += export->dest.kind->partial_bytes(&export->dest, file->path);
    }
    return export->dest.kind->room(&export->dest, needed > begun ? needed - begun : 0, err);
}

/* Begins the manifest with all known entries, so that no task loses entries of another one. */
static int begin_manifest(struct rfs_export *export, struct rfs_error *err)
{
    struct rfs_manifest *mine = &export->saver.manifest;

    for (size_t i = 0; i < export->known.entries.n; i++) {
        const char *path = rfs_intern_text(export->known.names, (uint32_t)i);
        if (rfs_manifest_put(mine, path, &export->known.entries.data[i]))
            return rfs_fail_memory(err);
    }
    mine->total_files = export->known.entries.n;
    for (size_t i = 0; i < export->files.n; i++)
        mine->total_files += !rfs_manifest_find(&export->known, export->files.data[i].path);
    mine->task = export->task.number;
    mine->tasks = export->task.count;
    mine->source = rfs_store_realpath(export->dest.store, export->options->source);
    mine->options = rfs_settings_text(&export->options->view);
    return mine->source && mine->options ? 0 : rfs_fail_memory(err);
}

/* ---- the steps ------------------------------------------------------------------------------- */

/*
 * Compares copies that rules leave out, whose differences would fail at the end. Several tasks
 * would each read them all; they compare what they need.
 */
static int compare_copies(const struct rfs_export *export, struct rfs_error *err)
{
    return export->view && export->task.count < 2 ? rfs_inspect_rules(export->view, NULL, err) : 0;
}

/* Finds the store of a bucket, and of a source there: the same options count for both. */
static int reach(struct rfs_export *export, struct rfs_error *err)
{
    const struct rfs_export_options *options = export->options;
    const char *const paths[] = {options->target, options->source};

    return rfs_tool_reach(&options->view, paths, 2, &export->dest.store, err);
}

static int export_all(struct rfs_export *export, struct rfs_error *err)
{
    const struct rfs_export_options *options = export->options;
    const struct rfs_view_how how = {.log = print_line, .log_ctx = export};
    int rc =
        rfs_dest_find(options->target, options->source, &export->dest, err) ?: reach(export, err);

    if (rc == 0 && options->source)
        rc = rfs_tool_open(options->source, &options->view, &how, &export->view, err)
                 ?: rfs_export_list(export, err);
    rc = rc ?: rfs_export_read_manifests(export, err);
    rfs_patience_end(); /* without a source, the bucket's list was what one waits for */
    if (rc == 0 && options->verify)
        return rfs_export_verify(export, err);
    return rc ?: compare_copies(export, err)
              ?: begin_manifest(export, err)
              ?: rfs_export_check(export, err)
              ?: check_room(export, err)
              ?: rfs_export_write(export, err);
}

static int set_up(struct rfs_export *export, struct rfs_error *err)
{
    const struct rfs_export_options *options = export->options;
    int rc = 0;

    export->dest = RFS_DEST_NONE;
    export->threads = options->threads;
    export->task = options->task;
    rfs_progress_init(&export->progress, options->json);
    pthread_mutex_init(&export->saver.lock, NULL);
    const bool room = rfs_manifest_init(&export->known, RFS_MANIFEST_FILES) == 0 &&
                      rfs_manifest_init(&export->stale, RFS_MANIFEST_FILES) == 0 &&
                      (export->shown_paths = rfs_intern_new()) != NULL &&
                      rfs_manifest_init(&export->saver.manifest, RFS_MANIFEST_FILES) == 0 &&
                      (export->source_paths = rfs_intern_new()) != NULL;
    if (!room)
        return rfs_fail_memory(err);
    if (export->task.count == 0)
        rc = rfs_task_detect(&export->task, err);
    if (rc == 0 && export->task.warning)
        rfs_tool_warn(export->task.warning, export->task.remedy);
    return rc;
}

static void tear_down(struct rfs_export *export)
{
    reshard_close(export->view);
    for (size_t i = 0; i < export->files.n; i++)
        free(export->files.data[i].path);
    free(export->files.data);
    rfs_intern_free(export->source_paths);
    free(export->source_ids.data);
    rfs_manifest_free(&export->known);
    rfs_manifest_free(&export->stale);
    rfs_intern_free(export->shown_paths);
    rfs_manifest_free(&export->saver.manifest);
    pthread_mutex_destroy(&export->saver.lock);
    rfs_dest_close(&export->dest);
    rfs_progress_destroy(&export->progress);
}

static int run(void *request, struct rfs_error *err)
{
    struct rfs_export_options *options = request;
    struct rfs_export export = {.options = options};
    const double begun = rfs_progress_now();
    int rc = rfs_export_options_check(options, err);

    signal(SIGPIPE, SIG_IGN); /* the export goes on without a reader of its progress */
    if (rc)
        return rc;
    rc = set_up(&export, err) ?: export_all(&export, err);
    if (options->json)
        print_json(&export, rfs_progress_now() - begun, err);
    else if (rc == 0)
        print_summary(&export, rfs_progress_now() - begun);
    tear_down(&export);
    fflush(stdout); /* before the message of a failure */
    return rc;
}

const struct rfs_command rfs_command_export = {
    .name = "export",
    .usage = "reshard export SRC DST [-s FILE] [-d FILE] [-o OPTION,…] [option…]\n"
             "reshard export --verify DST\n",
    .summary = "writes the files of a mount into a folder or a bucket",
    .arguments = rfs_export_arguments,
    .after = "A stopped export continues. On several machines: under srun or mpirun.\n",
    .request_bytes = sizeof(struct rfs_export_options),
    .run = run,
};
