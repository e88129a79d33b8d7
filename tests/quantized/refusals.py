# SPDX-License-Identifier: Apache-2.0
"""Folders that must not be shown: one line that names the tensor or the word, and no file."""
import json
import os

import compared
import folders
import formats
import reshard
import torch

FIXED = {}
NAME = "model.layers.0.mlp.up_proj"
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}


def group(**weights):
    """The config of one group of compressed-tensors: 4 bits in groups of 32 unless said otherwise."""
    said = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, **weights}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
            "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": said}}}


def blocks(rng):
    return {"weight": formats.e4m3(rng, (200, 300), False), "weight_scale_inv": torch.ones(2, 3)}


def packed(rng):
    return {"weight_packed": formats.bytes_of(rng, (16, 32)).view(torch.int32), "weight_shape": torch.tensor([16, 64]),
            "weight_scale": torch.ones(16, 2, dtype=torch.bfloat16)}


def nvfp4(rng):
    return {"weight_packed": formats.bytes_of(rng, (16, 32)), "weight_scale": formats.e4m3(rng, (16, 4), False),
            "weight_global_scale": torch.tensor([100.0])}


def with_zeros(rng):
    return {**packed(rng), "weight_zero_point": formats.bytes_of(rng, (2, 8)).view(torch.int32)}


NVFP4 = {**group(type="float", strategy="tensor_group", group_size=16), "format": "nvfp4-pack-quantized"}
FLOAT = {**group(num_bits=8, type="float", strategy="channel", group_size=None), "format": "float-quantized"}


class Case:
    """MAKE(rng): the tensors of one module by the end of their names; PARTS must be in what is said."""

    def __init__(self, name, make, config, parts, separator="."):
        self.name, self.make, self.config, self.parts = name, make, config, parts
        self.separator = separator

    def describe(self):
        return f"  {json.dumps(self.config, default=str)}"

    def write(self, folder):
        rng = folders.Random(self.name)
        tensors = {f"{NAME}{self.separator}{end}": t for end, t in self.make(rng).items()}
        tensors["model.norm.weight"] = torch.ones(8, dtype=torch.bfloat16)
        source = os.path.join(folder, "quantized")
        folders.write(source, tensors, {n: "model.safetensors" for n in tensors}, {"model_type": "llama"})
        if self.config is None:
            os.unlink(os.path.join(source, "config.json"))
            return source, {}
        text = self.config if isinstance(self.config, str) else json.dumps({"model_type": "llama", "quantization_config": self.config})
        with open(os.path.join(source, "config.json"), "w", encoding="utf-8") as out:
            out.write(text)
        return source, {}

    def check_oracle(self, folder):
        del folder

    def check_views(self, folder, source, options):
        del options
        target = os.path.join(folder, "shown")
        for more in (",view=huggingface", ",view=dcp,dst_ranks=2", ""):
            done = compared.run("export", source, target, "-o", "dequantize" + more)
            errors = [line for line in done.stdout.splitlines() if line.startswith("reshard: error: ")]
            if done.returncode != 1 or len(errors) != 1 or not all(p in errors[0] for p in self.parts):
                return f"exit {done.returncode} instead of a refusal that has {self.parts}: {done.stdout}"
            if os.path.exists(target):
                return f"{more} is refused, but shows {os.listdir(target)}"
        return self.check_mount(folder, source)

    def check_mount(self, folder, source):
        if os.environ.get("RFS_NO_FUSE"):
            return None
        try:
            with compared.mounted(source, os.path.join(folder, "mnt"), {"dequantize": True, "view": "huggingface"}):
                return "it is mounted"
        except OSError as error:
            return None if all(p in str(error) for p in self.parts) else f"mounting says {error}"


class Damaged(Case):
    """Contents that no number can be made of: they are found as they are read, and no file is whole."""

    def check_views(self, folder, source, options):
        del options
        target = os.path.join(folder, "shown")
        done = compared.run("export", source, target, "-o", "dequantize,view=huggingface")
        if done.returncode != 1 or not all(p in done.stdout for p in self.parts):
            return f"exit {done.returncode} instead of a refusal that has {self.parts}: {done.stdout}"
        if os.path.exists(os.path.join(target, "model.safetensors")):
            return "it is refused, but there is a file"
        try:
            with reshard.View(source, dequantize=True) as view:
                view.tensors(0)[NAME + ".weight"].read("torch")
        except OSError:
            return None
        return "the package reads it"


class Contradicted(Case):
    """A config that is given for weights of which the folder's own says something else: it is refused with the word."""

    def check_views(self, folder, source, options):
        del options
        given, target = os.path.join(folder, "given.json"), os.path.join(folder, "shown")
        for word, value in [(None, None), *CONTRADICTED]:
            with open(given, "w", encoding="utf-8") as out:
                json.dump({"model_type": "llama", "quantization_config": {**self.config, word or "desc_act": value}}, out)
            done = compared.run("export", source, target + (word or ""), "-o", f"dequantize,view=huggingface,hf_config={given}")
            said = f"given.json: '{word}' of its quantization_config is another than in {source}/config.json" if word else ""
            if done.returncode != (1 if word else 0) or said not in done.stdout:
                return f"{word}: exit {done.returncode}: {done.stdout}"
        return None


