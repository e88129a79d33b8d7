/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hfai's parts. Where they do not open as a whole: which of them are missing or damaged. The state
 * is in all of them together, so nothing else is compared then. Else their values that are no
 * tensors are compared, however the parts divide these.
 */
#include "base/fd.h"
#include "base/text.h"
#include "tool/common/whole_parts.h"
#include "tool/verify/verify.h"

#include "base/cleanup.h"
#include "formats/torch/archive.h"
#include "hfai/hfai.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_part(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const int *fd = ctx;

    return rfs_pread_all(*fd, buf, n, offset);
}

/* Raises *N to the number of parts that a sound part says. */
static int check_part(const char *path, uint32_t *n, struct rfs_error *err)
{
    struct rfs_torch torch;
    struct stat st;
    RFS_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) != 0)
        return rfs_fail(err, -errno, RFS_IN(path), "a file that you may read", "cannot open: %s",
                        strerror(errno));
    int rc = rfs_torch_open(read_part, &fd, (uint64_t)st.st_size, 0, path, &torch, err);
    if (rc)
        return rc;
    rc = rfs_torch_check(&torch, path, err);
    const struct rfs_node *shards = torch.pickle.root->kind == RFS_NODE_DICT
                                        ? rfs_node_get(torch.pickle.root, "__nshards__")
                                        : NULL;
    if (shards && shards->kind == RFS_NODE_INT && shards->of.integer > *n &&
        shards->of.integer <= RFS_HFAI_PARTS)
        *n = (uint32_t)shards->of.integer;
    rfs_torch_free(&torch);
    return rc;
}

/* A part that is not there is missing once another one says that there is such a part. */
bool rfs_verify_parts(struct rfs_verify *verify, const char *folder, enum rfs_finding_kind kind)
{
    uint32_t n = 0;
    bool *missing = calloc(RFS_HFAI_PARTS, sizeof *missing);

    for (uint32_t part = 0; missing && part < RFS_HFAI_PARTS; part++) {
        struct rfs_error why = {0};
        RFS_FREE char *path = rfs_text_printf("%s/PART_%03u.pt", folder, part);
        if (!path)
            break;
        missing[part] = access(path, F_OK) != 0;
        if (missing[part])
            continue;
        n = n > part + 1 ? n : part + 1;
        if (check_part(path, &n, &why))
            rfs_verify_find(verify, kind, NULL, part, why.text);
    }
    for (uint32_t part = 0; missing && part < n; part++)
        if (missing[part])
            rfs_verify_find(verify, kind, NULL, part, "there is no such part");
    free(missing);
    return verify->findings.list.n > 0;
}

/* ---- values ---- */

/* Numbers, texts, lists, and which dicts there are: by their path in the state. */
static void find(struct rfs_verify *verify, const char *name, const char *detail)
{
    rfs_verify_find(verify, RFS_FOUND_VALUE, name, RFS_NO_RANK, detail);
}

void rfs_verify_values(struct rfs_verify *verify)
{
    size_t n_tree;
    size_t n_src;
    size_t i = 0;
    size_t k = 0;

    if (!verify->tree.parts || !verify->src.parts || verify->options->globs.n > 0)
        return;
    const struct rfs_hfai_value *tree = rfs_whole_parts_values(verify->tree.parts, &n_tree);
    const struct rfs_hfai_value *src = rfs_whole_parts_values(verify->src.parts, &n_src);
    while (i < n_tree || k < n_src) {
        const int order = i == n_tree ? 1 : k == n_src ? -1 : strcmp(tree[i].name, src[k].name);
        if (order < 0)
            find(verify, tree[i].name, "should not be there");
        else if (order > 0)
            find(verify, src[k].name, "is missing");
        else if (memcmp(tree[i].hash, src[k].hash, sizeof src[k].hash) != 0)
            find(verify, tree[i].name, "differs from the source");
        i += order <= 0;
        k += order >= 0;
    }
    verify->values = n_src;
}
