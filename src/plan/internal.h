/* SPDX-License-Identifier: Apache-2.0 */
/* A planner, the plan that is being made, and what the files of this room share. */
#pragma once

#include "base/once.h"
#include "base/vec.h"
#include "plan/geometry.h"
#include "plan/planner.h"
#include "plan/replicas.h"
#include "plan/role.h"

#include <pthread.h>
#include <stdatomic.h>

/* What a planner has found of a source stage. */
struct rfs_planner_stage {
    _Atomic uint32_t lead; /* first rank that was indexed, which predicts others, or RFS_NO_RANK */
    _Atomic(struct rfs_presence *) presence; /* owned; NULL while no files were found to differ */
    atomic_int sizes;     /* SIZES_… of sources.c: whether files differ in size; 0: not asked */
    atomic_bool compared; /* ranks were compared, and the strategy was not refused (alike.c) */
    _Atomic(struct rfs_error *) refused; /* why it was; owned; NULL: it was not */
};

struct rfs_planner {
    struct rfs_planner_config config;
    const struct rfs_planner *from; /* the one that it is derived from, or NULL */
    struct rfs_scale scale;
    struct rfs_role_name *params; /* [parameters of the source strategy] by position; owned */
    struct rfs_plan_names *names; /* owned */
    bool by_stage;                /* one source stage becomes parts of the destination's files */
    uint32_t first_stage; /* number of the first source stage: 0, or that of a stage by itself */
    atomic_uint looked;   /* number of values that were looked at for notes (unproved.c) */

    struct rfs_planner_stage *stages; /* [source stages] */
    /*
     * [source ranks, from the first stage's base] serial of the index that samples of the rank's
     * headers agree with
     */
    atomic_uint_least64_t *resembled;

    pthread_mutex_t lock;                      /* of the tables; a leaf lock */
    struct rfs_intern *geometry_ids;           /* by what determines a geometry; owned */
    RFS_VEC(struct rfs_geometry *) geometries; /* by id; each owned, or NULL: not resolved */
    RFS_VEC(struct rfs_params *) param_lists;
    RFS_VEC(bool) compared; /* by name: its copies were (chunked.c) */

    _Atomic(struct rfs_sibling *)
        *siblings; /* [destination stages], NULL until a rank is planned */
    uint32_t n_ranks;
    _Atomic(struct rfs_rank_plan *) *ranks; /* [n_ranks], NULL until planned */
};

/* Places of a parameter that nothing proves. */
enum rfs_unproved_in {
    RFS_IN_ONE_STRATEGY, /* of two */
    RFS_IN_NO_STRATEGY,
    RFS_IN_SEVERAL_FILES, /* of a checkpoint that describes itself */
};

/* A parameter that is copied without a proof that it is whole. */
struct rfs_unproved {
    uint32_t name, type;
    uint32_t from;  /* the rank, or file, that it is copied from */
    uint32_t other; /* one that has other bytes, or RFS_NO_RANK: none was seen */
    enum rfs_unproved_in where;
    bool slice; /* by the source strategy it is cut */
};

/* Origin of a name, in one planning. */
struct rfs_plan_origin {
    uint32_t stage;    /* the lowest needed one whose files have it, or RFS_NO_STAGE */
    uint32_t type;     /* there, as the first rank that is looked at has it */
    uint32_t geometry; /* of its slices there; RFS_NO_ID: not resolved, or it is not cut */
};

/* A parameter that is copied, and its position in the parameter list, or RFS_NOT_LISTED. */
struct rfs_sibling_copied {
    uint32_t name, at;
};
#define RFS_NOT_LISTED UINT32_MAX

/* Bits of a rank of a source stage: why its headers are needed. */
enum {
    RFS_PROBED = 1,   /* to be looked at */
    RFS_ORDERS = 2,   /* for MindSpore's order: it would give something that is left out */
    RFS_PROVIDES = 4, /* for that, and its bytes */
};

