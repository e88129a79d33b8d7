# SPDX-License-Identifier: Apache-2.0
"""
Wrong inputs: what can be known before the mount is refused then, by one line and status 1; the rest is
an errno on the files concerned, with the same line in the log and from --check.
"""
import errno
import os
import re

from forge import ABSENT, Param, Tree, WHOLE, escape, layout, strategy, strategy_of, usual, value
from harness import *

SAVED = "; try: the strategy file that MindSpore saved for this checkpoint"
NOT_PROTOBUF = (
    "not a strategy in protobuf; try: the file that MindSpore saved as strategy; "
    "JSON strategies have names in .json"
)
COMPARE = "; try: compare the file with its original, or save it again"
THIS = "; try: the strategy that this checkpoint was saved under"


def new(name="tree", params=None, src=4, dst=2):
    return Tree(folder(name), params or usual(), src, dst)


def refused(tree, line, options=None):
    mnt = folder("mnt")
    fails(1, line, tree.src, mnt, "-o", options or tree.options())
    check(not mounted(mnt), "something is mounted")
    fails(1, line, "--check", tree.src, "-o", options or tree.options())


def found_later(tree, line, code="EINVAL", ranks=(0, 1), options=()):
    """Mounts, lists, gives the errno for the files concerned, and says the line in the log."""
    with Foreground(tree.src, tree.options(*options)) as m:
        for rank in range(tree.dst_n):
            equal(os.listdir(os.path.dirname(m.file(rank))), [os.path.basename(m.file(rank))], "ls")
            for call in (os.stat, read_all):
                try:
                    call(m.file(rank))
                except OSError as error:
                    equal((errno.errorcode[error.errno], rank in ranks), (code, True), f"rank {rank}")
                else:
                    check(rank not in ranks, f"rank {rank} can be read")
        check(f"reshardfs: error: {line}" in m.log().splitlines(), f"{m.log()!r} lacks {line!r}")
    got = run(reshardfs, "--check", tree.src, "-o", tree.options(*options))
    check(got.returncode == 1 and f"reshardfs: error: {line}" in got.stderr.splitlines(), f"--check: {got!r}")


def append(tree, ranks, data):
    for rank in ranks:
        tree.write(rank, tree.source(rank) + data)


# ---- known before the mount --------------------------------------------------------------------------


def test_no_strategy_file():
    tree = new()
    path = os.path.join(tree.dir, "none.ckpt")
    line = f"{path}: cannot be read: No such file or directory; try: check the path"
    refused(tree, line, f"src_strategy={path}")


def test_strategy_is_no_protobuf():
    for name, data in (
        ("text", b"hello, this is text"),
        ("cut", strategy_of(usual(), 2, "dst")[:-4]),
        ("zeroes", bytes(100)),
    ):
        tree = new(name)
        tree.put_strategy("dst_strategy.ckpt", data)
        refused(tree, f"{tree.dir}/dst_strategy.ckpt: {NOT_PROTOBUF}")
    tree = new("empty")
    tree.put_strategy("src_strategy.ckpt", b"")
    refused(tree, f"{tree.dir}/src_strategy.ckpt: the strategy file is empty")


def test_strategy_is_no_json():
    tree = new()
    tree.put_strategy("x.json", b'{"current')
    line = (
        f"{tree.dir}/x.json: offset 9: not valid JSON: it ends in a string; try: the file that MindSpore saved as strategy; "
        "only those in JSON have names in .json"
    )
    refused(tree, line, f"src_strategy={tree.dir}/x.json")


def test_axes_out_of_range():
    for number, (dev, axes, what) in enumerate(
        (
            ([2], [1, -1], "the tensor map names device axis 1, but the device matrix has 1 axes"),
            ([2], [-2, -1], "the tensor map names device axis -2, which does not exist"),
            ([2], [0, 0], "the tensor map uses device axis 0 twice"),
            ([0], [0, -1], "the device matrix has an axis of 0 devices"),
        )
    ):
        tree = new(f"tree{number}")
        tree.put_strategy("dst_strategy.ckpt", strategy([layout("rows", dev, axes)]))
        refused(tree, f"{tree.dir}/dst_strategy.ckpt: parameter 'rows': {what}{SAVED}")


