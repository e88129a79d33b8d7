/* SPDX-License-Identifier: Apache-2.0 */
/* What rules refuse, word for word, and what they accept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "rules/compile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Gives the text of "part.rules", with three parameters. */
static int include_part(void *ctx, const char *from, const char *name, char **full, char **text,
                        size_t *n, struct rfs_error *err)
{
    (void)ctx;
    (void)from;
    (void)err;
    assert_string_equal(name, "part.rules");
    *full = strdup("part.rules");
    *text = strdup("# $nothing in a comment\n$to.w = $at.v [$n]\n");
    *n = strlen(*text);
    return 0;
}

/* Puts an error's text and the end of its line behind those in TEXT. */
static void add_line(void *text, const struct rfs_error *err)
{
    char *old = *(char **)text;

    assert_true(asprintf((char **)text, "%s%s\n", old, err->text) > 0);
    free(old);
}

/*
 * Applies rules; 0 with the map, or the error. The errors before it are added to *BEFORE, or not
 * looked for if it is NULL.
 */
static int apply_all(const char *text, const char *config, const char *options, const char *tensors,
                     struct source *source, struct rfs_rules_map **map, char **before,
                     struct rfs_error *err)
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
        rc = rfs_rules_parse("x.rules", whole, strlen(whole),
                             strstr(text, "part.rules") ? include_part : NULL, NULL, &rules, err);
    const struct rfs_rules_input input = {.config = hf,
                                          .options = options,
                                          .source = "SRC",
                                          .tensors = source->tensors,
                                          .n = source->n,
                                          .report = before ? add_line : NULL,
                                          .ctx = before};
    if (rc == 0)
        rc = rfs_rules_compile(rules, &input, map, err);
    rfs_rules_free(rules);
    rfs_hf_config_free(hf);
    free(whole);
    return rc;
}

static int apply(const char *text, const char *config, const char *options, const char *tensors,
                 struct source *source, struct rfs_rules_map **map, struct rfs_error *err)
{
    return apply_all(text, config, options, tensors, source, map, NULL, err);
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
    static const char of_rows[] =
        "qkv = groups(%s, 0, rows(0, 0, 4 * 8, f [64, 16]), "
        "rows(0, 32, 2 * 8, f [64, 16]), rows(-2, 48, 2 * 8, f [64, 16]))\n";
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
        snprintf(text, sizeof text, of_rows, wrong[i][0]);
        refuses(text, "{}", NULL, "f 64x16", strstr(wrong[i][1], "is cut"));
    }
    snprintf(text, sizeof text, of_rows, "2");
    makes(text, "{}", NULL, "f 64x16", "qkv 64x16");
    makes(text, "{}", NULL, "qkv 64x16", "f 64x16");
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
            "'layers.1.weight': is not in SRC, which has 'layers.2.weight'; try: the config.json "
            "that belongs to these tensors, or other rules: reshard suggest SRC -o hf_config=FILE");
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
    refuses(
        "a = b", "{}", NULL, "b 2, b_scale_inv 2 Float32",
        "parameter 'b_scale_inv': is taken by no rule of x.rules: the weights are quantized, "
        "and without it they have other values; try: -o dequantize, which shows them as bfloat16");
    refuses("index k = 0 .. config.n\na = b\nc.{k} = d.{k + 3}\nrepeat right e.{k} = b",
            "{\"n\": 1}", NULL, "b 2, d.3 2, e.1 2",
            "'e.1': is taken by no rule of x.rules, as by config.json there are fewer of its kind");
    refuses("a = b", "{}", NULL, "b 2, c 2", "try: drop_source=NAME, or drop in the rules, if it");
}

/* The errors that are told together, each in a line. */
static void tells(const char *text, const char *config, const char *tensors, const char *what)
{
    struct rfs_rules_map *map;
    struct rfs_error err;
    struct source source;
    char *lines = strdup("");
    const int rc = apply_all(text, config, NULL, tensors, &source, &map, &lines, &err);

    if (rc)
        add_line(&lines, &err);
    assert_int_equal(err.code, rc);
    assert_string_equal(lines, what);
    rfs_rules_map_free(map);
    free_source(&source);
    free(lines);
}

#define BELONGS "; try: the config.json that belongs to these tensors\n"
#define LACKS "; try: the config.json that belongs to the tensors\n"
#define SHAPE(line, name, is, rule)                                                                \
    "x.rules: line " line ": parameter '" name "': has shape [" is "], but the rule says [" rule   \
    "], which is [" rule "] by config.json" BELONGS

