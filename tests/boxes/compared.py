# SPDX-License-Identifier: Apache-2.0
"""What views of a source show, against the model: rank files for the destination, and whole tensors."""
import os
import subprocess

import values

TIMEOUT = 120


def export(source, target, options):
    """None, or what it said."""
    reshard = os.environ.get("RESHARD") or os.path.join(os.environ.get("top_builddir", "."), "reshard")
    given = ",".join(f"{k}={v}" for k, v in options.items())
    done = subprocess.run([reshard, "export", source, target, "-o", given], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False)
    return None if done.returncode == 0 else f"export exits with {done.returncode}: {done.stdout.strip()}"


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


def check_ranks(case, source, options, folder):
    target = os.path.join(folder, "ranks")
    problem = export(source, target, options)
    for rank in range(case.devices):
        path = os.path.join(target, f"rank_{rank}", f"checkpoint_{rank}.ckpt")
        problem = problem or differs(path, case.wanted(rank))
        if problem:
            return f"rank {rank}: {problem}"
    return None


def check_whole(case, source, folder):
    target = os.path.join(folder, "whole")
    problem = export(source, target, {"view": "huggingface"})
    return problem or differs(os.path.join(target, "model.safetensors"), case.whole())


def check(case, folder, source, options):
    """None when the views are what the model says; else how they differ."""
    problem = check_whole(case, source, folder)
    if not problem and options:
        problem = check_ranks(case, source, options, folder)
    return problem
