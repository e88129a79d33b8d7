# SPDX-License-Identifier: Apache-2.0
"""The family "made": sources with values that are not tensors, or with tensors that no strategy knows, in every view and with
random options that leave out, rename and cut. What an export writes, verify finds right, by the source and by its manifest;
a byte that changes in it is found by both.
"""
import json
import os
import random
import re

import torch

import dcp_program
import hyper_program
from dcp_cases import run
from dcp_program import Plain, Sharded

FIXED = {}
TRIES = 12  # of random options, until some are not refused
MANIFEST = "reshard-manifest.json"
VIEWS = ["ranks", "huggingface", "unified", "dcp", "mindformers", "hyper_parallel", "gguf", "peft"]
SHAPES = {"embed.weight": (8, 6), "layers.0.w": (8, 4), "layers.0.b": (8,), "layers.1.w": (8, 4), "layers.1.b": (8,),
          "layers.2.w": (4, 8), "norm.weight": (4,), "scalar": ()}
VALUES = {"step": 7, "note": "text", "groups": [{"lr": 0.1}], "none": None}


def fixed(function):
    FIXED["made-" + function.__name__.replace("_", "-")] = function
    return function


def numbered(shape, at):
    count = int(torch.Size(shape).numel())
    return (torch.arange(count, dtype=torch.float32) + 1000 * at).reshape(shape)


def tensors():
    return {name: numbered(shape, i) for i, (name, shape) in enumerate(SHAPES.items())}


def items():
    cut = {name: Sharded(t, (2,), [0]) if t.ndim else Plain(t) for name, t in tensors().items()}
    return {**{tuple(n.split(".")): v for n, v in cut.items()}, **{(n,): v for n, v in VALUES.items()}}


# Each writes a source into a folder, and gives its path and the options that it is read by.

def of_torch_dcp(folder):
    dcp_program.save(os.path.join(folder, "dcp"), 2, items())
    return os.path.join(folder, "dcp"), []


def of_hyper_parallel(folder):
    hyper_program.save(os.path.join(folder, "hyper"), 2, items(), hyper_program.Options(), "made")
    return os.path.join(folder, "hyper"), []


def of_torch_save(folder):
    torch.save({**tensors(), **VALUES}, os.path.join(folder, "model.pt"))
    return os.path.join(folder, "model.pt"), []


def of_mindspore(folder):
    """Ranks with a strategy, and with two parameters that are in none, of which one differs from rank to rank."""
    out = os.path.join(folder, "example")
    run("reshard", "example", out, "--src", "4", "--dst", "2")
    return os.path.join(out, "src"), ["-s", os.path.join(out, "src_strategy.ckpt")]


SOURCES = [of_torch_dcp, of_hyper_parallel, of_torch_save, of_mindspore]
NAMES = {of_mindspore: ["layer1.weight", "layer1.bias", "layer2.weight", "layer2.bias", "layer3.weight", "layer3.bias",
                        "moments.layer1.weight", "rng_state", "global_step", "learning_rate"]}
PATTERNS = {of_mindspore: ["layer1.*", "layer[12].*", "*.weight", "moments.*", "rng_state", "*.bias", "layer*"]}
OTHERWISE = ["layers.*", "layers.[01].*", "*.w", "*.b", "norm*", "embed*", "*weight", "scalar"]


class Options:
    """What a view is asked for: -o, and files that it names."""

    def __init__(self, folder, view):
        self.folder, self.said = folder, [f"view={view}"]

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def chosen(self, rng, source):
        names, patterns = NAMES.get(source, list(SHAPES)), PATTERNS.get(source, OTHERWISE)
        if rng.random() < 0.4:
            self.said.append("drop=" + ";".join(rng.sample(patterns, rng.randint(1, 2))))
        if rng.random() < 0.3:
            self.said.append("only=" + ";".join(rng.sample(patterns, rng.randint(1, 3))))
        if rng.random() < 0.4:
            renamed = {n: rng.choice([None, f"net.{n}", n.replace("layer", "block"), f"x{i}"])
                       for i, n in enumerate(rng.sample(names, rng.randint(1, 4)))}
            self.said.append("names=" + self.file("names.json", json.dumps(renamed)))
        if rng.random() < 0.2:
            self.said.append("dtype=" + rng.choice(["float16", "bfloat16", "*w*=float64"]))

    def cut(self, rng, source):
        if rng.random() < 0.3:
            return
        if rng.random() < 0.3:
            self.said.append(f"dst_ranks={rng.choice([1, 2, 3])}")
            return
        if rng.random() < 0.2:
            self.said.append("dst_rules=like source")
            return
        lines = [rng.choice(["axes tp=2", "axes dp=2 tp=2", "axes tp=1"])]
        if rng.random() < 0.2:
            lines = ["axes tp=2", "stages 2", "stage layer"]
        for pattern in rng.sample(PATTERNS.get(source, OTHERWISE), rng.randint(1, 3)):
            lines.append(f"{pattern}: {rng.choice(['axis 0 over tp', 'axis 0 over tp', 'whole', 'optimizer'])}")
        lines += ["stage all"] if "stages 2" in lines else []
        self.said.append("dst_rules=" + self.file("rules.txt", "\n".join(lines + ["*: whole"]) + "\n"))

    def text(self):
        return ",".join(self.said)


