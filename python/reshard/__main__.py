# SPDX-License-Identifier: Apache-2.0
"""The programs: reshard, reshardfs and `python -m reshard`, which take the place of this process."""
from __future__ import annotations

import os
import shutil
import sys


def _run(name: str) -> None:
    """Ends in the program of the wheel; of a package without programs, in the one on PATH."""
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    here = os.path.realpath(sys.argv[0])
    found = inside if os.path.exists(inside) else next(
        (path for folder in os.get_exec_path() if (path := shutil.which(name, path=folder)) and os.path.realpath(path) != here), None)
    if found is None:
        sys.exit(f"{name}: error: the program is not in this package, nor on PATH; try: make install")
    try:
        os.execv(found, [name, *sys.argv[1:]])
    except OSError as why:
        sys.exit(f"{name}: error: {found} cannot be run: {why.strerror}")


def reshard() -> None:
    _run("reshard")


def reshardfs() -> None:
    _run("reshardfs")


if __name__ == "__main__":
    reshard()
