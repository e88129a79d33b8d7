/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of formats that are not read, by the names of their files, with a remedy for each.
 * Nothing in them is opened.
 *
 *   DeepSpeed                          global_step1000/{mp_rank_00_model_states.pt, zero_pp_rank_0_…_optim_states.pt}
 *   transformers, before safetensors   pytorch_model.bin, pytorch_model-00001-of-00002.bin
 *   PyTorch                            *.pth: torch.save, whose other name *.pt is read
 *   Orbax (JAX)                        _CHECKPOINT_METADATA, manifest.ocdbt
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/path.h"
#include "source/scan/internal.h"

static const struct foreign {
    const char *name; /* a pattern */
    const char *what, *remedy;
} known[] = {
    {"mp_rank_*_model_states.pt", "DeepSpeed", NULL},
    {"zero_pp_rank_*", "DeepSpeed", NULL},
    {"global_step*", "DeepSpeed",
     "python zero_to_fp32.py . OUT --safe_serialization in that folder, then OUT as the source"},
    {"pytorch_model.bin", "PyTorch by another name", NULL},
    {"pytorch_model-*.bin", "PyTorch by another name",
     "the same file by a name that ends in .pt, or save_pretrained of transformers, which writes "
     "safetensors"},
    {"*.pth", "PyTorch by another name", "the same file by a name that ends in .pt"},
    {"_CHECKPOINT_METADATA", "Orbax", NULL},
    {"manifest.ocdbt", "Orbax", "Orbax to load it, and save_file of safetensors to save it"},
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

static const struct foreign *find(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (rfs_glob_match(known[i].name, name))
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
        found = failed == -ENOTDIR ? find(base) : NULL;
        return found ? fail_foreign(path, found, base, err) : rc;
    }
    while ((entry = rfs_dir_next(&dir)) != NULL) {
        const struct foreign *row = find(entry->d_name);
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
    return fail_foreign(path, found, name, err);
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
