# SPDX-License-Identifier: Apache-2.0
"""Quantized weights of each format: random ones, and the numbers that the format's own program makes of them.

A Format has a config as the real class writes it, module(): a weight's tensors by the end of their names, and
numbers(folder, tensors, dtype): name -> tensor as the program shows them. Compressors of compressed-tensors write the
packed words; everything else is plain codes, so that all of them occur.
"""
import functools
import json
import os

import mlx.core as mx
import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.entrypoints.convert.converters.ct_dequantizer import CompressedTensorsDequantizer
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from modelopt import __version__ as MODELOPT_VERSION
from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor
from transformers import AwqConfig, FineGrainedFP8Config, GPTQConfig, MetalConfig, Mxfp4Config
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.metal_quantization import _affine_dequantize_tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

E4M3, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu
FLOATS = [torch.float32, torch.bfloat16, torch.bfloat16, torch.float16]
ODD_SCALES = [0.0, -0.5, float("inf"), float("nan"), 1e-42]
# Beside a quantized weight, and not shown.
DROPPED = ["input_scale", "activation_scale", "input_global_scale", "k_scale", "v_scale", "q_scale"]


def bytes_of(rng, shape, low=0, high=256):
    return torch.randint(low, high, shape, generator=rng.torch, dtype=torch.int64).to(torch.uint8)


def e4m3(rng, shape, wild):
    """All codes; NaN is among them in wild cases only."""
    codes = bytes_of(rng, shape)
    if not wild:
        codes[codes & 0x7F == 0x7F] = 0x3A
    return codes.view(E4M3)


def exponents(rng, shape, wild):
    return bytes_of(rng, shape) if wild else bytes_of(rng, shape, 110, 135)


def scales(rng, shape, dtype, wild):
    if dtype in (E8M0, torch.uint8):
        return exponents(rng, shape, wild).view(dtype)
    numbers = torch.exp2(torch.rand(shape, generator=rng.torch) * 12 - 10)
    if wild and numbers.numel() > 1:
        for value in ODD_SCALES:
            numbers.view(-1)[rng.randrange(numbers.numel())] = value
    return numbers.to(dtype)


