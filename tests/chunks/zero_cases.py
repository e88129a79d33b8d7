# SPDX-License-Identifier: Apache-2.0
"""The family "zero": saves of DeepSpeed, and what must be seen through views of them.

A random case is random.Random(f"{seed}/{number}") and nothing else, so that any one of them replays alone.
"""
import glob
import json
import os
import random
import shutil
import time

import torch

import compared
import zero_program as program
from tensor_bytes import bits

FIXED = {}


def fixed(function):
    FIXED[function.__name__.replace("_", "-")] = function
    return function


def near(have, want):
    return have.shape == want.shape and torch.allclose(have.double(), want.double(), rtol=1e-2, atol=1e-5)


class Case:
    """A model that is trained and saved; DAMAGE(case) changes the save, and REFUSAL is then said."""

    lost = frozenset()  # what of the states is not compared

    def __init__(self, name, spec, damage=None, refusal=None):
        self.name, self.spec, self.damage, self.refusal = name, spec, damage, refusal

    def describe(self):
        return "  " + json.dumps(self.spec)

    def write(self, folder):
        source = os.path.join(folder, "checkpoint")
        os.makedirs(source)
        program.save(self.spec, source)
        self.tag = os.path.join(source, self.spec.get("tag") or f"global_step{self.spec['steps']}")
        self.merged = None if self.damage else program.merged(source)
        if self.spec.get("universal"):
            program.convert(self.tag, self.tag + "_universal")
            self.tag = source = self.tag + "_universal"
        if self.damage:
            self.damage(self)
        return source, {}

    def check_oracle(self, _folder):
        """What zero_to_fp32 makes of it, against one process of torch."""
        if self.damage:
            return None
        self.expected = program.expected(self.spec)
        lacks = set(self.expected["frozen"]) if self.spec["stage"] == 1 else set()
        for name, want in self.expected["weights"].items():
            if name not in lacks and not near(self.merged[name], want):
                return f"zero_to_fp32 has other values of {name} than torch"
        return None

    def check_views(self, folder, source, _options):
        out = os.path.join(folder, "pt")
        done = compared.run("export", source, out, "-o", "format=pt,strict")
        if self.refusal:
            if done.returncode == 0 or self.refusal not in done.stdout or os.path.exists(out):
                return f"exit {done.returncode} instead of a refusal that has '{self.refusal}': {done.stdout.strip()}"
            return None
        if done.returncode:
            return f"export exits with {done.returncode}: {done.stdout.strip()}"
        have = {}
        for path in glob.glob(out + "/**/*.pt", recursive=True):
            have.update(torch.load(path))
        return self.compare(have) or self.compare_weights(folder, source, have) or self.check_info(source)

    def check_info(self, source):
        """Matrices are not said to be cut along their axes, as ranks have ranges of their elements."""
        cuts = {row["name"]: row["cuts"] for row in json.loads(compared.run("info", source, "--json").stdout)["tensors"]}
        bad = [n for n, v in self.merged.items() if n not in cuts or (v.ndim > 1 and set(cuts[n]) != {1})]
        return f"reshard info shows {cuts}" if bad else None

    def compare(self, have):
        trained = {n for n in self.expected["state"]}
        for name, want in self.merged.items():
            if name not in have:
                return f"{name} is missing"
            if have[name].shape != want.shape or bits(have[name].to(want.dtype)) != bits(want):
                return f"{name} is not what zero_to_fp32 gives"
            if name in trained and have[name].dtype != torch.float32:
                return f"{name} is {have[name].dtype}"
        for name in self.expected["frozen"]:
            if not near(have[name], self.expected["weights"][name]):
                return f"{name} has other values"
        # ds_to_universal leaves the numbers of steps of stage 3 out.
        lost = {"step"} if self.spec.get("universal") and self.spec["stage"] == 3 else self.lost
        states = {f"optim.state.{n}.{k}": v for n, keys in self.expected["state"].items() for k, v in keys.items()
                  if isinstance(v, torch.Tensor) and k not in lost}
        for name, want in states.items():
            if name not in have or not near(have[name], want):
                return f"{name} is {'not what torch gives' if name in have else 'missing'}"
        more = set(have) - set(self.merged) - set(states) - set(self.expected["frozen"])
        return f"there are also {sorted(more)}" if more else None

    def compare_weights(self, folder, source, have):
        """A view for transformers has the weights alone."""
        from safetensors.torch import load_file
        out = os.path.join(folder, "hf")
        if said := compared.reshard("export", source, out, "-o", "view=huggingface"):
            return said
        shown = load_file(os.path.join(out, "model.safetensors"))
        want = [n for n in have if not n.startswith("optim.")]
        if sorted(shown) != sorted(want):
            return f"view=huggingface has {sorted(shown)}"
        return next((f"view=huggingface: {n}" for n in want if bits(shown[n]) != bits(have[n])), None)


