# SPDX-License-Identifier: Apache-2.0
"""What views of a source show, against the model: rank files for the destination, and whole tensors."""
import contextlib
import os
import shutil
import subprocess
import time

import loading
import values

TIMEOUT = 300
MOUNTED = 4  # of so many cases one is mounted, too


def run(*arguments):
    reshard = os.environ.get("RESHARD") or os.path.join(os.environ.get("top_builddir", "."), "reshard")
    return subprocess.run([reshard, *arguments], stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False)


def reshard(*arguments):
    """None, or what it said when it failed."""
    done = run(*arguments)
    return f"{arguments[0]} exits with {done.returncode}: {done.stdout.strip()}" if done.returncode else None


def given(options):
    """What stands after -o; a switch is True."""
    return ",".join(k if v is True else f"{k}={v}" for k, v in options.items())


def export(case, source, target, options):
    """None, or what it said."""
    done = run("export", source, target, "-o", given(options))
    said = done.stdout.strip()
    if case.says not in said:
        return f"'{case.says}' is not in: {said}"
    if case.refusal:
        parts = [case.refusal] if isinstance(case.refusal, str) else case.refusal
        refused = done.returncode == case.status and all(part in said for part in parts) and not os.path.exists(target)
        return None if refused else f"exit {done.returncode} instead of a refusal that has {parts}: {said}"
    return f"export exits with {done.returncode}: {said}" if done.returncode else None


@contextlib.contextmanager
def mounted(source, target, options):
    """A mount, or an exception with what it said."""
    reshardfs = os.environ.get("RESHARDFS") or os.path.join(os.environ.get("top_builddir", "."), "reshardfs")
    os.makedirs(target)
    done = subprocess.run([reshardfs, source, target, "-o", given(options)], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False)
    if done.returncode:
        raise OSError(f"mounting exits with {done.returncode}: {done.stdout.strip()}")
    try:
        yield
    finally:
        for wait in (0, 0.1, 0.3, 1, 2, 5, 10, 20):
            time.sleep(wait)
            if subprocess.run(["fusermount3", "-u", target], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break


def take_latest(mnt, save, copy):
    """Copies the model once the link of a mount that follows leads to SAVE; None, or where it leads and why. (What maps a
    file of the mount keeps it busy.)"""
    for _ in range(TIMEOUT * 10):
        os.listdir(mnt)
        at = os.readlink(mnt + "/latest") if os.path.lexists(mnt + "/latest") else None
        if at == save:
            shutil.copy(mnt + "/latest/model.safetensors", copy)
            return None
        time.sleep(0.1)
    with open(mnt + "/.reshardfs/saves.json", encoding="utf-8") as state:
        return f"latest leads to {at} instead of {save}: {state.read()}"


def differs(path, wanted):
    """None, or how a file differs from name -> Value."""
    import mindspore as ms

    form = "safetensors" if path.endswith(".safetensors") else "ckpt"
    loaded = ms.load_checkpoint(path, format=form)
    if sorted(loaded) != sorted(wanted):
        return f"holds {sorted(loaded)}"
    for name, value in wanted.items():
        dtype, shape, content = values.loaded_bytes(loaded[name])
        if (dtype, shape) != (value.dtype, tuple(value.shape)):
            return f"{name} is {dtype}{list(shape)} instead of {value.dtype}{list(value.shape)}"
        if content != value.data.tobytes():
            return f"{name}: values"
    return None


def rank_differs(target, rank, wanted):
    problem = differs(os.path.join(target, f"rank_{rank}", f"checkpoint_{rank}.ckpt"), wanted)
    return problem and f"rank {rank}: {problem}"


def ranks_differ(case, target):
    return next((said for rank in range(case.devices) if (said := rank_differs(target, rank, case.wanted(rank)))), None)


def check_ranks(case, source, options, folder):
    target = os.path.join(folder, "ranks")
    options = {"format": "ckpt", **options}
    problem = export(case, source, target, options)
    if problem or case.refusal:
        return problem
    problem = ranks_differ(case, target) or loading.differs(source, given(options), case.name)
    if problem or sum(map(ord, case.name)) % MOUNTED or os.environ.get("RFS_NO_FUSE"):
        return problem
    with mounted(source, os.path.join(folder, "mnt"), options):
        problem = ranks_differ(case, os.path.join(folder, "mnt"))
        return f"mounted: {problem}" if problem else None


def check_whole(case, source, folder):
    target = os.path.join(folder, "whole")
    options = {"view": "huggingface", "only": "*"}
    problem = export(case, source, target, options)
    if problem or case.refusal:
        return problem
    return differs(os.path.join(target, "model.safetensors"), case.whole()) or \
        loading.differs(source, given(options), case.name)


def check(case, folder, source, options):
    """None when the views are what the model says; else how they differ."""
    if case.damage:
        case.damage(case.iteration)
    problem = check_whole(case, source, folder)
    if not problem and options:
        problem = check_ranks(case, source, options, folder)
    return problem


class Followed:
    """Mixed into a case: a training that saves while its folder, which is empty at first, is mounted. OF_MOUNT are
    options beside follow; check_saves(folder, source, mnt) saves, and says None or what is wrong."""
    of_mount = {}

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        os.makedirs(source)
        return source, {}

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        if os.environ.get("RFS_NO_FUSE"):
            return None
        mnt = os.path.join(folder, "mnt")
        with mounted(source, mnt, {"follow": 1, "view": "huggingface", **self.of_mount}):
            return self.check_saves(folder, source, mnt)
