#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Model types that other programs convert, and which of them have rules here: the table in doc/CONVERT.md.

    tests/rules/coverage.py [--update]              compares the table with tests/rules/types and the rules in convert
    tests/rules/coverage.py [--update] FOLDER…      and before it tests/rules/types with the sources of the programs

--update writes instead. FOLDERs are the packages of the lines of tests/rules/types, in their order; "-" takes a line as
it is. That of Megatron-Bridge needs transformers, too. Nothing is imported: registrations are read in the sources. One that registers a class of transformers counts by
the model type in that name.
"""
import ast
import difflib
import glob
import os
import re
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TYPES, DOCUMENT, RULES = (os.path.join(TOP, *parts) for parts in (("tests", "rules", "types"), ("doc", "CONVERT.md"), ("convert",)))
HEAD = "| program | types | with rules here | without |\n|---|---|---|---|\n"


def read(*parts):
    for path in sorted(glob.glob(os.path.join(*parts), recursive=True)):
        with open(path, encoding="utf-8") as file:
            yield file.read()


def types_of_rules(sides):
    """The model types of the rules between two sides."""
    return {kind for text in read(RULES, "*.rules") if re.search(rf"^sides {sides}$", text, re.M)
            for line in re.findall(r"^models (.*)$", text, re.M) for kind in line.split()}


def model_type(name, known):
    """That of a class, as Qwen3MoeForCausalLM."""
    name = re.sub(r"For(CausalLM|ConditionalGeneration)$", "", name).lower()
    return next((kind for kind in known if kind.replace("_", "") == name), name)


def transformers(folder):
    """Types whose experts, gate and up, are put into one tensor: by an entry of their own, or of another type."""
    said = {}
    for node in ast.walk(ast.parse(next(read(folder, "conversion_mapping.py")))):
        pairs = zip(node.keys, node.values) if isinstance(node, ast.Dict) else \
            [(at.slice, node.value) for at in getattr(node, "targets", [getattr(node, "target", None)]) if isinstance(at, ast.Subscript)]
        for kind, value in pairs:
            if isinstance(kind, ast.Constant):
                said.setdefault(kind.value, []).append(ast.unparse(value))

    def fuses(kind, above=()):
        texts = said.get(kind, []) if kind not in above else []
        others = [of for text in texts for of in re.findall(r"(?:^|mapping\[)'(\w+)'", text)]
        return any("MergeModulelist" in text and "experts.gate_up_proj" in text for text in texts) or \
            any(fuses(of, (*above, kind)) for of in others)
    return {kind for kind in said if kind.islower() and fuses(kind)}


def bridge(folder, known, texts):
    for text in read(folder, "models", "**", "*_bridge.py"):
        for name in re.findall(r'^\s*(?:@MegatronModelBridge.register_bridge\(|)source="?(\w+)"?,', text, re.M):
            kind = model_type(name, known)
            yield f"{kind}_text" if name.endswith("ForCausalLM") and f"{kind}_text" in texts else kind


def mcore_bridge(folder):
    for text in read(folder, "model", "**", "*.py"):
        for kinds in re.findall(r"ModelMeta\(\s*\w+\.\w+,\s*\[([^\]]*)\]", text):
            yield from re.findall(r"'(\w+)'", kinds)


def mbridge(folder):
    for text in read(folder, "models", "**", "*.py"):
        for kinds in re.findall(r"@register_model\(([^)]*)\)", text):
            yield from re.findall(r'"(\w+)"', kinds)


def mindformers(folder):
    for text in read(folder, "models", "*", "configuration_*.py"):
        yield from map(str.lower, re.findall(r'^\s+model_type = "(\w+)"', text, re.M))


def types_of_sources(paths):
    """What each program converts, or None for a folder that is not there."""
    known, texts = set(), set()
    if paths[0] != "-":
        known = {os.path.basename(path) for path in glob.glob(os.path.join(paths[0], "models", "*"))}
        texts = {kind for text in read(paths[0], "models", "*", "configuration_*.py")
                 for kind in re.findall(r'^\s+model_type = "(\w+_text)"', text, re.M)}
    else:  # the names of classes say no types without it
        paths[1] = "-"
    finders = transformers, lambda folder: bridge(folder, known, texts), mcore_bridge, mbridge, mindformers
    return [None if path == "-" else set(find(path)) for find, path in zip(finders, paths)]


def compare(path, have, want, update):
    """Whether a file is as it should be; --update makes it so."""
    if have == want:
        return True
    if update:
        with open(path, "w", encoding="utf-8") as file:
            file.write(want)
        return True
    name = os.path.relpath(path, TOP)
    sys.stdout.writelines(line for line in difflib.unified_diff(have.splitlines(True), want.splitlines(True), name, name, n=0))
    return False


def main(words):
    update = words[:1] == ["--update"]
    paths = words[update:]
    text, document = (next(read(path)) for path in (TYPES, DOCUMENT))
    rows = [(name, set(kinds.split())) for name, kinds in re.findall(r"^([^#\n].*): (.*)$", text, re.M)]
    if paths and len(paths) != len(rows):
        sys.exit(__doc__)
    good = True
    if paths:
        rows = [(name, kinds if found is None else found) for (name, kinds), found in zip(rows, types_of_sources(paths))]
        comment = "".join(line for line in text.splitlines(True) if line.startswith("#"))
        good = compare(TYPES, text, comment + "".join(f"{name}: {' '.join(sorted(kinds))}\n" for name, kinds in rows), update)
    sides = ["fused each"] + ["megatron huggingface"] * 3 + ["mindformers huggingface"]
    table = HEAD
    for (name, kinds), ours in zip(rows, map(types_of_rules, sides)):
        table += f"| {name} | {len(kinds)} | {len(kinds & ours)} | {', '.join(sorted(kinds - ours))} |\n"
    before, _, rest = document.partition(HEAD)
    after = re.sub(r"\A(\|.*\n)*", "", rest)
    good &= compare(DOCUMENT, document, before + table + after, update)
    if not good:
        print(" ".join(["if that is right: tests/rules/coverage.py --update"] + paths))
    return not good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
