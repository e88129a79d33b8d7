/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of a destination file, in MindSpore's order: those in both strategies first, then
 * the rest, each in the order of first appearance over the files that MindSpore would load (the
 * needed stages from the last to the first; files of one stage list the same parameters in the same
 * order). Where redundancy was removed MindSpore has no order; the same one is taken over all files
 * of those stages.
 */
#include "plan/internal.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "plan/by_rules.h"

/*
 * Refuses a tensor that the rules for the source did not see: they cover all tensors, so another
 * one may be cut in any way.
 */
static int check_unruled(struct rfs_planning *planning, const struct rfs_role *role,
                         const struct rfs_type *type, const char *param)
{
    if (!planning->planner->config.src ||
        !rfs_strategy_facts(planning->planner->config.src)->by_rules || role->in_src ||
        type->kind != RFS_TENSOR)
        return 0;
    return rfs_fail(planning->err, -EINVAL,
                    RFS_OF(rfs_catalog_path(planning->planner->config.catalog), param),
                    "checkpoints of one save",
                    "is not in the first rank's file, from which the source rules took their "
                    "parameters");
}

/* Notes a parameter that RANK should give: 1, or -ENOMEM with the error filled. */
static int lose_copied(const struct rfs_planning *planning, uint32_t name, uint32_t rank)
{
    if (rfs_plan_lack(planning->planner, name, rank))
        return rfs_fail_memory(planning->err);
    *planning->err = (struct rfs_error){0};
    return 1;
}

/* Lists a copied parameter that is not complete; its type is that of the files that have it. */
static int keep_incomplete(const struct rfs_planning *planning, uint32_t name,
                           struct rfs_target *target)
{
    target->type = planning->origins[name].type;
    target->geometry = RFS_NO_ID;
    return 0;
}

/* Says whether RC means that nothing proves the value of a parameter. */
static bool is_unknown(int rc)
{
    return rc == -ENOENT || rc == -EINVAL;
}

/* Makes the target of a copied parameter. 0, 1 when the list goes without it, or -errno. */
static int copied_entry(struct rfs_planning *planning, const struct rfs_role *role, uint32_t s,
                        uint32_t name, struct rfs_target *target)
{
    struct rfs_planner *planner = planning->planner;
    struct rfs_catalog *catalog = planner->config.catalog;
    const struct rfs_stage_use *use = &planning->stages[s];
    const struct rfs_provider_query query = rfs_plan_query(planning, use, name);
    const struct rfs_plan_piece piece = rfs_plan_piece_slice(role->src, planning->template);
    const uint32_t rank = rfs_plan_provider(&query, &piece);
    const struct rfs_index *index = rfs_catalog_ready(catalog, rank);
    const struct rfs_entry *entry = index ? rfs_index_find(index, name) : NULL;
    const char *param = rfs_catalog_name(catalog, name);

    if (rfs_plan_is_lost(planner, name, RFS_LOST_LISTED))
        return keep_incomplete(planning, name, target);
    if (!entry)
        return rfs_fail(planning->err, -EINVAL, RFS_OF(rfs_catalog_path(catalog), param), NULL,
                        "is copied from rank_%u, whose checkpoint does not have it", rank);
    if (!role->src && rank != use->base + planning->template) {
        const int rc = rfs_plan_check_replicas(planning, use, entry, rank);
        if (rc && rc != -ENOMEM && planner->config.lost == RFS_LOST_LEFT_OUT)
            return lose_copied(planning, name, use->base + planning->template);
        if (is_unknown(rc) && planner->config.lost == RFS_LOST_LISTED)
            return lose_copied(planning, name, use->base + planning->template) < 0
                       ? -ENOMEM
                       : keep_incomplete(planning, name, target);
        if (rc)
            return rc;
    }
    target->type = entry->type;
    target->geometry = RFS_NO_ID;
    const struct rfs_type *type = rfs_catalog_type(catalog, entry->type);
    if (type->kind == RFS_MAP && rfs_catalog_lengths(catalog, index, entry, &target->lengths))
        return rfs_fail_memory(planning->err);
    return check_unruled(planning, role, type, param)
               ?: rfs_plan_unproved(planning, role, entry, rank);
}

static int sliced_entry(struct rfs_planning *planning, const struct rfs_role *role, uint32_t name,
                        struct rfs_target *target)
{
    struct rfs_planner *planner = planning->planner;
    const struct rfs_plan_origin *origin = &planning->origins[name];

