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

/* The words of option format=, NULL at the end; formats/words.c makes them of the formats. */
extern const char *const rfs_format_words[];

/* The words of the table's options, in the same order. */
enum rfs_shown {
    RFS_SHOW_RANKS,
    RFS_SHOW_HUGGINGFACE,
    RFS_SHOW_UNIFIED,
    RFS_SHOW_DCP,
    RFS_SHOW_MINDFORMERS,
    RFS_SHOW_HYPER_PARALLEL,
    RFS_SHOW_PEFT,
    RFS_SHOW_GGUF
};

/* The form of experts in HuggingFace's names. */
enum rfs_experts {
    RFS_EXPERTS_EACH,  /* a tensor for each, as models are published */
    RFS_EXPERTS_FUSED, /* one tensor for all of a layer, as transformers 5 keeps them */
};

/* The order of tensors in safetensors files. */
enum rfs_tensor_order {
    RFS_AS_PROGRAMS, /* as MindSpore and HuggingFace's programs write them */
    RFS_BY_LAYERS,
};

enum rfs_io_mode {
    RFS_IO_AUTO,   /* as it suits the readers of each kind of file */
    RFS_IO_DIRECT, /* past the page cache */
    RFS_IO_CACHED, /* through the page cache */
};

/* The hidden folder .reshardfs. */
enum rfs_control_mode {
    RFS_CONTROL_UNLISTED, /* found by name, not listed */
    RFS_CONTROL_LISTED,   /* listed, too */
    RFS_CONTROL_NOT,      /* not there, nor are extended attributes */
};

/* What the server gives up of its rights: mount/sandbox.h. */
enum rfs_sandbox_mode {
    RFS_SANDBOX_AUTO, /* as far as the kernel can */
    RFS_SANDBOX_ON,   /* all of it, or no mount */
    /* system calls are logged by the kernel, not refused; files are not looked at */
    RFS_SANDBOX_LOG,
    RFS_SANDBOX_OFF,
};

/*
 * The default of the option. Builds for tests make system calls and open files that the sandbox
 * refuses: SANDBOX_OFF says so, or the compiler, however it came to its sanitizer.
 */
#ifdef __has_feature
#define RFS_HAS_SANITIZER(name) __has_feature(name##_sanitizer)
#else
#define RFS_HAS_SANITIZER(name) 0
#endif
#if defined(SANDBOX_OFF) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||       \
    RFS_HAS_SANITIZER(address) || RFS_HAS_SANITIZER(thread) || RFS_HAS_SANITIZER(memory)
#define RFS_SANDBOX_DEFAULT RFS_SANDBOX_OFF
#else
#define RFS_SANDBOX_DEFAULT RFS_SANDBOX_AUTO
#endif

/* Texts are owned, and NULL when not given; words that have no default are -1 then. */
struct rfs_options {
    char *src_strategy; /* a path, a folder of them, or several with ':' between */
    char *dst_strategy;
    char *src_rules; /* rules instead of a strategy, or the path of a file of them */
    char *dst_rules;
    uint32_t src_ranks; /* number of ranks that the rules are for; 0 when not given */
    uint32_t dst_ranks;

    char *convert;         /* conversion rules: a name, or a path */
    bool dequantize;       /* quantized weights are shown as plain tensors */
    char *hf_config;       /* a path; NULL: the config of the source */
    char *convert_options; /* options of the rules */
    int experts;           /* an rfs_experts; or -1: as the rules or the source have them */

