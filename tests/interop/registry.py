# SPDX-License-Identifier: Apache-2.0
"""The fixed cases by name. A case is made when it is asked for: some are large."""
import zlib

import numpy as np

FIXED = {}
STORIES = {}


def case(function):
    """Registers a function (rng) -> Case under its name, with dashes."""
    name = function.__name__.strip("_").replace("_", "-")
    assert name not in FIXED
    FIXED[name] = function
    return function


def story(function):
    """Registers a function (rng, folder) -> story.Story under its name, with dashes."""
    name = function.__name__.strip("_").replace("_", "-")
    assert name not in FIXED and name not in STORIES
    STORIES[name] = function
    return function


def tell(name, folder):
    """The story, its source written below the folder."""
    return STORIES[name](np.random.default_rng(zlib.crc32(name.encode())), folder)


def make(name):
    out = FIXED[name](np.random.default_rng(zlib.crc32(name.encode())))
    out.name = name
    out.note = out.note or (FIXED[name].__doc__ or "").strip()
    return out
