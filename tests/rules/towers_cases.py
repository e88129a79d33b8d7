# SPDX-License-Identifier: Apache-2.0
"""The family "towers": models in Megatron-Core as mcore-bridge builds them, and gemma3 with images as Megatron-Bridge does.

transformers makes and saves the model. mcore-bridge fills Megatron's parameters from it, all of them and as ranks have them, and a
real GatedDeltaNet of it says by which names they are saved. The model of the view says what the first one says.
"""
import os
import random
import types

import compared
import hybrid_cases
import mcore_bridge_model
import torch
import torch.distributed.checkpoint as dcp
import transformers
import transformers_cases
import views
from hybrid_cases import read, same
from safetensors.torch import load_file, save_file

FIXED = {}
CLASSES = {"qwen3_next": "Qwen3Next", "qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe"}
RULES = {"qwen3_next": "megatron"}


def random_config(kind, rng):
    text = hybrid_cases.random_config(rng)
    if kind == "qwen3_next":
        return text
    tied = text.pop("tie_word_embeddings")
    if kind == "qwen3_5":
        text["intermediate_size"] = rng.choice([6, 10])
        text = {k: v for k, v in text.items() if "expert" not in k and k not in ("moe_intermediate_size", "mlp_only_layers",
                                                                                  "decoder_sparse_step")}
    heads = rng.choice([1, 2])
    return {"text_config": {**text, "tie_word_embeddings": tied}, "tie_word_embeddings": tied, "vision_config": {
        "depth": rng.choice([1, 2]), "hidden_size": 4 * heads, "num_heads": heads, "intermediate_size": rng.choice([6, 8]), "patch_size": 2,
        "out_hidden_size": text["hidden_size"], "num_position_embeddings": 16, "spatial_merge_size": 2}}


