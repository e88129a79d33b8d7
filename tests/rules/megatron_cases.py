# SPDX-License-Identifier: Apache-2.0
"""The family "megatron": GPT models as Megatron-Core's torch_dist saves them, against Megatron-Core's GPT.

torch.distributed.checkpoint itself writes the folders; the boxes are those of tensor and pipeline parallel ranks.
"""
import argparse
import json
import logging
import os
import pickle
import random
import re
import subprocess
import sys

import architectures
import dcp_program
import fixed_cases
import mbridge_program
import megatron_gpt
import numpy as np
import ready_cuts
import torch
import training_names
import transformers_cases
import views
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from values import STORED, Value

FIXED = {}
KINDS = ["llama", *architectures.SPARSE[:3], "qwen2", "glm4_moe", "qwen3", "deepseek_v3", "mistral", "kimi_k2",
         "phi3", "gpt_oss"]
DTYPES = {"Float32": torch.float32, "BFloat16": torch.bfloat16, "Float16": torch.float16}
# What tensor parallel ranks have of a weight: the axis that they cut, and in how many blocks they cut it apart.
CUT = {"linear_qkv.weight": (0, 1), "linear_qkv.bias": (0, 1), "linear_proj.weight": (1, 1), "linear_fc1.weight": (0, 2),
       "linear_fc2.weight": (1, 1), "word_embeddings.weight": (0, 1), "output_layer.weight": (0, 1)}


def as_tensor(value):
    data = np.ascontiguousarray(value.data)
    return torch.from_numpy(data.view(np.int16) if data.dtype == np.uint16 else data.copy()).view(DTYPES[value.dtype])


def as_value(tensor):
    dtype = next(ours for ours, theirs in DTYPES.items() if theirs == tensor.dtype)
    size = np.int16 if dtype in ("BFloat16", "Float16") else np.int32
    return Value(dtype, tensor.contiguous().view(torch.int16 if size == np.int16 else torch.int32).numpy().view(STORED[dtype]))


def arguments(config):
    """What a training by Megatron saves of its options, with the defaults that validate_args sets."""
    heads, groups = config["num_attention_heads"], config.get("num_key_value_heads", config["num_attention_heads"])
    return argparse.Namespace(
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], num_attention_heads=heads,
        kv_channels=config.get("head_dim") or config["hidden_size"] // heads, group_query_attention=groups != heads,
        num_query_groups=groups if groups != heads else 1, multi_latent_attention="kv_lora_rank" in config,
        params_dtype=torch.bfloat16, lr=1e-4, optimizer="adam", virtual_pipeline_model_parallel_size=None)


def boxes_of(name, shape, layered, ranks):
    """[(offset, sizes)]: one layer each, and its parts on the tensor parallel ranks."""
    axis, blocks = next((cut for end, cut in CUT.items() if name.endswith(end)), (0, 1))
    axis, pieces = axis + layered, blocks * ranks
    cut = axis < len(shape) and not name.endswith(("norm.weight", "norm_weight")) and shape[axis] % pieces == 0
    out = []
    for layer in range(shape[0] if layered else 1):
        for piece in range(pieces if cut else 1):
            offset, sizes = [0] * len(shape), list(shape)
            if layered:
                offset[0], sizes[0] = layer, 1
            if cut:
                sizes[axis] //= pieces
                offset[axis] = piece * sizes[axis]
            out.append((tuple(offset), tuple(sizes)))
    return out


