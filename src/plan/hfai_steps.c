/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that was killed half-way leaves parts of two saves, and nothing in them says so. But optimizers
 * count their steps, and hfai spreads their entries over all parts: where each part agrees in itself and
 * two parts differ, they are of different saves.
 */
#include "plan/hfai_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct steps {
    bool any;
    bool
        mixed; /* entries of the part differ among themselves, as they may if some were added later */
    uint64_t bits; /* of the first, whatever its type is */
};

static int read_step(const struct rfs_hfai *hfai, uint32_t part, struct rfs_reading *reading,
                     const struct rfs_node *step, bool *known, uint64_t *bits)
{
    struct rfs_torch_tensor tensor;

    *bits = 0;
    *known = step->kind == RFS_NODE_INT || step->kind == RFS_NODE_FLOAT;
    if (*known) {
        *bits = step->of.bits;
        return 0;
    }
    if (step->origin != part ||
        rfs_torch_tensor(&hfai->parts[part].torch, step, "", "", &tensor, NULL) != 1 ||
        tensor.elements != 1 || rfs_dtype_bytes(tensor.dtype) > sizeof *bits)
        return 0;
    *known = true;
    const uint64_t item = rfs_dtype_bytes(tensor.dtype);
    return rfs_reading_pread(reading, bits, (size_t)item,
                             tensor.record->offset + tensor.offset * item);
}

/* The steps of one optimizer's entries that came from one part. */
static int collect(const struct rfs_hfai *hfai, const struct hfai_state *state, uint32_t part,
                   struct rfs_reading *reading, struct steps *steps)
{
    for (size_t i = 0; i < state->entries.n; i++) {
        const struct rfs_node *value = state->entries.data[i].value;
        const struct rfs_node *step =
            value->origin == part && rfs_node_pairs(value) ? rfs_node_get(value, "step") : NULL;
        bool known = false;
        uint64_t bits = 0;
        const int rc = step ? read_step(hfai, part, reading, step, &known, &bits) : 0;
        if (rc)
            return rc;
        if (!known)
            continue;
        steps->mixed |= steps->any && bits != steps->bits;
        steps->bits = steps->any ? steps->bits : bits;
        steps->any = true;
    }
    return 0;
}

static int collect_part(const struct rfs_hfai *hfai, const struct hfai_state *state, uint32_t part,
                        struct steps *steps, struct rfs_error *err)
{
    struct rfs_reading reading;

    *steps = (struct steps){false, false, 0};
    int rc = rfs_reading_begin(rfs_catalog_files(hfai->catalog), hfai->parts[part].file, &reading);
    if (rc == 0) {
        rc = collect(hfai, state, part, &reading, steps);
        const int ended = rfs_reading_end(&reading);
        rc = rc ? rc : ended;
    }
    return rc == 0 ? 0
                   : rfs_fail(err, rc, RFS_IN(rfs_hfai_path(hfai, part)), NULL,
                              "the file cannot be read: %s", strerror(-rc));
}

static int check_optimizer(const struct rfs_hfai *hfai, const struct hfai_state *state,
                           struct rfs_error *err)
{
    struct steps first = {false, false, 0};
    uint32_t first_part = 0;

    for (uint32_t p = 0; p < hfai->n_parts; p++) {
        struct steps steps;
        const int rc = collect_part(hfai, state, p, &steps, err);
        if (rc)
            return rc;
        if (!steps.any || steps.mixed)
            continue;
        if (first.any && first.bits != steps.bits)
            return rfs_fail(err, -EINVAL, RFS_IN(rfs_hfai_path(hfai, p)), RFS_HFAI_REMEDY,
                            "its optimizer counts other steps than part %u's: the parts are of "
                            "different saves",
                            first_part);
        first_part = first.any ? first_part : p;
        first = first.any ? first : steps;
    }
    return 0;
}

int rfs_hfai_check_steps(const struct rfs_hfai *hfai, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && hfai->n_parts > 1 && i < hfai->n_optimizers; i++)
        rc = check_optimizer(hfai, &hfai->optimizers[i], err);
    return rc;
}
