# SPDX-License-Identifier: Apache-2.0
"""Folders of quantized HuggingFace models with random names, files and tensors between the quantized ones."""
import json
import os
import random

import formats
import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV3Config, GptOssConfig, LlamaConfig, Qwen3Config

KEYS = ("quantization_config", "compression_config", "quantization")  # which a dequantized config does not have
OTHER_FILES = {"generation_config.json": '{"do_sample": false}\n', "tokenizer.json": '{"version": "1.0"}\n'}
PREFIXES = ["model.", "model.", "model.", "language_model.model.", "model.language_model."]
LINEAR = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "self_attn.kv_a_proj_with_mqa", "mlp.gate_proj",
          "mlp.up_proj", "mlp.down_proj", "mlp.experts.0.gate_proj", "mlp.experts.1.gate_proj", "mlp.experts.11.down_proj",
          "mlp.shared_experts.up_proj"]


class Random(random.Random):
    """With a generator of torch's beside it."""

    def __init__(self, seed):
        super().__init__(seed)
        self.torch = torch.Generator().manual_seed(self.getrandbits(63))


class Folder:
    """tensors: name -> tensor as stored; files: name of a tensor -> its file; config: that of config.json."""

    def __init__(self, rng, kind):
        self.rng, self.kind, self.format = rng, kind, formats.MAKERS[kind](rng)
        self.wild = rng.random() < 0.3
        self.prefix = "" if kind == "v4" and rng.random() < 0.7 else rng.choice(PREFIXES)
        self.tensors, self.quantized, self.path = {}, [], None
        for layer in rng.sample(range(12), rng.randint(1, 3)):
            self.add_layer(f"{self.prefix}layers.{layer}.")
        self.add_others()
        names = list(self.tensors)
        rng.shuffle(names)
        self.tensors = {n: self.tensors[n] for n in names}
        self.config = self.make_config()
        count = rng.choice([1, 2, 2, 3])
        self.files = {n: rng.randrange(count) for n in names}
        used = sorted(set(self.files.values()))
        self.indexed = len(used) > 1 or rng.random() < 0.3
        self.files = {n: f"model-{used.index(k) + 1:05d}-of-{len(used):05d}.safetensors" if self.indexed
                      else "model.safetensors" for n, k in self.files.items()}

    def add_layer(self, layer):
        rng = self.rng
        if self.kind == "gptoss":
            for name in ("gate_up_proj", "down_proj"):
                made = self.format.experts(rng, self.wild)
                self.tensors.update({f"{layer}mlp.experts.{name}{end}": t for end, t in made.items()})
                self.quantized.append(f"{layer}mlp.experts.{name}")
        else:
            for name in rng.sample(LINEAR, rng.randint(1, 4)):
                self.add_module(layer + name)
        self.tensors[layer + "input_layernorm.weight"] = self.numbers((rng.randint(1, 90),), torch.bfloat16)
        self.tensors[layer + "mlp.gate.weight"] = self.numbers((rng.randint(1, 9), rng.randint(1, 50)), torch.float32)
        if rng.random() < 0.5:  # names that only look like those of scales
            self.tensors[layer + "hc_attn_scale"] = self.numbers((3,), torch.float32)
            self.tensors[layer + "q_l2_clip.scale"] = self.numbers((1,), torch.float32)

    def add_module(self, module):
        rng = self.rng
        made = self.format.module(rng, self.wild, module) if self.kind in ("mixed", "mlx") else self.format.module(rng, self.wild)
        self.tensors.update({f"{module}.{end}": t for end, t in made.items()})
        self.quantized.append(module + ".weight")
        if rng.random() < 0.3:
            self.tensors[module + ".bias"] = self.numbers((rng.randint(1, 90),), torch.bfloat16)
        if rng.random() < 0.2:
            self.tensors[module + ".input_scale"] = torch.tensor([0.5])

    def add_others(self):
        rng = self.rng
        self.tensors[self.prefix + "embed_tokens.weight"] = self.numbers((rng.randint(1, 60), rng.randint(1, 60)), torch.bfloat16)
        self.tensors["lm_head.weight"] = self.numbers((rng.randint(1, 60), rng.randint(1, 60)), torch.bfloat16)
        if rng.random() < 0.3:
            self.tensors[self.prefix + "position_ids"] = torch.arange(rng.randint(1, 30))

    def numbers(self, shape, dtype):
        return torch.randn(shape, generator=self.rng.torch).to(dtype)

    def make_config(self):
        of_program = self.rng.choice([LlamaConfig, Qwen3Config, DeepseekV3Config])
        config = (GptOssConfig if self.kind == "gptoss" else of_program)(num_hidden_layers=2).to_dict()
        said = self.format.config()
        if said is None:
            return config
        if self.prefix.startswith("language_model.") or self.rng.random() < 0.15:
            inner = {**config, "quantization_config": said}
            config = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": inner}
            if self.rng.random() < 0.3:
                config["quantization_config"] = said
            return config
        config = {**config, **getattr(self.format, "root", dict)()}
        key = "compression_config" if isinstance(self.format, formats.Compressed) and self.rng.random() < 0.15 else KEYS[0]
        return {**config, key: said}

    def plain_config(self):
        """The config of the model as it is without quantization."""
        out = {k: v for k, v in self.config.items() if k not in KEYS}
        if "text_config" in out:
            out["text_config"] = {k: v for k, v in out["text_config"].items() if k != KEYS[0]}
        return out

    def write(self, path, tensors=None):
        """With TENSORS, some of them alone."""
        tensors = self.tensors if tensors is None else tensors
        write(path, tensors, {n: self.files[n] for n in tensors}, self.config)
        for name, text in getattr(self.format, "beside", dict)().items():
            with open(os.path.join(path, name), "w", encoding="utf-8") as out:
                out.write(text)

    def truth(self, dtype):
        """name -> tensor as the real program shows it; what is not quantized has its own type."""
        shown = self.format.numbers(self.path, load(self.path), dtype)
        return {n: t for n, t in shown.items() if n.rpartition(".")[2] not in formats.DROPPED}

    def file_of(self, name):
        """Where a shown tensor stands in a folder of the true ones: in the file of its weight."""
        stored = next(n for n in (name, name + "_packed", name + "_blocks", in_words(name)) if n in self.files)
        return self.files[stored]

    def write_truth(self, path, dtype=None):
        """A folder of the same tensors, plain; with DTYPE all weights have it."""
        shown = self.truth(dtype or torch.bfloat16)
        order = [n for stored in self.tensors
                 for n in (stored, stored.replace("_packed", ""), stored.replace("_blocks", ""), stored.replace(".qweight", ".weight"))
                 if n in shown]
        shown = {n: shown[n] for n in dict.fromkeys(order)}
        write(path, shown, {n: self.file_of(n) for n in shown}, self.plain_config())

    def describe(self):
        rows = [f"  {self.kind}{' with odd numbers' if self.wild else ''}: {json.dumps(self.format.config())}"]
        return "\n".join(rows + [f"    {n} {t.dtype}{list(t.shape)} in {self.files[n]}" for n, t in self.tensors.items()])


def in_words(name):
    return name[:-len("weight")] + "qweight" if name.endswith(".weight") else name


def write(path, tensors, files, config):
    os.makedirs(path)
    for file in set(files.values()):
        held = {n: t.contiguous() for n, t in tensors.items() if files[n] == file}
        save_file(held, os.path.join(path, file), metadata={"format": "pt"})
    if "model.safetensors" not in files.values():
        total = sum(t.nbytes for t in tensors.values())
        with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
            json.dump({"metadata": {"total_size": total}, "weight_map": files}, out)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out, indent=2, default=str)
    for name, text in OTHER_FILES.items():
        with open(os.path.join(path, name), "w", encoding="utf-8") as out:
            out.write(text)


def load(path):
    """name -> tensor of all files of a folder, by the library."""
    out = {}
    for file in sorted(os.listdir(path)):
        if file.endswith(".safetensors"):
            found = load_file(os.path.join(path, file))
            assert not set(found) & set(out), f"{sorted(set(found) & set(out))} are in two files"
            out.update(found)
    return out
