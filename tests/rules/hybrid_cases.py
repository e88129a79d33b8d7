# SPDX-License-Identifier: Apache-2.0
"""The family "hybrid": qwen3_next, whose layers have linear attention or full attention with gates, in Megatron-Core's names.

transformers makes and saves the model. Megatron-Bridge's table of mappings names what each of Megatron's tensors is made of, and
its functions make it; a real GatedDeltaNet of Megatron-Core says by which names it saves the parts of its projections, and what
each tensor parallel rank has of them. torch.distributed.checkpoint writes the folder.
"""
import contextlib
import importlib
import json
import os
import random
import sys
import types
from unittest import mock

import compared
import megatron_cases
import megatron_gpt
import torch
import torch.distributed.checkpoint as dcp
import transformers
import transformers_cases
import views
from safetensors.torch import load_file, save_file

FIXED = {}
ATTENTION = "decoder.layers.{}.self_attention."


def random_config(rng):
    groups, keys = rng.choice([1, 2]), rng.choice([2, 4])
    heads, layers = groups * rng.choice([1, 2, 3]), rng.choice([2, 4, 5])
    kinds = rng.choice([None, [rng.choice(["linear_attention", "full_attention"]) for _ in range(layers)]])
    return {"hidden_size": rng.choice([8, 12, 16]), "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": groups, "head_dim": rng.choice([4, 8]), "vocab_size": rng.choice([16, 30]),
            "moe_intermediate_size": rng.choice([2, 4, 6]), "shared_expert_intermediate_size": rng.choice([4, 6]),
            "num_experts": rng.choice([2, 3]), "num_experts_per_tok": 1, "linear_num_key_heads": keys,
            "linear_num_value_heads": keys * rng.choice([1, 2]), "linear_key_head_dim": rng.choice([2, 6]),
            "linear_value_head_dim": rng.choice([4, 6]), "linear_conv_kernel_dim": rng.choice([2, 4]), "mlp_only_layers": [],
            "decoder_sparse_step": 1, "tie_word_embeddings": rng.random() < .5, **({"layer_types": kinds} if kinds else {})}


def bridge(module="qwen.qwen3_next_bridge", name="Qwen3NextBridge"):
    """Megatron-Bridge's table for a model, and the module with the functions of its mappings, without the rest of it."""
    import megatron.core.models.gpt.gpt_model  # noqa: F401  # before the stand-in for Transformer Engine

    megatron_gpt.bridge()
    if "megatron.bridge.models" not in sys.modules:
        for folder in ("models", "models.qwen", "models.gemma_vl", "models.hf_pretrained", "models.conversion"):
            package = types.ModuleType("megatron.bridge." + folder)
            package.__path__ = [os.path.join(os.environ["RFS_MEGATRON"], "megatron", "bridge", *folder.split("."))]
            sys.modules[package.__name__] = package
        base = type("MegatronModelBridge", (), {"register_bridge": staticmethod(lambda **_: lambda made: made),
                                                "__class_getitem__": classmethod(lambda made, _: made)})
        sys.modules["megatron.bridge.models.conversion.model_bridge"] = types.SimpleNamespace(MegatronModelBridge=base)
        for other in ("qwen.qwen_provider", "hf_pretrained.causal_lm", "hf_pretrained.vlm", "gemma_vl.gemma3_vl_provider",
                      "gemma_vl.modeling_gemma3_vl"):
            sys.modules["megatron.bridge.models." + other] = mock.MagicMock()
    from megatron.bridge.models.conversion import param_mapping

    return getattr(importlib.import_module("megatron.bridge.models." + module), name)().mapping_registry(), param_mapping


def provider_of(config):
    return types.SimpleNamespace(num_query_groups=config["num_key_value_heads"], kv_channels=config["head_dim"],
                                 attention_output_gate=True, **config)


