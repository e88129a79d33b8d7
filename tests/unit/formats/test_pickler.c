/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pickles that are read and written again: the same graph, what is shared still shared, and the
 * same bytes.
 */
#include "formats/torch/pickler.h"

#include "tests/support/tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- random pickles ---- */

struct maker {
    uint64_t random;
    struct bytes out;
    unsigned memo;
    unsigned left; /* values to come, at most */
};

static unsigned below(struct maker *maker, unsigned n)
{
    return test_below(&maker->random, n);
}

static void put(struct maker *maker, const char *text)
{
    bytes_add(&maker->out, text, strlen(text));
}

static void put_number(struct maker *maker, char op, uint64_t number, unsigned n)
{
    bytes_add(&maker->out, &op, 1);
    for (unsigned i = 0; i < n; i++)
        bytes_add(&maker->out, &(unsigned char){(unsigned char)(number >> 8 * i)}, 1);
}

static void put_random(struct maker *maker, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        bytes_add(&maker->out, &(unsigned char){(unsigned char)below(maker, 256)}, 1);
}

static void put_text(struct maker *maker)
{
    static const char *const letters[] = {"a",           "Z", "_", "\xc3\xa9", "\xf0\x9f\x98\x80",
                                          "\xed\xa0\x80"};
    struct bytes text = {0};
    const unsigned n = below(maker, 9);

    for (unsigned i = 0; i < n; i++) {
        const char *letter = letters[below(maker, 6)];
        bytes_add(&text, letter, strlen(letter));
    }
    put_number(maker, 'X', text.n, 4);
    bytes_add(&maker->out, text.data, text.n);
    bytes_free(&text);
}

/* Keeps what is on the stack, or does not. */
static void keep(struct maker *maker)
{
    if (below(maker, 3) > 0) {
        put_number(maker, 'r', maker->memo, 4);
        maker->memo++;
    }
}

static void put_value(struct maker *maker, unsigned depth);

static void put_scalar(struct maker *maker)
{
    switch (below(maker, 8)) {
    case 0:
        put(maker, "N");
        break;
    case 1:
        put(maker, below(maker, 2) ? "\x88" : "\x89");
        break;
    case 2:
        put_number(maker, 'K', below(maker, 256), 1);
        break;
    case 3:
        put_number(maker, 'M', below(maker, 65536), 2);
        break;
    case 4:
        put(maker, "J");
        put_random(maker, 4);
        break;
    case 5: {
        const unsigned n = below(maker, 14);
        put_number(maker, '\x8a', n, 1);
        put_random(maker, n);
        break;
    }
    case 6:
        put(maker, "G");
        put_random(maker, 8);
        break;
    default:
        put_text(maker);
        keep(maker);
    }
}

static void put_items(struct maker *maker, unsigned n, unsigned depth)
{
    for (unsigned i = 0; i < n; i++)
        put_value(maker, depth + 1);
}

static void put_pairs(struct maker *maker, unsigned n, unsigned depth)
{
    put(maker, "(");
    for (unsigned i = 0; i < n; i++) {
        put_text(maker);
        put_value(maker, depth + 1);
    }
    put(maker, "u");
}

static void put_container(struct maker *maker, unsigned depth)
{
    const unsigned n = below(maker, 6);

    switch (below(maker, 6)) {
    case 0:
        put(maker, "(");
        put_items(maker, n, depth);
        put(maker, "t");
        break;
    case 1:
        put_items(maker, 2, depth);
        put(maker, "\x86");
        break;
    case 2:
        put(maker, "]");
        keep(maker);
        put(maker, "(");
        put_items(maker, n, depth);
        put(maker, "e");
        return;
    case 3:
        put(maker, "}");
        keep(maker);
        put_pairs(maker, n, depth);
        return;
    case 4:
        put(maker, "ccollections\nOrderedDict\n)R");
        keep(maker);
        put_pairs(maker, n, depth);
        if (below(maker, 2)) {
            put(maker, "}");
            put_pairs(maker, 1, depth);
            put(maker, "b");
        }
        return;
    default:
        put(maker, "cargparse\nNamespace\n)\x81");
        keep(maker);
        put(maker, "}");
        put_pairs(maker, n, depth);
        put(maker, "b");
        return;
    }
    keep(maker);
}

static void put_value(struct maker *maker, unsigned depth)
{
    const unsigned kind = below(maker, 10);

    if (maker->left > 0)
        maker->left--;
    if (kind < 2 && maker->memo > 0)
        put_number(maker, 'j', below(maker, maker->memo), 4);
    else if (kind < 6 || depth > 20 || maker->left == 0)
        put_scalar(maker);
    else
        put_container(maker, depth);
}

/* ---- comparing ---- */

