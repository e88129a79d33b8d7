# SPDX-License-Identifier: Apache-2.0
"""Runs the cases: see README.md. Started by ./run, which says where the Python of each family is."""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, *(os.path.join(here, "..", folder) for folder in ("chunks", "interop", "support"))]

import families  # noqa: E402

sys.exit(families.main("tests/rules/run", {"language": 40, "mindformers": 42, "megatron": 10, "gemma": 8, "hybrid": 8, "bridged": 6,
                                           "towers": 10, "transformers": 10, "fused": 12, "adapters": 10, "meta": 10}))
