#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of torch.distributed.checkpoint as HuggingFace files, against dcp_to_torch_save of torch.

    bench/dcp.py [--size 2G] [--rounds 5] [--reshard PROGRAM] [--reshardfs PROGRAM] [--folder FOLDER] PYTHON

PYTHON has torch 2.1 or later. All read the same folder from the page cache, in turn: an export, a mount whose files are
copied, and torch. The ratios are the medians of the rounds' ratios. This program itself imports no torch: the memory of
a child would begin with its own.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time

THEIRS = """
import sys, warnings
warnings.simplefilter("ignore")
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(*sys.argv[1:])
"""


def run(command):
    """Seconds, seconds of processors, MiB at most."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}")
    return time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def through_mount(arguments, source, folder):
    """The same of a mount, until its files are copied; the memory is the server's."""
    mount, copy = folder + "/mnt", folder + "/copy"
    os.makedirs(mount, exist_ok=True)
    begin = time.monotonic()
    with subprocess.Popen([arguments.reshardfs, "-f", source, mount, "-o", "view=huggingface"]) as server:
        while not os.path.ismount(mount):
            if server.poll() is not None:
                raise SystemExit(f"exit {server.returncode}: mounting")
            time.sleep(0.001)
        copied = run(["cp", "-r", mount, copy])
        took = time.monotonic() - begin
        subprocess.run(["fusermount3", "-u", mount], check=True)
        _, status, used = os.wait4(server.pid, 0)
        server.returncode = os.waitstatus_to_exitcode(status)
    shutil.rmtree(copy)
    return took, copied[1] + used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--size", default="2G")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reshard", default="reshard")
    parser.add_argument("--reshardfs", default="reshardfs")
    parser.add_argument("--folder", help="for the files; it has room for three times the size")
    parser.add_argument("python")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        tree, source = os.path.join(folder, "tree"), os.path.join(folder, "dcp")
        run([arguments.reshard, "example", tree, "--layers", "24", "--hidden", "1024", "--size", arguments.size,
             "--dtype", "bfloat16"])
        run([arguments.reshard, "export", tree + "/src", source, "-s", tree + "/src_strategy.ckpt",
             "-o", "view=dcp,dst_ranks=8", "--no-fsync"])
        shutil.rmtree(tree)
        rounds = []
        for _ in range(arguments.rounds):
            ours = run([arguments.reshard, "export", source, folder + "/hf", "-o", "view=huggingface", "--no-fsync"])
            shutil.rmtree(folder + "/hf")
            mounted = through_mount(arguments, source, folder)
            theirs = run([arguments.python, "-c", THEIRS, source, folder + "/theirs.pt"])
            os.unlink(folder + "/theirs.pt")
            rounds.append({"export": ours, "mount": mounted, "torch": theirs})
            print("export %.1f s, %.1f s of processors, %.0f MiB" % ours,
                  "| mount and cp %.1f s, %.1f s, %.0f MiB" % mounted,
                  "| dcp_to_torch_save %.1f s, %.1f s, %.0f MiB" % theirs, flush=True)
        for what, number in (("time", 0), ("processor time", 1), ("memory", 2)):
            for way in ("export", "mount"):
                ratios = sorted(each["torch"][number] / each[way][number] for each in rounds)
                print(f"dcp_to_torch_save / {way}, {what}: {statistics.median(ratios):.1f}"
                      f" ({ratios[0]:.1f} - {ratios[-1]:.1f})")


if __name__ == "__main__":
    main()
