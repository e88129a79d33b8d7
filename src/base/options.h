/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that there are, of views and of mounts: a table with a row for each (options.c), and
 * the struct that holds their values. All that concerns options in general is derived from the
 * table: how values are read and written, the text of --help, the options that do not apply to a
 * view, those that belong to the keys of data kept on disk. The completions read --help; tests
 * compare the table with the manual page and the README.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"

/* ---- values ---------------------------------------------------------------------------------- */

#define RFS_PREFIX "checkpoint_" /* of the names of files, unless another is given */

#define RFS_NO_SIZE UINT64_MAX
#define RFS_ANY_NUMBER INT64_C(-1)

/* Of words, those of the table in the same order. */
enum rfs_format { RFS_FORMAT_CKPT, RFS_FORMAT_SAFETENSORS, RFS_FORMAT_TORCH, RFS_FORMAT_COUNT };

enum rfs_shown {
    RFS_SHOW_RANKS,
    RFS_SHOW_HUGGINGFACE,
    RFS_SHOW_UNIFIED,
    RFS_SHOW_DCP,
    RFS_SHOW_MINDFORMERS
};

enum rfs_io {
    RFS_IO_AUTO,   /* as it suits the readers of each kind of file */
    RFS_IO_DIRECT, /* past the page cache */
    RFS_IO_CACHED, /* through the page cache */
};

/* The hidden folder .reshardfs. */
enum rfs_hidden_mode {
    RFS_HIDDEN_UNLISTED, /* found by name, not listed */
    RFS_HIDDEN_LISTED,   /* listed, too */
    RFS_HIDDEN_NOT,      /* not there, nor are extended attributes */
};

/* The rights that the server gives up: mount/sandbox.h. */
enum rfs_sandbox_mode {
    RFS_SANDBOX_AUTO, /* as far as the kernel can */
    RFS_SANDBOX_ON,   /* all of it, or no mount */
    /* system calls are logged by the kernel, not refused; files are not looked at */
    RFS_SANDBOX_LOG,
    RFS_SANDBOX_OFF,
};

/* The default of the option: builds for tests use files that the sandbox would hide. */
#ifdef SANDBOX_OFF
#define RFS_SANDBOX_DEFAULT RFS_SANDBOX_OFF
#else
#define RFS_SANDBOX_DEFAULT RFS_SANDBOX_AUTO
#endif

/* Texts are owned, and NULL when not given; words that have no default are -1 then. */
struct rfs_options {
    char *src_strategy; /* a path, a folder of them, or several with ':' between */
    char *dst_strategy;
    char *src_rules; /* instead of a strategy: rules, or the path of a file of them */
    char *dst_rules;
    uint32_t src_ranks; /* that the rules are for; 0 when not given */
    uint32_t dst_ranks;

    char *convert;         /* conversion rules: a name, or a path */
    char *hf_config;       /* a path; NULL: that of the source */
    char *convert_options; /* of the rules */

    char *rank_dir; /* catalog/scan/spec.h documents these */
    char *file;
    char *files;
    char *group_info;
    int64_t step, epoch; /* or RFS_ANY_NUMBER */
    bool all_steps;      /* step=all: each checkpoint in a folder of its own */
    char *entry;
    bool segmented;
    char *segmented_skip;
    int check;         /* 0: files with a checksum are verified */
    bool follow_links; /* out of the source, too, where others might read their targets */
    char *key_file;    /* a path */
    char *key_env;     /* the name of an environment variable */
    int key_fd;        /* -1 when not given */
    int key_mode;      /* 1 less than the enum rfs_cipher_mode that all files must have */

