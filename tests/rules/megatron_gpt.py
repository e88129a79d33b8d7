# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core's GPT itself, on the processor: its parameters by name, and what it computes with given weights.

Only what it asks of a graphics card is answered here.
"""
import contextlib
import os
import sys
import types
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import distributed  # noqa: E402
from torch.testing._internal.distributed import fake_pg  # noqa: E402

sys.path.insert(0, os.environ["RFS_MEGATRON"])

NAMES = {"input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
         "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight"}  # in checkpoints, with its own layers or fused ones


@contextlib.contextmanager
def running():
    """As the only rank of a training; torch's group of processes is not of use to others meanwhile."""
    from megatron.core import parallel_state, tensor_parallel

    torch.cuda.current_device = lambda: "cpu"
    tensor_parallel.get_cuda_rng_tracker = lambda: types.SimpleNamespace(fork=contextlib.nullcontext)
    distributed.init_process_group("fake", rank=0, world_size=1, store=fake_pg.FakeStore())
    try:
        parallel_state.initialize_model_parallel(1, 1, create_gloo_process_groups=False)
        yield
    finally:
        parallel_state.destroy_model_parallel()
        distributed.destroy_process_group()


def build(model):
    """A GPT of the sizes of an architectures.Model."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    norms = model.kind == "qwen3"
    config = TransformerConfig(
        num_layers=model.num_hidden_layers, hidden_size=model.hidden_size, ffn_hidden_size=model.intermediate_size,
        num_attention_heads=model.num_attention_heads,
        num_query_groups=model.config.get("num_key_value_heads") or model.num_attention_heads,
        kv_channels=model.config.get("head_dim") or model.hidden_size // model.num_attention_heads,
        gated_linear_unit=True, activation_func=F.silu, add_bias_linear=False, add_qkv_bias=model.kind == "qwen2",
        normalization="RMSNorm", qk_layernorm=norms, layernorm_epsilon=model.rms_norm_eps, hidden_dropout=0,
        attention_dropout=0, bias_activation_fusion=False, masked_softmax_fusion=False, use_cpu_initialization=True)
    return GPTModel(config, get_gpt_layer_local_spec(qk_layernorm=norms, normalization="RMSNorm"),
                    vocab_size=model.vocab_size, max_sequence_length=model.max_position_embeddings,
                    share_embeddings_and_output_weights=model.tie_word_embeddings, position_embedding_type="rope").eval()


def names_differ(real, shapes):
    """None, or how its checkpoint's tensors differ from name -> shape."""
    have = {v.key: getattr(v, "global_shape", None) for v in real.sharded_state_dict().values() if "_extra_state" not in v.key}
    if sorted(have) != sorted(shapes):
        return f"Megatron saves {sorted(set(have) ^ set(shapes))}, or does not"
    other = [n for n, shape in have.items() if shape and tuple(shape) != tuple(shapes[n])]
    return f"Megatron saves {other[0]} as {have[other[0]]}, not {shapes[other[0]]}" if other else None


def logits(real, weights, model):
    """What it says to a few tokens, with WEIGHTS by the names of a checkpoint that counts its layers."""
    with torch.no_grad():
        for name, parameter in real.named_parameters():
            for own, saved in NAMES.items():
                name = name.replace(own, saved)
            parameter.copy_(weights[name])
        tokens = torch.arange(model.vocab_size)[None] % 7
        count = tokens.shape[1]
        hidden = torch.triu(torch.ones(count, count, dtype=torch.bool), 1)[None, None]
        return real(tokens, torch.arange(count)[None], hidden)
