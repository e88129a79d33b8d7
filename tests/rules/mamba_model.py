# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core's MambaModel on the processor, for its names and what its ranks save; and Megatron-Bridge's table of nemotron_h.

Kernels for graphics cards, which it imports, have stand-ins: nothing is computed.
"""
import dataclasses
import os
import sys
import types
from unittest import mock

import hybrid_cases
import megatron_gpt  # noqa: F401  # finds Megatron-Core
import torch

LETTERS = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}


class Norm(torch.nn.Module):
    """The gated norm of mamba_ssm, as far as it has a weight."""

    def __init__(self, size, **_):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(size))


def mamba_block():
    """The module of its layers."""
    if "mamba_ssm" not in sys.modules:
        import megatron.core.models.gpt.gpt_model  # noqa: F401  # before the stand-ins
        if os.environ["RFS_MBRIDGE"] not in sys.path:
            sys.path.append(os.environ["RFS_MBRIDGE"])  # for einops
        names = ("", ".ops", ".ops.triton", ".ops.triton.selective_state_update", ".ops.triton.ssd_combined")
        wanted = {"mamba_ssm" + name: mock.MagicMock() for name in names}
        wanted["mamba_ssm.ops.triton.layernorm_gated"] = types.SimpleNamespace(RMSNorm=Norm)
        wanted["triton"] = mock.MagicMock()
        wanted["triton.language"] = mock.MagicMock()
        sys.modules.update(wanted)
        from megatron.core.ssm import mamba_block as made
        from megatron.core.models.mamba import mamba_model  # noqa: F401
        from megatron.core.ssm import mamba_mixer  # noqa: F401
        from megatron.core.transformer.torch_norm import WrappedTorchNorm
        made.TENorm = WrappedTorchNorm
        for name in ("triton", "triton.language"):
            del sys.modules[name]
    return sys.modules["megatron.core.ssm.mamba_block"]


def stack_spec(config):
    """Layers as a MambaModel has them, of Megatron-Core's own modules."""
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.ssm.mamba_layer import MambaLayer, MambaLayerSubmodules
    from megatron.core.ssm.mamba_mixer import MambaMixer, MambaMixerSubmodules
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer import TransformerLayer
    from megatron.core.transformer.identity_op import IdentityFuncOp, IdentityOp
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    def only(spec, module, keys, **none):
        return ModuleSpec(module, submodules=dataclasses.replace(spec.submodules, sharded_state_dict_keys_map=keys, **none))

    dense, sparse = (get_gpt_layer_local_spec(n, None, normalization="RMSNorm") for n in (None, config.num_moe_experts))
    no_mlp = {"mlp": IdentityOp, "pre_mlp_layernorm": IdentityOp, "mlp_bda": IdentityFuncOp}
    no_attention = {"self_attention": IdentityOp, "input_layernorm": IdentityOp, "self_attn_bda": IdentityFuncOp}
    mixer = ModuleSpec(MambaMixer, submodules=MambaMixerSubmodules(ColumnParallelLinear, RowParallelLinear))
    block = mamba_block()
    return ModuleSpec(block.MambaStack, submodules=block.MambaStackSubmodules(
        mamba_layer=ModuleSpec(MambaLayer, submodules=MambaLayerSubmodules(WrappedTorchNorm, mixer, get_bias_dropout_add)),
        attention_layer=only(dense, TransformerLayer, {"input_layernorm.": "self_attention.linear_qkv.layer_norm_"}, **no_mlp),
        mlp_layer=only(dense, MLPLayer, {"pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"}, **no_attention),
        moe_layer=only(sparse, TransformerLayer, {}, **no_attention)))


def real_mamba(config, tp):
    """What this process has of one."""
    block = mamba_block()
    from megatron.core.activations import squared_relu
    from megatron.core.models.mamba.mamba_model import MambaModel
    from megatron.core.transformer import TransformerConfig

    megatron_gpt.stand_ins()
    of = TransformerConfig(
        num_layers=len(config["layers_block_type"]), hidden_size=config["hidden_size"], ffn_hidden_size=config["intermediate_size"],
        num_attention_heads=config["num_attention_heads"], num_query_groups=config["num_key_value_heads"],
        kv_channels=config["head_dim"], num_moe_experts=config["n_routed_experts"], moe_ffn_hidden_size=config["moe_intermediate_size"],
        moe_shared_expert_intermediate_size=config["moe_shared_expert_intermediate_size"], moe_router_topk=2,
        moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True, activation_func=squared_relu,
        mamba_state_dim=config["ssm_state_size"], mamba_head_dim=config["mamba_head_dim"], mamba_num_heads=config["mamba_num_heads"],
        mamba_num_groups=config["n_groups"], add_bias_linear=False, normalization="RMSNorm", bias_activation_fusion=False,
        use_cpu_initialization=True, is_hybrid_model=True, tensor_model_parallel_size=tp, expert_tensor_parallel_size=1)
    return MambaModel(of, stack_spec(of), vocab_size=config["vocab_size"], max_sequence_length=32,
                      hybrid_override_pattern=pattern_of(config),
                      share_embeddings_and_output_weights=config["tie_word_embeddings"])


def pattern_of(config):
    return "".join(LETTERS[kind] for kind in config["layers_block_type"])


def table():
    """Megatron-Bridge's mappings, and the module with their classes."""
    _, functions = hybrid_cases.bridge()
    sys.modules["megatron.bridge.models.conversion.model_bridge"].MegatronModelBridge.CONFIG_MAPPING = []
    for name in ("nemotronh", "mamba"):
        package = types.ModuleType("megatron.bridge.models." + name)
        package.__path__ = [os.path.join(os.environ["RFS_MEGATRON"], "megatron", "bridge", "models", name)]
        sys.modules.setdefault(package.__name__, package)
    sys.modules.setdefault("megatron.bridge.models.mamba.mamba_provider", mock.MagicMock())
    mamba_block()
    from megatron.bridge.models.nemotronh.nemotron_h_bridge import NemotronHBridge
    return NemotronHBridge().mapping_registry(), functions


def made_by_bridge(config, name, tensors):
    """A whole parameter of the model, as Megatron-Bridge makes it."""
    rows, functions = table()
    row = rows.megatron_to_hf_lookup(name)
    if isinstance(row, functions.QKVMapping):
        part = {k: tensors[n] for k, n in row.hf_param.items()}
        return functions.merge_qkv_weights(types.SimpleNamespace(
            num_query_groups=config["num_key_value_heads"], num_attention_heads=config["num_attention_heads"],
            kv_channels=config["head_dim"], hidden_size=config["hidden_size"], attention_output_gate=False), part["q"], part["k"], part["v"])
    return tensors[row.hf_param]