def leaves(rng, count):
    out = []
    for i in range(count):
        shape = [rng.randint(1, 9) for _ in range(rng.choice((1, 2, 2, 3)))]
        params = {"weight": shape}
        if rng.random() < 0.5:
            params["bias"] = [rng.randint(1, 9)]
        leaf = {"name": rng.choice(("", "layers.")) + f"{'abcdefgh'[i]}", "params": params}
        if rng.random() < 0.3:
            params["cold"] = [rng.randint(1, 7), rng.randint(1, 7)]
            leaf["frozen"] = ["cold"]
        if rng.random() < 0.3:
            leaf["buffers"] = {"mean": ["float32", [3]], "seen": ["int64", [2]]}
        out.append(leaf)
    return out


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    stage = 1 + number % 3
    spec = {"stage": stage, "world": rng.randint(1, 4), "type": rng.choice(("bfloat16", "bfloat16", "float32")),
            "steps": rng.randint(1, 3), "seed": rng.randint(1, 10 ** 6), "groups": rng.randint(1, 2),
            "leaves": leaves(rng, rng.randint(2, 5)), "zero": {}, "config": {}}
    if rng.random() < 0.4:
        spec["universal"] = True
    elif stage < 3 and rng.random() < 0.4:
        spec["zero"]["round_robin_gradients"] = True
    if stage < 3 and rng.random() < 0.3:
        spec["zero"]["parameter_alignment"] = True
    if stage == 3 and rng.random() < 0.5:
        spec["zero"]["sub_group_size"] = rng.choice((1, 8, 20))
    first, last = spec["leaves"][0], spec["leaves"][-1]
    if rng.random() < 0.4:
        last["params"]["weight"] = first["params"]["weight"]
        spec["tied"] = {last["name"] + ".weight": first["name"] + ".weight"}
    return Case(f"zero-{seed}-{number}", spec)


def plain(stage, **more):
    """A model with tied, frozen and uneven parameters and buffers, of three ranks."""
    return {"stage": stage, "world": 3, "type": "bfloat16", "steps": 2, "seed": 1, "groups": 2,
            "leaves": [{"name": "a", "params": {"weight": [7, 5], "bias": [5]}},
                       {"name": "b.c", "params": {"weight": [3, 4], "cold": [3, 3]}, "frozen": ["cold"],
                        "buffers": {"mean": ["float32", [3]], "seen": ["int64", [2]]}},
                       {"name": "d", "params": {"weight": [7, 5], "one": [1]}}],
            "tied": {"d.weight": "a.weight"}, **more}


@fixed
def zero_stage_1(name):
    """bfloat16 in three processes; frozen parameters are in the model's file alone."""
    return Case(name, plain(1))


@fixed
def zero_stage_2(name):
    """float32."""
    return Case(name, plain(2, type="float32"))


@fixed
def zero_stage_3(name):
    """Each parameter is cut over the ranks; some of its parts are only padding."""
    return Case(name, plain(3))


