#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A save of DeepSpeed's ZeRO 3 by 1,024 ranks, of a model of 70 * 10^9 parameters: from mounting to the first bytes.

    bench/zero.py [--ranks 1024] [--layers 80] [--rounds 3] [--reshardfs PROGRAM] [--folder FOLDER] PYTHON DEEPSPEED

PYTHON has torch, and DEEPSPEED is a folder with the package. The weights and both moments are zeros: the files are sparse,
1.1 TB in less than 100 MB on disk. Metadata is what counts: 2,048 archives, and 723 parameters in 1,024 pieces each, with
two moments.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

WRITE = """
import math, os, subprocess, sys, warnings
warnings.simplefilter("ignore")
os.environ.update({"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0"})
folder, ranks, layers, deepspeed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
sys.path.insert(0, deepspeed)
import torch
from collections import OrderedDict
from deepspeed.runtime.zero.config import ZeroStageEnum

HIDDEN, INNER, VALUES, WORDS = 8192, 28672, 1024, 128256
shapes = {"model.embed_tokens.weight": (WORDS, HIDDEN)}
for i in range(layers):
    at = f"model.layers.{i}."
    shapes.update({at + "self_attn.q_proj.weight": (HIDDEN, HIDDEN), at + "self_attn.k_proj.weight": (VALUES, HIDDEN),
                   at + "self_attn.v_proj.weight": (VALUES, HIDDEN), at + "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
                   at + "mlp.gate_proj.weight": (INNER, HIDDEN), at + "mlp.up_proj.weight": (INNER, HIDDEN),
                   at + "mlp.down_proj.weight": (HIDDEN, INNER), at + "input_layernorm.weight": (HIDDEN,),
                   at + "post_attention_layernorm.weight": (HIDDEN,)})
shapes.update({"model.norm.weight": (HIDDEN,), "lm_head.weight": (WORDS, HIDDEN)})
shapes = OrderedDict((name, torch.Size(shape)) for name, shape in shapes.items())
flat = sum(-(-math.prod(shape) // ranks) for shape in shapes.values())
config = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
torch.save({"module": OrderedDict((name, torch.empty(0, dtype=torch.bfloat16)) for name in shapes), "buffer_names": [],
            "optimizer": None, "param_shapes": [shapes], "frozen_param_shapes": None, "shared_params": {},
            "frozen_param_fragments": None, "lr_scheduler": None, "skipped_steps": 0, "global_steps": 1,
            "global_samples": 1, "dp_world_size": ranks, "mp_world_size": 1, "ds_config": config, "ds_version": "0.19.8"},
           os.path.join(folder, "model"))
moment = {"step": torch.tensor(1.0), "exp_avg": torch.zeros(flat), "exp_avg_sq": torch.zeros(flat)}
torch.save({"optimizer_state_dict": {"zero_stage": ZeroStageEnum(3), "partition_count": ranks, "overflow": False,
                                     "optimizer_state_dict": {"state": {0: moment}, "param_groups": [{"params": [0]}]},
                                     "fp32_flat_groups": [torch.zeros(flat)]},
            "ds_config": config, "ds_version": "0.19.8"}, os.path.join(folder, "optimizer"))
subprocess.run(["fallocate", "--dig-holes", os.path.join(folder, "optimizer")], check=True)
step = os.path.join(folder, "save", "global_step1")
os.makedirs(step)
for rank in range(ranks):
    for what, name in (("model", "zero_pp_rank_%d_mp_rank_00_model_states.pt"),
                       ("optimizer", "bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt")):
        subprocess.run(["cp", "--sparse=always", os.path.join(folder, what), os.path.join(step, name % rank)], check=True)
with open(os.path.join(folder, "save", "latest"), "w") as file:
    file.write("global_step1")
print(sum(math.prod(shape) for shape in shapes.values()), len(shapes))
"""


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_bytes(reshardfs, source, mount):
    """Seconds until all files are listed with their sizes and one gives bytes, those of processors, and the server's MiB."""
    start = time.monotonic()
    with subprocess.Popen([reshardfs, "-f", source, mount, "-o", "view=huggingface,dtype=bf16"]) as server:
        while not os.path.ismount(mount):
            if server.poll() is not None or time.monotonic() > start + 600:
                sys.exit("bench: it cannot be mounted")
            time.sleep(0.001)
        listed = {name: os.stat(os.path.join(mount, name)).st_size for name in os.listdir(mount)}
        with open(os.path.join(mount, max(listed, key=listed.get)), "rb") as file:
            file.read(1 << 20)
        took = time.monotonic() - start, processor_seconds(server.pid)
        with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
            most = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        subprocess.run(["fusermount3", "-u", mount], check=True)
    return *took, most / 1024


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reshardfs", default="reshardfs")
    parser.add_argument("--folder", help="for the files, 2 GB for a moment")
    parser.add_argument("python")
    parser.add_argument("deepspeed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        mount = os.path.join(folder, "mnt")
        os.mkdir(mount)
        written = subprocess.run([arguments.python, "-c", WRITE, folder, str(arguments.ranks), str(arguments.layers),
                                  arguments.deepspeed], stdout=subprocess.PIPE, text=True, check=True).stdout
        print("%s parameters in %s tensors, %d ranks" % (*written.split()[-2:], arguments.ranks), flush=True)
        rounds = [first_bytes(arguments.reshardfs, os.path.join(folder, "save"), mount) for _ in range(arguments.rounds)]
        for what, at in (("seconds", 0), ("seconds of processors", 1), ("MiB", 2)):
            print(f"mount, ls and first bytes: {statistics.median(one[at] for one in rounds):.1f} {what}")


if __name__ == "__main__":
    main()
