/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts of rules: each must fit the tensors that it is made of, whatever their names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rules/compile.h"
#include "survey/draft.h"
#include "tests/support/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 4000

static const char config_text[] =
    "{\"model_type\": \"own\", \"hidden_size\": 64, \"num_hidden_layers\": 12, \"num_experts\": 5,"
    "\"first_k_dense_replace\": 3, \"num_attention_heads\": 4, \"head_dim\": 24, \"in\": 7,"
    "\"intermediate_size\": 96, \"a-b_size\": 88, \"layer_types\": [\"a\", \"b\", \"a\", \"a\","
    "\"b\", \"a\", \"a\", \"a\", \"b\", \"a\", \"a\", \"b\"], \"sparse_layers\": [1, 2, 7],"
    "\"text_config\": {\"hidden_size\": 48, \"num_hidden_layers\": 2}}";

struct source {
    struct rfs_type types[MOST];
    struct rfs_rules_tensor tensors[MOST];
    size_t n, unnamed;
};

static void add(struct source *source, bool named, char *name, unsigned ndim, const uint64_t *dims)
{
    struct rfs_type *type = &source->types[source->n];

    assert_true(source->n < MOST);
    *type = (struct rfs_type){.kind = RFS_TENSOR, .dtype = RFS_FLOAT32, .ndim = (uint8_t)ndim};
    for (unsigned i = 0; i < ndim; i++)
        type->dims[i] = dims[i];
    assert_true(rfs_type_bytes(type, &type->bytes));
    source->tensors[source->n++] = (struct rfs_rules_tensor){name, type};
    source->unnamed += !named;
}

static void source_end(struct source *source)
{
    for (size_t i = 0; i < source->n; i++)
        free((char *)source->tensors[i].name);
    free(source);
}

/* Prints the draft of a source, which the caller frees. */
static char *draft_of(const struct source *source, const struct rfs_hf_config *config, bool right)
{
    struct rfs_draft *draft = rfs_draft_new();
    struct rfs_error err = {0};
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    assert_true(draft && out);
    for (size_t i = 0; i < source->n; i++)
        rfs_draft_add(draft, source->tensors[i].name, source->tensors[i].type);
    assert_int_equal(rfs_draft_print(draft, config, right, out, &err), 0);
    rfs_draft_free(draft);
    fclose(out);
    return text;
}

static struct rfs_hf_config *read_config(void)
{
    struct rfs_hf_config *config;
    struct rfs_error err;

    assert_int_equal(
        rfs_hf_config_read("config.json", config_text, strlen(config_text), &config, &err), 0);
    return config;
}

/* Applies a draft to its own source: each tensor must be there under a name of the other side. */
static void fits(const struct source *source, bool right)
{
    struct rfs_hf_config *config = read_config();
    struct rfs_rules *rules = NULL;
    struct rfs_rules_map *map = NULL;
    struct rfs_error err = {0};
    char *text = draft_of(source, config, right);
    const struct rfs_rules_input input = {
        .config = config, .source = "SRC", .tensors = source->tensors, .n = source->n};

    if (rfs_rules_parse("draft", text, strlen(text), NULL, NULL, &rules, &err) ||
        rfs_rules_compile(rules, &input, &map, &err))
        fail_msg("%s\n%s", text, err.text);
    if (map->made.n != source->n) {
        fputs(text, stderr);
        fail_msg("makes %zu of %zu, drops %zu", map->made.n, source->n, map->dropped);
    }
    assert_true(map->from_left == !right);
    for (size_t i = 0; i < map->made.n; i++) {
        const struct rfs_rules_made *made = &map->made.data[i];
        const char *dot = strchr(made->name, '.');
        const struct rfs_rules_link *link = &map->links.data[made->links];
        assert_true(dot && made->n == 1);
        assert_string_equal(dot + 1, source->tensors[link->source].name);
        assert_memory_equal(made->type.dims, source->types[link->source].dims,
                            sizeof made->type.dims);
    }
    rfs_rules_map_free(map);
    rfs_rules_free(rules);
    rfs_hf_config_free(config);
    free(text);
}

/* Decides whether number I of N is there, by one of several ways. */
static bool is_there(uint64_t *seed, unsigned way, unsigned i, unsigned n)
{
    switch (way) {
    case 0:
        return true;
    case 1:
        return i < 3;
    case 2:
        return i >= 3;
    case 3:
        return i % 4 == 3;
    case 4:
        return i == 1 || i == 2 || i == 7; /* sparse_layers */
    case 5:
        return strchr("\1\4\10\13", (int)i) && i > 0; /* "b" of layer_types */
    case 6:
        return test_below(seed, 2) || i == n / 2;
    default:
        return i != n / 2;
    }
}

