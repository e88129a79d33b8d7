#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
    without_cuda.py FOLDER

PyTorch of PyPI is linked with the libraries of CUDA, gigabytes that no test here calls. This makes empty ones
beside those of PyTorch in FOLDER, its package: each with the symbols that PyTorch wants of it, which are
functions that return 0, so that it finds no graphics card, and goes on without.
"""
import os
import re
import subprocess
import sys

FOREIGN = re.compile(r"lib(cu|nv|nccl)")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(path):
    """(library, versions of its symbols) of those of CUDA that a library needs."""
    found = {name: set() for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", path))
             if FOREIGN.match(name)}
    current = None
    for line in output("readelf", "-VW", path).splitlines():
        file = re.search(r"File: (\S+)", line)
        version = re.search(r"Name: (\S+)\s+Flags", line)
        current = file[1] if file else current
        if version and current in found:
            found[current].add(version[1])
    return found


def undefined(path):
    """(symbol, version or None)"""
    for line in output("nm", "-D", "--undefined-only", "--with-symbol-versions", path).splitlines():
        name, _, version = line.split()[-1].partition("@")
        yield name, version.strip("@") or None


def defined(path):
    return {line.split()[-1].partition("@")[0] for line in output("nm", "-D", "--defined-only", path).splitlines()}


def make(folder, name, symbols):
    """One library: version -> symbols; those without a version are in version None."""
    code = "".join(f"long {s}(void) {{ return 0; }}\n" for group in symbols.values() for s in sorted(group))
    script = "".join(f"{v} {{ global: {' '.join(s + ';' for s in sorted(group))} }};\n"
                     for v, group in symbols.items() if v)
    stem = os.path.join(folder, name)
    with open(stem + ".c", "w") as f:
        f.write(code)
    with open(stem + ".map", "w") as f:
        f.write(script)
    versions = [f"-Wl,--version-script={stem}.map"] if script else []
    subprocess.run(["gcc", "-shared", "-fPIC", "-O0", "-w", "-fno-builtin", stem + ".c", "-o", stem, f"-Wl,-soname,{name}",
                    *versions], check=True)
    os.unlink(stem + ".c")
    os.unlink(stem + ".map")


def main(package):
    folder = os.path.join(package, "lib")
    own = [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".so") and not FOREIGN.match(n)]
    libraries, wanted, there = {}, {}, set()
    for path in own:
        for name, versions in needed(path).items():
            libraries.setdefault(name, set()).update(versions)
        for name, version in undefined(path):
            wanted.setdefault(name, set()).add(version)
        there |= defined(path)
    by_version = {v: name for name, versions in libraries.items() for v in versions}
    contents = {name: {v: set() for v in versions} for name, versions in libraries.items()}
    rest = next(iter(sorted(n for n in libraries if n.startswith("libcudart"))))
    for name, versions in wanted.items():
        for version in versions:
            if version in by_version:
                contents[by_version[version]][version].add(name)
            elif version is None and name not in there and re.match(r"(cu|nv|nccl|__cuda|_?cudnn)", name):
                contents[rest].setdefault(None, set()).add(name)
    for name, symbols in contents.items():
        make(folder, name, symbols)


if __name__ == "__main__":
    main(sys.argv[1])
