# SPDX-License-Identifier: Apache-2.0
"""What is exported is what a mount shows, byte for byte, in whatever form."""
import os
import shutil
import stat
import subprocess
import time

from exporting import *
from forge import Param, Tree, usual
from seal import key_file, seal_tree


def mountable():
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        raise Skip(f"nothing can be mounted here: /dev/fuse: {error.strerror}") from error
    need(os.access(reshardfs, os.X_OK), "reshardfs is not built")


def mounted_files(source, options):
    """As cp -r brings them from a mount."""
    mountable()
    copy = os.path.join(folder("copies"), str(len(os.listdir(folder("copies")))))
    with Mount(source, options) as m:
        equal(run("cp", "-r", m.mnt, copy).returncode, 0, "cp")
    return contents(copy)


def exported_files(source, options, *more):
    target = place(str(len(os.listdir(folder("to")))))
    got = run(*words(source, target, options, *more))
    equal((got.returncode, got.stderr), (0, ""), "status, stderr")
    listed = {f["path"]: f for f in manifest(target)["files"]}
    files = contents(target)
    equal(sorted(listed), sorted(files), "what is in the manifest")
    for name, data in files.items():
        equal((listed[name]["size"], listed[name]["xxh3_128"]), (len(data), xxh3_128(data)), name)
    got = run(reshard, "export", "--verify", target)
    equal((got.returncode, got.stderr), (0, ""), "verified: status, stderr")
    return files


def as_mounted(source, options, *more, least=1):
    files = exported_files(source, options, *more)
    check(len(files) >= least, f"{len(files)} files")
    same_files(files, mounted_files(source, options), options)
    return files


def only_source(tree, *more):
    return ",".join([tree.options().split(",")[0], *more])


# ---- forms ---------------------------------------------------------------------------------------------------


def test_ckpt():
    for src_n, dst_n in ((8, 4), (4, 8), (4, 1), (1, 4), (8, 8)):
        tree = Tree(folder(f"tree{src_n}.{dst_n}"), usual(4), src_n, dst_n)
        files = as_mounted(tree.src, tree.options())
        same_files(files, wanted(tree), f"{src_n} to {dst_n}")


def test_safetensors():
    tree = Tree(folder("tree"), usual(4), 8, 4)
    as_mounted(tree.src, tree.options("format=safetensors"), least=4)


def test_torch():
    tree = Tree(folder("tree"), usual(4), 4, 2)
    as_mounted(tree.src, tree.options("format=pt"), least=2)
    as_mounted(tree.src, tree.options("format=pt,zip_crc"), least=2)


def test_huggingface():
    tree = Tree(folder("tree"), usual(8), 4, 2)
    files = as_mounted(tree.src, only_source(tree, "view=huggingface,file_size=300K"), least=4)
    check("model.safetensors.index.json" in files, f"{sorted(files)}")


def test_unified():
    tree = Tree(folder("tree"), usual(8), 4, 2)
    files = as_mounted(tree.src, only_source(tree, "view=unified,file_size=300K"), least=4)
    check("param_name_map.json" in files, f"{sorted(files)}")


def test_checksums():
    """The trailer is the one that somebody who reads the mount gets, though no byte is read a second time for it."""
    params = [Param("w", (1024, 1024), 0, 0), Param("b", (7,), -1, -1)]
    tree = Tree(folder("tree"), params, 4, 2)
    for piece in ("1", "64"):  # threads: the fewer, the larger the pieces
        files = as_mounted(tree.src, tree.options("crc"), "-j", piece)
        check(all(data[-17:-10] == tree_trailer()[:7] for data in files.values()), "a trailer")
    target = place("counted")
    result = events(export(tree, target, "--json", options=["crc"]).stdout)[-1]
    written = sum(map(len, contents(target).values()))
    check(result["source_bytes"] < written * 1.1, f"{result['source_bytes']} bytes for {written}")


def tree_trailer():
    return b"crc_num"


def test_other_names_and_types():
    tree = Tree(folder("tree"), usual(4), 4, 2)
    names = os.path.join(tree.dir, "names.json")
    with open(names, "w", encoding="utf-8") as file:
        file.write('{"rows": "model.rows", "bias": null}')
    options = tree.options("dtype=float16;cols=bfloat16", f"names={names}", "prefix=net-1_")
    files = as_mounted(tree.src, options)
    equal(sorted(files), ["rank_0/net-1_0.ckpt", "rank_1/net-1_1.ckpt"], "names")


def test_saves_side_by_side():
    tree = Tree(folder("tree"), usual(4), 4, 2)
    for rank in range(4):
        for save in ("9_5", "10_5"):
            with open(os.path.join(tree.src, f"rank_{rank}", f"ckpt-{save}.ckpt"), "wb") as file:
                file.write(tree.source(rank))
        os.unlink(tree.path(rank))
    files = as_mounted(tree.src, tree.options("step=all"))
    equal(sorted({name.split("/")[0] for name in files}), ["10_5", "9_5"], "folders")


def test_rules():
    tree = Tree(folder("tree"), usual(4), 4, 2)
    as_mounted(tree.src, only_source(tree, "dst_ranks=2,dst_rules=*: axis 0 over all"), least=2)


