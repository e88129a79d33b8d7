# SPDX-License-Identifier: Apache-2.0
"""Puts the library that was built in this tree into the package, as scripts/quickstart and make leave it. Where none was
built, the package looks for an installed one. scripts/package has put the library, the programs and share/ into this folder
already, and names the platform of the wheel."""
import os
import shutil
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
TREE = HERE.parent
SONAME = "libreshard.so.1"
MACHINES = {b"\x3e\0": "x86_64", b"\xb7\0": "aarch64"}  # the field e_machine, of little-endian processors
PLATFORM = os.environ.get("RESHARD_WHEEL")


def built_library():
    """The newest one of the tree, or None."""
    found = [folder / ".libs" / SONAME for folder in (TREE, TREE / "build" / "quickstart", TREE / "build" / "hand")]
    return max((library for library in found if library.exists()), key=lambda library: library.stat().st_mtime,
               default=None)


class build_with_library(build_py):
    def run(self):
        package = Path(self.build_lib, "reshard")
        shutil.rmtree(package, ignore_errors=True)  # also what an earlier build has left
        super().run()
        library = None if PLATFORM else built_library()
        if library:
            self.announce(f"the package carries {library}", level=2)
            shutil.copy(library, package / SONAME)


def platform_of(library):
    """Where a library runs: on this machine, or, by its ELF header, on another one that it was built for."""
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    with open(library, "rb") as file:
        machine = MACHINES.get(file.read(20)[18:])
    return f"linux_{machine}" if machine and here.startswith("linux_") else here


def shared_files():
    """Manual pages, completions and conversion rules: (folder below the prefix, files)."""
    files = sorted(path.relative_to(HERE) for path in (HERE / "share").rglob("*") if path.is_file())
    return [(str(folder), [str(path) for path in files if path.parent == folder])
            for folder in sorted({path.parent for path in files})]


platform = PLATFORM or (platform_of(built_library()) if built_library() else None)


class WithPrograms(Distribution):
    """A package with programs of a platform belongs into the folder for those (Root-Is-Purelib: false)."""

    def has_ext_modules(self):
        return platform is not None


class wheel_of_platform(bdist_wheel):
    """The library is called by ctypes: any Python 3 will do."""

    def get_tag(self):
        return ("py3", "none", platform) if platform else super().get_tag()


setup(distclass=WithPrograms, cmdclass={"build_py": build_with_library, "bdist_wheel": wheel_of_platform},
      data_files=shared_files(), options={"bdist_wheel": {"plat_name": platform}} if platform else {})
