# SPDX-License-Identifier: Apache-2.0
"""The same models as training programs keep them, said row by row and element by element.

None of it uses code of those programs, nor the rules: it is the yardstick for both. Sources: the modules of MindSpore
Transformers (parallel_core) and the scripts of its toolkit, and Megatron-Core's gpt_layer_specs, attention and mlp.
"""
import numpy as np
from values import Value


def rows_of(parts, rows):
    """A tensor made of rows: [(name of a part, its row)]."""
    return np.stack([parts[part][row] for part, row in rows])


def grouped(heads, groups, head):
    """For each group of heads: the rows of its heads' q, then of its k, then of its v."""
    per_group = heads // groups
    rows = []
    for group in range(groups):
        for one in range(per_group):
            rows += [("q", (group * per_group + one) * head + row) for row in range(head)]
        rows += [("k", group * head + row) for row in range(head)]
        rows += [("v", group * head + row) for row in range(head)]
    return rows


def contiguous(heads, groups, head):
    return [("q", r) for r in range(heads * head)] + [(part, r) for part in "kv" for r in range(groups * head)]


def alternating(ffn):
    return [(part, row) for row in range(ffn) for part in ("gate", "up")]


def one_behind_the_other(ffn):
    return [(part, row) for part in ("gate", "up") for row in range(ffn)]


class Reader:
    """HuggingFace's tensors of a model, by name; all that were taken are counted."""

    def __init__(self, model):
        self.model, self.taken = model, set()

    def __getitem__(self, name):
        self.taken.add(name)
        return self.model.tensors[name].data

    def like(self, name, data):
        return Value(self.model.tensors[name].dtype, np.ascontiguousarray(data))


class Maker:
    """Common to all: OUT, name -> Value, of the names of a training program."""

    def __init__(self, model, options):
        self.m, self.hf, self.options, self.out = model, Reader(model), options, {}
        self.groups = model.config.get("num_key_value_heads") or model.num_attention_heads
        self.head = model.config.get("head_dim") or model.hidden_size // model.num_attention_heads

    def same(self, name, of):
        self.out[name] = self.hf.like(of, self.hf[of])

    def maybe(self, name, of):
        if of in self.m.tensors:
            self.same(name, of)

    def joined_qkv(self, name, at, what, rows):
        """q, k and v of the layer AT: WHAT is weight or bias."""
        if self.m.kind == "phi3":  # which has q, k and v one behind the other
            first = f"{at}.self_attn.qkv_proj.{what}"
            ends = [self.m.num_attention_heads * self.head, (self.m.num_attention_heads + self.groups) * self.head]
            parts = dict(zip("qkv", np.split(self.hf[first], ends)))
        else:
            first = f"{at}.self_attn.q_proj.{what}"
            parts = {part: self.hf[f"{at}.self_attn.{part}_proj.{what}"] for part in "qkv"}
        self.out[name] = self.hf.like(first, rows_of(parts, rows))

    def joined_mlp(self, name, at, rows):
        parts = {part: self.hf[f"{at}.{part}_proj.weight"] for part in ("gate", "up")}
        self.out[name] = self.hf.like(f"{at}.gate_proj.weight", rows_of(parts, rows))

    def qkv_rows(self, kind):
        return kind(self.m.num_attention_heads, self.groups, self.head)

    def has_bias(self, at):
        return f"{at}.self_attn.q_proj.bias" in self.m.tensors


