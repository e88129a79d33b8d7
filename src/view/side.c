/* SPDX-License-Identifier: Apache-2.0 */
#include "view/side.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 2200 /* a message, and the name before it */

static void say(struct rfs_side_save *save, enum reshard_level level, const char *line)
{
    char text[LINE_BYTES + sizeof save->name + 2];

    snprintf(text, sizeof text, "%s: %s", save->name, line);
    if (save->config.log)
        save->config.log(save->config.log_ctx, level, text);
}

static void log_save(void *ctx, enum reshard_level level, const char *line)
{
    say(ctx, level, line);
}

/* Whether another save could be opened all the same. */
static bool is_of_one_save(const struct rfs_error *err)
{
    return !err->usage && err->code != -ENOMEM && err->code != -EMFILE && err->code != -ENFILE;
}

/* Opens the view of a save in the next place, which stays free when that fails. */
static int open_save(struct reshard_view *view, const char *source, const char *options,
                     const struct rfs_save *save, uint64_t cache, struct rfs_error *err)
{
    struct rfs_side *side = view->side;
    struct rfs_side_save *place = &side->data[side->n];
    const reshard_config config = {
        .struct_size = sizeof config, .options = options, .log = log_save, .log_ctx = place};
    const struct rfs_view_part part = {
        .above = view,
        .base = (uint64_t)(side->n + 1) << RFS_SIDE_SHIFT,
        .save = *save,
        .cache = cache,
    };

    *place = (struct rfs_side_save){.config = view->log_config};
    snprintf(place->name, sizeof place->name, "%" PRId64 "_%" PRId64, save->epoch, save->step);
    const int rc = rfs_view_open(source, &config, &part, false, &place->view, err);
    if (rc == 0)
        side->n++;
    return rc;
}

static int open_saves(struct reshard_view *view, const char *source, const char *options,
                      const struct rfs_saves *saves, struct rfs_error *err)
{
    struct rfs_side *side = view->side;
    struct rfs_error first = {0};

    side->data = calloc(saves->n, sizeof *side->data);
    if (!side->data)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < saves->n; i++) {
        struct rfs_error failure = {0};
        char line[LINE_BYTES];
        const int rc = open_save(view, source, options, &saves->data[i],
                                 view->options.cache / saves->n, &failure);
        if (rc == 0)
            continue;
        if (!is_of_one_save(&failure) || view->options.strict) {
            *err = failure;
            return rc;
        }
        if (first.code == 0)
            first = failure;
        snprintf(line, sizeof line, "left out: %s", failure.text);
        say(&side->data[side->n], RESHARD_LOG_WARNING, line);
    }
    if (side->n > 0)
        return 0;
    *err = first;
    return first.code;
}

static int list_saves(struct reshard_view *view, const char *path, struct rfs_saves *saves,
                      struct rfs_error *err)
{
    const struct rfs_source_spec spec = rfs_view_spec(view, path);
    const int rc = rfs_scan_saves(&spec, saves, err);

    if (rc == 0 && saves->n > RFS_SIDE_MOST)
        return rfs_fail(err, -EINVAL, RFS_IN(path), "those of one epoch, by epoch=",
                        "there are %zu saves, and %d can be shown side by side", saves->n,
                        RFS_SIDE_MOST);
    return rc;
}

int rfs_side_open(struct reshard_view *view, const char *source, const char *options,
                  struct rfs_error *err)
{
    RFS_FREE char *path = NULL;
    struct rfs_saves saves = {0};

    view->side = calloc(1, sizeof *view->side);
    if (!view->side || rfs_fds_init(&view->side->fds, rfs_limits_files(RFS_MAX_OPEN)))
        return rfs_fail_memory(err);
    view->side->has_fds = true;
    int rc = rfs_path_resolve(source, &path, err);
    if (rc == 0)
        rc = list_saves(view, path, &saves, err);
    if (rc == 0)
        rc = open_saves(view, path, options, &saves, err);
    free(saves.data);
    if (rc)
        return rc;
    rfs_view_take_folder(view, path);
    return 0;
}

void rfs_side_close(struct reshard_view *view)
{
    struct rfs_side *side = view->side;

    if (!side)
        return;
    for (size_t i = 0; i < side->n; i++)
        reshard_close(side->data[i].view);
    free(side->data);
    if (side->has_fds)
        rfs_fds_destroy(&side->fds);
    free(side);
    view->side = NULL;
}

int rfs_side_lookup(const struct reshard_view *view, const char *name, uint64_t *id)
{
    for (size_t i = 0; i < view->side->n; i++)
        if (strcmp(view->side->data[i].name, name) == 0) {
            *id = view->side->data[i].view->base + RESHARD_ROOT;
            return 0;
        }
    return -ENOENT;
}

bool rfs_side_list(const struct reshard_view *view, uint64_t position, reshard_dirent *full)
{
    if (position >= view->side->n)
        return false;
    full->id = view->side->data[position].view->base + RESHARD_ROOT;
    full->is_dir = true;
    full->name = view->side->data[position].name;
    return true;
}
