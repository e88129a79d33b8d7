/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of formats that are not read, by the names of their files, with a remedy for each.
 * Nothing in them is opened.
 *
 *   DeepSpeed                          global_step1000/{mp_rank_00_model_states.pt, zero_pp_rank_0_…_optim_states.pt}
 *   transformers, before safetensors   pytorch_model.bin, pytorch_model-00001-of-00002.bin
 *   PyTorch                            *.pth: torch.save, whose other name *.pt is read
 *   Orbax (JAX)                        _CHECKPOINT_METADATA, manifest.ocdbt
 *   Megatron, format torch             iter_0000020/mp_rank_00/model_optim_rng.pt, mp_rank_00_001 …
 *   Megatron, format zarr              iter_0000020/{metadata.json, a folder for each tensor}
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/path.h"
#include "catalog/scan/internal.h"

static const struct foreign {
    const char *name; /* a pattern */
    const char *what, *remedy;
    const char *holds; /* a text in that file; NULL: any */
    bool above;        /* a folder of that name may hold a checkpoint that is read */
} known[] = {
    {.name = "mp_rank_*_model_states.pt", .what = "DeepSpeed"},
    {.name = "zero_pp_rank_*", .what = "DeepSpeed"},
    {.name = "global_step*",
     .what = "DeepSpeed",
     .remedy = "python zero_to_fp32.py . OUT --safe_serialization in that folder, then OUT as the "
               "source",
     .above = true},
    {.name = "pytorch_model.bin", .what = "PyTorch by another name"},
    {.name = "pytorch_model-*.bin",
     .what = "PyTorch by another name",
     .remedy =
         "the same file by a name that ends in .pt, or save_pretrained of transformers, which "
         "writes safetensors"},
    {.name = "*.pth",
     .what = "PyTorch by another name",
     .remedy = "the same file by a name that ends in .pt"},
    {.name = "_CHECKPOINT_METADATA", .what = "Orbax"},
    {.name = "manifest.ocdbt",
     .what = "Orbax",
     .remedy = "Orbax to load it, and save_file of safetensors to save it"},
    {.name = "mp_rank_[0-9][0-9]*",
     .what = "Megatron's format torch",
     .remedy = "Megatron to load it and to save it with --ckpt-format torch_dist"},
    {.name = "metadata.json",
     .what = "Megatron's format zarr",
     .remedy = "Megatron to load it and to save it with --ckpt-format torch_dist",
     .holds = "\"zarr\""},
};

/* Consecutive rows of one format share the remedy of the last. */
static int fail_foreign(const char *path, const struct foreign *row, const char *name,
                        struct rfs_error *err)
{
    const struct foreign *last = row;

    while (!last->remedy)
        last++;
    return rfs_fail(err, -ENOTSUP, RFS_IN(path), last->remedy,
                    "this is a checkpoint of %s, as '%s' shows; this format is not read", row->what,
                    name);
}

/* Whether the head of a file has a text. */
static bool holds(const char *folder, const char *name, const char *text)
{
    RFS_FREE char *path = rfs_path_join(folder, name);
    char head[4096];
    const ssize_t n = path ? rfs_store_head(path, head, sizeof head) : 0;

    return n > 0 && memmem(head, (size_t)n, text, strlen(text));
}

/* The row of a name in FOLDER (NULL: the source is that file itself). */
static const struct foreign *find(const char *folder, const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (rfs_glob_match(known[i].name, name) &&
            (!known[i].holds || (folder && holds(folder, name, known[i].holds))))
            return &known[i];
    return NULL;
}

int rfs_scan_foreign(const char *path, int rc, struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    RFS_FREE char *name = NULL;
    const struct foreign *found = NULL;
    const struct dirent *entry;

    if (rc >= 0 || !err || err->usage || rc == -ENOMEM)
        return rc;
    const int failed = rfs_dir_open(path, &dir);
    if (failed < 0) {
        const char *base = rfs_path_name(path);
        found = failed == -ENOTDIR ? find(NULL, base) : NULL;
        return found ? fail_foreign(path, found, base, err) : rc;
    }
    while ((entry = rfs_dir_next(&dir)) != NULL) {
        const struct foreign *row = find(path, entry->d_name);
        if (rfs_scan_is_rank(entry->d_name))
            return rc;
        if (!row || (found && found <= row))
            continue;
        found = row;
        free(name);
        name = strdup(entry->d_name);
    }
    if (!found || !name)
        return rc;
    RFS_FREE char *inside = found->above ? rfs_scan_inside(path) : NULL;
    return inside ? rc : fail_foreign(path, found, name, err);
}

static bool holds_ranks(const char *path)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;
    const int failed = rfs_dir_open(path, &dir);

    while (failed == 0 && (entry = rfs_dir_next(&dir)) != NULL)
        if (rfs_scan_is_rank(entry->d_name))
            return true;
    return false;
}

char *rfs_scan_below(const char *path)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry;
    char *found = NULL;
    const int failed = rfs_dir_open(path, &dir);

    while (failed == 0 && (entry = rfs_dir_next(&dir)) != NULL) {
        RFS_FREE char *folder = entry->d_name[0] == '.' ? NULL : rfs_path_join(path, entry->d_name);
        if (!folder || (found && strcmp(found, folder) <= 0) || !holds_ranks(folder))
            continue;
        free(found);
        found = RFS_STEAL(folder);
    }
    return found;
}