class Case:
    def __init__(self, name, model, options, rng):
        self.name, self.model, self.options, self.rng = name, model, options, rng
        self.trained = training_names.make(training_names.Megatron, model, architectures.repeated(model), **options)
        self.ranks, self.world = rng.choice([1, 2, 2, 4]), rng.choice([1, 2, 4])
        self.files, self.padding = rng.choice([1, 2]), rng.choice([1, 5]) if options.get("vocabulary") == "padded" else 0
        self.any_impl = False
        self.says, self.refusal, self.status = "", "", 1

    def describe(self):
        return f"  {self.model.describe()}\n  {self.options}, {self.ranks} tensor parallel rank(s), {self.world} in all"

    def saved(self, name):
        """A tensor as it is saved: that of the vocabulary has more rows."""
        value = self.trained[name]
        if not self.padding or not name.endswith(("embedding.word_embeddings.weight", "output_layer.weight")):
            return value
        more = np.ones((self.padding, *value.shape[1:]), value.data.dtype)
        return Value(value.dtype, np.concatenate([value.data, more]))

    def convert(self):
        given = {"convert": views.rules("megatron"), "hf_config": self.config}
        return {**given, "convert_options": ":".join(f"{k}={v}" for k, v in self.options.items())} if self.options else given

    def write(self, folder):
        self.config = os.path.join(folder, "hf", "config.json")
        views.write_huggingface(os.path.join(folder, "hf"), self.model, self.model.tensors, self.files)
        items = {}
        for name in self.trained:
            full = as_tensor(self.saved(name))
            layered = re.match(r"(module\.)?decoder\.layers\.(?!\d)", name) is not None
            items[(name,)] = dcp_program.Boxes(full, boxes_of(name, full.shape, layered, self.ranks))
            if name.endswith("linear_qkv.weight"):
                items[(name.replace("weight", "_extra_state") + "/shard_0_1",)] = b""
                items[(f"optimizer.state.exp_avg.{name}",)] = dcp_program.Plain(full.float())
        source = os.path.join(folder, "trained")
        iteration = os.path.join(source, "iter_0000005")
        common = {"iteration": 5, "args": arguments(self.model.config)}
        dcp_program.save(iteration, self.world, items)
        with open(os.path.join(iteration, "metadata.json"), "w", encoding="utf-8") as out:
            json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}, out)
        torch.save(common, os.path.join(iteration, "common.pt"))
        with open(os.path.join(source, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as out:
            out.write("5")
        given = self.convert()
        if self.any_impl:  # the names of a source are recognised
            other = {**self.options, "transformer_impl": "transformer_engine" if self.options.get("transformer_impl") else "local"}
            given["convert_options"] = ":".join(f"{k}={v}" for k, v in other.items())
        return source, {**given, "view": "huggingface"}

    def save_by_ranks(self, folder, tp, pp, chunks, ep):
        """The checkpoint once more: loaded by the ranks of a real training, and saved by them."""
        source = os.path.join(folder, "trained", "iter_0000005")
        saved = os.path.join(folder, "by-ranks", "iter_0000005")
        metadata = {"stacked": {}, "numbered": {"non_homogeneous_layers": True}}[self.options.get("layers", "stacked")]
        task = {"model": self.model, "source": source, "target": saved, "ranks": tp * pp, "tp": tp, "pp": pp, "chunks": chunks,
                "ep": ep, "prefix": "module." if self.options.get("prefix") else "", "metadata": metadata}
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "megatron_ranks.py")
        done = subprocess.run([sys.executable, "-B", program], input=pickle.dumps(task), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300, check=False)
        if done.returncode:
            raise OSError(f"Megatron's ranks failed: {done.stdout.decode()[-3000:]}")
        return os.path.dirname(saved)

    def check_oracle(self, folder):
        """torch reads what was meant."""
        items = {(n,): dcp_program.Plain(as_tensor(self.saved(n))) for n in self.trained}
        for path, have in dcp_program.load(os.path.join(folder, "trained", "iter_0000005"), items).items():
            if not torch.equal(have.view(torch.uint8), items[path].full.view(torch.uint8)):
                return f"torch reads another {path}"
        return self.mbridge_differs() or self.megatron_differs(folder)

    def mbridge_differs(self):
        trained = training_names.make(training_names.Megatron, self.model, architectures.repeated(self.model), layers="numbered")
        return mbridge_program.differs(self.model, *({n: as_tensor(v) for n, v in side.items()} for side in (trained, self.model.tensors)))

    def megatron_differs(self, folder):
        """Megatron's own GPT has the tensors of these names and shapes, and with them says what HuggingFace's model says."""
        said = None
        with megatron_gpt.running():
            real = megatron_gpt.build(self.model)
            for layers, metadata in (("stacked", None), ("numbered", {"non_homogeneous_layers": True}),
                                     ("singleton", {"singleton_local_shards": True})):
                problem = megatron_gpt.names_differ(real, {n: v.shape for n, v in self.local(layers).items()}, metadata)
                if problem:
                    return f"layers={layers}: {problem}"
            numbered = self.local("numbered")
            if self.model.kind != "deepseek_v3" and not self.model.extra():
                said = megatron_gpt.logits(real, {n: as_tensor(v).float() for n, v in numbered.items()}, self.model)
        if said is not None and (most := (said - self.wanted(folder)).abs().max().item()) > 1e-4:
            return f"Megatron's GPT says something else than HuggingFace's model, up to {most}"
        return ready_cuts.plan_differs(sys.executable, "Mixtral Qwen2Moe Glm4Moe") or self.ranks_differ(numbered)

    def local(self, layers):
        """As Megatron's own layers are saved."""
        return training_names.make(training_names.Megatron, self.model, architectures.repeated(self.model), layers=layers,
                                   transformer_impl="local")

    def wanted(self, folder):
        """What HuggingFace's model says, of the config as it was before a newer version saved it."""
        older = os.path.join(folder, "older")
        os.makedirs(older)
        with open(os.path.join(older, "config.json"), "w", encoding="utf-8") as out:
            json.dump(self.model.config, out)
        views.write_tensors(os.path.join(older, "model.safetensors"), self.model.tensors)
        return transformers_cases.logits(older, self.model, torch.float32)

    def ranks_differ(self, numbered):
        """Megatron's own ranks of a stage have what the yardstick for ready cuts says."""
        degrees = ready_cuts.Degrees(self.rng, len(self.model.experts()))
        degrees.pp = 1
        if degrees.why_not(self.model, ready_cuts.MEGATRON) is not None:
            return None
        for rank in range(degrees.devices):
            with megatron_gpt.running(rank, degrees.devices, degrees.tp, degrees.ep):
                parts = megatron_gpt.parts(megatron_gpt.build(self.model))
            for name, value in numbered.items():
                boxes = [value.data[tuple(slice(a, a + n) for a, n in zip(*box))].tobytes() for box in parts[name]]
                mine = degrees.slice(name, value, ready_cuts.MEGATRON, rank).data
                if b"".join(boxes) != mine.tobytes():
                    return f"rank {rank} of {degrees.devices} of Megatron has another part of {name}"
        return None

    def check_views(self, folder, source, options):
        problem = views.check(self, source, os.path.join(folder, "as-hf"), options,
                              lambda shown: views.huggingface_differs(shown, self.config, self.model.tensors))
        if problem or self.refusal or self.padding:
            return problem and f"to HuggingFace: {problem}"
        problem = views.check(self, os.path.join(folder, "hf"), os.path.join(folder, "as-trained"),
                              {**self.convert(), "format": "pt"}, self.torch_differs)
        if not problem and self.model.kind in ("mixtral", "qwen2_moe"):
            problem = ready_cuts.check(self, os.path.join(folder, "hf"), os.path.join(folder, "hf-cut"), ready_cuts.HUGGINGFACE,
                                       self.model.tensors, {"format": "safetensors"}, self.rng, self.files_differ)
        if problem or self.options.get("layers") != "numbered":
            return problem and f"from HuggingFace: {problem}"
        return ready_cuts.check(self, os.path.join(folder, "hf"), os.path.join(folder, "cut"), ready_cuts.MEGATRON, self.trained,
                                {**self.convert(), "format": "safetensors"}, self.rng, self.files_differ)

    @staticmethod
    def files_differ(folder, wanted):
        return views.tensors_differ(views.read_safetensors(folder), wanted)

    def torch_differs(self, shown):
        found = [os.path.join(base, n) for base, _, names in os.walk(shown) for n in names if n.endswith(".pt")]
        loaded = {n: as_value(t) for path in found for n, t in torch.load(path).items()}
        return views.tensors_differ(loaded, self.trained)


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    config = architectures.random_config(rng, KINDS[number % len(KINDS)])
    if "attention_bias" in config and config["model_type"] not in ("glm4_moe", "gpt_oss"):  # glm4_moe has biases of q, k and v alone
        config["attention_bias"] = False
    if "first_k_dense_replace" in config:  # with no layer of experts Megatron's would not count its layers
        config["first_k_dense_replace"] %= config["num_hidden_layers"]
    config.update({"num_experts_per_tok": 2} if "num_experts_per_tok" in config else {})
    model = architectures.fill(np.random.default_rng(rng.getrandbits(64)), config, rng.choice(["BFloat16", "Float32"]),
                               transformers_cases.small_value)
    layers = rng.choice(["stacked", "stacked", "numbered", "singleton"])
    options = {"layers": layers} if layers != "stacked" else {}
    if rng.random() < 0.5:
        options["transformer_impl"] = "local"
    if rng.random() < 0.3:
        options["vocabulary"] = "padded"
    if rng.random() < 0.3:
        options["prefix"] = "module"
    case = Case(f"megatron-{seed}-{number}", model, options, rng)
    case.any_impl = rng.random() < 0.5
    return case


def prepare():
    logging.disable(logging.INFO)
    transformers_cases.prepare()


def fixed(function):
    FIXED["megatron-" + function.__name__.replace("_", "-")] = function
    return function


def small(name, options=None, kind="qwen3", dtype="BFloat16", **config):
    rng = random.Random(0)
    made = architectures.random_config(rng, kind)
    made.update({"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 12, "tie_word_embeddings": False,
                 "attention_bias": kind == "gpt_oss"})
    model = architectures.fill(np.random.default_rng(1), {**made, **config}, dtype, transformers_cases.small_value)
    return Case(name, model, options or {}, rng)


def of_ranks(kind, options=None, tp=2, pp=2, chunks=1, ep=1, **config):
    """A case whose source Megatron's own ranks saved."""
    def make_case(name):
        case = small(name, {"transformer_impl": "local", **(options or {})}, kind, "Float32", num_hidden_layers=4, **config)
        write = case.write

        def write_by_ranks(folder):
            _, given = write(folder)
            return case.save_by_ranks(folder, tp, pp, chunks, ep), given
        case.write = write_by_ranks
        case.check_oracle = lambda folder: None
        return case
    more = "".join(f"-{word}{n}" for word, n in (("tp", tp), ("pp", pp), ("vpp", chunks), ("ep", ep)) if n > 1)
    FIXED[f"megatron-ranks-{kind.replace('_', '-')}{more}"] = make_case


of_ranks("llama", chunks=2, tie_word_embeddings=True)
of_ranks("qwen3_moe", {"layers": "numbered", "prefix": "module"}, ep=2)
of_ranks("deepseek_v3", chunks=2, first_k_dense_replace=1, num_nextn_predict_layers=1)
of_ranks("gpt_oss", ep=2)


@fixed
def layers_of_deepseek_v3(name):
    """61 layers, the only number of which mbridge knows those of multi-token prediction."""
    case = small(name, kind="deepseek_v3", num_hidden_layers=61, num_nextn_predict_layers=1, first_k_dense_replace=3,
                 n_routed_experts=2, q_lora_rank=4, qk_nope_head_dim=2)
    case.check_oracle = lambda folder: case.mbridge_differs()
    return case


@fixed
def untied(name):
    """Trained with --untie-embeddings-and-output-weights, and a config that ties: the output would be lost."""
    return fixed_cases.refuse(small(name), {"tie_word_embeddings": True}, "parameter 'output_layer.weight'",
                              "'embedding.word_embeddings.weight'", *fixed_cases.OUTPUTS)


@fixed
def untied_model(name):
    """The same where HuggingFace's folder is the source."""
    case = fixed_cases.refuse(small(name), {"tie_word_embeddings": True}, "parameter 'lm_head.weight'",
                              "'model.embed_tokens.weight'", *fixed_cases.OUTPUTS)
    case.check_views = lambda folder, source, options: views.check(
        case, os.path.join(folder, "hf"), os.path.join(folder, "as-trained"), {**case.convert(), "format": "pt"}, None)
    return case


def without_options(case, *parts):
    """The view must refuse the source without the options of the rules, and name them."""
    case = fixed_cases.refuse(case, {}, *parts)
    case.convert = lambda: {"convert": views.rules("megatron"), "hf_config": case.config}
    return case


@fixed
def numbered_layers(name):
    """Layers that the save did not stack."""
    return without_options(small(name, {"layers": "numbered"}), "try: convert_options=layers=numbered, by which the rules fit")


@fixed
def wrong_groups_of_phi3(name):
    """Half of the groups, of a model that has q, k and v in one tensor, too."""
    return fixed_cases.refuse(small(name, kind="phi3"), {"num_key_value_heads": 1},
                              "parameter 'decoder.layers.self_attention.linear_qkv.weight'", "[2, 32, 16]", "[2, 24, 16]")


@fixed
def wrong_experts_of_gpt_oss(name):
    """Half of the experts."""
    return fixed_cases.refuse(small(name, kind="gpt_oss", num_local_experts=4, num_experts_per_tok=2), {"num_local_experts": 2},
                              "parameter 'decoder.layers.mlp.router.weight'", "[2, 4, 16]", "[2, 2, 16]")


# Twice the heads, of half the width: all tensors keep their shapes, and others of their elements belong together.
OTHER_HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 2}