static void test_all_errors(void **ctx)
{
    char many[21 * 40] = "a = b\n";
    char told[24 * 160] = "";
    size_t n = strlen(many);
    size_t m = 0;
    (void)ctx;

    tells("a = b [2]\nc = d [3]\ne = f", "{}", "b 2, d 3, f 1", "");
    tells("a = b [2]\nc = d [3]\ne = f", "{}", "b 1, d 4, f 1",
          SHAPE("2", "b", "1", "2") SHAPE("3", "d", "4", "3"));
    /* a rule is told once, and so are tensors of one kind */
    tells(
        "index i = 0 .. 2\na.{i} = b.{i} [2]\nc = d", "{}",
        "b.0 1, b.1 1, d 1, x.0.w 1, x.1.w 1, y 1",
        SHAPE("3", "b.0", "1",
              "2") "SRC: parameter 'x.0.w': is taken by no rule of x.rules; and 1 more "
                   "with other numbers; try: drop_source=NAME, or drop in the rules, if it is not "
                   "part of the model\n"
                   "SRC: parameter 'y': is taken by no rule of x.rules; try: drop_source=NAME, or "
                   "drop in the rules, if it is not part of the model\n");
    /*
     * what follows from an error is not told: names that it defines, and tensors that it would use
     */
    tells("let n = config.n\nindex i = 0 .. n\nlet m = n + 1\na.{i} = b.{i} [m]\nc = d [config.k]\n"
          "e = f\nrepeat left g = a.0\nif n > 1\nh = b.2\nend",
          "{}", "b.0 1, d 1, f 1, other 1",
          "x.rules: line 2: needs 'n' of config.json, which does not have it" LACKS
          "x.rules: line 6: needs 'k' of config.json, which does not have it" LACKS);
    tells("if config.n > 1\na = b\nelse\nc = b\nend\nd = e [2]\nf = g\nrequire config.k > 3",
          "{\"k\": 3}", "b 1, e 1, g 1, other 1",
          "x.rules: line 2: needs 'n' of config.json, which does not have it" LACKS SHAPE(
              "7", "e", "1", "2") "x.rules: line 9: requires config.k > 3, and config.json has "
                                  "another value; try: the "
                                  "rules for that model, or its own config.json\n");
    /* words of options that make all of it fit */
    tells("option o = x | y\nif o is x\na = b [1]\nc = d [1]\nelse\na = b\nc = d\nend", "{}",
          "b 2, d 2",
          "x.rules: line 4: parameter 'b': has shape [2], but the rule says [1], which is [1] by "
          "config.json; try: convert_options=o=y, by which the rules fit, or the config.json that "
          "belongs to these tensors\n");
    /* the wrong model, and a wrong side: no other error counts */
    tells("models m\nlet n = config.n\na = b [n]", "{}", "b 2",
          "config.json: is for a model of type '', and the rules x.rules for m; try: the rules for "
          "that model, or its own config.json\n");
    tells(
        "a = b [2]\nc = d [2]", "{}", "a 1, d 1",
        "SRC: has names of both sides of x.rules: 'a' of training, and 'd' of huggingface; try: a "
        "source with the names of one side\n");
    /* no more than twenty */
    for (int i = 0; i < 21; i++) {
        n += (size_t)sprintf(many + n, "a%d = b%d\n", i, i);
        if (i < 20)
            m += (size_t)sprintf(
                told + m,
                "x.rules: line %d: parameter 'b%d': is not in SRC; try: the config.json that "
                "belongs to these tensors, or other rules: reshard suggest SRC -o hf_config=FILE\n",
                i + 3, i);
    }
    sprintf(told + m,
            "SRC: there are more errors than these 20; try: once more when those are mended\n");
    tells(many, "{}", "b 1", told);
}

static void test_hints(void **ctx)
{
    static const char hint[] = "hint training with --swap has c (and d)  # a comment\n\na = b [2]";
    (void)ctx;

    makes(hint, "{}", NULL, "b 2", "a 2");
    refuses("hint training with --swap has c\na = b [2]\nc = d [1]", "{}", NULL, "b 3, d 1",
            "which is [2] by config.json; hint: training with --swap has c; try: the config.json");
    tells("hint one\na = b [2]\nhint two\nrequire false\nc = d [1]\nhint three\nlet x = 1 / 0",
          "{}", "b 3, d 2",
          "x.rules: line 3: parameter 'b': has shape [3], but the rule says [2], which is [2] by "
          "config.json; hint: one" BELONGS
          "x.rules: line 5: requires false, and config.json has another value; hint: two; try: the "
          "rules for that model, or its own config.json\n" SHAPE(
              "6", "d", "2", "1") "x.rules: line 8: 1 cannot be divided by 0; hint: three\n");
    refuses("hint of rows\nx = rows(0, 0, 1, b [2])", "{}", NULL, "b 2",
            "has 1 rows that no rule takes along axis 0; hint: of rows");
}

