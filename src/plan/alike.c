/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether ranks are as alike as the source's strategy says.
 *
 * No file says how it was cut, and the slices of another strategy may have equal shapes. But ranks
 * that hold the same slice have equal bytes, and the slices of trained weights differ nearly
 * everywhere. So ranks of each stage are compared by samples, before a mount answers or with the
 * first plan:
 *
 * - Parameters with one layout and one type are a kind. Of each kind a few are compared, weights
 *   and the states of an optimizer, and all single values up to VALUES_MOST.
 * - The lowest rank that has the parameter is compared with its farthest replica, which differs
 *   from it on every device axis that does not cut, in three places of the slice; and in one place
 *   with the ranks one step away, on each device axis and on each factor of it: some of these are
 *   replicas as well, others hold another slice.
 * - Replicas that differ contradict the strategy. So do ranks with equal bytes where it says that
 *   they hold different slices, but only where these are telling: zeros, constants, and a few
 *   values that repeat are equal in slices that differ.
 *
 * Integers of one axis are not compared: the state of a random generator is each rank's own.
 *
 * A save may be right although some replicas differ (counters of experts, statistics that are never
 * synchronized, states of an optimizer), so a few contradictions are a note, and refused by strict.
 * Where most of the weights of two axes or more contradict the strategy, it is not that of the
 * files, and the plan is refused.
 *
 * Cost: SAMPLE_BYTES for each sample, all of which are read at once; KINDS_MOST kinds. A rank whose
 * headers nobody has read is taken for the lead's likeness, if the first header, the last and the
 * size are; a contradiction counts only once all headers of its ranks were read.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/pages.h"
#include "plan/sample.h"

/* What is compared of a stage, and of a kind. An encrypted sample takes 64 MiB of decryption. */
#define VALUES_MOST 64
#define KINDS_MOST 32
#define KINDS_ENCRYPTED 4
#define WEIGHTS_MOST 3 /* of a kind */
#define STATES_MOST 2
#define STEPPED_MOST 2 /* weights that are compared with the ranks one step away */

#define HEADERS_LOOKED 2  /* of a rank that is taken for the lead's likeness */
#define DISTINCT_LEAST 16 /* elements of telling bytes */

/* A parameter that may be compared. */
struct subject {
    const struct rfs_layout *layout;
    uint32_t name, type;
    uint64_t bytes;
    size_t order; /* its place in the stage's list */
    bool single;  /* one element */
    bool state;   /* of an optimizer */
};

/* Subjects of one layout and type, by their places in the list: weights, then states. */
struct kind {
    size_t first, states, end;
    uint64_t bytes; /* of a slice */
};

/* Bytes of a slice in one rank. */
struct sample {
    size_t of;     /* its parameter, in comparing.compared */
    uint32_t rank; /* local */
    bool middle;   /* only the middle part */
    bool read[RFS_SAMPLE_PARTS];
    unsigned char *data; /* [RFS_SAMPLE_BYTES] in comparing.content */
};

/* A parameter that is compared. */
struct compared {
    const struct subject *subject;
    size_t first, end; /* samples: that of the lowest rank, then those of others */
    bool looked;       /* two were compared */
    uint32_t other;    /* the local rank that contradicts the strategy, or RFS_NO_RANK */
    bool equal;        /* its bytes are those of the lowest rank, but it has another slice */
};

/* The comparison of the ranks of a stage. */
struct comparing {
    struct rfs_planning *planning;
    const struct rfs_stage_use *use;
    bool early;             /* nothing but the lead's headers has been read */
    atomic_bool incomplete; /* a rank is left to the first plan */
    struct {
        const struct rfs_index *index; /* NULL: not to be compared */
        bool wanted;
        bool guessed; /* the index is the lead's */
        bool suspect; /* it contradicts the strategy, and is not to be guessed */
    } * ranks;        /* [devices] */
    RFS_VEC(struct subject) subjects;
    RFS_VEC(struct kind) kinds;
    RFS_VEC(struct compared) compared;
    RFS_VEC(struct sample) samples;
    /* Bytes of all samples; owned. They may be decrypted, and core files leave them out. */
    unsigned char *content;
};

