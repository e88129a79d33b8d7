/* SPDX-License-Identifier: Apache-2.0 */
/* Saves of DeepSpeed whose files are not of one save, as the scan of a folder gives none. */
#include "formats/zero/zero.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODEL_OF(rank) "/save/zero_pp_rank_" rank "_mp_rank_00_model_states.pt"
#define OPTIMIZER_OF(rank) "/save/zero_pp_rank_" rank "_mp_rank_00_optim_states.pt"

/* Refuses the save before it opens any of its files, none of which is there. */
static void refused(const char *const *names, const char *part)
{
    struct rfs_tables tables = {rfs_intern_new(), rfs_intern_new()};
    struct rfs_files *files = rfs_files_new(NULL);
    struct rfs_chunks *chunks;
    struct rfs_error err = {0};

    for (uint32_t i = 0; names[i]; i++)
        assert_int_equal(rfs_files_add(files, names[i]), i);
    const struct rfs_chunks_source source = {.folder = "/save", .files = files, .tables = &tables};
    assert_int_equal(rfs_zero_open(&source, &chunks, &err), -EINVAL);
    assert_null(chunks);
    if (!strstr(err.text, part))
        fail_msg("'%s' has no '%s'", err.text, part);
    rfs_files_free(files);
    rfs_intern_free(tables.names);
    rfs_intern_free(tables.types);
}

/* Ranks have places for their pieces of frozen parameters, as many as the optimizer has files. */
static void test_ranks_of_stage_3(void **state)
{
    (void)state;
    refused((const char *[]){MODEL_OF("0"), MODEL_OF("1"), OPTIMIZER_OF("0"), NULL},
            "/save: this save of DeepSpeed has the model's states of 2 ranks, and the optimizer's "
            "of 1; try:");
    refused((const char *[]){MODEL_OF("0"), OPTIMIZER_OF("0"), OPTIMIZER_OF("1"), NULL},
            "has the model's states of 1 ranks, and the optimizer's of 2");
}

static void test_nothing_of_one_kind(void **state)
{
    static const char part[] = "has no file of the model's states, or none of the optimizer's";

    (void)state;
    refused((const char *[]){MODEL_OF("0"), NULL}, part);
    refused((const char *[]){OPTIMIZER_OF("0"), NULL}, part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_of_stage_3),
        cmocka_unit_test(test_nothing_of_one_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