def test_devices_that_differ_within_a_strategy():
    tree = new()
    both = [layout("rows", [2], [0, -1]), layout("cols", [4], [0, -1])]
    tree.put_strategy("dst_strategy.ckpt", strategy(both))
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    start = (
        f"reshardfs: error: {tree.dir}/dst_strategy.ckpt: parameter 'cols': its device matrix has 4 devices "
        "in stage 0, but that of 'rows' has 2"
    )
    equal((got.returncode, got.stderr[: len(start)], got.stderr.count("\n")), (1, start, 1), "the error")


def test_more_folders_than_devices():
    tree = new()
    tree.put_strategy("src_strategy.ckpt", strategy_of(tree.params, 2, "src"))
    refused(
        tree,
        f"{tree.src}: has rank_3, but the source strategy describes 2 ranks; "
        "try: the strategy file that was saved with this checkpoint",
    )


def test_swapped_strategies():
    swap = "try: the two strategies the other way round: they look swapped"
    tree = new()
    src, dst = (os.path.join(tree.dir, name + "_strategy.ckpt") for name in ("src", "dst"))
    got = run(reshardfs, "--check", tree.src, "-s", dst, "-d", src)
    equal((got.returncode, got.stderr), (1, f"reshardfs: error: {tree.src}: has rank_3, but the source strategy "
                                            f"describes 2 ranks; {swap}\n"), "fewer")
    tree = Tree(folder("more"), tree.params, 2, 4)
    src, dst = (os.path.join(tree.dir, name + "_strategy.ckpt") for name in ("src", "dst"))
    got = run(reshardfs, "--check", tree.src, "-s", dst, "-d", src)
    equal((got.returncode, "rank_2 has no checkpoint" in got.stderr, got.stderr.endswith(swap + "\n")), (1, True, True),
          got.stderr)


def test_formats_that_are_not_read():
    for number, (names, what, remedy) in enumerate((
        (["_CHECKPOINT_METADATA", "manifest.ocdbt", "d/0"], "Orbax, as '_CHECKPOINT_METADATA'", "save_file"),
    )):
        source = folder(f"foreign{number}")
        for name in names:
            os.makedirs(os.path.dirname(os.path.join(source, name)), exist_ok=True)
            open(os.path.join(source, name), "wb").close()
        for command in ([reshardfs, "--check", source, "-o", "format=ckpt"], [reshard, "info", source]):
            got = run(*command)
            equal((got.returncode, got.stderr.count("\n")), (1, 1), got.stderr)
            check(f"this is a checkpoint of {what}" in got.stderr and remedy in got.stderr, got.stderr)


def test_the_folder_below():
    tree = new()
    strategies = "; or a checkpoint file itself, or segmented to take all files as one"  # they are .ckpt files, too
    want = f"{tree.dir}: the folder has no rank_N folder in it; try: {tree.src}{strategies}"
    fails(1, want, "--check", tree.dir, "-o", tree.options())


def test_both_kinds_of_files():
    tree = new()
    with open(os.path.join(os.path.dirname(tree.path(1)), "x.safetensors"), "wb") as file:
        file.write(bytes(8))
    refused(
        tree,
        f"{tree.src}: the tree holds both .ckpt files (rank_0/net-1_0.ckpt) and .safetensors files "
        "(rank_1/x.safetensors); try: move one kind to another folder, or choose one by file=*.ckpt",
    )


