# SPDX-License-Identifier: Apache-2.0
"""
The n-th allocation, read or open of a program fails, for one n after the other, until a run passes untouched: mounting
and reading, and each command. A run either does what it does without a failure, or ends with status 1 and one line.

Of programs that make many calls a sample is tried (all with RFS_FAIL_ALL=1): the first ones, the last ones, and random
ones in between.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import time

from forge import Tree, usual
from harness import *
import test_follow

SECONDS, SEED = 30, 0  # set by run
KINDS = ("malloc", "read", "open")


def unlike_sanitized():
    need(not sanitized(), "a sanitizer has its own malloc")


class Failing:
    """Runs of one program whose n-th call of a kind fails."""

    def __init__(self, kind):
        self.kind, self.mark = kind, os.path.join(folder("marks"), kind)

    def env(self, n):
        if os.path.exists(self.mark):
            os.unlink(self.mark)
        # Without a locale, as a failure to load one is no failure of the program.
        return preloaded("stress", "fail_nth.c", LC_ALL="C", RFS_FAIL_KIND=self.kind, RFS_FAIL_AT=str(n), RFS_FAIL_MARK=self.mark)

    def count(self):
        return int(read_all(self.mark) or b"0")

    def was_hit(self):
        return os.path.exists(self.mark) and set(read_all(self.mark)) == {ord("x")}  # once in each process


def sample(total, name):
    """Which calls are to fail."""
    most = max(40, SECONDS * 2)
    if os.environ.get("RFS_FAIL_ALL") or total <= most:
        return list(range(1, total + 1))
    choose = random.Random(f"{SEED}-{name}")
    few = most // 4
    middle = choose.sample(range(few + 1, total - few + 1), most - 2 * few)
    return sorted({*range(1, few + 1), *middle, *range(total - few + 1, total + 1)})


def one_line(got, what):
    """Of a run that has failed: status 1, no signal, and a message as its last line, or a finding that says why."""
    lines = got.stderr.strip().splitlines()
    check(got.returncode in (1, 2), f"{what}: exit status {got.returncode}, {lines[-3:]}")
    told = lines and ": error: " in lines[-1] or "cannot be " in got.stdout or "out of memory" in got.stdout
    check(told, f"{what}: it says {lines[-3:]} and {got.stdout[-300:]}")


def steady(text):
    """Without the seconds that it took."""
    return re.sub(r"[0-9.]+ s\b", "N s", text)


def try_command(name, words, fresh):
    """FRESH prepares what the command writes into; the output is compared where the command succeeds."""
    tried = hits = 0
    for kind in KINDS:
        failing = Failing(kind)
        fresh()
        want = run(*words, env=failing.env(0))
        equal(want.returncode, 0, f"{name}, untouched: {want.stderr}")
        for n in sample(failing.count(), f"{name}-{kind}"):
            fresh()
            what = f"{name}: {kind} {n} fails"
            got = run(*words, env=failing.env(n), timeout=PATIENCE * 2)
            tried += 1
            hits += failing.was_hit()
            if got.returncode == 0:
                equal(steady(got.stdout), steady(want.stdout), f"{what}: what it prints")
            else:
                check(failing.was_hit(), f"{what}: it fails untouched: {got.stderr}")
                one_line(got, what)
    print(f"    {name}: {tried} runs, {hits} with a failure", flush=True)
    check(hits > 0, f"{name}: nothing has failed")


def nothing():
    pass


RULES = """
sides training model
models tiny
rows = model.rows
cols = transpose(model.cols)
drop left *
"""


def model(at):
    """Rules for the tree, and a model's config."""
    rules, config = os.path.join(at, "tiny.rules"), os.path.join(at, "config.json")
    for path, content in (rules, RULES), (config, '{"model_type": "tiny"}'):
        with open(path, "w") as file:
            file.write(content)
    return f"convert={rules},hf_config={config}"


def stage_files():
    """Of a pipeline of two stages, which merge reads."""
    return os.path.join(top, "tests", "fixtures", "strategies", "pipe8_ckpt")


