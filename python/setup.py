# SPDX-License-Identifier: Apache-2.0
"""Puts the library that was built in this tree into the package, with the conversion rules, as scripts/quickstart, make
and scripts/package leave it. Where none was built, the package looks for an installed one."""
import shutil
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TREE = Path(__file__).resolve().parent.parent
SONAME = "libreshard.so.1"


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
        library = built_library()
        if library:
            self.announce(f"the package carries {library}", level=2)
            shutil.copy(library, package / SONAME)
            rules = package / "convert"
            rules.mkdir()
            for file in (*(TREE / "convert").glob("*.rules"), *(TREE / "convert").glob("*.cuts")):
                shutil.copy(file, rules)


platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
setup(cmdclass={"build_py": build_with_library},
      options={"bdist_wheel": {"plat_name": platform}} if built_library() else {})
