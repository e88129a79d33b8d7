/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that are saves and have the step in their names: which of them step= means. */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

#define TRACKER "latest_checkpointed_iteration.txt"
#define DIGITS_MOST 18

#define DISTRIBUTED(name)                                                                          \
    {                                                                                              \
        .begin = (name), .digits = 1, .lacks = "'.metadata' of torch.distributed.checkpoint",      \
        .holds = &rfs_formats[RFS_ROW_DCP]                                                         \
    }

const struct rfs_step_layout rfs_step_layouts[RFS_STEP_LAYOUTS] = {
    /* MindSpore Transformers, and Megatron */
    {.begin = "iteration_",
     .digits = 8,
     .lacks = "'metadata.json' with safetensors files",
     .tracker = TRACKER},
    {.begin = "iter_",
     .digits = 7,
     .lacks = "'.metadata' of the format torch_dist",
     .tracker = TRACKER},
    {.begin = "global_step_",
     .digits = 1,
     .lacks = "'.metadata' of HyperParallel",
     .tracker = "latest_checkpoint_iteration.txt",
     .holds = &rfs_formats[RFS_ROW_HYPER_PARALLEL]},
    /* torchtitan, and others that save by torch.distributed.checkpoint */
    DISTRIBUTED("step-"),
    DISTRIBUTED("step_"),
    DISTRIBUTED("checkpoint-"),
    /* DeepSpeed */
    {.begin = "global_step",
     .digits = 1,
     .tracker = "latest",
     .tagged = true,
     .holds = &rfs_formats[RFS_ROW_ZERO]},
};

int64_t rfs_scan_step_read(const char *text)
{
    const size_t n = strspn(text, "0123456789");

    return n > 0 && n <= DIGITS_MOST && text[n] == '\0' ? strtoll(text, NULL, 10) : -1;
}

int rfs_scan_step_add(const struct rfs_source_spec *spec, const struct rfs_step_layout *layout,
                      const struct dirent *entry, struct rfs_saves *all, struct rfs_error *err)
{
    const char *name = entry->d_name;
    const size_t begin = strlen(layout->begin);
    char expected[RFS_STEP_NAME];

    all->folder = layout->begin;
    all->digits = layout->digits;
    if (strncmp(name, layout->begin, begin) != 0)
        return 0;
    const struct rfs_save save = {0, rfs_scan_step_read(name + begin)};
    rfs_scan_step_name(all, save.step, expected);
    if (save.step < 0 || strcmp(name, expected) != 0)
        return 0;
    const int is = rfs_scan_entry_is(spec, spec->path, entry, S_IFDIR, err);
    if (is <= 0)
        return is;
    if (layout->holds) {
        RFS_FREE char *path = rfs_path_join(spec->path, name);
        if (!path || !rfs_scan_has(spec->store, path, layout->holds))
            return path ? 0 : rfs_fail_memory(err);
    }
    return RFS_PUSH(all, save) ? 0 : rfs_fail_memory(err);
}

void rfs_scan_step_name(const struct rfs_saves *all, int64_t step, char out[RFS_STEP_NAME])
{
    snprintf(out, RFS_STEP_NAME, "%s%0*" PRId64, all->folder, all->digits, step);
}

int rfs_scan_step_folder(const struct rfs_source_spec *spec, const char *name, struct rfs_log *log,
                         struct rfs_scan *out, struct rfs_error *err)
{
    struct rfs_options options = *spec->options;
    struct rfs_source_spec inner = *spec;
    RFS_FREE char *path = rfs_path_join(spec->path, name);

    if (!path)
        return rfs_fail_memory(err);
    inner.path = path;
    options.step = options.epoch = RFS_ANY_NUMBER; /* they have chosen the folder */
    inner.options = &options;
    return rfs_scan_described(&inner, log, out, err);
}

int rfs_scan_step(const struct rfs_source_spec *spec, const struct rfs_saves *all, int64_t step,
                  struct rfs_log *log, struct rfs_scan *out, struct rfs_error *err)
{
    char name[RFS_STEP_NAME];

    rfs_scan_step_name(all, step, name);
    const int rc = rfs_scan_step_folder(spec, name, log, out, err);
    return rc || out->n > 0 ? rc
                            : rfs_fail(err, -ENOENT, RFS_IN(spec->path), "a save that is there",
                                       "%s has no checkpoint any more", name);
}

int rfs_scan_step_check(const struct rfs_source_spec *spec, const struct rfs_saves *all,
                        const char *what, struct rfs_error *err)
{
    const struct rfs_save asked = {0, spec->options->step};
    char last[RFS_STEP_NAME];

    if (spec->options->epoch != RFS_ANY_NUMBER && spec->options->epoch != 0)
        return rfs_fail_usage(err, "step=N", "option epoch: iterations have none");
    if (spec->options->step == RFS_ANY_NUMBER ||
        bsearch(&asked, all->data, all->n, sizeof asked, rfs_scan_saves_compare))
        return 0;
    rfs_scan_step_name(all, all->data[all->n - 1].step, last);
    return rfs_fail(err, -ENOENT, RFS_IN(spec->path), "one of those",
                    "no %s%" PRId64 " in it; there are %zu, and the last is %s", what,
                    spec->options->step, all->n, last);
}

int rfs_scan_steps_list(const struct rfs_source_spec *spec, const struct rfs_saves *all,
                        rfs_scan_step_fn *is_there, const void *ctx, struct rfs_saves *out,
                        struct rfs_error *err)
{
    out->folder = all->folder;
    out->digits = all->digits;
    for (size_t i = 0; i < all->n; i++)
        if (rfs_scan_lets(spec->options, &all->data[i]) &&
            (!is_there || is_there(ctx, all->data[i].step)) && !RFS_PUSH(out, all->data[i]))
            return rfs_fail_memory(err);
    return 0;
}

int rfs_scan_saves_may_come(const struct rfs_source_spec *spec, struct rfs_error *err)
{
    RFS_FREE char *inside = rfs_scan_inside(spec->store, spec->path, RFS_ANY_NUMBER);
    char names[RFS_STEP_LAYOUTS * RFS_STEP_NAME];
    size_t n = 0;

    if (!inside)
        return 0;
    for (size_t i = 0; i < RFS_STEP_LAYOUTS; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%sN", i > 0 ? ", " : "",
                              rfs_step_layouts[i].begin);
    return rfs_fail(err, -ENOENT, RFS_IN(spec->path), inside,
                    "option follow: it has checkpoints in folders below, and no save by a name "
                    "that is known: %s, or PREFIX-EPOCH_STEP of rank folders",
                    names);
}
