/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard convert`: lists the rules that are shipped, shows whether rules fit a source, and their
 * result, and drafts rules of a source.
 */
#include "base/cleanup.h"
#include "base/path.h"
#include "reshard.h"
#include "survey/draft.h"
#include "survey/rules_report.h"
#include "tool/common/command.h"
#include "tool/common/show.h"
#include "tool/common/source.h"

struct request {
    const char *rules, *source;
    struct rfs_settings options; /* options of the view */
    bool list, json;
    enum { NOTHING, CHECK, LIST, DRAFT } action; /* the word before the arguments */
};

static int take_word(void *given, const char *word, struct rfs_error *err)
{
    struct request *request = given;

    request->action = strcmp(word, "check") == 0   ? CHECK
                      : strcmp(word, "list") == 0  ? LIST
                      : strcmp(word, "draft") == 0 ? DRAFT
                                                   : NOTHING;
    return request->action != NOTHING || !*word
               ? 0
               : rfs_fail_usage(err, "reshard convert list, check or draft", "unknown action '%s'",
                                word);
}

/* ---- list ------------------------------------------------------------------------------------ */

/* Puts words as an array. */
static void put_words(struct rfs_json_write *json, const char *key, const char *words, size_t n,
                      char between)
{
    rfs_json_array(json, key, RFS_JSON_SPACED);
    for (const char *end = words + n, *next; words < end; words = next + (next < end)) {
        char word[128];
        next = memchr(words, between, (size_t)(end - words));
        next = next ? next : end;
        snprintf(word, sizeof word, "%.*s", (int)(next - words), words);
        rfs_json_put_text(json, NULL, word);
    }
    rfs_json_end(json);
}

/* Puts options, each as "NAME=WORD|WORD", as an object. */
static void put_options(struct rfs_json_write *json, const char *options)
{
    rfs_json_object(json, NULL, RFS_JSON_SPACED);
    while (*options) {
        const char *end = strchrnul(options, ' ');
        const char *equals = strchrnul(options, '=');
        rfs_json_put_key(json, options, (size_t)(equals - options));
        put_words(json, NULL, equals + 1, (size_t)(end - equals - 1), '|');
        options = *end ? end + 1 : end;
    }
    rfs_json_end(json);
}

static void put_sides(struct rfs_json_write *json, const char *const *sides)
{
    rfs_json_array(json, NULL, RFS_JSON_SPACED);
    rfs_json_put_text(json, NULL, sides[0]);
    rfs_json_put_text(json, NULL, sides[1]);
    rfs_json_end(json);
}

RFS_CELL(cell_rules, struct rfs_inspect_shipped, rfs_table_text(table, row->name))
RFS_CELL(cell_models, struct rfs_inspect_shipped, rfs_table_text(table, row->models))
RFS_CELL(cell_between, struct rfs_inspect_shipped,
         rfs_table_add(table, "%s, %s", row->sides[0], row->sides[1]))
RFS_CELL(cell_options, struct rfs_inspect_shipped, rfs_table_text(table, row->options))

/* Defines a cell of JSON, which a call puts. */
#define CELL_OF_JSON(name, put)                                                                    \
    RFS_CELL(name, struct rfs_inspect_shipped,                                                     \
             struct rfs_json_write json = {.file = rfs_table_cell(table)};                         \
             put; rfs_table_cell_end(table))
CELL_OF_JSON(cell_list_of_models, put_words(&json, NULL, row->models, strlen(row->models), ' '))
CELL_OF_JSON(cell_sides, put_sides(&json, row->sides))
CELL_OF_JSON(cell_list_of_options, put_options(&json, row->options))

static const struct rfs_column shipped_columns[] = {
    {"rules", RFS_CELL_TEXT, cell_rules},
    {"models", RFS_CELL_TEXT | RFS_FOR_PEOPLE, cell_models},
    {"between", RFS_CELL_TEXT | RFS_FOR_PEOPLE, cell_between},
    {"options", RFS_CELL_TEXT | RFS_FOR_PEOPLE, cell_options},
    {"models", RFS_CELL_JSON | RFS_FOR_SCRIPTS, cell_list_of_models},
    {"sides", RFS_CELL_JSON | RFS_FOR_SCRIPTS, cell_sides},
    {"options", RFS_CELL_JSON | RFS_FOR_SCRIPTS, cell_list_of_options},
};

static int add_shipped(void *ctx, const struct rfs_inspect_shipped *rules, struct rfs_error *err)
{
    (void)err;
    rfs_table_row(ctx, rules);
    return 0;
}

static int list_shipped(const struct request *request, struct rfs_error *err)
{
    struct rfs_table table = RFS_TABLE(shipped_columns, request->json);
    const int rc = request->rules ? rfs_fail_usage(err, "reshard convert list [--json]",
                                                   "list takes no rules and no source")
                                  : rfs_inspect_shipped(add_shipped, &table, err);

    if (rc == 0 && request->json) {
        struct rfs_json_write json = {.file = stdout, .indent = 2};
        rfs_table_put_json(&table, &json, NULL);
        rfs_json_finish(&json);
    } else if (rc == 0) {
        rfs_table_print(&table, stdout);
    }
    rfs_table_free(&table);
    return rc;
}

/* ---- check ----------------------------------------------------------------------------------- */

RFS_CELL(cell_tensor, struct rfs_inspect_made, rfs_table_text(table, row->name))
RFS_CELL(cell_shape, struct rfs_inspect_made,
         rfs_table_dims(table, row->type->ndim, row->type->dims))
RFS_CELL(cell_dtype, struct rfs_inspect_made, rfs_table_text(table, rfs_dtype_name(row->shown)))
RFS_CELL(cell_sources, struct rfs_inspect_made, rfs_table_u64(table, row->sources))
RFS_CELL(cell_rule, struct rfs_inspect_made,
         rfs_table_add(table, "%s: line %" PRIu32, row->file, row->line))

static const struct rfs_column columns[] = {
    {"tensor", RFS_CELL_TEXT, cell_tensor}, {"shape", RFS_CELL_JSON, cell_shape},
    {"dtype", RFS_CELL_TEXT, cell_dtype},   {"sources", RFS_CELL_NUMBER, cell_sources},
    {"rule", RFS_CELL_TEXT, cell_rule},
};

static void print(const struct request *request, reshard_view *view,
                  const struct rfs_inspect_rules *rules)
{
    struct rfs_table table = RFS_TABLE(columns, request->json);

    for (size_t i = 0; i < rules->made && (request->json || request->list); i++) {
        struct rfs_inspect_made made;
        rfs_inspect_made(view, i, &made);
        rfs_table_row(&table, &made);
    }
    if (request->json) {
        struct rfs_json_write json = {.file = stdout, .indent = 2};
        rfs_json_object(&json, NULL, RFS_JSON_LINES);
        rfs_json_put_text(&json, "from", rules->from);
        rfs_json_put_text(&json, "to", rules->to);
        rfs_json_put_u64(&json, "source_tensors", rules->sources);
        rfs_json_put_u64(&json, "dropped", rules->dropped);
        rfs_json_put_text(&json, "first_dropped", rules->first_dropped);
        rfs_json_put_u64(&json, "incomplete", rules->incomplete);
        rfs_table_put_json(&table, &json, "made");
        rfs_json_end(&json);
        putchar('\n');
    } else {
        if (request->list)
            rfs_table_print(&table, stdout);
        printf("%s: %zu tensors of %s make %zu of %s; %zu more %s left out", request->source,
               rules->sources - rules->dropped, rules->from, rules->made, rules->to, rules->dropped,
               rules->dropped == 1 ? "is" : "are");
        if (rules->dropped > 0)
            printf(": '%s'%s", rules->first_dropped, rules->dropped > 1 ? " and others" : "");
        putchar('\n');
        if (rules->incomplete > 0)
            printf("%zu of those that are made need a lost part of the source, and are left out\n",
                   rules->incomplete);
    }
    rfs_table_free(&table);
}

/* ---- draft ----------------------------------------------------------------------------------- */

RFS_CLEANUP_OF(free_draft, struct rfs_draft *, rfs_draft_free)
RFS_CLEANUP_OF(free_config, struct rfs_hf_config *, rfs_hf_config_free)

/* Moves the config's path out of the options, which are those of a view without rules. */
static char *take_config(struct rfs_settings *options)
{
    char *path = NULL;
    size_t n = 0;

    for (size_t i = 0; i < options->list.n; i++) {
        struct rfs_setting *one = &options->list.data[i];
        if (strcmp(one->name, "hf_config") == 0 && one->value) {
            free(path);
            path = one->value;
            free(one->name);
            free(one->origin);
        } else {
            options->list.data[n++] = *one;
        }
    }
    options->list.n = n;
    return path;
}

/*
 * Reads the config at PATH, or NULL: the source's own. Sets *OWN to whether the source has one: it
 * is HuggingFace's side then.
 */
static int open_config(struct request *request, const char *path, struct rfs_hf_config **out,
                       bool *own, struct rfs_error *err)
{
    RFS_FREE char *beside = rfs_path_join(request->source, "config.json");
    RFS_CLEANUP(free_config) struct rfs_hf_config *found = NULL;
    const char *paths[] = {beside, path};
    struct rfs_store *store;

    if (!beside)
        return rfs_fail_memory(err);
    int rc = rfs_tool_reach(&request->options, paths, 2, &store, err);
    if (rc)
        return rc;
    rc = rfs_hf_config_open(store, beside, &found, err);
    *own = rc == 0;
    if (path)
        return rfs_hf_config_open(store, path, out, err);
    if (rc == 0)
        *out = RFS_STEAL(found);
    return rc == -ENOENT || rc == -ENOTDIR
               ? rfs_fail_usage(err, "--hf-config config.json",
                                "a draft needs the model's config.json, and the source has none")
               : rc;
}

static int make_draft(struct request *request, struct rfs_error *err)
{
    RFS_CLEANUP(free_draft) struct rfs_draft *draft = rfs_draft_new();
    RFS_CLEANUP(free_config) struct rfs_hf_config *config = NULL;
    RFS_FREE char *path = take_config(&request->options);
    RFS_CLEANUP(rfs_whole_close) struct rfs_whole whole = {0};
    bool right = false;

    request->source = request->rules;
    if (!draft)
        return rfs_fail_memory(err);
    const int rc =
        open_config(request, path, &config, &right, err)
            ?: rfs_tool_tensors(request->source, &request->options, NULL, NULL, &whole, NULL, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < rfs_tensors_count(&whole.list); i++)
        rfs_draft_add(draft, rfs_tensors_name(&whole.list, i), rfs_tensors_type(&whole.list, i));
    return rfs_draft_print(draft, config, right, stdout, err);
}

/* ---------------------------------------------------------------------------------------------- */

RFS_CLEANUP_OF(close_view, reshard_view *, reshard_close)

static int run(void *given, struct rfs_error *err)
{
    static const struct rfs_view_how how = {.all_errors = true};
    struct request *request = given;
    RFS_CLEANUP(close_view) reshard_view *view = NULL;
    struct rfs_inspect_rules rules;

    if (request->action == LIST)
        return list_shipped(request, err);
    if (request->action == DRAFT && request->rules && !request->source)
        return make_draft(request, err);
    if (request->action != CHECK || !request->source)
        return rfs_fail_usage(
            err, "reshard convert check RULES SRC --hf-config FILE",
            "convert takes list; check, rules and a source; or draft and a source");
    int rc = rfs_settings_add(&request->options, "convert", request->rules, NULL)
                 ? rfs_fail_memory(err)
                 : 0;
    if (rc == 0)
        rc = rfs_tool_open(request->source, &request->options, &how, &view, err);
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
    RFS_ARG_FLAG("list", struct request, list, "check: each tensor that is made, and its rule"),
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    {0},
};

const struct rfs_command rfs_command_convert = {
    .name = "convert",
    .usage = "reshard convert list [--json]\n"
             "reshard convert check RULES SRC [--hf-config FILE] [option…]\n"
             "reshard convert draft SRC [--hf-config FILE] [option…]\n",
    .summary = "lists conversion rules, checks that they fit, and drafts them",
    .arguments = arguments,
    .request_bytes = sizeof(struct request),
    .take_word = take_word,
    .run = run,
};
