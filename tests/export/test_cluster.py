# SPDX-License-Identifier: Apache-2.0
"""Several tasks of one export: under mpirun, and as Slurm and others announce themselves."""
import json
import os
import shutil
import signal
import subprocess
import time

from exporting import *
from forge import Param, Tree, usual

TASKS = 4
RANKS = 32


def tree_of(ranks=RANKS):
    return Tree(folder("tree"), [Param("w", (ranks * 64, 512), 0, 0), *usual()[4:]], 8, ranks)


def mpirun():
    need(shutil.which("mpirun"), "Open MPI is missing")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *root, "--oversubscribe", "-n", str(TASKS)]


def check_all(tree, target):
    got = run(reshard, "export", "--verify", target)
    equal((got.returncode, got.stderr), (0, ""), f"verified, with {got.stdout!r}")
    is_right(tree, target)
    equal(sorted(n for n in os.listdir(target) if n.startswith("reshard-")), [MANIFEST], "manifests")
    equal(len(manifest(target)["files"]), tree.dst_n, "files in the manifest")


def torchrun():
    program = os.environ.get("RFS_TORCHRUN") or shutil.which("torchrun")
    need(program and os.path.exists(program), "torchrun is missing; try: RFS_TORCHRUN=PATH")
    return [program, "--standalone", "--no-python", "--nproc-per-node", str(TASKS)]


def test_mpirun():
    export_with(mpirun())


def test_torchrun():
    export_with(torchrun())


def export_with(engine):
    tree, target = tree_of(), place()
    got = run(*engine, *words(tree.src, target, tree.options()))
    equal(got.returncode, 0, got.stderr)
    lines = sorted(line for line in got.stdout.splitlines() if line.startswith("task "))
    equal([line.split(": ")[0] for line in lines], [f"task {t} of {TASKS}" for t in range(TASKS)], got.stdout)
    check(all(f" {RANKS // TASKS} files written, " in line for line in lines), got.stdout)
    parts = [n for n in os.listdir(target) if n.startswith("reshard-")]
    equal(sorted(parts), [f"reshard-manifest.{t}.json" for t in range(TASKS)], "manifests")
    check_all(tree, target)


def tasks_of(target):
    """{number: pid} of the tasks that run."""
    out = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = read_all(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
            if target not in command or os.path.basename(command[0]) != os.path.basename(reshard):
                continue
            environment = dict(v.split("=", 1) for v in read_all(f"/proc/{pid}/environ").decode().split("\0") if "=" in v)
            out[int(environment["OMPI_COMM_WORLD_RANK"])] = int(pid)
        except (OSError, KeyError):
            continue
    return out


def test_mpirun_with_a_task_that_is_killed():
    """mpirun ends the others then. Running it again writes what is missing."""
    tree, target = tree_of(96), place()
    slow = [*mpirun(), *slowed("renameat2", 200000), *words(tree.src, target, tree.options(), "-j", "1")]
    with subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=under_strace()) as process:
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:
            if len(names(target)[0]) >= 8 and (victim := tasks_of(target).get(2)):
                os.kill(victim, signal.SIGKILL)
                break
            time.sleep(0.001)
        process.communicate()
    check(process.returncode != 0, "all was written before the task could be killed")
    eventually(lambda: not tasks_of(target), "all tasks end")
    done = names(target)[0]
    check(8 <= len(done) < 96, f"{len(done)} of 96 files are complete")
    equal(run(reshard, "export", "--verify", target).returncode, 1, "verified though it is not complete")
    inodes = {n: os.stat(os.path.join(target, n)).st_ino for n in done}
    got = run(*mpirun(), *words(tree.src, target, tree.options()))
    equal(got.returncode, 0, got.stderr)
    equal({n: os.stat(os.path.join(target, n)).st_ino for n in done}, inodes, "inodes of what was complete")
    check_all(tree, target)


ENGINES = {  # the variables of a task and of the number of tasks, and others
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    "sbatch --array": ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN=0",
                       "SLURM_ARRAY_TASK_MAX=2", "SLURM_ARRAY_TASK_STEP=1"),
    "MPICH": ("PMI_RANK", "PMI_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "torchrun": ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID=none"),
}


