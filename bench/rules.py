# SPDX-License-Identifier: Apache-2.0
"""
Reading what conversion rules make, beside the null server: experts, which a training keeps transposed, and a dense
model, which it keeps with rows that take turns. A training's files as HuggingFace's, and these as the training's.
"""
import json
import os
import shutil
import subprocess

import costs
import steady

MIB = 1 << 20
# The least cache with which bands are made, and one with which more of a source row is read at once; files are larger.
# Safetensors would come from the page cache.
MOUNTS = ("cache=64M", "cache=256M")
COMMON = {"num_hidden_layers": 1, "head_dim": 128, "vocab_size": 64, "tie_word_embeddings": True}
CUTS = """axes tp=2
*.linear_qkv.weight: axis 0 over tp
*.linear_proj.weight: axis 1 over tp
*.linear_fc1.weight: axis 0 over tp
*.linear_fc2.weight: axis 1 over tp
*.experts.weight1: axis 0 over tp
*.experts.weight2: axis 0 over tp
*: whole
"""


def experts(size, hidden, ffn):
    """As many as fit: the config, and the names and shapes of a layer."""
    n = max(4, size // (3 * 2 * hidden * ffn) // 4 * 4)
    config = {**COMMON, "model_type": "qwen3_moe", "hidden_size": hidden, "num_experts": n, "moe_intermediate_size": ffn,
              "intermediate_size": ffn, "decoder_sparse_step": 1, "mlp_only_layers": [], "num_attention_heads": 4,
              "num_key_value_heads": 4}
    shapes = {"mlp.gate": (n, hidden)}
    for e in range(n):
        shapes.update({f"mlp.experts.{e}.gate_proj": (ffn, hidden), f"mlp.experts.{e}.up_proj": (ffn, hidden),
                       f"mlp.experts.{e}.down_proj": (hidden, ffn)})
    return config, shapes


def dense(size, hidden, ffn):
    config = {**COMMON, "model_type": "qwen3", "hidden_size": hidden, "intermediate_size": ffn,
              "num_attention_heads": hidden // 128, "num_key_value_heads": 8,
              "num_hidden_layers": max(1, round(size / (2 * hidden * (3 * ffn + 2 * hidden + 2048))))}
    return config, {"mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn)}


# Whose sizes, which tensors, hidden_size and that of a row of gate, and the share of the null server.
MODELS = (("experts as of DeepSeek-V3", experts, 7168, 2048, 0.5), ("experts as of Qwen3-30B-A3B", experts, 2048, 768, 0.5),
          ("layers as of Qwen3-8B", dense, 4096, 12288, 0.6))


def shapes_of(config, of_layer):
    names = ("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size")
    heads, groups, head, hidden = (config[name] for name in names)
    layer = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_norm": (head,),
             "self_attn.k_norm": (head,), "self_attn.q_proj": (heads * head, hidden),
             "self_attn.k_proj": (groups * head, hidden), "self_attn.v_proj": (groups * head, hidden),
             "self_attn.o_proj": (hidden, heads * head), **of_layer}
    out = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    for i in range(config["num_hidden_layers"]):
        out.update({f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()})
    return out


def write(folder, config, shapes):
    """A model of HuggingFace with weights of any bits."""
    os.makedirs(folder)
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    bits = os.urandom(MIB)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for begin in range(0, at, MIB):
            file.write(bits[:min(MIB, at - begin)])
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump(config, file)


class Side:
    """One view: its source, the options of it, and the file that is read."""

    def __init__(self, bench, name, source, options, file):
        self.bench, self.name, self.source, self.options, self.file = bench, name, source, options, file

    def mount(self, mounted, path, cache):
        return mounted([self.bench.reshardfs, "-f", self.source, path, "-o", f"{self.options},{cache},io=direct"], path)


def sides(bench, name, made):
    """The view as HuggingFace's files and that as the training's, of the same model."""
    folder = bench.path(name.replace(" ", "-"))
    config, of_layer = made
    write(os.path.join(folder, "hf"), config, shapes_of(config, of_layer))
    with open(os.path.join(folder, "cuts"), "w", encoding="ascii") as file:
        file.write(CUTS)
    options = f"convert={config['model_type']},hf_config={folder}/hf/config.json"
    training = f"{options},view=mindformers,dst_ranks=2,dst_rules={folder}/cuts"
    subprocess.run([bench.reshard, "export", "--no-fsync", f"{folder}/hf", f"{folder}/trained", "-o", training],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    out = [Side(bench, f"{name} for HuggingFace", f"{folder}/trained", f"{options},view=huggingface",
                "model.safetensors"),
           Side(bench, f"{name} for a training", f"{folder}/hf", training, "model-0000000-0000002.safetensors")]
    steady.write_out(folder)
    for side in out:
        steady.remember(*(os.path.join(side.source, name) for name in os.listdir(side.source)))
    return folder, out


def measure(bench, mounted, size, rounds, figures, compare, say):
    mount, null_mount = bench.path("mnt.rules"), bench.path("mnt.null")
    for name, make, hidden, ffn, asked in MODELS:
        folder, both = sides(bench, name, make(size, hidden, ffn))
        for side in both:
            say(f"{side.name}, {rounds} rounds")
            path = os.path.join(mount, side.file)
            for cache in MOUNTS:
                with side.mount(mounted, mount, cache) as pid:
                    length = os.path.getsize(path)
                    source, replied, _ = costs.cost(pid, path, read_all)
                    figures.add(f"{side.name}, {cache}: source bytes / replied", source / replied, 1.2, at_most=True)
            with mounted([bench.null_server, null_mount, str(length)], null_mount):
                null = os.path.join(null_mount, "null")
                for _ in range(rounds):
                    for cache in MOUNTS:
                        with side.mount(mounted, mount, cache):
                            os.path.getsize(path)  # headers are read
                            compare(figures, f"{side.name}, {cache} / null server", bench.rate(path), bench.rate(null),
                                    asked)
        shutil.rmtree(folder)


def read_all(fd):
    while os.read(fd, MIB):
        pass
    return os.fstat(fd).st_size
