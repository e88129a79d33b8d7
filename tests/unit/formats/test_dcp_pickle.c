/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pickle of a .metadata: what is read of it, and what is refused. The bytes are those of
 * Python's pickletools.
 */
#include "formats/dcp/dcp_pickle.h"
#include "tests/unit/store/writer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define P "\x80\x04"
/* Pieces of pickles. */
#define TEXT(length, text) "\x8c" length text
#define NAME(n, module, m, name) TEXT(n, module) TEXT(m, name) "\x93"
#define META "torch.distributed.checkpoint.metadata"
#define CHUNK NAME("\x25", META, "\x14", "ChunkStorageMetadata")
#define SIZE NAME("\5", "torch", "\4", "Size")
#define LAYOUT NAME("\x13", "torch.serialization", "\x0b", "_get_layout")
#define ENCODING NAME("\x25", META, "\x14", "_MEM_FORMAT_ENCODING")
#define PATH NAME("\7", "pathlib", "\x09", "PosixPath")
#define ODICT NAME("\x0b", "collections", "\x0b", "OrderedDict")

static int read_bytes(const void *bytes, size_t n, struct rfs_dcp_pickle *out,
                      struct rfs_error *err)
{
    struct memory memory = {.p = bytes, .n = n};
    return rfs_dcp_pickle_read(RFS_BYTES_SOURCE(memory_read, &memory, n, ".metadata"), out, err);
}

static struct rfs_dcp_pickle parsed(const char *bytes, size_t n)
{
    struct rfs_dcp_pickle pickle;
    struct rfs_error err = {0};
    if (read_bytes(bytes, n, &pickle, &err))
        fail_msg("%s", err.text);
    return pickle;
}
#define PARSED(bytes) parsed(P bytes ".", sizeof(P bytes ".") - 1)

