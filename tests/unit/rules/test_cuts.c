/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ready cuts: what is one, which names have one, and what is refused. tests/rules checks the cuts.
 */
#include "base/glob.h"
#include "base/settings.h"
#include "rules/cuts.h"
#include "rules/shipped.h"
#include "rules/statements.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Names of two dense layers, as MindSpore Transformers and as Megatron-Core have them. */
static const char *const mindformers[] = {
    "embedding.word_embeddings.weight",
    "decoder.layers.0.input_layernorm.weight",
    "decoder.layers.0.mlp.linear_fc1.weight",
    "adam_m.decoder.layers.1.mlp.linear_fc1.weight",
    "decoder.layers.1.self_attention.linear_qkv.weight",
    "output_layer.weight",
    "global_step",
};
static const char *const megatron[] = {"decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
                                       "decoder.layers.1.mlp.linear_fc1.weight"};
static const char *const experts[] = {"decoder.layers.0.mlp.experts.experts.linear_fc1.weight"};
static const char *const huggingface[] = {"model.layers.0.mlp.experts.1.up_proj.weight"};

#define NAMES(list) list, sizeof(list) / sizeof *(list)

static int make(const char *value, const char *const *names, size_t n, uint32_t ranks,
                struct rfs_strategy **out, struct rfs_error *err)
{
    const struct rfs_layout_rules_use use = {
        .names = names, .n = n, .ranks = ranks, .ranks_option = "dst_ranks", .ready = true};
    struct rfs_layout_rules *rules;

    *out = NULL;
    int rc = rfs_cuts_rules("dst_rules", value, &use, &rules, err);
    if (rc == 0)
        rc = rfs_layout_rules_strategy(rules, &use, NULL, out, err);
    rfs_layout_rules_free(rules);
    return rc;
}

