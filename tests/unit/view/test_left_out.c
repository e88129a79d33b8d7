/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What names=, only= and drop= leave out changes nothing else: small pipelines, and random worlds
 * (plan/world.h) with and without them, in every format. What is expected with them is the file
 * without, from which something is taken.
 */
#include "tests/unit/plan/world.h"
#include "tests/unit/view/support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORLDS 150

static void fixture_begin(struct fixture *f)
{
    *f = (struct fixture){.root = tree_new()};
}

static void fixture_end(struct fixture *f)
{
    reshard_close(f->view);
    tree_remove(f->root);
}

static int open_source(struct fixture *f, const char *source, const char *options)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};

    reshard_close(f->view);
    f->view = NULL;
    f->err = (reshard_error){.struct_size = sizeof f->err};
    return reshard_open(tree_path(f->root, source), &config, &f->view, &f->err);
}

/* Reads the file of that id; -errno, as stat gives it. */
static int read_id(struct fixture *f, uint64_t id, struct bytes *out)
{
    reshard_stat st = {.struct_size = sizeof st};
    const int rc = reshard_getattr(f->view, id, &st, &f->err);

    *out = (struct bytes){0};
    if (rc)
        return rc;
    out->data = malloc(st.size + 1);
    assert_non_null(out->data);
    out->n = st.size;
    assert_int_equal(reshard_pread(f->view, id, out->data, st.size + 1, 0), st.size);
    return 0;
}

static void expect_same(const struct bytes *a, const struct bytes *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->data, b->data, a->n);
}

/* ---- small pipelines ------------------------------------------------------------------------- */

#define WHOLE(name) LAYOUT(name, "[1]", "[-1]", "[2]")

static void add_value(struct bytes *file, const char *name, const char *content)
{
    ckpt_tensor(file, name, "Int8", 1, (uint64_t[]){2}, content, 2);
}

static void write_rank(struct fixture *f, const char *path, const char *const *values)
{
    struct bytes file = {0};

    for (; *values; values += 2)
        add_value(&file, values[0], values[1]);
    tree_write(f->root, path, file.data, file.n);
    bytes_free(&file);
}

/* Opens a view in place of the one before. */
static int reopen(struct fixture *f, const char *options)
{
    reshard_close(f->view);
    f->view = NULL;
    return open_with(f, options);
}

/* Rank 0's file under these strategies and options has VALUES: name, content, name, … */
static void expect_values_by(struct fixture *f, const char *options, const char *const *values)
{
    struct bytes want = {0};

    if (reopen(f, options))
        fail_msg("%s", f->err.message);
    for (; *values; values += 2)
        add_value(&want, values[0], values[1]);
    expect_file(f, 0, &want);
    bytes_free(&want);
}

/* Rank 0's file has them with this map. */
static void expect_values(struct fixture *f, const char *const *values)
{
    char options[1024];

    snprintf(options, sizeof options, "names=%s", tree_path(f->root, "map.json"));
    expect_values_by(f, options, values);
}

static void write_map(struct fixture *f, const char *json)
{
    tree_write(f->root, "map.json", json, strlen(json));
}

/* A pipeline of two stages, with nothing of the first but what no strategy knows. */
static void test_a_stage_of_which_all_is_left_out(void **state)
{
    struct fixture f;
    (void)state;

    fixture_begin(&f);
    write_rank(&f, "src/rank_0/net.ckpt",
               (const char *const[]){"a", "aa", "only", "oo", "steps", "00", NULL});
    write_rank(&f, "src/rank_1/net.ckpt", (const char *const[]){"b", "bb", "steps", "11", NULL});
    write_strategy(f.root, "src.json", WHOLE("0-a") ", " WHOLE("1-b"));
    write_strategy(f.root, "dst.json", WHOLE("a") ", " WHOLE("b"));
    write_map(&f, "{\"a\": null}");
    expect_values(&f, (const char *const[]){"b", "bb", "steps", "00", "only", "oo", NULL});
    fixture_end(&f);
}

/*
 * "b" is in the source alone, so the destination is not one of several stages, whether it is left
 * out or not.
 */
