/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshard info: what a file or a tree holds, from headers alone.
 *
 * What PATH is: a folder with rank_N folders is a tree; another folder is one rank's; a file whose name
 * ends in .json, or whose first byte is 08 (ParallelStrategyMap.current_stage, which is required and
 * comes first) is a strategy; any other file is a checkpoint. A folder with a map of its safetensors files is
 * a tree of one rank.
 */
#include "tool/info/info.h"

#include "base/cleanup.h"
#include "source/scan.h"
#include "tool/common/args.h"
#include "tool/common/command.h"
#include "tool/common/tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static int stat_failed(const char *path, struct rfs_error *err)
{
    return rfs_fail(err, -errno, RFS_IN(path), "a checkpoint, a folder of one, or a strategy",
                    "cannot open: %s", strerror(errno));
}

/* 1 a strategy, 0 not, or -errno with *err filled. */
static int is_strategy(const char *path, struct rfs_error *err)
{
    const size_t length = strlen(path);
    if (length >= 5 && strcmp(path + length - 5, ".json") == 0)
        return 1;
    if (rfs_info_is_safetensors(path))
        return 0;
    RFS_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return stat_failed(path, err);
    unsigned char first = 0;
    ssize_t n;
    do
        n = read(fd, &first, 1);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return rfs_fail(err, -errno, RFS_IN(path), NULL, "cannot read: %s", strerror(errno));
    return n == 1 && first == 0x08;
}

/* A file that says which safetensors file of its folder has which parameter. */
static bool is_weight_map(const char *name)
{
    static const char ending[] = ".safetensors.index.json";
    const size_t n = strlen(name);
    return strcmp(name, "param_name_map.json") == 0 ||
           (n >= sizeof ending - 1 && strcmp(name + n - (sizeof ending - 1), ending) == 0);
}

/*
 * Whether a folder holds rank folders or a weight map; if not, *file is the checkpoint that counts in it, as for a rank,
 * malloc'ed. 1, 0 or -errno with *err filled.
 */
static int look_into(const char *path, char **file, struct rfs_error *err)
{
    DIR *dir = opendir(path);
    bool ranks = false;
    if (dir == NULL)
        return stat_failed(path, err);
    for (struct dirent *entry; !ranks && (entry = readdir(dir)) != NULL;)
        ranks = rfs_scan_is_rank(entry->d_name) || is_weight_map(entry->d_name);
    closedir(dir);
    if (ranks)
        return 1;
    RFS_FREE char *name = NULL;
    const int rc = rfs_scan_folder(path, &name, err);
    if (rc != 0)
        return rc;
    if (name == NULL)
        return rfs_fail(err, -ENOENT, RFS_IN(path), "a folder with rank_N folders or .ckpt files",
                        "holds no checkpoint");
    if (asprintf(file, "%s/%s", path, name) < 0) {
        *file = NULL;
        return rfs_fail_memory(err);
    }
    return 0;
}

static int show(const char *path, struct rfs_report *report, struct rfs_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return stat_failed(path, err);
    if (S_ISDIR(st.st_mode)) {
        RFS_FREE char *file = NULL;
        int rc = look_into(path, &file, err);
        if (rc < 0)
            return rc;
        if (rc == 1)
            return rfs_info_tree(path, report, err);
        rc = is_strategy(file, err);
        if (rc == 1)
            rc = rfs_fail(err, -EINVAL, RFS_IN(path), "one of its files, or a folder beside them",
                          "holds strategies, not checkpoints");
        return rc < 0 ? rc : rfs_info_file(file, report, err);
    }
    if (!S_ISREG(st.st_mode))
        return rfs_fail(err, -EINVAL, RFS_IN(path), "a checkpoint, a folder of one, or a strategy",
                        "neither a file nor a folder");
    const int rc = is_strategy(path, err);
    if (rc < 0)
        return rc;
    return rc == 1 ? rfs_info_strategy(path, report, err) : rfs_info_file(path, report, err);
}

static void print_json(const struct rfs_report *report)
{
    fputs("{\"kind\":", stdout);
    rfs_json_text(stdout, report->kind);
    fputs(",\"path\":", stdout);
    rfs_json_text(stdout, report->path);
    fputs(",\"rows\":", stdout);
    rfs_table_print_json(&report->table, stdout);
    fputs("}\n", stdout);
}

static int parse(int argc, char **argv, const char **path, bool *json, struct rfs_error *err)
{
    static const struct option names[] = {{"json", no_argument, NULL, RFS_ARGS_LONG},
                                          {NULL, 0, NULL, 0}};
    struct rfs_args args = {.argc = argc, .argv = argv, .names = names};

    for (int option; (option = rfs_args_next(&args, err)) != RFS_ARGS_END;) {
        if (option < 0)
            return option;
        if (option != RFS_ARGS_PLACE)
            *json = true;
        else if (*path)
            return rfs_fail_usage(err, "one PATH", "'%s' is a second path", args.value);
        else
            *path = args.value;
    }
    return *path ? 0 : rfs_fail_usage(err, "reshard info PATH", "info takes one path");
}

static int run(int argc, char **argv)
{
    struct rfs_error err = {0};
    const char *path = NULL;
    bool json = false;
    int rc = parse(argc, argv, &path, &json, &err);

    struct rfs_report report = {0};
    if (rc == 0)
        rc = show(path, &report, &err);
    if (rc == 0 && report.table.failed)
        rc = rfs_fail_memory(&err);
    if (rc == 0 && json) {
        print_json(&report);
    } else if (rc == 0) {
        rfs_table_print(&report.table, stdout);
        printf("%s%s\n", report.table.cells.n > 0 ? "\n" : "", report.summary);
    }
    rfs_table_free(&report.table);
    free(report.path);
    return rc == 0 ? rfs_tool_done() : rfs_tool_failed(&err);
}

const struct rfs_command rfs_command_info = {
    .name = "info",
    .usage = "reshard info [--json] PATH\n",
    .summary = "shows what a checkpoint, rank folder, source tree or strategy holds",
    .options = "  --json             for scripts\n",
    .run = run,
};
