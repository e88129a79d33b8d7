/* SPDX-License-Identifier: Apache-2.0 */
/* The folder that view=peft shows, and the tensors and numbers that it refuses. */
#include "reshard.h"
#include "tests/support/tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define AT "base_model.model.model.layers."
#define MANIFEST "src/rank_0/mindformers_adapter_config.json"

struct tensor {
    const char *name;
    unsigned ndim;
    uint64_t dims[4];
};

static const struct tensor good[] = {
    {AT "10.self_attn.o_proj.lora_B.weight", 2, {3, 2}},
    {AT "10.self_attn.o_proj.lora_A.weight", 2, {2, 4}},
    {AT "1.mlp.up_proj.lora_A.weight", 2, {2, 3}},
    {AT "1.mlp.up_proj.lora_B.weight", 2, {5, 2}},
    {AT "1.self_attn.o_proj.lora_A.weight", 2, {2, 4}},
    {AT "1.self_attn.o_proj.lora_B.weight", 2, {3, 2}},
};

struct world {
    char *root;
    reshard_view *view;
    reshard_error err;
};

static int set_up(void **state)
{
    static struct world world;

    world = (struct world){.root = tree_new()};
    *state = &world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    reshard_close(world->view);
    tree_remove(world->root);
    return 0;
}

/* Writes the tensors but SKIP, then one of MORE, or none. */
static void write_tensors(struct world *world, size_t skip, const struct tensor *more)
{
    static const unsigned char zeros[256];
    struct bytes file = {0};

    for (size_t i = 0; i <= sizeof good / sizeof *good; i++) {
        const struct tensor *of = i < sizeof good / sizeof *good ? &good[i] : more;
        uint64_t bytes = 4;
        for (unsigned k = 0; of && k < of->ndim; k++)
            bytes *= of->dims[k];
        if (of && i != skip)
            ckpt_tensor(&file, of->name, "Float32", of->ndim, of->dims, zeros, bytes);
    }
    tree_write(world->root, "src/rank_0/net-1_2.ckpt", file.data, file.n);
    bytes_free(&file);
}

static int open_options(struct world *world, const char *options)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};

    reshard_close(world->view);
    world->err = (reshard_error){.struct_size = sizeof world->err};
    return reshard_open(tree_path(world->root, "src"), &config, &world->view, &world->err);
}

static void expect_refused(struct world *world, const char *options, bool usage, const char *what)
{
    assert_int_equal(open_options(world, options), -EINVAL);
    assert_int_equal(world->err.usage, usage);
    if (!strstr(world->err.message, what))
        fail_msg("wanted \"%s\", got \"%s\"", what, world->err.message);
}

static void expect_config(struct world *world, const char *alpha)
{
    char wanted[1024];
    char have[1024] = "";
    uint64_t id;

    snprintf(wanted, sizeof wanted,
             "{\n"
             "  \"base_model_name_or_path\": null,\n"
             "  \"bias\": \"none\",\n"
             "  \"fan_in_fan_out\": false,\n"
             "  \"inference_mode\": true,\n"
             "  \"lora_alpha\": %s,\n"
             "  \"lora_dropout\": 0.0,\n"
             "  \"peft_type\": \"LORA\",\n"
             "  \"r\": 2,\n"
             "  \"target_modules\": [\n"
             "    \"o_proj\",\n"
             "    \"up_proj\"\n"
             "  ],\n"
             "  \"task_type\": \"CAUSAL_LM\",\n"
             "  \"use_dora\": false,\n"
             "  \"use_rslora\": false\n"
             "}",
             alpha);
    assert_int_equal(reshard_lookup(world->view, RESHARD_ROOT, "adapter_model.safetensors", &id),
                     0);
    memset(have, 0, sizeof have);
    assert_true(reshard_pread(world->view, id, have, sizeof have - 1, 0) > 8);
    assert_non_null(strstr(have + 8, "lora_A.weight"));
    memset(have, 0, sizeof have);
    assert_int_equal(reshard_lookup(world->view, RESHARD_ROOT, "adapter_config.json", &id), 0);
    assert_int_equal(reshard_pread(world->view, id, have, sizeof have - 1, 0), strlen(wanted));
    assert_string_equal(have, wanted);
}

