/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the plan room only. */
#pragma once

#include "base/vec.h"
#include "plan/geometry.h"
#include "plan/planner.h"
#include "plan/presence.h"
#include "plan/role.h"

#include <pthread.h>
#include <stdatomic.h>

struct geometry_slot {
    const struct rfs_layout *src;
    const struct rfs_layout *dst;
    uint32_t type;                 /* of the source slice */
    struct rfs_geometry *geometry; /* owned */
};

struct rfs_planner {
    struct rfs_planner_config config;
    struct rfs_scale scale;
    struct rfs_role_name *params; /* [parameters of the source strategy] by position; owned */
    struct rfs_plan_names *names; /* owned */
    bool part;            /* by stage: one source stage becomes parts of the destination's files */
    uint32_t first_stage; /* number of the first source stage: 0, or that of a stage by itself */
    /*
     * Of unproved.c. How many values were looked at; how they are reported (enum rfs_telling); by
     * name, what was reported, under the lock.
     */
    atomic_bool reported_match; /* the log says that little matches */
    atomic_uint looked;
    atomic_int telling;
    RFS_VEC(unsigned char) reported;
    atomic_bool *lost; /* [source ranks, from the first stage's base] the line about its replica
                            was logged */

    _Atomic uint32_t *leads; /* [source stages] the first that was indexed, from which others are
                                predicted; RFS_NO_RANK until then */

    /*
     * [source stages] of the stages whose files were found to list different parameters, else NULL;
     * owned
     */
    _Atomic(struct rfs_presence *) *presences;
    atomic_int *sizes;              /* [source stages] set by sizes.c */
    atomic_bool *reported_presence; /* [source stages] the presence map was reported in the log */
    /* [source stages] a failure to make the presence map was logged */
    atomic_bool *reported_damaged;
    /*
     * Of probe.c. [source ranks, from the first stage's base] the serial of the index that samples
     * of a rank's headers were found to agree with, or 0; [source stages] the log says that nothing
     * but samples were read.
     */
    atomic_uint_least64_t *resembled;
    atomic_bool *sampled;

    pthread_mutex_t lock;                     /* of the tables; a leaf lock */
    RFS_VEC(struct geometry_slot) geometries; /* by id */
    uint32_t *geometry_table;                 /* open addressing: id + 1, or 0 */
    size_t geometry_cap;                      /* a power of two, or 0 */
    RFS_VEC(struct rfs_params *) param_lists;

    uint32_t n_ranks;
    _Atomic(struct rfs_rank_plan *) *ranks; /* [n_ranks], NULL until planned */
};

/* What is known of a parameter that nothing proves. */
enum rfs_unproved_in {
    RFS_IN_ONE_STRATEGY, /* one of two strategies has it */
    RFS_IN_NO_STRATEGY,
    RFS_IN_SEVERAL_FILES, /* of a checkpoint that describes itself */
};

/* A parameter that is copied without a proof that it is whole. */
struct unproved {
    uint32_t name, type;
    uint32_t from;  /* the rank, or file, that it is copied from */
    uint32_t other; /* one that has other bytes, or RFS_NO_RANK: none was seen */
    enum rfs_unproved_in where;
    bool slice; /* by the source strategy it is cut */
};

/* Bits of a planner's reported: what the log has about a name, and what was looked at. */
enum { RFS_TOLD = 1, RFS_TOLD_TO_DIFFER = 2, RFS_COPIES_COMPARED = 4 };

/* Where a name comes from, in one planning. */
struct origin {
    uint32_t stage;    /* the lowest needed one whose files have it, or RFS_NO_STAGE */
    uint32_t type;     /* there, as the first rank that is looked at has it */
    uint32_t geometry; /* of its slices there; RFS_NO_ID: not resolved, or it is not cut */
};

/*
 * Where the parameters of one destination rank come from, while its plan is being made; from
 * rfs_planning_begin to rfs_planning_end.
 */
struct planning {
    struct rfs_planner *planner;
    uint32_t rank;     /* of the destination */
    uint32_t stage;    /* of the destination */
    uint32_t local;    /* the rank's place in its stage */
    uint32_t template; /* the local source rank that MindSpore uses as this rank's template */
    struct rfs_error *err;

    uint32_t n_stages;        /* source stages */
    struct stage_use *stages; /* [n_stages] */

    RFS_VEC(unsigned char)
    seen; /* by geometry: the needs that its cells have already, in this stage */
    RFS_VEC(struct unproved) unproved;
    uint32_t n_names;
    struct origin *origins; /* [n_names] by name id */
};

/* The need of a rank of a source stage. */
enum {
    PROBED = 1,   /* its headers */
    ORDERS = 2,   /* MindSpore's order: it would give something that is left out */
    PROVIDES = 4, /* that, and bytes */
};

