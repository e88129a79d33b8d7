/* SPDX-License-Identifier: Apache-2.0 */
/* Rules: what they say, what they refuse and in which line, and "like source". */
#include "support.h"

#include "layout/layout_rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"embed.table", "h.0.q_proj.weight", "h.0.o_proj.weight",
                                    "h.0.moe.w",   "h.0.norm-1",        "global_step"};
enum { N_NAMES = sizeof names / sizeof *names };

static char said[512]; /* the last line of the log */

static void keep_line(void *ctx, enum rfs_level level, const char *line)
{
    (void)ctx;
    assert_int_equal(level, RFS_WARNING);
    strncpy(said, line, sizeof said - 1);
}

/* The strategy that TEXT makes for SOURCE, or for the names above. */
static int make(const char *text, const struct rfs_strategy *source, uint32_t ranks,
                struct rfs_strategy **out, struct rfs_error *err)
{
    const struct rfs_layout_rules_use use = {.source = source,
                                             .names = names,
                                             .n = N_NAMES,
                                             .ranks = ranks,
                                             .ranks_option = "dst_ranks"};
    struct rfs_layout_rules *rules;
    struct rfs_log log;

    *out = NULL;
    said[0] = '\0';
    rfs_log_init(&log, keep_line, NULL);
    int rc = rfs_layout_rules_parse("r.txt", text, strlen(text), &rules, err);
    if (rc == 0)
        rc = rfs_layout_rules_strategy(rules, &use, &log, out, err);
    rfs_layout_rules_free(rules);
    rfs_log_destroy(&log);
    return rc;
}

static struct rfs_strategy *made(const char *text, const struct rfs_strategy *source,
                                 uint32_t ranks)
{
    struct rfs_strategy *strategy;
    struct rfs_error err = {0};

    if (make(text, source, ranks, &strategy, &err) != 0)
        fail_msg("%s", err.text);
    assert_true(rfs_strategy_facts(strategy)->by_rules);
    return strategy;
}

static void refused_for(const char *text, const struct rfs_strategy *source, uint32_t ranks,
                        const char *what)
{
    struct rfs_strategy *strategy;
    struct rfs_error err = {0};

    assert_int_equal(make(text, source, ranks, &strategy, &err), -EINVAL);
    assert_null(strategy);
    if (strncmp(err.text, what, strlen(what)) != 0 || strchr(err.text, '\n') != NULL)
        fail_msg("wanted \"%s\", got \"%s\"", what, err.text);
    assert_int_equal(make(text, source, ranks, &strategy, NULL), -EINVAL);
}

static const struct rfs_layout *of(const struct rfs_strategy *strategy, const char *param,
                                   uint32_t stage)
{
    const ptrdiff_t i = rfs_strategy_find(strategy, param);

    if (i < 0)
        fail_msg("there is no %s", param);
    const struct rfs_layout *layout = rfs_strategy_layout(strategy, (size_t)i, stage);
    assert_non_null(layout);
    return layout;
}

/* The grid of a layout on a whole tensor of NDIM axes, each DIM long. */
static void resolve(const struct rfs_layout *layout, uint32_t ndim, uint64_t dim,
                    struct rfs_grid *grid)
{
    uint64_t dims[RFS_GRID_DIMS];
    struct rfs_error err = {0};

    for (uint32_t i = 0; i < ndim; i++)
        dims[i] = dim;
    if (rfs_grid_resolve(layout, ndim, dims, RFS_DIMS_OF_WHOLE, grid, NULL, NULL,
                         RFS_OF("r.txt", "p"), &err) != 0)
        fail_msg("%s", err.text);
}

static void expect_pieces(const struct rfs_layout *layout, uint32_t ndim, const uint32_t *pieces)
{
    struct rfs_grid grid;

    resolve(layout, ndim, 24, &grid);
    for (uint32_t i = 0; i < ndim; i++)
        assert_int_equal(grid.pieces[i], pieces[i]);
}

static void expect_misfit(const struct rfs_layout *layout, uint32_t ndim, uint64_t dim,
                          const char *what)
{
    const uint64_t dims[] = {dim, dim, dim, dim};
    struct rfs_grid grid;
    struct rfs_error err = {0};

    assert_int_equal(rfs_grid_resolve(layout, ndim, dims, RFS_DIMS_OF_WHOLE, &grid, NULL, NULL,
                                      RFS_OF("r.txt", "p"), &err),
                     -EINVAL);
    if (strcmp(err.text, what) != 0)
        fail_msg("wanted \"%s\", got \"%s\"", what, err.text);
}

/* The example of rules.h, and what each of its lines means. */
static void each_kind_of_line(void **unused)
{
    struct rfs_strategy *s = made("# device axes, outermost first\n"
                                  "axes dp=2 tp=4\r\n"
                                  "\n"
                                  "*.q_proj.weight: axis 0 over tp   # by columns\n"
                                  "  *.o_proj.weight : axis 1 over tp\n"
                                  "*.moe.w: axis 0 over dp, axis -1 over tp\n"
                                  "embed.*: axis 0 over dp tp\n"
                                  "h.?.norm-[0-9]: optimizer 2\n"
                                  "*: whole",
                                  NULL, 8);
    const struct rfs_layout *q = of(s, "h.0.q_proj.weight", 0);

    (void)unused;
    assert_string_equal(said, "");
    assert_string_equal(rfs_strategy_name(s), "r.txt");
    assert_int_equal(rfs_strategy_count(s), N_NAMES);
    assert_int_equal(rfs_strategy_devices(s), 8);
    assert_int_equal(rfs_strategy_stages(s), 1);
    assert_int_equal(q->n_dev, 2);
    assert_int_equal(q->dev[0], 2);
    assert_int_equal(q->dev[1], 4);
    assert_int_equal(q->line, 4);
    expect_pieces(q, 2, (uint32_t[]){4, 1});
    expect_pieces(q, 4, (uint32_t[]){4, 1, 1, 1});
    expect_pieces(of(s, "h.0.o_proj.weight", 0), 3, (uint32_t[]){1, 4, 1});
    expect_pieces(of(s, "h.0.moe.w", 0), 2, (uint32_t[]){2, 4});
    expect_pieces(of(s, "h.0.moe.w", 0), 4, (uint32_t[]){2, 1, 1, 4});
    expect_pieces(of(s, "embed.table", 0), 1, (uint32_t[]){8});
    expect_pieces(of(s, "h.0.norm-1", 0), 1, (uint32_t[]){2});
    expect_pieces(of(s, "global_step", 0), 0, NULL);
    rfs_strategy_free(s);
}

