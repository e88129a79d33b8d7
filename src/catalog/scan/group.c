/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group info: which ranks can stand in for each other. Each rank saves the list of those that hold
 * the slices that it holds, itself among them, in a file of its own (ParallelGroupMap of
 * proto/node_strategy.proto); MindSpore's tutorials put it into the folder of the rank's
 * checkpoints:
 *
 *   rank_0/group_info.pb   [0, 4]      or all in one folder:   group_info_0.pb
 *   rank_4/group_info.pb   [0, 4]                              group_info_4.pb
 *
 * So a folder of them is that folder or the folder of the ranks' folders; the files are known by
 * "group" in their names and .pb at the end; their ranks do not matter.
 */
#include "catalog/scan/group.h"

#include "base/cleanup.h"
#include "base/options.h"
#include "base/order.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

#include "proto/node_strategy.pb-c.h"

/* ---- a file ---------------------------------------------------------------------------------- */

/* Room for thousands of groups of thousands of ranks. */
#define GROUP_BYTES ((size_t)8 << 20)
/* Memory of such messages; a file that takes more has groups without ranks. */
#define MESSAGE_BYTES ((size_t)15 << 20)

/* Memory of a message, with its size. */
struct sized {
    size_t bytes;
    max_align_t data[];
};

/* The memory that messages may take. */
struct room {
    size_t left;
    int refused; /* 0, -ENOMEM, or -EFBIG: something did not fit */
};

static void *take(void *ctx, size_t bytes)
{
    struct room *room = ctx;
    const bool fits = bytes < room->left;
    struct sized *sized = fits ? malloc(sizeof *sized + bytes) : NULL;

    if (!sized) {
        room->refused = fits ? -ENOMEM : -EFBIG;
        return NULL;
    }
    sized->bytes = bytes;
    room->left -= bytes;
    return sized->data;
}

static void give_back(void *ctx, void *data)
{
    struct room *room = ctx;
    struct sized *sized = (struct sized *)((char *)data - offsetof(struct sized, data));

    if (!data)
        return;
    room->left += sized->bytes;
    free(sized);
}

/* Copies the ranks of a list, which may have one any number of times. */
static int copy_ranks(const char *path, const Straspb__ParallelGroupRanks *list,
                      struct rfs_group *out, struct rfs_error *err)
{
    RFS_FREE unsigned char *set = calloc(RFS_MAX_RANK / 8 + 1, 1);
    size_t n = 0;

    for (size_t i = 0; set && i < list->n_dim; i++) {
        const uint32_t rank = list->dim[i];
        if (rank > RFS_MAX_RANK)
            return rfs_fail(err, -EINVAL, RFS_IN(path), NULL,
                            "it names rank %u: ranks above %u are not supported", rank,
                            RFS_MAX_RANK);
        n += !(set[rank / 8] >> rank % 8 & 1);
        set[rank / 8] = (unsigned char)(set[rank / 8] | 1u << rank % 8);
    }
    out->ranks = set ? calloc(n > 0 ? n : 1, sizeof *out->ranks) : NULL;
    if (!out->ranks)
        return rfs_fail_memory(err);
    for (uint32_t rank = 0; rank <= RFS_MAX_RANK; rank++)
        if (set[rank / 8] >> rank % 8 & 1)
            out->ranks[out->n++] = rank;
    return 0;
}

int rfs_scan_group_parse(const char *path, const void *data, size_t size, struct rfs_group *out,
                         struct rfs_error *err)
{
    struct room room = {.left = MESSAGE_BYTES};
    ProtobufCAllocator allocator = {take, give_back, &room};
    Straspb__ParallelGroupMap *map = straspb__parallel_group_map__unpack(&allocator, size, data);

    *out = (struct rfs_group){0};
    if (!map && room.refused == -ENOMEM)
        return rfs_fail_memory(err);
    if (!map && room.refused)
        return rfs_fail(err, -EFBIG, RFS_IN(path),
                        "the file that MindSpore saved at GROUP_INFO_FILE",
                        "reading it takes more than %zu MiB of memory", MESSAGE_BYTES >> 20);
    if (!map)
        return rfs_fail(err, -EINVAL, RFS_IN(path),
                        "the file that MindSpore saved at GROUP_INFO_FILE",
                        "not a group info file");
    const int rc = copy_ranks(path, map->ckpt_restore_rank_list, out, err);
    straspb__parallel_group_map__free_unpacked(map, &allocator);
    return rc;
}

