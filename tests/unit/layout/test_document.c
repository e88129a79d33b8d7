/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy files that are written again: against the compiler's pairs, and what would be lost is
 * refused.
 */
#include "support.h"

#include "layout/strategy_doc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void read_doc(const char *name, const void *data, size_t size, struct rfs_strategy_doc *doc)
{
    struct rfs_strategy *strategy = NULL;
    struct rfs_error err = {0};

    rfs_strategy_doc_begin(doc, name);
    if (rfs_strategy_doc_parse(doc, data, size, &err) ||
        rfs_strategy_doc_build(doc, &strategy, &err))
        fail_msg("%s", err.text);
    rfs_strategy_free(strategy);
}

static const char *param_of(const struct rfs_strategy_doc *doc, size_t i)
{
    return rfs_strategy_doc_text(doc->map.parallel_layout_item[i]->param_name);
}

/* With the shapes given, each of the compiler's two files gives the other. */
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
        struct rfs_strategy_doc doc;
        char *data;
        size_t size;
        read_doc(names[k], from[k]->data, from[k]->n, &doc);
        const int rc = k == 0 ? rfs_strategy_doc_protobuf(&doc, &data, &size, &err)
                              : rfs_strategy_doc_json(&doc, false, &data, &size, &err);
        assert_int_equal(rc, -EINVAL);
        assert_non_null(strstr(err.text, "--tree SRC"));
        for (size_t i = 0; i < doc.map.n_parallel_layout_item; i++)
            for (size_t s = 0; s < 4; s++) {
                const char *name = param_of(&doc, i);
                name += strncmp(name, "moments.", 8) == 0 ? 8 : 0;
                if (strcmp(name, shapes[s].name) == 0)
                    assert_int_equal(
                        rfs_strategy_doc_set_shape(&doc, i, shapes[s].ndim, shapes[s].dims, &err),
                        0);
            }
        assert_int_equal(rfs_strategy_doc_json(&doc, false, &data, &size, &err), 0);
        assert_int_equal(size, json.n);
        assert_memory_equal(data, json.data, size);
        free(data);
        assert_int_equal(rfs_strategy_doc_protobuf(&doc, &data, &size, &err), 0);
        assert_int_equal(size, proto.n); /* in another order */
        free(data);
        rfs_strategy_doc_free(&doc);
    }
    text_free(&json);
    text_free(&proto);
}

static void test_wrong_shapes(void **state)
{
    struct text json = read_fixture("strategies/layout8.json");
    const uint64_t dims[] = {30, 31, 32, 33};
    struct rfs_strategy_doc doc;
    struct rfs_error err = {0};

    (void)state;
    read_doc("layout8.json", json.data, json.n, &doc);
    for (size_t i = 0; i < doc.map.n_parallel_layout_item; i++) {
        assert_int_equal(rfs_strategy_doc_set_shape(&doc, i, 4, dims, &err), -EINVAL);
        if (doc.map.parallel_layout_item[i]->parallel_layouts->tensor_map[0]->n_dim > 1)
            assert_int_equal(rfs_strategy_doc_set_shape(&doc, i, 1, dims, &err), -EINVAL);
    }
    rfs_strategy_doc_free(&doc);
    text_free(&json);
}

static void expect_lost(const char *name, const void *data, size_t size, const char *what)
{
    struct rfs_strategy_doc doc;
    struct rfs_error err = {0};
    char *out;

    read_doc(name, data, size, &doc);
    for (int json = 0; json < 2; json++) {
        const int rc = json ? rfs_strategy_doc_json(&doc, false, &out, &size, &err)
                            : rfs_strategy_doc_protobuf(&doc, &out, &size, &err);
        assert_int_equal(rc, -EINVAL);
        assert_null(out);
        assert_non_null(strstr(err.text, what));
    }
    rfs_strategy_doc_free(&doc);
}

#define LAYOUT                                                                                     \
    "{\"dev_matrix\":[2],\"field\":0,\"opt_weight_shard_size\":0,"                                 \
    "\"opt_weight_shard_step\":0,\"tensor_map\":[0]}"
#define PARAMS "\"parallel_layout_item\":{\"w\":" LAYOUT "}"

