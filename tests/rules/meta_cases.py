# SPDX-License-Identifier: Apache-2.0
"""The family "meta": Llama in the files of Meta's model-parallel ranks, consolidated.NN.pth beside params.json.

What they must hold is cut and permuted by numpy here. The second judge is the model itself: meta_says computes what Meta's
model does with the tensors, where neighbouring numbers of q and k rotate, and transformers must say the same with the view.
"""
import json
import os
import random
import shutil

import architectures
import compared
import numpy as np
import torch
import transformers_cases
import views

COLUMN, ROW = 0, 1
AXES = {"wq": COLUMN, "wk": COLUMN, "wv": COLUMN, "wo": ROW, "w1": COLUMN, "w3": COLUMN, "w2": ROW, "output": COLUMN}
NAMES = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
         "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
         "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
WHOLE = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output"}
TORCH = {"BFloat16": torch.bfloat16, "Float32": torch.float32}


def meta_name(name):
    stem = name.removesuffix(".weight")
    if stem in WHOLE:
        return WHOLE[stem] + ".weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"layers.{layer}.{NAMES[rest]}.weight"


def in_turns(data, head):
    """Rows of each head's first half and of its second half take turns."""
    heads = data.reshape(-1, 2, head // 2, *data.shape[1:])
    return np.swapaxes(heads, 1, 2).reshape(data.shape)


def meta_tensors(model, head):
    """name -> Value by Meta's names."""
    out = {}
    for name, value in model.tensors.items():
        turns = name.endswith(("q_proj.weight", "k_proj.weight"))
        out[meta_name(name)] = value.with_data(in_turns(value.data, head)) if turns else value
    out.setdefault("output.weight", out["tok_embeddings.weight"])
    return out


def slice_of(name, value, ranks, rank, by_columns):
    """What a rank has of a tensor."""
    part = name.split(".")[-2]
    axis = int(by_columns) if part == "tok_embeddings" else AXES.get(part)
    return value if axis is None else value.with_data(np.ascontiguousarray(np.split(value.data, ranks, axis)[rank]))


def to_torch(value):
    data = torch.from_numpy(np.ascontiguousarray(value.data.view(np.int16) if value.dtype == "BFloat16" else value.data))
    return data.view(TORCH[value.dtype])


def rotate(x, theta):
    """[tokens, heads, head]: numbers 2j and 2j+1 turn by the token's place times theta^(-2j / head)."""
    place, head = torch.arange(x.shape[0], dtype=x.dtype), x.shape[-1]
    angle = torch.outer(place, theta ** (-torch.arange(0, head, 2, dtype=x.dtype) / head))[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()), -1).flatten(-2)


