# SPDX-License-Identifier: Apache-2.0
"""Runs the cases: see README.md. Started by ./run, which says where the Python is."""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, *(os.path.join(here, "..", folder) for folder in ("chunks", "interop", "support")),
                os.path.join(here, "..", "..", "python")]

import families  # noqa: E402

sys.exit(families.main("tests/quantized/run", {"quantized": 44, "gguf": 20}))
