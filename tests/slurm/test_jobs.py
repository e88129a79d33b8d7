# SPDX-License-Identifier: Apache-2.0
"""Exports and mounts in jobs of a real Slurm, with the lines of doc/CLUSTER.md and the scripts of contrib/slurm."""
import os
import re
import shlex
import signal
import subprocess

from exporting import *
from test_life import keeper
from test_cluster import RANKS, check_all, tree_of
from forge import Tree

TASKS = 4


def export_line(tree, target, *more):
    return shlex.join(words(tree.src, target, tree.options(), *more))


def script(*lines):
    path = os.path.join(folder("scripts"), "job.sh")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(["#!/bin/bash", "set -e", *lines, ""]))
    return path


def printed():
    """What the jobs of this test have printed."""
    out = folder("printed")
    return "".join(read_all(os.path.join(out, name)).decode() for name in sorted(os.listdir(out)))


def batch(*options, lines, status=0, **how):
    """Waits for a job."""
    out = os.path.join(folder("printed"), "%A-%a")
    got = run("sbatch", "--wait", "-o", out, *options, script(*lines), **how)
    equal(got.returncode, status, f"the status of the job, which printed {printed()!r}, with {got.stderr!r}")


def tasks_of(target, name=os.path.basename(reshard)):
    """The processes that export into TARGET, by their number in the job."""
    out = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = read_all(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
            if target in command and os.path.basename(command[0]) == name:
                out[int(re.search(rb"\0SLURM_PROCID=(\d+)", read_all(f"/proc/{pid}/environ"))[1])] = int(pid)
        except (OSError, TypeError):
            continue
    return out


def test_tasks_of_srun():
    tree, target = tree_of(), place()
    got = run("srun", "-n", str(TASKS), *words(tree.src, target, tree.options()))
    equal(got.returncode, 0, got.stderr)
    lines = sorted(line.split(": ")[0] for line in got.stdout.splitlines() if line.startswith("task "))
    equal(lines, [f"task {t} of {TASKS}" for t in range(TASKS)], got.stdout)
    check_all(tree, target)


def test_jobs_of_an_array():
    tree, target = tree_of(), place()
    batch("--array=2-8:2", lines=[export_line(tree, target)])
    equal(sorted(re.findall(r"^task \d of \d", printed(), re.M)), [f"task {t} of 4" for t in range(4)], printed())
    check_all(tree, target)


def test_tasks_of_an_array():
    """Two jobs of two tasks each."""
    tree, target = tree_of(), place()
    batch("--array=0-1", "-n", "2", lines=["srun " + export_line(tree, target)])
    equal(sorted(re.findall(r"^task \d of \d", printed(), re.M)), [f"task {t} of 4" for t in range(4)], printed())
    check_all(tree, target)


def test_an_array_without_a_step():
    tree, target = tree_of(4), place()
    batch("--array=1,5,7", lines=[export_line(tree, target)], status=2)
    equal(printed().count("error: Slurm's array of 3 jobs from 1 to 7 in steps of 1 names no task for job "), 3, printed())
    check(not os.path.exists(target), "something was written")


def test_a_batch_script():
    tree, target = tree_of(4), place()
    batch("-n", "4", lines=[export_line(tree, target)])
    check("this is Slurm's batch script, not one of its tasks" in printed(), printed())
    is_right(tree, target)


def test_a_task_that_is_killed():
    """The job fails. Again, it writes what is missing."""
    tree, target = tree_of(96), place()
    slow = ["srun", "-n", str(TASKS), "-K1", *slowed("renameat2", 20000), *words(tree.src, target, tree.options(), "-j", "1")]
    with subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=under_strace()) as process:
        eventually(lambda: process.poll() is not None or (os.path.isdir(target) and len(contents(target)) >= 8
                                                          and 2 in tasks_of(target)), "a task works")
        pid = tasks_of(target).get(2)
        check(pid, "all was written before the task could be killed")
        os.kill(pid, signal.SIGKILL)
        errors = process.communicate()[1]
    check(process.returncode != 0, f"the status, with {errors!r}")
    eventually(lambda: not tasks_of(target), "all tasks end")
    equal(run(reshard, "export", "--verify", target).returncode, 1, "verified though it is not complete")
    got = run("srun", "-n", str(TASKS), *words(tree.src, target, tree.options()))
    equal(got.returncode, 0, got.stderr)
    check_all(tree, target)


def test_a_job_that_runs_out_of_time():
    """Slurm sends SIGTERM at the end of the time, which it counts in minutes. What is there then is complete."""
    signal.alarm(400)  # Slurm looks twice a minute
    tree, target = tree_of(96), place()
    slow = shlex.join([*slowed("renameat2", 3000000), *words(tree.src, target, tree.options(), "-j", "1")])
    batch("-n", "2", "--time=1", lines=["export ASAN_OPTIONS=detect_leaks=0", "srun " + slow], status=1, timeout=300)
    check("DUE TO TIME LIMIT" in printed(), printed())
    eventually(lambda: not tasks_of(target), "all tasks end")
    done = contents(target)
    check(8 <= len(done) < 96, f"{len(done)} of 96 files")
    got = run("srun", "-n", "2", *words(tree.src, target, tree.options(), "--json"))
    equal(got.returncode, 0, got.stderr)
    check_all(tree, target)


def mount_line(tree, point):
    return f"mkdir -p {point} && " + shlex.join([reshardfs, tree.src]) + f" {point} -o " + shlex.quote(tree.options())


def test_mounts_of_a_job():
    """The folder is the user's alone, and there from the first task on. It goes with the job, and so does what is mounted."""
    tree = tree_of(4)
    seen = os.path.join(folder("seen"), "sum")
    batch("-n", "1", lines=[mount_line(tree, '"$RESHARD_MOUNTS/with a blank"'), 'stat -c "%a %U" "$RESHARD_MOUNTS"',
                            f'cat "$RESHARD_MOUNTS/with a blank/rank_0/"* > {seen}', 'echo "in $RESHARD_MOUNTS"'])
    check("700 root\n" in printed(), printed())
    where = re.search(r"^in (.+)$", printed(), re.M)[1]
    check(where.startswith(os.environ["RFS_SLURM_MOUNTS"] + "/"), where)
    check(os.path.getsize(seen) > 0, "nothing was read")
    eventually(lambda: not os.path.exists(where) and not mounted(where + "/with a blank"), "the folder goes")
    eventually(lambda: not servers(where + "/with a blank"), "the server ends")


def test_mounts_that_a_lost_job_left():
    """A server that was killed leaves a mount that cannot be looked at. The next job's prolog takes it away."""
    tree = tree_of(4)
    lost = os.path.join(os.environ["RFS_SLURM_MOUNTS"], "1000000", "a mount")
    os.makedirs(lost)
    equal(run(reshardfs, tree.src, lost, "-o", tree.options()).returncode, 0, "mounted")
    kept = os.path.join(os.environ["RFS_SLURM_MOUNTS"], "1000001", "alive")
    os.makedirs(kept)
    equal(run(reshardfs, tree.src, kept, "-o", tree.options()).returncode, 0, "mounted")
    os.kill(keeper(lost), signal.SIGKILL)  # first, as it would unmount
    for pid in servers(lost):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not servers(lost), "the server ends")
    check(mounted(lost), "the mount went with its server")
    try:
        equal(run("srun", "-n", "1", "true").returncode, 0, "the status")
        check(not mounted(lost), "the lost one is there")
        check(mounted(kept) and os.path.isdir(os.path.join(kept, "rank_0")), "the other one went")
    finally:
        run("umount", "-l", kept)
