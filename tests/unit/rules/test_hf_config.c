/* SPDX-License-Identifier: Apache-2.0 */
/* A config that is compared with the one that the source has itself. */
#include "rules/hf_config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct rfs_hf_config *read_config(const char *name, const char *text)
{
    struct rfs_hf_config *config;
    struct rfs_error err;

    assert_int_equal(rfs_hf_config_read(name, text, strlen(text), &config, &err), 0);
    return config;
}

/* Looks the key of each case up, and says what is wrong; "" for nothing. */
static void test_compared(void **state)
{
    static const struct {
        const char *key, *given, *own, *said;
    } cases[] = {
        {"num_attention_heads", "8", "\"num_attention_heads\": 8", ""},
        {"num_attention_heads", "8", "\"num_attention_heads\": 4",
         "given.json: 'num_attention_heads' is another than in own.json, which the source has "
         "itself: 8 and 4; try: "},
        {"num_attention_heads", "8", "\"n_heads\": 4", ": 8 and 4; try: "},
        {"num_key_value_heads", "8", "\"n_kv_heads\": 4", ": 8 and 4; try: "},
        {"text_config.head_dim", "8", "\"head_dim\": 4", "'text_config.head_dim' is another"},
        {"text_config.head_dim", "8", "\"text_config\": {\"head_dim\": 8}, \"head_dim\": 4", ""},
        {"groups", "[1, 2]", "\"groups\": [1, 3]", "'groups' is another than in own.json"},
        {"groups", "[1, 2]", "\"groups\": [1]", "'groups' is another than in own.json"},
        {"groups", "[1, 2]", "\"groups\": [1, 2]", ""},
        /* nothing that both say, or that a shape does not prove */
        {"num_attention_heads", "8", "\"n_kv_heads\": 4", ""},
        {"num_attention_heads", "8", "\"num_attention_heads\": null", ""},
        {"num_attention_heads", "8", "\"num_attention_heads\": -1", ""},
        {"num_attention_heads", "8", "\"num_attention_heads\": \"4\"", ""},
        {"hidden_size", "8", "\"hidden_size\": 4", ""},
        {"model_type", "\"a\"", "\"model_type\": \"b\"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *inner = strchr(cases[i].key, '.');
        char given[200];
        char own[200];
        struct rfs_error err = {0};
        snprintf(given, sizeof given, inner ? "{\"text_config\": {\"%s\": %s}}" : "{\"%s\": %s}",
                 inner ? inner + 1 : cases[i].key, cases[i].given);
        snprintf(own, sizeof own, "{%s}", cases[i].own);
        struct rfs_hf_config *config = read_config("given.json", given);
        assert_int_equal(rfs_hf_config_compare(config, read_config("own.json", own), &err), 0);
        assert_int_equal(rfs_hf_config_check(config, &err), 0); /* nothing is looked up yet */
        assert_non_null(rfs_hf_config_find(config, cases[i].key));
        const int rc = rfs_hf_config_check(config, &err);
        if (rc != (*cases[i].said ? -EINVAL : 0) || !strstr(err.text, cases[i].said))
            fail_msg("case %zu: %d, %s", i, rc, err.text);
        rfs_hf_config_free(config);
    }
}

/* The first key that differs is named, whatever is looked up later. */
static void test_first(void **state)
{
    struct rfs_hf_config *config =
        read_config("given.json", "{\"head_dim\": 1, \"heads\": 2, \"groups\": 3}");
    struct rfs_error err = {0};
    (void)state;
    assert_int_equal(rfs_hf_config_compare(
                         config,
                         read_config("own.json", "{\"head_dim\": 1, \"heads\": 5, \"groups\": 6}"),
                         &err),
                     0);
    rfs_hf_config_find(config, "head_dim");
    rfs_hf_config_find(config, "groups");
    rfs_hf_config_find(config, "heads");
    assert_int_equal(rfs_hf_config_check(config, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'groups' is another than in own.json"));
    rfs_hf_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compared),
        cmocka_unit_test(test_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
