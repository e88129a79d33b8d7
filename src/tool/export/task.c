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
#include "reshard.h"
#include "tool/common/tool.h"

/* ---- the environment ------------------------------------------------------------------------- */

/*
 * torchrun and Open MPI first: in a job of Slurm, Slurm's numbers are those of what starts them.
 * RANK alone is a common name, so another variable must show that torchrun set it.
 */
static const struct engine {
    const char *name, *number, *count, *mark;
} engines[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
    {"MPICH", "PMI_RANK", "PMI_SIZE", NULL},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", NULL},
};

#define SCRIPT (sizeof engines / sizeof *engines - 1) /* the row that a batch script has, too */
#define POD_INDEX "JOB_COMPLETION_INDEX"

#define REMEDY_TASK "--task 0/1 for all files, or --task K/N"

/*
 * Returns whether this is the script of sbatch, which has SLURM_PROCID and SLURM_NTASKS, too,
 * though it runs once: only processes that srun starts have a step.
 */
static bool is_batch_script(void)
{
    return getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_ID") && !getenv("SLURM_STEPID");
}

/* Reads the variables of an engine. 0, or -EINVAL with *err filled. */
static int read_engine(const struct engine *engine, struct rfs_task *out, struct rfs_error *err)
{
    const char *number = getenv(engine->number);
    const char *count = getenv(engine->count);
    uint64_t n = 0;
    uint64_t of = 0;

    if (!rfs_tool_number(count, false, 1, UINT32_MAX, &of) ||
        !rfs_tool_number(number, false, 0, of - 1, &n))
        return rfs_fail_usage(err, REMEDY_TASK, "%s=%s and %s=%s in the environment name no task",
                              engine->number, number, engine->count, count);
    *out = (struct rfs_task){.number = (uint32_t)n, .count = (uint32_t)of, .engine = engine->name};
    return 0;
}

/* Finds the engine that started this process. NULL if none did. */
static const struct engine *find_engine(void)
{
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        if (getenv(engines[i].number) && getenv(engines[i].count) &&
            (!engines[i].mark || getenv(engines[i].mark)))
            return &engines[i];
    return NULL;
}

/*
 * Multiplies the tasks by the jobs of Slurm's array, which have equally many tasks each: task K of
 * N in the array's job A is A·N + K. Refuses numbers without a common step: each job sees its own
 * number and the least and largest one, and cannot know its place among them.
 */
static int multiply_by_array(struct rfs_task *task, struct rfs_error *err)
{
    static const char *const names[] = {"SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX",
                                        "SLURM_ARRAY_TASK_STEP", "SLURM_ARRAY_TASK_COUNT",
                                        "SLURM_ARRAY_TASK_ID"};
    uint64_t values[5] = {0};

    for (size_t i = 0; i < 5; i++) {
        const char *text = getenv(names[i]);
        if (!text)
            return 0;
        if (!rfs_tool_number(text, false, 0, UINT32_MAX, &values[i]))
            return rfs_fail_usage(err, REMEDY_TASK, "%s=%s in the environment is no number",
                                  names[i], text);
    }
    const uint64_t min = values[0];
    const uint64_t max = values[1];
    const uint64_t step = values[2];
    const uint64_t count = values[3];
    const uint64_t id = values[4];
    if (step == 0 || id < min || id > max || (id - min) % step != 0 || (max - min) % step != 0 ||
        (max - min) / step + 1 != count || count > UINT32_MAX / task->count)
        return rfs_fail_usage(err, REMEDY_TASK,
                              "Slurm's array of %" PRIu64 " jobs from %" PRIu64 " to %" PRIu64
                              " in steps of %" PRIu64 " names no task for job %" PRIu64,
                              count, min, max, step, id);
    task->number += (uint32_t)((id - min) / step) * task->count;
    task->count *= (uint32_t)count;
    task->engine = "Slurm";
    return 0;
}