    int format;          /* of the outputs, an rfs_format; -1: depends on the view */
    int shown;           /* an rfs_shown: the option view */
    uint64_t file_size;  /* bytes of tensors in one file of an unsharded view; 0: by its kind */
    uint64_t chunk_size; /* bytes of one chunk of view=dcp; 0: the default */
    char *names;         /* a path */
    char *dtype;
    bool crc;
    uint32_t nshards;    /* of the parts shown of an hfai checkpoint; 0: as many as it has */
    uint64_t large_size; /* bytes; larger tensors are cut over those parts; or RFS_NO_SIZE */
    bool uneven_steps;   /* accept parts with different step counts as one save */
    bool zip_crc;        /* compute the checksums of archives that take reading */
    char *prefix;        /* never NULL */
    bool strict;
    char *endpoint; /* of objects: store/remote/settings.h */
    char *region;
    char *profile;
    bool path_style;
    bool anonymous;
    uint32_t connections, tries, timeout; /* 0 when not given */

    char *index_cache; /* a folder, or "no"; NULL: the user's */
    uint64_t cache;    /* bytes; or RFS_NO_SIZE */
    bool cache_given;  /* it is not the default of rfs_options_take */

    int io;      /* an rfs_io */
    int control; /* an rfs_hidden_mode */
    int sandbox; /* an rfs_sandbox_mode */
    uint32_t max_threads;
    bool check_first;
    bool nonempty;
    bool allow_other;
    bool allow_root;
    bool allow_decrypted; /* confirms one of those when there is a key */
    bool default_permissions;
    bool auto_unmount;
    bool noexec;
    char *fsname;  /* NULL: the source's path */
    char *subtype; /* NULL: the program's name */
    bool debug;
    int log_level; /* an rfs_level: less urgent lines are dropped */
    char *config;  /* read before the others are taken */
    bool rw;       /* it was requested; the mount refuses it */
};

/* ---- the table ------------------------------------------------------------------------------- */

enum rfs_option_kind {
    RFS_OPTION_SWITCH,     /* bool; takes no value */
    RFS_OPTION_WORD,       /* int: the number of one of the words */
    RFS_OPTION_TEXT,       /* char *, as are those up to FILE_NAME; not empty */
    RFS_OPTION_PATH,       /* of a file or a folder that is there */
    RFS_OPTION_PATHS,      /* of several with ':' between */
    RFS_OPTION_RULES,      /* a path if there is a file of that name, or else a text */
    RFS_OPTION_FOLDER,     /* a path with its links kept; "no" is none */
    RFS_OPTION_FILE_NAME,  /* the beginning of one; may be empty */
    RFS_OPTION_SIZE,       /* uint64_t, bytes */
    RFS_OPTION_COUNT,      /* uint32_t, from 1 on */
    RFS_OPTION_NUMBER,     /* int64_t, from 0 on */
    RFS_OPTION_STEP,       /* the same, or "all" */
    RFS_OPTION_DESCRIPTOR, /* int, from 0 on */
    RFS_OPTION_IGNORED,    /* added by mount(8), or of use to it alone */
};

enum {
    RFS_OPTION_OF_VIEW = 1, /* reshard_open takes it; the others are of the mount */
    RFS_OPTION_ASKS =
        2, /* makes a view of a source differ from the source, so that one is worth having */
    RFS_OPTION_OF_RANKS =
        4, /* does something where the source is in ranks, or one whole checkpoint */
    RFS_OPTION_OF_PARTS = 8, /* does something where the source is in hfai's parts */
    RFS_OPTION_INDEX =
        16, /* changes the data read from a source: belongs to the key of kept indexes */
    RFS_OPTION_CONTENT = 32,  /* changes what files hold: belongs to the key of kept sizes */
    RFS_OPTION_OF_STORE = 64, /* how object storage is reached: a matter of the machine, too */
};

struct rfs_option {
    const char *name;
    enum rfs_option_kind kind;
    size_t member; /* its offset in struct rfs_options */
    unsigned flags;
    const char *const *words; /* of a word; NULL at the end */
    const char *example;      /* a value, for messages; NULL: none */
    const char *help;         /* a line; NULL: it is not listed */
    const char *heading;      /* of --help, above the first of a group; or NULL */
    uint64_t least, most;     /* of numbers and sizes; most 0: the member's range */
};