def test_the_table_of_launchers():
    """doc/CLUSTER.md names the variables that the program reads, and those that are tried here, and no others."""
    with open(os.path.join(top, "src", "tool", "export", "task.c"), encoding="utf-8") as file:
        source = file.read()
    read = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+|RANK)"', source))
    with open(os.path.join(top, "doc", "CLUSTER.md"), encoding="utf-8") as file:
        told = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+|RANK)`", file.read().partition("| started by |")[2].partition("\n\n")[0]))
    equal(told, read - {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID"}, "variables")
    tried = {word.split("=")[0] for words_ in ENGINES.values() for word in words_}
    equal(told - tried, {"JOB_COMPLETION_INDEX"}, "what is not tried here")


def start(tree, target, engine, task, tasks, *more):
    number, count, *others = ENGINES[engine]
    env = {**os.environ, number: str(task), count: str(tasks), **dict(word.split("=") for word in others)}
    return subprocess.Popen(words(tree.src, target, tree.options(), *more), stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, env=env)


def test_engines():
    tree = tree_of(8)
    for engine in ENGINES:
        target = place(engine)
        processes = [start(tree, target, engine, task, 3) for task in range(3)]
        for process in processes:
            errors = process.communicate()[1]
            equal((process.returncode, errors), (0, ""), f"{engine}: status, stderr")
        check_all(tree, target)


def test_tasks_divide_by_size():
    """Each file is one task's, and no task has much more than another."""
    params = [Param("w", (4096, 128), 0, 0)]
    tree = Tree(folder("tree"), params, 8, 16)
    target = place()
    seen = []
    for task in range(5):
        before = set(contents(target)) if os.path.isdir(target) else set()
        result = events(export(tree, target, "--task", f"{task}/5", "--json", "--no-fsync").stdout)[-1]
        new = set(contents(target)) - before
        equal(result["files_written"], len(new), "files written")
        check(3 <= len(new) <= 4, f"{len(new)} of 16 files for a task of 5")
        seen += new
    equal(sorted(seen), sorted(wanted(tree)), "files")


def test_another_number_of_tasks():
    """What one of four has written is kept by one of two, and by one alone."""
    tree, target = tree_of(8), place()
    export(tree, target, "--task", "3/4")
    first = sorted(contents(target))
    equal(len(first), 2, "files of a task")
    result = [events(export(tree, target, "--task", f"{t}/2", "--json").stdout)[-1] for t in range(2)]
    equal(sum(r["files_kept"] for r in result), 2, "files kept")
    result = events(export(tree, target, "--json").stdout)[-1]
    equal((result["files_written"], result["files_kept"]), (0, 8), "written, kept")
    check_all(tree, target)


def test_a_batch_script_is_no_task():
    tree, target = tree_of(4), place()
    env = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
    got = run(*words(tree.src, target, tree.options()), env=env)
    equal(got.returncode, 0, got.stderr)
    check("this is Slurm's batch script, not one of its tasks" in got.stderr, got.stderr)
    is_right(tree, target)


def test_a_pod_is_told_of_its_task():
    tree, target = tree_of(4), place()
    got = run(*words(tree.src, target, tree.options()), env={**os.environ, "JOB_COMPLETION_INDEX": "1"})
    equal(got.returncode, 0, got.stderr)
    check("this is a pod of an Indexed Job, and it exports all files, as the others do; "
          "try: --task $JOB_COMPLETION_INDEX/N" in got.stderr, got.stderr)
    is_right(tree, target)
    got = run(*words(tree.src, place("told"), tree.options(), "--task", "1/4"), env={**os.environ, "JOB_COMPLETION_INDEX": "1"})
    equal((got.returncode, "Indexed" in got.stderr), (0, False), got.stderr)


def test_an_environment_that_makes_no_sense():
    tree = tree_of(4)
    env = {**os.environ, "PMI_RANK": "4", "PMI_SIZE": "4"}
    got = run(*words(tree.src, place(), tree.options()), env=env)
    equal((got.returncode, got.stderr), (2, "reshard: error: PMI_RANK=4 and PMI_SIZE=4 in the environment name no task; "
                                         "try: --task 0/1 for all files, or --task K/N\n"), "status, stderr")


def node_reads(tree, options, node, target):
    """(bytes of its ranks' files, bytes read of the sources) of a node of 8 ranks."""
    ranks = f"{8 * node}-{8 * node + 7}"
    command = [reshard, "export", tree + "/src", target, "-s", tree + "/src_strategy.ckpt", *options, "--ranks", ranks,
               "--json", "--no-fsync"]
    got = run(*command)
    equal((got.returncode, got.stderr), (0, ""), "status, stderr")
    result = events(got.stdout)[-1]
    equal(result["files_written"], 8, "files")
    return result["bytes_written"], result["source_bytes"]


def node_told(tree, options, node):
    """What reshard explain says that it reads, without reading."""
    got = run(reshard, "explain", tree + "/src", "-s", tree + "/src_strategy.ckpt", *options, "--ranks",
              f"{8 * node}-{8 * node + 7}", "--json")
    equal((got.returncode, got.stderr), (0, ""), "status, stderr")
    told = json.loads(got.stdout)
    equal(len(told["ranks"]), 8, "ranks")
    return told["together"]["bytes"]


def test_bytes_read_by_each_node():
    """The table of doc/CLUSTER.md, for the first node, one in the middle and the last."""
    for source, target in ((64, 56), (1024, 768)):
        tree = os.path.join(folder("trees"), f"{source}")
        example = ["--src", str(source), "--dst", str(target), "--cut", "rows", "--layers", "2", "--hidden", "4096"]
        equal(run(reshard, "example", tree, *example).returncode, 0, "example")
        # Cut over all ranks, the sources together hold each byte once.
        total = sum(os.path.getsize(os.path.join(base, n)) for base, _, names in os.walk(tree + "/src") for n in names)
        nodes = target // 8
        headers = 8 * 3 * 8192  # what looking at the headers of 3 files for each of 8 ranks may take
        for node in (0, nodes // 2, nodes - 1):
            written, read = node_reads(tree, ["-d", tree + "/dst_strategy.ckpt"], node, place(f"{source}.{node}"))
            check(abs(written - total / nodes) < headers, f"files of {written} bytes for {total} / {nodes}")
            check(written - headers < read < written * 1.01 + headers, f"{read} bytes read for {written}")
            told = node_told(tree, ["-d", tree + "/dst_strategy.ckpt"], node)
            check(written - headers < told <= read, f"{told} bytes told, {read} read for {written}")
            rules = f"dst_ranks={target},dst_rules=axes dp={nodes} tp=8\n*: axis 0 over tp"
            written, read = node_reads(tree, ["-o", rules], node, place(f"{source}.{node}.replicas"))
            check(abs(written - total) < source * 8192, f"files of {written} bytes for {total}")
            check(written - headers < read < written * 1.01 + source * 8192, f"{read} bytes read for {written}")
            told = node_told(tree, ["-o", rules], node)
            check(written - source * 8192 < told <= read, f"{told} bytes told, {read} read for {written}")
        shutil.rmtree(tree)
        shutil.rmtree(folder("to"))


def test_a_task_looks_at_its_own_sources():
    """Not at the headers of all: what another task will need may even be missing yet."""
    tree, target = Tree(folder("tree"), [Param("w", (256, 64), 0, 0)], 8, 8), place()
    result = events(export(tree, target, "--task", "3/4", "--json").stdout)[-1]
    equal(result["files_written"], 2, "files written")
    size = os.path.getsize(tree.path(1))
    with open(tree.path(1), "wb") as file:  # no checkpoint any more; another size would have all looked at
        file.write(b"?" * size)
    os.unlink(os.path.join(target, "rank_3", "checkpoint_3.ckpt"))
    result = events(export(tree, target, "--task", "3/4", "--json").stdout)[-1]
    equal((result["files_written"], result["files_kept"]), (1, 1), "written, kept")
    got = export(tree, target, "--task", "1/4", status=1)
    check(tree.path(1) in got.stderr, got.stderr)


def test_verify_by_tasks():
    tree, target = tree_of(8), place()
    export(tree, target)
    for task in range(3):
        got = run(reshard, "export", "--verify", target, "--task", f"{task}/3")
        equal((got.returncode, got.stderr), (0, ""), "status, stderr")
