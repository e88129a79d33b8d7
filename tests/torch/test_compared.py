# SPDX-License-Identifier: Apache-2.0
"""`reshard verify`, `diff` and `stats` of hfai's parts: whole tensors, and all that is saved beside them."""
import itertools
import json
import os
from collections import OrderedDict

import hfai
import loading
import safetensors.torch
import states
import torch
from harness import *
from test_parts import listed, saved


numbers = itertools.count()


def stored(name, n, large=hfai.LARGE, change=None):
    """As saved(), anew, of a state that CHANGE was called with: the models, the optimizers and the others."""
    src = os.path.join(folder("changed"), str(next(numbers)))
    state = states.make(name)
    if change:
        change(*state)
    hfai.save(src, *state, n, large)
    return src


def under(path, value):
    """(path, tensor) of what is in dicts, lists and tuples."""
    if isinstance(value, torch.Tensor):
        return [(path, value.detach())]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return [found for key, each in items for found in under(f"{path}.{key}" if path else str(key), each)]


def tensors(whole):
    """All tensors of what load() gives; the only model's by their own names."""
    models = listed(whole["model"])
    out = [found for i, model in enumerate(models) for found in under("" if len(models) == 1 else f"model.{i}", model)]
    return dict(out + [found for key, value in whole.items() if key != "model" for found in under(key, value)])


def verified(status, *arguments):
    """The lines but the last, and the last one."""
    got = run(reshard, "verify", *arguments)
    equal((got.returncode, got.stderr), (status, ""), f"status and stderr of verify {arguments}: {got.stdout}")
    lines = got.stdout.splitlines()
    return lines[:-1], lines[-1]


def test_divisions_compared():
    """Every division of a state holds the same: of hfai's own, of an export, of a mount; every tensor is listed."""
    for name in ("adam", "two", "sgd", "bare", "odd", "views", "plain"):
        src = saved(name, 3, hfai.LARGE if name == "views" else 500)  # what is strided hfai itself cannot cut
        other = saved(name, 2)
        dst = os.path.join(folder("exported"), name)
        equal(run(reshard, "export", src, dst, "-o", "nshards=5,large_size=100").returncode, 0, "export")
        want = {k: (list(v.shape), v.numel() * v.element_size()) for k, v in tensors(hfai.load(src)).items()}
        got = json.loads(run(reshard, "verify", src, "--json").stdout)
        equal({t["name"]: (t["shape"], t["bytes"]) for t in got["tensors"] if "#" not in t["name"]},
              {k: v for k, v in want.items() if not k.startswith("state.torch.")}, f"the tensors of {name}")
        equal(len(got["tensors"]), len(want), f"how many tensors {name} has")
        for a, b in [(src, other), (other, src), (dst, src), (src, dst)]:
            lines, last = verified(0, a, "--against", b)
            equal(lines, [], f"what {name} differs in")
            check(last.startswith(f"{a}: {len(want)} tensor") and f": the same as {b}" in last, last)
            got = run(reshard, "diff", a, b)
            equal((got.returncode, got.stdout), (0, f"{len(want)} tensors are the same\n"), f"diff of {name}")
    with Mount(saved("adam", 3, 500), "nshards=7,large_size=100") as mount:
        verified(0, mount.mnt, "--against", saved("adam", 2))


def test_boxes_are_loaded():
    """By the library, tensors and random boxes of them, of parts and of files of torch.save."""
    for name in ("adam", "two", "sgd", "bare", "odd", "views", "plain", "nested"):
        whole = os.path.join(folder("whole-" + name), "model.pt")
        torch.save(listed(hfai.load(saved(name, 2))["model"])[0], whole)
        for source, options in ((saved(name, 3, hfai.LARGE if name == "views" else 500), "nshards=5,large_size=100"), (saved(name, 1), "nshards=2"),
                                (os.path.dirname(whole), "view=huggingface")):
            good, said = loading.compared(source, options, f"{name} {options}")
            check(good and int(said.split()[0]) > 0, f"{name} with {options}: {said}")


