/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of an export, which of several tasks writes each, and which task this is. Tasks do not
 * talk to each other: each computes one division from the same sizes.
 */
#include "tool/export/export.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "base/path.h"
#include "base/text.h"
#include "tool/common/tool.h"
#include "view/inspect.h"

/* ---- the environment ------------------------------------------------------------------------- */

/* Open MPI first: under its mpirun in a job of Slurm, Slurm's numbers are those of the daemons. */
static const struct {
    const char *engine, *number, *count;
} engines[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
};

/*
 * Returns whether this is the script of sbatch, which has SLURM_PROCID and SLURM_NTASKS, too,
 * though it runs once: only processes that srun starts have a step.
 */
static bool is_batch_script(void)
{
    return getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_ID") && !getenv("SLURM_STEPID");
}

int rfs_task_detect(struct rfs_task *out, struct rfs_error *err)
{
    *out = (struct rfs_task){.count = 1};
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        const char *number = getenv(engines[i].number);
        const char *count = getenv(engines[i].count);
        uint64_t n = 0;
        uint64_t of = 0;

        if (!number || !count)
            continue;
        if (strcmp(engines[i].count, "SLURM_NTASKS") == 0 && is_batch_script()) {
            out->batch_script = strcmp(count, "1") != 0;
            return 0;
        }
        if (!rfs_tool_number(count, false, 1, UINT32_MAX, &of) ||
            !rfs_tool_number(number, false, 0, of - 1, &n))
            return rfs_fail_usage(err, "--task 0/1 for all files, or --task K/N",
                                  "%s=%s and %s=%s in the environment name no task",
                                  engines[i].number, number, engines[i].count, count);
        out->number = (uint32_t)n;
        out->count = (uint32_t)of;
        out->engine = engines[i].engine;
        return 0;
    }
    return 0;
}

bool rfs_task_parse(const char *text, struct rfs_task *out)
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

/* ---- the division ---------------------------------------------------------------------------- */

/* The bytes of a task so far. */
struct load {
    uint64_t bytes;
    uint32_t task;
};

static bool is_less(const struct load *a, const struct load *b)
{
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->task < b->task;
}

/* Moves the top of the heap, which has grown, to where it belongs. */
static void sift_down(struct load *heap, size_t n)
{
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child < n && child <= 2 * i + 2; child++)
            if (is_less(&heap[child], &heap[least]))
                least = child;
        if (least == i)
            return;
        const struct load moved = heap[i];
        heap[i] = heap[least];
        heap[least] = moved;
        i = least;
    }
}

struct sized {
    uint64_t bytes;
    size_t file;
};

RFS_COMPARE(by_size, struct sized, x, y,
            RFS_ORDER(y->bytes, x->bytes) ?: RFS_ORDER(x->file, y->file))

int rfs_task_divide(const uint64_t *sizes, size_t n, uint32_t tasks, uint32_t *task_of)
{
    RFS_FREE struct sized *order = calloc(n + 1, sizeof *order);
    RFS_FREE struct load *heap = calloc(tasks, sizeof *heap);

    if (!order || !heap)
        return -ENOMEM;
    for (uint32_t t = 0; t < tasks; t++)
        heap[t].task = t; /* all the same, in order: a heap */
    for (size_t i = 0; i < n; i++)
        order[i] = (struct sized){sizes[i], i};
    RFS_SORT(order, n, by_size);
    for (size_t i = 0; i < n; i++) {
        task_of[order[i].file] = heap[0].task;
        /*
         * Files without bytes go around as well. Sizes are below 2^51, and so are not many files.
         */
        heap[0].bytes += order[i].bytes + 1;
        sift_down(heap, tasks);
    }
    return 0;
}

#define DEEPEST 4 /* folders: a save, a rank; or merged */

/* ---- walking --------------------------------------------------------------------------------- */

/* Adds a file of the view; takes PATH over. */
static int add_file(struct rfs_export *export, char *path, uint64_t id, struct rfs_error *err)
{
    const struct rfs_export_file file = {.path = path, .id = id};

    if (!rfs_manifest_takes(path)) {
        const int rc = rfs_fail_usage(err, "-o prefix= with letters and digits",
                                      "the name '%s' cannot be written into the manifest", path);
        free(path);
        return rc;
    }
    if (RFS_PUSH(&export->files, file))
        return 0;
    free(path);
    return rfs_fail_memory(err);
}