struct stage_use {
    bool needed;
    uint32_t base;                      /* global rank of its local rank 0 */
    uint32_t lead;                      /* global rank whose headers stand for the stage's */
    const struct rfs_index *lead_index; /* NULL when its file holds nothing; then differs */
    unsigned char *wanted;              /* [src_devices] by local rank */
    const struct rfs_index *order;      /* of the rank that MindSpore would load first */
    /*
     * NULL: its files that are looked at list the same parameters; then lead_index and order say
     * which.
     */
    const struct rfs_presence *presence;
    bool differs; /* they do not, or may not: a presence map is needed */
    bool hinted;  /* their sizes alone show it */
    char *damage; /* the error of a rank that was passed over; owned; NULL: none */
    bool bereft;  /* a lost rank may have kept parameters that no file has */
};

/* 0, or -ENOMEM with *err filled. Ended in any case. */
int rfs_planning_begin(struct rfs_planner *planner, uint32_t rank, struct planning *planning,
                       struct rfs_error *err);
void rfs_planning_end(struct planning *planning);

static inline struct rfs_role_rules rfs_plan_rules(const struct rfs_planner *planner)
{
    return (struct rfs_role_rules){planner->config.src, planner->config.dst,
                                   planner->config.output_map};
}
/* The names of the catalogue, as the strategies and the map know them; names.c. */
struct rfs_plan_names *rfs_plan_names_new(void);
void rfs_plan_names_free(struct rfs_plan_names *names);
/* Of one name. O(1), lock-free but for the first call with that name. */
struct rfs_role_name rfs_plan_name(const struct rfs_planner *planner, uint32_t name);
/*
 * The role of a source stage's parameter in a destination stage. A lacking parameter counts as left
 * out by the user's map.
 */
struct rfs_role rfs_plan_role(const struct rfs_planner *planner, uint32_t name, uint32_t src_stage,
                              uint32_t dst_stage);
/* The same of parameter I of the source strategy, which may be in no file. */
struct rfs_role rfs_plan_role_of_param(const struct rfs_planner *planner, size_t i,
                                       uint32_t src_stage, uint32_t dst_stage);
/*
 * Whether a parameter with that role is cut. Strings and map tensors that no layout cuts are
 * copied.
 */
static inline bool rfs_plan_is_cut(const struct rfs_role *role, const struct rfs_type *type)
{
    return role->kind == RFS_ROLE_SLICED && (type->kind == RFS_TENSOR || role->src || role->dst);
}
/*
 * For planners that go on without missing data; lacking.c. Each notes something: 0 or -ENOMEM. A
 * parameter that is lacking counts as left out by the user's map.
 */
int rfs_plan_lack(const struct rfs_planner *planner, uint32_t name, uint32_t rank);
int rfs_plan_lack_stage(const struct planning *planning, uint32_t s);
int rfs_plan_lack_file(const struct rfs_planner *planner, uint32_t rank);
bool rfs_plan_is_lacking(const struct rfs_planner *planner, uint32_t name);
/* Whether the planner lists it, and some part of it is in no file; rfs_plan_lack noted it. */
bool rfs_plan_is_incomplete(const struct rfs_planner *planner, uint32_t name);

/*
 * Sets stages[s].needed for each source stage s whose files a destination stage takes something
 * from.
 */
void rfs_plan_needed_stages(const struct rfs_planner *planner, uint32_t dst_stage,
                            struct stage_use *stages);
/*
 * Sets the planner's scale, part and first_stage, and proves that the strategies and the rank
 * folders fit together. Called once, by rfs_planner_new. 0, or -EINVAL with *err filled.
 */
int rfs_plan_check_strategies(struct rfs_planner *planner, struct rfs_error *err);
/*
 * Whether the source has as many ranks as the destination strategy describes, and the source
 * strategy others.
 */
bool rfs_plan_looks_swapped(const struct rfs_planner *planner);
#define RFS_PLAN_SWAPPED "the two strategies the other way round: they look swapped"
/*
 * Whether each slice of the source has a rank folder left that holds it; lost.c. 0, -ENOMEM, or
 * -ENOENT with *err filled.
 */
int rfs_plan_check_lost(const struct rfs_planner *planner, struct rfs_error *err);
/*
 * Parameters of the source strategy that are not in PARAMS, and of which lost ranks should have a
 * slice that no other rank has: they were never saved, or lost. 0 or -ENOMEM.
 */
struct rfs_vanished {
    RFS_VEC(const char *) names; /* borrowed from the strategy */
    RFS_VEC(uint32_t) ranks;     /* one such rank for each name */
};
int rfs_plan_find_vanished(const struct rfs_planner *planner, const struct rfs_params *params,
                           struct rfs_vanished *out);
