# SPDX-License-Identifier: Apache-2.0
"""Random small models: a config.json, and the tensors that HuggingFace's model of that kind has by it.

bfloat16 is kept as integers of its width (tests/interop/values.py), so that no bit is reinterpreted.
"""
from dataclasses import dataclass, field

import values
from values import Value

KINDS = ["qwen3", "qwen3_moe", "deepseek_v3", "llama", "qwen2", "mistral"]
CLASSES = {"qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "deepseek_v3": "DeepseekV3", "llama": "Llama", "qwen2": "Qwen2",
           "mistral": "Mistral"}


@dataclass
class Model:
    config: dict
    tensors: dict = field(default_factory=dict)  # name -> Value, by HuggingFace's names

    @property
    def kind(self):
        return self.config["model_type"]

    def __getattr__(self, name):
        """A number of the config."""
        try:
            return self.__dict__["config"][name]
        except KeyError:
            raise AttributeError(name) from None

    def layers(self):
        return range(self.num_hidden_layers)

    def dense(self):
        """The layers without experts."""
        if self.kind == "deepseek_v3":
            return range(self.first_k_dense_replace)
        return range(0 if self.kind == "qwen3_moe" else self.num_hidden_layers)

    def experts(self):
        """The layers with experts, those of multi-token prediction among them."""
        if self.kind in ("qwen3_moe", "deepseek_v3"):
            return range(len(self.dense()), self.num_hidden_layers + self.extra())
        return range(0)

    def extra(self):
        """The layers of multi-token prediction."""
        return self.config.get("num_nextn_predict_layers") or 0

    def count(self):
        return self.n_routed_experts if self.kind == "deepseek_v3" else self.num_experts

    def describe(self):
        return f"{self.kind} {self.config}, {next(iter(self.tensors.values())).dtype}"


