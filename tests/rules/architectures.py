# SPDX-License-Identifier: Apache-2.0
"""Random small models: a config.json, and the tensors that HuggingFace's model of that kind has by it.

bfloat16 is kept as integers of its width (tests/interop/values.py), so that no bit is reinterpreted.
"""
from dataclasses import dataclass, field

import values
from values import Value

KINDS = ["qwen3", "qwen3_moe", "deepseek_v3", "llama", "qwen2", "mistral", "kimi_k2"]
# Models with the tensors of another. transformers has a class of their own for none of them.
LIKE = {"kimi_k2": "deepseek_v3", "telechat3": "llama", "telechat3_moe": "deepseek_v3"}
CLASSES = {"qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "deepseek_v3": "DeepseekV3", "llama": "Llama", "qwen2": "Qwen2",
           "mistral": "Mistral", "mixtral": "Mixtral", "qwen2_moe": "Qwen2Moe", "glm4_moe": "Glm4Moe",
           "phi3": "Phi3", "gpt_oss": "GptOss"}
SPARSE = ["mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe", "deepseek_v3", "gpt_oss"]  # models with experts
YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 4096}
FIRST_DENSE = ["deepseek_v3", "glm4_moe"]  # whose first layers have none


@dataclass
class Model:
    config: dict
    tensors: dict = field(default_factory=dict)  # name -> Value, by HuggingFace's names

    @property
    def kind(self):
        """Whose tensors it has."""
        return LIKE.get(self.config["model_type"], self.config["model_type"])

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
        if self.kind in FIRST_DENSE:
            return range(self.first_k_dense_replace)
        return range(0 if self.kind in SPARSE else self.num_hidden_layers)

    def experts(self):
        """The layers with experts, those of multi-token prediction among them."""
        if self.kind in SPARSE:
            return range(len(self.dense()), self.num_hidden_layers + self.extra())
        return range(0)

    def extra(self):
        """The layers of multi-token prediction."""
        return self.config.get("num_nextn_predict_layers") or 0

    def count(self):
        key = {"mixtral": "num_local_experts", "gpt_oss": "num_local_experts", "qwen2_moe": "num_experts", "qwen3_moe": "num_experts"}
        return self.config[key.get(self.kind, "n_routed_experts")]

    def experts_at(self, at):
        """The module of the experts of layer AT, the names of its gate, up and down, and their rows."""
        if self.kind == "mixtral":
            return f"{at}.block_sparse_moe", ("w1", "w3", "w2"), self.intermediate_size
        if self.kind == "gpt_oss":
            return f"{at}.mlp", None, self.intermediate_size
        return f"{at}.mlp", ("gate_proj", "up_proj", "down_proj"), self.moe_intermediate_size

    def shared_at(self, at):
        """The module of the shared experts of layer AT and its rows, 0 if there are none."""
        if self.kind == "qwen2_moe":
            return f"{at}.mlp.shared_expert", self.shared_expert_intermediate_size
        return f"{at}.mlp.shared_experts", self.config.get("n_shared_experts", 0) * self.config.get("moe_intermediate_size", 0)

    def describe(self):
        return f"{self.config['model_type']} {self.config}, {next(iter(self.tensors.values())).dtype}"