class Case:
    def __init__(self, name, kind, rng):
        self.name, self.kind, self.rng = name, kind, rng
        self.says, self.refusal, self.status = "", "", 1
        self.numbers = random_config(kind, rng)
        self.config = getattr(transformers, CLASSES[kind] + "Config")(**self.numbers)
        self.options = {"convert": views.rules(RULES.get(kind, f"megatron_{kind.removesuffix('_moe')}"))}

    def describe(self):
        return f"  {self.kind}: {self.numbers}"

    def loaded(self, folder):
        made = transformers.AutoModelForMultimodalLM if self.is_multimodal() else transformers.AutoModelForCausalLM
        model, told = made.from_pretrained(folder, dtype="auto", local_files_only=True, output_loading_info=True,
                                           **transformers_cases.EXPERTS)
        assert not told["missing_keys"] and not told["mismatched_keys"], told
        for parameter in model.parameters():  # not in mapped files: sums differ in the last bit by where in memory weights begin
            parameter.data = parameter.data.clone()
        return model.eval()

    def is_multimodal(self):
        return self.kind != "qwen3_next"

    def logits(self, folder):
        with torch.no_grad():
            return self.loaded(folder)(torch.arange(8)[None], use_cache=False).logits

    def write(self, folder):
        hf = os.path.join(folder, "hf")
        torch.manual_seed(self.rng.getrandbits(32))
        made = transformers.AutoModelForMultimodalLM if self.is_multimodal() else transformers.AutoModelForCausalLM
        model = made.from_config(self.config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randint(-512, 512, parameter.shape) / 1024)
        model.save_pretrained(hf)
        self.logits_first = self.logits(hf)
        self.tensors = read(hf)
        if self.rng.random() < .5:
            self.tensors |= self.predicted()
            save_file(self.tensors, os.path.join(hf, "model.safetensors"))
        self.hf, self.made = {**self.options, "hf_config": os.path.join(hf, "config.json")}, os.path.join(folder, "made")
        problem = compared.export(self, hf, self.made, {**self.hf, "view": "unified", "format": "safetensors", **self.layout()})
        if problem:
            raise ValueError(problem)
        self.trained = self.filled(read(self.made))
        source = os.path.join(folder, "trained")
        dcp.save(self.trained, checkpoint_id=source, no_dist=True)
        known = "linear_attention" in self.config.get_text_config().layer_types  # its names say who made the layers
        return source, {**self.hf, "view": "huggingface", **({} if known else self.layout())}

    def predicted(self):
        """A layer of multi-token prediction, which transformers leaves out: one with full attention, negated."""
        text = self.config.get_text_config()
        if "full_attention" not in text.layer_types:
            return {}
        at = f"layers.{text.layer_types.index('full_attention')}."
        more = {"mtp.layers.0." + n.split(at)[1]: -t for n, t in self.tensors.items() if f".{at}" in n and ".visual." not in n}
        more |= {f"mtp.{n}.weight": torch.rand(text.hidden_size) + .5 for n in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}
        return {**more, "mtp.fc.weight": torch.rand(text.hidden_size, 2 * text.hidden_size)}

    def filled(self, have, rank=0, tp=1):
        return mcore_bridge_model.filled(self.kind, self.config, self.tensors, have, rank, tp)

    def check_oracle(self, folder):
        if not torch.isfinite(self.logits_first).all():
            return "the model's numbers are not finite"
        kinds = self.config.get_text_config().layer_types
        if "linear_attention" not in kinds:
            return None
        at = ("language_model." if self.is_multimodal() else "") + hybrid_cases.ATTENTION.format(kinds.index("linear_attention"))
        with hybrid_cases.delta_net(self.config.get_text_config().to_dict(), 0, 1, mcore_bridge_model.delta_net()) as real:
            names = {n: tuple(t.shape) for n, t in hybrid_cases.saved(real, at).items()}
        have = {n: tuple(t.shape) for n, t in self.trained.items() if n.startswith(at) and "norm_weight" not in n}
        return None if names == have else f"mcore-bridge saves {names} instead of {have}"

    def check_views(self, folder, source, options):
        made = read(self.made)
        problem = same(made, self.trained)  # what mcore-bridge has not read is NaN
        if problem:
            return f"from HuggingFace: {problem}"
        return views.check(self, source, os.path.join(folder, "as-hf"), options, lambda at: same(read(at), self.tensors) or (
            None if torch.equal(self.logits(at), self.logits_first) else "transformers says something else")) or \
            self.check_experts(folder, source, options) or self.check_towers(folder) or self.check_cuts(folder)

    def check_experts(self, folder, source, options):
        """The other form of experts, as transformers saves it."""
        if self.kind == "qwen3_5":
            return None
        saved, target, back = (os.path.join(folder, n) for n in ("saved", "fused", "fused-made"))
        self.loaded(os.path.join(folder, "hf")).save_pretrained(saved, save_original_format=False)
        want = read(saved)
        problem = compared.export(self, source, target, {**options, "experts": "fused", **self.without_predicted()}) or \
            same(read(target), want) or compared.export(self, saved, back, {**self.hf, "view": "unified", "format": "safetensors",
                                                                            **self.layout()})
        return problem and f"experts=fused: {problem}" or \
            same(read(back), {n: t for n, t in self.trained.items() if "mtp." not in n})

    def layout(self):
        return {"convert_options": "layout=mcore_bridge"} if self.kind == "qwen3_next" else {}

    def without_predicted(self):
        return {"drop_source": "*mtp.*"} if "mtp.fc.weight" in self.tensors else {}

    def check_towers(self, folder):
        """A training of language alone has no tower."""
        if not self.is_multimodal():
            return None
        alone, back = os.path.join(folder, "alone"), os.path.join(folder, "alone-hf")
        problem = compared.export(self, os.path.join(folder, "hf"), alone, {
            **self.hf, "convert_options": "visual=none", "view": "unified", "format": "safetensors"}) or \
            same(read(alone), {n: t for n, t in self.trained.items() if not n.startswith("visual.")}) or \
            compared.export(self, alone, back, {**self.hf, "convert_options": "visual=none", "view": "huggingface"}) or \
            same(read(back), {n: t for n, t in self.tensors.items() if not n.startswith("model.visual.")})
        if problem:
            return f"visual=none: {problem}"
        done = compared.run("convert", "check", self.options["convert"], "--hf-config", os.path.join(folder, "hf", "config.json"), alone)
        return None if done.returncode == 1 and "visual=none" in done.stdout else f"without the tower it says {done.stdout}"

    def check_cuts(self, folder):
        """Each rank has what mcore-bridge gives it."""
        tp, text = 2, self.config.get_text_config()
        if any(n % tp for n in (text.num_key_value_heads, text.vocab_size, getattr(text, "shared_expert_intermediate_size", 0))):
            return None
        target = os.path.join(folder, "cut")
        problem = compared.export(self, os.path.join(folder, "hf"), target, {
            **self.hf, "dst_rules": f"tp{tp},etp1", "format": "safetensors",
            **({"convert_options": "layers=numbered:layout=mcore_bridge"} if self.kind == "qwen3_next" else {})})
        for rank in range(tp):
            have = problem or read(os.path.join(target, f"rank_{rank}"))
            problem = problem or same(have, self.filled(have, rank, tp))
        if problem or self.without_predicted():  # HuggingFace's names of multi-token prediction are in no ready cut
            return problem and f"tp{tp}: {problem}"
        whole = {n: t for n, t in self.tensors.items() if ".linear_attn." in n or ".visual." in n}
        target = os.path.join(folder, "hf-cut")
        problem = compared.export(self, os.path.join(folder, "hf"), target, {
            "dst_rules": f"tp{tp}", "format": "safetensors"})
        for rank in range(tp):
            have = problem or read(os.path.join(target, f"rank_{rank}"))
            problem = problem or same({n: have[n] for n in whole}, {
                n: t.chunk(tp)[rank] if "linear_attn" in n and "_proj" in n else t for n, t in whole.items()})
        return problem and f"tp{tp} of HuggingFace's names: {problem}"