def merged(name, tensors, config, tp=1):
    """What Megatron-Bridge makes a parameter of: by its table's row, one whole tensor."""
    table, functions = bridge()
    row = table.megatron_to_hf_lookup(name)
    of = row.hf_param if isinstance(row.hf_param, str) else {part: tensors[n] for part, n in row.hf_param.items()}
    if isinstance(row, functions.QKVMapping):
        return functions.merge_qkv_weights(provider_of(config), of["q"], of["k"], of["v"])
    if isinstance(row, functions.GDNLinearMapping):
        return functions.merge_gdn_linear_weights(provider_of(config), of["qkvz"], of["ba"], tp)
    if isinstance(row, functions.GatedMLPMapping):
        return torch.cat([of["gate"], of["up"]])
    return tensors[of] - 1 if isinstance(row, functions.RMSNorm2ZeroCenteredRMSNormMapping) else tensors[of]


@contextlib.contextmanager
def delta_net(config, rank, tp, made=None):
    """A real one of rank RANK of TP: Megatron-Core's, or of the class MADE."""
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.ssm import gated_delta_net
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    gated_delta_net.HAVE_FLA = True  # its kernels compute, and nothing is computed
    kept = {k: v for k, v in config.items() if k.startswith("linear_") or k in ("hidden_size", "num_attention_heads")}
    with megatron_gpt.running(rank, tp):
        training = TransformerConfig(num_layers=1, experimental_attention_variant="gated_delta_net", linear_attention_freq=1,
                                     tensor_model_parallel_size=tp, activation_func=torch.nn.functional.silu, normalization="RMSNorm",
                                     perform_initialization=False, **kept)
        training.linear_decoupled_in_proj = False  # an option of mcore-bridge
        yield (made or gated_delta_net.GatedDeltaNet)(
            training, gated_delta_net.GatedDeltaNetSubmodules(ColumnParallelLinear, WrappedTorchNorm, RowParallelLinear), layer_number=1,
            pg_collection=ProcessGroupCollection.use_mpu_process_groups(["tp"]))


def saved(real, at):
    """name -> tensor: what a module saves under the name AT."""
    return {shard.key: shard.data.detach().clone() for shard in megatron_gpt.shards(types.SimpleNamespace(
        sharded_state_dict=lambda metadata: real.sharded_state_dict(at, (), metadata)))}


def linear_attention(layer, tensors, config, rank=0, tp=1):
    """name -> tensor: what rank RANK of TP saves of a layer."""
    at = ATTENTION.format(layer)
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    with torch.no_grad(), delta_net(config, rank, tp) as real:
        for name, parameter in real.named_parameters():
            whole = merged(at + name, tensors, config, tp)
            if name == "conv1d.weight":
                whole = torch.cat([torch.cat([part.chunk(tp)[r] for part in whole.split([keys, keys, values])]) for r in range(tp)])
            axis = 1 if name == "out_proj.weight" else None if name == "out_norm.weight" else 0
            parameter.copy_(whole if axis is None else whole.chunk(tp, axis)[rank])
        own = saved(real, at)
    own[at + "in_proj.layer_norm_weight"] = tensors[f"model.layers.{layer}.input_layernorm.weight"]
    return own


def kinds_of(config):
    return config.get("layer_types") or ["full_attention" if i % 4 == 3 else "linear_attention"
                                         for i in range(config["num_hidden_layers"])]


