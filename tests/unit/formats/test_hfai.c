/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hfai's parts for another number of processes, against a slow model that knows values by their
 * names and divides them as dist_ckpt's split_dict and torch.chunk do.
 */
#include "base/options.h"
#include "catalog/catalog.h"
#include "formats/hfai/hfai.h"
#include "plan/planner.h"

#include "tests/support/torch_file.h"
#include "tests/support/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARAMS = 12, PARTS = 9, BYTES = 90, STEP_WEIGHT = 8 };

/* A tensor of bytes. Those of more than a threshold are large: every part has a piece. */
struct value {
    unsigned dims[2];
    unsigned n; /* bytes */
    unsigned char bytes[BYTES];
};

struct world {
    uint64_t random;
    unsigned params, parts;
    unsigned large; /* when it was saved */
    struct value weight[PARAMS], moment[PARAMS];
    unsigned place[PARAMS], state_place[PARAMS]; /* the part of what is whole */
    bool has_state[PARAMS];
    struct bytes file[PARTS];
    char *root;
};

static unsigned below(struct world *w, unsigned n)
{
    return test_below(&w->random, n);
}

/* torch.chunk: piece R of N begins there. */
static unsigned chunk(unsigned bytes, unsigned r, unsigned n)
{
    const unsigned each = (bytes + n - 1) / n;
    return each * r < bytes ? each * r : bytes;
}

/* ---- the source ---- */

static void make_value(struct world *w, struct value *value)
{
    value->dims[0] = below(w, 10);
    value->dims[1] = 1 + below(w, BYTES / 10);
    value->n = value->dims[0] * value->dims[1];
    for (unsigned i = 0; i < value->n; i++)
        value->bytes[i] = (unsigned char)below(w, 256);
}

struct part {
    struct torch_file file;
    unsigned keys;
};

static void put_tensor(struct part *part, const unsigned char *bytes, unsigned n, unsigned ndim,
                       const int64_t *dims)
{
    char key[16];

    snprintf(key, sizeof key, "%u", part->keys++);
    torch_tensor(
        &part->file,
        &(struct torch_tensor){
            .class = "ByteStorage", .key = key, .elements = n, .ndim = ndim, .dims = dims});
    torch_storage(&part->file, key, bytes, n);
}

static void put_whole(struct part *part, const struct value *value)
{
    put_tensor(part, value->bytes, value->n, 2, (int64_t[]){value->dims[0], value->dims[1]});
}

/* (torch.Size, piece) */
static void put_piece(struct world *w, struct part *part, unsigned p, const struct value *value)
{
    const unsigned begin = chunk(value->n, p, w->parts);
    const unsigned end = chunk(value->n, p + 1, w->parts);

    torch_global(&part->file, "torch", "Size");
    torch_tuple(&part->file, 2, (int64_t[]){value->dims[0], value->dims[1]});
    torch_ops(&part->file, "\x85R");
    put_tensor(part, value->bytes + begin, end - begin, 1, (int64_t[]){end - begin});
    torch_ops(&part->file, "\x86");
}

static void put_name(struct part *part, unsigned i)
{
    char name[16];

    snprintf(name, sizeof name, "w%u", i);
    torch_text(&part->file, name);
}

static void put_model(struct world *w, struct part *part, unsigned p)
{
    torch_ops(&part->file, "ccollections\nOrderedDict\n)R(");
    for (unsigned i = 0; i < w->params; i++)
        if (w->weight[i].n <= w->large && w->place[i] == p) {
            put_name(part, i);
            put_whole(part, &w->weight[i]);
        }
    torch_ops(&part->file, "u}(");
    for (unsigned i = 0; i < w->params; i++)
        if (w->weight[i].n > w->large) {
            put_name(part, i);
            put_piece(w, part, p, &w->weight[i]);
        }
    torch_ops(&part->file, "u\x86");
}