/* A source stage in one planning. */
struct rfs_stage_use {
    bool needed;
    uint32_t base;                      /* global rank of its local rank 0 */
    uint32_t lead;                      /* global rank whose headers stand for the stage's */
    const struct rfs_index *lead_index; /* NULL when its file holds nothing; then differs */
    unsigned char *wanted;              /* [src_devices] bits by local rank */
    const struct rfs_index *order;      /* of the rank that MindSpore would load first */
    /*
     * NULL: the files that are looked at list the same parameters; then lead_index and order say
     * which
     */
    const struct rfs_presence *presence;
    bool differs;            /* the files list different ones, or may: a presence map is needed */
    bool hinted;             /* only the sizes of the files show it */
    char *damage;            /* the error of a rank that was passed over; owned; NULL: none */
    bool bereft;             /* a lost rank may have kept parameters that no file has */
    bool lacks;              /* the strategy has parameters that the lead lacks */
    RFS_VEC(uint32_t) wants; /* names of parameters that want ranks; of a geometry, the first */
};

/* Returns the number of names that the files of a stage have. */
static inline size_t rfs_stage_use_count(const struct rfs_stage_use *use)
{
    return use->presence ? use->presence->n : use->lead_index->n;
}
/* Returns name I of them. */
static inline uint32_t rfs_stage_use_name(const struct rfs_stage_use *use, size_t i)
{
    return use->presence ? use->presence->order[i] : use->lead_index->entries[i].name;
}

/* Sources of one destination rank's parameters, while its plan is being made. */
struct rfs_planning {
    struct rfs_planner *planner;
    struct rfs_catalog *catalog; /* the planner's */
    uint32_t devices;            /* of a source stage */
    uint32_t rank;               /* of the destination */
    uint32_t stage;              /* of the destination */
    uint32_t local;              /* the rank's place in its stage */
    uint32_t template;     /* the local source rank that MindSpore uses as this rank's template */
    struct rfs_error *err; /* never NULL */
    struct rfs_error unheard; /* its place when the caller wants none */

    uint32_t n_stages;            /* source stages */
    struct rfs_stage_use *stages; /* [n_stages] */

    RFS_VEC(unsigned char) seen; /* by geometry: bits that its cells have already, in this stage */
    RFS_VEC(struct rfs_unproved) unproved;
    const struct rfs_sibling *sibling; /* has the same leads; or NULL */
    bool wants;                        /* the parameter that was looked at last wants ranks */
    RFS_VEC(struct rfs_sibling_copied) copied;
    uint32_t n_names;
    struct rfs_plan_origin *origins; /* [n_names] by name id */
};

/* ---- roles (role.c) -------------------------------------------------------------------------- */

static inline struct rfs_role_rules rfs_plan_rules(const struct rfs_planner *planner)
{
    return (struct rfs_role_rules){planner->config.src, planner->config.dst, planner->config.names};
}

/* Makes an empty memory of names. NULL when out of memory. */
struct rfs_plan_names *rfs_plan_names_new(void);
void rfs_plan_names_free(struct rfs_plan_names *names);
/*
 * Returns a name of the catalogue as the strategies and the map know it. O(1), lock-free but for
 * the first call with that name.
 */
struct rfs_role_name rfs_plan_name(const struct rfs_planner *planner, uint32_t name);
/*
 * Returns the role of a source stage's parameter in a destination stage. A lacking parameter counts
 * as left out by the user's map.
 */
struct rfs_role rfs_plan_role(const struct rfs_planner *planner, uint32_t name, uint32_t src_stage,
                              uint32_t dst_stage);
/* Returns the role of parameter I of the source strategy, which may be in no file. */
struct rfs_role rfs_plan_role_of_param(const struct rfs_planner *planner, size_t i,
                                       uint32_t src_stage, uint32_t dst_stage);
/*
 * Says whether a parameter with that role is cut. Strings and map tensors that no layout cuts are
 * copied.
 */
