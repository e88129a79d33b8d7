/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/export/wave.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"

static int by_sources(const void *a, const void *b)
{
    const struct rfs_wave_file *x = a, *y = b;

    for (uint32_t i = 0; i < x->n_sources && i < y->n_sources; i++)
        if (x->sources[i] != y->sources[i])
            return RFS_ORDER(x->sources[i], y->sources[i]);
    return RFS_ORDER(x->n_sources, y->n_sources) ?: RFS_ORDER(x->file, y->file);
}

void rfs_wave_sort(struct rfs_wave_file *files, size_t n, bool flat)
{
    if (!flat)
        RFS_SORT(files, n, by_sources);
}

/*
 * Returns whether half of the sources of the one with fewer are the other's, too; MARKED are A's.
 */
static bool shares(const struct rfs_wave_file *a, const unsigned char *marked, uint32_t most,
                   const struct rfs_wave_file *b)
{
    uint64_t both = 0;

    for (uint32_t i = 0; i < b->n_sources; i++)
        both += b->sources[i] <= most && marked[b->sources[i]];
    return both > 0 && 2 * both >= rfs_min_u64(a->n_sources, b->n_sources);
}

int rfs_wave_next(const struct rfs_wave_file *files, size_t n, unsigned threads, bool flat,
                  size_t *count, bool *share)
{
    uint32_t most = 0;

    *count = n > 0;
    *share = false;
    for (uint32_t i = 0; n > 0 && i < files->n_sources; i++)
        most = files->sources[i] > most ? files->sources[i] : most;
    RFS_FREE unsigned char *marked = calloc((size_t)most + 1, 1);
    if (!marked)
        return -ENOMEM;
    for (uint32_t i = 0; n > 0 && i < files->n_sources; i++)
        marked[files->sources[i]] = 1;
    while (*count < n && *count < RFS_WAVE_MOST) {
        const bool both = !flat && shares(files, marked, most, &files[*count]);
        if (!both && *count >= threads)
            break;
        *share |= both;
        ++*count;
    }
    return 0;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Returns the bytes before the cut. */
static uint64_t before_cut(const struct rfs_wave_file *file)
{
    return file->cut > 0 && file->cut < file->size ? file->cut : file->size;
}

uint64_t rfs_wave_pieces(const struct rfs_wave_file *file, uint64_t piece)
{
    const uint64_t first = before_cut(file);
    const uint64_t rest = file->size - first;

    return rfs_ceil_u64(first, piece) + rfs_ceil_u64(rest, piece);
}

void rfs_wave_piece(const struct rfs_wave_file *file, uint64_t piece, uint64_t i, uint64_t *offset,
                    uint64_t *size)
{
    const uint64_t first = before_cut(file);
    const uint64_t n = rfs_ceil_u64(first, piece);

    *offset = i < n ? i * piece : first + (i - n) * piece;
    *size = rfs_min_u64(piece, (i < n ? first : file->size) - *offset);
}

/* ---- items ----------------------------------------------------------------------------------- */

/*
 * Appends the item of piece I of file F, with all files behind it whose piece is equal. False when
 * out of memory.
 */
static bool add_item(const struct rfs_wave_file *files, size_t n, uint64_t piece, uint64_t i,
                     size_t f, struct rfs_wave_key *const *keys, bool *taken,
                     struct rfs_wave_plan *out)
{
    struct rfs_wave_item item = {.first = out->members.n};
    uint64_t size;

    rfs_wave_piece(&files[f], piece, i, &item.offset, &size);
    item.size = (uint32_t)size;
    for (size_t g = f; g < (keys ? n : f + 1); g++) {
        uint64_t offset = item.offset;
        uint64_t other = size;

        if (taken[g] || i >= rfs_wave_pieces(&files[g], piece))
            continue;
        rfs_wave_piece(&files[g], piece, i, &offset, &other);
        if (g != f && (memcmp(&keys[f][i], &keys[g][i], sizeof **keys) != 0 ||
                       offset != item.offset || other != size))
            continue;
        taken[g] = true;
        if (!RFS_PUSH(&out->members, (uint32_t)g))
            return false;
        item.n++;
    }
    return RFS_PUSH(&out->items, item);
}

int rfs_wave_plan(const struct rfs_wave_file *files, size_t n, uint64_t piece,
                  struct rfs_wave_key *const *keys, struct rfs_wave_plan *out)
{
    bool more = true;

    *out = (struct rfs_wave_plan){0};
    for (uint64_t i = 0; more; i++) {
        bool taken[RFS_WAVE_MOST] = {false};
        more = false;
        for (size_t f = 0; f < n; f++) {
            if (i >= rfs_wave_pieces(&files[f], piece))
                continue;
            more = true;
            if (!taken[f] && !add_item(files, n, piece, i, f, keys, taken, out))
                return -ENOMEM;
        }
    }
    return 0;
}

void rfs_wave_plan_free(struct rfs_wave_plan *plan)
{
    free(plan->items.data);
    free(plan->members.data);
    *plan = (struct rfs_wave_plan){0};
}