@fixed
def zero_subgroups(name):
    """Flat tensors of a few elements each, so that parameters lie in several."""
    return Case(name, plain(3, zero={"sub_group_size": 4}, groups=1))


@fixed
def zero_round_robin(name):
    """The parameters are in another order than the model's."""
    return Case(name, plain(2, zero={"round_robin_gradients": True}))


@fixed
def zero_alignment(name):
    """There are gaps between the parameters."""
    return Case(name, plain(2, zero={"parameter_alignment": True}))


class Followed(compared.Followed, Case):
    def check_saves(self, folder, source, mnt):
        return next((said for steps in (1, 2, 3) if (said := self.check_save(folder, source, mnt, steps))), None)

    def check_save(self, folder, source, mnt, steps):
        from safetensors.torch import load_file
        program.save({**self.spec, "steps": steps}, source)
        copy = f"{folder}/{steps}.safetensors"
        if said := compared.take_latest(mnt, f"0_{steps}", copy):
            return said
        want, have = program.merged(source), load_file(copy)
        return next((f"step {steps}: another {name}" for name in want
                     if name not in have or bits(have[name].to(want[name].dtype)) != bits(want[name])), None)


@fixed
def zero_followed(name):
    """With follow: DeepSpeed writes the file "latest" when a save has ended."""
    return Followed(name, plain(2))


class FollowedOfTwo(Followed):
    """The second save has the first one's file of the model's states."""

    def check_saves(self, folder, source, mnt):
        if said := self.check_save(folder, source, mnt, 1):
            return said
        other, model = os.path.join(folder, "other"), "mp_rank_00_model_states.pt"
        program.save({**self.spec, "steps": 3}, other)
        shutil.copy(os.path.join(source, "global_step1", model), os.path.join(other, "global_step3", model))
        shutil.copytree(other, source, dirs_exist_ok=True)
        for _ in range(compared.TIMEOUT * 10):
            os.listdir(mnt)
            with open(mnt + "/.reshardfs/saves.json", encoding="utf-8") as file:
                said = file.read()
            if "by the model's states 1 steps were made, and by the optimizer's 3: they may be of two saves" in said:
                return None if os.readlink(mnt + "/latest") == "0_1" else "latest leads to a save of two"
            time.sleep(0.1)
        return f"saves.json does not say why: {said}"


@fixed
def zero_followed_of_two_saves(name):
    return FollowedOfTwo(name, plain(2))


@fixed
def zero_without_states(name):
    """An optimizer without moments."""
    return Case(name, plain(2, optimizer="SGD"))


@fixed
def zero_named(name):
    """The caller's own name of the save."""
    return Case(name, plain(1, world=1, tag="best so far"))


@fixed
def zero_few_elements(name):
    """Ranks with empty parts."""
    return Case(name, plain(1, world=4, groups=1, tied={}, leaves=[{"name": "a", "params": {"weight": [3]}}]))


def optimizer_file(case, rank):
    return glob.glob(os.path.join(case.tag, f"*zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"))[0]


def lose(case):
    os.remove(optimizer_file(case, 2))


def lose_model(case):
    os.remove(os.path.join(case.tag, "zero_pp_rank_0_mp_rank_00_model_states.pt"))


def truncate(case):
    os.truncate(optimizer_file(case, 1), os.path.getsize(optimizer_file(case, 1)) - 100)


def mix(case):
    """One rank's file is of a later step, saved by the same ranks."""
    other = case.tag + ".later"
    program.save({**case.spec, "steps": case.spec["steps"] + 1, "tag": "later"}, other)
    path = optimizer_file(case, 1)
    shutil.copy(os.path.join(other, "later", os.path.basename(path)), path)


def empty_latest(case):
    with open(os.path.join(os.path.dirname(case.tag), "latest"), "w", encoding="utf-8"):
        pass


@fixed
def zero_universal(name):
    """What ds_to_universal makes of a save: shared names have rounded values there, which are not taken."""
    return Case(name, plain(2, universal=True))