static void put_optimizer(struct world *w, struct part *part, unsigned p)
{
    torch_ops(&part->file, "}(");
    torch_text(&part->file, "state");
    torch_ops(&part->file, "ccollections\nOrderedDict\n)R(");
    for (unsigned i = 0; i < w->params; i++)
        if (w->has_state[i] && w->state_place[i] == p) {
            torch_int(&part->file, i);
            torch_ops(&part->file, "}(");
            torch_text(&part->file, "step");
            torch_int(&part->file, 7);
            if (w->moment[i].n <= w->large) {
                torch_text(&part->file, "moment");
                put_whole(part, &w->moment[i]);
            }
            torch_ops(&part->file, "u");
        }
    torch_ops(&part->file, "u");
    torch_text(&part->file, "param_groups");
    torch_ops(&part->file, "](}(");
    torch_text(&part->file, "lr");
    torch_int(&part->file, 3);
    torch_ops(&part->file, "ueu}(");
    for (unsigned i = 0; i < w->params; i++)
        if (w->has_state[i] && w->moment[i].n > w->large) {
            torch_int(&part->file, i);
            torch_text(&part->file, "moment");
            torch_ops(&part->file, "\x86");
            put_piece(w, part, p, &w->moment[i]);
        }
    torch_ops(&part->file, "u\x86");
}

static void put_part(struct world *w, unsigned p)
{
    struct part part = {0};
    char name[32];

    torch_ops(&part.file, "}(");
    torch_text(&part.file, "__nshards__");
    torch_int(&part.file, w->parts);
    torch_text(&part.file, "__version__");
    torch_text(&part.file, "2.0.0");
    torch_text(&part.file, "model");
    torch_ops(&part.file, "](");
    put_model(w, &part, p);
    torch_ops(&part.file, "e");
    torch_text(&part.file, "optimizer");
    torch_ops(&part.file, "](");
    put_optimizer(w, &part, p);
    torch_ops(&part.file, "e");
    if (p == 0) {
        torch_text(&part.file, "epoch");
        torch_int(&part.file, 4);
    }
    torch_ops(&part.file, "u");
    const struct bytes *bytes = torch_end(&part.file);
    bytes_add(&w->file[p], bytes->data, bytes->n);
    snprintf(name, sizeof name, "PART_%03u.pt", p);
    tree_write(w->root, name, bytes->data, bytes->n);
    torch_free(&part.file);
}

static void make_world(struct world *w, uint64_t seed)
{
    *w = (struct world){.random = seed, .root = tree_new()};
    w->params = below(w, PARAMS + 1);
    w->parts = 1 + below(w, PARTS);
    w->large = below(w, 3) ? below(w, BYTES) : BYTES;
    for (unsigned i = 0; i < w->params; i++) {
        make_value(w, &w->weight[i]);
        make_value(w, &w->moment[i]);
        w->place[i] = below(w, w->parts);
        w->state_place[i] = below(w, w->parts);
        w->has_state[i] = below(w, 4) > 0;
    }
    for (unsigned p = 0; p < w->parts; p++)
        put_part(w, p);
}

static void free_world(struct world *w)
{
    for (unsigned p = 0; p < w->parts; p++)
        bytes_free(&w->file[p]);
    tree_remove(w->root);
}

/* ---- what is shown ---- */

struct shown {
    struct world *w;
    const struct rfs_hfai *hfai;
    struct rfs_document document;
    unsigned part, n, large;
};