class Case:
    def __init__(self, name, source, view, rng=None):
        self.name, self.source, self.view, self.rng = name, source, view, rng
        self.options = None

    def describe(self):
        return f"  {self.source.__name__}: {self.options and self.options.text()}"

    def write(self, folder):
        return self.source(folder)

    def check_oracle(self, folder):
        del folder

    def ask(self, folder):
        options = Options(folder, self.view)
        if self.view == "ranks":
            options.said.append("format=" + (self.rng or random).choice(["pt", "safetensors", "ckpt"]))
        if self.rng:
            options.chosen(self.rng, self.source)
            options.cut(self.rng, self.source)
        return options

    def check_views(self, folder, source, options):
        said = None
        for number in range(TRIES if self.rng else 1):
            target = os.path.join(folder, f"made{number}")
            self.options = self.ask(folder)
            given = [*options, "-o", self.options.text()]
            done = run("reshard", "export", source, target, *given)
            if done.returncode == 0:
                return self.check_tree(source, target, given)
            said = done.stderr
            if done.returncode not in (1, 2) or os.path.exists(target):
                return f"export: exit {done.returncode}: {said}"
        return None if self.rng or self.view == "peft" else f"export: {said}"

    def check_tree(self, source, target, given):
        by_source = ["verify", target, "--against", source, *given]
        by_manifest = ["export", source, target, *given, "--verify"]
        done = run("reshard", *by_source)
        if done.returncode or "the same as" not in done.stdout or "note:" in done.stdout:
            return f"verify: exit {done.returncode}: {done.stdout}{done.stderr}"
        done = run("reshard", *by_manifest)
        if done.returncode:
            return f"export --verify: exit {done.returncode}: {done.stdout}{done.stderr}"
        rng = self.rng or random.Random(self.name)
        files = sorted(os.path.join(at, f) for at, _, files in os.walk(target) for f in files
                       if f != MANIFEST and os.path.getsize(os.path.join(at, f)))
        for path in rng.sample(files, min(len(files), 3)):
            if said := changed(rng, path, by_source, by_manifest):
                return said
        return None


def changed(rng, path, *commands):
    """None, or which of the commands does not see that a bit is another one."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
    os.chmod(path, 0o644)
    said = None
    for flipped in (True, False):
        data[at] ^= bit
        with open(path, "wb") as file:
            file.write(data)
        for command in commands:
            code = run("reshard", *command).returncode
            if (code not in (1, 2)) if flipped else code:
                said = said or f"{path}: byte {at} ^ {bit}, {'' if flipped else 'back again, '}exit {code}: {command}"
    return said


for one in SOURCES:
    for word in VIEWS:
        def make_fixed(name, one=one, word=word):
            return Case(name, one, word)

        make_fixed.__doc__ = f"view={word} of what {one.__name__} writes"
        FIXED[f"made-{word.replace('_', '-')}-{one.__name__.replace('_', '-')}"] = make_fixed


@fixed
def has_all_views(name):
    """All views are among these cases."""
    class Listed(Case):
        def write(self, folder):
            return folder, []

        def check_views(self, folder, source, options):
            said = run("reshard", "export", source, folder + "-made", "-o", "view=?").stderr
            return None if sorted(re.findall(r"\w+", said.split("view=")[-1].replace(" or ", " "))) == sorted(VIEWS) else said

    return Listed(name, SOURCES[0], "")


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    return Case(f"made-{seed}-{number}", rng.choice(SOURCES), rng.choice(VIEWS[:-1]), rng)


def prepare():
    torch.set_num_threads(1)