    char *rank_dir;       /* the names of rank folders, with one %d; NULL: rank_%d */
    char *file;           /* glob of names of files; NULL: MindSpore's choice */
    char *files;          /* path of a JSON map from rank to file, instead of folders */
    char *origins;        /* "A:B": paths and URLs where that map may lead beside its own folder */
    char *group_info;     /* path of a group info file, or a folder of them */
    int64_t step, epoch;  /* numbers of the checkpoint to take, or RFS_ANY_NUMBER */
    bool all_steps;       /* step=all: each checkpoint in a folder of its own */
    char *entry;          /* where in a file of torch.save the state is; NULL: it is all of it */
    bool segmented;       /* all checkpoints of a folder make one */
    char *segmented_skip; /* "a:b": parameters that begin so are left out */
    int check; /* crc, 0: files with a checksum are verified before their first use; or -1 */
    bool follow_links; /* follow links out of the source, where others might read their targets */
    char *key_file;    /* a path */
    char *key_env;     /* the name of an environment variable */
    int key_fd;        /* -1 when not given */
    int key_mode;      /* the enum rfs_cipher_mode that all files must have, less 1; or -1 */

    int format;          /* an rfs_format (formats.h), of the outputs; -1: depends on the view */
    int shown;           /* an rfs_shown; the option view= */
    int order;           /* an rfs_tensor_order */
    uint64_t file_size;  /* bytes of tensors in one file of an unsharded view; 0: by its kind */
    uint64_t chunk_size; /* bytes of one chunk of view=dcp; 0: the default */
    char *adapter;       /* the name of PEFT's that view=peft shows, of several; or NULL */
    uint32_t lora_alpha; /* of view=peft; 0: that of the source */
    char *names;         /* a path */
    char *drop_source;   /* patterns of names of the source that rules do not see */
    char *only, *drop;   /* patterns of names that are shown, and of those that are not */
    char *dtype;
    bool crc;
    uint32_t nshards;    /* number of hfai's parts to show; 0: as many as there are */
    uint64_t large_size; /* bytes; larger tensors are cut over those parts; or RFS_NO_SIZE */
    bool uneven_steps;   /* accept parts with different step counts as one save */
    bool zip_crc;        /* compute the checksums of archives that take reading */
    char *prefix;        /* never NULL */
    bool strict;
    bool trust_strategy; /* go on though ranks contradict the strategy of the source */
    char *endpoint;      /* the store of objects: base/store.h */
    char *region;
    char *profile;
    bool path_style;
    bool anonymous;
    uint32_t connections, tries, timeout; /* timeout in seconds; 0 when not given */

    char *index_cache; /* a folder, or "no"; NULL: the user's */
    uint64_t cache;    /* bytes; or RFS_NO_SIZE */
    bool cache_given;  /* the size is the user's, not a default */

    int io;      /* an rfs_io_mode */
    int control; /* an rfs_control_mode, of the hidden folder */
    int sandbox; /* an rfs_sandbox_mode */
    uint32_t max_threads;
    bool check_first;
    uint32_t follow; /* seconds; 0: the source is not followed */
    bool nonempty;
    bool allow_other;
    bool allow_root;
    bool allow_decrypted; /* confirms allow_other or allow_root when there is a key */
    bool default_permissions;
    bool auto_unmount;
    bool noexec;
    char *fsname;  /* source in mount(8); NULL: the source's path */
    char *subtype; /* type in mount(8); NULL: the program's name */
    bool debug;
    int log_level; /* an rfs_level: less urgent lines are dropped */
    char *config;  /* read before the others are taken */
    bool rw;       /* writing was requested; the mount refuses that */
};

/* ---- the table ------------------------------------------------------------------------------- */

enum rfs_option_kind {
    RFS_OPTION_SWITCH,     /* bool; takes no value */
    RFS_OPTION_WORD,       /* int: the number of one of the words */
    RFS_OPTION_TEXT,       /* char *, as are the kinds up to FILE_NAME; not empty */
    RFS_OPTION_PATH,       /* the path of a file or a folder that is there, or one of the words */
    RFS_OPTION_PATHS,      /* several paths with ':' between */
    RFS_OPTION_RULES,      /* a path if there is a file of that name, or else a text */
    RFS_OPTION_FOLDER,     /* a path with its links kept; "no" is none */
    RFS_OPTION_FILE_NAME,  /* the beginning of a file name; may be empty */
    RFS_OPTION_SIZE,       /* uint64_t, bytes */
    RFS_OPTION_COUNT,      /* uint32_t, from 1 on */
    RFS_OPTION_NUMBER,     /* int64_t, from 0 on */
    RFS_OPTION_STEP,       /* int64_t, from 0 on, or "all" */
    RFS_OPTION_DESCRIPTOR, /* int, from 0 on */
    RFS_OPTION_IGNORED,    /* added by mount(8), or of use to it alone */
};

