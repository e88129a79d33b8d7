# SPDX-License-Identifier: Apache-2.0
"""The family "bridged": minimax_m2, glm_moe_dsa, deepseek_v32 and nemotron_h in Megatron-Core's names.

transformers makes and saves the model. mcore-bridge loads it into the ranks of a real GPT of Megatron-Core, which say what they
save; torch.distributed.checkpoint writes the folder.
"""
import json
import os
import random
import re
import types

import compared
import hybrid_cases
import mcore_bridge_program
import megatron_cases
import megatron_gpt
import ready_cuts
import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F  # noqa: N812
import transformers
import transformers_cases
import views
from safetensors.torch import load_file, save_file

FIXED = {}
KINDS = ["minimax_m2", "glm_moe_dsa", "deepseek_v32", "nemotron_h"]


def random_sparse_config(rng, kind):
    """A config of latent attention with indexers (DSA)."""
    layers = rng.choice([2, 3, 4])
    shared = {"indexer_types": ["full", *(rng.choice(["full", "shared"]) for _ in range(layers - 1))]}
    return {"model_type": kind, "hidden_size": rng.choice([8, 12, 16]), "num_hidden_layers": layers,
            "num_attention_heads": rng.choice([2, 4]), "vocab_size": rng.choice([16, 30]), "intermediate_size": rng.choice([6, 8]),
            "moe_intermediate_size": rng.choice([2, 4]), "n_routed_experts": 4, "n_shared_experts": rng.choice([1, 2]),
            "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": rng.choice([0, 1, layers - 1]),
            "q_lora_rank": rng.choice([4, 6]), "kv_lora_rank": rng.choice([4, 6]), "qk_nope_head_dim": rng.choice([2, 4]),
            "qk_rope_head_dim": 4, "v_head_dim": rng.choice([2, 6]), "index_n_heads": rng.choice([2, 3]),
            "index_head_dim": rng.choice([6, 8]), "index_topk": 4, "tie_word_embeddings": rng.random() < .3,
            **(shared if kind == "glm_moe_dsa" and rng.random() < .5 else {})}


def random_config(rng, kind):
    if kind != "minimax_m2":
        return random_sparse_config(rng, kind)
    groups = rng.choice([1, 2, 4])
    return {"model_type": kind, "hidden_size": rng.choice([8, 12, 16]), "num_hidden_layers": rng.choice([1, 2, 3]),
            "num_attention_heads": groups * rng.choice([1, 2, 3]), "num_key_value_heads": groups, "head_dim": rng.choice([4, 8]),
            "vocab_size": rng.choice([16, 30]), "intermediate_size": rng.choice([2, 4, 6]), "num_local_experts": rng.choice([2, 4]),
            "num_experts_per_tok": 2, "tie_word_embeddings": rng.random() < .3}


def attention_of(config):
    """What the config of Megatron-Core has for attention and experts."""
    if config["model_type"] == "minimax_m2":
        return {"num_query_groups": config["num_key_value_heads"], "kv_channels": config["head_dim"],
                "num_moe_experts": config["num_local_experts"], "moe_ffn_hidden_size": config["intermediate_size"]}
    first, layers = config["first_k_dense_replace"], config["num_hidden_layers"]
    return {"multi_latent_attention": True, "q_lora_rank": config["q_lora_rank"], "kv_lora_rank": config["kv_lora_rank"],
            "qk_head_dim": config["qk_nope_head_dim"], "qk_pos_emb_head_dim": config["qk_rope_head_dim"],
            "v_head_dim": config["v_head_dim"], "kv_channels": config["v_head_dim"], "rope_type": "rope",
            "experimental_attention_variant": "dsa", "dsa_indexer_n_heads": config["index_n_heads"],
            "dsa_indexer_head_dim": config["index_head_dim"], "dsa_indexer_topk": config["index_topk"],
            "num_moe_experts": config["n_routed_experts"], "moe_ffn_hidden_size": config["moe_intermediate_size"],
            "moe_shared_expert_intermediate_size": config["moe_intermediate_size"] * config["n_shared_experts"],
            "moe_layer_freq": [0] * first + [1] * (layers - first) if first else 1}


def megatron_config(config, tp):
    """What the config of Megatron-Core has for a model."""
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    return (TransformerConfig if config["model_type"] == "minimax_m2" else MLATransformerConfig)(
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], num_attention_heads=config["num_attention_heads"],
        ffn_hidden_size=config["intermediate_size"], **attention_of(config), mtp_num_layers=config.get("num_nextn_predict_layers"), moe_router_topk=2, moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True, gated_linear_unit=True, activation_func=F.silu,
        add_bias_linear=False, normalization="RMSNorm", qk_layernorm=True, bias_activation_fusion=False,
        use_cpu_initialization=True, tensor_model_parallel_size=tp, expert_tensor_parallel_size=1)