def up(a, b):
    return -(-a // b)


def plain(config):
    """A config as JSON has it: words of enumerations, lists for tuples."""
    if isinstance(config, dict):
        return {k: plain(v) for k, v in config.items()}
    if isinstance(config, (list, tuple)):
        return [plain(v) for v in config]
    return getattr(config, "value", config)


def size(rng, most=300):
    """Of an axis: mostly small, as each case has many tensors."""
    if rng.random() < 0.02:
        return rng.randint(1000, 2500)
    return rng.choice([1, 2, 3, rng.randint(4, 40), rng.randint(41, most), rng.randint(41, most), 128, 256])


class Blocks:
    """fp8: a scale for each block, 128 by 128 as a rule."""
    side = ["weight_scale_inv"]

    def __init__(self, rng):
        self.block = rng.choice([(128, 128)] * 4 + [(64, 128), (32, 16), (1, 128), (100, 7), (16, 256)])
        self.kinds = rng.choice([[torch.float32], [torch.bfloat16], [torch.float16], [E8M0], [torch.float32, torch.bfloat16, E8M0],
                                 [torch.uint8, torch.float32]])

    def config(self):
        return plain(FineGrainedFP8Config(weight_block_size=self.block).to_dict())

    def module(self, rng, wild):
        kind, m, n = rng.choice(self.kinds), size(rng), size(rng)
        if kind == torch.uint8:  # which transformers alone reads, in whole blocks
            m, n = (rng.randint(1, 3) * b for b in self.block)
        grid = (up(m, self.block[0]), up(n, self.block[1]))
        return {"weight": e4m3(rng, (m, n), wild), "weight_scale_inv": scales(rng, grid, kind, wild)}

    def numbers(self, folder, tensors, dtype):
        exponent = {n[:-len("_scale_inv")]: t for n, t in tensors.items() if n.endswith("weight_scale_inv") and t.dtype == torch.uint8}
        program = FP8BlockDequantizer.from_pretrained(folder, weight_block_size=self.block, dtype=dtype)
        out = program.process(dict(tensors))
        return {**out, **{n: Fp8Dequantize(None)._dequantize_one(tensors[n], s, output_dtype=dtype) for n, s in exponent.items()}}


class Scalar:
    """fp8 with one scale for each weight, as Mistral's models have it."""
    side = ["weight_scale_inv"]

    def __init__(self, rng):
        self.kind = rng.choice([torch.bfloat16, torch.bfloat16, torch.float32])

    def config(self):
        out = plain(FineGrainedFP8Config().to_dict())
        return {**out, "activation_scheme": "static", "weight_block_size": None}

    def module(self, rng, wild):
        return {"weight": e4m3(rng, (size(rng), size(rng)), wild), "weight_scale_inv": scales(rng, (), self.kind, wild),
                "activation_scale": torch.tensor(0.25, dtype=self.kind)}

    def numbers(self, folder, tensors, dtype):
        return by_transformers(tensors, "weight_scale_inv", dtype)


class DeepseekV4:
    """fp8 with .scale in E8M0: blocks, and experts in FP4."""
    side = ["scale"]
    block = (128, 128)

    def __init__(self, rng):
        self.fp4 = rng.random() < 0.7

    def config(self):
        out = plain(FineGrainedFP8Config(weight_block_size=self.block).to_dict())
        return {**out, "scale_fmt": "ue8m0", "expert_dtype": "fp4" if self.fp4 else "fp8"}

    def module(self, rng, wild):
        m, n = size(rng), size(rng)
        if self.fp4 and rng.random() < 0.5:
            n = 32 * rng.randint(1, 6)
            return {"weight": bytes_of(rng, (m, n // 2)).view(torch.int8), "scale": scales(rng, (m, n // 32), E8M0, wild)}
        return {"weight": e4m3(rng, (m, n), wild), "scale": scales(rng, (up(m, 128), up(n, 128)), E8M0, wild)}

    def numbers(self, folder, tensors, dtype):
        """FP4 by transformers; ragged blocks by compressed-tensors, as transformers takes none."""
        out = dict(tensors)
        for name in [n for n in tensors if n.endswith(".scale") and n[:-5] + "weight" in tensors]:
            weight = name[:-5] + "weight"
            if out[weight].dtype == torch.int8:
                out[weight] = Fp8Dequantize(None)._dequantize_one(out[weight], out.pop(name), output_dtype=dtype)
            elif out[weight].dtype == E4M3:
                program = FP8BlockDequantizer(weight_block_size=self.block, dtype=dtype)
                out[weight] = program._create_dequantized_weight(out[weight], out.pop(name))
        return out


def by_transformers(tensors, suffix, dtype):
    out, program = dict(tensors), Fp8Dequantize(None)
    for name in [n for n in tensors if n.endswith("." + suffix)]:
        weight = name[:-len(suffix)] + "weight"
        out[weight] = program._dequantize_one(out[weight], out.pop(name), output_dtype=dtype)
    return out


class Compressed:
    """compressed-tensors: SCHEMES of which a folder has one, or two for parts of the model."""

    def __init__(self, rng, weights, word, activations=None, targets=None):
        self.args, self.word = QuantizationArgs(**weights), word
        self.scheme = QuantizationScheme(targets=targets or ["Linear"], weights=self.args,
                                         input_activations=activations and QuantizationArgs(**activations))
        self.groups, self.rng = [self], rng
        self.kind = rng.choice(FLOATS)

    def config(self):
        schemes = {f"group_{k}": group.scheme for k, group in enumerate(self.groups)}
        word = self.word if len(self.groups) == 1 else "mixed-precision"
        if len(self.groups) > 1:
            for group in self.groups:
                group.scheme.format = group.word
        return plain(QuantizationConfig(config_groups=schemes, format=word, ignore=["lm_head"],
                                        quantization_status="compressed").to_dict())

    def module(self, rng, wild):
        return self.of_shape(rng, self.shape(rng), wild)

    def numbers(self, folder, tensors, dtype):
        """All but the quantized modules are named to the program: it would take embeddings for a Linear."""
        quantized = {n.rpartition(".")[0] for n in tensors if n.endswith((".weight_scale", ".weight_packed"))}
        rest = {n.rpartition(".")[0] for n in tensors} - quantized
        return CompressedTensorsDequantizer(folder, ignore=sorted(rest), dtype=dtype).process(dict(tensors))


class Packed(Compressed):
    """pack-quantized: words of 32 bits, groups or channels, with zero points or without."""
    side = ["weight_packed", "weight_scale", "weight_shape", "weight_zero_point"]

    def __init__(self, rng, bits=None, targets=None):
        self.group = rng.choice([32, 32, 32, 64, 128, 16, None])
        weights = {"num_bits": bits or rng.choice([4, 4, 4, 8]), "type": "int", "symmetric": rng.random() < 0.6,
                   "strategy": "group" if self.group else "channel", "group_size": self.group}
        super().__init__(rng, weights, "pack-quantized", targets=targets)
        self.least = 5 if targets else 1  # fewer columns fill one word by either group
        self.shape_kind = rng.choice([torch.int64, torch.int64, torch.int32])

    def shape(self, rng):
        # The program fails on zero points of a single row of words.
        m = size(rng) if self.args.symmetric else 8 + size(rng)
        return m, self.group * rng.randint(1, 5) if self.group else max(size(rng), self.least)

    def of_shape(self, rng, shape, wild=False):
        m, n = shape
        half = 1 << (self.args.num_bits - 1)
        grid = (m, n // self.group if self.group else 1)
        scale = scales(rng, grid, self.kind, False).to(torch.float32)
        zero = torch.randint(-half, half, grid, generator=rng.torch).to(torch.int8)
        code = torch.randint(-half, half, (m, n), generator=rng.torch)
        wide = zero.repeat_interleave(n // grid[1], 1).to(torch.int64) if not self.args.symmetric else 0
        state = {"weight": (code - wide) * scale.repeat_interleave(n // grid[1], 1), "weight_scale": scale,
                 "weight_zero_point": zero}
        out = PackedQuantizationCompressor.compress(state, self.scheme)
        out["weight_scale"] = scales(rng, grid, self.kind, wild)
        out["weight_shape"] = out["weight_shape"].to(self.shape_kind)
        return out


class Codes(Compressed):
    """float-quantized and int-quantized: a code in each byte."""
    side = ["weight_scale", "weight_zero_point"]

    def __init__(self, rng, is_float, targets=None):
        self.is_float = is_float
        strategy = rng.choice(["tensor", "channel", "channel", "group"] + ["block"] * is_float)
        self.group = rng.choice([32, 64, 128]) if strategy == "group" else None
        self.block = rng.choice([[128, 128], [128, 128], [64, 32]]) if strategy == "block" else None
        symmetric = is_float or strategy in ("tensor", "block") or rng.random() < 0.5
        weights = {"num_bits": 8, "type": "float" if is_float else "int", "symmetric": symmetric, "strategy": strategy,
                   "group_size": self.group, "block_structure": self.block}
        activations = {"num_bits": 8, "type": weights["type"], "strategy": "token", "dynamic": True}
        super().__init__(rng, weights, "float-quantized" if is_float else "int-quantized", activations, targets)

    def shape(self, rng):
        return size(rng), self.group * rng.randint(1, 5) if self.group else size(rng)

    def of_shape(self, rng, shape, wild=False):
        m, n = shape
        grid = {"tensor": (1,), "channel": (m, 1), "group": (m, n // (self.group or 1))}.get(self.args.strategy)
        if self.block:
            grid = (up(m, self.block[0]), up(n, self.block[1]))
        out = {"weight": e4m3(rng, (m, n), wild) if self.is_float else bytes_of(rng, (m, n)).view(torch.int8),
               "weight_scale": scales(rng, grid, self.kind, wild)}
        if not self.args.symmetric:
            out["weight_zero_point"] = bytes_of(rng, grid).view(torch.int8)
        return out


class Nvfp4(Compressed):
    """nvfp4-pack-quantized: a scale in E4M3 for 16 codes, and a divisor."""
    side = ["weight_packed", "weight_scale", "weight_global_scale"]

    def __init__(self, rng, targets=None):
        super().__init__(rng, {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16,
                               "scale_dtype": E4M3}, "nvfp4-pack-quantized", targets=targets)

    def shape(self, rng):
        return size(rng), 16 * rng.randint(1, 12)

    def of_shape(self, rng, shape, wild=False):
        m, n = shape
        return {"weight_packed": bytes_of(rng, (m, n // 2)), "weight_scale": e4m3(rng, (m, n // 16), wild),
                "weight_global_scale": torch.tensor([rng.uniform(1, 3000)], dtype=torch.float32)}


class Mxfp4(Compressed):
    """mxfp4-pack-quantized: an exponent for 32 codes."""
    side = ["weight_packed", "weight_scale"]

    def __init__(self, rng, targets=None):
        super().__init__(rng, {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32,
                               "scale_dtype": torch.uint8}, "mxfp4-pack-quantized", targets=targets)

    def shape(self, rng):
        return size(rng), 32 * rng.randint(1, 8)

    def of_shape(self, rng, shape, wild=False):
        m, n = shape
        return {"weight_packed": bytes_of(rng, (m, n // 2)), "weight_scale": exponents(rng, (m, n // 32), wild)}


class Mxfp8(Compressed):
    """mxfp8-quantized: an exponent for 32 codes in E4M3."""
    side = ["weight_scale"]

    def __init__(self, rng, targets=None):
        super().__init__(rng, {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32,
                               "scale_dtype": torch.uint8}, "mxfp8-quantized",
                         {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "dynamic": True}, targets)

    def shape(self, rng):
        return size(rng), 32 * rng.randint(1, 8)

    def of_shape(self, rng, shape, wild=False):
        m, n = shape
        return {"weight": e4m3(rng, (m, n), wild), "weight_scale": exponents(rng, (m, n // 32), wild)}


class Mixed(Compressed):
    """Two config groups: attention in one format, the rest in another."""

    def __init__(self, rng):
        self.groups = []
        first, second = rng.sample([lambda t: Packed(rng, 4, t), lambda t: Packed(rng, 8, t), lambda t: Codes(rng, True, t),
                                    lambda t: Codes(rng, False, t), lambda t: Nvfp4(rng, t), lambda t: Mxfp4(rng, t)], 2)
        alike = rng.random() < 0.3
        self.groups = [first(["re:.*self_attn.*"]), second(["re:.*mlp.*"])]
        while alike:  # as far as shapes tell: they differ in zero points alone
            self.groups = [Packed(rng, 4, ["re:.*self_attn.*"]), Packed(rng, 4, ["re:.*mlp.*"])]
            one, two = self.groups
            alike = one.group != two.group or one.args.symmetric == two.args.symmetric
        self.side = sorted({s for g in self.groups for s in g.side})

    def module(self, rng, wild, name=""):
        return self.groups[0 if "self_attn" in name else 1].module(rng, wild)


class GptOss:
    """mxfp4 of gpt-oss: experts in blocks of 16 bytes, shown transposed."""
    side = []

    def __init__(self, rng):
        pass

    def config(self):
        return plain(Mxfp4Config().to_dict())

    def experts(self, rng, wild):
        e, o, i = rng.randint(1, 5), rng.choice([size(rng, 80), 64, 96]), rng.randint(1, 6)
        return {"_blocks": bytes_of(rng, (e, o, i, 16)), "_scales": exponents(rng, (e, o, i), wild),
                "_bias": torch.randn((e, o), generator=rng.torch).to(torch.bfloat16)}

    def numbers(self, folder, tensors, dtype):
        out = dict(tensors)
        for name in [n for n in tensors if n.endswith("_blocks")]:
            stem = name[:-len("_blocks")]
            out[stem] = convert_moe_packed_tensors(out.pop(name), out.pop(stem + "_scales"), dtype=dtype)
        return out


class Static(Scalar):
    """fp8 with one weight_scale for each weight, as AutoFP8 writes it; the product is that of Scalar."""
    side = ["weight_scale"]

    def module(self, rng, wild):
        kind = torch.float32 if rng.random() < 0.7 else torch.bfloat16
        return {"weight": e4m3(rng, (size(rng), size(rng)), wild), "weight_scale": scales(rng, rng.choice([(), (1,)]), kind, wild),
                "input_scale": torch.tensor(0.25)}

    def config(self):
        return {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}

    def numbers(self, folder, tensors, dtype):
        flat = {n: t.reshape(()) if n.endswith(".weight_scale") else t for n, t in tensors.items()}
        return by_transformers(flat, "weight_scale", dtype)


class ModelOpt:
    """modelopt: FP8 with one scale or one for each row, and NVFP4, alone or several in one model."""
    side = ["weight_scale", "weight_scale_2"]
    ALGOS = ["FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4"]

    def __init__(self, rng):
        self.algos = [rng.choice(self.ALGOS)] if rng.random() < 0.7 else self.ALGOS
        said = {"quant_algo": self.algos[0], "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
        if "NVFP4" in self.algos:
            said["group_size"] = 16
        if len(self.algos) > 1:
            layers = {f"layers.{k}": {"quant_algo": a, **({"group_size": 16} if a == "NVFP4" else {})}
                      for k, a in enumerate(self.algos)}
            said = {**said, "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
        self.said = {"producer": {"name": "modelopt", "version": MODELOPT_VERSION}, "quantization": said}
        self.alone = rng.random() < 0.5

    def config(self):
        """None: it is in hf_quant_config.json alone, as older versions have it."""
        return None if self.alone else convert_hf_quant_config_format(self.said)

    def beside(self):
        return {"hf_quant_config.json": json.dumps(self.said, indent=4)}

    def module(self, rng, wild):
        algo, m, n = rng.choice(self.algos), size(rng), size(rng)
        if algo == "NVFP4":
            n = 16 * rng.randint(1, 12)
            return {"weight": bytes_of(rng, (m, n // 2)), "weight_scale": e4m3(rng, (m, n // 16), wild),
                    "weight_scale_2": torch.tensor(rng.uniform(-0.01 * wild, 0.01)), "input_scale": torch.tensor(0.5)}
        shape = rng.choice([(), (1,)]) if algo == "FP8" else rng.choice([(m,), (m, 1)])
        return {"weight": e4m3(rng, (m, n), wild), "weight_scale": scales(rng, shape, torch.float32, wild)}

    def numbers(self, folder, tensors, dtype):
        """One rounding from the products in float32, which both classes make for that type."""
        out = dict(tensors)
        for name in [n for n in tensors if n.endswith(".weight_scale")]:
            weight, scale = name[:-len("_scale")], out.pop(name)
            codes = out[weight]
            if codes.dtype == torch.uint8:
                shape = (codes.shape[0], codes.shape[1] * 2)
                made = NVFP4QTensor(torch.Size(shape), torch.float32, codes).dequantize(
                    dtype=torch.float32, scale=scale, double_scale=out.pop(weight + "_scale_2"), block_sizes={-1: 16})
            else:
                wide = scale.reshape(-1, 1) if scale.numel() > 1 else scale.reshape(())
                made = FP8QTensor(codes.shape, torch.float32, codes).dequantize(dtype=torch.float32, scale=wide)
            out[weight] = made.to(dtype)
        return out


@functools.lru_cache
def gptqmodel():
    """What GPTQModel computes with, which takes seconds to import: (a layer's class, from zero points of v1, awq's)."""
    os.environ["GPTQ_TORCH_TRITON_DEQUANT"] = "0"
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module

    return TorchLinear, convert_gptq_v1_to_v2_format_module, dequantize_gemm


def words(rng, shape):
    return bytes_of(rng, (*shape[:-1], shape[-1] * 4)).view(torch.int32)


class Columns:
    """GPTQ and AWQ: a scale and a zero point for each output column; shown transposed."""
    extra = []

    def __init__(self, rng):
        self.bits, self.group = rng.choice([4, 4, 4, 8]), rng.choice([32, 64, 128, 128, -1])
        self.kind = rng.choice([torch.float16] * 4 + [torch.bfloat16])

    @property
    def side(self):
        return ["qweight", "qzeros", "scales", *self.extra]

    def numbers(self, folder, tensors, dtype):
        out = dict(tensors)
        for name in [n for n in tensors if n.endswith(".qweight")]:
            stem = name[:-len("qweight")]
            made = self.of_program(*(out.pop(stem + end) for end in self.side))
            out[stem + "weight"] = made.t().to(dtype).contiguous()
        return out


class Gptq(Columns):
    """The rows of a weight share words, and g_idx says their groups: all, in any order with desc_act."""
    extra = ["g_idx"]

    def __init__(self, rng):
        super().__init__(rng)
        self.act_order, self.v2 = rng.random() < 0.5, rng.random() < 0.3
        self.mixed = rng.random() < 0.2

    def config(self):
        out = plain(GPTQConfig(self.bits, group_size=self.group, desc_act=self.act_order, sym=False,
                               format="gptq_v2" if self.v2 else "gptq").to_dict())
        out["checkpoint_format"] = "gptq_v2" if self.v2 else "gptq"
        return {**out, "dynamic": {"+:.*mlp.*": {"bits": 8}}} if self.mixed else out

    def module(self, rng, wild):
        bits = rng.choice([4, 8]) if self.mixed else self.bits
        rows, cols = max(size(rng), 5), size(rng)  # fewer rows than 5 fill one word by either number of bits
        group = rows if self.group < 0 else self.group
        groups = up(rows, group)
        index = torch.arange(rows, dtype=torch.int32) // group
        if self.act_order:
            index = index[torch.randperm(rows, generator=rng.torch)]
        return {"qweight": words(rng, (up(rows * bits, 32), cols)), "qzeros": words(rng, (groups, up(cols * bits, 32))),
                "scales": scales(rng, (groups, cols), self.kind, wild), "g_idx": index}

    def of_program(self, codes, zeros, scale, index):
        layer, from_v1, _ = gptqmodel()
        rows, cols = len(index), scale.shape[1]
        bits = 8 if codes.shape[0] == up(rows * 8, 32) else 4
        made = layer(bits=bits, group_size=self.group, sym=False, desc_act=self.act_order, in_features=rows, out_features=cols)
        made.qweight, made.qzeros, made.scales, made.g_idx = codes.clone(), zeros.clone(), scale, index
        if not self.v2:
            from_v1(made, bits, torch.int32)
        return made.eval().dequantize_weight()


class Awq(Columns):
    """Words along the columns, of 4 bits in an order of their own."""

    def config(self):
        return plain(AwqConfig(self.bits, group_size=self.group, zero_point=True).to_dict())

    def module(self, rng, wild):
        group = 32 * rng.randint(1, 9) if self.group < 0 else self.group
        groups = 1 if self.group < 0 else rng.randint(1, 4)
        cols = 8 * rng.randint(1, 40)
        wide = cols * self.bits // 32
        return {"qweight": words(rng, (groups * group, wide)), "qzeros": words(rng, (groups, wide)),
                "scales": scales(rng, (groups, cols), self.kind, wild)}

    def of_program(self, codes, zeros, scale):
        group = codes.shape[0] // scale.shape[0]
        made = gptqmodel()[2](codes, zeros, scale, self.bits, group)
        if self.bits == 4:  # a second opinion
            code, by, zero = AutoAWQConverter(group_size=group)._convert_gemm_module(codes, scale, zeros)
            other = ((code - zero.repeat_interleave(group, 1)).to(by.dtype) * by.repeat_interleave(group, 1)).t()
            assert torch.equal(made.nan_to_num(7), other.nan_to_num(7)), "GPTQModel and compressed-tensors differ"
        return made


class Mlx:
    """MLX: codes times a scale and plus a bias, in groups of a row; experts in one tensor; some modules otherwise."""
    plus = "biases"

    def __init__(self, rng):
        self.bits, self.group = rng.choice([4, 4, 8]), rng.choice([32, 64, 64, 128])
        self.kind = rng.choice([torch.bfloat16, torch.bfloat16, torch.float16, torch.float32])
        self.side, self.others = ["scales", self.plus], {}
        self.apart = rng.random() < 0.5

    def config(self):
        """Also beside it, under the name that MLX reads."""
        return {"group_size": self.group, "bits": self.bits, **({"mode": "affine"} if self.apart else {}), **self.others}

    def root(self):
        return {"quantization": self.config()}

    def module(self, rng, wild, name=""):
        bits, group = self.bits, self.group
        if self.plus == "biases" and rng.random() < 0.3:
            bits, group = rng.choice([4, 8]), rng.choice([32, 64, 128])
            self.others[name] = {"group_size": group, "bits": bits}
        elif self.plus == "biases" and rng.random() < 0.1:
            self.others[name] = True
        shape = (rng.randint(1, 4), size(rng, 60)) if rng.random() < 0.2 else (size(rng),)
        groups = rng.randint(1, 6)
        codes = words(rng, (*shape, groups * group * bits // 32)).view(torch.uint32)
        return {"weight": codes, "scales": scales(rng, (*shape, groups), self.kind, wild),
                self.plus: (torch.randn((*shape, groups), generator=rng.torch) * 4).to(self.kind)}

    def numbers(self, folder, tensors, dtype):
        out = dict(tensors)
        for name in [n for n in tensors if n.endswith(".scales")]:
            stem = name[:-len("scales")]
            codes, scale, plus = out[stem + "weight"], out.pop(name), out.pop(stem + self.plus)
            said = self.others.get(stem[:-1]) or {}
            bits, group = (said["bits"], said["group_size"]) if isinstance(said, dict) and said else (self.bits, self.group)
            out[stem + "weight"] = self.of_program(codes, scale, plus, bits, group).to(dtype)
        return out

    @staticmethod
    def of_program(codes, scale, plus, bits, group):
        def given(tensor):
            if tensor.dtype == torch.bfloat16:
                return mx.array(tensor.view(torch.uint16).numpy()).view(mx.bfloat16)
            return mx.array(tensor.numpy())

        made = mx.dequantize(given(codes), given(scale), given(plus), group_size=group, bits=bits)
        if scale.dtype == torch.bfloat16:
            return torch.from_numpy(np.array(made.view(mx.uint16))).view(torch.bfloat16)
        return torch.from_numpy(np.array(made))


class Metal(Mlx):
    """quant_method metal: transformers' own form of it, which rounds once."""
    plus = "qbiases"

    def config(self):
        return plain(MetalConfig(bits=self.bits, group_size=self.group).to_dict())

    def root(self):
        return {}

    def module(self, rng, wild, name=""):
        made = super().module(rng, wild, name)
        return {n: t.reshape(-1, t.shape[-1]) for n, t in made.items()}

    @staticmethod
    def of_program(codes, scale, plus, bits, group):
        return _affine_dequantize_tensor(codes.view(torch.int32), scale, plus, group, bits).to(scale.dtype)


MAKERS = {"blocks": Blocks, "pack": Packed, "gptoss": GptOss, "float": lambda rng: Codes(rng, True), "v4": DeepseekV4,
          "nvfp4": Nvfp4, "scalar": Scalar, "int": lambda rng: Codes(rng, False), "mxfp4": Mxfp4, "mxfp8": Mxfp8,
          "mixed": Mixed, "static": Static, "modelopt": ModelOpt, "gptq": Gptq, "awq": Awq, "mlx": Mlx, "metal": Metal}
