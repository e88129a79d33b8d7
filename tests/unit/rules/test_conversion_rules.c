/* SPDX-License-Identifier: Apache-2.0 */
/* What rules refuse, word for word, and what they accept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "rules/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16

/* "name 2x3, other 4 Float32" as tensors. */
struct source {
    char text[512];
    struct rfs_type types[MOST];
    struct rfs_rules_tensor tensors[MOST];
    size_t n;
};

static void read_source(const char *text, struct source *source)
{
    *source = (struct source){.n = 0};
    snprintf(source->text, sizeof source->text, "%s", text);
    for (char *item = strtok(source->text, ","); item; item = strtok(NULL, ",")) {
        struct rfs_type *type = &source->types[source->n];
        char name[64];
        char dims[64] = "";
        char dtype[32] = "BFloat16";
        assert_true(sscanf(item, "%63s %63s %31s", name, dims, dtype) >= 1);
        *type = (struct rfs_type){.kind = RFS_TENSOR};
        enum rfs_dtype of;
        assert_true(rfs_dtype_parse(dtype, strlen(dtype), &of));
        type->dtype = (uint8_t)of;
        for (char *at = dims; *at; at += *at == 'x')
            type->dims[type->ndim++] = strtoull(at, &at, 10);
        assert_true(rfs_type_bytes(type, &type->bytes));
        source->tensors[source->n++] = (struct rfs_rules_tensor){strdup(name), type};
    }
}

static void free_source(struct source *source)
{
    for (size_t i = 0; i < source->n; i++)
        free((char *)source->tensors[i].name);
}

/* Applies rules; 0 with the map, or the error. */
static int apply(const char *text, const char *config, const char *options, const char *tensors,
                 struct source *source, struct rfs_rules_map **map, struct rfs_error *err)
{
    struct rfs_rules *rules = NULL;
    struct rfs_hf_config *hf = NULL;
    char *whole = NULL;

    *map = NULL;
    *err = (struct rfs_error){0};
    read_source(tensors, source);
    assert_true(asprintf(&whole, "sides training huggingface\n%s", text) > 0);
    int rc = rfs_hf_config_read("config.json", config, strlen(config), &hf, err);
    if (rc == 0)
        rc = rfs_rules_parse("x.rules", whole, strlen(whole), NULL, NULL, &rules, err);
    const struct rfs_rules_input input = {hf, options, "SRC", source->tensors, source->n, NULL, 0};
    if (rc == 0)
        rc = rfs_rules_compile(rules, &input, map, err);
    rfs_rules_free(rules);
    rfs_hf_config_free(hf);
    free(whole);
    return rc;
}

static void refuses(const char *text, const char *config, const char *options, const char *tensors,
                    const char *why)
{
    struct rfs_rules_map *map;
    struct rfs_error err;
    struct source source;
    const int rc = apply(text, config, options, tensors, &source, &map, &err);

    if (rc == 0 || !strstr(err.text, why))
        fail_msg("%s\nwith %s gave %d: %s\ninstead of: %s", text, tensors, rc, err.text, why);
    assert_int_equal(err.code, rc);
    rfs_rules_map_free(map);
    free_source(&source);
}

/* What is made, as "name 2x3 Float32, …". */
static void makes(const char *text, const char *config, const char *options, const char *tensors,
                  const char *what)
{
    struct rfs_rules_map *map;
    struct rfs_error err;
    struct source source;
    char made[512] = "";
    size_t n = 0;

    if (apply(text, config, options, tensors, &source, &map, &err))
        fail_msg("%s\nwith %s: %s", text, tensors, err.text);
    for (size_t i = 0; i < map->made.n; i++) {
        const struct rfs_rules_made *of = &map->made.data[i];
        n += (size_t)snprintf(made + n, sizeof made - n, "%s%s", i > 0 ? ", " : "", of->name);
        for (uint32_t a = 0; a < of->type.ndim; a++)
            n += (size_t)snprintf(made + n, sizeof made - n, "%c%llu", a ? 'x' : ' ',
                                  (unsigned long long)of->type.dims[a]);
        if (of->shown != RFS_BFLOAT16)
            n += (size_t)snprintf(made + n, sizeof made - n, " %s", rfs_dtype_name(of->shown));
    }
    assert_string_equal(made, what);
    rfs_rules_map_free(map);
    free_source(&source);
}