static void degrees_and_rules_are_told_apart(void **unused)
{
    static const char *const ready[] = {"tp4",      "tp2,pp2", "ep8",     "pp2 tp2",
                                        "dp2, tp4", "xp1",     "tp2,etp1"};
    static const char *const others[] = {"",         "tp",    "4tp",     "tp4.txt",   "tp2,",
                                         "*: whole", "./tp4", "tp2;pp2", "tp2,rules", "Tp2"};

    (void)unused;
    for (size_t i = 0; i < sizeof ready / sizeof *ready; i++)
        if (!rfs_settings_is_cuts(ready[i]))
            fail_msg("%s", ready[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (rfs_settings_is_cuts(others[i]))
            fail_msg("%s", others[i]);
}

/*
 * What has none: modules of Megatron-Core that are for rules of one's own, their like in
 * HuggingFace's names, and what phi3 and gpt_oss have there; adapters of MindSpore Transformers;
 * biases, which Meta's model of Llama does not have; Qwen3-Next's prediction of more tokens, which
 * transformers does not load; linear attention of kimi_linear; router biases of ernie4_5_moe, and
 * what llama4 has beside attention.
 */
static const char *const without_cuts[] = {
    "*.mlp.experts.experts.0.*",
    "*.block_sparse_moe.gate.e_score_correction_bias",
    "*.block_sparse_moe.*_proj.weight",
    "*.self_attn.*conv1d.weight",
    "*.self_attn.f_?_proj.weight",
    "*.self_attn.forget_gate.*",
    "*.self_attn.dt_bias",
    "*.self_attn.A_log",
    "*.moe_statics.e_score_correction_bias",
    "*.mlp.shared_expert*.bias",
    "*.self_attention.linear_*_up_proj.layer_norm_weight",
    "*.self_attention.core_attention.indexer.*",
    "*.linear_fc1.bias_?",
    "*.linear_fc1.weight_?",
    "*.self_attn.qkv_proj.weight",
    "*.feed_forward.*",
    "*.gate_up_proj*",
    "model.*.mlp.router.*",
    "*.mlp.experts.down_proj*",
    "*.self_attn.sinks",
    "*mtp.*.softmax_offset",
    "*mtp.*.mlp.router.bias",
    "*mtp.*.linear_fc?.bias",
    "*.lora_*",
    "layers.*.attention.w?.bias",
    "mtp.fc.weight",
    "mtp.norm.weight",
    "mtp.pre_fc_norm_*.weight",
    "mtp.layers.?.*_layernorm.weight",
    "mtp.layers.?.self_attn.*",
    "mtp.layers.?.mlp.*",
    "*.self_attn.softmax_offset",
    "*.self_attn.attention_sink_bias",
    "*.mlp.expert_bias",
    "*.mlp.shared_mlp.*",
    "*_layernorm.mlp.fc?.weight",
    "*_layernorm.W_*.weight",
    "*.mlp.experts.e_score_correction_bias",
    "*.post_mlp_layernorm.weight",
    "*.moe.router.expert_bias",
    "*.post_self_attn_layernorm.weight",
    "*.self_attn.q_gate_proj.weight",
    /* deepseek_v4 as it is published */
    "head.weight",
    "embed.weight",
    "hc_head_*",
    "*layers.?.attn.*",
    "*layers.?.ffn.*",
    "*layers.?.hc_*",
    "*layers.?.*n_norm.weight",
    /* Qwen3-Omni: its towers, and its text by itself */
    "layers.?.mlp.experts.*",
    "*visual.*",
    "*audio_tower.*",
};

enum { WITHOUT_CUTS = sizeof without_cuts / sizeof *without_cuts };

struct counts {
    size_t cut;
    size_t uncut[WITHOUT_CUTS]; /* by the pattern */
};

/* Compares the cuts with the list, for a name with 0 in each hole. */
static void expect_name(const char *of, const struct name_part *part, struct counts *counts)
{
    char name[256];
    size_t n = 0;

    for (; part; part = part->next)
        n += (size_t)snprintf(name + n, sizeof name - n, "%.*s%s", (int)part->n, part->text,
                              part->hole ? "0" : "");
    assert_true(n < sizeof name);
    const char *const names[] = {name};
    const struct rfs_layout_rules_use use = {.names = names, .n = 1};
    struct rfs_layout_rules *rules;
    struct rfs_error err = {0};
    const int rc = rfs_cuts_rules("dst_rules", "tp2", &use, &rules, &err);
    const bool unknown = rc != 0 && strstr(err.text, "no ready cut is known") != NULL;
    rfs_layout_rules_free(rules);
    counts->cut += !unknown;
    for (size_t i = 0; i < WITHOUT_CUTS && unknown; i++)
        if (rfs_glob_match(without_cuts[i], name)) {
            counts->uncut[i]++;
            return;
        }
    if (unknown)
        fail_msg("%s: %s: %s", of, name, err.text);
}

static void expect_tensors(const char *of, const struct node *node, struct counts *counts)
{
    for (; node; node = node->next)
        if (node->kind == NODE_TENSOR)
            expect_name(of, node->name, counts);
        else
            expect_tensors(of, node->kids, counts);
}

/* Every parameter that conversion rules name, on either side. */
static void every_name_of_the_rules_has_a_cut(void **unused)
{
    struct counts counts = {.cut = 0};

    (void)unused;
    for (const struct rfs_rules_file *file = rfs_rules_shipped; file->name; file++) {
        struct rfs_error err;
        struct rfs_rules *rules;
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(file->name, "."), file->name);
        if (strncmp(name, "common", strlen("common")) == 0)
            continue;
        assert_int_equal(rfs_rules_named(name, &rules, &err), 0);
        for (size_t i = 0; i < rules->statements.n; i++) {
            const struct statement *statement = &rules->statements.data[i];
            if (statement->kind == STATEMENT_RULE) {
                expect_tensors(name, rfs_rules_left_tensor(statement->left), &counts);
                expect_tensors(name, statement->right, &counts);
            }
            for (int k = 0; k < 2; k++)
                if (statement->names[k])
                    expect_name(name, statement->names[k], &counts);
        }
        rfs_rules_free(rules);
    }
    assert_true(counts.cut > 150);
    for (size_t i = 0; i < WITHOUT_CUTS; i++)
        if (counts.uncut[i] == 0)
            fail_msg("%s is of no use", without_cuts[i]);
}

/* Without experts tp cuts nothing of them; etp that a user gives is a mistake then. */
static void models_without_experts_need_no_etp(void **unused)
{
    const char *const names[] = {"model.layers.0.mlp.gate_proj.weight", "model.norm.weight"};
    struct rfs_strategy *s;
    struct rfs_error err = {0};

    (void)unused;
    assert_int_equal(make("tp2", NAMES(names), 0, &s, &err), 0);
    assert_int_equal(rfs_strategy_devices(s), 2);
    rfs_strategy_free(s);
    assert_int_equal(make("tp2,etp2", NAMES(names), 0, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "etp cuts no parameter"));
}

static void unknown_names_are_refused(void **unused)
{
    const char *const names[] = {mindformers[0], mindformers[1], "decoder.layers.0.mlp.extra"};
    struct rfs_strategy *s;
    struct rfs_error err = {0};

    (void)unused;
    assert_int_equal(make("tp1", NAMES(names), 0, &s, &err), -EINVAL);
    assert_string_equal(err.text,
                        "tp1: parameter 'decoder.layers.0.mlp.extra': no ready cut is known for "
                        "it, in share/reshardfs/convert/mindformers.cuts; try: rules of your own");
    const char *const stacked[] = {"decoder.layers.mlp.linear_fc1.weight"};
    assert_int_equal(make("tp1", NAMES(stacked), 0, &s, &err), -EINVAL);
    assert_non_null(
        strstr(err.text, "; try: convert_options=layers=numbered; or rules of your own"));
}

/* The ranks follow from the degrees, and the degree dp from the ranks. */
static void ranks_of_degrees(void **unused)
{
    static const struct {
        const char *value;
        uint32_t ranks, stages, devices;
    } cases[] = {
        {"tp1", 0, 1, 1},     {"tp1,pp2", 0, 2, 1}, {"pp2,dp3", 0, 2, 3},
        {"tp1,pp2", 8, 2, 4}, {"dp6", 6, 1, 6},     {"tp1", 6, 1, 6},
    };
    struct rfs_error err = {0};

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rfs_strategy *s;
        if (make(cases[i].value, NAMES(mindformers), cases[i].ranks, &s, &err) != 0)
            fail_msg("%s", err.text);
        assert_int_equal(rfs_strategy_stages(s), cases[i].stages);
        assert_int_equal(rfs_strategy_devices(s), cases[i].devices);
        rfs_strategy_free(s);
    }
}

