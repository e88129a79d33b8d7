# SPDX-License-Identifier: Apache-2.0
"""Whole models of PEFT in saves of trainings: view=peft must show the adapter alone, as PEFT itself saves it."""
import os
import random
import warnings

import architectures
import compared
import dcp_program
import numpy as np
import peft
import torch
import torch.distributed.checkpoint as dcp
import transformers_cases
import views

ALPHA = 12


def of_ranks(state, path, world=2):
    """As verl saves them: a file of DTensors from each rank."""
    os.makedirs(path)
    for rank in range(world):
        with dcp_program.As(rank, world):
            cut = {n: dcp_program.Sharded(t, (world,), [0]).on(rank, world) for n, t in state.items()}
            torch.save(cut, dcp_program.file_of(path, rank, world))
    return path


SAVES = {
    "state": lambda state, path: torch.save(state, path + ".pt") or path + ".pt",
    "compiled": lambda state, path: torch.save(wrapped(state), path + ".pt") or path + ".pt",
    "ranks": of_ranks,
    "dcp": lambda state, path: dcp.save(state, checkpoint_id=path, no_dist=True) and path,
    "trainer": lambda state, path: dcp.save({"model": state, "optim": {"state": {n: {"exp_avg": t} for n, t in state.items() if "lora_" in n}}},
                                            checkpoint_id=path, no_dist=True) and path,
}
DENSE = {"target_modules": ["q_proj", "down_proj"]}
BOTH = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
EXPERTS = {
    "both": ("qwen3_moe", {"target_modules": ["q_proj"], "target_parameters": BOTH}),
    "alone": ("qwen3_moe", {"target_modules": [], "target_parameters": BOTH[:1]}),
    "router": ("qwen3_moe", {"target_modules": ["o_proj"], "target_parameters": ["mlp.gate.weight", BOTH[1]]}),
    "layer": ("qwen3_moe", {"target_modules": [], "target_parameters": ["model.layers.1." + name for name in BOTH]}),
    "mixtral": ("mixtral", {"target_modules": ["v_proj"], "target_parameters": BOTH}),
    "transposed": ("gpt_oss", {"target_modules": ["k_proj"], "target_parameters": BOTH}),
}


def wrapped(state):
    """As FSDP and torch.compile put names of theirs in between."""
    return {"_fsdp_wrapped_module." + n.replace(".layers.0.", ".layers.0._orig_mod."): t for n, t in state.items()}


