/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pickles: what is read of them, and what is refused. The bytes are those of Python's pickletools.
 */
#include "formats/torch/pickle.h"
#include "tests/unit/store/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define P "\x80\x02"
/* Pieces of pickles. */
#define TEXT1(length, text) "X" length "\0\0\0" text
#define STORE "ctorch\nFloatStorage\n"
#define ODICT "ccollections\nOrderedDict\n)R"
#define STORAGE "(" TEXT1("\7", "storage") STORE TEXT1("\1", "0") TEXT1("\3", "cpu") "K\4tQ"
#define TENSOR "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE "K\0K\4\x85K\1\x85\x89" ODICT "tR"
#define ENCODE "c_codecs\nencode\n"
#define BYTES(length, text) ENCODE TEXT1(length, text) TEXT1("\6", "latin1") "\x86R"
#define NPDTYPE(length, name) "cnumpy\ndtype\n" TEXT1(length, name) "\x89\x88\x87R"
#define NPSTATE "(K\3" TEXT1("\1", "<") "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
#define ARRAY                                                                                      \
    "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" BYTES("\1", "b") "\x87R"

static enum rfs_pickle_names names_read = RFS_PICKLE_PLAIN;

static int read_bytes(const void *bytes, size_t n, struct rfs_pickle *out, struct rfs_error *err)
{
    const struct rfs_pickle_from from = {"a.pt", 1000, 7, NULL, names_read};
    unsigned char *copy = malloc(n + 1);
    memcpy(copy, bytes, n);
    return rfs_pickle_read(copy, n, &from, out, err);
}

static void accepted(const char *bytes, size_t n, enum rfs_node_kind kind)
{
    struct rfs_pickle pickle;
    struct rfs_error err = {0};
    if (read_bytes(bytes, n, &pickle, &err))
        fail_msg("%s", err.text);
    assert_int_equal(pickle.root->kind, kind);
    rfs_pickle_free(&pickle);
}
#define ACCEPTED(kind, bytes) accepted(P bytes ".", sizeof(P bytes ".") - 1, RFS_NODE_##kind)

static void refused(const char *bytes, size_t n, int code, const char *part)
{
    struct rfs_pickle pickle;
    struct rfs_error err = {0};
    assert_int_equal(read_bytes(bytes, n, &pickle, &err), code);
    if (!strstr(err.text, part) || strncmp(err.text, "a.pt: ", 6) != 0)
        fail_msg("no '%s' in: %s", part, err.text);
    assert_null(pickle.root);
    assert_int_equal(read_bytes(bytes, n, &pickle, NULL), code);
}
#define REFUSED(code, part, bytes) refused(P bytes ".", sizeof(P bytes ".") - 1, code, part)
#define DAMAGED(part, bytes) REFUSED(-EINVAL, "damaged: " part, bytes)
#define NOT_ALLOWED(part, bytes) REFUSED(-ENOTSUP, part, bytes)

static void test_values(void **state)
{
    (void)state;
    struct rfs_pickle pickle;
    const char list[] =
        P "](N\x88\x89K\xffM\xff\xffJ\xfe\xff\xff\xff\x8a\0\x8a\1\x80\x8a\x09\1\2\3\4\5\6\7\x08\x09"
          "G\x3f\xf0\0\0\0\0\0\0X\3\0\0\0a\0\xc3"
          "e.";
    assert_int_equal(read_bytes(list, sizeof list - 1, &pickle, NULL), -EINVAL); /* half a letter */
    const char good[] =
        P "](N\x88\x89K\xffM\xff\xffJ\xfe\xff\xff\xff\x8a\0\x8a\1\x80\x8a\x09\1\2\3\4\5\6\7\x08\x09"
          "G\x3f\xf0\0\0\0\0\0\0X\5\0\0\0a\0\xed\xa0\x80"
          "e.";
    assert_int_equal(read_bytes(good, sizeof good - 1, &pickle, NULL), 0);
    const struct rfs_items *items = &pickle.root->of.items;
    assert_int_equal(items->n, 11);
    assert_int_equal(items->data[0]->kind, RFS_NODE_NONE);
    assert_true(items->data[1]->of.truth);
    assert_false(items->data[2]->of.truth);
    static const int64_t numbers[] = {255, 65535, -2, 0, -128};
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(items->data[3 + i]->of.integer, numbers[i]);
    assert_int_equal(items->data[8]->kind, RFS_NODE_LONG);
    assert_int_equal(items->data[9]->of.bits, 0x3ff0000000000000);
    assert_int_equal(items->data[10]->of.text.n,
                     5); /* a NUL and a lone surrogate are texts of Python's */
    assert_int_equal(items->data[10]->origin, 7);
    rfs_pickle_free(&pickle);
}

