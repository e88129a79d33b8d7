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
        rfs_known_free(known);
    }
    assert_int_equal(rfs_known_tensors("gpt2", &known, &err), 0);
    assert_null(known);
    assert_int_equal(rfs_known_tensors("", &known, &err), 0);
    assert_null(known);
}

/* Looks for what N names of a llama of two layers lack. Returns the message, "" for nothing. */
static const char *missing(const struct rfs_known *known, const char *const *names, size_t n)
{
    static const char json[] = "{\"num_hidden_layers\": 2}";
    static struct rfs_error missed;
    struct rfs_hf_config *config;

    missed = (struct rfs_error){0};
    assert_int_equal(rfs_hf_config_read("config.json", json, sizeof json - 1, &config, &missed), 0);
    const int rc = rfs_known_find_missing(known, config, names, n, "model", &missed);
    assert_int_equal(rc, *missed.text != '\0');
    rfs_hf_config_free(config);
    return missed.text;
}

/* The names of a model, of which the last ones are left out, or another stands in their place. */
static void test_missing(void **state)
{
    const char *names[] = {"model.embed_tokens.weight",
                           "model.norm.weight",
                           "model.layers.0.input_layernorm.weight",
                           "model.layers.0.mlp.up_proj.weight",
                           "model.layers.1.input_layernorm.weight",
                           "model.layers.1.mlp.up_proj.weight",
                           "lm_head.weight"};
    struct rfs_known *known;
    struct rfs_error err = {0};

    (void)state;
    assert_int_equal(rfs_known_tensors("llama", &known, &err), 0);
    assert_string_equal(missing(known, names, 7), "");
    assert_string_equal(missing(known, names, 6), ""); /* it may be tied */
    assert_non_null(strstr(missing(known, names, 5), "layer 1 has 0 tensors like"));
    assert_non_null(strstr(missing(known, names, 5), "mlp.up_proj.weight"));
    assert_non_null(strstr(missing(known, names, 4), "no tensor is of layer 1"));
    assert_non_null(strstr(missing(known, names + 1, 6), "'model.embed_tokens.weight'"));
    names[5] = "model.layers.x.mlp.up_proj.weight";
    assert_non_null(strstr(missing(known, names, 7), "layer 1 has 0 tensors like"));
    names[4] = "model.layers.2.input_layernorm.weight"; /* the model has none of that number */
    assert_non_null(strstr(missing(known, names, 7), "no tensor is of layer 1"));
    rfs_known_free(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
