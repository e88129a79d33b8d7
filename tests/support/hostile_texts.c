/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void text(struct bytes *out, const char *what)
{
    bytes_add(out, what, strlen(what));
}

void hostile_make(const struct hostile *hostile, struct bytes *out, size_t n)
{
    if (hostile->make) {
        hostile->make(out, n);
        return;
    }
    text(out, hostile->head);
    while (out->n < n)
        text(out, hostile->again);
    text(out, hostile->tail);
}

/* A row of a list: what is repeated. */
#define REPEATED(name, head, again, tail)                                                          \
    {                                                                                              \
        name, NULL, head, again, tail                                                              \
    }
#define MADE(name, make)                                                                           \
    {                                                                                              \
        name, make, NULL, NULL, NULL                                                               \
    }
#define END MADE(NULL, NULL)

static void letters(struct bytes *out, size_t n)
{
    char *many = malloc(n);

    if (!many)
        abort();
    memset(many, 'k', n);
    bytes_add(out, many, n);
    free(many);
}

/* ---- maps ------------------------------------------------------------------------------------ */

static void many_pairs(struct bytes *out, size_t n)
{
    char pair[40];

    for (unsigned i = 0; out->n < n; i++) {
        snprintf(pair, sizeof pair, "%s\"%x\":\"\"", i ? "," : "{", i);
        text(out, pair);
    }
    text(out, "}");
}

static void long_key(struct bytes *out, size_t n)
{
    text(out, "{\"");
    letters(out, n);
    text(out, "\":\"\"}");
}

const struct hostile hostile_maps[] = {
    MADE("many pairs", many_pairs),
    REPEATED("one key", "{\"a\":\"\"", ",\"a\":\"\"", "}"),
    MADE("a long key", long_key),
    REPEATED("escapes", "{\"", "\\n", "\":\"\"}"),
    REPEATED("numbers", "{\"weight_map\":{},\"metadata\":[1", ",1", "]}"),
    REPEATED("nested", "", "[", ""),
    END,
};

/* ---- metadata.json of Checkpoint 2.0 --------------------------------------------------------- */

#define TENSOR_OF(shape, cuts, chunks)                                                             \
    "{\"properties\":{\"dtype\":\"Int8\"},\"global_shape\":[" shape                                \
    "],\"axis_fragmentations\":[" cuts "],\"layout\":{\"device_matrix\":[" cuts                    \
    "],\"tensor_map\":[0],\"rank_list\":[0]},\"chunk\":[" chunks "]}"
#define WHOLE(number) "{\"global_offset\":[0],\"local_shape\":[" number "]}"
#define HEAD "{\"state_dict_metadata\":{"
#define MIDDLE "},\"storage_data\":{"

/* No two of a shape. */
static void many_tensors(struct bytes *out, size_t n)
{
    char item[400];
    unsigned count = 0;

    for (text(out, HEAD); out->n < n / 4 * 3; count++) {
        snprintf(item, sizeof item, "%s\"%x\":" TENSOR_OF("%u", "1", WHOLE("%u")), count ? "," : "",
                 count, count + 1, count + 1);
        text(out, item);
    }
    text(out, MIDDLE);
    for (unsigned i = 0; i < count; i++) {
        snprintf(item, sizeof item, "%s\"('%x', (0,))\":[{\"file_name\":\"a\",\"storage_rank\":0}]",
                 i ? "," : "", i);
        text(out, item);
    }
    text(out, "}}");
}

/* Each is in a file that is not there. */
static void many_slices(struct bytes *out, size_t n)
{
    const unsigned count = (unsigned)(n / 130);
    char item[400];

    snprintf(item, sizeof item, HEAD "\"w\":" TENSOR_OF("%u", "%u", ""), count, count, count);
    item[strlen(item) - 2] = '\0';
    text(out, item);
    for (unsigned i = 0; i < count; i++) {
        snprintf(item, sizeof item, "%s{\"global_offset\":[%u],\"local_shape\":[1]}", i ? "," : "",
                 i);
        text(out, item);
    }
    text(out, "]}" MIDDLE);
    for (unsigned i = 0; i < count; i++) {
        snprintf(item, sizeof item,
                 "%s\"('w', (%u,))\":[{\"file_name\":\"a\",\"storage_rank\":1},"
                 "{\"file_name\":\"%x\",\"storage_rank\":0}]",
                 i ? "," : "", i, i);
        text(out, item);
    }
    text(out, "}}");
}

#define HELD "\"('w', (0,))\":[{\"file_name\":\"a\",\"storage_rank\":0,\"rank_group\":["