class Gemma(Case):
    """Gemma 3 with images: Megatron-Bridge's table says of what each of its tensors is made."""

    def __init__(self, name, rng):
        self.name, self.kind, self.rng = name, "gemma3", rng
        self.says, self.refusal, self.status = "", "", 1
        groups, heads = rng.choice([1, 2]), rng.choice([1, 2])
        self.numbers = {"text_config": {
            "hidden_size": rng.choice([8, 16]), "intermediate_size": rng.choice([6, 10]), "num_hidden_layers": rng.choice([1, 3]),
            "num_attention_heads": groups * rng.choice([1, 2]), "num_key_value_heads": groups, "head_dim": rng.choice([4, 8]),
            "vocab_size": rng.choice([16, 30])}, "vision_config": {
            "hidden_size": 4 * heads, "num_attention_heads": heads, "intermediate_size": 6, "num_hidden_layers": rng.choice([1, 2]),
            "image_size": 8, "patch_size": 4, "vision_use_head": False}, "mm_tokens_per_image": 4}
        self.config = transformers.Gemma3Config(**self.numbers)
        self.options = {"convert": views.rules("megatron_gemma3")}

    def layout(self):
        return {"convert_options": "layers=numbered"}

    def predicted(self):
        return {}

    def filled(self, have, rank=0, tp=1):
        table, functions = hybrid_cases.bridge("gemma_vl.gemma3_vl_bridge", "Gemma3VLBridge")
        text, left = self.config.text_config, set(self.tensors)
        provider = types.SimpleNamespace(num_attention_heads=text.num_attention_heads, num_query_groups=text.num_key_value_heads,
                                         kv_channels=text.head_dim, hidden_size=text.hidden_size, attention_output_gate=False)
        out = {}
        for name in have:
            row = table.megatron_to_hf_lookup(name)
            names = [row.hf_param] if isinstance(row.hf_param, str) else list(row.hf_param.values())
            of = [self.tensors[n] for n in names]
            left.difference_update(names)
            if isinstance(row, functions.QKVMapping):
                out[name] = functions.merge_qkv_weights(provider, *of)
            elif isinstance(row, functions.GatedMLPMapping):
                out[name] = torch.cat([tensor.chunk(tp)[rank] for tensor in of])
            else:
                permuted = getattr(row, "permute_dims", None)
                out[name] = of[0].permute(permuted).contiguous() if permuted else of[0]
        assert not left, f"Megatron-Bridge's tensors need {left}, too"
        return out

    def check_oracle(self, folder):
        return None if torch.isfinite(self.logits_first).all() else "the model's numbers are not finite"

    def check_experts(self, folder, source, options):
        return None

    def check_towers(self, folder):
        """The text alone."""
        alone, back = os.path.join(folder, "alone"), os.path.join(folder, "alone-hf")
        none = {"convert_options": "layers=numbered:visual=none"}
        problem = compared.export(self, os.path.join(folder, "hf"), alone, {
            **self.hf, **none, "view": "unified", "format": "safetensors"}) or \
            same(read(alone), {n: t for n, t in self.trained.items() if n.startswith("language_model.")}) or \
            compared.export(self, alone, back, {**self.hf, **none, "view": "huggingface"}) or \
            same(read(back), {n: t for n, t in self.tensors.items() if n.startswith("language_model.")})
        return problem and f"visual=none: {problem}"

    def check_cuts(self, folder):
        """Towers are whole in both names; the projector is a ColumnParallelLinear in Megatron-Bridge's."""
        tp = self.config.text_config.num_key_value_heads
        for names, more, cut in ((self.tensors, {}, ()), (self.trained, self.hf | self.layout(), ("multi_modal_projector.proj.weight",))):
            target = os.path.join(folder, f"cut-{len(cut)}")
            problem = compared.export(self, os.path.join(folder, "hf"), target, {"dst_rules": f"tp{tp}", "format": "safetensors", **more})
            for rank in range(tp):
                have = problem or read(os.path.join(target, f"rank_{rank}"))
                want = {n: t.chunk(tp)[rank] if n in cut else t for n, t in names.items() if not n.startswith("language_model.")}
                problem = problem or same({n: have[n] for n in want}, want)
            if problem:
                return f"tp{tp}: {problem}"
        return None


