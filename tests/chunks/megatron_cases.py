# SPDX-License-Identifier: Apache-2.0
"""The family "megatron": iterations that Megatron saves as torch_dist, and what must be seen through views of them.

A random case is random.Random(f"{seed}/{number}") and nothing else, so that any one of them replays alone.
"""
import json
import os
import random
import re
import subprocess
import sys

import torch

import compared
import dcp_cases
import megatron_program as program
from dcp_cases import differ, numbered
from megatron_program import Layers, Object

FIXED = {}
DTYPES = ["float32", "bfloat16", "bfloat16", "float16", "int64", "uint8"]


class Case:
    def __init__(self, name, items):
        self.name, self.items = name, items

    def describe(self):
        return "\n".join(f"    {key}: {value.describe() if hasattr(value, 'describe') else value}"
                         for key, value in self.items.items())

    def tensors(self):
        return {key: value for key, value in self.items.items() if isinstance(value, Layers)}

    def write(self, folder):
        root = os.path.join(folder, "checkpoint")
        program.save(root, 9, {"other": Layers(numbered(1, 2), {})})
        program.save(root, 10, self.items)
        return root, {}

    def check_read(self, what, folder):
        """What Megatron itself reads there."""
        have = program.load(folder, self.items)
        for key, value in self.items.items():
            if isinstance(value, Layers):
                for i, (part, _) in enumerate(value.pieces()):
                    if said := differ(what, f"{key}/{i}", have[f"{key}/{i}"], part):
                        return said
            elif isinstance(value, Object):
                if [have[f"{key}/{i}"] for i in range(len(value.values))] != value.values:
                    return f"{what}: {key} has other values"
            elif have[key] != value:
                return f"{what}: {key} of common.pt is {have[key]}"
        return None

    def check_oracle(self, folder):
        return self.check_read("megatron", os.path.join(folder, "checkpoint", "iter_0000010"))

    def check_views(self, folder, source, _options):
        whole = {key: value.full for key, value in self.tensors().items()}
        if said := dcp_cases.check_export(source, os.path.join(folder, "hf"), "view=huggingface,only=*", whole):
            return said
        out, options = os.path.join(folder, "dcp"), "view=dcp,dst_ranks=3,chunk_size=64"
        return (dcp_cases.export(source, out, options) or self.check_read("megatron of view=dcp", out) or
                dcp_cases.verify(out, "--against", source, "-o", options) or self.check_beside(out, source, options))

    def check_beside(self, out, source, options):
        """What Megatron keeps beside the metadata, changed and lost; other options make no other layout of it, but maybe of the rest."""
        common = os.path.join(out, "common.pt")
        os.chmod(common, 0o600)
        state = torch.load(common, weights_only=False)
        torch.save({**state, "iteration": state["iteration"] + 1}, common)
        os.remove(os.path.join(out, "metadata.json"))
        says = ["common.pt", "metadata.json: is missing"]
        return (dcp_cases.verify(out, "--against", source, "-o", options, says=[*says, "2 files"]) or
                dcp_cases.verify(out, "--against", source, "-o", "view=dcp", says=says))


class Followed(compared.Followed, Case):
    of_mount = {"only": "*"}

    def check_saves(self, folder, source, mnt):
        from safetensors.torch import load_file
        for step in (10, 20, 30):
            items = {k: Layers(v.full + step, v.cuts) if isinstance(v, Layers) else v for k, v in self.items.items()}
            program.save(source, step, items)
            copy = f"{folder}/{step}.safetensors"
            if said := compared.take_latest(mnt, f"0_{step}", copy):
                return said
            have = load_file(copy)
            for key, value in items.items():
                if isinstance(value, Layers) and (said := differ(f"step {step}", key, have[key], value.full)):
                    return said
        return None