int rfs_scan_group_read(struct rfs_store *store, const char *path, struct rfs_group *out,
                        struct rfs_error *err)
{
    RFS_FREE char *data = NULL;
    size_t size;
    *out = (struct rfs_group){0};
    const int rc = rfs_store_read_whole(store, path, GROUP_BYTES, &data, &size, err);
    return rc < 0 ? rc : rfs_scan_group_parse(path, data, size, out, err);
}

/* ---- all files ------------------------------------------------------------------------------- */

/* A rank and its group. */
struct member {
    uint32_t rank;
    uint32_t group;
};

struct groups {
    struct {
        char *path; /* owned */
        struct rfs_group list;
    } * data;
    size_t n, cap;
    struct rfs_store *store;
    struct rfs_error *err;
};

static void free_groups(struct groups *groups)
{
    for (size_t i = 0; i < groups->n; i++) {
        free(groups->data[i].path);
        free(groups->data[i].list.ranks);
    }
    free(groups->data);
}

/* Reads a group file. PATH is taken over. */
static int add_file(struct groups *groups, char *path)
{
    struct rfs_group list = {0};
    if (!path)
        return rfs_fail_memory(groups->err);
    int rc = rfs_scan_group_read(groups->store, path, &list, groups->err);
    if (rc == 0 && !RFS_PUSH(groups, (__typeof__(*groups->data)){path, list}))
        rc = rfs_fail_memory(groups->err);
    if (rc < 0) {
        free(path);
        free(list.ranks);
    }
    return rc;
}

static bool is_group_file(const char *name)
{
    return name[0] != '.' && rfs_text_ends(name, ".pb") && strstr(name, "group");
}

/* Reads the group files of a folder, and with DEEPER those of the folders in it. */
static int add_folder(struct groups *groups, const char *path, bool deeper)
{
    const struct rfs_source_spec spec = {.store = groups->store}; /* links are followed */
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const int failed = rfs_dir_open(groups->store, path, &dir);
    if (failed < 0)
        return rfs_fail(groups->err, failed, RFS_IN(path), NULL, "the folder cannot be listed: %s",
                        rfs_store_why(path, failed));
    for (;;) {
        const struct dirent *entry;
        int rc = rfs_scan_entry_next(&dir, path, &entry, groups->err);
        if (rc < 0 || !entry)
            return rc;
        const bool file = is_group_file(entry->d_name);
        if (entry->d_name[0] == '.' || (!file && !deeper))
            continue;
        rc = rfs_scan_entry_is(&spec, path, entry, file ? S_IFREG : S_IFDIR, groups->err);
        if (rc == 1 && file)
            rc = add_file(groups, rfs_path_join(path, entry->d_name));
        else if (rc == 1) {
            RFS_FREE char *inner = rfs_path_join(path, entry->d_name);
            rc = inner ? add_folder(groups, inner, false) : rfs_fail_memory(groups->err);
        }
        if (rc < 0)
            return rc;
    }
}

static int read_groups(const char *path, struct groups *groups)
{
    struct stat st;
    size_t named = 0;
    const bool folder = rfs_store_stat(groups->store, path, &st) == 0 && S_ISDIR(st.st_mode);
    const int rc = folder ? add_folder(groups, path, true) : add_file(groups, strdup(path));
    if (rc < 0)
        return rc;
    if (groups->n == 0)
        return rfs_fail(groups->err, -ENOENT, RFS_IN(path),
                        "names such as rank_0/group_info.pb or group_info_0.pb",
                        "the folder has no group info file");
    for (size_t i = 0; i < groups->n; i++)
        named += groups->data[i].list.n;
    return named > 0 ? 0
                     : rfs_fail(groups->err, -EINVAL, RFS_IN(path), "leave group_info out",
                                "it names no equal ranks");
}

static bool are_equal(const struct rfs_group *a, const struct rfs_group *b)
{
    return a->n == b->n && memcmp(a->ranks, b->ranks, a->n * sizeof *a->ranks) == 0;
}