class Case:
    says, refusal, status = "", "", 1

    def __init__(self, name, kind, model="llama", targets=None):
        self.name, self.kind, self.rng, self.targets = name, kind, random.Random(name), targets or DENSE
        config = architectures.random_config(self.rng, model)
        config.update(attention_bias=model == "gpt_oss", tie_word_embeddings=False, num_hidden_layers=2)
        self.model = architectures.fill(np.random.default_rng(7), config, "Float32", transformers_cases.small_value)

    def describe(self):
        return f"  {self.model.describe()}\n  {self.kind}, {self.targets}"

    def lora(self, rank=3, **changed):
        return peft.LoraConfig(r=rank, lora_alpha=ALPHA, init_lora_weights=False, task_type="CAUSAL_LM", **{**self.targets, **changed})

    def write(self, folder):
        self.folder, self.base = folder, os.path.join(folder, "hf")
        views.write_huggingface(self.base, self.model, self.model.tensors)
        torch.manual_seed(7)
        self.tuned = peft.get_peft_model(transformers_cases.load(self.base, self.model), self.lora())
        return self.save("save"), {"view": "peft", "lora_alpha": ALPHA}

    def save(self, name):
        return SAVES[self.kind](self.tuned.state_dict(), os.path.join(self.folder, name))

    def wanted(self, adapter):
        """name -> Value of what PEFT saves of an adapter."""
        folder = os.path.join(self.folder, "wanted-" + adapter)
        self.tuned.save_pretrained(folder, selected_adapters=[adapter])
        return views.read_safetensors(os.path.join(folder, "" if adapter == "default" else adapter))

    def check_oracle(self, folder):
        """What PEFT saves of the adapter has fewer tensors than the state, by other names."""
        wanted, state = self.wanted("default"), self.tuned.state_dict()
        return None if len(wanted) < len(state) and not set(wanted) & set(state) else "the adapter is the whole state"

    def check_views(self, folder, source, options):
        return self.shown_differs(source, options, "default") or self.check_two(options) or self.check_refusals(folder)

    def shown_differs(self, source, options, adapter):
        """None, or how what is shown differs from what PEFT saves of an adapter, and from what the model says with it."""
        target = f"{source}-{adapter}-shown"
        problem = compared.export(self, source, target, options) or \
            views.tensors_differ(views.read_safetensors(target), self.wanted(adapter))
        if problem:
            return f"{adapter}: {problem}"
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            loaded = peft.PeftModel.from_pretrained(transformers_cases.load(self.base, self.model), target)
        if any("adapter" in str(one.message) for one in told):
            return f"PEFT says {[str(one.message) for one in told]}"
        self.tuned.set_adapter(adapter)
        if not torch.equal(transformers_cases.said(loaded, self.model), transformers_cases.said(self.tuned, self.model)):
            return f"the model with the adapter {adapter} that is shown says something else"
        return None

    def check_two(self, options):
        """Each of two adapters, by its name; one of them alone, or another name, is refused."""
        self.tuned.add_adapter("second", self.lora(rank=2))
        two = self.save("two")
        for adapter in ("default", "second"):
            problem = self.shown_differs(two, {**options, "adapter": adapter}, adapter)
            if problem:
                return problem
        for more, self.refusal, self.status in (({}, [".default.weight'", ".second.weight'", "adapter="], 1),
                                                ({"adapter": "sec"}, ["has no tensor of such an adapter"], 1)):
            problem = compared.export(self, two, two + "-refused", {**options, **more})
            if problem:
                return problem
        self.tuned.delete_adapter("second")
        self.refusal, self.status = "", 1
        return None

    def check_refusals(self, folder):
        """What an adapter has beside A and B; an adapter of experts without the weights below, which say whose it is."""
        state = self.tuned.state_dict()
        more = {**state, "base_model.model.lm_head.modules_to_save.default.weight": torch.ones(2, 2)}
        alone = {n: t for n, t in state.items() if "lora_" in n}
        cases = [(more, ["modules_to_save", "no tensor of an adapter"])]
        if "target_parameters" in self.targets:
            cases.append((alone, ["is for a parameter of", "a save of the whole model"]))
            self.refusal = ["no ready cut is known"]
            problem = compared.export(self, os.path.join(folder, "wanted-default"), os.path.join(folder, "refused-cut"),
                                      {"dst_rules": "tp2", "hf_config": os.path.join(self.base, "config.json"), "format": "safetensors"})
            if problem:
                return problem
        for number, (tensors, self.refusal) in enumerate(cases):
            source = SAVES[self.kind](tensors, os.path.join(folder, f"refused-{number}"))
            problem = compared.export(self, source, source + "-shown", {"view": "peft", "lora_alpha": ALPHA})
            if problem:
                return problem
        return None