/* Heads of q, k and v in one tensor, and two that are renamed. */
#define QKV                                                                                        \
    "let heads = config.heads\nlet groups = config.groups ?? heads\n"                              \
    "let head = config.head ?? config.hidden / heads\nlet hidden = config.hidden\n"                \
    "qkv = groups(groups, 0, q [heads * head, hidden], k [groups * head, hidden],\n"               \
    "    v [groups * head, hidden])\n"                                                             \
    "norm = q_norm [head]\n"
#define QKV_CONFIG "{\"heads\": 4, \"groups\": 2, \"head\": 8, \"hidden\": 16}"
#define QKV_RIGHT "q 32x16, k 16x16, v 16x16, q_norm 8"
#define QKV_LEFT "qkv 64x16, norm 8"

static void test_shapes_and_config_agree(void **ctx)
{
    (void)ctx;
    makes(QKV, QKV_CONFIG, NULL, QKV_RIGHT, "qkv 64x16, norm 8");
    makes(QKV, QKV_CONFIG, NULL, QKV_LEFT, "q 32x16, k 16x16, v 16x16, q_norm 8");
    /* numbers of heads that are not those of the tensors */
    refuses(QKV, "{\"heads\": 8, \"groups\": 2, \"head\": 8, \"hidden\": 16}", NULL, QKV_RIGHT,
            "x.rules: line 6: parameter 'q': has shape [32, 16], but the rule says [heads * head, "
            "hidden], which is [64, 16] by config.json");
    refuses(QKV, "{\"heads\": 4, \"groups\": 1, \"head\": 8, \"hidden\": 16}", NULL, QKV_RIGHT,
            "parameter 'k': has shape [16, 16], but the rule says [groups * head, hidden], which "
            "is [8, 16]");
    refuses(
        QKV, "{\"heads\": 4, \"groups\": 1, \"head\": 8, \"hidden\": 16}", NULL, QKV_LEFT,
        "parameter 'qkv': has shape [64, 16], but the rule makes [48, 16]: groups(groups, 0, q ");
    refuses(QKV, "{\"heads\": 2, \"groups\": 1, \"head\": 16, \"hidden\": 16}", NULL, QKV_LEFT,
            "parameter 'norm': has shape [8], but the rule makes [16]: q_norm [head]");
    refuses(QKV, "{\"heads\": 2, \"groups\": 1, \"head\": 16, \"hidden\": 16}", NULL, QKV_RIGHT,
            "parameter 'q_norm': has shape [8], but the rule says [head], which is [16]");
}

/* Groups that the sizes would allow, and the factors of the sizes do not. */
static void test_wrong_groups(void **ctx)
{
    static const char rule[] = "qkv = groups(%s, 0, q [4 * 8, 16], k [2 * 8, 16], v [2 * 8, 16])\n";
    static const char *const wrong[][2] = {
        {"4", "parameter 'k': is cut in 4 groups, which do not divide the first factor of its "
              "size, 2"},
        {"1", "is cut in 1 groups, and no part's size has that for its first factor"},
    };
    char text[200];
    (void)ctx;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, rule, wrong[i][0]);
        refuses(text, "{}", NULL, "q 32x16, k 16x16, v 16x16", wrong[i][1]);
        refuses(text, "{}", NULL, "qkv 64x16", wrong[i][1]);
    }
}