@fixed
def zero_universal_of_1(name):
    """Of stage 1, in float32, with gaps between the parameters."""
    return Case(name, plain(1, type="float32", universal=True, zero={"parameter_alignment": True}))


def of_param(case, *names):
    return os.path.join(case.tag, "zero", *names)


@fixed
def zero_universal_round_robin(name):
    """ds_to_universal gives wrong values of it."""
    return Case(name, plain(2, universal=True, zero={"round_robin_gradients": True}), lambda case: None,
                "made of a save with round_robin_gradients")


@fixed
def zero_universal_of_3(name):
    """Rows without shapes; frozen parameters are in the files of the model's states."""
    return Case(name, plain(3, universal=True))


@fixed
def zero_universal_of_3_in_groups(name):
    """Of several subgroups, in float32."""
    return Case(name, plain(3, type="float32", universal=True, zero={"sub_group_size": 8}))


def lose_last_model(case):
    """The last rank's file of the model's states, with its pieces of frozen parameters."""
    os.remove(max(glob.glob(os.path.join(case.tag, "zero_pp_rank_*_model_states.pt"))))


@fixed
def zero_universal_of_3_lost_model(name):
    return Case(name, plain(3, universal=True), lose_last_model,
                "by its dp_world_size there are more or fewer files of the model's states")


@fixed
def zero_universal_of_3_with_padding(name):
    """One more element, as a program that keeps the padding would write."""
    def damage(case):
        path = of_param(case, "a.bias", "fp32.pt")
        torch.save(torch.cat([torch.load(path), torch.zeros(1)]), path)
    return Case(name, plain(3, universal=True), damage, "it has another shape than the file of the model's states says")


@fixed
def zero_universal_of_3_without_a_moment(name):
    return Case(name, plain(3, universal=True), lambda case: os.remove(of_param(case, "d.one", "exp_avg_sq.pt")),
                "parameter 'd.one': the universal checkpoint has no exp_avg_sq.pt of it")


@fixed
def zero_universal_without_a_parameter(name):
    return Case(name, plain(2, universal=True), lambda case: shutil.rmtree(of_param(case, "a.bias")),
                "parameter 'a.bias': the universal checkpoint has no fp32.pt of it")


@fixed
def zero_universal_without_a_moment(name):
    return Case(name, plain(2, universal=True), lambda case: os.remove(of_param(case, "d.one", "exp_avg_sq.pt")),
                "parameter 'd.one': the universal checkpoint has no exp_avg_sq.pt of it")


@fixed
def zero_universal_of_another_parameter(name):
    """A file in the place of another."""
    return Case(name, plain(2, universal=True),
                lambda case: shutil.copy(of_param(case, "a.bias", "fp32.pt"), of_param(case, "b.c.weight", "fp32.pt")),
                "it has another shape than the file of the model's states says")


def convert_later(case):
    """Some files are of a later step."""
    other = case.tag + ".later"
    program.save({**case.spec, "steps": case.spec["steps"] + 1, "tag": "later"}, other)
    program.convert(os.path.join(other, "later"), os.path.join(other, "universal"))
    shutil.rmtree(of_param(case, "d.one"))
    shutil.copytree(os.path.join(other, "universal", "zero", "d.one"), of_param(case, "d.one"))


@fixed
def zero_universal_mixed(name):
    return Case(name, plain(2, universal=True), convert_later, "its optimizer has made another number of steps")


@fixed
def zero_universal_truncated(name):
    def damage(case):
        path = of_param(case, "a.weight", "exp_avg.pt")
        os.truncate(path, os.path.getsize(path) - 100)
    return Case(name, plain(2, universal=True), damage, "zero/a.weight/exp_avg.pt")


@fixed
def zero_lost(name):
    """The last rank's file is lost."""
    return Case(name, plain(2), lose, "by this file 3 ranks saved it, and there are files of 2")