static void nested_cuts_are_outer_to_inner(void **unused)
{
    static const struct {
        const char *rule;
        uint32_t cell[6]; /* of each rank */
    } cases[] = {
        {"axes a=3 b=2\n*: axis 0 over a b", {0, 1, 2, 3, 4, 5}},
        {"axes a=3 b=2\n*: axis 0 over b a", {0, 3, 1, 4, 2, 5}},
        {"axes a=3 b=2\n*: axis 0 over b, optimizer", {0, 3, 1, 4, 2, 5}},
        {"axes a=3 b=2\n*: axis 0 over a, optimizer 2", {0, 1, 2, 3, 4, 5}},
    };

    (void)unused;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct rfs_strategy *s = made(cases[k].rule, NULL, 6);
        struct rfs_grid grid;
        resolve(of(s, "embed.table", 0), 1, 6, &grid);
        for (uint32_t rank = 0; rank < 6; rank++) {
            uint32_t cell[RFS_GRID_DIMS];
            rfs_grid_cell(&grid, rank, cell);
            assert_int_equal(cell[0], cases[k].cell[rank]);
        }
        rfs_strategy_free(s);
    }
}

static void without_axes_there_is_all(void **unused)
{
    struct rfs_strategy *s = made("global_step: whole\n*: axis 0 over all", NULL, 6);

    (void)unused;
    expect_pieces(of(s, "embed.table", 0), 2, (uint32_t[]){6, 1});
    expect_pieces(of(s, "global_step", 0), 0, NULL);
    rfs_strategy_free(s);
    s = made("*: optimizer", NULL, 6);
    expect_pieces(of(s, "embed.table", 0), 2, (uint32_t[]){6, 1});
    rfs_strategy_free(s);
}

static void the_first_match_counts(void **unused)
{
    struct rfs_strategy *s = made("axes a=2 b=3\n"
                                  "h.*.weight: axis 0 over a\n"
                                  "h.0.q_proj.weight: axis 0 over b\n" /* too late */
                                  "embed.table: axis 0 over b\n"
                                  "embed.table: axis 0 over a\n" /* too late */
                                  "*: whole",
                                  NULL, 6);

    (void)unused;
    expect_pieces(of(s, "h.0.q_proj.weight", 0), 1, (uint32_t[]){2});
    expect_pieces(of(s, "h.0.o_proj.weight", 0), 1, (uint32_t[]){2});
    expect_pieces(of(s, "embed.table", 0), 1, (uint32_t[]){3});
    assert_string_equal(
        said, "r.txt: line 3: no parameter takes the rule 'h.0.q_proj.weight' (and 1 more)");
    rfs_strategy_free(s);

    rfs_strategy_free(made("H.*: whole\n*: whole", NULL, 6));
    assert_string_equal(said, "r.txt: line 1: no parameter takes the rule 'H.*'");
}

/* Rules that cut nothing are for other names. The message has a name that is much like theirs. */
static void rules_for_other_names_are_refused(void **unused)
{
    (void)unused;
    refused_for("axes tp=6\n*.k_proj.weight: axis 0 over tp\n*: whole", NULL, 6,
                "r.txt: line 2: no parameter takes the rule '*.k_proj.weight', nor another that "
                "cuts; try: rules for names such as 'h.0.q_proj.weight'");
    refused_for("H.*: axis 0 over all\n*.mow.w: optimizer\n*: whole", NULL, 6,
                "r.txt: line 1: no parameter takes the rule 'H.*', nor another that cuts");
}

/* Without a number of ranks there are as many as the axes have devices. */
static void ranks_follow_from_the_axes(void **unused)
{
    struct rfs_strategy *s = made("axes dp=2 tp=4\n*: axis 0 over tp", NULL, 0);
    struct rfs_error err = {0};

    (void)unused;
    assert_int_equal(rfs_strategy_devices(s), 8);
    rfs_strategy_free(s);
    assert_int_equal(make("*: axis 0 over all", NULL, 0, &s, &err), -EINVAL);
    assert_true(err.usage);
    assert_string_equal(err.text, "nothing says how many ranks r.txt is for; try: dst_ranks=8, or "
                                  "a line such as \"axes dp=2 tp=4\"");
    refused_for("axes dp=2 tp=4\n*: axis 0 over tp", NULL, 4,
                "r.txt: line 1: the device axes have 8 devices, but dst_ranks=4 asks for 4");
}

