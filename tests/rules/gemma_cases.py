# SPDX-License-Identifier: Apache-2.0
"""The family "gemma": Gemma 3 as Megatron-Core keeps it, against transformers.

No GPT of Megatron-Core without a graphics card has these layers, so megatron_logits says what a training computes with its
tensors: norms that multiply by 1 + weight, or by their weight (norms=plain), before and behind attention and MLP.
"""
import os
import random

import language
import megatron_cases
import numpy as np
import ready_cuts
import torch
import torch.nn.functional as F  # noqa: N812
import training_names
import transformers
import transformers_cases
import views
from architectures import Model

FIXED = {}
# The norms behind the attention and the MLP, as Megatron-Bridge has them and as mbridge has them.
BRIDGE = ("self_attention.linear_proj.post_layernorm", "mlp.linear_fc2.post_layernorm")
MBRIDGE = ("post_attention_layernorm", "post_feedforward_layernorm")


class Gemma(training_names.Megatron):
    def layer(self, to, layer):
        at = f"model.layers.{layer}"
        behind = MBRIDGE if self.chosen("by", "mbridge") else BRIDGE
        self.attention(to, at)
        self.same(f"{to}.{behind[0]}.weight", f"{at}.post_attention_layernorm.weight")
        self.same(f"{to}.mlp.linear_fc1.layer_norm_weight", f"{at}.pre_feedforward_layernorm.weight")
        self.mlp(f"{to}.mlp", f"{at}.mlp")
        self.same(f"{to}.{behind[1]}.weight", f"{at}.post_feedforward_layernorm.weight")


def norms_added(tensors, number):
    """The tensors, with a number added to those of norms, by PyTorch in their dtype."""
    return {n: v.with_data(language.added(v.dtype, v.data, number)) if "norm" in n else v for n, v in tensors.items()}


def random_config(rng):
    groups, layers = rng.choice([1, 2, 3]), rng.choice([1, 2, 3, 4])
    heads = groups * rng.choice([1, 2, 3])  # transformers wants a multiple of them for hidden_size, whatever head_dim is
    return {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 2 * heads * rng.choice([1, 2, 3]),
            "intermediate_size": rng.choice([4, 6, 8, 12]), "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": groups,
            "head_dim": rng.choice([2, 4, 8]), "vocab_size": rng.choice([8, 12, 16, 31]), "max_position_embeddings": 32,
            "tie_word_embeddings": rng.random() < 0.6, "query_pre_attn_scalar": rng.choice([4, 10]), "sliding_window": 3,
            "layer_types": [rng.choice(["sliding_attention", "full_attention"]) for _ in range(layers)],
            "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "bos_token_id": 0,
            "eos_token_id": 1, "pad_token_id": None}


def random_model(rng, dtype):
    """Random values in place of those of the real model."""
    config, data = random_config(rng), np.random.default_rng(rng.getrandbits(64))
    kept = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    real = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**kept))
    names = [n for n in real.state_dict() if n != "lm_head.weight" or not config["tie_word_embeddings"]]
    return Model(config, {n: transformers_cases.small_value(data, dtype, tuple(real.state_dict()[n].shape)) for n in names})


