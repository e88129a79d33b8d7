/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any folder as a source: which of its files are the checkpoint. The input is lines:
 *
 *     step=4 epoch=1                  options, in the first line (set_option)
 *     src/rank_0/                     a folder; "src" is the source, unless it is that of path=
 *     src/rank_0/a.ckpt TEXT          a file; %0A and the like stand for bytes
 *
 * A file "map.json" is the map of files=, and "groups", a file or a folder, is group info. Whatever
 * is there, only files are taken that are there.
 */
#include "base/options.h"
#include "catalog/scan/scan.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRIES_MOST = 64 };

enum goal {
    DESCRIBED,
    LOST,
    DOUBTED,
    MAPPED,
    STANDS_IN,
    RANKS,
    PARTS,
    WHOLE,
    WEIGHT_MAP,
    SAVES,
    NAMED,
    INSIDE,
    FOREIGN,
    ASIDE,
    DROPPED
};
FUZZ_GOALS("a checkpoint that describes itself", "one with lost files",
           "one that may be of two saves", "a map of files", "a rank that stands in",
           "files of ranks", "parts of hfai", "a whole checkpoint", "files of a weight map",
           "a list of saves", "ranks in a folder below", "a checkpoint in a folder below",
           "a format that is not read", "files that are not read", "a state beside other files");

/* ---- the folder ------------------------------------------------------------------------------ */

/* Replaces %XX by bytes, in place. Returns their number. */
static size_t decode(char *text)
{
    char *out = text;

    for (const char *at = text; *at; at++) {
        unsigned byte;
        if (*at == '%' && sscanf(at + 1, "%2x", &byte) == 1 && at[1] && at[2]) {
            *out++ = (char)byte;
            at += 2;
        } else {
            *out++ = *at;
        }
    }
    return (size_t)(out - text);
}