/* What would take hours is refused, and many names are no reason to. */
static void test_work(void **ctx)
{
    static const char *const endless[] = {
        "index z = 0 .. 1000000000\na = b\nrepeat right c.{z} = b",
        "index z = 0 .. 1000000000\na = b\ncopy right c.{z} = b",
        "index z = 0 .. 1000000000\na = stack(z, 0, b)",
        "index z = 0 .. 2000000000\nindex y = 0 .. 2000000000\na = b\nrepeat right c.{z-z+y} = b",
        "index z = 0 .. 100000000\na = b\nrepeat right c.{z} = b", /* seen only on the way */
    };
    const size_t lets = 100000;
    char *text = malloc(lets * 40);
    size_t n = 0;
    (void)ctx;

    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++)
        refuses(endless[i], "{}", NULL, "b 1", "the rules take more than 134217728 steps");
    refuses(endless[0], "{}", NULL, "b 1", "line 4: ");
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

/* Tensors that may have one of several names. */
static void test_alternatives(void **ctx)
{
    static const char rules[] =
        "index i = 0 .. 2\nl.{i}.n | l.{i}.norm = m.{i}.x | n.{i}.x | {i}.x [2]\n"
        "q = concat(0, a | b [1], c [1])\nrows(0, 0, 1, r | s) = t [1]";
    static const char stacked[] = "index i = 0 .. 2\nstacked i\nl.{i}.n | l.{i}.norm = x.{i} [2]";
    (void)ctx;

    makes(rules, "{}", NULL, "l.0.n 2, l.1.norm 2, q 2, s 3", "m.0.x 2, m.1.x 2, a 1, c 1, t 1");
    makes("index i = 0 .. 2\nl.{i}.n | l.{i}.norm = m.{i}.x | n.{i}.x [2]\nq = concat(0, a | b "
          "[1], c [1])",
          "{}", NULL, "n.0.x 2, m.1.x 2, b 1, c 1", "l.0.n 2, l.1.n 2, q 2");
    makes(stacked, "{}", NULL, "l.norm 2x2", "x.0 2, x.1 2");
    makes(stacked, "{}", NULL, "l.n 2x2", "x.0 2, x.1 2");
    makes(stacked, "{}", NULL, "x.0 2, x.1 2", "l.n 2x2");
    makes("a | b = c", "{}", NULL, "b 2", "c 2"); /* the second name alone tells the side */
    makes("c = a | b", "{}", NULL, "b 2", "c 2");
    refuses("a | b = c", "{}", NULL, "a 2, b 2",
            "parameter 'b': is in SRC, and so is another name of the same tensor");
    refuses(rules, "{}", NULL, "l.0.n 2, l.1.norm 3, q 2, s 3", "'l.1.norm': has shape [3], but");
    refuses(rules, "{}", NULL, "l.0.n 2, q 2, s 3", "parameter 'l.1.n': is not in SRC");
    refuses("a | = c", "{}", NULL, "a 2", "stands where the name of a tensor should be");
    refuses("a = b | rows(0, 0, 1, c)", "{}", NULL, "b 2", "stands where the end of the statement");
    refuses("a | b = c\nb = d", "{}", NULL, "b 2, d 1", "has names of both sides of x.rules");
    refuses("b = d\na | b = c", "{}", NULL, "b 2", "parameter 'b': is used a second time");
}

static void test_models(void **ctx)
{
    static const char rules[] = "models m n\nif config.o ?? false\nmodels o\nend\na = b\nmodels p";
    (void)ctx;

    makes(rules, "{\"model_type\": \"n\"}", NULL, "b 1", "a 1");
    makes(rules, "{\"model_type\": \"p\"}", NULL, "b 1", "a 1");
    refuses(rules, "{\"model_type\": \"q\"}", NULL, "b 1",
            "config.json: is for a model of type 'q', and the rules x.rules for m, n, o, p");
    refuses(rules, "{}", NULL, "b 1",
            "is for a model of type '', and the rules x.rules for m, n, o");
}

