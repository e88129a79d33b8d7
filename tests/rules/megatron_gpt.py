# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core's GPT itself, on the processor: its parameters by name, and what it computes with given weights.

Only what it asks of a graphics card is answered here.
"""
import contextlib
import os
import re
import sys
import types
import warnings
from unittest import mock

warnings.filterwarnings("ignore")

import architectures  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import distributed  # noqa: E402
from torch.testing._internal.distributed import fake_pg  # noqa: E402

sys.path.insert(0, os.environ["RFS_MEGATRON"])

NAMES = {"input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
         "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight"}  # in checkpoints, with its own layers or fused ones


def divide(tp, ep, pp=1, chunks=1):
    """This process has its place among those of a training whose experts tp does not cut, with CHUNKS of layers on each stage."""
    from megatron.core import parallel_state, tensor_parallel

    torch.cuda.current_device = lambda: "cpu"
    torch.Tensor.cuda = lambda self, *_, **_more: self
    tensor_parallel.get_cuda_rng_tracker = lambda: types.SimpleNamespace(fork=contextlib.nullcontext)
    parallel_state.initialize_model_parallel(tp, pp, chunks if chunks > 1 else None, create_gloo_process_groups=False,
                                             expert_model_parallel_size=ep, expert_tensor_parallel_size=1)


@contextlib.contextmanager
def running(rank=0, ranks=1, tp=None, ep=1):
    """As one of the ranks of a stage; torch's group of processes is not of use to others meanwhile."""
    from megatron.core import parallel_state

    distributed.init_process_group("fake", rank=rank, world_size=ranks, store=fake_pg.FakeStore())
    try:
        divide(tp or ranks, ep)
        yield
    finally:
        parallel_state.destroy_model_parallel()
        distributed.destroy_process_group()


def stand_ins():
    """Answers for Transformer Engine where Megatron's own layers ask for it; latent attention only has names here."""
    from megatron.core.transformer import dot_product_attention, multi_latent_attention
    from megatron.core.transformer.moe import moe_utils

    moe_utils.te_general_gemm = None
    for name, value in vars(multi_latent_attention).items():
        if name.startswith("TE") and not isinstance(value, type):
            setattr(multi_latent_attention, name, type(name, (), {}))
    begin = dot_product_attention.DotProductAttention.__init__
    if begin.__name__ == "__init__":
        def without_channels(self, *args, k_channels=None, v_channels=None, **more):
            begin(self, *args, **more)
        dot_product_attention.DotProductAttention.__init__ = without_channels


def experts_of(model):
    """What the config of Megatron has for a model's experts."""
    if model.kind not in architectures.SPARSE:
        return {}
    sigmoid = model.kind in architectures.FIRST_DENSE
    shared = model.shared_at("")[1]
    count = len(model.dense())
    return {"num_moe_experts": model.count(), "moe_ffn_hidden_size": model.experts_at("")[2], "moe_router_topk": 2,
            "moe_router_pre_softmax": not model.config.get("norm_topk_prob", True),
            "moe_router_score_function": "sigmoid" if sigmoid else "softmax", "moe_router_enable_expert_bias": sigmoid,
            "moe_layer_freq": [0] * count + [1] * (model.num_hidden_layers - count) if count else 1,
            **({"moe_shared_expert_intermediate_size": shared} if shared else {}),
            "moe_shared_expert_gate": model.kind == "qwen2_moe"}


def sinks_of(model):
    """What the config of Megatron has for gpt_oss: its activation, and sinks."""
    from megatron.core.fusions.fused_bias_geglu import quick_gelu

    if model.kind != "gpt_oss":
        return {"activation_func": F.silu}
    return {"activation_func": quick_gelu, "activation_func_clamp_value": 7.0, "glu_linear_offset": 1.0,
            "softmax_type": "learnable"}


def positions_of(model):
    """What a GPT and its config have for the positions of a model."""
    if model.kind == "gpt_oss":
        of = model.rope_scaling
        return {"position_embedding_type": "yarn", "rotary_base": 150000}, {
            "yarn_rotary_scaling_factor": of["factor"], "yarn_beta_fast": of["beta_fast"], "yarn_beta_slow": of["beta_slow"],
            "yarn_original_max_position_embeddings": of["original_max_position_embeddings"],
            "yarn_mscale": None, "yarn_mscale_all_dim": None, "yarn_correction_range_round_to_int": of["truncate"]}
    return {"position_embedding_type": "rope", "rotary_base": 1000000 if model.kind == "mixtral" else 10000,
            "rotary_percent": 0.5 if model.kind == "glm4_moe" else model.config.get("partial_rotary_factor", 1.0)}, {}


def latent_of(model):
    return {"multi_latent_attention": True, "q_lora_rank": model.q_lora_rank, "kv_lora_rank": model.kv_lora_rank,
            "qk_head_dim": model.qk_nope_head_dim, "qk_pos_emb_head_dim": model.qk_rope_head_dim,
            "v_head_dim": model.v_head_dim, "rope_type": "rope",
            "kv_channels": model.v_head_dim}  # else 0 of a model with more heads than its hidden size