class Mindformers(Maker):
    """The names of MindSpore Transformers' Mcore models."""

    def qkv(self, to, at):
        kind = contiguous if self.options.get("qkv") == "contiguous" else grouped
        for what in ("weight", "bias"):
            if what == "weight" or self.has_bias(at):
                self.joined_qkv(f"{to}.self_attention.linear_qkv.{what}", at, what, self.qkv_rows(kind))

    def latent(self, to, at):
        for theirs, ours in (("linear_q_proj", "q_proj"), ("linear_q_down_proj", "q_a_proj"), ("q_layernorm", "q_a_layernorm"),
                             ("linear_q_up_proj", "q_b_proj"), ("linear_kv_down_proj", "kv_a_proj_with_mqa"),
                             ("kv_layernorm", "kv_a_layernorm"), ("linear_kv_up_proj", "kv_b_proj")):
            self.maybe(f"{to}.self_attention.{theirs}.weight", f"{at}.self_attn.{ours}.weight")

    def mlp(self, to, at, ffn):
        kind = one_behind_the_other if self.options.get("gate_up") == "split" else alternating
        self.joined_mlp(f"{to}.linear_fc1.weight", at, kind(ffn))
        self.same(f"{to}.linear_fc2.weight", f"{at}.down_proj.weight")

    def experts(self, to, at):
        count, hidden, ffn = self.m.count(), self.m.hidden_size, self.m.moe_intermediate_size
        first = f"{at}.experts.0.gate_proj.weight"
        kept = self.hf[first].dtype
        one, two = np.empty((count, hidden, 2 * ffn), kept), np.empty((count, ffn, hidden), kept)
        for e in range(count):
            gate, up, down = (self.hf[f"{at}.experts.{e}.{part}_proj.weight"] for part in ("gate", "up", "down"))
            for h in range(hidden):
                for f in range(ffn):
                    one[e, h, f], one[e, h, ffn + f], two[e, f, h] = gate[f, h], up[f, h], down[h, f]
        if self.options.get("experts_axis") != "own":
            one, two = one.reshape(count * hidden, 2 * ffn), two.reshape(count * ffn, hidden)
        self.out[f"{to}.experts.weight1"] = self.hf.like(first, one)
        self.out[f"{to}.experts.weight2"] = self.hf.like(first, two)

    def layer(self, to, layer):
        at = f"model.layers.{layer}"
        self.same(f"{to}.input_layernorm.weight", f"{at}.input_layernorm.weight")
        self.same(f"{to}.pre_mlp_layernorm.weight", f"{at}.post_attention_layernorm.weight")
        (self.latent if self.m.kind == "deepseek_v3" else self.qkv)(to, at)
        for what in ("weight", "bias"):
            self.maybe(f"{to}.self_attention.linear_proj.{what}", f"{at}.self_attn.o_proj.{what}")
        for part in "qk":
            self.maybe(f"{to}.self_attention.{part}_layernorm.weight", f"{at}.self_attn.{part}_norm.weight")
        if layer in self.m.dense():
            self.mlp(f"{to}.mlp", f"{at}.mlp", self.m.intermediate_size)
            return
        self.same(f"{to}.mlp.router.weight", f"{at}.mlp.gate.weight")
        self.experts(f"{to}.mlp", f"{at}.mlp")
        if self.m.kind == "deepseek_v3":
            self.same(f"{to}.mlp.router.expert_bias", f"{at}.mlp.gate.e_score_correction_bias")
            self.mlp(f"{to}.mlp.shared_experts", f"{at}.mlp.shared_experts",
                     self.m.moe_intermediate_size * self.m.n_shared_experts)

    def prediction(self, number):
        to, at = f"mtp.layers.{number}", f"model.layers.{self.m.num_hidden_layers + number}"
        for name in ("enorm", "hnorm", "eh_proj"):
            self.same(f"{to}.{name}.weight", f"{at}.{name}.weight")
        self.same(f"{to}.final_layernorm.weight", f"{at}.shared_head.norm.weight")
        self.layer(f"{to}.transformer_layer", self.m.num_hidden_layers + number)

    def make(self):
        self.same("embedding.word_embeddings.weight", "model.embed_tokens.weight")
        for layer in self.m.layers():
            self.layer(f"decoder.layers.{layer}", layer)
        self.same("decoder.final_layernorm.weight", "model.norm.weight")
        self.maybe("output_layer.weight", "lm_head.weight")
        for number in range(self.m.extra()):
            self.prediction(number)
        return self.out


class Legacy(Maker):
    """The older names, attention.wq and feed_forward.w1."""

    def parts(self, to, at):
        for what in ("weight", "bias"):
            for part in "qkv":
                self.maybe(f"{to}.attention.w{part}.{what}", f"{at}.self_attn.{part}_proj.{what}")
        self.same(f"{to}.feed_forward.w1.weight", f"{at}.mlp.gate_proj.weight")
        self.same(f"{to}.feed_forward.w3.weight", f"{at}.mlp.up_proj.weight")

    def joined(self, to, at):
        self.joined_qkv(f"{to}.attention.w_qkv.weight", at, "weight", self.qkv_rows(grouped))
        if self.has_bias(at):
            self.joined_qkv(f"{to}.attention.w_qkv.bias", at, "bias", self.qkv_rows(grouped))
        self.joined_mlp(f"{to}.feed_forward.w_gate_hidden.weight", f"{at}.mlp", alternating(self.m.intermediate_size))

    def make(self):
        self.same("model.tok_embeddings.embedding_weight", "model.embed_tokens.weight")
        for layer in self.m.layers():
            at = to = f"model.layers.{layer}"
            self.same(f"{to}.attention_norm.weight", f"{at}.input_layernorm.weight")
            self.same(f"{to}.ffn_norm.weight", f"{at}.post_attention_layernorm.weight")
            for what in ("weight", "bias"):
                self.maybe(f"{to}.attention.wo.{what}", f"{at}.self_attn.o_proj.{what}")
            self.same(f"{to}.feed_forward.w2.weight", f"{at}.mlp.down_proj.weight")
            (self.joined if self.options.get("qkv") == "fused" else self.parts)(to, at)
        self.same("model.norm_out.weight", "model.norm.weight")
        self.maybe("lm_head.weight", "lm_head.weight")
        return self.out


