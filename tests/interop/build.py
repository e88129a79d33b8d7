# SPDX-License-Identifier: Apache-2.0
"""Cases, and what writes them to disk: the source tree, the strategy files and what is expected."""
import os
import shutil
from dataclasses import dataclass, field

import oracle
import values
from model import Target, cut


@dataclass
class Case:
    name: str
    src: object = None            # Strategy, or None
    dst: object = None
    files: dict = field(default_factory=dict)  # source rank -> [(name, Value)]
    fulls: dict = None            # name -> whole Value that the slices were cut from
    noise: bool = False           # replicas with values of their own
    crc: bool = False             # sources with a crc trailer
    source_format: str = "ckpt"   # or safetensors
    prefix: str = "checkpoint_"
    options: dict = field(default_factory=dict)  # more of them, after -o
    expect: str = "auto"          # auto, transform, model or refuse
    refusal: str = ""             # fragment of the message, for refuse
    exit_code: int = 1            # for refuse; 2: the options are at fault
    source_names: object = None   # rank -> file name inside rank_N
    prepare: object = None        # called with the source folder, to add or damage things
    check_model: bool = True      # False: too large for the slow model
    loadable: bool = True         # False: load_checkpoint cannot read what save_checkpoint writes
    note: str = ""

    def target(self):
        files = self.files
        if self.source_format == "safetensors":  # as MindSpore gets them (safetensors 0.5)
            files = {rank: sorted(named, key=lambda x: x[0]) for rank, named in files.items()}
        return Target(self.src, self.dst, files, self.prefix, self.source_format)

    def describe(self):
        rows = [f"{self.name}: {self.note or 'expect ' + self.expect}"]
        for side, strategy in (("source", self.src), ("target", self.dst)):
            rows.append(f"  {side}: {strategy.describe() if strategy else 'no strategy'}")
        for rank in sorted(self.files)[:1]:
            held = [f"{n} {v.dtype}{list(getattr(v.data, 'shape', []))}"
                    for n, v in self.files[rank]]
            rows.append(f"  rank_{rank}: {', '.join(held)}")
        flags = [w for w in ("noise", "crc") if getattr(self, w)]
        flags += [self.source_format] if self.source_format != "ckpt" else []
        return "\n".join(rows + ([f"  with {', '.join(flags)}"] if flags else []))


def full_tensors(rng, shapes, dtypes):
    return {n: values.random_value(rng, d, shapes[n]) for n, d in dtypes.items()}


def source_files(data, src, fulls, extras=(), noise=False, order=None):
    """rank -> [(name, Value)]: each stage lists its parameters in one order.

    extras: (name, make) of values in every file, make() called for each rank. With noise each rank
    holds values of its own, so that only the ranks that MindSpore takes give the right bytes.
    """
    files = {}
    stages = src.stages if src else 1
    for stage in range(stages):
        held = [n for n in fulls if not src or src.layout(n, stage)]
        names = held + [n for n, _ in extras]
        if order:
            order.shuffle(names)
        makers = dict(extras)
        for local in range(src.devices if src else 1):
            out = []
            for name in names:
                if name in makers:
                    out.append((name, makers[name]()))
                    continue
                whole = fulls[name]
                part = cut(whole.data, src.layout(name, stage), local) if src else whole.data
                if noise:
                    out.append((name, values.random_value(data, whole.dtype, part.shape)))
                else:
                    out.append((name, whole.with_data(part)))
            files[stage * (src.devices if src else 1) + local] = out
    return files