static void test_no_part(void **state)
{
    struct fixture f;
    (void)state;

    fixture_begin(&f);
    write_rank(&f, "src/rank_0/net.ckpt", (const char *const[]){"a", "aa", "b", "bb", NULL});
    write_strategy(f.root, "src.json", WHOLE("a") ", " WHOLE("b"));
    write_strategy(f.root, "dst.json", WHOLE("a") ", " WHOLE("c"));
    write_map(&f, "{\"b\": null}");
    expect_values(&f, (const char *const[]){"a", "aa", NULL});
    fixture_end(&f);
}

/*
 * The two ranks list the same in another order, and rank 1's counts only where something is read of
 * it.
 */
static void test_order(void **state)
{
    struct fixture f;
    (void)state;

    fixture_begin(&f);
    write_rank(&f, "src/rank_0/net.ckpt",
               (const char *const[]){"a", "aa", "b", "bb", "c", "cc", NULL});
    write_rank(&f, "src/rank_1/net.ckpt",
               (const char *const[]){"c", "CC", "b", "BB", "a", "AA", NULL});
    write_strategy(f.root, "src.json",
                   LAYOUT("a", "[2]", "[-1]", "[2]") ", " LAYOUT(
                       "b", "[2]", "[-1]", "[2]") ", " LAYOUT("c", "[2]", "[0]", "[4]"));
    write_strategy(f.root, "dst.json",
                   WHOLE("a") ", " WHOLE("b") ", " LAYOUT("c", "[1]", "[-1]", "[4]"));
    write_map(&f, "{\"c\": null}");
    expect_values(&f, (const char *const[]){"b", "bb", "a", "aa", NULL});
    fixture_end(&f);
}

/*
 * "b" does not fit its strategy, "c" lies in a rank that is lost, and of "note" no two ranks have
 * the same.
 */
static void test_what_is_wrong_with_it(void **state)
{
    struct fixture f;
    (void)state;

    fixture_begin(&f);
    for (unsigned rank = 1; rank < 3; rank++) {
        char path[64], note[3] = {'n', (char)('0' + rank), '\0'};
        snprintf(path, sizeof path, "src/rank_%u/net.ckpt", rank);
        write_rank(&f, path,
                   (const char *const[]){"a", "aa", "b", "bb", "c", "cc", "note", note, NULL});
    }
    write_strategy(f.root, "src.json",
                   LAYOUT("a", "[3]", "[-1]", "[2]") ", " LAYOUT(
                       "b", "[3]", "[0]", "[9]") ", " LAYOUT("c", "[3]", "[0]", "[6]"));
    write_strategy(
        f.root, "dst.json",
        WHOLE("a") ", " LAYOUT("b", "[1]", "[-1]", "[9]") ", " LAYOUT("c", "[1]", "[-1]", "[6]"));
    write_map(&f, "{\"b\": null, \"c\": null, \"note\": null}");
    expect_values(&f, (const char *const[]){"a", "aa", NULL});
    expect_values_by(&f, "only=a", (const char *const[]){"a", "aa", NULL});
    expect_values_by(&f, "drop=b;note;[c]", (const char *const[]){"a", "aa", NULL});
    fixture_end(&f);
}

/* ---- only= and drop= ------------------------------------------------------------------------- */

/* Two stages with "a" and "b", and with "steps" and "other", which no strategy knows. */
static void make_pipeline(struct fixture *f)
{
    fixture_begin(f);
    write_rank(f, "src/rank_0/net.ckpt",
               (const char *const[]){"a.x", "ax", "a.y", "ay", "steps", "00", NULL});
    write_rank(f, "src/rank_1/net.ckpt", (const char *const[]){"b.x", "bx", "other", "oo", NULL});
    write_strategy(f->root, "src.json", WHOLE("0-a.x") ", " WHOLE("0-a.y") ", " WHOLE("1-b.x"));
    write_strategy(f->root, "dst.json", WHOLE("0-a.x") ", " WHOLE("0-a.y") ", " WHOLE("1-b.x"));
}

/* RC: how opening OPTIONS and planning rank 0 ends, with PART in the message. */
static void expect_failure(struct fixture *f, const char *options, bool usage, const char *part)
{
    struct bytes got = {0};
    int rc = reopen(f, options);

    if (rc == 0)
        rc = read_id(f, file_id(f, 0), &got);
    bytes_free(&got);
    if (rc != -EINVAL || f->err.usage != usage || !strstr(f->err.message, part))
        fail_msg("%s: %d, %s", options, rc, f->err.message);
}

