#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MindSpore's half of the benchmarks: one process, so that its import is not in any time.

Reads one JSON list a line, does it, and answers with one line "RESULT " + JSON on standard output:
  ["transform", SRC, DST, PREFIX, SRC_STRATEGY, DST_STRATEGY] -> seconds of transform_checkpoints
  ["load", FILE]                                              -> seconds of load_checkpoint
  ["map", FILE]                                               -> seconds of safetensors' safe_open and all of its tensors
"""
import json
import os
import sys
import time

# MindSpore prints progress; only the answers may reach the reader.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import mindspore as ms  # noqa: E402
import safetensors  # noqa: E402


def transform(source, target, prefix, source_strategy, target_strategy):
    ms.transform_checkpoints(source, target, prefix, source_strategy, target_strategy)


def load(path):
    # Kept until the time is taken, so that freeing it is not in there.
    return ms.load_checkpoint(path)


def map_tensors(path):
    """The library maps the file, shared and read-only, and copies each tensor out of that."""
    with safetensors.safe_open(path, framework="np") as file:
        return [file.get_tensor(name) for name in file.keys()]


VERBS = {"transform": transform, "load": load, "map": map_tensors}


def main():
    print("RESULT " + json.dumps(ms.__version__), file=answers, flush=True)
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        begin = time.monotonic()
        kept = VERBS[verb](*arguments)
        took = time.monotonic() - begin
        del kept
        print("RESULT " + json.dumps(took), file=answers, flush=True)


if __name__ == "__main__":
    main()
