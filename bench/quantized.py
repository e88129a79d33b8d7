# SPDX-License-Identifier: Apache-2.0
"""Reading quantized weights as bfloat16, beside the null server: whole, and in slices of their columns."""
import json
import os
import shutil

import costs
import rules
import steady

MIB = 1 << 20
ROWS, COLS = 7168, 4096
# Codes that are NaNs, which no weight has.
FINITE = bytes(b & 0xFE if b & 0x7F == 0x7F else b for b in range(256))


def fp8(n):
    """Codes in blocks of 128 x 128: their bytes, what is beside them, and the config."""
    tensors = {}
    for i in range(n):
        tensors[f"model.layers.{i}.weight"] = ("F8_E4M3", (ROWS, COLS), ROWS * COLS)
        tensors[f"model.layers.{i}.weight_scale_inv"] = ("F32", (ROWS // 128, COLS // 128), ROWS * COLS // 4096)
    return tensors, {"quant_method": "fp8", "weight_block_size": [128, 128]}


def int4(n):
    """Codes of 4 bits, a scale for 32."""
    tensors = {}
    for i in range(n):
        name = f"model.layers.{i}.weight"
        tensors[f"{name}_packed"] = ("I32", (ROWS, COLS // 8), ROWS * COLS // 2)
        tensors[f"{name}_scale"] = ("BF16", (ROWS, COLS // 32), ROWS * COLS // 16)
        tensors[f"{name}_shape"] = ("I64", (2,), 16)
    group = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    return tensors, {"quant_method": "compressed-tensors", "format": "pack-quantized",
                     "config_groups": {"group_0": {"weights": group}}}


FORMATS = (("FP8 in blocks", fp8), ("INT4 in groups", int4))
# What is read, the options, the file, and the share of the null server to reach.
VIEWS = (("whole", "view=huggingface,file_size=1000G", "model.safetensors", 0.5),
         ("a slice of columns", "dst_ranks=4,dst_rules={folder}/cuts", "rank_0/checkpoint_0.safetensors", None))


def write(folder, tensors, config):
    os.makedirs(folder)
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    bits = os.urandom(MIB).translate(FINITE)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, (_, _, size) in tensors.items():
            if name.endswith("_shape"):
                file.write(ROWS.to_bytes(8, "little") + COLS.to_bytes(8, "little"))
                continue
            for begin in range(0, size, MIB):
                file.write(bits[:min(MIB, size - begin)])
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump({"quantization_config": config}, file)
    with open(os.path.join(folder, "cuts"), "w", encoding="ascii") as file:
        file.write("axes tp=4\n*: axis 1 over tp\n")
    return sum(size for _, _, size in tensors.values())


def measure(bench, mounted, size, rounds, figures, compare, say):
    mount, null_mount = bench.path("mnt.quantized"), bench.path("mnt.null")
    for name, make in FORMATS:
        folder = bench.path(name.replace(" ", "-"))
        n = max(1, size // (2 * ROWS * COLS))
        stored = write(folder, *make(n))
        shown = 2 * ROWS * COLS * n
        steady.write_out(folder)
        steady.remember(os.path.join(folder, "model.safetensors"))
        for what, options, file, asked in VIEWS:
            say(f"{name}, {what}, {rounds} rounds")
            path = os.path.join(mount, file)
            command = [bench.reshardfs, "-f", folder, mount, "-o",
                       f"dequantize,{options.format(folder=folder)},cache=64M,io=direct"]
            with mounted(command, mount) as pid:
                length = os.path.getsize(path)
                source, replied, _ = costs.cost(pid, path, rules.read_all)
                needed = replied * stored / shown
                figures.add(f"{name}, {what}: source bytes / codes and scales", source / needed, 1.1, at_most=True)
            with mounted([bench.null_server, null_mount, str(length)], null_mount):
                for _ in range(rounds):
                    with mounted(command, mount):
                        os.path.getsize(path)  # headers are read
                        compare(figures, f"{name}, {what} / null server", bench.rate(path),
                                bench.rate(os.path.join(null_mount, "null")), asked)
        shutil.rmtree(folder)
