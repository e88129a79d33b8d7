/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/args.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/options.h"
#include "base/suggest.h"
#include "base/text.h"
#include "tool/common/show.h"
#include "tool/common/tool.h"

#include <assert.h>
#include <getopt.h>
#include <math.h>

/* ---- lists of ranks -------------------------------------------------------------------------- */

void rfs_ranks_free(struct rfs_ranks *ranks)
{
    free(ranks->data);
    *ranks = (struct rfs_ranks){0};
}

int rfs_ranks_check(const struct rfs_ranks *ranks, uint32_t n, const char *before,
                    struct rfs_error *err)
{
    char remedy[32];

    snprintf(remedy, sizeof remedy, n > 1 ? "ranks 0 to %u" : "rank %u", n > 1 ? n - 1 : 0);
    for (size_t i = 0; i < ranks->n; i++)
        if (ranks->data[i].last >= n)
            return rfs_fail_usage(err, remedy, "%sthere is no rank %u of %u", before,
                                  ranks->data[i].last, n);
    return 0;
}

/* Parses "N" or "N-M". */
static bool parse_range(char *text, struct rfs_ranks_range *out)
{
    char *dash = strchr(text, '-');
    uint64_t first = 0;
    uint64_t last = 0;

    if (dash)
        *dash = '\0';
    if (!rfs_tool_number(text, false, 0, UINT32_MAX - 1, &first))
        return false;
    last = first;
    if (dash && !rfs_tool_number(dash + 1, false, first, UINT32_MAX - 1, &last))
        return false;
    *out = (struct rfs_ranks_range){(uint32_t)first, (uint32_t)last};
    return true;
}

int rfs_ranks_parse(const char *text, struct rfs_ranks *out)
{
    RFS_FREE char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    for (char *part = copy, *next; part; part = next) {
        struct rfs_ranks_range range;

        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        if (!parse_range(part, &range))
            return -EINVAL;
        if (!RFS_PUSH(out, range))
            return -ENOMEM;
    }
    return 0;
}

bool rfs_ranks_has(const struct rfs_ranks *ranks, uint32_t rank)
{
    bool has = ranks->n == 0;

    for (size_t i = 0; !has && i < ranks->n; i++)
        has = rank >= ranks->data[i].first && rank <= ranks->data[i].last;
    return has;
}

char *rfs_ranks_text(const uint32_t *ranks, size_t n)
{
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    rfs_text_ranks(out, ranks, n);
    return rfs_printed_end(&shown);
}

/* ---- patterns of names ----------------------------------------------------------------------- */

bool rfs_globs_match(const struct rfs_globs *globs, const char *name)
{
    for (size_t i = 0; i < globs->n; i++)
        if (rfs_glob_match(globs->data[i], name))
            return true;
    return globs->n == 0;
}

bool rfs_globs_take(struct rfs_globs *globs, const char *name)
{
    if (globs->matched || globs->n == 0)
        return rfs_globs_match(globs, name);
    globs->matched = rfs_globs_match(globs, name);
    for (size_t i = 0; !globs->matched && i < globs->n; i++) {
        const unsigned edits = rfs_suggest_pattern_distance(globs->data[i], name);
        if (*globs->nearest && edits >= globs->edits)
            continue;
        globs->edits = edits;
        rfs_text_printable(globs->nearest, sizeof globs->nearest, name);
    }
    return globs->matched;
}

int rfs_globs_check(const struct rfs_globs *globs, struct rfs_error *err)
{
    char remedy[sizeof globs->nearest + 16];

    if (globs->n == 0 || globs->matched)
        return 0;
    snprintf(remedy, sizeof remedy, "--name '%s'", globs->nearest);
    rfs_fail_usage(err, *globs->nearest ? remedy : "a checkpoint with tensors",
                   "no name is like '%s'%s", globs->data[0],
                   globs->n > 1 ? ", nor like those of the other options --name" : "");
    return -ENOENT;
}

/* ---- values ---------------------------------------------------------------------------------- */

enum { ROWS = 32, OPERAND = 1, FIRST_ROW = 256 /* above all letters */ };

static bool is_end(const struct rfs_argument *row)
{
    return row->as == 0;
}

static bool is_option(const struct rfs_argument *row)
{
    return row->letter || row->name;
}

int rfs_args_refuse(const struct rfs_given *given, const char *remedy, struct rfs_error *err)
{
    const char *end = strchrnul(given->name, '=');

    return rfs_fail_usage(err, remedy, "%.*s cannot be '%s'", (int)(end - given->name), given->name,
                          given->value ? given->value : "");
}

static int take_number(const struct rfs_given *given, void *to, struct rfs_error *err)
{
    const struct rfs_argument *row = given->row;
    uint64_t number;

    if (!rfs_tool_number(given->value, row->as == RFS_AS_BYTES, row->least, row->most, &number))
        return rfs_args_refuse(given, row->remedy, err);
    assert(row->size == sizeof(uint64_t) || row->size == sizeof(uint32_t));
    if (row->size == sizeof(uint64_t))
        *(uint64_t *)to = number;
    else
        *(uint32_t *)to = (uint32_t)number;
    return 0;
}