static void test_config(void **state)
{
    struct world *world = *state;

    write_tensors(world, SIZE_MAX, NULL);
    assert_int_equal(open_options(world, "view=peft,lora_alpha=7"), 0);
    expect_config(world, "7");
}

static void test_tensors(void **state)
{
    static const struct {
        struct tensor more;
        const char *what;
    } rows[] = {
        {{"w", 1, {2}}, "'w': is no tensor of an adapter, which PEFT names"},
        {{AT "lora_A.bias", 2, {2, 2}}, "is no tensor of an adapter"},
        {{"base_model.model.lora_A.weight", 2, {2, 2}}, "is no tensor of an adapter"},
        {{"base_model.lora_A.weight", 2, {2, 2}}, "is no tensor of an adapter"},
        {{".lora_B.weight", 2, {2, 2}}, "is no tensor of an adapter"},
        {{AT "1.a.lora_A.weight", 1, {2}}, "has no rank: it is no matrix, or is empty"},
        {{AT "1.a.lora_A.weight", 3, {2, 2, 2}}, "has no rank"},
        {{AT "1.a.lora_B.weight", 2, {2, 0}}, "has no rank"},
        {{AT "1.a.lora_A.weight", 2, {2, 2}}, "'" AT "1.a.lora_B.weight' is not there"},
        {{AT "9.z.lora_A.weight", 2, {2, 2}}, "'" AT "9.z.lora_B.weight' is not there"},
        {{AT "0.a.lora_B.weight", 2, {2, 2}}, "'" AT "0.a.lora_A.weight' is not there"},
        {{AT "10.self_attn.o_proj.lora_B.weight.lora_A.weight", 2, {2, 2}}, "is half of a pair"},
    };
    struct world *world = *state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_tensors(world, SIZE_MAX, &rows[i].more);
        expect_refused(world, "view=peft,lora_alpha=7", false, rows[i].what);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tensor other = good[i];
        write_tensors(world, i, NULL);
        expect_refused(world, "view=peft,lora_alpha=7", false, "is half of a pair, and '");
        other.dims[0] = other.dims[1] = 6;
        write_tensors(world, i, &other);
        expect_refused(world, "view=peft,lora_alpha=7", false, "has rank ");
    }
    tree_write(world->root, "src/rank_0/net-1_2.ckpt", "", 0);
    assert_int_not_equal(open_options(world, "view=peft,lora_alpha=7"), 0);
}

/* Writes N tensors. */
static void write_all(struct world *world, const struct tensor *tensors, size_t n)
{
    static const unsigned char zeros[1024];
    struct bytes file = {0};

    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = 4;
        for (unsigned k = 0; k < tensors[i].ndim; k++)
            bytes *= tensors[i].dims[k];
        ckpt_tensor(&file, tensors[i].name, "Float32", tensors[i].ndim, tensors[i].dims, zeros,
                    bytes);
    }
    tree_write(world->root, "src/rank_0/net-1_2.ckpt", file.data, file.n);
    bytes_free(&file);
}

#define EXPERTS AT "0.mlp.experts."
#define BELOW EXPERTS "base_layer.base_layer."

/* Adapters of the parameters of fused experts: 2 experts of [5, 3] and [3, 4], and rank 2. */
static const struct tensor fused[] = {
    {BELOW "gate_up", 3, {2, 5, 3}},
    {BELOW "down", 3, {2, 3, 4}},
    {EXPERTS "base_layer.lora_A.a.weight", 2, {4, 3}},
    {EXPERTS "base_layer.lora_B.a.weight", 2, {5, 4}},
    {EXPERTS "lora_A.a.weight", 2, {4, 4}},
    {EXPERTS "lora_B.a.weight", 2, {3, 4}},
    {AT "0.self_attn.q.lora_A.a.weight", 2, {2, 3}},
    {AT "0.self_attn.q.lora_B.a.weight", 2, {3, 2}},
};
enum { N_FUSED = sizeof fused / sizeof *fused };

