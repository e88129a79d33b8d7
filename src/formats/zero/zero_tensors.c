/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a save of ZeRO, from its flat data: zero.c draws both. */
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "formats/zero/internal.h"

#define STATES "optim.state."
#define CHUNKS_MOST (UINT32_C(1) << 25) /* 1.7 GB */
#define ALIASES_TIMES 16                /* most chunks of names for data of other names */

/* ---- from flat tensors to parameters --------------------------------------------------------- */

/* Returns the path of a rank's file of the optimizer. */
static const char *path_of(const struct rfs_zero_opening *opening, uint32_t rank)
{
    return rfs_files_path(opening->files, opening->n_models + rank);
}

static int misfit(const struct rfs_zero_opening *opening, uint32_t rank,
                  const struct rfs_zero_state *state, const char *what)
{
    return rfs_fail(opening->err, -EINVAL,
                    RFS_OF(path_of(opening, rank), state && state->key ? state->key : NULL),
                    RFS_ZERO_REMEDY, "%s", what);
}

static const struct rfs_zero_part *part_of(const struct rfs_zero_opening *opening,
                                           const struct rfs_zero_state *state, size_t flat,
                                           uint32_t rank)
{
    return &state->parts[rank * opening->n_flats + flat];
}

/* Says whether a state has an element for each of the weights. */
static bool is_elementwise(const struct rfs_zero_opening *opening,
                           const struct rfs_zero_state *state)
{
    const struct rfs_zero_state *weights = &opening->states.data[0];

    for (size_t f = 0; f < opening->n_flats; f++)
        if (part_of(opening, state, f, 0)->there &&
            part_of(opening, state, f, 0)->elems < part_of(opening, weights, f, 0)->elems &&
            !part_of(opening, state, f, 0)->is_scalar)
            return false;
    return true;
}

/*
 * Compares a state with the weights: all ranks have it, as long as the weights or, in stages 1 and
 * 2, longer, in one dtype. 1, 0 when no rank has it, or -errno.
 */
static int check_state(const struct rfs_zero_opening *opening, const struct rfs_zero_state *state,
                       size_t flat)
{
    const struct rfs_zero_part *first = part_of(opening, state, flat, 0);
    bool lacks = false;
    bool has = false;

    for (uint32_t r = 0; r < opening->world; r++) {
        const struct rfs_zero_part *part = part_of(opening, state, flat, r);
        const uint64_t elems = part_of(opening, &opening->states.data[0], flat, r)->elems;
        lacks |= !part->there && elems > 0;
        has |= part->there && elems > 0;
        if (lacks && has)
            return misfit(opening, r, state,
                          "some ranks have this state of a group, and others not");
        if (!part->there || elems == 0)
            continue;
        if (part->dtype != first->dtype || part->is_scalar != first->is_scalar)
            return misfit(opening, r, state, "its dtype differs between the ranks");
        if (!part->is_scalar && part->elems < elems)
            return misfit(opening, r, state, "it has fewer elements than the weights");
    }
    return has;
}

/* Gives the length of a group, and checks that its parts are equal, up to padding at the end. */
static int check_group(const struct rfs_zero_opening *opening, size_t g)
{
    const struct rfs_zero_state *weights = &opening->states.data[0];
    const struct rfs_zero_group *group = &opening->groups.data[g];
    const uint64_t least = part_of(opening, weights, g, 0)->elems;
    const uint64_t aligned = 2 * (uint64_t)opening->world;
    uint64_t total = 0;
    uint64_t used = 0;
    bool ended = false;

    for (uint32_t r = 0; r < opening->world; r++) {
        const uint64_t elems = part_of(opening, weights, g, r)->elems;
        if (elems > least || (ended && elems > 0))
            return misfit(opening, r, NULL, "its part of a group is longer than those before it");
        ended |= elems < least;
        if (!rfs_add_u64(total, elems, &total))
            return misfit(opening, r, NULL, "its parts are too long");
    }
    for (size_t i = group->first; i < group->first + group->n; i++) {
        const struct rfs_zero_param *param = &opening->params.data[i];
        if (!rfs_add_u64(used, param->elems, &used) || used > total ||
            !rfs_add_u64(used, param->gap, &used))
            return rfs_fail(opening->err, -EINVAL,
                            RFS_OF(path_of(opening, 0), rfs_zero_text(opening, param->name)),
                            RFS_ZERO_REMEDY, "the parts of its group end before it");
    }
    return used <= UINT64_MAX / 2 &&
                   (used + aligned - 1) / aligned == (total + aligned - 1) / aligned
               ? 0
               : misfit(opening, 0, NULL,
                        "the parts of a group have other elements than its "
                        "parameters");
}

