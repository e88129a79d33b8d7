/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/task.h"

#include "base/cleanup.h"
#include "base/order.h"
#include "tool/common/tool.h"

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
 * sbatch gives its script SLURM_PROCID and SLURM_NTASKS, too, though it runs once: only processes
 * that srun starts has a step.
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

struct load {
    uint64_t bytes;
    uint32_t task;
};

static bool is_less(const struct load *a, const struct load *b)
{
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->task < b->task;
}

/* The top of the heap has grown: back to where it belongs. */
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
