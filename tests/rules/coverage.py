#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints which model types other programs convert, and which of them have rules here: the table in doc/CONVERT.md.

    tests/rules/coverage.py TRANSFORMERS BRIDGE MCORE_BRIDGE MBRIDGE MINDFORMERS

Each is the folder of a package; "-" leaves a row out. Nothing is imported: registrations are read in the sources. One that
registers a class of transformers counts by the model type in that name.
"""
import glob
import os
import re
import sys

RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "convert")


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
    """Types whose experts are fused as those of qwen2_moe or mixtral are."""
    text = next(read(folder, "conversion_mapping.py"))
    return {kind for kind, like in re.findall(r'"(\w+)": "(qwen2_moe|mixtral)"', text) if kind.islower()} | {"qwen2_moe", "mixtral"}


def bridge(folder, known, training):
    for text in read(folder, "models", "**", "*_bridge.py"):
        for name in re.findall(r'^\s*(?:@MegatronModelBridge.register_bridge\(|)source="?(\w+)"?,', text, re.M):
            kind = model_type(name, known)
            yield f"{kind}_text" if name.endswith("ForCausalLM") and f"{kind}_text" in training else kind


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


def main(paths):
    known = {os.path.basename(path) for path in glob.glob(os.path.join(paths[0], "models", "*"))}
    training = types_of_rules("megatron huggingface")
    rows = [
        ("transformers: experts in one tensor", paths[0], transformers, types_of_rules("fused each")),
        ("Megatron-Bridge", paths[1], lambda folder: bridge(folder, known, training), training),
        ("mcore-bridge", paths[2], mcore_bridge, training),
        ("mbridge", paths[3], mbridge, training),
        ("MindSpore Transformers", paths[4], mindformers, types_of_rules("mindformers huggingface")),
    ]
    print("| program | types | with rules here | without |\n|---|---|---|---|")
    for name, folder, find, ours in rows:
        if folder == "-":
            continue
        kinds = set(find(folder))
        print(f"| {name} | {len(kinds)} | {len(kinds & ours)} | {', '.join(sorted(kinds - ours))} |")


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(sys.argv[1:])
