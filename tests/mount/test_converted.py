# SPDX-License-Identifier: Apache-2.0
"""Sources that conversion rules are applied to: the tensors, and the files beside the model's config."""
import errno
import json
import os
import shutil
import threading

from forge import WHOLE, Param, Tree, content_of
from harness import *
from test_access import place_of
from test_trust import BOB, NOBODY, OUT, needs_root, point, reads

RULES = """
sides training model
models tiny
w = transpose(model.w [config.cols, config.rows])
"""


def model(rows=64, cols=32, state=(), **more):
    """A training's tree, the rules for it, and a model's folder with its config; the tree and the options."""
    tree = Tree(folder("tree"), [Param("w", (rows, cols), 0, 1), *state], 4, 2)
    beside = folder("model")
    config = {"model_type": "tiny", "rows": rows, "cols": cols, **more}
    for name, data in (("config.json", json.dumps(config)), ("tokenizer.json", '{"a": 1}'), ("secret.txt", "mine")):
        with open(os.path.join(beside, name), "w") as file:
            file.write(data)
    with open(os.path.join(tree.dir, "tiny.rules"), "w") as file:
        file.write(RULES)
    return tree, beside, (f"src_strategy={tree.dir}/src_strategy.ckpt,view=huggingface,convert={tree.dir}/tiny.rules,"
                          f"hf_config={beside}/config.json")


def tensor_of(data):
    """The shape and the bytes of the only tensor of a safetensors file."""
    n = int.from_bytes(data[:8], "little")
    about = json.loads(data[8 : 8 + n])["model.w"]
    begin, end = about["data_offsets"]
    return about["shape"], data[8 + n + begin : 8 + n + end]


def transposed(data, rows, cols, item):
    return b"".join(data[(r * cols + c) * item : (r * cols + c + 1) * item] for c in range(cols) for r in range(rows))


def test_a_model_with_its_files():
    tree, beside, options = model()
    whole = tree.full["w"]
    with Mount(tree.src, options) as m:
        equal(sorted(os.listdir(m.mnt)), ["config.json", "model.safetensors", "tokenizer.json"], "what is there")
        shape, data = tensor_of(read_all(os.path.join(m.mnt, "model.safetensors")))
        equal(shape, [32, 64], "the shape")
        same_bytes(data, transposed(whole, 64, 32, len(whole) // (64 * 32)), "the transposed weight")
        for name in ("config.json", "tokenizer.json"):
            same_bytes(read_all(os.path.join(m.mnt, name)), read_all(os.path.join(beside, name)), name)


def huggingface_log(tree, beside, *more, **config):
    """The log of a mount as HuggingFace's files, and their names."""
    with open(os.path.join(beside, "config.json"), "w") as file:
        json.dump(config, file)
    with Foreground(tree.src, ",".join([f"src_strategy={tree.dir}/src_strategy.ckpt,view=huggingface", *more])) as m:
        data = read_all(os.path.join(m.mnt, "model.safetensors"))
        names = set(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])) - {"__metadata__"}
        there = sorted(os.listdir(m.mnt))
        shown = read_all(os.path.join(m.mnt, "config.json")).decode() if "config.json" in there else None
        return m.log(), names, there, shown


def test_a_model_with_its_files_without_rules():
    """The config and what is beside it, and weights alone; the log tells of what is left out and of names that no loader knows."""
    params = [Param("model.norm.weight", (64, 32), 0, 1), Param("adam_m.model.norm.weight", (64, 32), 0, 1),
              Param("global_step", (1,), WHOLE, WHOLE, "Int32")]
    tree, beside = Tree(folder("tree"), params, 2, 2), folder("beside")
    for name in ("tokenizer.json", "chat_template.jinja", "secret.txt"):
        with open(os.path.join(beside, name), "w") as file:
            file.write(name)
    given, weight = f"hf_config={beside}/config.json", {"model.norm.weight"}
    known = ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]
    left_out = "2 values of the training beside the weights are left out: 'adam_m.model.norm.weight' and others; only=* shows them"
    unknown = f"{beside}/config.json: no tensor has the name of one of qwen3, such as 'model.embed_tokens.weight'"

    log, names, there, shown = huggingface_log(tree, beside, given, model_type="qwen3", quantization_config={"bits": 4}, hidden_size=3)
    equal((names, there, json.loads(shown)), (weight, known, {"model_type": "qwen3", "hidden_size": 3}), "what is there")
    check(log.count(left_out) == 1 and "no tensor has" not in log, log)

    log, names, there, _ = huggingface_log(tree, beside, model_type="qwen3")
    equal((names, there), (weight, ["model.safetensors"]), "without the config")
    log, names, _, _ = huggingface_log(tree, beside, given, "only=*", model_type="qwen3")
    equal(names, {p.name for p in params}, "all of it")
    check("left out" not in log, log)

    other = Tree(folder("other"), [Param("model.model.norm.weight", (64, 32), 0, 1)], 2, 2)
    log, _, _, _ = huggingface_log(other, beside, given, model_type="qwen3")
    check(log.count(unknown) == 1 and "the first is 'model.model.norm.weight'" in log and "left out" not in log, log)
    log, _, there, _ = huggingface_log(other, beside, given, model_type="gpt2")
    check("no tensor has" not in log, log)
    equal(there, known, "what is there")
    fails(2, "option hf_config is for rules, dequantize, view=huggingface and GGUF files; try: convert=NAME, dequantize, or view=huggingface",
          other.src, folder("refused"), "-o", f"{given},src_strategy={other.dir}/src_strategy.ckpt")
    fails(1, f"{beside}: is a folder; try: {beside}/config.json", other.src, folder("refused"), "-o",
          f"hf_config={beside},view=huggingface,src_strategy={other.dir}/src_strategy.ckpt")


