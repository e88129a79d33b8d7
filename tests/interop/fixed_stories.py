# SPDX-License-Identifier: Apache-2.0
"""Stories of no topic of their own."""
import os

import values
from registry import story
from story import Story
from values import random_value


@story
def renamed_prefix_without_strategies(rng, folder):
    """One whole checkpoint, given as it is for the sake of another option."""
    named = [("w", random_value(rng, "Float32", (4, 8))), ("step", random_value(rng, "Int32", ()))]
    values.save(os.path.join(folder, "src", "rank_0", "net.ckpt"), named)
    values.save(os.path.join(folder, "expected", "rank_0", "out_0.ckpt"), named)
    return Story({"format": "ckpt", "prefix": "out_"}, expected=os.path.join(folder, "expected"))


@story
def nothing_asked_for(rng, folder):
    """Without a strategy and anything else, there is nothing to reshard."""
    values.save(os.path.join(folder, "src", "rank_0", "net.ckpt"),
                [("w", random_value(rng, "Int8", (2,)))])
    return Story(refusal="nothing to reshard", exit_code=2)
