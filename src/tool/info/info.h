/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of things that `reshard info` shows, each as tables and lines. */
#pragma once

#include "base/error.h"
#include "tool/common/fit.h"
#include "tool/common/source.h"
#include "tool/common/table.h"
#include "tool/info/rows.h"

/* The command line; borrowed. */
struct rfs_info_args {
    const char *path;
    struct rfs_filter filter;
    bool json;
    bool all;                      /* the headers of every rank */
    struct rfs_tool_source source; /* the options of -o; nothing is opened */
};

struct rfs_report {
    /* "checkpoint", "encrypted", "tree", "strategy", "parts", "boxes", "group info", "rules" */
    const char *kind;
    char *path;              /* owned; the path that was read in the end */
    struct rfs_table table;  /* the first for people; "rows", or as the key says, in JSON */
    const char *key;         /* NULL: "rows" */
    struct rfs_table second; /* "rows" then; none, if it has no columns */
    char *lines;             /* for people, after the tables; owned, as the next ones */
    size_t lines_bytes;
    FILE *say;                  /* writes lines */
    struct rfs_bytes more;      /* the members of the JSON object after the first two; owned */
    struct rfs_json_write json; /* writes more, in an object */
    struct rfs_fit_findings findings;
    struct rfs_error failure; /* of a part of it: reported at the end, and the exit status */
};

enum rfs_info_kind {
    RFS_INFO_CKPT,
    RFS_INFO_SAFETENSORS,
    RFS_INFO_TORCH,
    RFS_INFO_ENCRYPTED,
    RFS_INFO_STRATEGY,
    RFS_INFO_GROUP,
    RFS_INFO_RULES,
    RFS_INFO_WEIGHT_MAP,
    RFS_INFO_MANIFEST,
    RFS_INFO_TREE,
    RFS_INFO_PARTS,
    RFS_INFO_CHUNKS,     /* a folder whose checkpoint describes itself */
    RFS_INFO_RANK,       /* a folder of checkpoints of one rank */
    RFS_INFO_STRATEGIES, /* a folder of strategies */
};

/* The kind of PATH, by its first bytes or by the names in it. 0, or -errno with *err filled. */
int rfs_info_detect(const char *path, bool keyed, enum rfs_info_kind *kind, struct rfs_error *err);

/* Each adds to a report that info.c began. 0, or -errno with *err filled. */
int rfs_info_file(struct rfs_info_args *args, const char *path, enum rfs_info_kind kind,
                  struct rfs_report *report, struct rfs_error *err);
int rfs_info_rank(struct rfs_info_args *args, struct rfs_report *report, struct rfs_error *err);
int rfs_info_tree(struct rfs_info_args *args, const char *path, struct rfs_report *report,
                  struct rfs_error *err);
int rfs_info_chunks(struct rfs_info_args *args, struct rfs_report *report, struct rfs_error *err);
int rfs_info_parts(struct rfs_info_args *args, struct rfs_report *report, struct rfs_error *err);
int rfs_info_strategy(struct rfs_info_args *args, struct rfs_report *report, struct rfs_error *err);
int rfs_info_group(struct rfs_report *report, struct rfs_error *err);
int rfs_info_rules(struct rfs_report *report, struct rfs_error *err);

/*
 * The tensors of a file of torch.save, wherever in it they are: "model.layer.weight". *others is
 * the number of other values.
 */
int rfs_info_torch(rfs_read_fn *read, void *ctx, uint64_t size, const char *path,
                   const struct rfs_filter *filter, struct rfs_rows *rows, size_t *others,
                   struct rfs_error *err);

/* Which mount PATH is in, if it is one of reshardfs: a line, and a member "mount". */
void rfs_info_mount(struct rfs_report *report, const char *path);
/* Describes the folder PATH by the manifest of an export. */
int rfs_info_manifest(struct rfs_report *report, const char *path, struct rfs_error *err);

/* Lists the files of a folder beside those that count. */
struct rfs_beside {
    uint32_t folders;                   /* looked at */
    uint32_t several, temporary, empty; /* folders that have such */
    char first_several[512];            /* an example of each, as "rank_0/a.ckpt" */
    char first_temporary[512], first_empty[512];
    uint32_t most; /* checkpoints in one folder */
};
/*
 * FOLDER, shown as NAME. A folder that cannot be listed is passed over: an earlier step has listed
 * it.
 */
void rfs_info_look_beside(const char *folder, const char *name, struct rfs_beside *beside);
/* False when out of memory. */
bool rfs_info_tell_beside(const struct rfs_beside *beside, struct rfs_fit_findings *findings);

/* "15 parameters: 13 Float32 (…), …", and the member "dtypes". */
void rfs_info_tell_types(struct rfs_report *report, const struct rfs_rows *rows);
/* How many of them the table shows, if not all. */
void rfs_info_tell_filter(struct rfs_report *report, const struct rfs_filter *filter,
                          const struct rfs_rows *rows);