static void expect_in_config(struct world *world, const char *what)
{
    char have[1024] = "";
    uint64_t id;

    assert_int_equal(open_options(world, "view=peft,lora_alpha=7"), 0);
    assert_int_equal(reshard_lookup(world->view, RESHARD_ROOT, "adapter_config.json", &id), 0);
    assert_true(reshard_pread(world->view, id, have, sizeof have - 1, 0) > 0);
    if (!strstr(have, what))
        fail_msg("wanted %s in %s", what, have);
}

static void test_experts(void **state)
{
    static const char shown[] = "  \"r\": 2,\n"
                                "  \"target_modules\": [\n"
                                "    \"q\"\n"
                                "  ],\n"
                                "  \"target_parameters\": [\n"
                                "    \"experts.down\",\n"
                                "    \"experts.gate_up\"\n"
                                "  ],\n"
                                "  \"task_type\"";
    static const char other_layer[] = "\"model.layers.0.mlp.experts.down\",\n"
                                      "    \"experts.gate_up\"\n";
    static const struct {
        size_t i; /* of the tensor that has other dims */
        uint64_t dims[3];
        const char *what; /* NULL: it is shown */
    } rows[] = {
        {0, {2, 3, 5}, NULL}, /* transposed, as in gpt-oss */
        {1, {2, 4, 3}, NULL},
        {0, {2, 5, 4}, "the source has no weight of that module with this shape"},
        {0, {3, 5, 3}, "the source has no weight of that module with this shape"},
        {0, {0, 5, 3}, "the source has no weight of that module with this shape"},
        {0, {1, 5, 3}, "has rank 4, and '"},
        {1, {2, 3, 5}, "the source has no weight of that module with this shape"},
        {5, {3, 2}, "the source has no weight of that module with this shape"},
        {6, {4, 3}, "has rank "},
    };
    struct world *world = *state;
    struct tensor tensors[N_FUSED + 1];

    write_all(world, fused, N_FUSED);
    expect_in_config(world, shown);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memcpy(tensors, fused, sizeof fused);
        memcpy(tensors[rows[i].i].dims, rows[i].dims, sizeof rows[i].dims);
        write_all(world, tensors, N_FUSED);
        if (rows[i].what)
            expect_refused(world, "view=peft,lora_alpha=7", false, rows[i].what);
        else
            expect_in_config(world, shown);
    }
    memcpy(tensors, fused, sizeof fused);
    memcpy(tensors[1].dims, fused[0].dims, sizeof fused[0].dims);
    write_all(world, tensors, 4); /* one adapter, and two parameters that it fits */
    expect_refused(world, "view=peft,lora_alpha=7", false,
                   "may be for 'model.layers.0.mlp.experts.");
    memcpy(tensors, fused, sizeof fused);
    tensors[N_FUSED] = (struct tensor){AT "1.mlp.experts.down", 3, {2, 3, 4}};
    write_all(world, tensors, N_FUSED + 1);
    expect_in_config(world, other_layer);
    /* Nothing says whose they are. */
    write_all(world, fused + 2, N_FUSED - 2);
    expect_refused(world, "view=peft,lora_alpha=7", false, "is for a parameter of 'model.layers.0");
    write_all(world, fused + 4, N_FUSED - 4);
    expect_refused(world, "view=peft,lora_alpha=7", false, "is for a parameter of 'model.layers.0");
}

