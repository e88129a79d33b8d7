# SPDX-License-Identifier: Apache-2.0
"""Which files of a folder count, against transformers: a view has what from_pretrained loads of the same folder."""
import json
import os
import shutil
import subprocess
import sys

import safetensors.torch
import torch
import torch.distributed.checkpoint
import transformers
from cases import path, run, seeded

transformers.logging.set_verbosity_error()
SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
         "vocab_size": 32, "tie_word_embeddings": False}
MODEL = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("llama", **SMALL))


def weights(seed):
    """The model's names with values that no other seed has, so that a file that should not count is seen."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(tensor.shape, generator=generator) for name, tensor in MODEL.state_dict().items()}


def save(file, tensors):
    os.makedirs(os.path.dirname(file), exist_ok=True)
    if file.endswith(".safetensors"):
        safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    else:
        torch.save(tensors, file)


def save_parts(folder, tensors, stem, ending, index, below=""):
    names = list(tensors)
    parts = [names[:7], names[7:]]
    files = [f"{below}{stem}-{i + 1:05d}-of-00002{ending}" for i in range(2)]
    for file, part in zip(files, parts):
        save(os.path.join(folder, file), {name: tensors[name] for name in part})
    with open(os.path.join(folder, index), "w", encoding="utf-8") as out:
        json.dump({"metadata": {"total_size": 1}, "weight_map": {n: f for f, part in zip(files, parts) for n in part}}, out)


def one(folder, seed, name):
    save(os.path.join(folder, name), weights(seed))


# Each is a model by itself. transformers takes the first kind that is there.
KINDS = {
    "safetensors": lambda folder, seed: one(folder, seed, "model.safetensors"),
    "safetensors parts": lambda folder, seed: save_parts(folder, weights(seed), "model", ".safetensors", "model.safetensors.index.json"),
    "parts below": lambda folder, seed: save_parts(folder, weights(seed), "a", ".safetensors", "model.safetensors.index.json", "./shards/"),
    "bin": lambda folder, seed: one(folder, seed, "pytorch_model.bin"),
    "bin parts": lambda folder, seed: save_parts(folder, weights(seed), "pytorch_model", ".bin", "pytorch_model.bin.index.json"),
}
# Files that no loader of transformers takes beside a model.
EXTRAS = ["mtp.safetensors", "model.fp16.safetensors", "consolidated.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth",
          "training_args.bin", "pytorch_model.fp16.bin", "other.safetensors", "model-00007-of-00009.safetensors", "optimizer.bin"]


def make(folder, kinds, extras):
    os.makedirs(folder)
    MODEL.config.save_pretrained(folder)
    for seed, kind in enumerate(kinds):
        KINDS[kind](folder, seed)
    for seed, extra in enumerate(extras):
        one(folder, 100 + seed, extra)


def reshard(*arguments):
    done = subprocess.run(["reshard", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def shown(folder):
    tensors = {}
    for file in os.listdir(folder):
        if file.endswith(".safetensors"):
            tensors.update(safetensors.torch.load_file(os.path.join(folder, file)))
    return tensors


def counts(name, kinds, extras):
    folder, out = path(name), path(name + "-out")
    make(folder, kinds, extras)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    said = reshard("export", folder, out, "-o", "view=huggingface").stderr
    got = shown(out)
    assert sorted(got) == sorted(loaded), (kinds, extras)
    for key, tensor in loaded.items():
        assert torch.equal(got[key], tensor), (kinds, extras, key)
    beside = json.loads(reshard("info", "--json", folder).stdout)["aside"]
    named = {row["file"] for row in beside}
    assert set(extras) <= named, (kinds, extras, named)
    assert not extras or "not read" in said, said
    shutil.rmtree(folder)
    shutil.rmtree(out)
    return said, beside


def test_each_kind():
    for i, kind in enumerate(KINDS):
        said, beside = counts(f"kind-{i}", [kind], [])
        assert "not read" not in said and not beside, (kind, said)


def test_kinds_beside_each_other():
    for number, kinds in enumerate((("safetensors", "bin"), ("safetensors", "bin parts"), ("safetensors parts", "bin parts"),
                                    ("safetensors parts", "bin"), ("parts below", "bin parts"))):
        said, beside = counts(f"two-{number}", kinds, [])
        assert "pytorch_model" in said and any("pytorch_model" in row["file"] for row in beside), (kinds, said)


def test_one_file_beside_parts():
    """transformers takes the one file, whatever the index beside it names."""
    for number, (kinds, part) in enumerate(((("safetensors", "safetensors parts"), "model-00001-of-00002.safetensors"),
                                            (("bin", "bin parts"), "pytorch_model-00001-of-00002.bin"))):
        said, beside = counts(f"both-{number}", kinds, [])
        assert part in said and any(row["file"] == part for row in beside), (kinds, said)


def test_each_extra():
    for number, extra in enumerate(EXTRAS):
        said, _ = counts(f"extra-{number}", ["safetensors"], [extra])
        assert extra in said, said


def test_random():
    rng = seeded()
    for number in range(12):
        kinds = [rng.choice(["safetensors", "safetensors parts", "parts below", "bin", "bin parts"])]
        if not kinds[0].startswith("bin") and rng.random() < 0.5:
            kinds.append(rng.choice(["bin", "bin parts"]))
        counts(f"random-{number}", kinds, rng.sample(EXTRAS, rng.randint(0, 5)))


def test_strict():
    folder = path("strict")
    make(folder, ["safetensors"], ["model.fp16.safetensors", "optimizer.pt"])
    reshard("export", folder, path("strict-1"), "-o", "view=huggingface,strict")
    save(os.path.join(folder, "mtp.safetensors"), {"mtp.fc.weight": torch.ones(3)})
    done = subprocess.run(["reshard", "export", folder, path("strict-2"), "-o", "view=huggingface,strict"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "mtp.safetensors" in done.stderr and "mtp.fc.weight" in done.stderr, done.stderr
    row = [row for row in json.loads(reshard("info", "--json", folder).stdout)["aside"] if row["file"] == "mtp.safetensors"]
    assert row[0]["tensors_of_its_own"] == 1 and row[0]["first"] == "mtp.fc.weight", row


def lacks(folder, tensors, config):
    """Whether transformers makes weights that FOLDER lacks, and what strict says of it."""
    os.makedirs(folder)
    config.save_pretrained(folder)
    save(os.path.join(folder, "model.safetensors"), tensors)
    _, said = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    out = folder + "-out"
    done = subprocess.run(["reshard", "export", folder, out, "-o", "view=huggingface,strict"], capture_output=True, text=True, check=False)
    shutil.rmtree(folder)
    return bool(said["missing_keys"]), done.returncode != 0, done.stderr


def test_each_missing_tensor():
    """strict refuses a model that lacks a tensor, as transformers makes it up; and no other."""
    whole = weights(0)
    assert lacks(path("lacks", "nothing"), whole, MODEL.config)[:2] == (False, False)
    for number, name in enumerate(whole):
        missing, refused, said = lacks(path("lacks", str(number)), {n: t for n, t in whole.items() if n != name}, MODEL.config)
        assert missing and refused and "random weights" in said, (name, said)


def test_layers_of_two_kinds():
    """Layers with experts and without lack nothing; one with an expert less does."""
    config = transformers.AutoConfig.for_model("qwen2_moe", **{**SMALL, "num_hidden_layers": 4}, num_experts=4, num_experts_per_tok=2,
                                               moe_intermediate_size=8, shared_expert_intermediate_size=8, mlp_only_layers=[0, 2])
    saved = path("kinds", "saved")
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(saved)
    whole = shown(saved)
    assert lacks(path("kinds", "whole"), whole, config)[:2] == (False, False)
    name = "model.layers.3.mlp.experts.2.up_proj.weight"
    less = {n: t for n, t in whole.items() if n != name}
    assert len(less) == len(whole) - 1
    folder = path("kinds", "less")
    os.makedirs(folder)
    config.save_pretrained(folder)
    save(os.path.join(folder, "model.safetensors"), less)
    done = subprocess.run(["reshard", "export", folder, folder + "-out", "-o", "view=huggingface,strict"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "layer 3 has 3 tensors like" in done.stderr, done.stderr


def test_tied_and_classifier():
    config = transformers.AutoConfig.for_model("llama", **{**SMALL, "tie_word_embeddings": True})
    tied = {n: t for n, t in weights(0).items() if n != "lm_head.weight"}
    assert lacks(path("lacks", "tied"), tied, config)[:2] == (False, False)
    folder = path("classifier")
    os.makedirs(folder)
    MODEL.config.save_pretrained(folder)
    save(os.path.join(folder, "model.safetensors"), {**tied, "score.weight": torch.ones(2, 16)})
    reshard("export", folder, folder + "-out", "-o", "view=huggingface,strict")


def test_entry_in_each_format():
    """entry= is a dict, or the beginning of names, in whatever format they are."""
    flat = {"net.a.w": torch.arange(6.0).reshape(2, 3), "net.b": torch.ones(4), "head.w": torch.zeros(2)}
    nested = {"net": {"a.w": flat["net.a.w"], "b": flat["net.b"]}, "head": {"w": flat["head.w"]}}
    deep = {"app": nested, "step": 3}
    save(path("entry", "flat.safetensors"), flat)
    for name, state in ("flat", flat), ("nested", nested), ("deep", deep), ("flat below", {"app": flat}):
        save(path("entry", name + ".pt"), state)
        torch.distributed.checkpoint.save(state, checkpoint_id=path("entry", name))
    want = {"a.w": flat["net.a.w"], "b": flat["net.b"]}
    for name, entry, beginning in (("flat.safetensors", "net", True), ("flat.pt", "net", True), ("flat", "net", True),
                                   ("nested.pt", "net", False), ("nested", "net", False), ("deep.pt", "app.net", False),
                                   ("deep", "app.net", False), ("flat below.pt", "app.net", True), ("flat below", "app.net", True)):
        out = path("entry-out")
        said = reshard("export", path("entry", name), out, "-o", f"view=huggingface,entry={entry}").stderr
        got = shown(out)
        assert sorted(got) == sorted(want) and all(torch.equal(got[n], t) for n, t in want.items()), (name, got)
        assert ("head.w" in said) == beginning, (name, said)
        shutil.rmtree(out)
        done = subprocess.run(["reshard", "export", path("entry", name), out, "-o", "view=huggingface,entry=nett"], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "entry=nett" in done.stderr, (name, done.stderr)


if __name__ == "__main__":
    sys.exit(run(globals(), lambda: None))
