# SPDX-License-Identifier: Apache-2.0
"""Tiny models: what transformers loads from a dequantized view is what it loads, dequantizing, from the quantized folder."""
import contextlib
import json
import os

import compared
import formats
import shown
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import CompressedTensorsConfig, FineGrainedFP8Config, Mxfp4Config

SMALL = {"vocab_size": 64, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False}


def qwen3():
    return transformers.Qwen3Config(**SMALL, head_dim=64)


def qwen3_moe():
    return transformers.Qwen3MoeConfig(**SMALL, head_dim=64, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=128)


def deepseek_v3():
    return transformers.DeepseekV3Config(**{**SMALL, "num_key_value_heads": 4}, n_routed_experts=4, num_experts_per_tok=2, n_group=2,
                                         num_nextn_predict_layers=0,
                                         topk_group=1, moe_intermediate_size=128, first_k_dense_replace=1, q_lora_rank=128,
                                         kv_lora_rank=64, qk_rope_head_dim=64, qk_nope_head_dim=64, v_head_dim=64)


def gpt_oss():
    return transformers.GptOssConfig(**SMALL, head_dim=64, num_local_experts=4, num_experts_per_tok=2)


def is_linear(name, tensor):
    return name.endswith("_proj.weight") and tensor.ndim == 2


class Fp8:
    """Blocks of 128, or one scale for each weight."""

    def __init__(self, rng, block):
        self.rng, self.block = rng, block
        self.said = {**formats.plain(FineGrainedFP8Config().to_dict()), "weight_block_size": block,
                     "activation_scheme": "dynamic" if block else "static", "modules_to_not_convert": ["lm_head"]}

    def quantize(self, name, tensor):
        if not is_linear(name, tensor):
            return {name: tensor}
        grid = [formats.up(n, 128) for n in tensor.shape] if self.block else ()
        out = {name: formats.e4m3(self.rng, tensor.shape, False),
               name + "_scale_inv": (torch.rand(grid, generator=self.rng.torch) / 9000).to(torch.float32 if self.block else torch.bfloat16)}
        if not self.block:
            out[name[:-6] + "activation_scale"] = torch.tensor(0.5, dtype=torch.bfloat16)
        return out

    def loading(self):
        return FineGrainedFP8Config(**{k: v for k, v in self.said.items() if k in (
            "weight_block_size", "activation_scheme", "modules_to_not_convert")}, dequantize=True)


class Compressed:
    """A scheme of compressed-tensors, written by its own compressor or as plain codes."""

    def __init__(self, rng, kind):
        self.rng, self.kind = rng, kind
        self.format = formats.MAKERS[kind](rng)
        self.said = {**self.format.config(), "ignore": ["lm_head", "re:.*mlp.gate$"]}

    def quantize(self, name, tensor):
        if not is_linear(name, tensor):
            return {name: tensor}
        made = self.format.of_shape(self.rng, tensor.shape)
        return {name[:-6] + end: value for end, value in made.items()}

    def loading(self):
        return CompressedTensorsConfig(**{k: v for k, v in self.said.items() if k != "quant_method"}, run_compressed=False,
                                       dequantize=True)