static void accepted(const char *bytes, size_t n, uint32_t root)
{
    struct rfs_dcp_pickle pickle = parsed(bytes, n);
    assert_int_equal(pickle.root, root);
    rfs_dcp_pickle_free(&pickle);
}
#define ACCEPTED(kind, number, bytes)                                                              \
    accepted(P bytes ".", sizeof(P bytes ".") - 1, rfs_dcp_value(RFS_DCP_##kind, number))

static void refused(const char *bytes, size_t n, int code, const char *part)
{
    struct rfs_dcp_pickle pickle;
    struct rfs_error err = {0};
    assert_int_equal(read_bytes(bytes, n, &pickle, &err), code);
    if (!strstr(err.text, part) || strncmp(err.text, ".metadata: ", 11) != 0)
        fail_msg("no '%s' in: %s", part, err.text);
    assert_null(pickle.words.data);
    assert_null(pickle.texts);
    assert_int_equal(read_bytes(bytes, n, &pickle, NULL), code);
}
#define REFUSED(code, part, bytes) refused(P bytes ".", sizeof(P bytes ".") - 1, code, part)
#define DAMAGED(part, bytes) REFUSED(-EINVAL, "damaged: " part, bytes)
#define NOT_READ(part, bytes) REFUSED(-ENOTSUP, part, bytes)

static void test_plain_values(void **state)
{
    (void)state;
    ACCEPTED(PLAIN, RFS_DCP_NONE, "N");
    ACCEPTED(PLAIN, RFS_DCP_TRUE, "\x88");
    ACCEPTED(PLAIN, RFS_DCP_FALSE, "\x89");
    ACCEPTED(PLAIN, RFS_DCP_OPAQUE, "G\x3f\xf0\0\0\0\0\0\0");
    ACCEPTED(INT, 255, "K\xff");
    ACCEPTED(INT, 0xfffe, "M\xfe\xff");
    ACCEPTED(INT, 0x1fffffff, "J\xff\xff\xff\x1f");
    ACCEPTED(INT, 7, "\x8a\1\7");
    ACCEPTED(INT, 0, "\x8a\0");
    ACCEPTED(TEXT, RFS_DCP_SIZES, TEXT("\5", "sizes"));
    ACCEPTED(TEXT, RFS_DCP_FQN,
             "X\3\0\0\0"
             "fqn");
    accepted("\x80\5\x95\2\0\0\0\0\0\0\0N.", 13, rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE));
}

static void has_integer(const char *bytes, size_t n, int64_t want)
{
    struct rfs_dcp_pickle pickle = parsed(bytes, n);
    int64_t have;
    assert_true(rfs_dcp_integer(&pickle, pickle.root, &have));
    assert_true(have == want);
    rfs_dcp_pickle_free(&pickle);
}
#define INTEGER(want, bytes) has_integer(P bytes ".", sizeof(P bytes ".") - 1, want)

static void test_large_integers(void **state)
{
    (void)state;
    INTEGER(INT64_C(0x20000000), "J\0\0\0\x20");
    INTEGER(-2, "J\xfe\xff\xff\xff");
    INTEGER(-128, "\x8a\1\x80");
    INTEGER(INT64_C(0x1234567890), "\x8a\5\x90\x78\x56\x34\x12");
    INTEGER(INT64_MIN, "\x8a\x08\0\0\0\0\0\0\0\x80");
    INTEGER(INT64_MAX, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f");
}

static void test_containers(void **state)
{
    (void)state;
    struct rfs_dcp_pickle pickle = PARSED("](K\1K\2eK\3a(K\4e(e");
    struct rfs_dcp_each each = rfs_dcp_each(&pickle, pickle.root);
    uint32_t value;
    assert_int_equal(rfs_dcp_each(&pickle, pickle.root).n, 4);
    for (uint32_t i = 1; i <= 4; i++) {
        assert_true(rfs_dcp_next(&each, &value));
        assert_int_equal(value, rfs_dcp_value(RFS_DCP_INT, i));
    }
    assert_false(rfs_dcp_next(&each, &value));
    rfs_dcp_pickle_free(&pickle);

    pickle = PARSED("}(K\1NK\2\x88uK\3]s");
    assert_int_equal(rfs_dcp_each(&pickle, pickle.root).n, 6);
    rfs_dcp_pickle_free(&pickle);

    uint32_t n;
    pickle = PARSED("(NNNNt");
    assert_non_null(rfs_dcp_tuple(&pickle, pickle.root, &n));
    assert_int_equal(n, 4);
    assert_int_equal(rfs_dcp_each(&pickle, pickle.root).n, 0);
    each = rfs_dcp_each(&pickle, pickle.root);
    assert_false(rfs_dcp_next(&each, &value));
    rfs_dcp_pickle_free(&pickle);

    pickle = PARSED(")");
    assert_non_null(rfs_dcp_tuple(&pickle, pickle.root, &n));
    assert_int_equal(n, 0);
    rfs_dcp_pickle_free(&pickle);
}

static void test_memo(void **state)
{
    (void)state;
    const uint32_t sizes = rfs_dcp_value(RFS_DCP_TEXT, RFS_DCP_SIZES);
    struct rfs_dcp_pickle kept =
        PARSED("K\5\x94" TEXT("\5", "sizes") "\x94\x86\x94h\1j\0\0\0\0\x87");
    uint32_t n;
    const uint32_t *items = rfs_dcp_tuple(&kept, kept.root, &n);
    assert_int_equal(n, 3);
    assert_int_equal(items[1], sizes);
    assert_int_equal(items[2], rfs_dcp_value(RFS_DCP_INT, 5));
    items = rfs_dcp_tuple(&kept, items[0], &n);
    assert_int_equal(n, 2);
    assert_int_equal(items[0], rfs_dcp_value(RFS_DCP_INT, 5));
    assert_int_equal(items[1], sizes);
    rfs_dcp_pickle_free(&kept);
    /* A list may hold itself. */
    struct rfs_dcp_pickle pickle = PARSED("]\x94h\0a");
    struct rfs_dcp_each each = rfs_dcp_each(&pickle, pickle.root);
    uint32_t value;
    assert_true(rfs_dcp_next(&each, &value));
    assert_int_equal(value, pickle.root);
    assert_false(rfs_dcp_next(&each, &value));
    rfs_dcp_pickle_free(&pickle);
}

static void test_objects(void **state)
{
    (void)state;
    struct rfs_dcp_pickle pickle = PARSED(CHUNK ")\x81}(" TEXT("\5", "other") "K\7" TEXT(
        "\5", "sizes") SIZE "K\3K\4\x86\x85R" TEXT("\7", "offsets") "Nub");
    uint32_t n;
    assert_int_equal(rfs_dcp_class(&pickle, pickle.root), RFS_DCP_CHUNK);
    const uint32_t sizes = rfs_dcp_field(&pickle, pickle.root, RFS_DCP_SIZES);
    const uint32_t *items = rfs_dcp_tuple(&pickle, sizes, &n);
    assert_non_null(items);
    assert_int_equal(n, 2);
    assert_int_equal(items[0], rfs_dcp_value(RFS_DCP_INT, 3));
    assert_int_equal(items[1], rfs_dcp_value(RFS_DCP_INT, 4));
    const uint32_t none = rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE);
    assert_int_equal(rfs_dcp_field(&pickle, pickle.root, RFS_DCP_OFFSETS), none);
    assert_int_equal(rfs_dcp_field(&pickle, pickle.root, RFS_DCP_FQN), none);
    assert_int_equal(rfs_dcp_field(&pickle, sizes, RFS_DCP_FQN), none);
    assert_int_equal(rfs_dcp_class(&pickle, sizes), RFS_DCP_NO_CLASS);
    assert_int_equal(rfs_dcp_state(&pickle, none), none);
    rfs_dcp_pickle_free(&pickle);
}

static void test_calls(void **state)
{
    (void)state;
    ACCEPTED(TEXT, RFS_DCP_STRIDED, LAYOUT TEXT("\x0d", "torch.strided") "\x85R");
    ACCEPTED(PLAIN, RFS_DCP_OPAQUE, ENCODING "K\0\x85R");
    ACCEPTED(PLAIN, RFS_DCP_OPAQUE, PATH "(" TEXT("\1", "/") TEXT("\1", "a") "tR");
    struct rfs_dcp_pickle pickle = PARSED(ODICT ")R(K\1K\2u");
    assert_int_equal(rfs_dcp_kind(pickle.root), RFS_DCP_DICT);
    assert_int_equal(rfs_dcp_each(&pickle, pickle.root).n, 2);
    rfs_dcp_pickle_free(&pickle);
    DAMAGED("a call that torch does not write", SIZE ")R");
    DAMAGED("a call that torch does not write", SIZE "N\x85R");
    DAMAGED("a call that torch does not write", LAYOUT "K\1\x85R");
    DAMAGED("a call that torch does not write", ENCODING "N\x85R");
    DAMAGED("a call that torch does not write", PATH "K\1\x85R");
    DAMAGED("a call that torch does not write", ODICT "K\1\x85R");
    DAMAGED("a call that torch does not write", CHUNK ")R");
    DAMAGED("a call that torch does not write", NAME("\5", "torch", "\7", "float32") ")R");
    DAMAGED("an object that torch does not write", SIZE ")\x81");
    DAMAGED("an object that torch does not write", CHUNK "K\1\x85\x81");
    DAMAGED("a call of something that is not callable", "K\1)R");
    DAMAGED("a call of something that is not callable", SIZE "]R");
}

static void test_dtypes(void **state)
{
    (void)state;
    struct rfs_dcp_pickle pickle = PARSED(NAME("\5", "torch", "\x08", "bfloat16"));
    enum rfs_dtype dtype;
    const char *why;
    assert_true(rfs_dcp_dtype(pickle.root, &dtype, &why));
    assert_int_equal(dtype, RFS_BFLOAT16);
    assert_null(why);
    rfs_dcp_pickle_free(&pickle);
    pickle = PARSED(SIZE);
    assert_false(rfs_dcp_dtype(pickle.root, &dtype, &why));
    rfs_dcp_pickle_free(&pickle);
    assert_false(rfs_dcp_dtype(rfs_dcp_value(RFS_DCP_INT, 60), &dtype, &why));
    pickle = PARSED(NAME("\5", "torch", "\x0f", "float8_e4m3fnuz"));
    assert_true(rfs_dcp_dtype(pickle.root, &dtype, &why));
    assert_string_equal(why, "its elements are torch.float8_e4m3fnuz");
    rfs_dcp_pickle_free(&pickle);
    NOT_READ("names torch.float8, which", NAME("\5", "torch", "\6", "float8"));
}

static void test_other_names(void **state)
{
    (void)state;
    NOT_READ("names os.system, which is not read; nothing was executed",
             NAME("\2", "os", "\6", "system") TEXT("\4", "true") "\x85R");
    NOT_READ("names posix.system, which", NAME("\5", "posix", "\6", "system"));
    NOT_READ("names builtins.eval, which", NAME("\x08", "builtins", "\4", "eval"));
    NOT_READ("names builtins.getattr, which", NAME("\x08", "builtins", "\7", "getattr"));
    NOT_READ("names torch.load, which", NAME("\5", "torch", "\4", "load"));
    NOT_READ("names torch.serialization.load, which",
             NAME("\x13", "torch.serialization", "\4", "load"));
    NOT_READ("names torch.Size.__new__, which", NAME("\5", "torch", "\x0c", "Size.__new__"));
    DAMAGED("a name that is not one", TEXT("\5", "torch") "K\1\x93");
    DAMAGED("a name that is not one", TEXT("\6", "torch\0") TEXT("\4", "Size") "\x93");
    DAMAGED("a name that is not one", TEXT("\5", "torch") TEXT("\6", "Size\0x") "\x93");
    DAMAGED("a value is missing", TEXT("\5", "torch") "\x93");
}

static void test_other_opcodes(void **state)
{
    (void)state;
    /* GLOBAL, INST, OBJ, EXT1, PERSID, BINPERSID, NEWOBJ_EX, BINPUT, DUP, POP, BINBYTES, ... */
    static const unsigned char ops[] = {'c',  'i',  'o',  0x82, 'P',  'Q',  0x92, 'q', 'r',
                                        '2',  '0',  '1',  'B',  'C',  'I',  'L',  'F', 'S',
                                        0x8b, 0x8d, 0x8f, 0x90, 0x91, 0x96, 0x97, 0,   0xff};
    for (size_t i = 0; i < sizeof ops; i++) {
        const unsigned char bytes[] = {0x80, 4, 'N', ops[i], 'o', 's', '\n', 'x', '\n', '.'};
        char part[80];
        snprintf(part, sizeof part, "offset 3: the pickle in it has the opcode 0x%02x", ops[i]);
        refused((const char *)bytes, sizeof bytes, -ENOTSUP, part);
    }
    refused("\x80\2N.", 4, -ENOTSUP, "is of protocol 2; protocols 4 and 5");
    refused("\x80\6N.", 4, -ENOTSUP, "is of protocol 6");
    DAMAGED("a protocol number in the middle", P "N");
}

static void test_damage(void **state)
{
    (void)state;
    refused("", 0, -EINVAL, "it has no end");
    refused(P "N", 3, -EINVAL, "it has no end");
    refused(P TEXT("\7", "size"), 8, -EINVAL, "it has no end");
    refused(P "\x95\1\0\0\0\0\0\0\0", 11, -EINVAL, "a frame is longer than the file");
    refused(P "\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", 13, -EINVAL, "a frame is longer");
    refused(P "N.N", 5, -EINVAL, "something follows its end");
    DAMAGED("it ends with values left over", "NN");
    DAMAGED("it ends with values left over", "");
    DAMAGED("it ends with values left over", "N(");
    DAMAGED("a memo number that was never set", "N\x94h\1");
    DAMAGED("a memo number that was never set", "j\xff\xff\xff\xff");
    DAMAGED("nothing to remember", "\x94");
    DAMAGED("nothing to remember", "N(\x94");
    DAMAGED("no mark is set", "e");
    DAMAGED("no mark is set", "Nt");
    DAMAGED("items without a container", "(Ne");
    DAMAGED("items without a container", "N(Ne");
    DAMAGED("items without a container", "](K\1](K\2(ue");
    DAMAGED("items without a container", "](N(eu");
    DAMAGED("items without a container", "}K\1a");
    DAMAGED("a key without a value", "}(Nu");
    DAMAGED("items without a container", "]a");
    DAMAGED("items without a container", "](Na");
    DAMAGED("a value is missing", "](a");
    DAMAGED("a value is missing", "NN\x87");
    DAMAGED("a value is missing", "(\x85");
    DAMAGED("a state without an object", CHUNK ")\x81N"
                                               "b");
    DAMAGED("a state without an object", "N}b");
    DAMAGED("a state without an object", "}b");
    DAMAGED("a state without an object", CHUNK ")\x81}b}b");
    DAMAGED("an integer of more than 64 bits", "\x8a\x09\0\0\0\0\0\0\0\0\1");
    DAMAGED("a text that is not UTF-8", TEXT("\1", "\xff"));
}

/* Long texts go over the end of what is read at once. */
static void test_windows(void **state)
{
    (void)state;
    enum { TEXTS = 40, LONG = 65536 };
    struct bytes b = {0};
    char *text = malloc(LONG + 1);
    assert_non_null(text);
    bytes_add(&b, P "](", 4);
    for (int i = 0; i < TEXTS; i++) {
        memset(text, 'a' + i % 26, LONG);
        const uint32_t n = (uint32_t)(LONG - 997 * i);
        const unsigned char head[] = {'X', n & 255, n >> 8 & 255, n >> 16 & 255, 0};
        bytes_add(&b, head, sizeof head);
        bytes_add(&b, text, n);
    }
    bytes_add(&b, "e.", 2);
    struct rfs_dcp_pickle pickle = parsed((const char *)b.p, b.n);
    struct rfs_dcp_each each = rfs_dcp_each(&pickle, pickle.root);
    uint32_t value;
    for (int i = 0; i < TEXTS; i++) {
        size_t n;
        assert_true(rfs_dcp_next(&each, &value));
        const char *have = rfs_dcp_text(&pickle, value, &n);
        assert_int_equal(n, LONG - 997 * i);
        memset(text, 'a' + i % 26, LONG);
        assert_memory_equal(have, text, n);
        assert_int_equal(have[n], '\0');
    }
    rfs_dcp_pickle_free(&pickle);
    /* Each cut is noticed, wherever it is. */
    for (size_t n = 0; n < b.n; n += n < 20 || n > b.n - 20 ? 1 : 70001)
        refused((const char *)b.p, n, -EINVAL, "it has no end");
    bytes_free(&b);
    free(text);
    NOT_READ("a text in it has more than 65536 bytes", "X\1\0\1\0");
}

/* Many small values for few bytes would take more memory than the file is large. */
static void test_memory(void **state)
{
    (void)state;
    static const char *const units[] = {"]", "}", "N\x94", "(", "](", "K\1\x85"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        struct bytes b = {0};
        bytes_add(&b, P, 2);
        while (b.n < (size_t)4 << 20)
            bytes_text(&b, units[i]);
        bytes_add(&b, ".", 1);
        struct rfs_dcp_pickle pickle;
        struct rfs_error err = {0};
        const int rc = read_bytes(b.p, b.n, &pickle, &err);
        assert_int_equal(rc, -EFBIG);
        assert_non_null(strstr(err.text, "would take more than 1363"));
        bytes_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_values),  cmocka_unit_test(test_large_integers),
        cmocka_unit_test(test_containers),    cmocka_unit_test(test_memo),
        cmocka_unit_test(test_objects),       cmocka_unit_test(test_calls),
        cmocka_unit_test(test_dtypes),        cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_other_opcodes), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_windows),       cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
