/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of how many tasks this process is, as whoever started it says in the environment, and which
 * files are its. Tasks do not talk to each other: each computes the same division from the same
 * sizes.
 */
#pragma once

#include "base/error.h"

struct rfs_task {
    uint32_t number;    /* below count */
    uint32_t count;     /* 1: it is alone */
    const char *engine; /* a constant; NULL: none */
    /* Slurm's variables are there, but this is the batch script, which is no task of srun. */
    bool batch_script;
};

/* "K/N" into *out. False when it is not that. */
bool rfs_task_parse(const char *text, struct rfs_task *out);

/*
 * From the variables that mpirun of Open MPI, of MPICH, or srun set, the first of them that are
 * there. 0, or -EINVAL with *err filled when they contradict themselves.
 */
int rfs_task_detect(struct rfs_task *out, struct rfs_error *err);

/*
 * task_of[i] becomes the task of file i: files by size, the largest first, each to the task that
 * has the fewest bytes so far; among equals the lower number goes first. O(n log n). 0 or -ENOMEM.
 */
int rfs_task_divide(const uint64_t *sizes, size_t n, uint32_t tasks, uint32_t *task_of);