static int take_real(const struct rfs_given *given, double *to, struct rfs_error *err)
{
    char *end;

    *to = strtod(given->value, &end);
    return end > given->value && *end == '\0' && *to >= 0 && isfinite(*to)
               ? 0
               : rfs_args_refuse(given, "a number from 0 on, such as 1e-5", err);
}

static int take_setting(const struct rfs_given *given, struct rfs_settings *to,
                        struct rfs_error *err)
{
    const char *key = given->row->key;
    const int rc = key ? rfs_settings_add(to, key, given->value, NULL)
                       : rfs_settings_add_text(to, given->value);

    return rc ? rfs_fail_memory(err) : 0;
}

static int take_ranks(const struct rfs_given *given, struct rfs_ranks *to, struct rfs_error *err)
{
    const int rc = rfs_ranks_parse(given->value, to);

    return rc == -ENOMEM ? rfs_fail_memory(err)
           : rc          ? rfs_args_refuse(given, given->row->remedy, err)
                         : 0;
}

static int take_word(const struct rfs_given *given, int *to, struct rfs_error *err)
{
    for (int i = 0; given->row->words[i]; i++)
        if (strcmp(given->value, given->row->words[i]) == 0) {
            *to = i;
            return 0;
        }
    return rfs_args_refuse(given, given->row->remedy, err);
}

