# SPDX-License-Identifier: Apache-2.0
"""The family "megatron": GPT models as Megatron-Core's torch_dist saves them, against Megatron-Core's GPT.

torch.distributed.checkpoint itself writes the folders; the boxes are those of tensor and pipeline parallel ranks.
"""
import json
import logging
import os
import random

import architectures
import dcp_program
import fixed_cases
import megatron_gpt
import numpy as np
import torch
import training_names
import transformers_cases
import views
from values import STORED, Value

FIXED = {}
KINDS = ["llama", "qwen2", "qwen3", "mistral"]
DTYPES = {"Float32": torch.float32, "BFloat16": torch.bfloat16, "Float16": torch.float16}
# What tensor parallel ranks have of a weight: the axis that they cut, and in how many blocks they cut it apart.
CUT = {"linear_qkv.weight": (0, 1), "linear_qkv.bias": (0, 1), "linear_proj.weight": (1, 1), "linear_fc1.weight": (0, 2),
       "linear_fc2.weight": (1, 1), "word_embeddings.weight": (0, 1), "output_layer.weight": (0, 1)}


def as_tensor(value):
    data = np.ascontiguousarray(value.data)
    return torch.from_numpy(data.view(np.int16) if data.dtype == np.uint16 else data.copy()).view(DTYPES[value.dtype])


def as_value(tensor):
    dtype = next(ours for ours, theirs in DTYPES.items() if theirs == tensor.dtype)
    size = np.int16 if dtype in ("BFloat16", "Float16") else np.int32
    return Value(dtype, tensor.contiguous().view(torch.int16 if size == np.int16 else torch.int32).numpy().view(STORED[dtype]))


def boxes_of(name, shape, layered, ranks):
    """[(offset, sizes)]: one layer each, and its parts on the tensor parallel ranks."""
    axis, blocks = next((cut for end, cut in CUT.items() if name.endswith(end)), (0, 1))
    axis, pieces = axis + layered, blocks * ranks
    cut = axis < len(shape) and not name.endswith(("norm.weight", "norm_weight")) and shape[axis] % pieces == 0
    out = []
    for layer in range(shape[0] if layered else 1):
        for piece in range(pieces if cut else 1):
            offset, sizes = [0] * len(shape), list(shape)
            if layered:
                offset[0], sizes[0] = layer, 1
            if cut:
                sizes[axis] //= pieces
                offset[axis] = piece * sizes[axis]
            out.append((tuple(offset), tuple(sizes)))
    return out