def trained_of(tensors, config):
    """name -> tensor of what Megatron saves."""
    out = {}
    for layer, kind in enumerate(kinds_of(config)):
        to = f"decoder.layers.{layer}."
        if kind == "linear_attention":
            out.update(linear_attention(layer, tensors, config))
        else:
            for name in ("linear_qkv.weight", "linear_qkv.layer_norm_weight", "linear_proj.weight", "q_layernorm.weight",
                         "k_layernorm.weight"):
                out[f"{to}self_attention.{name}"] = merged(f"{to}self_attention.{name}", tensors, config)
        for name in ("pre_mlp_layernorm.weight", "mlp.router.weight", "mlp.shared_experts.gate_weight",
                     "mlp.shared_experts.linear_fc1.weight", "mlp.shared_experts.linear_fc2.weight"):
            out[to + name] = merged(to + name, tensors, config)
        for linear in ("linear_fc1", "linear_fc2"):
            each = [merged(f"{to}mlp.experts.{linear}.weight{e}", tensors, config) for e in range(config["num_experts"])]
            out[f"{to}mlp.experts.experts.{linear}.weight"] = torch.stack(each)
    ends = ["embedding.word_embeddings.weight", "decoder.final_layernorm.weight"]
    for name in ends + ([] if config["tie_word_embeddings"] else ["output_layer.weight"]):
        out[name] = merged(name, tensors, config)
    return out


def read(folder):
    return {n: t for file in sorted(os.listdir(folder)) if file.endswith(".safetensors")
            for n, t in load_file(os.path.join(folder, file)).items()}


def same(have, want):
    return views.tensors_differ(*({n: megatron_cases.as_value(t) for n, t in side.items()} for side in (have, want)))


def logits(folder):
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", local_files_only=True, **transformers_cases.EXPERTS)
    for parameter in loaded.parameters():  # not in mapped files: sums differ in the last bit by where in memory weights begin
        parameter.data = parameter.data.clone()
    with torch.no_grad():
        return loaded.eval()(torch.arange(8)[None], use_cache=False).logits


def check_experts(case, folder):
    """Both forms of experts, the other one as transformers saves it."""
    hf, saved = os.path.join(folder, "hf"), os.path.join(folder, "saved")
    transformers.AutoModelForCausalLM.from_pretrained(hf, dtype="auto").save_pretrained(saved, save_original_format=False)
    for source, form, want in ((hf, "fused", read(saved)), (saved, "each", case.tensors)):
        target = os.path.join(folder, form)
        problem = compared.export(case, source, target, {"experts": form, "view": "huggingface"}) or same(read(target), want)
        if problem:
            return f"experts={form}: {problem}"
    return None