/* The bytes of a node's tensor. */
static unsigned tensor_bytes(struct shown *s, const struct rfs_node *node, unsigned char *out)
{
    struct rfs_torch_tensor tensor;
    unsigned n = 0;

    if (node->origin != RFS_ORIGIN_MADE) {
        assert_int_equal(
            rfs_torch_tensor(rfs_hfai_torch(s->hfai, node->origin), node, "", "", &tensor, NULL),
            1);
        assert_true(tensor.contiguous && tensor.elements <= BYTES);
        memcpy(out, s->w->file[node->origin].data + tensor.record->offset + tensor.offset,
               tensor.elements);
        return (unsigned)tensor.elements;
    }
    const struct rfs_node *storage = node->of.call.args->of.items.data[0];
    const struct rfs_made_storage *made = &s->document.made.data[storage->number];
    for (size_t i = 0; i < made->n; i++) {
        const struct rfs_range *range = &s->document.ranges.data[made->first + i];
        assert_true(range->bytes <= BYTES - n);
        memcpy(out + n, s->w->file[range->origin].data + range->record->offset + range->offset,
               range->bytes);
        n += (unsigned)range->bytes;
    }
    assert_int_equal(storage->of.items.data[4]->of.integer, n);
    return n;
}

static void expect_bytes(struct shown *s, const struct rfs_node *node, const unsigned char *want,
                         unsigned n)
{
    unsigned char got[BYTES];

    assert_int_equal(tensor_bytes(s, node, got), n);
    assert_memory_equal(got, want, n);
}

static const struct rfs_node *dims_of(const struct rfs_node *tensor)
{
    return tensor->of.call.args->of.items.data[2];
}

static void expect_dims(const struct rfs_node *tuple, const struct value *value)
{
    assert_int_equal(tuple->of.items.n, 2);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(tuple->of.items.data[i]->of.integer, value->dims[i]);
}

static void expect_whole(struct shown *s, const struct rfs_node *node, const struct value *value)
{
    expect_bytes(s, node, value->bytes, value->n);
    expect_dims(dims_of(node), value);
}

static void expect_piece(struct shown *s, const struct rfs_node *pair, const struct value *value)
{
    const unsigned begin = chunk(value->n, s->part, s->n);
    const unsigned end = chunk(value->n, s->part + 1, s->n);

    assert_int_equal(pair->kind, RFS_NODE_TUPLE);
    assert_int_equal(pair->of.items.n, 2);
    expect_dims(pair->of.items.data[0]->of.call.args->of.items.data[0], value);
    expect_bytes(s, pair->of.items.data[1], value->bytes + begin, end - begin);
}

/* Something to divide: a parameter, or the state of one. */
struct item {
    unsigned param, weight;
};

/*
 * The share of a part: heaviest first, earlier ones first among equals, each to the part that has
 * least.
 */
static unsigned split(const struct shown *s, const struct item *items, unsigned n,
                      struct item *share)
{
    unsigned sums[PARTS] = {0};
    bool taken[PARAMS] = {false};
    unsigned n_share = 0;

    for (unsigned round = 0; round < n; round++) {
        unsigned best = n;
        unsigned least = 0;
        for (unsigned i = 0; i < n; i++)
            if (!taken[i] && (best == n || items[i].weight > items[best].weight))
                best = i;
        for (unsigned p = 1; p < s->n; p++)
            if (sums[p] < sums[least])
                least = p;
        taken[best] = true;
        sums[least] += items[best].weight;
        if (least == s->part)
            share[n_share++] = items[best];
    }
    return n_share;
}

/*
 * Whole parameters in the order in which load() has them: by part, then those that were in pieces.
 */
static unsigned list_weights(const struct shown *s, struct item *items)
{
    const struct world *w = s->w;
    unsigned n = 0;

    for (unsigned p = 0; p < w->parts; p++)
        for (unsigned i = 0; i < w->params; i++)
            if (w->weight[i].n <= w->large && w->place[i] == p && w->weight[i].n <= s->large)
                items[n++] = (struct item){i, w->weight[i].n};
    for (unsigned i = 0; i < w->params; i++)
        if (w->weight[i].n > w->large && w->weight[i].n <= s->large)
            items[n++] = (struct item){i, w->weight[i].n};
    return n;
}

static unsigned list_states(const struct shown *s, struct item *items)
{
    const struct world *w = s->w;
    unsigned n = 0;

    for (unsigned p = 0; p < w->parts; p++)
        for (unsigned i = 0; i < w->params; i++)
            if (w->has_state[i] && w->state_place[i] == p)
                items[n++] = (struct item){i, STEP_WEIGHT +
                                                  (w->moment[i].n > s->large ? 0 : w->moment[i].n)};
    return n;
}

