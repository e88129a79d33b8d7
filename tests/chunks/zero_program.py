# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed trains a model for some steps and saves it: a process for each rank. A model is a dict:

    {"stage": 1 to 3, "world": ranks, "type": "float32" or "bfloat16", "steps": N, "tag": name or None,
     "leaves": [{"name": "a.b", "params": {name: shape}, "frozen": [names], "buffers": {name: [dtype, shape]}}],
     "tied": {"leaf.param": "leaf.param"}, "groups": N, "zero": {more options of zero_optimization}, "seed": N,
     "optimizer": "AdamW" or "SGD", "config": {more options}, "save": {more arguments of save_checkpoint}}

A parameter's gradient is a tensor of numbers that differ from their neighbours, the same in all ranks. So torch's
optimizer, in one process, gives the same weights and moments.
"""
import logging
import math
import os
import sys
import tempfile
import traceback
import types
import warnings

os.environ.update({"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "TORCH_CPP_LOG_LEVEL": "ERROR"})
warnings.filterwarnings("ignore")
sys.path.insert(0, os.environ["RFS_DEEPSPEED"])

import torch  # noqa: E402

import deepspeed  # noqa: E402

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # else it compiles one
torch.compile = lambda function=None, **_: function or (lambda one: one)  # an optimizer that is not used has it
logging.getLogger("DeepSpeed").setLevel(logging.ERROR)

LR = 0.01


def numbers(seed, name, shape):
    """Numbers that bfloat16 has exactly, in an order of their own for each parameter."""
    generator = torch.Generator().manual_seed(seed * 1000003 + sum((i + 1) * b for i, b in enumerate(name.encode())))
    n = math.prod(shape)
    return ((torch.randperm(n, generator=generator) % 251).float() - 125).reshape(shape)


class Leaf(torch.nn.Module):
    def __init__(self, spec, seed):
        super().__init__()
        self.grads = {}
        for name, shape in spec["params"].items():
            full = f"{spec['name']}.{name}"
            self.register_parameter(name, torch.nn.Parameter(numbers(seed, full, shape) / 64))
            self.grads[name] = numbers(seed + 1, full, shape)
            getattr(self, name).requires_grad_(name not in spec.get("frozen", []))
        for name, (dtype, shape) in spec.get("buffers", {}).items():
            value = numbers(seed, f"{spec['name']}.{name}", shape).to(getattr(torch, dtype))
            self.register_buffer(name, value)

    def forward(self, x):
        for name, p in self.named_parameters():
            if p.requires_grad:
                x = x + (p * self.grads[name].to(p.dtype)).float().sum()
        return x


class Model(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.leaves = []
        for one in spec["leaves"]:
            at, *path = self, *one["name"].split(".")
            for step in path[:-1]:
                if not hasattr(at, step):
                    at.add_module(step, torch.nn.Module())
                at = getattr(at, step)
            leaf = Leaf(one, spec["seed"])
            at.add_module(path[-1], leaf)
            self.leaves.append(leaf)
        named = {one["name"]: leaf for one, leaf in zip(spec["leaves"], self.leaves)}
        for new, old in spec.get("tied", {}).items():
            (a, x), (b, y) = new.rsplit(".", 1), old.rsplit(".", 1)
            setattr(named[a], x, getattr(named[b], y))
            named[a].grads[x] = named[b].grads[y]

    def forward(self, x):
        for leaf in self.leaves:
            x = leaf(x)
        return x


def in_groups(spec, model):
    """The trainable parameters, as the optimizer takes them: those of every second name in another group."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    n = spec.get("groups", 1)
    return [{"params": trainable[k::n], "weight_decay": 0.01 * k} for k in range(n)]


def optimizer_of(spec, groups):
    if spec.get("optimizer") == "SGD":
        return torch.optim.SGD(groups, lr=LR)
    return torch.optim.AdamW(groups, lr=LR)


def expected(spec):
    """What one process gets: {name: weight}, {name: {key: state}}."""
    model = Model(spec)
    kept = {n: p.data.clone() for n, p in model.named_parameters() if not p.requires_grad}
    if spec["type"] != "float32":
        for p in model.parameters():
            p.data = p.data.to(getattr(torch, spec["type"])).float()
    optimizer = optimizer_of(spec, in_groups(spec, model))
    for _ in range(spec["steps"]):
        optimizer.zero_grad()
        model(torch.zeros(())).backward()
        optimizer.step()
    names = {id(p): n for n, p in model.named_parameters()}
    state = {names[id(p)]: dict(s) for p, s in optimizer.state.items()}
    weights = {n: p.data for n, p in model.named_parameters(remove_duplicate=False)}
    return {"weights": weights, "state": state, "frozen": sorted(kept),
            "buffers": {n: b for n, b in model.named_buffers()}}


