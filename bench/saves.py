# SPDX-License-Identifier: Apache-2.0
"""Many saves side by side: what step=all and a look of follow take, for ten times as many."""
import os
import shutil
import time

RANKS = (4, 2)
TIMES = 10
MANY, FEW_QUICK = 10000, 200  # saves
SERVER = ("cache=1", "index_cache=no")


def write(bench, saves):
    """A tree of SAVES saves, which are links to one: names are all that matters."""
    tree = bench.example("saves", ["--cut", "rows", "--layers", "1"], 4096, RANKS)
    for rank in range(RANKS[0]):
        folder = os.path.join(tree.source, f"rank_{rank}")
        (name,) = os.listdir(folder)
        os.rename(os.path.join(folder, name), os.path.join(folder, "net-1_10.ckpt"))
        for epoch in range(2, saves + 1):
            os.link(os.path.join(folder, "net-1_10.ckpt"), os.path.join(folder, f"net-{epoch}_10.ckpt"))
    return tree


def mounting(bench, mounted, saves, *options):
    """Seconds until all saves are there, and of a listing of the mount, which is a look with follow; memory."""
    tree, mount = write(bench, saves), bench.path("mnt.saves")
    start = time.perf_counter()
    with mounted(bench.server(tree, mount, *SERVER, *options), mount) as pid:
        names = [name for name in os.listdir(mount) if "_" in name]
        took = time.perf_counter() - start
        assert len(names) == saves, (len(names), saves)
        start = time.perf_counter()
        os.listdir(mount)
        look = time.perf_counter() - start
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            memory = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    shutil.rmtree(tree.folder)
    return took, look, memory


def measure(bench, mounted, quick, figures, say):
    few = FEW_QUICK if quick else MANY // TIMES
    say(f"mounting {few} saves, and {few * TIMES}")
    small, large = (mounting(bench, mounted, n, "step=all") for n in (few, few * TIMES))
    figures.add("step=all, ten times as many saves", large[0] / small[0], 15, at_most=True,
                note=f"{few * TIMES} saves in {large[0]:.2f} s")
    figures.add("the same: memory for each save / 64 KiB", (large[2] - small[2]) / (few * (TIMES - 1)) / 64, 1,
                at_most=True, note=f"{large[2] / 1024:.0f} of {small[2] / 1024:.0f} MiB")
    # Files are old enough to be shown at once.