class Blocks:
    """gpt-oss: the experts alone."""
    said = formats.plain(Mxfp4Config(modules_to_not_convert=["model.layers.*.self_attn", "lm_head"]).to_dict())

    def __init__(self, rng):
        self.rng = rng

    def quantize(self, name, tensor):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            return {name: tensor}
        e, i, o = tensor.shape
        return {name + "_blocks": formats.bytes_of(self.rng, (e, o, i // 32, 16)),
                name + "_scales": formats.bytes_of(self.rng, (e, o, i // 32), 116, 122)}

    def loading(self):
        return Mxfp4Config(dequantize=True)


def write(rng, folder, config, program):
    """The model with random weights, quantized, as a published folder has it."""
    torch.manual_seed(rng.getrandbits(60))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    stored = {}
    for name, tensor in load_file(path).items():
        stored.update(program.quantize(name, tensor))
    save_file({n: t.contiguous() for n, t in stored.items()}, path, metadata={"format": "pt"})
    said = shown.read_json(folder, "config.json")
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
        json.dump({**said, "quantization_config": program.said}, out)


def loaded(folder, **more):
    """The state of the model that transformers makes of a folder, all of whose weights it had to find."""
    model, told = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.bfloat16, local_files_only=True, **more)
    if told["missing_keys"] or told["mismatched_keys"]:
        raise ValueError(f"transformers misses {told['missing_keys']}, does not fit {told['mismatched_keys']}")
    state = {n: t for n, t in model.state_dict().items() if not n.endswith(("activation_scale", "input_scale"))}
    return state, getattr(model, "quantization_method", None)


class Case:
    def __init__(self, name, rng, config, program):
        self.name, self.rng, self.config, self.program = name, rng, config, program

    def describe(self):
        return f"  {self.config.model_type}, {json.dumps(self.program.said)}"

    def write(self, folder):
        source = os.path.join(folder, "quantized")
        write(self.rng, source, self.config, self.program)
        return source, {"view": "huggingface"}

    def check_oracle(self, folder):
        self.want, _ = loaded(os.path.join(folder, "quantized"), quantization_config=self.program.loading())
        return None

    def check_views(self, folder, source, options):
        target = os.path.join(folder, "plain")
        problem = shown.export(source, target, {"dequantize": True, **options})
        if problem:
            return problem
        if "quantization_config" in shown.read_json(target, "config.json"):
            return "config.json still has quantization_config"
        got, method = loaded(target)
        problem = f"transformers takes it for {method}" if method else shown.all_differ(got, self.want)
        return problem or self.check_cut(folder, source) or self.check_converted(folder, source) or \
            self.check_mount(folder, source, options)

    def check_cut(self, folder, source):
        """Ready cuts, or rules of our own, are for the names that are shown: each rank has the same of both folders."""
        ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
        cut = {"dst_rules": "tp2", "format": "safetensors"}
        if self.config.model_type == "gpt_oss":
            cut = {**cut, "dst_rules": "*.experts.*_proj: axis 1 over all;*: whole", "dst_ranks": 8}
        problem = shown.export(source, ours, {"dequantize": True, **cut}) or shown.export(os.path.join(folder, "plain"), theirs, cut)
        return problem or shown.trees_differ(ours, theirs)

    def check_converted(self, folder, source):
        """Conversion rules get plain weights."""
        if self.config.model_type == "gpt_oss":
            return None
        ours, theirs = os.path.join(folder, "converted"), os.path.join(folder, "converted-plain")
        rules = {"convert": self.config.model_type, "format": "safetensors"}
        problem = shown.export(source, ours, {"dequantize": True, **rules}) or shown.export(os.path.join(folder, "plain"), theirs, rules)
        return problem or shown.trees_differ(ours, theirs)

    def check_mount(self, folder, source, options):
        if os.environ.get("RFS_NO_FUSE"):
            return None
        mount = os.path.join(folder, "mnt")
        with contextlib.ExitStack() as stack:
            stack.enter_context(compared.mounted(source, mount, {"dequantize": True, **options}))
            got, _ = loaded(mount)
            problem = shown.all_differ(got, self.want)
            del got
        return problem and f"mounted: {problem}"


CASES = {"qwen3-fp8": (qwen3, lambda rng: Fp8(rng, [128, 128])), "qwen3-moe-fp8": (qwen3_moe, lambda rng: Fp8(rng, [128, 128])),
         "deepseek-v3-fp8": (deepseek_v3, lambda rng: Fp8(rng, [128, 128])), "qwen3-scalar": (qwen3, lambda rng: Fp8(rng, None)),
         "gpt-oss": (gpt_oss, Blocks), **{f"qwen3-{kind}": (qwen3, lambda rng, kind=kind: Compressed(rng, kind))
                                          for kind in ("pack", "float", "int", "nvfp4", "mxfp4", "mxfp8")}}