static inline bool rfs_plan_is_cut(const struct rfs_role *role, const struct rfs_type *type)
{
    return role->kind == RFS_ROLE_SLICED && (type->kind == RFS_TENSOR || role->src || role->dst);
}

/*
 * Notes a parameter with a part that no file has, and RANK, which should have it: for planners that
 * go on without missing data, or list it. 0 or -ENOMEM.
 */
int rfs_plan_lack(const struct rfs_planner *planner, uint32_t name, uint32_t rank);
/* Says whether a planner that treats lost data as LOST says has noted a parameter. */
bool rfs_plan_is_lost(const struct rfs_planner *planner, uint32_t name, enum rfs_lost lost);

/* ---- what strategies and folders show (strategies.c) ----------------------------------------- */

/*
 * Sets the planner's scale, by_stage and first_stage, and proves that the strategies and the rank
 * folders fit together; unless what is lost may be, that each slice of the source has a rank folder
 * left that holds it; that a checkpoint that describes itself has all files of its save, or that
 * names= leaves out what is incomplete without them; and with strict, that its metadata is of these
 * files. Called once, by rfs_planner_new. 0, -ENOMEM, -EINVAL or -ENOENT with *err filled.
 */
int rfs_plan_check(struct rfs_planner *planner, struct rfs_error *err);
/*
 * Says whether the source has as many ranks as the destination strategy describes, and the source
 * strategy has another number.
 */
bool rfs_plan_looks_swapped(const struct rfs_planner *planner);
#define RFS_PLAN_SWAPPED "the two strategies the other way round: they look swapped"
/* Fails for a parameter with a slice that RANK should have. -ENOENT. */
int rfs_plan_fail_lost(const struct rfs_planner *planner, const char *param, uint32_t rank,
                       struct rfs_error *err);
/* Parameters of the source strategy that were never saved, or are lost. */
struct rfs_vanished {
    RFS_VEC(const char *) names; /* borrowed from the strategy */
    RFS_VEC(uint32_t) ranks;     /* for each name, a lost rank that should have a slice */
};
/*
 * Finds parameters outside of PARAMS with a slice that lost ranks should have, and no other rank
 * has. Returns 0 or -ENOMEM.
 */
int rfs_plan_find_vanished(const struct rfs_planner *planner, const struct rfs_params *params,
                           struct rfs_vanished *out);

/* ---- geometries (geometry.c) ----------------------------------------------------------------- */

/*
 * Gives the id of a geometry, which is resolved at the first call for its key: the role's layouts
 * and TYPE, that of a source slice. NAME, a parameter's, is for messages. The lock must not be
 * held. 0, or -ENOMEM, -ENOTSUP or -EINVAL with *err filled and *id RFS_NO_ID.
 */
int rfs_plan_geometry(struct rfs_planner *planner, const struct rfs_role *role, uint32_t type,
                      uint32_t name, uint32_t *id, struct rfs_error *err);
/* Returns the geometry of an id that rfs_plan_geometry gave; it lives as long as the planner. */
const struct rfs_geometry *rfs_plan_geometry_at(struct rfs_planner *planner, uint32_t id);
/*
 * Gives the type of the slice of a local destination rank, id in the catalogue's types: the
 * geometry's dst_type, unless a manual split gives ranks differing rows. 0 or -ENOMEM.
 */
int rfs_plan_target_type(struct rfs_planner *planner, const struct rfs_geometry *geometry,
                         uint32_t local, uint32_t *type);

/* ---- source ranks (sources.c) ---------------------------------------------------------------- */

/* Finds and indexes the source ranks that a planning needs. 0 or -errno with *err filled. */
int rfs_plan_sources(struct rfs_planning *planning);
/* Indexes only the rank that leads each needed stage. 0 or -errno. */
int rfs_plan_leads(struct rfs_planning *planning);

/* ---- what holds for all ranks of a destination stage (sibling.c) ----------------------------- */

