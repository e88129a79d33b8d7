# SPDX-License-Identifier: Apache-2.0
"""The family "fused": the experts of a layer in one tensor, as transformers 5 keeps them, or a tensor for each.

What transformers loads of one form, and saves in its own, must be what fused() says. Both forms must make the same files of
a training, which other families judge, and those both forms again; experts= turns one into the other. Ready cuts of experts
in one tensor are compared with slices by numpy, and torch.distributed.checkpoint reads them as one folder.
"""
import math
import os
import random

import architectures
import compared
import kimi_cases
import numpy as np
import torch
import torch.distributed.checkpoint as dcp
import transformers
import transformers_cases
import views
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from values import Value

KINDS = ["qwen3_moe", "mixtral", "qwen2_moe", "glm4_moe", "deepseek_v3", "kimi_linear"]
MINDFORMERS = ("qwen3_moe", "deepseek_v3")


def fused(model):
    """name -> Value, as transformers 5 keeps them."""
    out = dict(model.tensors)
    for layer in model.experts():
        at = f"model.layers.{layer}"
        moe, (gate, up, down), _ = model.experts_at(at)
        halves = {part: np.stack([out.pop(f"{moe}.experts.{e}.{part}.weight").data for e in range(model.count())])
                  for part in (gate, up, down)}
        like = out.pop(f"{moe}.gate.weight")
        out[f"{at}.mlp.gate.weight"] = like
        out[f"{at}.mlp.experts.gate_up_proj"] = like.with_data(np.concatenate([halves[gate], halves[up]], axis=1))
        out[f"{at}.mlp.experts.down_proj"] = like.with_data(halves[down])
    return out


def saved_by_transformers(folder, model, target):
    """name -> Value of what transformers saves in its own form of the model in FOLDER."""
    transformers_cases.load(folder, model).save_pretrained(target, save_original_format=False)
    return views.read_safetensors(target)