static void test_patterns_of_shown_names(void **state)
{
    struct fixture f;
    (void)state;

    make_pipeline(&f);
    write_map(&f, "{\"a.x\": \"first\", \"a.y\": \"second\"}");
    char options[1024];
    snprintf(options, sizeof options, "only=?????; second,names=%s", tree_path(f.root, "map.json"));
    expect_values_by(&f, options,
                     (const char *const[]){"first", "ax", "second", "ay", "steps", "00", NULL});
    snprintf(options, sizeof options, "drop=s*,names=%s", tree_path(f.root, "map.json"));
    expect_values_by(&f, options, (const char *const[]){"first", "ax", NULL});
    snprintf(options, sizeof options, "only=a.*,names=%s", tree_path(f.root, "map.json"));
    expect_failure(&f, options, true, "option only: no name is like 'a.*'");
    fixture_end(&f);
}

static void test_patterns_without_a_name(void **state)
{
    struct fixture f;
    (void)state;

    make_pipeline(&f);
    expect_failure(&f, "only=a.*;setps", true,
                   "option only: no name is like 'setps'; try: only='steps'");
    expect_failure(&f, "drop=C.*;setps", true, "option drop: no name is like 'C.*'");
    expect_values_by(&f, "drop=setps;a.?", (const char *const[]){"steps", "00", NULL});
    fixture_end(&f);
}

static void test_types_without_a_name(void **state)
{
    struct fixture f;
    (void)state;

    make_pipeline(&f);
    expect_failure(&f, "dtype=float16;a.x.*=float32", true,
                   "option dtype: no name is like 'a.x.*'; try: dtype='a.x=TYPE'");
    expect_failure(&f, "drop=a.*,dtype=c.y=float32", true, "try: dtype='a.y=TYPE'");
    expect_values_by(&f, "only=a.?,dtype=other=keep",
                     (const char *const[]){"a.x", "ax", "a.y", "ay", NULL});
    fixture_end(&f);
}

/* Rank 0 reads nothing of the stage that has "b.x" and "other", which no strategy knows. */
static void test_a_name_of_another_stage(void **state)
{
    struct fixture f;
    (void)state;

    make_pipeline(&f);
    expect_values_by(&f, "only=b.*;other;a.x", (const char *const[]){"a.x", "ax", NULL});
    expect_values_by(&f, "drop=b.*",
                     (const char *const[]){"a.x", "ax", "a.y", "ay", "steps", "00", NULL});
    fixture_end(&f);
}

static void test_nothing_left(void **state)
{
    struct fixture f;
    (void)state;

    make_pipeline(&f);
    expect_failure(&f, "only=b.*", false, "leave nothing that rank_0 of the destination takes");
    expect_failure(&f, "drop=*", false, "leave nothing that rank_0 of the destination takes");
    fixture_end(&f);
}