class Llama(Case):
    """Llama 4: the text, whose experts are one tensor in HuggingFace's files, transposed."""

    def __init__(self, name, rng):
        self.name, self.kind, self.rng = name, "llama4", rng
        self.says, self.refusal, self.status = "", "", 1
        groups = rng.choice([1, 2])
        self.numbers = {"text_config": {
            "hidden_size": rng.choice([8, 16]), "intermediate_size": rng.choice([6, 10]), "intermediate_size_mlp": 12,
            "num_hidden_layers": rng.choice([2, 4]), "num_attention_heads": groups * rng.choice([1, 3]), "num_key_value_heads": groups,
            "head_dim": rng.choice([4, 8]), "vocab_size": rng.choice([16, 30]), "num_local_experts": rng.choice([2, 3]),
            "interleave_moe_layer_step": rng.choice([1, 2]), "pad_token_id": 0}, "vision_config": {
            "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12, "image_size": 8, "patch_size": 4,
            "vision_output_dim": 8, "projector_input_dim": 8, "projector_output_dim": 8}}
        self.config = transformers.Llama4Config(**self.numbers)
        self.options = {"convert": views.rules("megatron_llama4")}

    def layout(self):
        return {"convert_options": "layers=numbered"}

    def predicted(self):
        return {}

    def write(self, folder):
        source, options = super().write(folder)
        return source, {**options, **self.layout()}

    def check_oracle(self, folder):
        return None if torch.isfinite(self.logits_first).all() else "the model's numbers are not finite"

    def check_views(self, folder, source, options):
        text = {n: t for n, t in self.tensors.items() if n.startswith("language_model.")}
        problem = same(read(self.made), self.trained)
        if problem:
            return f"from HuggingFace: {problem}"
        problem = views.check(self, source, os.path.join(folder, "as-hf"), options, lambda at: same(read(at), text))
        stacked, back = os.path.join(folder, "stacked"), os.path.join(folder, "stacked-hf")
        return problem or compared.export(self, os.path.join(folder, "hf"), stacked, {
            **self.hf, "view": "unified", "format": "safetensors"}) or \
            compared.export(self, stacked, back, {**self.hf, "view": "huggingface"}) or same(read(back), text) or \
            self.check_singleton(folder, text) or self.check_cuts(folder)

    def check_singleton(self, folder, text):
        """A save with singleton_local_shards: experts one by one, gate and up apart, with the values that mcore-bridge has read."""
        want, apart, back = {}, os.path.join(folder, "apart"), os.path.join(folder, "apart-hf")
        for name, tensor in self.trained.items():
            at, _, end = name.partition("experts.experts.")
            for own, value in [(f"{at}experts.experts.{e}.{end}", one) for e, one in enumerate(tensor)] if end else [(name, tensor)]:
                halves = zip("wv", value.chunk(2)) if own.endswith("linear_fc1.weight") else [("", value)]
                want.update({f"{own}_{half}" if half else own: part for half, part in halves})
        given = {**self.hf, "convert_options": "layers=singleton"}
        return compared.export(self, os.path.join(folder, "hf"), apart, {**given, "view": "unified", "format": "safetensors"}) or \
            same(read(apart), want) or compared.export(self, apart, back, {**given, "view": "huggingface"}) or same(read(back), text)

    def check_cuts(self, folder):
        tp, target = self.config.text_config.num_key_value_heads, os.path.join(folder, "cut")
        problem = compared.export(self, os.path.join(folder, "hf"), target, {
            **self.hf, **self.layout(), "dst_rules": f"tp{tp},etp1", "format": "safetensors"})
        for rank in range(tp):
            have = problem or read(os.path.join(target, f"rank_{rank}"))
            problem = problem or same(have, self.filled(have, rank, tp))
        return problem and f"tp{tp}: {problem}"


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    if number % 5 >= len(CLASSES):
        return (Gemma, Llama)[number % 5 - len(CLASSES)](f"towers-{seed}-{number}", rng)
    return Case(f"towers-{seed}-{number}", list(CLASSES)[number % 5], rng)


def prepare():
    torch.set_num_threads(1)
    transformers_cases.prepare()
