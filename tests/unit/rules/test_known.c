/* SPDX-License-Identifier: Apache-2.0 */
/* The names that the shipped rules know. */
#include "rules/known.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect(const struct rfs_known *known, bool has, const char *const *names)
{
    for (; *names; names++)
        if (rfs_known_has(known, *names) != has)
            fail_msg("'%s' is%s known", *names, has ? " not" : "");
}

/*
 * Names that programs save beside weights;
 * https://docs.pytorch.org/docs/stable/distributed.checkpoint.html.
 */
static void test_states(void **state)
{
    static const char *const states[] = {"adam_m.w",
                                         "adam_v.model.layers.0.w",
                                         "moments.layer1.weight",
                                         "moment1.w",
                                         "accu_grads.w",
                                         "learning_rate",
                                         "global_step",
                                         "optim.state.model.embed_tokens.weight.exp_avg",
                                         "optim.param_groups.0.lr",
                                         "optimizer.state.exp_avg.decoder.final_layernorm.weight",
                                         "optimizer_0.state.w.step",
                                         "optimizers.0.state.w",
                                         "state.optimizers.Adam.state.w",
                                         "chained_0.optimizer.state.exp_avg.w",
                                         NULL};
    static const char *const weights[] = {
        "model.embed_tokens.weight", "lm_head.weight", "model.model.layers.0.mlp.gate_proj.weight",
        "decoder.layers.0.mlp.linear_fc1.weight", "transformer.h.0.attn.c_attn.weight",
        "model.optim.weight", "adam_mw", "moments", "state.w.exp_avg", "state.model.w",
        /* of Qwen3-Next; some rules drop Megatron's mtp.* */
        "mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight", "module.mtp.layers.0.enorm.weight",
        NULL};
    struct rfs_known *known;
    struct rfs_error err = {0};

    (void)state;
    assert_int_equal(rfs_known_states(&known, &err), 0);
    expect(known, true, states);
    expect(known, false, weights);
    rfs_known_free(known);
}

/* Names as transformers has them. */
static void test_tensors(void **state)
{
    const struct {
        const char *model;
        const char *const *names;
    } rows[] = {
        {"qwen3", (const char *const[]){"model.embed_tokens.weight", "lm_head.weight",
                                        "model.layers.17.self_attn.q_norm.weight",
                                        "model.layers.0.mlp.down_proj.weight", NULL}},
        {"llama", (const char *const[]){"model.norm.weight", "lm_head.weight",
                                        "model.layers.0.input_layernorm.weight", NULL}},
        {"mistral", (const char *const[]){"model.layers.0.self_attn.o_proj.weight", NULL}},
        {"qwen3_moe", (const char *const[]){"model.layers.0.mlp.experts.5.up_proj.weight", NULL}},
        {"deepseek_v3",
         (const char *const[]){"model.layers.3.self_attn.kv_a_proj_with_mqa.weight", NULL}},
    };
    static const char *const others[] = {"model.model.embed_tokens.weight",
                                         "embedding.word_embeddings.weight",
                                         "decoder.layers.0.mlp.linear_fc1.weight",
                                         "embed_tokens.weight",
                                         "w",
                                         "",
                                         NULL};
    struct rfs_known *known;
    struct rfs_error err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(rfs_known_tensors(rows[i].model, &known, &err), 0);
        assert_non_null(known);
        expect(known, true, rows[i].names);
        expect(known, false, others);
        assert_true(rfs_known_has(known, rfs_known_example(known)));
        struct rfs_known_tensor of;
        const char *name = rows[i].names[0];
        for (const char *const *at = rows[i].names; *at; at++)
            name = strstr(*at, ".layers.") ? *at : name;
        if (strstr(name, ".layers.")) {
            assert_true(rfs_known_layer(known, name, &of));
            assert_int_equal(of.layer, strtoul(strstr(name, ".layers.") + 8, NULL, 10));
            assert_true(of.kind < rfs_known_kinds(known));
            assert_non_null(strstr(rfs_known_kind(known, of.kind), strrchr(name, '.')));
        }
        assert_false(rfs_known_layer(known, "model.norm.weight", &of));
        assert_false(rfs_known_layer(known, "model.layers.x.input_layernorm.weight", &of));
        rfs_known_free(known);
    }
    assert_int_equal(rfs_known_tensors("gpt2", &known, &err), 0);
    assert_null(known);
    assert_int_equal(rfs_known_tensors("", &known, &err), 0);
    assert_null(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