def test_nested_compared():
    """What else is saved may contain itself, be an object, or have keys that are no names."""
    src = saved("nested", 3, 500)
    dst = os.path.join(folder("exported"), "parts")
    equal(run(reshard, "export", src, dst, "-o", "nshards=4,large_size=100").returncode, 0, "export")
    want = tensors({k: v for k, v in hfai.load(src).items() if k not in ("loop", "ring", "many")})
    got = json.loads(run(reshard, "verify", dst, "--against", src, "--json").stdout)
    equal((got["equal"], got["differences"], got["notes"]), (True, [], []), "verify")
    equal({t["name"] for t in got["tensors"]}, set(want), "names")


def changes():
    """name of the state, what to change in it, how verify tells."""
    def models(path, how):
        return lambda m, o, others: how(dict(m[0].state_dict())[path])

    def optimizer(how):
        return lambda m, o, others: how(o[0])

    def others(how):
        return lambda m, o, others: how(others)

    def first(o):
        return o.state[o.param_groups[0]["params"][0]]

    return [
        ("adam", models("embed.weight", lambda t: t[36, 8].add_(1)), ["head.weight: has other bytes", "embed.weight: has other bytes"]),
        ("adam", models("norm.running_var", lambda t: t[3].mul_(2)), ["norm.running_var: has other bytes"]),
        ("adam", optimizer(lambda o: first(o)["exp_avg"][0, 4].add_(1)), ["optimizer.state.0.exp_avg: has other bytes"]),
        ("adam", optimizer(lambda o: [s["step"].add_(1) for s in o.state.values()]),
         [f"optimizer.state.{i}.step: has other bytes" for i in range(10)]),
        ("adam", optimizer(lambda o: first(o).pop("exp_avg")), ["optimizer.state.0.exp_avg: is missing"]),
        ("adam", optimizer(lambda o: first(o).update(more=3)), ["optimizer.state.0.more should not be there"]),
        ("adam", optimizer(lambda o: o.param_groups[0].update(lr=0.002)), ["optimizer.param_groups.0.lr differs from the source"]),
        ("adam", optimizer(lambda o: o.param_groups[0].update(betas=(0.9, 0.99))),
         ["optimizer.param_groups.0.betas differs from the source"]),
        ("adam", others(lambda d: d.update(epoch=4)), ["epoch differs from the source"]),
        ("adam", others(lambda d: d.update(epoch="3")), ["epoch differs from the source"]),
        ("adam", others(lambda d: d.pop("best")), ["best is missing"]),
        ("adam", others(lambda d: d["scheduler"].update(gamma=0.2)), ["scheduler.gamma differs from the source"]),
        ("adam", others(lambda d: d.update(scheduler=OrderedDict(d["scheduler"]))), ["scheduler differs from the source"]),
        ("sgd", optimizer(lambda o: o.param_groups[1].update(nesterov=True)), ["optimizer.param_groups.1.nesterov differs from the source"]),
        ("two", lambda m, o, others: m[1].scale.data.neg_(), ["model.1.scale: has other bytes"]),
        ("two", others(lambda d: d["names"].append("third")), ["names differs from the source"]),
        ("nested", others(lambda d: d["ema"].update({"scale": d["ema"]["scale"] + 1})), ["ema.scale: has other bytes"]),
        ("nested", others(lambda d: d["views"].append(3)), ["views differs from the source"]),
        ("nested", others(lambda d: d["namespace"].depth.append(3)), ["namespace.__dict__.depth differs from the source"]),
        ("nested", others(lambda d: d["counter"].update(["seen"])), ["counter.().0.seen differs from the source"]),
        ("nested", others(lambda d: d["ring"].append(d["ring"])), ["ring differs from the source"]),
        ("nested", others(lambda d: d["bytes"].__setitem__(1, b"\x01\xff")), ["bytes differs from the source"]),
        ("nested", others(lambda d: d["parameter"].data.neg_()), ["parameter: has other bytes"]),
    ]


