/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"
#include "assemble/internal.h"
#include "base/options.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void need(bool fine, const char *what)
{
    if (!fine) {
        perror(what);
        abort();
    }
}

struct random random_start(void)
{
    const char *given = getenv("RFS_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed =
        given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20;
    printf("RFS_SEED=%llu\n", (unsigned long long)seed);
    return (struct random){seed};
}

uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t random_below(struct random *random, uint64_t n)
{
    return random_next(random) % n;
}

uint64_t random_in(struct random *random, uint64_t low, uint64_t high)
{
    return low + random_below(random, high - low + 1);
}

void world_random(struct world *world, struct random *random, uint64_t bytes)
{
    static const uint64_t elems[] = {1, 2, 2, 4, 4, 8, 16};
    *world = (struct world){0};
    world->elem = elems[random_below(random, sizeof elems / sizeof elems[0])];
    world->plus = (int16_t)(world->elem == 4 || world->elem == 8 ? random_below(random, 3) : 0);
    world->ndim = (uint32_t)random_in(random, 1, 5);
    uint64_t left = bytes > world->elem ? bytes / world->elem : 1, cells = 1;
    for (uint32_t i = 0; i < world->ndim; i++) {
        const uint64_t pieces = random_below(random, 3) ? random_in(random, 1, 4) : 1;
        world->pieces[i] = cells * pieces <= MAX_CELLS && pieces <= left ? pieces : 1;
        cells *= world->pieces[i];
        uint64_t most = left / world->pieces[i];
        if (i + 1 < world->ndim && random_below(random, 4))
            most = most > 40 ? 40 : most;
        const uint64_t least = i + 1 == world->ndim && most > 4 ? most / 2 : 1;
        world->dims[i] = world->pieces[i] * random_in(random, least, most);
        left /= world->dims[i];
        left = left ? left : 1;
    }
}

static uint64_t row_major(uint32_t ndim, const uint64_t *dims, const uint64_t *at)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < ndim; i++)
        offset = offset * dims[i] + at[i];
    return offset;
}

/* The next place of a box of SIZE; false after the last. */
static bool next_place(uint32_t ndim, const uint64_t *size, uint64_t *at)
{
    for (uint32_t i = ndim; i-- > 0;) {
        if (++at[i] < size[i])
            return true;
        at[i] = 0;
    }
    return false;
}

static void add(const struct world *world, unsigned char *element)
{
    float narrow;
    double wide;

    if (world->elem == sizeof narrow) {
        memcpy(&narrow, element, sizeof narrow);
        narrow += world->plus;
        memcpy(element, &narrow, sizeof narrow);
    } else {
        memcpy(&wide, element, sizeof wide);
        wide += world->plus;
        memcpy(element, &wide, sizeof wide);
    }
}

unsigned char *world_bytes(const struct world *world, const uint64_t *from, const uint64_t *size)
{
    uint64_t at[6] = {0}, n = world->elem;
    for (uint32_t i = 0; i < world->ndim; i++)
        n *= size[i];
    unsigned char *bytes = malloc(n), *p = bytes;
    need(bytes != NULL, "malloc");
    do {
        uint64_t place[6];
        for (uint32_t i = 0; i < world->ndim; i++)
            place[i] = from[i] + at[i];
        memcpy(p, world->tensor + row_major(world->ndim, world->dims, place) * world->elem,
               world->elem);
        if (world->plus != 0)
            add(world, p);
        p += world->elem;
    } while (next_place(world->ndim, size, at));
    return bytes;
}

static void cell_size(const struct world *world, uint64_t *size)
{
    for (uint32_t i = 0; i < world->ndim; i++)
        size[i] = world->dims[i] / world->pieces[i];
}