@fixed
def zero_lost_model(name):
    """Stage 3 without the model's file of rank 0, which alone has the tied names."""
    return Case(name, plain(3), lose_model, "the file of rank 0 is missing")


@fixed
def zero_truncated(name):
    """A file lacks its end."""
    return Case(name, plain(3), truncate, "zero_pp_rank_1_mp_rank_00_optim_states.pt")


@fixed
def zero_mixed(name):
    """One rank's file is of another step; zero_to_fp32 reads it without a word."""
    return Case(name, plain(2), mix, "its optimizer has made another number of steps")


@fixed
def zero_mixed_3(name):
    """As above, of stage 3."""
    return Case(name, plain(3), mix, "its optimizer has made another number of steps")


def model_files(case):
    return sorted(glob.glob(os.path.join(case.tag, "*_model_states.pt")))


def mix_models(case):
    """The last file of the model's states is of a later step."""
    other = case.tag + ".later"
    program.save({**case.spec, "steps": case.spec["steps"] + 1, "tag": "later"}, other)
    path = model_files(case)[-1]
    shutil.copy(os.path.join(other, "later", os.path.basename(path)), path)


class Doubted(Case):
    """Files that may be of two saves are shown with a line of the log, and refused with strict."""

    def check_views(self, folder, source, options):
        done = compared.run("export", source, os.path.join(folder, "shown"), "-o", "format=pt")
        if done.returncode or f"{os.path.realpath(self.tag)}: {self.refusal}" not in done.stdout:
            return f"exit {done.returncode} without a line that has '{self.refusal}': {done.stdout.strip()}"
        return super().check_views(folder, source, options)


@fixed
def zero_model_of_another_step(name):
    """Buffers and frozen parameters come from the model's file: its steps are compared with the optimizer's."""
    return Doubted(name, plain(2), mix_models,
                   "by the model's states 3 steps were made, and by the optimizer's 2: they may be of two saves")


@fixed
def zero_model_of_another_step_universal(name):
    return Doubted(name, plain(2, universal=True), mix_models,
                   "by the model's states 3 steps were made, and by the optimizer's 2: they may be of two saves")


@fixed
def zero_models_of_two_steps(name):
    """One rank's pieces of frozen parameters are of another step."""
    return Case(name, plain(3), mix_models, "its training has made another number of steps than that of rank 0's file")


@fixed
def zero_models_of_two_versions(name):
    """As above, of another version of DeepSpeed."""
    def damage(case):
        state = torch.load(model_files(case)[1], weights_only=False)
        torch.save({**state, "ds_version": "0.14.4"}, model_files(case)[1])
    return Case(name, plain(3), damage, "another version of DeepSpeed wrote it than the files before it")


@fixed
def zero_skipped_steps(name):
    """A step without an effect, as with infinite gradients of float16, is none of the optimizer's."""
    class Skipped(Case):
        def write(self, folder):
            out = super().write(folder)
            for path in model_files(self):
                state = torch.load(path, weights_only=False)
                torch.save({**state, "global_steps": state["global_steps"] + 1, "skipped_steps": 1}, path)
            return out
    return Skipped(name, plain(3))


class Counting(Case):
    """COUNT(optimizer) changes how the optimizer of each file counts its steps."""

    lost = frozenset({"step"})

    def __init__(self, name, spec, count, **more):
        super().__init__(name, spec, **more)
        self.count = count

    def write(self, folder):
        out = super().write(folder)
        for path in glob.glob(os.path.join(self.tag, "*_optim_states.pt")):
            state = torch.load(path, weights_only=False)
            of = state["optimizer_state_dict"]
            self.count(of["optimizer_state_dict" if self.spec["stage"] == 3 else "base_optimizer_state"])
            torch.save(state, path)
        if self.damage:
            self.damage(self)
        return out

    def compare(self, have):
        """Numbers of steps that are no tensors are not shown."""
        return super().compare({name: value for name, value in have.items() if not name.endswith(".step")})


