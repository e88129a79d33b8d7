/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void put(struct text *text, const void *bytes, size_t n)
{
    if (text->n + n + 1 > text->cap) {
        text->cap = (text->n + n + 1) * 2;
        text->data = realloc(text->data, text->cap);
        assert_non_null(text->data);
    }
    if (n > 0)
        memcpy(text->data + text->n, bytes, n);
    text->n += n;
    text->data[text->n] = '\0';
}

void putf(struct text *text, const char *fmt, ...)
{
    char line[1024];
    va_list args;

    va_start(args, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    assert_in_range(n, 0, sizeof line - 1);
    put(text, line, (size_t)n);
}

void put_varint(struct text *text, uint64_t value)
{
    for (;;) {
        const unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(text, &byte, 1);
        value >>= 7;
        if (value == 0)
            return;
    }
}

void put_field(struct text *text, unsigned number, const struct text *content)
{
    put_varint(text, number << 3 | 2);
    put_varint(text, content->n);
    put(text, content->data, content->n);
}

void put_number(struct text *text, unsigned number, int64_t value)
{
    put_varint(text, number << 3);
    put_varint(text, (uint64_t)value);
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

bool is_nested(const struct spec *spec)
{
    for (uint32_t i = 0; i < spec->ndim; i++)
        if (spec->axis[i].n > 1)
            return true;
    return false;
}

static void put_map(struct text *layouts, const struct spec *spec)
{
    struct text map = {0};
    const bool nested = is_nested(spec);

    for (uint32_t i = 0; i < spec->ndim; i++) {
        if (spec->axis[i].n == 0)
            put_number(&map, 1, -1);
        for (uint32_t k = 0; k < spec->axis[i].n; k++)
            put_number(&map, 1, spec->axis[i].by[k]);
        if (nested) {
            put_field(layouts, 2, &map);
            map.n = 0;
        }
    }
    /* For a nested map of one axis this is the extra empty entry. */
    if (!nested || spec->ndim == 1)
        put_field(layouts, 2, &map);
    text_free(&map);
}

void write_protobuf(struct text *out, const struct spec *specs, size_t n)
{
    put_number(out, 1, 2);
    for (size_t k = 0; k < n; k++) {
        struct text layouts = {0}, dev = {0}, item = {0}, empty = {0}, name = {0};
        for (uint32_t i = 0; i < specs[k].n_dev; i++)
            put_number(&dev, 1, specs[k].dev[i]);
        put_field(&layouts, 1, &dev);
        put_map(&layouts, &specs[k]);
        put_field(&layouts, 3, &empty);
        put_field(&layouts, 4, &empty);
        put_number(&layouts, 5, 0);
        put_number(&layouts, 6, specs[k].step);
        put_number(&layouts, 7, specs[k].size);
        put(&name, specs[k].name, strlen(specs[k].name));
        put_field(&item, 1, &name);
        put_field(&item, 2, &layouts);
        put_field(out, 3, &item);
        text_free(&layouts);
        text_free(&dev);
        text_free(&item);
        text_free(&name);
    }
}

static void put_flattened(struct text *map, struct text *shape, const struct spec *spec)
{
    for (uint32_t i = 0; i < spec->ndim; i++) {
        uint64_t left = spec->shape[i];
        for (uint32_t k = 0; k + 1 < spec->axis[i].n; k++) {
            const uint32_t extent = spec->dev[spec->n_dev - 1 - (uint32_t)spec->axis[i].by[k]];
            putf(map, "%s%d", map->n > 0 ? "," : "", spec->axis[i].by[k]);
            putf(shape, "%s%u", shape->n > 0 ? "," : "", extent);
            left /= extent;
        }
        putf(map, "%s%d", map->n > 0 ? "," : "",
             spec->axis[i].n > 0 ? spec->axis[i].by[spec->axis[i].n - 1] : -1);
        putf(shape, "%s%" PRIu64, shape->n > 0 ? "," : "", left);
    }
    put(map, "", 0);
    put(shape, "", 0);
}

void write_json(struct text *out, const struct spec *specs, size_t n)
{
    putf(out, "{\"current_stage\":2,\"parallel_layout_item\":{");
    for (size_t k = 0; k < n; k++) {
        struct text map = {0}, shape = {0};
        put_flattened(&map, &shape, &specs[k]);
        putf(out, "%s\"%s\":{\"dev_matrix\":[", k > 0 ? "," : "", specs[k].name);
        for (uint32_t i = 0; i < specs[k].n_dev; i++)
            putf(out, "%s%u", i > 0 ? "," : "", specs[k].dev[i]);
        putf(out, "],\"field\":0,\"opt_weight_shard_size\":%d,\"opt_weight_shard_step\":%d",
             specs[k].size, specs[k].step);
        putf(out, ",\"tensor_map\":[%s],\"tensor_shape\":[%s]}", map.data, shape.data);
        text_free(&map);
        text_free(&shape);
    }
    putf(out, "}}");
}

struct text read_fixture(const char *name)
{
    const char *top = getenv("top_srcdir");
    struct text path = {0}, content = {0};
    char block[4096];
    size_t n;

    putf(&path, "%s/tests/fixtures/%s", top != NULL ? top : ".", name);
    FILE *file = fopen(path.data, "rb");
    if (file == NULL) {
        fail_msg("%s: %s", path.data, strerror(errno));
        return content;
    }
    while ((n = fread(block, 1, sizeof block, file)) > 0)
        put(&content, block, n);
    assert_false(ferror(file));
    fclose(file);
    text_free(&path);
    return content;
}

struct rfs_strategy *parse_text(const char *name, const struct text *text)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};

    if (rfs_strategy_parse(name, text->data, text->n, &strategy, &err) != 0)
        fail_msg("%s", err.text);
    assert_non_null(strategy);
    return strategy;
}

