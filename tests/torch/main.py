#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, *(os.path.join(here, "..", folder) for folder in ("mount", "support"))]

import harness
import test_casts
import test_compared
import test_explained
import test_files
import test_parts
import test_reading
import test_refused
import test_safetensors
import test_sums
import torch

MODULES = [test_parts, test_sums, test_reading, test_files, test_refused, test_safetensors,
           test_casts, test_compared, test_explained]
if hasattr(torch.serialization, "set_crc32_options"):  # 2.6 and later
    import test_current

    MODULES.append(test_current)


def main():
    tests = [(name[5:], function) for module in MODULES for name, function in vars(module).items()
             if name.startswith("test_") and callable(function)]
    if "--list" in sys.argv:
        print(*(name for name, _ in tests), sep="\n")
        return 0
    return harness.run_all(tests, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