/* Adds the files of a folder of the view, and of those in it. */
static int walk(struct rfs_export *export, uint64_t dir, const char *above, unsigned depth,
                struct rfs_error *err)
{
    reshard_dirent entry = {.struct_size = sizeof entry};
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && reshard_list(export->view, dir, i, &entry) == 1; i++) {
        char *path = rfs_text_printf("%s%s%s", above, *above ? "/" : "", entry.name);

        if (!path)
            return rfs_fail_memory(err);
        if (entry.is_dir) {
            if (depth < DEEPEST)
                rc = walk(export, entry.id, path, depth + 1, err);
            free(path);
        } else if (rfs_intern_add(export->shown_paths, path, strlen(path)) == RFS_NO_ID) {
            free(path);
            rc = rfs_fail_memory(err);
        } else if (export->options->ranks.n > 0 &&
                   !rfs_ranks_has(&export->options->ranks, rfs_view_rank(export->view, entry.id))) {
            free(path);
        } else {
            rc = add_file(export, path, entry.id, err);
        }
    }
    return rc;
}

/* Refuses --ranks with a rank that is not there: that is a mistake, not nothing to do. */
static int check_ranks(const struct rfs_export *export, struct rfs_error *err)
{
    const struct rfs_ranks *ranks = &export->options->ranks;
    reshard_summary summary = {.struct_size = sizeof summary};

    reshard_summarize(export->view, &summary);
    const int rc = rfs_ranks_check(ranks, summary.target_ranks, "--ranks: ", err);
    if (rc == 0 && ranks->n > 0 && export->files.n == 0)
        return rfs_fail_usage(err, "leave --ranks out",
                              "--ranks: the files are those of one whole checkpoint, not of ranks");
    return rc;
}

/* ---- planning -------------------------------------------------------------------------------- */

int rfs_export_source_failed(struct rfs_export *export, const struct rfs_export_file *file,
                             int code, struct rfs_error *err)
{
    uint32_t n;
    struct rfs_files *files;
    const uint32_t *sources = rfs_view_sources(export->view, file->id, &n, &files);

    for (uint32_t i = 0; i < n; i++) {
        const int stuck = rfs_files_state(files, sources[i]);
        if (stuck && rfs_files_reason(files, sources[i], stuck, err))
            return code;
        if (stuck)
            return rfs_fail(err, code, RFS_IN(rfs_files_path(files, sources[i])),
                            code == -ESTALE ? "the same command again, once nothing writes to it"
                                            : "check the disk, then the same command again",
                            "the source cannot be read for %s: %s", file->path, strerror(-code));
    }
    return code == -ENOMEM ? rfs_fail_memory(err)
                           : rfs_fail(err, code, RFS_IN(file->path), NULL,
                                      "its sources cannot be read: %s", strerror(-code));
}

static int plan_file(struct rfs_export *export, struct rfs_export_file *file, struct rfs_error *err)
{
    reshard_stat st = {.struct_size = sizeof st};
    reshard_error why = {.struct_size = sizeof why};
    const int rc = reshard_getattr(export->view, file->id, &st, &why);

    if (rc) {
        *err = (struct rfs_error){.code = rc, .usage = why.usage};
        snprintf(err->text, sizeof err->text, "%s", why.message);
        return rc;
    }
    file->size = st.size;
    file->mode = st.mode & 0777;
    file->planned = true;
    rfs_progress_file(&export->progress);
    rfs_progress_tick(&export->progress);
    return 0;
}

/* Returns the identity of a source file: its path in the tree, its size and its time. */
static struct rfs_hash identify(const char *path, const char *root, const struct stat *st)
{
    XXH3_state_t state;
    const size_t above = strlen(root);
    const char *name = rfs_path_within(path, root) && path[above] == '/' ? path + above + 1 : path;
    const uint64_t words[] = {(uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec,
                              (uint64_t)st->st_mtim.tv_nsec};

    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, words, sizeof words);
    XXH3_128bits_update(&state, name, strlen(name));
    return rfs_hash_of(&state);
}

