# SPDX-License-Identifier: Apache-2.0
"""The converters of a real MindSpore Transformers: HuggingFace's tensors as its training has them, and back.

qwen3 and qwen3_moe come with a list of operators, which runs as its loader runs it. The other models have only a table of
names; for them the list is made of that table and the same operators. deepseek_v3's experts and its layers of multi-token
prediction are in no table of the package: their names are here.
"""
import importlib
import importlib.util
import os
import re
import sys
import types

import numpy as np
from mindspore import Tensor
from mindformers_program import Stubs, package

FOLDERS = {"qwen3": "qwen3", "qwen3_moe": "qwen3_moe", "deepseek_v3": "deepseek3", "qwen2": "qwen2", "llama": "qwen2",
           "mistral": "qwen2", "kimi_k2": "deepseek3", "telechat3": "telechat3", "telechat3_moe": "telechat3_moe"}
CLASSES = {"qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "deepseek_v3": "DeepseekV3", "qwen2": "Qwen2", "llama": "Qwen2",
           "mistral": "Qwen2", "kimi_k2": "DeepseekV3", "telechat3": "TeleChat3", "telechat3_moe": "TeleChat3Moe"}


class Converters:
    """Those of one version. Others can be there at the same time, as each keeps the modules that it imported."""

    def __init__(self, folder, version):
        self.version, self.folder = version, os.path.join(folder, version, "mindformers")
        for name in [n for n in sys.modules if n.split(".")[0] in ("mindformers", "hyper_parallel")]:
            del sys.modules[name]
        finder = Stubs("mindformers.checkpoint.converter.")
        sys.meta_path.insert(0, finder)
        try:
            self.load()
        finally:
            sys.meta_path.remove(finder)

    def load(self):
        package("mindformers", self.folder)
        package("mindformers.checkpoint", os.path.join(self.folder, "checkpoint"))
        package("mindformers.checkpoint.converter", os.path.join(self.folder, "checkpoint", "converter"))
        self.op = importlib.import_module("mindformers.checkpoint.converter.convert_op")
        self.template = importlib.import_module("mindformers.checkpoint.converter.template")
        base = types.ModuleType("mindformers.models.modeling_utils")
        base.PreTrainedModel = type("PreTrainedModel", (), {})
        sys.modules[base.__name__] = base
        mixins = self.module("mindformers.parallel_core.utils.model_mixin")
        self.parts, self.train = mixins.ModelMixin.concat_mapping, mixins.TrainModelMixin()
        self.models = {kind: getattr(self.module(f"mindformers.models.{FOLDERS[kind]}.utils"), f"{CLASSES[kind]}PreTrainedModel")
                       for kind in FOLDERS}
        self.convert_utils = self.module("mindformers.utils.convert_utils")
        self.legacy_names = self.module("mindformers.models.llama.convert_weight").name_replace

    def module(self, name):
        """One file of the package, without the packages around it."""
        path = os.path.join(self.folder, *name.split(".")[1:]) + ".py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    def new_name(self, kind, name):
        """By the table of names; linear_qkv and linear_fc1 for their parts."""
        for theirs, ours in self.models[kind].weight_mapping:
            if not re.search(r"\d", theirs):  # one layer of multi-token prediction, of one depth
                name = name.replace(theirs, ours)
        name = name.replace(".self_attn.q_proj.", ".self_attention.linear_q_proj.")  # which deepseek_v3's table lacks
        for part, whole in self.parts + [(".shared_experts.gating.", ".shared_experts.linear_fc1."),
                                                        (".shared_experts.hidden.", ".shared_experts.linear_fc1.")]:
            name = name.replace(part, whole)
        return name

    def operators(self, model):
        kind = model.config["model_type"]
        listed = getattr(self.models[kind], "weight_converters", None)
        if listed and not model.config.get("attention_bias"):
            return listed
        return made_of_names(self, model)

    def converter(self, model, options):
        """A WeightTemplate, with the numbers of the model."""
        out = self.template.WeightTemplate(weight_converters=self.operators(model))
        config = types.SimpleNamespace(
            num_attention_heads=model.num_attention_heads, hidden_size=model.hidden_size, tensor_model_parallel_size=1,
            num_query_groups=model.config.get("num_key_value_heads") or model.num_attention_heads,
            kv_channels=model.config.get("head_dim") or model.hidden_size // model.num_attention_heads,
            use_interleaved_weight_layout_mlp=options.get("gate_up") != "split", expert_model_parallel_size=1,
            num_moe_experts=model.count() if model.experts() else 1,
            moe_ffn_hidden_size=model.config.get("moe_intermediate_size"))
        for operator in out.weight_converters:
            operator.optimizer_parallel_size = 1
        out.set_model_config(config)
        for operator in out.weight_converters:
            if hasattr(operator, "optimizer_parallel_size"):
                operator.optimizer_parallel_size = 1
        return out

    def to_training(self, model, options, names):
        """name -> array of all that the operators make of these tensors; biases apart."""
        template = self.converter(model, options)
        experts, joined, ready = {}, {}, {}
        for name in names:
            array = model.tensors[name].data
            count = model.count() if model.experts() else None
            if ".experts." in name:  # as ReshardLoader calls it for these
                name, array = template.preprocess_hf_weights(name, Tensor(array), experts, joined, count)
            if name is not None:
                ready[name] = array
        made = template.get_mf_state_dict(ready)
        return {name: parameter.asnumpy() for name, parameter in made.items()}

    def back(self, model, options, named):
        """name -> array: version 2.1.0 also converts to HuggingFace's names."""
        return self.converter(model, options).get_hf_state_dict(named)

    def qkv(self, model, layer, what, contiguous):
        """linear_qkv of a layer, by functions that know both orders. WHAT is weight or bias; a bias gets a second axis there."""
        parts = [model.tensors[f"model.layers.{layer}.self_attn.{part}_proj.{what}"].data for part in "qkv"]
        name = f"decoder.layers.{layer}.self_attention.linear_q.{what}"
        heads = model.num_attention_heads
        groups = model.config.get("num_key_value_heads") or heads
        head = model.config.get("head_dim") or model.hidden_size // heads
        if contiguous:
            made = self.train.concat_qkv_contiguous(*parts, name)
        else:
            made = self.train.concat_qkv_interleaved(*parts, name, head, groups, heads)
        return {n: a.reshape(-1) if what == "bias" else a for n, a in made.items()}


