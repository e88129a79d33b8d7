# SPDX-License-Identifier: Apache-2.0
"""
Sources that fail below conversion rules, in both directions: right bytes, or an errno and one line that names the file.

    w      transposed: each row of the view is made of all ranks' files
    qkv    groups of q, k and v
    fc1    rows of gate and up in turn
    e      stacked experts, each transposed
"""
import errno
import json
import os

import safetensors_file
from forge import Param, Tree
from harness import *
from test_calls import READS, outcome, short_reads, under_strace, was_injected

RULES = """sides training model
let groups = config.groups
index x = 0 .. config.experts
w = transpose(model.w [config.cols, config.rows])
qkv = groups(groups, 0, model.q [groups * 8, config.cols], model.k [groups * 4, config.cols], model.v [groups * 4, config.cols])
fc1 = groups(config.rows, 0, model.gate [config.rows, config.cols], model.up [config.rows, config.cols])
e = join(0, stack(x, 0, transpose(model.{x}.e [config.cols, config.rows])))
"""
ROWS, COLS, GROUPS, EXPERTS, ITEM = 160, 96, 8, 4, 4
PARAMS = [Param("w", (ROWS, COLS), 0, 0), Param("qkv", (GROUPS * 16, COLS), 0, 0), Param("fc1", (2 * ROWS, COLS), 0, 0),
          Param("e", (EXPERTS * ROWS, COLS), 1, 1)]
BROKEN = "Input/output error; try: check the disk, then mount again"
VICTIM = 1  # of the four ranks, or of the two files


