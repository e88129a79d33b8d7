/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy documents written as JSON; read_json.c draws the format. */
#include "base/cleanup.h"
#include "base/text.h"
#include "layout/builder.h"
#include "layout/document.h"

/* Text being written, in one of two styles. */
struct text {
    FILE *out;
    const char *comma, *colon;
    bool ascii; /* as Python writes, else UTF-8 as it is */
};

static void put_unit(const struct text *text, uint32_t unit)
{
    fprintf(text->out, "\\u%04" PRIx32, unit);
}

/* The character at *AT, which is well-formed UTF-8. */
static uint32_t decode(const unsigned char **at)
{
    const unsigned char first = *(*at)++;
    const unsigned more = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    uint32_t c = more == 0 ? first : first & (0x3fu >> more);

    for (unsigned i = 0; i < more && **at; i++)
        c = c << 6 | (*(*at)++ & 0x3fu);
    return c;
}

static void put_character(const struct text *text, uint32_t c)
{
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *escape = c < 0x80 && c > 0 ? strchr(from, (int)c) : NULL;

    if (escape)
        fprintf(text->out, "\\%c", to[escape - from]);
    else if (c >= 0x10000) {
        put_unit(text, 0xd800 + ((c - 0x10000) >> 10));
        put_unit(text, 0xdc00 + ((c - 0x10000) & 0x3ff));
    } else if (c < 0x20 || c >= 0x7f)
        put_unit(text, c);
    else
        fputc((int)c, text->out);
}

static void put_string(const struct text *text, const char *string)
{
    const unsigned char *at = (const unsigned char *)string;

    fputc('"', text->out);
    while (*at) {
        const unsigned char *begin = at;
        const uint32_t c = decode(&at);
        /* Python escapes DEL no more than the compiler does. */
        if ((c >= 0x80 && !text->ascii) || c == 0x7f)
            fwrite(begin, 1, (size_t)(at - begin), text->out);
        else
            put_character(text, c);
    }
    fputc('"', text->out);
}

static void put_key(const struct text *text, const char *key, bool first)
{
    fputs(first ? "" : text->comma, text->out);
    put_string(text, key);
    fputs(text->colon, text->out);
}

static void put_numbers(const struct text *text, const int64_t *numbers, size_t n)
{
    fputc('[', text->out);
    for (size_t i = 0; i < n; i++)
        fprintf(text->out, "%s%" PRId64, i > 0 ? text->comma : "", numbers[i]);
    fputc(']', text->out);
}

/* A member that is a list of N numbers of any type. */
#define PUT_LIST(text, key, first, list, n)                                                        \
    do {                                                                                           \
        int64_t numbers[RFS_MAX_CUTS];                                                             \
        for (uint32_t list_i = 0; list_i < (n); list_i++)                                          \
            numbers[list_i] = (int64_t)(list)[list_i];                                             \
        put_key(text, key, first);                                                                 \
        put_numbers(text, numbers, n);                                                             \
    } while (0)

/* A member that is one, and is only there when it is not empty. */
static void put_pooled(const struct text *text, const char *key, struct rfs_doc_numbers numbers)
{
    if (numbers.n == 0)
        return;
    put_key(text, key, false);
    put_numbers(text, numbers.data, numbers.n);
}

static void put_number(const struct text *text, const char *key, int64_t number)
{
    put_key(text, key, false);
    fprintf(text->out, "%" PRId64, number);
}

/* Members in the order of their names, which is the compiler's. */
static void put_param(const struct text *text, const struct rfs_strategy_doc *doc, uint32_t value)
{
    const struct rfs_doc_layout *param = rfs_intern_bytes(doc->pool, value, NULL);
    const struct rfs_layout *layout = &param->layout;

    fputc('{', text->out);
    PUT_LIST(text, "dev_matrix", true, layout->dev, layout->n_dev);
    put_number(text, "field", param->field);
    put_pooled(text, "indices_offset", rfs_strategy_doc_numbers(doc, param->offsets));
    put_number(text, "opt_weight_shard_size", param->opt_size);
    put_number(text, "opt_weight_shard_step", param->opt_step);
    put_pooled(text, "param_split_shape", rfs_strategy_doc_numbers(doc, param->split));
    PUT_LIST(text, "tensor_map", false, layout->map, rfs_layout_cuts(layout));
    if (param->has_shape)
        PUT_LIST(text, "tensor_shape", false, layout->expanded, layout->n_expanded);
    fputc('}', text->out);
}

