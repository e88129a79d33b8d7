# SPDX-License-Identifier: Apache-2.0
"""Exports beside cp of as many bytes and beside MindSpore's transform_checkpoints of the same source."""
import os
import shutil
import subprocess
import time

import steady

MIB = 1 << 20
MEMORY = 300 * MIB  # what an export may take, at any size
PREFIX = "checkpoint_"


def export(bench, tree, target, *more):
    """(seconds, most resident bytes)"""
    command = [bench.reshard, "export", tree.source, target, "-s", tree.strategies[0], "-d",
               tree.strategies[1], *more]
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"reshard export: status {process.returncode}")
    return time.monotonic() - begin, usage.ru_maxrss * 1024


def copy(source, target, sync):
    """Seconds of cp -r, and of writing it out."""
    begin = time.monotonic()
    subprocess.run(["cp", "-r", source, target], check=True)
    if sync:
        steady.write_out(target)
    return time.monotonic() - begin


def clean(*folders):
    """Nothing of what was written before is on its way to the disk."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    steady.write_out(os.path.dirname(folders[0]))


def beside_cp(bench, tree, figures):
    ours, theirs = bench.path("exported"), bench.path("copied")
    kept = bench.path("as-exported")
    if not os.path.isdir(kept):
        export(bench, tree, kept)
    times = {}
    # Whoever writes gets memory that what was removed before had, or fresh memory, which is much slower where the
    # machine is a virtual one: so each side goes first once.
    for turn in ("export", "cp", "cp", "export"):
        for sync in (True, False):
            clean(ours, theirs)
            took = export(bench, tree, ours, *([] if sync else ["--no-fsync"]))[0] \
                if turn == "export" else copy(kept, theirs, sync)
            times[turn, sync] = times.get((turn, sync), 0) + took / 2
    clean(ours, theirs)
    for sync, name, asked in ((True, "export / (cp -r && sync) of as many bytes", 1.15),
                              (False, "export --no-fsync / cp -r of as many bytes", None)):
        figures.add(name, times["export", sync] / times["cp", sync], asked, at_most=True,
                    note=f"{times['export', sync]:.2f} s, {times['cp', sync]:.2f} s")


def beside_mindspore(bench, tree, ms, figures):
    out = bench.path("transformed")
    clean(out)
    theirs = ms.ask("transform", tree.source, out, PREFIX, *tree.strategies)
    for more, asked in ((["--no-fsync"], 20.0), ([], 10.0)):
        clean(out)
        ours = export(bench, tree, out, *more)[0]
        figures.add(f"transform_checkpoints / export{''.join(' ' + m for m in more)}", theirs / ours, asked,
                    note=f"{theirs:.2f} s, {ours:.2f} s")
    clean(out)


def memory(bench, trees, figures):
    for name, tree in trees.items():
        target = bench.path("exported")
        used = export(bench, tree, target, "--no-fsync")[1]
        clean(target)
        figures.add(f"export, {name}: peak memory / 300 MiB", used / MEMORY, 1.0, at_most=True,
                    note=f"{used / MIB:.0f} of {MEMORY / MIB:.0f} MiB")