void rfs_plan_vanished_end(struct rfs_vanished *vanished);
/* Fails for a parameter with a slice that RANK should have. -ENOENT. */
int rfs_plan_fail_lost(const struct rfs_planner *planner, const char *param, uint32_t rank,
                       struct rfs_error *err);
/*
 * Refuses a tensor that conversion rules make of SOURCE, a tensor that is not complete; converted.c.
 * -ENOENT.
 */
int rfs_plan_fail_made(const struct rfs_planner *planner, const char *made, uint32_t source,
                       struct rfs_error *err);
/*
 * Whether the tensors that conversion rules make, and that are shown, are made of complete ones;
 * converted.c. 0, or -ENOENT with *err filled.
 */
int rfs_plan_check_made(const struct rfs_planner *planner, struct rfs_error *err);
/*
 * Whether a checkpoint that describes itself has all files of its save, or names= leaves out what
 * is incomplete without them; and with strict, whether its metadata is of these files. 0, -EINVAL
 * or -ENOENT with *err filled.
 */
int rfs_plan_check_chunks(const struct rfs_planner *planner, struct rfs_error *err);

/*
 * The id of the geometry, resolved at the first call for its key: the role's layouts and TYPE, that
 * of a source slice. NAME, a parameter's, is for messages. 0, or -ENOMEM, -ENOTSUP or -EINVAL with
 * *err filled and *id RFS_NO_ID. Not with the lock held.
 */
int rfs_plan_geometry(struct rfs_planner *planner, const struct rfs_role *role, uint32_t type,
                      uint32_t name, uint32_t *id, struct rfs_error *err);
/* The geometry of an id that rfs_plan_geometry gave; lives as long as the planner. */
const struct rfs_geometry *rfs_plan_geometry_at(struct rfs_planner *planner, uint32_t id);

/*
 * The type of the slice of a local destination rank, id in the catalogue's types: the geometry's
 * dst_type, unless a manual split gives ranks differing rows. 0 or -ENOMEM.
 */
int rfs_plan_target_type(struct rfs_planner *planner, const struct rfs_geometry *geometry,
                         uint32_t local, uint32_t *type);

/* The global rank of a source stage's local rank 0. */
uint32_t rfs_plan_base(const struct rfs_planner *planner, uint32_t src_stage);

/*
 * The providers of a parameter; providers.c. A source stage, its presence map or NULL, a name that
 * its files have, and the local rank that MindSpore takes the destination rank for.
 */
struct provider_query {
    const struct rfs_planner *planner;
    const struct rfs_presence *presence;
    uint32_t base; /* of the stage */
    uint32_t name;
    uint32_t template;
};
/*
 * The requested piece: a cell of a grid, or the slice that the template's rank holds by a layout,
 * or neither.
 */
struct piece {
    const struct rfs_grid *grid;
    const uint32_t *cell;
    /* NULL with no grid: whatever the template's rank has */
    const struct rfs_layout *layout;
    uint32_t slice; /* of the layout */
};
static inline struct piece rfs_piece_cell(const struct rfs_geometry *geometry, const uint32_t *cell)
{
    return (struct piece){.grid = &geometry->src, .cell = cell};
}
static inline struct piece rfs_piece_slice(const struct rfs_layout *layout, uint32_t template)
{
    return (struct piece){.layout = layout,
                          .slice = layout ? rfs_layout_slice(layout, template) : 0};
}
/*
 * Whether a local rank holds the piece by the strategy, whatever its file has. CTX is a struct
 * piece.
 */
bool rfs_plan_holds(const void *ctx, uint32_t rank);
/*
 * The local rank that MindSpore takes it from: the one that holds it and is the template in every
 * digit that cuts nothing.
 */
uint32_t rfs_plan_first(const struct provider_query *provider_query, const struct piece *piece);
/*
 * The global rank that gives it: MindSpore's, or the lowest that holds it and has a file with the
 * parameter. RFS_NO_RANK when there is none. In one view all calls give the same answer, with the
 * presence map or (as long as there is none) without.
 */
uint32_t rfs_plan_provider(const struct provider_query *provider_query, const struct piece *piece);
/* Whether a local rank has a file with the parameter. */
bool rfs_plan_has(const struct provider_query *provider_query, uint32_t rank);

/* The ranks that a planning needs, indexed; sources.c. */
int rfs_plan_sources(struct planning *planning);
/* Of those the rank that leads each stage, and nothing else. 0 or -errno. */
int rfs_plan_leads(struct planning *planning);
/* Whether the ranks of a source stage have files of different sizes; sizes.c. */
bool rfs_plan_sizes_differ(struct rfs_planner *planner, uint32_t s);
/* Names for a message: the first few, and how many there are in all; report.c. */
struct note {
    size_t n;
    uint64_t hash; /* of all the names */
    char names[400];
    size_t used;
};
void rfs_plan_note(struct note *note, const char *param);
/* Whether it is the accumulated gradient of a parameter, which is never saved. */
bool rfs_plan_is_gradient(const char *param);
/* Reports a stage's new presence map in the log, as far as it concerns the user; report.c. */
void rfs_plan_report_presence(struct rfs_planner *planner, const struct stage_use *use, uint32_t s);
/*
 * Looks in the replicas of a stage's lead for parameters that it lacks; probe.c. After
 * rfs_plan_need. 0 or
 * -ENOMEM.
 */