static void what_does_not_fit_is_refused(void **unused)
{
    static const struct {
        const char *value;
        const char *const *names;
        size_t n;
        uint32_t ranks;
        const char *what;
    } cases[] = {
        {"xp2", NAMES(mindformers), 0, "dst_rules=xp2: 'xp2' is not known; try: tp4, or several"},
        {"tp2,tp4", NAMES(mindformers), 0, "dst_rules=tp2,tp4: 'tp' is given twice"},
        {"tp0", NAMES(mindformers), 0, "dst_rules=tp0: 'tp0' is not a number of devices"},
        {"tp9999999", NAMES(mindformers), 0, "dst_rules=tp9999999: 'tp9999999' is not a number"},
        {"tp99999999999999999999", NAMES(mindformers), 0, "dst_rules=tp999999"},
        {"tp1048576,pp2", NAMES(mindformers), 0, "dst_rules=tp1048576,pp2: "},
        {"tp4", NAMES(mindformers), 6, "dst_rules=tp4 does not fit dst_ranks=6; try: leave it out"},
        {"tp2,dp2", NAMES(mindformers), 8, "dst_rules=tp2,dp2 does not fit dst_ranks=8"},
        {"pp4", NAMES(mindformers), 2, "dst_rules=pp4 does not fit dst_ranks=2"},
        {"ep3,tp2,dp2", NAMES(mindformers), 0,
         "dst_rules=ep3,tp2,dp2: the devices of a stage are not a multiple of ep"},
        {"ep2", NAMES(mindformers), 0,
         "share/reshardfs/convert/mindformers.cuts: ep cuts no parameter of this checkpoint"},
        {"ep2", NAMES(huggingface), 0,
         "dst_rules=ep2: no parameter with the names of huggingface.cuts is cut over ep; try: "
         "convert="},
        {"ep2", NAMES(megatron), 0,
         "share/reshardfs/convert/megatron.cuts: ep cuts no parameter of this checkpoint"},
        {"tp2,ep2", NAMES(experts), 0,
         "dst_rules=tp2,ep2: tp cuts experts, too, in a training with the names of megatron.cuts; "
         "try: etp1 beside it"},
        {"tp2,etp1", NAMES(mindformers), 0,
         "dst_rules=tp2,etp1: 'etp1' is not for the names of mindformers.cuts; try: leave it out"},
        {"tp2,etp2", NAMES(mindformers), 0,
         "dst_rules=tp2,etp2: 'etp2' is not for the names of mindformers.cuts; try: leave it out"},
        {"tp2", megatron + 1, 1, 0,
         "dst_rules=tp2: the names of this checkpoint are those of megatron.cuts and of "
         "mindformers.cuts; try: rules of your own"},
        {"pp3", NAMES(mindformers), 0,
         "share/reshardfs/convert/mindformers.cuts: line 9: 2 layers "
         "cannot be divided evenly over 3 stages"},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rfs_strategy *s;
        struct rfs_error err = {0};
        assert_int_equal(make(cases[i].value, cases[i].names, cases[i].n, cases[i].ranks, &s, &err),
                         -EINVAL);
        if (strncmp(err.text, cases[i].what, strlen(cases[i].what)) != 0)
            fail_msg("wanted \"%s\", got \"%s\"", cases[i].what, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(degrees_and_rules_are_told_apart),
        cmocka_unit_test(every_name_of_the_rules_has_a_cut),
        cmocka_unit_test(models_without_experts_need_no_etp),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(ranks_of_degrees),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