# What torch.compile, activation checkpointing, FSDP, DistributedDataParallel and PEFT put into names.
WRAPPED = {
    "model.embed_tokens.weight": "model.embed_tokens.weight",
    "model.layers.0._orig_mod.mlp.up_proj.weight": "model.layers.0.mlp.up_proj.weight",
    "model.layers.1._checkpoint_wrapped_module._fsdp_wrapped_module.mlp.up_proj.weight": "model.layers.1.mlp.up_proj.weight",
    "_fsdp_wrapped_module.module.model.norm.weight": "model.norm.weight",
    "base_model.model.lm_head.weight": "lm_head.weight",
}


def test_names_with_wrappers_in_them():
    """They are told and refused, as layers without a tensor are; names=unwrap shows those of the model, with the same bytes."""
    tree = Tree(folder("tree"), [Param(name, (64, 32), 0, 1) for name in WRAPPED], 2, 2)
    beside, config = folder("beside"), {"model_type": "qwen3", "num_hidden_layers": 2}
    given = f"hf_config={beside}/config.json"
    told = "4 of 5 names have a wrapper's part in them"
    log, names, _, _ = huggingface_log(tree, beside, given, **config)
    check(log.count(told) == 1 and "try: names=unwrap" in log, log)
    equal(names, set(WRAPPED), "as they are")
    log, names, _, _ = huggingface_log(tree, beside, given, "names=unwrap", "strict", **config)
    check("wrapper" not in log and "layer" not in log, log)
    equal(names, set(WRAPPED.values()), "without wrappers")
    log, _, _, _ = huggingface_log(tree, beside, model_type="other")
    check("3 of 5 names have a wrapper's part in them" in log, log)

    log, _, _, _ = huggingface_log(tree, beside, given, "names=unwrap", **{**config, "num_hidden_layers": 3})
    check("no tensor is of layer 2, and the model has 3" in log, log)
    strict = f"src_strategy={tree.dir}/src_strategy.ckpt,view=huggingface,strict,{given}"
    fails(1, f"{tree.src}: no tensor is of layer 2, and the model has 3: a loader would make random weights; "
          "try: a whole checkpoint, or the config.json that belongs to it", tree.src, folder("refused"), "-o", f"{strict},names=unwrap")

    with Foreground(tree.src, f"src_strategy={tree.dir}/src_strategy.ckpt,view=huggingface,names=unwrap") as m:
        data = read_all(os.path.join(m.mnt, "model.safetensors"))
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        for wrapped, bare in WRAPPED.items():
            begin, end = header[bare]["data_offsets"]
            same_bytes(data[8 + size + begin : 8 + size + end], tree.full[wrapped], bare)

    twice = Tree(folder("twice"), [Param(name, (64, 32), 0, 1) for name in ("a.weight", "module.a.weight")], 2, 2)
    fails(1, f"{twice.src}: parameter 'a.weight': this and 'module.a.weight' would both be shown as 'a.weight'; "
          "try: names of their own in the file of names=", twice.src, folder("refused"), "-o",
          f"src_strategy={twice.dir}/src_strategy.ckpt,view=huggingface,names=unwrap")


