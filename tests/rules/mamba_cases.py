# SPDX-License-Identifier: Apache-2.0
"""Cases of nemotron_h for the family "bridged": a hybrid of Mamba, attention, MLPs and experts.

mcore-bridge loads the model into the ranks of a real MambaModel. It leaves out MLPs, which are loaded by Megatron-Bridge's table;
that table also makes each whole parameter once more.
"""
import json
import os
import re

import bridged_cases
import compared
import hybrid_cases
import mamba_model
import mcore_bridge_program
import megatron_cases
import megatron_gpt
import torch
import transformers
import views

def random_config(rng):
    groups, states = rng.choice([1, 2, 4]), rng.choice([1, 2, 4])
    kinds = [rng.choice(list(mamba_model.LETTERS)) for _ in range(rng.choice([3, 4, 6]))]
    return {"model_type": "nemotron_h", "layers_block_type": kinds, "hidden_size": rng.choice([8, 12, 16]),
            "num_attention_heads": groups * rng.choice([1, 2, 3]), "num_key_value_heads": groups, "head_dim": rng.choice([4, 8]),
            "vocab_size": rng.choice([16, 30]), "intermediate_size": rng.choice([4, 6]), "mamba_num_heads": states * rng.choice([1, 2]),
            "mamba_head_dim": rng.choice([2, 4]), "n_groups": states, "ssm_state_size": rng.choice([2, 4]), "conv_kernel": 4,
            "chunk_size": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": rng.choice([2, 4]),
            "moe_shared_expert_intermediate_size": rng.choice([4, 6]), "tie_word_embeddings": False}


def load_mlps(real, config, tensors, rank, tp):
    """This rank's parts of MLPs without experts."""
    for layer, kind in enumerate(config["layers_block_type"]):
        mlp = real.decoder.layers[layer].mlp if kind == "mlp" else None
        for name, axis in (("linear_fc1.layer_norm_weight", None), ("linear_fc1.weight", 0), ("linear_fc2.weight", 1)):
            if mlp:
                whole = mamba_model.made_by_bridge(config, f"decoder.layers.{layer}.mlp.{name}", tensors)
                linear, _, what = name.rpartition(".")
                getattr(mlp.get_submodule(linear), what).data.copy_(whole if axis is None else whole.chunk(tp, axis)[rank])


class Case(bridged_cases.Case):
    rules = "megatron_nemotron_h"

    def __init__(self, name, config, rng):
        super().__init__(name, config, rng)
        self.stacked = False

    def saved_by(self, config=None, tensors=None, rank=0, tp=1, counted=True):
        config, tensors = config or self.config, tensors or self.tensors
        with megatron_gpt.running(rank, tp):
            real = mamba_model.real_mamba(config, tp)
            mcore_bridge_program.load(real, tensors, "nemotron_h", config["tie_word_embeddings"],
                                      hybrid_layer_pattern=mamba_model.pattern_of(config))
            load_mlps(real, config, tensors, rank, tp)
            have = mcore_bridge_program.saved(real, counted)
        return have if self.local else {self.fused(n): t for n, t in have.items()}

    def fused(self, name):
        """As Megatron-Bridge builds it: the norm before a Mamba mixer is one with its projection."""
        layer = name.removesuffix(".norm.weight")
        return f"{layer}.mixer.in_proj.layer_norm_weight" if layer != name and not layer.endswith(".mixer") else name

    def write(self, folder):
        source, options = super().write(folder)
        if self.rng.random() < .5:  # as published: a letter for each layer
            path = os.path.join(folder, "hf", "config.json")
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
            del config["layers_block_type"]
            config.update(hybrid_override_pattern=mamba_model.pattern_of(self.config), num_hidden_layers=len(self.config["layers_block_type"]))
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
        return source, options

    def check_oracle(self, folder):
        return super().check_oracle(folder) or self.bridge_differs()

    def bridge_differs(self):
        """None, or a parameter that Megatron-Bridge makes otherwise."""
        parts = {}
        for name, tensor in self.trained.items():
            end = name.rpartition(".")[2]
            whole = name[:-len(end) - 1] if end in ("z", "x", "B", "C", "dt") else name
            parts.setdefault(whole, []).append(tensor)
        for name, tensors in parts.items():
            if ".experts.experts." in name:
                each = [mamba_model.made_by_bridge(self.config, name.replace("experts.experts", "experts") + str(e), self.tensors)
                        for e in range(self.config["n_routed_experts"])]
                want = torch.stack(each)
            else:
                want = mamba_model.made_by_bridge(self.config, name, self.tensors)
            if not torch.equal(torch.cat(tensors), want):
                return f"Megatron-Bridge makes another {name}"
        return None

    def to_megatron(self, layers=None, **more):
        return {"convert": views.rules(self.rules), "format": "safetensors",
                **({"convert_options": "mamba_norm=apart"} if self.local else {}), **more}

    def to_huggingface(self, layers=None):
        return {}

    def check_more(self, folder):
        """Experts in one tensor, as transformers saves them; parts of ranks; and what is refused."""
        hf, saved, fused, again = (os.path.join(folder, name) for name in ("hf", "saved", "fused", "saved-trained"))
        transformers.AutoModelForCausalLM.from_pretrained(hf, dtype="auto").save_pretrained(saved, save_original_format=False)
        given = {"convert": views.rules(self.rules), "hf_config": os.path.join(hf, "config.json"), "view": "huggingface"}
        read = hybrid_cases.read
        problem = compared.export(self, os.path.join(folder, "trained"), fused, {**given, "convert_options": "experts=fused"}) or \
            hybrid_cases.same(read(fused), read(saved)) or \
            compared.export(self, saved, again, self.to_megatron(view="unified")) or hybrid_cases.same(read(again), self.trained)
        return problem and f"experts in one tensor: {problem}" or self.check_cuts(folder, 2) or self.check_refusals(folder)

    def planned(self, name, tensor, rank, tp):
        if name in ("backbone.embeddings.weight", "lm_head.weight") or re.search(r"\.experts\.\d+\.up_proj", name):
            tensor = tensor.chunk(tp)[rank]
        elif re.search(r"\.experts\.\d+\.down_proj", name):
            tensor = tensor.chunk(tp, 1)[rank]
        return megatron_cases.as_value(tensor)

    def check_refusals(self, folder):
        """Neither bridge has latent projections, and no rule has multi-token prediction."""
        path = os.path.join(folder, "hf", "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        for key, why in (("moe_latent_size", "latent projections"), ("num_nextn_predict_layers", "mtp=none")):
            wrong = os.path.join(folder, "wrong.json")
            with open(wrong, "w", encoding="utf-8") as file:
                json.dump({**config, key: 2}, file)
            given = self.to_megatron(view="unified", hf_config=wrong)
            done = compared.run("export", os.path.join(folder, "hf"), os.path.join(folder, "refused"), "-o",
                                ",".join(f"{k}={v}" for k, v in given.items()))
            if done.returncode != 1 or why not in done.stdout:
                return f"{key} is not refused: {done.stdout}"
        return None
