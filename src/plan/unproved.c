/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that are copied from one rank, and that nothing proves to be whole, or the same on
 * other ranks.
 *
 * A parameter without a layout is copied from one certain rank. When that rank is lost, or its file
 * does not have it, nothing says that another has the same value, so it is refused; but for
 *
 * - one element (global_step, learning_rate), which MindSpore keeps the same on all ranks: one that
 *   is the same, bit for bit, on all ranks of the stage that have it is taken from the lowest of
 *   them, and a note says so when a rank was lost. strict refuses that too.
 * - parameters of one rank alone, while others of the stage have files without them:
 *   remove_redundancy, which takes all ranks for replicas where a network has no layouts, made that
 *   rank the one that keeps them.
 *
 * When a given strategy lacks a parameter, nothing proves that what ranks have is no slice. A
 * single value (one element, or a string) that no strategy cuts is whole. All others are reported
 * in notes, with their shapes, and refused by strict. Whether the ranks that a file is made from
 * differ in it is seen by samples of its bytes, as slices differ nearly everywhere; SAMPLES_MOST
 * bounds the reads of a planner for that. Under strict these ranks must agree in single values,
 * too.
 */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "layout/grid.h"
#include "plan/sample.h"

#define SAMPLES_MOST 1024 /* values that are looked at, in all ranks together */
#define NAME_SHOWN 120
#define UNSLICED "without -o strict, to copy it unsliced"

#define ELEMENT_MOST 16 /* bytes of the largest element */

#define NAMES_SHOWN 5

/* A sample of a value. */
struct sample {
    size_t n;
    unsigned char data[RFS_SAMPLE_BYTES];
};

/* Reads a sample of an entry of a rank's index. 0 or -errno. */
static int take_sample(const struct rfs_planning *planning, uint32_t rank,
                       const struct rfs_index *index, const struct rfs_entry *entry,
                       struct sample *sample)
{
    const uint64_t bytes = rfs_catalog_type(planning->catalog, entry->type)->bytes;

    sample->n = (size_t)rfs_min_u64(bytes, sizeof sample->data);
    return rfs_sample_read(planning, rank, index, entry, 0, RFS_SAMPLE_PARTS, sample->data);
}

bool rfs_plan_one_element(const struct rfs_type *type)
{
    return type->kind == RFS_TENSOR && type->bytes <= ELEMENT_MOST &&
           type->bytes == rfs_dtype_bytes((enum rfs_dtype)type->dtype);
}

/* ---- parameters without a layout ------------------------------------------------------------- */

static int read_value(const struct rfs_planning *planning, uint32_t rank, uint32_t name,
                      uint32_t type, struct sample *value)
{
    const struct rfs_index *index = rfs_catalog_ready(planning->catalog, rank);
    const struct rfs_entry *entry = index ? rfs_index_find(index, name) : NULL;

    if (!entry || entry->type != type)
        return -ENOENT;
    return take_sample(planning, rank, index, entry, value);
}

/*
 * Compares the values of all ranks that have a parameter. 0 when they are equal, -ENOENT when not,
 * or another -errno.
 */
static int compare_values(struct rfs_planning *planning, const struct rfs_provider_query *query,
                          uint32_t from, const struct rfs_entry *entry)
{
    struct sample value;
    struct sample other;
    int rc = read_value(planning, from, entry->name, entry->type, &value);

    for (uint32_t rank = 0; !rc && rank < planning->devices; rank++) {
        if (query->base + rank == from || !rfs_plan_has(query, rank))
            continue;
        rc = read_value(planning, query->base + rank, entry->name, entry->type, &other);
        if (!rc && memcmp(value.data, other.data, value.n) != 0)
            rc = -ENOENT;
    }
    return rc;
}

static bool is_on_one_rank(const struct rfs_stage_use *use, uint32_t name)
{
    const struct rfs_presence_view *of =
        use->presence ? rfs_presence_of(use->presence, name) : NULL;
    return of && of->ranks == 1 && use->presence->present > 1;
}