/* What CPython writes of them. */
static void test_allowed(void **state)
{
    (void)state;
    ACCEPTED(CALL, TENSOR);
    ACCEPTED(CALL, "ctorch._utils\n_rebuild_parameter\n" TENSOR "\x88" ODICT "\x87R");
    ACCEPTED(CALL, "ctorch\nSize\nK\2K\3\x86\x85R");
    ACCEPTED(CALL, ODICT "K\1K\2s}K\3Nsb");
    ACCEPTED(CALL, "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85RK\1]s");
    ACCEPTED(CALL, "ccollections\ndeque\n)K\3\x86RK\1a");
    ACCEPTED(CALL, "ccollections\nCounter\n}K\1K\2s\x85R");
    ACCEPTED(NEW, "cargparse\nNamespace\n)\x81}K\1K\2sb");
    ACCEPTED(CALL, BYTES("\2", "ab"));
    ACCEPTED(CALL, "c__builtin__\nbytes\n)R");
    ACCEPTED(CALL, "c__builtin__\nbytearray\n" BYTES("\2", "ab") "\x85R");
    ACCEPTED(CALL, "c__builtin__\nset\n](K\1K\2e\x85R");
    ACCEPTED(CALL, "c__builtin__\nslice\nK\1NK\2\x87R");
    ACCEPTED(CALL, NPDTYPE("\2", "f8") NPSTATE);
    ACCEPTED(CALL, "cnumpy.core.multiarray\nscalar\n" NPDTYPE("\2", "f8")
                       NPSTATE BYTES("\2", "ab") "\x86R");
    ACCEPTED(CALL, ARRAY "(K\1K\2\x85" NPDTYPE("\2", "i4") NPSTATE "\x89" BYTES("\2", "ab") "tb");
    ACCEPTED(CALL, NPDTYPE("\2", "U2") "(K\3" TEXT1("\1", "<") "NNNK\x08K\4K\x08tb");
    ACCEPTED(GLOBAL, "ctorch\nfloat16\n");
    ACCEPTED(LIST, "]q\0h\0a"); /* it contains itself */
}

/* Names that are not on the list. */
static void test_names(void **state)
{
    (void)state;
    NOT_ALLOWED("a.pt: offset 1002: the pickle in it names os.system, which is not read",
                "cos\nsystem\n" TEXT1("\2", "id") "\x85R");
    NOT_ALLOWED("names posix.system", "cposix\nsystem\n)R");
    NOT_ALLOWED("names __builtin__.eval", "c__builtin__\neval\n)R");
    NOT_ALLOWED("names __builtin__.getattr", "c__builtin__\ngetattr\n)R");
    NOT_ALLOWED("names torch.load", "ctorch\nload\n)R");
    NOT_ALLOWED("names torch. Size", "ctorch\n Size\n)R");
    NOT_ALLOWED("names \\x1b[0m.x", "c\033[0m\nx\n");
    DAMAGED("a name without an end", "ctorch\nSize");
    REFUSED(-ENOTSUP, "opcode 0x93", "\x93");           /* STACK_GLOBAL */
    REFUSED(-ENOTSUP, "opcode 0x69", "(ios\nsystem\n"); /* INST */
    REFUSED(-ENOTSUP, "opcode 0x6f", "(o");             /* OBJ */
}