@fixed
def other_heads(name):
    """The arguments of the training say how many heads there are."""
    return fixed_cases.refuse(small(name, kind="llama"), OTHER_HEADS, "config.json: 'num_attention_heads' is another than in",
                              "iter_0000005/common.pt", ": 8 and 4; try: ")


@fixed
def other_heads_of_a_file(name):
    """The same in a file of --ckpt-format torch."""
    case = small(name, kind="llama")
    write = case.write

    def write_file(folder):
        _, given = write(folder)
        at = os.path.join(folder, "by-ranks", "mp_rank_00")
        os.makedirs(at)
        torch.save({"args": arguments(case.model.config), "checkpoint_version": 3.0, "iteration": 5,
                    "model": {n: as_tensor(v) for n, v in case.trained.items()}}, os.path.join(at, "model_optim_rng.pt"))
        return os.path.dirname(at), {**given, "rank_dir": "mp_rank_%d", "file": "model_optim_rng.pt", "entry": "model"}
    case.write = write_file
    return fixed_cases.refuse(case, OTHER_HEADS, "'num_attention_heads' is another than in", "mp_rank_00/model_optim_rng.pt", ": 8 and 4")


@fixed
def other_heads_of_huggingface(name):
    """A config that is given contradicts the one in the folder."""
    case = small(name, kind="llama")

    def check(folder, _source, _options):
        case.config = os.path.join(folder, "other.json")
        views.write_config(case.config, case.model.config, **OTHER_HEADS)
        case.refusal = ("other.json: 'num_attention_heads' is another than in", "hf/config.json", ": 8 and 4")
        return views.check(case, os.path.join(folder, "hf"), os.path.join(folder, "as-trained"), {**case.convert(), "format": "pt"}, None)
    case.check_views = check
    return case


