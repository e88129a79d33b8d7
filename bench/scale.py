# SPDX-License-Identifier: Apache-2.0
"""
What grows with the checkpoint: time and memory until a mount is listed, for more ranks, more tensors, more saves and
more chunks. Each figure is the exponent of growth: 1 is in proportion. Tensors have a few bytes, so that headers and
metadata are all that matters.
"""
import json
import math
import os
import shutil
import struct
import subprocess
import time

import metadata

MIB = 1 << 20
PARAMETERS = 10000
RANKS, RANKS_QUICK, RANKS_SMOKE = (512, 1024, 2048, 4096), (128, 256, 512), (8, 16)
TENSORS, TENSORS_QUICK, TENSORS_SMOKE = (35000, 70000, 100000), (10000, 20000), (200, 400)
SHARDS = 64
SAVES, SAVES_QUICK, SAVES_SMOKE = (1000, 10000), (200, 2000), (10, 40)
CHUNKED, CHUNKED_QUICK, CHUNKED_SMOKE = (2500, 5000, 10000), (500, 1000), (20, 40)
EXPONENT = 1.05
# Time below it is that of starting and of the machine, so that an exponent says nothing.
LEAST = 0.05
# Each kind of file that describes its tensors; some views are of a whole checkpoint.
WHOLE = ("view=huggingface", "view=unified")
VIEWS = ("format=ckpt", "format=safetensors", "format=pt", "view=dcp", "view=hyper_parallel",
         "view=mindformers", *WHOLE)
SETTLED = 3  # seconds after which what was written is of the past


def exponent(counts, values):
    """The slope of the logarithms, by least squares."""
    xs, ys = ([math.log(v) for v in each] for each in (counts, values))
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


class Listed:
    """Servers that are listed: seconds, and bytes of memory at most."""

    def __init__(self, bench, mounted, peak):
        self.bench, self.mounted, self.peak = bench, mounted, peak

    def whole(self, source, options):
        """Until all names and sizes of a new mount are listed."""
        mount = self.bench.path("mnt.scale")
        start = time.perf_counter()
        command = [self.bench.reshardfs, "-f", source, mount, "-o", ",".join([*options, "index_cache=no"])]
        with self.mounted(command, mount) as pid:
            subprocess.run(["ls", "-lR", mount], check=True, stdout=subprocess.DEVNULL)
            return time.perf_counter() - start, self.peak(pid)


def grow(figures, name, counts, measured):
    """The figures of one kind of checkpoint, of several sizes."""
    times, memory = zip(*measured)
    said = ", ".join(f"{count:,}: {took:.2f} s {used / MIB:.0f} MiB" for count, (took, used) in zip(counts, measured))
    figures.add(f"{name}: exponent of time", exponent(counts, [max(took, LEAST) for took in times]), EXPONENT,
                at_most=True, note=said)
    figures.add(f"{name}: exponent of memory", exponent(counts, memory), EXPONENT, at_most=True)


# ---- ranks -------------------------------------------------------------------------------------


