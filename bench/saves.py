# SPDX-License-Identifier: Apache-2.0
"""Many saves side by side: what step=all takes, for ten times as many."""
import os
import shutil
import time

RANKS = (4, 2)
TIMES = 10
FEW, FEW_QUICK = 1000, 200  # saves
SERVER = ("step=all", "cache=1", "index_cache=no")
KIB = 1024


def write(bench, saves):
    """A tree of SAVES saves, which are links to one: names are all that matters."""
    tree = bench.example("saves", ["--cut", "rows", "--layers", "1"], 4096, RANKS)
    for rank in range(RANKS[0]):
        folder = os.path.join(tree.source, f"rank_{rank}")
        (name,) = os.listdir(folder)
        first = os.path.join(folder, "net-1_10.ckpt")
        os.rename(os.path.join(folder, name), first)
        for epoch in range(2, saves + 1):
            os.link(first, os.path.join(folder, f"net-{epoch}_10.ckpt"))
    return tree


def mounting(bench, mounted, peak, saves):
    """Seconds until all saves are listed, and the server's memory."""
    tree, mount = write(bench, saves), bench.path("mnt.saves")
    start = time.perf_counter()
    with mounted(bench.server(tree, mount, *SERVER), mount) as pid:
        names = os.listdir(mount)
        took = time.perf_counter() - start
        assert sum("_" in name for name in names) == saves, names[:10]
        memory = peak(pid)
    shutil.rmtree(tree.folder)
    return took, memory


def measure(bench, mounted, peak, quick, figures, say):
    few = FEW_QUICK if quick else FEW
    say(f"mounting {few} saves side by side, and {few * TIMES}")
    small, large = (mounting(bench, mounted, peak, saves) for saves in (few, few * TIMES))
    figures.add("step=all of ten times as many saves", large[0] / small[0], 15, at_most=True,
                note=f"{few * TIMES} saves in {large[0]:.2f} s")
    figures.add("the same: memory of a save / 64 KiB", (large[1] - small[1]) / (few * (TIMES - 1)) / (64 * KIB), 1,
                at_most=True, note=f"{large[1] / KIB / KIB:.0f} MiB")