static void test_names(void **ctx)
{
    static const char layers[] = "index i = 0 .. config.n\nl.{i}.a = m.{i}.x [4]\n"
                                 "l.{i}.b = m.{i}.y\n";
    (void)ctx;

    makes(layers, "{\"n\": 2}", NULL, "m.0.x 4, m.0.y 2, m.1.x 4, m.1.y 3",
          "l.0.a 4, l.0.b 2, l.1.a 4, l.1.b 3");
    refuses(layers, "{\"n\": 2}", NULL, "m.0.x 4, m.0.y 2, m.1.x 4",
            "parameter 'm.1.y': is not in SRC");
    refuses("a = layers.0.weight\nb = layers.1.weight\nc = head.weight", "{}", NULL,
            "layers.0.weight 1, layers.2.weight 1",
            "'layers.1.weight': is not in SRC, which has 'layers.2.weight'; try: the config.json");
    refuses("a = layers.0.weight\nc = head.weight", "{}", NULL,
            "layers.0.weight 1, layers.1.weight 1",
            "parameter 'head.weight': is not in SRC; try: the config.json");
    refuses(layers, "{\"n\": 1}", NULL, "m.0.x 4, m.0.y 2, m.1.x 4, m.1.y 3",
            "SRC: parameter 'm.1.x': is taken by no rule of x.rules, as by config.json there are "
            "fewer of its kind; rules take 'm.0.x'; try: the config.json that belongs to these");
    refuses(layers, "{\"n\": 2}", NULL, "m.0.x 4, l.0.b 4",
            "SRC: has names of both sides of x.rules: 'l.0.b' of training, and 'm.0.x' of "
            "huggingface");
    refuses(layers, "{\"n\": 2}", NULL, "other 4",
            "SRC: parameter 'other': the source has names of neither side of x.rules, "
            "training or huggingface");
    makes("index k = 0 .. 2\na.{k} = b.{k + config.n}", "{\"n\": 7}", NULL, "b.7 1, b.8 1",
          "a.0 1, a.1 1");
    makes("a = b\nkeep c*\ndrop right d* e\ndrop left f", "{}", NULL, "b 1, c1 2, d.1 3, e 4",
          "a 1, c1 2");
    refuses("a = b\ndrop left d", "{}", NULL, "b 1, d 2", "'d': is taken by no rule");
    refuses("a = b\na = c", "{}", NULL, "b 1, c 2",
            "parameter 'a': is made a second time, after x.rules: line 2");
    refuses("a = b\nc = b", "{}", NULL, "b 1", "parameter 'b': is used a second time");
}

static void test_repeats(void **ctx)
{
    static const char tied[] = "a = b [2]\nindex k = 0 .. 2\nrepeat right c.{k} = b\n";
    (void)ctx;

    makes(tied, "{}", NULL, "a 2", "b 2, c.0 2, c.1 2");
    makes(tied, "{}", NULL, "b 2, c.0 2", "a 2");
    refuses("a = b [2]\nrepeat right c = d", "{}", NULL, "a 2",
            "parameter 'd': is repeated, but no rule makes it");
}

/* The copies that a source's rules leave out, as "copy=original remedy, …". */
static void compares(const char *text, const char *config, const char *tensors, const char *what)
{
    struct rfs_rules_map *map;
    struct rfs_error err;
    struct source source;
    char copies[512] = "";
    size_t n = 0;

    if (apply(text, config, NULL, tensors, &source, &map, &err))
        fail_msg("%s\nwith %s: %s", text, tensors, err.text);
    for (size_t i = 0; i < map->copies.n; i++) {
        const struct rfs_rules_copy *copy = &map->copies.data[i];
        n += (size_t)snprintf(copies + n, sizeof copies - n, "%s%s=%s by line %u, %.20s",
                              i > 0 ? "; " : "", source.tensors[copy->copy].name,
                              source.tensors[copy->original].name, copy->line, copy->remedy);
    }
    assert_string_equal(copies, what);
    for (size_t i = 0; i < map->made.n; i++)
        assert_int_equal(map->made.data[i].compared, map->copies.n > 0);
    rfs_rules_map_free(map);
    free_source(&source);
}

static void test_copies(void **ctx)
{
    static const char tied[] = "let tied = config.tie_word_embeddings ?? false\na = b [2]\n"
                               "if tied\n    copy left out = a\n    copy right head = b\nelse\n"
                               "    out = head [2]\nend\nrepeat right again = b\n";
    static const char yes[] = "{\"tie_word_embeddings\": true}";
    static const char no[] = "{\"tie_word_embeddings\": false}";
    (void)ctx;

    makes(tied, yes, NULL, "a 2, out 2", "b 2, again 2");
    makes(tied, yes, NULL, "b 2, head 2", "a 2");
    makes(tied, no, NULL, "a 2, out 2", "b 2, again 2, head 2");
    compares(tied, yes, "a 2", "");
    compares(tied, no, "a 2, out 2", "");
    compares(tied, yes, "a 2, out 2", "out=a by line 5, \"tie_word_embeddings");
    compares(tied, yes, "b 2, again 2, head 2",
             "head=b by line 6, \"tie_word_embeddings; again=b by line 10, rules of your own th");
    compares("a = b [2]\nrepeat right c = b", "{}", "b 2, c 2",
             "c=b by line 3, rules of your own th");
    refuses(tied, yes, NULL, "b 2, head 3",
            "x.rules: line 6: parameter 'head': is BFloat16 [3], and 'b', of which it should be a "
            "copy, is BFloat16 [2]; try: \"tie_word_embeddings\": false in config.json");
    refuses(tied, yes, NULL, "b 2, head 2 Float32",
            "parameter 'head': is Float32 [2], and 'b', of which it should be a copy, is BFloat16");
}