/* Lists of the config, and indexes with some of the values in a range. */
static void test_lists(void **ctx)
{
    static const char config[] =
        "{\"types\": [\"full\", \"slide\", \"full\"], \"mlp\": [0, 2], \"sizes\": [4, 5, 6], "
        "\"mixed\": [1, \"full\", null, 1.5, [2], {\"a\": 1}], \"none\": [], \"o\": {\"l\": [7]}, "
        "\"text\": \"M*-\"}";
    static const char kinds[] = "index f = 0 .. count(config.types) where config.types[f] is full\n"
                                "index s = 0 .. 3 where config.types[s] is slide\n"
                                "f.{f} = x.{f} [config.sizes[f]]\ns.{s} = x.{s}";
    static const char stacked[] = "index f = 0 .. 3 where config.types[f] is full\n"
                                  "index s = 0 .. 3 where not config.types[s] is full\n"
                                  "stacked f\nw.{f}.a = x.{f} [2]\nv = stack(s, 0, x.{s} [2])";
    static const char *const none = "x.0 4, x.1 3, x.2 6";
    static const struct {
        const char *rules, *why;
    } wrong[] = {
        {"let n = config.sizes[3]", "'sizes' of config.json has 3 entries, and no entry 3"},
        {"let n = config.sizes[-1]", "'sizes' of config.json has 3 entries, and no entry -1"},
        {"let n = config.none[0]", "'none' of config.json has 0 entries, and no entry 0"},
        {"let n = config.types[0]",
         "'types' of config.json has entries that are not whole numbers"},
        {"let n = config.mixed[2]",
         "'mixed' of config.json has entries that are not whole numbers"},
        {"let n = config.text[3]", "'text' of config.json has 3 entries, and no entry 3"},
        {"let n = config.text[0] is M", "'text' of config.json is not a list"},
        {"let n = config.sizes", "'sizes' of config.json is not a whole number"},
        {"let n = config.o[0]", "needs 'o' of config.json, which does not have it"},
        {"let n = config.no[0]", "needs 'no' of config.json, which does not have it"},
        {"let n = 1 in config.no", "needs 'no' of config.json, which does not have it"},
        {"let n = config.no has x", "needs 'no' of config.json, which does not have it"},
        {"let n = config.no[0] is x", "needs 'no' of config.json, which does not have it"},
        {"let n = count(config.no)", "needs 'no' of config.json, which does not have it"},
        {"let n = count(config.o.l.x)", "needs 'o.l.x' of config.json, which does not have it"},
        {"let n = config.sizes[config.no]", "needs 'no' of config.json, which does not have it"},
        {"index i = 0 .. 4 where config.types[i] is full", "has 3 entries, and no entry 3"},
        {"index i = 0 .. 2000000 where i == 3",
         "index 'i' has 2000000 values to choose from, more than 1048576"},
        {"index i = 0 .. 3 where j", "'j' is not defined"},
        {"index i = 0 .. 3 where", "the statement ends where a number should be"},
        {"let n = count(3)", "stands where config.KEY should be"},
        {"let n = 1 in sizes", "'sizes' stands where config.KEY should be"},
        {"let n = config.sizes[1", "stands where ']' should be"},
        {"let n = config.types has", "the statement ends where a word should be"},
        {"index i = 0 .. 3 where false\na = stack(i, 0, x.{i})", "index 'i' has no value to stack"},
    };
    (void)ctx;

    makes(kinds, config, NULL, "x.0 4, x.1 3, x.2 6", "f.0 4, s.1 3, f.2 6");
    makes(kinds, config, NULL, "f.0 4, s.1 3, f.2 6", "x.0 4, x.1 3, x.2 6");
    refuses(kinds, config, NULL, "x.0 4, x.1 3, x.2 5", "'x.2': has shape [5], but the rule says");
    refuses(kinds, config, NULL, "f.0 4, f.1 3, f.2 6", "'s.1': is not in SRC, which has 'f.1'");
    makes(stacked, config, NULL, "x.0 2, x.1 2, x.2 2", "w.a 2x2, v 1x2");
    makes(stacked, config, NULL, "w.a 2x2, v 1x2", "x.0 2, x.2 2, x.1 2");
    refuses(stacked, config, NULL, "w.a 3x2, v 1x2",
            "'w.a': has shape [3, 2], but the rule makes [2");
    makes(
        "index i = 0 .. 6 where (i + 1) % 3 == 0\na.{i} = b.{i}\nindex j = 0 .. 2 where j in "
        "config.mlp\n"
        "c.{j} = d.{j}\nindex k = 0 .. 2 where not k in config.mlp\nc.{k} = e.{k + config.o.l[0]}",
        config, NULL, "b.2 1, b.5 2, d.0 3, e.8 4", "a.2 1, a.5 2, c.0 3, c.1 4");
    makes("if config.types has slide and not config.types has no\na = b\nend\n"
          "if config.mixed has full and 1 in config.mixed and not 2 in config.mixed\nc = d\nend\n"
          "e = f [config.no[9] ?? 2, (count(config.no) ?? 1) + count(config.none)]\n"
          "index i = 0 .. 3 where config.no[i] is x ?? i == 2\ng.{i} = h.{config.mlp[1] + i}\n"
          "index t = 0 .. 3 where config.text[t] == 42\nt.{t} = u.{t} [config.text[0]]\n"
          "index z = 0 .. 3 where false\nx.{z} = y.{z}\nstacked z\nv.{z} = w.{z}",
          config, NULL, "b 1, d 1, f 2x1, h.4 1, u.1 77", "a 1, c 1, e 2x1, g.2 1, t.1 77");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text = NULL;
        assert_true(asprintf(&text, "b = x.0\n%s\nc = x.1\nd = x.2", wrong[i].rules) > 0);
        refuses(text, config, NULL, none, wrong[i].why);
        free(text);
    }
    /* what is made of a wrong index is not told */
    tells("index i = 0 .. 3 where config.no[i] is x\na.{i} = x.{i}", config, none,
          "x.rules: line 2: needs 'no' of config.json, which does not have it" LACKS);
}