def read_dcp(folder):
    """name -> Value of all tensors in a folder of torch.distributed.checkpoint."""
    state = {}
    _load_state_dict(state, storage_reader=dcp.FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return {name: Value("BFloat16", tensor.view(torch.int16).numpy().view(np.uint16)) if tensor.dtype == torch.bfloat16
            else Value("Float32", tensor.numpy()) for name, tensor in state.items()}


def slice_of(value, axis, pieces, at, fields=1):
    size = value.data.shape[axis] // fields // pieces
    rows = np.concatenate([np.arange(size) + (field * pieces + at) * size for field in range(fields)])
    return value.with_data(value.data.take(rows, axis))


class Cuts:
    """Random degrees of parallelism of a stage, and what each rank has of the experts."""

    def __init__(self, rng, model):
        rows, groups = model.experts_at("")[2], model.config.get("num_key_value_heads") or model.num_attention_heads
        even = [model.vocab_size, groups, model.num_attention_heads, *([model.intermediate_size] if len(model.dense()) else []),
                *([model.shared_at("")[1]] if model.shared_at("")[1] else [])]
        self.tp = rng.choice([n for n in (1, 2, 3) if all(size % n == 0 for size in even)])
        self.ep = rng.choice([n for n in (1, 2, 3) if model.count() % n == 0])
        self.etp = rng.choice([n for n in (1, 2, 3) if rows % n == 0])
        words = [f"tp{self.tp}", f"ep{self.ep}"]
        if self.ep == 1 and rows % self.tp == 0 and rng.random() < .5:
            self.etp = self.tp
        elif self.tp > 1 or self.etp > 1 or rng.random() < .5:
            words.append(f"etp{self.etp}")
        self.ranks = math.lcm(self.tp, self.ep * self.etp)
        rng.shuffle(words)
        self.given = ",".join(words)

    def experts(self, name, value, rank):
        ep, etp = rank // self.etp % self.ep, rank % self.etp
        mine = slice_of(value, 0, self.ep, ep)
        return slice_of(mine, 1, self.etp, etp, 2) if name.endswith("gate_up_proj") else slice_of(mine, 2, self.etp, etp)


class Case:
    def __init__(self, name, model, rng):
        self.name, self.model, self.rng = name, model, rng
        self.says, self.refusal, self.status = "", "", 1
        self.fused, self.cuts = fused(model), Cuts(rng, model)

    def describe(self):
        return f"  {self.model.describe()}\n  {self.cuts.given}"

    def write(self, folder):
        self.folder, files = folder, self.rng.choice([1, 2])
        views.write_huggingface(os.path.join(folder, "each"), self.model, self.model.tensors, files)
        views.write_huggingface(os.path.join(folder, "fused"), self.model, self.fused, files)
        return os.path.join(folder, "fused"), {}

    def check_oracle(self, folder):
        saved = saved_by_transformers(os.path.join(folder, "each"), self.model, os.path.join(folder, "saved"))
        saved.setdefault("lm_head.weight", self.fused.get("lm_head.weight"))
        return views.tensors_differ({n: v for n, v in saved.items() if v}, self.fused)

    def show(self, source, options, wanted=None):
        """None, or how the whole view differs from WANTED; self.shown is what it has."""
        target = os.path.join(self.folder, f"shown-{len(os.listdir(self.folder))}")
        problem = compared.export(self, os.path.join(self.folder, source), target, options)
        if not problem:
            self.shown, self.target = views.read_safetensors(target), os.path.basename(target)
            problem = wanted and views.tensors_differ(self.shown, wanted)
        return problem and f"{source} with {options}: {problem}"

    def train(self, rules, more):
        """The training's files of both forms, and both forms of them."""
        options = {"convert": rules, "view": "unified", "format": "safetensors", **more}
        problem = self.show("each", options) or self.show("fused", options, self.shown)
        config = os.path.join(self.folder, "each", "config.json")
        back = {"convert": rules, "view": "huggingface", "hf_config": config}
        trained = getattr(self, "target", None)
        return problem or self.show(trained, {**back, **more}, self.model.tensors) or \
            self.show(trained, {**back, **more, "experts": "fused"}, self.fused)

    def check_logits(self):
        """transformers loads the form that it was not saved in."""
        problem = self.show("each", {"experts": "fused", "view": "huggingface"})
        said = problem or [transformers_cases.logits(os.path.join(self.folder, at), self.model) for at in ("each", self.target)]
        return problem or (None if torch.equal(*said) else "transformers says something else with experts=fused")

    def check_cuts(self):
        target = os.path.join(self.folder, "ranks")
        options = {"dst_rules": self.cuts.given, "format": "safetensors"}
        problem = compared.export(self, os.path.join(self.folder, "fused"), target, options)
        for rank in range(0 if problem else self.cuts.ranks):
            have = views.read_safetensors(os.path.join(target, f"rank_{rank}"))
            wanted = {n: self.cuts.experts(n, v, rank) for n, v in self.fused.items() if ".experts." in n and "shared" not in n}
            problem = problem or views.tensors_differ({n: have.get(n) for n in wanted}, wanted)
        back = {"src_rules": self.cuts.given, "hf_config": os.path.join(self.folder, "fused", "config.json"), "view": "unified",
                "format": "safetensors"}
        folder = os.path.join(self.folder, "dcp")
        problem = problem or self.show("ranks", back, self.fused) or \
            compared.export(self, os.path.join(self.folder, "fused"), folder, {"dst_rules": self.cuts.given, "view": "dcp"}) or \
            views.tensors_differ(read_dcp(folder), self.fused)
        return problem and f"{self.cuts.given}: {problem}"

    def check_views(self, folder, source, options):
        del folder, source, options
        kind = self.model.kind
        wanted = {"each": self.model.tensors, "fused": self.fused}
        return next(filter(None, (self.show(of, {"experts": form, "view": "huggingface"}, wanted[form])
                                  for of in wanted for form in wanted)), None) or self.check_logits() or \
            self.train("megatron", self.rng.choice([{}, {"convert_options": "layers=numbered"}])) or \
            (kind in MINDFORMERS and self.train(kind, self.rng.choice([{}, {"convert_options": "experts_axis=own"}]))) or \
            self.check_cuts()


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    kind = KINDS[number % len(KINDS)]
    if kind == "kimi_linear":
        return kimi_cases.Case(f"fused-{seed}-{number}", rng)
    config = architectures.random_config(rng, kind)
    if "num_nextn_predict_layers" in config:  # transformers leaves these layers out
        config["num_nextn_predict_layers"] = 0
    if "first_k_dense_replace" in config:
        config["first_k_dense_replace"] = rng.randrange(config["num_hidden_layers"])
    if config.get("attention_bias") and kind != "glm4_moe":
        config["attention_bias"] = False
    data = np.random.default_rng(rng.getrandbits(64))
    model = architectures.fill(data, config, rng.choice(["BFloat16", "Float32"]), transformers_cases.small_value)
    return Case(f"fused-{seed}-{number}", model, rng)


def without_experts(name):
    """Models and rules without experts have no form of them."""
    rng = random.Random(name)
    model = architectures.fill(np.random.default_rng(1), architectures.random_config(rng, "qwen3"), "BFloat16")

    class Refused(Case):
        def __init__(self):
            self.name, self.model, self.rng, self.fused = name, model, rng, {}
            self.says, self.refusal, self.status = "", "", 1

        def describe(self):
            return f"  {self.model.describe()}"

        def check_oracle(self, folder):
            return None

        def check_views(self, folder, source, options):
            for given, why in (({"experts": "fused"}, "is for a model of type 'qwen3'"),
                               ({"experts": "each", "convert": "qwen3", "view": "unified"}, "rules qwen3 know of none")):
                problem = self.show("each", given)
                if why not in (problem or ""):
                    return f"{given}: {problem or 'is not refused'}"
            return None

    return Refused()


# Models of transformers whose two forms no other case has, and what their configs need besides.
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4}
SAVED = {"minimax": {}, "qwen3_next": {"mlp_only_layers": []}, "qwen3_5_moe": {}, "glm4_moe_lite": LATENT, "glm4v_moe": {},
         "deepseek_v2": LATENT, "afmoe": {}, "beam": {}, "cohere2_moe": {}, "dots1": {}, "ernie4_5_moe": {"moe_layer_interval": 2},
         "exaone_moe": {}, "flex_olmo": {}, "hunyuan_v1_moe": {}, "mellum": {}, "olmoe": {}, "solar_open": {}}