def test_no_checkpoint_in_the_source():
    tree, mnt = new(), folder("mnt")
    ranks = "; try: give the folder that holds rank_0, rank_1 and so on"
    for rank in range(4):
        os.unlink(tree.path(rank))
    refused(tree, f"{tree.src}: no rank_N folder in it has a .ckpt, .safetensors, .pt or .gguf file{ranks}")
    with open(os.path.join(tree.dir, "notes.txt"), "w", encoding="utf-8") as file:
        file.write("x")
    for where, what in (
        (folder("bare"), f"the folder has no rank_N folder in it{ranks}"),
        (f"{tree.dir}/none", "the source does not exist; try: check the path"),
        (f"{tree.dir}/notes.txt", "the source is not a checkpoint by its name; "
         "try: a .ckpt, .safetensors, .pt or .gguf file, or a folder"),
    ):
        fails(1, f"{where}: {what}", where, mnt, "-o", tree.options())


def test_check_first():
    tree, mnt = new(), folder("mnt")
    with Mount(tree.src, tree.options("check_first")) as m:
        for rank in range(tree.dst_n):
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
    tree.write(2, b"")
    with Mount(tree.src, tree.options()) as m:
        equal(os.listdir(m.mnt), ["rank_0", "rank_1"], "without it")
    line = f"{tree.path(2)}: the file is empty; try: copy or save it again; a full disk leaves such files"
    refused(tree, line, tree.options("check_first"))
    for flags in (("-f",), ("--single-thread",), ()):
        fails(1, line, tree.src, mnt, *flags, "-o", tree.options("check_first"))
        check(not mounted(mnt), f"it is mounted with {flags}")


def test_check_finds_all_errors():
    tree = new()
    tree.write(1, tree.source(1)[:-4])
    for rank in (2, 3):
        tree.write(rank, b"no checkpoint")
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    lines = got.stderr.splitlines()
    equal((got.returncode, got.stdout, len(lines)), (1, "", 3), f"the errors: {got.stderr}")
    damaged = f"the file is damaged, or not a checkpoint{COMPARE}"
    for rank, what in ((1, COMPARE), (2, damaged), (3, damaged)):
        start = f"reshardfs: error: {tree.path(rank)}: "
        equal([line.endswith(what) for line in lines if line.startswith(start)], [True], f"of rank_{rank}: {lines}")


def test_a_mount_says_where_the_reasons_are():
    tree, mnt = new(), folder("mnt")
    tree.write(0, b"")
    line = f"{tree.path(0)}: the file is empty; try: copy or save it again; a full disk leaves such files"
    got = run(reshardfs, tree.src, mnt, "-o", tree.options())
    try:
        equal((got.returncode, got.stderr), (0, f"reshardfs: error: {line}\nreshardfs: warning: files that need it cannot "
                                                f"be read; the reasons are in {mnt}/.reshardfs/log\n"), "status, stderr")
        check(line in read_all(f"{mnt}/.reshardfs/log").decode(), "the log does not have it")
    finally:
        unmount(mnt)


# ---- known when a file is asked for --------------------------------------------------------------------


def test_truncated_in_a_header():
    tree = new()
    append(tree, [1], b"\x0a\x20\x0a")
    at = len(tree.source(1)) + 3
    what = "the file ends in the middle of a header: it is truncated, or not a checkpoint"
    found_later(tree, f"{tree.path(1)}: offset {at}: {what}{COMPARE}")


def test_truncated_in_a_tensor():
    tree = new()
    data = tree.source(1)
    tree.write(1, data[:-100])
    what = "parameter 'moment': the file is truncated in a tensor: it ends after 220 of its 320 bytes"
    found_later(tree, f"{tree.path(1)}: offset {len(data) - 320}: {what}{COMPARE}")


def test_empty_source():
    tree = new()
    tree.write(2, b"")
    what = "the file is empty; try: copy or save it again; a full disk leaves such files"
    found_later(tree, f"{tree.path(2)}: {what}")


def test_something_else_than_a_checkpoint():
    tree = new()
    tree.write(0, b"PK\x03\x04" + b"garbage" * 50)
    found_later(
        tree,
        f"{tree.path(0)}: begins as a .pt file, and is taken for a .ckpt file by its name; "
        "try: a name in .pt, if it is one",
    )


