# SPDX-License-Identifier: Apache-2.0
"""GGUF files of random tensors and values, as gguf.GGUFWriter writes them, and what gguf reads and dequantizes of them."""
import logging
import os

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type

logging.getLogger("gguf").setLevel(logging.ERROR)
BLOCKS = [Type.Q4_0, Type.Q8_0, Type.Q4_K, Type.Q5_K, Type.Q6_K]
UNREAD = sorted(set(Type) - set(BLOCKS) - {Type.F32, Type.F16, Type.BF16, Type.F64, Type.I8, Type.I16, Type.I32, Type.I64})
PLAIN = {Type.F32: np.float32, Type.F16: np.float16, Type.F64: np.float64, Type.I8: np.int8, Type.I16: np.int16,
         Type.I32: np.int32, Type.I64: np.int64}
# Where the scales of a block are, which are halves.
HALVES = {Type.Q4_0: [0], Type.Q8_0: [0], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}


def blocks(rng, kind, shape, wild):
    """Random bytes with SHAPE of numbers; scales are infinite or no numbers in wild cases only."""
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.frombuffer(rng.randbytes(int(np.prod(shape)) // numbers * size), np.uint8).reshape(-1, size).copy()
    for at in HALVES[kind] if not wild else []:
        out[:, at + 1] = out[:, at + 1] & 0xBF | 0x20  # between 2^-7 and 2
    return out.reshape(*shape[:-1], shape[-1] // numbers * size)


def plain(rng, kind, shape):
    count = int(np.prod(shape))
    if kind == Type.BF16:
        data = np.frombuffer(rng.randbytes(2 * count), np.uint8).reshape(*shape[:-1], 2 * shape[-1])
        return data
    dtype = np.dtype(PLAIN[kind])
    if kind in (Type.F16, Type.F32, Type.F64):
        return np.array([rng.gauss(0, 1) for _ in range(count)], dtype).reshape(shape)
    return np.frombuffer(rng.randbytes(dtype.itemsize * count), dtype).reshape(shape)


def shape_for(rng, kind):
    """Rows of whole blocks, of one to four axes."""
    numbers = gguf.GGML_QUANT_SIZES[kind][0]
    last = numbers * rng.choice([1, 1, 2, 3, 5]) if numbers > 1 else rng.choice([1, 3, 7, 32, 64, 100])
    return tuple(rng.choice([1, 2, 3, 5, 8]) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))) + (last,)


def add_values(rng, writer):
    """Values of all types, and a tokenizer."""
    number = gguf.GGUFValueType
    for k in range(rng.randrange(6)):
        kind, value = rng.choice([(number.UINT8, 7), (number.INT8, -7), (number.UINT16, 65535), (number.INT16, -300),
                                  (number.UINT32, 1 << 31), (number.INT32, -1), (number.FLOAT32, 0.5), (number.BOOL, True),
                                  (number.STRING, "é" * rng.choice([0, 1, 7000])), (number.UINT64, 1 << 63),
                                  (number.INT64, -(1 << 62)), (number.FLOAT64, 0.1)])
        writer.add_key_value(f"case.value.{k}", value, kind)
    if rng.random() < 0.6:
        count = rng.choice([1, 10, 3000, 20000])
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([f"t{k}" * (k % 5) for k in range(count)])
        writer.add_token_scores([0.5] * count)
        writer.add_token_types([1] * count)


class File:
    """names -> (type, stored array), written to one file or several."""

    def __init__(self, rng, split=0):
        self.rng, self.kind, self.wild, self.split = rng, "gguf", rng.random() < 0.3, split
        self.tensors = {}
        for layer in range(rng.randint(1, 3)):
            for name in rng.sample(["attn_q", "attn_k", "ffn_up", "ffn_down", "attn_norm"], rng.randint(1, 4)):
                self.add(f"blk.{layer}.{name}.weight", rng.choice(BLOCKS * 2 + [Type.F32, Type.F16, Type.BF16]))
        for kind in [rng.choice(BLOCKS), *rng.sample(list(PLAIN), 2), Type.BF16]:
            self.add(f"other.{len(self.tensors)}", kind)
        self.quantized = [n for n, (kind, _) in self.tensors.items() if kind in BLOCKS]
        # GGUFWriter says the alignment in the first part alone, and none reads the others then.
        self.alignment = None if split else rng.choice([None, None, 8, 64, 4096])

    def add(self, name, kind):
        shape = shape_for(self.rng, kind)
        data = blocks(self.rng, kind, shape, self.wild) if kind in BLOCKS else plain(self.rng, kind, shape)
        self.tensors[name] = kind, data

    def write(self, folder):
        """Gives the source: the file, or the folder of several, each with SPLIT tensors."""
        os.makedirs(folder)
        path = os.path.join(folder, "model.gguf")
        writer = gguf.GGUFWriter(path, "llama", split_max_tensors=self.split, small_first_shard=self.split == 2)
        add_values(self.rng, writer)
        if self.alignment:
            writer.add_custom_alignment(self.alignment)
        for name, (kind, data) in self.tensors.items():
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        names = sorted(os.listdir(folder))
        self.paths = [os.path.join(folder, n) for n in names]
        return path if names == ["model.gguf"] else folder

    def truth(self, dtype):
        """name -> tensor as gguf reads it; what is in blocks as its dequantize has it, in DTYPE."""
        out = {}
        for path in self.paths:
            for tensor in gguf.GGUFReader(path).tensors:
                out[tensor.name] = numbers_of(tensor, dtype)
        return out

    def describe(self):
        rows = [f"  {'odd numbers, ' if self.wild else ''}alignment {self.alignment}, split by {self.split}"]
        return "\n".join(rows + [f"    {n} {kind.name}{list(data.shape)}" for n, (kind, data) in self.tensors.items()])


def numbers_of(tensor, dtype):
    """A tensor of a GGUFReader for torch."""
    shape = [int(n) for n in reversed(tensor.shape)]
    data = np.array(tensor.data)
    if tensor.tensor_type == Type.BF16:
        return torch.from_numpy(data.reshape(-1).copy()).view(torch.bfloat16).reshape(shape)
    if tensor.tensor_type in PLAIN:
        return torch.from_numpy(data).reshape(shape)
    with np.errstate(all="ignore"):
        wide = gguf.dequantize(data, tensor.tensor_type)
    return torch.from_numpy(wide).reshape(shape).to(dtype)