struct rfs_sibling_stage {
    uint64_t lead, order; /* serials of the indexes; 0: the stage is not needed */
    bool lacks;           /* the strategy has parameters that the lead lacks */
    size_t n;
    uint32_t *names; /* parameters that mark_needed of sources.c has to look at; owned */
};
/* What the first plan of a destination stage found. Immutable. */
struct rfs_sibling {
    const struct rfs_params *params;
    size_t n_copied;
    struct rfs_sibling_copied *copied; /* owned */
    uint32_t n_stages;
    struct rfs_sibling_stage stages[]; /* [source stages] */
};

/* Sets planning->sibling, if a plan was made by the same leads. The leads are indexed. */
void rfs_sibling_find(struct rfs_planning *planning);
/* Says whether a planning has a sibling whose parameters are in the same order. */
bool rfs_sibling_orders(const struct rfs_planning *planning);
/* Keeps what a plan with these parameters found, if it is the first of its stage; in its use. */
void rfs_sibling_keep(struct rfs_planning *planning, const struct rfs_params *params);
void rfs_sibling_free(struct rfs_sibling *sibling);

/* ---- the parameter list (params.c) ----------------------------------------------------------- */

/* Makes the parameter list, or finds an equal one. 0 or -errno with *err filled. */
int rfs_plan_params(struct rfs_planning *planning, const struct rfs_params **out);

/* ---- parameters that nothing proves (unproved.c) --------------------------------------------- */

/*
 * Proves that a parameter without a layout, copied from a rank other than the template's, is the
 * same in all ranks that have it. FROM is the rank that rfs_plan_provider gives. 0 or -errno with
 * *err filled.
 */
int rfs_plan_check_replicas(struct rfs_planning *planning, const struct rfs_stage_use *use,
                            const struct rfs_entry *entry, uint32_t from);
/*
 * Refuses a parameter that is copied from rank FROM if strict does, else adds it to
 * planning->unproved. 0, or -errno with *err filled.
 */
int rfs_plan_unproved(struct rfs_planning *planning, const struct rfs_role *role,
                      const struct rfs_entry *entry, uint32_t from);
/* Makes notes on planning->unproved, as far as that is news. */
void rfs_plan_note_unproved(struct rfs_planning *planning);
/* Says whether a planner may look at one value more for notes, and counts it. */
bool rfs_plan_may_look(struct rfs_planner *planner);
/* Says whether a value is a tensor of one element. */
bool rfs_plan_one_element(const struct rfs_type *type);

/* ---- whether ranks are as the strategy says (alike.c) ---------------------------------------- */

/*
 * Compares ranks of each needed stage with what the source's strategy says that they hold, once.
 * EARLY: only the leads are indexed, and ranks that would cost many reads are left to the next
 * call. What contradicts the strategy is noted, or refused if it is most, or by strict: then each
 * call is, and only the first compares. 0 or -errno with *err filled.
 */
int rfs_plan_check_alike(struct rfs_planning *planning, bool early);

/* ---- checkpoints that describe themselves (chunked.c) ---------------------------------------- */

/*
 * Finds where all chunks of a plan are in their files, takes those files into its attributes, and
 * compares copies as chunked.c says. 0 or -errno with *err filled.
 */
int rfs_plan_chunked_attributes(struct rfs_planning *planning, struct rfs_rank_plan *plan);

/* ---- conversion rules (by_rules.c) ----------------------------------------------------------- */

/*
 * Proves that conversion rules make all shown tensors of complete ones. Returns 0, or -ENOENT with
 * *err filled.
 */
int rfs_by_rules_check_lost(const struct rfs_planner *planner, struct rfs_error *err);
/* Gives a plan the attributes of the whole source. 0 or -errno with *err filled. */
int rfs_by_rules_attributes(struct rfs_planning *planning, struct rfs_rank_plan *plan);

/* ---- times ----------------------------------------------------------------------------------- */

static inline bool rfs_plan_is_later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}
