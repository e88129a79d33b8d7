# SPDX-License-Identifier: Apache-2.0
"""
What is counted and not timed: instructions of the copy kernels; bytes that a mount's server reads and replies for what programs ask, with each way
of opening and each read-ahead; and what the cache finds again of reads recorded from mounts, replayed against its
policy, plain LRU and the best there is.
"""
import json
import mmap
import os
import random
import subprocess
import time

PAGE, KIB, MIB = 4096, 1 << 10, 1 << 20
# How files are opened, and the read-ahead in KiB; None: not through the page cache.
SETTINGS = (("direct", None), ("cached", 128), ("cached", 1024), ("cached", 4096))


# ---- bytes -------------------------------------------------------------------------------------


def pages(fd, count):
    return random.Random(1).sample(range(os.fstat(fd).st_size // PAGE), count)


def random_reads(fd):
    for page in pages(fd, 1000):
        os.pread(fd, PAGE, page * PAGE)
    return 1000 * PAGE


def random_faults(fd):
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as view:
        for page in pages(fd, 50):
            view[page * PAGE]
    return 50 * PAGE


def beginning(fd):
    for at in range(0, 3 * MIB, 8 * KIB):
        os.pread(fd, 8 * KIB, at)
    return 3 * MIB


def header_of(fd):
    length = int.from_bytes(os.pread(fd, 8, 0), "little")
    tensors = [value for name, value in json.loads(os.pread(fd, length, 8)).items() if name != "__metadata__"]
    begin, end = sorted(tensor["data_offsets"] for tensor in tensors)[1]
    return 8 + length, 8 + length + begin, 8 + length + end


def one_tensor(fd):
    header, begin, end = header_of(fd)
    for at in range(begin, end, MIB):
        os.pread(fd, min(MIB, end - at), at)
    return header + end - begin


def one_tensor_mapped(fd):
    header, begin, end = header_of(fd)
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as view:
        return header + len(view[begin:end])


PATTERNS = (  # what, what it does, the format, whether it maps
    ("random reads of 4 KiB", random_reads, "ckpt", False),
    ("random faults of a mapping", random_faults, "ckpt", True),
    ("head -c 3M", beginning, "ckpt", False),
    ("safetensors header and one tensor", one_tensor, "safetensors", False),
    ("safetensors header and one tensor, mapped", one_tensor_mapped, "safetensors", True),
)


def io_of(pid):
    """(bytes read, bytes written) by the server: sources and requests, replies with their headers."""
    with open(f"/proc/{pid}/io", encoding="ascii") as lines:
        counters = dict(line.split(": ") for line in lines)
    return int(counters["rchar"]), int(counters["wchar"])


def cost(pid, path, read):
    """(bytes read, bytes replied, bytes asked) for a file that is not cached, when nothing is under way any more."""
    os.stat(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        before = io_of(pid)
        asked = read(fd)
        last = None
        while last != (last := io_of(pid)):
            time.sleep(0.05)
    finally:
        os.close(fd)
    return last[0] - before[0], last[1] - before[1], asked


def set_read_ahead(mount, kib):
    device = os.stat(mount).st_dev
    with open(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb", "w", encoding="ascii") as knob:
        knob.write(str(kib))


def bytes_read(bench, mounted, tree, figures):
    """A contiguous source; the ratio is of bytes read, the note says what was replied for what was asked."""
    for io, ahead in SETTINGS:
        for what, read, form, maps in PATTERNS:
            if maps and not ahead:
                continue
            mount = bench.path("mnt.costs")
            with mounted(bench.server(tree, mount, f"io={io}", f"format={form}"), mount) as pid:
                if ahead:
                    set_read_ahead(mount, ahead)
                path = os.path.join(mount, "rank_0", f"checkpoint_0.{form}")
                source, replied, asked = cost(pid, path, read)
            how = "direct_io" if not ahead else f"read-ahead {ahead} KiB"
            figures.add(f"{what}, {how}: source bytes / replied", source / replied, 1.1, at_most=True,
                        note=f"{replied / asked:.2f} replied for each that was asked")


# ---- instructions ------------------------------------------------------------------------------

# Bytes of a run, and at most so many instructions for each: what was counted with AVX2, and a tenth more.
KERNELS = ((1, 1.75), (2, 1.75), (4, 1.1), (8, 0.46), (16, 0.23), (64, 0.19), (1024, 0.15))


def instructions(bench, figures):
    """Of rfs_kernels_copy and what it calls, joining and splitting four ways."""
    program = bench.program("bench/micro_kernels")
    for run, most in KERNELS:
        out = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                              "--toggle-collect=rfs_kernels_copy", program, str(run)], check=True, capture_output=True,
                             text=True)
        count = next(int(line.split()[-1]) for line in out.stderr.splitlines() if "Collected" in line)
        figures.add(f"runs of {run} bytes: instructions / byte", count / int(out.stdout), most, at_most=True,
                    note=f"{count / 1e6:.2f} million for {int(out.stdout) >> 20} MiB")


# ---- the cache ---------------------------------------------------------------------------------

CASES = (  # four ranks, by rules
    ("two pairs of equal ranks", "axes dp=2 tp=2;*: axis 0 over tp"),
    ("ranks that share a quarter", "layers.0.weight: whole;*: axis 0 over all"),
)


def record(bench, files, trace, at_once):
    """Reads the files at once, or in turn and then the first two again; the trace of that."""
    turns = [files] if at_once else [[path] for path in (*files, *files[:2])]
    with open(trace, "w", encoding="ascii") as out:
        for turn in turns:
            one = trace + ".one"
            subprocess.run([bench.reader, "-n", str(len(turn)), "-t", one, *turn], check=True,
                           stdout=subprocess.DEVNULL)
            with open(one, encoding="ascii") as lines:
                out.write(lines.read())


def cache_hits(bench, mounted, tree, size, figures):
    """A source that must be gathered all over, of SIZE bytes, and caches of an eighth, a quarter and a half of that."""
    replay = bench.program("bench/cache_replay")
    caches = [str(size // MIB // part) for part in (8, 4, 2)]
    for what, rules in CASES:
        options = f"src_strategy={tree.strategies[0]},dst_ranks=4,dst_rules={rules}"
        mount = bench.path("mnt.trace")
        for at_once in (True, False):
            trace = bench.path("trace")
            with mounted([bench.reshardfs, "-f", tree.source, mount, "-o", f"{options},io=direct,cache=64M"], mount):
                record(bench, [tree.file(mount, rank) for rank in range(4)], trace, at_once)
            out = subprocess.run([replay, tree.source, options, trace, *caches], check=True, capture_output=True,
                                 text=True)
            for line, part in zip(out.stdout.splitlines(), ("an eighth", "a quarter", "a half")):
                hits = json.loads(line)
                name = f"cache of {part}, {what}, {'at once' if at_once else 'in turn'}: hits / best possible"
                figures.add(name, hits["policy"] / max(hits["best"], 1e-9),
                            note=f"{hits['policy']:.1%} hit, LRU {hits['lru']:.1%}, best {hits['best']:.1%}")
