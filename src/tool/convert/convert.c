/* SPDX-License-Identifier: Apache-2.0 */
/* `reshard convert check`: shows whether conversion rules fit a source, and their result. */
#include "base/cleanup.h"
#include "tool/common/command.h"
#include "tool/common/show.h"
#include "tool/common/source.h"
#include "view/inspect.h"

struct request {
    const char *rules, *source;
    struct rfs_settings options; /* options of the view */
    bool list, json;
    bool checks; /* "check" stood before the arguments */
};

static int take_word(void *given, const char *word, struct rfs_error *err)
{
    struct request *request = given;

    request->checks = strcmp(word, "check") == 0;
    return request->checks || !*word
               ? 0
               : rfs_fail_usage(err, "reshard convert check", "unknown action '%s'", word);
}

static const struct rfs_column columns[] = {
    {"tensor", RFS_CELL_TEXT},    {"shape", RFS_CELL_JSON}, {"dtype", RFS_CELL_TEXT},
    {"sources", RFS_CELL_NUMBER}, {"rule", RFS_CELL_TEXT},
};

static void print(const struct request *request, reshard_view *view,
                  const struct rfs_inspect_rules *rules)
{
    struct rfs_table table = RFS_TABLE(columns, request->json);

    for (size_t i = 0; i < rules->made; i++) {
        struct rfs_inspect_made made;
        rfs_inspect_made(view, i, &made);
        rfs_table_text(&table, made.name);
        rfs_table_dims(&table, made.type->ndim, made.type->dims);
        rfs_table_text(&table, rfs_dtype_name(made.shown));
        rfs_table_u64(&table, made.sources);
        rfs_table_add(&table, "%s: line %" PRIu32, made.file, made.line);
    }
    if (request->json) {
        struct rfs_json_write json = {.file = stdout, .indent = 2};
        rfs_json_object(&json, NULL, RFS_JSON_LINES);
        rfs_json_put_text(&json, "from", rules->from);
        rfs_json_put_text(&json, "to", rules->to);
        rfs_json_put_u64(&json, "source_tensors", rules->sources);
        rfs_json_put_u64(&json, "dropped", rules->dropped);
        rfs_json_put_u64(&json, "incomplete", rules->incomplete);
        rfs_table_put_json(&table, &json, "made");
        rfs_json_end(&json);
        putchar('\n');
    } else {
        if (request->list)
            rfs_table_print(&table, stdout);
        printf("%s: %zu tensors of %s make %zu of %s; %zu more are left out\n", request->source,
               rules->sources - rules->dropped, rules->from, rules->made, rules->to,
               rules->dropped);
        if (rules->incomplete > 0)
            printf("%zu of those that are made need a lost part of the source, and are left out\n",
                   rules->incomplete);
    }
    rfs_table_free(&table);
}

RFS_CLEANUP_OF(close_view, reshard_view *, reshard_close)

static int run(void *given, struct rfs_error *err)
{
    struct request *request = given;
    RFS_CLEANUP(close_view) reshard_view *view = NULL;
    struct rfs_inspect_rules rules;

    if (!request->checks || !request->source)
        return rfs_fail_usage(err, "reshard convert check RULES SRC --hf-config FILE",
                              "convert takes an action, rules and a source");
    int rc = rfs_settings_add(&request->options, "convert", request->rules, NULL)
                 ? rfs_fail_memory(err)
                 : 0;
    if (rc == 0)
        rc = rfs_tool_open(request->source, &request->options, NULL, NULL, NULL, &view, err);
    if (rc == 0)
        rc = rfs_inspect_rules(view, &rules, err);
    if (rc == 0)
        print(request, view, &rules);
    return rc;
}

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("RULES", struct request, rules, NULL),
    RFS_ARG_OPERAND("SRC", struct request, source, "one RULES and one SRC"),
    RFS_ARG_VIEW_NAMED("hf-config", "FILE", "hf_config", struct request, options,
                       "the model's config.json (that of SRC, if it has one)"),
    RFS_ARG_VIEW_NAMED("convert-options", "NAME=WORD:…", "convert_options", struct request, options,
                       "options of the rules"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct request, options, "the strategy of SRC"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct request, options,
                 "any option of the view, see reshardfs(1)"),
    RFS_ARG_FLAG("list", struct request, list, "each tensor that is made, and its rule"),
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    {0},
};

const struct rfs_command rfs_command_convert = {
    .name = "convert",
    .usage = "reshard convert check RULES SRC [--hf-config FILE] [option…]\n",
    .summary = "checks that conversion rules fit a checkpoint",
    .arguments = arguments,
    .request_bytes = sizeof(struct request),
    .take_word = take_word,
    .run = run,
};
