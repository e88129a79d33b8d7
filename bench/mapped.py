# SPDX-License-Identifier: Apache-2.0
"""Files that go through the page cache, as safetensors does by default, because its readers map them."""
import os
import shutil

import costs
import steady

READ_AHEAD_KIB = 1024  # what a mount sets where it may


def file_of(mount, rank=0):
    return os.path.join(mount, f"rank_{rank}", f"checkpoint_{rank}.safetensors")


def beside_null(bench, mounted, trees, rounds, figures):
    """
    Each from a mount that has nothing in the page cache yet; the null server opened and mapped the same way. And how
    much faster a file of the disk's file system is: than a server that costs nothing, and than what is in the page cache
    already, of which no server is asked.
    """
    local = bench.path("local.safetensors")
    for _ in range(rounds):
        for name, tree in trees.items():
            mount, null_mount = bench.path("mnt.mapped"), bench.path("mnt.cached")
            with mounted(bench.server(tree, mount, "format=safetensors"), mount), \
                    mounted([bench.null_server, "-c", null_mount, str(bench.size)], null_mount):
                costs.set_read_ahead(null_mount, READ_AHEAD_KIB)
                null_file = os.path.join(null_mount, "null")
                ours, null, again = bench.rate("-m", file_of(mount)), bench.rate("-m", null_file), bench.rate(
                    "-m", null_file)
                if not os.path.exists(local):
                    shutil.copyfile(file_of(mount), local)
            figures.add(f"{name}, mapped / null server, mapped", ours / null, 0.8,
                        note=f"{ours:.2f} of {null:.2f} GB/s")
            figures.add("the limit: a local file, mapped / null server, mapped", bench.rate("-m", local) / null)
            figures.add("the limit: a local file, mapped / null server, mapped again", bench.rate("-m", local) / again)
    os.unlink(local)


def beside_local(bench, mounted, tree, side, figures):
    """The library on a new mount and on a copy of the file; each goes first once, as both leave warm memory."""
    mount, local = bench.path("mnt.mapped"), bench.path("local.safetensors")
    with mounted(bench.server(tree, mount, "format=safetensors"), mount):
        shutil.copyfile(file_of(mount), local)
    steady.write_out(local)
    side.ask("map", local)
    times = {True: 0.0, False: 0.0}
    again = 0.0
    for order in ((True, False), (False, True)):
        with mounted(bench.server(tree, mount, "format=safetensors"), mount):
            for through in order:
                times[through] += side.ask("map", file_of(mount) if through else local)
            again += side.ask("map", file_of(mount))
    os.unlink(local)
    figures.add("safetensors, mapped through a new mount / from a local file", times[True] / times[False], 1.25,
                at_most=True, note=f"{times[True] / 2:.3f} s, {times[False] / 2:.3f} s")
    figures.add("safetensors, mapped through the mount again / from a local file", again / times[False], 1.25,
                at_most=True, note=f"{again / 2:.3f} s, {times[False] / 2:.3f} s")
