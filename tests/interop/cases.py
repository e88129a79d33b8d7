# SPDX-License-Identifier: Apache-2.0
"""All cases by name: the fixed ones of the fixed_*.py files and random-SEED-NUMBER."""
import fnmatch

import fixed_compiler  # noqa: F401 - each registers its cases
import fixed_encrypted  # noqa: F401
import fixed_files  # noqa: F401
import fixed_layouts  # noqa: F401
import fixed_manual  # noqa: F401
import fixed_outputs  # noqa: F401
import fixed_outward  # noqa: F401
import fixed_redundancy  # noqa: F401
import fixed_rules  # noqa: F401
import fixed_pipelines  # noqa: F401
import fixed_safetensors  # noqa: F401
import fixed_stories  # noqa: F401
import fixed_strategies  # noqa: F401
import fixed_trees  # noqa: F401
import fixed_whole  # noqa: F401
import random_cases
from registry import FIXED, STORIES, make


def one_random(seed, number):
    return f"random-{seed}-{number}", lambda: random_cases.make(seed, number)


def fixed(pattern="*"):
    """[(name, function that makes the case)] of the fixed cases that match."""
    return [(n, lambda n=n: make(n)) for n in fnmatch.filter(FIXED, pattern)]


def stories(pattern="*"):
    return fnmatch.filter(STORIES, pattern)


def by_name(name):
    """The cases that a name or a pattern means; none when there are none."""
    if name.startswith("random-"):
        seed, _, number = name[len("random-"):].rpartition("-")
        return [one_random(seed, int(number))] if seed and number.isdigit() else []
    return fixed(name)


def everything(seeds, count):
    return fixed() + [one_random(s, i) for s in seeds for i in range(count)]