/* Remedies that the tensors tell. */
static void test_remedies(void **ctx)
{
    static const char options[] =
        "index i = 0 .. config.n\noption layers = stacked | numbered\n"
        "option rows = exact | padded\nif rows is exact\n    e = f [config.v]\nelse\n"
        "    rows(0, 0, config.v, e) = f [config.v]\nend\nif layers is stacked\n"
        "    w = stack(i, 0, x.{i} [2])\nelse\n    w.{i} = x.{i} [2]\nend\n";
    static const char config[] = "{\"n\": 2, \"v\": 5}";
    (void)ctx;

    makes(options, config, NULL, "e 5, w 2x2", "f 5, x.0 2, x.1 2");
    refuses(options, config, NULL, "e 5, w.0 2, w.1 2",
            "try: convert_options=layers=numbered, by which the rules fit, or the config.json");
    refuses(options, config, NULL, "e 8, w 2x2",
            "try: convert_options=rows=padded, by which the rules fit, or the config.json");
    refuses(options, config, NULL, "e 8, w.0 2, w.1 2",
            "try: convert_options=layers=numbered:rows=padded, by which the rules fit, or ");
    refuses(options, config, "layers=numbered", "e 8, w.0 2, w.1 2",
            "try: convert_options=rows=padded, by which the rules fit, or the config.json");
    refuses(options, config, "rows=exact", "e 8, w 2x2",
            "parameter 'e': has shape [8], but the rule makes [5]: f [config.v]; try: the config");
    refuses(options, config, NULL, "e 4, w 2x2",
            "parameter 'e': has shape [4], but the rule makes [5]: f [config.v]; try: the config");
    refuses("a = b", "{}", NULL, "b 2, b_scale_inv 2 Float32",
            "parameter 'b_scale_inv': is taken by no rule of x.rules: the weights are quantized, "
            "and without it they have other values; try: a conversion of the weights to bfloat16");
    refuses("index k = 0 .. config.n\na = b\nc.{k} = d.{k + 3}\nrepeat right e.{k} = b",
            "{\"n\": 1}", NULL, "b 2, d.3 2, e.1 2",
            "'e.1': is taken by no rule of x.rules, as by config.json there are fewer of its kind");
    refuses("a = b", "{}", NULL, "b 2, c 2", "try: drop right NAME, in the rules, if it is not");
}

/* What would take hours is refused, and many names are no reason to. */
static void test_work(void **ctx)
{
    static const char *const endless[] = {
        "index z = 0 .. 1000000000\na = b\nrepeat right c.{z} = b",
        "index z = 0 .. 1000000000\na = b\ncopy right c.{z} = b",
        "index z = 0 .. 1000000000\na = stack(z, 0, b)",
        "index z = 0 .. 2000000000\nindex y = 0 .. 2000000000\na = b\nrepeat right c.{z-z+y} = b",
    };
    const size_t lets = 100000;
    char *text = malloc(lets * 40);
    size_t n = 0;
    (void)ctx;

    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++)
        refuses(endless[i], "{}", NULL, "b 0", "");
    refuses(endless[0], "{}", NULL, "b 1", "line 4: the rules take more than 134217728 steps");
    for (size_t i = 0; i < lets; i++)
        n += (size_t)sprintf(text + n, "let n%zu = %s%zu + 1\n", i, i > 0 ? "n" : "",
                             i > 0 ? i - 1 : 0);
    sprintf(text + n, "a = b [n%zu]\n", lets - 1);
    makes(text, "{}", NULL, "b 100000", "a 100000");
    free(text);
}