class Case:
    def __init__(self, name, config, rng):
        self.name, self.config, self.rng = name, config, rng
        self.says, self.refusal, self.status = "", "", 1

    def describe(self):
        return f"  {self.config}"

    def write(self, folder):
        torch.manual_seed(self.rng.getrandbits(32))
        model = transformers.AutoModelForCausalLM.from_config(transformers.Qwen3NextConfig(**self.config), dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():  # sums with 1 are exact
                parameter.copy_(torch.randint(-512, 512, parameter.shape) / 1024)
        model.save_pretrained(os.path.join(folder, "hf"))
        self.tensors = load_file(os.path.join(folder, "hf", "model.safetensors"))
        if self.rng.random() < .5:  # as published: it says which layer is of which kind by their distance alone
            self.publish(os.path.join(folder, "hf", "config.json"))
        source = os.path.join(folder, "trained")
        self.trained = trained_of(self.tensors, self.config)
        dcp.save(self.trained, checkpoint_id=source, no_dist=True)
        return source, {"convert": views.rules("megatron"), "view": "huggingface", "hf_config": os.path.join(folder, "hf", "config.json")}

    def publish(self, path):
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        if "layer_types" not in self.config:
            config["full_attention_interval"] = 4
            del config["layer_types"]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)

    def check_oracle(self, folder):
        self.logits = logits(os.path.join(folder, "hf"))
        return None if torch.isfinite(self.logits).all() else "the model's numbers are not finite"

    def check_views(self, folder, source, options):
        problem = views.check(self, source, os.path.join(folder, "as-hf"), options, lambda at: same(
            load_file(os.path.join(at, "model.safetensors")), self.tensors) or (
                None if torch.equal(logits(at), self.logits) else "transformers says something else"))
        if problem:
            return f"to HuggingFace: {problem}"
        given = {"convert": views.rules("megatron"), "view": "unified", "format": "safetensors"}
        for at, more in (("hf", given), ("as-hf", given)):
            target = os.path.join(folder, f"{at}-trained")
            problem = problem or compared.export(self, os.path.join(folder, at), target, more) or same(read(target), self.trained)
        return problem and f"from HuggingFace: {problem}" or check_experts(self, folder) or self.check_mtp(folder) or \
            self.check_cuts(folder)

    def check_mtp(self, folder):
        """A layer of multi-token prediction, which transformers leaves out: one with full attention, negated."""
        full = [i for i, kind in enumerate(kinds_of(self.config)) if kind == "full_attention"]
        if not full:
            return None
        at, more = f"model.layers.{full[0]}.", {}
        for name, tensor in self.tensors.items():
            if name.startswith(at):
                more["mtp.layers.0." + name[len(at):]] = -tensor
        hidden = self.config["hidden_size"]
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            more[f"mtp.{name}.weight"] = torch.rand(hidden)
        more["mtp.fc.weight"] = torch.rand(hidden, 2 * hidden)
        os.makedirs(os.path.join(folder, "mtp"))
        save_file({**self.tensors, **more}, os.path.join(folder, "mtp", "model.safetensors"))
        config = {"hf_config": os.path.join(folder, "hf", "config.json"), "convert": views.rules("megatron")}
        given = {**config, "view": "unified", "format": "safetensors"}
        target, back = os.path.join(folder, "mtp-trained"), os.path.join(folder, "mtp-back")
        problem = compared.export(self, os.path.join(folder, "mtp"), target, given)
        if problem:
            return f"with MTP: {problem}"
        have = read(target)
        for name in set(have) - set(self.trained):
            if ".experts.experts." in name:
                linear = name.split(".")[-2]
                want = torch.stack([merged(f"mtp.layers.0.transformer_layer.mlp.experts.{linear}.weight{e}", more, self.config)
                                    for e in range(self.config["num_experts"])])
            else:
                want = merged(name, more, self.config)
            if not torch.equal(have[name], want):
                return f"Megatron-Bridge makes another {name}"
        return compared.export(self, target, back, {**config, "view": "huggingface"}) or same(read(back), {**self.tensors, **more}) or \
            compared.export(self, os.path.join(folder, "mtp"), os.path.join(folder, "no-mtp"), {**given, "convert_options": "mtp=none"}) or \
            same(read(os.path.join(folder, "no-mtp")), self.trained)

    def check_cuts(self, folder):
        """Each rank has of linear attention what a real one saves; in HuggingFace's names what transformers plans."""
        tp = 2
        if self.config["num_key_value_heads"] % tp or "linear_attention" not in kinds_of(self.config):
            return None
        layer, target = kinds_of(self.config).index("linear_attention"), os.path.join(folder, "cut")
        problem = compared.export(self, os.path.join(folder, "hf"), target, {
            "convert": views.rules("megatron"), "convert_options": "layers=numbered", "dst_rules": f"tp{tp},etp1", "format": "safetensors"})
        for rank in range(tp):
            want = linear_attention(layer, self.tensors, self.config, rank, tp)
            have = problem or read(os.path.join(target, f"rank_{rank}"))
            problem = problem or same({n: have.get(n, torch.empty(0)) for n in want}, want)
        whole = {n: t for n, t in self.tensors.items() if ".linear_attn." in n}
        given = {"dst_rules": f"tp{tp}", "format": "safetensors"}
        target = os.path.join(folder, "hf-cut")
        problem = problem or compared.export(self, os.path.join(folder, "hf"), target, given)
        for rank in range(tp):
            have = problem or read(os.path.join(target, f"rank_{rank}"))
            problem = problem or same({n: have[n] for n in whole},
                                      {n: t.chunk(tp)[rank] if "_proj" in n else t for n, t in whole.items()})
        return problem and f"tp{tp}: {problem}"


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    return Case(f"hybrid-{seed}-{number}", random_config(rng), rng)


def prepare():
    torch.set_num_threads(1)
    transformers_cases.prepare()