int rfs_plan_check_replicas(struct rfs_planning *planning, const struct rfs_stage_use *use,
                            const struct rfs_entry *entry, uint32_t from)
{
    const struct rfs_planner_config *config = &planning->planner->config;
    const struct rfs_type *type = rfs_catalog_type(config->catalog, entry->type);
    const char *param = rfs_catalog_name(config->catalog, entry->name);
    const struct rfs_where where = RFS_OF(rfs_catalog_path(config->catalog), param);
    const struct rfs_provider_query query = rfs_plan_query(planning, use, entry->name);
    const uint32_t template = use->base + planning->template;
    const bool lost = !rfs_catalog_has(config->catalog, template);
    RFS_FREE char *remedy = rfs_text_printf(
        "%s, or drop=%s",
        lost ? "the checkpoint of that rank" : "the checkpoints as they were saved", param);
    int rc = -ENOENT;

    if (is_on_one_rank(use, entry->name))
        return 0;
    if (!config->strict && rfs_plan_one_element(type))
        rc = compare_values(planning, &query, from, entry);
    if (rc == -ENOENT && lost)
        return rfs_fail(
            planning->err, rc, where, remedy,
            "has no layout and is copied from rank_%u, whose checkpoint is missing; the "
            "ranks that are left do not prove its value",
            template);
    if (rc == -ENOENT)
        return rfs_fail(
            planning->err, -EINVAL, where, remedy,
            "has no layout and is copied from rank_%u, whose checkpoint does not have it; the "
            "ranks that have it do not prove its value",
            template);
    if (rc)
        return rfs_fail(planning->err, rc, where, NULL,
                        "cannot be compared over the ranks that are left: %s", strerror(-rc));
    if (lost)
        rfs_notes_add(planning->planner, RFS_NOTE_ONE_VALUE, RFS_WARNING,
                      "parameter '%s': rank_%u is missing; the same value in all other ranks of "
                      "its stage is used",
                      param, template);
    return 0;
}

/* ---- parameters that a strategy lacks -------------------------------------------------------- */

static bool cuts(const struct rfs_layout *layout)
{
    return layout && rfs_layout_slice(layout, layout->devices - 1) != 0;
}

static bool is_single(const struct rfs_role *role, const struct rfs_type *type)
{
    return (rfs_plan_one_element(type) || type->kind == RFS_STRING) && !cuts(role->src) &&
           !cuts(role->dst);
}

bool rfs_plan_may_look(struct rfs_planner *planner)
{
    return atomic_load_explicit(&planner->looked, memory_order_relaxed) < SAMPLES_MOST &&
           atomic_fetch_add_explicit(&planner->looked, 1, memory_order_relaxed) < SAMPLES_MOST;
}

/* Says whether a rank has another value than MINE under the name: 1, 0, or -errno. */
static int differs(const struct rfs_planning *planning, uint32_t rank,
                   const struct rfs_entry *entry, const struct sample *mine)
{
    const struct rfs_index *index = rfs_catalog_ready(planning->catalog, rank);
    const struct rfs_entry *here = index ? rfs_index_find(index, entry->name) : NULL;
    struct sample sample;

    if (!here)
        return 0;
    if (here->type != entry->type)
        return 1;
    return take_sample(planning, rank, index, here, &sample)
               ?: memcmp(sample.data, mine->data, mine->n) != 0;
}

/*
 * Sets *other to a rank that the file is made from and that has another value than FROM, or to
 * RFS_NO_RANK. Unless BOUNDED, all ranks are looked at. 0 or -errno.
 */