int rfs_task_detect(struct rfs_task *out, struct rfs_error *err)
{
    const struct engine *engine = find_engine();
    const bool is_slurm = engine && strcmp(engine->name, "Slurm") == 0;
    const bool is_script = engine == &engines[SCRIPT] && is_batch_script();
    int rc = 0;

    *out = (struct rfs_task){.count = 1};
    if (engine && !is_script)
        rc = read_engine(engine, out, err);
    if (rc == 0 && (!engine || is_slurm))
        rc = multiply_by_array(out, err);
    if (rc || out->engine)
        return rc;
    if (is_script && strcmp(getenv(engine->count), "1") != 0) {
        out->warning = "this is Slurm's batch script, not one of its tasks: it exports all files";
        out->remedy = "srun reshard export";
    } else if (getenv(POD_INDEX)) {
        out->warning =
            "this is a pod of an Indexed Job, and it exports all files, as the others do";
        out->remedy = "--task $" POD_INDEX "/N, where N is the number of completions";
    }
    return 0;
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

/* Returns whether a file is that of a wanted rank. */
static bool is_wanted(const struct rfs_export *export, uint64_t id)
{
    struct rfs_origins_about about;

    rfs_origins_about(export->view, id, &about);
    return export->options->ranks.n == 0 || rfs_ranks_has(&export->options->ranks, about.rank);
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
        } else if (!is_wanted(export, entry.id)) {
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
    if (rc == -EINVAL && summary.target_ranks == 1 && summary.source_ranks > 1 &&
        summary.parameters > 0)
        return rfs_fail_usage(err, "-o 'dst_rules=like source' for the ranks of the source",
                              "--ranks: without a destination there is one rank, 0, with all");
    if (rc == 0 && ranks->n > 0 && export->files.n == 0)
        return rfs_fail_usage(err, "leave --ranks out",
                              "--ranks: the files are those of one whole checkpoint, not of ranks");
    return rc;
}

/* ---- planning -------------------------------------------------------------------------------- */

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

/* Notes the sources of a file, each once: their paths and identities. */
static int note_sources(struct rfs_export *export, const struct rfs_export_file *file,
                        struct rfs_error *err)
{
    struct rfs_origins_about about;
    const char *path;
    struct stat st;
    int rc;

    rfs_origins_about(export->view, file->id, &about);
    for (uint32_t i = 0; (rc = rfs_origins_source(export->view, file->id, i, &path, &st)) == 1;
         i++) {
        const uint32_t known = rfs_intern_count(export->source_paths);
        const uint32_t number = rfs_intern_add(export->source_paths, path, strlen(path));
        if (number == RFS_NO_ID)
            return rfs_fail_memory(err);
        if (number < known)
            continue;
        if (rfs_path_within(path, export->dest.path))
            return rfs_fail(err, -ELOOP, RFS_IN(path), "a folder elsewhere",
                            "this source is inside the folder to write to, %s", export->dest.path);
        if (!RFS_PUSH(&export->source_ids, identify(path, about.source, &st)))
            return rfs_fail_memory(err);
    }
    return rc ? rfs_origins_source_failed(export->view, file->id, file->path, rc, err) : 0;
}

int rfs_export_made_of(const struct rfs_export *export, const struct rfs_export_file *file,
                       struct rfs_hash *out)
{
    XXH3_state_t state;
    uint64_t key[2];
    const char *path;
    const int rc = rfs_origins_key(export->view, file->id, 0, file->size, key);

    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, key, sizeof key);
    for (uint32_t i = 0; rc == 0 && rfs_origins_source(export->view, file->id, i, &path, NULL) == 1;
         i++) {
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
        struct rfs_origins_about about;
        rfs_origins_about(export->view, file->id, &about);
        if (i > 0 && about.kin == kin) {
            file->size = size;
            continue;
        }
        const int rc = plan_file(export, file, err);
        if (rc)
            return rc;
        kin = about.kin;
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
        rc = rc ?: rfs_origins_plan_file(export->view, file->id, err)
                 ?: note_sources(export, file, err);
    }
    rfs_progress_end(&export->progress);
    return rc;
}