def test_states_of_an_optimizer_are_left_out():
    """Two values and a counter, with one line in the log; without the rules' drop the first of them is refused."""
    tree, _, options = model(state=(
        Param("adam_m.w", (64, 32), 0, 1), Param("adam_v.w", (64, 32), 0, 1), Param("global_step", (1,), WHOLE, WHOLE, "Int32")))
    rules = os.path.join(tree.dir, "tiny.rules")
    fails(1, f"{tree.src}: parameter 'adam_m.w': is taken by no rule of {rules}; try: drop_source=NAME, or drop in "
          "the rules, if it is not part of the model", tree.src, folder("refused"), "-o", options)
    with open(rules, "a") as file:
        file.write("drop left adam_* global_step\n")
    with Foreground(tree.src, options) as m:
        got = read_all(os.path.join(m.mnt, "model.safetensors"))
        same_bytes(tensor_of(got)[1], transposed(tree.full["w"], 64, 32, 4), "the weight")
        lines = [line for line in m.log().splitlines() if "leaves out" in line]
        check(len(lines) == 1 and "conversion leaves out 3 of 4 values, which the rules drop: 'adam_m.w' and others" in lines[0],
              f"the log: {m.log()}")


def test_a_lost_rank_below_a_converted_view():
    """What needs it is refused by its name in the view, or left out everywhere; all else is shown."""
    tree, beside, options = model(state=(Param("n", (4,), WHOLE, WHOLE), Param("m", (4,), WHOLE, WHOLE)))
    with open(os.path.join(tree.dir, "tiny.rules"), "a") as file:
        file.write("n = model.n [4]\nm = model.m [4]\n")
    shutil.rmtree(os.path.join(tree.src, "rank_1"))
    fails(1, f"{tree.src}: parameter 'model.w': needs 'w', which is incomplete: rank_1 has no checkpoint, and no other rank is "
          "known to hold the same; try: the checkpoint of that rank; or names=FILE with null for each tensor that is incomplete",
          tree.src, folder("refused"), "-o", options)
    names = os.path.join(tree.dir, "names.json")
    with open(names, "w") as file:
        json.dump({"model.w": None}, file)
    with Mount(tree.src, f"{options},names={names},file_size=16") as m:
        files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        equal(sorted(os.listdir(m.mnt)), ["config.json", *files, "model.safetensors.index.json", "tokenizer.json"], "what is there")
        index = json.loads(read_all(os.path.join(m.mnt, "model.safetensors.index.json")))
        equal(sorted(index["weight_map"]), ["model.m", "model.n"], "the index")
        for name, file in index["weight_map"].items():
            data = read_all(os.path.join(m.mnt, file))
            same_bytes(data[8 + int.from_bytes(data[:8], "little"):], tree.full[name[-1]], name)
        tensors = os.listdir(os.path.join(m.mnt, ".reshardfs", "tensors", "full"))
        equal(sorted(name for name in tensors if name.endswith(".npy")), ["model.m.npy", "model.n.npy"], "tensors")
        same_bytes(read_all(os.path.join(m.mnt, "config.json")), read_all(os.path.join(beside, "config.json")), "config.json")


def with_a_copy(name, differs):
    """A training that also saved "out", cut along the other axis, which the rules take for a copy of w."""
    tree, beside, options = model()
    made = content_of(tree.params[0], 0)
    other = bytes([made[0] ^ 1]) + made[1:] if differs else made
    params = [*tree.params, Param("out", (64, 32), 1, 1), Param("n", (4,), WHOLE, WHOLE)]
    tree = Tree(folder(name), params, 4, 2, content=lambda p, v: other if p.name == "out" else content_of(p, v))
    with open(os.path.join(tree.dir, "tiny.rules"), "w") as file:
        file.write(RULES + "n = model.n [4]\ncopy left out = w\n")
    return tree, (f"src_strategy={tree.dir}/src_strategy.ckpt,view=huggingface,convert={tree.dir}/tiny.rules,"
                  f"hf_config={beside}/config.json,file_size=8200")


def test_a_copy_that_is_one():
    tree, options = with_a_copy("same", False)
    with Foreground(tree.src, options) as m:
        got = read_all(os.path.join(m.mnt, "model-00001-of-00002.safetensors"))
        same_bytes(tensor_of(got)[1], transposed(tree.full["w"], 64, 32, 4), "the weight")
        lines = [line for line in m.log().splitlines() if "compared with their originals" in line]
        check(len(lines) == 1 and "1 tensor that the rules leave out" in lines[0], f"the log: {m.log()}")