/* By number from 0 on; NULL beyond the last. */
const struct rfs_option *rfs_option_at(size_t i);
/* NULL when there is none of that name. */
const struct rfs_option *rfs_option_find(const char *name);
static inline bool rfs_option_is_text(const struct rfs_option *option)
{
    return option->kind >= RFS_OPTION_TEXT && option->kind <= RFS_OPTION_FILE_NAME;
}
static inline bool rfs_option_is_valued(const struct rfs_option *option)
{
    return option->kind != RFS_OPTION_SWITCH && option->kind != RFS_OPTION_IGNORED;
}
/* "FILE", "N", "ckpt|safetensors|pt": the form of its value. For --help. */
const char *rfs_option_takes(const struct rfs_option *option, char *out, size_t cap);
/* The word with that number of an option that has words; NULL for a number that has none. */
const char *rfs_option_word(const char *name, int number);
static inline const char *rfs_format_name(enum rfs_format format)
{
    return rfs_option_word("format", (int)format);
}

/* ---- reading and writing values -------------------------------------------------------------- */

/* The defaults. 0 or -ENOMEM. */
int rfs_options_init(struct rfs_options *out);
void rfs_options_free(struct rfs_options *options);

/*
 * Sets an option with all of FLAGS (0: any); VALUE is NULL where none was given. Any earlier value
 * is replaced, as with mount(8). 0, -ENOMEM, or -EINVAL with *err filled as a mistake of usage.
 */
int rfs_options_set(struct rfs_options *out, unsigned flags, const char *name, const char *value,
                    struct rfs_error *err);
/*
 * After rfs_options_set has refused setting AT of a text: if it is no option, and what precedes it
 * has a text for a value, the comma between them is probably part of that, which *err then says.
 */
void rfs_options_hint_comma(const struct rfs_settings *settings, size_t at, struct rfs_error *err);
/*
 * There is no option NAME with all of FLAGS, but perhaps one that was meant. -EINVAL with *err
 * filled.
 */
int rfs_option_refuse(const char *name, unsigned flags, struct rfs_error *err);

/*
 * The value as a text that rfs_options_set takes ("" of a switch that is on), in OUT or borrowed;
 * NULL when there is nothing that it does.
 */
#define RFS_OPTION_BYTES 24
const char *rfs_options_value(const struct rfs_options *options, const struct rfs_option *option,
                              char out[RFS_OPTION_BYTES]);
/* Whether the value is another than the default. */
bool rfs_options_differs(const struct rfs_options *options, const struct rfs_option *option);
/*
 * The first option that has one of the flags WITH, none of WITHOUT, and differs from the default;
 * NULL for none.
 */
const struct rfs_option *rfs_options_first(const struct rfs_options *options, unsigned with,
                                           unsigned without);
/*
 * Those with one of FLAGS that do something, as a text (settings.h). No key is among them, only
 * where it came from.
 */
void rfs_options_write(const struct rfs_options *options, unsigned flags, FILE *out);

/* Whether a key for encrypted sources is named. */
static inline bool rfs_options_keyed(const struct rfs_options *options)
{
    return options->key_file || options->key_env || options->key_fd >= 0;
}

/* A switch in a file or a variable: 1 on, 0 off, -1 neither. */
int rfs_option_switch(const char *value);
/* Refuses VALUE of the switch NAME, which is neither on nor off. -EINVAL with *err filled. */
int rfs_option_refuse_switch(const char *name, const char *value, struct rfs_error *err);

#define RFS_OPTIONS_VARIABLE "RESHARDFS_" /* begins the name of each option's variable */
/*
 * What RFS_OPTION_OF_STORE marks, as the environment has it: programs that read a store without
 * other options find it, too. A process with more rights than its caller ignores it. 0, or -errno
 * with *err filled.
 */
int rfs_options_take_environment(struct rfs_options *out, struct rfs_error *err);

/*
 * "64", "512K", "2G", "1.5GiB" → bytes, in powers of 1,024, the same under any locale. False when
 * it is not a size, or over 2^63 - 1 bytes.
 */
bool rfs_option_size(const char *text, uint64_t *bytes);
