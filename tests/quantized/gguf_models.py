# SPDX-License-Identifier: Apache-2.0
"""Tiny models: transformers reads a GGUF file, and the view that rules make of it, with the same logits; and a file of ours."""
import json
import os
import subprocess

import gguf
import gguf_files
import numpy as np
import shown
import torch
import transformers
from gguf import GGMLQuantizationType as Type

FIXED = {}
SMALL = {"vocab_size": 320, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
MODELS = {
    "llama": lambda tied: transformers.LlamaConfig(**SMALL, tie_word_embeddings=tied),
    "qwen3": lambda tied: transformers.Qwen3Config(**SMALL, head_dim=128, tie_word_embeddings=tied),
}
TOKENS = torch.arange(40)[None] * 7 % 320
# Names of a layer: in HuggingFace's model, and in files of llama.cpp.
NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name_in_file(name):
    module = name.removesuffix(".weight")
    if module in WHOLE:
        return WHOLE[module] + ".weight"
    _, _, layer, rest = module.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def permute(rows, heads):
    """As convert_hf_to_gguf.py of llama.cpp has it."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def convert(model, kind, path, kv_heads=0, tokens=False, freqs=None):
    """
    Writes the file that llama.cpp's converter writes, without a tokenizer; norms are in F32.
    kv_heads: other counts of heads, one for each layer; None: none at all. tokens: a tokenizer has the vocabulary, as llama.cpp
    writes it for qwen3. freqs: factors of the rotation, which llama.cpp computes from rope_scaling, in a tensor of their own.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    if kv_heads is not None:
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(kv_heads or config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    if tokens:
        writer.add_token_list([f"token {i}" for i in range(config.vocab_size)])
    else:
        writer.add_vocab_size(config.vocab_size)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        rows = tensor.to(torch.float32).numpy()
        if config.model_type == "llama" and ("q_proj" in name or "k_proj" in name):
            rows = permute(rows, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        of = kind if rows.ndim > 1 else Type.F32
        if of in (Type.Q4_K, Type.Q5_K, Type.Q6_K):  # gguf does not write these: any codes, with small scales
            size = gguf.GGML_QUANT_SIZES[of][1]
            data = np.random.default_rng(7).integers(0, 256, (rows.shape[0], rows.shape[1] // 256 * size), np.uint8)
            for at in ([208] if of == Type.Q6_K else [0, 2]):
                data.reshape(-1, size)[:, at:at + 2] = np.frombuffer(np.float16(2e-5).tobytes(), np.uint8)
        else:
            data = gguf.quantize(np.ascontiguousarray(rows), of)
        writer.add_tensor(name_in_file(name), data, raw_dtype=of)
    if freqs is not None:
        writer.add_tensor("rope_freqs.weight", freqs)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# How a module is cut over tensor-parallel ranks: the axis. Others are whole.
CUT = {"embed_tokens": 0, "lm_head": 0, "q_proj": 0, "k_proj": 0, "v_proj": 0, "gate_proj": 0, "up_proj": 0, "o_proj": 1,
       "down_proj": 1}


def cut(name, tensor, rank):
    """The part that a rank of two has of a tensor of HuggingFace's model."""
    axis = CUT.get(name.removesuffix(".weight").rpartition(".")[2])
    return tensor if axis is None else tensor.chunk(2, axis)[rank].contiguous()


def logits(model):
    with torch.no_grad():
        return model.eval()(TOKENS).logits


class Case:
    def __init__(self, name, model, kind, tied):
        self.name, self.model, self.kind, self.tied = name, model, kind, tied

    def describe(self):
        return f"  {self.model} in {self.kind.name}, {'tied' if self.tied else 'with an output'}"

    def write(self, folder):
        torch.manual_seed(1)
        self.folder, self.source = folder, os.path.join(folder, "gguf")
        self.hf = transformers.AutoModelForCausalLM.from_config(MODELS[self.model](self.tied), dtype=torch.float32)
        self.hf.save_pretrained(os.path.join(folder, "hf"))
        os.makedirs(self.source)
        convert(self.hf, self.kind, os.path.join(self.source, "model.gguf"))
        return self.source, {}

    def options(self, **more):
        return {"convert": f"gguf_{self.model}", "hf_config": os.path.join(self.folder, "hf", "config.json"), **more}

    def check_oracle(self, folder):
        """What the file has is the model."""
        del folder
        self.want = logits(transformers.AutoModelForCausalLM.from_pretrained(self.source, gguf_file="model.gguf", dtype=torch.float32))
        if self.kind == Type.F32 and not torch.equal(self.want, logits(self.hf)):
            return "transformers reads another model than it was written from"
        return None

    def check_views(self, folder, source, options):
        del options
        target = os.path.join(folder, "shown")
        problem = shown.export(source, target, self.options(view="huggingface", dequantize=True, dtype="float32"))
        if problem:
            return problem
        got = logits(transformers.AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32))
        if not torch.equal(got, self.want):
            return f"the logits are {got} instead of {self.want}"
        model = shown.read(target)
        return self.own_config(folder, model) or self.ranks(folder, model) or self.back(folder)

    def own_config(self, folder, model):
        """MODEL comes without hf_config=, too, by what the file says; and its vocabulary may be a tokenizer's."""
        tokens = os.path.join(folder, "tokens")
        os.makedirs(tokens)
        convert(self.hf, self.kind, os.path.join(tokens, "model.gguf"), tokens=True)
        for source in (self.source, tokens):
            target = source + "-by-itself"
            options = {"convert": f"gguf_{self.model}", "view": "huggingface", "dequantize": True, "dtype": "float32"}
            problem = shown.export(source, target, options)
            problem = problem or shown.all_differ(shown.read(target), model)
            if problem:
                return f"without hf_config= {os.path.basename(source)}: {problem}"
        advice = subprocess.run([os.environ["RESHARD"], "suggest", self.source], capture_output=True, text=True).stdout
        if f"convert=gguf_{self.model}" not in advice:
            return f"suggest says {advice}"
        other = {"llama": "qwen3", "qwen3": "llama"}[self.model]
        said = shown.export(self.source, os.path.join(folder, "refused"), {"convert": f"gguf_{other}"})
        return None if said and f"is for a model of type '{self.model}'" in said else f"for another model it says {said}"

    def ranks(self, folder, model):
        """tp2 cuts MODEL, the whole one, in HuggingFace's names and in those of the file, also its blocks."""
        numbers = {"dequantize": True, "dtype": "float32", "dst_rules": "tp2"}
        config = {"hf_config": os.path.join(folder, "hf", "config.json")}
        target, own, alone, stored = (os.path.join(folder, f"tp2-{word}") for word in ("convert", "own", "alone", "stored"))
        problem = shown.export(self.source, target, self.options(**numbers)) or \
            shown.export(self.source, own, {**numbers, **config}) or shown.export(self.source, alone, numbers) or self.refused(folder)
        ways = [] if problem else [(target, lambda n, t: (n, t)), (own, self.renamed), (alone, self.renamed)]
        for path, name in ways:
            for rank in range(2):
                want = dict(name(n, cut(n, t, rank)) for n, t in model.items() if self.has(n) or path == target)
                problem = problem or shown.all_differ(shown.read(os.path.join(path, f"rank_{rank}")), want)
        return problem or self.blocks(own, stored, config)

    def has(self, name):
        return name != "lm_head.weight" or not self.tied

    def renamed(self, name, tensor):
        """As llama.cpp converts a model of the rank's part."""
        heads = {"q_proj": 2, "k_proj": 1}.get(name.removesuffix(".weight").rpartition(".")[2], 0)
        rows = tensor.numpy()
        return name_in_file(name), torch.from_numpy(permute(rows, heads).copy()) if heads and self.model == "llama" else tensor

    def blocks(self, own, target, config):
        """Without dequantize the blocks are cut, if no part ends in one."""
        problem = shown.export(self.source, target, {"format": "gguf", "dst_rules": "tp2", **config})
        if self.kind in (Type.Q4_K, Type.Q5_K, Type.Q6_K) and self.model == "llama":  # a row of o_proj is one block
            return None if problem and "attn_output" in problem else f"it says {problem}"
        for rank in range(0 if problem else 2):
            want = shown.read(os.path.join(own, f"rank_{rank}"))
            tensors = gguf.GGUFReader(os.path.join(target, f"rank_{rank}", f"checkpoint_{rank}.gguf")).tensors
            got = {t.name: gguf_files.numbers_of(t, torch.float32).to(torch.float32) for t in tensors}
            problem = problem or shown.all_differ(got, want)
        return problem

    def refused(self, folder):
        """Nobody knows the heads of a file that does not say them, and none where each layer has another number."""
        rules = {"convert": f"gguf_{self.model}"}
        for heads, wants in ((None, ("hf_config=", "needs 'num_attention_heads'")),
                             ([2, 1], ("num_key_value_heads is not a count", "'num_key_value_heads' of"))):
            source = os.path.join(folder, f"no-heads-{heads is None}")
            os.makedirs(source)
            convert(self.hf, Type.F32, os.path.join(source, "model.gguf"), heads)
            for options, want in zip(({"dst_rules": "tp2"}, rules), wants):
                said = shown.export(source, os.path.join(folder, "refused"), options)
                if not said or "num_" not in said or want not in said:
                    return f"with {options} it says {said}"
        return None

    def back(self, folder):
        """Of HuggingFace's model a file: gguf and transformers read it."""
        target = os.path.join(folder, "back")
        problem = shown.export(os.path.join(folder, "hf"), target, self.options(view="gguf"))
        if problem:
            return problem
        file = os.path.join(target, "model.gguf")
        values = {k: f.contents() for k, f in gguf.GGUFReader(file).fields.items() if not k.startswith("GGUF.")}
        missing = values_differ(values, os.path.join(self.source, "model.gguf"))
        if missing:
            return f"{missing}: {json.dumps(values)}"
        got = logits(transformers.AutoModelForCausalLM.from_pretrained(os.path.dirname(file), gguf_file=os.path.basename(file),
                                                                       dtype=torch.float32))
        return None if torch.equal(got, logits(self.hf)) else "transformers reads another model of the file"


class Freqs(Case):
    """A file with factors of the rotation: they are not among HuggingFace's tensors, and convert check says so."""

    def describe(self):
        return "  a llama with rope_freqs.weight"

    def write(self, folder):
        super().write(folder)
        convert(self.hf, self.kind, os.path.join(self.source, "model.gguf"), freqs=np.linspace(1, 8, 32, dtype=np.float32))
        return self.source, {}

    def check_oracle(self, folder):
        del folder
        tensors = gguf.GGUFReader(os.path.join(self.source, "model.gguf")).tensors
        return None if any(t.name == "rope_freqs.weight" for t in tensors) else "gguf does not read the factors"

    def check_views(self, folder, source, options):
        del options
        target = os.path.join(folder, "shown")
        given = ",".join(f"{key}={value}" for key, value in self.options().items())
        said = subprocess.run([os.environ["RESHARD"], "convert", "check", f"gguf_{self.model}", source, "-o", given.partition(",")[2]],
                              capture_output=True, text=True)
        if said.returncode or not said.stdout.endswith("; 1 more is left out: 'rope_freqs.weight'\n"):
            return f"convert check says {said}"
        problem = shown.export(source, target, self.options(view="huggingface"))
        return problem or shown.all_differ(shown.read(target), self.hf.state_dict())


def values_differ(got, path):
    """The values of the model are those that gguf has written."""
    want = {k: f.contents() for k, f in gguf.GGUFReader(path).fields.items() if not k.startswith("GGUF.")}
    return next((f"{k} is {got.get(k)} instead of {v}" for k, v in want.items() if got.get(k) != v), None)


def made(model, kind, tied):
    return lambda full: Case(full, model, kind, tied)


for model in MODELS:
    for kind in (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_K, Type.Q5_K, Type.Q6_K):
        FIXED[f"gguf-model-{model}-{kind.name}"] = made(model, kind, kind == Type.F16)
FIXED["gguf-model-llama-rope-freqs"] = lambda full: Freqs(full, "llama", Type.F32, False)