def test_duplicate_parameter():
    tree = new()
    rows = tree.params[0]
    append(tree, range(4), tree.value(rows, 0))
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    where = re.search(r"offset (\d+): .* first at offset (\d+);", got.stderr)
    check(where, got.stderr)
    found_later(
        tree,
        f"{tree.path(0)}: offset {where[1]}: parameter 'rows': the parameter comes twice, "
        f"first at offset {where[2]}; try: save it again with each parameter once",
    )


def test_wrong_tensors():
    for number, (dims, dtype, data, what) in enumerate(
        (
            ([2], "Float7", b"12", "unknown element type 'Float7'; try: save it with an element type that this release knows"),
            ([3], "Float32", b"12345678", "the tensor has 8 bytes, its dimensions and element type make it 12" + COMPARE),
            ([2**62, 2**62], "Float32", b"12345678", "the dimensions multiply to more than 2^63 bytes" + COMPARE),
            ([-1], "Float32", b"12345678", "dimension 0 is negative (-1)" + COMPARE),
        )
    ):
        tree = new(f"tree{number}")
        append(tree, range(4), value("odd", dims, dtype, data))
        got = run(reshardfs, "--check", tree.src, "-o", tree.options())
        where = re.search(r"offset (\d+): ", got.stderr)
        check(where and int(where[1]) >= len(tree.source(0)), got.stderr)
        found_later(tree, f"{tree.path(0)}: offset {where[1]}: parameter 'odd': {what}")


def test_shape_does_not_divide():
    tree = new(dst=7)
    cut = strategy([layout("rows", [7], [0, -1]), layout("cols", [7], [-1, -1])])
    tree.put_strategy("dst_strategy.ckpt", cut)
    what = "the checkpoint holds a tensor of [64, 96], and the strategy cuts axis 0 into 7 pieces: 64 is not divisible by 7"
    refused(tree, f"{tree.dir}/dst_strategy.ckpt: parameter 'rows': {what}{THIS}")


def test_axes_of_the_tensor_differ():
    tree = new()
    tree.put_strategy("dst_strategy.ckpt", strategy([layout("rows", [2], [0, -1, -1])]))
    what = "the strategy says a tensor with 3 axes, but the checkpoint holds a tensor of [64, 96]"
    refused(tree, f"{tree.dir}/dst_strategy.ckpt: parameter 'rows': {what}{THIS}")


def test_ranks_that_disagree():
    tree = new()
    tree.write(1, b"".join(value(p.name, [1], "Float32", b"1234") for p in tree.params))
    save = f"{tree.path(0)}, a rank of the same stage; try: checkpoints of one save"
    what = f"parameter 'rows': has another shape or dtype than its slice in {save}"
    found_later(tree, f"{tree.path(1)}: {what}")


def test_missing_rank_without_replica():
    tree = new()
    os.unlink(tree.path(2))
    refused(
        tree,
        f"{tree.src}: parameter 'rows': rank_2 has no checkpoint, and no other rank that has one holds the same "
        "slice; try: the checkpoint of that rank",
    )


def test_missing_rank_with_replica():
    tree = new(params=[Param("w", (8, 8), WHOLE, 0), Param("b", (8,), WHOLE, WHOLE)])
    tree.one_save()
    os.unlink(tree.path(0))
    with Foreground(tree.src, tree.options()) as m:
        for rank in range(2):
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        said = [line for line in m.log().splitlines() if "rank_0" in line and "missing" in line]
        equal(len(said), 1, f"lines about it in {m.log()!r}")


def test_redundancy_hole():
    """A slice that its one rank does not have, though others have theirs."""
    tree = new()
    kept = [p for p in tree.params if p.name != "rows"]
    whole = tree.params
    tree.params = kept
    tree.write(1, tree.source(1))
    tree.params = whole
    found_later(
        tree,
        f"{tree.src}: parameter 'rows': rank_0 of the destination needs the slice of rank_1, which does not have "
        "it, though other ranks have theirs: a hole that no replica fills; try: the checkpoints as they "
        "were saved",
        ranks=(0,),
    )


