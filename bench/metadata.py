#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Checkpoint 2.0 of 1,024 ranks, from mounting to the first bytes of one rank, against json.load of its metadata.

    bench/metadata.py [--tensors 10000] [--rounds 5] [--reshardfs PROGRAM] [--folder FOLDER]

Its slices have a few bytes each, so that metadata.json and headers are all that matters. It is written twice: with one
copy of each slice in all files together, by 128 replicas of 8 ranks, and with the slices of every rank, by 8 stages of
16 replicas of 8 ranks. Both sides read it from the page cache, in turn; the ratios are the medians of the rounds' ratios.
"""
import argparse
import json
import math
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

RANKS, TENSOR_PARALLEL = 1024, 8
SHAPE = [64, 16]


class Saved:
    """Which rank's file has which slices of which tensors."""

    def __init__(self, stages, full, parallel=TENSOR_PARALLEL):
        self.stages, self.full, self.parallel = stages, full, parallel
        self.replicas = RANKS // stages // parallel
        self.slice = [SHAPE[0] // parallel, SHAPE[1]]

    def first_rank(self, tensor, tensors):
        return tensor * self.stages // tensors * (RANKS // self.stages)

    def holders(self, first, number):
        return [first + replica * self.parallel + number for replica in range(self.replicas)]

    def stored(self, tensor, holders):
        """By every holder, or by one after the other."""
        return holders if self.full else [holders[tensor % len(holders)]]


def name_of(tensor):
    return f"decoder.layers.{tensor // 10}.part{tensor % 10}.weight"


def file_of(rank):
    return f"CKP-model-{rank:07d}-{RANKS:07d}.safetensors"


def put_metadata(path, saved, tensors):
    """As MindSpore Transformers 2.1.0 writes it. Returns what each rank's file has."""
    files = [[] for _ in range(RANKS)]
    described, stored = {}, {}
    for tensor in range(tensors):
        name, first = name_of(tensor), saved.first_rank(tensor, tensors)
        described[name] = {
            "properties": {"dtype": "BFloat16", "allow_shape_mismatch": False, "allow_to_save": True,
                           "replica_id": [r for r in range(saved.replicas) for _ in range(saved.parallel)]},
            "global_shape": SHAPE, "axis_fragmentations": [saved.parallel, 1],
            "layout": {"device_matrix": [saved.replicas, saved.parallel], "tensor_map": [0, -1],
                       "interleaved_parallel": False, "alias_name": ["dp", "tp"],
                       "rank_list": list(range(first, first + RANKS // saved.stages))},
            "chunk": [{"global_offset": [k], "local_shape": saved.slice} for k in range(saved.parallel)]}
        for k in range(saved.parallel):
            holders = saved.holders(first, k)
            stored[f"('{name}', ({k},))"] = [{"file_name": file_of(r), "storage_rank": r, "rank_group": holders}
                                             for r in saved.stored(tensor, holders)]
            for rank in saved.stored(tensor, holders):
                files[rank].append(name)
    with open(path, "w", encoding="utf-8") as file:
        # One entry after the other: all of it at once would take ten times its size of memory.
        for part, entries in (("{\"state_dict_metadata\":{", described), ("},\"storage_data\":{", stored)):
            file.write(part)
            for i, (key, value) in enumerate(entries.items()):
                file.write(f"{',' if i else ''}{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}")
        file.write("}}")
    return files


def put_file(path, saved, names):
    size = 2 * math.prod(saved.slice)
    header = {name: {"dtype": "BF16", "shape": saved.slice, "data_offsets": [i * size, (i + 1) * size]}
              for i, name in enumerate(names)}
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(len(names) * size))


def write(folder, saved, tensors):
    os.mkdir(folder)
    files = put_metadata(os.path.join(folder, "metadata.json"), saved, tensors)
    for rank, names in enumerate(files):
        if names:
            put_file(os.path.join(folder, file_of(rank)), saved, names)


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_bytes(arguments, source, mount, rank):
    """Seconds until one rank's file gives bytes, those of processors, and the most memory of the server, in MiB."""
    rules = f"axes rest={RANKS // TENSOR_PARALLEL} tp={TENSOR_PARALLEL};*: axis 0 over tp"
    command = [arguments.reshardfs, "-f", source, mount, "-o", f"dst_ranks={RANKS},dst_rules={rules}"]
    start = time.monotonic()
    with subprocess.Popen(command) as server:
        while not os.path.ismount(mount):
            if server.poll() is not None or time.monotonic() > start + 300:
                sys.exit("bench: it cannot be mounted")
            time.sleep(0.001)
        listed = os.listdir(mount)
        with open(os.path.join(mount, f"rank_{rank}", f"checkpoint_{rank}.safetensors"), "rb") as file:
            file.read(1 << 20)
        took = time.monotonic() - start, processor_seconds(server.pid)
        with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
            most = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        subprocess.run(["fusermount3", "-u", mount], check=True)
    if len(listed) < RANKS:
        sys.exit(f"bench: {len(listed)} files are shown")
    return *took, most / 1024


THEIRS = "import json, sys; json.load(open(sys.argv[1]))"


def loaded(source):
    start = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", THEIRS, os.path.join(source, "metadata.json")]) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit("bench: json.load fails")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--tensors", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reshardfs", default="reshardfs")
    parser.add_argument("--folder", help="for the files, 1 GiB")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        mount = os.path.join(folder, "mnt")
        os.mkdir(mount)
        for kind, saved in (("one copy", Saved(1, False)), ("every rank", Saved(8, True))):
            source = os.path.join(folder, kind.replace(" ", "_"))
            write(source, saved, arguments.tensors)
            size = os.path.getsize(os.path.join(source, "metadata.json")) / 1e6
            rounds = []
            for number in range(arguments.rounds):
                ours, theirs = first_bytes(arguments, source, mount, number), loaded(source)
                rounds.append((ours, theirs))
                print(f"{kind}, {size:.0f} MB:",
                      "mount, ls and first bytes %.2f s, %.2f s of processors, %.0f MiB" % ours,
                      "| json.load %.2f s, %.2f s, %.0f MiB" % theirs, flush=True)
            for what, at in (("time", 0), ("processor time", 1), ("memory", 2)):
                ratios = sorted(theirs[at] / ours[at] for ours, theirs in rounds)
                print(f"{kind}: json.load / mount, {what}: {statistics.median(ratios):.1f}"
                      f" ({ratios[0]:.1f} - {ratios[-1]:.1f})")


if __name__ == "__main__":
    main()