static int find_other(struct rfs_planning *planning, const struct rfs_entry *entry, uint32_t from,
                      bool bounded, uint32_t *other)
{
    const struct rfs_index *index = rfs_catalog_ready(planning->planner->config.catalog, from);
    struct sample mine = {.n = 0};
    int rc = 0;

    *other = RFS_NO_RANK;
    if (!index || rfs_index_strides(index, entry)) /* its bytes do not lie in a row */
        return 0;
    for (uint32_t s = 0; s < planning->n_stages; s++)
        for (uint32_t local = 0; planning->stages[s].needed && local < planning->devices; local++) {
            const uint32_t rank = planning->stages[s].base + local;
            if (rank == from || !(planning->stages[s].wanted[local] & RFS_PROVIDES))
                continue;
            if (bounded && !rfs_plan_may_look(planning->planner))
                return 0;
            if (mine.n == 0)
                rc = take_sample(planning, from, index, entry, &mine);
            rc = rc ? rc : differs(planning, rank, entry, &mine);
            if (rc > 0)
                *other = rank;
            if (rc != 0)
                return rc < 0 ? rc : 0;
        }
    return 0;
}

static int refuse(struct rfs_planning *planning, const struct rfs_role *role,
                  const struct rfs_entry *entry, uint32_t from)
{
    const struct rfs_where where = RFS_OF(rfs_catalog_path(planning->catalog),
                                          rfs_catalog_name(planning->catalog, entry->name));
    uint32_t other;

    if (!is_single(role, rfs_catalog_type(planning->catalog, entry->type)))
        return !planning->planner->config.src || !planning->planner->config.dst
                   ? rfs_fail(planning->err, -EINVAL, where, UNSLICED, "is not in the strategy")
                   : rfs_fail(planning->err, -EINVAL, where, UNSLICED, "is in %s",
                              role->in_src != role->in_dst ? "only one of the strategies"
                                                           : "neither strategy");
    const int rc = find_other(planning, entry, from, false, &other);
    if (rc)
        return rfs_fail(planning->err, rc, where, NULL,
                        "cannot be compared over the ranks that the file is made from: %s",
                        strerror(-rc));
    return other == RFS_NO_RANK
               ? 0
               : rfs_fail(planning->err, -EINVAL, where,
                          "checkpoints of one save; or without -o strict, to copy it as one rank "
                          "has it",
                          "no strategy proves its value, and rank_%u has another one than rank_%u",
                          other, from);
}

