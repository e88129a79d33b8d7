/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory_limit.h"

#include "base/checked.h"

/* Reads the number in a limit file; UINT64_MAX when it is absent or "max". */
static uint64_t read_limit(const char *path)
{
    FILE *file = fopen(path, "re");
    unsigned long long limit;

    if (!file)
        return UINT64_MAX;
    const int got = fscanf(file, "%llu", &limit);
    fclose(file);
    return got == 1 ? limit : UINT64_MAX;
}

/* Returns the smallest limit of a cgroup and of those above it: a parent's binds its children. */
static uint64_t limit_upward(const char *mount, const char *group, const char *name)
{
    char dir[4096];
    char path[4352];
    uint64_t least = UINT64_MAX;

    snprintf(dir, sizeof dir, "%s%s", mount, group);
    while (strlen(dir) >= strlen(mount)) {
        snprintf(path, sizeof path, "%s/%s", dir, name);
        least = rfs_min_u64(least, read_limit(path));
        char *slash = strrchr(dir, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    return least;
}

static uint64_t cgroup_limit(const struct rfs_memory_limits *limits)
{
    FILE *file = fopen(limits->self, "re");
    char line[4096];
    char memory[4096];
    uint64_t least = UINT64_MAX;

    if (!file)
        return least;
    snprintf(memory, sizeof memory, "%s/memory", limits->cgroups);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        if (!controllers[1]) /* "0::/path": version 2 */
            least = rfs_min_u64(least, limit_upward(limits->cgroups, group, "memory.max"));
        else if (strcmp(controllers + 1, "memory") == 0)
            least = rfs_min_u64(least, limit_upward(memory, group, "memory.limit_in_bytes"));
    }
    fclose(file);
    return least;
}

uint64_t rfs_memory_limit(const struct rfs_memory_limits *limits)
{
    return rfs_min_u64(limits->machine, cgroup_limit(limits));
}
