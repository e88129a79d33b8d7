/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of a command: a table with a row for each, from which the command line is read and
 * --help is printed. As all commands have it: options anywhere, getopt_long's forms, "--" before
 * paths that begin with '-'.
 *
 *     static const struct rfs_argument arguments[] = {
 *         RFS_ARG_OPERAND("PATH", struct request, path, "one PATH"),
 *         RFS_ARG_TEXTS("name", "GLOB", struct request, globs, "the tensors with such a name"),
 *         RFS_ARG_THREADS("threads", struct request, threads),
 *         RFS_ARG_FLAG("json", struct request, json, "for scripts"),
 *         {0},
 *     };
 */
#pragma once

#include "base/error.h"
#include "base/settings.h"
#include "base/vec.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* A list of ranks: "0-63,70". Without any range, it has every rank. */
struct rfs_ranks {
    struct rfs_ranks_range {
        uint32_t first, last;
    } * data;
    size_t n, cap;
};

/* Appends the list TEXT to *out. Returns 0, -EINVAL or -ENOMEM. Exported for tests, as the next. */
int rfs_ranks_parse(const char *text, struct rfs_ranks *out);
void rfs_ranks_free(struct rfs_ranks *ranks);
/*
 * Refuses ranks that are not among N: "BEFOREthere is no rank 9 of 4", where BEFORE names the
 * option, if that is not plain. A mistake of usage.
 */
int rfs_ranks_check(const struct rfs_ranks *ranks, uint32_t n, const char *before,
                    struct rfs_error *err);
/* Returns whether RANK is in the list. */
bool rfs_ranks_has(const struct rfs_ranks *ranks, uint32_t rank);
/* Returns N ascending ranks as the text of a list, malloc'ed and never NULL (show.h). */
char *rfs_ranks_text(const uint32_t *ranks, size_t n);

/*
 * The patterns of --name (base/glob.h). A name must match one of them; without any, all names do.
 * The list remembers whether any name matched, because patterns without a name are a mistake.
 * Zero-initialise.
 */
struct rfs_globs {
    const char **data; /* owned; the patterns are borrowed */
    size_t n, cap;
    bool matched;      /* a name that was taken; until then NEAREST counts */
    char nearest[192]; /* the name that is most like a pattern; "" if there was none */
    unsigned edits;    /* edits from NEAREST to the pattern */
};

/* Returns whether a name matches. */
bool rfs_globs_match(const struct rfs_globs *globs, const char *name);
/* Returns whether a name matches, and remembers it for rfs_globs_check. From one thread. */
bool rfs_globs_take(struct rfs_globs *globs, const char *name);
/*
 * Refuses patterns that no taken name matched: -ENOENT with *err filled as a mistake of usage; or
 * 0.
 */
int rfs_globs_check(const struct rfs_globs *globs, struct rfs_error *err);

/* ---- arguments ------------------------------------------------------------------------------- */

/* Forms of a value in the member of the command's request that the row names. */
enum rfs_argument_as {
    RFS_AS_FLAG = 1, /* bool: true; the option has no value */
    RFS_AS_CHOICE,   /* int or an enumeration: NUMBER; the option has no value */
    RFS_AS_TEXT,     /* const char *, borrowed from argv */
    RFS_AS_TEXTS,    /* { const char **data; size_t n, cap; …: appended; to be freed */
    RFS_AS_NUMBER,   /* an unsigned number from LEAST to MOST; others are refused with REMEDY */
    RFS_AS_BYTES,    /* such a number, with K, M, G or T */
    RFS_AS_THREADS,  /* unsigned, from 1 on; without it, as many as there are processors */
    RFS_AS_REAL,     /* double: a number from 0 on */
    RFS_AS_RANKS,    /* struct rfs_ranks: a list of ranks is appended; to be freed */
    RFS_AS_WORD,     /* int or an enumeration: which of WORDS; others are refused with REMEDY */
    RFS_AS_VIEW,     /* struct rfs_settings: option KEY of a view is appended; to be freed */
    RFS_AS_OWN,      /* whatever TAKE does */
};

struct rfs_given;

/*
 * A row of the table. Without a letter and a name it is no option but an operand, such as a path.
 * Operands follow each other: one of RFS_AS_TEXT takes one argument, others take all that are left.
 */
struct rfs_argument {
    char letter;
    const char *name;
    const char *value; /* the value's name in --help; NULL: the option has none */
    /* Lines with '\n' between. NULL: the option stands before the next one, in one line with it. */
    const char *help;
    enum rfs_argument_as as;
    size_t at, size;          /* RFS_TO */
    const char *key;          /* the option of RFS_AS_VIEW; NULL: the value is a list of options */
    uint64_t least, most;     /* limits of a number */
    int number;               /* the value of RFS_AS_CHOICE */
    const char *const *words; /* the words, to a NULL */
    const char *remedy;       /* remedy for a refused value; an operand's, for one too many */
    bool is_folder;           /* an operand is, for that message */
    int (*take)(const struct rfs_given *given, void *request, struct rfs_error *err);
};

#define RFS_TO(type, member) .at = offsetof(type, member), .size = sizeof(((type *)0)->member)