def refused(name, doc, make, config, *parts, separator=".", kind=Case):
    def made(full):
        return kind(full, make, config, parts, separator)

    made.__doc__ = doc
    FIXED[f"quantized-refused-{name}"] = made


def without(make, end):
    return lambda rng: {k: v for k, v in make(rng).items() if k != end}


def changed(make, end, value):
    return lambda rng: {**make(rng), end: value}


for lost, maker, said in (("weight_scale_inv", blocks, FP8), ("weight_scale", packed, group()), ("weight_shape", packed, group()),
                          ("weight_zero_point", with_zeros, group(symmetric=False)), ("weight_global_scale", nvfp4, NVFP4)):
    refused("without-" + lost, f"no {lost} beside a quantized weight", without(maker, lost), said, NAME, lost)

for what, value in (("rows", torch.ones(1, 3)), ("columns", torch.ones(2, 2)), ("transposed", torch.ones(3, 2)), ("flat", torch.ones(6)),
                    ("integers", torch.ones(2, 3, dtype=torch.int32)), ("doubles", torch.ones(2, 3, dtype=torch.float64))):
    refused("grid-" + what, f"the grid of scales of a weight [200, 300] is another one: {what}",
            changed(blocks, "weight_scale_inv", value), FP8, NAME)

for what, value in (("negative", [-16, 64]), ("negative-columns", [16, -64]), ("zero", [0, 0]), ("huge", [1 << 40, 64]),
                    ("overflow", [1 << 62, 1 << 62]), ("columns", [16, 65]), ("fewer-columns", [16, 56]), ("rows", [15, 64]),
                    ("smallest", [-(1 << 63), -(1 << 63)]), ("wide", [16, (1 << 62) + 64])):
    refused("shape-" + what, f"weight_shape says {value} of words for [16, 64]",
            changed(packed, "weight_shape", torch.tensor(value)), group(), NAME)
refused("shape-of-three", "weight_shape has three numbers", changed(packed, "weight_shape", torch.tensor([16, 64, 1])), group(), NAME)
refused("shape-of-floats", "weight_shape is no integer", changed(packed, "weight_shape", torch.tensor([16.0, 64.0])), group(), NAME)

for method in ("modelopt", "bitsandbytes", "fbgemm_fp8", "hqq", "aqlm", "quark", "torchao", "auto-round", "golden-stick", "nobody's"):
    refused("method-" + method.strip("'s"), f"quant_method {method} is named", blocks, {**FP8, "quant_method": method}, method)
refused("no-method", "a config without quant_method", blocks, {k: v for k, v in FP8.items() if k != "quant_method"}, "quant_method")
for word in ("marlin-24", "sparse-24-bitmask", "sparse-bitmask", "mxfp6-pack-quantized"):
    refused("format-" + word, f"format {word} is named", packed, {**group(), "format": word}, word)
for bits in (3, 5, 6, 7):
    refused(f"{bits}-bits", f"words of {bits} bits are ambiguous", packed, group(num_bits=bits), str(bits))
refused("g-idx", "columns in another order", changed(packed, "weight_g_idx", torch.zeros(64, dtype=torch.int32)), group(actorder="group"))
refused("g-idx-unsaid", "columns in another order, of which the config says nothing",
        changed(packed, "weight_g_idx", torch.zeros(64, dtype=torch.int32)), group(), NAME)
refused("fmt", "codes in E5M2 by the config", blocks, {**FP8, "fmt": "e5m2"}, "e5m2")
refused("e5m2", "codes in E5M2 by their type", changed(blocks, "weight", torch.zeros(200, 300).to(torch.float8_e5m2)), FP8, NAME)
refused("int32", "codes of 32 bits under fp8", changed(blocks, "weight", torch.zeros(200, 300, dtype=torch.int32)), FP8, NAME)
refused("three-axes", "experts in one tensor", lambda rng: {"weight": formats.e4m3(rng, (2, 128, 128), False),
                                                            "weight_scale_inv": torch.ones(2, 1, 1)}, FP8, NAME)

for number, size in enumerate(([0, 128], [-128, 128], [128], [128, 128, 128], [128.5, 128], ["128", "128"], [1 << 40, 128], 128, {}, [64, 64])):
    refused(f"block-size-{number}", f"weight_block_size {size}", blocks, {**FP8, "weight_block_size": size})
for number, size in enumerate((0, -32, 33, 31.5, "32", 1 << 40, 64, 16)):
    refused(f"group-size-{number}", f"group_size {size} of scales [16, 2]", packed, group(group_size=size))