def meta_says(tensors, heads, theta, eps, tokens):
    """What Meta's model says to tokens, in double precision."""
    w = {name: t.double() for name, t in tensors.items()}

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w[name]

    x = w["tok_embeddings.weight"][tokens]
    n, layers = len(tokens), 1 + max(int(name.split(".")[1]) for name in w if name.startswith("layers."))
    for layer in range(layers):
        at = f"layers.{layer}."
        q, k, v = (norm(x, at + "attention_norm.weight") @ w[f"{at}attention.w{c}.weight"].T for c in "qkv")
        head = q.shape[-1] // heads
        q, k, v = rotate(q.view(n, -1, head), theta), rotate(k.view(n, -1, head), theta), v.view(n, -1, head)
        k, v = (t.repeat_interleave(heads // t.shape[1], 1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / head ** 0.5 + torch.full((n, n), -torch.inf, dtype=x.dtype).triu(1)
        x = x + torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(n, -1) @ w[at + "attention.wo.weight"].T
        y = norm(x, at + "ffn_norm.weight")
        y = torch.nn.functional.silu(y @ w[at + "feed_forward.w1.weight"].T) * (y @ w[at + "feed_forward.w3.weight"].T)
        x = x + y @ w[at + "feed_forward.w2.weight"].T
    return norm(x, "norm.weight") @ w["output.weight"].T


def fitting(rng, numbers):
    return rng.choice([n for n in (1, 2, 3, 4) if all(number % n == 0 for number in numbers)])


class Refused:
    says, status = "", 1

    def __init__(self, *parts):
        self.refusal = parts


class Case:
    says, refusal, status = "", "", 1

    def __init__(self, name, model, params, rng):
        self.name, self.model, self.params, self.rng = name, model, params, rng
        config = model.config
        self.heads = config["num_attention_heads"]
        self.groups = config.get("num_key_value_heads") or self.heads
        self.head = config["hidden_size"] // self.heads
        self.by_columns = rng.random() < 0.5
        even = [self.groups, self.heads, config["intermediate_size"], config["vocab_size"]]
        self.ranks, self.others = fitting(rng, even), fitting(rng, even)
        self.tensors = meta_tensors(model, self.head)

    def describe(self):
        return f"  {self.model.describe()}\n  {self.params}, {self.ranks} ranks, by columns: {self.by_columns}; {self.others} others"

    def write(self, folder):
        self.folder = folder
        self.source, self.hf = os.path.join(folder, "original"), os.path.join(folder, "hf")
        self.config = os.path.join(self.hf, "config.json")
        views.write_huggingface(self.hf, self.model, self.model.tensors)
        os.makedirs(self.source)
        counts = {"rope.freqs": torch.ones(self.head // 2)} if self.rng.random() < 0.5 else {}
        for rank in range(self.ranks):
            cut = {n: to_torch(slice_of(n, v, self.ranks, rank, self.by_columns)).clone() for n, v in self.tensors.items()}
            torch.save({**cut, **counts}, os.path.join(self.source, f"consolidated.{rank:02}.pth"))
        with open(os.path.join(self.source, "params.json"), "w", encoding="utf-8") as file:
            json.dump(self.params, file)
        return self.source, {}

    def check_oracle(self, _folder):
        """Meta's model says with Meta's tensors what transformers says with its own; not with rows in another order."""
        tensors, tokens = {n: to_torch(v) for n, v in self.tensors.items()}, torch.arange(self.model.vocab_size) % 7
        config = self.model.config
        wanted = transformers_cases.logits(self.hf, self.model, torch.float32)[0]
        for turned, equal in ((self.head, True), (2, self.head == 2)):
            others = meta_tensors(self.model, turned)
            tensors.update((n, to_torch(others[n])) for n in others if n.endswith(("wq.weight", "wk.weight")))
            got = meta_says(tensors, self.heads, config.get("rope_theta", 10000.0), config["rms_norm_eps"], tokens)
            near = torch.allclose(got.float(), wanted, rtol=1e-3, atol=1e-3)
            if near != equal and (equal or self.model.num_attention_heads > 1):
                return f"with rows of {turned} in turns the models {'agree' if near else 'differ'}"
        return None

    def show(self, source, options, wanted=None):
        target = os.path.join(self.folder, f"shown-{len(os.listdir(self.folder))}")
        problem = compared.export(self, source, target, options)
        self.target = target
        if not problem and wanted:
            problem = views.tensors_differ(views.read_safetensors(target), wanted)
        return problem and f"{source} with {options}: {problem}"

    def check_ranks(self, source, options, by_columns):
        """None, or how the ranks that a view makes differ."""
        problem = self.show(source, {"format": "safetensors", "dst_rules": f"tp{self.others}", **options})
        for rank in range(0 if problem else self.others):
            have = views.read_safetensors(os.path.join(self.target, f"rank_{rank}"))
            have.pop("rope.freqs", None)
            wanted = {n: slice_of(n, v, self.others, rank, by_columns) for n, v in self.tensors.items()}
            problem = problem or views.tensors_differ(have, wanted)
        return problem and f"tp{self.others} of {source}: {problem}"

    def changed(self, change):
        """A copy of the folder after CHANGE(folder)."""
        copy = os.path.join(self.folder, f"wrong-{len(os.listdir(self.folder))}")
        shutil.copytree(self.source, copy)
        change(copy)
        return copy

    def refused(self, change, *parts):
        """None, or how a copy of the folder is not refused after CHANGE(folder)."""
        copy = self.changed(change)
        problem = compared.export(Refused(*parts), copy, copy + "-shown", {"view": "unified"})
        return problem and f"{parts}: {problem}"

    def wrong_params(self, **changed):
        def change(folder):
            with open(os.path.join(folder, "params.json"), "w", encoding="utf-8") as file:
                json.dump({**self.params.get("model", self.params), **changed}, file)
        return change

    def lost(self, rank):
        return lambda folder: os.remove(os.path.join(folder, f"consolidated.{rank:02}.pth"))

    def check_unproved(self, shown):
        """None, or what src_rules= makes of a folder whose params.json has another number of layers."""
        copy = self.changed(self.wrong_params(n_layers=self.model.num_hidden_layers + 1))
        return self.show(copy, {**shown, "src_rules": f"tp{self.ranks}"}) or self.differ()

    def differ(self):
        """None, or how Meta's tensors in what was shown last are others."""
        return views.tensors_differ({n: v for n, v in views.read_safetensors(self.target).items() if n != "rope.freqs"}, self.tensors)

    def check_refusals(self):
        problem = self.refused(self.wrong_params(n_layers=self.model.num_hidden_layers + 1), "the number of layers", "params.json") or \
            self.refused(self.wrong_params(vocab_size=self.model.vocab_size + 12), "the size of the vocabulary", "params.json") or \
            self.refused(self.wrong_params(hidden_dim=self.model.intermediate_size + 12), "the width of the feed-forward") or \
            self.refused(self.wrong_params(dim=self.model.hidden_size + 12 * self.heads), "the width of")
        if self.ranks > 1:
            problem = problem or self.refused(self.lost(self.ranks - 1), "error:") or \
                self.refused(self.lost(0), "'consolidated.00.pth' is missing")
        return problem

    def check_views(self, folder, source, options):
        del folder, options
        shown = {"view": "unified", "format": "safetensors"}
        convert = {"convert": "meta_llama", "hf_config": self.config}
        problem = self.show(source, shown) or \
            self.differ() or self.check_unproved(shown) or \
            self.check_ranks(source, {}, self.by_columns and self.ranks > 1) or \
            self.show(source, {**convert, "view": "huggingface"}, self.model.tensors) or \
            self.show(self.hf, {**convert, **shown}, self.tensors) or \
            self.check_ranks(self.hf, convert, False) or \
            self.check_refusals()
        if not problem and views.is_mounted(self.name):
            with compared.mounted(source, os.path.join(self.folder, "mnt"), {**convert, "view": "huggingface"}):
                problem = views.huggingface_differs(os.path.join(self.folder, "mnt"), self.config, self.model.tensors)
        return problem


def feed_forward(dim, multiple, factor):
    """As Meta's FeedForward computes it."""
    width = int(2 * (4 * dim) / 3)
    return multiple * ((int(factor * width) + multiple - 1) // multiple)


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    config = architectures.random_config(rng, rng.choice(["llama", "llama", "mistral"]))
    groups = config.get("num_key_value_heads") or config["num_attention_heads"]
    head = rng.choice([2, 4, 4, 6, 8])
    config.update(hidden_size=head * config["num_attention_heads"], vocab_size=rng.choice([24, 36, 48]))
    config.pop("attention_bias", None)
    if "head_dim" in config:
        config["head_dim"] = head
    multiple, factor = rng.choice([4, 6, 12]), rng.choice([1, 1.3, 0.5, 2])
    config["intermediate_size"] = feed_forward(config["hidden_size"], multiple, factor)
    params = {"dim": config["hidden_size"], "n_heads": config["num_attention_heads"], "n_layers": config["num_hidden_layers"],
              "vocab_size": rng.choice([-1, config["vocab_size"]]), "norm_eps": 1e-6, "multiple_of": multiple}
    if factor != 1:
        params["ffn_dim_multiplier"] = factor
    if groups != config["num_attention_heads"] or rng.random() < 0.5:
        params["n_kv_heads"] = groups
    if config["model_type"] == "mistral":  # as Mistral writes it
        del params["multiple_of"]
        params.pop("ffn_dim_multiplier", None)
        params.update(hidden_dim=config["intermediate_size"], head_dim=head)
    if rng.random() < 0.2:
        params = {"model": params}
    data = np.random.default_rng(rng.getrandbits(64))
    model = architectures.fill(data, config, rng.choice(["BFloat16", "Float32"]), transformers_cases.small_value)
    return Case(f"meta-{seed}-{number}", model, params, rng)


FIXED = {}


def prepare():
    torch.set_num_threads(1)
    transformers_cases.prepare()
