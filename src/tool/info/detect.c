/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects the kind of a path. Files:
 *
 *   {…                         JSON: a strategy, a weight map or the manifest of an export, by the words in it
 *   8 bytes n, then {          safetensors; n is the length of the JSON
 *   PK\3\4                     a zip: torch.save
 *   the magic of a block       an encrypted .ckpt (cipher.h)
 *   08                         a strategy in protobuf: ParallelStrategyMap.current_stage is required and comes first
 *   0a …, 12 …                 a .ckpt, or group info if it is that as a whole
 *   lines of text              rules
 *
 * Folders are a tree if rank folders, hfai's parts or a map of safetensors files are in it, else
 * those of a rank.
 */
#include "base/cleanup.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "catalog/scan/group_proto.h"
#include "catalog/scan/scan.h"
#include "store/crypt/cipher.h"
#include "tool/info/info.h"

#include <sys/stat.h>

#define REMEDY "a checkpoint, a folder of one, or a strategy"
#define HEAD 65536 /* bytes that are looked at */

static int fail_open(const char *path, int code, struct rfs_error *err)
{
    return rfs_fail(err, code, RFS_IN(path), REMEDY, "cannot open: %s", rfs_store_why(path, code));
}

/* The first bytes of a file. Their number, or -errno. */
static ssize_t read_head(const char *path, unsigned char *head, struct rfs_error *err)
{
    const ssize_t n = rfs_store_head(path, head, HEAD);

    return n >= 0 ? n : fail_open(path, (int)n, err);
}

static bool has(const unsigned char *head, size_t n, const char *word)
{
    return memmem(head, n, word, strlen(word)) != NULL;
}

static enum rfs_info_kind json_kind(const unsigned char *head, size_t n)
{
    if (has(head, n, "\"parallel_layout_item\"") || has(head, n, "\"parallel_strategy_item\""))
        return RFS_INFO_STRATEGY;
    if (has(head, n, "\"weight_map\""))
        return RFS_INFO_WEIGHT_MAP;
    return has(head, n, "\"reshard-manifest\"") ? RFS_INFO_MANIFEST : RFS_INFO_STRATEGY;
}

static bool is_safetensors(const unsigned char *head, size_t n)
{
    uint64_t length = 0;

    for (int i = 7; n > 8 && i >= 0; i--)
        length = length << 8 | head[i];
    return n > 8 && length > 1 && length <= UINT64_C(100000000) && head[8] == '{';
}

static bool is_group(const char *path)
{
    struct rfs_group group;
    struct rfs_error err;
    const int rc = rfs_group_read(path, &group, &err);

    free(group.ranks);
    return rc == 0;
}

/* Printable, as far as it was read. */
static bool is_text(const unsigned char *head, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((head[i] < 0x20 && !strchr("\t\n\r", head[i])) || head[i] == 0x7f || head[i] == 0)
            return false;
    return n > 0;
}

static int detect_file(const char *path, bool keyed, enum rfs_info_kind *kind,
                       struct rfs_error *err)
{
    RFS_FREE unsigned char *head = malloc(HEAD);
    const ssize_t got = head ? read_head(path, head, err) : rfs_fail_memory(err);
    const size_t n = got > 0 ? (size_t)got : 0;
    size_t spaces = 0;

    *kind = RFS_INFO_CKPT;
    if (got < 0)
        return (int)got;
    if (n >= 4 && rfs_cipher_detect(head) != RFS_NOT_ENCRYPTED)
        *kind = keyed ? RFS_INFO_CKPT : RFS_INFO_ENCRYPTED;
    else if (rfs_text_ends(path, ".safetensors") || is_safetensors(head, n))
        *kind = RFS_INFO_SAFETENSORS;
    else if (rfs_text_ends(path, ".pt") || (n >= 4 && memcmp(head, "PK\3\4", 4) == 0))
        *kind = RFS_INFO_TORCH;
    else if (keyed) /* of MindSpore 1, which has no magic */
        *kind = RFS_INFO_CKPT;
    else if (rfs_text_ends(path, ".json"))
        *kind = json_kind(head, n);
    else if (n > 0 && head[0] == 0x08)
        *kind = RFS_INFO_STRATEGY;
    else if (n > 0 && (head[0] == 0x0a || head[0] == 0x12) && is_group(path))
        *kind = RFS_INFO_GROUP;
    else if (!rfs_text_ends(path, ".ckpt") && is_text(head, n)) {
        while (spaces < n && strchr(" \t\r\n", head[spaces]))
            spaces++;
        *kind = spaces < n && head[spaces] == '{' ? json_kind(head, n) : RFS_INFO_RULES;
    }
    return 0;
}

static bool is_weight_map(const char *name)
{
    return strcmp(name, "param_name_map.json") == 0 ||
           rfs_text_ends(name, ".safetensors.index.json");
}

/* Of the checkpoint that counts in a folder: a strategy has the same ending. */
static int detect_rank(const char *path, bool keyed, enum rfs_info_kind *kind,
                       struct rfs_error *err)
{
    RFS_FREE char *name = NULL;
    RFS_FREE char *file = NULL;
    int rc = rfs_scan_folder(path, &name, err);

    *kind = RFS_INFO_RANK;
    if (rc || !name)
        return rc;
    file = rfs_path_join(path, name);
    if (!file)
        return rfs_fail_memory(err);
    enum rfs_info_kind of_file;
    rc = detect_file(file, keyed, &of_file, err);
    if (rc == 0 && of_file == RFS_INFO_STRATEGY)
        *kind = RFS_INFO_STRATEGIES;
    return rc;
}

int rfs_info_detect(const char *path, bool keyed, enum rfs_info_kind *kind, struct rfs_error *err)
{
    struct stat st;
    bool ranks = false;
    bool parts = false;
    bool json = false;

    int rc = rfs_store_stat(path, &st);
    if (rc)
        return fail_open(path, rc, err);
    if (S_ISREG(st.st_mode))
        return detect_file(path, keyed, kind, err);
    if (!S_ISDIR(st.st_mode))
        return rfs_fail(err, -EINVAL, RFS_IN(path), REMEDY, "neither a file nor a folder");
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    rc = rfs_dir_open(path, &dir);
    if (rc)
        return fail_open(path, rc, err);
    for (const struct dirent *entry; (entry = rfs_dir_next(&dir)) != NULL;) {
        ranks = ranks || rfs_scan_is_rank(entry->d_name) || is_weight_map(entry->d_name);
        parts = parts || strcmp(entry->d_name, "PART_000.pt") == 0;
        json = json || (rfs_text_ends(entry->d_name, ".json") && entry->d_name[0] != '.' &&
                        strncmp(entry->d_name, "reshard-manifest", 16) != 0);
    }
    *kind = parts ? RFS_INFO_PARTS : RFS_INFO_TREE;
    if (parts || ranks || rfs_scan_is_of_one_rank(path))
        return 0;
    *kind = RFS_INFO_CHUNKS;
    if (rfs_scan_is_described(path))
        return 0;
    rc = rfs_scan_foreign(path, detect_rank(path, keyed, kind, err), err);
    RFS_FREE char *name = NULL;
    struct rfs_error unused;
    /* Strategies in JSON have no ending of checkpoints. */
    if (rc == 0 && *kind == RFS_INFO_RANK && json && rfs_scan_folder(path, &name, &unused) == 0 &&
        !name)
        *kind = RFS_INFO_STRATEGIES;
    return rc;
}