def base(rng, kind):
    groups = rng.choice([1, 2, 2, 3, 4])
    heads = groups * rng.choice([1, 2, 2, 3, 4])
    head = rng.choice([2, 4, 4, 6, 8])
    own = kind in ("qwen3", "qwen3_moe", "deepseek_v3", "mixtral", "glm4_moe", "gpt_oss")
    hidden = rng.choice([4, 8, 8, 12, 16, 24]) if own else heads * head
    config = {
        "architectures": [CLASSES[kind] + "ForCausalLM"], "model_type": kind, "hidden_size": hidden,
        "intermediate_size": rng.choice([4, 6, 8, 12, 16]), "num_hidden_layers": rng.choice([1, 2, 2, 3, 4]),
        "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head, "vocab_size": rng.choice([8, 12, 16, 31]),
        "tie_word_embeddings": rng.random() < 0.4, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    if kind in ("qwen2", "qwen2_moe", "phi3") or (kind == "llama" and rng.random() < 0.5):
        del config["head_dim"]
    if kind == "llama" and rng.random() < 0.2:
        config.update(num_key_value_heads=None)
    if kind in ("llama", "qwen3", "qwen3_moe", "glm4_moe"):
        config["attention_bias"] = rng.random() < 0.25
    if kind == "phi3":
        config["partial_rotary_factor"] = 1.0 if head % 4 else rng.choice([0.5, 1.0])
    return config


def with_experts(rng, config):
    chosen = rng.choice([2, 3, 4, 6])
    config.update(moe_intermediate_size=rng.choice([2, 4, 6, 8]), num_experts_per_tok=1)
    if config["model_type"] == "qwen3_moe":
        config.update(num_experts=chosen, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True)
        return
    if config["model_type"] == "mixtral":
        config.update(num_local_experts=chosen)
        return
    if config["model_type"] == "gpt_oss":
        del config["moe_intermediate_size"]
        config.update(num_local_experts=chosen, attention_bias=True, rope_scaling=YARN)
        return
    if config["model_type"] == "qwen2_moe":
        config.update(num_experts=chosen, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=False,
                      shared_expert_intermediate_size=rng.choice([4, 6, 10]))
        return
    if config["model_type"] == "glm4_moe":
        config.update(
            n_routed_experts=chosen, n_group=1, topk_group=1, n_shared_experts=rng.choice([1, 1, 2]), norm_topk_prob=True,
            first_k_dense_replace=rng.randint(0, config["num_hidden_layers"]), num_nextn_predict_layers=rng.choice([0, 1]),
            use_qk_norm=rng.random() < 0.5, routed_scaling_factor=1.0)
        return
    config.update(
        n_routed_experts=chosen, n_group=1, topk_group=1, n_shared_experts=rng.choice([1, 1, 2]),
        first_k_dense_replace=rng.randint(0, config["num_hidden_layers"]), num_nextn_predict_layers=rng.choice([0, 1, 1, 2]),
        q_lora_rank=rng.choice([None, 4, 6, 6, 8]), kv_lora_rank=rng.choice([2, 4, 8]), qk_rope_head_dim=rng.choice([2, 4]),
        qk_nope_head_dim=rng.choice([2, 4, 6]), v_head_dim=rng.choice([2, 4, 6]), topk_method="noaux_tc",
        scoring_func="sigmoid", num_key_value_heads=config["num_attention_heads"], moe_layer_freq=1)
    del config["head_dim"]


def random_config(rng, kind):
    config = base(rng, LIKE.get(kind, kind))
    if config["model_type"] in SPARSE:
        with_experts(rng, config)
    if kind == "telechat3":
        config["attention_bias"] = False
    return {**config, "model_type": kind}


def attention_shapes(m, at, shapes):
    heads, hidden = m.num_attention_heads, m.hidden_size
    groups = m.num_key_value_heads or heads
    head = m.config.get("head_dim") or hidden // heads
    biased = m.kind in ("qwen2", "qwen2_moe") or m.config.get("attention_bias")
    if m.kind == "phi3":
        shapes[f"{at}.self_attn.qkv_proj.weight"] = ((heads + 2 * groups) * head, hidden)
        shapes[f"{at}.self_attn.o_proj.weight"] = (hidden, heads * head)
        return
    if m.kind == "gpt_oss":
        shapes[f"{at}.self_attn.sinks"] = (heads,)
    for part, rows in (("q", heads * head), ("k", groups * head), ("v", groups * head)):
        shapes[f"{at}.self_attn.{part}_proj.weight"] = (rows, hidden)
        if biased:
            shapes[f"{at}.self_attn.{part}_proj.bias"] = (rows,)
    shapes[f"{at}.self_attn.o_proj.weight"] = (hidden, heads * head)
    if biased and m.kind not in ("qwen2", "qwen2_moe", "glm4_moe"):
        shapes[f"{at}.self_attn.o_proj.bias"] = (hidden,)
    if m.kind.startswith("qwen3") or m.config.get("use_qk_norm"):
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


def fused_experts_shapes(m, at, shapes):
    """All experts of gpt_oss, with biases, in tensors that are transposed."""
    count, hidden, ffn = m.count(), m.hidden_size, m.intermediate_size
    shapes[f"{at}.router.weight"], shapes[f"{at}.router.bias"] = (count, hidden), (count,)
    shapes[f"{at}.experts.gate_up_proj"], shapes[f"{at}.experts.gate_up_proj_bias"] = (count, hidden, 2 * ffn), (count, 2 * ffn)
    shapes[f"{at}.experts.down_proj"], shapes[f"{at}.experts.down_proj_bias"] = (count, ffn, hidden), (count, hidden)


def mlp_shapes(at, hidden, ffn, shapes, names=("gate_proj", "up_proj", "down_proj")):
    gate, up, down = names
    shapes[f"{at}.{gate}.weight"] = shapes[f"{at}.{up}.weight"] = (ffn, hidden)
    shapes[f"{at}.{down}.weight"] = (hidden, ffn)


def layer_shapes(m, layer, shapes):
    at, hidden = f"model.layers.{layer}", m.hidden_size
    shapes[f"{at}.input_layernorm.weight"] = shapes[f"{at}.post_attention_layernorm.weight"] = (hidden,)
    (latent_shapes if m.kind == "deepseek_v3" else attention_shapes)(m, at, shapes)
    if m.kind == "phi3":
        shapes[f"{at}.mlp.gate_up_proj.weight"] = (2 * m.intermediate_size, hidden)
        shapes[f"{at}.mlp.down_proj.weight"] = (hidden, m.intermediate_size)
        return
    if m.kind == "gpt_oss":
        fused_experts_shapes(m, f"{at}.mlp", shapes)
        return
    if layer in m.dense():
        mlp_shapes(f"{at}.mlp", hidden, m.intermediate_size, shapes)
        return
    moe, names, rows = m.experts_at(at)
    shapes[f"{moe}.gate.weight"] = (m.count(), hidden)
    for expert in range(m.count()):
        mlp_shapes(f"{moe}.experts.{expert}", hidden, rows, shapes, names)
    if m.kind in FIRST_DENSE:
        shapes[f"{moe}.gate.e_score_correction_bias"] = (m.count(),)
    shared, rows = m.shared_at(at)
    if rows:
        mlp_shapes(shared, hidden, rows, shapes)
    if m.kind == "qwen2_moe":
        shapes[f"{at}.mlp.shared_expert_gate.weight"] = (1, hidden)


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
