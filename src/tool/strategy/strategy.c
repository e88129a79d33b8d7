/* SPDX-License-Identifier: Apache-2.0 */
/* reshard strategy: shows, converts, merges, makes and checks strategy files. */
#include "tool/strategy/strategy.h"

#include "base/cleanup.h"
#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/tool.h"

#include <errno.h>
#include <string.h>

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

enum { JSON = RFS_ARGS_LONG, FORCE, STRICT, WHOLE, TREE, RULES, RANKS, TO, NAME };

static const struct option names[] = {
    {"json", no_argument, NULL, JSON},         {"force", no_argument, NULL, FORCE},
    {"strict", no_argument, NULL, STRICT},     {"whole", no_argument, NULL, WHOLE},
    {"tree", required_argument, NULL, TREE},   {"rules", required_argument, NULL, RULES},
    {"ranks", required_argument, NULL, RANKS}, {"to", required_argument, NULL, TO},
    {"name", required_argument, NULL, NAME},   {NULL, 0, NULL, 0},
};

static int take(struct rfs_args *args, int option, struct rfs_strategy_args *out,
                struct rfs_error *err)
{
    uint64_t number;
    bool kept = true;

    switch (option) {
    case RFS_ARGS_PLACE:
        kept = RFS_PUSH(&out->places, args->value);
        break;
    case NAME:
        kept = RFS_PUSH(&out->globs, args->value);
        break;
    case JSON:
        out->json = true;
        break;
    case FORCE:
        out->force = true;
        break;
    case STRICT:
        out->strict = true;
        break;
    case WHOLE:
        out->whole = true;
        break;
    case TREE:
        out->tree = args->value;
        break;
    case RULES:
        out->rules = args->value;
        break;
    case RANKS:
        if (!rfs_tool_number(args->value, false, 1, RFS_MAX_DEVICES, &number))
            return rfs_args_refuse(args, "a number of ranks", err);
        out->ranks = (uint32_t)number;
        break;
    case TO:
        if (strcmp(args->value, "ckpt") != 0 && strcmp(args->value, "json") != 0)
            return rfs_args_refuse(args, "ckpt or json", err);
        out->to = args->value;
        break;
    case 's':
        out->source = args->value;
        break;
    default: { /* -o */
        const int rc = rfs_args_view(args, option, &out->options, err);
        return rc < 0 ? rc : 0;
    }
    }
    return kept ? 0 : rfs_fail_memory(err);
}

static int parse(int argc, char **argv, size_t which, struct rfs_strategy_args *out,
                 struct rfs_error *err)
{
    struct rfs_args args = {.argc = argc, .argv = argv, .letters = "s:o:", .names = names};

    for (int option; (option = rfs_args_next(&args, err)) != RFS_ARGS_END;) {
        const int rc = option < 0 ? option : take(&args, option, out, err);
        if (rc)
            return rc;
    }
    if (out->places.n < subcommands[which].least || out->places.n > subcommands[which].most)
        return rfs_fail_usage(err, subcommands[which].form, "%s takes %s", subcommands[which].name,
                              subcommands[which].most == 1   ? "one path"
                              : subcommands[which].most == 2 ? "two paths"
                                                             : "two paths or more");
    for (size_t i = 0; i < out->places.n; i++)
        if (*out->places.data[i] == '\0')
            return rfs_fail_usage(err, subcommands[which].form, "a path is empty");
    return 0;
}

static int find(int argc, char **argv, size_t *which, struct rfs_error *err)
{
    const char *name = argc > 1 ? argv[1] : "";

    for (*which = 0; *which < SUBCOMMANDS; ++*which)
        if (strcmp(subcommands[*which].name, name) == 0)
            return 0;
    if (*name == '-') {
        /* An option in the place of the subcommand: the word on it is that of all commands. */
        struct rfs_args args = {.argc = argc, .argv = argv, .letters = "s:o:", .names = names};
        const int option = rfs_args_next(&args, err);
        if (option < 0)
            return option;
    }
    return rfs_fail_usage(err, "reshard strategy --help",
                          *name ? "'%s' is nothing that strategy does"
                                : "strategy takes show, convert, merge, new or check",
                          name);
}

static int run(int argc, char **argv)
{
    struct rfs_strategy_args args = {.json = false};
    struct rfs_error err = {0};
    size_t which = 0;
    int rc = find(argc, argv, &which, &err);

    if (rc == 0) {
        argv[1] = argv[0];
        rc = parse(argc - 1, argv + 1, which, &args, &err);
    }
    if (rc == 0)
        rc = subcommands[which].run(&args, &err);
    free(args.places.data);
    free(args.globs.data);
    free(args.options);
    if (rc < 0)
        return rfs_tool_failed(&err);
    const int done = rfs_tool_done();
    return done ? done : rc;
}

int rfs_strategy_tree_open(const char *path, const char *options, struct rfs_strategy_tree *tree,
                           struct rfs_error *err)
{
    struct rfs_progress progress;

    *tree = (struct rfs_strategy_tree){.headers = {.n = 0}};
    int rc = rfs_tool_source_prepare(options, NULL, NULL, &tree->source, err);
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
             "reshard strategy check FILE TREE [-s FILE | --whole] [--strict] [--json]\n",
    .summary = "shows, converts, merges, makes and checks strategy files",
    .options = "  --to FORM          ckpt (protobuf) or json; else by OUT's ending\n"
               "  --tree SRC         a checkpoint that tells the shapes of tensors\n"
               "  --rules RULES      a file of rules, or their text with ';' between\n"
               "  --ranks N          what the new strategy is for\n"
               "  -s FILE            new: the strategy that rules are like; check: how\n"
               "                     TREE is cut, when FILE is the one it is to get\n"
               "  --whole            check: TREE is not cut\n"
               "  --strict           check: what only one of them has is a mismatch, too\n"
               "  -o OPTIONS         how the tree is to be read, as for a mount\n"
               "  --name GLOB        show: only these parameters\n"
               "  --force            replace OUT if it is there; OUT may be -\n"
               "  --json             for scripts\n",
    .run = run,
};