int rfs_plan_unproved(struct rfs_planning *planning, const struct rfs_role *role,
                      const struct rfs_entry *entry, uint32_t from)
{
    const struct rfs_planner_config *config = &planning->planner->config;
    const struct rfs_type *type = rfs_catalog_type(config->catalog, entry->type);
    const bool one_side = config->src && config->dst && role->in_src != role->in_dst;
    struct rfs_unproved found = {.name = entry->name,
                                 .type = entry->type,
                                 .from = from,
                                 .other = RFS_NO_RANK,
                                 .where = one_side ? RFS_IN_ONE_STRATEGY : RFS_IN_NO_STRATEGY,
                                 .slice = cuts(role->src)};

    if (role->kind != RFS_ROLE_COPIED)
        return 0; /* all strategies that are given have it */
    if (config->strict)
        return refuse(planning, role, entry, from);
    if (!one_side &&
        (is_single(role, type) || rfs_notes_form(planning->planner) == RFS_TELL_ONE_SIDED))
        return 0;
    if (!found.slice) /* a failure to read is reported by the reader */
        find_other(planning, entry, from, true, &found.other);
    return RFS_PUSH(&planning->unproved, found) ? 0 : rfs_fail_memory(planning->err);
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* Shortens the list to what is news. */
static void take_news(struct rfs_planning *planning)
{
    size_t n = 0;

    for (size_t i = 0; i < planning->unproved.n; i++) {
        const struct rfs_unproved found = planning->unproved.data[i];
        const bool news = rfs_notes_are_new(planning->planner, RFS_NOTE_UNPROVED, found.name);
        if ((found.other != RFS_NO_RANK &&
             rfs_notes_are_new(planning->planner, RFS_NOTE_UNPROVED_DIFFER, found.name)) ||
            news)
            planning->unproved.data[n++] = found;
    }
    planning->unproved.n = n;
}

/*
 * Writes what differs: "model_world_size_8_rank_1.pt has other bytes than
 * model_world_size_8_rank_0.pt", or "".
 */
static const char *show_other(const struct rfs_planning *planning, const struct rfs_unproved *found,
                              char *out, size_t size)
{
    struct rfs_files *files = rfs_catalog_files(planning->catalog);

    *out = '\0';
    if (found->slice)
        snprintf(out, size, "a slice of it");
    else if (found->other == RFS_NO_RANK)
        ;
    else if (found->where != RFS_IN_SEVERAL_FILES)
        snprintf(out, size, "rank_%u has other bytes than rank_%u", found->other, found->from);
    else
        snprintf(out, size, "%.*s has other bytes than %.*s", NAME_SHOWN,
                 rfs_path_name(rfs_files_path(files, found->other)), NAME_SHOWN,
                 rfs_path_name(rfs_files_path(files, found->from)));
    return out;
}

/* Makes a note on one parameter. */
static void note_each(const struct rfs_planning *planning, const struct rfs_unproved *found,
                      const char *shape, const char *where, const char *how)
{
    const char *name = rfs_catalog_name(planning->catalog, found->name);
    const enum rfs_level level =
        found->where == RFS_IN_ONE_STRATEGY || *how ? RFS_WARNING : RFS_INFO;
    char from[NAME_SHOWN + 1];

    if (found->where == RFS_IN_SEVERAL_FILES)
        snprintf(from, sizeof from, "%s",
                 rfs_path_name(rfs_files_path(rfs_catalog_files(planning->catalog), found->from)));
    else
        snprintf(from, sizeof from, "rank_%u", found->from);
    rfs_notes_add(planning->planner, RFS_NOTE_UNPROVED, level,
                  "parameter '%s' of %s is in %s, copied%s as %s has it%s%s", name, shape, where,
                  found->where == RFS_IN_SEVERAL_FILES ? "" : " unsliced", from, *how ? "; " : "",
                  how);
}

/* Makes notes on the parameters of one place: one that names the first few, or many. */
static void note_place(const struct rfs_planning *planning, enum rfs_unproved_in in)
{
    static const char *const places[] = {
        [RFS_IN_ONE_STRATEGY] = "only one strategy",
        [RFS_IN_NO_STRATEGY] = "no strategy",
        [RFS_IN_SEVERAL_FILES] = "several files",
    };
    const bool each = rfs_notes_form(planning->planner) == RFS_TELL_EACH;
    bool differ = false;
    struct rfs_text_names names = {.n = 0};

    for (size_t i = 0; i < planning->unproved.n; i++) {
        const struct rfs_unproved *found = &planning->unproved.data[i];
        const struct rfs_type *type = rfs_catalog_type(planning->catalog, found->type);
        char shape[RFS_MAX_DIMS * 22 + 3];
        char how[2 * NAME_SHOWN + 32];
        char item[NAME_SHOWN + sizeof shape + sizeof how + 8];
        if (found->where != in)
            continue;
        rfs_text_dims(shape, sizeof shape, type->ndim, type->dims);
        show_other(planning, found, how, sizeof how);
        snprintf(item, sizeof item, "%.*s %s%s%s%s", NAME_SHOWN,
                 rfs_catalog_name(planning->catalog, found->name), shape, *how ? " (" : "", how,
                 *how ? ")" : "");
        differ |= *how != '\0';
        rfs_text_add_name(&names, NAMES_SHOWN, item);
        if (each)
            note_each(planning, found, shape, places[in], how);
    }
    if (names.n > 0 && !each)
        rfs_notes_add(planning->planner, RFS_NOTE_UNPROVED,
                      in == RFS_IN_ONE_STRATEGY || differ ? RFS_WARNING : RFS_INFO,
                      "%zu parameter%s in %s, copied %s: %s", names.n, names.n == 1 ? "" : "s",
                      places[in], in == RFS_IN_SEVERAL_FILES ? "as one of them has it" : "unsliced",
                      names.text);
}

void rfs_plan_note_unproved(struct rfs_planning *planning)
{
    take_news(planning);
    note_place(planning, RFS_IN_ONE_STRATEGY);
    note_place(planning, RFS_IN_NO_STRATEGY);
    note_place(planning, RFS_IN_SEVERAL_FILES);
}