/* Names that are, used as pickling does not use them: harmful to who loads the same again. */
static void test_uses(void **state)
{
    (void)state;
    NOT_ALLOWED("uses __builtin__.bytes in a way that is not read",
                "c__builtin__\nbytes\nJ\xff\xff\xff\x7f\x85R");
    NOT_ALLOWED("uses __builtin__.bytearray", "c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R");
    NOT_ALLOWED("uses _codecs.encode", ENCODE TEXT1("\2", "ab") TEXT1("\3", "hex") "\x86R");
    NOT_ALLOWED("uses _codecs.encode", ENCODE BYTES("\2", "ab") TEXT1("\6", "latin1") "\x86R");
    NOT_ALLOWED("uses __builtin__.tuple", "c__builtin__\ntuple\n]\x85R");
    NOT_ALLOWED("uses __builtin__.int", "c__builtin__\nint\nK\1\x85R");
    NOT_ALLOWED("uses torch.FloatStorage", "ctorch\nFloatStorage\nK\1\x85R");
    NOT_ALLOWED("uses numpy.ndarray", "cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85\x85R");
    NOT_ALLOWED("uses numpy.dtype", NPDTYPE("\2", "O8"));
    NOT_ALLOWED("uses numpy.dtype", NPDTYPE("\2", "V8"));
    NOT_ALLOWED("uses numpy.dtype", "cnumpy\ndtype\nK\1\x89\x88\x87R");
    NOT_ALLOWED(
        "uses numpy.dtype", /* flags of objects */
        NPDTYPE("\2", "i8") "(K\3" TEXT1("\1", "<") "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ftb");
    NOT_ALLOWED("uses numpy.dtype", /* another size than its own */
                NPDTYPE("\2", "U2") "(K\3" TEXT1("\1", "<") "NNNK\x40K\4K\x08tb");
    NOT_ALLOWED(
        "uses numpy.core.multiarray._reconstruct",
        "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nJ\xff\xff\xff\x7f\x85" BYTES(
            "\1", "b") "\x87R");
    NOT_ALLOWED("uses numpy.core.multiarray._reconstruct", /* of objects in a list */
                ARRAY "(K\1K\2\x85" NPDTYPE("\2", "i4") "\x89]tb");
    NOT_ALLOWED("uses numpy.core.multiarray.scalar",
                "cnumpy.core.multiarray\nscalar\n" NPDTYPE("\2", "f8") "N\x86R");
    NOT_ALLOWED("uses collections.OrderedDict", "ccollections\nOrderedDict\n]\x85R");
    NOT_ALLOWED("uses collections.OrderedDict", ODICT "Nb");
    NOT_ALLOWED("uses argparse.Namespace", "cargparse\nNamespace\n)R");
    NOT_ALLOWED("uses argparse.Namespace", /* slots: setattr of anything */
                "cargparse\nNamespace\n)\x81N}K\1K\2s\x86"
                "b");
    NOT_ALLOWED("uses collections.deque", "ccollections\ndeque\n)\x81");
    NOT_ALLOWED("uses torch._utils._rebuild_tensor_v2", TENSOR "}b");
    NOT_ALLOWED("uses torch._utils._rebuild_tensor_v2", "ctorch._utils\n_rebuild_tensor_v2\n)R");
    NOT_ALLOWED("uses torch.Size", "ctorch\nSize\nJ\xff\xff\xff\xff\x85\x85R");
    NOT_ALLOWED("uses collections.defaultdict", "ccollections\ndefaultdict\nK\1\x85R");
    DAMAGED("items are set on something that is not a dict", TENSOR "K\0K\1s");
    DAMAGED("items are set on something that is not a dict", "cargparse\nNamespace\n)\x81K\0K\1s");
    DAMAGED("items are added to something that is not a list", ODICT "K\0a");
    DAMAGED("an object with two states", "cargparse\nNamespace\n)\x81}b}b");
    DAMAGED("a call of something that is not callable", "K\1)R");
    DAMAGED("a call of something that is not callable", "ctorch\nSize\n]R");
}

