/* SPDX-License-Identifier: Apache-2.0 */
/* reshard strategy: shows, converts, merges, makes and checks strategy files. */
#include "tool/strategy/strategy.h"

#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/open.h"

static const struct {
    const char *name;
    int (*run)(const struct rfs_strategy_args *args, struct rfs_error *err);
    size_t least, most; /* places */
    const char *form;
} subcommands[] = {
    {"show", rfs_strategy_show, 1, 1, "reshard strategy show FILE"},
    {"convert", rfs_strategy_convert, 2, 2, "reshard strategy convert IN OUT"},
    {"merge", rfs_strategy_merge, 2, SIZE_MAX, "reshard strategy merge OUT FILE..."},
    {"new", rfs_strategy_new, 1, 1, "reshard strategy new OUT --rules RULES --ranks N"},
    {"check", rfs_strategy_check, 2, 2, "reshard strategy check FILE TREE"},
};
#define SUBCOMMANDS (sizeof subcommands / sizeof *subcommands)

/* By their numbers in rfs_strategy_args.to. */
static const char *const forms[] = {"ckpt", "json", NULL};

static const struct rfs_argument arguments[] = {
    {.value = "FILE", .as = RFS_AS_TEXTS, RFS_TO(struct rfs_strategy_args, places)},
    RFS_ARG_WORD("to", "FORM", forms, "ckpt or json", struct rfs_strategy_args, to,
                 "ckpt (protobuf) or json; else by OUT's ending"),
    RFS_ARG_TEXT("tree", "SRC", struct rfs_strategy_args, tree,
                 "a checkpoint, for the shapes of tensors"),
    RFS_ARG_TEXT("rules", "RULES", struct rfs_strategy_args, rules,
                 "a file of rules, or their text with ';' between"),
    RFS_ARG_NUMBER("ranks", "N", 1, RFS_MAX_DEVICES, "a number of ranks", struct rfs_strategy_args,
                   ranks, "the ranks of the new strategy"),
    RFS_ARG_FILE('s', struct rfs_strategy_args, source,
                 "new: the strategy for rules with like; check: the\nstrategy of TREE, if FILE is "
                 "the one to show"),
    RFS_ARG_FLAG("whole", struct rfs_strategy_args, whole, "check: TREE is not cut"),
    RFS_ARG_FLAG("strict", struct rfs_strategy_args, strict,
                 "check: a parameter that one of them lacks is a mismatch"),
    RFS_ARG_VIEW('o', "OPTIONS", NULL, struct rfs_strategy_args, options,
                 "options to read the tree by, as for a mount"),
    RFS_ARG_TEXTS("name", "GLOB", struct rfs_strategy_args, globs, "show: only these parameters"),
    RFS_ARG_FLAG("force", struct rfs_strategy_args, force,
                 "replace OUT if it is there; OUT may be -"),
    RFS_ARG_FLAG("json", struct rfs_strategy_args, json, "for scripts"),
    {0},
};

static int take_subcommand(void *request, const char *name, struct rfs_error *err)
{
    struct rfs_strategy_args *args = request;

    for (args->which = 0; args->which < SUBCOMMANDS; args->which++)
        if (strcmp(subcommands[args->which].name, name) == 0)
            return 0;
    return rfs_fail_usage(err, "reshard strategy --help",
                          *name ? "'%s' is not a command of strategy"
                                : "strategy takes show, convert, merge, new or check",
                          name);
}

/* Whatever of them is a URL is read by the options. */
static int reach(const struct rfs_strategy_args *args, struct rfs_error *err)
{
    const char *const more[] = {args->tree, args->source, args->rules};
    const int rc = rfs_tool_reach(&args->options, args->places.data, args->places.n, err);

    return rc ? rc : rfs_tool_reach(&args->options, more, sizeof more / sizeof *more, err);
}

static int run(void *request, struct rfs_error *err)
{
    struct rfs_strategy_args *args = request;
    const size_t which = args->which;

    if (args->places.n < subcommands[which].least || args->places.n > subcommands[which].most)
        return rfs_fail_usage(err, subcommands[which].form, "%s takes %s", subcommands[which].name,
                              subcommands[which].most == 1   ? "one path"
                              : subcommands[which].most == 2 ? "two paths"
                                                             : "two paths or more");
    for (size_t i = 0; i < args->places.n; i++)
        if (*args->places.data[i] == '\0')
            return rfs_fail_usage(err, subcommands[which].form, "a path is empty");
    return reach(args, err) ?: subcommands[which].run(args, err);
}

static const struct rfs_strategy_args defaults = {.to = RFS_FORM_BY_NAME};

int rfs_strategy_tree_open(const char *path, const struct rfs_settings *options,
                           struct rfs_strategy_tree *tree, struct rfs_error *err)
{
    struct rfs_progress progress;

    *tree = (struct rfs_strategy_tree){.headers = {.n = 0}};
    int rc = rfs_tool_source_prepare(options, path, NULL, NULL, &tree->source, err);
    if (rc || !path)
        return rc;
    rc = rfs_tool_source_open(&tree->source, path, err);
    if (rc == 0 && rfs_catalog_has_parts(tree->source.catalog))
        rc = rfs_fail(err, -EINVAL, RFS_IN(path), "a tree of MindSpore",
                      "hfai's parts are not cut by a strategy");
    if (rc)
        return rc;
    rfs_progress_init(&progress, false);
    rc = rfs_headers_read(tree->source.catalog, tree->source.pool, false, &progress, &tree->headers,
                          err);
    rfs_progress_destroy(&progress);
    return rc;
}

void rfs_strategy_tree_close(struct rfs_strategy_tree *tree)
{
    rfs_headers_free(&tree->headers);
    rfs_tool_source_close(&tree->source);
}

const struct rfs_command rfs_command_strategy = {
    .name = "strategy",
    .usage = "reshard strategy show FILE [--tree SRC] [--name GLOB] [--json]\n"
             "reshard strategy convert IN OUT [--to FORM] [--tree SRC] [--force]\n"
             "reshard strategy merge OUT FILE... | FOLDER [--force]\n"
             "reshard strategy new OUT --rules RULES --ranks N [-s FILE] [--tree SRC]\n"
             "reshard strategy new OUT --tree SRC\n"
             "reshard strategy check FILE TREE [-s FILE | --whole] [--strict] [--json]\n",
    .summary = "shows, converts, merges, makes and checks strategy files",
    .arguments = arguments,
    .request_bytes = sizeof defaults,
    .defaults = &defaults,
    .take_word = take_subcommand,
    .run = run,
};