static void expect_name(const struct rfs_node *key, unsigned i)
{
    char name[16];

    snprintf(name, sizeof name, "w%u", i);
    assert_true(rfs_pickle_is_text(key, name));
}

static void expect_model(struct shown *s, const struct rfs_node *pair)
{
    struct item items[PARAMS];
    struct item share[PARAMS];
    const unsigned n = split(s, items, list_weights(s, items), share);
    const struct rfs_items *whole = rfs_pickle_pairs(pair->of.items.data[0]);
    const struct rfs_node *pieces = pair->of.items.data[1];
    unsigned cut = 0;

    assert_int_equal(whole->n, 2 * n);
    for (unsigned i = 0; i < n; i++) {
        expect_name(whole->data[2 * i], share[i].param);
        expect_whole(s, whole->data[2 * i + 1], &s->w->weight[share[i].param]);
    }
    for (unsigned i = 0; i < s->w->params; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%u", i);
        const struct rfs_node *piece = rfs_pickle_get(pieces, name);
        assert_int_equal(piece != NULL, s->w->weight[i].n > s->large);
        if (piece)
            expect_piece(s, piece, &s->w->weight[i]);
        cut += piece != NULL;
    }
    assert_int_equal(pieces->of.items.n, 2 * cut);
}

static const struct rfs_node *find_piece(const struct rfs_node *pieces, unsigned param)
{
    for (uint32_t i = 0; i < pieces->of.items.n; i += 2) {
        const struct rfs_items *key = &pieces->of.items.data[i]->of.items;
        assert_int_equal(key->n, 2);
        assert_true(rfs_pickle_is_text(key->data[1], "moment"));
        if (key->data[0]->of.integer == param)
            return pieces->of.items.data[i + 1];
    }
    return NULL;
}

static void expect_state(struct shown *s, const struct rfs_node *dict, unsigned param)
{
    const struct value *moment = &s->w->moment[param];
    const struct rfs_node *node = rfs_pickle_get(dict, "moment");

    assert_int_equal(rfs_pickle_get(dict, "step")->of.integer, 7);
    assert_int_equal(node != NULL, moment->n <= s->large);
    assert_int_equal(dict->of.items.n, node ? 4 : 2);
    if (node)
        expect_whole(s, node, moment);
}

static void expect_optimizer(struct shown *s, const struct rfs_node *pair)
{
    struct item items[PARAMS];
    struct item share[PARAMS];
    const unsigned n = split(s, items, list_states(s, items), share);
    const struct rfs_node *dict = pair->of.items.data[0];
    const struct rfs_items *states = rfs_pickle_pairs(rfs_pickle_get(dict, "state"));

    assert_non_null(rfs_pickle_get(dict, "param_groups"));
    assert_int_equal(states->n, 2 * n);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(states->data[2 * i]->of.integer, share[i].param);
        expect_state(s, states->data[2 * i + 1], share[i].param);
    }
    for (unsigned i = 0; i < s->w->params; i++) {
        const struct rfs_node *piece = find_piece(pair->of.items.data[1], i);
        assert_int_equal(piece != NULL, s->w->has_state[i] && s->w->moment[i].n > s->large);
        if (piece)
            expect_piece(s, piece, &s->w->moment[i]);
    }
}

static const struct rfs_node *only(const struct rfs_node *dict, const char *name)
{
    const struct rfs_node *list = rfs_pickle_get(dict, name);

    assert_int_equal(list->kind, RFS_NODE_LIST);
    assert_int_equal(list->of.items.n, 1);
    return list->of.items.data[0];
}

