# SPDX-License-Identifier: Apache-2.0
"""Layouts: folders and files as programs leave them, each with a small model whose tensors are the truth."""
import json
import os
import shutil
import struct
import subprocess

import torch
import torch.distributed.checkpoint as dcp_of_torch

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FIXTURES = os.path.join(TOP, "tests", "fixtures")
LAYOUTS = []


class Layout:
    """PROGRAM wrote it; suggest SAYS words and NEVER others, or it is REFUSED by words. EXACT: nothing else comes out. It is RENAMED: it has a training's names."""

    def __init__(self, function, program, says=(), never=(), refused=(), exact=True, renamed=False):
        self.name, self.function, self.program = function.__name__, function, program
        self.says, self.never, self.refused, self.exact = list(says), list(never), list(refused), exact
        self.renamed, self.truth = renamed, {}

    def make(self):
        path, self.truth = self.function()
        return path


def layout(program, **how):
    def add(function):
        LAYOUTS.append(Layout(function, program, **how))
        return function
    return add


# ---- tensors and files ----

def text(path, content):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))


def data(path, content):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


class Numbers:
    """Numbers of bfloat16 that come once each."""

    def __init__(self, first=0x0100):
        self.next = first

    def __call__(self, *shape):
        n = torch.Size(shape).numel()
        assert self.next + n < 0x7f00
        self.next += n
        return torch.arange(self.next - n, self.next, dtype=torch.int16).view(torch.bfloat16).reshape(shape)


def toy(first=0x0100):
    numbers = Numbers(first)
    return {"embed.weight": numbers(6, 4), "proj.weight": numbers(4, 4), "proj.bias": numbers(4)}