static void test_conditions(void **ctx)
{
    static const char choice[] =
        "option way = split | mixed\nif way is split\na = concat(0, b [1], "
        "c [1])\nelse\na = transpose(d)\nend";
    (void)ctx;

    makes(choice, "{}", NULL, "b 1, c 1", "a 2");
    makes(choice, "{}", "way=mixed", "d 2x3", "a 3x2");
    refuses(choice, "{}", "way=other", "d 2x3", "convert_options: 'way' cannot be 'other'");
    refuses(choice, "{}", "way", "d 2x3", "convert_options: 'way' has no word after it");
    refuses(choice, "{}", "wya=split", "d 2x3",
            "convert_options: 'wya=split' is not an option of the rules x.rules; they have way");
    makes("models m n\na = b", "{\"model_type\": \"n\"}", NULL, "b 1", "a 1");
    refuses("models m n\na = b", "{\"model_type\": \"o\"}", NULL, "b 1",
            "config.json: is for a model of type 'o', and the rules x.rules for m, n");
    refuses("require config.n > 3\na = b", "{\"n\": 3}", NULL, "b 1",
            "requires config.n > 3, and config.json has another value");
    makes("let t = config.t ?? false\nif t\na = b\nelse if config.k is w\nc = b\nelse\nd = b\nend",
          "{\"k\": \"w\", \"t\": null}", NULL, "b 1", "c 1");
    refuses("if 1\na = b", "{}", NULL, "b 1", "the rules end before the 'end' of a condition");
    refuses("a = b\nend", "{}", NULL, "b 1", "there is no 'if' before this");
    refuses("let n = config.x.y\na = b", "{\"x\": {\"z\": 1}}", NULL, "b 1",
            "x.rules: line 2: needs 'x.y' of config.json, which does not have it");
    makes("let n = config.x.y\na = b [n]", "{\"x\": {\"y\": 5}}", NULL, "b 5", "a 5");
    makes("a = b [config.a, config.b, config.c, config.d]\n# \xc3\xa9",
          "{\"a\": 4.0, \"b\": 1.2e1, \"c\": 30e-1, \"d\": 2}", NULL, "b 4x12x3x2", "a 4x12x3x2");
    for (const char *const *no = (const char *const[]){"4.5", "1e30", "1e-1", "9223372036854775808",
                                                       "92233720368547758.080e3", NULL};
         *no; no++) {
        char config[64];
        snprintf(config, sizeof config, "{\"a\": %s}", *no);
        refuses("a = b [config.a]", config, NULL, "b 4",
                "'a' of config.json is not a whole number");
    }
    refuses("let n = 7 / 2\na = b", "{}", NULL, "b 1", "7 is not divisible by 2");
    refuses("let n = 7 / (2 - 2)\na = b", "{}", NULL, "b 1", "7 cannot be divided by 0");
    refuses("let n = 9223372036854775807 + 1\na = b", "{}", NULL, "b 1", "more than 64 bits");
}

static void test_rows_and_casts(void **ctx)
{
    static const char parts[] = "a = rows(0, 0, 2, w [5, 3])\nb = rows(0, 2, 3, w [5, 3])";
    (void)ctx;

    makes(parts, "{}", NULL, "w 5x3", "a 2x3, b 3x3");
    makes(parts, "{}", NULL, "a 2x3, b 3x3", "w 5x3");
    makes("a = rows(0, 0, 3, 2, w [5])\nb = rows(0, 1, 2, 2, w [5])", "{}", NULL, "w 5",
          "a 3, b 2");
    refuses("a = rows(0, 0, 2, w [5])\nb = rows(0, 1, 3, w [5])", "{}", NULL, "w 5",
            "parameter 'w': has row 1 taken twice");
    refuses("a = rows(0, 0, 2, w [5])", "{}", NULL, "w 5",
            "parameter 'w': has 3 rows that no rule takes");
    refuses("a = rows(0, 4, 2, w [5])", "{}", NULL, "w 5", "fewer than the rule takes");
    makes("rows(0, 0, 5, a) = w [5]", "{}", NULL, "a 8", "w 5");
    refuses("rows(0, 0, 5, a) = w [5]", "{}", NULL, "w 5",
            "parameter 'a': is made of rows alone: this rule cannot be inverted");
    makes("a = cast(float32, bfloat16, b)", "{}", NULL, "b 2", "a 2 Float32");
    makes("a = cast(float32, bfloat16, b)", "{}", NULL, "a 2 Float32", "b 2");
    refuses("a = cast(float32, same, b)", "{}", NULL, "b 2 Int32",
            "parameter 'b': has dtype Int32, and cast converts floating-point numbers only");
    refuses("a = concat(0, b [1], c [1])", "{}", NULL, "b 1, c 1 Float32",
            "parameter 'a': is made of parts of BFloat16 and Float32");
}

