/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache_replay SOURCE OPTIONS TRACE MIB... - what caches of those sizes would have had to assemble
 * for the reads of a trace: with the cache itself (src/assemble/cache.c), with LRU in the whole
 * budget from the start, and with the best that there is, Belady's, which knows the future.
 *
 * TRACE is what `reader -t TRACE` has recorded of readers of a mount of SOURCE with OPTIONS: a line
 * for each read, in the order in which they ended,
 *
 *     OFFSET SIZE PATH            bytes, bytes, a file of the mount
 *
 * of which only the last two names of PATH count. Reads become visits of gathered pieces; those of
 * one file that follow each other on one piece are one. What is contiguous is in no cache. Nothing
 * is read but headers, nothing is assembled, and no memory of the cache is touched.
 *
 * Prints a line of JSON for each size: MiB visited, different MiB, and the shares of the visits
 * that hit.
 */
#include "assemble/cache.h"
#include "assemble/gather.h"
#include "base/checked.h"
#include "view/internal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEVER SIZE_MAX

struct visit {
    struct rfs_cache_key key;
    size_t size;
    size_t piece; /* pieces are numbered by their first visit */
    size_t next;  /* visit of the same piece, or NEVER */
    bool to_end;  /* of the piece */
};

struct trace {
    struct visit *visits;
    size_t n, cap;
    size_t n_pieces;
};