def of_ranks(listed, counts, parameters, figures, say):
    bench, measured = listed.bench, []
    for ranks in counts:
        say(f"listing {ranks} ranks of {parameters} tensors")
        tree = bench.example("scale", ["--cut", "rows", "--layers", str(parameters), "--hidden", "4", "--dtype", "float16"],
                             1, (ranks, ranks // 4 * 3))
        time.sleep(SETTLED)
        listed.whole(tree.source, tree.options())  # into the page cache
        measured.append(listed.whole(tree.source, tree.options()))
        shutil.rmtree(tree.folder)
    grow(figures, f"ls -lR of {counts[0]:,} to {counts[-1]:,} ranks of {parameters:,} tensors", counts, measured)


# ---- tensors -----------------------------------------------------------------------------------


def write_model(folder, tensors):
    """A HuggingFace model in shards: experts of many layers, of 64 rows each."""
    os.mkdir(folder)
    names = [f"model.layers.{i // 1000}.mlp.experts.{i // 3 % 333}.{('gate_proj', 'up_proj', 'down_proj')[i % 3]}.{i}.weight"
             for i in range(tensors)]
    where = {}
    for shard in range(SHARDS):
        mine = names[shard::SHARDS]
        file = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        header = {name: {"dtype": "BF16", "shape": [64, 1], "data_offsets": [i * 128, (i + 1) * 128]}
                  for i, name in enumerate(mine)}
        text = json.dumps(header, separators=(",", ":")).encode()
        with open(os.path.join(folder, file), "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + 128 * len(mine))
        where.update(dict.fromkeys(mine, file))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="ascii") as out:
        json.dump({"metadata": {"total_size": 128 * tensors}, "weight_map": where}, out)


def of_tensors(listed, counts, figures, say):
    """64 ranks, each with a row of each tensor, in every kind of view."""
    folders = {}
    for tensors in counts:
        folders[tensors] = listed.bench.path(f"model.{tensors}")
        write_model(folders[tensors], tensors)
    time.sleep(SETTLED)
    for view in VIEWS:
        say(f"listing {counts[0]:,} to {counts[-1]:,} tensors, {view}")
        ranks = f"dst_ranks={SHARDS}"
        options = [view] if view in WHOLE else [view, ranks, f"dst_rules=axes tp={SHARDS};*: axis 0 over tp"]
        grow(figures, f"ls -lR of {counts[0]:,} to {counts[-1]:,} tensors, {view}", counts,
             [listed.whole(folders[tensors], options) for tensors in counts])
    for folder in folders.values():
        shutil.rmtree(folder)


# ---- saves -------------------------------------------------------------------------------------


OF_SAVES = ("cache=1", "dst_ranks=2", "dst_rules=axes tp=2;*: axis 0 over tp")


def write_saves(folder, saves, begin=0):
    """Saves of one file each, which is the same."""
    first = folder + ".first"
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(first):
        text = json.dumps({"weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}).encode()
        with open(first, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text + bytes(64))
        os.utime(first, (1, 1))  # all have ended long ago
    for step in range(begin, saves):
        save = os.path.join(folder, f"checkpoint-{step + 1}")
        os.mkdir(save)
        shutil.copy2(first, os.path.join(save, "model.safetensors"))


def look(listed, folder, saves, more):
    """Seconds of processors that a look takes at SAVES saves, one of which is new."""
    mount = listed.bench.path("mnt.scale")
    options = ["follow=1", "index_cache=no", *OF_SAVES]
    with listed.mounted([listed.bench.reshardfs, "-f", folder, mount, "-o", ",".join(options)], mount) as pid:
        shown = saves
        before = None
        for _ in range(more + 1):
            while sum("_" in name for name in os.listdir(mount)) < shown:
                time.sleep(0.05)
            if before is None:
                before = metadata.processor_seconds(pid)
            if shown == saves + more:
                break
            write_saves(folder, shown + 1, shown)
            shown += 1
        return (metadata.processor_seconds(pid) - before) / more, listed.peak(pid)


def of_saves(listed, counts, figures, say):
    measured = {"step=all": [], "a look of follow": []}
    for saves in counts:
        say(f"listing and following {saves} saves")
        folder = listed.bench.path(f"saves.{saves}")
        write_saves(folder, saves)
        time.sleep(SETTLED)
        measured["step=all"].append(listed.whole(folder, ["step=all", *OF_SAVES]))
        measured["a look of follow"].append(look(listed, folder, saves, 3))
        shutil.rmtree(folder)
        os.unlink(folder + ".first")
    for name, values in measured.items():
        grow(figures, f"{name}, {counts[0]:,} to {counts[-1]:,} saves", counts, values)


# ---- chunks ------------------------------------------------------------------------------------


def of_chunks(listed, counts, figures, say):
    """Checkpoint 2.0 of 1,024 ranks, each tensor in 32 chunks; and the same as torch.distributed.checkpoint."""
    measured = {"Checkpoint 2.0": [], "DCP": []}
    for tensors in counts:
        say(f"listing {tensors} tensors in 32 chunks each of 1,024 ranks")
        folder = listed.bench.path(f"chunks.{tensors}")
        metadata.write(folder, metadata.Saved(1, False, 32), tensors)
        target = ["dst_ranks=32", "dst_rules=axes tp=32;*: axis 0 over tp"]
        measured["Checkpoint 2.0"].append(listed.whole(folder, target))
        dcp = folder + ".dcp"
        subprocess.run([listed.bench.reshard, "export", folder, dcp, "--no-fsync", "-o",
                        ",".join(["view=dcp", *target])], check=True, stdout=subprocess.DEVNULL)
        measured["DCP"].append(listed.whole(dcp, target))
        shutil.rmtree(folder)
        shutil.rmtree(dcp)
    for name, values in measured.items():
        grow(figures, f"{name} of 32 chunks a tensor, {counts[0]:,} to {counts[-1]:,} tensors", counts, values)


def measure(bench, mounted, peak, options, figures, say):
    listed = Listed(bench, mounted, peak)

    def sizes(full, quick, smoke):
        return smoke if options.smoke else quick if options.quick else full
    of_ranks(listed, sizes(RANKS, RANKS_QUICK, RANKS_SMOKE), 200 if options.smoke else PARAMETERS, figures, say)
    of_tensors(listed, sizes(TENSORS, TENSORS_QUICK, TENSORS_SMOKE), figures, say)
    of_saves(listed, sizes(SAVES, SAVES_QUICK, SAVES_SMOKE), figures, say)
    of_chunks(listed, sizes(CHUNKED, CHUNKED_QUICK, CHUNKED_SMOKE), figures, say)