class Case:
    def __init__(self, name, model, options, rng):
        self.name, self.model, self.options = name, model, options
        self.trained = training_names.make(training_names.Megatron, model, {}, **options)
        self.ranks, self.world = rng.choice([1, 2, 2, 4]), rng.choice([1, 2, 4])
        self.files, self.padding = rng.choice([1, 2]), rng.choice([1, 5]) if options.get("vocabulary") == "padded" else 0
        self.says, self.refusal, self.status = "", "", 1

    def describe(self):
        return f"  {self.model.describe()}\n  {self.options}, {self.ranks} tensor parallel rank(s), {self.world} in all"

    def saved(self, name):
        """A tensor as it is saved: that of the vocabulary has more rows."""
        value = self.trained[name]
        if not self.padding or name not in ("embedding.word_embeddings.weight", "output_layer.weight"):
            return value
        more = np.ones((self.padding, *value.shape[1:]), value.data.dtype)
        return Value(value.dtype, np.concatenate([value.data, more]))

    def convert(self):
        given = {"convert": views.rules("megatron"), "hf_config": self.config}
        return {**given, "convert_options": ":".join(f"{k}={v}" for k, v in self.options.items())} if self.options else given

    def write(self, folder):
        self.config = os.path.join(folder, "hf", "config.json")
        views.write_huggingface(os.path.join(folder, "hf"), self.model, self.model.tensors, self.files)
        items = {}
        for name in self.trained:
            full = as_tensor(self.saved(name))
            layered = self.options.get("layers") != "numbered" and name.startswith("decoder.layers.")
            items[(name,)] = dcp_program.Boxes(full, boxes_of(name, full.shape, layered, self.ranks))
            if name.endswith("linear_qkv.weight"):
                items[(name.replace("weight", "_extra_state") + "/shard_0_1",)] = b""
                items[(f"optimizer.state.exp_avg.{name}",)] = dcp_program.Plain(full.float())
        source = os.path.join(folder, "trained")
        iteration = os.path.join(source, "iter_0000005")
        dcp_program.save(iteration, self.world, items)
        with open(os.path.join(iteration, "metadata.json"), "w", encoding="utf-8") as out:
            json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}, out)
        torch.save({"iteration": 5}, os.path.join(iteration, "common.pt"))
        with open(os.path.join(source, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as out:
            out.write("5")
        return source, {**self.convert(), "view": "huggingface"}

    def check_oracle(self, folder):
        """torch reads what was meant."""
        items = {(n,): dcp_program.Plain(as_tensor(self.saved(n))) for n in self.trained}
        for path, have in dcp_program.load(os.path.join(folder, "trained", "iter_0000005"), items).items():
            if not torch.equal(have.view(torch.uint8), items[path].full.view(torch.uint8)):
                return f"torch reads another {path}"
        return self.megatron_differs(folder)

    def megatron_differs(self, folder):
        """Megatron's own GPT has the tensors of these names and shapes, and with them says what HuggingFace's model says."""
        stacked = training_names.make(training_names.Megatron, self.model, {})
        numbered = training_names.make(training_names.Megatron, self.model, {}, layers="numbered")
        with megatron_gpt.running():
            real = megatron_gpt.build(self.model)
            problem = megatron_gpt.names_differ(real, {n: v.shape for n, v in stacked.items()})
            if problem:
                return problem
            said = megatron_gpt.logits(real, {n: as_tensor(v).float() for n, v in numbered.items()}, self.model)
        wanted = transformers_cases.logits(os.path.join(folder, "hf"), self.model, torch.float32)
        most = (said - wanted).abs().max().item()
        return f"Megatron's GPT says something else than HuggingFace's model, up to {most}" if most > 1e-4 else None

    def check_views(self, folder, source, options):
        problem = views.check(self, source, os.path.join(folder, "as-hf"), options,
                              lambda shown: views.huggingface_differs(shown, self.config, self.model.tensors))
        if problem or self.refusal or self.padding:
            return problem and f"to HuggingFace: {problem}"
        problem = views.check(self, os.path.join(folder, "hf"), os.path.join(folder, "as-trained"),
                              {**self.convert(), "format": "pt"}, self.torch_differs)
        return problem and f"from HuggingFace: {problem}"

    def torch_differs(self, shown):
        found = [os.path.join(base, n) for base, _, names in os.walk(shown) for n in names if n.endswith(".pt")]
        loaded = {n: as_value(t) for path in found for n, t in torch.load(path).items()}
        return views.tensors_differ(loaded, self.trained)


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    config = architectures.random_config(rng, KINDS[number % len(KINDS)])
    config.update({"attention_bias": False} if "attention_bias" in config else {})
    model = architectures.fill(np.random.default_rng(rng.getrandbits(64)), config, rng.choice(["BFloat16", "Float32"]),
                               transformers_cases.small_value)
    options = {"layers": "numbered"} if rng.random() < 0.3 else {}
    if rng.random() < 0.3:
        options["vocabulary"] = "padded"
    return Case(f"megatron-{seed}-{number}", model, options, rng)


def prepare():
    logging.disable(logging.INFO)
    transformers_cases.prepare()


def fixed(function):
    FIXED["megatron-" + function.__name__.replace("_", "-")] = function
    return function


def small(name, options=None, **config):
    rng = random.Random(0)
    made = architectures.random_config(rng, "qwen3")
    made.update({"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 12, "tie_word_embeddings": False, "attention_bias": False})
    model = architectures.fill(np.random.default_rng(1), {**made, **config}, "BFloat16", transformers_cases.small_value)
    return Case(name, model, options or {}, rng)


@fixed
def untied(name):
    """Trained with --untie-embeddings-and-output-weights, and a config that ties: the output would be lost."""
    return fixed_cases.refuse(small(name), {"tie_word_embeddings": True}, "parameter 'output_layer.weight'",
                              "'embedding.word_embeddings.weight'", *fixed_cases.OUTPUTS)


@fixed
def untied_model(name):
    """The same where HuggingFace's folder is the source."""
    case = fixed_cases.refuse(small(name), {"tie_word_embeddings": True}, "parameter 'lm_head.weight'",
                              "'model.embed_tokens.weight'", *fixed_cases.OUTPUTS)
    case.check_views = lambda folder, source, options: views.check(
        case, os.path.join(folder, "hf"), os.path.join(folder, "as-trained"), {**case.convert(), "format": "pt"}, None)
    return case


def without_options(case, *parts):
    """The view must refuse the source without the options of the rules, and name them."""
    case = fixed_cases.refuse(case, {}, *parts)
    case.convert = lambda: {"convert": views.rules("megatron"), "hf_config": case.config}
    return case


@fixed
def numbered_layers(name):
    """Layers that the save did not stack."""
    return without_options(small(name, {"layers": "numbered"}), "try: convert_options=layers=numbered, by which the rules fit")


@fixed
def padded_vocabulary(name):
    """Embeddings and output with rows that no token has."""
    case = small(name, {"vocabulary": "padded"})
    case.padding = 5
    return without_options(case, "[17, 16]", "try: convert_options=vocabulary=padded, by which the rules fit")


@fixed
def numbered_and_padded(name):
    """Both."""
    case = small(name, {"layers": "numbered", "vocabulary": "padded"})
    case.padding = 5
    return without_options(case, "try: convert_options=layers=numbered:vocabulary=padded, by which the rules fit")
