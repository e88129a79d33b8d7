/* SPDX-License-Identifier: Apache-2.0 */
/* Strategy files that are written again: against the compiler's pairs, and what would be lost is refused. */
#include "support.h"

#include "layout/written.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void read_written(const char *name, const struct text *text, struct rfs_written *out)
{
    struct rfs_error err = {0};

    if (rfs_written_read(name, text->data, text->n, out, &err) != 0)
        fail_msg("%s", err.text);
}

/* With the shapes told, each of the compiler's two files gives the other. */
static void test_nesting_with_shapes(void **state)
{
    static const struct {
        const char *name;
        uint32_t ndim;
        uint64_t dims[2];
    } shapes[] = {{"w1", 2, {64, 32}}, {"w2", 2, {32, 48}}, {"b1", 1, {32}}, {"b2", 1, {48}}};
    struct text json = read_fixture("strategies/layout8.json");
    struct text proto = read_fixture("strategies/layout8.ckpt");
    const struct text *from[] = {&json, &proto};
    const char *const names[] = {"layout8.json", "layout8.ckpt"};
    struct rfs_error err = {0};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct rfs_written written;
        char *data;
        size_t size;
        read_written(names[k], from[k], &written);
        const int rc = k == 0 ? rfs_written_protobuf(&written, &data, &size, &err)
                              : rfs_written_json(&written, false, &data, &size, &err);
        assert_int_equal(rc, -EINVAL);
        assert_non_null(strstr(err.text, "--tree SRC"));
        for (size_t i = 0; i < written.params.n; i++)
            for (size_t s = 0; s < 4; s++) {
                const char *name = written.params.data[i].name;
                name += strncmp(name, "moments.", 8) == 0 ? 8 : 0;
                if (strcmp(name, shapes[s].name) == 0)
                    assert_int_equal(
                        rfs_written_shape(&written, i, shapes[s].ndim, shapes[s].dims, &err), 0);
            }
        assert_int_equal(rfs_written_json(&written, false, &data, &size, &err), 0);
        assert_int_equal(size, json.n);
        assert_memory_equal(data, json.data, size);
        free(data);
        assert_int_equal(rfs_written_protobuf(&written, &data, &size, &err), 0);
        assert_int_equal(size, proto.n); /* in another order */
        free(data);
        rfs_written_free(&written);
    }
    text_free(&json);
    text_free(&proto);
}

static void test_wrong_shapes(void **state)
{
    struct text json = read_fixture("strategies/layout8.json");
    const uint64_t dims[] = {30, 31, 32, 33};
    struct rfs_written written;
    struct rfs_error err = {0};

    (void)state;
    read_written("layout8.json", &json, &written);
    for (size_t i = 0; i < written.params.n; i++) {
        assert_int_equal(rfs_written_shape(&written, i, 4, dims, &err), -EINVAL);
        if (written.params.data[i].maps[0].n > 1)
            assert_int_equal(rfs_written_shape(&written, i, 1, dims, &err), -EINVAL);
    }
    rfs_written_free(&written);
    text_free(&json);
}

static void expect_lost(const char *name, const void *data, size_t size, const char *what)
{
    struct rfs_written written;
    struct rfs_error err = {0};

    assert_int_equal(rfs_written_read(name, data, size, &written, &err), -EINVAL);
    assert_non_null(strstr(err.text, what));
    rfs_written_free(&written);
}

/* Unknown members and fields, wherever they are. */
static void test_what_would_be_lost(void **state)
{
    static const char *const texts[] = {
        "{\"speed\":1}",
        "{\"parallel_layout_item\":{\"w\":{\"dev_matrix\":[2],\"speed\":1}}}",
        "{\"parallel_strategy_item\":{\"n\":{\"stage\":0,\"speed\":1}}}",
    };
    struct text proto = read_fixture("strategies/src8.ckpt");

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        expect_lost("a.json", texts[i], strlen(texts[i]), "'speed' is not known");
    put_number(&proto, 9, 1);
    expect_lost("a.ckpt", proto.data, proto.n, "would be lost");
    text_free(&proto);
}

/* Names as Python's json.dump and as the compiler write them; of two of one name the last, in the first's place. */
static void test_names(void **state)
{
    static const char text[] =
        "{\"parallel_strategy_item\":{\"b\":{\"stage\":0},\"a\":{\"stage\":0},"
        "\"b\":{\"stage\":0,\"parallel_strategy\":[[1,2]]},"
        "\"\\u00e4\\ud83d\\ude00\\n\\\"\":{\"stage\":0}}}";
    static const char compiled[] =
        "{\"current_stage\":1,\"parallel_layout_item\":{},\"parallel_strategy_item\":{"
        "\"a\":{\"parallel_strategy\":[],\"stage\":0},\"b\":{\"parallel_strategy\":[[1,2]],"
        "\"stage\":0},"
        "\"\xc3\xa4\xf0\x9f\x98\x80\\n\\\"\":{\"parallel_strategy\":[],\"stage\":0}}}";
    static const char merged[] =
        "{\"current_stage\": 1, \"parallel_strategy_item\": {"
        "\"b\": {\"parallel_strategy\": [[1, 2]], \"stage\": 0}, "
        "\"a\": {\"parallel_strategy\": [], \"stage\": 0}, "
        "\"\\u00e4\\ud83d\\ude00\\n\\\"\": {\"parallel_strategy\": [], \"stage\": 0}}, "
        "\"parallel_layout_item\": {}}";
    struct rfs_written written;
    char *data;
    size_t size;

    (void)state;
    assert_int_equal(rfs_written_read("a.json", text, sizeof text - 1, &written, NULL), 0);
    assert_int_equal(rfs_written_json(&written, false, &data, &size, NULL), 0);
    assert_string_equal(data, compiled);
    free(data);
    assert_int_equal(rfs_written_json(&written, true, &data, &size, NULL), 0);
    assert_string_equal(data, merged);
    free(data);
    rfs_written_free(&written);
}

/* As protobuf it can be written. */
static void test_a_name_that_is_not_utf8(void **state)
{
    static const char text[] = "{\"parallel_layout_item\":{\"w\xbe\":{\"dev_matrix\":[2],"
                               "\"tensor_map\":[0],\"tensor_shape\":[4]}}}";
    struct rfs_written written;
    struct rfs_error err = {0};
    char *data;
    size_t size;

    (void)state;
    assert_int_equal(rfs_written_read("a.json", text, sizeof text - 1, &written, NULL), 0);
    for (int merged = 0; merged < 2; merged++) {
        assert_int_equal(rfs_written_json(&written, merged, &data, &size, &err), -EINVAL);
        assert_non_null(strstr(err.text, "is not UTF-8"));
    }
    assert_int_equal(rfs_written_protobuf(&written, &data, &size, NULL), 0);
    assert_non_null(memmem(data, size, "w\xbe", 2));
    free(data);
    rfs_written_free(&written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting_with_shapes),     cmocka_unit_test(test_wrong_shapes),
        cmocka_unit_test(test_what_would_be_lost),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_a_name_that_is_not_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
