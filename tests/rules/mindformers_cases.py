# SPDX-License-Identifier: Apache-2.0
"""The family "mindformers": models as MindSpore Transformers keeps them, against its own converters.

A random case is random.Random(f"{seed}/{number}") and nothing else, so that any one of them replays alone. The number
decides which model it is.
"""
import os
import random

import oracle

oracle.quiet()

import architectures  # noqa: E402
import compared  # noqa: E402
import converters  # noqa: E402
import fixed_cases  # noqa: E402
import mindformers_program  # noqa: E402
import mindformers_saves as saves  # noqa: E402
import numpy as np  # noqa: E402
import random_cases  # noqa: E402
import ready_cuts  # noqa: E402
import training_names  # noqa: E402
import values  # noqa: E402
import views  # noqa: E402
from layouts import Item, Layout, Strategy  # noqa: E402
from model import cut  # noqa: E402
from values import Value  # noqa: E402

CONVERTERS, PROGRAMS = {}, {}
SHAPES = [*architectures.KINDS, "telechat3", "telechat3_moe", "llama_legacy", "qwen2_legacy", "adapter"]
OPTIONS = {"gate_up": ["interleaved", "split"], "qkv": ["grouped", "contiguous"], "experts_axis": ["joined", "own"]}
LEGACY_OPTIONS = {"qkv": ["split", "fused"]}
COUNTS = [1, 2, 2, 3, 4, 4, 6, 8]


def of_version(made, maker, version):
    if version not in made:
        made[version] = maker(os.environ["RFS_MINDFORMERS"], version)
    return made[version]