static void test_random_names(void **state)
{
    /* Rules make no tensors without elements. */
    static const uint64_t sizes[] = {1, 5, 7, 12, 24, 48, 64, 88, 96, 97, 128, 192};
    static const char *const forms[] = {"model.layers.%u.x%u.weight", "%u.y%u", "h.%u.z%u.b",
                                        "a.01.layers.%u.w%u", "model.layers.%u.%u.0.1.2.3.4"};
    uint64_t seed = test_seed();

    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        struct source *source = calloc(1, sizeof *source);
        assert_non_null(source);
        for (unsigned family = 0; family < 6; family++) {
            const unsigned form = (unsigned)test_below(&seed, 5),
                           way = (unsigned)test_below(&seed, 8);
            const unsigned ndim = (unsigned)test_below(&seed, 4), n = 12;
            const unsigned experts = (unsigned)test_below(&seed, 3) ? 0 : 5;
            uint64_t dims[4];
            for (unsigned i = 0; i < 4; i++)
                dims[i] = sizes[test_below(&seed, sizeof sizes / sizeof *sizes)];
            for (unsigned i = 0; i < n; i++) {
                if (!is_there(&seed, way, i, n))
                    continue;
                if (!test_below(&seed, 40))
                    dims[3] = dims[0] = 33; /* from here on it has another shape */
                for (unsigned e = 0; e < (experts ? experts : 1); e++) {
                    char text[96], *name;
                    snprintf(text, sizeof text, forms[form], i, family);
                    assert_true(asprintf(&name, experts ? "%s.experts.%u.w" : "%s", text, e) > 0);
                    if (experts && !test_below(&seed, 50))
                        free(name); /* the experts of a layer lack one */
                    else
                        add(source, true, name, ndim, dims);
                }
            }
        }
        if (source->n > 0) {
            fits(source, true);
            fits(source, false);
        }
        source_end(source);
    }
}

/* Says which lines a draft has of a source. */
static void test_conditions(void **state)
{
    static const struct {
        const char *numbers, *line; /* the layers that have a tensor, and the index for them */
    } cases[] = {
        {"0 1 2 3 4 5 6 7 8 9 10 11", "index i = 0 .. num_hidden_layers\n"},
        {"3 4 5 6 7 8 9 10 11", "index i = first_k_dense_replace .. num_hidden_layers\n"},
        {"0 1 2", "index i = 0 .. first_k_dense_replace\n"},
        {"1 4 8 11", "index i = 0 .. num_hidden_layers where config.layer_types[i] is b\n"},
        {"1 2 7", "index i = 0 .. num_hidden_layers where i in config.sparse_layers\n"},
        {"0 3 4 5 6 8 9 10 11",
         "index i = 0 .. num_hidden_layers where not (i in config.sparse_layers)\n"},
        {"3 7 11", "index i = 0 .. num_hidden_layers where i % 4 == 3\n"},
        {"0 4 5 6", "index i = 0 .. num_hidden_layers where i == 0 or (i >= 4 and i <= 6)\n"},
        {"5 6", "index i = 5 .. 7\n"},
    };
    struct rfs_hf_config *config = read_config();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct source *source = calloc(1, sizeof *source);
        assert_non_null(source);
        for (const char *at = cases[i].numbers; *at;) {
            char *end, *name;
            assert_true(asprintf(&name, "model.layers.%lu.w", strtoul(at, &end, 10)) > 0);
            add(source, true, name, 2, (uint64_t[]){96, 192});
            at = end;
        }
        char *text = draft_of(source, config, true);
        if (!strstr(text, cases[i].line) ||
            !strstr(text, "{i}.w [intermediate_size, 2 * intermediate_size]\n") ||
            !strstr(text, "96 is intermediate_size here. Other values that fit: "
                          "num_attention_heads * head_dim."))
            fail_msg("%s\ninstead of %s", text, cases[i].line);
        free(text);
        fits(source, true);
        source_end(source);
    }
    rfs_hf_config_free(config);
}

static void test_names_without_rules(void **state)
{
    struct rfs_hf_config *config = read_config();
    struct source *source = calloc(1, sizeof *source);
    static const char *const names[] = {"a b", "x{0}.w", "y\n",  "q*",
                                        "",    "#z",     "w[0]", "caf\xc3\xa9"};

    (void)state;
    assert_non_null(source);
    add(source, true, strdup("fine.0.w"), 0, NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add(source, false, strdup(names[i]), 0, NULL);
    char *text = draft_of(source, config, true);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (i != 2 && *names[i])
            assert_non_null(strstr(text, names[i]));
    assert_non_null(strstr(text, "# no rule can name y\\x0a\n"));
    struct rfs_rules *rules = NULL;
    struct rfs_error err;
    assert_int_equal(rfs_rules_parse("draft", text, strlen(text), NULL, NULL, &rules, &err), 0);
    rfs_rules_free(rules);
    free(text);
    source_end(source);
    rfs_hf_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_names),
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_names_without_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