#define SHARDED_TENSOR "ctorch.distributed._shard.sharded_tensor.api\nShardedTensor\n"
#define MEMORY_FORMAT "ctorch.distributed._shard.sharded_tensor.metadata\nMEM_FORMAT_ENCODING\n"
#define GET "c__builtin__\ngetattr\n"
#define GROUP_STATE GET SHARDED_TENSOR TEXT1("\x11", "ProcessGroupState") "\x86R"

/* The parts of ShardedTensors: two attributes are names, and no others. */
static void test_sharded(void **state)
{
    (void)state;
    NOT_ALLOWED("names torch.distributed._shard.sharded_tensor.api.ShardedTensor", SHARDED_TENSOR);
    names_read = RFS_PICKLE_SHARDED;
    ACCEPTED(GLOBAL, SHARDED_TENSOR);
    ACCEPTED(GLOBAL, GROUP_STATE);
    ACCEPTED(NEW, GROUP_STATE ")\x81}b");
    ACCEPTED(CALL, MEMORY_FORMAT "K\0\x85R");
    ACCEPTED(CALL, GET MEMORY_FORMAT TEXT1("\x17", "TORCH_CONTIGUOUS_FORMAT") "\x86R");
    ACCEPTED(NEW, "ctorch.distributed._shard.metadata\nShardMetadata\n)\x81N}\x86"
                  "b");
#define PROPERTIES "ctorch.distributed._shard.sharded_tensor.metadata\nTensorProperties\n)\x81"
    ACCEPTED(NEW, PROPERTIES "(NN\x89K\0\x89t"
                             "b");
    ACCEPTED(NEW, PROPERTIES "(NN\x89K\0\x89)t" /* with strides */
                             "b");
    NOT_ALLOWED("TensorProperties in a way that is not read", PROPERTIES "(NN\x89K\0t"
                                                                         "b");
    static const char get[] = "uses __builtin__.getattr in a way that is not read";
    NOT_ALLOWED(get, GET SHARDED_TENSOR TEXT1("\x08", "__init__") "\x86R");
    NOT_ALLOWED(get, GET "ccollections\nOrderedDict\n" TEXT1("\x11", "ProcessGroupState") "\x86R");
    NOT_ALLOWED(get, GET MEMORY_FORMAT "K\0\x86R");
    NOT_ALLOWED(get, GET SHARDED_TENSOR TEXT1("\x11", "ProcessGroupState") "N\x87R");
    NOT_ALLOWED("ShardedTensor.ProcessGroupState in a way that is not read", GROUP_STATE ")R");
    NOT_ALLOWED("ShardedTensor.ProcessGroupState in a way that is not read",
                GROUP_STATE ")\x81K\1\x85"
                            "b");
    NOT_ALLOWED("ShardedTensor in a way that is not read", SHARDED_TENSOR ")\x81");
    NOT_ALLOWED("metadata.ShardMetadata in a way that is not read",
                "ctorch.distributed._shard.metadata\nShardMetadata\n)\x81}b");
    names_read = RFS_PICKLE_PLAIN;
}

static void test_protocols(void **state)
{
    (void)state;
    refused("\x80\4N.", 4, -ENOTSUP, "is of protocol 4; protocol 2 is read");
    refused("", 0, -EINVAL, "it has no end");
    refused("\x80", 1, -EINVAL, "a protocol number in the middle");
}

