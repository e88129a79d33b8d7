# SPDX-License-Identifier: Apache-2.0
"""
Strategies of the source that are not those of its files: ranks that hold one slice by them have other bytes, or ranks
that hold different slices have equal ones. A naive model cuts random networks, and says which strategies the bytes show
to be wrong.
"""
import os
import random

import safetensors_file
from forge import BYTES, Param, WHOLE, Tree, elements, escape, layout, strategy, usual, value
from harness import *
from test_follow import EVERY, Training, latest, saves, why

SEED = int(os.environ.get("RFS_SEED", "1"))
CASES = int(os.environ.get("RFS_ALIKE_CASES", "12"))
SAYS = "contradict it"
TELLING = 16  # different elements


# ---- the naive model ---------------------------------------------------------------------------

class Cut:
    """Device matrix, tensor map and optimizer shard of a tensor of two axes."""

    def __init__(self, dev, tensor_map, opt=1):
        self.dev, self.map, self.opt = dev, tensor_map, opt

    def free(self):
        """The extents of the parts of device axes that no axis of the tensor is cut by, the last first."""
        return [extent for p, extent in reversed(list(enumerate(self.dev))) if len(self.dev) - 1 - p not in self.map]

    def place(self, rank):
        """(row of pieces, of so many; column, of so many) that the rank holds."""
        digits = []
        for extent in reversed(self.dev):
            digits.append(rank % extent)
            rank //= extent
        at, of = [0, 0], [1, 1]
        for axis, m in enumerate(self.map):
            if m >= 0:
                at[axis], of[axis] = digits[m], self.dev[len(self.dev) - 1 - m]
        # The shard takes free axes from the right, of the last one the inner part; the rightmost counts fastest.
        left, weight, shard = self.opt, 1, 0
        for p in range(len(self.dev)):
            extent = self.dev[len(self.dev) - 1 - p]
            if p in self.map or left == 1:
                continue
            part = min(extent, left)
            shard += digits[p] % part * weight
            weight *= part
            left //= part
        return at[0] * self.opt + shard, of[0] * self.opt, at[1], of[1]

    def slice(self, rank, whole, shape):
        row, rows, column, columns = self.place(rank)
        height, width = shape[0] // rows, shape[1] // columns
        return b"".join(whole[(r * shape[1] + column * width) * 4:(r * shape[1] + (column + 1) * width) * 4]
                        for r in range(row * height, (row + 1) * height))

    def slice_shape(self, shape):
        _, rows, _, columns = self.place(0)
        return [shape[0] // rows, shape[1] // columns]

    def layout(self, name):
        step = 1  # in ranks, on the last free device axis
        for p, extent in enumerate(reversed(self.dev)):
            if p not in self.map:
                break
            step *= extent
        return layout(name, self.dev, self.map, (step, self.opt) if self.opt > 1 else (0, 0))


def divide(chance, ranks):
    """A device matrix for so many ranks."""
    dev = []
    while ranks > 1:
        extent = chance.choice([n for n in range(2, ranks + 1) if ranks % n == 0])
        dev.insert(0, extent)
        ranks //= extent
    return dev or [1]


def random_cut(chance, ranks):
    dev = divide(chance, ranks)
    axes = list(range(len(dev)))
    chance.shuffle(axes)
    tensor_map = [axes.pop() if axes and chance.random() < 0.6 else -1 for _ in range(2)]
    cut = Cut(dev, tensor_map)
    full = 1
    choices = [1]
    for extent in cut.free():
        choices += [full * part for part in range(2, extent + 1) if extent % part == 0]
        full *= extent
    cut.opt = chance.choice(choices)
    return cut


def random_content(chance, shape, kind):
    n = shape[0] * shape[1]
    if kind == "zeros":
        return bytes(4 * n)
    if kind == "ones":
        return b"\0\0\x80\x3f" * n
    if kind == "few":
        return b"".join(chance.choice((b"\0\0\x80\x3f", b"\0\0\0\x40", bytes(4))) for _ in range(n))
    return chance.randbytes(4 * n)


class Network:
    """A random save of so many ranks: its tensors, and how each is cut."""

    def __init__(self, chance, where):
        self.ranks = chance.choice((2, 4, 8, 16))
        self.src, self.tensors, shared = os.path.join(where, "src"), [], {}
        cuts = [random_cut(chance, self.ranks) for _ in range(chance.randint(1, 3))]
        for i in range(chance.randint(1, 5)):
            cut, shape = chance.choice(cuts), [16 * chance.randint(1, 3) * 2, 16 * chance.randint(1, 4)]
            kind = chance.choice(("random", "random", "random", "zeros", "ones", "few", "tied"))
            whole = shared.get(tuple(shape)) if kind == "tied" else None
            whole = whole or random_content(chance, shape, kind)
            shared[tuple(shape)] = whole
            self.tensors.append((f"layer{i}.weight", cut, shape, whole))
            if chance.random() < 0.4:
                moment = random_content(chance, shape, chance.choice(("random", "zeros")))
                self.tensors.append((f"moments.layer{i}.weight", cut, shape, moment))
        for rank in range(self.ranks):
            folder = os.path.join(self.src, f"rank_{rank}")
            os.makedirs(folder)
            with open(os.path.join(folder, "net-1_1.ckpt"), "wb") as file:
                file.write(b"".join(value(name, cut.slice_shape(shape), "Float32", cut.slice(rank, whole, shape))
                                    for name, cut, shape, whole in self.tensors))

    def strategy(self, where, other):
        """Writes that by which OTHER(cut) cuts each tensor."""
        with open(where, "wb") as file:
            file.write(strategy([other(cut).layout(name) for name, cut, _, _ in self.tensors]))
        return where

    def contradictions(self, other):
        """(tensors that contradict OTHER by their bytes, all)"""
        wrong = 0
        for _, cut, shape, whole in self.tensors:
            said = other(cut)
            held = [(said.place(r), cut.slice(r, whole, shape)) for r in range(self.ranks)]
            wrong += any(a == b if x != y and len({a[i:i + 4] for i in range(0, len(a), 4)}) >= TELLING else
                         x == y and a != b for x, a in held for y, b in held)
        return wrong, len(self.tensors)


def wrong_cut(chance, ranks):
    """A way to change cuts, the same for all tensors with one cut."""
    changed, how = {}, chance.choice(("no shard", "shard", "devices", "map", "any"))

    def change(cut):
        if cut not in changed:
            other = Cut(cut.dev, list(cut.map), cut.opt)
            if how == "no shard":
                other.opt = 1
            elif how == "shard":
                other.opt = 1
                for extent in other.free():
                    other.opt *= extent
            elif how == "map":
                other.map.reverse()
            else:
                other = random_cut(chance, ranks)
            changed[cut] = other
        return changed[cut]

    return change


def says(source, strategy, *more):
    return run(reshardfs, "--check", source, "-o", ",".join([f"src_strategy={escape(strategy)}", *more]))


def test_alike_in_random_networks():
    print(f"RFS_SEED={SEED}", flush=True)
    seen = {True: 0, False: 0}
    for number in range(CASES):
        chance = random.Random(f"{SEED} {number}")
        where = folder(f"case{number}")
        network = Network(chance, where)
        right = network.strategy(os.path.join(where, "right.ckpt"), lambda cut: cut)
        for options in ((), ("strict",)):
            got = says(network.src, right, *options)
            check(got.returncode == 0 and SAYS not in got.stderr, f"case {number}, right: {got.stderr}")
        for attempt in range(4):
            change = wrong_cut(chance, network.ranks)
            path = network.strategy(os.path.join(where, f"wrong{attempt}.ckpt"), change)
            wrong, n = network.contradictions(change)
            got = says(network.src, path)
            what = f"case {number}, attempt {attempt}, {wrong} of {n} tensors: {got.stdout}{got.stderr}"
            equal((SAYS in got.stderr, got.returncode), (wrong > 0, 1 if wrong else 0), what)
            seen[wrong > 0] += 1
    print(f"{seen[True]} strategies are wrong, {seen[False]} are not by any byte", flush=True)
    check(min(seen.values()) > 0, f"cases of one kind alone: {seen}")


# ---- what is done about it ---------------------------------------------------------------------

def whole(n):
    return [Param(f"layer{i}.weight", (16, 24), WHOLE, WHOLE) for i in range(n)]


class Own(Tree):
    """Ranks that have values of their own of some parameters, which the strategy calls whole."""

    def __init__(self, where, params, own, src_n=4):
        self.own = own
        super().__init__(where, params, src_n, 1)

    def value(self, p, rank):
        data = self.full[p.name]
        return value(p.name, p.shape, p.dtype, data[:-1] + bytes([data[-1] ^ rank]) if p.name in self.own else data)

    def strategy(self):
        return os.path.join(self.dir, "src_strategy.ckpt")

    def options(self, *more):
        return ",".join([f"src_strategy={escape(self.strategy())}", *more])

    def line(self, name, wrong, n, remedy):
        return (f"{self.path(self.src_n - 1)}: parameter '{name}': has other bytes than in rank_0, and is whole by "
                f"{self.strategy()}; {wrong} of {n} parameters that were compared contradict it; try: {remedy}")


FEW = "another strategy, or files of one save; reshard verify SRC -s FILE lists all that differ"
MOST = "another strategy; reshard verify SRC -s FILE lists all that differ; or trust_strategy, to go on all the same"


def refusal(tree):
    return (f"{tree.src}: ranks are not as {tree.strategy()} says; try: the right strategy or rules, or files of one "
            "save; or without what differs, by drop=; or trust_strategy")


def test_alike_in_most_is_a_warning():
    """The last byte of a tensor differs: of counters of experts, say."""
    tree = Own(folder("tree"), [*whole(2), Param("load", (64,), WHOLE, WHOLE)], ["load"])
    line = tree.line("load", 1, 3, FEW)
    with Mount(tree.src, tree.options()) as mount:
        equal(mount.stderr.splitlines(), [f"reshardfs: warning: {line}"], "stderr")
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    equal((got.returncode, got.stderr.splitlines()),
          (1, [f"reshardfs: warning: {line}", f"reshardfs: error: {refusal(tree)}"]), "--check")
    fails(1, line, tree.src, folder("mnt"), "-o", tree.options("strict"))
    fails(1, line, "--check", tree.src, "-o", tree.options("strict"))
    for options in (tree.options("drop=load", "strict"), tree.options("trust_strategy", "strict")):
        got = run(reshardfs, "--check", tree.src, "-o", options)
        equal(got.returncode, 0, got.stderr)
    got = run(reshard, "strategy", "check", tree.strategy(), tree.src)
    equal((got.returncode, f"mismatch: bytes: {line}" in got.stdout), (1, True), got.stdout)
    got = run(reshard, "strategy", "check", tree.strategy(), tree.src, "-o", "trust_strategy")
    equal((got.returncode, f"note: bytes: {line}" in got.stdout), (0, True), got.stdout)
    # If no other strategy is near, it is the best, and the doubt is told.
    got = run(reshard, "suggest", tree.src)
    check(line in got.stdout and f"-s {tree.strategy()}" in got.stdout, got.stdout)


def test_alike_in_few_is_a_refusal():
    tree = Own(folder("tree"), [*whole(3), Param("load", (64,), WHOLE, WHOLE)], ["layer0.weight", "layer1.weight"])
    line = tree.line("layer0.weight", 2, 4, MOST)
    fails(1, line, tree.src, folder("mnt"), "-o", tree.options())
    fails(1, line, "--check", tree.src, "-o", tree.options())
    for command in (("export", tree.src, folder("out")), ("stats", tree.src), ("get", tree.src, "load", "load.npy")):
        got = run(reshard, *command, "-s", tree.strategy(), cwd=folder("here"))
        equal((got.returncode, got.stderr), (1, f"reshard: error: {line}\n"), command[0])
    equal(os.listdir(folder("here")) + os.listdir(folder("out")), [], "what was written")
    with Mount(tree.src, tree.options("trust_strategy")) as mount:
        check("2 of 4 parameters that were compared contradict it" in mount.stderr, mount.stderr)
        equal(len(mount.stderr.splitlines()), 1, mount.stderr)
    # Its remedy works: verify names all of them.
    got = run(reshard, "verify", tree.src, "-s", tree.strategy())
    check(got.returncode == 1 and all(f"layer{i}.weight: " in got.stdout for i in range(2)), got.stdout + got.stderr)


def test_alike_but_for_the_states_of_an_optimizer():
    """They may be each rank's own: a warning, whatever their number."""
    states = [Param(f"{kind}.layer{i}.weight", (16, 24), WHOLE, WHOLE) for kind in ("adam_m", "adam_v") for i in range(2)]
    tree = Own(folder("tree"), [*whole(2), *states], [p.name for p in states])
    with Mount(tree.src, tree.options()) as mount:
        check("2 of 4 parameters that were compared contradict it" in mount.stderr, mount.stderr)


def test_alike_where_no_two_ranks_have_the_same():
    """After remove_redundancy, and where the others of a slice are lost, there is nothing to compare."""
    tree = Tree(folder("tree"), usual(), 4, 2)
    whole_ones = [p for p in tree.params if p.src == WHOLE]
    for rank in range(1, 4):
        tree.write(rank, b"".join(tree.value(p, rank) for p in tree.params if p not in whole_ones))
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    equal((got.returncode, SAYS in got.stderr), (0, False), got.stderr)
    lost = Tree(folder("lost"), [Param("bias", (16, 24), WHOLE, WHOLE)], 4, 2)
    for rank in range(3):
        os.unlink(lost.path(rank))
    got = run(reshardfs, "--check", lost.src, "-o", lost.options())
    equal((got.returncode, SAYS in got.stderr), (0, False), got.stderr)


def test_alike_where_a_file_says_that_others_have_more():
    """With remove_redundancy all ranks are looked at before they are compared; strategy check does so, too."""
    src, named = os.path.join(folder("tree"), "src"), {}
    for name, devices, step in (("right", [-1, -1], (1, 4)), ("wrong", [-1, -1], (0, 0))):
        named[name] = os.path.join(os.path.dirname(src), f"{name}.ckpt")
        with open(named[name], "wb") as file:
            file.write(strategy([layout(f"layer{i}.weight", [4], devices, step) for i in range(3)]))
    chance = random.Random(SEED)
    for rank in range(4):
        tensors = [(f"layer{i}.weight", "F32", [16, 24], chance.randbytes(16 * 24 * 4)) for i in range(3)]
        os.makedirs(os.path.join(src, f"rank_{rank}"))
        safetensors_file.write(os.path.join(src, f"rank_{rank}", "net-1_2.safetensors"), tensors, remove_redundancy="True")
    for name, code in (("right", 0), ("wrong", 1)):
        for command in (("strategy", "check", named[name], src), ("stats", src, "-s", named[name])):
            got = run(reshard, *command)
            equal((got.returncode, "3 of 3 parameters that were compared contradict it" in got.stdout + got.stderr),
                  (code, code == 1), (name, command, got.stdout + got.stderr))
        # Each planner of a mount refuses it: also that of the hidden folder, which has whole tensors.
        with Mount(src, f"src_strategy={escape(named[name])},dst_rules=*: whole,dst_ranks=2") as mount:
            for made in ("rank_0", "full"):
                listed = run("ls", os.path.join(mount.mnt, ".reshardfs", "tensors", made))
                equal((listed.returncode == 0, "Invalid argument" in listed.stderr), (code == 0, code == 1), (name, made))


def test_alike_in_slices_that_should_differ():
    """The strategy of another network: it cuts what all ranks have as a whole. Zeros, ones and few values prove nothing."""
    whole_ones = [Param("a.weight", (16, 24), WHOLE, WHOLE), Param("b.weight", (16, 24), WHOLE, WHOLE)]
    cut_ones = [p._replace(src=0) for p in whole_ones]
    contents = {"bytes": None, "zeros": bytes(4), "ones": b"\0\0\x80\x3f", "few": b"\0\0\x80\x3f\0\0\0\x40" * 2}
    for name, content in contents.items():
        how = {"content": lambda p, _: content * (elements(p.shape) * 4 // len(content))} if content else {}
        tree = Tree(folder(name), whole_ones, 4, 1, **how)
        other = Tree(folder(f"{name} cut"), cut_ones, 4, 1)
        got = run(reshardfs, "--check", tree.src, "-o", f"src_strategy={escape(other.dir)}/src_strategy.ckpt")
        if content:
            equal((got.returncode, got.stderr), (0, ""), name)
            continue
        equal(got.returncode, 1, name)
        check("has the same bytes as rank_0, and is another slice by" in got.stderr, got.stderr)
        check("2 of 2 parameters that were compared contradict it; try: another strategy; or trust_strategy, to go on all "
              "the same" in got.stderr, got.stderr)


def test_follow_by_a_wrong_strategy():
    job = Training()
    job.save("1_10", 1)
    wrong = os.path.join(folder("wrong"), "strategy.ckpt")
    with open(wrong, "wb") as file:
        file.write(strategy(layout(p.name, [4], [-1] * len(p.shape)) for p in usual() if p.src is not None))
    with Foreground(job.src, f"src_strategy={escape(wrong)},follow={EVERY}") as m:
        eventually(lambda: "ranks are not as" in (why(m, "1_10") or ""), "the reason")
        equal((saves(m), latest(m)), ([], None), "what is shown")