    target->geometry = origin->geometry;
    if (target->geometry == RFS_NO_ID) {
        const int rc =
            rfs_plan_geometry(planner, role, origin->type, name, &target->geometry, planning->err);
        if (rc)
            return rc;
    }
    return rfs_plan_target_type(planner, rfs_plan_geometry_at(planner, target->geometry),
                                planning->local, &target->type)
               ? rfs_fail_memory(planning->err)
               : 0;
}

/* Returns the dtype that the made tensor of a name is shown with; FROM if there is none. */
static enum rfs_dtype made_dtype(const struct rfs_by_rules *by_rules, uint32_t name,
                                 enum rfs_dtype from)
{
    const struct rfs_rules_made *made = rfs_by_rules_made(by_rules, name);

    if (!made || made->shown != made->type.dtype || made->n == 0)
        return made ? made->shown : from;
    const uint32_t source = by_rules->map->links.data[made->links].source;
    return rfs_catalog_plain_dtype(by_rules->config.catalog,
                                   by_rules->plan->params->targets[source].name, made->shown);
}

/* Returns the dtype that conversion rules give a target, or that it has without any. */
static enum rfs_dtype dtype_by_rules(const struct rfs_planner *planner,
                                     const struct rfs_target *target)
{
    const struct rfs_by_rules *by_rules = planner->config.by_rules;
    const struct rfs_type *type = rfs_catalog_type(planner->config.catalog, target->type);
    const enum rfs_dtype from = (enum rfs_dtype)type->dtype;

    return by_rules ? made_dtype(by_rules, target->name, from)
                    : rfs_catalog_plain_dtype(planner->config.catalog, target->name, from);
}

/* Sets a target's name in the file, SHOWN, and its type there. */
static int show(struct rfs_planner *planner, const char *shown, struct rfs_target *target,
                struct rfs_error *err)
{
    struct rfs_tables *tables = rfs_catalog_tables(planner->config.catalog);
    const struct rfs_type *type = rfs_catalog_type(planner->config.catalog, target->type);
    const enum rfs_dtype from = (enum rfs_dtype)type->dtype;

    target->shown_name = target->name;
    target->shown_type = target->type;
    if (shown != rfs_catalog_name(planner->config.catalog, target->name))
        target->shown_name = rfs_intern_add(tables->names, shown, strlen(shown));
    const enum rfs_dtype to =
        type->kind == RFS_TENSOR
            ? rfs_names_dtype(planner->config.names, shown, dtype_by_rules(planner, target))
            : from;
    if (to != from) {
        struct rfs_type changed = *type;
        changed.dtype = (uint8_t)to;
        if (!rfs_mul_u64(type->bytes / rfs_dtype_bytes(from), rfs_dtype_bytes(to), &changed.bytes))
            changed.bytes = UINT64_MAX; /* check_bytes refuses it */
        target->shown_type = rfs_intern_add(tables->types, &changed, sizeof changed);
    }
    return target->shown_name == RFS_NO_ID || target->shown_type == RFS_NO_ID ? rfs_fail_memory(err)
                                                                              : 0;
}

int rfs_planner_show(struct rfs_planner *planner, struct rfs_target *target, struct rfs_error *err)
{
    const char *name = rfs_catalog_name(planner->config.catalog, target->name);
    const char *shown = rfs_names_shown(planner->config.names, name);

    target->shown_name = RFS_NO_ID;
    return shown ? show(planner, shown, target, err) : 0;
}

bool rfs_planner_casts(const struct rfs_planner *planner, const struct rfs_target *target)
{
    const struct rfs_type *shown = rfs_catalog_type(planner->config.catalog, target->shown_type);

    return target->shown_type != target->type && dtype_by_rules(planner, target) == shown->dtype;
}

/* Adds a parameter that has a certain role. */
static int add_param(struct rfs_planning *planning, uint32_t name, const struct rfs_role *role,
                     struct rfs_params *params)
{
    const struct rfs_plan_origin *origin = &planning->origins[name];
    struct rfs_target target = {.name = name, .stage = origin->stage, .lengths = RFS_NO_ID};
    const bool cut = rfs_plan_is_cut(role, rfs_catalog_type(planning->catalog, origin->type));
    struct rfs_sibling_copied copied = {name, RFS_NOT_LISTED};
    int rc = cut ? sliced_entry(planning, role, name, &target)
                 : copied_entry(planning, role, origin->stage, name, &target);