static void comparing_end(struct comparing *comparing)
{
    free(comparing->ranks);
    free(comparing->subjects.data);
    free(comparing->kinds.data);
    free(comparing->compared.data);
    rfs_pages_free(comparing->content, comparing->samples.n * RFS_SAMPLE_BYTES);
    free(comparing->samples.data);
}

/* ---- what is compared ------------------------------------------------------------------------ */

/*
 * Says whether a parameter is a state of another: "moments.layer1.weight" where there is a
 * "layer1.weight".
 */
static bool is_state(struct rfs_catalog *catalog, const char *name)
{
    struct rfs_intern *names = rfs_catalog_tables(catalog)->names;

    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        if (dot[1] && rfs_intern_find(names, dot + 1, strlen(dot + 1)) != RFS_NO_ID)
            return true;
    return false;
}

static uint32_t type_of(const struct rfs_stage_use *use, size_t i)
{
    return use->presence ? rfs_presence_of(use->presence, use->presence->order[i])->type
                         : use->lead_index->entries[i].type;
}

/* Adds parameter I of the stage's list if it can be compared. False when out of memory. */
static bool add_subject(struct comparing *comparing, uint32_t s, size_t i)
{
    const struct rfs_planning *planning = comparing->planning;
    const uint32_t name = rfs_stage_use_name(comparing->use, i);
    const uint32_t id = type_of(comparing->use, i);
    const struct rfs_type *type = rfs_catalog_type(planning->catalog, id);
    const struct rfs_role role = rfs_plan_role(planning->planner, name, s, planning->stage);
    const bool single = rfs_plan_one_element(type);

    if (role.kind == RFS_ROLE_DROPPED || !role.shown || !role.src ||
        role.src->unclear != RFS_CLEAR || type->kind != RFS_TENSOR || type->bytes == 0 ||
        (!single && type->ndim < 2 && !rfs_dtype_is_float((enum rfs_dtype)type->dtype)))
        return true;
    const struct subject subject = {
        .layout = role.src,
        .name = name,
        .type = id,
        .bytes = type->bytes,
        .order = i,
        .single = single,
        .state = is_state(planning->catalog, rfs_catalog_name(planning->catalog, name)),
    };
    return RFS_PUSH(&comparing->subjects, subject);
}

RFS_COMPARE(by_kind, struct subject, x, y,
            RFS_ORDER(y->single, x->single)
                ?: RFS_ORDER(x->layout->id, y->layout->id)
                ?: RFS_ORDER(x->type, y->type) ?: RFS_ORDER(x->state, y->state)
                ?: RFS_ORDER(x->order, y->order))

/* The largest slices first. */
RFS_COMPARE(by_bytes, struct kind, x, y,
            RFS_ORDER(y->bytes, x->bytes) ?: RFS_ORDER(x->first, y->first))

/* Divides the subjects, which are sorted, from AT on. False when out of memory. */
static bool find_kinds(struct comparing *comparing, size_t at)
{
    const struct subject *subjects = comparing->subjects.data;

    while (at < comparing->subjects.n) {
        const struct subject *first = &subjects[at];
        struct kind kind = {.first = at, .states = at, .bytes = first->bytes};
        for (; at < comparing->subjects.n && subjects[at].layout == first->layout &&
               subjects[at].type == first->type;
             at++)
            kind.states += !subjects[at].state;
        kind.end = at;
        if (!RFS_PUSH(&comparing->kinds, kind))
            return false;
    }
    RFS_SORT_ALL(&comparing->kinds, by_bytes);
    return true;
}

/* ---- the ranks that are compared ------------------------------------------------------------- */

/* Says whether a local rank has a file of its own with the parameter. */
static bool has(const struct comparing *comparing, const struct rfs_provider_query *query,
                uint32_t local)
{
    return rfs_plan_has(query, local) &&
           !rfs_catalog_stands_in(comparing->planning->catalog, query->base + local);
}

static bool add_sample(struct comparing *comparing, uint32_t local, bool middle)
{
    const struct sample sample = {
        .of = comparing->compared.n, .rank = local, .middle = middle, .read = {false}};

    comparing->ranks[local].wanted = true;
    return RFS_PUSH(&comparing->samples, sample);
}