int rfs_plan_probe(struct planning *planning, uint32_t s);
/* Marks the ranks that a stage's parameters come from; needed.c. */
int rfs_plan_need(struct planning *planning, uint32_t s);
/*
 * Refuses a parameter that is cut, and whose slice in RANK is not of the same type as that in
 * OTHER, both global ranks of one stage. -EINVAL.
 */
int rfs_plan_types_differ(const struct planning *planning, uint32_t name, uint32_t rank,
                          uint32_t other);
/*
 * Proves that the ranks of a stage that give something have the rows that manual splits of the
 * source strategy give them; rows.c. 0, or -EINVAL with *err filled.
 */
int rfs_plan_check_rows(struct planning *planning, uint32_t s);
/* The common attributes of the files of a plan's sources; attributes.c. */
int rfs_plan_attributes(struct planning *planning, struct rfs_rank_plan *plan);
/*
 * Whether a parameter without a layout, copied from a rank other than the template's, is the same
 * in all ranks that have it; replicas.c. FROM is the rank that rfs_plan_provider gives.
 */
int rfs_plan_check_replicas(struct planning *planning, const struct stage_use *use,
                            const struct rfs_entry *entry, uint32_t from);
bool rfs_plan_one_element(const struct rfs_type *type);
const char *rfs_plan_path(const struct planning *planning, uint32_t rank);
static inline struct provider_query rfs_plan_query_of(const struct rfs_planner *planner,
                                                      uint32_t local,
                                                      const struct rfs_target *target)
{
    return (struct provider_query){
        planner, atomic_load_explicit(&planner->presences[target->stage], memory_order_acquire),
        rfs_plan_base(planner, target->stage), target->name, local % planner->scale.src_devices};
}
static inline struct provider_query rfs_plan_query(const struct planning *planning,
                                                   const struct stage_use *use, uint32_t name)
{
    return (struct provider_query){planning->planner, use->presence, use->base, name,
                                   planning->template};
}
/* All bytes of a value, or some from its beginning, middle and end. */
#define RFS_SAMPLE_BYTES 3072
struct rfs_sample {
    size_t n;
    unsigned char data[RFS_SAMPLE_BYTES];
};
/* Reads them of an entry of the rank's index; unproved.c. 0 or -errno. */
int rfs_plan_sample(const struct planning *planning, uint32_t rank, const struct rfs_index *index,
                    const struct rfs_entry *entry, struct rfs_sample *sample);
/*
 * For a parameter copied from rank FROM: refuses it if strict does, else adds it to
 * planning->unproved for the log. 0, or -errno with *err filled.
 */
int rfs_plan_unproved(struct planning *planning, const struct rfs_role *role,
                      const struct rfs_entry *entry, uint32_t from);
/*
 * Refuses a strategy without any parameter of the files; match.c. After rfs_plan_sources. 0 or
 * -EINVAL.
 */
int rfs_plan_check_match(struct planning *planning);
/*
 * Whether it would, by the indexes that are there. After rfs_plan_leads, which may not have all
 * names.
 */
bool rfs_plan_matches_nothing(struct planning *planning);
/* Reports it in the log, as far as that is news. 0 or -ENOMEM. */
int rfs_plan_report_unproved(struct planning *planning);
/* Whether a planner may look at one value more for the log. */
bool rfs_plan_may_look(struct rfs_planner *planner);
struct rfs_bad_copy;
/*
 * rfs_planner_copies and rfs_planner_bad_copies of a checkpoint that describes itself, for a target
 * with bytes; boxed_copies.c.
 */
uint32_t rfs_plan_chunked_copies(struct rfs_planner *planner, const struct rfs_target *target);
int rfs_plan_chunked_bad_copies(struct rfs_planner *planner, uint32_t local,
                                const struct rfs_target *target,
                                void (*each)(void *ctx, const struct rfs_bad_copy *bad), void *ctx);
/* Of a planner of converted tensors; converted.c. As those of boxed.h. */
int rfs_plan_converted_slice(struct rfs_planner *planner, uint32_t local,
                             const struct rfs_target *target, struct rfs_slice *slice);
/* The attributes are those of the whole source. 0 or -errno with *err filled. */
int rfs_plan_converted_attributes(struct planning *planning, struct rfs_rank_plan *plan);
/* The parameter list; params.c. */
int rfs_plan_params(struct planning *planning, const struct rfs_params **out);