def test_missing_rank_with_a_value_of_its_own():
    """No strategy proves that another rank has the same; only the files that need it fail."""
    tree = new(params=[Param("w", (8, 8), WHOLE, 0), Param("moment", (40,), ABSENT, ABSENT)])
    os.unlink(tree.path(1))
    line = (
        f"reshardfs: error: {tree.src}: parameter 'moment': has no layout and is copied from rank_1, whose "
        "checkpoint is missing; the ranks that are left do not prove its value; try: the checkpoint of that rank, or drop=moment"
    )
    with Foreground(tree.src, tree.options()) as m:
        same_bytes(m.read(0), tree.expected(0), "rank 0")
        for call in (os.stat, read_all):
            try:
                call(m.file(1))
            except OSError as error:
                equal(errno.errorcode[error.errno], "EIO", "rank 1")
            else:
                raise AssertionError("rank 1 is answered for")
        check(line in m.log().splitlines(), f"{m.log()!r} lacks {line!r}")
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    equal((got.returncode, got.stderr.splitlines()[-1]), (1, line), "--check")


def test_strict():
    tree = new()
    found_later(
        tree,
        f"{tree.src}: parameter 'moment': is in neither strategy; try: without -o strict, to copy it unsliced",
        options=["strict"],
    )


def test_strategies_of_another_network():
    """They have names in common with each other, and none with the files."""
    tree = new(params=[Param("layer.0.w", (16, 8), 0, 1), STEP])
    other = [Param("layers.0.w", (16, 8), 0, 1)]
    for side, ranks in (("src", 4), ("dst", 2)):
        tree.put_strategy(f"{side}_strategy.ckpt", strategy_of(other, ranks, side))
    name = os.path.join(tree.dir, "src_strategy.ckpt")
    refused(
        tree,
        f"{name}: none of its parameters is in the checkpoint {tree.src}; the closest names are 'layer.0.w' there and "
        "'layers.0.w' here; try: the strategy file of the network that was saved",
    )


def test_little_in_common():
    mine = [Param("w", (16, 8), 0, 1)]
    tree = new(params=mine + [Param(f"layer.{i}", (16, 8), 0, ABSENT) for i in range(2)])
    for side, ranks in (("src", 4), ("dst", 2)):
        params = mine + [Param("layers.0", (16, 8), 0, 1)]
        tree.put_strategy(f"{side}_strategy.ckpt", strategy_of(params, ranks, side))
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    line = (
        f"reshardfs: warning: {os.path.join(tree.dir, 'src_strategy.ckpt')}: has only 1 of 3 tensors of the checkpoint, "
        "and may be of another network; the closest names are 'layer.0' there and 'layers.0' here"
    )
    equal((got.returncode, [x for x in got.stderr.splitlines() if "network" in x]), (0, [line]), "--check")


def test_a_stage_without_names_in_common():
    """What only the source has, and states, are copied: its strategy knows some of the names."""
    tree = new(params=[Param("w", (16, 8), 0, 1), Param("only", (16, 8), 0, ABSENT), STEP])
    for rank in range(4):
        tree.write(rank, b"".join(tree.value(p, rank) for p in tree.params[1:]))
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    equal((got.returncode, "network" in got.stderr), (0, False), "--check")


STEP = Param("global_step", (1,), ABSENT, ABSENT, "Int32")


def strict(tree, *sides):
    """--check with -o strict, and with the strategies of these sides."""
    files = [f"{s}_strategy={escape(os.path.join(tree.dir, s + '_strategy.ckpt'))}" for s in sides]
    got = run(reshardfs, "--check", tree.src, "-o", ",".join(files + ["strict", "index_cache=no"]))
    return got.returncode, got.stderr.splitlines()[:1]