struct pairing {
    const struct rfs_node **of_a, **of_b; /* by number: the node of the other graph */
};

static void same(struct pairing *pairing, const struct rfs_node *a, const struct rfs_node *b);

static void same_items(struct pairing *pairing, const struct rfs_items *a,
                       const struct rfs_items *b)
{
    assert_int_equal(a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++)
        same(pairing, a->data[i], b->data[i]);
}

static void same_optional(struct pairing *pairing, const struct rfs_node *a,
                          const struct rfs_node *b)
{
    assert_int_equal(!a, !b);
    if (a)
        same(pairing, a, b);
}

static void same_call(struct pairing *pairing, const struct rfs_node *a, const struct rfs_node *b)
{
    static const struct rfs_after none;
    const struct rfs_after *x = a->of.call.after ? a->of.call.after : &none;
    const struct rfs_after *y = b->of.call.after ? b->of.call.after : &none;
    static const struct rfs_items empty;

    same(pairing, a->of.call.callee, b->of.call.callee);
    same(pairing, a->of.call.args, b->of.call.args);
    same_items(pairing, x->list ? &x->list->of.items : &empty,
               y->list ? &y->list->of.items : &empty);
    same_items(pairing, x->dict ? &x->dict->of.items : &empty,
               y->dict ? &y->dict->of.items : &empty);
    same_optional(pairing, x->state, y->state);
}

/* Whether the node is one object, and not only a value. */
static bool has_identity(const struct rfs_node *node)
{
    switch ((enum rfs_node_kind)node->kind) {
    case RFS_NODE_TEXT:
    case RFS_NODE_LIST:
    case RFS_NODE_DICT:
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        return true;
    case RFS_NODE_TUPLE:
        return node->of.items.n > 0;
    default:
        return false;
    }
}

static void same(struct pairing *pairing, const struct rfs_node *a, const struct rfs_node *b)
{
    assert_int_equal(a->kind, b->kind);
    if (has_identity(a)) {
        const bool met = pairing->of_a[a->number] != NULL;
        if (met)
            assert_ptr_equal(pairing->of_a[a->number], b);
        assert_int_equal(met, pairing->of_b[b->number] != NULL);
        if (met)
            return;
        pairing->of_a[a->number] = b;
        pairing->of_b[b->number] = a;
    }
    switch ((enum rfs_node_kind)a->kind) {
    case RFS_NODE_NONE:
        return;
    case RFS_NODE_BOOL:
        assert_int_equal(a->of.truth, b->of.truth);
        return;
    case RFS_NODE_INT:
        assert_true(a->of.integer == b->of.integer);
        return;
    case RFS_NODE_FLOAT:
        assert_true(a->of.bits == b->of.bits);
        return;
    case RFS_NODE_LONG:
    case RFS_NODE_TEXT:
        assert_int_equal(a->of.text.n, b->of.text.n);
        assert_memory_equal(a->of.text.data, b->of.text.data, a->of.text.n);
        return;
    case RFS_NODE_GLOBAL:
        assert_int_equal(a->of.global.name_bytes, b->of.global.name_bytes);
        assert_memory_equal(rfs_pickle_global_name(a), rfs_pickle_global_name(b),
                            a->of.global.name_bytes);
        return;
    case RFS_NODE_CALL:
    case RFS_NODE_NEW:
        same_call(pairing, a, b);
        return;
    default:
        same_items(pairing, &a->of.items, &b->of.items);
    }
}

static void same_graph(const struct rfs_pickle *a, const struct rfs_pickle *b)
{
    struct pairing pairing = {calloc(a->n_nodes + 1, sizeof(void *)),
                              calloc(b->n_nodes + 1, sizeof(void *))};

    assert_non_null(pairing.of_a);
    assert_non_null(pairing.of_b);
    same(&pairing, a->root, b->root);
    free(pairing.of_a);
    free(pairing.of_b);
}

/* ---- reading and writing ---- */

static void read_pickle(const void *bytes, size_t n, struct rfs_pickle *out)
{
    const struct rfs_pickle_from from = {"x.pt", 0, 0, NULL, false};
    struct rfs_error err = {0};
    unsigned char *copy = malloc(n + 1);

    assert_non_null(copy);
    memcpy(copy, bytes, n);
    if (rfs_pickle_read(copy, n, &from, out, &err))
        fail_msg("%s", err.text);
}

static int no_key(void *ctx, const struct rfs_node *storage, uint32_t *key)
{
    (void)ctx;
    (void)storage;
    (void)key;
    return -EINVAL;
}

static void write_pickle(const struct rfs_pickle *pickle, struct rfs_bytes *out)
{
    struct rfs_error err = {0};

    *out = (struct rfs_bytes){0};
    if (rfs_pickler_write(pickle->root, no_key, NULL, out, &err))
        fail_msg("%s", err.text);
}