def count_as_fused_adam(optimizer):
    """It sets what its groups count to 0 once, and counts in the states, by numbers."""
    for group in optimizer["param_groups"]:
        group["step"] = 0
    for state in optimizer["state"].values():
        state["step"] = int(state["step"])


def count_in_groups(optimizer):
    """As that of apex, and DeepSpeed's before 0.6.5."""
    for group in optimizer["param_groups"]:
        group["step"] = int(optimizer["state"][0]["step"])
    for state in optimizer["state"].values():
        del state["step"]


def begin_with_a_step(optimizer):
    """DeepSpeed before 0.13.2 makes a step without gradients as a training begins."""
    for state in optimizer["state"].values():
        state["step"] += 1


@fixed
def zero_steps_of_fused_adam(name):
    """The optimizer of GPUs, if it is not offloaded."""
    return Counting(name, plain(2), count_as_fused_adam)


@fixed
def zero_steps_of_fused_adam_3(name):
    return Counting(name, plain(3), count_as_fused_adam)


@fixed
def zero_mixed_of_fused_adam(name):
    """One rank's file is of another step."""
    def damage(case):
        path = sorted(glob.glob(os.path.join(case.tag, "*_optim_states.pt")))[-1]
        state = torch.load(path, weights_only=False)
        begin_with_a_step(state["optimizer_state_dict"]["base_optimizer_state"])
        torch.save(state, path)
    return Counting(name, plain(2), count_as_fused_adam, damage=damage,
                    refusal="its optimizer has made another number of steps")


@fixed
def zero_steps_of_groups(name):
    return Counting(name, plain(2), count_in_groups)


@fixed
def zero_step_at_the_beginning(name):
    return Counting(name, plain(3), begin_with_a_step)


@fixed
def zero_not_ended(name):
    """The file "latest" is empty."""
    return Case(name, plain(1, world=1), empty_latest, "it is empty: the save of DeepSpeed has not ended")


@fixed
def zero_other_optimizer(name):
    """BF16_Optimizer, which has no zero_stage."""
    return Case(name, plain(1, config={"data_types": {"grad_accum_dtype": "fp32"}}), lambda case: None,
                "BF16_Optimizer")


@fixed
def zero_elastic(name):
    """The states of an optimizer in another form."""
    return Case(name, plain(2, zero={"elastic_checkpoint": True}), lambda case: None,
                "it was saved with elastic_checkpoint, which is not read")


def of_kind(kind, stage):
    return {"kind": kind, "stage": stage, "world": 2, "type": "bfloat16", "steps": 0}


@fixed
def zero_pipeline(name):
    """Two stages, whose files have names like those of tensor-parallel ranks."""
    return Case(name, of_kind("pipeline", 1), lambda case: None, "a save of DeepSpeed's pipeline, as 'layer_00-model_states.pt'")


@fixed
def zero_experts(name):
    return Case(name, of_kind("experts", 2), lambda case: None,
                "a save of DeepSpeed with experts, as 'layer_0_expert_0_mp_rank_00_model_states.pt' shows")


@fixed
def zero_tensor_parallel(name):
    return Case(name, of_kind("tensor", 1), lambda case: None,
                "a save of DeepSpeed with tensor parallelism, as 'mp_rank_01_model_states.pt' shows")


def add_experts(case):
    """As AutoEP marks its saves."""
    path = os.path.join(case.tag, "mp_rank_00_model_states.pt")
    state = torch.load(path, weights_only=False)
    torch.save({**state, "ds_autoep_layers": [{"name": "a"}]}, path)


@fixed
def zero_auto_experts(name):
    return Case(name, plain(2), add_experts, "it was saved with AutoEP, which is not read")


@fixed
def zero_offloaded(name):
    """The optimizer on NVMe, which a folder beside the files shows."""
    return Case(name, plain(2), lambda case: os.makedirs(os.path.join(case.tag, "offloaded_tensors", "rank00")),
                "has its optimizer in 'offloaded_tensors', which is not read")


def prepare():
    pass