class Megatron(Maker):
    """Megatron-Core's GPT: each layer by its number here; torch_dist stacks the layers."""

    def chosen(self, name, word):
        return self.options.get(name) == word

    def attention(self, to, at):
        if self.m.kind == "deepseek_v3":
            self.latent(to, at)
            return
        self.same(f"{to}.self_attention.linear_qkv.layer_norm_weight", f"{at}.input_layernorm.weight")
        for what in ("weight", "bias"):
            if what == "weight" or self.has_bias(at):
                self.joined_qkv(f"{to}.self_attention.linear_qkv.{what}", at, what, self.qkv_rows(grouped))
            self.maybe(f"{to}.self_attention.linear_proj.{what}", f"{at}.self_attn.o_proj.{what}")
        self.maybe(f"{to}.self_attention.core_attention.softmax_offset", f"{at}.self_attn.sinks")
        for part in "qk":
            self.maybe(f"{to}.self_attention.{part}_layernorm.weight", f"{at}.self_attn.{part}_norm.weight")

    def latent(self, to, at):
        """Transformer Engine has the norms with the linear layers behind them."""
        self.same(f"{to}.input_layernorm.weight", f"{at}.input_layernorm.weight")
        for theirs, ours in (("linear_q_proj", "q_proj"), ("linear_q_down_proj", "q_a_proj"), ("linear_q_up_proj", "q_b_proj"),
                             ("linear_kv_down_proj", "kv_a_proj_with_mqa"), ("linear_kv_up_proj", "kv_b_proj"),
                             ("linear_proj", "o_proj")):
            self.maybe(f"{to}.self_attention.{theirs}.weight", f"{at}.self_attn.{ours}.weight")
        for part in ("q", "kv"):
            name = f"{part}_layernorm.weight" if self.chosen("transformer_impl", "local") else \
                f"linear_{part}_up_proj.layer_norm_weight"
            self.maybe(f"{to}.self_attention.{name}", f"{at}.self_attn.{part}_a_layernorm.weight")

    def fused_mlp(self, to, at):
        """That of phi3: gate and up are one tensor there, too."""
        if self.chosen("layers", "singleton"):
            gate, up = np.split(self.hf[f"{at}.gate_up_proj.weight"], 2)
            self.out[f"{to}.linear_fc1.weight_w"] = self.hf.like(f"{at}.gate_up_proj.weight", gate)
            self.out[f"{to}.linear_fc1.weight_v"] = self.hf.like(f"{at}.gate_up_proj.weight", up)
        else:
            self.same(f"{to}.linear_fc1.weight", f"{at}.gate_up_proj.weight")
        self.same(f"{to}.linear_fc2.weight", f"{at}.down_proj.weight")

    def fused_experts(self, to, at):
        """Those of gpt_oss: columns of gate and up take turns there, and here rows of gate stand before those of up."""
        self.same(f"{to}.router.weight", f"{at}.router.weight")
        self.same(f"{to}.router.bias", f"{at}.router.bias")
        count, hidden, ffn = self.m.count(), self.m.hidden_size, self.m.intermediate_size
        for what, end in (("weight", ""), ("bias", "_bias")):
            name, down = f"{at}.experts.gate_up_proj{end}", f"{at}.experts.down_proj{end}"
            both, back = self.hf[name], self.hf[down]
            one = np.empty((count, 2 * ffn) if end else (count, 2 * ffn, hidden), both.dtype)
            two = np.empty((count, hidden) if end else (count, hidden, ffn), back.dtype)
            for e in range(count):
                for f in range(ffn):
                    one[e, f], one[e, ffn + f] = both[e, ..., 2 * f], both[e, ..., 2 * f + 1]
                two[e] = back[e].T
            if self.chosen("layers", "singleton"):
                for e in range(count):
                    expert = f"{to}.experts.experts.{e}"
                    for part, mine in (("w", one[e, :ffn]), ("v", one[e, ffn:])):
                        self.out[f"{expert}.linear_fc1.{what}_{part}"] = self.hf.like(name, mine)
                    self.out[f"{expert}.linear_fc2.{what}"] = self.hf.like(down, two[e])
                continue
            self.out[f"{to}.experts.experts.linear_fc1.{what}"] = self.hf.like(name, one)
            self.out[f"{to}.experts.experts.linear_fc2.{what}"] = self.hf.like(down, two)

    def mlp(self, to, at):
        if self.m.kind == "phi3":
            self.fused_mlp(to, at)
            return
        for what in ("weight", "bias"):
            if f"{at}.gate_proj.{what}" not in self.m.tensors:
                continue
            parts = [self.hf[f"{at}.{part}_proj.{what}"] for part in ("gate", "up")]
            if self.chosen("layers", "singleton"):
                self.same(f"{to}.linear_fc1.{what}_w", f"{at}.gate_proj.{what}")
                self.same(f"{to}.linear_fc1.{what}_v", f"{at}.up_proj.{what}")
            else:
                self.out[f"{to}.linear_fc1.{what}"] = self.hf.like(f"{at}.gate_proj.{what}", np.concatenate(parts))
            self.same(f"{to}.linear_fc2.{what}", f"{at}.down_proj.{what}")

    def experts(self, to, at):
        moe, (gate, up, down), _ = self.m.experts_at(at)
        self.same(f"{to}.router.weight", f"{moe}.gate.weight")
        self.maybe(f"{to}.router.expert_bias", f"{moe}.gate.e_score_correction_bias")
        one, two = [], []
        for e in range(self.m.count()):
            if self.chosen("layers", "singleton"):
                for name, of in (("linear_fc1.weight_w", gate), ("linear_fc1.weight_v", up), ("linear_fc2.weight", down)):
                    self.same(f"{to}.experts.experts.{e}.{name}", f"{moe}.experts.{e}.{of}.weight")
                continue
            one.append(np.concatenate([self.hf[f"{moe}.experts.{e}.{part}.weight"] for part in (gate, up)]))
            two.append(self.hf[f"{moe}.experts.{e}.{down}.weight"])
        if one:
            self.out[f"{to}.experts.experts.linear_fc1.weight"] = self.hf.like(f"{moe}.experts.0.{gate}.weight", np.stack(one))
            self.out[f"{to}.experts.experts.linear_fc2.weight"] = self.hf.like(f"{moe}.experts.0.{down}.weight", np.stack(two))
        self.mlp(f"{to}.shared_experts", self.m.shared_at(at)[0])
        self.maybe(f"{to}.shared_experts.gate_weight", f"{at}.mlp.shared_expert_gate.weight")

    def layer(self, to, layer):
        at, sparse = f"model.layers.{layer}", layer not in self.m.dense()
        self.attention(to, at)
        local, latent = self.chosen("transformer_impl", "local"), self.m.kind == "deepseek_v3"
        own = latent if local else sparse
        self.same(f"{to}.pre_mlp_layernorm.weight" if own else f"{to}.mlp.linear_fc1.layer_norm_weight",
                  f"{at}.post_attention_layernorm.weight")
        if self.m.kind == "gpt_oss":
            self.fused_experts(f"{to}.mlp", f"{at}.mlp")
        elif sparse:
            self.experts(f"{to}.mlp", at)
        else:
            self.mlp(f"{to}.mlp", f"{at}.mlp")

    def prediction(self, number):
        to, at = f"mtp.layers.{number}", f"model.layers.{self.m.num_hidden_layers + number}"
        for name in ("enorm", "hnorm", "eh_proj"):
            self.same(f"{to}.{name}.weight", f"{at}.{name}.weight")
        self.same(f"{to}.final_layernorm.weight", f"{at}.shared_head.norm.weight")
        self.layer(f"{to}.transformer_layer", self.m.num_hidden_layers + number)

    def stacked(self):
        """The layers of each weight in one tensor, with a layer axis in front."""
        out = {}
        for name, value in self.out.items():
            words = name.split(".")
            if words[:2] != ["decoder", "layers"]:
                out[name] = value
            elif words[2] == "0":
                rest = ".".join(words[3:])
                of_all = [self.out[f"decoder.layers.{layer}.{rest}"].data for layer in self.m.layers()]
                out[f"decoder.layers.{rest}"] = Value(value.dtype, np.stack(of_all))
        return out

    def make(self):
        self.same("embedding.word_embeddings.weight", "model.embed_tokens.weight")
        for layer in self.m.layers():
            self.layer(f"decoder.layers.{layer}", layer)
        self.same("decoder.final_layernorm.weight", "model.norm.weight")
        self.maybe("output_layer.weight", "lm_head.weight")
        for number in range(self.m.extra()):
            self.prediction(number)
        mixed = 0 < len(self.m.dense()) < self.m.num_hidden_layers
        out = self.out if self.options.get("layers", "stacked") != "stacked" or mixed else self.stacked()
        return {f"module.{n}": v for n, v in out.items()} if self.chosen("prefix", "module") else out


def make(which, model, repeated, **options):
    """The tensors of MODEL in the names of WHICH, one of the classes above. All but what is REPEATED must have been used."""
    maker = which(model, options)
    out = maker.make()
    unused = set(model.tensors) - maker.hf.taken - set(repeated)
    assert not unused, f"the model of {which.__name__} leaves out {sorted(unused)}"
    return out
