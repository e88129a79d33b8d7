# SPDX-License-Identifier: Apache-2.0
"""Cases over the strategy files that the real compiler wrote (tests/fixtures/strategies)."""
import json
import os

from build import Case, full_tensors, source_files
from layouts import Item, Layout, Strategy, read_fixture, twin
from registry import FIXED, case
from values import random_value

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "strategies")
LAYOUT8 = {"w1": (64, 32), "w2": (32, 48), "b1": (32,), "b2": (48,)}


def json_shapes(path):
    with open(path, encoding="utf-8") as f:
        items = json.load(f)["parallel_layout_item"]
    return {name.split("-")[-1]: tuple(v["tensor_shape"]) for name, v in items.items()}


def compiled(name, form="ckpt"):
    """One of the compiler's strategies, with its shapes from the JSON file or the README."""
    path = os.path.join(FOLDER, name)
    if name == "layout8":
        shapes = {p + n: s for n, s in LAYOUT8.items() for p in ("", "moments.")}
    elif os.path.isfile(path + ".json"):
        shapes = json_shapes(path + ".json")
    else:
        folder, file = os.path.split(path)
        shapes = json_shapes(os.path.join(folder.replace("_ckpt", "_json"), file + ".json"))
    out = read_fixture(path + ".ckpt", lambda n: shapes[n])
    if form == "ckpt":
        return out
    return twin(out, path.replace("_ckpt", "_json") + ".json")


def network(rng, src, dst, extra=True, **more):
    """A training checkpoint of the strategies' network, with the optimizer's scalars."""
    known = {}
    for strategy in (src, dst):
        for item in strategy.items if strategy else []:
            if not item.name.startswith("accu_grads") or strategy is src:
                known.setdefault(item.name, item.shape)
    held = {n: s for n, s in known.items() if not src or n in src.names()}
    dtypes = {n: "Float16" if n.startswith("accu_grads") else "Float32" for n in held}
    fulls = full_tensors(rng, held, dtypes)
    extras = []
    if extra:
        rate = random_value(rng, "Float32", ())
        extras = [("learning_rate", lambda: rate), ("momentum", lambda: rate),
                  ("global_step", lambda: random_value(rng, "Int32", ()))]
    files = source_files(rng, src, fulls, extras)
    return Case("", src, dst, files, fulls=fulls, **more)


@case
def tutorial(rng):
    """The tutorial's network from 8 ranks to 4 with an optimizer shard."""
    return network(rng, compiled("src8"), compiled("dst4opt"), expect="transform")


@case
def tutorial_json(rng):
    """The same with both strategies in JSON."""
    return network(rng, compiled("src8", "json"), compiled("dst4opt", "json"), expect="transform")


# Each pair goes over as it stands; a form in brackets takes the compiler's JSON file.
PAIRS = [
    ("src8", None), (None, "src8"), ("dst4opt", "src8"), ("opt8", "src8"), ("src8", "opt8"),
    ("opt8", "dst4opt"), ("dst4opt", "opt8"), ("opt8", None), ("opt8.json", "d16.json"),
    ("d16", "opt8"), ("src8", "d16"), ("d16", None), ("d16.json", "dst4opt"), (None, "d16"),
    ("tb8", None), (None, "tb8"), ("tb8.json", "tb8"), ("layout8", None), (None, "layout8"),
    ("layout8.json", None), (None, "layout8.json"), ("layout8", "layout8.json"),
    ("pipe8", "src8"), ("src8", "pipe8"), ("pipe8.json", "src8.json"), ("src8.json", "pipe8.json"),
    ("pipe8", "opt8"), ("opt8", "pipe8"), ("pipe8", "dst4opt"), ("dst4opt", "pipe8"),
    ("pipe8", None), (None, "pipe8"), ("pipe8.json", "pipe8"),
]


def add_pair(source, target):
    def parts(name):
        return (name.split(".")[0], "json" if name.endswith(".json") else "ckpt") if name else None

    ours, theirs = parts(source), parts(target)

    def make(rng):
        src = compiled(*ours) if ours else None
        dst = compiled(*theirs) if theirs else None
        nested = "layout8.json" in (source, target)
        return network(rng, src, dst, expect="model" if nested else "transform")

    make.__doc__ = f"compiler strategies {source or 'none'} to {target or 'none'}"
    FIXED[f"compiler-{source or 'none'}-to-{target or 'none'}".replace(".", "-")] = make


for pair in PAIRS:
    add_pair(*pair)


def part(rng, stage, form, target):
    """One stage of a pipeline into a target of one stage: files named _part."""
    src, dst = compiled(f"pipe8_ckpt/s_{stage}", form), compiled(target, form)
    out = network(rng, src, dst, extra=False, expect="transform")
    first = stage * src.devices
    out.files = {first + r: named for r, named in out.files.items()}
    return out


@case
def part_of_stage_1(rng):
    """By stage: the second stage of a pipeline becomes part 1 of the single stage's files."""
    return part(rng, 1, "ckpt", "src8")


@case
def part_of_stage_0_json(rng):
    """By stage, JSON, the first stage, fewer target ranks."""
    return part(rng, 0, "json", "dst4opt")


@case
def tb8_optimizer_shard(rng):
    """What the compiler emits for transposed 2-D cuts with an optimizer shard: MindSpore is wrong."""
    src = compiled("tb8")
    items = [Item(i.name, Layout(i.layout.dev, i.layout.axes,
                                 -1 if i.name.endswith("layer3.weight") else 0), i.shape)
             for i in src.items]
    return network(rng, Strategy(items), compiled("tb8"), expect="model")