static void put_node(const struct text *text, const struct rfs_strategy_doc *doc, uint32_t value)
{
    const struct rfs_doc_numbers numbers = rfs_strategy_doc_numbers(doc, value);

    fputc('{', text->out);
    put_key(text, "parallel_strategy", true);
    fputc('[', text->out);
    for (size_t at = 2; at < numbers.n; at += 1 + (size_t)numbers.data[at]) {
        fputs(at > 2 ? text->comma : "", text->out);
        put_numbers(text, numbers.data + at + 1, (size_t)numbers.data[at]);
    }
    fputc(']', text->out);
    put_number(text, "stage", numbers.data[0]);
    fputc('}', text->out);
}

static int by_name(const void *a, const void *b, void *pool)
{
    const struct rfs_doc_item *x = a;
    const struct rfs_doc_item *y = b;

    return strcmp(rfs_intern_text(pool, x->name), rfs_intern_text(pool, y->name));
}

static int put_items(const struct text *text, const struct rfs_strategy_doc *doc, bool nodes,
                     bool sorted, struct rfs_error *err)
{
    const struct rfs_doc_items *all = nodes ? &doc->nodes : &doc->params;
    RFS_FREE struct rfs_doc_item *copy = malloc((all->n + 1) * sizeof *copy);
    struct rfs_doc_items items = {copy, all->n, all->n};

    if (copy && all->n > 0)
        memcpy(copy, all->data, all->n * sizeof *copy);
    if (!copy || !rfs_strategy_doc_once(doc, &items))
        return rfs_fail_memory(err);
    if (sorted)
        qsort_r(copy, items.n, sizeof *copy, by_name, doc->pool);
    put_key(text, nodes ? "parallel_strategy_item" : "parallel_layout_item", false);
    fputc('{', text->out);
    for (size_t i = 0; i < items.n; i++) {
        put_key(text, rfs_intern_text(doc->pool, copy[i].name), i == 0);
        (nodes ? put_node : put_param)(text, doc, copy[i].value);
    }
    fputc('}', text->out);
    return 0;
}

static int check_names(const struct rfs_strategy_doc *doc, const struct rfs_doc_items *items,
                       struct rfs_error *err)
{
    for (size_t i = 0; i < items->n; i++) {
        const char *name = rfs_intern_text(doc->pool, items->data[i].name);
        if (!rfs_text_is_utf8(name, strlen(name)))
            return rfs_fail(err, -EINVAL, RFS_OF(doc->name, name),
                            "a protobuf file, which holds any name",
                            "its name is not UTF-8, so JSON cannot hold it");
    }
    return 0;
}

static int check_nesting(const struct rfs_strategy_doc *doc, struct rfs_error *err)
{
    for (size_t i = 0; i < doc->params.n; i++) {
        const struct rfs_doc_layout *layout = rfs_strategy_doc_layout(doc, i);
        if (rfs_doc_is_nested(layout) && !layout->has_shape)
            return rfs_fail(err, -EINVAL, RFS_OF(doc->name, rfs_strategy_doc_param(doc, i)),
                            "--tree SRC with the checkpoint, which has it",
                            "several device axes cut one of its axes: JSON then needs the tensor's "
                            "shape, and protobuf does not have it");
    }
    return 0;
}

int rfs_strategy_doc_json(const struct rfs_strategy_doc *doc, bool merged, char **data,
                          size_t *size, struct rfs_error *err)
{
    struct text text = {NULL, merged ? ", " : ",", merged ? ": " : ":", merged};
    int rc = check_names(doc, &doc->params, err);

    *data = NULL;
    if (rc == 0)
        rc = check_names(doc, &doc->nodes, err);
    if (rc == 0)
        rc = check_nesting(doc, err);
    if (rc)
        return rc;
    text.out = open_memstream(data, size);
    if (!text.out)
        return rfs_fail_memory(err);
    fputc('{', text.out);
    put_key(&text, "current_stage", true);
    fprintf(text.out, "%" PRId64, doc->current_stage);
    rc =
        put_items(&text, doc, merged, !merged, err) ?: put_items(&text, doc, !merged, !merged, err);
    fputc('}', text.out);
    const bool failed = ferror(text.out) != 0;
    if (fclose(text.out) != 0 || failed)
        rc = rc ? rc : rfs_fail_memory(err);
    if (rc) {
        free(*data);
        *data = NULL;
    }
    return rc;
}