/* Checks the lengths of the flat tensors of stage 3. */
static int check_flats(const struct rfs_zero_opening *opening)
{
    const struct rfs_zero_state *weights = &opening->states.data[0];
    uint64_t total = 0;
    uint64_t used = 0;

    for (size_t f = 0; f < opening->n_flats; f++) {
        for (uint32_t r = 1; r < opening->world; r++)
            if (part_of(opening, weights, f, r)->elems != part_of(opening, weights, f, 0)->elems)
                return misfit(opening, r, NULL, "a group in it has another length than rank 0's");
        if (!rfs_add_u64(total, part_of(opening, weights, f, 0)->elems, &total))
            return misfit(opening, 0, NULL, "its parts are too long");
    }
    for (size_t i = 0; i < opening->n_trained; i++) {
        const uint64_t elems = opening->params.data[i].elems;
        const uint64_t each = rfs_ceil_u64(elems, opening->world);
        if (!rfs_add_u64(used, each, &used))
            used = UINT64_MAX;
    }
    return used == total
               ? 0
               : misfit(opening, 0, NULL,
                        "the parts of the groups have other elements than the parameters");
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Begins a tensor of a parameter's shape, whose chunks are ranges of its elements. */
static int begin_tensor(const struct rfs_zero_opening *opening, const char *name,
                        const struct rfs_zero_param *param, uint8_t dtype)
{
    struct rfs_chunks *chunks = opening->chunks;
    struct rfs_type type = *rfs_chunks_type(chunks, param->type);
    struct rfs_type row = {.ndim = 1, .dtype = dtype, .kind = RFS_TENSOR, .dims = {param->elems}};

    type.dtype = dtype;
    rfs_type_bytes(&type, &type.bytes); /* less than with FLOAT64 */
    const int rc = rfs_chunks_add_tensor(chunks, name, strlen(name),
                                         param->elems > 0 ? &row : &type, opening->err);
    if (rc)
        return rc;
    struct rfs_chunked_tensor *tensor = &chunks->tensors.data[chunks->tensors.n - 1];
    tensor->type = rfs_intern_add(opening->tables->types, &type, sizeof type);
    return tensor->type != RFS_NO_ID ? 0 : rfs_fail_memory(opening->err);
}

/* Adds elements of the last tensor: N from BEGIN on, which are at AT of a file. */
static int add_chunk(const struct rfs_zero_opening *opening, uint64_t begin, uint64_t n,
                     uint32_t file, uint64_t at)
{
    struct rfs_chunks *chunks = opening->chunks;

    if (chunks->chunks.n >= CHUNKS_MOST)
        return rfs_fail(opening->err, -EFBIG, RFS_IN(rfs_files_path(opening->files, 0)), NULL,
                        "its tensors have more than %u pieces", CHUNKS_MOST);
    return rfs_chunks_add_chunk(chunks, &begin, &n, opening->err)
               ?: rfs_chunks_store(chunks, &chunks->tensors.data[chunks->tensors.n - 1], &begin,
                                   file, at, n, opening->err);
}

/* Adds the chunks of a parameter that begins at element OFF of its group (stages 1 and 2). */
static int add_from_group(const struct rfs_zero_opening *opening,
                          const struct rfs_zero_state *state, size_t group, uint64_t off,
                          const struct rfs_zero_param *param)
{
    const struct rfs_zero_state *weights = &opening->states.data[0];
    const uint64_t each = part_of(opening, weights, group, 0)->elems;
    int rc = 0;

    for (uint64_t done = 0; rc == 0 && done < param->elems;) {
        const uint32_t rank = (uint32_t)((off + done) / each);
        const uint64_t from = (off + done) % each;
        const uint64_t n = rfs_min_u64(param->elems - done, each - from);
        const struct rfs_zero_part *part = part_of(opening, state, group, rank);
        rc = add_chunk(opening, done, n, part->file,
                       part->at + from * rfs_dtype_bytes((enum rfs_dtype)part->dtype));
        done += n;
    }
    return rc;
}

/* A place in the flat tensors of stage 3. */
struct place {
    size_t flat;
    uint64_t off; /* elements */
};

/* Moves a place by N elements, behind the flat tensors that end there. */
static void move(const struct rfs_zero_opening *opening, struct place *place, uint64_t n)
{
    const struct rfs_zero_state *weights = &opening->states.data[0];

    place->off += n;
    while (place->flat < opening->n_flats &&
           place->off >= part_of(opening, weights, place->flat, 0)->elems)
        place->off -= part_of(opening, weights, place->flat++, 0)->elems;
}

/* Adds the chunks of a parameter that begins at a place of each rank's flat tensors. */
static int add_from_ranks(const struct rfs_zero_opening *opening,
                          const struct rfs_zero_state *state, struct place begin,
                          const struct rfs_zero_param *param)
{
    const struct rfs_zero_state *weights = &opening->states.data[0];
    const uint64_t each = rfs_ceil_u64(param->elems, opening->world);
    uint64_t done = 0;
    int rc = 0;

    for (uint32_t rank = 0; rc == 0 && done < param->elems; rank++) {
        const uint64_t end = done + rfs_min_u64(each, param->elems - done);
        struct place at = begin;
        while (rc == 0 && done < end) {
            const struct rfs_zero_part *part = part_of(opening, state, at.flat, rank);
            const uint64_t n =
                rfs_min_u64(end - done, part_of(opening, weights, at.flat, rank)->elems - at.off);
            rc = add_chunk(opening, done, n, part->file,
                           part->at + at.off * rfs_dtype_bytes((enum rfs_dtype)part->dtype));
            done += n;
            move(opening, &at, n);
        }
    }
    return rc;
}

/* Says whether a state has the same dtype in all flat tensors from FLAT on that a parameter has. */
static bool is_even(const struct rfs_zero_opening *opening, const struct rfs_zero_state *state,
                    struct place begin, const struct rfs_zero_param *param, const bool *there)
{
    const uint64_t each = rfs_ceil_u64(param->elems, opening->world);
    const uint8_t dtype = part_of(opening, state, begin.flat, 0)->dtype;
    struct place end = begin;

    move(opening, &end, each > 0 ? each - 1 : 0);
    for (size_t f = begin.flat; f <= end.flat && f < opening->n_flats; f++)
        if (part_of(opening, &opening->states.data[0], f, 0)->elems > 0 &&
            (!there[f] || part_of(opening, state, f, 0)->dtype != dtype))
            return false;
    return true;
}

/* Adds the tensor of a state for a parameter, or the parameter itself, under a name. */
static int add_tensor(const struct rfs_zero_opening *opening, const struct rfs_zero_state *state,
                      const char *name, struct place at, const struct rfs_zero_param *param,
                      const bool *there)
{
    static const struct rfs_type number = {.kind = RFS_TENSOR};
    struct rfs_zero_param shape = *param;

    if (param->elems > 0 ? !there[at.flat] : state->key != NULL)
        return 0;
    if (param->elems > 0 && opening->by_rank && !is_even(opening, state, at, param, there))
        return rfs_fail(opening->err, -EINVAL, RFS_OF(path_of(opening, 0), name), RFS_ZERO_REMEDY,
                        "it lies in groups that differ in their dtype or states");
    RFS_FREE char *text =
        state->key ? rfs_text_printf(STATES "%s.%s", name, state->key) : strdup(name);
    if (!text)
        return rfs_fail_memory(opening->err);
    if (param->elems == 0)
        return begin_tensor(opening, text, &shape, RFS_FLOAT32);
    const struct rfs_zero_part *first = part_of(opening, state, at.flat, 0);
    if (first->is_scalar) {
        shape.elems = 1;
        shape.type = rfs_intern_add(opening->tables->types, &number, sizeof number);
    }
    const int rc = shape.type == RFS_NO_ID ? rfs_fail_memory(opening->err)
                                           : begin_tensor(opening, text, &shape, first->dtype);
    if (rc)
        return rc;
    if (first->is_scalar)
        return add_chunk(opening, 0, 1, first->file, first->at);
    return opening->by_rank ? add_from_ranks(opening, state, at, param)
                            : add_from_group(opening, state, at.flat, at.off, param);
}

/* Adds the tensors of a state for all parameters. PLACES gets where each parameter begins. */
static int add_state(const struct rfs_zero_opening *opening, const struct rfs_zero_state *state,
                     struct place *places)
{
    struct place at = {0};

    if (state->key && !is_elementwise(opening, state)) {
        rfs_log(opening->chunks->log, RFS_WARNING,
                "%s: the optimizer's state %s is left out: it is not one number for each weight",
                path_of(opening, 0), state->key);
        return 0;
    }
    RFS_FREE bool *there = calloc(opening->n_flats + 1, sizeof *there);
    int rc = there ? 0 : rfs_fail_memory(opening->err);
    for (size_t f = 0; rc == 0 && f < opening->n_flats; f++) {
        const int has = check_state(opening, state, f);
        there[f] = has > 0;
        rc = has < 0 ? has : 0;
    }
    move(opening, &at, 0); /* the first may be empty */
    for (size_t g = 0; rc == 0 && g < opening->groups.n; g++) {
        const struct rfs_zero_group *group = &opening->groups.data[g];
        at = opening->by_rank ? at : (struct place){.flat = g};
        for (size_t i = group->first; rc == 0 && i < group->first + group->n; i++) {
            const struct rfs_zero_param *param = &opening->params.data[i];
            const uint64_t each = rfs_ceil_u64(param->elems, opening->world);
            places[i] = at;
            rc = add_tensor(opening, state, rfs_zero_text(opening, param->name), at, param, there);
            if (opening->by_rank)
                move(opening, &at, each);
            else
                at.off += param->elems + param->gap;
        }
    }
    return rc;
}

/* Adds a frozen parameter of stage 3: each rank has a piece of it. */
static int add_frozen(const struct rfs_zero_opening *opening, size_t i, const char *name)
{
    const struct rfs_zero_param *param = &opening->params.data[opening->n_trained + i];
    const size_t n_frozen = opening->params.n - opening->n_trained;
    const struct rfs_zero_part *first = &opening->fragments[i];
    const uint64_t each = rfs_ceil_u64(param->elems, opening->n_pieces);
    int rc = begin_tensor(opening, name, param, first->dtype);

    for (uint32_t r = 0; rc == 0 && r < opening->n_pieces; r++) {
        const uint64_t begin = rfs_min_u64(param->elems, each * r);
        const uint64_t n = rfs_min_u64(each, param->elems - begin);
        const struct rfs_zero_part *part = &first[r * n_frozen];
        if (part->elems < n || part->dtype != first->dtype)
            return rfs_fail(opening->err, -EINVAL, RFS_OF(rfs_files_path(opening->files, r), name),
                            RFS_ZERO_REMEDY,
                            "its piece of this frozen parameter has too few elements, or another "
                            "dtype");
        if (n > 0)
            rc = add_chunk(opening, begin, n, r, part->at);
    }
    return rc;
}

/* Adds names for the data of other ones. */
static int add_aliases(const struct rfs_zero_opening *opening, const struct place *places,
                       const bool *there)
{
    const uint64_t most = ALIASES_TIMES * (uint64_t)opening->chunks->chunks.n + UINT16_MAX;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < opening->aliases.n; i++) {
        const struct rfs_zero_alias *alias = &opening->aliases.data[i];
        const char *name = rfs_zero_text(opening, alias->name);
        const size_t number = opening->roles.data[alias->of] >> 3;
        if (rfs_zero_use_of(opening, alias->of) == RFS_ZERO_FROZEN)
            rc = add_frozen(opening, number, name);
        else
            rc = add_tensor(opening, &opening->states.data[0], name, places[number],
                            &opening->params.data[number], there);
        if (rc == 0 && opening->chunks->chunks.n > most)
            return rfs_fail(opening->err, -EFBIG, RFS_OF(rfs_files_path(opening->files, 0), name),
                            NULL, "too many names share the data of others");
    }
    return rc;
}

int rfs_zero_declare(const struct rfs_zero_opening *opening)
{
    RFS_FREE struct place *places = calloc(opening->params.n + 1, sizeof *places);
    RFS_FREE bool *there = calloc(opening->n_flats + 1, sizeof *there);
    int rc = places && there ? 0 : rfs_fail_memory(opening->err);

    for (size_t g = 0; rc == 0 && !opening->by_rank && g < opening->groups.n; g++)
        rc = check_group(opening, g);
    if (rc == 0 && opening->by_rank)
        rc = check_flats(opening);
    for (size_t i = 0; rc == 0 && i < opening->params.n - opening->n_trained; i++)
        rc = add_frozen(opening, i,
                        rfs_zero_text(opening, opening->params.data[opening->n_trained + i].name));
    for (size_t s = 0; rc == 0 && s < opening->states.n; s++)
        rc = add_state(opening, &opening->states.data[s], places);
    for (size_t f = 0; there && f < opening->n_flats; f++)
        there[f] = true;
    return rc ? rc : add_aliases(opening, places, there);
}