static void test_stack(void **state)
{
    (void)state;
    DAMAGED("it ends with values left over, or with none", "");
    DAMAGED("it ends with values left over, or with none", "NN");
    DAMAGED("it ends with values left over, or with none", "N(");
    DAMAGED("something follows its end", "N.");
    DAMAGED("a protocol number in the middle", "N\x80\x02");
    DAMAGED("nothing to drop", "0");
    DAMAGED("nothing to drop", "N(0"); /* not from below a mark */
    DAMAGED("nothing to repeat", "2");
    DAMAGED("no mark is set", "1");
    DAMAGED("no mark is set", "Nt");
    DAMAGED("too few values for a tuple", "N\x86");
    DAMAGED("too few values for a tuple", "N(N\x86");
    DAMAGED("items without a container", "Na");
    DAMAGED("items without a container", "(e");
    DAMAGED("items without a container", "N((e");
    DAMAGED("items are added to something that is not a list", "}Na");
    DAMAGED("items are set on something that is not a dict", "]NNs");
    DAMAGED("items are set on something that is not a dict", "NNNs");
    DAMAGED("a key without a value", "}(Nu");
    DAMAGED("a key without a value", "(Nd");
    DAMAGED("nothing to remember", "q\0");
    DAMAGED("a memo number out of order", "Nq\1");
    DAMAGED("a memo number out of order", "Nr\xff\xff\xff\xff");
    DAMAGED("a memo number that was never set", "h\0");
    DAMAGED("a memo number that was never set", "Nq\0j\1\0\0\0");
    DAMAGED("a state without an object", "]}b");
    DAMAGED("a persistent id that is not a storage", "NQ");
    DAMAGED("a persistent id that is not a storage", "(" TEXT1("\7", "storage") STORE "NNNtQ");
    DAMAGED("a persistent id that is not a storage",
            "(" TEXT1("\7", "storage") STORE TEXT1("\1", "0")
                TEXT1("\3", "cpu") "J\xff\xff\xff\xfftQ");
    DAMAGED("a text that is not UTF-8", TEXT1("\2", "\xc0\x80"));
    DAMAGED("a byte string of Python 2 that is not ASCII", "U\1\xff");
    DAMAGED("it ends within a text", "X\xff\xff\xff\xff");
    DAMAGED("it ends within a number", "\x8b\xff\xff\xff\xff");
    DAMAGED("it ends within a number", "J\1\1");
}

/* One byte each makes a value, or takes a place: what they take is counted. */
static void test_bombs(void **state)
{
    (void)state;
    static const struct {
        unsigned char before, op;
        size_t n;
        int code;
        const char *part;
    } bombs[] = {{'N', ']', 1 << 20, -EFBIG, "would take more than"},
                 {'N', ']', 8 * (size_t)RFS_PICKLE_NODES, -EINVAL, "more than 8388608 values"},
                 {'N', '2', 8 << 20, -EFBIG, "would take more than"},
                 {'N', '(', 4 * (size_t)RFS_PICKLE_NODES + 1, -EINVAL, "8388608 values"}};
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        struct rfs_pickle pickle;
        struct rfs_error err = {0};
        const struct rfs_pickle_from from = {"a.pt", 0, 0, NULL, false};
        unsigned char *bytes = malloc(bombs[i].n + 3);
        assert_non_null(bytes);
        memset(bytes, bombs[i].op, bombs[i].n + 3);
        memcpy(bytes, P, 2);
        bytes[2] = bombs[i].before;
        assert_int_equal(rfs_pickle_read(bytes, bombs[i].n + 3, &from, &pickle, &err),
                         bombs[i].code);
        assert_non_null(strstr(err.text, bombs[i].part));
    }
}

/*
 * What samplers and data loaders leave in a state: a million numbers, or of pairs or short lists of
 * them.
 */