/* Makes what a line says, below the fuzz folder, unless its name is taken. */
static void make_entry(char *line)
{
    char path[PATH_MAX];
    char *content = strchr(line, ' ');

    if (content)
        *content++ = '\0';
    if (line[0] == '\0' || line[0] == '/' || strstr(line, ".."))
        return;
    if (snprintf(path, sizeof path, "%s/%s", fuzz_folder(), line) >= (int)sizeof path)
        return;
    for (char *slash = path + strlen(fuzz_folder()) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    const size_t n = content ? decode(content) : 0;
    REQUIRE(write(fd, content, n) == (ssize_t)n && close(fd) == 0);
}

static void set_option(struct rfs_options *options, char *option)
{
    char *value = strchr(option, '=');

    value = value ? value + 1 : option + strlen(option);
    if (strncmp(option, "step=", 5) == 0)
        options->step = atoi(value) & INT_MAX;
    else if (strncmp(option, "epoch=", 6) == 0)
        options->epoch = atoi(value) & INT_MAX;
    else if (strncmp(option, "file=", 5) == 0)
        options->file = value;
    else if (strncmp(option, "rank_dir=", 9) == 0)
        options->rank_dir = value;
    else if (strcmp(option, "segmented") == 0)
        options->segmented = true;
    else if (strncmp(option, "entry=", 6) == 0)
        options->entry = value;
}

static bool is_there(const char *name, char path[PATH_MAX])
{
    REQUIRE(snprintf(path, PATH_MAX, "%s/%.*s", fuzz_folder(), PATH_MAX / 2, name) < PATH_MAX);
    return access(path, F_OK) == 0;
}

/* ---- what is found --------------------------------------------------------------------------- */

static void check_files(const struct rfs_scanned *item)
{
    for (size_t i = 0; i < item->n_files; i++) {
        REQUIRE(item->files[i][0] == '/' && access(item->files[i], F_OK) == 0);
        REQUIRE(strncmp(item->files[i], fuzz_folder(), strlen(fuzz_folder())) == 0);
    }
    if (item->stands_in && item->n_files > 0)
        fuzz_reached(STANDS_IN);
    if (item->weight_map)
        fuzz_reached(WEIGHT_MAP);
}

static void check_scan(const struct rfs_scan *scan, bool mapped)
{
    size_t present = 0;

    REQUIRE(scan->n > 0 && scan->present > 0);
    for (size_t i = 0; i < scan->n; i++) {
        REQUIRE(i == 0 || scan->data[i - 1].rank < scan->data[i].rank);
        REQUIRE(scan->data[i].rank <= RFS_MAX_RANK);
        check_files(&scan->data[i]);
        present += scan->data[i].n_files > 0;
    }
    REQUIRE(scan->present <= present);
    fuzz_reached(scan->described ? DESCRIBED
                 : mapped        ? MAPPED
                 : scan->parts   ? PARTS
                 : scan->whole   ? WHOLE
                                 : RANKS);
    if (scan->lost)
        fuzz_reached(LOST);
    if (scan->doubt)
        fuzz_reached(DOUBTED);
}

static void check_saves(const struct rfs_source_spec *spec)
{
    struct rfs_saves saves = {0};
    struct rfs_error err = {0};

    if (require_result(rfs_scan_saves(spec, &saves, &err), &err))
        for (size_t i = 0; i < saves.n; i++) {
            const struct rfs_save *save = &saves.data[i];
            REQUIRE(save->epoch >= 0 && save->step >= 0);
            REQUIRE(i == 0 || save[-1].epoch < save->epoch ||
                    (save[-1].epoch == save->epoch && save[-1].step < save->step));
            fuzz_reached(SAVES);
        }
    rfs_scan_saves_free(&saves);
}

/* What messages say of a folder that is no source. */
static void check_hints(const char *path, int rc, struct rfs_error *err)
{
    char *named = rfs_scan_named(NULL, path, RFS_ANY_NUMBER);
    struct rfs_path_list inside = {0};
    char *file = NULL;
    struct rfs_error other = {0};

    rfs_scan_inside(NULL, path, RFS_ANY_NUMBER, true, &inside);
    if (named)
        fuzz_reached(NAMED);
    if (inside.n > 0)
        fuzz_reached(INSIDE);
    if (rc < 0 && rfs_scan_foreign(NULL, path, rc, err) == -ENOTSUP)
        fuzz_reached(FOREIGN);
    if (rc < 0)
        require_refusal(err);
    rfs_scan_is_described(NULL, path);
    rfs_scan_is_of_one_rank(NULL, path);
    require_result(rfs_scan_folder(NULL, path, &file, &other), &other);
    free(named);
    rfs_path_list_free(&inside);
    free(file);
}

/* The files that are not read: none of them is one that is. */
static void check_aside(const struct rfs_scan *found)
{
    const struct rfs_aside *aside = &found->aside;
    char *text = aside->files.n > 0 ? rfs_aside_text(aside) : NULL;

    for (size_t i = 0; i < aside->files.n; i++) {
        for (size_t k = 0; k < found->data[0].n_files; k++)
            REQUIRE(strcmp(found->data[0].files[k], aside->files.data[i].path) != 0);
        REQUIRE(text && aside->files.data[i].why);
        fuzz_reached(ASIDE);
        if (aside->files.data[i].state)
            fuzz_reached(DROPPED);
    }
    free(text);
}

static void scan(struct rfs_source_spec *spec)
{
    struct rfs_scan found;
    struct rfs_error err = {0};
    const int rc = rfs_scan_open(spec, NULL, &found, &err);

    if (require_result(rc, &err))
        check_scan(&found, spec->options->files != NULL);
    if (rc == 0)
        check_aside(&found);
    rfs_scan_free(&found);
    check_hints(spec->path, rc, &err);
    check_saves(spec);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    char source[PATH_MAX], map[PATH_MAX], groups[PATH_MAX];
    char *text = fuzz_text(data, size);
    char *rest = text;
    char *options = strsep(&rest, "\n");
    struct rfs_options by = rfs_options_defaults;
    struct rfs_source_spec spec = {.path = source, .options = &by};

    fuzz_folder_clear("");
    make_entry((char[]){"src/"});
    for (unsigned i = 0; rest && i < ENTRIES_MOST; i++)
        make_entry(strsep(&rest, "\n"));
    const char *chosen = "src";
    for (char *option; (option = strsep(&options, " "));)
        if (strncmp(option, "path=", 5) == 0)
            chosen = option + 5;
        else
            set_option(&by, option);
    is_there(chosen, source);
    by.files = is_there("map.json", map) ? map : NULL;
    by.group_info = is_there("groups", groups) ? groups : NULL;
    scan(&spec);
    free(text);
}