def config(spec):
    out = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "wall_clock_breakdown": False,
           "steps_per_print": 1000000000, "zero_force_ds_cpu_optimizer": False, "gradient_clipping": 0.0,
           "zero_optimization": {"stage": spec["stage"], "reduce_bucket_size": 1000, **spec.get("zero", {})}}
    if spec["stage"] == 3:
        out["zero_optimization"].setdefault("stage3_param_persistence_threshold", 0)
    if spec["type"] == "bfloat16":
        out["bf16"] = {"enabled": True}
    elif spec["type"] == "float16":
        out["fp16"] = {"enabled": True, "loss_scale": 1}
    return {**out, **spec.get("config", {})}


def pipeline(spec):
    """Two stages."""
    from deepspeed.pipe import PipelineModule
    model = PipelineModule(layers=[torch.nn.Linear(4, 4) for _ in range(4)], num_stages=2, loss_fn=torch.nn.MSELoss())
    return deepspeed.initialize(model=model, config={**config(spec), "train_batch_size": 1},
                                model_parameters=list(model.parameters()),
                                optimizer=torch.optim.AdamW(model.parameters()))[0]


def experts(spec):
    """An expert in each rank."""
    from deepspeed.moe.layer import MoE
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), MoE(4, torch.nn.Linear(4, 4), num_experts=2, ep_size=2))
    groups = split_params_into_different_moe_groups_for_optimizer({"params": list(model.parameters()), "name": "all"})
    return deepspeed.initialize(model=model, config=config(spec), optimizer=torch.optim.AdamW(groups))[0]


class InTwo:
    """What DeepSpeed asks of a program that divides its tensors over two ranks, as Megatron does."""

    def __init__(self):
        self.all = torch.distributed.new_group([0, 1])
        self.own = [torch.distributed.new_group([rank]) for rank in (0, 1)][torch.distributed.get_rank()]
        for name in ("model", "tensor_model"):
            setattr(self, f"get_{name}_parallel_rank", torch.distributed.get_rank)
            setattr(self, f"get_{name}_parallel_world_size", lambda: 2)
            setattr(self, f"get_{name}_parallel_group", lambda: self.all)

    def get_data_parallel_rank(self):
        return 0

    def get_data_parallel_world_size(self):
        return 1

    def get_data_parallel_group(self):
        return self.own


def in_two(spec):
    model = torch.nn.Linear(4, 4)
    return deepspeed.initialize(model=model, config=config(spec), mpu=InTwo(),
                                optimizer=torch.optim.AdamW(model.parameters()))[0]


KINDS = {"pipeline": pipeline, "experts": experts, "tensor": in_two}


def as_rank(spec, folder, rank, store):
    import torch.distributed as dist

    torch.set_num_threads(1)
    world = spec["world"]
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)})
    dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(store, world))
    deepspeed.init_distributed("gloo")
    if "kind" in spec:
        KINDS[spec["kind"]](spec).save_checkpoint(folder)
        dist.barrier()
        return
    model = Model(spec)
    engine, _, _, _ = deepspeed.initialize(model=model, config=config(spec),
                                           optimizer=optimizer_of(spec, in_groups(spec, model)))
    for _ in range(spec["steps"]):
        engine.backward(engine(torch.zeros(())))
        engine.step()
    # Objects of classes that nobody else has, as trainers give them.
    client = {"args": types.SimpleNamespace(lr=LR), "level": logging.PlaceHolder(None), "when": [torch.Generator]}
    engine.save_checkpoint(folder, tag=spec.get("tag"), client_state=client, **spec.get("save", {}))
    dist.barrier()
    dist.destroy_process_group()


def start(spec, folder, rank, store, log):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        as_rank(spec, folder, rank, store)
        code = 0
    except BaseException:  # noqa: BLE001 - a child must not go on in its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def save(spec, folder):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch, open(os.path.join(scratch, "log"), "w+") as log:
        store = os.path.join(scratch, "store")
        children = [start(spec, folder, rank, store, log) for rank in range(spec["world"])]
        failed = [os.waitpid(child, 0)[1] for child in children]
        log.seek(0)
        if any(failed):
            raise RuntimeError(f"a rank failed: {log.read()}")


def merged(folder, tag=None):
    """What zero_to_fp32 makes of a save, or an exception."""
    import contextlib
    import io

    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return get_fp32_state_dict_from_zero_checkpoint(folder, tag)


def convert(folder, target):
    """Makes a universal checkpoint of a save, by DeepSpeed's ds_to_universal."""
    import contextlib
    import io

    from deepspeed.checkpoint import ds_to_universal
    args = types.SimpleNamespace(input_folder=folder, output_folder=target, num_extract_workers=1, num_merge_workers=1,
                                 keep_temp_folder=False, strict=True, inject_missing_state=True)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ds_to_universal.main(args)