static void *must(void *memory)
{
    if (!memory) {
        fputs("cache_replay: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

/* ---- from reads to visits -------------------------------------------------------------------- */

static bool same_piece(const struct rfs_cache_key *a, const struct rfs_cache_key *b)
{
    return a->id[0] == b->id[0] && a->id[1] == b->id[1] && a->number == b->number;
}

static void add_visit(struct trace *trace, const struct visit *visit)
{
    if (trace->n == trace->cap) {
        trace->cap = trace->cap ? trace->cap * 2 : 1024;
        trace->visits = must(realloc(trace->visits, trace->cap * sizeof *trace->visits));
    }
    trace->visits[trace->n++] = *visit;
}

/* The gathered pieces in [begin, end) of a slice. LAST is the file's visit that may go on. */
static void visit_slice(struct trace *trace, const struct rfs_slice *slice, uint64_t begin,
                        uint64_t end, size_t *last)
{
    for (uint64_t number = begin / RFS_PIECE; number * RFS_PIECE < end; number++) {
        const uint64_t at = number * RFS_PIECE;
        const uint64_t size = rfs_min_u64(RFS_PIECE, slice->bytes - at);
        const struct visit visit = {.key = {{slice->id[0], slice->id[1]}, number},
                                    .size = (size_t)size,
                                    .to_end = end >= at + size};
        if (!rfs_gather_needed(slice, at, at + size))
            continue;
        if (*last < trace->n && same_piece(&trace->visits[*last].key, &visit.key)) {
            trace->visits[*last].to_end |= visit.to_end;
            continue;
        }
        *last = trace->n;
        add_visit(trace, &visit);
    }
}

static int visit_read(struct rfs_view *view, size_t file, uint64_t offset, uint64_t end,
                      struct trace *trace, size_t *last)
{
    RFS_IMAGE_HELD *image = NULL;
    const int rc = rfs_view_image(view, file, &image, NULL);
    if (rc < 0)
        return rc;
    const struct rfs_tensors tensors = rfs_tensors_of_file(view, file, image);
    end = rfs_min_u64(end, image->bytes);
    for (size_t i = offset < end ? rfs_image_find(image, offset) : image->n; i < image->n; i++) {
        const struct rfs_region *region = &image->regions[i];
        struct rfs_slice slice = {0};
        if (region->start >= end)
            break;
        if (region->target >= RFS_NO_TARGET)
            continue;
        if (rfs_tensors_slice(&tensors, region->target, &slice) == 0) {
            const uint64_t from = rfs_max_u64(offset, region->start);
            const uint64_t to = rfs_min_u64(end, rfs_image_end(image, i));
            visit_slice(trace, &slice, region->at + from - region->start,
                        region->at + to - region->start, last);
        }
        rfs_slice_free(&slice);
    }
    return 0;
}

/* The file with the last two names of PATH. */
static bool find_file(struct reshard_view *view, char *path, size_t *file)
{
    char *name = strrchr(path, '/');
    uint64_t dir;
    uint64_t id;
    if (!name || !rfs_view_only(view))
        return false;
    *name++ = '\0';
    const char *folder = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    return reshard_lookup(view, RESHARD_ROOT, folder, &dir) == 0 &&
           reshard_lookup(view, dir, name, &id) == 0 &&
           rfs_view_entry(rfs_view_only(view), id, file) == RFS_ENTRY_FILE;
}

static int read_trace(struct reshard_view *view, const char *path, struct trace *trace)
{
    FILE *lines = fopen(path, "re");
    char line[PATH_MAX + 64];
    char name[PATH_MAX];
    uint64_t offset;
    uint64_t size;
    struct rfs_view *plain = rfs_view_only(view);
    int rc = lines && plain ? 0 : -1;
    const size_t n = plain ? plain->n_files : 0;
    size_t *last = must(malloc(n * sizeof *last + 1)); /* by file */
    memset(last, 0xff, n * sizeof *last);
    while (rc == 0 && fgets(line, sizeof line, lines)) {
        size_t file;
        if (sscanf(line, "%" SCNu64 " %" SCNu64 " %4095s", &offset, &size, name) != 3 ||
            size > UINT64_MAX - offset || !find_file(view, name, &file))
            rc = -1;
        else
            rc = visit_read(plain, file, offset, offset + size, trace, &last[file]);
    }
    free(last);
    if (lines)
        fclose(lines);
    if (rc < 0)
        fprintf(stderr, "cache_replay: %s: no trace of reads of this view\n", path);
    return rc;
}

/* Numbers pieces and links their visits; O(n * pieces), which is little. */
static void link_visits(struct trace *trace)
{
    size_t *latest = must(malloc((trace->n + 1) * sizeof *latest)); /* visit, by piece */
    for (size_t i = 0; i < trace->n; i++) {
        struct visit *visit = &trace->visits[i];
        size_t p = 0;
        while (p < trace->n_pieces && !same_piece(&trace->visits[latest[p]].key, &visit->key))
            p++;
        if (p == trace->n_pieces)
            trace->n_pieces++;
        else
            trace->visits[latest[p]].next = i;
        visit->piece = p;
        visit->next = NEVER;
        latest[p] = i;
    }
    free(latest);
}

/* ---- policies: each says how many of the visits hit ------------------------------------------ */

static size_t replay_policy(const struct trace *trace, uint64_t budget)
{
    struct rfs_cache *cache = must(rfs_cache_new(budget));
    size_t hits = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const struct visit *visit = &trace->visits[i];
        struct rfs_cache_piece *piece;
        const int got =
            rfs_cache_get(cache, &visit->key, visit->size, 1, RFS_WANT_MADE, NULL, &piece);
        hits += got == RFS_GOT_PIECE;
        if (got == RFS_GOT_CLAIM)
            rfs_cache_publish(cache, piece, 0);
        if (piece && visit->to_end)
            atomic_store(&piece->read_through, true);
        if (piece)
            rfs_cache_unpin(cache, piece);
    }
    rfs_cache_free(cache);
    return hits;
}

/* The piece that goes is the one with the least of rank(visit, its latest visit). */
typedef size_t rank_fn(const struct trace *trace, size_t latest);

static size_t rank_lru(const struct trace *trace, size_t latest)
{
    (void)trace;
    return latest;
}

static size_t rank_belady(const struct trace *trace, size_t latest)
{
    return NEVER - trace->visits[latest].next;
}

static size_t replay(const struct trace *trace, uint64_t budget, rank_fn *rank)
{
    size_t *here = must(
        malloc((trace->n_pieces + 1) * sizeof *here)); /* latest visits, of pieces that are here */
    size_t n = 0;
    size_t hits = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const struct visit *visit = &trace->visits[i];
        size_t k = 0;
        while (k < n && trace->visits[here[k]].piece != visit->piece)
            k++;
        if (k < n) {
            hits++;
            here[k] = i;
            continue;
        }
        here[n++] = i;
        bytes += visit->size;
        while (bytes > budget) { /* with Belady's it may be the new one: that is not kept then */
            size_t least = 0;
            for (size_t j = 1; j < n; j++)
                if (rank(trace, here[j]) < rank(trace, here[least]))
                    least = j;
            bytes -= trace->visits[here[least]].size;
            here[least] = here[--n];
        }
    }
    free(here);
    return hits;
}

static void print_size(const struct trace *trace, uint64_t mib)
{
    const double n = trace->n > 0 ? (double)trace->n : 1;
    uint64_t visited = 0;
    uint64_t different = 0;
    for (size_t i = 0; i < trace->n; i++) {
        visited += trace->visits[i].size;
        different += trace->visits[i].next == NEVER ? trace->visits[i].size : 0;
    }
    printf("{\"cache\": %" PRIu64 ", \"visited\": %.1f, \"different\": %.1f, "
           "\"policy\": %.4f, \"lru\": %.4f, \"best\": %.4f}\n",
           mib, (double)visited / (double)RFS_PIECE, (double)different / (double)RFS_PIECE,
           (double)replay_policy(trace, mib << 20) / n,
           (double)replay(trace, mib << 20, rank_lru) / n,
           (double)replay(trace, mib << 20, rank_belady) / n);
}

int main(int argc, char **argv)
{
    reshard_error err = {.struct_size = sizeof err};
    struct trace trace = {0};
    reshard_view *view;
    if (argc < 5) {
        fputs("usage: cache_replay SOURCE OPTIONS TRACE MIB...\n", stderr);
        return 2;
    }
    const reshard_config config = {.struct_size = sizeof config, .options = argv[2]};
    if (reshard_open(argv[1], &config, &view, &err) < 0) {
        fprintf(stderr, "cache_replay: %s\n", err.message);
        return 1;
    }
    const int rc = read_trace(view, argv[3], &trace);
    if (rc == 0)
        link_visits(&trace);
    for (int i = 4; rc == 0 && i < argc; i++)
        print_size(&trace, strtoull(argv[i], NULL, 10));
    free(trace.visits);
    reshard_close(view);
    return rc == 0 ? 0 : 1;
}