def attention_of(model):
    return {"num_query_groups": model.config.get("num_key_value_heads") or model.num_attention_heads,
            "kv_channels": model.config.get("head_dim") or model.hidden_size // model.num_attention_heads}


def build(model, pp=1, chunks=1, chunk=0):
    """A GPT of the sizes of an architectures.Model, or what this process has of it: the layers of a stage or of a CHUNK of them."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    latent = model.kind == "deepseek_v3"
    norms = latent or model.kind in ("qwen3", "qwen3_moe") or bool(model.config.get("use_qk_norm"))
    stand_ins()
    biased = "model.layers.0.self_attn.q_proj.bias" in model.tensors
    config = (MLATransformerConfig if latent else TransformerConfig)(
        num_layers=model.num_hidden_layers, hidden_size=model.hidden_size, ffn_hidden_size=model.intermediate_size,
        num_attention_heads=model.num_attention_heads, **(latent_of(model) if latent else attention_of(model)),
        **experts_of(model), mtp_num_layers=model.extra() or None,
        gated_linear_unit=True, **sinks_of(model), add_bias_linear=bool(model.config.get("mlp_bias")) or model.kind == "gpt_oss",
        add_qkv_bias=biased, normalization="RMSNorm", qk_layernorm=norms, layernorm_epsilon=model.rms_norm_eps,
        hidden_dropout=0, attention_dropout=0, bias_activation_fusion=False, masked_softmax_fusion=False,
        use_cpu_initialization=True, pipeline_model_parallel_size=pp, pipeline_dtype=torch.float32,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None)
    place = {"vp_stage": chunk if chunks > 1 else None}
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm", **place)
    positions, of_config = positions_of(model)
    for name, value in of_config.items():
        setattr(config, name, value)
    mtp = {"mtp_block_spec": get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False, **place)} if model.extra() else {}
    return GPTModel(config, spec, vocab_size=model.vocab_size, max_sequence_length=model.max_position_embeddings,
                    share_embeddings_and_output_weights=model.tie_word_embeddings, **positions, **mtp, **place,
                    pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=chunks == 1, **place),
                    post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=chunks == 1, **place)).eval()


def bridge():
    """The modules of Megatron-Bridge with its adapters, without the rest of it, and without Transformer Engine."""
    if "megatron.bridge" not in sys.modules:
        package, engine = types.ModuleType("megatron.bridge"), types.ModuleType("transformer_engine.pytorch")
        package.__path__ = [os.path.join(os.environ["RFS_MEGATRON"], "megatron", "bridge")]
        engine.Linear = engine.LayerNormLinear = type("Linear", (torch.nn.Module,), {})
        engine.ops = mock.MagicMock()
        wanted = {"transformer_engine": types.SimpleNamespace(pytorch=engine), "transformer_engine.pytorch": engine}
        sys.modules.update({"megatron.bridge": package, **wanted})
        from megatron.bridge.peft import utils
        from megatron.bridge.peft import canonical_lora, lora  # noqa: F401
        utils.HAVE_TE = False
        for name in wanted:
            del sys.modules[name]
    return sys.modules["megatron.bridge.peft.lora"].LoRA, sys.modules["megatron.bridge.peft.canonical_lora"].CanonicalLoRA


def shards(real, metadata=None):
    """All pieces of a checkpoint that have elements."""
    for entry in real.sharded_state_dict(metadata=metadata).values():
        for shard in entry.build() if hasattr(entry, "build") else [entry]:
            if "_extra_state" not in shard.key:
                yield shard


def names_differ(real, shapes, metadata=None):
    """None, or how its checkpoint's tensors differ from name -> shape."""
    have = {shard.key: shard.global_shape for shard in shards(real, metadata)}
    if sorted(have) != sorted(shapes):
        return f"Megatron saves {sorted(set(have) ^ set(shapes))}, or does not"
    other = [n for n, shape in have.items() if tuple(shape) != tuple(shapes[n])]
    return f"Megatron saves {other[0]} as {have[other[0]]}, not {shapes[other[0]]}" if other else None


def pieces(real, counted=True):
    """(name, (offset, sizes), data) of what this rank has of the tensors of a checkpoint. COUNTED: its layers have numbers."""
    for shard in shards(real, {"non_homogeneous_layers": True} if counted else None):
        yield shard.key, (tuple(shard.global_offset), (1,) * shard.prepend_axis_num + tuple(shard.local_shape)), shard.data


def parts(real):
    """name -> [(offset, sizes)] of what this rank has of the tensors of a checkpoint that counts its layers, in its order."""
    out = {}
    for name, box, _ in pieces(real):
        out.setdefault(name, []).append(box)
    return out


def weight_of(name, weights):
    """The weight of a parameter of a GPT whose saved names are WEIGHTS; its layers have numbers."""
    expert = re.fullmatch(r"(.*\.experts)\.local_experts\.(\d+)\.(.*)", name)
    if expert:
        return weights[f"{expert[1]}.experts.{expert[3]}"][int(expert[2])]
    for own, saved in NAMES.items():
        if name not in weights:
            name = name.replace(own, saved)
    return weights[name]


def logits(real, weights, model):
    """What it says to a few tokens, with WEIGHTS by the names of a checkpoint that counts its layers."""
    with torch.no_grad():
        for name, parameter in real.named_parameters():
            parameter.copy_(weight_of(name.replace(".to_wrap.", "."), weights))
        for name, buffer in real.named_buffers():
            if name.endswith("expert_bias"):
                buffer.copy_(weights[name])
        tokens = torch.arange(model.vocab_size)[None] % 7
        count = tokens.shape[1]
        hidden = torch.triu(torch.ones(count, count, dtype=torch.bool), 1)[None, None]
        return real(tokens, torch.arange(count)[None], hidden)