    if (rc)
        return rc < 0 ? rc : 0;
    const struct rfs_type *type = rfs_catalog_type(planning->catalog, target.type);
    /* MindSpore saves no empty tensor in a .ckpt */
    const bool listed =
        type->bytes > 0 || type->kind != RFS_TENSOR || planning->planner->config.keep_empty;
    rc = listed ? show(planning->planner, role->shown, &target, planning->err) : 0;
    if (rc)
        return rc;
    if (listed) {
        copied.at = (uint32_t)params->n;
        params->targets[params->n++] = target;
    }
    return cut || RFS_PUSH(&planning->copied, copied) ? 0 : rfs_fail_memory(planning->err);
}

static struct rfs_role role_in(const struct rfs_planning *planning, uint32_t name)
{
    return rfs_plan_role(planning->planner, name, planning->origins[name].stage, planning->stage);
}

/* Names that come last, after all that both strategies have. */
struct rest {
    unsigned char *listed; /* by name id: it is in the list, left out, or in names */
    uint32_t *names;
    size_t n;
};

/* Adds the parameters that appear first in the files of one stage, or puts them off. */
static int add_stage(struct rfs_planning *planning, uint32_t s, struct rest *rest,
                     struct rfs_params *params)
{
    const struct rfs_stage_use *use = &planning->stages[s];
    const size_t n = use->presence ? use->presence->n : use->order->n;
    int rc = 0;

    for (size_t i = 0; !rc && i < n; i++) {
        const uint32_t name = use->presence ? use->presence->order[i] : use->order->entries[i].name;
        if (rest->listed[name])
            continue;
        rest->listed[name] = 1;
        const struct rfs_role role = role_in(planning, name);
        if (role.kind == RFS_ROLE_SLICED && role.shown)
            rc = add_param(planning, name, &role, params);
        else if (role.kind == RFS_ROLE_COPIED && role.shown)
            rest->names[rest->n++] = name;
    }
    return rc;
}

/*
 * Returns the parameter list that is equal to FRESH, or FRESH itself, which then belongs to the
 * planner. NULL when out of memory.
 */
static const struct rfs_params *share_params(struct rfs_planner *planner, struct rfs_params **fresh)
{
    const struct rfs_params *shared = NULL;
    struct rfs_params *mine = *fresh;

    RFS_LOCKED(&planner->lock);
    for (size_t i = planner->param_lists.n; !shared && i-- > 0;) {
        const struct rfs_params *have = planner->param_lists.data[i];
        if (have->stage == mine->stage && have->n == mine->n &&
            memcmp(have->targets, mine->targets, mine->n * sizeof *mine->targets) == 0)
            shared = have;
    }
    if (!shared) {
        mine->id = (uint32_t)planner->param_lists.n;
        if (RFS_PUSH(&planner->param_lists, mine)) {
            shared = mine;
            *fresh = NULL;
        }
    }
    return shared;
}

/* Fills a list, which has room for MOST parameters. */
static int fill_params(struct rfs_planning *planning, size_t most, struct rfs_params *params)
{
    RFS_FREE unsigned char *listed = calloc(planning->n_names + 1, 1);
    RFS_FREE uint32_t *names = malloc((most + 1) * sizeof *names);
    struct rest rest = {.listed = listed, .names = names};
    int rc = listed && names ? 0 : rfs_fail_memory(planning->err);

    for (uint32_t s = planning->n_stages; !rc && s-- > 0;)
        if (planning->stages[s].needed)
            rc = add_stage(planning, s, &rest, params);
    for (size_t i = 0; !rc && i < rest.n; i++) {
        const struct rfs_role role = role_in(planning, rest.names[i]);
        rc = add_param(planning, rest.names[i], &role, params);
    }
    return rc;
}

/*
 * Refuses a file of too many bytes. An image costs memory for each 512 MiB, and headers of sparse
 * files can promise 2^63 bytes for nothing.
 */
static int check_bytes(const struct rfs_planning *planning, const struct rfs_params *params)
{
    struct rfs_catalog *catalog = planning->catalog;
    uint64_t bytes = 0;

    for (size_t i = 0; i < params->n; i++) {
        const struct rfs_target *target = &params->targets[i];
        const uint64_t shown = rfs_catalog_type(catalog, target->shown_type)->bytes;
        if (!rfs_add_u64(bytes, shown, &bytes) || bytes > RFS_FILE_MOST)
            return rfs_fail(
                planning->err, -EFBIG,
                RFS_OF(rfs_catalog_path(catalog), rfs_catalog_name(catalog, target->name)), NULL,
                "with it, the file of rank_%u of the destination would have more than "
                "%llu TiB",
                planning->rank, (unsigned long long)(RFS_FILE_MOST >> 40));
    }
    return 0;
}

