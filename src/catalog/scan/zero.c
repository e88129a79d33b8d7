/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a save of DeepSpeed, and of what ds_to_universal makes of it:
 *
 *   global_step20/             mp_rank_00_model_states.pt,
 *                              zero_pp_rank_0_mp_rank_00_optim_states.pt …
 *   global_step20_universal/   mp_rank_00_model_states.pt, and for each parameter
 *                              zero/NAME/fp32.pt, exp_avg.pt, exp_avg_sq.pt, step.pt
 */
#include "formats/zero/zero.h"
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

#define UNIVERSAL "zero"
#define REMEDY "all files of one save, as DeepSpeed wrote them"
#define REMEDY_WHOLE                                                                               \
    "DeepSpeed to load it in the same training, and save_16bit_model or transformers to save the " \
    "whole model"

/* ---- the files of a save --------------------------------------------------------------------- */

struct zero_entry {
    char *name; /* owned */
    struct rfs_zero_name as;
};

struct zero_entries {
    struct zero_entry *data;
    size_t n, cap;
    bool offloaded; /* there are tensors outside of the files */
    bool universal; /* there is a folder with those of each parameter */
    struct rfs_error *err;
};

static void free_entries(struct zero_entries *entries)
{
    for (size_t i = 0; i < entries->n; i++)
        free(entries->data[i].name);
    free(entries->data);
}

static int add_entry(void *ctx, const struct dirent *entry)
{
    struct zero_entries *entries = ctx;
    struct zero_entry added;

    entries->offloaded |= strcmp(entry->d_name, "offloaded_tensors") == 0;
    entries->universal |= strcmp(entry->d_name, UNIVERSAL) == 0;
    if (!rfs_zero_read_name(entry->d_name, &added.as))
        return 0;
    added.name = strdup(entry->d_name);
    if (added.name && RFS_PUSH(entries, added))
        // cppcheck-suppress memleak; the list has it
        return 0;
    free(added.name);
    return rfs_fail_memory(entries->err);
}

RFS_COMPARE(by_role, struct zero_entry, x, y,
            RFS_ORDER(x->as.role, y->as.role) ?: RFS_ORDER(x->as.mp, y->as.mp)
            ?: RFS_ORDER(x->as.rank, y->as.rank)
            ?: strcmp(x->name, y->name))

/*
 * Returns what a file shows of its save: experts also have layers, and pipelines tensor-parallel
 * ranks.
 */
static unsigned kind_of(const struct zero_entry *entry)
{
    return entry->as.role == RFS_ZERO_EXPERT  ? 3
           : entry->as.role == RFS_ZERO_LAYER ? 2
                                              : entry->as.mp > 0;
}

/* Refuses kinds of saves that are not read, by a file of each. */
static int check_kinds(const struct rfs_source_spec *spec, const struct zero_entries *entries,
                       struct rfs_error *err)
{
    static const char *const kinds[] = {"", " with tensor parallelism", "'s pipeline",
                                        " with experts"};
    const struct zero_entry *shows = entries->data;

    if (entries->offloaded)
        return rfs_fail(err, -ENOTSUP, RFS_IN(spec->path), REMEDY_WHOLE,
                        "this save of DeepSpeed has its optimizer in 'offloaded_tensors', which is "
                        "not read");
    for (size_t i = 1; i < entries->n; i++)
        if (kind_of(&entries->data[i]) > kind_of(shows))
            shows = &entries->data[i];
    return kind_of(shows) == 0
               ? 0
               : rfs_fail(err, -ENOTSUP, RFS_IN(spec->path), REMEDY_WHOLE,
                          "this is a save of DeepSpeed%s, as '%s' shows, which is not read",
                          kinds[kind_of(shows)], shows->name);
}

/* Checks that N files of one role have the ranks from 0 on, and are of one kind. */
static int check_ranks(const struct rfs_source_spec *spec, const struct zero_entry *first, size_t n,
                       struct rfs_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct zero_entry *entry = &first[i];
        if (entry->as.ranked != first->as.ranked || entry->as.bf16 != first->as.bf16 ||
            entry->as.rank < i)
            return rfs_fail(err, -EINVAL, RFS_IN(spec->path), "move files of another save away",
                            "'%s' and '%s' are not of one save of DeepSpeed", first->name,
                            entry->name);
        if (entry->as.rank > i)
            return rfs_fail(err, -EINVAL, RFS_IN(spec->path), REMEDY,
                            "the file of rank %zu is missing: '%s' is there", i, entry->name);
    }
    return 0;
}

