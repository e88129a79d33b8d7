# SPDX-License-Identifier: Apache-2.0
"""The family "fused": the experts of a layer in one tensor, as transformers 5 keeps them, or a tensor for each.

What transformers loads of one form, and saves in its own, must be what fused() says. Both forms must make the same files of
a training, which other families judge, and those both forms again; experts= turns one into the other. Ready cuts of experts
in one tensor are compared with slices by numpy, and torch.distributed.checkpoint reads them as one folder.
"""
import json
import math
import os
import random
import re
import shutil

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
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as qwen3_omni_moe
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
            self.train("megatron", {"convert_options": "layers=singleton"}) or \
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
         "exaone_moe": {}, "flex_olmo": {}, "hunyuan_v1_moe": {}, "mellum": {}, "olmoe": {}, "solar_open": {}, "mimo_v2_flash": {},
         "flint": {}, "hy_v3": {}, "laguna": {}, "axk1": LATENT, "axk2": LATENT, "kolibri1": {}, "phimoe": {}, "qwen3_5_moe_text": {}}
LISTS = "mlp_layer_types", "layer_types", "mlp_only_layers"
BY_DEFAULT = "beam", "glm4_moe_lite", "mimo_v2_flash", "flint", "hy_v3", "laguna", "axk1", "axk2"
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
        self.publish()
        return folder, {}

    def publish(self):
        """The same without lists of the kinds of layers in the config, if transformers knows them without: self.forms tells."""
        each, published = (os.path.join(self.folder, name) for name in ("each", "published"))
        shutil.copytree(each, published)
        with open(os.path.join(each, "config.json"), encoding="utf-8") as file:
            config = {k: v for k, v in json.load(file).items() if k not in LISTS}
        with open(os.path.join(published, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        said = [transformers.AutoConfig.from_pretrained(at).to_dict() for at in (each, published)]
        self.forms = {"each": "each", "fused": "fused", **({"published": "each"} if all(
            said[0].get(name) == said[1].get(name) for name in LISTS) else {})}

    def check_oracle(self, folder):
        self.saved = {form: views.read_safetensors(os.path.join(folder, form)) for form in ("each", "fused")}
        if self.kind in BY_DEFAULT and "published" not in self.forms:
            return "transformers knows other layers without the lists"
        fused = [n for n in self.saved["fused"] if n.endswith(".mlp.experts.gate_up_proj")]
        return None if fused and not set(fused) & set(self.saved["each"]) else "transformers saves one form"

    def check_views(self, folder, source, options):
        del folder, source, options
        return next(filter(None, (self.show(of, {"experts": form, "view": "huggingface"}, self.saved[form])
                                  for of in getattr(self, "forms", self.saved) for form in self.saved)), None) or \
            self.check_scales()

    def check_scales(self):
        """A scale would stay by the name of a weight that is there no longer."""
        of = {"fused": next(n for n in self.saved["each"] if re.search(r"\.experts\.\d+\.\w+\.weight$", n)),
              "each": next(n for n in self.saved["fused"] if n.endswith(".experts.down_proj"))}
        for form, weight in of.items():
            scaled, source = os.path.join(self.folder, f"scaled-{form}"), "each" if form == "fused" else "fused"
            shutil.copytree(os.path.join(self.folder, source), scaled)
            views.write_tensors(os.path.join(scaled, "model.safetensors"),
                                {**self.saved[source], f"{weight}_scale_inv": Value("Float32", np.ones((1, 1), np.float32))})
            problem = self.show(os.path.basename(scaled), {"experts": form, "view": "huggingface"})
            if f"parameter '{weight}_scale_inv': " not in (problem or "") or "-o dequantize" not in problem:
                return f"a scale is kept: {problem}"
        return None


OMNI_TEXT = {**{k: v for k, v in SIZES.items() if k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
                                                      "head_dim", "vocab_size", "num_experts_per_tok", "pad_token_id")},
             "moe_intermediate_size": 8, "num_hidden_layers": 2, "num_experts": 4}
TALKER_TEXT = {**OMNI_TEXT, "moe_intermediate_size": 4, "num_experts": 2, "num_hidden_layers": 3, "shared_expert_intermediate_size": 8}
OMNI = {"text_config": OMNI_TEXT, "vision_config": {**VISION, "depth": 2, "deepstack_visual_indexes": [0]},
        "audio_config": {"d_model": 8, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 8, "num_mel_bins": 16,
                         "output_dim": 16, "downsample_hidden_size": 4, "max_source_positions": 16}}
TALKER = {"text_config": TALKER_TEXT, "thinker_hidden_size": 16, "num_code_groups": 2, "spatial_merge_size": 2,
          "code_predictor_config": {**{k: v for k, v in OMNI_TEXT.items() if "expert" not in k and "moe" not in k},
                                    "num_hidden_layers": 1, "num_code_groups": 2}}
CODE2WAV = {"codebook_size": 8, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 16,
            "num_hidden_layers": 1, "num_quantizers": 2, "decoder_dim": 16, "upsample_rates": [2], "upsampling_ratios": [2]}


class Omni(Saved):
    """Qwen3-Omni: the whole of it, without what speaks, its thinker and its text."""

    def write(self, folder):
        self.folder, kind = folder, self.name.removeprefix("fused-saved-")
        configs = {"qwen3_omni_moe": {"thinker_config": OMNI, "talker_config": TALKER, "code2wav_config": CODE2WAV},
                   "qwen3_omni_moe-silent": {"thinker_config": OMNI, "enable_audio_output": False},
                   "qwen3_omni_moe_thinker": OMNI, "qwen3_omni_moe_text": OMNI_TEXT}
        of = {"qwen3_omni_moe_thinker": transformers.Qwen3OmniMoeThinkerForConditionalGeneration,
              "qwen3_omni_moe_text": qwen3_omni_moe.Qwen3OmniMoeThinkerTextModel}.get(
                  kind, transformers.Qwen3OmniMoeForConditionalGeneration)
        torch.manual_seed(3)
        model = of(of.config_class(**configs[kind])).to(torch.bfloat16)
        for parameter in model.parameters():
            parameter.data.copy_(torch.randn(parameter.shape))
        model.save_pretrained(os.path.join(folder, "each"))
        model.save_pretrained(os.path.join(folder, "fused"), save_original_format=False)
        return folder, {}


OMNI_KINDS = "qwen3_omni_moe", "qwen3_omni_moe-silent", "qwen3_omni_moe_thinker", "qwen3_omni_moe_text"
LONGCAT = {"hidden_size": 16, "ffn_hidden_size": 12, "expert_ffn_hidden_size": 6, "num_layers": 2, "num_attention_heads": 4,
           "vocab_size": 32, "head_dim": 4, "n_routed_experts": 4, "moe_topk": 2, **LATENT}


class Longcat(Saved):
    """longcat_flash, with experts that compute nothing, or without."""

    def write(self, folder):
        self.folder, self.nothing = folder, 0 if self.name.endswith("-plain") else 3
        torch.manual_seed(4)
        config = transformers.LongcatFlashConfig(**LONGCAT, zero_expert_num=self.nothing)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        for parameter in model.parameters():
            parameter.data.copy_(torch.randn(parameter.shape) * 0.3)
        model.save_pretrained(os.path.join(folder, "saved"))
        model.save_pretrained(os.path.join(folder, "fused"), save_original_format=False)
        os.makedirs(os.path.join(folder, "each"))
        views.write_tensors(os.path.join(folder, "each", "model.safetensors"),  # as they are published
                            {n: v for n, v in views.read_safetensors(os.path.join(folder, "saved")).items()
                             if not re.search(r"experts\.[456]\.", n)})
        shutil.copy(os.path.join(folder, "saved", "config.json"), os.path.join(folder, "each"))
        return folder, {}

    def check_views(self, folder, source, options):
        del folder, source, options
        rows = {n: np.arange(v.shape[0]) < 4 for n, v in self.saved["fused"].items() if n.endswith("gate_up_proj")}
        zeros = {n: v.with_data(np.where(rows[n][:, None, None], v.data, 0).astype(v.data.dtype)) if n in rows else v
                 for n, v in self.saved["fused"].items()}
        problem = self.show("each", {"experts": "fused", "view": "huggingface"}, zeros)
        if problem or not torch.equal(said_alone(os.path.join(self.folder, self.target)), said_alone(os.path.join(self.folder, "fused"))):
            return problem or "transformers says something else with experts=fused"
        problem = self.show("fused", {"experts": "each", "view": "huggingface"}, self.saved["each"])
        refused = self.show("saved", {"experts": "fused", "view": "huggingface"})
        return problem or (None if bool(self.nothing) == ("is taken by no rule" in (refused or "")) else
                           f"what transformers saves with {self.nothing}: {refused}")


def said_alone(at):
    """What a model says whose weights have all been in the folder; None: it lacks some, or they have more."""
    loaded, told = transformers.AutoModelForCausalLM.from_pretrained(at, dtype="auto", output_loading_info=True,
                                                                     experts_implementation="eager")
    with torch.no_grad():
        return None if any(told.values()) else loaded.eval()(torch.arange(24)[None]).logits


# What published files of deepseek_v4 name otherwise than save_pretrained of transformers does.
PUBLISHED = {"model.embed_tokens.weight": "embed.weight", "model.norm.weight": "norm.weight", "model.hc_head.hc_fn": "hc_head_fn",
             "model.hc_head.hc_base": "hc_head_base", "model.hc_head.hc_scale": "hc_head_scale"}
V4 = {"hidden_size": 16, "moe_intermediate_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1,
      "head_dim": 8, "vocab_size": 32, "q_lora_rank": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "o_groups": 2,
      "o_lora_rank": 4, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 4, "sliding_window": 8, "partial_rotary_factor": 0.5,
      "num_nextn_predict_layers": 1, "pad_token_id": 0}
V4_LAYERS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


class DeepseekV4(Saved):
    """deepseek_v4 in its published names, with configs of both kinds, and a layer of multi-token prediction, which stays."""

    def write(self, folder):
        self.folder, ratios = folder, [0, 4, 128, 4]
        config = transformers.DeepseekV4Config(**V4, layer_types=[V4_LAYERS[ratio] for ratio in ratios],
                                               mlp_layer_types=["hash_moe", "hash_moe", "moe", "moe"])
        torch.manual_seed(2)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        for name, tensor in model.state_dict().items():
            tensor.copy_(torch.randint(4, tensor.shape) if name.endswith("tid2eid") else torch.randn(tensor.shape) * 0.3)
        model.save_pretrained(os.path.join(folder, "each"))
        model.save_pretrained(os.path.join(folder, "fused"), save_original_format=False)
        self.published = {re.sub(r"\.attn\.norm\.", ".attn.kv_norm.", PUBLISHED.get(name, name.removeprefix("model."))): value
                          for name, value in views.read_safetensors(os.path.join(folder, "each")).items()}
        self.predicted = {"mtp.0.ffn.experts.0.w1.weight": self.published["layers.0.ffn.experts.0.w1.weight"]}
        with open(os.path.join(folder, "each", "config.json"), encoding="utf-8") as file:
            self.config = {k: v for k, v in json.load(file).items() if k not in ("layer_types", "mlp_layer_types", "compress_rates")}
        self.config |= {"compress_ratios": [*ratios, 0], "num_hash_layers": 2}
        self.put("published", self.predicted)
        self.put("alone")
        return folder, {}

    def put(self, name, more=()):
        """A folder with the published tensors and MORE."""
        os.makedirs(os.path.join(self.folder, name))
        views.write_tensors(os.path.join(self.folder, name, "model.safetensors"), {**self.published, **dict(more)})
        with open(os.path.join(self.folder, name, "config.json"), "w", encoding="utf-8") as file:
            json.dump(self.config, file)

    def said(self, at):
        return said_alone(os.path.join(self.folder, at))

    def check_views(self, folder, source, options):
        del folder, source, options
        for at, more in ("each", {}), ("published", self.predicted), ("fused", {}):
            problem = self.show(at, {"experts": "fused", "view": "huggingface"}, {**self.saved["fused"], **more})
            if problem or not torch.equal(self.said(self.target), self.said(at)):
                return problem or f"transformers says something else with experts=fused of {at}"
        problem = self.show("fused", {"experts": "each", "view": "huggingface"}, self.published)
        if problem or not torch.equal(self.said(self.target), self.said("fused")):
            return problem or "transformers says something else with experts=each"
        return self.check_plan() or self.check_refused()

    def check_plan(self):
        """Ranks have what the plan of transformers says; it has none of the embedding, which is cut by vocabulary."""
        plan = {re.escape("model." + name).replace(r"\*", r"\d+"): style
                for name, style in transformers.DeepseekV4Config.base_model_tp_plan.items()}
        plan |= {"lm_head": transformers.DeepseekV4ForCausalLM._tp_plan["lm_head"], r"model\.embed_tokens": "colwise"}
        target = os.path.join(self.folder, "ranks")
        problem = compared.export(self, os.path.join(self.folder, "published"), target,
                                  {"experts": "fused", "drop_source": "mtp.*", "dst_rules": "tp2,ep2,etp2,pp2", "format": "safetensors"})
        for rank in range(0 if problem else 8):
            tp, ep, etp, wanted = rank % 2, rank // 2 % 2, rank % 2, {}
            for name, value in self.saved["fused"].items():
                layer = re.match(r"model\.layers\.(\d+)", name)
                if (int(layer[1]) // 2 if layer else int("embed" not in name)) != rank // 4:
                    continue
                style = next((style for key, style in plan.items() if re.fullmatch(key + r"(\.weight)?", name)), "")
                if ".experts." in name and "shared" not in name:
                    mine = slice_of(value, 0, 2, ep)
                    wanted[name] = slice_of(mine, 1, 2, etp, 2) if style == "packed_colwise" else slice_of(mine, 2, 2, etp)
                else:
                    wanted[name] = slice_of(value, 0, 2, tp) if style.startswith("colwise") else value
            problem = problem or views.tensors_differ(views.read_safetensors(os.path.join(target, f"rank_{rank}")), wanted)
        return problem

    def check_refused(self):
        """What no program says is refused: a scale beside a weight, and cuts of published names."""
        self.put("scaled", {"layers.0.attn.wkv.scale": self.published["norm.weight"]})
        for at, given, why in (("scaled", {"experts": "fused"}, "is taken by no rule"),
                               ("alone", {"dst_rules": "tp2"}, "no ready cut is known for it"),
                               ("published", {"experts": "fused", "dst_rules": "tp2"}, "no ready cut is known for it")):
            problem = self.show(at, given)
            if why not in (problem or ""):
                return f"{at} with {given}: {problem or 'is not refused'}"
        return None


class Llama4(Saved):
    """llama4 with its tower: no forms of experts, but ready cuts, which must be what the plan of the real model says."""

    def write(self, folder):
        self.folder = folder
        torch.manual_seed(5)
        text = {"hidden_size": 16, "intermediate_size": 8, "intermediate_size_mlp": 12, "num_hidden_layers": 4, "num_attention_heads": 4,
                "num_key_value_heads": 4, "head_dim": 4, "vocab_size": 32, "num_local_experts": 4, "num_experts_per_tok": 1,
                "interleave_moe_layer_step": 2, "pad_token_id": 0}
        tower = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vision_output_dim": 8,
                 "image_size": 16, "patch_size": 4, "projector_input_dim": 8, "projector_output_dim": 8}
        model = transformers.Llama4ForConditionalGeneration(transformers.Llama4Config(text_config=text, vision_config=tower))
        for parameter in model.parameters():
            parameter.data.copy_(torch.randn(parameter.shape))
        model.to(torch.bfloat16).save_pretrained(os.path.join(folder, "whole"))
        self.plan = {re.escape(name).replace(r"\*", r"\d+"): style for name, style in model.tp_plan.items()}
        return folder, {}

    def check_oracle(self, folder):
        self.whole = views.read_safetensors(os.path.join(folder, "whole"))
        return None if "language_model.model.layers.1.feed_forward.experts.gate_up_proj" in self.whole else "no experts are saved"

    def mine(self, name, value, rank):
        """What a rank of two has. The bias of a column is cut with it, and that of a row is whole."""
        module, bias = name.removesuffix(".weight").removesuffix(".bias"), name.endswith(".bias")
        style = next((style for key, style in self.plan.items() if re.fullmatch(key, module)), "")
        if style == "packed_rowwise":
            return slice_of(value, value.data.ndim - 1, 2, rank, 2)
        if style.startswith("colwise"):
            return slice_of(value, 0 if bias else value.data.ndim - 2, 2, rank)
        if style == "embedding_rowwise":  # by vocabulary
            return slice_of(value, 0, 2, rank)
        return slice_of(value, value.data.ndim - 1, 2, rank) if style == "rowwise" and not bias else value

    def check_views(self, folder, source, options):
        del folder, source, options
        target = os.path.join(self.folder, "ranks")
        problem = compared.export(self, os.path.join(self.folder, "whole"), target, {"dst_rules": "tp2,pp2", "format": "safetensors"})
        for rank in range(0 if problem else 4):
            first = {n: int(m[1]) < 2 if (m := re.match(r"language_model\.model\.layers\.(\d+)", n)) else
                     not n.startswith(("language_model.lm_head", "language_model.model.norm")) for n in self.whole}
            wanted = {n: self.mine(n, v, rank % 2) for n, v in self.whole.items() if first[n] == (rank < 2)}
            problem = problem or views.tensors_differ(views.read_safetensors(os.path.join(target, f"rank_{rank}")), wanted)
        for words, why in ("tp4", "vision_config.num_attention_heads is 2"), ("tp2,ep2,etp1", "is cut over ep"):
            refused = self.show("whole", {"dst_rules": words})
            if not problem and why not in (refused or ""):
                problem = f"{words}: {refused or 'is not refused'}"
        return problem


FIXED = {"fused-cut-llama4": Llama4, "fused-deepseek_v4": DeepseekV4, "fused-without-experts": without_experts, **{f"fused-saved-{kind}": Saved for kind in SAVED},
         **{f"fused-saved-{kind}": Omni for kind in OMNI_KINDS},
         "fused-longcat_flash": Longcat, "fused-longcat_flash-plain": Longcat}


def prepare():
    torch.set_num_threads(1)
    transformers_cases.prepare()