/* Flags of options. */
enum {
    RFS_OPTION_OF_VIEW = 1,   /* reshard_open takes it; the others are of the mount */
    RFS_OPTION_ASKS = 2,      /* a view that differs from its source by it is worth having */
    RFS_OPTION_OF_RANKS = 4,  /* does something for a source in ranks, or one whole checkpoint */
    RFS_OPTION_OF_PARTS = 8,  /* does something for a source in hfai's parts */
    RFS_OPTION_INDEX = 16,    /* changes data read from a source: in the key of kept indexes */
    RFS_OPTION_CONTENT = 32,  /* changes what files hold: in the key of kept sizes */
    RFS_OPTION_OF_STORE = 64, /* how object storage is reached: a matter of the machine, too */
};

/* Views and formats of files for which an option is a mistake. The first that fits counts. */
struct rfs_option_limit {
    unsigned views;     /* those views, a bit 1 << RFS_SHOW_…; 0: the end of a list */
    const char *format; /* only with files of this format, by its word; NULL: any */
    const char *but;    /* not with files of this format; NULL: none */
    const char *text;   /* what is wrong; a format of the view's word, which it may have once */
    const char *remedy;
};

struct rfs_option {
    const char *name;
    enum rfs_option_kind kind;
    size_t member; /* offset of the value in struct rfs_options */
    unsigned flags;
    const char *const *words; /* that it may be, also in place of a path; NULL at the end */
    const char *example;      /* a value, for messages; NULL: none */
    const char *alone;        /* the value when it is given without one; NULL: it needs one */
    const char *help;         /* a line; NULL: it is not listed */
    const char *heading;      /* of --help, above the first of a group; or NULL */
    uint64_t least, most;     /* of numbers and sizes; most 0: the member's range */
    const struct rfs_option_limit *limits; /* a list; NULL: it fits all views */
};

/* Returns an option by its number, from 0 on; NULL beyond the last. */
const struct rfs_option *rfs_option_at(size_t i);
/* Finds an option by its name; NULL when there is none. */
const struct rfs_option *rfs_option_find(const char *name);
/*
 * Returns how an option that is given as --NAME=VALUE, --NAME or NAME=VALUE is typed: "-o
 * NAME=VALUE". Owned by the caller; NULL: it is no option.
 */
char *rfs_option_typed(const char *argument);
static inline bool rfs_option_is_text(const struct rfs_option *option)
{
    return option->kind >= RFS_OPTION_TEXT && option->kind <= RFS_OPTION_FILE_NAME;
}
/* Returns whether the value is the path of one file, and no word in its place. */
bool rfs_option_is_path(const struct rfs_option *option, const char *value);
static inline bool rfs_option_is_valued(const struct rfs_option *option)
{
    return option->kind != RFS_OPTION_SWITCH && option->kind != RFS_OPTION_IGNORED;
}
/*
 * Prints the options with all of FLAGS under their headings, a line "  name=VALUE  explanation"
 * each, which completions read.
 */
void rfs_options_help(unsigned flags, FILE *out);
/* Returns a word of option NAME by its number; NULL where there is none. */
const char *rfs_option_word(const char *name, int number);

/* ---- reading and writing values -------------------------------------------------------------- */