/* The rows of each kind. A help of NULL: see above. */
#define RFS_ROW(...)                                                                               \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define RFS_ARG_OPERAND(shown, type, member, one)                                                  \
    RFS_ROW(.value = shown, .as = RFS_AS_TEXT, RFS_TO(type, member), .remedy = one)
#define RFS_ARG_FLAG(option, type, member, text)                                                   \
    RFS_ROW(.name = option, .as = RFS_AS_FLAG, RFS_TO(type, member), .help = text)
#define RFS_ARG_TEXT(option, shown, type, member, text)                                            \
    RFS_ROW(.name = option, .value = shown, .as = RFS_AS_TEXT, RFS_TO(type, member), .help = text)
#define RFS_ARG_TEXTS(option, shown, type, member, text)                                           \
    RFS_ROW(.name = option, .value = shown, .as = RFS_AS_TEXTS, RFS_TO(type, member), .help = text)
#define RFS_ARG_CHOICE(option, type, member, value_of, text)                                       \
    RFS_ROW(.name = option, .as = RFS_AS_CHOICE, RFS_TO(type, member), .number = value_of,         \
            .help = text)
#define RFS_ARG_WORD(option, shown, list, refused, type, member, text)                             \
    RFS_ROW(.name = option, .value = shown, .as = RFS_AS_WORD, .words = list, .remedy = refused,   \
            RFS_TO(type, member), .help = text)
/* A row of an option that is a letter alone. */
#define RFS_ARG_FILE(option, type, member, text)                                                   \
    RFS_ROW(.letter = option, .value = "FILE", .as = RFS_AS_TEXT, RFS_TO(type, member),            \
            .help = text)
/* Rows of strategies or other options of a view. */
#define RFS_ARG_VIEW(option, shown, of_view, type, member, text)                                   \
    RFS_ROW(.letter = option, .value = shown, .as = RFS_AS_VIEW, .key = of_view,                   \
            RFS_TO(type, member), .help = text)
#define RFS_ARG_VIEW_NAMED(option, shown, of_view, type, member, text)                             \
    RFS_ROW(.name = option, .value = shown, .as = RFS_AS_VIEW, .key = of_view,                     \
            RFS_TO(type, member), .help = text)
/* Three rows for a view of SRC as a destination. */
#define RFS_ARG_DESTINATION(type, member, strategies, any_option)                                  \
    RFS_ARG_VIEW('s', "FILE", "src_strategy", type, member, NULL),                                 \
        RFS_ARG_VIEW('d', "FILE", "dst_strategy", type, member, strategies),                       \
        RFS_ARG_VIEW('o', "OPTION,…", NULL, type, member, any_option)
#define RFS_ARG_NUMBER(option, shown, from, to, refused, type, member, text)                       \
    RFS_ROW(.name = option, .value = shown, .as = RFS_AS_NUMBER, .least = from, .most = to,        \
            .remedy = refused, RFS_TO(type, member), .help = text)
#define RFS_ARG_BYTES(option, from, to, refused, type, member, text)                               \
    RFS_ROW(.name = option, .value = "BYTES", .as = RFS_AS_BYTES, .least = from, .most = to,       \
            .remedy = refused, RFS_TO(type, member), .help = text)
#define RFS_ARG_RANKS(option, shown, refused, type, member, text)                                  \
    RFS_ROW(.name = option, .value = shown, .as = RFS_AS_RANKS, .remedy = refused,                 \
            RFS_TO(type, member), .help = text)
#define RFS_ARG_REAL(option, shown, type, member, text)                                            \
    RFS_ROW(.name = option, .value = shown, .as = RFS_AS_REAL, RFS_TO(type, member), .help = text)
#define RFS_ARG_OWN(option, shown, by, text)                                                       \
    RFS_ROW(.name = option, .value = shown, .as = RFS_AS_OWN, .take = by, .help = text)
#define RFS_MOST_THREADS 256
#define RFS_ARG_THREADS(option, type, member)                                                      \
    RFS_ROW(.letter = 'j', .name = option, .value = "N", .as = RFS_AS_THREADS, .least = 1,         \
            .most = RFS_MOST_THREADS, .remedy = "-j 1 to -j 256", RFS_TO(type, member),            \
            .help = "threads (as many as there are processors)")

/* An argument as it was given. */
struct rfs_given {
    const struct rfs_argument *row;
    const char *name;  /* "-s" or "--json" */
    const char *value; /* NULL: none */
};

/*
 * Reads the command line of the command ARGV[0] into REQUEST, which has its defaults. Returns 0,
 * -EINVAL or -ENOMEM with *err filled; REQUEST is to be freed in any case. One at a time in a
 * process, because getopt's state is global.
 */
int rfs_args_parse(const struct rfs_argument *rows, int argc, char **argv, void *request,
                   struct rfs_error *err);
/* Frees the lists that the rows have filled. */
void rfs_args_free(const struct rfs_argument *rows, void *request);

/* Refuses the value of an option: -EINVAL. */
int rfs_args_refuse(const struct rfs_given *given, const char *remedy, struct rfs_error *err);

/* Prints the options for --help, some lines each. */
void rfs_args_help(const struct rfs_argument *rows, FILE *out);
