# SPDX-License-Identifier: Apache-2.0
"""mcore-bridge's loader, on the processor: it gives HuggingFace's tensors to a rank of a real GPT of Megatron-Core.

It knows the modules of Transformer Engine. The GPT has Megatron's own, so each gets the names of the others, too.
"""
import os
import sys
import types
from unittest import mock

import megatron_gpt
import torch

FOLDER = os.environ.get("RFS_MCORE_BRIDGE", "")


def package(name, stands_in=False):
    """A package of it, without what its __init__ imports; one that STANDS_IN has all names."""
    made = types.ModuleType(name)
    made.__path__ = [os.path.join(FOLDER, *name.split("."))]
    if stands_in:
        made.__getattr__ = lambda _: mock.MagicMock()
    sys.modules[name] = made


def bridges():
    """The module with its loader, and that of minimax_m2."""
    if "mcore_bridge" not in sys.modules:
        for name in ("", ".bridge", ".model", ".model.gpts"):
            package("mcore_bridge" + name)
        for name in (".config", ".tuners", ".utils", ".utils.constants", ".model.register"):
            package("mcore_bridge" + name, stands_in=True)
        sys.modules["mcore_bridge.tuners"].LoraParallelLinear = type("LoraParallelLinear", (), {})
        from mcore_bridge.utils.utils import deep_getattr
        sys.modules["mcore_bridge.utils"].deep_getattr = deep_getattr
        from mcore_bridge.bridge.gpt_bridge import GPTBridge
        sys.modules["mcore_bridge.bridge"].GPTBridge = GPTBridge
    from mcore_bridge.bridge import gpt_bridge
    from mcore_bridge.model.gpts import minimax_m2
    return gpt_bridge, minimax_m2


def loader_of(kind):
    """The class that loads a kind of model."""
    general, minimax = bridges()
    if kind == "nemotron_h":  # whose module wants that of a MambaModel, which is there by now
        from mcore_bridge.model.gpts import nemotron_h
        return nemotron_h.NemotronHBridge
    return minimax.MinimaxM2Bridge if kind == "minimax_m2" else general.GPTBridge


def named_twice(real):
    """The GPT, with the names of Transformer Engine: norms with the linear layers behind them, and experts in one layer."""
    predicted = [layer.transformer_layer for layer in real.mtp.layers] if real.config.mtp_num_layers else []
    for layer in [*real.decoder.layers, *predicted]:
        attention, mlp = getattr(layer, "self_attention", None), getattr(layer, "mlp", None)
        if hasattr(layer, "mixer"):  # as later ones keep its convolution
            layer.mixer.__dict__.update(conv1d_weight=layer.mixer.conv1d.weight, conv1d_bias=layer.mixer.conv1d.bias)
        if hasattr(attention, "linear_qkv"):
            attention.linear_qkv.__dict__["layer_norm_weight"] = layer.input_layernorm.weight
        if hasattr(mlp, "experts"):
            for linear in ("linear_fc1", "linear_fc2"):
                each = {f"weight{e}": getattr(one, linear).weight for e, one in enumerate(mlp.experts.local_experts)}
                mlp.experts.__dict__[linear] = types.SimpleNamespace(**each)
        elif hasattr(mlp, "linear_fc1"):
            mlp.linear_fc1.__dict__["layer_norm_weight"] = layer.pre_mlp_layernorm.weight
    return real


def load(real, tensors, kind, tied, **more):
    """This rank's part of TENSORS, name -> tensor, becomes its parameters. MORE is of its config."""
    general, _ = bridges()
    loader = loader_of(kind)
    own = {"hf_model_type": kind, "llm_model_type": kind, "is_multimodal": False, "hf_config": None, "task_type": "causal_lm",
           "enable_hyper_connections": False, "attention_output_gate": False, "fp8_param": False,
           "untie_embeddings_and_output_weights": not tied, "padded_vocab_size": real.vocab_size, **more}
    config = types.SimpleNamespace(**{**vars(real.config), **own})
    general.EP_PP_GROUP = None  # of another rank
    made = loader(config)
    made._disable_tqdm = True
    lazy = {name: types.SimpleNamespace(load=lambda tensor=tensor: tensor) for name, tensor in tensors.items()}
    with torch.no_grad():
        for _ in made._convert([named_twice(real)], lazy, "", True):
            pass


def saved(real, counted=True):
    """name -> tensor: what this rank saves, the pieces of each in their order. COUNTED: its layers have numbers."""
    out = {}
    for name, (offset, sizes), data in megatron_gpt.pieces(real, counted):
        out.setdefault(name, []).append((offset, data.detach().reshape(sizes)))
    return {name: joined(pieces) for name, pieces in out.items()}


def joined(pieces):
    """One tensor of all pieces [(offset, tensor)] of a rank."""
    places = [sorted({(at[axis], piece.shape[axis]) for at, piece in pieces}) for axis in range(pieces[0][1].dim())]
    out = torch.empty([sum(size for _, size in axis) for axis in places], dtype=pieces[0][1].dtype)
    for at, piece in pieces:
        first = [sum(size for start, size in axis if start < at[i]) for i, axis in enumerate(places)]
        out[tuple(slice(f, f + size) for f, size in zip(first, piece.shape))] = piece
    return out