def test_encrypted_sources():
    """What is decrypted is for its owner alone."""
    for mode in ("AES-GCM", "AES-CBC"):
        tree = Tree(folder("tree." + mode), usual(4), 4, 2)
        plain = wanted(tree)
        seal_tree(tree, mode=mode)
        for rank in range(4):
            os.chmod(tree.path(rank), 0o444)
        options = tree.options(f"key_file={key_file(tree)}")
        target = place(mode)
        got = run(*words(tree.src, target, options))
        equal(got.returncode, 0, got.stderr)
        same_files(contents(target), plain, mode)
        same_files(mounted_files(tree.src, options), plain, mode)
        modes = {stat.S_IMODE(os.stat(os.path.join(target, name)).st_mode) for name in plain}
        equal(modes, {0o400}, "modes")


def test_large_tensors_in_pieces():
    """Pieces of several sizes, from 1 to 64 threads, with runs of a few bytes and of many."""
    params = [Param("rows", (640, 4096), 0, 0), Param("turned", (512, 4096), 0, 1),
              Param("bytes", (4096, 257 * 8), 1, 0, "Int8")]
    tree = Tree(folder("tree"), params, 8, 4)
    for threads in (1, 2, 3, 16, 64):
        target = place(f"j{threads}")
        export(tree, target, "-j", str(threads), "--no-fsync")
        is_right(tree, target)
    target = place("small-cache")
    export(tree, target, "--no-fsync", options=["cache=1M"])
    is_right(tree, target)


# ---- cost ------------------------------------------------------------------------------------------------------


def test_each_source_byte_is_read_once():
    """Counted by the view: where ranks take different bytes, and where they take the same."""
    once = [Param("w", (2048, 1024), 0, 0)]
    for dst_n in (4, 2):
        tree = Tree(folder(f"tree{dst_n}"), once, 4, dst_n)
        result = events(export(tree, place(str(dst_n)), "--json", "--no-fsync").stdout)[-1]
        size = sum(len(tree.source(r)) for r in range(4))
        check(size * 0.99 < result["source_bytes"] < size * 1.01, f"{result['source_bytes']} of {size}")
    # Four replicas of one whole: it is assembled once, and written four times.
    whole = [Param("w", (2048, 1024), 0, -1)]
    tree = Tree(folder("whole"), whole, 4, 4)
    result = events(export(tree, place("whole"), "--json", "--no-fsync").stdout)[-1]
    size = sum(len(tree.source(r)) for r in range(4))
    check(result["bytes_written"] > size * 3.9, f"{result['bytes_written']} bytes written")
    check(result["source_bytes"] < size * 1.01, f"{result['source_bytes']} of {size}")


def test_shared_blocks():
    """Where the file system can, ranges of sources that lie right are not copied; the bytes are the same."""
    makers = [m for m in ("mkfs.xfs", "mkfs.btrfs") if shutil.which(m)]
    need(os.geteuid() == 0 and makers, "this needs root, and mkfs.xfs or mkfs.btrfs")
    for maker in makers:
        image, disk = os.path.join(place_of_disk(), maker), folder("disk." + maker)
        with open(image, "wb") as file:
            file.truncate(1 << 30)
        equal(run(maker, "-f", image).returncode, 0, maker)
        got = run("mount", "-o", "loop", image, disk)
        need(got.returncode == 0, f"no loop device: {got.stderr}")
        tree = Tree(os.path.join(disk, "tree"), [Param("w", (4096, 1024), 0, 0)], 2, 2)
        target = os.path.join(disk, "out")
        result = events(export(tree, target, "--json").stdout)[-1]
        check(result["bytes_taken_over"] > 0.9 * result["bytes_written"], f"{result}")
        is_right(tree, target)
        # Elsewhere on the same disk nothing lies right, and it is written.
        other = os.path.join(disk, "other")
        result = events(export(tree, other, "--json", options=["format=safetensors"]).stdout)[-1]
        equal((result["ok"], result["bytes_taken_over"]), (True, 0), "ok, bytes taken over")
        equal(run("umount", disk).returncode, 0, "umount")


def place_of_disk():
    return folder("images")


def test_memory_does_not_grow_with_the_files():
    tree = os.path.join(folder("tree"), "big")
    equal(run(reshard, "example", tree, "--src", "4", "--dst", "2", "--size", "600M", "--cut", "cols").returncode, 0,
          "example")
    strategies = ["-s", f"{tree}/src_strategy.ckpt", "-d", f"{tree}/dst_strategy.ckpt"]
    command = [reshard, "export", f"{tree}/src", place(), *strategies, "--no-fsync"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    equal(status, 0, "status")
    if "asan" not in reshard and "tsan" not in reshard:  # sanitizers have memory of their own
        check(usage.ru_maxrss < 300 << 10, f"{usage.ru_maxrss} KiB")


def test_sizes_that_an_earlier_export_has_left():
    tree, one, two = Tree(folder("tree"), [Param("w", (256, 64), 0, 0)], 8, 4), place("one"), place("two")
    time.sleep(max(0, 3.1 - (time.time() - os.stat(tree.path(7)).st_ctime)))  # until its times say that it rests
    export(tree, one)
    export(tree, two)
    equal(contents(two), contents(one), "the second export")
    for rank in range(4):
        same_bytes(read_all(os.path.join(two, f"rank_{rank}", f"checkpoint_{rank}.ckpt")), tree.expected(rank),
                   f"rank {rank}")