struct rfs_strategy *parse_fixture(const char *name)
{
    struct text text = read_fixture(name);
    struct rfs_strategy *strategy = parse_text(name, &text);

    text_free(&text);
    return strategy;
}

void expect_refused(const char *name, const void *data, size_t size, const char *what)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};

    assert_int_equal(rfs_strategy_parse(name, data, size, &strategy, &err), -EINVAL);
    assert_null(strategy);
    assert_int_equal(err.code, -EINVAL);
    if (strstr(err.text, what) == NULL || strncmp(err.text, name, strlen(name)) != 0 ||
        strchr(err.text, '\n') != NULL)
        fail_msg("wanted \"%s … %s\", got \"%s\"", name, what, err.text);
    /* Nothing depends on somebody wanting to know. */
    assert_int_equal(rfs_strategy_parse(name, data, size, &strategy, NULL), -EINVAL);
}

void assert_same_layout(const struct rfs_layout *a, const struct rfs_layout *b)
{
    assert_int_equal(a->n_dev, b->n_dev);
    assert_memory_equal(a->dev, b->dev, sizeof a->dev);
    assert_int_equal(a->devices, b->devices);
    assert_int_equal(a->n_axes, b->n_axes);
    assert_memory_equal(a->start, b->start, sizeof a->start);
    assert_memory_equal(a->map, b->map, sizeof a->map);
    assert_int_equal(a->opt_step, b->opt_step);
    assert_int_equal(a->opt_size, b->opt_size);
    assert_int_equal(a->n_edges, b->n_edges);
    if (a->n_edges > 0)
        assert_memory_equal(a->edge, b->edge, a->n_edges * sizeof *a->edge);
    assert_int_equal(a->field, b->field);
    assert_int_equal(a->unclear, b->unclear);
}

static uint64_t state;

void seed_random(void)
{
    const char *given = getenv("RFS_SEED");
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    state = given != NULL ? strtoull(given, NULL, 0)
                          : (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
    printf("RFS_SEED=%" PRIu64 "\n", state);
}

/* splitmix64 */
uint32_t below(uint32_t limit)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) >> 32) % limit;
}
