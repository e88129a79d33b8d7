# SPDX-License-Identifier: Apache-2.0
"""The family "adapters": LoRA of Megatron-Bridge on Megatron-Core's GPT, which PEFT loads for HuggingFace's model.

Megatron's own ranks say what each of them saves, and torch.distributed.checkpoint writes it. Megatron's GPT with the adapters,
and HuggingFace's model with what PEFT loads from the view, must say the same.
"""
import json
import logging
import os
import random
import warnings

import adapters
import architectures
import compared
import dcp_program
import megatron_gpt
import numpy as np
import peft_saves
import torch
import training_names
import transformers_cases
import views
from megatron_cases import DTYPES, as_tensor, as_value

FIXED = dict(peft_saves.FIXED)
KINDS = ["qwen3", "llama", "qwen2", "mistral", "qwen3_moe", "mixtral", "qwen2_moe"]
TARGETS = [list(adapters.LINEAR), ["linear_qkv", "linear_proj"], ["linear_fc1", "linear_fc2"], ["linear_qkv"]]
CANONICAL = {"linear_qkv": ["linear_q", "linear_k", "linear_v"], "linear_fc1": ["linear_fc1_gate", "linear_fc1_up"]}


class Case:
    def __init__(self, name, model, rng, targets=None, rank=None, **options):
        self.name, self.model, self.rng, self.options = name, model, rng, options
        self.targets = targets or rng.choice(TARGETS)
        self.rank, self.alpha = rank or rng.choice([1, 2, 3, 4, 4, 8]), rng.choice([1, 6, 16])
        self.dtype = rng.choice(["Float32", "BFloat16"])
        fitting = [n for n in (1, 2, 3, 4) if self.divides(n)]
        self.tp = rng.choice([*fitting, fitting[-1], fitting[-1]])
        self.world = rng.choice([1, 2])
        self.says, self.refusal, self.status, self.damage = "", "", 1, lambda: None

    def divides(self, n):
        m = self.model
        groups = m.config.get("num_key_value_heads") or m.num_attention_heads
        shared = m.config.get("shared_expert_intermediate_size", 0) // 2  # Megatron asks for even halves
        # Of linear_proj and linear_fc2 Megatron-Bridge cuts the second factor, too.
        return not any(size % n for size in (groups, m.hidden_size, m.intermediate_size, m.vocab_size, self.rank, shared))

    def describe(self):
        return (f"  {self.model.describe()}\n  {self.targets} of rank {self.rank}, alpha {self.alpha}, {self.dtype}, {self.options}, "
                f"{self.tp} tensor parallel rank(s)")

    def canonical(self):
        return self.options.get("lora") == "canonical"

    def convert(self):
        words = {**self.options, **{linear: "plain" for linear in adapters.LINEAR if linear not in self.targets and
                                    not (self.model.kind in architectures.SPARSE and linear.startswith("linear_fc"))}}
        given = {"convert": views.rules("megatron_lora"), "hf_config": self.config}
        return {**given, "convert_options": ":".join(f"{k}={v}" for k, v in words.items())} if words else given

    def megatron(self):
        """Megatron's GPT with its adapters."""
        targets = [t for linear in self.targets for t in (CANONICAL.get(linear, [linear]) if self.canonical() else [linear])]
        make = megatron_gpt.bridge()[self.canonical()]
        return make(target_modules=targets, dim=self.rank, alpha=self.alpha)(megatron_gpt.build(self.model), training=False)

    def fill(self):
        """Gives the adapters values, and asks Megatron what it says with them."""
        data = np.random.default_rng(self.rng.getrandbits(64))
        base = training_names.make(training_names.Megatron, self.model, architectures.repeated(self.model), layers="numbered",
                                   transformer_impl="local")
        with megatron_gpt.running():
            real = self.megatron()
            self.numbered = {name: transformers_cases.small_value(data, self.dtype, tuple(parameter.shape))
                             for name, parameter in real.named_parameters() if ".adapter." in name}
            weights = {name: as_tensor(value).float() for name, value in {**base, **self.numbered}.items()}
            self.said = megatron_gpt.logits(real, weights, self.model)

    def part(self, name, parameter, rank):
        """What a tensor parallel rank has of an adapter's tensor: of gate and up, fused, its part of each."""
        full = as_tensor(self.numbered[name]).float()
        if full.shape == parameter.shape:
            return full
        blocks = full.chunk(2) if name.endswith("linear_fc1.adapter.linear_out.weight") else [full]
        return torch.cat([block.chunk(self.tp, parameter.partition_dim)[rank] for block in blocks])

    def save(self):
        """Has all of Megatron's ranks say where in which tensors they save theirs."""
        self.saved, self.boxes, self.parts = {}, {}, [{} for _ in range(self.tp)]
        for rank in range(self.tp):
            with megatron_gpt.running(rank, self.tp, self.tp), torch.no_grad():
                real = self.megatron()
                for name, parameter in real.named_parameters():
                    if ".adapter." in name:
                        parameter.copy_(self.part(name, parameter, rank))
                        self.parts[rank][name] = as_value(parameter.detach().clone().to(DTYPES[self.dtype]))
                for key, box, data in megatron_gpt.pieces(real, self.options.get("layers") == "numbered"):
                    if ".adapter." in key:
                        self.boxes.setdefault(key, {})[box] = data.clone()
        for key, boxes in self.boxes.items():
            shape = [max(a + n for a, n in axis) for axis in zip(*(zip(*box) for box in boxes))]
            full = torch.full(shape, torch.nan)
            for (offset, sizes), data in boxes.items():
                full[tuple(slice(a, a + n) for a, n in zip(offset, sizes))] = data.reshape(sizes)
            assert not full.isnan().any(), f"Megatron's ranks save a part of {key}"
            self.saved[key] = as_value(full.to(DTYPES[self.dtype]))

    def write(self, folder):
        self.config = os.path.join(folder, "hf", "config.json")
        views.write_huggingface(os.path.join(folder, "hf"), self.model, self.model.tensors)
        self.fill()
        self.save()
        self.damage()
        items = {}
        for name, value in self.saved.items():
            full = as_tensor(value)
            items[(name,)] = dcp_program.Boxes(full, sorted(self.boxes[name]))
            items[(f"optimizer.state.exp_avg.{name}",)] = dcp_program.Plain(full.float())
        source = os.path.join(folder, "trained")
        iteration = os.path.join(source, "iter_0000005")
        dcp_program.save(iteration, self.world, items)
        with open(os.path.join(iteration, "metadata.json"), "w", encoding="utf-8") as out:
            json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}, out)
        torch.save({"iteration": 5}, os.path.join(iteration, "common.pt"))
        with open(os.path.join(source, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as out:
            out.write("5")
        return source, {**self.convert(), "view": "peft", "lora_alpha": self.alpha}

    def wanted(self):
        """name -> Value of PEFT's tensors."""
        out = {}
        for layer in self.model.layers():
            for linear in self.targets:
                at = f"{adapters.base(layer, linear)}.adapter"
                for part in adapters.PARTS[linear] if self.canonical() and linear in CANONICAL else ():
                    for half, name in (("A", "linear_in"), ("B", "linear_out")):
                        out[adapters.peft_name(layer, linear, part, half)] = self.numbered[f"{at}.adapter_{part}.{name}.weight"]
                if f"{at}.linear_in.weight" in self.numbered:
                    out.update(adapters.as_peft(self.model, linear, layer, self.numbered[f"{at}.linear_in.weight"],
                                                self.numbered[f"{at}.linear_out.weight"], {}))
        return out

    def check_oracle(self, folder):
        """Without adapters the models say something else."""
        plain = transformers_cases.logits(os.path.join(folder, "hf"), self.model, torch.float32)
        return None if (plain - self.said).abs().max() > 1e-3 else "the adapters change nothing"

    def check_views(self, folder, source, options):
        target = os.path.join(folder, "as-peft")
        problem = views.check(self, source, target, options, lambda shown: self.shown_differs(folder, shown))
        if problem or self.refusal:
            return problem and f"to PEFT: {problem}"
        problem = views.check(self, target, os.path.join(folder, "as-trained"), {**self.convert(), "format": "pt"},
                              self.trained_differs)
        return f"from PEFT: {problem}" if problem else self.ranks_differ(source, os.path.join(folder, "as-ranks"))

    def ranks_differ(self, source, target):
        """Ready cuts give each tensor parallel rank what Megatron's own have."""
        if self.options.get("layers") != "numbered":
            return None
        given = {"only": "decoder.*", "dst_rules": f"tp{self.tp}", "hf_config": self.config, "format": "safetensors"}
        problem = compared.export(self, source, target, given)
        for rank, wanted in enumerate(self.parts):
            at = os.path.join(target, f"rank_{rank}")
            problem = problem or views.tensors_differ(views.read_safetensors(at), wanted)
        return problem and f"as ranks: {problem}"

    def shown_differs(self, folder, shown):
        wanted = self.wanted()
        return adapters.differs(shown, wanted, self.rank, self.alpha) or self.loaded_differs(folder, shown, wanted)

    def loaded_differs(self, folder, shown, wanted):
        """None, or how what PEFT loads differs."""
        import peft

        base = transformers_cases.load(os.path.join(folder, "hf"), self.model, torch.float32)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            loaded = peft.PeftModel.from_pretrained(base, shown)
        if any("adapter" in str(one.message) for one in said):
            return f"PEFT says {[str(one.message) for one in said]}"
        have = {n: as_value(t) for n, t in peft.get_peft_model_state_dict(loaded).items()}
        problem = views.tensors_differ(have, {n: as_value(as_tensor(v).float()) for n, v in wanted.items()})
        most = (transformers_cases.said(loaded, self.model) - self.said).abs().max().item()
        return f"PEFT loads another adapter: {problem}" if problem else \
            f"Megatron's GPT says something else than HuggingFace's model with PEFT, up to {most}" if most > 1e-4 else None

    def trained_differs(self, shown):
        found = [os.path.join(base, n) for base, _, names in os.walk(shown) for n in names if n.endswith(".pt")]
        return views.tensors_differ({n: as_value(t) for path in found for n, t in torch.load(path).items()}, self.saved)


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    config = architectures.random_config(rng, KINDS[number % len(KINDS)])
    while rng.random() < 0.9 and ((config["num_key_value_heads"] or 1) % 2 or config["vocab_size"] % 2):  # for two ranks
        config = architectures.random_config(rng, KINDS[number % len(KINDS)])
    if "attention_bias" in config:
        config["attention_bias"] = False
    if "num_experts_per_tok" in config:
        config["num_experts_per_tok"] = 2
    model = architectures.fill(np.random.default_rng(rng.getrandbits(64)), config, "Float32", transformers_cases.small_value)
    options = {"layers": "numbered"} if rng.random() < 0.4 else {}
    sparse = config["model_type"] in architectures.SPARSE
    targets = rng.choice([["linear_qkv", "linear_proj"], ["linear_proj"]]) if sparse else None
    if rng.random() < 0.3:
        options["lora"], targets = "canonical", rng.choice([["linear_qkv"], ["linear_qkv", "linear_proj"]])
    return Case(f"adapters-{seed}-{number}", model, rng, targets, **options)


def prepare():
    logging.disable(logging.INFO)
    transformers_cases.prepare()


def fixed(function):
    FIXED["adapters-" + function.__name__.replace("_", "-")] = function
    return function


def small(name, targets=None, kind="qwen3", **options):
    rng = random.Random(0)
    config = architectures.random_config(rng, kind)
    config.update({"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
                   "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 12, "tie_word_embeddings": False, "attention_bias": False})
    model = architectures.fill(np.random.default_rng(1), config, "Float32", transformers_cases.small_value)
    return Case(name, model, rng, targets or list(adapters.LINEAR), 4, **options)


def refuse(case, *parts, source=None, **changed):
    """What the view must say when SOURCE has changed the tensors, and with other options; None takes one away."""
    case.refusal = parts
    case.check_oracle = lambda folder: None

    def damage():
        case.saved = source(dict(case.saved))
        case.boxes = {n: [((0,) * len(v.shape), v.shape)] for n, v in case.saved.items()}
    case.damage = damage if source else case.damage
    check = case.check_views
    case.check_views = lambda folder, at, options: check(
        folder, at, {k: v for k, v in {**options, **changed}.items() if v is not None})
    return case


def without(*ends):
    return lambda tensors: {n: v for n, v in tensors.items() if not n.endswith(ends)}


@fixed
def two_ranks(name):
    """Each tensor parallel rank has a part of every adapter."""
    case = small(name)
    case.tp = 2
    return case


@fixed
def numbered_ranks(name):
    """The cuts of each tensor, with names that stages can cut, too."""
    case = small(name, layers="numbered")
    case.tp = 2
    return case


@fixed
def canonical_ranks(name):
    case = small(name, ["linear_qkv", "linear_proj"], layers="numbered", lora="canonical")
    case.tp = 2
    return case


@fixed
def half_a_pair(name):
    """The save has linear_in of a layer alone."""
    return refuse(small(name), "parameter 'decoder.layers.mlp.linear_fc2.adapter.linear_out.weight': is not in",
                  source=without("linear_fc2.adapter.linear_out.weight"))


@fixed
def half_of_the_names(name):
    """The user leaves the other half out."""
    return refuse(small(name), "q_proj.lora_A.weight': is half of a pair, and 'base_model.model.", "lora_B.weight' is not there",
                  only="*q_proj.lora_A*")


@fixed
def other_ranks(name):
    """One layer has adapters of another rank."""
    def cut(tensors):
        for end, at in (("linear_in", (slice(None), slice(0, 2))), ("linear_out", (slice(None), slice(None), slice(0, 2)))):
            key = f"decoder.layers.mlp.linear_fc2.adapter.{end}.weight"
            tensors[key] = tensors[key].with_data(np.ascontiguousarray(tensors[key].data[at]))
        return tensors
    return refuse(small(name), "has rank 4, and 'base_model.model.model.layers.0.mlp.down_proj.lora_A.weight' has rank 2", source=cut)


@fixed
def halves_of_two_ranks(name):
    """The halves of a pair do not fit."""
    def cut(tensors):
        key = "decoder.layers.self_attention.linear_proj.adapter.linear_in.weight"
        tensors[key] = tensors[key].with_data(np.ascontiguousarray(tensors[key].data[:, :2]))
        return tensors
    return refuse(small(name), "o_proj.lora_A.weight': has rank 2, and", "has rank 4", source=cut)


@fixed
def no_alpha(name):
    """Nothing says the scale."""
    case = refuse(small(name), "view=peft needs the lora_alpha of the adapter, which is in no tensor", "try: lora_alpha=N",
                  lora_alpha=None)
    case.status = 2
    return case


@fixed
def other_heads(name):
    """A config with other groups."""
    case = refuse(small(name), "linear_qkv.adapter.linear_out.weight': has shape [2, 32, 4], but the rule makes [2, 24, _]")
    write = case.write

    def with_config(folder):
        made = write(folder)
        views.write_config(case.config, case.model.config, num_key_value_heads=1)
        return made
    case.write = with_config
    return case


@fixed
def a_part_of_the_layers(name):
    """Without the options for what has no adapter, which the message has."""
    case = refuse(small(name, ["linear_qkv", "linear_proj"]),
                  "try: convert_options=linear_fc1=plain:linear_fc2=plain, by which the rules fit", convert_options=None)
    return case


@fixed
def as_a_model(name):
    """An adapter is no model."""
    case = refuse(small(name), "view=huggingface is for a model, and the rules make an adapter; try: view=peft",
                  view="huggingface", lora_alpha=None)
    case.status = 2
    return case


@fixed
def adapters_of_experts(name):
    """Those of a model's experts are in no rule."""
    def more(tensors):
        key = "decoder.layers.mlp.experts.linear_fc1.adapter.linear_in.weight"
        return {**tensors, key: tensors["decoder.layers.self_attention.linear_qkv.adapter.linear_in.weight"]}
    return refuse(small(name, ["linear_qkv", "linear_proj"], "qwen3_moe"),
                  "parameter 'decoder.layers.mlp.experts.linear_fc1.adapter.linear_in.weight': is taken by no rule", source=more)


@fixed
def gate_and_up_of_their_own(name):
    """What CanonicalLoRA saves of linear_fc1 has its rows in another order with each number of ranks."""
    return refuse(small(name, lora="canonical"), "linear_fc1.adapter.adapter_", "is taken by no rule")


@fixed
def trained_by_peft(name):
    """q, k and v have an A each: no adapter of a fused layer says the same."""
    case = small(name)

    def check(folder, source, options):
        target = os.path.join(folder, "as-peft")
        problem = compared.export(case, source, target, options)
        path = os.path.join(target, "adapter_model.safetensors")
        tensors = views.read_file(path)
        key = adapters.peft_name(1, "linear_qkv", "k", "A")
        tensors[key] = tensors[key].with_data(tensors[key].data[::-1].copy())
        views.write_tensors(path, tensors)
        os.unlink(os.path.join(target, "reshard-manifest.json"))
        case.refusal = (f"'{key}': has other bytes than", "q_proj.lora_A.weight")
        return problem or compared.export(case, target, os.path.join(folder, "back"), {**case.convert(), "format": "pt"})
    case.check_views = check
    return case