RFS_COMPARE(compare_members, struct member, x, y,
            RFS_ORDER(x->rank, y->rank) ?: RFS_ORDER(x->group, y->group))

static int fail_contradiction(const struct groups *groups, const struct member *a,
                              const struct member *b)
{
    return rfs_fail(
        groups->err, -EINVAL, RFS_IN(groups->data[a->group].path), "the files of one run only",
        "it and %s name different ranks as equal to rank %u", groups->data[b->group].path, a->rank);
}

/* Lists each rank with a group that names it, ascending; *out is malloc'ed. */
static int list_members(const struct groups *groups, struct member **out, size_t *n)
{
    size_t total = 0;
    for (size_t i = 0; i < groups->n; i++)
        total += groups->data[i].list.n;
    struct member *members = calloc(total > 0 ? total : 1, sizeof *members);
    *out = members;
    *n = 0;
    if (!members)
        return rfs_fail_memory(groups->err);
    for (size_t i = 0; i < groups->n; i++)
        for (size_t k = 0; k < groups->data[i].list.n; k++)
            members[(*n)++] = (struct member){groups->data[i].list.ranks[k], (uint32_t)i};
    RFS_SORT(members, total, compare_members);
    size_t left = 0;
    for (size_t i = 0; i < total; i++) {
        const struct member *last = left > 0 ? &members[left - 1] : NULL;
        if (!last || last->rank != members[i].rank)
            members[left++] = members[i];
        else if (!are_equal(&groups->data[last->group].list, &groups->data[members[i].group].list))
            return fail_contradiction(groups, last, &members[i]);
    }
    *n = left;
    return 0;
}

RFS_COMPARE(by_rank, struct rfs_scanned, x, y, RFS_ORDER(x->rank, y->rank))

static struct rfs_scanned *find_rank(const struct rfs_scan *scan, size_t n, uint32_t rank)
{
    return bsearch(&(struct rfs_scanned){.rank = rank}, scan->data, n, sizeof *scan->data, by_rank);
}

/*
 * Gives a rank without files those of its group's first rank that had its OWN. The ranks that were
 * found are the first N of the scan.
 */
static int stand_in(const struct groups *groups, const struct member *member, struct rfs_scan *scan,
                    size_t n, const bool *own, struct rfs_log *log)
{
    const struct rfs_group *group = &groups->data[member->group].list;
    const struct rfs_scanned *from = NULL;
    struct rfs_scanned *item = find_rank(scan, n, member->rank);
    if (item && item->n_files > 0)
        return 0;
    for (size_t i = 0; i < group->n && !from; i++) {
        const struct rfs_scanned *other = find_rank(scan, n, group->ranks[i]);
        if (other && own[other - scan->data])
            from = other;
    }
    if (!from)
        return 0;
    const size_t at = (size_t)(from - scan->data);
    if (!item)
        item = rfs_scan_add(scan, member->rank, NULL);
    for (size_t k = 0; k < scan->data[at].n_files; k++)
        rfs_scan_add_file(scan, item, strdup(scan->data[at].files[k]));
    if (scan->failed)
        return rfs_fail_memory(groups->err);
    item->stands_in = true;
    scan->present++;
    rfs_log(log, RFS_WARNING,
            "rank %u has no checkpoint: that of rank %u is used, because %s names them as equal",
            member->rank, scan->data[at].rank, groups->data[member->group].path);
    return 0;
}

int rfs_scan_groups(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *scan,
                    struct rfs_error *err)
{
    RFS_CLEANUP(free_groups) struct groups groups = {.store = spec->store, .err = err};
    RFS_FREE struct member *members = NULL;
    size_t n_members = 0;
    if (scan->whole)
        return rfs_fail_usage(err, "leave group_info out",
                              "option group_info: the source is not a tree of ranks");
    int rc = read_groups(spec->options->group_info, &groups)
                 ?: list_members(&groups, &members, &n_members);
    if (rc < 0)
        return rc;
    const size_t n = scan->n;
    RFS_FREE bool *own = calloc(n, sizeof *own);
    if (!own)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        own[i] = scan->data[i].n_files > 0;
    for (size_t i = 0; rc == 0 && i < n_members; i++)
        rc = stand_in(&groups, &members[i], scan, n, own, log);
    RFS_SORT_ALL(scan, by_rank);
    return rc;
}
