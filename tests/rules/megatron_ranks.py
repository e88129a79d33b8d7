# SPDX-License-Identifier: Apache-2.0
"""Real ranks of a training of Megatron-Core's GPT, each a process with torch's gloo: they load one checkpoint, each its part
of it, and save another with Megatron-Core's own dist_checkpointing. What they do comes pickled from standard input.
"""
import os
import pickle
import signal
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, *(os.path.join(here, "..", folder) for folder in ("chunks", "interop"))]

import megatron_gpt  # noqa: E402
import megatron_program  # noqa: E402
import torch  # noqa: E402


def states(task, chunks):
    """The state dict of this process, with one for each virtual stage."""
    from megatron.core import parallel_state

    metadata = {**task["metadata"], "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    return {f"model{i}": chunk.sharded_state_dict(prefix=task["prefix"], metadata=metadata) for i, chunk in enumerate(chunks)}


def without_extra(states):
    return {key: {n: value for n, value in state.items() if "_extra_state" not in n} for key, state in states.items()}


def run(task, rank):
    from megatron.core import dist_checkpointing

    torch.set_num_threads(1)
    ranks, chunks = task["ranks"], task["chunks"]
    megatron_program.start(torch.distributed.FileStore(task["target"] + ".store", ranks), rank, ranks)
    megatron_gpt.divide(task["tp"], task["ep"], task["pp"], chunks)
    models = [megatron_gpt.build(task["model"], task["pp"], chunks, chunk) for chunk in range(chunks)]
    for model in models:
        for parameter in model.parameters():
            parameter.data.fill_(float("nan"))
    loaded = dist_checkpointing.load(without_extra(states(task, models)), task["source"])
    for i, model in enumerate(models):
        mine = {name.removeprefix(task["prefix"]): value for name, value in loaded[f"model{i}"].items()}
        told = model.load_state_dict(mine, strict=False)
        missing = [name for name in told.missing_keys if "_extra_state" not in name]
        assert not missing and not told.unexpected_keys, told
    dist_checkpointing.save(states(task, models), task["target"])


def main():
    task = pickle.load(sys.stdin.buffer)
    from megatron.core import dist_checkpointing  # noqa: F401 - once for all processes
    from megatron.core.models.gpt import gpt_model  # noqa: F401

    os.makedirs(task["target"])
    running = set()
    for rank in range(task["ranks"]):
        child = os.fork()
        if child == 0:
            try:
                run(task, rank)
                sys.stderr.flush()
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                sys.stderr.flush()
                os._exit(1)
        running.add(child)
    failed = False
    while running:
        child, status = os.wait()
        running.discard(child)
        if status and not failed:  # the others would wait for it
            failed = True
            for other in running:
                os.kill(other, signal.SIGKILL)
    sys.exit(failed)


main()
