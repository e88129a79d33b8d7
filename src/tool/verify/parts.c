/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hfai's parts that do not open as a whole: which of them are missing or damaged. The state is in
 * all of them together, so nothing else is compared then.
 */
#include "base/fd.h"
#include "base/text.h"
#include "tool/verify/verify.h"

#include "base/cleanup.h"
#include "hfai/hfai.h"
#include "source/torch/archive.h"

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
