/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes bytes of the blocks of slices. Contiguous data is read straight into the caller's buffer;
 * strided data is gathered in pieces of RFS_PIECE bytes of the slice, which stay in a cache
 * (cache.h has the policy), keyed by the slice's id and the piece's number, so that ranks with the
 * same slice share it. Two readers never assemble the same piece twice: the second waits for the
 * first. Reads of gathered bytes that are shorter than RFS_SMALL and not announced as sequential
 * are assembled by themselves and not cached. A sequential reader is read ahead of, in pieces that
 * pass through the cache: contiguous ones are lent once and forgotten.
 *
 * Where sources turn out to be slow, they are read further ahead, in larger requests and by more
 * threads (prefetch.h).
 *
 * A cached piece is given out only while the source files it was made from are unchanged (one stat
 * each); otherwise the read fails with -ESTALE, as one from the file would.
 *
 * Pieces of transposed tensors are made in bands (band.h), so that a source byte is read about
 * once.
 *
 * Memory: the budget (cached and in flight) + RFS_SCRATCH_ROOM a thread at work, twice where it
 * casts. Lock order: the cache's lock and the assembler's are leaf locks, never taken together and
 * not held across I/O or copying.
 */
#pragma once

#include "assemble/cache.h"
#include "assemble/distance.h"
#include "assemble/gather.h"
#include "base/pool.h"
#include "catalog/catalog.h"
#include "plan/slice.h"

#include <sys/uio.h>

#define RFS_PIECE (UINT64_C(1) << 20)
#define RFS_SMALL (UINT64_C(64) << 10)

struct rfs_assembler;

/*
 * Makes an assembler whose cache has BUDGET bytes, or nothing for 0. Both pointers are borrowed;
 * the catalogue outlives it, the pool (NULL: nothing is read ahead) lasts until no read is running.
 * Returns NULL when out of memory. Starts no thread.
 */
struct rfs_assembler *rfs_assembler_new(struct rfs_catalog *catalog, uint64_t budget,
                                        struct rfs_pool *pool);
/*
 * Waits for reads ahead, and frees the assembler. No other call may be running, and all pins are
 * released. NULL is fine.
 */
void rfs_assembler_free(struct rfs_assembler *assembler);

/* As many pins as one request of a mount may need; no memory is allocated for these. */
#define RFS_PINS_FEW 3
/* Pins that keep borrowed pieces alive. Grows as needed; zero-initialise with {0}. */
struct rfs_pins {
    size_t n;
    struct rfs_cache_piece *few[RFS_PINS_FEW]; /* first ones */
    struct rfs_cache_piece **more;             /* [n - RFS_PINS_FEW] others; owned */
    size_t cap;                                /* capacity of more */
};
/* Releases all of them. */
void rfs_assemble_unpin(struct rfs_assembler *assembler, struct rfs_pins *pins);

/*
 * Assembles bytes [begin, begin + size) of the slice. SEQUENTIAL: the reader goes on from where
 * it was, so pieces are worth caching. 0 or -errno; on failure the buffer's content is undefined
 * and must not be shown.
 */
int rfs_assemble(struct rfs_assembler *assembler, const struct rfs_slice *slice, uint64_t begin,
                 size_t size, bool sequential, void *buf);

/*
 * An answer that is put together from copied and borrowed bytes, in the order of iov. Its owner
 * appends copied bytes by rfs_assemble_copied; rfs_assemble_borrow appends both kinds.
 */
struct rfs_reply {
    /*
     * address for the next bytes if they are copied. The memory behind it has room for all that is
     * still to come, borrowed or not, and RFS_DISTANCE_STEP more unless MOVED.
     */
    unsigned char *at;
    bool moved; /* the extra room is used: copying to where the bytes should have gone is slow */
    struct iovec *iov;
    int iov_max;
    int iov_count;
    struct rfs_pins *pins;
};

/*
 * Notes that SIZE bytes were put at reply->at. -ENOSPC when they need an entry of iov and none is
 * left.
 */