/* Options that nobody has set; not to be freed. */
extern const struct rfs_options rfs_options_defaults;
/* Sets the defaults. 0 or -ENOMEM. */
int rfs_options_init(struct rfs_options *out);
void rfs_options_free(struct rfs_options *options);

/*
 * Sets an option with all of FLAGS (0: any); VALUE is NULL where none was given. Any earlier value
 * is replaced, as with mount(8). 0, -ENOMEM, or -EINVAL with *err filled as a mistake of usage.
 */
int rfs_options_set(struct rfs_options *out, unsigned flags, const char *name, const char *value,
                    struct rfs_error *err);
/*
 * Improves the message after rfs_options_set has refused setting AT of a text: if it is no option,
 * and the one before has a text for a value, the comma between is probably part of that text.
 */
void rfs_options_hint_comma(const struct rfs_settings *settings, size_t at, struct rfs_error *err);
/*
 * Refuses an option that SETTINGS, all of one place, give twice with different values. 0, or
 * -EINVAL with *err filled as a mistake of usage.
 */
int rfs_options_check_twice(const struct rfs_settings *settings, struct rfs_error *err);

/*
 * Returns the value as a text that rfs_options_set takes ("" for a switch that is on), in OUT or
 * borrowed; NULL for an option that does nothing.
 */
#define RFS_OPTION_BYTES 24
const char *rfs_options_value(const struct rfs_options *options, const struct rfs_option *option,
                              char out[RFS_OPTION_BYTES]);
/* Returns whether the value is not the default. */
bool rfs_options_differs(const struct rfs_options *options, const struct rfs_option *option);
/*
 * Finds the first option that has one of the flags WITH, none of WITHOUT, and differs from the
 * default; NULL for none.
 */
const struct rfs_option *rfs_options_first(const struct rfs_options *options, unsigned with,
                                           unsigned without);
/*
 * Refuses an option that is given though the view, whose files have FORMAT by its word, does
 * nothing with it. FORMAT may be NULL until it is known. 0 or -EINVAL with *err filled as a mistake
 * of usage.
 */
int rfs_options_check_limits(const struct rfs_options *options, const char *format,
                             struct rfs_error *err);
/* Returns the word of option view=. */
const char *rfs_options_shown(const struct rfs_options *options);
/*
 * Writes the options with one of FLAGS that do something, as a text (settings.h). No key is among
 * them, only where it came from.
 */
void rfs_options_write(const struct rfs_options *options, unsigned flags, FILE *out);

/* Says whether the files of the view describe how they cut the tensors, and so need no strategy. */
static inline bool rfs_options_describes(const struct rfs_options *options)
{
    return options->shown == RFS_SHOW_DCP || options->shown == RFS_SHOW_MINDFORMERS ||
           options->shown == RFS_SHOW_HYPER_PARALLEL;
}
/* Returns whether a key for encrypted sources is named. */
static inline bool rfs_options_keyed(const struct rfs_options *options)
{
    return options->key_file || options->key_env || options->key_fd >= 0;
}

/* Reads a switch of a file or a variable: 1 on, 0 off, -1 neither. */
int rfs_option_switch(const char *value);
/* Refuses VALUE of the switch NAME, which is neither on nor off. -EINVAL with *err filled. */
int rfs_option_refuse_switch(const char *name, const char *value, struct rfs_error *err);

#define RFS_OPTIONS_VARIABLE "RESHARDFS_" /* begins the name of each option's variable */
/*
 * Takes the options that RFS_OPTION_OF_STORE marks from the environment, so that programs that read
 * a store without other options find them, too. A process with more rights than its caller ignores
 * it. 0, or -errno with *err filled.
 */
int rfs_options_take_environment(struct rfs_options *out, struct rfs_error *err);

/*
 * Reads "64", "512K", "2G" or "1.5GiB" as bytes, in powers of 1,024, under any locale. False when
 * it is not a size, or over 2^63 - 1 bytes.
 */
bool rfs_option_size(const char *text, uint64_t *bytes);
