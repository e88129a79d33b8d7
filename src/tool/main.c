/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/options.h"
#include "base/patience.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/suggest.h"
#include "base/variables.h"
#include "reshard.h"
#include "tool/common/command.h"
#include "tool/common/tool.h"

#include <signal.h>
#include <unistd.h>

/* The commands, in the order of their help. */
static const struct rfs_command *const commands[] = {
    &rfs_command_suggest, &rfs_command_info,   &rfs_command_strategy, &rfs_command_explain,
    &rfs_command_ranks,   &rfs_command_verify, &rfs_command_diff,     &rfs_command_stats,
    &rfs_command_get,     &rfs_command_export, &rfs_command_convert,  &rfs_command_mounts,
    &rfs_command_example,
};
#define COMMANDS (sizeof commands / sizeof *commands)

static const struct rfs_command *find(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

/* Commands and options of earlier versions, and what to use instead. */
static const struct gone {
    const char *command, *option; /* "stats", "--svg"; the option NULL: the whole command */
    const char *instead;
} gone[] = {
    {"layout", NULL, "reshard strategy show FILE NAME"},
};
#define GONE (sizeof gone / sizeof *gone)

/* Returns whether OPTION is among the words, with a value or without. */
static bool is_given(const char *option, char *const *words)
{
    const size_t n = strlen(option);

    for (; *words; words++)
        if (strncmp(*words, option, n) == 0 && ((*words)[n] == '\0' || (*words)[n] == '='))
            return true;
    return false;
}

/* Refuses COMMAND, or an option among its words, if it is gone. Returns whether it is. */
static bool refuse_gone(const char *command, char *const *words, struct rfs_error *err)
{
    for (const struct gone *row = gone; row < gone + GONE; row++)
        if (strcmp(row->command, command) == 0 && (!row->option || is_given(row->option, words))) {
            *err = (struct rfs_error){0};
            rfs_fail_usage(err, row->instead, "'%s' is no longer there",
                           row->option ? row->option : command);
            return true;
        }
    return false;
}

static bool is_help(const char *text)
{
    return strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0;
}

/* Returns whether a command line asks for help, wherever the word stands in it. */
static bool asks_for_help(char *const *words)
{
    for (; *words && strcmp(*words, "--") != 0; words++)
        if (is_help(*words))
            return true;
    return false;
}

static void print_commands(void)
{
    fputs("usage: reshard COMMAND [option…]\n\n", stdout);
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-9s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\nreshard COMMAND --help lists the options of a command; reshard(1) explains them.\n"
          "reshard help options lists those after -o. The file system is reshardfs(1).\n",
          stdout);
}

static void print_command(const struct rfs_command *command)
{
    const char *before = "usage: ";

    for (const char *line = command->usage; *line;) {
        const char *end = strchrnul(line, '\n');
        printf("%s%.*s\n", before, (int)(end - line), line);
        before = "       ";
        line = *end ? end + 1 : end;
    }
    putchar('\n');
    rfs_args_help(command->arguments, stdout);
    if (command->after)
        fputs(command->after, stdout);
}

#define HELP_OPTIONS "options" /* what may stand after -o */

/* Flushes the standard output: it fails if not all could be written. Returns the exit status. */
static int finish_output(void)
{
    struct rfs_error err = {0};
    if (fflush(stdout) == 0 && !ferror(stdout))
        return RFS_EXIT_OK;
    rfs_fail(&err, -EIO, RFS_NOWHERE, NULL, "cannot write to the standard output");
    return rfs_tool_failed(&err);
}

static int help(const char *name)
{
    const struct rfs_command *command = find(name);

    if (command)
        print_command(command);
    else if (strcmp(name, HELP_OPTIONS) == 0)
        rfs_options_help(RFS_OPTION_OF_VIEW, stdout);
    else
        print_commands();
    return finish_output();
}