/* Read, written, read: the same; and written once more, the same bytes. */
static void expect_same(const void *bytes, size_t n)
{
    struct rfs_pickle first;
    struct rfs_pickle second;
    struct rfs_bytes out;
    struct rfs_bytes again;

    read_pickle(bytes, n, &first);
    write_pickle(&first, &out);
    read_pickle(out.data, out.n, &second);
    same_graph(&first, &second);
    write_pickle(&second, &again);
    assert_int_equal(again.n, out.n);
    assert_memory_equal(again.data, out.data, out.n);
    rfs_pickle_free(&first);
    rfs_pickle_free(&second);
    free(out.data);
    free(again.data);
}

static void test_random_graphs(void **state)
{
    struct maker maker = {.random = test_seed()};

    (void)state;
    for (unsigned i = 0; i < 3000; i++) {
        maker.out.n = 0;
        maker.memo = 0;
        maker.left = 1 + below(&maker, 300);
        put(&maker, "\x80\x02");
        put_value(&maker, 0);
        put(&maker, ".");
        expect_same(maker.out.data, maker.out.n);
    }
    bytes_free(&maker.out);
}

/* Lists and dicts of as many items as end a batch, and one more. */
static void test_batches(void **state)
{
    static const unsigned counts[] = {0, 1, 2, 999, 1000, 1001, 1999, 2000, 2001};

    (void)state;
    for (unsigned i = 0; i < 2 * sizeof counts / sizeof *counts; i++) {
        struct maker maker = {.random = i};
        const bool dict = i % 2;
        put(&maker, dict ? "\x80\x02}(" : "\x80\x02](");
        for (unsigned k = 0; k < counts[i / 2]; k++) {
            put_number(&maker, 'M', k, 2);
            if (dict)
                put(&maker, "N");
        }
        put(&maker, dict ? "u." : "e.");
        expect_same(maker.out.data, maker.out.n);
        bytes_free(&maker.out);
    }
}

/* Bytes that CPython's pickler writes of these values, taken from pickletools' own rules. */
static void test_as_cpython_writes(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
    } pickles[] = {
#define PICKLE(text) {"\x80\x02" text ".", sizeof("\x80\x02" text ".") - 1}
        PICKLE("]q\0h\0a"),                        /* a = []; a.append(a) */
        PICKLE("]q\0(K\1K\2e"),                    /* [1, 2] */
        PICKLE("}q\0X\1\0\0\0aq\1X\1\0\0\0bq\2s"), /* {"a": "b"} */
        PICKLE("(K\1K\2K\3K\4tq\0"),               /* (1, 2, 3, 4) */
        PICKLE("]q\0)a"),                          /* [()] */
        PICKLE("]q\0(J\0\0\1\0J\xff\xff\xff\xff"
               "e"), /* [65536, -1] */
        PICKLE("]q\0(\x8a\5\0\0\0\x80\0\x8a\5\xff\xff\xff\x7f\xff"
               "e"),                                          /* [2**31, -2**31 - 1] */
        PICKLE("ccollections\nOrderedDict\nq\0)Rq\1K\1K\2s"), /* OrderedDict([(1, 2)]) */
        PICKLE("]q\0h\0\x85q\1a"),                            /* a = []; a.append((a,)) */
    };

    (void)state;
    for (unsigned i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        struct rfs_pickle pickle;
        struct rfs_bytes out;
        read_pickle(pickles[i].bytes, pickles[i].n, &pickle);
        write_pickle(&pickle, &out);
        assert_int_equal(out.n, pickles[i].n);
        assert_memory_equal(out.data, pickles[i].bytes, out.n);
        rfs_pickle_free(&pickle);
        free(out.data);
    }
}

/*
 * A tuple that is in its own item: t = ([],); t[0].append(t). CPython writes it so, and it stays
 * so.
 */
static void test_tuple_in_itself(void **state)
{
    static const char one[] = "\x80\x02]q\0h\0\x85q\1a0h\1.";
    static const char four[] = "\x80\x02(]q\0(h\0K\2K\3K\4tq\1aK\2K\3K\4"
                               "1h\1.";
    struct rfs_pickle pickle;
    struct rfs_bytes out;

    (void)state;
    expect_same(one, sizeof one - 1);
    read_pickle(one, sizeof one - 1, &pickle);
    write_pickle(&pickle, &out);
    assert_int_equal(out.n, sizeof one - 1);
    assert_memory_equal(out.data, one, out.n);
    rfs_pickle_free(&pickle);
    free(out.data);
    expect_same(four, sizeof four - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_as_cpython_writes),
        cmocka_unit_test(test_tuple_in_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