/* Returns the least factor of N, which is above 1. */
static uint32_t factor_of(uint32_t n)
{
    for (uint32_t factor = 2; factor * factor <= n; factor++)
        if (n % factor == 0)
            return factor;
    return n;
}

/* Adds the ranks one step away from FIRST but FAR. False when out of memory. */
static bool add_steps(struct comparing *comparing, const struct rfs_provider_query *query,
                      const struct rfs_layout *layout, uint32_t first, uint32_t far)
{
    uint32_t stride = 1;

    for (uint32_t p = layout->n_dev; p-- > 0; stride *= layout->dev[p]) {
        const uint32_t extent = layout->dev[p];
        const uint32_t digit = first / stride % extent;
        for (uint32_t step = 1; step < extent; step *= factor_of(extent / step)) {
            const uint32_t local = first + ((digit + step) % extent) * stride - digit * stride;
            if (local != far && has(comparing, query, local) && !add_sample(comparing, local, true))
                return false;
        }
    }
    return true;
}

/* Adds the samples of a parameter. STEPPED: of the ranks one step away, too. */
static bool add_compared(struct comparing *comparing, const struct subject *subject, bool stepped)
{
    const struct rfs_provider_query query =
        rfs_plan_query(comparing->planning, comparing->use, subject->name);
    const uint32_t devices = comparing->planning->devices;
    struct compared compared = {
        .subject = subject, .first = comparing->samples.n, .other = RFS_NO_RANK};
    uint32_t first = 0;
    uint32_t far = devices - 1;

    while (first < devices && !has(comparing, &query, first))
        first++;
    if (first == devices)
        return true;
    const uint32_t slice = rfs_layout_slice(subject->layout, first);
    while (far > first &&
           (rfs_layout_slice(subject->layout, far) != slice || !has(comparing, &query, far)))
        far--;
    if (!add_sample(comparing, first, false) ||
        (far != first && !add_sample(comparing, far, false)) ||
        (stepped && !add_steps(comparing, &query, subject->layout, first, far)))
        return false;
    compared.end = comparing->samples.n;
    return RFS_PUSH(&comparing->compared, compared);
}

/* Adds MOST subjects of the N from FIRST on, with the first and the last of them. */
static bool add_some(struct comparing *comparing, size_t first, size_t n, size_t most,
                     size_t stepped)
{
    const size_t count = n < most ? n : most;

    for (size_t k = 0; k < count; k++) {
        const size_t at = count == 1 ? 0 : k * (n - 1) / (count - 1);
        if (!add_compared(comparing, &comparing->subjects.data[first + at], k < stepped))
            return false;
    }
    return true;
}

/* Lists the samples of a stage. False when out of memory. */
static bool list_samples(struct comparing *comparing, uint32_t s)
{
    struct rfs_files *files = rfs_catalog_files(comparing->planning->catalog);
    const bool encrypted = rfs_files_are_encrypted(files);
    const size_t most = encrypted ? KINDS_ENCRYPTED : KINDS_MOST;
    size_t singles = 0;
    bool good = true;

    for (size_t i = 0; good && i < rfs_stage_use_count(comparing->use); i++)
        good = add_subject(comparing, s, i);
    RFS_SORT_ALL(&comparing->subjects, by_kind);
    while (singles < comparing->subjects.n && comparing->subjects.data[singles].single)
        singles++;
    good = good && find_kinds(comparing, singles) &&
           add_some(comparing, 0, singles, encrypted ? 1 : VALUES_MOST, 0);
    for (size_t i = 0; good && i < comparing->kinds.n && i < most; i++) {
        const struct kind *kind = &comparing->kinds.data[i];
        const size_t weights = kind->states - kind->first;
        const size_t states = kind->end - kind->states;
        good = add_some(comparing, kind->first, weights, encrypted ? 1 : WEIGHTS_MOST,
                        encrypted ? 0 : STEPPED_MOST) &&
               add_some(comparing, kind->states, states, encrypted ? 0 : STATES_MOST, 0);
    }
    return good;
}