/* A second line of axes is for the rules after it. */
static void several_axes(void **unused)
{
    struct rfs_strategy *s = made("axes dp=3 tp=4\n"
                                  "*.weight: axis 0 over tp\n"
                                  "axes rest=2 ep=6\n"
                                  "*.moe.w: axis 0 over ep\n"
                                  "*: whole",
                                  NULL, 12);
    struct rfs_grid grid;

    (void)unused;
    resolve(of(s, "h.0.q_proj.weight", 0), 2, 24, &grid);
    for (uint32_t rank = 0; rank < 12; rank++) {
        uint32_t cell[RFS_GRID_DIMS];
        rfs_grid_cell(&grid, rank, cell);
        assert_int_equal(cell[0], rank % 4);
    }
    resolve(of(s, "h.0.moe.w", 0), 2, 24, &grid);
    for (uint32_t rank = 0; rank < 12; rank++) {
        uint32_t cell[RFS_GRID_DIMS];
        rfs_grid_cell(&grid, rank, cell);
        assert_int_equal(cell[0], rank % 6);
    }
    rfs_strategy_free(s);
}

/* The numbers of a model of four layers, with one more behind them, and two groups of heads. */
static int number(void *ctx, const char *key, uint64_t *value, struct rfs_error *err)
{
    (void)ctx;
    (void)err;
    if (strcmp(key, "num_hidden_layers") == 0)
        *value = 4;
    else if (strcmp(key, "num_nextn_predict_layers") == 0)
        *value = 1;
    else if (strcmp(key, "groups") == 0)
        *value = 2;
    else
        return -ENOENT;
    return 0;
}

static int make_of(const char *text, const char *const *list, size_t n, bool config,
                   struct rfs_strategy **out, struct rfs_error *err)
{
    const struct rfs_layout_rules_use use = {
        .names = list, .n = n, .ranks_option = "dst_ranks", .number = config ? number : NULL};
    struct rfs_layout_rules *rules;

    *out = NULL;
    int rc = rfs_layout_rules_parse("r.txt", text, strlen(text), &rules, err);
    if (rc == 0)
        rc = rfs_layout_rules_strategy(rules, &use, NULL, out, err);
    rfs_layout_rules_free(rules);
    return rc;
}

/* Returns the stages of a parameter, as a mask. */
static uint32_t stages_of(const struct rfs_strategy *strategy, const char *param)
{
    const size_t i = (size_t)rfs_strategy_find(strategy, param);
    uint32_t mask = 0;

    for (uint32_t stage = 0; stage < rfs_strategy_stages(strategy); stage++)
        if (rfs_strategy_layout(strategy, i, stage) != NULL)
            mask |= 1U << stage;
    return mask;
}

static void stages_by_layer(void **unused)
{
    static const char text[] = "stages 2\naxes tp=2\n"
                               "stage first\nembed: axis 0 over tp\n"
                               "stage last\nnorm: whole\n"
                               "stage first last\ntied: whole\n"
                               "stage layer\nh.*: whole\n"
                               "stage all\n*: whole";
    const char *const list[] = {"embed", "norm",  "tied",  "step", "h.0.w.7",
                                "h.1.w", "h.2.w", "h.3.w", "h.4.w"};
    struct rfs_strategy *s;
    struct rfs_error err = {0};

    (void)unused;
    assert_int_equal(make_of(text, list, 8, false, &s, &err), 0);
    assert_int_equal(rfs_strategy_stages(s), 2);
    assert_int_equal(rfs_strategy_devices(s), 2);
    static const uint32_t masks[] = {1, 2, 3, 3, 1, 1, 2, 2, 2};
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(stages_of(s, list[i]), masks[i]);
    rfs_strategy_free(s);
    /* a layer behind those that the config counts is with the last */
    assert_int_equal(make_of(text, list, 9, true, &s, &err), 0);
    assert_int_equal(stages_of(s, "h.4.w"), 2);
    rfs_strategy_free(s);
    assert_int_equal(make_of(text, list, 9, false, &s, &err), -EINVAL);
    assert_string_equal(err.text,
                        "r.txt: line 1: 5 layers cannot be divided evenly over 2 stages; try: a "
                        "number of stages that divides the layers");
    const char *const none[] = {"h.0.w", "h.1.w", "h.w"};
    assert_int_equal(
        make_of("stages 2\naxes tp=2\nstage layer\n*: whole", none, 3, false, &s, &err), -EINVAL);
    assert_string_equal(err.text, "r.txt: line 4: parameter 'h.w': its name has no number of a "
                                  "layer; try: \"stage all\" before its rule");
    const char *const more[] = {"embed", "norm", "h.5.w"};
    assert_int_equal(make_of(text, more, 3, true, &s, &err), -EINVAL);
    assert_string_equal(err.text, "r.txt: line 10: parameter 'h.5.w': it is of layer 5, and the "
                                  "model has 4 layers; try: the config.json that belongs to these "
                                  "tensors");
}

static void parts_stay_whole(void **unused)
{
    const char *const list[] = {"k", "v"};
    struct rfs_strategy *s;
    struct rfs_error err = {0};

    (void)unused;
    assert_int_equal(
        make_of("axes dp=3 tp=2\n*: axis 0 over tp in groups", list, 2, true, &s, &err), 0);
    rfs_strategy_free(s);
    assert_int_equal(make_of("axes tp=1\n*: axis 0 over tp in other", list, 2, false, &s, &err), 0);
    rfs_strategy_free(s);
    assert_int_equal(
        make_of("axes tp=4\nk: axis -1 over tp in groups\n*: whole", list, 2, true, &s, &err),
        -EINVAL);
    assert_string_equal(err.text, "r.txt: line 2: parameter 'k': groups is 2, and a cut of axis -1 "
                                  "into 4 pieces would go through one; try: a number of pieces "
                                  "that divides 2");
}

