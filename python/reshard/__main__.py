# SPDX-License-Identifier: Apache-2.0
"""The programs: reshard, reshardfs and `python -m reshard`, which take the place of this process."""
from __future__ import annotations

import os
import shutil
import sys
from typing import Optional


def _find(name: str) -> Optional[str]:
    """The program of the wheel; of a package without programs, the one on PATH that is not this script."""
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    if os.path.exists(inside):
        return inside
    for folder in os.get_exec_path():
        path = shutil.which(name, path=folder)
        if path is not None and os.path.realpath(path) != os.path.realpath(sys.argv[0]):
            return path
    return None


def _run(name: str) -> None:
    """Ends in the program."""
    found = _find(name)
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