/* Refuses two parameters that the user's map gives one name. */
static int check_names(const struct rfs_planning *planning, const struct rfs_params *params)
{
    struct rfs_catalog *catalog = planning->catalog;

    if (!planning->planner->config.names)
        return 0;
    RFS_FREE uint32_t *first =
        calloc((size_t)rfs_intern_count(rfs_catalog_tables(catalog)->names) + 1, sizeof *first);
    if (!first)
        return rfs_fail_memory(planning->err);
    for (size_t i = 0; i < params->n; i++) {
        const struct rfs_target *target = &params->targets[i];
        const char *shown = rfs_catalog_name(catalog, target->shown_name);
        const uint32_t other = first[target->shown_name];
        if (other)
            return rfs_fail(planning->err, -EINVAL,
                            RFS_OF(rfs_catalog_path(catalog),
                                   rfs_catalog_name(catalog, params->targets[other - 1].name)),
                            rfs_names_of_adapters(planning->planner->config.names)
                                ? "adapter= with the name of one of them"
                                : "names of their own in the file of names=",
                            "this and '%s' would both be shown as '%s'",
                            rfs_catalog_name(catalog, target->name), shown);
        first[target->shown_name] = (uint32_t)i + 1;
    }
    return 0;
}

static int fail_empty(const struct rfs_planning *planning)
{
    const struct rfs_planner_config *config = &planning->planner->config;
    const bool chosen = rfs_names_leave_out(config->names);

    if (rfs_names_of_adapters(config->names))
        return rfs_fail(
            planning->err, -EINVAL, RFS_IN(rfs_catalog_path(config->catalog)),
            "NAME of a tensor lora_A.NAME.weight as adapter=", "has no tensor of such an adapter");
    return rfs_fail(planning->err, -EINVAL, RFS_IN(rfs_catalog_path(config->catalog)),
                    chosen ? "a parameter of each rank in only=; or an export of other --ranks"
                           : NULL,
                    chosen ? "only=, drop=, drop_source= and names= leave nothing that "
                             "rank_%u of the destination takes"
                           : "holds nothing that rank_%u of the destination takes",
                    planning->rank);
}

/*
 * Proves that the copied parameters of the sibling's list are the same for this rank: 1, or 0 when
 * one is not, or -errno.
 */
static int check_copied(struct rfs_planning *planning)
{
    const struct rfs_sibling *sibling = planning->sibling;
    RFS_FREE struct rfs_params *one = malloc(sizeof *one + sizeof *one->targets);
    int same = 1;

    if (!one)
        return rfs_fail_memory(planning->err);
    for (size_t i = 0; same == 1 && i < sibling->n_copied; i++) {
        const struct rfs_sibling_copied copied = sibling->copied[i];
        const struct rfs_role role = role_in(planning, copied.name);
        one->n = 0;
        const int rc = add_param(planning, copied.name, &role, one);
        if (rc)
            return rc;
        same = copied.at == RFS_NOT_LISTED
                   ? one->n == 0
                   : one->n == 1 && memcmp(&sibling->params->targets[copied.at], one->targets,
                                           sizeof *one->targets) == 0;
    }
    return same;
}

/* Takes the list of the planning's sibling: 1, or 0 when the rank has another, or -errno. */
static int take_sibling(struct rfs_planning *planning, const struct rfs_params **out)
{
    const int same = rfs_sibling_orders(planning) ? check_copied(planning) : 0;

    if (same == 1) {
        rfs_plan_note_unproved(planning);
        *out = planning->sibling->params;
    } else {
        planning->unproved.n = 0; /* the long way finds them again */
    }
    return same;
}

int rfs_plan_params(struct rfs_planning *planning, const struct rfs_params **out)
{
    size_t most = 0;
    const int taken = take_sibling(planning, out);

    if (taken)
        return taken < 0 ? taken : 0;
    for (uint32_t s = 0; s < planning->n_stages; s++) {
        const struct rfs_stage_use *use = &planning->stages[s];
        if (use->needed)
            most += use->presence ? use->presence->n : use->order->n;
    }
    RFS_FREE struct rfs_params *fresh = malloc(sizeof *fresh + most * sizeof *fresh->targets);
    if (!fresh)
        return rfs_fail_memory(planning->err);
    fresh->n = 0;
    fresh->stage = planning->stage;
    int rc = fill_params(planning, most, fresh);
    if (rc)
        return rc;
    if (fresh->n == 0)
        return fail_empty(planning);
    rc = check_bytes(planning, fresh) ?: check_names(planning, fresh);
    if (rc)
        return rc;
    rfs_plan_note_unproved(planning);
    *out = share_params(planning->planner, &fresh);
    return *out ? 0 : rfs_fail_memory(planning->err);
}
