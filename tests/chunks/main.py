# SPDX-License-Identifier: Apache-2.0
"""Runs the cases: see README.md. Started by ./run, which says where the Python of each family is."""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "interop"), os.path.join(here, "..", "support")]

import families  # noqa: E402

sys.exit(families.main("tests/chunks/run", {"dcp": 60, "hyper": 50, "hyperprogram": 30, "made": 30, "megatron": 40, "mindformers": 40,
                                             "pairs": 0, "zero": 3}))