int rfs_assemble_copied(struct rfs_reply *reply, size_t size);

/*
 * Does what rfs_assemble does, without the last copy where a piece is in the cache. Falls back to
 * copying when iov runs out; one entry must be left, or the last one end at reply->at; else
 * -ENOSPC.
 */
int rfs_assemble_borrow(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                        uint64_t begin, size_t size, bool sequential, struct rfs_reply *reply);

/* The element types of a slice and of its output. */
struct rfs_casting {
    enum rfs_dtype from, to; /* types that cast.h takes */
    bool by_float32;         /* cast by rfs_cast_by_float32 */
};

/*
 * Assembles bytes of the slice as it is when each of its elements is cast: BEGIN and SIZE count
 * its bytes then, and may lie inside of elements. Otherwise does what rfs_assemble does. -EINVAL if
 * the slice is not made of whole elements.
 */
int rfs_assemble_cast(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                      const struct rfs_casting *types, uint64_t begin, size_t size, bool sequential,
                      void *buf);
/*
 * Does what rfs_assemble does, or with TYPES, which may be NULL, rfs_assemble_cast, for bytes that
 * are wanted once. Only pieces of transposed tensors are looked for, or kept.
 */
int rfs_assemble_once(struct rfs_assembler *assembler, const struct rfs_slice *slice,
                      const struct rfs_casting *types, uint64_t begin, size_t size, void *buf);
/* Turns a range of a slice that is cast into the range of the slice that it is made of. */
void rfs_assemble_uncast(const struct rfs_casting *types, uint64_t *begin, uint64_t *end);

/* A range [begin, end) of a slice or file that a reader will need next. */
struct rfs_window {
    uint64_t begin, end;
};
struct rfs_windows {
    struct rfs_window kept; /* bytes to be gathered, which stay in the cache */
    struct rfs_window lent; /* contiguous data, which is dropped once that reader has it */
    uint64_t bytes;         /* bytes that the reader has read in sequence */
};
/* Returns the least window that holds both; one that ends at 0 is none. */
struct rfs_window rfs_assemble_hull(const struct rfs_windows *windows);

/*
 * Starts assembling pieces in the background that are not there: pieces that begin in the first
 * window and need gathering, and pieces that lie in the second as a whole and don't. BESIDE is the
 * slice behind SLICE in the file, if rfs_assemble_joins; else it has no blocks. Takes the slices
 * over in any case (frees them).
 */
void rfs_assemble_ahead(struct rfs_assembler *assembler, struct rfs_slice *slice,
                        struct rfs_slice *beside, const struct rfs_windows *windows);
/*
 * Says whether the next slice of the file may come from the same source rows, beside this one:
 * then both are made at once, as far as the budget allows.
 */
bool rfs_assemble_joins(const struct rfs_slice *slice);

/*
 * Returns how many bytes to read ahead of a reader in sequence because its sources are slow; 0
 * while they are fast, when rfs_assemble_ahead is enough. It costs nothing then. More is no harm.
 */
uint64_t rfs_assemble_reach(struct rfs_assembler *assembler);
/*
 * Reads ahead source ranges (rfs_gather_note) that will be needed soon; ranges of several slices
 * passed in one call become fewer requests. Returns false, and reads none, if there is no room for
 * them now.
 */
bool rfs_assemble_prefetch(struct rfs_assembler *assembler, const struct rfs_gather_ranges *ranges);
/*
 * Drops queued reads ahead, so that freeing the pool and the assembler waits only for reads that
 * have begun.
 */
void rfs_assembler_stop(struct rfs_assembler *assembler);

/* Gives the cache another budget, of at most the first one. From any thread. */
void rfs_assembler_limit(struct rfs_assembler *assembler, uint64_t budget);

struct rfs_assembler_counters {
    struct rfs_cache_counters cache;
    uint64_t budget;
    uint64_t ahead; /* pieces made ahead */
};
/* Copies the counters. */
void rfs_assembler_count(struct rfs_assembler *assembler, struct rfs_assembler_counters *out);
