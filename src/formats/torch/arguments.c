/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/torch/arguments.h"

#include "base/json_write.h"
#include "formats/torch/torch.h"

/* Returns the dict of the arguments in a file's object, or NULL. A ShardedObject is a list. */
static const struct rfs_node *find_arguments(const struct rfs_node *root)
{
    const bool is_list = root->kind == RFS_NODE_LIST && root->of.items.n == 1;
    const struct rfs_node *args = rfs_pickle_get(is_list ? root->of.items.data[0] : root, "args");
    const bool is_object = args && args->kind == RFS_NODE_NEW && args->of.call.after;

    return is_object ? args->of.call.after->state : NULL;
}

/* Returns a count of the arguments; 0: it is not given. */
static uint64_t count(const struct rfs_node *args, const char *key)
{
    const struct rfs_node *value = rfs_pickle_get(args, key);

    return value && value->kind == RFS_NODE_INT && value->of.integer > 0
               ? (uint64_t)value->of.integer
               : 0;
}

static bool is_true(const struct rfs_node *args, const char *key)
{
    const struct rfs_node *value = rfs_pickle_get(args, key);

    return value && value->kind == RFS_NODE_BOOL && value->of.truth;
}

/* num_query_groups counts with group_query_attention alone. MLA has widths of its own. */
static void put_heads(const struct rfs_node *args, struct rfs_json_write *json)
{
    const uint64_t heads = count(args, "num_attention_heads");
    const uint64_t groups =
        is_true(args, "group_query_attention") ? count(args, "num_query_groups") : heads;
    const uint64_t width = count(args, "kv_channels");

    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_u64(json, "num_attention_heads", heads);
    if (groups > 0 && !is_true(args, "multi_latent_attention"))
        rfs_json_put_u64(json, "num_key_value_heads", groups);
    if (width > 0 && !is_true(args, "multi_latent_attention"))
        rfs_json_put_u64(json, "head_dim", width);
    rfs_json_end(json);
}

int rfs_torch_arguments(const struct rfs_bytes_source *from, struct rfs_bytes *out,
                        struct rfs_error *err)
{
    struct rfs_json_write json = {.bytes = out};
    struct rfs_torch torch;
    const int rc = rfs_torch_open_named(from, RFS_PICKLE_ANY, &torch, err);

    if (rc)
        return rc;
    const struct rfs_node *args = find_arguments(torch.pickle.root);
    if (args && count(args, "num_attention_heads") > 0)
        put_heads(args, &json);
    rfs_torch_free(&torch);
    return json.failed ? rfs_fail_memory(err) : 0;
}