static void check_part(struct shown *s)
{
    struct rfs_hfai_division *division;
    struct rfs_error err = {0};

    if (rfs_hfai_divide(s->hfai, s->n, s->large, &division, &err) ||
        rfs_hfai_part(division, s->part, &s->document, &err))
        fail_msg("%s", err.text);
    const struct rfs_node *root = s->document.root;
    assert_int_equal(rfs_pickle_get(root, "__nshards__")->of.integer, s->n);
    assert_true(rfs_pickle_is_text(rfs_pickle_get(root, "__version__"), "2.0.0"));
    assert_int_equal(rfs_pickle_get(root, "epoch") != NULL, s->part == 0);
    expect_model(s, only(root, "model"));
    expect_optimizer(s, only(root, "optimizer"));
    rfs_document_free(&s->document);
    rfs_hfai_division_free(division);
}

/* All at once: by name, in load()'s order. */
static void check_whole(struct shown *s)
{
    struct item items[PARAMS];
    struct rfs_error err = {0};

    s->large = BYTES;
    if (rfs_hfai_whole(s->hfai, &s->document, &err))
        fail_msg("%s", err.text);
    const struct rfs_node *root = s->document.root;
    const struct rfs_items *model = rfs_pickle_pairs(rfs_pickle_get(root, "model"));
    const unsigned n = list_weights(s, items);
    assert_int_equal(rfs_pickle_get(root, "__nshards__")->of.integer, s->w->parts);
    assert_int_equal(rfs_pickle_get(root, "epoch")->of.integer, 4);
    assert_int_equal(model->n, 2 * n);
    for (unsigned i = 0; i < n; i++) {
        expect_name(model->data[2 * i], items[i].param);
        expect_whole(s, model->data[2 * i + 1], &s->w->weight[items[i].param]);
    }
    const struct rfs_items *states =
        rfs_pickle_pairs(rfs_pickle_get(rfs_pickle_get(root, "optimizer"), "state"));
    const unsigned n_states = list_states(s, items);
    assert_int_equal(states->n, 2 * n_states);
    for (unsigned i = 0; i < n_states; i++) {
        assert_int_equal(states->data[2 * i]->of.integer, items[i].param);
        expect_state(s, states->data[2 * i + 1], items[i].param);
    }
    rfs_document_free(&s->document);
}

/* A tensor as the plan reads it, from the files of all parts. */
static void expect_target(struct shown *s, struct rfs_catalog *catalog, struct rfs_planner *planner,
                          const struct rfs_target *target, const struct value *value)
{
    const struct rfs_type *type = rfs_catalog_type(catalog, target->type);
    struct rfs_slice slice = {0};
    uint64_t at = 0;

    assert_int_equal(type->ndim, 2);
    assert_int_equal(type->dims[0], value->dims[0]);
    assert_int_equal(type->dims[1], value->dims[1]);
    assert_int_equal(rfs_planner_slice(planner, 0, target, &slice), 0);
    assert_int_equal(slice.bytes, value->n);
    assert_in_range(slice.n, 0, s->w->parts); /* one run from each part at most */
    for (size_t k = 0; k < slice.n; k++) {
        const struct rfs_block *block = &slice.blocks[k];
        assert_int_equal(block->dst, at);
        assert_int_equal(block->n_loops, 0);
        assert_memory_equal(s->w->file[block->file].data + block->content.offset + block->src,
                            value->bytes + at, block->run);
        at += block->run;
    }
    assert_int_equal(at, value->n);
    rfs_slice_free(&slice);
}

/* A box of it, byte by byte. */
static void expect_box(struct shown *s, struct rfs_planner *planner,
                       const struct rfs_target *target, const struct value *value)
{
    struct rfs_slice slice = {0};
    uint64_t lo[2];
    uint64_t hi[2];

    for (unsigned i = 0; i < 2; i++) {
        lo[i] = below(s->w, value->dims[i]);
        hi[i] = lo[i] + 1 + below(s->w, value->dims[i] - (unsigned)lo[i]);
    }
    const uint64_t row = hi[1] - lo[1];
    assert_int_equal(rfs_planner_box(planner, 0, target, lo, hi, &slice), 0);
    assert_int_equal(slice.bytes, (hi[0] - lo[0]) * row);
    for (uint64_t at = 0; at < slice.bytes; at++) {
        uint64_t from;
        uint64_t left;
        const struct rfs_block *block = rfs_slice_find(&slice, at, &from, &left);
        assert_non_null(block);
        assert_int_equal(
            ((const unsigned char *)s->w->file[block->file].data)[block->content.offset + from],
            value->bytes[(lo[0] + at / row) * value->dims[1] + lo[1] + at % row]);
    }
    rfs_slice_free(&slice);
}