static void test_one_of_several(void **state)
{
    static const struct tensor tensors[] = {{AT "0.q.lora_A.a.weight", 2, {2, 3}},
                                            {AT "0.q.lora_B.a.weight", 2, {3, 2}},
                                            {AT "0.q.lora_A.ab.weight", 2, {1, 3}},
                                            {AT "0.q.lora_B.ab.weight", 2, {3, 1}},
                                            {AT "0.q.base_layer.weight", 2, {3, 3}}};
    struct world *world = *state;

    write_all(world, tensors, sizeof tensors / sizeof *tensors);
    expect_refused(world, "view=peft,lora_alpha=7", false, "adapter= with the name of one of them");
    expect_refused(world, "view=peft,lora_alpha=7,adapter=b", false,
                   "has no tensor of such an adapter");
    expect_refused(world, "view=peft,lora_alpha=7,adapter=a,names=unwrap", true,
                   "option adapter is for the names of PEFT's own model");
    expect_refused(world, "view=unified,adapter=a", true, "option adapter is for view=peft");
    assert_int_equal(open_options(world, "view=peft,lora_alpha=7,adapter=a"), 0);
    assert_int_equal(open_options(world, "view=peft,lora_alpha=7,adapter=ab"), 0);
    write_all(world, tensors, 2);
    assert_int_equal(open_options(world, "view=peft,lora_alpha=7,adapter=a"), 0);
}

static void test_options(void **state)
{
    struct world *world = *state;

    write_tensors(world, SIZE_MAX, NULL);
    expect_refused(world, "view=peft", true, "needs the lora_alpha of the adapter");
    expect_refused(world, "view=unified,lora_alpha=7", true, "option lora_alpha is for view=peft");
    expect_refused(world, "view=peft,lora_alpha=7,file_size=1M", true, "PEFT reads one file");
    expect_refused(world, "view=peft,lora_alpha=7,format=pt", true, "is made of safetensors files");
    expect_refused(world, "view=peft,lora_alpha=0", true, "lora_alpha");
    expect_refused(world, "view=peft,lora_alpha=7,only=*lora_A*", false, "is half of a pair");
}

/* What MindSpore Transformers says of the adapter, and PEFT. */
static void test_configs_of_the_source(void **state)
{
    static const struct {
        const char *options, *rank, *alpha, *what; /* NULL: it is shown */
    } rows[] = {
        {"view=peft", "2", "12", NULL},
        {"view=peft,lora_alpha=12", "2", "12", NULL},
        {"view=peft,lora_alpha=13", "2", "12",
         "has lora_config.lora_alpha 12, and the tensors or options have 13"},
        {"view=peft", "4", "12", "has lora_config.lora_rank 4, and the tensors or options have 2"},
        {"view=peft", "2", "1.5", "has no positive whole number lora_config.lora_alpha"},
        {"view=peft", "2", "0", "has no positive whole number lora_config.lora_alpha"},
        {"view=peft,lora_alpha=7", "\"2\"", "7", "has no positive whole number"},
        {"view=peft,lora_alpha=7", "2, ", "7", "JSON"},
    };
    struct world *world = *state;

    write_tensors(world, SIZE_MAX, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        const int n = snprintf(text, sizeof text,
                               "{\"format\": \"mindformers_pynative_lora_adapter_v1\", "
                               "\"lora_config\": {\"lora_rank\": %s, \"lora_alpha\": %s}}",
                               rows[i].rank, rows[i].alpha);
        tree_write(world->root, MANIFEST, text, (size_t)n);
        if (rows[i].what) {
            expect_refused(world, rows[i].options, false, rows[i].what);
        } else {
            assert_int_equal(open_options(world, rows[i].options), 0);
            expect_config(world, rows[i].alpha);
        }
    }
    tree_write(world->root, "src/rank_0/adapter_config.json", "{}", 2);
    expect_refused(world, "view=peft,lora_alpha=7", false, "is there already");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_config, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tensors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_experts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_of_several, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_configs_of_the_source, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