def huggingface_logits(folder, config, tensors):
    """What the real model says that loads these tensors, with their config as transformers 4 has it."""
    kept = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    os.makedirs(folder)
    transformers.Gemma3TextConfig(architectures=config["architectures"], **kept).save_pretrained(folder)
    views.write_tensors(os.path.join(folder, "model.safetensors"), tensors)
    loaded, told = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32, local_files_only=True, attn_implementation="eager")
    assert not any(told[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    with torch.no_grad():
        return loaded.eval()(tokens_of(config)).logits


def tokens_of(config):
    return torch.arange(config["vocab_size"])[None] % 7


def rotated(x, base):
    """x [positions, heads, head], turned by the position of each."""
    half = x.shape[-1] // 2
    angle = torch.arange(len(x))[:, None] / base ** (torch.arange(half) / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.cat([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)


def megatron_logits(w, config, more):
    """What a training says: W by the names of layers with numbers, and what is added to the weight of a norm, 1 or 0."""
    heads, groups, head = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * (w[name] + more)

    def attention(x, to, local):
        rows = (norm(x, f"{to}.linear_qkv.layer_norm_weight") @ w[f"{to}.linear_qkv.weight"].T).view(len(x), groups, -1, head)
        q, k, v = rows[:, :, :-2].reshape(len(x), heads, head), rows[:, :, -2], rows[:, :, -1]
        base = config["rope_local_base_freq"] if local else config["rope_theta"]
        q = rotated(norm(q, f"{to}.q_layernorm.weight"), base)
        k = rotated(norm(k, f"{to}.k_layernorm.weight"), base).repeat_interleave(heads // groups, 1)
        apart = torch.arange(len(x))[:, None] - torch.arange(len(x))
        seen = (apart >= 0) & (apart < (config["sliding_window"] if local else len(x)))
        score = torch.einsum("ihd,jhd->hij", q, k) / config["query_pre_attn_scalar"] ** 0.5
        share = score.masked_fill(~seen, -torch.inf).softmax(-1)
        mixed = torch.einsum("hij,jhd->ihd", share, v.repeat_interleave(heads // groups, 1)).reshape(len(x), -1)
        return mixed @ w[f"{to}.linear_proj.weight"].T

    x = w["embedding.word_embeddings.weight"][tokens_of(config)[0]] * config["hidden_size"] ** 0.5
    for layer, kind in enumerate(config["layer_types"]):
        to = f"decoder.layers.{layer}"
        x = x + norm(attention(x, f"{to}.self_attention", kind == "sliding_attention"), f"{to}.{BRIDGE[0]}.weight")
        gate, up = (norm(x, f"{to}.mlp.linear_fc1.layer_norm_weight") @ w[f"{to}.mlp.linear_fc1.weight"].T).chunk(2, -1)
        made = F.gelu(gate, approximate="tanh") * up @ w[f"{to}.mlp.linear_fc2.weight"].T
        x = x + norm(made, f"{to}.{BRIDGE[1]}.weight")
    out = w.get("output_layer.weight", w["embedding.word_embeddings.weight"])
    return (norm(x, "decoder.final_layernorm.weight") @ out.T)[None]


class Case(megatron_cases.Case):
    """The training's tensors, and what HuggingFace's folder becomes: the names of Megatron-Bridge, and zeros as padding."""

    def __init__(self, name, model, options, by, rng):
        self.name, self.model, self.options, self.rng = name, model, options, rng
        self.more = int(options.get("norms") == "plain")
        self.trained, self.made = (self.made_as(by=which, **options) for which in (by, "bridge"))
        self.ranks, self.world, self.files = rng.choice([1, 2, 4]), rng.choice([1, 2, 4]), rng.choice([1, 2])
        multiple = int(options.get("vocabulary_multiple", 0))
        self.padding = -model.vocab_size % multiple if multiple else rng.choice([1, 5]) if "vocabulary" in options else 0
        self.says, self.refusal, self.status, self.any_impl = "", "", 1, False
        self.back = norms_added(norms_added(model.tensors, self.more), -self.more) if self.more else model.tensors

    def made_as(self, **options):
        made = training_names.make(Gemma, self.model, (), **options)
        return norms_added(made, self.more) if self.more else made

    def convert(self):
        return {**super().convert(), "convert": views.rules("megatron_gemma3")}

    def mbridge_differs(self):
        """Its Gemma 3 is one with images, whose modules want a graphics card."""

    def megatron_differs(self, folder):
        """A training that has these tensors says what the real model says with those that are shown of them."""
        weights = {n: megatron_cases.as_tensor(v).float() for n, v in
                   self.made_as(**{k: v for k, v in self.options.items() if k != "layers"}, layers="numbered").items()}
        said = megatron_logits(weights, self.model.config, 1 - self.more)
        wanted = huggingface_logits(os.path.join(folder, "older"), self.model.config, self.back)
        most = (said - wanted).abs().max().item()
        return f"a training says something else than HuggingFace's model, up to {most}" if not most < 1e-3 else None

    def check_views(self, folder, source, options):
        problem = views.check(self, source, os.path.join(folder, "as-hf"), options,
                              lambda shown: views.huggingface_differs(shown, self.config, self.back))
        if problem or self.options.get("vocabulary") == "padded":
            return problem and f"to HuggingFace: {problem}"
        problem = views.check(self, os.path.join(folder, "hf"), os.path.join(folder, "as-trained"),
                              {**self.convert(), "format": "pt"}, self.torch_differs)
        if problem or self.padding or self.more or self.options.get("layers") != "numbered":
            return problem and f"from HuggingFace: {problem}"
        return ready_cuts.check(self, os.path.join(folder, "hf"), os.path.join(folder, "cut"), ready_cuts.MEGATRON, self.made,
                                {**self.convert(), "format": "safetensors"}, self.rng, self.files_differ)

    def torch_differs(self, shown):
        trained, self.trained = self.trained, {n: self.with_zeros(n, v) for n, v in self.made.items()}
        problem = super().torch_differs(shown)
        self.trained = trained
        return problem

    def with_zeros(self, name, value):
        """A tensor as it is made: that of the vocabulary has rows of zeros, where the training's have any numbers."""
        more = self.padding if name in ("embedding.word_embeddings.weight", "output_layer.weight") else 0
        return value.with_data(np.concatenate([value.data, np.zeros((more, *value.shape[1:]), value.data.dtype)])) if more else value


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    model = random_model(rng, rng.choice(["BFloat16", "BFloat16", "Float32"]))
    layers = rng.choice(["stacked", "numbered", "numbered", "singleton"])
    options = {"layers": layers} if layers != "stacked" else {}
    options.update(rng.choice([{}, {"norms": "plain"}]))
    options.update(rng.choice([{}, {"vocabulary": "padded"}, {"vocabulary_multiple": str(rng.choice([1, 8, 20, 128]))}]))
    return Case(f"gemma-{seed}-{number}", model, options, rng.choice(["bridge", "mbridge"]), rng)


def fixed(function):
    FIXED["gemma-" + function.__name__.replace("_", "-")] = function
    return function


@fixed
def other_norms(name):
    """The option of the norms changes no shape: the comparison must fail."""
    case = Case(name, random_model(random.Random(1), "BFloat16"), {"norms": "plain"}, "bridge", random.Random(2))
    check = case.check_views

    def without(folder, source, options):
        case.options = {}
        given = {k: v for k, v in options.items() if k != "convert_options"}
        return None if check(folder, source, given) else "norms that are 1 more are not seen"

    case.check_views = without
    return case


def prepare():
    megatron_cases.prepare()