/* Each of four ranks, two replicas of two, has half of either field. */
static void fields_of_an_axis(void **unused)
{
    const char *const list[] = {"w"}, *const both[] = {"w", "v"};
    struct rfs_strategy *s;
    struct rfs_error err = {0};
    struct rfs_grid grid;

    (void)unused;
    assert_int_equal(
        make_of("axes dp=2 tp=2\n*: axis 0 over tp, fields 2", list, 1, false, &s, &err), 0);
    resolve(of(s, "w", 0), 2, 24, &grid);
    assert_int_equal(grid.pieces[0], 4);
    assert_int_equal(grid.rounds, 2);
    assert_int_equal(grid.replicas, 2);
    expect_misfit(of(s, "w", 0), 2, 6,
                  "r.txt: line 2: parameter 'p': the checkpoint holds a tensor of [6, 6], which 2 "
                  "fields over 2 devices do not divide; try: rules that fit this tensor");
    rfs_strategy_free(s);
    /* Of the axis before the word, also beside another cut; without devices there are none. */
    assert_int_equal(
        make_of("axes ep=2 tp=2 one=1\nw: axis 0 over ep and axis 1 over tp, fields 3\n"
                "v: axis 0 over ep, axis 1 over one, fields 3",
                both, 2, false, &s, &err),
        0);
    resolve(of(s, "w", 0), 2, 24, &grid);
    assert_int_equal(grid.pieces[0], 2);
    assert_int_equal(grid.pieces[1], 6);
    assert_int_equal(grid.rounds, 3);
    assert_int_equal(grid.round_axis, 1);
    resolve(of(s, "v", 0), 2, 24, &grid);
    assert_int_equal(grid.pieces[1], 1);
    assert_int_equal(grid.rounds, 1);
    rfs_strategy_free(s);
}