def test_strict_is_one_rule():
    """Whatever strategies are given, and of however many devices: what they lack must be a single value."""
    for number, (src, dst, sides) in enumerate(
        ((4, 2, ("src", "dst")), (4, 1, ("src",)), (1, 4, ("dst",)), (1, 1, ("src", "dst")))
    ):
        tree = Tree(folder(f"step{number}"), [Param("w", (16, 8), 0, 0), STEP], src, dst)
        equal(strict(tree, *sides), (0, []), f"a step, {sides}")
        tree = Tree(folder(f"moment{number}"), [Param("w", (16, 8), 0, 0), STEP, usual()[-1]], src, dst)
        why = "is in neither strategy" if len(sides) == 2 else "is not in the strategy"
        line = f"{tree.src}: parameter 'moment': {why}; try: without -o strict, to copy it unsliced"
        equal(strict(tree, *sides), (1, [f"reshardfs: error: {line}"]), f"a moment, {sides}")


def test_strict_asks_for_values_that_agree():
    tree = new(params=[Param("w", (16, 8), 0, 1), STEP])
    tree.write(3, tree.source(3)[:-4] + b"\1\0\0\0")
    line = (
        f"reshardfs: error: {tree.src}: parameter 'global_step': no strategy proves its value, and rank_3 has another "
        "one than rank_0; try: checkpoints of one save; or without -o strict, to copy it as one rank has it"
    )
    equal(strict(tree, "src", "dst"), (1, [line]), "steps of two saves")


def test_what_is_copied_is_told():
    """A tensor that the source cuts and no strategy knows, with its shape, and that ranks differ in it."""
    cut = [Param("w", (16, 8), 0, 1), Param("loose", (64, 1024), 0, ABSENT), STEP]
    tree = new(params=cut)
    tree.put_strategy("src_strategy.ckpt", strategy_of(cut[:1], 4, "src"))
    with Foreground(tree.src, tree.options()) as m:
        for rank in (0, 1, 0):
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        said = [line for line in m.log().splitlines() if "loose" in line]
        line = "reshardfs: warning: 1 parameter in no strategy, copied unsliced: loose [16, 1024] (rank_1 has other bytes "
        equal(said, [line + "than rank_0)"], "log")
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    line = "reshardfs: warning: parameter 'loose' of [16, 1024] is in no strategy, copied unsliced as rank_0 has it; "
    equal((got.returncode, got.stderr), (0, line + "rank_1 has other bytes than rank_0\n"), "--check")
    line = f"reshardfs: error: {tree.src}: parameter 'loose': is in neither strategy; try: without -o strict, to copy it unsliced"
    equal(strict(tree, "src", "dst"), (1, [line]), "strict")


def test_a_slice_is_told_as_one():
    """What the source strategy alone has, cut."""
    tree = new(params=[Param("w", (16, 8), 0, 1), Param("half", (16, 4), 0, ABSENT)])
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    line = "parameter 'half' of [4, 4] is in only one strategy, copied unsliced as rank_0 has it; a slice of it"
    equal((got.returncode, got.stderr), (0, f"reshardfs: warning: {line}\n"), "--check")


def test_unsliced_parameters_are_logged_once():
    half = [Param("half", (16, 4), 0, ABSENT), Param("other", (4,), ABSENT, WHOLE)]
    tree = new(params=usual() + half)
    with Foreground(tree.src, tree.options()) as m:
        for rank in (0, 1, 0):
            os.stat(m.file(rank))
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        said = [line for line in m.log().splitlines() if "in only one strategy, copied unsliced: " in line]
        equal(len(said), 1, f"lines in {m.log()!r}")
        check("2 parameters in" in said[0] and "half" in said[0] and "other" in said[0], said[0])


def test_one_broken_rank_leaves_the_others():
    """Ranks that need no broken source are read as ever."""
    tree = new(params=[Param("w", (64, 96), 0, 0)], dst=4)
    tree.write(2, tree.source(2)[:-8])
    with Mount(tree.src, tree.options()) as m:
        for rank in (0, 1, 3):
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        try:
            os.stat(m.file(2))
        except OSError as error:
            equal(errno.errorcode[error.errno], "EINVAL", "rank 2")
        else:
            raise AssertionError("rank 2 is answered for")