def llama(layers=1, tied=False, qk=False):
    """A model of hidden size 16, by HuggingFace's names."""
    numbers = Numbers()
    model = {"model.embed_tokens.weight": numbers(32, 16)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for name, rows, columns in (("self_attn.q_proj", 16, 16), ("self_attn.k_proj", 8, 16), ("self_attn.v_proj", 8, 16), ("self_attn.o_proj", 16, 16),
                                    ("mlp.gate_proj", 24, 16), ("mlp.up_proj", 24, 16), ("mlp.down_proj", 16, 24)):
            model[f"{at}{name}.weight"] = numbers(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            model[f"{at}{name}.weight"] = numbers(16)
        for name in ("q_norm", "k_norm") if qk else ():
            model[f"{at}self_attn.{name}.weight"] = numbers(4)
    model["model.norm.weight"] = numbers(16)
    if not tied:
        model["lm_head.weight"] = numbers(32, 16)
    return model


def config(model_type="llama", layers=1, tied=False, **more):
    return {"model_type": model_type, "architectures": ["ForCausalLM"], "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": layers,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32, "tie_word_embeddings": tied, **more}


NAMES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float16: "F16", torch.float8_e4m3fn: "F8_E4M3", torch.int32: "I32", torch.uint8: "U8"}


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def safetensors(path, tensors, metadata={"format": "pt"}):
    header, body = {"__metadata__": metadata} if metadata else {}, b""
    for name, tensor in tensors.items():
        content = bytes_of(tensor)
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    head = json.dumps(header).encode()
    data(path, struct.pack("<Q", len(head)) + head + body)


def torch_save(path, value):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    torch.save(value, path)


def in_parts(folder, tensors, stem="model", ending=".safetensors"):
    names = list(tensors)
    halves = names[:len(names) // 2], names[len(names) // 2:]
    where = {}
    for i, half in enumerate(halves):
        file = f"{stem}-{i + 1:05}-of-00002{ending}"
        part = {n: tensors[n] for n in half}
        (torch_save if ending == ".bin" else safetensors)(os.path.join(folder, file), part)
        where.update(dict.fromkeys(half, file))
    text(os.path.join(folder, f"{stem}{ending}.index.json"), {"metadata": {"total_size": 1}, "weight_map": where})


def dcp(folder, state):
    """torch.distributed.checkpoint of one process."""
    os.makedirs(folder, exist_ok=True)
    dcp_of_torch.save(state, checkpoint_id=folder, no_dist=True)


def hf(folder, model_type="llama", tensors=None, **more):
    tensors = tensors or llama(qk=model_type == "qwen3")
    safetensors(f"{folder}/model.safetensors", tensors)
    text(f"{folder}/config.json", config(model_type, **more))
    text(f"{folder}/generation_config.json", {"eos_token_id": 2})
    text(f"{folder}/tokenizer.json", {"version": "1.0", "model": {"type": "BPE"}})
    text(f"{folder}/tokenizer_config.json", {"model_max_length": 4096})
    return tensors


def trainer_state(folder, step, tensors=None):
    """What transformers' Trainer leaves beside the model."""
    tensors = tensors or toy()
    state = {i: {"step": torch.tensor(3.0), "exp_avg": t.float(), "exp_avg_sq": t.float()} for i, t in enumerate(tensors.values())}
    torch_save(f"{folder}/optimizer.pt", {"state": state, "param_groups": [{"lr": 1e-4, "params": list(state)}]})
    torch_save(f"{folder}/scheduler.pt", {"last_epoch": step, "_step_count": step + 1})
    torch_save(f"{folder}/rng_state.pth", {"cpu": torch.get_rng_state(), "python": (3, (1, 2), None)})
    torch_save(f"{folder}/training_args.bin", {"output_dir": "out", "learning_rate": 1e-4})
    text(f"{folder}/trainer_state.json", {"global_step": step, "log_history": []})


# ---- HuggingFace ----

@layout("transformers' save_pretrained", says=["convert=llama,", "dst_rules=tp2", "one whole checkpoint"])
def hf_model():
    return "m", hf("m")


@layout("transformers' save_pretrained, in parts", says=["convert=qwen3,"])
def hf_parts():
    tensors = llama(qk=True)
    in_parts("m", tensors)
    text("m/config.json", config("qwen3"))
    return "m", tensors


@layout("transformers before 5, safe_serialization=False", says=["convert=llama,"])
def hf_bin():
    tensors = llama()
    torch_save("m/pytorch_model.bin", tensors)
    text("m/config.json", config())
    return "m", tensors


@layout("transformers before 5, in parts of torch.save", says=["convert=llama,"])
def hf_bin_parts():
    tensors = llama()
    in_parts("m", tensors, "pytorch_model", ".bin")
    text("m/config.json", config())
    return "m", tensors


@layout("Mistral, which publishes both forms", says=["convert="], never=["consolidated.safetensors NEW"])
def hf_and_consolidated():
    tensors = hf("m", "mistral")
    safetensors("m/consolidated.safetensors", {"tok_embeddings.weight": tensors["model.embed_tokens.weight"]})
    text("m/params.json", {"dim": 16, "n_layers": 1})
    return "m", tensors


@layout("Mistral's own form alone", says=["one whole checkpoint"])
def consolidated():
    tensors = {"tok_embeddings.weight": Numbers()(32, 16), "norm.weight": Numbers(0x4000)(16)}
    safetensors("m/consolidated.safetensors", tensors)
    text("m/params.json", {"dim": 16, "n_layers": 1})
    return "m", tensors


@layout("transformers, a type without rules, beside one with", says=["granite", "there are some for"], never=["llama/config.json", "convert=llama"])
def hf_other_type():
    hf("llama")
    return "granite", hf("granite", "granite", embedding_multiplier=12.0)


@layout("transformers, tied as its config says, which the files are not", says=["convert=llama does not fit"], never=["llama/config.json"])
def hf_tied_config():
    hf("llama")
    return "tied", hf("tied", "llama", llama(), tied=True)


@layout("a model that lost its config.json, beside another", never=["other/config.json", "convert="])
def hf_no_config():
    hf("other")
    tensors = llama()
    safetensors("m/model.safetensors", tensors)
    return "m", tensors


@layout("transformers, with a variant", says=["convert=llama,"])
def hf_variant():
    tensors = hf("m")
    safetensors("m/model.fp16.safetensors", {k: v.half() for k, v in tensors.items()})
    return "m", tensors


@layout("transformers, a variant in parts", says=["convert=llama,"])
def hf_variant_parts():
    tensors = llama()
    in_parts("m", tensors)
    for i in 1, 2:
        os.rename(f"m/model-{i:05}-of-00002.safetensors", f"m/model.fp16-{i:05}-of-00002.safetensors")
    with open("m/model.safetensors.index.json", encoding="utf-8") as file:
        text("m/model.safetensors.index.fp16.json", file.read().replace("model-0", "model.fp16-0"))
    os.unlink("m/model.safetensors.index.json")
    text("m/config.json", config())
    return "m", tensors


@layout("a model in parts that lost its index", says=["convert=llama,", "'mtp.safetensors'"])
def hf_parts_alone():
    tensors = llama()
    in_parts("m", tensors)
    os.unlink("m/model.safetensors.index.json")
    safetensors("m/mtp.safetensors", {"mtp.fc.weight": Numbers(0x5000)(4, 4)})
    text("m/config.json", config(quantization_config=None, architectures=None))
    return "m", tensors


@layout("Mistral, both forms in parts", says=["convert=", "'consolidated-00001-of-00002.safetensors'"], never=["-of-00002.safetensors NEW"])
def hf_and_consolidated_parts():
    tensors = llama()
    in_parts("m", tensors)
    in_parts("m", {"tok_embeddings.weight": tensors["model.embed_tokens.weight"], "norm.weight": tensors["model.norm.weight"]}, "consolidated")
    text("m/config.json", config("mistral"))
    return "m", tensors


@layout("transformers, a model of torch.compile", says=["names=unwrap"])
def hf_compiled():
    tensors = llama()
    torch_save("m/pytorch_model.bin", {f"_orig_mod.{n.replace('layers.0.', 'layers.0._checkpoint_wrapped_module.')}": t for n, t in tensors.items()})
    text("m/config.json", config())
    return "m", tensors


@layout("a trainer's dict of a model below DDP", says=["entry=model", "names=unwrap"])
def ddp_dict():
    tensors = llama()
    torch_save("m/last.pt", {"model": {f"module.{n}": t for n, t in tensors.items()}, "epoch": 3})
    text("m/config.json", config())
    return "m", tensors


@layout("an adapter beside its base model, in one folder", says=["one whole checkpoint", "'adapter_model.safetensors'"], never=["an adapter of PEFT"])
def model_and_adapter():
    adapter("m")
    return "m", hf("m")


@layout("LLaMA-Factory's reward model with an adapter", says=["an adapter of PEFT", "'value_head.safetensors'"])
def adapter_and_head():
    safetensors("m/value_head.safetensors", {"v_head.summary.weight": Numbers(0x6000)(1, 16)})
    return "m", adapter("m", "org/base")


@layout("a config.json that is no JSON", says=["m/config.json: ", "not valid JSON"], never=["convert="])
def hf_page_for_config():
    tensors = hf("m")
    data("m/config.json", PAGE)
    return "m", tensors


@layout("ComfyUI, models of several names", says=["c/ae.safetensors", "c/flux1-dev.safetensors"], never=["newest"])
def comfy():
    parts = {"ae.safetensors": toy(), "flux1-dev.safetensors": toy(0x3000)}
    for name, tensors in parts.items():
        safetensors(f"c/{name}", tensors)
    return "c", parts


@layout("transformers, beside TensorFlow's, Flax's and ONNX files", says=["convert=llama,"])
def hf_every_form():
    tensors = hf("m")
    data("m/tf_model.h5", b"\x89HDF\r\n\x1a\n" + bytes(64))
    data("m/flax_model.msgpack", b"\x81" + bytes(64))
    data("m/onnx/model.onnx", b"\x08\x07\x12\x07pytorch")
    return "m", tensors


def fp8(tensors):
    """Linear weights in FP8 with a scale for each block of 128; and what they stand for in bfloat16."""
    stored, truth = {}, {}
    for name, tensor in tensors.items():
        stored[name] = truth[name] = tensor
        if "proj" in name:
            scale = torch.tensor([[0.5]])
            codes = (torch.arange(tensor.numel()) % 0x70).to(torch.uint8).view(torch.float8_e4m3fn).reshape(tensor.shape)
            stored[name], stored[f"{name}_scale_inv"] = codes, scale
            truth[name] = (codes.float() * scale).to(torch.bfloat16)
    return stored, truth


@layout("DeepSeek and Qwen, FP8 in blocks", says=["dequantize", "convert=qwen3,"])
def hf_fp8():
    stored, truth = fp8(llama(qk=True))
    hf("m", "qwen3", stored, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"})
    return "m", truth


@layout("ModelOpt, FP8 that config.json says nothing of", says=["dequantize", "convert=llama,"])
def hf_modelopt():
    stored, truth = {}, {}
    for name, tensor in llama().items():
        stored[name] = truth[name] = tensor
        if "proj" in name:
            scale = torch.tensor(0.25)
            codes = (torch.arange(tensor.numel()) % 0x70).to(torch.uint8).view(torch.float8_e4m3fn).reshape(tensor.shape)
            stored[name], stored[f"{name}_scale"], stored[f"{name[:-6]}input_scale"] = codes, scale, torch.tensor(1.0)
            truth[name] = (codes.float() * scale).to(torch.bfloat16)
    hf("m", "llama", stored)
    text("m/hf_quant_config.json", {"producer": {"name": "modelopt", "version": "0.29"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}})
    return "m", truth


@layout("FP8 in blocks, of a type without rules", says=["dequantize", "there are some for"])
def hf_fp8_other_type():
    stored, truth = fp8(llama())
    hf("m", "hunyuan", stored, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"})
    return "m", truth


@layout("GPTQ", says=["dequantize"])
def hf_gptq():
    stored, truth = {}, llama()
    for name in [n for n in truth if n.endswith("_proj.weight")]:
        out, inner = truth[name].shape
        codes = (torch.arange(out * inner).reshape(out, inner) * 7 + 3) % 16
        words = sum(codes[:, k::8] << 4 * k for k in range(8)).t()
        stem = name[:-len("weight")]
        stored.update({stem + "qweight": torch.where(words < 1 << 31, words, words - (1 << 32)).to(torch.int32).contiguous(),
                       stem + "qzeros": torch.full((1, out // 8), 0x77777777, dtype=torch.int32),
                       stem + "scales": torch.full((1, out), 0.5, dtype=torch.float16), stem + "g_idx": torch.zeros(inner, dtype=torch.int32)})
        truth[name] = ((codes - 8) * 0.5).to(torch.bfloat16)
    stored.update({n: t for n, t in truth.items() if not n.endswith("_proj.weight")})
    hf("m", "llama", stored, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": -1})
    return "m", truth


@layout("AQLM", says=["aqlm"], never=["dequantize NEW"])
def hf_aqlm():
    tensors = {"model.layers.0.mlp.up_proj.codes": torch.arange(64, dtype=torch.int32).reshape(2, 32), "model.norm.weight": Numbers()(16)}
    hf("m", "llama", tensors, quantization_config={"quant_method": "aqlm", "nbits_per_codebook": 16})
    return "m", tensors


@layout("the hub's cache, the folder of a model", says=["follow_links", "snapshots/"])
def hub_model():
    return "models--org--name", hub_of("models--org--name")


@layout("the hub's cache, a revision", says=["follow_links"])
def hub_revision():
    tensors = hub_of("models--org--name")
    return f"models--org--name/snapshots/{'ab' * 20}", tensors


@layout("the hub's cache with two models", says=["models--org--name", "models--org--other"])
def hub():
    return "hub", {"ab" * 20: hub_of("hub/models--org--name"), "cd" * 20: hub_of("hub/models--org--other", "cd" * 20)}


def hub_of(folder, revision="ab" * 20):
    tensors = hf("plain")
    for i, name in enumerate(os.listdir("plain")):
        os.makedirs(f"{folder}/blobs", exist_ok=True)
        os.makedirs(f"{folder}/snapshots/{revision}", exist_ok=True)
        os.rename(f"plain/{name}", f"{folder}/blobs/{i:064x}")
        os.symlink(f"../../blobs/{i:064x}", f"{folder}/snapshots/{revision}/{name}")
    shutil.rmtree("plain")
    text(f"{folder}/refs/main", revision)
    return tensors


def lora(default=""):
    numbers = Numbers(0x5000)
    at = "base_model.model.model.layers.0.self_attn.q_proj."
    return {f"{at}lora_A{default}.weight": numbers(4, 16), f"{at}lora_B{default}.weight": numbers(16, 4)}


def adapter(folder, base="base"):
    tensors = lora()
    safetensors(f"{folder}/adapter_model.safetensors", tensors)
    text(f"{folder}/adapter_config.json", {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM",
                                           "base_model_name_or_path": base, "bias": "none"})
    text(f"{folder}/README.md", "# adapter")
    return tensors


@layout("PEFT", says=["an adapter of PEFT"])
def peft_adapter():
    return "a", adapter("a", "org/base")


@layout("PEFT, with its base model here", says=["an adapter of PEFT"], never=["other/config.json"])
def peft_with_base():
    hf("base")
    hf("other", "qwen2")
    return "a", adapter("a")


# ---- trainers of HuggingFace's models ----

@layout("transformers' Trainer", says=["out/checkpoint-10", "convert=llama,"])
def trainer():
    for step in 5, 10, 9:
        tensors = hf(f"out/checkpoint-{step}")
        trainer_state(f"out/checkpoint-{step}", step)
    return "out", tensors


@layout("transformers' Trainer, one checkpoint", says=["convert=llama,"])
def trainer_checkpoint():
    tensors = hf("out/checkpoint-10")
    trainer_state("out/checkpoint-10", 10)
    return "out/checkpoint-10", tensors


@layout("transformers' Trainer, after its last save_model", says=["convert=llama,"])
def trainer_finished():
    hf("out/checkpoint-10", tensors=llama(2))
    return "out", hf("out")


@layout("transformers' Trainer with adapters", says=["out/checkpoint-10", "an adapter of PEFT"])
def trainer_adapters():
    for step in 5, 10:
        tensors = adapter(f"out/checkpoint-{step}", "org/base")
        trainer_state(f"out/checkpoint-{step}", step)
    return "out", tensors


@layout("transformers' Trainer with FSDP", says=["checkpoint-10/pytorch_model_fsdp_0"], exact=False)
def trainer_fsdp():
    for step in 5, 10:
        at = f"out/checkpoint-{step}"
        dcp(f"{at}/pytorch_model_fsdp_0", {"model": toy()})
        dcp(f"{at}/optimizer_0", {"optimizer": {"state": {"proj.weight": {"exp_avg": toy(0x6000)["proj.weight"]}}}})
        torch_save(f"{at}/scheduler.pt", {"last_epoch": step})
        torch_save(f"{at}/rng_state_0.pth", {"cpu": torch.get_rng_state()})
        text(f"{at}/trainer_state.json", {"global_step": step})
    return "out", {"pytorch_model_fsdp_0": toy(), "optimizer_0": {}}


@layout("transformers' Trainer with DeepSpeed, with the model", says=["out/checkpoint-10", "convert=llama,"])
def trainer_deepspeed():
    for step in 5, 10:
        at = f"out/checkpoint-{step}"
        tensors = hf(at)
        torch_save(f"{at}/global_step{step}/mp_rank_00_model_states.pt", {"module": {}, "dp_world_size": 1})
        torch_save(f"{at}/global_step{step}/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", {"optimizer_state_dict": {}})
        text(f"{at}/latest", f"global_step{step}")
        text(f"{at}/zero_to_fp32.py", "# DeepSpeed's")
        text(f"{at}/trainer_state.json", {"global_step": step})
    return "out", tensors


@layout("TRL's SFTTrainer with an adapter", says=["an adapter of PEFT"])
def trl():
    adapter("out/checkpoint-4", "org/base")
    trainer_state("out/checkpoint-4", 4)
    return "out", adapter("out", "org/base")


@layout("ms-swift", says=["v1-20250102-030405/checkpoint-20", "convert=qwen2"])
def ms_swift():
    for version, step in (("v0-20250101-010101", 10), ("v1-20250102-030405", 20)):
        at = f"output/{version}"
        tensors = swift_model(f"{at}/checkpoint-{step}")
        text(f"{at}/args.json", {"model": "Qwen/Qwen2", "model_type": "qwen2"})
        text(f"{at}/logging.jsonl", '{"loss": 1.0}\n')
        text(f"{at}/runs/events.out.tfevents.0", "")
    return "output", tensors


def swift_model(at):
    numbers = Numbers(0x4000)
    tensors = llama()
    tensors.update({f"model.layers.0.self_attn.{n}_proj.bias": numbers(rows) for n, rows in (("q", 16), ("k", 8), ("v", 8))})
    hf(at, "qwen2", tensors)
    trainer_state(at, 1)
    text(f"{at}/args.json", {"tuner_type": "full"})
    return tensors


@layout("LLaMA-Factory", says=["checkpoint-100", "an adapter of PEFT"])
def llama_factory():
    at = "saves/Llama-3-8B/lora/train_2025-01-01"
    tensors = adapter(f"{at}/checkpoint-100", "meta-llama/Llama-3-8B")
    trainer_state(f"{at}/checkpoint-100", 100)
    text(f"{at}/trainer_log.jsonl", "{}\n")
    text(f"{at}/llamaboard_config.yaml", "top.model_name: x\n")
    return at, tensors


@layout("Accelerate's save_state", says=["one whole checkpoint"])
def accelerate_state():
    tensors = toy()
    safetensors("out/checkpoint_0/model.safetensors", tensors)
    torch_save("out/checkpoint_0/optimizer.bin", {"state": {}, "param_groups": []})
    torch_save("out/checkpoint_0/scheduler.bin", {"last_epoch": 1})
    data("out/checkpoint_0/random_states_0.pkl", b"\x80\x04N.")
    return "out/checkpoint_0", tensors


@layout("Accelerate's save_state with FSDP", says=["pytorch_model_fsdp_0", "optimizer_0"], exact=False)
def accelerate_fsdp():
    shutil.copytree(f"{FIXTURES}/layouts/accelerate", "save")
    return "save", {"pytorch_model_fsdp_0": {"a.weight": torch.arange(24.0).reshape(6, 4) / 8}, "optimizer_0": {}}


@layout("torchtune", says=["epoch_1"])
def torchtune():
    for epoch in 0, 1:
        tensors = llama()
        in_parts(f"out/epoch_{epoch}", tensors)
        text(f"out/epoch_{epoch}/config.json", config())
    return "out", tensors


@layout("diffusers", says=["transformer", "vae", "text_encoder"])
def diffusers():
    parts = {"transformer": toy(), "vae": toy(0x2000), "text_encoder": toy(0x4000)}
    for part in "transformer", "vae":
        safetensors(f"pipe/{part}/diffusion_pytorch_model.safetensors", parts[part])
        text(f"pipe/{part}/config.json", {"_class_name": part, "_diffusers_version": "0.35.0"})
    safetensors("pipe/text_encoder/model.safetensors", parts["text_encoder"])
    text("pipe/text_encoder/config.json", config("clip_text_model"))
    text("pipe/scheduler/scheduler_config.json", {"_class_name": "Euler"})
    text("pipe/tokenizer/vocab.json", {"a": 0})
    text("pipe/model_index.json", {"_class_name": "Pipeline", "transformer": ["diffusers", "T"]})
    return "pipe", parts


@layout("diffusers, one component", says=["one whole checkpoint"], never=["text_encoder/config.json"])
def diffusers_component():
    _, parts = diffusers()
    return "pipe/vae", parts["vae"]


@layout("diffusers, with variants, as on the hub", says=["pipe/unet", "pipe/vae"])
def diffusers_variants():
    parts = {"unet": toy(), "vae": toy(0x2000)}
    for part, tensors in parts.items():
        at = f"pipe/{part}/diffusion_pytorch_model"
        safetensors(f"{at}.safetensors", tensors)
        safetensors(f"{at}.fp16.safetensors", {n: t.half() for n, t in tensors.items()})
        torch_save(f"{at}.bin", {n: t + 1 for n, t in tensors.items()})
    text("pipe/model_index.json", {"_class_name": "Pipeline"})
    return "pipe", parts


@layout("diffusers, one component in parts")
def diffusers_parts():
    in_parts("pipe/transformer", toy(), "diffusion_pytorch_model")
    text("pipe/transformer/config.json", {"_class_name": "T"})
    return "pipe/transformer", toy()


@layout("diffusers' adapters")
def diffusers_lora():
    tensors = {"unet.down.to_q.lora_A.weight": Numbers()(4, 16)}
    safetensors("l/pytorch_lora_weights.safetensors", tensors)
    return "l", tensors


@layout("sentence-transformers", says=["one whole checkpoint"])
def sentence_transformers():
    tensors = hf("m", "bert", toy())
    text("m/modules.json", [{"idx": 0, "type": "sentence_transformers.models.Transformer"}])
    text("m/1_Pooling/config.json", {"word_embedding_dimension": 4})
    return "m", tensors


@layout("OpenCLIP")
def open_clip():
    safetensors("m/open_clip_model.safetensors", toy())
    text("m/open_clip_config.json", {"model_cfg": {"embed_dim": 4}})
    return "m", toy()


@layout("vLLM's sharded_state", says=["files of 2 ranks side by side"], never=["whole checkpoint", "NEW"])
def vllm_sharded():
    text("m/config.json", config())
    for rank in range(2):
        safetensors(f"m/model-rank-{rank}-part-0.safetensors", {n: t.chunk(2)[rank].clone() for n, t in llama().items()})
    text("MAP", {str(rank): f"m/model-rank-{rank}-part-0.safetensors" for rank in range(2)})
    return "m", {}


@layout("shards or saves, as no word says", says=["a folder with checkpoints in it", "rank_dir=%d"], never=["newest", "NEW"])
def numbers_from_zero():
    truth = {}
    for rank in range(2):
        truth[f"run/{rank}"] = {n: t + rank for n, t in toy().items()}
        os.makedirs(f"run/{rank}")
        torch_save(f"run/{rank}/model.pt", truth[f"run/{rank}"])
    return "run", truth


@layout("torchtitan, whose last save broke off", says=["checkpoint/step-2 NEW", "checkpoint/step-3 is left out: ", ".metadata"])
def torchtitan_broken():
    for step in (1, 2, 3):
        dcp(f"checkpoint/step-{step}", dict(toy()))
    os.remove("checkpoint/step-3/.metadata")
    return "checkpoint", toy()


@layout("transformers' Trainer, whose last save broke off", says=["out/checkpoint-20 is left out: ", "model-00002-of-00002.safetensors"])
def trainer_broken():
    truth = llama()
    for step in (10, 20):
        text(f"out/checkpoint-{step}/config.json", config())
        in_parts(f"out/checkpoint-{step}", truth)
    os.remove("out/checkpoint-20/model-00002-of-00002.safetensors")
    return "out", truth


@layout("MindSpore Transformers, a run whose last save broke off", says=["output/checkpoint is left out: ", "different saves", "output/network"])
def mindspore_broken():
    example("--src", "2", "--dst", "1")
    shutil.copytree("ex/src", "output/network")
    os.rename("ex/src", "output/checkpoint")
    os.rename("ex/src_strategy.ckpt", "output/strategy.ckpt")
    shutil.copy("output/checkpoint/rank_0/checkpoint_0.ckpt", "output/checkpoint/rank_0/net-1_10.ckpt")
    return "output", {}


@layout("MLX", says=["convert=llama,"])
def mlx():
    tensors = llama()
    safetensors("m/model.safetensors", dict(sorted(tensors.items())), {"format": "mlx"})
    text("m/model.safetensors.index.json", {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(tensors, "model.safetensors")})
    text("m/config.json", config())
    return "m", tensors


# ---- trainers of PyTorch ----

@layout("torch.distributed.checkpoint", says=["torch.distributed.checkpoint"])
def dcp_plain():
    dcp("save", toy())
    return "save", toy()


@layout("torch.distributed.checkpoint, beside the model's config", says=["convert=llama,", "hf_config=save/hf/config.json"])
def dcp_with_config():
    dcp("save", llama())
    text("save/hf/config.json", config())
    return "save", llama()


@layout("torch.distributed.checkpoint, beside configs that differ", says=["which differ"], never=["convert=llama,"], exact=False)
def dcp_two_configs():
    dcp("save", llama())
    text("one/config.json", config(rope_theta=1))
    text("two/config.json", config(rope_theta=2))
    return "save", llama()


@layout("torch's recipe, one object for all", says=["entry=app.model"])
def dcp_recipe():
    shutil.copytree(f"{FIXTURES}/layouts/recipe", "save")
    return "save", {"a.weight": torch.arange(24.0).reshape(6, 4) / 8}


@layout("torch's tutorial, a folder for each step", says=["run/step_12", "-o follow"])
def dcp_steps():
    for step in 2, 12, 9:
        dcp(f"run/step_{step}", toy())
    return "run", toy()


@layout("torchtitan", says=["checkpoint/step-2", "-o follow"])
def torchtitan():
    shutil.copytree(f"{FIXTURES}/layouts/torchtitan", "out")
    return "out/checkpoint", {"a.weight": torch.arange(24.0).reshape(6, 4) / 8}


@layout("torchtitan, the folder of its job", says=["checkpoint/step-2"])
def torchtitan_job():
    shutil.copytree(f"{FIXTURES}/layouts/torchtitan", "out")
    text("out/config.json", {"model": {"name": "llama3"}, "training": {"steps": 2}})
    text("out/tb/20250101/events.out", "")
    return "out", {"a.weight": torch.arange(24.0).reshape(6, 4) / 8}


@layout("torch's FSDP in verl, rank by rank", says=["global_step_20/actor"], exact=False)
def verl():
    for step in 10, 20:
        at = f"ckpts/global_step_{step}"
        verl_actor(f"{at}/actor")
        torch_save(f"{at}/data.pt", {"step": step})
    text("ckpts/latest_checkpointed_iteration.txt", "20")
    return "ckpts", llama()


def verl_actor(at):
    """One process of FSDP2 has plain tensors where no mesh is."""
    torch_save(f"{at}/model_world_size_1_rank_0.pt", llama())
    torch_save(f"{at}/optim_world_size_1_rank_0.pt", {"state": {}, "param_groups": []})
    torch_save(f"{at}/extra_state_world_size_1_rank_0.pt", {"lr_scheduler": {"last_epoch": 1}, "rng": {"cpu": torch.get_rng_state()}})
    text(f"{at}/fsdp_config.json", {"FSDP_version": 2, "world_size": 1})
    text(f"{at}/huggingface/config.json", config())


@layout("verl, the actor of a step", says=["convert=llama,", "huggingface/config.json"])
def verl_step_actor():
    verl_actor("global_step_10/actor")
    return "global_step_10/actor", llama()


@layout("verl with an actor and a critic", says=["actor", "critic"])
def verl_critic():
    verl_actor("global_step_10/actor")
    verl_actor("global_step_10/critic")
    torch_save("global_step_10/data.pt", {"step": 10})
    return "global_step_10", {"actor": llama(), "critic": llama()}


@layout("verl with LoRA", says=["lora_adapter"], exact=False)
def verl_lora():
    at = "ckpts/global_step_10/actor"
    adapter(f"{at}/lora_adapter", "org/base")
    torch_save("ckpts/global_step_10/data.pt", {"step": 10})
    text("ckpts/latest_checkpointed_iteration.txt", "10")
    return "ckpts/global_step_10", lora()


@layout("verl with Megatron", says=["dist_ckpt"], exact=False)
def verl_megatron():
    dcp("global_step_10/actor/dist_ckpt", toy())
    text("global_step_10/actor/huggingface/config.json", config())
    torch_save("global_step_10/data.pt", {"step": 10})
    return "global_step_10", toy()


@layout("slime's FSDP", says=["iter_0000020/model"], exact=False)
def slime():
    for step in 10, 20:
        at = f"ckpt/iter_{step:07}"
        dcp(f"{at}/model", {"model_state": {"model": toy()}})
        dcp(f"{at}/optimizer", {"optim_state": {"optim": {"state": {"proj.weight": {"exp_avg": toy(0x6000)["proj.weight"]}}}}})
        dcp(f"{at}/lr_scheduler", {"lr_scheduler_state": {"last_epoch": torch.tensor(step)}})
        torch_save(f"{at}/rng.pt", {"cpu": torch.get_rng_state()})
        text(f"{at}/meta.json", {"iteration": step, "rollout_id": step})
    text("ckpt/latest_checkpointed_iteration.txt", "20")
    return "ckpt", {"model": toy(), "optimizer": {}, "lr_scheduler": {}}


@layout("NeMo RL, with FSDP", says=["step_10/policy/weights"], exact=False)
def nemo_rl():
    for step in 5, 10:
        at = f"results/step_{step}"
        dcp(f"{at}/policy/weights", {"model": toy()})
        dcp(f"{at}/policy/optimizer", {"optim": {"state": {"proj.weight": {"exp_avg": toy(0x6000)["proj.weight"]}}}})
        text(f"{at}/training_info.json", {"step": step, "val_reward": 0.5})
        text(f"{at}/config.yaml", "policy: {}\n")
        torch_save(f"{at}/train_dataloader.pt", {"_num_yielded": 1})
    return "results", {"weights": toy(), "optimizer": {}}


@layout("NeMo RL, with Megatron", says=["policy/weights"], exact=False)
def nemo_rl_megatron():
    at = "results/step_5"
    dcp(f"{at}/policy/weights/iter_0000000", toy())
    torch_save(f"{at}/policy/weights/iter_0000000/common.pt", {"iteration": 0})
    text(f"{at}/policy/weights/iter_0000000/metadata.json", {"sharded_backend": "torch_dist", "sharded_backend_version": 1})
    text(f"{at}/policy/weights/latest_checkpointed_iteration.txt", "0")
    text(f"{at}/training_info.json", {"step": 5})
    return at, toy()


@layout("OLMo-core", says=["step20/model_and_optim"], exact=False)
def olmo_core():
    for step in 10, 20:
        at = f"run/step{step}"
        dcp(f"{at}/model_and_optim", {"model": toy(), "optim": {"state": {"proj.weight": {"exp_avg": toy(0x6000)["proj.weight"]}}}})
        torch_save(f"{at}/train/rank0.pt", {"global_step": step})
        text(f"{at}/config.json", {"model": {"d_model": 4}})
        text(f"{at}/.metadata.json", {"version": "1"})
    text("run/config.json", {"run_name": "x"})
    return "run", toy()


@layout("OLMo before its core", says=["model.pt"], exact=False)
def olmo():
    torch_save("step10-unsharded/model.pt", toy())
    torch_save("step10-unsharded/optim.pt", {"state": {}})
    torch_save("step10-unsharded/train.pt", {"global_step": 10})
    text("step10-unsharded/config.yaml", "model: {}\n")
    return "step10-unsharded", toy()


@layout("Lightning's Trainer", says=["epoch=10-step=99.ckpt", "entry=state_dict"], exact=False)
def lightning():
    at = "lightning_logs/version_0"
    for name in "epoch=9-step=90.ckpt", "epoch=10-step=99.ckpt":
        lightning_file(f"{at}/checkpoints/{name}")
    text(f"{at}/hparams.yaml", "{}\n")
    return at, toy()


def lightning_file(path):
    torch_save(path, {"epoch": 0, "global_step": 1, "pytorch-lightning_version": "2.5.0", "state_dict": toy(),
                      "optimizer_states": [{"state": {0: {"exp_avg": toy(0x6000)["proj.weight"]}}, "param_groups": [{"lr": 0.1}]}],
                      "lr_schedulers": [], "callbacks": {}, "loops": {}})


@layout("Lightning's Trainer, one file", says=["entry=state_dict"], exact=False)
def lightning_one():
    lightning_file("epoch=0-step=1.ckpt")
    return "epoch=0-step=1.ckpt", toy()


@layout("Lightning, with the last beside the best", says=["last.ckpt"], exact=False)
def lightning_last():
    lightning_file("checkpoints/epoch=9-step=90.ckpt")
    lightning_file("checkpoints/last.ckpt")
    return "checkpoints", toy()


@layout("Lightning's Fabric, distributed", says=["entry=model"], exact=False)
def fabric():
    shutil.copytree(f"{FIXTURES}/layouts/lightning/step=2.ckpt", "step=2.ckpt")
    return "step=2.ckpt", {"a.weight": torch.arange(24.0).reshape(6, 4) / 8}


@layout("LitGPT", exact=False)
def litgpt():
    torch_save("m/lit_model.pth", {"model": toy()})
    text("m/model_config.yaml", "name: x\n")
    text("m/tokenizer.json", {})
    return "m", toy()


@layout("Composer", says=["state.model"], exact=False)
def composer():
    torch_save("ep0-ba10-rank0.pt", {"state": {"model": toy(), "optimizers": {"AdamW": {"state": {}}}}, "rng": []})
    return "ep0-ba10-rank0.pt", toy()


@layout("detectron2", says=["entry=model"], exact=False)
def detectron2():
    torch_save("out/model_final.pth", {"model": toy(), "__author__": "x"})
    return "out/model_final.pth", toy()


@layout("MMEngine", says=["entry=state_dict"], exact=False)
def mmengine():
    torch_save("work/epoch_12.pth", {"meta": {"epoch": 12}, "state_dict": toy(), "optimizer": {"state": {}}})
    return "work/epoch_12.pth", toy()


@layout("fairseq", says=["entry=model"], exact=False)
def fairseq():
    torch_save("checkpoint_best.pt", {"args": None, "model": toy(), "optimizer_history": []})
    return "checkpoint_best.pt", toy()


@layout("torch.save of a dict", says=["one whole checkpoint"])
def torch_pt():
    torch_save("model.pt", toy())
    return "model.pt", toy()


@layout("Meta's Llama, one part", exact=False)
def llama_original():
    torch_save("m/consolidated.00.pth", toy())
    text("m/params.json", {"dim": 4, "n_layers": 1})
    return "m", toy()


def meta(at, ranks, by_columns, files=None, **more):
    """Llama by Meta's names, with a config of HuggingFace beside its folder; the rows of q and k are in Meta's order."""
    tensors = {}
    for name, tensor in llama().items():
        part = name.split(".")
        module = {"q_proj": "attention.wq", "k_proj": "attention.wk", "v_proj": "attention.wv", "o_proj": "attention.wo",
                  "gate_proj": "feed_forward.w1", "up_proj": "feed_forward.w3", "down_proj": "feed_forward.w2",
                  "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}.get(part[-2])
        turned = part[-2] in ("q_proj", "k_proj")
        tensor = tensor.reshape(-1, 2, 2, 16).transpose(1, 2).reshape(-1, 16) if turned else tensor
        ours = f"layers.{part[2]}.{module}.weight" if module else {"model.embed_tokens": "tok_embeddings", "model.norm": "norm",
                                                                     "lm_head": "output"}[name[:-7]] + ".weight"
        tensors[ours] = tensor
    axes = {"wq": 0, "wk": 0, "wv": 0, "w1": 0, "w3": 0, "output": 0, "wo": 1, "w2": 1, "tok_embeddings": int(by_columns)}
    for rank in range(ranks) if files is None else files:
        torch_save(f"{at}/consolidated.{rank:02}.pth",
                   {n: t.chunk(ranks, axes[n.split(".")[-2]])[rank].clone() if n.split(".")[-2] in axes else t for n, t in tensors.items()})
    text(f"{at}/params.json", {"dim": 16, "n_layers": 1, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 32, "multiple_of": 24,
                               "ffn_dim_multiplier": 0.5, "norm_eps": 1e-5, **more})
    return tensors


META = ["2 tensor-parallel ranks", "convert=meta_llama,hf_config=m/config.json"]


@layout("Meta's Llama 3, in the files of its ranks", says=META, renamed=True)
def llama_ranks():
    meta("m/original", 2, False)
    text("m/config.json", config())
    return "m/original", llama()


@layout("Meta's Llama 2, in the files of its ranks", says=META, renamed=True)
def llama_ranks_2():
    meta("m/original", 2, True, vocab_size=-1)
    text("m/config.json", config())
    return "m/original", llama()


@layout("Meta's Llama, without a config of HuggingFace", says=["2 tensor-parallel ranks"], never=["convert="])
def llama_ranks_alone():
    return "m", meta("m", 2, False)


@layout("Meta's Llama that lost its first rank", refused=["'consolidated.00.pth' is missing"])
def llama_ranks_first():
    meta("m", 2, False, files=[1])
    return "m", {}


@layout("Meta's Llama that lost its last ranks", says=["by the file of 1 rank, the size of the vocabulary is 16, and by"], never=["NEW"])
def llama_ranks_last():
    meta("m", 2, False, files=[0])
    return "m", {}


@layout("torch's HuggingFaceStorageWriter", exact=False)
def storage_writer():
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    os.makedirs("save")
    dcp_of_torch.save(toy(), storage_writer=HuggingFaceStorageWriter("save", save_distributed=True), no_dist=True)
    return "save", toy()


# ---- Megatron, NeMo ----

@layout("Megatron, torch_dist", says=["torch.distributed.checkpoint", "-o follow"], exact=False)
def megatron():
    for step in 10, 20:
        at = f"ckpt/iter_{step:07}"
        dcp(at, toy())
        torch_save(f"{at}/common.pt", {"iteration": step, "args": None})
        text(f"{at}/metadata.json", {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"})
    text("ckpt/latest_checkpointed_iteration.txt", "20")
    return "ckpt", toy()


@layout("NeMo 2", says=["step=20-last/weights"], exact=False)
def nemo():
    for step in 10, 20:
        at = f"ckpts/llama--step={step}-last"
        dcp(f"{at}/weights", toy())
        torch_save(f"{at}/weights/common.pt", {"global_step": step})
        text(f"{at}/weights/metadata.json", {"sharded_backend": "torch_dist"})
        text(f"{at}/context/model.yaml", "{}\n")
        text(f"{at}/context/io.json", {"objects": {}})
    return "ckpts", toy()


@layout("Megatron, format torch", refused=["Megatron", "model_optim_rng.pt"])
def megatron_torch():
    for rank in range(2):
        torch_save(f"ckpt/iter_0000010/mp_rank_{rank:02}/model_optim_rng.pt", {"model": toy()})
    text("ckpt/latest_checkpointed_iteration.txt", "10")
    return "ckpt", {}


@layout("Megatron, format zarr", refused=["Megatron", "zarr"])
def megatron_zarr():
    text("ckpt/iter_0000010/metadata.json", {"sharded_backend": "zarr"})
    text("ckpt/iter_0000010/embedding.weight/.zarray", {"zarr_format": 2})
    text("ckpt/latest_checkpointed_iteration.txt", "10")
    return "ckpt", {}


# ---- MindSpore ----

def example(*options):
    subprocess.run(["reshard", "example", "ex", *options], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["chmod", "-R", "u+w", "ex"], check=True)


@layout("MindSpore, ranks beside strategies", says=["-s ex/src_strategy.ckpt", "-d ex/dst_strategy.ckpt"])
def mindspore():
    example()
    return "ex/src", {}


@layout("MindSpore, ranks and strategies in one folder", says=["ex/src"], never=["a folder of strategies"])
def mindspore_run():
    example()
    return "ex", {}


@layout("MindSpore, ranks without a strategy", says=["no strategy is near it"])
def mindspore_lone():
    example()
    os.mkdir("lone")
    os.rename("ex/src", "lone/src")
    return "lone/src", {}


@layout("MindSpore, several saves", says=["-o follow"])
def mindspore_saves():
    example("--src", "2", "--dst", "1")
    for rank in range(2):
        at = f"ex/src/rank_{rank}"
        os.rename(f"{at}/checkpoint_{rank}.ckpt", f"{at}/net-1_10.ckpt")
        shutil.copy(f"{at}/net-1_10.ckpt", f"{at}/net-2_10.ckpt")
    return "ex/src", {}


@layout("MindSpore, ranks in folders of a launcher's names", says=["a checkpoint of 8 ranks", "-s ex/src_strategy.ckpt", "rank_dir=device_%d"], never=["whole checkpoint, ckpt"])
def mindspore_devices():
    example()
    for rank in range(8):
        os.rename(f"ex/src/rank_{rank}", f"ex/src/device_{rank}")
    return "ex/src", {}


@layout("MindSpore, one rank of those", says=["one of 8 folders of ranks", "reshard suggest ex/src"], never=["NEW"])
def mindspore_device():
    mindspore_devices()
    return "ex/src/device_3", {}


def beside_each_other(names):
    """Files of all ranks in one folder, and MAP, the map that says which is whose."""
    example()
    for rank in range(8):
        os.rename(f"ex/src/rank_{rank}/checkpoint_{rank}.ckpt", f"ex/src/{names.format(rank)}")
        os.rmdir(f"ex/src/rank_{rank}")
    text("MAP", {str(rank): f"ex/src/{names.format(rank)}" for rank in range(8)})


@layout("MindSpore Transformers, all ranks copied into one folder", says=["files of 8 ranks side by side", "files=MAP"], never=["whole checkpoint", "NEW"])
def mindspore_beside():
    beside_each_other("llama_rank_{}-1_10.ckpt")
    return "ex/src", {}


@layout("MindSpore, the file of one rank among all", says=["one of 8 files of ranks", "reshard suggest ex/src"], never=["NEW"])
def mindspore_beside_one():
    beside_each_other("rank_{}.ckpt")
    return "ex/src/rank_5.ckpt", {}


@layout("MindSpore, strategies alone", says=["a folder of strategies"])
def strategies():
    shutil.copytree(f"{FIXTURES}/strategies/pipe8_json", "strategies")
    return "strategies", {}


@layout("MindSpore, one strategy", says=["a strategy", "show"])
def strategy():
    shutil.copy(f"{FIXTURES}/strategies/src8.json", "s.json")
    return "s.json", {}


@layout("MindSpore, unified safetensors")
def unified():
    safetensors("u/part0.safetensors", {k: v for k, v in toy().items() if "embed" in k})
    safetensors("u/part1.safetensors", {k: v for k, v in toy().items() if "embed" not in k})
    text("u/param_name_map.json", {k: f"part{0 if 'embed' in k else 1}.safetensors" for k in toy()})
    return "u", toy()


@layout("MindSpore, a file that is encrypted", says=["key_file=KEY"], exact=False)
def encrypted():
    shutil.copy(f"{FIXTURES}/ckpt/encrypted_gcm.ckpt", "net.ckpt")
    return "net.ckpt", {}


@layout("MindSpore Transformers, Checkpoint 2.0", says=["convert=llama,", "hf/config.json"], exact=False, renamed=True)
def mindformers():
    hf("hf")
    os.makedirs("output/checkpoint")
    for step in 10, 20:
        subprocess.run(["reshard", "export", "hf", f"output/checkpoint/iteration_{step:08}", "-o",
                        "convert=llama,view=mindformers,dst_ranks=2,dst_rules=*: whole"], check=True, stdout=subprocess.DEVNULL)
        os.unlink(f"output/checkpoint/iteration_{step:08}/reshard-manifest.json")
    text("output/checkpoint/latest_checkpointed_iteration.txt", "20")
    shutil.copytree("hf", "output/checkpoint/hf")
    return "output/checkpoint", llama()


@layout("HyperParallel", exact=False)
def hyper_parallel():
    shutil.copytree(f"{FIXTURES}/hyper", "global_step_3")
    return "global_step_3", {}


@layout("hfai", says=["hfai"])
def hfai():
    subprocess.run(["python3", f"{TOP}/tests/golden/save_parts.py", "parts", "4", "1000"], check=True)
    return "parts", {}


# ---- exports of ReshardFS ----

@layout("ReshardFS, ranks by ready cuts: the way back", says=["src_rules=tp2", "view=huggingface"], renamed=True)
def export_cuts():
    hf("hf")
    subprocess.run(["reshard", "export", "hf", "tp", "-o", "convert=llama,dst_rules=tp2"], check=True, stdout=subprocess.DEVNULL)
    return "tp", llama()


def tensor_parallel(devices, *ranks):
    """Ranks of one group, each as often as it is named; no file says how they were cut."""
    hf("hf")
    subprocess.run(["reshard", "export", "hf", "cut", "-o", f"convert=llama,dst_rules=tp{devices}"], check=True, stdout=subprocess.DEVNULL)
    for i, rank in enumerate(ranks):
        os.makedirs(f"tp/rank_{i}")
        shutil.copyfile(f"cut/rank_{rank}/checkpoint_{rank}.safetensors", f"tp/rank_{i}/checkpoint_{i}.safetensors")
    shutil.copyfile("hf/config.json", "tp/config.json")
    shutil.rmtree("cut")
    return "tp", llama()


@layout("ranks of one tensor-parallel group", says=["src_rules=tp2,"], never=["src_ranks"], renamed=True)
def cut_group():
    return tensor_parallel(2, 0, 1)


@layout("ranks of two tensor-parallel groups", says=["src_rules=tp2,", "src_ranks=4"], renamed=True)
def cut_groups():
    return tensor_parallel(2, 0, 1, 0, 1)


@layout("ranks that hold the same, by names that are cut elsewhere", says=["no strategy is near it"], never=["NEW"], exact=False)
def cut_by_nothing():
    return tensor_parallel(1, 0, 0)


@layout("ranks of a tensor-parallel group whose config is missing", says=["-o src_rules=tp2,hf_config=config.json"], never=["NEW"], exact=False)
def cut_without_config():
    tensor_parallel(2, 0, 1)
    os.unlink("tp/config.json")
    shutil.rmtree("hf")
    return "tp", llama()


@layout("ReshardFS, ranks by a strategy: the way back", says=["-s ex/dst_strategy.ckpt"])
def export_strategy():
    example()
    subprocess.run(["reshard", "export", "ex/src", "out", "-s", "ex/src_strategy.ckpt", "-d", "ex/dst_strategy.ckpt"],
                   check=True, stdout=subprocess.DEVNULL)
    return "out", {}


# ---- llama.cpp ----

@layout("llama.cpp", says=["GGUF"], exact=False)
def gguf():
    shutil.copytree(f"{FIXTURES}/layouts/gguf", "g")
    return "g", {"a.weight": torch.arange(24.0).reshape(6, 4) / 8}


@layout("llama.cpp, beside a config", says=["GGUF"], never=["strategy is empty"], exact=False)
def gguf_with_config():
    shutil.copytree(f"{FIXTURES}/layouts/gguf", "g")
    text("g/config.json", {"model_type": "llama"})
    return "g", {"a.weight": torch.arange(24.0).reshape(6, 4) / 8}


# ---- files that are named and not read ----

def refusal(name, program, *words):
    """A layout that is refused by these words; what the function makes is the path."""
    def add(function):
        def made():
            return function(), {}
        made.__name__ = name
        LAYOUTS.append(Layout(made, program, refused=words))
        return function
    return add


@refusal("orbax", "Orbax", "Orbax")
def _orbax():
    shutil.copytree(f"{FIXTURES}/layouts/orbax", "o")
    return "o"


@refusal("part_missing", "a download that was stopped", "'model-00002-of-00002.safetensors' is missing")
def _part_missing():
    in_parts("m/model", toy())
    os.unlink("m/model/model-00002-of-00002.safetensors")
    os.unlink("m/model/model.safetensors.index.json")
    return "m"


@refusal("part_missing_of_index", "the same, with the index", "index.json", "it names 'model-00002-of-00002.safetensors'")
def _part_missing_of_index():
    in_parts("m", toy())
    os.unlink("m/model-00002-of-00002.safetensors")
    return "m"


@refusal("link_to_nothing", "the hub's cache before a download has ended", "'model.safetensors'", "is not there")
def _link_to_nothing():
    hub_of("models--org--name")
    at = f"models--org--name/snapshots/{'ab' * 20}"
    os.unlink(os.path.realpath(f"{at}/model.safetensors"))
    return at


@refusal("json_of_a_run", "NeMo RL, its training_info.json", "JSON")
def _training_info():
    text("training_info.json", {"step": 5})
    return "training_info.json"


@refusal("nothing", "nobody", "rank_N")
def _nothing():
    os.mkdir("empty")
    return "empty"


def file_of(name, head, program, *words, folder=False):
    def function():
        data(f"d/{name}", head)
        return "d" if folder else f"d/{name}"
    refusal(f"{'folder_of_' if folder else 'file_of_'}{name.lower().replace('.', '_').replace('-', '_')}", program, *words)(function)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4976698672\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"
for name_, head_, program_, words_ in (
        ("model.safetensors", LFS, "Git LFS", ["Git LFS", "git lfs pull"]),
        ("model.bin", LFS, "Git LFS", ["Git LFS"]),
        ("model.ckpt", LFS, "Git LFS", ["Git LFS"]),
        ("model.gguf", LFS, "Git LFS", ["Git LFS"]),
        ("page.safetensors", PAGE, "a server", ["HTML"]),
        ("page.pt", PAGE, "a server", ["HTML"]),
        ("weights.h5", b"\x89HDF\r\n\x1a\n" + bytes(500), "Keras", ["HDF5"]),
        ("hdf.ckpt", b"\x89HDF\r\n\x1a\n" + bytes(500), "Keras", ["HDF5"]),
        ("model.keras", b"PK\3\4" + bytes(500), "Keras", ["Keras"]),
        ("model.tensors", b"|TZR|\n" + bytes(500), "tensorizer", ["tensorizer"]),
        ("model.onnx", b"\x08\x08\x12\x07pytorch\x1a\x052.1.0" + bytes(50), "ONNX", ["ONNX"]),
        ("model_state.pdparams", b"\x80\x04\x95" + bytes(50), "Paddle", ["Paddle"]),
        ("saved_model.pb", b"\x08\x01\x12\x10" + bytes(50), "TensorFlow", ["TensorFlow"]),
        ("model.ckpt-10.index", bytes(50), "TensorFlow", ["TensorFlow"]),
        ("model.ckpt.data-00000-of-00001", bytes(50), "TensorFlow", ["TensorFlow"]),
        ("model.tflite", b"\x1c\0\0\0TFL3" + bytes(50), "TensorFlow Lite", ["TensorFlow Lite"]),
        ("flax_model.msgpack", b"\x81\xa6params" + bytes(50), "Flax", ["Flax"]),
        ("weights.npz", b"PK\3\4" + bytes(50), "numpy", ["numpy"]),
        ("array.npy", b"\x93NUMPY\1\0" + bytes(50), "numpy", ["numpy"]),
        ("model.nemo", bytes(257) + b"ustar\0" + bytes(300), "NeMo 1", ["NeMo"]),
        ("model.engine", b"ftrt" + bytes(50), "TensorRT", ["TensorRT"]),
        ("rust_model.ot", b"PK\3\4" + bytes(50), "rust-bert", ["tch"]),
        ("ggml-model.bin", b"tjgg" + bytes(50), "llama.cpp before GGUF", ["GGML"]),
        ("model.mindir", b"\x0a\x05" + bytes(50), "MindSpore", ["MindIR"]),
        ("model.tar.gz", b"\x1f\x8b\x08" + bytes(50), "tar", ["gzip"])):
    file_of(name_, head_, program_, *words_)
for name_, head_, program_, words_ in (
        ("model.safetensors", LFS, "Git LFS", ["Git LFS"]),
        ("tf_model.h5", b"\x89HDF\r\n\x1a\n" + bytes(500), "TensorFlow", ["HDF5"]),
        ("saved_model.pb", b"\x08\x01\x12\x10" + bytes(50), "TensorFlow", ["TensorFlow"]),
        ("model.ckpt-10.index", bytes(50), "TensorFlow", ["TensorFlow"]),
        ("model_state.pdparams", b"\x80\x04\x95" + bytes(50), "Paddle", ["Paddle"]),
        ("flax_model.msgpack", b"\x81\xa6params" + bytes(50), "Flax", ["Flax"]),
        ("model.onnx", b"\x08\x08\x12\x07pytorch" + bytes(50), "ONNX", ["ONNX"]),
        ("model.tensors", b"|TZR|\n" + bytes(500), "tensorizer", ["tensorizer"]),
        ("weights.npz", b"PK\3\4" + bytes(50), "MLX", ["numpy"])):
    file_of(name_, head_, program_, *words_, folder=True)


@refusal("torchscript", "torch.jit.save", "TorchScript")
def _torchscript():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(4, 6)

        def forward(self, x):
            return self.a(x)

    torch.jit.save(torch.jit.script(Net()), "model.pt")
    return "model.pt"


@refusal("torch_of_a_module", "torch.save of a whole module, as Ultralytics does", "nothing was executed")
def _module():
    torch_save("yolo.pt", {"model": torch.nn.Linear(4, 6), "epoch": -1})
    return "yolo.pt"


@refusal("torch_before_zip", "torch.save before 1.6", "torch.save(")
def _legacy():
    torch.save(toy(), "old.bin", _use_new_zipfile_serialization=False)
    return "old.bin"