refused("bits-of-words", "8 bits of words for 4", packed, group(num_bits=8), NAME)
refused("strategy", "an unknown strategy", packed, group(strategy="diagonal"), "diagonal")
refused("no-groups", "compressed-tensors without groups", packed, {k: v for k, v in group().items() if k != "config_groups"})
refused("no-json", "a config that is no JSON", blocks, "{", "config.json")
refused("no-config", "a folder without config.json", blocks, None, "config.json")
refused("nothing", "a config without quantization", blocks, '{"model_type": "llama"}', "config.json", "quantization_config")
refused("config-of-a-list", "quantization_config is a list", blocks, '{"model_type": "llama", "quantization_config": [1]}', "config.json")
refused("both", "a plain weight beside the packed one", changed(packed, "weight", torch.zeros(16, 64)), group(), NAME)
refused("zeros-rows", "zero points of other rows", changed(with_zeros, "weight_zero_point", torch.zeros(16, 2, dtype=torch.int32)),
        group(symmetric=False), NAME)
refused("zeros-type", "zero points of a byte beside words", changed(with_zeros, "weight_zero_point", torch.zeros(2, 2, dtype=torch.int8)),
        group(symmetric=False), NAME)
refused("channel-scales", "scales of one channel less", lambda rng: {"weight": formats.e4m3(rng, (16, 64), False),
                                                                    "weight_scale": torch.ones(15, 1)}, FLOAT, NAME)
refused("nvfp4-global", "a global scale of two numbers", changed(nvfp4, "weight_global_scale", torch.ones(2)), NVFP4, NAME)
refused("nvfp4-scales", "scales of another group size", changed(nvfp4, "weight_scale", torch.zeros(16, 8).to(formats.E4M3)), NVFP4, NAME)


def experts(rng):
    return {"blocks": formats.bytes_of(rng, (2, 6, 3, 16)), "scales": formats.exponents(rng, (2, 6, 3), False)}


MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": []}
refused("gpt-oss-scales", "blocks without scales", without(experts, "scales"), MXFP4, NAME, "_scales", separator="_")
for what, value in (("rows", (2, 5, 3)), ("columns", (2, 6, 2)), ("experts", (1, 6, 3)), ("flat", (36,))):
    refused("gpt-oss-scales-" + what, f"scales {list(value)} of blocks [2, 6, 3, 16]",
            changed(experts, "scales", torch.zeros(value, dtype=torch.uint8)), MXFP4, NAME, separator="_")
refused("gpt-oss-blocks", "blocks of 15 bytes", changed(experts, "blocks", torch.zeros(2, 6, 3, 15, dtype=torch.uint8)), MXFP4, NAME,
        separator="_")


def gptq(rng):
    return {"qweight": formats.words(rng, (8, 24)), "qzeros": formats.words(rng, (2, 3)), "scales": torch.ones(2, 24, dtype=torch.float16),
            "g_idx": torch.arange(64, dtype=torch.int32) // 32}


def mlx(rng):
    return {"weight": formats.words(rng, (16, 8)).view(torch.uint32), "scales": torch.ones(16, 2, dtype=torch.float16),
            "biases": torch.ones(16, 2, dtype=torch.float16)}


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}
for lost in ("scales", "qzeros", "g_idx"):
    refused("without-" + lost, f"no {lost} beside a GPTQ weight", without(gptq, lost), GPTQ, NAME, lost)
for what, word in (("checkpoint_format", "marlin"), ("checkpoint_format", "gptq_p"), ("pack_dtype", "int8")):
    refused(f"gptq-{word}", f"{what} {word}", gptq, {**GPTQ, what: word}, word)
for number, group in enumerate((-32, 0, 31, 16, -1)):
    refused(f"gptq-group-{number}", f"group_size {group} of scales [2, 24]", gptq, {**GPTQ, "group_size": group})
for number, index in enumerate((-1, 2, 1 << 30, -(1 << 31))):
    refused(f"gptq-group-of-a-column-{number}", f"g_idx says group {index} of 2: found as it is read",
            changed(gptq, "g_idx", torch.tensor([0, 1] * 31 + [index, 0], dtype=torch.int32)), GPTQ,
            f"g_idx says that column 62 has group {index} of 2", kind=Damaged)
CONTRADICTED = [("checkpoint_format", "gptq_v2"), ("quant_method", "awq"), ("bits", 8), ("group_size", 64)]
refused("gptq-of-another-config", "another config is given", gptq, GPTQ, kind=Contradicted)
refused("gptq-bits", "8 bits of words for 4", gptq, {**GPTQ, "bits": 8}, NAME)
refused("mlx-mode", "a mode of MLX without a bias", mlx, {"bits": 4, "group_size": 32, "mode": "mxfp4"}, "mxfp4", "mlx_lm.convert")
refused("mlx-group", "scales of another group size", mlx, {"bits": 4, "group_size": 64}, NAME)
for bits in (2, 3, 5, 6):
    refused(f"mlx-{bits}-bits", f"{bits} bits", mlx, {"bits": bits, "group_size": 32}, str(bits))
for lost in ("scales", "biases"):
    refused("mlx-without-" + lost, f"no {lost} beside an MLX weight", without(mlx, lost), {"bits": 4, "group_size": 32}, NAME, lost)