def rows_of(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


def transposed(rows):
    cells = [rows_of(row, ITEM) for row in rows]
    return b"".join(row[c] for c in range(len(cells[0])) for row in cells)


def as_model(full):
    """{name of the model's tensor: its shape and bytes}"""
    row = {name: rows_of(data, COLS * ITEM) for name, data in full.items()}
    parts = {"q": (0, 8), "k": (8, 12), "v": (12, 16)}
    out = {"model.w": ([COLS, ROWS], transposed(row["w"])), "model.gate": ([ROWS, COLS], b"".join(row["fc1"][::2])),
           "model.up": ([ROWS, COLS], b"".join(row["fc1"][1::2]))}
    for name, (first, end) in parts.items():
        of_name = [r for i, r in enumerate(row["qkv"]) if first <= i % 16 < end]
        out["model." + name] = ([len(of_name), COLS], b"".join(of_name))
    for x in range(EXPERTS):
        out[f"model.{x}.e"] = ([COLS, ROWS], transposed(row["e"][x * ROWS : (x + 1) * ROWS]))
    return out


class World:
    """A training's ranks shown as a model, or, BACK, a model's two files shown as the training's ranks."""

    def __init__(self, back=False, name="world"):
        self.dir = folder(name)
        self.tree = Tree(os.path.join(self.dir, "tree"), PARAMS, 4, 4)
        model = as_model(self.tree.full)
        for text, to in ((RULES, "tiny.rules"),
                         (json.dumps({"rows": ROWS, "cols": COLS, "groups": GROUPS, "experts": EXPERTS}), "config.json")):
            with open(os.path.join(self.dir, to), "w", encoding="utf-8") as file:
                file.write(text)
        self.options = f"convert={self.dir}/tiny.rules,hf_config={self.dir}/config.json,index_cache=no,io=direct,cache=0,"
        if not back:
            self.source, self.victim = self.tree.src, self.tree.path(VICTIM)
            self.options += f"src_strategy={self.tree.dir}/src_strategy.ckpt,view=huggingface"
            self.want = {"model.safetensors": {name: data for name, (_, data) in model.items()}}
            return
        self.source = os.path.join(self.dir, "model")
        files = [f"model-{k + 1:05d}-of-00002.safetensors" for k in range(2)]
        os.makedirs(self.source)
        for k, file in enumerate(files):
            safetensors_file.write(os.path.join(self.source, file),
                                   [(n, "F32", *model[n]) for n in list(model)[k::2]])
        with open(os.path.join(self.source, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
            json.dump({"weight_map": {n: files[i % 2] for i, n in enumerate(model)}}, file)
        self.victim = os.path.join(self.source, files[VICTIM])
        self.options += f"dst_strategy={self.tree.dir}/dst_strategy.ckpt,format=safetensors"
        self.want = {f"rank_{r}/checkpoint_{r}.safetensors": dict(
            (p.name, self.cut(p, r)) for p in PARAMS) for r in range(4)}

    def cut(self, param, rank):
        data = self.tree.full[param.name]
        if param.dst == 0:
            return rows_of(data, len(data) // 4)[rank]
        return b"".join(rows_of(row, COLS * ITEM // 4)[rank] for row in rows_of(data, COLS * ITEM))

    def injected(self, what, *flags, mount=Foreground):
        inject = ["-e", f"trace={READS}", "-e", f"inject={READS}:{what}"]
        before = ["strace", "-f", "-qq", "-o", os.path.join(self.dir, "trace"), "-P", self.victim, *inject]
        return mount(self.source, self.options, *flags, before=before, env=under_strace())

    def all_right(self, mnt):
        for file, tensors in self.want.items():
            got = safetensors_file.entries(os.path.join(mnt, file))
            equal(sorted(n for n, *_ in got), sorted(tensors), f"the tensors of {file}")
            for name, _, _, data in got:
                same_bytes(bytes(data), tensors[name], f"{file}: {name}")

    def places(self, mnt):
        """[(path, where it begins, bytes)] of each tensor."""
        out = []
        for file, tensors in self.want.items():
            path = os.path.join(mnt, file)
            with open(path, "rb", buffering=0) as opened:
                n = int.from_bytes(opened.read(8), "little")
                header = json.loads(opened.read(n))
            out += [(path, 8 + n + header[name]["data_offsets"][0], data) for name, data in tensors.items()]
        return out


def read_pieces(places, size=5000):
    """Each piece is right, or an errno; returns the names of all errnos, and how many pieces were right."""
    errors, right = set(), 0
    for path, begin, data in places:
        with open(path, "rb") as file:
            for at in range(0, len(data), size):
                want = data[at : at + size]
                try:
                    same_bytes(os.pread(file.fileno(), len(want), begin + at), want, f"{path} from {begin + at}")
                    right += 1
                except OSError as error:
                    errors.add(errno.errorcode[error.errno])
    return errors, right


def read_until_an_error(places):
    """What read_pieces gives when the first piece fails. strace counts the calls of each thread by itself."""
    found = []
    eventually(lambda: found.append(read_pieces(places)) or found[-1][0], "a read that fails")
    return found[-1]


def lines_about(m, path):
    return [line for line in m.log().splitlines() if path + ":" in line]


def both():
    return (World(), World(True, "back"))


def header_reads(world):
    """How many reads of the victim come before its tensors."""
    with world.injected("delay_enter=0", "--single-thread") as m:
        for file in world.want:
            os.stat(os.path.join(m.mnt, file))
    with open(os.path.join(world.dir, "trace"), encoding="utf-8") as file:
        return sum("resumed>" not in line and "pread" in line for line in file)


def test_short_reads_of_converted_views():
    env = short_reads()
    for world in both():
        for how in ("io=direct", "io=cached"):
            with Foreground(world.source, world.options.replace("io=direct", how), env=env) as m:
                world.all_right(m.mnt)


def test_interrupted_reads_of_converted_views():
    needs_strace_of_a_mount()
    for world in both():
        with world.injected("error=EINTR:when=1+2") as m:
            world.all_right(m.mnt)
        was_injected(world)


def test_a_read_error_below_a_converted_view():
    """At the first read of a tensor and at some later ones: pieces are right or EIO, the whole stays EIO."""
    needs_strace_of_a_mount()
    for world in both():
        n = header_reads(world)
        for when in (n + 1, n + 2):
            with world.injected(f"error=EIO:when={when}", "--single-thread") as m:
                places = world.places(m.mnt)
                errors, _ = read_until_an_error(places)
                equal(errors, {"EIO"}, f"errors of pieces, read {when}")
                errors, _ = read_pieces(places)
                equal(errors, {"EIO"}, f"errors of pieces later, read {when}")
                equal(lines_about(m, world.victim), [f"reshardfs: error: {world.victim}: read: {BROKEN}"], "the log")
            was_injected(world)
        with Mount(world.source, world.options, mnt=folder("again")) as m:
            world.all_right(m.mnt)


def test_a_read_error_before_a_converted_view():
    """The headers are read before it is mounted."""
    needs_strace_of_a_mount()
    for world in both():
        def refused(source, options, *flags, before, env):
            return run(*before, reshardfs, source, folder("mnt"), "-o", options, env={**env, "RESHARDFS_SANDBOX": "off"})
        got = world.injected("error=EIO:when=1", mount=refused)
        lines = [f"reshardfs: error: {world.victim}: {what}: {BROKEN}\n" for what in ("read", "the file cannot be read")]
        equal((got.returncode, got.stderr), (1, "".join(lines)), "status and stderr")
        was_injected(world)


def test_a_read_below_a_converted_view_that_passes():
    """It may happen to several threads, to each once."""
    needs_strace_of_a_mount()
    for world in both():
        with world.injected(f"error=EACCES:when={header_reads(world) + 1}", "--single-thread") as m:
            places = world.places(m.mnt)
            errors, right = read_until_an_error(places)
            equal(errors, {"EACCES"}, "errors of pieces")
            check(right > 0, "no piece was read")

            def passed():
                try:
                    world.all_right(m.mnt)
                    return True
                except PermissionError:
                    return False
            eventually(passed, "reads without an error")
        was_injected(world)


def overwritten(path):
    with open(path, "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(b"\xff" * 1000)


def shortened(path):
    os.truncate(path, os.path.getsize(path) // 2)


def replaced(path):
    data = bytearray(read_all(path))
    data[-1000:] = b"\xff" * 1000
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.rename(path + ".new", path)


def test_a_file_that_changes_below_a_converted_view():
    """After some pieces were read: pieces are right or ESTALE, and one line tells it."""
    for how in (overwritten, shortened, replaced):
        for back in (False, True):
            world = World(back, f"{how.__name__}-{back}")
            with Foreground(world.source, world.options.replace("cache=0", "cache=1M")) as m:
                places = world.places(m.mnt)
                equal(read_pieces(places[:2])[0], set(), "errors before")
                how(world.victim)
                for _ in range(2):
                    errors, _ = read_pieces(places)
                    equal(errors, {"ESTALE"}, f"errors after it was {how.__name__}")
                check(len(lines_about(m, world.victim)) == 1, f"the log: {m.log()}")