class Built:
    """A case on disk."""

    def __init__(self, case, folder):
        self.case, self.folder = case, folder
        self.src_dir = os.path.join(folder, "src")
        self.expected = os.path.join(folder, "expected")
        self.strategies = [self.strategy_path("src", case.src), self.strategy_path("dst", case.dst)]
        self.given = list(self.strategies)  # to reshardfs: a strategy may be the files of its stages
        self.kind = None      # transform, model or refuse
        self.problem = None   # MindSpore and the model disagree, and how
        self.why = ""
        self.wanted = None    # file name -> [(name, Value)] of the model, where it says them

    def strategy_path(self, side, strategy):
        return os.path.join(self.folder, f"{side}.{strategy.form}") if strategy else None

    def write(self):
        os.makedirs(self.src_dir)
        for rank, named in self.case.files.items():
            form = self.case.source_format
            name = self.case.source_names(rank) if self.case.source_names else f"net_{rank}.{form}"
            values.save(os.path.join(self.src_dir, f"rank_{rank}", name), named, self.case.crc, form)
        for n, strategy in enumerate((self.case.src, self.case.dst)):
            if strategy:
                strategy.write(self.strategies[n])
                self.given[n] = strategy.given(self.strategies[n])
        if self.case.prepare:
            self.case.prepare(self.src_dir)

    def expect(self, model_writes=True):
        """Makes the expected tree and settles the kind."""
        case = self.case
        if case.expect == "refuse":
            self.kind = "refuse"
            return
        if case.expect == "auto" and self.has_no_answer():
            return
        if case.check_model:
            target = case.target()
            self.wanted = {target.file_name(r): saved(target.contents(r)) for r in range(target.ranks)}
        wanted = self.wanted
        made = oracle.transform(self.src_dir, self.expected, *self.strategies, case.prefix)
        difference = self.compare(made, wanted)
        if not difference:
            self.kind = "transform"
            if case.expect == "model":
                self.problem = "expected MindSpore to refuse or to be wrong, but it is right"
            return
        refuses, wrong = oracle.reasons(case.src, case.dst, case.files, case.source_format)
        known = wrong + (refuses if isinstance(made, Exception) else [])
        self.kind, self.why = "model", f"{'; '.join(known)} ({difference})"
        if case.expect == "transform" or not known:
            self.problem = f"MindSpore and the model disagree: {difference}"
        if wanted is None:
            self.problem = f"MindSpore refuses, and there is no model of this case: {difference}"
        elif model_writes:
            shutil.rmtree(self.expected, ignore_errors=True)
            for name, named in wanted.items():
                values.save(os.path.join(self.expected, name), named)

    def has_no_answer(self):
        """Random strategies that have nothing to do with each other: both refuse."""
        case = self.case
        if case.src and case.dst and not oracle.common(case.src, case.dst):
            case.refusal = "none of its parameters"
        elif case.target().without_sources():
            case.refusal = "holds nothing that rank_"
        else:
            return False
        self.kind = "refuse"
        made = oracle.transform(self.src_dir, self.expected, *self.strategies, case.prefix)
        if not isinstance(made, Exception):
            self.problem = "expected MindSpore to refuse, but it writes files"
        return True

    def compare(self, made, wanted):
        """None when MindSpore wrote exactly what the model says; else what differs."""
        if isinstance(made, Exception):
            return f"{type(made).__name__}: {str(made).strip().splitlines()[0][:160]}"
        if wanted is None:
            return None
        if set(made) != set(wanted):
            return f"files differ: {sorted(set(made) ^ set(wanted))[:4]}"
        for name in sorted(made):
            with open(made[name], "rb") as f:
                got = f.read()
            if got != values.encode(wanted[name]):
                return f"{name}: {first_difference(made[name], wanted[name])}"
        return None


def saved(named):
    """Those of the values that a .ckpt file has: all with elements."""
    return [(n, v) for n, v in named if getattr(v.data, "size", 1)]


def first_difference(path, wanted):
    """Names the first parameter of a file that is not as the model says."""
    import mindspore as ms
    loaded = ms.load_checkpoint(path)
    if list(loaded) != [n for n, _ in wanted]:
        return f"order {list(loaded)} instead of {[n for n, _ in wanted]}"
    for name, value in wanted:
        dtype, shape, content = values.loaded_bytes(loaded[name])
        if dtype != value.dtype or shape != tuple(value.shape):
            return f"{name} is {dtype}{list(shape)} instead of {value.dtype}{list(value.shape)}"
        if content != value.data.tobytes():
            return f"{name}: values"
    return "encoding"