static void many_stages(struct bytes *out, size_t n)
{
    char item[20];

    text(out, HEAD "\"w\":" TENSOR_OF("4", "1", WHOLE("4")) MIDDLE HELD "0");
    for (unsigned i = 1; out->n < n && i < 1 << 20; i++) {
        snprintf(item, sizeof item, ",%u", i);
        text(out, item);
    }
    while (out->n < n)
        text(out, ",0");
    text(out, "]}]}}");
}

#define COPY "{\"file_name\":\"a\",\"storage_rank\":0}"

const struct hostile hostile_metadata[] = {
    MADE("many tensors", many_tensors),
    MADE("many slices", many_slices),
    REPEATED("one tensor", HEAD "\"w\":" TENSOR_OF("4", "1", WHOLE("4")),
             ",\"w\":" TENSOR_OF("4", "1", WHOLE("4")), MIDDLE "}}"),
    REPEATED("one slice", HEAD "\"w\":{\"chunk\":[" WHOLE("4"), "," WHOLE("4"), "]}" MIDDLE "}}"),
    REPEATED("copies of a slice",
             HEAD "\"w\":" TENSOR_OF("4", "1", WHOLE("4")) MIDDLE "\"('w', (0,))\":[" COPY,
             "," COPY, "]}}"),
    REPEATED("ranks of a slice", HEAD "\"w\":" TENSOR_OF("4", "1", WHOLE("4")) MIDDLE HELD "0",
             ",0", "]}]}}"),
    MADE("ranks of many stages", many_stages),
    REPEATED("a long shape", HEAD "\"w\":{\"global_shape\":[1", ",1", "]}" MIDDLE "}}"),
    REPEATED("a list of ranks", HEAD "\"w\":{\"layout\":{\"rank_list\":[0", ", 1",
             "]}}" MIDDLE "}}"),
    REPEATED("a long name", HEAD "\"w", "ww", "\":{}" MIDDLE "}}"),
    REPEATED("storage first", "{\"storage_data\":{\"x\":[0", ",0",
             "]},\"state_dict_metadata\":{}}"),
    REPEATED("nested", HEAD "\"w\":{\"x\":", "[", ""),
    END,
};

/* ---- strategies in JSON ---------------------------------------------------------------------- */

#define LAYOUT                                                                                     \
    "{\"dev_matrix\":[2],\"tensor_map\":[0],\"field\":0,\"opt_weight_shard_step\":0,"              \
    "\"opt_weight_shard_size\":0}"

/* Each layout is written in another way. */
static void many_texts(struct bytes *out, size_t n)
{
    char item[400];

    for (unsigned i = 0; out->n < n; i++) {
        snprintf(item, sizeof item, "%s\"%x\":{\"%x\":0,%s",
                 i ? "," : "{\"parallel_layout_item\":{", i, i, &LAYOUT[1]);
        text(out, item);
    }
    text(out, "}}");
}

const struct hostile hostile_json[] = {
    REPEATED("a long device matrix", "{\"parallel_layout_item\":{\"w\":{\"dev_matrix\":[1", ",1",
             "]}}}"),
    REPEATED("strategies of an operator",
             "{\"parallel_strategy_item\":{\"a\":{\"stage\":0,\"parallel_strategy\":[[]", ",[]",
             "]}}}"),
    REPEATED("one operator", "{\"parallel_strategy_item\":{\"a\":0", ",\"a\":0", "}}"),
    MADE("many texts of one layout", many_texts),
    REPEATED("one parameter", "{\"parallel_layout_item\":{\"w\":" LAYOUT, ",\"w\":" LAYOUT, "}}"),
    REPEATED("other members", "{\"a\":{\"b\":0", ",\"c\":{}", "}}"),
    MADE("a long name", long_key),
    REPEATED("nested", "", "[", ""),
    END,
};

/* ---- protobuf -------------------------------------------------------------------------------- */

static void field(struct bytes *out, unsigned number, const struct bytes *inside)
{
    bytes_varint(out, number << 3 | 2);
    bytes_varint(out, inside->n);
    if (inside->n > 0)
        bytes_add(out, inside->data, inside->n);
}

/* A strategy with a layout that begins with ONE, as often as fits. */
static void layout_of(struct bytes *out, size_t n, const char *one, size_t n_one)
{
    struct bytes layouts = {0}, item = {0};

    while (layouts.n < n)
        bytes_add(&layouts, one, n_one);
    bytes_add(&layouts, "\x28\0\x30\0\x38\0", 6);
    bytes_add(&item, "\x0a\1w", 3);
    field(&item, 2, &layouts);
    bytes_add(out, "\x08\1", 2);
    field(out, 3, &item);
    bytes_free(&layouts);
    bytes_free(&item);
}