/* Makes room for what is read. False when out of memory. */
static bool make_room(struct comparing *comparing)
{
    const size_t n = comparing->samples.n;

    if (n == 0)
        return true;
    comparing->content = rfs_pages_alloc(n * RFS_SAMPLE_BYTES);
    for (size_t i = 0; comparing->content && i < n; i++)
        comparing->samples.data[i].data = comparing->content + i * RFS_SAMPLE_BYTES;
    return comparing->content;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Finds the index of a local rank. Files that cannot be read are left to those who need them. */
static int find_index(void *ctx, size_t local)
{
    struct comparing *comparing = ctx;
    struct rfs_catalog *catalog = comparing->planning->catalog;
    const struct rfs_stage_use *use = comparing->use;
    const uint32_t rank = use->base + (uint32_t)local;
    const uint32_t lead = use->lead_index ? use->lead : RFS_NO_RANK;
    const struct rfs_index *index = rfs_catalog_ready(catalog, rank);
    int rc = 0;

    if (!comparing->ranks[local].wanted)
        return 0;
    comparing->ranks[local].guessed =
        !index && !comparing->ranks[local].suspect && lead != RFS_NO_RANK &&
        rfs_catalog_resembles(catalog, rank, lead, HEADERS_LOOKED) == 1;
    if (comparing->ranks[local].guessed)
        index = use->lead_index;
    else if (!index && comparing->early && !comparing->ranks[local].suspect &&
             rfs_formats[rfs_catalog_format(catalog)].spread)
        atomic_store(&comparing->incomplete, true);
    else if (!index)
        rc = rfs_catalog_index(catalog, rank, lead, &index, NULL);
    comparing->ranks[local].index = rc ? NULL : index;
    return rc == -EINTR || rc == -ENOMEM ? rc : 0;
}

/* Returns the bytes of part P of a slice of BYTES that the sample has. */
static size_t part_of(const struct sample *sample, uint64_t bytes, unsigned p)
{
    const bool all = bytes <= RFS_SAMPLE_BYTES;
    uint64_t from;

    return all || p == RFS_SAMPLE_PARTS / 2 || !sample->middle ? rfs_sample_part(bytes, p, &from)
                                                               : 0;
}

static int read_part(void *ctx, size_t i)
{
    struct comparing *comparing = ctx;
    struct sample *sample = &comparing->samples.data[i / RFS_SAMPLE_PARTS];
    const struct subject *subject = comparing->compared.data[sample->of].subject;
    const struct rfs_index *index = comparing->ranks[sample->rank].index;
    const struct rfs_entry *entry = index ? rfs_index_find(index, subject->name) : NULL;
    const unsigned p = (unsigned)(i % RFS_SAMPLE_PARTS);

    sample->read[p] = false;
    if (!entry || entry->type != subject->type || rfs_index_strides(index, entry) ||
        part_of(sample, subject->bytes, p) == 0)
        return 0;
    const int rc = rfs_sample_read(comparing->planning, comparing->use->base + sample->rank, index,
                                   entry, p, p + 1, sample->data);
    sample->read[p] = rc == 0;
    return rc == -EINTR || rc == -ENOMEM ? rc : 0;
}

/* ---- the comparison -------------------------------------------------------------------------- */

/* Says whether bytes are so varied that two slices do not have the same of them by chance. */
static bool are_telling(const unsigned char *bytes, size_t n, size_t item)
{
    const unsigned char *found[DISTINCT_LEAST];
    size_t n_found = 0;

    for (size_t at = 0; at + item <= n && n_found < DISTINCT_LEAST; at += item) {
        size_t k = 0;
        while (k < n_found && memcmp(found[k], bytes + at, item) != 0)
            k++;
        if (k == n_found)
            found[n_found++] = bytes + at;
    }
    return n_found == DISTINCT_LEAST;
}

/* Compares a sample with that of the lowest rank. */
static void compare(const struct comparing *comparing, struct compared *compared, size_t number)
{
    const struct subject *subject = compared->subject;
    const struct sample *first = &comparing->samples.data[compared->first];
    const struct sample *other = &comparing->samples.data[number];
    const struct rfs_type *type = rfs_catalog_type(comparing->planning->catalog, subject->type);
    const size_t item = rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    bool equal = true;
    bool telling = false;

    for (unsigned p = 0; p < RFS_SAMPLE_PARTS; p++) {
        const size_t n = part_of(other, subject->bytes, p);
        const size_t at = p * RFS_SAMPLE_PART;
        if (n == 0)
            continue;
        if (!first->read[p] || !other->read[p])
            return;
        equal = equal && memcmp(first->data + at, other->data + at, n) == 0;
        telling = telling || are_telling(first->data + at, n, item > 0 ? item : 1);
    }
    const bool replicas = rfs_layout_slice(subject->layout, first->rank) ==
                          rfs_layout_slice(subject->layout, other->rank);
    compared->looked = true;
    if (compared->other != RFS_NO_RANK || (replicas ? equal : !equal || !telling))
        return;
    compared->other = other->rank;
    compared->equal = equal;
}

/* Compares all that was read. Returns whether headers are to be read to be sure of it. */
static bool compare_all(struct comparing *comparing)
{
    bool guessed = false;

    for (size_t i = 0; i < comparing->compared.n; i++) {
        struct compared *compared = &comparing->compared.data[i];
        compared->looked = false;
        compared->other = RFS_NO_RANK;
        for (size_t at = compared->first + 1; at < compared->end; at++)
            compare(comparing, compared, at);
        if (compared->other == RFS_NO_RANK)
            continue;
        const uint32_t first = comparing->samples.data[compared->first].rank;
        comparing->ranks[first].suspect = comparing->ranks[compared->other].suspect = true;
        guessed =
            guessed || comparing->ranks[first].guessed || comparing->ranks[compared->other].guessed;
    }
    return guessed;
}

static int read_and_compare(struct comparing *comparing)
{
    struct rfs_pool *pool = comparing->planning->planner->config.pool;
    bool guessed;
    int rc;

    do {
        rc = rfs_pool_for(pool, comparing->planning->devices, find_index, comparing)
                 ?: rfs_pool_for(pool, comparing->samples.n * RFS_SAMPLE_PARTS, read_part,
                                 comparing);
        guessed = rc == 0 && compare_all(comparing);
    } while (guessed);
    return rc;
}

/* ---- what is said ---------------------------------------------------------------------------- */

struct counts {
    size_t compared, wrong;
    size_t weights, wrong_weights; /* of two axes or more */
};

static void count(const struct comparing *comparing, struct counts *out,
                  const struct compared **first)
{
    for (size_t i = 0; i < comparing->compared.n; i++) {
        const struct compared *compared = &comparing->compared.data[i];
        const struct subject *subject = compared->subject;
        const bool wrong = compared->looked && compared->other != RFS_NO_RANK;
        const bool weight = compared->looked && !subject->state &&
                            rfs_catalog_type(comparing->planning->catalog, subject->type)->ndim > 1;
        out->compared += compared->looked;
        out->wrong += wrong;
        out->weights += weight;
        out->wrong_weights += weight && wrong;
        if (wrong && !*first)
            *first = compared;
    }
}

/* Writes what to do about it. MOST: the strategy is refused. */
static void write_remedy(char *out, size_t size, bool by_rules, bool equal, bool most)
{
    snprintf(out, size, "%s%s%s%s",
             !by_rules ? "another strategy"
             : most    ? "other rules"
             : equal   ? "a rule that does not cut it"
                       : "a rule that cuts it",
             most ? "" : ", or files of one save",
             equal      ? ""
             : by_rules ? "; reshard verify lists all that differ"
                        : "; reshard verify SRC -s FILE lists all that differ",
             most ? "; or trust_strategy, to go on all the same" : "");
}

/* Refuses the strategy, in this plan and in those to come. */
static int refuse(const struct rfs_planning *planning, uint32_t s, const struct rfs_error *err)
{
    struct rfs_error *refused = malloc(sizeof *refused);

    *planning->err = *err;
    if (!refused)
        return rfs_fail_memory(planning->err);
    *refused = *err;
    return RFS_PUBLISH(&planning->planner->stages[s].refused, refused, free)->code;
}

/* Refuses or notes the first parameter that contradicts the strategy, and counts the others. */
static int report(const struct comparing *comparing, uint32_t s)
{
    const struct rfs_planning *planning = comparing->planning;
    const struct rfs_planner_config *config = &planning->planner->config;
    const struct compared *found = NULL;
    struct counts counts = {0};
    struct rfs_error err = {0};
    char remedy[160];
    char line[32] = "";

    count(comparing, &counts, &found);
    if (!found)
        return 0;
    const bool most = config->unlike != RFS_UNLIKE_TOLD &&
                      (counts.weights > 0 ? counts.wrong_weights * 2 > counts.weights
                                          : counts.wrong * 2 > counts.compared);
    const struct rfs_layout *layout = found->subject->layout;
    const bool whole = rfs_layout_slice(layout, layout->devices - 1) == 0;
    if (layout->line > 0)
        snprintf(line, sizeof line, ": line %u", layout->line);
    write_remedy(remedy, sizeof remedy, rfs_strategy_facts(config->src)->by_rules, found->equal,
                 most);
    rfs_fail(&err, -EINVAL,
             RFS_OF(rfs_files_path(
                        rfs_catalog_files(planning->catalog),
                        rfs_catalog_file(planning->catalog, comparing->use->base + found->other)),
                    rfs_catalog_name(planning->catalog, found->subject->name)),
             remedy,
             "has %s rank_%u, and is %s by %s%s; %zu of %zu parameters that were compared "
             "contradict it",
             found->equal ? "the same bytes as" : "other bytes than in",
             comparing->use->base + comparing->samples.data[found->first].rank,
             found->equal ? "another slice"
             : whole      ? "whole"
                          : "the same slice",
             rfs_strategy_name(config->src), line, counts.wrong, counts.compared);
    if (most || config->unlike == RFS_UNLIKE_REFUSED)
        return refuse(planning, s, &err);
    if (rfs_notes_are_new(planning->planner, RFS_NOTE_ALIKE, s))
        rfs_notes_add(planning->planner, RFS_NOTE_ALIKE, RFS_WARNING, "%s", err.text);
    return 0;
}

static int check_stage(struct rfs_planning *planning, uint32_t s, bool early)
{
    const struct rfs_stage_use *use = &planning->stages[s];
    const struct rfs_error *refused = RFS_PUBLISHED(&planning->planner->stages[s].refused);
    RFS_CLEANUP(comparing_end)
    struct comparing comparing = {.planning = planning, .use = use, .early = early};

    if (refused) {
        *planning->err = *refused;
        return refused->code;
    }
    /* Files that list different parameters are compared when it is known which has which. */
    const bool later = early && !use->presence && use->lead_index->redundancy_removed;
    if (!later && (use->presence || use->lead_index)) {
        comparing.ranks = calloc(planning->devices, sizeof *comparing.ranks);
        if (!comparing.ranks || !list_samples(&comparing, s) || !make_room(&comparing))
            return rfs_fail_memory(planning->err);
        int rc = read_and_compare(&comparing);
        if (rc == -ENOMEM && early) /* the first plan compares, and its reader may try again */
            return 0;
        rc = rc == -ENOMEM ? rfs_fail_memory(planning->err) : rc ?: report(&comparing, s);
        if (rc)
            return rc;
    }
    if (!later && !atomic_load(&comparing.incomplete))
        atomic_store(&planning->planner->stages[s].compared, true);
    return 0;
}

int rfs_plan_check_alike(struct rfs_planning *planning, bool early)
{
    const struct rfs_planner *planner = planning->planner;
    int rc = 0;

    if (!planner->config.src || planner->config.by_rules || planning->devices == 1 ||
        planner->config.unlike == RFS_UNLIKE_UNASKED)
        return 0;
    for (uint32_t s = 0; rc == 0 && s < planning->n_stages; s++)
        if (planning->stages[s].needed && !atomic_load(&planner->stages[s].compared))
            rc = check_stage(planning, s, early);
    return rc;
}