static int check_files(const struct rfs_source_spec *spec, const struct zero_entries *entries,
                       struct rfs_error *err)
{
    size_t models = 0;

    const int rc = check_kinds(spec, entries, err);
    if (rc)
        return rc;
    while (models < entries->n && entries->data[models].as.role == RFS_ZERO_MODEL)
        models++;
    const size_t optimizers = entries->n - models;
    if (optimizers == 0 && entries->universal)
        return check_ranks(spec, entries->data, models, err);
    if (optimizers == 0)
        return rfs_fail(err, -ENOTSUP, RFS_IN(spec->path),
                        "the save of ZeRO stage 1, 2 or 3 that it is of; or the file "
                        "mp_rank_00_model_states.pt, with entry=module",
                        "this save of DeepSpeed has no files of the optimizer's states: it was "
                        "made without ZeRO, or files are lost");
    if (models == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path), REMEDY,
                        "this save of DeepSpeed has no file of the model's states");
    return check_ranks(spec, entries->data, models, err)
               ?: check_ranks(spec, entries->data + models, optimizers, err);
}

/* ---- the files of a universal checkpoint ----------------------------------------------------- */

/* Paths of its files. */
struct universal {
    const struct rfs_source_spec *spec;
    const char *folder; /* the one that is listed */
    RFS_VEC(char *) paths;
    struct rfs_error *err;
};

static void free_universal(struct universal *all)
{
    for (size_t i = 0; i < all->paths.n; i++)
        free(all->paths.data[i]);
    free(all->paths.data);
}

static int add_of_param(void *ctx, const struct dirent *entry)
{
    struct universal *all = ctx;

    if (!rfs_glob_match("*.pt", entry->d_name))
        return 0;
    RFS_FREE char *path = rfs_path_join(all->folder, entry->d_name);
    if (!path || !RFS_PUSH(&all->paths, path))
        return rfs_fail_memory(all->err);
    RFS_STEAL(path);
    return 0;
}

/* Adds the files of a folder zero/NAME. */
static int add_param(void *ctx, const struct dirent *entry)
{
    struct universal *all = ctx;
    const char *folder = all->folder;
    const bool hidden = entry->d_name[0] == '.';
    const int is = hidden ? 0 : rfs_scan_entry_is(all->spec, folder, entry, S_IFDIR, all->err);
    RFS_FREE char *path = is > 0 ? rfs_path_join(folder, entry->d_name) : NULL;

    if (is <= 0)
        return is;
    if (!path)
        return rfs_fail_memory(all->err);
    all->folder = path;
    const int rc = rfs_scan_entry_each(all->spec->store, path, add_of_param, all, all->err);
    all->folder = folder;
    return rc;
}

RFS_COMPARE(by_path, char *, x, y, strcmp(*x, *y))

/* Adds all files zero/NAME/KEY.pt, sorted. */
static int add_universal(const struct rfs_source_spec *spec, struct rfs_scan *out,
                         struct rfs_scanned *item, struct rfs_error *err)
{
    RFS_CLEANUP(free_universal) struct universal all = {.spec = spec, .err = err};
    RFS_FREE char *folder = rfs_path_join(spec->path, UNIVERSAL);

    if (!folder)
        return rfs_fail_memory(err);
    all.folder = folder;
    const int rc = rfs_scan_entry_each(spec->store, folder, add_param, &all, err);
    RFS_SORT_ALL(&all.paths, by_path);
    for (size_t i = 0; rc == 0 && i < all.paths.n; i++)
        rfs_scan_add_file(out, item, RFS_STEAL(all.paths.data[i]));
    if (rc == 0 && all.paths.n == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(folder), "all files that ds_to_universal wrote",
                        "the universal checkpoint has no parameter");
    return rc;
}

int rfs_scan_zero_files(const struct rfs_source_spec *spec, struct rfs_scan *out,
                        struct rfs_error *err)
{
    RFS_CLEANUP(free_entries) struct zero_entries entries = {.err = err};
    int rc = rfs_scan_entry_each(spec->store, spec->path, add_entry, &entries, err);

    RFS_SORT_ALL(&entries, by_role);
    if (rc == 0)
        rc = check_files(spec, &entries, err);
    if (rc)
        return rc;
    struct rfs_scanned *item = rfs_scan_add(out, 0, NULL);
    for (size_t i = 0; i < entries.n; i++)
        rfs_scan_add_file(out, item, rfs_path_join(spec->path, entries.data[i].name));
    return entries.data[entries.n - 1].as.role == RFS_ZERO_MODEL
               ? add_universal(spec, out, item, err)
               : 0;
}