class Flattened:
    """The state of an optimizer, which Megatron before 0.14 flattens: TENSORS as in flattened_program.py; and how other ranks
    have them, OTHER: {NAME: (pieces, cuts)}."""

    def __init__(self, name, tensors, other):
        self.name, self.tensors, self.other = name, tensors, other

    def describe(self):
        return json.dumps(self.tensors)

    def run(self, what, folder, tensors):
        program_of = os.path.join(os.path.dirname(__file__), "flattened_program.py")
        ran = subprocess.run([sys.executable, "-B", program_of, what, folder], input=json.dumps(tensors), text=True,
                             capture_output=True, check=False, timeout=300)
        return f"Megatron, {what} {folder}: {ran.stderr.strip()}" if ran.returncode else None

    def write(self, folder):
        root = os.path.join(folder, "checkpoint")
        if said := self.run("save", os.path.join(root, "iter_0000001"), self.tensors):
            raise RuntimeError(said)
        with open(os.path.join(root, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write("1")
        return root, {}

    def check_oracle(self, folder):
        others = {name: {**spec, "pieces": self.other[name][0], "cuts": self.other[name][1]}
                  for name, spec in self.tensors.items()}
        return self.run("load", folder if os.path.exists(os.path.join(folder, ".metadata")) else
                        os.path.join(folder, "checkpoint", "iter_0000001"), others)

    def check_views(self, folder, source, _options):
        whole = {name: numbered(*spec["shape"]) for name, spec in self.tensors.items()}
        if said := dcp_cases.check_export(source, os.path.join(folder, "hf"), "view=huggingface,only=*", whole):
            return said
        for options in ("view=dcp", "view=dcp,dst_ranks=3,chunk_size=100"):
            out = os.path.join(folder, "dcp-" + options[-1])
            if said := dcp_cases.export(source, out, options) or self.check_oracle(out):
                return f"{options}: {said}"
        return None


def prepare():
    dcp_cases.prepare()
    program.start()


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    values = dcp_cases.Maker(seed, number)
    layers = rng.randint(1, 5)
    items = {"iteration": number, "args": {"lr": rng.random()}}
    for i in range(rng.randint(1, 6)):
        shape = [rng.choice([2, 4, 6, 12]) for _ in range(rng.randint(1, 3))]
        cuts = {axis: rng.choice([n for n in (1, 2, 3, 4) if dim % n == 0])
                for axis, dim in enumerate(shape) if rng.random() < 0.6}
        full = values.full([layers, *shape], getattr(torch, rng.choice(DTYPES)))
        items[f"decoder.layers.{'abcdef'[i]}.weight"] = Layers(full, cuts)
    if rng.random() < 0.7:
        items["decoder.layers._extra_state"] = Object([{"layer": i, "scale": rng.random()} for i in range(layers)])
    return Case(f"megatron-{seed}-{number}", items)


def fixed(function):
    FIXED["megatron-" + function.__name__.replace("_", "-")] = function
    return function


@fixed
def layers(name):
    """Three layers on one axis, which two ranks cut across; objects of each layer; what common.pt has."""
    return Case(name, {"decoder.layers.mlp.linear_fc1.weight": Layers(numbered(3, 8, 6), {0: 2}),
                       "decoder.layers.mlp.linear_fc2.weight": Layers(numbered(3, 8, 6, dtype=torch.bfloat16), {1: 3}),
                       "decoder.layers._extra_state": Object([b"one", {"two": 2}, None]),
                       "iteration": 10, "args": {"hidden_size": 8}})


@fixed
def followed(name):
    """With follow: Megatron writes .metadata when all ranks have saved, and then the tracker."""
    return Followed(name, {"decoder.layers.w": Layers(numbered(3, 8, 6), {0: 2}),
                           "decoder.layers.v": Layers(numbered(3, 8, 6, dtype=torch.bfloat16), {1: 3}), "iteration": 10})


@fixed
def flattened(name):
    """Pieces of several tensor-parallel ranks, flattened and divided anywhere; layers in front; one axis."""
    return Flattened(name, {
        "optimizer.state.exp_avg.w": {"shape": [6, 8], "front": 0, "pieces": [1, 2], "cuts": [5, 20]},
        "optimizer.state.exp_avg.decoder.layers.w": {"shape": [3, 8, 6], "front": 1, "pieces": [3, 2, 1], "cuts": [7]},
        "optimizer.state.exp_avg.b": {"shape": [8], "front": 0, "pieces": [2], "cuts": [1]}},
        {"optimizer.state.exp_avg.w": ([3, 1], [3]), "optimizer.state.exp_avg.decoder.layers.w": ([3, 1, 3], [11]),
         "optimizer.state.exp_avg.b": ([1], [])})


class Newest:
    """Without common.pt: what was in it is a value of the folder."""

    def __init__(self, name):
        self.name = name

    def describe(self):
        return "of newest_program.py"

    def run(self, what, folder):
        program_of = os.path.join(os.path.dirname(__file__), "newest_program.py")
        ran = subprocess.run([sys.executable, "-B", program_of, what, folder], text=True, capture_output=True, check=False,
                             timeout=300)
        return f"Megatron, {what} {folder}: {ran.stderr.strip()}" if ran.returncode else None

    def write(self, folder):
        root = os.path.join(folder, "checkpoint")
        if said := self.run("save", root):
            raise RuntimeError(said)
        return root, {}

    def check_oracle(self, folder):
        source = os.path.join(folder, "checkpoint", "iter_0000010")
        return "there is a common.pt" if os.path.exists(os.path.join(source, "common.pt")) else self.run("load", source)

    def check_views(self, folder, source, _options):
        out, options = os.path.join(folder, "dcp"), "view=dcp,dst_ranks=3,chunk_size=64"
        whole = {"decoder.layers.w": torch.arange(96.0).reshape(4, 6, 4)}
        return (dcp_cases.check_export(source, os.path.join(folder, "hf"), "view=huggingface,only=*", whole) or
                dcp_cases.export(source, out, options) or self.run("load", out) or
                dcp_cases.verify(out, "--against", source, "-o", options) or self.check_heads(folder, source, 4, None) or
                self.check_heads(folder, source, 8, "which the source has itself: 8 and 4"))

    @staticmethod
    def check_heads(folder, source, heads, refusal):
        """A config with so many heads fits the arguments of the training, or is refused."""
        rules, config = os.path.join(folder, "own.rules"), os.path.join(folder, "config.json")
        with open(rules, "w", encoding="utf-8") as out:
            out.write("sides training huggingface\nmodels toy\nlet heads = config.num_attention_heads\n"
                      "decoder.layers.w = w [4, 24 / heads * heads / 4, 4]\n")
        with open(config, "w", encoding="utf-8") as out:
            json.dump({"model_type": "toy", "num_attention_heads": heads}, out)
        said = dcp_cases.export(source, os.path.join(folder, f"heads-{heads}"), f"convert={rules},hf_config={config},view=huggingface")
        return None if said is refusal or refusal and said and refusal in said else f"{heads} heads: {said}"


@fixed
def newest(name):
    return Newest(name)


class Legacy:
    """The format torch of tensor parallelism alone: the refusal has the options that read it."""

    def __init__(self, name, tp, config):
        self.name, self.tp, self.config = name, tp, config
        hidden, ffn, head = (config[key] for key in ("hidden_size", "intermediate_size", "head_dim"))
        rows = (config["num_attention_heads"] + 2 * config["num_key_value_heads"]) * head
        self.whole = {"embedding.word_embeddings.weight": ([config["vocab_size"] + 6, hidden], 0),
                      "output_layer.weight": ([config["vocab_size"] + 6, hidden], 0),
                      "decoder.final_layernorm.weight": ([hidden], None)}
        for i in range(config["num_hidden_layers"]):
            layer = f"decoder.layers.{i}."
            self.whole.update({layer + "self_attention.linear_qkv.weight": ([rows, hidden], 0),
                               layer + "self_attention.linear_proj.weight": ([hidden, config["num_attention_heads"] * head], 1),
                               layer + "mlp.linear_fc1.weight": ([2 * ffn, hidden], "gated"),
                               layer + "mlp.linear_fc1.layer_norm_weight": ([hidden], None),
                               layer + "mlp.linear_fc2.weight": ([hidden, ffn], 1)})
        self.whole = {name: (numbered(*shape) + 1000 * i, cut) for i, (name, (shape, cut)) in enumerate(self.whole.items())}

    def describe(self):
        return json.dumps(self.config)

    def write(self, folder):
        root = os.path.join(folder, "checkpoint")
        program.save_legacy(root, 5, self.whole, self.tp)
        with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
            json.dump(self.config, file)
        return root, {}

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        said = dcp_cases.export(source, os.path.join(folder, "out"), "format=pt") or ""
        options = re.search(r"try: -o (\S+), where N is the number of these folders;", said)
        if not options or "iter_0000005: this is a checkpoint of Megatron's format torch, as 'mp_rank_0" not in said:
            return f"it is not refused: {said}"
        given = options[1].replace("tpN", f"tp{self.tp}").replace("FILE", os.path.join(folder, "config.json"))
        return dcp_cases.check_export(os.path.join(source, "iter_0000005"), os.path.join(folder, "pt"), "format=pt," + given,
                                      {name: tensor for name, (tensor, _) in self.whole.items()})


LLAMA = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 26, "head_dim": 4}


@fixed
def legacy(name):
    """Two tensor-parallel ranks."""
    return Legacy(name, 2, LLAMA)


@fixed
def legacy_of_one(name):
    """One rank, whose args alone are foreign."""
    return Legacy(name, 1, LLAMA)
