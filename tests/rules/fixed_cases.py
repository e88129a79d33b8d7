# SPDX-License-Identifier: Apache-2.0
"""Fixed cases of the family "mindformers": models of uncommon sizes, and what must be refused or found."""
import os
import random
import re
import shutil

import architectures
import numpy as np
import views
from values import Value


class Fixed:
    """Makes cases with what is said, and the rest always the same."""

    def __init__(self, case_of):
        self.case_of, self.all = case_of, {}

    def __call__(self, function):
        name = "mindformers-" + function.__name__.replace("_", "-")
        self.all[name] = function
        return function

    def case(self, name, shape, options=None, dtype="BFloat16", **config):
        rng = random.Random(0)
        made = architectures.random_config(rng, shape.removesuffix("_legacy"))
        made.update({"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
                     "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 12, "tie_word_embeddings": False})
        if shape in ("llama", "qwen3", "qwen3_moe"):
            made["attention_bias"] = False
        if shape == "qwen3_moe":
            made.update({"num_experts": 3, "moe_intermediate_size": 6})
        if shape == "deepseek_v3":
            made.update({"num_key_value_heads": 4, "n_routed_experts": 3, "moe_intermediate_size": 6, "n_shared_experts": 1,
                         "first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "q_lora_rank": 6, "kv_lora_rank": 4,
                         "qk_rope_head_dim": 2, "qk_nope_head_dim": 4, "v_head_dim": 4})
        made.update(config)
        model = architectures.fill(np.random.default_rng(1), {k: v for k, v in made.items() if v != "none"}, dtype)
        out = self.case_of(name, shape, model, options or {}, rng)
        out.form, out.devices, out.to, out.stages, out.state, out.extra, out.files = "ranks", 2, 2, 1, False, False, 1
        return out


def add(fixed):
    """All of them, by the decorator and maker FIXED."""

    @fixed
    def tiles(name):
        """Experts of many elements in all axes, none a power of two: transposed in parts, with rests on all sides."""
        return fixed.case(name, "qwen3_moe", hidden_size=322, moe_intermediate_size=131, num_experts=5, num_hidden_layers=1)

    @fixed
    def tiles_of_float32(name):
        """The same with elements of four bytes."""
        return fixed.case(name, "qwen3_moe", hidden_size=131, moe_intermediate_size=322, num_experts=3, num_hidden_layers=1,
                          dtype="Float32")

    @fixed
    def a_part_of_the_names(name):
        """only= and drop= are patterns of the names that the rules make."""
        case = fixed.case(name, "qwen3")

        def check(folder, source, options):
            wanted = {n: v for n, v in case.model.tensors.items() if n.startswith("model.layers.1.") and "norm" not in n}
            return views.check(case, source, os.path.join(folder, "part"), {**options, "only": "model.layers.1.*", "drop": "*norm*"},
                               lambda shown: views.huggingface_differs(shown, case.config, wanted))
        case.check_views = check
        return case

    @fixed
    def numbers_of_two_digits(name):
        """Layers 10 and 11 and expert 10 stand behind 9, not behind 1."""
        return fixed.case(name, "qwen3_moe", num_hidden_layers=12, num_experts=12, moe_intermediate_size=2)

    @fixed
    def one_head_of_one(name):
        """The least of all numbers."""
        return fixed.case(name, "qwen3", num_attention_heads=1, num_key_value_heads=1, head_dim=1, hidden_size=1,
                          intermediate_size=1, num_hidden_layers=1, vocab_size=1)

    @fixed
    def tied_predictions(name):
        """Two layers of multi-token prediction, tied: copies of the embedding in both places."""
        return fixed.case(name, "deepseek_v3", num_nextn_predict_layers=2, tie_word_embeddings=True)

    @fixed
    def an_axis_of_experts(name):
        """Experts in an axis of their own, which the option asks for on the way back."""
        return fixed.case(name, "deepseek_v3", {"experts_axis": "own"})

    add_refusals(fixed)
    add_found(fixed)
    for shape in ("qwen3", "qwen3_moe", "deepseek_v3", "llama", "qwen2", "llama_legacy", "qwen2_legacy"):
        add_ties(fixed, shape)
    add_predictions(fixed)


def add_refusals(fixed):
    @fixed
    def wrong_heads(name):
        """Other counts of heads and groups that make qkv of the same size: the output projection tells."""
        return refuse(fixed.case(name, "qwen3", num_attention_heads=4, num_key_value_heads=4), {
            "num_attention_heads": 8, "num_key_value_heads": 2},
            "decoder.layers.0.self_attention.linear_proj.weight", "[16, 16]", "[16, 32]", "common-attention.rules")

    @fixed
    def wrong_groups(name):
        """Half of the groups: q, k and v are more rows than there are."""
        return refuse(fixed.case(name, "qwen3"), {"num_key_value_heads": 1},
                      "decoder.layers.0.self_attention.linear_qkv.weight", "[32, 16]", "[24, 16]", "common-attention.rules")

    @fixed
    def wrong_groups_from_huggingface(name):
        """The same where q, k and v are the source."""
        return refuse_back(fixed.case(name, "qwen3"), {"num_key_value_heads": 1},
                           "model.layers.0.self_attn.k_proj.weight", "[8, 16]", "[4, 16]", "common-attention.rules")

    @fixed
    def wrong_experts(name):
        """Another count of experts."""
        return refuse(fixed.case(name, "qwen3_moe"), {"num_local_experts": 2},
                      "decoder.layers.0.mlp.router.weight", "[3, 16]", "[2, 16]", "common-experts.rules")

    @fixed
    def wrong_layers(name):
        """Fewer layers than were trained: the tensors of the others are left."""
        return refuse(fixed.case(name, "qwen3"), {"num_hidden_layers": 1}, "decoder.layers.1.", "there are fewer of its kind",
                      "try: the config.json that belongs to these tensors")

    @fixed
    def more_layers(name):
        """More layers than were trained."""
        return refuse(fixed.case(name, "qwen3"), {"num_hidden_layers": 3}, "decoder.layers.2.")

    @fixed
    def another_model(name):
        """The config is of a kind that the rules are not for."""
        return refuse(fixed.case(name, "qwen3"), {"model_type": "llama"}, "llama", "qwen3")

    @fixed
    def not_tied(name):
        """The config says that the output has weights of its own, and the training saved none."""
        return refuse(fixed.case(name, "qwen3", tie_word_embeddings=True), {"tie_word_embeddings": False}, "output_layer.weight")

    @fixed
    def a_missing_number(name):
        """The config lacks a key."""
        return refuse(fixed.case(name, "qwen3"), {"intermediate_size": None}, "intermediate_size")

    @fixed
    def a_missing_expert(name):
        """HuggingFace's folder has not all of them."""
        case = refuse_back(fixed.case(name, "qwen3_moe"), {}, "model.layers.1.mlp.experts.2.up_proj.weight",
                           "common-experts.rules")
        case.lost = "model.layers.1.mlp.experts.2.up_proj.weight"
        return case

    @fixed
    def a_missing_weight(name):
        """The training has not all of them."""
        case = refuse(fixed.case(name, "qwen3"), {}, "decoder.layers.1.mlp.linear_fc2.weight", "common-dense.rules")
        del case.trained["decoder.layers.1.mlp.linear_fc2.weight"]
        return case

    @fixed
    def an_unknown_weight(name):
        """One that no rule takes."""
        case = refuse(fixed.case(name, "qwen3"), {}, "decoder.layers.0.self_attention.linear_gate.weight")
        case.trained["decoder.layers.0.self_attention.linear_gate.weight"] = Value("Float32", np.zeros((2, 2), np.float32))
        return case

    @fixed
    def types_that_differ(name):
        """k of another type than q and v: they make one tensor."""
        case = refuse_back(fixed.case(name, "qwen3"), {}, "decoder.layers.0.self_attention.linear_qkv.weight", "Float32",
                           "BFloat16", "common-attention.rules")
        of = case.model.tensors["model.layers.0.self_attn.k_proj.weight"]
        case.model.tensors["model.layers.0.self_attn.k_proj.weight"] = Value("Float32", np.zeros(of.shape, np.float32))
        return case

    @fixed
    def an_unknown_option(name):
        """The rules have no such option, and tell those that they have."""
        case = refuse(fixed.case(name, "qwen3"), {}, "gate_down", "gate_up")
        case.options, case.status = {"gate_down": "split"}, 2
        return case

    @fixed
    def an_unknown_word(name):
        """The option has no such word."""
        case = refuse(fixed.case(name, "qwen3"), {}, "mixed", "interleaved")
        case.options, case.status = {"gate_up": "mixed"}, 2
        return case


OUTPUTS = ("has other bytes than", "of which it should be a copy", '"tie_word_embeddings": false in ')


def add_ties(fixed, shape):
    """An output with weights of its own, and a config that says that it has those of the embeddings; both ways."""
    output = "lm_head.weight" if shape.endswith("_legacy") else "output_layer.weight"
    embeddings = "model.tok_embeddings.embedding_weight" if shape.endswith("_legacy") else "embedding.word_embeddings.weight"

    def untied(name):
        """The training has another output than embeddings."""
        case = fixed.case(name, shape)
        return refuse(case, {"tie_word_embeddings": True}, f"parameter '{output}'", f"'{embeddings}'", *OUTPUTS)

    def untied_model(name):
        """HuggingFace's folder has another output than embeddings."""
        case = fixed.case(name, shape)
        return refuse_back(case, {"tie_word_embeddings": True}, "parameter 'lm_head.weight'", "'model.embed_tokens.weight'",
                           *OUTPUTS)

    def tied(name):
        """Both have an output that is the same as the embeddings: it is left out."""
        case = fixed.case(name, shape, tie_word_embeddings=True)
        case.extra, case.more = True, {output: case.trained[embeddings]}
        return case

    of = shape.replace("_", "-")
    fixed.all.update({f"mindformers-untied-{of}": untied, f"mindformers-untied-{of}-model": untied_model,
                      f"mindformers-tied-{of}": tied})


def add_predictions(fixed):
    """Copies in the layers of multi-token prediction."""

    def changed(case, name):
        value = case.model.tensors[name]
        case.model.tensors[name] = value.with_data(value.data[::-1].copy())
        return case

    for part, of in (("embed_tokens", "model.embed_tokens.weight"), ("shared_head.head", "lm_head.weight")):
        def other(name, part=part, of=of):
            """A copy in HuggingFace's folder that differs: the training has one tensor for both."""
            case = changed(fixed.case(name, "deepseek_v3"), f"model.layers.2.{part}.weight")
            return refuse_back(case, {}, f"parameter 'model.layers.2.{part}.weight'", f"has other bytes than '{of}'",
                               "try: rules of your own")
        fixed.all[f"mindformers-predictions-{part.split('.')[0].replace('_', '-')}"] = other

    for part, of in (("output_layer", "output_layer"), ("embedding.word_embeddings", "embedding.word_embeddings")):
        def second(name, part=part, of=of):
            """A second embedding or output of the training that differs."""
            case = fixed.case(name, "deepseek_v3")
            value = case.trained[f"{of}.weight"]
            case.more = {f"mtp.{part}.weight": value.with_data(value.data[::-1].copy())}
            return refuse(case, {}, f"parameter 'mtp.{part}.weight'", f"has other bytes than '{of}.weight'")

        def copy(name, part=part, of=of):
            """One that is the same."""
            case = fixed.case(name, "deepseek_v3")
            case.more = {f"mtp.{part}.weight": case.trained[f"{of}.weight"]}
            return case
        fixed.all[f"mindformers-second-{part.split('.')[0].replace('_', '-')}"] = second
        fixed.all[f"mindformers-same-{part.split('.')[0].replace('_', '-')}"] = copy


def refuse(case, config, *parts):
    """What the view for HuggingFace must say, with another config than that of the model."""
    case.refusal = parts
    case.check_oracle = lambda folder: None
    write = case.write

    def with_config(folder):
        made = write(folder)
        views.write_config(case.config, case.model.config, **config)
        return made
    case.write = with_config
    return case


def refuse_back(case, config, *parts):
    """The same for a view with the training's names."""
    refuse(case, config, *parts)
    case.lost = None
    write = case.write

    def without_the_lost(folder):
        full = dict(case.model.tensors)
        case.model.tensors.pop(case.lost, None)
        made = write(folder)
        case.model.tensors = full
        return made
    case.write = without_the_lost
    case.check_views = lambda folder, source, options: case.check_back_view(folder)
    return case


def add_found(fixed):
    """Mistakes that no shape tells: the comparison itself has to find them."""

    @fixed
    def swapped_gate_and_up(name):
        """Rules that take one for the other."""
        return find(fixed.case(name, "qwen3"), "common-dense.rules", r"gate_proj(.*?)up_proj", r"up_proj\1gate_proj",
                    "model.layers.0.mlp.gate_proj.weight has other values")

    @fixed
    def swapped_k_and_v(name):
        """Rules that take one for the other."""
        return find(fixed.case(name, "qwen3"), "common-attention.rules", r"k_proj(.*?)v_proj", r"v_proj\1k_proj",
                    "model.layers.0.self_attn.k_proj.weight has other values")

    @fixed
    def groups_of_the_rules(name):
        """Rules that cut as many groups as there are heads: sizes would allow it, and it is refused."""
        return find(fixed.case(name, "qwen3", num_attention_heads=4, num_key_value_heads=2), "common-attention.rules",
                    r"groups\(groups, 0", "groups(heads, 0", "is cut in 4 groups, which do not divide the first factor of its size, 2")

    @fixed
    def heads_of_the_rules(name):
        """Rules that take half of the heads."""
        return find(fixed.case(name, "qwen3", num_attention_heads=4, num_key_value_heads=2), "common-mindformers.rules",
                    r"let heads = config.num_attention_heads", "let heads = config.num_attention_heads / 2",
                    "has shape [32, 16], but the rule makes [24, 16]: groups(groups, 0, ")

    @fixed
    def split_gate_and_up(name):
        """The option that says that gate and up do not take turns, where they do."""
        case = fixed.case(name, "qwen3")
        check = case.check_views

        def must_fail(folder, source, options):
            said = check(folder, source, {**options, "convert_options": "gate_up=split"})
            problem = "model.layers.0.mlp.gate_proj.weight has other values"
            return None if said and problem in said else f"the other option is not found: {said}"
        case.check_views = must_fail
        return case

    @fixed
    def experts_not_transposed(name):
        """Where both axes are of one size."""
        return find(fixed.case(name, "qwen3_moe", moe_intermediate_size=16), "common-experts.rules",
                    r"transpose\((\$at[^)]*)\)", r"\1", "model.layers.0.mlp.experts.0.down_proj.weight has other values")


def find(case, file, pattern, by, problem):
    """The check must fail with PROBLEM when the rules of FILE are changed so."""
    check = case.check_views

    def must_fail(folder, source, options):
        copy = os.path.join(folder, "rules")
        shutil.copytree(views.RULES, copy)
        path = os.path.join(copy, file)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        changed = re.sub(pattern, by, text, flags=re.DOTALL)
        assert changed != text
        with open(path, "w", encoding="utf-8") as f:
            f.write(changed)
        said = check(folder, source, {**options, "convert": os.path.join(copy, os.path.basename(options["convert"]))})
        return None if said and problem in said else f"the changed rules are not found: {said}"
    case.check_views = must_fail
    return case
