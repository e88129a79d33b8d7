# SPDX-License-Identifier: Apache-2.0
"""What mbridge makes of Megatron-Core's tensors, by their names with Transformer Engine, and of HuggingFace's."""
import os
import sys
import types

import architectures
import torch
import transformers
import transformers_cases

sys.path.append(os.environ["RFS_MBRIDGE"])


def bridge_of(model, dtype):
    """That of a kind of model, or None if it has none. The numbers that it gives Megatron are not of use here."""
    from mbridge.core.bridge import _MODEL_REGISTRY
    from mbridge.core.parallel_states import ParallelStates

    found = _MODEL_REGISTRY.get(model.kind)
    if not found:
        return None
    # Each with a table of its own: one of a tied model changes that of its class.
    own = {"TransformerConfigClass": types.SimpleNamespace, "_DIRECT_MAPPING": dict(found._DIRECT_MAPPING)}
    config = transformers.AutoConfig.for_model(**{**model.config, "model_type": model.kind})
    return type(found.__name__, (found,), own)(config, dtype=dtype, parallel_states=ParallelStates(vpp_size=None))


def one_by_one(trained):
    """(name, tensor) with the experts of a layer one by one, as its modules have them."""
    for name, tensor in trained.items():
        if ".experts.experts." in name:
            yield from ((name.replace("experts.experts", "experts") + str(e), one) for e, one in enumerate(tensor))
        else:
            yield name, tensor


def differs(model, trained, tensors):
    """None, or how it converts otherwise: TRAINED and TENSORS are name -> tensor of the two sides, layers with numbers."""
    bridge = bridge_of(model, next(iter(tensors.values())).dtype)
    if not bridge:
        return None
    known, made = dict(trained), set()
    if model.kind == "deepseek_v3" and model.num_hidden_layers != 61:  # of others it does not know multi-token prediction
        known = {n: t for n, t in known.items() if not n.startswith("mtp.")}
        tensors = {n: t for n, t in tensors.items() if not transformers_cases.is_predicted(n, model)}
    for name, tensor in one_by_one(known):
        names, parts = bridge._weight_to_hf_format(name, tensor)
        for of, part in zip(names, parts):
            if not torch.equal(part, tensors[of]):
                return f"mbridge makes another {of} of {name}"
        if len(set(names) - set(architectures.repeated(model))) == len(names) and \
                not torch.equal(bridge._weight_to_mcore_format(name, [tensors[of] for of in names]), tensor):
            return f"mbridge makes another {name} of {names}"
        made.update(names)
    rest = set(tensors) - made - set(architectures.repeated(model))
    return f"mbridge makes no {sorted(rest)[:3]}" if rest else None
