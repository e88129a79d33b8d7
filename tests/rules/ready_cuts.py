# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a training have for degrees of parallelism: the yardstick for ready cuts, in numpy, and its judges.

The table of each family says by the end of a name what tensor parallel ranks cut. The second judge is the training program:
program_differs reads the layers of MindSpore Transformers, plan_differs what transformers plans, and Megatron's own ranks
are asked in megatron_cases.py.
"""
import ast
import functools
import json
import math
import os
import re
import subprocess

import compared
import values  # noqa: F401  # what Values are
import views

COLUMN, ROW = 0, 1  # the axis of a weight that is cut
EXPERTS = "experts"
# Ends of modules' names; all others are whole, and so is the bias of a row.
MINDFORMERS = {"linear_qkv": COLUMN, "linear_proj": ROW, "linear_q_proj": COLUMN, "linear_q_up_proj": COLUMN,
               "linear_kv_up_proj": COLUMN, "mlp.linear_fc1": COLUMN, "mlp.linear_fc2": ROW, "output_layer": COLUMN,
               "word_embeddings": COLUMN, "mlp.experts": EXPERTS}
LEGACY = {"attention.wq": COLUMN, "attention.wk": COLUMN, "attention.wv": COLUMN, "attention.w_qkv": COLUMN,
          "attention.wo": ROW, "feed_forward.w1": COLUMN, "feed_forward.w3": COLUMN, "feed_forward.w_gate_hidden": COLUMN,
          "feed_forward.w2": ROW}
HUGGINGFACE = {"q_proj": COLUMN, "k_proj": COLUMN, "v_proj": COLUMN, "o_proj": ROW, "gate_proj": COLUMN, "up_proj": COLUMN,
               "down_proj": ROW, "q_b_proj": COLUMN, "kv_b_proj": COLUMN, "embed_tokens": COLUMN, "lm_head": COLUMN,
               "shared_head.head": COLUMN, "w1": COLUMN, "w3": COLUMN, "w2": ROW, "in_proj_qkvz": COLUMN, "in_proj_ba": COLUMN,
               "out_proj": COLUMN}
MEGATRON = {"linear_qkv": COLUMN, "linear_proj": ROW, "linear_fc1": COLUMN, "linear_fc2": ROW, "word_embeddings": COLUMN,
            "output_layer": COLUMN, "eh_proj": COLUMN, "core_attention": COLUMN, "mlp.experts.experts.linear_fc1": EXPERTS,
            "mlp.experts.experts.linear_fc2": EXPERTS}
FIELDS = {"mlp.linear_fc1.weight": 2, "shared_experts.linear_fc1.weight": 2}  # Megatron's, one behind the other
FIRST = ("word_embeddings", "embedding_weight", "model.embed_tokens")


class Degrees:
    """Random degrees of parallelism, and a number of ranks that may be left out."""

    def __init__(self, rng, experts, more=()):
        self.tp, self.pp = rng.choice([1, 2, 2, 3, 4]), rng.choice([1, 1, 2, 3])
        self.ep = rng.choice([1, 2, 2, 3, 4]) if experts else 1
        self.devices = math.lcm(self.tp, self.ep) * rng.choice([1, 1, 1, 2])
        words = [f"{name}{getattr(self, name)}" for name in ("tp", "pp", "ep") if getattr(self, name) > 1] or ["tp1"]
        words += more
        rng.shuffle(words)
        self.given = {"dst_rules": ",".join(words)}
        if self.devices > math.lcm(self.tp, self.ep):
            if rng.random() < 0.5:
                self.given["dst_ranks"] = str(self.devices * self.pp)
            else:
                self.given["dst_rules"] += f",dp{self.devices // self.tp}"

    def why_not(self, model, family):
        """None, or a part of what the refusal says."""
        heads = model.num_attention_heads
        groups = model.config.get("num_key_value_heads") or heads
        latent = model.kind == "deepseek_v3"
        if latent and family is MEGATRON:
            return "no ready cut is known"
        uneven = (heads if latent else math.gcd(heads, groups)) % self.tp or \
            (family is not LEGACY and model.vocab_size % self.tp)
        if family in (MINDFORMERS, LEGACY, MEGATRON):
            uneven = uneven or (len(model.dense()) and model.intermediate_size % self.tp)
            shared = len(model.experts()) and family is MEGATRON and model.shared_at("")[1]
            uneven = uneven or shared % self.tp or (family is MEGATRON and model.extra() and model.hidden_size % self.tp)
        else:
            sizes = [model.intermediate_size] if len(model.dense()) else []
            sizes += [model.experts_at("")[2], model.shared_at("")[1]] if len(model.experts()) else []
            uneven = uneven or any(size % self.tp for size in sizes)
        if self.ep > 1 and (not len(model.experts()) or model.count() % self.ep):
            return "ep cuts no parameter" if not len(model.experts()) and not uneven and \
                not model.num_hidden_layers % self.pp else ""
        return "" if uneven or model.num_hidden_layers % self.pp else None

    def stages(self, name, tensors, model):
        """The stages that have a parameter."""
        if any(part in name for part in FIRST) and not name.startswith("mtp."):
            outputs = ("output_layer.weight", "lm_head.weight")
            tied = not any(n.removeprefix("module.") in outputs for n in tensors)
            return {0, self.pp - 1} if tied else {0}
        layer = re.match(r"(?:module\.)?(?:decoder|model)\.layers\.(\d+)\.", name)
        if not layer or int(layer[1]) >= model.num_hidden_layers:
            return {self.pp - 1}
        return {int(layer[1]) * self.pp // model.num_hidden_layers}

    def slice(self, name, value, family, rank):
        """What a rank of a stage has of a parameter of that stage."""
        module, _, what = name.rpartition(".")
        if what.startswith("weight") and module.endswith("mlp.experts"):
            what = "weight"
        axis = next((family[end] for end in sorted(family, key=len, reverse=True) if module.endswith(end)), None)
        if module.endswith("shared_experts") or (family is MINDFORMERS and ".shared_experts." in name):
            axis = None
        if axis is None or what.endswith("norm_weight") or (axis == ROW and what == "bias"):
            return value
        pieces, at = (self.ep, rank % self.ep) if axis == EXPERTS else (self.tp, rank % self.tp)
        axis = 0 if axis == EXPERTS else axis
        fields = FIELDS.get(".".join(name.split(".")[-3:]), 1) if family is MEGATRON else 1
        shape = value.data.shape
        apart = value.data.reshape(*shape[:axis], fields, pieces, shape[axis] // fields // pieces, *shape[axis + 1:])
        mine = apart.take(at, axis + 1)
        return value.with_data(mine.reshape(*shape[:axis], -1, *shape[axis + 1:]))

    def ranks(self, tensors, family, model):
        """[name -> Value] of each rank."""
        return [{n: self.slice(n, v, family, rank) for n, v in tensors.items() if stage in self.stages(n, tensors, model)}
                for stage in range(self.pp) for rank in range(self.devices)]


def check(case, source, target, family, tensors, options, rng, differs):
    """None, or how the ranks that ready cuts make of SOURCE differ; DIFFERS(path of a rank, name -> Value) compares."""
    experts = family in (MINDFORMERS, MEGATRON) and len(case.model.experts())
    degrees = Degrees(rng, experts, ["etp1"] if family is MEGATRON and experts else [])
    why = degrees.why_not(case.model, family)
    given = {**options, **degrees.given}
    if why is not None:
        done = compared.run("export", source, target, "-o", ",".join(f"{k}={v}" for k, v in given.items()))
        refused = done.returncode in (1, 2) and why in done.stdout and "try: " in done.stdout and not os.path.exists(target)
        return None if refused else f"{degrees.given} is not refused as '{why}': {done.stdout}"
    problem = compared.export(case, source, target, given)
    wanted = degrees.ranks(tensors, family, case.model)
    if not problem and sorted(n for n in os.listdir(target) if n.startswith("rank_")) != \
            sorted(f"rank_{rank}" for rank in range(len(wanted))):
        problem = f"there are {sorted(os.listdir(target))}"
    for rank, tensors_of_rank in enumerate(wanted):
        problem = problem or differs(os.path.join(target, f"rank_{rank}"), tensors_of_rank)
        if problem:
            return f"{degrees.given}, rank {rank}: {problem}"
    return check_back(case, target, degrees, options, family)


def check_back(case, target, degrees, options, family):
    """The same cuts, of the source, show the ranks as one model again."""
    back = {"src_" + k.removeprefix("dst_"): v for k, v in degrees.given.items()}
    kept = {k: v for k, v in options.items() if k in ("hf_config", "convert_options")}
    if family is HUGGINGFACE:
        given = {**back, "hf_config": case.config, "view": "unified"}
    else:
        given = {**back, **kept, "convert": options["convert"], "view": "huggingface"}
    problem = compared.export(case, target, target + "-back", given)
    problem = problem or views.tensors_differ(views.read_safetensors(target + "-back"), case.model.tensors)
    return problem and f"back from {degrees.given}: {problem}"


# ---- what the programs say ----------------------------------------------------------------------

def layout_of(call):
    """The axis that a call of layout(…) cuts over tp or ep; None: none."""
    names = [a.value if isinstance(a, ast.Constant) else "ep" if getattr(a, "id", "") == "inner_dp" else "None"
             for a in call.args]
    return next((axis for axis, name in enumerate(names) if name in ("tp", "ep")), None)


def weight_cut(tree, name):
    """The axis of the weight that a class of MindSpore Transformers cuts, by its method shard."""
    made = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    shard = next(node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "shard")
    for call in ast.walk(shard):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "shard" and \
                getattr(call.func.value, "attr", "") in ("morphed_forward", "embedding_morph"):
            weight = next(k.value for k in call.keywords if k.arg == "in_strategy").elts[
                {"FFNGroupedGEMM": 3}.get(name, 1)]
            if isinstance(weight, ast.Name):  # with tp, unless the vocabulary does not divide
                weight = next(node.value for node in ast.walk(shard) if isinstance(node, ast.Assign) and
                              node.targets[0].id == weight.id)
            return layout_of(weight)
    raise AssertionError(f"{name} has no layout of its weight")


@functools.cache
def program_differs(folder):
    """None, or what the table says else than the layers of MindSpore Transformers in FOLDER."""
    at = os.path.join(folder, "mindformers", "parallel_core", "training_graph")

    def read(path):
        with open(os.path.join(at, path), encoding="utf-8") as file:
            return ast.parse(file.read())

    layers = read("tensor_parallel/layers.py")
    cut = {}
    for path, prefix in (("base_models/gpt/gpt_layer_specs.py", ""), ("base_models/gpt/moe_module_specs.py", "shared_experts."),
                         ("transformer/multi_token_prediction.py", ""), ("base_models/gpt/gpt_model.py", "")):
        for node in ast.walk(read(path)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Concatenated"):
                continue  # other names of other tensors
            pairs = [(k.arg, k.value) for k in node.keywords] if isinstance(node, ast.Call) else []
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Attribute):
                pairs = [(node.targets[0].attr, node.value.func)]
            for name, value in pairs:
                if getattr(value, "id", "").endswith("Linear"):
                    cut.setdefault(prefix + name, set()).add(weight_cut(layers, value.id))
    cut["word_embeddings"] = {weight_cut(layers, "VocabParallelEmbedding")}
    experts = weight_cut(read("transformer/moe/ffn.py"), "FFNGroupedGEMM")
    wanted = {k.removeprefix("mlp."): {v} for k, v in MINDFORMERS.items() if v != EXPERTS}
    whole = {"linear_q_down_proj", "linear_kv_down_proj", "eh_proj", "shared_experts.linear_fc1", "shared_experts.linear_fc2"}
    wanted.update({name: {None} for name in whole})
    if experts != 0:
        return f"experts are cut along {experts}"
    other = {name: cut.get(name) for name in wanted if cut.get(name) != wanted[name]}
    return f"MindSpore Transformers cuts {other}" if other else None


@functools.cache
def plan_differs(python=None, classes="Llama Mistral Qwen2 Qwen3 Qwen3Moe Qwen2Moe Glm4Moe DeepseekV3 Qwen3Next MiniMaxM2 GlmMoeDsa DeepseekV32"):
    """None, or what the table says else than the plans of transformers for PYTHON, or the current one."""
    program = "import json, transformers as t\nprint(json.dumps({k: {**(getattr(t, k + 'Config').base_model_tp_plan or {}), " \
        "**getattr(t, k + 'ForCausalLM')._tp_plan} for k in %r.split()}))" % classes
    done = subprocess.run([python or os.environ["RFS_TRANSFORMERS"], "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "HF_HUB_OFFLINE": "1"}, check=True)
    for kind, plan in json.loads(done.stdout.splitlines()[-1]).items():
        for name, style in plan.items():
            module = name.rpartition(".")[2]
            wanted = COLUMN if style.startswith("colwise") and module != "gate" else ROW if style == "rowwise" else None
            if wanted is not None and HUGGINGFACE.get(module) != wanted:
                return f"transformers has {name} {style} in {kind}"
    return None