/* The file: junk, then the content in one to three extents with junk between them. */
static void write_cell(struct world *world, struct random *random, uint64_t cell,
                       const unsigned char *bytes, uint64_t n)
{
    static const unsigned char junk[300] = {0xee, 0xee};
    char path[128];
    snprintf(path, sizeof path, "%s/rank_%llu", world->root, (unsigned long long)cell);
    need(mkdir(path, 0700) == 0, path);
    strcat(path, "/x.ckpt");
    FILE *file = fopen(path, "w");
    need(file != NULL, path);
    const uint32_t count = n >= 3 ? (uint32_t)random_in(random, 1, 3) : 1;
    uint64_t done = 0, offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t gap = random_below(random, sizeof junk);
        const uint64_t take = i + 1 == count ? n - done : random_in(random, 1, n - done - 2 + i);
        need(fwrite(junk, 1, gap, file) == gap && fwrite(bytes + done, 1, take, file) == take,
             path);
        world->extents[cell][i] = (struct rfs_extent){offset + gap, take};
        offset += gap + take;
        done += take;
    }
    need(fclose(file) == 0, path);
    world->entry[cell].offset = world->extents[cell][0].offset;
    world->entry[cell].extent_count = count > 1 ? count : 0;
}

void world_open(struct world *world, struct random *random)
{
    uint64_t at[6] = {0}, size[6], n = world->elem, cell_bytes = world->elem;
    const int16_t plus = world->plus;
    world->plus = 0; /* the files have what it is added to */
    strcpy(world->root, "/tmp/rfs-assemble-XXXXXX");
    need(mkdtemp(world->root) != NULL, world->root);
    cell_size(world, size);
    for (uint32_t i = 0; i < world->ndim; i++) {
        n *= world->dims[i];
        cell_bytes *= size[i];
    }
    world->tensor = malloc(n);
    need(world->tensor != NULL, "malloc");
    for (uint64_t i = 0; i < n; i++)
        world->tensor[i] = (unsigned char)random_next(random);
    world->cells = 0;
    do {
        uint64_t from[6];
        for (uint32_t i = 0; i < world->ndim; i++)
            from[i] = at[i] * size[i];
        unsigned char *bytes = world_bytes(world, from, size);
        write_cell(world, random, world->cells++, bytes, cell_bytes);
        free(bytes);
    } while (next_place(world->ndim, world->pieces, at));
    world->plus = plus;
    struct rfs_error err = {0};
    if (rfs_catalog_open(
            &(struct rfs_source_spec){.path = world->root, .options = &rfs_options_defaults}, NULL,
            NULL, &world->catalog, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    world->files = rfs_catalog_files(world->catalog);
}

void world_close(struct world *world)
{
    rfs_catalog_close(world->catalog);
    for (uint64_t cell = 0; cell < world->cells; cell++) {
        char path[128];
        snprintf(path, sizeof path, "%s/rank_%llu/x.ckpt", world->root, (unsigned long long)cell);
        need(unlink(path) == 0, path);
        *strrchr(path, '/') = '\0';
        need(rmdir(path) == 0, path);
    }
    need(rmdir(world->root) == 0, world->root);
    free(world->tensor);
}

struct rfs_assembler *world_fast_assembler(struct world *world, uint64_t budget,
                                           struct rfs_pool *pool)
{
    struct rfs_assembler *assembler = rfs_assembler_new(world->catalog, budget, pool);

    if (!assembler)
        return NULL;
    rfs_prefetch_free(assembler->prefetch);
    assembler->prefetch = rfs_prefetch_new(assembler->files, false, assembler->cache, budget, NULL);
    if (assembler->prefetch)
        return assembler;
    rfs_assembler_free(assembler);
    return NULL;
}

void world_spoil(const struct world *world, uint64_t cell)
{
    char path[128];
    snprintf(path, sizeof path, "%s/rank_%llu/x.ckpt", world->root, (unsigned long long)cell);
    const int fd = open(path, O_RDWR);
    const struct timespec times[2] = {{1, 0}, {1, 0}};
    need(fd >= 0 && pwrite(fd, "!", 1, 0) == 1 && futimens(fd, times) == 0 && close(fd) == 0, path);
}

/* The block of one cell; false when the box does not touch it. */
static bool make_block(const struct world *world, const uint64_t *at, const uint64_t *from,
                       const uint64_t *size, bool folded, struct rfs_block *block)
{
    uint64_t cell[6], lo[6], hi[6], src_stride[6], dst_stride[6];
    uint64_t src = world->elem, dst = world->elem;
    cell_size(world, cell);
    *block = (struct rfs_block){0};
    for (uint32_t i = world->ndim; i-- > 0;) {
        const uint64_t begin = at[i] * cell[i], end = begin + cell[i];
        lo[i] = begin > from[i] ? begin : from[i];
        hi[i] = end < from[i] + size[i] ? end : from[i] + size[i];
        if (lo[i] >= hi[i])
            return false;
        src_stride[i] = src;
        dst_stride[i] = dst;
        block->src += (lo[i] - begin) * src;
        block->dst += (lo[i] - from[i]) * dst;
        src *= cell[i];
        dst *= size[i];
    }
    block->run = world->elem;
    block->dst_end = block->dst + world->elem;
    for (uint32_t i = 0; i < world->ndim; i++)
        block->dst_end += (hi[i] - lo[i] - 1) * dst_stride[i];
    uint32_t loops = world->ndim;
    while (folded && loops > 0 &&
           (hi[loops - 1] - lo[loops - 1] == 1 ||
            (src_stride[loops - 1] == block->run && dst_stride[loops - 1] == block->run))) {
        block->run *= hi[loops - 1] - lo[loops - 1];
        loops--;
    }
    for (uint32_t i = 0; i < loops; i++)
        block->loop[block->n_loops++] =
            (struct rfs_loop){hi[i] - lo[i], dst_stride[i], src_stride[i]};
    return true;
}

static int by_dst(const void *a, const void *b)
{
    const struct rfs_block *x = a, *y = b;
    return (x->dst > y->dst) - (x->dst < y->dst);
}

struct rfs_slice world_slice(const struct world *world, const uint64_t *from, const uint64_t *size,
                             bool folded)
{
    static uint64_t last_id;
    const uint64_t id = ++last_id;
    uint64_t at[6] = {0};
    uint32_t cell = 0;
    struct rfs_slice slice = {.bytes = world->elem, .id = {id, id * 77}, .cap = world->cells};
    slice.blocks = calloc(slice.cap, sizeof *slice.blocks);
    need(slice.blocks != NULL, "calloc");
    for (uint32_t i = 0; i < world->ndim; i++)
        slice.bytes *= size[i];
    do {
        struct rfs_block *block = &slice.blocks[slice.n];
        if (make_block(world, at, from, size, folded, block)) {
            block->file = rfs_catalog_file(world->catalog, cell);
            block->content = (struct rfs_content){
                .offset = world->entry[cell].offset,
                .n = world->entry[cell].extent_count,
                .extents = world->extents[cell],
                .plus = world->plus,
                .dtype = world->elem == sizeof(float) ? RFS_FLOAT32 : RFS_FLOAT64};
            slice.n++;
        }
        cell++;
    } while (next_place(world->ndim, world->pieces, at));
    qsort(slice.blocks, slice.n, sizeof *slice.blocks, by_dst);
    return slice;
}

struct rfs_slice world_box(const struct world *world, struct random *random, unsigned char **bytes)
{
    uint64_t from[6], size[6];
    for (uint32_t i = 0; i < world->ndim; i++) {
        const bool all = random_below(random, 2);
        from[i] = all ? 0 : random_below(random, world->dims[i]);
        size[i] = all ? world->dims[i] : random_in(random, 1, world->dims[i] - from[i]);
    }
    *bytes = world_bytes(world, from, size);
    return world_slice(world, from, size, random_below(random, 4) > 0);
}