def base(rng, kind):
    groups = rng.choice([1, 2, 2, 3, 4])
    heads = groups * rng.choice([1, 2, 2, 3, 4])
    head = rng.choice([2, 4, 4, 6, 8])
    own = kind in ("qwen3", "qwen3_moe", "deepseek_v3")
    hidden = rng.choice([4, 8, 8, 12, 16, 24]) if own else heads * head
    config = {
        "architectures": [CLASSES[kind] + "ForCausalLM"], "model_type": kind, "hidden_size": hidden,
        "intermediate_size": rng.choice([4, 6, 8, 12, 16]), "num_hidden_layers": rng.choice([1, 2, 2, 3, 4]),
        "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head, "vocab_size": rng.choice([8, 12, 16, 31]),
        "tie_word_embeddings": rng.random() < 0.4, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    if kind == "qwen2" or (kind == "llama" and rng.random() < 0.5):
        del config["head_dim"]
    if kind == "llama" and rng.random() < 0.2:
        config.update(num_key_value_heads=None)
    if kind in ("llama", "qwen3", "qwen3_moe"):
        config["attention_bias"] = rng.random() < 0.25
    return config


def with_experts(rng, config):
    chosen = rng.choice([2, 3, 4, 6])
    config.update(moe_intermediate_size=rng.choice([2, 4, 6, 8]), num_experts_per_tok=1)
    if config["model_type"] == "qwen3_moe":
        config.update(num_experts=chosen, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True)
        return
    config.update(
        n_routed_experts=chosen, n_group=1, topk_group=1, n_shared_experts=rng.choice([1, 1, 2]),
        first_k_dense_replace=rng.randint(0, config["num_hidden_layers"]), num_nextn_predict_layers=rng.choice([0, 1, 1, 2]),
        q_lora_rank=rng.choice([None, 4, 6, 6, 8]), kv_lora_rank=rng.choice([2, 4, 8]), qk_rope_head_dim=rng.choice([2, 4]),
        qk_nope_head_dim=rng.choice([2, 4, 6]), v_head_dim=rng.choice([2, 4, 6]), topk_method="noaux_tc",
        scoring_func="sigmoid", num_key_value_heads=config["num_attention_heads"], moe_layer_freq=1)
    del config["head_dim"]


def random_config(rng, kind):
    config = base(rng, kind)
    if kind in ("qwen3_moe", "deepseek_v3"):
        with_experts(rng, config)
    return config


def attention_shapes(m, at, shapes):
    heads, hidden = m.num_attention_heads, m.hidden_size
    groups = m.num_key_value_heads or heads
    head = m.config.get("head_dim") or hidden // heads
    biased = m.kind == "qwen2" or m.config.get("attention_bias")
    for part, rows in (("q", heads * head), ("k", groups * head), ("v", groups * head)):
        shapes[f"{at}.self_attn.{part}_proj.weight"] = (rows, hidden)
        if biased:
            shapes[f"{at}.self_attn.{part}_proj.bias"] = (rows,)
    shapes[f"{at}.self_attn.o_proj.weight"] = (hidden, heads * head)
    if biased and m.kind != "qwen2":
        shapes[f"{at}.self_attn.o_proj.bias"] = (hidden,)
    if m.kind.startswith("qwen3"):
        shapes[f"{at}.self_attn.q_norm.weight"] = shapes[f"{at}.self_attn.k_norm.weight"] = (head,)


def latent_shapes(m, at, shapes):
    """Multi-head latent attention."""
    heads, hidden, rope, nope = m.num_attention_heads, m.hidden_size, m.qk_rope_head_dim, m.qk_nope_head_dim
    if m.q_lora_rank is None:
        shapes[f"{at}.self_attn.q_proj.weight"] = (heads * (nope + rope), hidden)
    else:
        shapes[f"{at}.self_attn.q_a_proj.weight"] = (m.q_lora_rank, hidden)
        shapes[f"{at}.self_attn.q_a_layernorm.weight"] = (m.q_lora_rank,)
        shapes[f"{at}.self_attn.q_b_proj.weight"] = (heads * (nope + rope), m.q_lora_rank)
    shapes[f"{at}.self_attn.kv_a_proj_with_mqa.weight"] = (m.kv_lora_rank + rope, hidden)
    shapes[f"{at}.self_attn.kv_a_layernorm.weight"] = (m.kv_lora_rank,)
    shapes[f"{at}.self_attn.kv_b_proj.weight"] = (heads * (nope + m.v_head_dim), m.kv_lora_rank)
    shapes[f"{at}.self_attn.o_proj.weight"] = (hidden, heads * m.v_head_dim)


def mlp_shapes(at, hidden, ffn, shapes):
    shapes[f"{at}.gate_proj.weight"] = shapes[f"{at}.up_proj.weight"] = (ffn, hidden)
    shapes[f"{at}.down_proj.weight"] = (hidden, ffn)


def layer_shapes(m, layer, shapes):
    at, hidden = f"model.layers.{layer}", m.hidden_size
    shapes[f"{at}.input_layernorm.weight"] = shapes[f"{at}.post_attention_layernorm.weight"] = (hidden,)
    (latent_shapes if m.kind == "deepseek_v3" else attention_shapes)(m, at, shapes)
    if layer in m.dense():
        mlp_shapes(f"{at}.mlp", hidden, m.intermediate_size, shapes)
        return
    shapes[f"{at}.mlp.gate.weight"] = (m.count(), hidden)
    for expert in range(m.count()):
        mlp_shapes(f"{at}.mlp.experts.{expert}", hidden, m.moe_intermediate_size, shapes)
    if m.kind == "deepseek_v3":
        shapes[f"{at}.mlp.gate.e_score_correction_bias"] = (m.count(),)
        mlp_shapes(f"{at}.mlp.shared_experts", hidden, m.moe_intermediate_size * m.n_shared_experts, shapes)


def prediction_shapes(m, layer, shapes):
    at, hidden = f"model.layers.{layer}", m.hidden_size
    shapes[f"{at}.enorm.weight"] = shapes[f"{at}.hnorm.weight"] = shapes[f"{at}.shared_head.norm.weight"] = (hidden,)
    shapes[f"{at}.eh_proj.weight"] = (hidden, 2 * hidden)


def repeated(m):
    """name of a copy -> name: what HuggingFace has again in each layer of multi-token prediction."""
    out = {}
    for layer in range(m.num_hidden_layers, m.num_hidden_layers + m.extra()):
        out[f"model.layers.{layer}.embed_tokens.weight"] = "model.embed_tokens.weight"
        out[f"model.layers.{layer}.shared_head.head.weight"] = \
            "model.embed_tokens.weight" if m.tie_word_embeddings else "lm_head.weight"
    return out


def shapes_of(m):
    """name -> shape of all that HuggingFace has, but for what is repeated."""
    shapes = {"model.embed_tokens.weight": (m.vocab_size, m.hidden_size), "model.norm.weight": (m.hidden_size,)}
    if not m.tie_word_embeddings:
        shapes["lm_head.weight"] = (m.vocab_size, m.hidden_size)
    for layer in range(m.num_hidden_layers + m.extra()):
        layer_shapes(m, layer, shapes)
    for layer in range(m.num_hidden_layers, m.num_hidden_layers + m.extra()):
        prediction_shapes(m, layer, shapes)
    return shapes


def fill(data, config, dtype, value=values.random_value):
    """A Model with random values, by VALUE(data, dtype, shape); the router's bias is of float32."""
    m = Model(config)
    for name, shape in shapes_of(m).items():
        kind = "Float32" if name.endswith("e_score_correction_bias") else dtype
        m.tensors[name] = value(data, kind, shape)
    for copy, name in repeated(m).items():
        m.tensors[copy] = Value(dtype, m.tensors[name].data)
    return m