@fixed
def experts_one_by_one(name):
    """Experts with tensors of their own, of a model that has all of them in one."""
    return small(name, {"layers": "singleton"}, "gpt_oss", num_local_experts=3, num_experts_per_tok=2)


@fixed
def gpt_oss_as_published(name):
    """HuggingFace's files in MXFP4: transformers says what they are in bfloat16, which Megatron's names must have."""
    case = small(name, kind="gpt_oss", hidden_size=64, intermediate_size=32, num_local_experts=3, num_experts_per_tok=2)
    quantized, data = {}, np.random.default_rng(2)
    for of, value in list(case.model.tensors.items()):
        if not of.endswith(("gate_up_proj", "down_proj")):
            continue
        experts, columns, rows = value.shape
        blocks = torch.from_numpy(data.integers(0, 256, (experts, rows, columns // 32, 16), np.uint8))
        scales = torch.from_numpy(data.integers(120, 128, (experts, rows, columns // 32), np.uint8))
        quantized.update({f"{of}_blocks": blocks, f"{of}_scales": scales})
        case.model.tensors[of] = as_value(convert_moe_packed_tensors(blocks, scales).contiguous())
    case.trained = training_names.make(training_names.Megatron, case.model, {})

    def check(folder, source, options):
        published = os.path.join(folder, "published")
        views.write_huggingface(published, case.model, {})
        plain = {n: as_tensor(v) for n, v in case.model.tensors.items() if f"{n}_blocks" not in quantized}
        save_file({**plain, **quantized}, os.path.join(published, "model.safetensors"))
        case.config = os.path.join(published, "config.json")
        views.write_config(case.config, case.model.config, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": []})
        return views.check(case, published, os.path.join(folder, "as-trained"),
                           {**case.convert(), "dequantize": True, "format": "pt"}, case.torch_differs)
    case.check_views = check
    return case


@fixed
def names_of_nemo(name):
    """NeMo 2 has the GPT in a module of its own."""
    return without_options(small(name, {"prefix": "module"}), "try: convert_options=prefix=module, by which the rules fit")


@fixed
def numbered_layers_of_nemo(name):
    """Both."""
    return without_options(small(name, {"layers": "numbered", "prefix": "module"}),
                           "try: convert_options=layers=numbered:prefix=module, by which the rules fit")


@fixed
def padded_vocabulary(name):
    """Embeddings and output with rows that no token has."""
    case = small(name, {"vocabulary": "padded"})
    case.padding = 5
    return without_options(case, "[17, 16]", "try: convert_options=vocabulary=padded, by which the rules fit")


@fixed
def numbered_and_padded(name):
    """Both."""
    case = small(name, {"layers": "numbered", "vocabulary": "padded"})
    case.padding = 5
    return without_options(case, "try: convert_options=layers=numbered:vocabulary=padded, by which the rules fit")


@fixed
def vocabulary_multiple(name):
    """Embeddings and output made with rows of zeros, and read with rows of any numbers."""
    case = small(name, {"vocabulary_multiple": "8"})
    case.padding = 4

    def check_views(folder, source, options):
        problem = Case.check_views(case, folder, source, options)
        for end in ("embedding.word_embeddings.weight", "output_layer.weight"):
            zeros = np.zeros((case.padding, case.model.hidden_size), np.uint16)
            case.trained[end] = Value("BFloat16", np.concatenate([case.trained[end].data, zeros]))
        return problem or views.check(case, os.path.join(folder, "hf"), os.path.join(folder, "as-trained"),
                                      {**case.convert(), "format": "pt"}, case.torch_differs)

    case.check_views = check_views
    return case