static int note_source(struct rfs_export *export, const char *path, const char *root,
                       const struct rfs_export_file *file, struct rfs_files *files, uint32_t id,
                       struct rfs_error *err)
{
    struct stat st;
    const uint32_t known = rfs_intern_count(export->source_paths);
    const uint32_t number = rfs_intern_add(export->source_paths, path, strlen(path));

    if (number == RFS_NO_ID)
        return rfs_fail_memory(err);
    if (number < known)
        return 0;
    if (rfs_path_within(path, export->dest.path))
        return rfs_fail(err, -ELOOP, RFS_IN(path), "a folder elsewhere",
                        "this source is inside the folder to write to, %s", export->dest.path);
    const int rc = rfs_files_stat(files, id, &st);
    if (rc)
        return rfs_export_source_failed(export, file, rc, err);
    return RFS_PUSH(&export->source_ids, identify(path, root, &st)) ? 0 : rfs_fail_memory(err);
}

static int note_sources(struct rfs_export *export, const struct rfs_export_file *file,
                        struct rfs_error *err)
{
    uint32_t n;
    struct rfs_files *files;
    const uint32_t *sources = rfs_view_sources(export->view, file->id, &n, &files);
    const char *root = rfs_view_source_path(export->view, file->id);
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = note_source(export, rfs_files_path(files, sources[i]), root, file, files, sources[i],
                         err);
    return rc;
}

int rfs_export_made_of(const struct rfs_export *export, const struct rfs_export_file *file,
                       struct rfs_hash *out)
{
    XXH3_state_t state;
    uint64_t key[2];
    uint32_t n;
    struct rfs_files *files;
    const uint32_t *sources = rfs_view_sources(export->view, file->id, &n, &files);
    const int rc = rfs_view_key(export->view, file->id, 0, file->size, key);

    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, key, sizeof key);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const char *path = rfs_files_path(files, sources[i]);
        const uint32_t id = rfs_intern_find(export->source_paths, path, strlen(path));
        XXH3_128bits_update(&state, &export->source_ids.data[id], sizeof(struct rfs_hash));
    }
    *out = rfs_hash_of(&state);
    return rc;
}

/* ---- the step -------------------------------------------------------------------------------- */

static int divide(struct rfs_export *export, struct rfs_error *err)
{
    const size_t n = export->files.n;
    RFS_FREE uint64_t *sizes = calloc(n + 1, sizeof *sizes);
    RFS_FREE uint32_t *task_of = calloc(n + 1, sizeof *task_of);

    if (!sizes || !task_of)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        sizes[i] = export->files.data[i].size;
    if (rfs_task_divide(sizes, n, export->task.count, task_of))
        return rfs_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        export->files.data[i].task = task_of[i];
    return 0;
}

/*
 * Plans one file of each kin, and takes the others to be as large. So no task reads the headers of
 * all sources, and all tasks come to the same division.
 */
static int estimate(struct rfs_export *export, struct rfs_error *err)
{
    uint64_t kin = 0;
    uint64_t size = 0;

    for (size_t i = 0; i < export->files.n; i++) {
        struct rfs_export_file *file = &export->files.data[i];
        const uint64_t own = rfs_view_kin(export->view, file->id);
        if (i > 0 && own == kin) {
            file->size = size;
            continue;
        }
        const int rc = plan_file(export, file, err);
        if (rc)
            return rc;
        kin = own;
        size = file->size;
    }
    return 0;
}

int rfs_export_list(struct rfs_export *export, struct rfs_error *err)
{
    int rc = walk(export, RESHARD_ROOT, "", 0, err) ?: check_ranks(export, err);

    rfs_progress_begin(&export->progress, "planning", 0,
                       (export->files.n + export->task.count - 1) / export->task.count);
    if (rc == 0 && export->task.count > 1)
        rc = estimate(export, err);
    rc = rc ?: divide(export, err);
    for (size_t i = 0; rc == 0 && i < export->files.n; i++) {
        struct rfs_export_file *file = &export->files.data[i];
        if (!rfs_export_is_mine(export, file))
            continue;
        if (!file->planned)
            rc = plan_file(export, file, err);
        rc = rc ?: rfs_view_plan_file(export->view, file->id, err)
                 ?: note_sources(export, file, err);
    }
    rfs_progress_end(&export->progress);
    return rc;
}
