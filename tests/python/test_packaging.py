# SPDX-License-Identifier: Apache-2.0
"""Wheels that pip builds of the package, with a library beside it, as a build leaves it, and without."""
import email
import os
import shutil
import subprocess
import sys
import zipfile

from cases import path, run

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
LIBRARY = os.path.realpath(os.environ["RESHARD_LIBRARY"])


def wheel(name, environment):
    """Its file name, what it says of itself, and its other files; the tree NAME was made by tree()."""
    words = ("wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--wheel-dir", path(name, "made"))
    subprocess.run([sys.executable, "-m", "pip", *words, path(name, "python")], check=True, env={**os.environ, **environment})
    (file,) = os.listdir(path(name, "made"))
    with zipfile.ZipFile(path(name, "made", file)) as archive:
        (said,) = (n for n in archive.namelist() if n.endswith(".dist-info/WHEEL"))
        return file, email.message_from_bytes(archive.read(said)), archive.namelist()


def tree(name):
    shutil.copytree(os.path.join(TOP, "python"), path(name, "python"), ignore=shutil.ignore_patterns("build", "*.egg-info"))


def check(got, tag, pure, library):
    file, said, names = got
    assert file.endswith(f"-{tag}.whl"), file
    assert said.get_all("Tag") == [tag], said.as_string()
    assert said["Root-Is-Purelib"] == pure, said.as_string()
    assert ("reshard/libreshard.so.1" in names) == library, names
    assert "reshard/__init__.py" in names, names


def test_a_wheel_with_the_library():
    """It is of one processor, and of no version of Python; so it is not of pure Python, as installers ask."""
    tree("built")
    os.mkdir(path("built", ".libs"))
    shutil.copy(LIBRARY, path("built", ".libs", "libreshard.so.1"))
    check(wheel("built", {}), f"py3-none-linux_{os.uname().machine}", "false", True)


def test_a_wheel_of_a_release():
    """As scripts/package makes it, which puts all into the package and gives the platform."""
    tree("released")
    shutil.copy(LIBRARY, path("released", "python", "reshard", "libreshard.so.1"))
    platform = f"manylinux_2_28_{os.uname().machine}"
    check(wheel("released", {"RESHARD_WHEEL": platform}), f"py3-none-{platform}", "false", True)


def test_a_wheel_without_a_library():
    tree("alone")
    check(wheel("alone", {}), "py3-none-any", "true", False)


if __name__ == "__main__":
    sys.exit(run(dict(globals()), lambda: None))