static int take(const struct rfs_given *given, void *request, struct rfs_error *err)
{
    const struct rfs_argument *row = given->row;
    void *to = (char *)request + row->at;

    switch (row->as) {
    case RFS_AS_FLAG:
        *(bool *)to = true;
        return 0;
    case RFS_AS_CHOICE:
        *(int *)to = row->number;
        return 0;
    case RFS_AS_TEXT:
        *(const char **)to = given->value;
        return 0;
    case RFS_AS_TEXTS: {
        RFS_VEC(const char *) *texts = to;
        return RFS_PUSH(texts, given->value) ? 0 : rfs_fail_memory(err);
    }
    case RFS_AS_NUMBER:
    case RFS_AS_BYTES:
    case RFS_AS_THREADS:
        return take_number(given, to, err);
    case RFS_AS_REAL:
        return take_real(given, to, err);
    case RFS_AS_RANKS:
        return take_ranks(given, to, err);
    case RFS_AS_WORD:
        return take_word(given, to, err);
    case RFS_AS_VIEW:
        return take_setting(given, to, err);
    default:
        return row->take(given, request, err);
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

/* The rows as getopt wants them. */
struct reading {
    const struct rfs_argument *rows, *operand; /* the operand that is to be filled next */
    unsigned filled;                           /* operands that are filled */
    const char *values[ROWS];                  /* the rows' values so far */
    int argc;
    char **argv;
    char letters[2 * ROWS + 3];
    struct option names[ROWS + 1];
};

static void begin(struct reading *reading, const struct rfs_argument *rows)
{
    char *letter = stpcpy(reading->letters, "-:");
    struct option *name = reading->names;

    reading->rows = rows;
    for (int i = 0; !is_end(&rows[i]); i++) {
        assert(i < ROWS);
        if (!is_option(&rows[i]) && !reading->operand)
            reading->operand = &rows[i];
        if (rows[i].letter)
            *letter++ = rows[i].letter;
        if (rows[i].letter && rows[i].value)
            *letter++ = ':';
        if (rows[i].name)
            *name++ = (struct option){rows[i].name, rows[i].value ? required_argument : no_argument,
                                      NULL, FIRST_ROW + i};
    }
    *letter = '\0';
    opterr = 0;
    optind = 0; /* glibc's: begin anew, and read the first characters of the letters again */
}

/* Returns whether the command takes options of a view, by -o. */
static bool takes_options(const struct reading *reading)
{
    return strchr(reading->letters, 'o') != NULL;
}

static int take_operand(struct reading *reading, const char *value, void *request,
                        struct rfs_error *err)
{
    const struct rfs_argument *row = reading->operand;
    char remedy[512];

    if (is_end(row) || is_option(row)) {
        RFS_FREE char *typed = takes_options(reading) ? rfs_option_typed(value) : NULL;
        return rfs_fail_usage(
            err,
            typed ? typed
            : rfs_suggest_quotes(reading->argc, reading->argv, remedy, sizeof remedy)
                ? remedy
                : row[-1].remedy,
            row[-1].is_folder      ? "'%s' is a second folder"
            : reading->filled == 1 ? "'%s' is a second path"
                                   : "'%s' is a third path",
            value);
    }
    reading->operand += row->as == RFS_AS_TEXT;
    reading->filled++;
    return take(&(struct rfs_given){row, row->value, value}, request, err);
}

/* Returns whether an option has one value, so that another one is a mistake. */
static bool is_single(const struct rfs_argument *row)
{
    return row->as == RFS_AS_TEXT || row->as == RFS_AS_WORD ||
           (row->as >= RFS_AS_NUMBER && row->as <= RFS_AS_REAL);
}

static int check_twice(struct reading *reading, const struct rfs_given *given,
                       struct rfs_error *err)
{
    const char **before = &reading->values[given->row - reading->rows];
    const int name = (int)(strchrnul(given->name, '=') - given->name);

    if (is_single(given->row) && *before && strcmp(*before, given->value) != 0)
        return rfs_fail_usage(err, "one of them", "%.*s is given twice, as '%s' and as '%s'", name,
                              given->name, *before, given->value);
    *before = given->value;
    return 0;
}

static int take_option(struct reading *reading, int option, const char *argument, void *request,
                       struct rfs_error *err)
{
    char letter[3] = {'-', (char)option};
    struct rfs_given given = {.row = reading->rows, .name = letter, .value = optarg};

    if (option >= FIRST_ROW) {
        given.row = &reading->rows[option - FIRST_ROW];
        given.name = argument;
    } else {
        while (given.row->letter != option)
            given.row++;
    }
    return check_twice(reading, &given, err) ?: take(&given, request, err);
}

/* Refuses an argument; the remedy is "reshard COMMAND --help", or the option of a view. */
static int refuse(const struct reading *reading, const char *what, const char *argument,
                  struct rfs_error *err)
{
    RFS_FREE char *typed = takes_options(reading) && strncmp(argument, "--", 2) == 0
                               ? rfs_option_typed(argument)
                               : NULL;
    char remedy[64];

    snprintf(remedy, sizeof remedy, "reshard %s --help", reading->argv[0]);
    return rfs_fail_usage(err, typed ?: remedy, "%s '%s'", what, argument);
}

int rfs_args_parse(const struct rfs_argument *rows, int argc, char **argv, void *request,
                   struct rfs_error *err)
{
    struct reading reading = {.argc = argc, .argv = argv};
    int rc = 0;

    begin(&reading, rows);
    while (rc == 0) {
        const int at = optind > 0 ? optind : 1;
        const int option = getopt_long(argc, argv, reading.letters, reading.names, NULL);

        if (option < 0)
            break;
        rc = option == '?'       ? refuse(&reading, "unknown option", argv[at], err)
             : option == ':'     ? refuse(&reading, "a value is missing after", argv[at], err)
             : option == OPERAND ? take_operand(&reading, optarg, request, err)
                                 : take_option(&reading, option, argv[at], request, err);
    }
    while (rc == 0 && optind < argc)
        rc = take_operand(&reading, argv[optind++], request, err);
    for (const struct rfs_argument *row = rows; !is_end(row); row++) {
        void *to = (char *)request + row->at;
        if (row->as == RFS_AS_THREADS && *(unsigned *)to == 0)
            *(unsigned *)to = rfs_tool_processors(RFS_MOST_THREADS);
        if (row->as == RFS_AS_VIEW && rc == 0)
            rc = rfs_options_check_twice(to, err);
    }
    return rc;
}

void rfs_args_free(const struct rfs_argument *rows, void *request)
{
    for (const struct rfs_argument *row = rows; !is_end(row); row++) {
        void *list = (char *)request + row->at;
        if (row->as == RFS_AS_VIEW)
            rfs_settings_free(list);
        else if (row->as == RFS_AS_RANKS)
            rfs_ranks_free(list);
        else if (row->as == RFS_AS_TEXTS) {
            RFS_VEC(const char *) *texts = list;
            free(texts->data);
            texts->data = NULL;
        }
    }
}

/* ---- help ------------------------------------------------------------------------------------ */

enum { HELP_COLUMN = 21 };

/* Prints "-j, --threads N"; returns the columns it takes. */
static size_t put_head(const struct rfs_argument *row, FILE *out)
{
    char text[128];

    snprintf(text, sizeof text, "%.*s%s%s%s%s%s", row->letter ? 2 : 0,
             (const char[]){'-', row->letter, '\0'}, row->letter && row->name ? ", " : "",
             row->name ? "--" : "", row->name ? row->name : "",
             row->value && is_option(row) ? " " : "", row->value ? row->value : "");
    fputs(text, out);
    return rfs_text_width(text);
}

static void put_help(const char *help, size_t column, FILE *out)
{
    fprintf(out, "%*s", (int)(column + 2 < HELP_COLUMN ? HELP_COLUMN - column : 2), "");
    for (const char *line = help, *end; *line; line = *end ? end + 1 : end) {
        end = strchrnul(line, '\n');
        fprintf(out, "%*s%.*s\n", line > help ? HELP_COLUMN : 0, "", (int)(end - line), line);
    }
}

void rfs_args_help(const struct rfs_argument *rows, FILE *out)
{
    size_t column = 0;

    for (const struct rfs_argument *row = rows; !is_end(row); row++) {
        if (!is_option(row) && !row->help)
            continue;
        fputs(column == 0 ? "  " : ", ", out);
        column += 2 + put_head(row, out);
        if (!row->help)
            continue;
        put_help(row->help, column, out);
        column = 0;
    }
}