def exported(tree, at, name, *options):
    """A folder that later commands read."""
    out = os.path.join(at, name)
    got = run(reshard, "export", tree.src, out, "--no-fsync", "-o", ",".join(options))
    equal(got.returncode, 0, f"exporting {name}: {got.stderr}")
    return out


def commands(tree, at):
    src, s = tree.src, os.path.join(tree.dir, "src_strategy.ckpt")
    d = os.path.join(tree.dir, "dst_strategy.ckpt")
    out = os.path.join(at, "out")

    def clean():
        shutil.rmtree(out, ignore_errors=True)
        if os.path.isfile(out):
            os.unlink(out)

    return {
        "info": ([reshard, "info", src], nothing),
        "info of a file": ([reshard, "info", tree.path(0)], nothing),
        "explain": ([reshard, "explain", src, "-o", tree.options(), "--param", "rows"], nothing),
        "ranks": ([reshard, "ranks", "-s", s, "-d", d], nothing),
        "strategy show": ([reshard, "strategy", "show", s], nothing),
        "strategy show of a name": ([reshard, "strategy", "show", s, "rows"], nothing),
        "strategy check": ([reshard, "strategy", "check", s, src], nothing),
        "strategy convert": ([reshard, "strategy", "convert", s, out + ".json", "--force", "--tree", src], nothing),
        "strategy merge": ([reshard, "strategy", "merge", out + ".ckpt", stage_files(), "--force"], nothing),
        "strategy new": ([reshard, "strategy", "new", out + ".ckpt", "--rules", "*: whole", "--ranks", "4", "-s", s, "--tree", src, "--force"], nothing),
        "verify": ([reshard, "verify", src, "-s", s], nothing),
        "verify against": ([reshard, "verify", exported(tree, at, "of2", tree.options()), "--against", src, "-s", s, "-d", d], nothing),
        "get": ([reshard, "get", src, "cols", out + ".npy", "-s", s, "--force"], nothing),
        "convert": ([reshard, "convert", "check", os.path.join(at, "tiny.rules"), src, "--hf-config", os.path.join(at, "config.json"), "-s", s], nothing),
        "export of a converted model": ([reshard, "export", src, out, "-s", s, "-o", model(at) + ",view=huggingface", "--no-fsync"], clean),
        "export of a described tree": (
            [reshard, "export", exported(tree, at, "dcp", f"src_strategy={s}", "view=dcp", "dst_ranks=3"), out, "-d", d, "--no-fsync"], clean),
        "export verified": ([reshard, "export", "--verify", os.path.join(at, "of2")], nothing),
        "diff": ([reshard, "diff", src, src, "-s", s, "-d", s], nothing),
        "stats": ([reshard, "stats", src, "-s", s], nothing),
        "export": ([reshard, "export", src, out, "-o", tree.options(), "--no-fsync"], clean),
        "example": ([reshard, "example", out, "--src", "2", "--dst", "1"], clean),
        "check": ([reshardfs, "--check", src, "-o", tree.options()], nothing),
    }


def command(name):
    unlike_sanitized()
    tree = Tree(folder("tree"), usual(), 4, 2)
    words, fresh = commands(tree, folder("at"))[name]
    try_command(name, words, fresh)


def one_mount(tree, failing, n):
    """Mounts with the failure, reads every file, unmounts. What could not be read or mounted was refused in order."""
    mnt, log = folder("mnt"), os.path.join(folder("logs"), "log")
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [reshardfs, tree.src, mnt, "-f", "-o", tree.options("index_cache=no")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out, env=failing.env(n),
        )
    eventually(lambda: mounted(mnt) or process.poll() is not None, "it is mounted, or has ended")
    what = f"{failing.kind} {n} fails"
    refused = 0
    if process.poll() is None:
        for rank in range(tree.dst_n):
            for attempt in range(2):
                try:
                    got = read_all(os.path.join(mnt, f"rank_{rank}", f"checkpoint_{rank}.ckpt"))
                    same_bytes(got, tree.expected(rank), f"{what}: rank {rank}")
                except OSError:
                    refused += 1
        process.send_signal(signal.SIGTERM)
    status = process.wait(PATIENCE)
    lines = read_all(log).decode(errors="replace").splitlines()
    check(status in (0, 1), f"{what}: exit status {status}: {lines[-3:]}")
    check(status == 0 or ": error: " in "".join(lines), f"{what}: it says {lines[-3:]}")
    if mounted(mnt):
        subprocess.run(["fusermount3", "-uz", mnt], capture_output=True)
    return refused, status


