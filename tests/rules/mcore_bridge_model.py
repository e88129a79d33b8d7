# SPDX-License-Identifier: Apache-2.0
"""mcore-bridge: it fills the parameters of a Megatron model, by their names and shapes alone, from HuggingFace's tensors.

The program's own classes convert and cut. There is no model and no graphics card; where the program asks for them, this answers.
"""
import functools
import importlib.machinery
import sys
import types
from unittest import mock

import megatron_gpt  # noqa: F401  # finds Megatron-Core
import torch
from mcore_bridge_program import package

CLASSES = {"qwen3_next": ("gpts.qwen3_next_gdn", "Qwen3NextGDNBridge", {}),
           "llama4": ("mm_gpts.llama4", "Llama4Bridge", {}),  # its text part
           "qwen3_5": ("mm_gpts.qwen3_5_gdn", "Qwen3_5Bridge", {"model.visual": "visual"}),
           "qwen3_5_moe": ("mm_gpts.qwen3_5_gdn", "Qwen3_5Bridge", {"model.visual": "visual"})}


def stand_in(name):
    made = mock.MagicMock(name=name)
    made.__spec__, made.__path__ = importlib.machinery.ModuleSpec(name, None), []
    sys.modules[name] = made
    return made


@functools.cache
def bridge_of(kind):
    if "mcore_bridge" not in sys.modules:
        import megatron.core.models.gpt.gpt_model  # noqa: F401  # before the stand-ins

        for name in ("mcore_bridge", "mcore_bridge.bridge", "mcore_bridge.config", "mcore_bridge.model", "mcore_bridge.model.gpts",
                     "mcore_bridge.model.mm_gpts", "mcore_bridge.model.modules", "mcore_bridge.utils"):
            package(name)
        for name in ("peft", "peft.utils", "mcore_bridge.tuners", "mcore_bridge.model.register",
                     "mcore_bridge.model.constant", "megatron.core.extensions.transformer_engine",
                     "megatron.core.models.gpt.gpt_layer_specs", "mcore_bridge.model.mm_gpts.qwen3_5",
                     "mcore_bridge.model.mm_gpts.utils", "mcore_bridge.utils.constants", "transformer_engine"):
            stand_in(name)
        sys.modules["mcore_bridge.tuners"].LoraParallelLinear = sys.modules["peft.utils"].ModulesToSaveWrapper = type("None", (), {})
        utils = sys.modules["mcore_bridge.utils"]
        from mcore_bridge.utils.utils import deep_getattr

        utils.deep_getattr, utils.get_env_args, utils.is_master = deep_getattr, lambda *_: True, lambda: False
        for some in ("utils", "config", "model.modules"):
            sys.modules["mcore_bridge." + some].__getattr__ = lambda name: mock.MagicMock(name=name)
        from mcore_bridge.bridge import gpt_bridge

        sys.modules["mcore_bridge.bridge"].GPTBridge = gpt_bridge.GPTBridge
        gpt_bridge.mpu = types.SimpleNamespace(is_pipeline_first_stage=lambda **_: True, is_pipeline_last_stage=lambda **_: True)
        gpt_bridge.tqdm = mock.MagicMock()
    module, name, towers = CLASSES[kind]
    return getattr(importlib.import_module("mcore_bridge.model." + module), name), towers


def delta_net():
    """The class of its linear attention."""
    bridge_of("qwen3_next")
    from mcore_bridge.model.modules.gated_delta_net import GatedDeltaNet

    return GatedDeltaNet


def config_of(config):
    """What mcore-bridge makes of a model's config."""
    from mcore_bridge.config.parser import hf_to_mcore_config

    made = hf_to_mcore_config(config)
    text = config.get_text_config()
    absent = ("num_moe_experts", "moe_shared_expert_intermediate_size", "mtp_num_layers", "csa_compress_ratios")
    given = dict.fromkeys(absent) | dict.fromkeys(("add_bias_linear", "add_qkv_bias", "multi_latent_attention", "enable_hyper_connections",
                                                   "moe_router_enable_expert_bias", "moe_shared_expert_gate", "language_model_only",
                                                   "linear_decoupled_in_proj", "fp8_param", "attention_output_gate", "qk_layernorm"), False)
    given |= made | {"task_type": "causal_lm", "linear_attention_freq": [kind == "linear_attention" for kind in text.layer_types],
                     "model_meta": types.SimpleNamespace(visual_cls=types.SimpleNamespace())}
    return types.SimpleNamespace(**given)


class Tower(dict):
    """HuggingFace's own module."""

    def load_state_dict(self, tensors, strict):
        assert not strict
        for name in set(self) & set(tensors):
            self[name].copy_(tensors[name])
        return types.SimpleNamespace(missing_keys=sorted(set(self) - set(tensors)), unexpected_keys=sorted(set(tensors) - set(self)))


def model_of(parameters, towers):
    """The modules with these parameters: by name, as torch_dist saves them."""
    root = types.SimpleNamespace(vp_stage=None)

    def put(node, names, value):
        for name in names[:-1]:
            if not hasattr(node, name):
                setattr(node, name, types.SimpleNamespace())
            node = getattr(node, name)
        setattr(node, names[-1], value)

    for at in towers.values():
        prefix = f"visual.{at}."
        put(root, prefix.split(".")[:-1], Tower({n[len(prefix):]: p for n, p in parameters.items() if n.startswith(prefix)}))
    for name, parameter in parameters.items():
        if name.startswith("visual."):
            continue
        if ".experts.experts." in name:  # a module of experts has a parameter for each
            name = name.replace(".experts.experts.", ".experts.")
            for expert, own in enumerate(parameter):
                put(root, f"{name}{expert}".split("."), own)
        else:
            put(root, name.split("."), parameter)
    language = getattr(root, "language_model", root)
    language.output_layer = getattr(language, "output_layer", types.SimpleNamespace(weight=None))
    for stack in (language.decoder, getattr(language, "mtp", None)):
        if stack:
            layers = stack.layers.__dict__
            stack.layers = [layers[n] for n in sorted(layers, key=int)]
            for number, layer in enumerate(stack.layers, 1):
                layer.layer_number = number
    return root


def filled(kind, config, tensors, have, rank=0, tp=1):
    """name -> tensor as rank RANK of TP has it after mcore-bridge has read HuggingFace's TENSORS: names and shapes are those in HAVE."""
    of, towers = bridge_of(kind)
    bridge, made = of.__new__(of), config_of(config)
    made.mtp_num_layers = sum(name.endswith(".enorm.weight") for name in have) or None
    made.linear_attention_freq.append(False)  # that of multi-token prediction
    towers = {theirs: ours for theirs, ours in towers.items() if any(name.startswith(f"visual.{ours}.") for name in have)}
    vars(bridge).update(config=made, model_type=made.hf_model_type, llm_model_type=made.llm_model_type, module_mapping=towers,
                        is_multimodal=any(name.startswith("language_model.") for name in have), tp_size=tp, tp_rank=rank, etp_size=1,
                        etp_rank=0, ep_size=1, ep_rank=0, pp_size=1, pp_rank=0, _peft_format=False, _adapter_name="default",
                        _disable_tqdm=True, _fp8_skip_modules=set())
    out = {name: torch.full_like(tensor, float("nan")) for name, tensor in have.items()}
    lazy = {name: types.SimpleNamespace(load=tensor.clone) for name, tensor in tensors.items()}
    with torch.no_grad():
        for _ in bridge._convert([model_of(out, towers)], lazy, "", True):
            pass
    return out  # NaN: not read
