# SPDX-License-Identifier: Apache-2.0
"""Cases of kimi_linear for the family "fused": transformers makes the model, loads it as published, and saves its own form."""
import json
import os
import re

import compared
import hybrid_cases
import torch
import transformers
from safetensors.torch import load_file, save_file


def random_config(rng):
    layers, first = rng.choice([2, 3, 4]), rng.choice([0, 1, 2])
    return {"hidden_size": rng.choice([8, 16]), "num_hidden_layers": layers, "num_attention_heads": 2, "num_key_value_heads": 2,
            "vocab_size": 32, "intermediate_size": rng.choice([6, 8]), "moe_intermediate_size": rng.choice([2, 6]), "num_experts": 4,
            "num_experts_per_token": 2, "kv_lora_rank": rng.choice([4, 6]), "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
            "v_head_dim": rng.choice([2, 4]), "first_k_dense_replace": first, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
            "linear_head_dim": 4, "linear_num_heads": rng.choice([2, 3]), "linear_conv_kernel_dim": rng.choice([2, 4]),
            "layer_types": [rng.choice(["linear_attention", "full_attention"]) for _ in range(layers)],
            "mlp_layer_types": ["dense" if i < first else "sparse" for i in range(layers)]}


class Case:
    def __init__(self, name, rng):
        self.name, self.config, self.rng = name, random_config(rng), rng
        self.says, self.refusal, self.status = "", "", 1

    def describe(self):
        return f"  {self.config}"

    def write(self, folder):
        torch.manual_seed(self.rng.getrandbits(32))
        config = transformers.AutoConfig.for_model("kimi_linear", **self.config)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for tensor in [*model.parameters(), *(b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias"))]:
                tensor.copy_(torch.rand(tensor.shape) - .5)
        at, resaved = os.path.join(folder, "hf"), os.path.join(folder, "resaved")
        model.save_pretrained(at)
        os.makedirs(resaved)
        file = "model.safetensors"
        os.rename(os.path.join(at, file), os.path.join(resaved, file))
        self.tensors = {re.sub(r"block_sparse_moe\.(\w+_proj)", r"mlp.\1", n): t  # as published
                        for n, t in load_file(os.path.join(resaved, file)).items()}
        save_file(self.tensors, os.path.join(at, file), {"format": "pt"})
        self.publish(os.path.join(at, "config.json"))
        with open(os.path.join(at, "config.json"), encoding="utf-8") as have, \
                open(os.path.join(resaved, "config.json"), "w", encoding="utf-8") as out:
            out.write(have.read())
        return at, {}

    def publish(self, path):
        """Half of the configs say what layers are as the published one does."""
        if self.rng.random() < .5:
            return
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        kinds = config.pop("layer_types")
        config["linear_attn_config"] = {
            "head_dim": config.pop("linear_head_dim"), "num_heads": config.pop("linear_num_heads"),
            "short_conv_kernel_size": config.pop("linear_conv_kernel_dim"),
            "kda_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "linear_attention"],
            "full_attn_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "full_attention"]}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)

    def check_oracle(self, folder):
        self.logits = hybrid_cases.logits(os.path.join(folder, "hf"))
        return None if torch.isfinite(self.logits).all() else "the model's numbers are not finite"

    def check_views(self, folder, source, options):
        del source, options
        problem = hybrid_cases.check_experts(self, folder)
        target = os.path.join(folder, "from-resaved")
        problem = problem or compared.export(self, os.path.join(folder, "resaved"), target, {"experts": "fused", "view": "huggingface"})
        return problem or hybrid_cases.same(hybrid_cases.read(target), hybrid_cases.read(os.path.join(folder, "saved"))) or (
            None if torch.equal(hybrid_cases.logits(os.path.join(folder, "fused")), self.logits) else "transformers says something else")