/* The tensors of the model one by one, and unless MODELS those of the optimizer. */
static void check_tensors(struct shown *s, struct rfs_catalog *from, bool models)
{
    struct item items[PARAMS];
    struct rfs_hfai_list list;
    struct rfs_catalog *catalog;
    struct rfs_planner *planner = NULL;
    const struct rfs_rank_plan *plan;
    struct rfs_error err = {0};
    const unsigned n = list_weights(s, items);
    unsigned states = 0;

    if (rfs_catalog_list_parts(from, s->hfai, (struct rfs_hfai_listing){.models = models}, &list,
                               &catalog, &err))
        fail_msg("%s", err.text);
    for (unsigned i = 0; i < s->w->params; i++)
        states += s->w->has_state[i];
    assert_int_equal(list.n_models, n);
    assert_int_equal(list.tensors.n, models ? n : n + states);
    const struct rfs_planner_config config = {.catalog = catalog, .keep_empty = true};
    if (list.tensors.n > 0 &&
        (rfs_planner_new(&config, &planner, &err) || rfs_planner_rank(planner, 0, &plan, &err)))
        fail_msg("%s", err.text);
    assert_true(list.tensors.n == 0 || plan->params->n == list.tensors.n);
    for (unsigned i = 0; i < list.tensors.n; i++) {
        const struct rfs_target *target = &plan->params->targets[i];
        const char *name = rfs_catalog_name(catalog, target->name);
        unsigned param;
        assert_int_equal(sscanf(name, i < n ? "w%u" : "optimizer.state.%u.moment", &param), 1);
        assert_in_range(param, 0, s->w->params - 1);
        if (i < n)
            assert_int_equal(param, items[i].param);
        const struct value *value = i < n ? &s->w->weight[param] : &s->w->moment[param];
        expect_target(s, catalog, planner, target, value);
        if (value->n > 0)
            expect_box(s, planner, target, value);
    }
    rfs_planner_free(planner);
    rfs_catalog_close(catalog);
    rfs_hfai_list_free(&list);
}

static void check_world(uint64_t seed)
{
    struct world w;
    struct rfs_catalog *catalog;
    struct rfs_hfai *hfai;
    struct rfs_error err = {0};

    make_world(&w, seed);
    const struct rfs_source_spec spec = {.path = w.root, .options = &rfs_options_defaults};
    if (rfs_catalog_open(&spec, NULL, NULL, &catalog, &err) ||
        rfs_catalog_open_parts(catalog, false, &hfai, &err))
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
    assert_int_equal(rfs_hfai_parts(hfai), w.parts);
    for (unsigned i = 0; i < 3; i++) {
        struct shown s = {.w = &w, .hfai = hfai, .n = 1 + below(&w, PARTS)};
        s.large = below(&w, 3) ? below(&w, BYTES) : BYTES;
        for (s.part = 0; s.part < s.n; s.part++)
            check_part(&s);
    }
    struct shown s = {.w = &w, .hfai = hfai, .n = 1};
    check_whole(&s);
    check_tensors(&s, catalog, true);
    check_tensors(&s, catalog, false);
    rfs_hfai_free(hfai);
    rfs_catalog_close(catalog);
    free_world(&w);
}

static void test_random_states(void **state)
{
    const uint64_t seed = test_seed();

    (void)state;
    for (unsigned i = 0; i < 300; i++)
        check_world(seed + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