def made_of_names(program, model):
    """Operators for each HuggingFace name of a model, by how many of them get one name."""
    op, patterns, whole = program.op, {}, {}
    for name in model.tensors:
        if name.endswith("_proj.bias") and "o_proj" not in name:
            continue
        if "layers." not in name:
            patterns[name] = name
            continue
        patterns[re.sub(r"layers\.\d+\.", "layers.{}.", re.sub(r"experts\.\d+\.", "experts.{}.", name))] = name
    for pattern in patterns:
        if ".mlp.experts." in pattern:
            to = "decoder.layers.{}.mlp.experts.weight2" if "down_proj" in pattern else "decoder.layers.{}.mlp.experts.weight1"
        else:
            to = program.new_name(model.config["model_type"], pattern)
        whole.setdefault(to, []).append(pattern)
    out = []
    for to, parts in whole.items():
        if ".experts.weight" in to:
            out.append(op.ExpertsConvertOp(hf_names=sorted(parts), mf_names=[to]))
        elif len(parts) == 3:
            order = ["q_proj", "k_proj", "v_proj"]
            parts = sorted(parts, key=lambda p: order.index(p.split(".")[-2]))
            out.append(op.QKVConvertOp(hf_names=parts, mf_names=[to]))
        elif len(parts) == 2:
            out.append(op.ConcatConvertOp(hf_names=sorted(parts), mf_names=[to], dim=0))
        else:
            out.append(op.RenameConvertOp(hf_names=parts, mf_names=[to]))
    return out


def predicted(name, layers):
    """A name of the layers of multi-token prediction, from that of a layer which counts on behind the others."""
    found = re.match(r"decoder\.layers\.(\d+)\.(.*)", name)
    if not found or int(found[1]) < layers:
        return name
    number, rest = int(found[1]) - layers, found[2]
    own = ("enorm.", "hnorm.", "eh_proj.")
    if rest.startswith(own):
        return f"mtp.layers.{number}.{rest}"
    if rest.startswith("shared_head.norm."):
        return f"mtp.layers.{number}.final_layernorm.{rest.split('.')[-1]}"
    return f"mtp.layers.{number}.transformer_layer.{rest}"


def new_names(program, model, options, repeated):
    """name -> array: all of MODEL by the real operators."""
    qkv_biases = [n for n in model.tensors if re.search(r"[qkv]_proj\.bias$", n)]
    weights = [n for n in model.tensors if n not in repeated and n not in qkv_biases]
    out = {predicted(name, model.num_hidden_layers): array
           for name, array in program.to_training(model, options, weights).items()}
    for layer in model.layers():
        if qkv_biases:
            out.update(program.qkv(model, layer, "bias", options.get("qkv") == "contiguous"))
        if options.get("qkv") == "contiguous":
            out.update(program.qkv(model, layer, "weight", True))
    return out


def legacy_names(program, model, options):
    """name -> array: by the functions of models/llama, for a model in the older names."""
    named = {}
    for name, value in model.tensors.items():
        named[program.legacy_names(name)] = value.data
    if options.get("qkv") != "fused":
        return named
    heads, utils = model.num_attention_heads, program.convert_utils
    groups = model.config.get("num_key_value_heads") or heads
    for layer in model.layers():
        at = f"model.layers.{layer}"
        parts = [named.pop(f"{at}.attention.w{part}.weight") for part in "qkv"]
        named[f"{at}.attention.w_qkv.weight"] = utils.qkv_concat_hf2mg(np.concatenate(parts), heads, groups, model.hidden_size)
        if f"{at}.attention.wq.bias" in named:
            parts = [named.pop(f"{at}.attention.w{part}.bias") for part in "qkv"]
            named[f"{at}.attention.w_qkv.bias"] = utils.qkv_concat_hf2mg(np.concatenate(parts), heads, groups, model.hidden_size)
        both = np.concatenate([named.pop(f"{at}.feed_forward.w{part}.weight") for part in (1, 3)])
        named[f"{at}.feed_forward.w_gate_hidden.weight"] = utils.ffn_concat_hf2mg(both, model.intermediate_size)
    return named