def test_a_copy_that_differs():
    """Nothing that is made of the original is shown; all else is, and nobody compares for it."""
    tree, options = with_a_copy("other", True)
    why = (f"{tree.src}: parameter 'out': has other bytes than 'w', of which it should be a copy: {tree.dir}/tiny.rules: line 6; "
           "try: rules of your own that make a tensor of each")
    fails(1, why, "--check", tree.src, "-o", options + ",log_level=error")
    with Foreground(tree.src, options) as m:
        files = {name: os.stat(os.path.join(m.mnt, name)).st_size for name in os.listdir(m.mnt)}
        tensors = os.path.join(m.mnt, ".reshardfs", "tensors", "full")
        equal(os.stat(os.path.join(tensors, "model.w.npy")).st_size, 128 + 64 * 32 * 4, "the size of a file that can't be read")
        for name in [n for n in files if n != "model-00001-of-00002.safetensors"]:
            equal(len(read_all(os.path.join(m.mnt, name))), files[name], name)
        check(len(read_all(os.path.join(tensors, "model.n.npy"))) > 0, "the other tensor")
        check("compared" not in m.log(), f"compared too early: {m.log()}")
        for path in (os.path.join(m.mnt, "model-00001-of-00002.safetensors"), os.path.join(tensors, "model.w.npy")) * 2:
            try:
                os.close(os.open(path, os.O_RDONLY))
                check(False, f"{path} can be opened")
            except OSError as error:
                equal(error.errno, errno.EINVAL, path)
        check(why in m.log(), f"the log: {m.log()}")
        check(m.log().count("compared with their originals") == 1, f"compared again: {m.log()}")


def shown_config(state, told):
    """The config that a mount shows of one for quantized weights, and the given one; it is a source like others."""
    tree, beside, options = model(state=state, quantization_config={"quant_method": "fp8"})
    with open(os.path.join(tree.dir, "tiny.rules"), "a") as file:
        file.write("keep codes\n")
    with open(os.path.join(beside, "config.json")) as file:
        config = json.load(file)
    with Foreground(tree.src, options) as m:
        path = os.path.join(m.mnt, "config.json")
        text = read_all(path)
        equal(len(text), os.stat(path).st_size, "its size")
        check(told in m.log(), f"the log: {m.log()}")
        with open(os.path.join(beside, "config.json"), "a") as file:
            file.write("\n")
        try:
            read_all(path)
            check(False, "a config that was changed is read")
        except OSError as error:
            equal(error.errno, errno.ESTALE, "a config that was changed")
    return json.loads(text), config


def test_a_config_of_quantized_weights():
    """It loses the member that says so, as no tensor is quantized."""
    shown, given = shown_config((), "config.json is shown without its quantization_config: no tensor is quantized")
    del given["quantization_config"]
    equal(shown, given, "the config")


def test_a_config_of_codes():
    """Where a tensor may be of quantized weights, it stays, with a warning."""
    shown, given = shown_config((Param("codes", (4,), WHOLE, WHOLE, "Int32"),),
                                "config.json keeps its quantization_config, because 'codes' is Int32")
    equal(shown, given, "the config")


def test_a_file_of_the_model_that_changes():
    tree, beside, options = model()
    with Mount(tree.src, options) as m:
        same_bytes(read_all(os.path.join(m.mnt, "tokenizer.json")), b'{"a": 1}', "before")
        with open(os.path.join(beside, "tokenizer.json"), "w") as file:
            file.write('{"a": 23}')
        try:
            got = read_all(os.path.join(m.mnt, "tokenizer.json"))
            check(False, f"it is still read: {got}")
        except OSError as error:
            equal(error.errno, errno.ESTALE, "a changed file")
        check(len(read_all(os.path.join(m.mnt, "config.json"))) > 0, "the others are there")


def test_rights_to_the_files_of_the_model():
    """Each has its own, and a link that its folder's owner put there leads to no file of root's."""
    needs_root()
    tree, beside, options = model()
    for where in (place_of(), tree.dir, beside):
        os.chmod(where, 0o755)
    os.chmod(os.path.join(beside, "tokenizer.json"), 0o600)
    for rank in range(4):
        os.chmod(tree.path(rank), 0o644)
    with Mount(tree.src, options + ",allow_other") as m:
        equal(reads(NOBODY, os.path.join(m.mnt, "tokenizer.json")), "Permission denied", "a private file")
        equal(reads(NOBODY, os.path.join(m.mnt, "config.json"))[:1], b"{", "a public one")
    os.chown(beside, BOB, BOB)
    private = os.path.join(folder("private"), "tokenizer.json")
    with open(private, "w") as file:
        file.write("root's")
    point(os.path.join(beside, "tokenizer.json"), private)
    fails(1, f"{beside}/tokenizer.json: {OUT}", tree.src, folder("mnt"), "-o", options + ",allow_other")


