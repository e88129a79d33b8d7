# SPDX-License-Identifier: Apache-2.0
"""A slice of a rank reads its codes and the scales of its blocks, and at most a tenth more."""
import os

import folders
import formats
import reshard
import torch

FIXED = {}
NAME = "model.layers.0.mlp.up_proj"
ROWS, COLUMNS, RANKS = 2048, 4096, 8


def fp8(rng):
    return {"weight": formats.e4m3(rng, (ROWS, COLUMNS), False), "weight_scale_inv": torch.ones(ROWS // 128, COLUMNS // 128)}


def int4(rng):
    return {"weight_packed": formats.bytes_of(rng, (ROWS, COLUMNS // 2)).view(torch.int32), "weight_shape": torch.tensor([ROWS, COLUMNS]),
            "weight_scale": torch.ones(ROWS, COLUMNS // 32, dtype=torch.bfloat16)}


def gptq(rng, group=128):
    """The codes and scales of a row of the weight that is shown are columns, so its slices are of each line in the file."""
    return {"qweight": formats.bytes_of(rng, (COLUMNS // 8, ROWS * 4)).view(torch.int32),
            "qzeros": formats.bytes_of(rng, (COLUMNS // group, ROWS // 2)).view(torch.int32),
            "scales": torch.ones(COLUMNS // group, ROWS, dtype=torch.float16),
            "g_idx": torch.arange(COLUMNS, dtype=torch.int32) // group}


def awq(rng, group=128):
    return {"qweight": formats.bytes_of(rng, (COLUMNS, ROWS // 2)).view(torch.int32),
            "qzeros": formats.bytes_of(rng, (COLUMNS // group, ROWS // 2)).view(torch.int32),
            "scales": torch.ones(COLUMNS // group, ROWS, dtype=torch.float16)}


class Case:
    def __init__(self, name, make, config, axis):
        self.name, self.make, self.config, self.axis = name, make, config, axis

    def needed(self):
        """The bytes of a slice: its part of each tensor, but of g_idx, which all rows have in common, all."""
        return sum(t.nbytes // (1 if n.endswith("g_idx") and self.axis == 0 else RANKS)
                   for n, t in self.tensors.items() if not n.endswith("shape"))

    def describe(self):
        return f"  axis {self.axis} in {RANKS}"

    def write(self, folder):
        self.tensors = {f"{NAME}.{end}": t for end, t in self.make(folders.Random(self.name)).items()}
        source = os.path.join(folder, "quantized")
        # Scales stand in another file than the codes.
        files = {n: f"model-0000{1 + ('scale' in n)}-of-00002.safetensors" for n in self.tensors}
        folders.write(source, self.tensors, files, {"model_type": "llama", "quantization_config": self.config})
        return source, {}

    def check_oracle(self, folder):
        del folder

    def check_views(self, folder, source, options):
        del folder, options
        needed = self.needed()
        with reshard.View(source, dequantize=True, dst_ranks=RANKS, dst_rules=f"*: axis {self.axis} over all") as view:
            before = view.statistics()["source_bytes"]
            for rank in (3, 0):
                view.tensors(rank)[NAME + ".weight"].read("torch")
            read = (view.statistics()["source_bytes"] - before) / 2
        return None if needed <= read <= 1.1 * needed else f"a slice reads {read:.0f} bytes of its {needed:.0f}"


def cost(name, make, config, axis):
    def made(full):
        return Case(full, make, config, axis)

    made.__doc__ = f"the bytes that a slice along axis {axis} reads"
    FIXED[f"quantized-reads-{name}-{axis}"] = made


for _axis in (0, 1):
    cost("gptq", gptq, {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": False}, _axis)
    cost("awq", awq, {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}, _axis)
    cost("fp8", fp8, {"quant_method": "fp8", "weight_block_size": [128, 128]}, _axis)
    cost("int4", int4, {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}}}}, _axis)