static void test_experts(void **ctx)
{
    static const char experts[] =
        "index e = 0 .. 2\nw = join(0, stack(e, 0, transpose(concat(0, g.{e} [3, 4], u.{e} [3, "
        "4]))))";
    (void)ctx;

    makes(experts, "{}", NULL, "g.0 3x4, u.0 3x4, g.1 3x4, u.1 3x4", "w 8x6");
    makes(experts, "{}", NULL, "w 8x6", "g.0 3x4, u.0 3x4, g.1 3x4, u.1 3x4");
    makes(experts, "{}", NULL, "w 2x4x6", "g.0 3x4, u.0 3x4, g.1 3x4, u.1 3x4");
    refuses(experts, "{}", NULL, "w 4x2x6", "parameter 'w': has shape [4, 2, 6]");
    refuses(experts, "{}", NULL, "w 12x4", "has shape [12, 4], but the rule makes [8, 6]");
    refuses(experts, "{}", NULL, "g.0 3x4, u.0 3x4, g.1 4x3, u.1 3x4",
            "parameter 'g.1': has shape [4, 3], but the rule says [3, 4]");
    refuses("a.{e} = b\nindex e = 0 .. 2", "{}", NULL, "b 1", "'e' is not defined");
    refuses("index e = 0 .. 2\na = b.{e}", "{}", NULL, "b.0 1", "index 'e' has no value here");
}

static void test_mistakes_in_the_text(void **ctx)
{
    static const char *const wrong[][2] = {
        {"a", "x.rules: line 2: the statement ends where '=' should be"},
        {"\n\na = concat(0, b", "line 4: the statement ends where ')' should be"},
        {"a = merge(0, b, c)", "'merge(0, b, c)' stands where concat, groups, stack, transpose, "},
        {"a = \"b\"", "stands where a name without quotes should be"},
        {"a = b c", "'c' stands where the end of the statement should be"},
        {"let 3 = 4", "'3 = 4' stands where a name should be"},
        {"let a = 1\nlet a = 2\nb = c", "'a' is given twice"},
        {"transpose(a) = b", "a rule with one tensor to the left, or rows of one, should be"},
        {"a = cast(int8, same, b)", "float16, bfloat16, float32, float64 or same should be"},
        {"a = b [1, ", "the statement ends where a number should be"},
        {"a = {i", "stands where a number and '}' should be"},
        {"drop both x", "left or right should be"},
        {"include y.rules", "no file can be included here"},
        {"sides a b", "the sides have their names already"},
        {"index i = 3 .. 2\na = b", "index 'i' would go from 3 to 2"},
        {"a = stack(i, 0, b)", "there is no index 'i'"},
        {"a = concat(2, b, c)", "there is no axis 2 of 1"},
        {"a = transpose(b)", "a tensor of 1 axes cannot be transposed"},
        {"a = split(0, 2, b)", "axis 0 of 1 cannot be split in 2 parts"},
        {"option o = x\nlet n = o\na = b", "option 'o' has a word, not a number"},
        {"option o = x\nif o is y\nend\na = b", "option 'o' is never 'y'"},
        {"let n = config.t\na = b", "'t' of config.json is not a whole number"},
        {"let n = config.f\na = b", "'f' of config.json is not a whole number"},
        {"a* = b", "'a* = b' stands where the name of one tensor, without '*', should be"},
        {"a = b*.c", "stands where the name of one tensor, without '*', should be"},
        {"repeat right c* = b", "stands where the name of one tensor, without '*', should be"},
        {"a\xc3\xa9 = b", "x.rules: line 2: byte \\xc3 stands outside of a comment"},
        {"# \xc3\xa9\nkeep a\x01", "line 3: byte \\x01 stands outside of a comment"},
    };
    (void)ctx;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuses(wrong[i][0], "{\"t\": \"text\", \"f\": 4.5}", NULL, "b 1, c 1", wrong[i][1]);
    refuses("a = b", "[]", NULL, "b 1", "config.json: offset 0: is not a JSON object");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_and_config_agree),
        cmocka_unit_test(test_wrong_groups),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_remedies),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_rows_and_casts),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_mistakes_in_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