SIZES = {"hidden_size": 16, "intermediate_size": 12, "moe_intermediate_size": 6, "shared_expert_intermediate_size": 4,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32, "pad_token_id": 0,
         "first_k_dense_replace": 1, "num_dense_layers": 2, "n_routed_experts": 4, "num_experts": 4, "num_local_experts": 4,
         "moe_num_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 4}
VISION = {"depth": 1, "hidden_size": 8, "intermediate_size": 12, "num_heads": 2, "patch_size": 2, "out_hidden_size": 16,
          "num_position_embeddings": 16, "spatial_merge_size": 2, "image_size": 8}


class Saved(Case):
    """A model that transformers has made, and has saved in both forms: each must make the other."""

    def __init__(self, name):
        self.name, self.kind, self.says, self.refusal, self.status = name, name.removeprefix("fused-saved-"), "", "", 1

    def describe(self):
        return f"  {self.kind}"

    def write(self, folder):
        self.folder, known = folder, transformers.AutoConfig.for_model(self.kind)
        sizes = {**{k: v for k, v in SIZES.items() if hasattr(known.get_text_config(), k)}, **SAVED[self.kind]}
        images = hasattr(known, "text_config")
        config = type(known)(**({"text_config": sizes, "vision_config": VISION} if images else sizes))
        of = transformers.AutoModelForMultimodalLM if images else transformers.AutoModelForCausalLM
        torch.manual_seed(1)
        model = of.from_config(config, dtype=torch.bfloat16)
        for parameter in model.parameters():
            parameter.data.copy_(torch.randn(parameter.shape))
        model.save_pretrained(os.path.join(folder, "each"))
        model.save_pretrained(os.path.join(folder, "fused"), save_original_format=False)
        return folder, {}

    def check_oracle(self, folder):
        self.saved = {form: views.read_safetensors(os.path.join(folder, form)) for form in ("each", "fused")}
        fused = [n for n in self.saved["fused"] if n.endswith(".mlp.experts.gate_up_proj")]
        return None if fused and not set(fused) & set(self.saved["each"]) else "transformers saves one form"

    def check_views(self, folder, source, options):
        del folder, source, options
        return next(filter(None, (self.show(of, {"experts": form, "view": "huggingface"}, self.saved[form])
                                  for of in self.saved for form in self.saved)), None)


FIXED = {"fused-without-experts": without_experts, **{f"fused-saved-{kind}": Saved for kind in SAVED}}


def prepare():
    torch.set_num_threads(1)
    transformers_cases.prepare()
