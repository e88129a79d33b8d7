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
    uint64_t dims[3];
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
        cmocka_unit_test_setup_teardown(test_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_configs_of_the_source, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