class Case:
    """A model in both names, with the options of the rules, and layouts on both sides of the training's names."""

    def __init__(self, name, shape, model, options, rng):
        self.name, self.shape, self.model, self.options = name, shape, model, options
        self.repeated = architectures.repeated(model)
        self.legacy = shape.endswith("_legacy")
        kind = training_names.Legacy if self.legacy else training_names.Mindformers
        self.trained = training_names.make(kind, model, self.repeated, **options)
        self.form = rng.choice(["whole", "ranks", "ranks", "2.0", "2.0"])
        self.version = rng.choice(mindformers_program.VERSIONS)
        self.devices, self.to = rng.choice(COUNTS), rng.choice(COUNTS)
        self.stages = rng.choice([1, 1, 2])
        self.state = rng.random() < 0.5   # the training also saved its optimizer's
        self.extra = rng.random() < 0.3   # HuggingFace's folder has more than the model needs
        self.files = rng.choice([1, 1, 2, 3])
        self.more = {}  # that the training saved besides
        self.rng = rng
        self.says, self.refusal, self.status = "", "", 1

    def describe(self):
        return "\n".join([f"  {self.model.describe()}", f"  {self.shape} {self.options}, {self.form} of {self.devices} x "
                          f"{self.stages}, to {self.to}", *(f"    {n} {v.dtype}{list(v.shape)}" for n, v in self.trained.items())])

    def convert(self):
        given = {"convert": views.rules(self.shape), "hf_config": self.config}
        return {**given, "convert_options": ":".join(f"{k}={v}" for k, v in self.options.items())} if self.options else given

    def layout(self, devices, shape):
        """A random one that divides the shape."""
        for _ in range(8):
            layout = random_cases.random_layout(self.rng, devices, len(shape))
            layout.opt = 0
            if all(size % pieces == 0 for size, pieces in zip(shape, layout.cut_pieces())):
                return layout
        return Layout([devices], [-1] * len(shape))

    def stage(self, name):
        return sum(map(ord, name)) % self.stages

    def saved(self):
        """name -> Value of all that the training saves."""
        out = {**self.trained, **self.more}
        if self.state:
            for name, value in list(self.trained.items())[:2]:
                out[f"adam_m.{name}"] = Value("Float32", np.zeros(value.shape, np.float32))
            out["global_step"] = Value("Int32", np.array([7], np.int32))
        return out

    def write(self, folder):
        self.config = os.path.join(folder, "hf", "config.json")
        more = {}
        if self.extra:
            more["model.layers.0.self_attn.rotary_emb.inv_freq"] = Value("Float32", np.ones(4, np.float32))
        if self.extra and self.model.tie_word_embeddings:
            more["lm_head.weight"] = self.model.tensors["model.embed_tokens.weight"]
        views.write_huggingface(os.path.join(folder, "hf"), self.model, {**self.model.tensors, **more}, self.files)
        source = os.path.join(folder, "trained")
        write = {"whole": self.write_whole, "ranks": self.write_ranks, "2.0": self.write_second}[self.form]
        return source, {**write(source), **self.convert(), "view": "huggingface"}

    def write_whole(self, source):
        values.save(os.path.join(source, "rank_0", "net.ckpt"), list(self.saved().items()))
        return {}

    def write_ranks(self, source):
        """Files of ranks with their strategy; some tensors are in none of it, and whole in all files of their stage."""
        named = self.saved()
        items = [Item(n, self.layout(self.devices, v.shape), v.shape, self.stage(n)) for n, v in named.items()]
        strategy = Strategy(items)
        for stage in range(strategy.stages):
            held = [i for i in items if i.stage == stage]
            for rank in range(self.devices):
                path = os.path.join(source, f"rank_{stage * self.devices + rank}", "net.ckpt")
                values.save(path, [(i.name, named[i.name].with_data(cut(named[i.name].data, i.layout, rank))) for i in held])
        strategy.write(source + ".src.ckpt")
        return {"src_strategy": source + ".src.ckpt"}

    def write_second(self, source):
        """Checkpoint 2.0."""
        checkpoint = saves.Checkpoint(self.version, self.devices, self.stages, prefix="CKP",
                                      balanced=self.rng.random() < 0.5 and self.stages * self.devices > 1)
        for name, value in self.saved().items():
            kind = "opt" if name.startswith("adam_") or name == "global_step" else "model"
            checkpoint.tensors.append(saves.Tensor(name, value, self.layout(self.devices, value.shape), (self.stage(name),), kind))
        saves.write(of_version(PROGRAMS, mindformers_program.Program, self.version), checkpoint, source)
        return {}

    def check_oracle(self, folder):
        """The real operators make of HuggingFace's tensors what our model of them says."""
        del folder
        problem = ready_cuts.plan_differs() or next(filter(None, (
            ready_cuts.program_differs(os.path.join(os.environ["RFS_MINDFORMERS"], v)) for v in mindformers_program.VERSIONS)), None)
        if problem:
            return problem
        if self.legacy:
            program = of_version(CONVERTERS, converters.Converters, self.version)
            return self.oracle_differs(converters.legacy_names(program, self.model, self.options))
        split = self.options.get("gate_up") == "split"  # which 2.0.0 does not know
        program = of_version(CONVERTERS, converters.Converters, "2.1.0" if split else self.version)
        made = converters.new_names(program, self.model, self.options, self.repeated)
        return self.oracle_differs(made) or self.check_back(program, made)

    def oracle_differs(self, made):
        if sorted(made) != sorted(self.trained):
            return f"mindformers makes {sorted(set(made) ^ set(self.trained))}, or does not"
        for name, value in self.trained.items():
            if np.ascontiguousarray(made[name]).tobytes() != value.data.tobytes():
                return f"mindformers makes another {name}"
        return None

    def check_back(self, program, made):
        """2.1.0's way back, of models whose list of operators it has."""
        if program.version == "2.0.0" or self.options.get("qkv") == "contiguous" or self.model.config.get("attention_bias") or \
                self.shape not in ("qwen3", "qwen3_moe"):
            return None
        for name, array in program.back(self.model, self.options, made).items():
            if np.ascontiguousarray(array).tobytes() != self.model.tensors[name].data.tobytes():
                return f"mindformers makes another {name} again"
        return None

    def check_views(self, folder, source, options):
        """From the training's names to HuggingFace's, and back."""
        wanted = {n: v for n, v in self.model.tensors.items()}
        problem = views.check(self, source, os.path.join(folder, "as-hf"), options,
                              lambda shown: views.huggingface_differs(shown, self.config, wanted))
        if problem or self.refusal:
            return problem and f"to HuggingFace: {problem}"
        return self.check_back_view(folder)

    def check_back_view(self, folder):
        """From HuggingFace's names to the training's, for the ranks of another strategy."""
        layouts = {n: self.layout(self.to, v.shape) for n, v in self.trained.items()}
        Strategy([Item(n, layout, self.trained[n].shape) for n, layout in layouts.items()]).write(folder + "/dst.ckpt")
        problem = views.check(self, os.path.join(folder, "hf"), os.path.join(folder, "as-trained"),
                              {**self.convert(), "dst_strategy": folder + "/dst.ckpt", "format": "ckpt"},
                              lambda shown: self.ranks_differ(shown, layouts))
        if problem or self.refusal:
            return problem and f"from HuggingFace: {problem}"
        return self.check_ready_cuts(folder)

    def check_ready_cuts(self, folder):
        """The ranks that a training has by its degrees of parallelism, in its own names and in HuggingFace's."""
        source, convert = os.path.join(folder, "hf"), {**self.convert(), "hf_config": self.config}
        family = ready_cuts.LEGACY if self.legacy else ready_cuts.MINDFORMERS
        if not self.extra:  # HuggingFace's folder has the model alone
            problem = ready_cuts.check(self, source, os.path.join(folder, "hf-cut"), ready_cuts.HUGGINGFACE,
                                       self.model.tensors, {"format": "safetensors"}, self.rng,
                                       lambda path, wanted: views.tensors_differ(views.read_safetensors(path), wanted))
            if problem:
                return f"HuggingFace's names: {problem}"
        return ready_cuts.check(
            self, source, os.path.join(folder, "cut"), family, self.trained, {**convert, "format": "ckpt"}, self.rng,
            lambda path, wanted: compared.differs(f"{path}/checkpoint_{path.rpartition('_')[2]}.ckpt", wanted))

    def ranks_differ(self, shown, layouts):
        for rank in range(self.to):
            wanted = {n: v.with_data(cut(v.data, layouts[n], rank)) for n, v in self.trained.items()}
            problem = compared.differs(os.path.join(shown, f"rank_{rank}", f"checkpoint_{rank}.ckpt"), wanted)
            if problem:
                return f"rank {rank}: {problem}"
        return None


