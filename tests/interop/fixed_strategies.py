# SPDX-License-Identifier: Apache-2.0
"""`reshard strategy`: what it writes is what MindSpore reads and writes. Each story runs the command on strategy
files, has MindSpore work with the results, and mounts with the originals, or the other way round."""
import json
import os
import random
import shutil
import subprocess

import oracle
import values
from fixed_compiler import FOLDER, compiled, network
from fixed_rules import rules_of
from layouts import Item, Layout, Strategy
from random_cases import random_layout
from registry import story
from story import Story

COMPILED = ("src8", "dst4opt", "opt8", "d16", "tb8", "layout8", "manual4")


def reshard(*args, fails=None):
    done = subprocess.run([os.environ["RESHARD"], "strategy", *args], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
    if fails:
        assert done.returncode == 1 and fails in done.stderr, (args, done)
    else:
        assert done.returncode == 0, (args, done)
    return done.stdout


def loaded(path):
    """What MindSpore's own loader makes of a file: {name: bytes of the message}."""
    from mindspore.parallel._parallel_serialization import _build_searched_strategy
    return {name: layout.SerializeToString() for name, layout in _build_searched_strategy(path).items()}


def parsed(path):
    """A protobuf file as a message whose items are sorted: their order means nothing."""
    from mindspore.train import node_strategy_pb2 as pb
    out = pb.ParallelStrategyMap()
    with open(path, "rb") as f:
        out.ParseFromString(f.read())
    nodes = sorted(out.parallel_strategy_item, key=lambda i: i.node_name)
    params = sorted(out.parallel_layout_item, key=lambda i: i.param_name)
    return out.current_stage, nodes, params


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write_tree(folder, case):
    for rank, named in case.files.items():
        values.save(os.path.join(folder, "src", f"rank_{rank}", "net.ckpt"), named)


def story_of(folder, case, for_mindspore, for_mount):
    """MindSpore transforms by one pair of files, and the mount by another must show the same."""
    out = os.path.join(folder, "expected")
    made = oracle.transform(os.path.join(folder, "src"), out, *for_mindspore, "checkpoint_")
    assert not isinstance(made, Exception), made
    return Story({"src_strategy": for_mount[0], "dst_strategy": for_mount[1]}, expected=out)


@story
def strategies_converted_to_json(rng, folder):
    """MindSpore works by JSON that was converted, the mount by the compiler's protobuf."""
    case = network(rng, compiled("src8"), compiled("opt8"))
    write_tree(folder, case)
    files = [os.path.join(FOLDER, n + ".ckpt") for n in ("src8", "opt8")]
    converted = [os.path.join(folder, n + ".json") for n in ("src8", "opt8")]
    reshard("convert", files[0], converted[0], "--tree", os.path.join(folder, "src"))
    reshard("convert", files[1], converted[1])
    assert read(converted[0]) == read(os.path.join(FOLDER, "src8.json"))  # the compiler's, shapes and all
    for one, other in zip(files, converted):
        assert loaded(one) == loaded(other)
    return story_of(folder, case, converted, files)


@story
def strategies_converted_to_protobuf(rng, folder):
    """MindSpore works by the compiler's JSON, the mount by protobuf that was converted."""
    case = network(rng, compiled("d16", "json"), compiled("dst4opt", "json"))
    write_tree(folder, case)
    files = [os.path.join(FOLDER, n + ".json") for n in ("d16", "dst4opt")]
    converted = [os.path.join(folder, n + ".ckpt") for n in ("d16", "dst4opt")]
    for n, one, other in zip(("d16", "dst4opt"), files, converted):
        reshard("convert", one, other)
        assert loaded(one) == loaded(other)
        assert parsed(other) == parsed(os.path.join(FOLDER, n + ".ckpt"))
    return story_of(folder, case, files, converted)


@story
def strategies_with_nested_maps(rng, folder):
    """A nested map goes to JSON and back with the help of the tree, and is refused without it."""
    case = network(rng, compiled("layout8"), compiled("src8"))
    case.dst = None
    write_tree(folder, case)
    proto, text = (os.path.join(FOLDER, "layout8" + end) for end in (".ckpt", ".json"))
    to_json, to_proto = (os.path.join(folder, "made" + end) for end in (".json", ".ckpt"))
    tree = ["--tree", os.path.join(folder, "src")]
    reshard("convert", proto, to_json, fails="several device axes cut")
    reshard("convert", text, to_proto, fails="and JSON does not")
    reshard("convert", proto, to_json, *tree)
    assert read(to_json) == read(text)
    reshard("convert", to_json, to_proto, *tree)
    assert parsed(to_proto) == parsed(proto)
    out = os.path.join(folder, "expected")
    made = oracle.transform(os.path.join(folder, "src"), out, to_proto, None, "checkpoint_")
    assert not isinstance(made, Exception), made
    return Story({"src_strategy": to_json}, expected=out)


@story
def strategies_merged(rng, folder):
    """Merging: byte for byte what MindSpore makes of the same files in the same order, in both forms."""
    from mindspore.parallel import _parallel_serialization as ms
    merged = os.path.join(folder, "theirs")
    for name in ("pipe8", "shared8"):
        for form, merge in (("ckpt", ms._merge_protobuf_strategy), ("json", ms._merge_json_strategy)):
            parts = os.path.join(FOLDER, f"{name}_{form}")
            files = sorted(os.path.join(parts, n) for n in os.listdir(parts))
            for order in (files, files[::-1], files + files):
                ours = os.path.join(folder, f"ours.{form}")
                merge(order, merged)
                reshard("merge", ours, *order, "--force")
                assert read(ours) == read(merged), (name, form, order)
            reshard("merge", ours, parts, "--force")
            merge(files, merged)
            assert read(ours) == read(merged), (name, form)
    case = network(rng, compiled("pipe8"), compiled("src8"))
    write_tree(folder, case)
    ours = os.path.join(folder, "pipe8.ckpt")
    reshard("merge", ours, os.path.join(FOLDER, "pipe8_ckpt"))
    dst = os.path.join(FOLDER, "src8.ckpt")
    return story_of(folder, case, (ours, dst), (os.path.join(FOLDER, "pipe8.ckpt"), dst))


@story
def strategies_of_every_kind(rng, folder):
    """What MindSpore's loader reads of random strategies is the same before and after."""
    random_one = random.Random(int(rng.integers(1 << 30)))
    before, after, again = (os.path.join(folder, n) for n in ("a.ckpt", "b.json", "c.ckpt"))
    for number in range(60):
        items = []
        devices = random_one.choice((1, 2, 6, 8, 12))
        for k in range(4):
            layout = random_layout(random_one, devices, random_one.randrange(4))
            if not layout.nested and layout.devices() == devices:
                items.append(Item(f"p{k}.\u00e4\"w" if k == 3 else f"p{k}.w", layout, (1,) * len(layout.axes)))
        if not items:
            continue
        with open(before, "wb") as f:
            f.write(Strategy(items).proto_bytes())
        reshard("convert", before, after, "--force")
        reshard("convert", after, again, "--force")
        assert loaded(before) == loaded(after) == loaded(again), number
        assert parsed(before) == parsed(again), number
    for name in COMPILED:
        if name != "layout8":
            reshard("convert", os.path.join(FOLDER, name + ".ckpt"), after, "--force")
            assert loaded(os.path.join(FOLDER, name + ".ckpt")) == loaded(after), name
    return strategies_converted_to_json(rng, folder)


@story
def strategies_made_from_rules(rng, folder):
    """MindSpore transforms to a strategy that was made from rules; the mount has the rules."""
    dev = [2, 2]
    shapes = {"layer1.weight": 2, "layer2.weight": 2, "layer3.weight": 2, "layer1.bias": 1}
    plan = Strategy([Item(n, Layout(dev, [[0] if n == "layer1.weight" else []] + [[]] * (d - 1),
                                    2 if n == "layer3.weight" else 0), (1,) * d) for n, d in shapes.items()])
    rules = rules_of(plan) + "\n*: whole\n"
    case = network(rng, compiled("src8"), compiled("dst4opt"))
    write_tree(folder, case)
    text, made = os.path.join(folder, "rules"), os.path.join(folder, "made.ckpt")
    with open(text, "w", encoding="utf-8") as f:
        f.write(rules)
    src = os.path.join(FOLDER, "src8.ckpt")
    common = ["--rules", text, "--ranks", "4", "-s", src, "--tree", os.path.join(folder, "src")]
    reshard("new", made, *common)
    reshard("new", os.path.join(folder, "made.json"), *common)
    assert loaded(made) == loaded(os.path.join(folder, "made.json"))
    with open(os.path.join(folder, "made.json"), encoding="utf-8") as f:
        assert json.load(f)["parallel_layout_item"]["layer1.weight"]["tensor_shape"] == [768, 48]
    reshard("check", made, os.path.join(folder, "src"), "-s", src)
    out = os.path.join(folder, "expected")
    done = oracle.transform(os.path.join(folder, "src"), out, src, made, "checkpoint_")
    assert not isinstance(done, Exception), done
    shutil.rmtree(os.path.join(folder, "src"), ignore_errors=True)
    write_tree(folder, case)
    return Story({"src_strategy": src, "dst_rules": text, "dst_ranks": "4"}, expected=out)