class Cut:
    """An adapter of each layer's weights: what a rank has must be, multiplied, the slice of the merged difference that the same
    cuts give of a model with the weights B A. All numbers are whole and small, so that all sums are exact."""
    says, refusal, status, rank = "", "", 1, 2

    def __init__(self, name, kind):
        self.name, self.kind, self.rng = name, kind, random.Random(name)
        config = architectures.random_config(self.rng, kind)
        config.update(num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4, intermediate_size=8, vocab_size=16,
                      tie_word_embeddings=False)
        if "hidden_size" in config and "head_dim" not in config:
            config["hidden_size"] = 16
        for key in ("moe_intermediate_size", "shared_expert_intermediate_size"):
            config.update({key: 8} if key in config else {})
        if kind == "deepseek_v3":
            config.update(num_key_value_heads=8, num_nextn_predict_layers=0, first_k_dense_replace=1, q_lora_rank=4)
        self.config = config
        self.model = architectures.fill(np.random.default_rng(7), config, "Float32", transformers_cases.small_value)

    def describe(self):
        return f"  {self.model.describe()}"

    def write(self, folder):
        """The adapter, and the model whose weights it makes."""
        data = np.random.default_rng(7)
        adapter, delta = {}, dict(self.model.tensors)
        for name, weight in self.model.tensors.items():
            module = name.removesuffix(".weight")
            if ".layers." not in name or len(weight.shape) != 2 or name.endswith((".gate.weight", "shared_expert_gate.weight")):
                continue
            a, b = (data.integers(-4, 5, shape).astype(np.float32)
                    for shape in ((self.rank, weight.shape[1]), (weight.shape[0], self.rank)))
            adapter.update({f"base_model.model.{module}.lora_{half}.weight": weight.with_data(x) for half, x in (("A", a), ("B", b))})
            delta[name] = weight.with_data(b @ a)
        self.delta = os.path.join(folder, "delta")
        views.write_huggingface(self.delta, self.model, delta)
        source = os.path.join(folder, "adapter")
        os.makedirs(source)
        views.write_tensors(os.path.join(source, "adapter_model.safetensors"), adapter)
        self.adapter = adapter
        return source, {"hf_config": os.path.join(self.delta, "config.json"), "format": "safetensors"}

    def check_oracle(self, folder):
        """There is an adapter of each kind of layer that parallel ranks cut."""
        ends = {name.split(".")[-3] for name in self.adapter}
        wanted = {"o_proj", "w1", "w2"} if self.kind == "mixtral" else {"o_proj", "up_proj", "down_proj"}
        return None if wanted <= ends else f"there are adapters of {ends} alone"

    def check_views(self, folder, source, options):
        for rules, ranks in (("tp2", 2), ("tp4", 4), ("tp2,pp2", 4)):
            given = {**options, "dst_rules": rules}
            cut, model = (os.path.join(folder, what + rules) for what in ("cut-", "model-"))
            problem = compared.export(self, source, cut, given) or compared.export(self, self.delta, model, given) or \
                next(filter(None, (self.rank_differs(cut, model, rank) for rank in range(ranks))), None)
            problem = problem or self.back_differs(cut, rules)
            if problem:
                return f"{rules}: {problem}"
        return None

    def rank_differs(self, cut, model, rank):
        have, wanted = (views.read_safetensors(os.path.join(at, f"rank_{rank}")) for at in (cut, model))
        pairs = {name: have[name.replace("lora_A", "lora_B")].data @ a.data for name, a in have.items() if "lora_A" in name}
        names = {f"base_model.model.{name.removesuffix('.weight')}.lora_A.weight": name for name in wanted}
        if 2 * len(pairs) != len(have) or set(pairs) != {n for n in names if n in self.adapter}:
            return f"rank {rank} has {sorted(have)}"
        wrong = [n for n, product in pairs.items() if not np.array_equal(product, wanted[names[n]].data)]
        return f"rank {rank}: B A of {wrong} is not the slice of B A" if wrong else None

    def back_differs(self, cut, rules):
        """PEFT's folder again, of the ranks."""
        given = {"src_rules": rules, "hf_config": os.path.join(self.delta, "config.json"), "view": "peft", "lora_alpha": ALPHA}
        return compared.export(self, cut, cut + "-back", given) or \
            views.tensors_differ(views.read_safetensors(cut + "-back"), self.adapter)


CUT = ["llama", "qwen2", "mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe", "deepseek_v3"]
FIXED = {f"adapters-saved-{kind}": lambda name, kind=kind: Case(name, kind) for kind in SAVES}
FIXED.update({f"adapters-experts-{kind}": lambda name, kind=kind: Case(name, kind, *EXPERTS["both"]) for kind in SAVES if kind != "state"})
FIXED.update({f"adapters-experts-{what}": lambda name, given=given: Case(name, "state", *given) for what, given in EXPERTS.items()})
FIXED.update({f"adapters-cut-{kind.replace('_', '-')}": lambda name, kind=kind: Cut(name, kind) for kind in CUT})