/* has() is of the source's names, whichever side they are of. */
static void test_names_of_the_source(void **ctx)
{
    static const char rules[] = "let n = 2\nif has(*.extra.w)\nlet more = n\nelse\nlet more = 0\n"
                                "end\nindex i = 0 .. more\na = b\nl.{i}.extra.w = r.{i}.extra.w\n"
                                "require n == 0 or not has(z*)";
    (void)ctx;

    makes(rules, "{}", NULL, "b 1", "a 1");
    makes(rules, "{}", NULL, "a 1", "b 1");
    makes(rules, "{}", NULL, "b 1, r.0.extra.w 1, r.1.extra.w 1",
          "a 1, l.0.extra.w 1, l.1.extra.w 1");
    refuses(rules, "{}", NULL, "b 1, r.0.extra.w 1", "'r.1.extra.w': is not in SRC");
    refuses(rules, "{}", NULL, "b 1, z 1", "requires n == 0 or not has(z*)");
    refuses("a = b\nlet n = has()", "{}", NULL, "b 1", "where a pattern of names should be");
    refuses("a = b\nlet n = has(x", "{}", NULL, "b 1", "where ')' should be");
    refuses("a = b\nlet n = has(x y)", "{}", NULL, "b 1", "where ')' should be");
}

/* Scales are kept with the weight that they belong to, or not at all. */
static void test_kept_scales(void **ctx)
{
    static const char rules[] = "a.weight = b.weight [2, 2]\nkeep *";
    (void)ctx;

    makes(rules, "{}", NULL, "b.weight 2x2, c.weight 2, c.weight_scale_inv 1, d_scale_inv 1",
          "a.weight 2x2, c.weight 2, c.weight_scale_inv 1, d_scale_inv 1");
    refuses(rules, "{}", NULL, "b.weight 2x2, b.weight_scale_inv 1",
            "SRC: parameter 'b.weight_scale_inv': belongs to 'b.weight', which is quantized and "
            "becomes another tensor by x.rules: line 2; try: -o dequantize");
    refuses(rules, "{}", NULL, "a.weight 2x2, a.weight_scale 1", "belongs to 'a.weight', which");
}