/* No rule has to say how a tensor is cut that is left out. */
static void test_rules_for_what_is_shown(void **state)
{
    static const char rules[] = "dst_ranks=2,dst_rules=?.x: axis 0 over all";
    static const char *const ways[] = {"drop=*.y;steps", "only=a.*,drop=*.y", "names=%s"};
    struct fixture f;
    (void)state;

    make_pipeline(&f);
    write_map(&f, "{\"a.y\": null, \"steps\": null}");
    assert_int_not_equal(open_source(&f, "src/rank_0/net.ckpt", rules), 0);
    assert_non_null(strstr(f.err.message, "no rule matches it"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char options[1024];
        struct bytes got;
        struct bytes want = {0};
        const size_t used = (size_t)snprintf(options, sizeof options, "format=ckpt,%s,", rules);
        snprintf(options + used, sizeof options - used, ways[i], tree_path(f.root, "map.json"));
        if (open_source(&f, "src/rank_0/net.ckpt", options))
            fail_msg("%s: %s", options, f.err.message);
        for (uint32_t rank = 0; rank < 2; rank++) {
            assert_int_equal(read_id(&f, file_id(&f, rank), &got), 0);
            want.n = 0;
            ckpt_tensor(&want, "a.x", "Int8", 1, (uint64_t[]){1}, rank ? "x" : "a", 1);
            expect_same(&got, &want);
            bytes_free(&got);
        }
        bytes_free(&want);
    }
    fixture_end(&f);
}

/* ---- random worlds --------------------------------------------------------------------------- */

enum fate { KEPT, RENAMED, LEFT_OUT };
enum way { BY_MAP, BY_ONLY, BY_DROP }; /* what leaves out: null in the map, or a pattern */
struct map {
    enum fate fate[PARAMS];
    enum way way;
    char options[1024];
};

/* Renames "pN" to "qN". With NULLS, the map leaves out, too. */
static void write_fates(struct fixture *f, const struct map *map, const char *name, bool nulls)
{
    struct bytes json = {0};
    char item[32];

    for (uint32_t p = 0; p < PARAMS; p++) {
        const int n = snprintf(item, sizeof item,
                               map->fate[p] == RENAMED ? "%s\"p%u\": \"q%u\"" : "%s\"p%u\": null",
                               json.n ? ", " : "{", p, p);
        if (map->fate[p] == RENAMED || (nulls && map->fate[p] == LEFT_OUT))
            bytes_add(&json, item, (size_t)n);
    }
    bytes_add(&json, json.n ? "}" : "{}", json.n ? 1 : 2);
    tree_write(f->root, name, json.data, json.n);
    bytes_free(&json);
}

static void make_map(struct fixture *f, struct world *world, struct map *map)
{
    const uint32_t often = 1 + test_below(&world->random, 4);
    const enum way ways[] = {BY_MAP, BY_ONLY, BY_DROP};
    char digits[PARAMS + 1];
    size_t n = 0;

    for (uint32_t p = 0; p < PARAMS; p++)
        map->fate[p] = test_below(&world->random, 4) < often ? LEFT_OUT
                       : test_below(&world->random, 4) == 0  ? RENAMED
                                                             : KEPT;
    map->way = ways[test_below(&world->random, 3)];
    for (uint32_t p = 0; p < PARAMS; p++)
        if ((map->fate[p] == LEFT_OUT) == (map->way == BY_DROP))
            digits[n++] = (char)('0' + p);
    digits[n] = '\0';
    if (n == 0)
        map->way = BY_MAP;
    write_fates(f, map, "map.json", true);
    write_fates(f, map, "some.json", map->way == BY_MAP);
    n = (size_t)snprintf(map->options, sizeof map->options, ",names=%s",
                         tree_path(f->root, "some.json"));
    if (map->way != BY_MAP)
        snprintf(map->options + n, sizeof map->options - n, ",%s= [pq][%s]",
                 map->way == BY_ONLY ? "only" : "drop", digits);
}

static uint64_t take_varint(const struct bytes *file, size_t *at)
{
    uint64_t value = 0;

    for (unsigned shift = 0;; shift += 7) {
        assert_true(*at < file->n && shift < 64);
        const unsigned char byte = file->data[(*at)++];
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
}

/* A .ckpt file with what the map says done to it: messages are taken out, names have one length. */
static struct bytes apply(const struct map *map, const struct bytes *file)
{
    struct bytes out = {0};

    for (size_t begin = 0, at = 0; begin < file->n; begin = at) {
        assert_int_equal(file->data[at++], 0x0a);
        const uint64_t length = take_varint(file, &at);
        assert_memory_equal(file->data + at, "\x0a\x02p", 3);
        const size_t tag = at + 2 - begin;
        const enum fate fate = map->fate[file->data[at + 3] - '0'];
        at += length;
        assert_true(at <= file->n);
        if (fate != LEFT_OUT)
            bytes_add(&out, file->data + begin, at - begin);
        if (fate == RENAMED)
            out.data[out.n - (at - begin) + tag] = 'q';
    }
    return out;
}

static int show_file(struct fixture *f, const char *source, const char *options, const char *folder,
                     const char *shown, struct bytes *out)
{
    uint64_t id = RESHARD_ROOT;

    return open_source(f, source, options)
                   ?: (folder ? reshard_lookup(f->view, RESHARD_ROOT, folder, &id) : 0)
                   ?: reshard_lookup(f->view, id, shown, &id)
               ?: read_id(f, id, out);
}

/*
 * The one file that a view of FILE, called SOURCE, has under these options: as SHOWN in FOLDER, if
 * there is one. A map at their end that has nothing of it is left out.
 */
static struct bytes convert(struct fixture *f, const struct bytes *file, const char *source,
                            const char *options, const char *folder, const char *shown)
{
    const char *map = strstr(options, ",names=");
    struct bytes out = {0};

    tree_write(f->root, source, file->data, file->n);
    int rc = show_file(f, source, options, folder, shown, &out);
    if (rc && map && strstr(f->err.message, "none of its names is a parameter")) {
        char plain[1024];
        snprintf(plain, sizeof plain, "%.*s", (int)(map - options), options);
        rc = show_file(f, source, plain, folder, shown, &out);
    }
    if (rc)
        fail_msg("%s as %s: %s", source, options, f->err.message);
    return out;
}

struct format {
    const char *options; /* of the view */
    bool flat;
};
static const struct format formats[] = {
    {"format=ckpt", false},     {"format=safetensors", false}, {"format=pt", false},
    {"view=huggingface", true}, {"view=unified", true},
};
enum { CKPT, SAFETENSORS, PT, HUGGINGFACE };

/*
 * What a file is that the map has taken something from: by a view of that file alone, which is no
 * matter of plans.
 */
static void expect_mapped(struct fixture *f, const struct map *map, unsigned format,
                          const struct bytes *plain, const struct bytes *mapped)
{
    char options[1024];
    struct bytes want;
    struct bytes got = {0};

    if (format == CKPT) {
        want = apply(map, plain);
        expect_same(mapped, &want);
    } else if (format == PT) { /* its own name is in it */
        snprintf(options, sizeof options, "format=ckpt,names=%s", tree_path(f->root, "map.json"));
        want = convert(f, plain, "one.pt", options, "rank_0", "checkpoint_0.ckpt");
        got = convert(f, mapped, "other.pt", "format=ckpt", "rank_0", "checkpoint_0.ckpt");
        expect_same(&got, &want);
    } else {
        const bool hugging = format == HUGGINGFACE; /* unified's files are those of MindSpore */
        snprintf(options, sizeof options, "%s,names=%s",
                 formats[hugging ? HUGGINGFACE : SAFETENSORS].options,
                 tree_path(f->root, "map.json"));
        want = convert(f, plain, "one.safetensors", options, hugging ? NULL : "rank_0",
                       hugging ? "model.safetensors" : "checkpoint_0.safetensors");
        expect_same(mapped, &want);
    }
    bytes_free(&want);
    bytes_free(&got);
}

/* A file of a view, or why there is none. */
struct shown {
    char folder[32], name[64]; /* "" of a flat view */
    int rc;
    bool unmet;     /* no name is like a pattern */
    bool unmet_map; /* the map has none of the names */
    struct bytes content;
};
struct listing {
    int rc; /* of opening */
    size_t n;
    struct shown files[RANKS + 4];
};

static void list_folder(struct fixture *f, uint64_t folder, const char *name,
                        struct listing *listing)
{
    reshard_dirent entry = {.struct_size = sizeof entry};

    for (uint64_t k = 0; reshard_list(f->view, folder, k, &entry) == 1; k++) {
        if (entry.is_dir) {
            list_folder(f, entry.id, entry.name, listing);
            continue;
        }
        assert_true(listing->n < sizeof listing->files / sizeof *listing->files);
        struct shown *file = &listing->files[listing->n++];
        snprintf(file->folder, sizeof file->folder, "%s", name);
        snprintf(file->name, sizeof file->name, "%s", entry.name);
        f->err = (reshard_error){.struct_size = sizeof f->err};
        file->rc = read_id(f, entry.id, &file->content);
        file->unmet = file->rc && strstr(f->err.message, "no name is like");
        file->unmet_map = file->rc && strstr(f->err.message, "none of its names is a parameter");
        if (file->rc && !file->unmet && !file->unmet_map &&
            !strstr(f->err.message, " nothing that rank_"))
            file->rc = -EIO; /* of another kind */
    }
}

static void list_world(struct fixture *f, const struct world *world, const struct format *format,
                       const char *more, struct listing *out)
{
    char options[4096];

    *out = (struct listing){0};
    int n = snprintf(options, sizeof options, "%s%s", format->options, more);
    if (world->src.any)
        n += snprintf(options + n, sizeof options - (size_t)n,
                      ",trust_strategy,src_strategy=%s", /* replicas have bytes of their own */
                      tree_path(f->root, "src.json"));
    if (world->dst.any && !format->flat)
        snprintf(options + n, sizeof options - (size_t)n, ",dst_strategy=%s",
                 tree_path(f->root, "dst.json"));
    out->rc = open_source(f, "src", options);
    if (out->rc && !strstr(f->err.message, " nothing that rank_") &&
        !strstr(f->err.message, "no name is like") &&
        !strstr(f->err.message, "none of its names is a parameter"))
        out->rc = -EIO;
    if (!out->rc)
        list_folder(f, RESHARD_ROOT, "", out);
}

static void free_listing(struct listing *listing)
{
    for (size_t i = 0; i < listing->n; i++)
        bytes_free(&listing->files[i].content);
}

static const struct shown *find_file(const struct listing *listing, const struct shown *like)
{
    for (size_t i = 0; i < listing->n; i++)
        if (strcmp(listing->files[i].name, like->name) == 0 &&
            strcmp(listing->files[i].folder, like->folder) == 0)
            return &listing->files[i];
    return NULL;
}

/* What can be made without the map can be made with it, unless nothing is left. */
static void compare_listings(struct fixture *f, const struct map *map, unsigned format,
                             const struct listing *plain, const struct listing *mapped, int *counts)
{
    if (!formats[format].flat)
        assert_int_equal(mapped->n, plain->n);
    for (size_t i = 0; i < plain->n; i++) {
        const struct shown *file = &plain->files[i];
        const struct shown *other = find_file(mapped, file);
        if (strstr(file->name, ".json") || file->rc)
            continue;
        if (!formats[format].flat)
            assert_non_null(other);
        if (other && other->rc == 0) {
            expect_mapped(f, map, format, &file->content, &other->content);
            counts[format]++;
            continue;
        }
        if (other)
            assert_int_equal(other->rc, -EINVAL);
        if (format == CKPT) {
            struct bytes left = apply(map, &file->content);
            const bool all =
                (other->unmet && map->way == BY_DROP) || (other->unmet_map && map->way == BY_MAP);
            if (all || !other->unmet_map)
                assert_int_equal(left.n, all ? file->content.n : 0);
            bytes_free(&left);
        }
    }
}

static void check_world(struct world *world, int *counts)
{
    static struct listing plain, mapped;
    struct fixture f;
    struct map map;

    fixture_begin(&f);
    world_write(world, f.root);
    for (int side = 0; side < 2; side++) {
        char *text = world_strategy(world, side ? &world->dst : &world->src);
        tree_write(f.root, side ? "dst.json" : "src.json", text, strlen(text));
        free(text);
    }
    make_map(&f, world, &map);
    for (unsigned k = 0; k < sizeof formats / sizeof *formats; k++) {
        list_world(&f, world, &formats[k], "", &plain);
        if (plain.rc == 0) {
            list_world(&f, world, &formats[k], map.options, &mapped);
            assert_true(mapped.rc == 0 || (formats[k].flat && mapped.rc == -EINVAL));
            compare_listings(&f, &map, k, &plain, &mapped, counts);
            free_listing(&mapped);
        }
        free_listing(&plain);
    }
    fixture_end(&f);
}

static bool has_files(const struct world *world)
{
    for (uint32_t r = 0; r < world->src.devices * world->src.stages; r++)
        if (!world->lost[r])
            return true;
    return false;
}

static void test_random_worlds(void **state)
{
    int counts[sizeof formats / sizeof *formats] = {0};
    uint64_t seed = test_seed();
    (void)state;

    for (int i = 0; i < WORLDS; i++, seed++) {
        struct world world;
        world_make(&world, seed);
        if (getenv("RFS_VERBOSE"))
            print_message("world %llu\n", (unsigned long long)seed);
        if (has_files(&world))
            check_world(&world, counts);
    }
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        print_message("%s: %d files\n", formats[k].options, counts[k]);
        assert_true(counts[k] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stage_of_which_all_is_left_out),
        cmocka_unit_test(test_no_part),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_what_is_wrong_with_it),
        cmocka_unit_test(test_patterns_of_shown_names),
        cmocka_unit_test(test_patterns_without_a_name),
        cmocka_unit_test(test_types_without_a_name),
        cmocka_unit_test(test_a_name_of_another_stage),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_rules_for_what_is_shown),
        cmocka_unit_test(test_random_worlds),
    };
    return cmocka_run_group_tests_name("view: what is left out", tests, NULL, NULL);
}
