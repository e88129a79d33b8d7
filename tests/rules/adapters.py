# SPDX-License-Identifier: Apache-2.0
"""Adapters (LoRA), and what PEFT must have of them. The rows of fused layers are those of training_names.py."""
import json
import os

import numpy as np
import training_names
import views

LINEAR = {"linear_qkv": "self_attention", "linear_proj": "self_attention", "linear_fc1": "mlp", "linear_fc2": "mlp"}
PARTS = {"linear_qkv": "qkv", "linear_proj": "o", "linear_fc1": ("gate", "up"), "linear_fc2": ("down",)}


def base(layer, linear):
    """A layer's name in a training, before the names of its two tensors."""
    return f"decoder.layers.{layer}.{LINEAR[linear]}.{linear}"


def rows_of(model, linear, options):
    """[(part, its row)] of a fused layer's rows, or None."""
    maker = training_names.Maker(model, options)
    if linear == "linear_qkv":
        return maker.qkv_rows(training_names.contiguous if options.get("qkv") == "contiguous" else training_names.grouped)
    if linear == "linear_fc1":
        taken = options.get("gate_up") == "interleaved"
        return (training_names.alternating if taken else training_names.one_behind_the_other)(model.intermediate_size)
    return None


def sizes(model, linear):
    """The columns and rows of its weight."""
    maker = training_names.Maker(model, {})
    hidden, heads = model.hidden_size, model.num_attention_heads * maker.head
    return {"linear_qkv": (hidden, heads + 2 * maker.groups * maker.head), "linear_proj": (heads, hidden),
            "linear_fc1": (hidden, 2 * model.intermediate_size), "linear_fc2": (model.intermediate_size, hidden)}[linear]


def peft_name(layer, linear, part, half):
    module = "self_attn" if LINEAR[linear] == "self_attention" else "mlp"
    return f"base_model.model.model.layers.{layer}.{module}.{part}_proj.lora_{half}.weight"


def as_peft(model, linear, layer, a, b, options):
    """name -> Value of what PEFT has of the adapter A, B of a layer."""
    rows = rows_of(model, linear, options) or [(PARTS[linear][0], row) for row in range(b.shape[0])]
    out = {}
    for part in PARTS[linear]:
        own = sorted((row, at) for at, (of, row) in enumerate(rows) if of == part)
        out[peft_name(layer, linear, part, "A")] = a
        out[peft_name(layer, linear, part, "B")] = b.with_data(np.stack([b.data[at] for _, at in own]))
    return out


def differs(folder, wanted, rank, alpha):
    """None, or how a view=peft differs from name -> Value."""
    shown = sorted(set(os.listdir(folder)) - {"reshard-manifest.json"})
    if shown != ["adapter_config.json", "adapter_model.safetensors"]:
        return f"holds {shown}"
    with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as config:
        said = json.load(config)
    modules = sorted({name.split(".")[-3] for name in wanted})
    if (said["r"], said["lora_alpha"], sorted(said["target_modules"])) != (rank, alpha, modules):
        return f"adapter_config.json has {said}, not rank {rank}, alpha {alpha} and {modules}"
    return views.tensors_differ(views.read_safetensors(folder), wanted)