def test_saves_side_by_side_by_rules():
    """step=all: each folder is what the view of that save alone would be; one that the rules do not fit is left out."""
    tree, beside, options = model()
    saves = {"9_5": tree, "10_5": Tree(folder("later"), tree.params, 4, 2, version=1),
             "11_5": Tree(folder("other"), [Param("w", (64, 64), 0, 1)], 4, 2)}
    for rank in range(4):
        for save, of in saves.items():
            shutil.copy(of.path(rank), os.path.join(tree.src, f"rank_{rank}", f"ckpt-{save}.ckpt"))
        os.unlink(tree.path(rank))
    want = {save: transposed(saves[save].full["w"], 64, 32, len(saves[save].full["w"]) // (64 * 32))
            for save in ("9_5", "10_5")}
    with Foreground(tree.src, options + ",step=all,cache=64M") as m:
        equal(sorted(os.listdir(m.mnt)), ["10_5", "9_5"], "the folders")
        for save, data in want.items():
            where = os.path.join(m.mnt, save)
            equal(sorted(os.listdir(where)), ["config.json", "model.safetensors", "tokenizer.json"], save)
            got = read_all(os.path.join(where, "model.safetensors"))
            equal(tensor_of(got)[0], [32, 64], f"the shape of {save}")
            same_bytes(tensor_of(got)[1], data, save)
            with Mount(tree.src, f"{options},epoch={save.split('_')[0]},step=5", mnt=folder(f"alone.{save}")) as alone:
                same_bytes(got, read_all(os.path.join(alone.mnt, "model.safetensors")), f"{save} alone")
            same_bytes(read_all(os.path.join(where, "tokenizer.json")), b'{"a": 1}', f"the tokenizer of {save}")
        lines = [line for line in m.log().splitlines() if "11_5" in line]
        check(len(lines) == 1 and "left out: " in lines[0] and "has shape [64, 64], but the rule makes [64, 32]" in lines[0],
              f"the save that does not fit: {m.log()}")
        with open(os.path.join(tree.src, "rank_2", "ckpt-9_5.ckpt"), "r+b") as file:
            file.write(b"x")
        try:
            read_all(os.path.join(m.mnt, "9_5", "model.safetensors"))
            check(False, "a save whose source has changed is read")
        except OSError as error:
            equal(error.errno, errno.ESTALE, "a save whose source has changed")
        same_bytes(tensor_of(read_all(os.path.join(m.mnt, "10_5", "model.safetensors")))[1], want["10_5"], "the other save")


def test_a_source_of_a_transposed_view_that_changes():
    """While four readers read: each read has the bytes of the first version, or fails; afterwards all fail."""
    rows, cols = 2048, 1536
    tree, _, options = model(rows, cols)
    want = transposed(tree.full["w"], rows, cols, len(tree.full["w"]) // (rows * cols))
    with Mount(tree.src, options + ",io=direct,cache=64M") as m:
        path = os.path.join(m.mnt, "model.safetensors")
        begin = os.path.getsize(path) - len(want)
        problems, errors, reads, stop = [], [], [0], threading.Event()

        def reader(first):
            fd, at = os.open(path, os.O_RDONLY), first * len(want) // 4
            while not stop.is_set():
                size = min(200_000, len(want) - at)
                try:
                    if os.pread(fd, size, begin + at) != want[at : at + size]:
                        problems.append(f"other bytes from {at}")
                    reads[0] += 1
                except OSError as error:
                    errors.append(error.errno)
                at = (at + size) % len(want)
            os.close(fd)

        readers = [threading.Thread(target=reader, args=(k,)) for k in range(4)]
        for thread in readers:
            thread.start()
        eventually(lambda: reads[0] > 20, "some reads")
        data = bytearray(tree.source(2))
        data[-100_000:] = bytes(b ^ 255 for b in data[-100_000:])
        with open(tree.path(2), "r+b") as file:
            file.write(data)
        eventually(lambda: len(errors) > 20, "errors after the change")
        stop.set()
        for thread in readers:
            thread.join()
        equal(problems, [], "bytes of two versions")
        equal(sorted(set(errors)), [errno.ESTALE], "errors")