/* Rows along two axes: those of the inner axis first, and of each part of it all of the other. */
static void test_rows_of_rows(void **ctx)
{
    static const char boxes[] = "index e = 0 .. 3\n"
                                "a.{e} = join(0, rows(0, e, 1, rows(1, 0, 2, w [3, 6])))\n"
                                "b.{e} = join(0, rows(-2, e, 1, rows(-1, 2, 4, w [3, 6])))";
    static const char uneven[] = "a = rows(0, 0, 2, rows(1, 0, 2, w [3, 6]))\n"
                                 "b = rows(0, 2, 1, rows(1, 0, 2, w [3, 6]))\n"
                                 "c = rows(0, 0, 1, rows(1, 2, 4, w [3, 6]))\n"
                                 "d = rows(0, 1, 2, rows(1, 2, 4, w [3, 6]))";
    static const char *const wrong[][2] = {
        {"a = rows(0, 0, 2, rows(1, 0, 2, w [3, 6]))",
         "parameter 'w': has 1 rows that no rule takes along axis 0"},
        {"a = rows(0, 0, 3, rows(1, 0, 2, w [3, 6]))",
         "parameter 'w': has 4 rows that no rule takes along axis 1"},
        {"a = rows(0, 0, 2, rows(1, 0, 6, w [3, 6]))\nb = rows(0, 1, 2, rows(1, 0, 6, w [3, 6]))",
         "parameter 'w': has row 1 taken twice along axis 0"},
        {"a = rows(0, 0, 3, rows(1, 0, 4, w [3, 6]))\nb = rows(0, 0, 3, rows(1, 3, 3, w [3, 6]))",
         "parameter 'w': has row 3 taken twice along axis 1"},
        {"a = rows(0, 0, 3, rows(1, 0, 4, w [3, 6]))\nb = rows(1, 4, 2, w [3, 6])",
         "parameter 'w': is used a second time, after x.rules: line 2"},
        {"a = rows(1, 0, 4, w [3, 6])\nb = rows(0, 0, 3, rows(1, 4, 2, w [3, 6]))",
         "parameter 'w': is used a second time, after x.rules: line 2"},
        {"a = rows(0, 0, 3, rows(1, 0, 4, w [3, 6]))\nb = rows(1, 4, 2, rows(0, 0, 3, w [3, 6]))",
         "parameter 'w': is used a second time, after x.rules: line 2"},
        {"a = rows(0, 0, 1, rows(0, 0, 2, w [3, 6]))",
         "parameter 'w': has rows of rows along axis 0 taken"},
        {"a = rows(0, 3, 1, rows(1, 0, 6, w [3, 6]))", "has 3 rows, fewer than the rule takes"},
        {"a = rows(0, 0, 1, rows(1, 0, 7, w [3, 6]))", "has 6 rows, fewer than the rule takes"},
        {"a = rows(0, 0, 1, transpose(rows(1, 0, 6, w [3, 6])))",
         "takes rows of something that is not a tensor"},
        {"a = groups(4, 0, rows(1, 0, 6, rows(0, 0, 2, w [3, 6])), v [8, 6])",
         "is cut in 4 groups, which do not divide the first factor of its size, 2"},
    };
    (void)ctx;

    makes(boxes, "{}", NULL, "w 3x6", "a.0 2, a.1 2, a.2 2, b.0 4, b.1 4, b.2 4");
    makes(boxes, "{}", NULL, "a.0 2, a.1 2, a.2 2, b.0 4, b.1 4, b.2 4", "w 3x6");
    makes(uneven, "{}", NULL, "w 3x6", "a 2x2, b 1x2, c 1x4, d 2x4");
    makes(uneven, "{}", NULL, "a 2x2, b 1x2, c 1x4, d 2x4", "w 3x6");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuses(wrong[i][0], "{}", NULL, "w 3x6, v 8x6", wrong[i][1]);
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
    makes("a = parts(2, 0, 0, 2, w [2 * 3])\nb = parts(2, -1, 2, 1, w [2 * 3])", "{}", NULL, "w 6",
          "a 4, b 2");
    refuses("a = parts(2, 0, 0, 2, w [6])\nb = parts(2, 0, 1, 2, w [6])", "{}", NULL, "w 6",
            "parameter 'w': has row 1 taken twice");
    refuses("a = parts(2, 0, 0, 2, w [6])", "{}", NULL, "w 6", "has 2 rows that no rule takes");
    refuses("a = parts(2, 0, 0, 4, w [6])", "{}", NULL, "w 6", "has 3 rows, fewer than the rule");
    refuses("a = parts(4, 0, 0, 1, w [6])", "{}", NULL, "w 6",
            "has an axis that the rule cannot cut in 4 equal parts");
    refuses("a = parts(2, 0, 0, 1, w [_])\nb = w [6]", "{}", NULL, "a 2, b 6",
            "has an axis that the rule cannot cut in 2 equal parts");
    refuses("a = parts(2, 0, 0, 1, concat(0, w [3], v [3]))", "{}", NULL, "w 3, v 3",
            "takes rows of something that is not a tensor");
    refuses("parts(2, 0, 0, 1, a) = w [2]", "{}", NULL, "w 2",
            "stands where a rule with one tensor to the left, or rows of one, should be");
    refuses("a = groups(3, 0, parts(2, 0, 0, 3, w [6]), v [6])", "{}", NULL, "w 6, v 6",
            "is cut in 3 groups, which do not divide the first factor of its size, 2");
    refuses("a = rows(0, 0, 2, w [5])", "{}", NULL, "w 5",
            "parameter 'w': has 3 rows that no rule takes");
    refuses("a = rows(0, 4, 2, w [5])", "{}", NULL, "w 5", "fewer than the rule takes");
    refuses("rows(0, 0, 1, rows(1, 0, 1, a)) = w [1, 1]", "{}", NULL, "a 2x2",
            "parameter 'a': takes rows of rows");
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

/* What is added is in the links; tests/unit/view/test_computed reads the values. */
static void test_plus(void **ctx)
{
    static const char norm[] = "index i = 0 .. 2\na.{i} = plus(1 - 2 * i, b.{i} [3])\nc = d";
    (void)ctx;

    makes(norm, "{}", NULL, "b.0 3, b.1 3, d 1", "a.0 3, a.1 3, c 1");
    makes(norm, "{}", NULL, "a.0 3 Float32, a.1 3 Float16, c 1 Int8",
          "b.0 3 Float32, b.1 3 Float16, d 1 Int8");
    refuses(norm, "{}", NULL, "b.0 3 Int32, b.1 3, d 1",
            "line 3: parameter 'b.0': has dtype Int32, and plus is for float16, bfloat16, float32 "
            "and float64");
    refuses(norm, "{}", NULL, "a.0 3 Float8E4M3FN, a.1 3, c 1",
            "parameter 'a.0': has dtype Float8");
    refuses("a = plus(257, b)", "{}", NULL, "b 2",
            "parameter 'b': has 257 added, not a number from -256 to 256");
    refuses("a = plus(-257, b [2])", "{}", NULL, "a 2", "parameter 'b': has -257 added");
    refuses("a = plus(1, concat(0, b [1], plus(2, c [1])))", "{}", NULL, "b 1, c 1",
            "parameter 'b': has a plus inside of a plus");
    /* The direction is not seen by names that both sides have: which of them has more? */
    refuses("a = plus(1, a)\nc.x = plus(1, c.x | d)", "{}", NULL, "a 2, c.x 2",
            "the source has names of neither side of x.rules, training or huggingface");
    refuses("index i = 0 .. 2\na.{i} = plus(1, a.{1 - i})", "{}", NULL, "a.0 2, a.1 2",
            "the source has names of neither side");
    refuses("a = groups(2, 0, plus(1, b [4 * 2]), cast(float32, same, c [4]))", "{}", NULL,
            "b 8, c 4", "is cut in 2 groups, and no part's size has that for its first factor");
    makes("a = plus(1, a)\nb = c", "{}", NULL, "a 2, c 2", "a 2, b 2");
}

/* A key of the config that comes twice: programs differ in which one counts. */
static void test_keys_twice(void **ctx)
{
    static const char rules[] = "a = b [config.n]";
    static const char *const twice[] = {
        "{\"n\": 2, \"n\": 3}",     "{\"n\": 3, \"m\": 1, \"n\": 2}", "{\"n\": 2, \"n\": null}",
        "{\"n\": 2, \"n\": \"2\"}", "{\"n\": {\"m\": 1}, \"n\": 2}",  "{\"n\": [2], \"n\": [2]}",
    };

    (void)ctx;
    makes(rules, "{\"n\": 2, \"n\": 2, \"n\": 2.0}", NULL, "b 2", "a 2");
    makes("if config.n is x\na = b\nend", "{\"n\": \"x\", \"n\": \"x\"}", NULL, "b 2", "a 2");
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++)
        refuses(rules, twice[i], NULL, "b 2",
                "config.json: has the key 'n' twice, with different values; try: one of them only");
    refuses(rules, "{\"n\": 2, \"m\": {\"k\": {}, \"k\": {}}}", NULL, "b 2", "the key 'm.k' twice");
    refuses(rules, "{\"n\": 2, \"m\": {\"k\": 1}, \"m.k\": 2}", NULL, "b 2", "the key 'm.k' twice");
}

