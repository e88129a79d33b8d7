/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/suggest/near.h"

#include "base/cleanup.h"
#include "base/json_tree.h"
#include "base/store.h"
#include "base/text.h"
#include "survey/headers/inspect_file.h"
#include "survey/headers/needed_ranks.h"

#define CONFIG "config.json"

enum {
    MOST_ENTRIES = 2000, /* of a folder */
    MOST_OBJECTS = 64,   /* of one in a store, where each look is a request */
    MOST_FOUND = 16,     /* strategies, and configs of a place */
    ADAPTER_BYTES = 1 << 20,
};

char *rfs_near_above(const char *path)
{
    const char *name = rfs_path_name(path);

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return strcmp(path, ".") == 0 ? strdup("..") : rfs_path_join(path, "..");
    if (name == path)
        return strdup(".");
    return name == path + 1 ? strdup("/") : strndup(path, (size_t)(name - path) - 1);
}

/* Returns whether it can be read as a strategy. */
static bool is_strategy(struct rfs_store *store, const char *path)
{
    struct rfs_inspect_ranks *ranks;
    struct rfs_error unused = {0};
    const int rc = rfs_inspect_ranks_open(store, path, NULL, &ranks, &unused);

    rfs_inspect_ranks_close(ranks);
    return rc == 0;
}

/* Returns whether a file with this name may be a strategy, which is looked into. */
static bool may_be_strategy(struct rfs_store *store, const char *path, const char *name)
{
    return (strstr(name, "strategy") || rfs_text_ends(name, ".ckpt") ||
            rfs_text_ends(name, ".json")) &&
           strcmp(name, CONFIG) != 0 && rfs_inspect_is(store, path, RFS_INSPECT_STRATEGY);
}

/* Adds PATH; false when out of memory. The list may be full. */
static bool add(struct rfs_path_list *list, const char *path)
{
    return list->n >= MOST_FOUND || rfs_path_list_add(list, strdup(path));
}

/* Adds a config to those of a PLACE, if it is a model's. 0 or -ENOMEM. */
static int add_config(struct rfs_near *near, enum rfs_near_place place, const char *path)
{
    if (place != RFS_NEAR_OWN && !rfs_inspect_is(near->store, path, RFS_INSPECT_CONFIG))
        return 0;
    return add(&near->places[place], path) ? 0 : -ENOMEM;
}

static int take_folder(struct rfs_near *near, enum rfs_near_place place, const char *path,
                       const char *name)
{
    RFS_FREE char *config = rfs_path_join(path, CONFIG);

    if (!config)
        return -ENOMEM;
    if (strstr(name, "strategy") && is_strategy(near->store, path) && !add(&near->strategies, path))
        return -ENOMEM;
    return rfs_store_there(near->store, config) ? add_config(near, place, config) : 0;
}

/* The folder that is looked into, and the places of configs in it and in its folders. */
struct around {
    const char *source, *folder;
    enum rfs_near_place here, below;
};

/* Looks at an entry of a folder, the source or the one above. 0 or -ENOMEM. */
static int take_entry(struct rfs_near *near, const struct around *around, const char *name)
{
    const bool inside = around->folder == around->source;
    RFS_FREE char *path = strcmp(around->folder, ".") == 0 && !inside
                              ? strdup(name)
                              : rfs_path_join(around->folder, name);
    struct stat st;

    if (!path)
        return -ENOMEM;
    if (name[0] == '.' || strcmp(path, around->source) == 0 ||
        rfs_store_stat(near->store, path, &st) != 0)
        return 0;
    if (S_ISDIR(st.st_mode))
        return take_folder(near, around->below, path, name);
    if (!S_ISREG(st.st_mode))
        return 0;
    if (strcmp(name, CONFIG) == 0)
        return add_config(near, around->here, path);
    return may_be_strategy(near->store, path, name) && is_strategy(near->store, path) &&
                   !add(&near->strategies, path)
               ? -ENOMEM
               : 0;
}

static int look_in(struct rfs_near *near, const struct around *around)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const size_t most = rfs_store_is_url(around->folder) ? MOST_OBJECTS : MOST_ENTRIES;
    int rc = rfs_dir_open(near->store, around->folder, &dir) == -ENOMEM ? -ENOMEM : 0;

    /* A folder that can't be listed has nothing to offer. */
    for (size_t i = 0; rc == 0 && i < most && (dir.dir || dir.names.n > 0); i++) {
        const struct dirent *entry = rfs_dir_next(&dir);
        if (!entry)
            break;
        rc = take_entry(near, around, entry->d_name);
    }
    return rc;
}

RFS_CLEANUP_OF(free_tree, cJSON *, cJSON_Delete)

/* Adds the config of the model that the adapter in FOLDER names by a path. 0 or -ENOMEM. */
static int look_at_base(struct rfs_near *near, const char *folder)
{
    RFS_FREE char *path = rfs_path_join(folder, "adapter_config.json");
    RFS_FREE char *text = NULL;
    RFS_CLEANUP(free_tree) cJSON *tree = NULL;
    struct rfs_error unused;
    size_t n;

    if (!path)
        return -ENOMEM;
    if (!rfs_store_there(near->store, path) ||
        rfs_store_read_whole(near->store, path, ADAPTER_BYTES, &text, &n, &unused) ||
        rfs_json_tree_parse(path, text, n, ADAPTER_BYTES * 8, NULL, &tree, &unused))
        return 0;
    const cJSON *base = rfs_json_tree_member(tree, "base_model_name_or_path");
    if (!cJSON_IsString(base))
        return 0;
    RFS_FREE char *config = rfs_path_join(base->valuestring, CONFIG);
    if (!config)
        return -ENOMEM;
    return rfs_store_there(near->store, config) ? add_config(near, RFS_NEAR_BASE, config) : 0;
}

int rfs_near_find(struct rfs_store *store, const char *source, struct rfs_near *out,
                  struct rfs_error *err)
{
    RFS_FREE char *above = rfs_near_above(source);
    struct stat st;
    int rc = above ? 0 : -ENOMEM;

    *out = (struct rfs_near){.store = store};
    out->folder = rc == 0 && rfs_store_stat(store, source, &st) == 0 && S_ISDIR(st.st_mode);
    if (out->folder)
        rc = look_in(out, &(struct around){source, source, RFS_NEAR_OWN, RFS_NEAR_BELOW})
                 ?: look_in(out, &(struct around){source, above, RFS_NEAR_ABOVE, RFS_NEAR_BESIDE});
    else if (rc == 0)
        rc = look_in(out, &(struct around){source, above, RFS_NEAR_OWN, RFS_NEAR_BELOW});
    rc = rc ? rc : look_at_base(out, out->folder ? source : above);
    rfs_path_list_sort(&out->strategies);
    for (enum rfs_near_place i = 0; i < RFS_NEAR_NOWHERE; i++)
        rfs_path_list_sort(&out->places[i]);
    while (out->place < RFS_NEAR_NOWHERE && out->places[out->place].n == 0)
        out->place++;
    return rc ? rfs_fail_memory(err) : 0;
}

void rfs_near_free(struct rfs_near *near)
{
    rfs_path_list_free(&near->strategies);
    for (size_t i = 0; i < RFS_NEAR_NOWHERE; i++)
        rfs_path_list_free(&near->places[i]);
}