def sparse_attention():
    """Megatron-Core's, whose indexer has linear layers of Transformer Engine; stand-ins hold their weights."""
    from megatron.core.transformer.experimental_attention_variant import dsa
    from megatron.core.transformer.module import MegatronModule
    from megatron.core.transformer.spec_utils import ModuleSpec

    class Linear(MegatronModule):
        def __init__(self, inputs, outputs, config, **_):
            super().__init__(config)
            self.weight = torch.nn.Parameter(torch.empty(outputs, inputs))

    class Norm(torch.nn.LayerNorm):
        def __init__(self, config, hidden_size, eps):
            super().__init__(hidden_size, eps)

    indexer = ModuleSpec(dsa.DSAIndexer, submodules=dsa.DSAIndexerSubmodules(Linear, Linear, Norm, Linear))
    return ModuleSpec(dsa.DSAttention, submodules=dsa.DSAttentionSubmodules(indexer))


def real_gpt(config, tp):
    """What this process has of one."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    megatron_gpt.stand_ins()
    of = megatron_config(config, tp)
    spec = get_gpt_decoder_block_spec(of, use_transformer_engine=False, normalization="RMSNorm")
    _, minimax = mcore_bridge_program.bridges()
    for layer in spec.layer_specs:
        attention = layer.submodules.self_attention
        if config["model_type"] == "minimax_m2":
            attention.module = minimax.MinimaxM2SelfAttention
        else:
            attention.submodules.core_attention = sparse_attention()
    mtp = {"mtp_block_spec": get_gpt_mtp_block_spec(of, spec, use_transformer_engine=False)} if of.mtp_num_layers else {}
    real = GPTModel(of, spec, **mtp, vocab_size=config["vocab_size"], max_sequence_length=32, position_embedding_type="rope",
                    share_embeddings_and_output_weights=config["tie_word_embeddings"])
    for layer, kind in zip(real.decoder.layers, config.get("indexer_types", [])):
        if kind == "shared":  # as later ones build it
            layer.self_attention.core_attention.indexer = None
    return real


def rank_of(config, tensors, rank=0, tp=1, counted=True):
    """name -> tensor: what rank RANK of TP saves."""
    with megatron_gpt.running(rank, tp):
        real = real_gpt(config, tp)
        mcore_bridge_program.load(real, tensors, config["model_type"], config["tie_word_embeddings"])
        return mcore_bridge_program.saved(real, counted)


def with_engine(config, names):
    """The names of a GPT with Transformer Engine: norms before experts have their own, and others are of the layers behind them."""
    def name_of(name):
        at = re.fullmatch(r"((\w+)\.layers(?:\.(\d+))?\..*?)(mlp\.linear_fc1\.layer_norm_weight|pre_mlp_layernorm\.weight)", name)
        if not at:
            return name
        dense = at[2] == "decoder" and int(at[3] or 0) < config.get("first_k_dense_replace", 0)
        return at[1] + ("mlp.linear_fc1.layer_norm_weight" if dense else "pre_mlp_layernorm.weight")
    return {name_of(n): t for n, t in names.items()}


class Case:
    rules = "megatron"

    def __init__(self, name, config, rng):
        self.name, self.config, self.rng = name, config, rng
        self.local = rng.random() < .3
        self.stacked = rng.random() < .4 and not config.get("first_k_dense_replace") and "shared" not in config.get("indexer_types", [])
        self.says, self.refusal, self.status = "", "", 1

    def describe(self):
        return f"  {self.config}{', local' if self.local else ''}{', stacked' if self.stacked else ''}"

    def saved_by(self, config=None, tensors=None, **place):
        have = rank_of(config or self.config, tensors or self.tensors, **place)
        return have if self.local else with_engine(self.config, have)

    def write(self, folder):
        torch.manual_seed(self.rng.getrandbits(32))
        kept = {k: v for k, v in self.config.items() if k != "model_type"}
        config = transformers.AutoConfig.for_model(self.config["model_type"], **kept)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for tensor in [*model.parameters(), *(b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias"))]:
                tensor.copy_(torch.rand(tensor.shape) - .5)
        model.save_pretrained(os.path.join(folder, "hf"))
        self.tensors = load_file(os.path.join(folder, "hf", "model.safetensors"))
        source = os.path.join(folder, "trained")
        self.trained = self.saved_by(counted=not self.stacked)
        dcp.save(self.trained, checkpoint_id=source, no_dist=True)
        return source, {"convert": views.rules(self.rules), "view": "huggingface", "hf_config": os.path.join(folder, "hf", "config.json")}

    def check_oracle(self, folder):
        self.logits = hybrid_cases.logits(os.path.join(folder, "hf"))
        return None if torch.isfinite(self.logits).all() else "the model's numbers are not finite"

    def to_megatron(self, layers="numbered", **more):
        words = [f"layers={layers}", *(["transformer_impl=local"] if self.local else [])]
        return {"convert": views.rules(self.rules), "convert_options": ":".join(words), "format": "safetensors", **more}

    def to_huggingface(self, layers="numbered"):
        return {"convert_options": f"layers={layers}"}

    def check_views(self, folder, source, options):
        layers = "stacked" if self.stacked else "numbered"
        options.update(self.to_huggingface(layers))
        problem = views.check(self, source, os.path.join(folder, "as-hf"), options, lambda at: hybrid_cases.same(
            load_file(os.path.join(at, "model.safetensors")), self.tensors) or (
                None if torch.equal(hybrid_cases.logits(at), self.logits) else "transformers says something else"))
        if problem:
            return f"to HuggingFace: {problem}"
        target = os.path.join(folder, "again")
        problem = compared.export(self, os.path.join(folder, "hf"), target, self.to_megatron(layers, view="unified")) or \
            hybrid_cases.same(hybrid_cases.read(target), self.trained)
        return problem and f"from HuggingFace: {problem}" or self.check_more(folder)

    def check_more(self, folder):
        return hybrid_cases.check_experts(self, folder) or self.check_cuts(folder, 2) or self.check_mtp(folder)

    def planned(self, name, tensor, rank, tp):
        """What rank RANK of TP has of one of HuggingFace's tensors, as transformers plans it."""
        degrees = types.SimpleNamespace(tp=tp, ep=1)
        return ready_cuts.Degrees.slice(degrees, name, megatron_cases.as_value(tensor), ready_cuts.HUGGINGFACE, rank)

    def check_cuts(self, folder, tp):
        """Each rank has what a real one saves, and of HuggingFace's tensors what transformers plans."""
        if self.config.get("num_key_value_heads", tp) % tp or self.config.get("n_groups", tp) % tp:
            return None
        target = os.path.join(folder, "hf-cut")
        problem = compared.export(self, os.path.join(folder, "hf"), target, {"dst_rules": f"tp{tp}", "format": "safetensors"})
        for rank in range(tp):
            have = problem or hybrid_cases.read(os.path.join(target, f"rank_{rank}"))
            problem = problem or views.tensors_differ({n: megatron_cases.as_value(t) for n, t in have.items()},
                                                      {n: self.planned(n, t, rank, tp) for n, t in self.tensors.items()})
        if "kv_lora_rank" not in self.config:  # ready cuts leave latent attention to rules of one's own
            target = os.path.join(folder, "cut")
            problem = problem or compared.export(self, os.path.join(folder, "hf"), target, self.to_megatron(dst_rules=f"tp{tp},etp1"))
            for rank in range(tp):
                have = problem or hybrid_cases.read(os.path.join(target, f"rank_{rank}"))
                problem = problem or hybrid_cases.same(have, self.saved_by(rank=rank, tp=tp))
        return problem and f"tp{tp}: {problem}"

    def check_mtp(self, folder):
        """A layer of multi-token prediction, which transformers leaves out: the last one, negated; or a refusal."""
        if self.config["model_type"] == "minimax_m2":
            return None
        depth, hidden = self.config["num_hidden_layers"], self.config["hidden_size"]
        more = {n.replace(f"layers.{depth - 1}.", f"layers.{depth}."): -t for n, t in self.tensors.items()
                if n.startswith(f"model.layers.{depth - 1}.")}
        sizes = {"enorm": (hidden,), "hnorm": (hidden,), "eh_proj": (hidden, 2 * hidden), "shared_head.norm": (hidden,)}
        more.update({f"model.layers.{depth}.{n}.weight": torch.rand(size) for n, size in sizes.items()})
        tensors, at = {**self.tensors, **more}, os.path.join(folder, "mtp")
        os.makedirs(at)
        save_file(tensors, os.path.join(at, "model.safetensors"))
        with open(os.path.join(folder, "hf", "config.json"), encoding="utf-8") as file:
            config = {**json.load(file), "num_nextn_predict_layers": 1}
        with open(os.path.join(at, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        target, back = os.path.join(folder, "mtp-trained"), os.path.join(folder, "mtp-back")
        if "shared" in self.config.get("indexer_types", []):
            done = compared.run("export", at, target, "-o", ",".join(f"{k}={v}" for k, v in self.to_megatron(view="unified").items()))
            return None if done.returncode == 1 and "shared indexers" in done.stdout else f"shared indexers: {done.stdout}"
        copies = {} if self.config["model_type"] == "glm_moe_dsa" else {  # as mcore-bridge writes them
            f"model.layers.{depth}.embed_tokens.weight": tensors["model.embed_tokens.weight"],
            f"model.layers.{depth}.shared_head.head.weight": tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])}
        want = self.saved_by({**self.config, "num_nextn_predict_layers": 1}, tensors)
        given = {"convert": views.rules("megatron"), "convert_options": "layers=numbered", "hf_config": os.path.join(at, "config.json"), "view": "huggingface"}
        return compared.export(self, at, target, self.to_megatron(view="unified")) or \
            hybrid_cases.same(hybrid_cases.read(target), want) or compared.export(self, target, back, given) or \
            hybrid_cases.same(hybrid_cases.read(back), {**tensors, **copies})


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    kind, name = KINDS[number % len(KINDS)], f"bridged-{seed}-{number}"
    if kind == "nemotron_h":
        import mamba_cases  # which has cases like these
        return mamba_cases.Case(name, mamba_cases.random_config(rng), rng)
    return Case(name, random_config(rng, kind), rng)


def prepare():
    torch.set_num_threads(1)
    transformers_cases.prepare()