def test_each_failure_of_mount():
    """Of four reads of two files, those that fail were refused by an errno."""
    unlike_sanitized()
    tree = Tree(folder("tree"), usual(), 4, 2)
    for kind in KINDS:
        failing = Failing(kind)
        equal(one_mount(tree, failing, 0), (0, 0), "untouched")
        tried = hits = refusals = ends = 0
        for n in sample(failing.count(), f"mount-{kind}"):
            refused, status = one_mount(tree, failing, n)
            tried, hits = tried + 1, hits + failing.was_hit()
            refusals, ends = refusals + (refused > 0), ends + (status != 0)
            check(failing.was_hit() or (refused, status) == (0, 0), f"{kind} {n}: it fails untouched")
        print(f"    mount, {kind}: {tried} runs, {hits} with a failure, {refusals} with a refused read, {ends} not mounted", flush=True)
        check(hits > 0, f"{kind}: nothing has failed")


def one_follower(job, want, failing, n):
    """Mounts with the failure: then the save is shown by a later look, if not by the first."""
    mnt, log, status = folder("mnt"), os.path.join(folder("logs"), "log"), 0
    what = f"{failing.kind} {n} fails"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [reshardfs, job.src, mnt, "-f", "-o", job.options("index_cache=no")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out, env=failing.env(n),
        )
    eventually(lambda: mounted(mnt) or process.poll() is not None, "it is mounted, or has ended")
    if process.poll() is None:
        latest = os.path.join(mnt, "latest")

        def is_shown():
            try:
                return os.listdir(mnt) and os.readlink(latest) == "1_10"
            except OSError:
                return False

        eventually(lambda: is_shown() or process.poll() is not None, f"{what}: the save is shown")
        for rank, data in enumerate(want):
            try:
                same_bytes(read_all(os.path.join(latest, f"rank_{rank}", f"checkpoint_{rank}.ckpt")), data, f"{what}: rank {rank}")
            except OSError:
                check(failing.was_hit(), f"{what}: a read fails untouched")
        process.send_signal(signal.SIGTERM)
    status = process.wait(PATIENCE)
    lines = read_all(log).decode(errors="replace").splitlines()
    check(status in (0, 1), f"{what}: exit status {status}: {lines[-3:]}")
    if mounted(mnt):
        subprocess.run(["fusermount3", "-uz", mnt], capture_output=True)
    return status


def test_each_failure_of_a_mount_that_follows():
    unlike_sanitized()
    job = test_follow.Training()
    want = job.save("1_10", 1)
    time.sleep(62 + 2 * test_follow.EVERY)  # so that the first look shows it
    for kind in KINDS:
        failing = Failing(kind)
        equal(one_follower(job, want, failing, 0), 0, "untouched")
        tried = hits = ends = 0
        for n in sample(failing.count(), f"follow-{kind}"):
            ends += one_follower(job, want, failing, n) != 0
            tried, hits = tried + 1, hits + failing.was_hit()
        print(f"    a mount that follows, {kind}: {tried} runs, {hits} with a failure, {ends} not mounted", flush=True)
        check(hits > 0, f"{kind}: nothing has failed")


def make_test(name):
    def test():
        command(name)

    return test


for _name in ("info", "info of a file", "explain", "ranks", "strategy show", "strategy show of a name",
              "strategy check", "strategy convert", "strategy merge", "strategy new", "verify", "verify against", "diff", "stats", "get",
              "convert", "export", "export of a converted model", "export of a described tree", "export verified",
              "example", "check"):
    globals()["test_each_failure_of_" + _name.replace(" ", "_")] = make_test(_name)