def test_each_change_is_found():
    """One change of the state, saved by another number of ranks: it is told by its path, and nothing else is."""
    for name, change, want in changes():
        a, b = stored(name, 2, 300, change), saved(name, 3)
        lines, last = verified(1, a, "--against", b)
        equal([any(line.startswith(w) for line in lines) for w in want], [True] * len(want), f"{want} in {lines}")
        equal([line for line in lines if not any(line.startswith(w) for w in want)], [], f"beside {want}")
        check(": not right: " in last, last)


def test_a_flipped_bit_in_a_part():
    """A byte of a piece, and of what is whole, is told with the part, the offset and the index."""
    src, dst = saved("adam", 3, 500), stored("adam", 2, 500)
    part = os.path.join(dst, "PART_001.pt")
    loaded = torch.load(part)
    shape, flat = loaded["model"][0][1]["embed.weight"]
    data = open(part, "rb").read()
    piece = flat.numpy().tobytes()
    at = data.index(piece) + 4 * 10
    with open(part, "r+b") as file:
        file.seek(at + 1)
        file.write(bytes([data[at + 1] ^ 4]))
    lines, last = verified(1, dst, "--against", src)
    element = (shape.numel() + 1) // 2 + 10
    where = [element // shape[1], element % shape[1]]
    equal(lines, [f"embed.weight: has other bytes than the source in rank 1, first at {where}, {part} offset {at + 1}"], "lines")
    check(last.endswith(": not right: 1 tensor"), last)


def test_parts_and_other_formats():
    """Beside what is no parts, the model's tensors are compared, by their names; a line says so."""
    src = saved("adam", 3, 500)
    model = hfai.load(src)["model"]
    where = folder("others")
    plain, safe = os.path.join(where, "model.pt"), os.path.join(where, "model.safetensors")
    torch.save(model, plain)
    safetensors.torch.save_file({k: v.clone().contiguous() for k, v in model.items()}, safe, {"format": "pt"})
    note = f"note: of {src} the models' tensors were compared, and nothing else"
    for other in (plain, safe):
        for a, b in [(src, other), (other, src)]:
            got = run(reshard, "diff", a, b)
            equal((got.returncode, got.stdout.splitlines()), (0, [note, f"{len(model)} tensors are the same"]), "diff")
            equal(verified(0, a, "--against", b)[0], [note], "verify")
    torch.save({**model, "scale": model["scale"] * 2}, plain)
    got = run(reshard, "diff", src, plain)
    equal((got.returncode, [line.split()[:2] for line in got.stdout.splitlines()][1]), (1, ["!", "scale"]), "diff")
    equal(json.loads(run(reshard, "diff", src, plain, "--json").stdout)["models_only"], True, "models_only")


def test_sums_of_parts():
    """The list of checksums is the same for each division, byte for byte."""
    lists = []
    for n, large in [(1, hfai.LARGE), (3, 500), (8, 40)]:
        path = os.path.join(folder("sums"), "sums.json")
        verified(0, saved("two", n, large), "--manifest", path)
        lists.append(open(path, "rb").read())
    equal(lists, [lists[0]] * 3, "lists")


def test_stats_of_parts():
    src = saved("two", 3, 500)
    got = {row["name"]: row for row in json.loads(run(reshard, "stats", src, "--json").stdout)["rows"]}
    want = tensors(hfai.load(src))
    equal(set(got), set(want), "names")
    for name, tensor in want.items():
        equal((got[name]["min"], got[name]["max"]), (tensor.min().item(), tensor.max().item()), name)


def test_paths_that_meet():
    """A name that two tensors would have is refused, for it would be compared with either."""
    def change(models, optimizers, others):
        others["ema"] = {"a.b": torch.ones(2), "a": {"b": torch.zeros(2)}}
    src = stored("bare", 2, 300, change)
    got = run(reshard, "diff", src, src)
    check(got.returncode == 2 and "'ema.a.b': two tensors of the state have this path in it" in got.stderr, got.stderr)