static void test_long_lists(void **state)
{
    /* As torch.save writes them: an item, and how often; after each 1,000 an APPENDS. */
    static const struct {
        const char *item;
        size_t n, times;
    } lists[] = {{"J\1\1\1\1", 5, 300000},
                 {"J\1\1\1\1", 5, 1281167},
                 {"G\77\360\0\0\0\0\0\1", 9, 500000},
                 {"J\1\1\1\1J\2\2\2\2\206", 11, 400000},
                 {"](J\1\1\1\1J\2\2\2\2e", 13, 500000}};
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct rfs_pickle pickle;
        struct bytes b = {0};
        bytes_add(&b, P "](", 4);
        for (size_t k = 0; k < lists[i].times; k++) {
            if (k > 0 && k % 1000 == 0)
                bytes_add(&b, "e(", 2);
            bytes_add(&b, lists[i].item, lists[i].n);
        }
        bytes_add(&b, "e.", 2);
        assert_int_equal(read_bytes(b.p, b.n, &pickle, NULL), 0);
        assert_int_equal(pickle.root->of.items.n, lists[i].times);
        rfs_pickle_free(&pickle);
        bytes_free(&b);
    }
}

/*
 * Constants are shared, items are not copied more often than they double: so a long list is cheap.
 */
static void test_cost(void **state)
{
    (void)state;
    struct rfs_pickle pickle;
    struct bytes b = {0};
    const unsigned n = 60000;
    bytes_add(&b, P "]", 3);
    for (unsigned i = 0; i < n;) {
        bytes_text(&b, "(");
        for (unsigned end = i + 1000; i < end; i++)
            bytes_add(&b, (unsigned char[]){'M', (unsigned char)i, (unsigned char)(i >> 8)}, 3);
        bytes_text(&b, "e");
    }
    bytes_text(&b, ".");
    assert_int_equal(read_bytes(b.p, b.n, &pickle, NULL), 0);
    assert_int_equal(pickle.root->of.items.n, n);
    assert_int_equal(pickle.root->of.items.data[n - 1]->of.integer, n - 1);
    assert_true(pickle.arena.bytes < 2 * n * sizeof(void *));
    rfs_pickle_free(&pickle);
    bytes_free(&b);
}

/* Whatever stands in it, and wherever it ends. */
static void test_random_damage(void **state)
{
    (void)state;
    static const char whole[] = P "}q\0(" TEXT1("\1", "a") TENSOR "q\1" TEXT1(
        "\1", "b") "h\1" TEXT1("\1", "c") "](K\1h\0NM\2\3\x85"
                                          "eK\5cargparse\nNamespace\n)\x81}" TEXT1("\1", "d") ARRAY
        "(K\1K\2\x85" NPDTYPE("\2", "i4") NPSTATE "\x89" BYTES("\2", "ab") "tbsbu.";
    static const unsigned char ops[] =
        "(012N\x88\x89KMJ\x8a\x8bGXUTc)t\x85\x86\x87]lae}dsuqrhjR\x81"
        "bQ.";
    struct random random = {random_seed()};
    struct rfs_pickle pickle;
    assert_int_equal(read_bytes(whole, sizeof whole - 1, &pickle, NULL), 0);
    rfs_pickle_free(&pickle);
    for (size_t n = 0; n + 1 < sizeof whole - 1; n++)
        assert_true(read_bytes(whole, n, &pickle, NULL) < 0);
    for (unsigned round = 0; round < 100000; round++) {
        unsigned char bytes[sizeof whole];
        memcpy(bytes, whole, sizeof whole);
        for (uint64_t i = random_below(&random, 4) + 1; i > 0; i--)
            bytes[random_below(&random, sizeof whole - 1)] =
                random_below(&random, 2) ? ops[random_below(&random, sizeof ops - 1)]
                                         : (unsigned char)random_next(&random);
        struct rfs_error err = {0};
        if (read_bytes(bytes, sizeof whole - 1, &pickle, &err) == 0)
            rfs_pickle_free(&pickle);
        else
            assert_true(err.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_uses),
        cmocka_unit_test(test_sharded),       cmocka_unit_test(test_protocols),
        cmocka_unit_test(test_stack),         cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_cost),          cmocka_unit_test(test_long_lists),
        cmocka_unit_test(test_random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