/* Refuses an unknown command, and names one that may be meant. */
static void refuse(const char *name, struct rfs_error *err)
{
    char remedy[64] = "reshard --help";
    struct rfs_suggest suggest = rfs_suggest_begin(name, RFS_SUGGEST_WORD);

    if (refuse_gone(name, (char *const[]){NULL}, err))
        return;
    for (size_t i = 0; i < COMMANDS; i++)
        rfs_suggest_offer(&suggest, commands[i]->name);
    if (suggest.nearest)
        snprintf(remedy, sizeof remedy, "reshard %s", suggest.nearest);
    rfs_fail_usage(err, remedy, "unknown command '%s'", name);
}

static int parse(const struct rfs_command *command, int argc, char **argv, void *request,
                 struct rfs_error *err)
{
    const char *word = argc > 1 ? argv[1] : "";
    int rc = 0;

    if (command->defaults)
        memcpy(request, command->defaults, command->request_bytes);
    if (command->take_word) {
        /* An option in the place of the word: first it must be one. */
        if (*word == '-')
            rc = rfs_args_parse(command->arguments, argc, argv, request, err);
        if (rc == 0)
            rc = command->take_word(request, word, err);
        argv[argc > 1] = argv[0];
        argv += argc > 1;
        argc -= argc > 1;
    }
    if (rc == 0)
        rc = rfs_args_parse(command->arguments, argc, argv, request, err);
    if (rc == -EINVAL)
        refuse_gone(command->name, argv, err);
    return rc;
}

/* Returns the first word of LIST that begins with BEGINNING and has a URL in it, or NULL. */
static const char *find_url(char *const *list, const char *beginning)
{
    for (; *list; list++)
        if (strncmp(*list, beginning, strlen(beginning)) == 0 && strstr(*list, "://"))
            return *list;
    return NULL;
}

/*
 * Guards the credentials of a command that reads objects: no core file has them, nor /proc, which
 * other processes of the user can read.
 */
static int guard_credentials(char *const *argv, struct rfs_error *err)
{
    const char *url = find_url(argv, "");

    if (!url && !find_url(environ, "RESHARDFS_"))
        return 0;
    rfs_patience_begin("reshard", url && rfs_store_is_url(url) ? url : "object storage");
    return rfs_secret_harden(err) ?: (rfs_variables_hide() ? 0 : rfs_fail_memory(err));
}

/* Ends the process as if nobody had caught the signal that came, for those that wait for it. */
static void end_by_signal(void)
{
    const int number = rfs_tool_stopped();

    if (number == 0)
        return;
    signal(number, SIG_DFL);
    raise(number);
}

static int run(const struct rfs_command *command, int argc, char **argv)
{
    struct rfs_error err = {0};
    RFS_FREE void *request = calloc(1, command->request_bytes);
    int rc = request ? guard_credentials(argv, &err) : rfs_fail_memory(&err);

    if (rc == 0)
        rc = parse(command, argc, argv, request, &err);
    if (rc == 0)
        rc = command->run(request, &err);
    if (request)
        rfs_args_free(command->arguments, request);
    if (rc < 0) {
        rc = rfs_tool_failed(&err);
        end_by_signal();
        return command->trouble ? command->trouble : rc;
    }
    const int done = finish_output();
    return done == RFS_EXIT_OK ? rc : command->trouble ? command->trouble : done;
}

int main(int argc, char **argv)
{
    struct rfs_error err = {0};
    const char *name = argc > 1 ? argv[1] : "";
    const char *first = argc > 2 ? argv[2] : "";
    const struct rfs_command *command = find(name);

    rfs_limits_raise_files();
    if (rfs_limits_raise_stack(&err) < 0)
        return rfs_tool_failed(&err);
    if (command)
        return asks_for_help(argv + 2) ? help(name) : run(command, argc - 1, argv + 1);
    if (is_help(name) || (strcmp(name, "help") == 0 &&
                          (argc == 2 || find(first) || strcmp(first, HELP_OPTIONS) == 0)))
        return help(first);
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 || strcmp(name, "version") == 0) {
        printf("reshard %s\n%s\n", reshard_version(), reshard_features());
        return finish_output();
    }
    if (*name == '\0')
        rfs_fail_usage(&err, "reshard suggest SRC, or reshard --help", "no command given");
    else
        refuse(strcmp(name, "help") == 0 ? first : name, &err);
    return rfs_tool_failed(&err);
}