def random_options(rng, shape):
    """Mostly the defaults, of which none is given."""
    known = LEGACY_OPTIONS if shape.endswith("_legacy") else OPTIONS
    shape = architectures.LIKE.get(shape, shape)
    fitting = [k for k in known if not (k == "experts_axis" and shape not in ("qwen3_moe", "deepseek_v3")) and
               not (k == "qkv" and shape == "deepseek_v3") and not (k == "gate_up" and shape == "qwen3_moe")]
    return {k: rng.choice(known[k]) for k in fitting if rng.random() < 0.35}


def random_model(rng, shape):
    config = architectures.random_config(rng, shape.removesuffix("_legacy"))
    if shape == "llama_legacy" and "head_dim" in config:  # of which the older models know nothing
        config["hidden_size"] = config["num_attention_heads"] * config.pop("head_dim")
    return architectures.fill(np.random.default_rng(rng.getrandbits(64)), config,
                              rng.choice(["BFloat16", "BFloat16", "Float32", "Float16"]))


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    shape = SHAPES[number % len(SHAPES)]
    if shape == "adapter":
        import mindformers_adapters  # which needs this module
        return mindformers_adapters.make(f"mindformers-{seed}-{number}", rng)
    model = random_model(rng, shape)
    options = random_options(rng, shape)
    return Case(f"mindformers-{seed}-{number}", shape, model, options, rng)


def prepare():
    oracle.ignore_free_memory()


FIXED = fixed_cases.Fixed(Case)
fixed_cases.add(FIXED)
FIXED = FIXED.all