static void test_pad(void **ctx)
{
    static const char table[] = "option multiple = 4\nlet n = config.n\n"
                                "a = pad(0, n + (multiple - n % multiple) % multiple, b [n, 3])";
    (void)ctx;

    makes(table, "{\"n\": 5}", NULL, "b 5x3", "a 8x3");
    makes(table, "{\"n\": 4}", NULL, "b 4x3", "a 4x3");
    makes(table, "{\"n\": 5}", "multiple=7", "b 5x3", "a 7x3");
    makes(table, "{\"n\": 5}", NULL, "a 5x3", "b 5x3");
    makes(table, "{\"n\": 5}", "multiple=100", "a 999x3", "b 5x3");
    refuses(table, "{\"n\": 5}", NULL, "a 4x3",
            "parameter 'b': is padded to 4 entries along axis 0, and has 5 by itself");
    refuses(table, "{\"n\": 5}", NULL, "a 8x4", "has shape [8, 4], but the rule makes [_, 3]");
    refuses(table, "{\"n\": 5}", NULL, "b 6x3", "has shape [6, 3], but the rule says [n, 3]");
    refuses(table, "{\"n\": 0}", NULL, "b 0x3",
            "parameter 'b': has no entries that could be padded");
    refuses(table, "{\"n\": 5}", "multiple=0", "b 5x3", "5 cannot be divided by 0");
    refuses(table, "{\"n\": 5}", "multiple=x", "b 5x3",
            "convert_options: 'multiple' cannot be 'x'; try: a whole number");
    refuses(table, "{\"n\": 5}", "multiple=1234567890123456789", "b 5x3", "cannot be '1234567890");
    refuses(table, "{\"n\": 5}", "multiple=-4", "b 5x3", "'multiple' cannot be '-4'");
    refuses("option n = 4\nif n is 4\na = b\nend", "{}", NULL, "b 2",
            "'is 4' follows something that has no words");
    refuses("a = pad(0, 3, b [5])", "{}", NULL, "b 5",
            "parameter 'b': has 5 entries along axis 0, more than the 3 that pad makes of them");
    refuses("a = concat(0, c [1], pad(0, 8, b [5]))", "{}", NULL, "b 5, c 1",
            "parameter 'b': has a pad inside of something else");
    refuses("index i = 0 .. 2\nstacked i\na.{i} = pad(0, 8, b.{i} [5])", "{}", NULL, "b.0 5, b.1 5",
            "has a pad inside of something else");
    refuses("a = pad(0, 8, b [_])", "{}", NULL, "a 8",
            "parameter 'b': has a size that neither the rule nor the other tensors give");
    refuses("a = pad(1, 8, b [5])", "{}", NULL, "b 5", "there is no axis 1 of 1");
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

/* One text for several modules, and one for layers that are stacked or numbered. */
static void test_parameters_and_stacks(void **ctx)
{
    static const char twice[] =
        "index k = 0 .. 2\ninclude part.rules with to=a.{k} at=b.{k+3} n=2\n"
        "include part.rules with at=c n=3 to=d";
    static const char layers[] = "index i = 0 .. config.n\noption layers = stacked | numbered\n"
                                 "if layers is stacked\nstacked i\nend\na.{i}.w = b.{i} [3]\n"
                                 "c = d";
    (void)ctx;

    makes(twice, "{}", NULL, "b.3.v 2, b.4.v 2, c.v 3", "a.0.w 2, a.1.w 2, d.w 3");
    makes(layers, "{\"n\": 2}", NULL, "b.0 3, b.1 3, d 1", "a.w 2x3, c 1");
    makes(layers, "{\"n\": 2}", NULL, "a.w 2x3, c 1", "b.0 3, b.1 3, d 1");
    makes(layers, "{\"n\": 2}", "layers=numbered", "b.0 3, b.1 3, d 1", "a.0.w 3, a.1.w 3, c 1");
    makes(layers, "{\"n\": 0}", NULL, "d 1", "c 1");
    refuses(layers, "{\"n\": 2}", NULL, "a.0.w 3, a.1.w 3, c 1",
            "try: convert_options=layers=numbered, by which the rules fit");
    refuses("include part.rules with to=a at=b", "{}", NULL, "b.v 2",
            "part.rules: line 2: the file is not given the parameter 'n'; try: include FILE with");
    refuses("include part.rules with to", "{}", NULL, "b.v 2", "ends where '=' should be");
    refuses("include part.rules with to= at=b", "{}", NULL, "b 2",
            "'at=b' stands where the text of a parameter should be");
    refuses("include part.rules with a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1 "
            "p=1 q=1",
            "{}", NULL, "b 2", "'q=1' stands where the end of the 16 parameters");
    refuses("include part.rules more.rules", "{}", NULL, "b 2", "an include names one file");
    refuses("a.$x = b", "{}", NULL, "b 2", "line 2: the file is not given the parameter 'x'");
    refuses("stacked i", "{}", NULL, "b 2", "'i' is not an index");
    refuses("index i = 0 .. 2\nstacked i\nrows(0, 0, 1, a.{i}) = b.{i} [1]", "{}", NULL,
            "b.0 1, b.1 1", "the index 'i' is stacked, and the left side is not a name alone");
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Files of rules include what is below them. */
static void test_includes_of_files(void **ctx)
{
    static const char *const elsewhere[] = {"../b.rules",       "/b.rules",    "x/../../b.rules",
                                            "s3://x/b.rules",   "hf://a/b/c",  "//host/b.rules",
                                            "http://h/b.rules", "https://h/b", ".."};
    char folder[] = "/tmp/reshardfs-rules-XXXXXX", path[64], part[64], text[128];
    struct rfs_rules *rules = NULL;
    struct rfs_error err;

    (void)ctx;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.rules", folder);
    snprintf(part, sizeof part, "%s/part.rules", folder);
    write_file(part, "a = b\n");
    write_file(path, "sides mindformers huggingface\ninclude part.rules\n");
    if (rfs_rules_open(NULL, path, &rules, &err))
        fail_msg("%s", err.text);
    rfs_rules_free(rules);
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        snprintf(text, sizeof text, "include %s\n", elsewhere[i]);
        write_file(path, text);
        assert_int_equal(rfs_rules_open(NULL, path, &rules, &err), -EINVAL);
        snprintf(text, sizeof text, "it includes '%s', which is not below its own folder",
                 elsewhere[i]);
        assert_non_null(strstr(err.text, text));
    }
    unlink(part);
    unlink(path);
    rmdir(folder);
}

static void test_mistakes_in_the_text(void **ctx)
{
    static const char *const wrong[][2] = {
        {"a", "x.rules: line 2: the statement ends where '=' should be"},
        {"\n\na = concat(0, b", "line 4: the statement ends where ')' should be"},
        {"a = merge(0, b, c)",
         "'merge(0, b, c)' stands where concat, groups, parts, stack, transpose, "},
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
        {"hint x\nif 1\na = b\nend", "line 3: a hint stands before this, and not before a rule"},
        {"hint x\nkeep b", "a hint stands before this, and not before a rule, models, let, index"},
        {"a = b\nhint x", "a hint stands before this"},
        {"hint x\nhint y\na = b", "line 3: a hint stands before this"},
        {"hint\na = b", "line 2: a hint has 1 to 300 characters, not 0"},
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
        cmocka_unit_test(test_all_errors),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_alternatives),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_names_of_the_source),
        cmocka_unit_test(test_kept_scales),
        cmocka_unit_test(test_rows_of_rows),
        cmocka_unit_test(test_rows_and_casts),
        cmocka_unit_test(test_keys_twice),
        cmocka_unit_test(test_plus),
        cmocka_unit_test(test_pad),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_parameters_and_stacks),
        cmocka_unit_test(test_includes_of_files),
        cmocka_unit_test(test_mistakes_in_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
