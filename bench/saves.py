# SPDX-License-Identifier: Apache-2.0
"""Many saves side by side: what step=all takes, for ten times as many. And saves of a training: how soon each can be read."""
import os
import shutil
import statistics
import subprocess
import time

RANKS = (4, 2)
TIMES = 10
FEW, FEW_QUICK = 1000, 200  # saves
SERVER = ("step=all", "cache=1", "index_cache=no")
KIB = 1024
COMING, COMING_QUICK = 50, 3
LOOKS = 0.01  # seconds between two looks of a reader at the link


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


def newest_byte(mount, name):
    """Waits until the link leads to a save, and reads from a file of it."""
    link = os.path.join(mount, "latest")
    while not (os.path.lexists(link) and os.readlink(link) == name):
        time.sleep(LOOKS)
    rank = sorted(os.listdir(link))[0]
    (file,) = os.listdir(os.path.join(link, rank))
    with open(os.path.join(link, rank, file), "rb", buffering=0) as opened:
        assert opened.read(1)


def coming(bench, mounted, saves):
    """Seconds from the end of each save, which its .metadata is, to its first byte in latest."""
    tree, mount, run = bench.example("coming", ["--cut", "rows", "--layers", "2"], 1 << 20, RANKS), bench.path("mnt.coming"), bench.path("run.coming")
    whole = bench.path("coming.dcp")
    subprocess.run([bench.reshard, "export", tree.source, whole, "--no-fsync", "-o", ",".join(tree.options("view=dcp"))],
                   check=True, stdout=subprocess.DEVNULL)
    os.makedirs(run)
    target = next(option for option in tree.options() if option.startswith("dst_strategy="))
    took = []
    with mounted([bench.reshardfs, "-f", run, mount, "-o", f"{target},follow,index_cache=no"], mount):
        for step in range(1, saves + 1):
            save = os.path.join(run, f"step-{step}")
            os.makedirs(save)
            for name in os.listdir(whole):
                if name.endswith(".distcp"):
                    shutil.copy(os.path.join(whole, name), save)
            time.sleep(0.2)  # of the training
            shutil.copy(os.path.join(whole, ".metadata"), os.path.join(save, ".metadata.tmp"))
            os.rename(os.path.join(save, ".metadata.tmp"), os.path.join(save, ".metadata"))
            start = time.perf_counter()
            newest_byte(mount, f"0_{step}")
            took.append(time.perf_counter() - start)
    shutil.rmtree(tree.folder)
    shutil.rmtree(whole)
    shutil.rmtree(run)
    return took


def measure_coming(bench, mounted, quick, figures, say):
    saves = COMING_QUICK if quick else COMING
    say(f"following {saves} saves")
    took = coming(bench, mounted, saves)
    figures.add("follow: end of a save to a byte of it / 0.5 s", max(took) / 0.5, 1, at_most=True,
                note=f"{statistics.median(took) * 1000:.0f} ms, at most {max(took) * 1000:.0f} ms")


def measure(bench, mounted, peak, quick, figures, say):
    few = FEW_QUICK if quick else FEW
    say(f"mounting {few} saves side by side, and {few * TIMES}")
    small, large = (mounting(bench, mounted, peak, saves) for saves in (few, few * TIMES))
    figures.add("step=all of ten times as many saves", large[0] / small[0], 15, at_most=True,
                note=f"{few * TIMES} saves in {large[0]:.2f} s")
    figures.add("the same: memory of a save / 64 KiB", (large[1] - small[1]) / (few * (TIMES - 1)) / (64 * KIB), 1,
                at_most=True, note=f"{large[1] / KIB / KIB:.0f} MiB")
    measure_coming(bench, mounted, quick, figures, say)