static void empty_maps(struct bytes *out, size_t n)
{
    layout_of(out, n, "\x12\0", 2);
}

static void empty_matrices(struct bytes *out, size_t n)
{
    layout_of(out, n, "\x0a\0", 2);
}

static void unknown_fields(struct bytes *out, size_t n)
{
    layout_of(out, n, "\x78\0", 2);
}

static void empty_strategies(struct bytes *out, size_t n)
{
    struct bytes all = {0}, item = {0};

    bytes_add(&all, "\x08\0", 2);
    while (all.n < n)
        bytes_add(&all, "\x12\0", 2);
    bytes_add(&item, "\x0a\1n", 3);
    field(&item, 2, &all);
    bytes_add(out, "\x08\1", 2);
    field(out, 2, &item);
    bytes_free(&all);
    bytes_free(&item);
}

static void empty_items(struct bytes *out, size_t n)
{
    bytes_add(out, "\x08\1", 2);
    while (out->n < n)
        bytes_add(out, "\x12\6\x0a\0\x12\2\x08\0", 8);
}

const struct hostile hostile_protobuf[] = {
    MADE("empty tensor maps", empty_maps),        MADE("empty device matrices", empty_matrices),
    MADE("unknown fields", unknown_fields),       MADE("empty strategies", empty_strategies),
    MADE("operators without names", empty_items), END,
};

static void empty_groups(struct bytes *out, size_t n)
{
    while (out->n < n)
        bytes_add(out, "\x0a\4\x0a\0\x12\0", 6);
    bytes_add(out, "\x12\0", 2);
}

static void one_rank(struct bytes *out, size_t n)
{
    struct bytes list = {0};

    while (list.n < n)
        bytes_add(&list, "\x08\7", 2);
    field(out, 2, &list);
    bytes_free(&list);
}

const struct hostile hostile_groups[] = {
    MADE("empty groups", empty_groups),
    MADE("one rank", one_rank),
    END,
};

/* ---- lists of objects ------------------------------------------------------------------------ */

#define OBJECT(key)                                                                                \
    "<Contents><Key>" key "</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified>"            \
    "<ETag>&quot;abc&quot;</ETag><Size>1</Size></Contents>"
#define PAGE "<IsTruncated>false</IsTruncated>"

static void long_object(struct bytes *out, size_t n)
{
    text(out, PAGE "<Contents><Key>run/");
    letters(out, n);
    text(out, "</Key></Contents>");
}

const struct hostile hostile_pages[] = {
    REPEATED("keys", PAGE, OBJECT("run/a"), ""),
    REPEATED("folders", PAGE, OBJECT("run/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/"), ""),
    MADE("a long key", long_object),
    REPEATED("entities", PAGE "<Contents><Key>run/", "&amp;", "</Key></Contents>"),
    REPEATED("objects without an end", PAGE, "<Contents>", ""),
    REPEATED("objects in an object", PAGE, "<Contents>", "</Contents>"),
    REPEATED("keys without an end", PAGE "<Contents>", "<Key>", "</Contents>"),
    REPEATED("many brackets", PAGE "<Contents>", "<", "</Contents>"),
    REPEATED("no end of the list", "", "<IsTruncated>", ""),
    END,
};

static void long_link(struct bytes *out, size_t n)
{
    text(out, "<a href=\"");
    letters(out, n);
    text(out, "\">");
}

const struct hostile hostile_links[] = {
    REPEATED("links", "", "<a href='a'>", ""),
    MADE("a long link", long_link),
    REPEATED("one tag of many", "", "<a ", ">"),
    REPEATED("one tag of many links", "", "<a href='", ">"),
    REPEATED("tags without an end", "", "<a ", ""),
    REPEATED("tags without a link", "", "<a >", ""),
    REPEATED("links without a quote", "", "<a href=a>", ""),
    REPEATED("links in one tag", "<a ", "href=", ">"),
    REPEATED("entities", "<a href='", "&amp;", "'>"),
    REPEATED("brackets", "", "<", ">"),
    END,
};

const struct hostile hostile_lists[] = {
    REPEATED("names", "[\"a\"", ",\"a\"", "]"),
    REPEATED("objects", "[{\"name\":\"a\"}", ",{\"name\":\"a\"}", "]"),
    REPEATED("names of one object", "[{\"name\":\"a\"", ",\"name\":\"a\"", "}]"),
    REPEATED("escapes", "[\"", "\\n", "\"]"),
    REPEATED("nested", "", "[", ""),
    REPEATED("nested objects", "", "[{\"x\":", ""),
    END,
};