static void mistakes_are_told_with_their_line(void **unused)
{
    static const struct {
        const char *text, *what;
    } cases[] = {
        {"", "r.txt: there are no rules in it"},
        {"# nothing\n\n", "r.txt: there are no rules in it"},
        {"axes a=6", "r.txt: there are no rules in it"},
        {"whole", "r.txt: line 1: 'whole' is not a rule; try: a line such as"},
        {"\n* whole", "r.txt: line 2: '* whole' is not a rule"},
        {"*: whole\n: whole", "r.txt: line 2: no parameter's name stands before ':'"},
        {"*:", "r.txt: line 1: 'axis', 'optimizer' or 'whole' must stand here, not 'the end"},
        {"*: rows", "r.txt: line 1: 'axis', 'optimizer' or 'whole' must stand here, not 'rows'"},
        {"*: whole x", "r.txt: line 1: 'x' does not belong here"},
        {"*: whole, optimizer", "r.txt: line 1: ', optimizer' does not belong here"},
        {"*: axis 0 over all,", "r.txt: line 1: 'axis', 'optimizer' or 'whole' must stand here"},
        {"*: axis over all", "r.txt: line 1: 'axis' needs the number of an axis, not 'over all'"},
        {"*: axis -0 over all", "r.txt: line 1: 'axis' needs the number of an axis"},
        {"*: axis 0x over all", "r.txt: line 1: 'axis' needs the number of an axis"},
        {"*: axis 16 over all", "r.txt: line 1: axis 16 is beyond the 16 axes that a tensor may"},
        {"*: axis -17 over all", "r.txt: line 1: axis -17 is beyond the 16 axes"},
        {"*: axis 0", "r.txt: line 1: 'over' must follow the number of the axis, not 'the end of"},
        {"*: axis 0 by all", "r.txt: line 1: 'over' must follow the number of the axis, not 'by"},
        {"*: axis 0 over", "r.txt: line 1: 'over' needs the name of a device axis, not 'the end"},
        {"*: axis 0 over, optimizer", "r.txt: line 1: 'over' needs the name of a device axis"},
        {"*: axis 0 over tp",
         "r.txt: line 1: there is no device axis 'tp'; try: a line such as \"axes"},
        {"axes tp=6\n*: axis 0 over dp",
         "r.txt: line 2: there is no device axis 'dp'; try: one of those in the line of axes"},
        {"axes tp=6\n*: axis 0 over all", "r.txt: line 2: there is no device axis 'all'"},
        {"*: axis 0 over all all", "r.txt: line 1: device axis 'all' is used twice"},
        {"*: axis 0 over all, axis 1 over all", "r.txt: line 1: device axis 'all' is used twice"},
        {"axes a=2 b=3\n*: axis 0 over a, axis 0 over b",
         "r.txt: line 2: axis 0 is cut twice; try: the device axes of both in one"},
        {"*: optimizer 0", "r.txt: line 1: '0' is not a number of pieces"},
        {"*: optimizer 2x", "r.txt: line 1: '2x' is not a number of pieces"},
        {"*: optimizer, optimizer", "r.txt: line 1: there are two optimizer shards"},
        {"*: optimizer 4",
         "r.txt: line 1: an optimizer shard of 4 does not fit the device axes that "
         "are left for it, 6 devices in all"},
        {"*: optimizer 7", "r.txt: line 1: an optimizer shard of 7 does not fit"},
        {"*: axis 0 over all, optimizer",
         "r.txt: line 1: no device axis is left for an optimizer shard"},
        {"axes\n*: whole", "r.txt: line 1: no device axis is named"},
        {"axes a\n*: whole", "r.txt: line 1: device axis 'a' has no number of devices"},
        {"axes a=\n*: whole", "r.txt: line 1: device axis 'a' has no number of devices"},
        {"axes a=0\n*: whole", "r.txt: line 1: device axis 'a' has no number of devices"},
        {"axes a=99999999999999999999\n*: whole", "r.txt: line 1: device axis 'a' has no number"},
        {"axes 2=a\n*: whole", "r.txt: line 1: '2=a' is not the name of a device axis"},
        {"axes over=2\n*: whole", "r.txt: line 1: 'over=2' is not the name of a device axis"},
        {"axes a=2, b=3\n*: whole", "r.txt: line 1: ', b=3' is not the name of a device axis"},
        {"axes a=2 a=3\n*: whole", "r.txt: line 1: there are two device axes 'a'"},
        {"axes a=1048576 b=2\n*: whole",
         "r.txt: line 1: the device axes have more than 1048576 devices"},
        {"axes a=6\naxes b=4\n*: whole",
         "r.txt: line 2: the device axes have 4 devices, and those in line 1 have 6"},
        {"stages 2\nstages 2\n*: whole", "r.txt: line 2: the stages are given already, in line 1"},
        {"stages\n*: whole", "r.txt: line 1: 'the end of the line' is not a number of stages"},
        {"stages 0\n*: whole", "r.txt: line 1: '"},
        {"stages 4\n*: whole", "r.txt: dst_ranks=6 ranks cannot be made of 4 stages"},
        {"stages 2\nlike source", "r.txt: line 1: \"like source\", in line 2, has the stages"},
        {"stage\n*: whole", "r.txt: line 1: no stage is named; try: \"stage first\""},
        {"stage second\n*: whole", "r.txt: line 1: 'second' is not a stage"},
        {"stages 2\nstage layer\nh.*: whole\nstage all\n*: whole",
         "r.txt: line 1: 1 layers cannot be divided evenly over 2 stages"},
        {"*: axis 0 over all in", "r.txt: line 1: 'in' needs the name of a number, not 'the end"},
        {"*: axis 0 over all in 4", "r.txt: line 1: 'in' needs the name of a number, not '4'"},
        {"axes a=2 b=3\n*: axis 0 over a in x, axis 1 over b in y",
         "r.txt: line 2: there are two axes with 'in'"},
        {"*: axis 0 over all in heads",
         "r.txt: line 1: parameter 'embed.table': the rule needs heads of the model's config.json"},
        {"*: fields 0", "r.txt: line 1: '0' is not a number of fields"},
        {"*: fields 65", "r.txt: line 1: '65' is not a number of fields"},
        {"*: fields 2", "r.txt: line 1: fields follow the cut of an axis that is counted from 0"},
        {"*: axis -1 over all, fields 2",
         "r.txt: line 1: fields follow the cut of an axis that is counted from 0"},
        {"axes a=2 b=3\n*: axis 0 over a, optimizer 3, fields 2",
         "r.txt: line 2: fields and an optimizer shard do not go together"},
        {"*: whole\naxes a=6",
         "r.txt: line 2: the device axes must be given before the first rule"},
        {"axes a234567890123456789012345678901x=6\n*: whole",
         "r.txt: line 1: the name of a device axis has more than 31 characters"},
        {"axes a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1 p=1 q=1\n*: whole",
         "r.txt: line 1: there are more than 16 device axes"},
        {"\naxes a=2 b=4\n*: whole",
         "r.txt: line 2: the device axes have 8 devices, but dst_ranks=6 asks for 6"},
        {"h.*: whole", "r.txt: parameter 'embed.table': no rule matches it; try: a last rule \"*: "
                       "whole\""},
        {"*: whole\n\001*: whole", "r.txt: line 2: a control character, 0x01"},
        {"like\n*: whole", "r.txt: line 1: 'source' must follow 'like', not 'the end of the line'"},
        {"like it\n*: whole", "r.txt: line 1: 'source' must follow 'like', not 'it'"},
        {"like source\nlike source", "r.txt: line 2: \"like source\" stands already in line 1"},
        {"like source with tp 8 -> 6", "r.txt: line 1: 'tp 8 -> 6' does not belong here"},
        {"like source with dp 8 6", "r.txt: line 1: '6' does not belong here"},
        {"like source with dp 8 -> 6 7", "r.txt: line 1: '7' does not belong here"},
        {"like source with dp 0 -> 6", "r.txt: line 1: a device axis of 0"},
        {"like source with dp 8 -> 0", "r.txt: line 1: a device axis of 0"},
        {"*: whole\nlike source", "r.txt: line 2: there is no source strategy to be like"},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused_for(cases[i].text, NULL, 6, cases[i].what);
}

/* What rules say of a tensor shows when it is met. */
static void misfits_are_told_with_their_line(void **unused)
{
    struct rfs_strategy *s = made("axes a=2 b=3\n"
                                  "embed.*: axis 1 over a\n"
                                  "*.weight: axis 0 over a, axis -1 over b\n"
                                  "*.moe.w: axis -2 over a\n"
                                  "h.*: optimizer 6\n"
                                  "*: axis 0 over b",
                                  NULL, 6);

    (void)unused;
    expect_misfit(of(s, "embed.table", 0), 1, 6,
                  "r.txt: line 2: parameter 'p': the rule cuts axis 1 of a tensor that has 1 axis; "
                  "try: rules that fit this tensor");
    expect_misfit(
        of(s, "embed.table", 0), 2, 3,
        "r.txt: line 2: parameter 'p': the checkpoint holds a tensor of [3, 3], and the "
        "strategy cuts axis 1 into 2 pieces: 3 is not divisible by 2; try: rules that fit this "
        "tensor");
    expect_misfit(of(s, "h.0.q_proj.weight", 0), 1, 6,
                  "r.txt: line 3: parameter 'p': the rule cuts axis 0 and axis -1, and these are "
                  "the same axis of a tensor with 1 axis; try: rules that fit this tensor");
    expect_misfit(
        of(s, "h.0.moe.w", 0), 1, 6,
        "r.txt: line 4: parameter 'p': the rule cuts axis -2 of a tensor that has 1 axis; "
        "try: rules that fit this tensor");
    expect_misfit(
        of(s, "h.0.norm-1", 0), 0, 0,
        "r.txt: line 5: parameter 'p': a scalar cannot be cut by an optimizer shard of 6; "
        "try: rules that fit this tensor");
    expect_misfit(of(s, "global_step", 0), 0, 0,
                  "r.txt: line 6: parameter 'p': the rule cuts axis 0 of a tensor that has 0 axes; "
                  "try: 'p: whole' before that rule");
    expect_misfit(
        of(s, "global_step", 0), 1, 1,
        "r.txt: line 6: parameter 'p': the checkpoint holds a tensor of [1], and the "
        "strategy cuts axis 0 into 3 pieces: 1 is not divisible by 3; try: rules that fit this "
        "tensor");
    rfs_strategy_free(s);
}

/*
 * Of 8 x 2 devices, with replicas outside (w), inside (v), an optimizer shard over all (o) or part
 * (q) of the replicas, and what nothing cuts (u, t).
 */
static const struct spec sources[] = {
    {"w", 2, {8, 2}, 2, {{1, {0}}}, {24, 24}, 0, 0},
    {"v", 2, {2, 8}, 2, {{0}, {1, {1}}}, {24, 24}, 0, 0},
    {"o", 2, {8, 2}, 1, {{1, {0}}}, {96}, 2, 8},
    {"q", 2, {8, 2}, 1, {{1, {0}}}, {96}, 2, 2},
    {"u", 2, {4, 4}, 1, {{0}}, {24}, 0, 0},
    {"t", 1, {16}, 0, {{0}}, {0}, 0, 0},
};

static struct rfs_strategy *written(const struct spec *specs, size_t n)
{
    struct text text = {0};

    write_protobuf(&text, specs, n);
    struct rfs_strategy *strategy = parse_text("src.ckpt", &text);
    text_free(&text);
    return strategy;
}

static void like_source_is_the_source(void **unused)
{
    struct rfs_strategy *source = written(sources, 6);
    struct rfs_strategy *s = made("axes a=4 b=4\nv: axis 0 over b\nlike source", source, 16);

    (void)unused;
    for (int i = 0; i < 6; i++) {
        const char *param = sources[i].name;
        if (strcmp(param, "v") != 0)
            assert_same_layout(of(s, param, 0), of(source, param, 0));
    }
    expect_pieces(of(s, "v", 0), 2, (uint32_t[]){4, 1});
    rfs_strategy_free(s);
    refused_for(
        "like source", source, 8,
        "r.txt: line 1: parameter 'w': it would have 16 devices, but dst_ranks=8 asks for 8");
    rfs_strategy_free(source);
}

static void replicas_from_8_to_6(void **unused)
{
    struct rfs_strategy *source = written(sources, 6);
    struct rfs_strategy *s = made("like source with dp 8 -> 6", source, 12);
    struct rfs_grid grid;

    (void)unused;
    assert_int_equal(rfs_strategy_devices(s), 12);
    const struct rfs_layout *w = of(s, "w", 0), *v = of(s, "v", 0), *o = of(s, "o", 0);
    assert_int_equal(w->dev[0] * 10 + w->dev[1], 62);
    assert_int_equal(v->dev[0] * 10 + v->dev[1], 26);
    resolve(v, 2, 24, &grid);
    assert_int_equal(grid.pieces[1], 2);
    assert_int_equal(grid.replicas, 6);
    assert_int_equal(o->opt_size, 6);
    resolve(o, 1, 96, &grid);
    assert_int_equal(grid.pieces[0], 12);
    const struct rfs_layout *q = of(s, "q", 0);
    assert_int_equal(q->opt_size, 2);
    resolve(q, 1, 96, &grid);
    assert_int_equal(grid.pieces[0], 4);
    assert_int_equal(grid.replicas, 3);
    assert_int_equal(of(s, "u", 0)->devices, 12);
    assert_int_equal(of(s, "t", 0)->devices, 12);
    rfs_strategy_free(s);

    s = made("q: whole\nlike source with dp 8->1", source, 2);
    assert_int_equal(of(s, "o", 0)->opt_size, 0);
    assert_int_equal(of(s, "w", 0)->devices, 2);
    rfs_strategy_free(s);
    refused_for("like source with dp 8 -> 5", source, 10,
                "r.txt: line 1: parameter 'q': 2 of the 8 devices along that axis cut it as an "
                "optimizer shard, which 5 devices cannot; try: a rule for this parameter alone");
    s = made("q: whole\nlike source with dp 8 -> 5", source, 10);
    assert_int_equal(of(s, "o", 0)->opt_size, 5);
    rfs_strategy_free(s);
    refused_for(
        "like source with dp 4 -> 2", source, 8,
        "r.txt: line 1: parameter 'w': none of its device axes has 4 devices and cuts no axis "
        "of the tensor");
    refused_for("like source with dp 8 -> 1048576", source, 8,
                "r.txt: line 1: parameter 'w': its device matrix would have more than 1048576");
    rfs_strategy_free(source);
}

static void replicas_from_1(void **unused)
{
    struct rfs_strategy *source = written(sources, 6);
    struct rfs_strategy *s = made("like source with dp 1 -> 3", source, 48);

    (void)unused;
    for (int i = 0; i < 6; i++) {
        const struct rfs_layout *was = of(source, sources[i].name, 0);
        const struct rfs_layout *is = of(s, sources[i].name, 0);
        struct rfs_grid a, b;
        assert_int_equal(is->devices, 48);
        resolve(was, sources[i].ndim, 96, &a);
        resolve(is, sources[i].ndim, 96, &b);
        assert_memory_equal(a.pieces, b.pieces, sizeof a.pieces);
        for (uint32_t rank = 0; rank < 48; rank++) {
            uint32_t cell[RFS_GRID_DIMS], other[RFS_GRID_DIMS];
            rfs_grid_cell(&a, rank % 16, cell);
            rfs_grid_cell(&b, rank, other);
            for (uint32_t k = 0; k < sources[i].ndim; k++)
                assert_int_equal(cell[k], other[k]);
        }
    }
    rfs_strategy_free(s);
    rfs_strategy_free(source);
}

/* Several axes could be meant: taken where it makes no difference. */
static void which_replicas(void **unused)
{
    static const struct spec fine[] = {
        {"both_outside", 3, {4, 4, 2}, 1, {{1, {0}}}, {24}, 0, 0},
        {"both_inside", 3, {2, 4, 4}, 1, {{1, {2}}}, {24}, 0, 0},
        {"cut_of_one", 3, {4, 1, 8}, 1, {{1, {1}}}, {24}, 0, 0},
        {"all_named",
         5,
         {1, 1, 32, 1, 1},
         4,
         {{1, {4}}, {1, {3}}, {1, {1}}, {1, {0}}},
         {24, 24, 24, 24},
         0,
         0},
    };
    static const struct spec around[] = {{"x", 3, {4, 2, 4}, 1, {{1, {1}}}, {24}, 0, 0}};
    static const struct spec sharded[] = {{"x", 2, {4, 4}, 1, {{0}}, {24}, 1, 4}};
    struct rfs_strategy *source = written(fine, 4);
    struct rfs_strategy *s = made("like source with dp 4 -> 2", source, 16);

    (void)unused;
    expect_pieces(of(s, "both_outside", 0), 1, (uint32_t[]){2});
    expect_pieces(of(s, "both_inside", 0), 1, (uint32_t[]){2});
    expect_pieces(of(s, "cut_of_one", 0), 1, (uint32_t[]){1});
    expect_pieces(of(s, "all_named", 0), 4, (uint32_t[]){1, 1, 1, 1});
    rfs_strategy_free(s);
    rfs_strategy_free(source);
    source = written(around, 1);
    refused_for(
        "like source with dp 4 -> 2", source, 16,
        "r.txt: line 1: parameter 'x': 2 of its device axes have 4 devices and cut no axis of "
        "the tensor, and the choice between them matters; try: a rule for");
    rfs_strategy_free(source);
    source = written(sharded, 1);
    refused_for("like source with dp 4 -> 2", source, 8, "r.txt: line 1: parameter 'x': 2 of its");
    rfs_strategy_free(source);
}

/* The compiler gives those one axis of all devices, whatever the others have. */
static void shards_over_all_devices(void **unused)
{
    static const struct spec all[] = {
        {"w", 2, {4, 2}, 1, {{1, {0}}}, {24}, 0, 0},
        {"o", 1, {8}, 1, {{0}}, {96}, 1, 8},
        {"p", 2, {4, 2}, 1, {{0}}, {96}, 1, -1},
    };
    struct rfs_strategy *source = written(all, 3);
    struct rfs_strategy *s = made("like source with dp 4 -> 6", source, 12);

    (void)unused;
    for (int i = 1; i < 3; i++) {
        struct rfs_grid grid;
        resolve(of(s, all[i].name, 0), 1, 96, &grid);
        assert_int_equal(grid.pieces[0], 12);
        for (uint32_t rank = 0; rank < 12; rank++) {
            uint32_t cell[RFS_GRID_DIMS];
            rfs_grid_cell(&grid, rank, cell);
            assert_int_equal(cell[0], rank);
        }
    }
    rfs_strategy_free(s);
    s = made("like source with dp 8 -> 1\nw: whole", source, 1);
    expect_pieces(of(s, "o", 0), 1, (uint32_t[]){1});
    rfs_strategy_free(s);
    refused_for(
        "like source with dp 3 -> 1", source, 4,
        "r.txt: line 1: parameter 'w': none of its device axes has 3 devices and cuts no axis "
        "of the tensor; try");
    refused_for("w: whole\nlike source with dp 3 -> 1", source, 4,
                "r.txt: line 2: parameter 'o': its 8 devices cannot become 1/3 of them");
    rfs_strategy_free(source);
}

/* Manual splits and fields go over with the rest of a layout. */
static void uneven_layouts(void **unused)
{
    static const char json[] =
        "{\"current_stage\": 2, \"parallel_strategy_item\": {}, \"parallel_layout_item\": {"
        "\"split\": {\"dev_matrix\": [2, 2], \"tensor_map\": [0, -1], \"tensor_shape\": [6, 4], "
        "\"field\": 0, \"param_split_shape\": [2, 4], \"indices_offset\": [0, 2], "
        "\"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}, "
        "\"field\": {\"dev_matrix\": [4], \"tensor_map\": [0, -1], \"tensor_shape\": [24, 4], "
        "\"field\": 3, \"opt_weight_shard_step\": 0, \"opt_weight_shard_size\": 0}}}";
    struct rfs_strategy *source;
    struct rfs_error err = {0};

    (void)unused;
    if (rfs_strategy_parse("s.json", json, sizeof json - 1, &source, &err) != 0)
        fail_msg("%s", err.text);
    struct rfs_strategy *s = made("like source", source, 4);
    const struct rfs_layout *split = of(s, "split", 0);
    assert_int_equal(split->n_edges, 3);
    assert_ptr_not_equal(split->edge, of(source, "split", 0)->edge);
    assert_int_equal(split->edge[1], 2);
    assert_int_equal(of(s, "field", 0)->field, 3);
    rfs_strategy_free(s);
    refused_for("like source with dp 2 -> 3", source, 6,
                "r.txt: line 1: parameter 'field': it is cut by field over all devices");
    s = made("field: whole\nlike source with dp 2 -> 3", source, 6);
    rfs_strategy_free(source);
    split = of(s, "split", 0);
    assert_int_equal(split->devices, 6);
    assert_int_equal(split->edge[2], 6);
    rfs_strategy_free(s);
}

/* A map that names every device axis, each of one device. */
static void one_device_becomes_many(void **unused)
{
    static const struct spec one[] = {{"x", 2, {1, 1}, 2, {{1, {1}}, {1, {0}}}, {24, 24}, 0, 0}};
    struct rfs_strategy *source = written(one, 1);
    struct rfs_strategy *s = made("like source with dp 1 -> 6", source, 6);

    (void)unused;
    assert_int_equal(of(s, "x", 0)->devices, 6);
    expect_pieces(of(s, "x", 0), 2, (uint32_t[]){1, 1});
    rfs_strategy_free(s);
    rfs_strategy_free(source);
}

static void stages_stay(void **unused)
{
    static const struct spec stages[] = {
        {"0-shared", 2, {4, 2}, 1, {{1, {0}}}, {24}, 0, 0},
        {"1-shared", 2, {4, 2}, 1, {{1, {1}}}, {24}, 0, 0},
        {"0-a", 2, {4, 2}, 1, {{0}}, {24}, 0, 0},
        {"1-b", 2, {4, 2}, 1, {{0}}, {24}, 0, 0},
    };
    struct rfs_strategy *source = written(stages, 4);
    struct rfs_strategy *s = made("axes d=8\nb: axis 0 over d\nlike source", source, 16);

    (void)unused;
    assert_int_equal(rfs_strategy_stages(s), 2);
    assert_same_layout(of(s, "shared", 0), of(source, "shared", 0));
    assert_same_layout(of(s, "shared", 1), of(source, "shared", 1));
    assert_null(rfs_strategy_layout(s, (size_t)rfs_strategy_find(s, "b"), 0));
    expect_pieces(of(s, "b", 1), 1, (uint32_t[]){8});
    rfs_strategy_free(s);

    refused_for("like source", source, 15, "r.txt: dst_ranks=15 ranks cannot be made of 2 stages");
    refused_for(
        "axes d=16\nb: whole\nlike source", source, 16,
        "r.txt: line 1: the device axes have 16 devices, but dst_ranks=16 asks for 8 in each "
        "stage");
    refused_for("like source with dp 4 -> 2", source, 8,
                "r.txt: line 1: parameter 'shared': none of its device axes has 4 devices");
    s = made("shared: whole\nlike source with dp 4 -> 2", source, 8);
    assert_int_equal(of(s, "b", 1)->devices, 4);
    rfs_strategy_free(s);
    /* Without it there is one stage, of all parameters. */
    s = made("*: axis 0 over all", source, 3);
    assert_int_equal(rfs_strategy_stages(s), 1);
    assert_int_equal(rfs_strategy_count(s), 3);
    rfs_strategy_free(s);
    rfs_strategy_free(source);
}

/* One rule for each of many parameters: found by name, not one after the other. */
static void a_rule_for_each_of_many(void **unused)
{
    enum { MANY = 20000 };
    struct text text = {0};
    char(*all)[16] = malloc(MANY * sizeof *all);
    const char **list = malloc(MANY * sizeof *list);
    struct rfs_layout_rules *rules;
    struct rfs_strategy *s;
    struct rfs_error err = {0};

    (void)unused;
    assert_non_null(all);
    assert_non_null(list);
    putf(&text, "axes a=2 b=3\n");
    for (int i = 0; i < MANY; i++) {
        snprintf(all[i], sizeof *all, "p.%d", i);
        list[i] = all[i];
        putf(&text, "p.%d: axis %d over %c\n", i, i % 3, i % 2 ? 'a' : 'b');
    }
    const struct rfs_layout_rules_use use = {
        .names = list, .n = MANY, .ranks = 6, .ranks_option = "src_ranks"};
    assert_int_equal(rfs_layout_rules_parse("r", text.data, text.n, &rules, &err), 0);
    assert_int_equal(rfs_layout_rules_strategy(rules, &use, NULL, &s, &err), 0);
    assert_int_equal(of(s, "p.19999", 0)->line, 20001);
    expect_pieces(of(s, "p.19999", 0), 3, (uint32_t[]){1, 2, 1});
    rfs_strategy_free(s);
    rfs_layout_rules_free(rules);
    text_free(&text);
    free(list);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_line),
        cmocka_unit_test(nested_cuts_are_outer_to_inner),
        cmocka_unit_test(without_axes_there_is_all),
        cmocka_unit_test(the_first_match_counts),
        cmocka_unit_test(rules_for_other_names_are_refused),
        cmocka_unit_test(ranks_follow_from_the_axes),
        cmocka_unit_test(several_axes),
        cmocka_unit_test(stages_by_layer),
        cmocka_unit_test(parts_stay_whole),
        cmocka_unit_test(fields_of_an_axis),
        cmocka_unit_test(mistakes_are_told_with_their_line),
        cmocka_unit_test(misfits_are_told_with_their_line),
        cmocka_unit_test(like_source_is_the_source),
        cmocka_unit_test(replicas_from_8_to_6),
        cmocka_unit_test(replicas_from_1),
        cmocka_unit_test(which_replicas),
        cmocka_unit_test(shards_over_all_devices),
        cmocka_unit_test(uneven_layouts),
        cmocka_unit_test(one_device_becomes_many),
        cmocka_unit_test(stages_stay),
        cmocka_unit_test(a_rule_for_each_of_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