/* Unknown members and fields, wherever they are, and operators that are none. */
static void test_what_would_be_lost(void **state)
{
    static const struct {
        const char *text, *what;
    } lost[] = {
        {"{\"speed\":1," PARAMS "}", "a.json: this program does not know 'speed'"},
        {"{\"parallel_layout_item\":{\"w\":{\"speed\":1,\"dev_matrix\":[2],\"field\":0,"
         "\"opt_weight_shard_size\":0,\"opt_weight_shard_step\":0,\"tensor_map\":[0]}}}",
         "parameter 'w': this program does not know 'speed'"},
        {"{\"parallel_strategy_item\":{\"n\":{\"stage\":0,\"speed\":1}}," PARAMS "}",
         "parameter 'n': this program does not know 'speed'"},
        {"{\"parallel_strategy_item\":{\"n\":{\"stage\":0},\"m\":[1]}," PARAMS "}",
         "parameter 'm': 'stage' is not there, or is not a stage"},
        {"{\"parallel_strategy_item\":{\"n\":{\"stage\":0,\"parallel_strategy\":[[1],2]}}," PARAMS
         "}",
         "parameter 'n': 'parallel_strategy' is not a list of integers"},
        {"{\"current_stage\":\"1\"," PARAMS "}", "a.json: 'current_stage' is not an integer"},
    };
    struct text proto = read_fixture("strategies/src8.ckpt");

    (void)state;
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
        expect_lost("a.json", lost[i].text, strlen(lost[i].text), lost[i].what);
    put_number(&proto, 9, 1);
    expect_lost("a.ckpt", proto.data, proto.n, "would lose");
    text_free(&proto);
}

/*
 * Names as Python's json.dump and as the compiler write them; of two of one name the last, in the
 * first's place.
 */
static void test_names(void **state)
{
    static const char text[] =
        "{\"parallel_strategy_item\":{\"b\":{\"stage\":0},\"a\":{\"stage\":0},"
        "\"b\":{\"stage\":0,\"parallel_strategy\":[[1,2]]},"
        "\"\\u00e4\\ud83d\\ude00\\n\\\"\x7f\":{\"stage\":0}}," PARAMS "}";
    static const char compiled[] =
        "{\"current_stage\":1," PARAMS ",\"parallel_strategy_item\":{"
        "\"a\":{\"parallel_strategy\":[],\"stage\":0},\"b\":{\"parallel_strategy\":[[1,2]],"
        "\"stage\":0},"
        "\"\xc3\xa4\xf0\x9f\x98\x80\\n\\\"\x7f\":{\"parallel_strategy\":[],\"stage\":0}}}";
    static const char merged[] =
        "{\"current_stage\": 1, \"parallel_strategy_item\": {"
        "\"b\": {\"parallel_strategy\": [[1, 2]], \"stage\": 0}, "
        "\"a\": {\"parallel_strategy\": [], \"stage\": 0}, "
        "\"\\u00e4\\ud83d\\ude00\\n\\\"\\u007f\": {\"parallel_strategy\": [], \"stage\": 0}}, "
        "\"parallel_layout_item\": {\"w\": {\"dev_matrix\": [2], \"field\": 0, "
        "\"opt_weight_shard_size\": 0, \"opt_weight_shard_step\": 0, \"tensor_map\": [0]}}}";
    struct rfs_strategy_doc doc;
    char *data;
    size_t size;

    (void)state;
    read_doc("a.json", text, sizeof text - 1, &doc);
    assert_int_equal(rfs_strategy_doc_json(&doc, false, &data, &size, NULL), 0);
    assert_string_equal(data, compiled);
    free(data);
    assert_int_equal(rfs_strategy_doc_json(&doc, true, &data, &size, NULL), 0);
    assert_string_equal(data, merged);
    free(data);
    rfs_strategy_doc_free(&doc);
}

/* A protobuf file may have one, which JSON cannot hold. */
static void test_a_name_that_is_not_utf8(void **state)
{
    static const char text[] = "\x08\x01\x1a\x14\x0a\x02w\xbe\x12\x0e\x0a\x02\x08\x02\x12\x02"
                               "\x08\x00\x28\x00\x30\x00\x38\x00";
    struct rfs_strategy_doc doc;
    struct rfs_error err = {0};
    char *data;
    size_t size;

    (void)state;
    read_doc("a.ckpt", text, sizeof text - 1, &doc);
    for (int merged = 0; merged < 2; merged++) {
        assert_int_equal(rfs_strategy_doc_json(&doc, merged, &data, &size, &err), -EINVAL);
        assert_non_null(strstr(err.text, "is not UTF-8"));
    }
    assert_int_equal(rfs_strategy_doc_protobuf(&doc, &data, &size, NULL), 0);
    assert_non_null(memmem(data, size, "w\xbe", 2));
    free(data);
    rfs_strategy_doc_free(&doc);
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
