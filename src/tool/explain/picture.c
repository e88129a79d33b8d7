/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of a parameter: its source cells, its destination slices and the pieces that go from
 * the ones to the others, all as boxes in the whole tensor.
 *
 * Where one axis alone is cut it is a flow: two bars and bands between them. Else the tensor is
 * drawn twice, by the last two cut axes; other cut axes are folded: a row of drawings for each
 * interval between their cuts.
 */
#include "tool/explain/picture.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "formats/chunks/chunks.h"
#include "tool/common/show.h"
#include "tool/common/svg.h"
#include "tool/explain/source_bytes.h"

#define MOST 4096 /* cells, or slices; more are not drawn */
#define WIDTH 880.0
#define MARGIN 24.0
#define HEAD 62.0
#define FOOT 50.0
#define TITLES 26.0 /* above a flow, or panels */

/* A cell of the source's grid, or a slice of the destination: one box of each of them. */
struct drawn {
    struct rfs_box box;
    uint32_t colour;
    uint32_t number;         /* number of a slice, in the order of the ranks */
    bool touched;            /* some piece is in it */
    RFS_VEC(uint32_t) ranks; /* holders of a slice, or ranks that give a cell; ascending */
    uint32_t holders;        /* number of ranks that hold the cell */
};

struct drawn_piece {
    struct rfs_box box;
    uint32_t from, to; /* indexes in cells, slices */
    uint64_t bytes;
};

struct picture {
    const struct rfs_explain *explain;
    uint32_t ndim;
    uint64_t whole[RFS_MAX_DIMS];
    /* there is no grid: cells are the source ranks that give it whole, slices are ranks */
    bool copied;
    bool uncut; /* the destination has no grid; dst has one piece */
    struct rfs_grid src, dst;
    const struct rfs_chunks *chunks;         /* chunks of a chunked source; or NULL */
    const struct rfs_chunked_tensor *tensor; /* cells are chunks of it; NULL: cells are src's */
    uint32_t base;                           /* the global rank of the source grid's rank 0 */
    RFS_VEC(struct drawn) cells, slices;
    RFS_VEC(struct drawn_piece) pieces;
    char *title, *subtitle;     /* owned, as the next members */
    char *source, *destination; /* "source: axis 0 in 8" */
};

static void picture_free(struct picture *picture)
{
    for (size_t i = 0; i < picture->cells.n; i++)
        free(picture->cells.data[i].ranks.data);
    for (size_t i = 0; i < picture->slices.n; i++)
        free(picture->slices.data[i].ranks.data);
    free(picture->cells.data);
    free(picture->slices.data);
    free(picture->pieces.data);
    free(picture->title);
    free(picture->subtitle);
    free(picture->source);
    free(picture->destination);
}

/* ---- how the source cuts the tensor ---------------------------------------------------------- */

/* Returns into how many pieces the source cuts an axis. */
static uint32_t source_pieces(const struct picture *picture, uint32_t axis)
{
    if (picture->tensor)
        return picture->tensor->grid ? picture->tensor->grid->pieces[axis] : 1;
    return picture->src.pieces[axis];
}

/* Returns the piece of an axis that position AT is in. */
static uint32_t piece_at(const struct picture *picture, uint32_t axis, uint64_t at)
{
    const struct rfs_chunk_grid *grid = picture->tensor->grid;

    return grid ? (uint32_t)RFS_BISECT(k, grid->pieces[axis], grid->edge[axis][k + 1] > at) : 0;
}

/* Returns the length of an axis's pieces whose elements were flattened; 0: they were not. */
static uint64_t flattened_side(const struct picture *picture, uint32_t axis)
{
    const struct rfs_chunked_tensor *tensor = picture->tensor;

    return rfs_chunks_is_flat(tensor)
               ? picture->whole[axis] / rfs_chunks_type(picture->chunks, tensor->stored)->dims[axis]
               : 0;
}

/* Returns where the source's piece ends that position AT of an axis is in. */
static uint64_t source_end(const struct picture *picture, uint32_t axis, uint64_t at)
{
    const uint64_t side = picture->tensor ? flattened_side(picture, axis) : 0;

    if (side > 0)
        return (at / side + 1) * side;
    if (picture->tensor)
        return picture->tensor->grid
                   ? picture->tensor->grid->edge[axis][piece_at(picture, axis, at) + 1]
                   : picture->whole[axis];
    const uint32_t piece = rfs_grid_piece(&picture->src, picture->whole, axis, at);
    return rfs_grid_begin(&picture->src, picture->whole, axis, piece) +
           rfs_grid_length(&picture->src, picture->whole, axis, piece);
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* Lists the axes that either side cuts, ascending; returns their number. */
static uint32_t cut_axes(const struct picture *picture, uint32_t *axes)
{
    uint32_t n = 0;

    for (uint32_t i = 0; !picture->copied && i < picture->ndim; i++)
        if (source_pieces(picture, i) > 1 || picture->dst.pieces[i] > 1)
            axes[n++] = i;
    return n;
}

/* Writes "rank 3", "ranks 0, 4", "rank 0 and 7 more", in the words of a side. */
static void label_ranks(const struct picture *picture, const struct drawn *drawn, bool source,
                        char *out, size_t cap)
{
    const struct rfs_explain_words *words = picture->explain->words;
    const char *one = source ? words->source : words->one;
    const char *many = source ? words->sources : words->many;
    RFS_FREE char *list = rfs_ranks_text(drawn->ranks.data, drawn->ranks.n);

    if (drawn->ranks.n == 0)
        snprintf(out, cap, "%s", "");
    else if (strlen(list) <= 14)
        snprintf(out, cap, "%s %s", drawn->ranks.n > 1 ? many : one, list);
    else
        snprintf(out, cap, "%s %" PRIu32 " and %zu more", one, drawn->ranks.data[0],
                 drawn->ranks.n - 1);
}

/* Writes "0:96" along an axis, or "all of it". */
static void label_range(const struct picture *picture, const struct rfs_box *box, uint32_t axis,
                        char *out, size_t cap)
{
    if (picture->ndim == 0 || box->len[axis] == picture->whole[axis])
        snprintf(out, cap, "all of it");
    else
        snprintf(out, cap, "%" PRIu64 ":%" PRIu64, box->at[axis], box->at[axis] + box->len[axis]);
}

/* ---- the picture's contents ------------------------------------------------------------------ */

/* Adds a rank, if it is new. False when out of memory. */
static bool add_rank(struct drawn *drawn, uint32_t rank)
{
    size_t at = drawn->ranks.n;

    while (at > 0 && drawn->ranks.data[at - 1] > rank)
        at--;
    if (at > 0 && drawn->ranks.data[at - 1] == rank)
        return true;
    if (!RFS_PUSH(&drawn->ranks, rank))
        return false;
    memmove(drawn->ranks.data + at + 1, drawn->ranks.data + at,
            (drawn->ranks.n - 1 - at) * sizeof *drawn->ranks.data);
    drawn->ranks.data[at] = rank;
    return true;
}

static int add_chunk(struct picture *picture, const struct rfs_chunk_box *part)
{
    const struct rfs_chunked_tensor *tensor = picture->tensor;
    const uint32_t k = part->chunk - tensor->first;
    struct drawn drawn = {.holders = 1};
    uint32_t step = 1;

    memcpy(drawn.box.at, part->at, picture->ndim * sizeof *drawn.box.at);
    memcpy(drawn.box.len, part->size, picture->ndim * sizeof *drawn.box.len);
    for (uint32_t i = picture->ndim; i-- > 0 && !part->flat;) {
        drawn.colour += piece_at(picture, i, drawn.box.at[i]) * step;
        step = source_pieces(picture, i) > 1 ? (step + 4) % RFS_SVG_COLOURS : step;
    }
    if (part->flat || tensor->n <= RFS_SVG_COLOURS)
        drawn.colour = k;
    if (!add_rank(&drawn,
                  rfs_chunks_file_of(picture->chunks, part->chunk) - picture->chunks->first_file))
        return -1;
    if (RFS_PUSH(&picture->cells, drawn))
        return 0;
    free(drawn.ranks.data);
    return -1;
}

/* Adds all chunks as cells. 0, or -1 when out of memory. */
static int add_chunks(struct picture *picture)
{
    static const uint64_t zeros[RFS_MAX_DIMS];
    struct rfs_chunks_walk walk;
    struct rfs_chunk_box part;
    int rc = 0;

    if (rfs_chunks_type(picture->chunks, picture->tensor->type)->bytes == 0)
        return 0;
    rfs_chunks_walk_begin(picture->chunks, picture->tensor, zeros, picture->whole, &walk);
    while (rc == 0 && rfs_chunks_walk_next(&walk, &part))
        rc = add_chunk(picture, &part);
    return rc;
}

static bool box_has(const struct picture *picture, const struct rfs_box *box, const uint64_t *at)
{
    for (uint32_t i = 0; i < picture->ndim; i++)
        if (at[i] < box->at[i] || at[i] - box->at[i] >= box->len[i])
            return false;
    return true;
}

/* Returns the cell of the chunk that position AT of the tensor is in, or SIZE_MAX. */
static size_t chunk_at(const struct picture *picture, const uint64_t *at)
{
    struct rfs_chunks_walk walk;
    struct rfs_chunk_box part;
    uint64_t end[RFS_MAX_DIMS];

    for (uint32_t i = 0; i < picture->ndim; i++)
        end[i] = at[i] + 1;
    rfs_chunks_walk_begin(picture->chunks, picture->tensor, at, end, &walk);
    if (!rfs_chunks_walk_next(&walk, &part))
        return SIZE_MAX;
    if (!part.flat)
        return part.chunk - picture->tensor->first;
    for (size_t k = 0; k < picture->cells.n; k++)
        if (box_has(picture, &picture->cells.data[k].box, at))
            return k;
    return SIZE_MAX;
}

static int too_many(const struct picture *picture, uint64_t n, struct rfs_error *err)
{
    return rfs_fail(
        err, -E2BIG,
        RFS_OF(rfs_catalog_path(picture->explain->plans.catalog), picture->explain->param),
        "the text, or --json", "has %" PRIu64 " pieces; at most %d can be drawn", n, MOST);
}

/* Adds all cells of a grid, row-major, with neighbours in other colours. */
static int add_cells(struct picture *picture, struct rfs_error *err)
{
    const struct rfs_grid *grid = &picture->src;
    uint32_t cell[RFS_GRID_DIMS] = {0};
    uint64_t n = 1;

    for (uint32_t i = 0; i < grid->ndim; i++)
        if (!rfs_mul_u64(n, grid->pieces[i], &n) || n > MOST)
            return too_many(picture, n, err);
    for (uint64_t k = 0; k < n; k++) {
        struct drawn drawn = {.holders = grid->replicas};
        uint32_t step = 1;

        for (uint32_t i = grid->ndim; i-- > 0;) {
            drawn.box.at[i] = rfs_grid_begin(grid, picture->whole, i, cell[i]);
            drawn.box.len[i] = rfs_grid_length(grid, picture->whole, i, cell[i]);
            drawn.colour += cell[i] * step;
            step = grid->pieces[i] > 1 ? (step + 4) % RFS_SVG_COLOURS : step;
        }
        if (n <= RFS_SVG_COLOURS)
            drawn.colour = (uint32_t)k;
        if (!RFS_PUSH(&picture->cells, drawn))
            return rfs_fail_memory(err);
        for (uint32_t i = grid->ndim; i-- > 0 && ++cell[i] == grid->pieces[i];)
            cell[i] = 0;
    }
    return 0;
}

/* Returns the cell that position AT of the whole tensor is in, or SIZE_MAX. */
static size_t cell_at(const struct picture *picture, const uint64_t *at)
{
    size_t k = 0;

    if (picture->tensor)
        return chunk_at(picture, at);
    for (uint32_t i = 0; i < picture->ndim; i++)
        k = k * picture->src.pieces[i] + rfs_grid_piece(&picture->src, picture->whole, i, at[i]);
    return k;
}

/*
 * Returns the slice with that box, which is added if it is new, or APART; SIZE_MAX when out of
 * memory.
 */
static size_t slice_of(struct picture *picture, const struct rfs_box *box, bool apart)
{
    for (size_t i = picture->slices.n; !apart && i-- > 0;)
        if (memcmp(&picture->slices.data[i].box, box, sizeof *box) == 0)
            return i;
    return RFS_PUSH(&picture->slices, (struct drawn){.box = *box, .touched = true})
               ? picture->slices.n - 1
               : SIZE_MAX;
}

/* Returns the cell of a copied tensor for the rank that gives it; SIZE_MAX when out of memory. */
static size_t provider_of(struct picture *picture, uint32_t rank)
{
    for (size_t i = 0; i < picture->cells.n; i++)
        if (picture->cells.data[i].ranks.data[0] == rank)
            return i;
    struct drawn drawn = {.holders = 1, .colour = (uint32_t)picture->cells.n};
    memcpy(drawn.box.len, picture->whole, sizeof drawn.box.len);
    if (!add_rank(&drawn, rank) || !RFS_PUSH(&picture->cells, drawn)) {
        free(drawn.ranks.data);
        return SIZE_MAX;
    }
    return picture->cells.n - 1;
}

static bool contains(const struct picture *picture, const struct rfs_box *outer,
                     const struct rfs_box *inner)
{
    for (uint32_t i = 0; i < picture->ndim; i++)
        if (inner->at[i] < outer->at[i] ||
            inner->at[i] + inner->len[i] > outer->at[i] + outer->len[i])
            return false;
    return true;
}

static bool add_piece(struct picture *picture, const struct rfs_piece_trace *piece, size_t first,
                      bool is_new)
{
    struct drawn_piece drawn = {.box = piece->whole,
                                .bytes = rfs_explain_block_bytes(&piece->block)};
    const size_t from =
        picture->copied ? provider_of(picture, piece->rank) : cell_at(picture, piece->whole.at);

    if (from == SIZE_MAX || !add_rank(&picture->cells.data[from], piece->rank))
        return false;
    picture->cells.data[from].touched = true;
    if (!is_new)
        return true;
    drawn.from = (uint32_t)from;
    for (size_t i = first; i < picture->slices.n; i++)
        if (contains(picture, &picture->slices.data[i].box, &piece->whole))
            drawn.to = (uint32_t)i;
    return RFS_PUSH(&picture->pieces, drawn);
}

static int begin(struct picture *picture, const struct rfs_explained *slice, struct rfs_error *err)
{
    const struct rfs_geometry *geometry = slice->trace.geometry;

    picture->ndim = slice->type->ndim;
    memcpy(picture->whole, slice->whole, sizeof picture->whole);
    picture->chunks = rfs_catalog_chunks(picture->explain->plans.catalog);
    picture->tensor =
        picture->chunks ? rfs_chunks_find(picture->chunks, slice->name, strlen(slice->name)) : NULL;
    picture->uncut = !geometry;
    picture->copied = !geometry && !picture->tensor;
    picture->dst = geometry ? geometry->dst : (struct rfs_grid){.ndim = picture->ndim, .ranks = 1};
    for (uint32_t i = 0; !geometry && i < picture->ndim; i++)
        picture->dst.pieces[i] = 1;
    if (picture->tensor && picture->tensor->n > MOST)
        return too_many(picture, picture->tensor->n, err);
    if (picture->tensor)
        return add_chunks(picture) ? rfs_fail_memory(err) : 0;
    if (!geometry)
        return 0;
    picture->base = slice->trace.base;
    picture->src = geometry->src;
    return add_cells(picture, err);
}

/* Returns "source: axis 0 in 8", malloc'ed. */
static char *heading(const struct picture *picture, const char *name,
                     const struct rfs_explained_side *side)
{
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    fprintf(out, "%s: ", name);
    if (side->words)
        fputs(picture->explain->parts || side->chunks ? side->words : "copied as it is", out);
    else
        rfs_show_cuts(out, side->grid);
    return rfs_printed_end(&shown);
}

static void title(struct picture *picture, const struct rfs_explained *slice)
{
    const struct rfs_explain *explain = picture->explain;
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    fputs(rfs_dtype_name((enum rfs_dtype)slice->type->dtype), out);
    if (slice->type->dtype != slice->shown->dtype)
        fprintf(out, " to %s", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    fputc(' ', out);
    rfs_show_dims(out, slice->n_dims, slice->dims);
    fprintf(out, ", from %" PRIu32 " %s to %" PRIu32, explain->n_sources, explain->words->sources,
            explain->plans.n_ranks);
    if (strcmp(explain->words->sources, explain->words->many) != 0)
        fprintf(out, " %s",
                explain->plans.n_ranks == 1 ? explain->words->one : explain->words->many);
    if (explain->one)
        fprintf(out, "; the slice of %s %" PRIu32, explain->words->one, slice->rank);
    picture->subtitle = rfs_printed_end(&shown);
    picture->title = rfs_printed_memory(strdup(slice->name));
    picture->source = heading(picture, "source", &slice->source);
    picture->destination = heading(picture, "destination", &slice->destination);
}

static int collect(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    struct picture *picture = ctx;
    const struct rfs_geometry *geometry = slice->trace.geometry;
    const size_t first = picture->slices.n;
    size_t at = 0;
    int rc = 0;

    if (!picture->title) {
        rc = begin(picture, slice, err);
        title(picture, slice);
    }
    if (rc)
        return rc;
    /* Another stage may cut the tensor in another way; one picture has one way. */
    if (picture->uncut != !geometry ||
        (geometry &&
         (memcmp(&geometry->dst, &picture->dst, sizeof picture->dst) != 0 ||
          (!picture->tensor && memcmp(&geometry->src, &picture->src, sizeof picture->src) != 0))))
        return rfs_fail(
            err, -EINVAL,
            RFS_OF(rfs_catalog_path(picture->explain->plans.catalog), picture->explain->param),
            "--rank N", "is cut in another way for rank_%u than for the ranks before it",
            slice->rank);
    struct rfs_box all = {.at = {0}};
    memcpy(all.len, picture->whole, sizeof all.len);
    for (size_t k = 0; k < (geometry ? slice->boxes.n : 1); k++) {
        at = slice_of(picture, geometry ? &slice->boxes.data[k] : &all, picture->copied);
        if (at == SIZE_MAX || !add_rank(&picture->slices.data[at], slice->rank))
            return rfs_fail_memory(err);
    }
    if (picture->slices.n > MOST)
        return too_many(picture, picture->slices.n, err);
    const bool is_new = picture->slices.n > first;
    for (size_t i = 0; i < slice->trace.n; i++)
        if (!add_piece(picture, &slice->trace.pieces[i], first, is_new))
            return rfs_fail_memory(err);
    return picture->pieces.n > MOST ? too_many(picture, picture->pieces.n, err) : 0;
}

static int by_place(const void *a, const void *b)
{
    const struct drawn *x = a, *y = b;

    for (uint32_t i = 0; i < RFS_MAX_DIMS; i++)
        if (x->box.at[i] != y->box.at[i])
            return RFS_ORDER(x->box.at[i], y->box.at[i]);
    return RFS_ORDER(x->number, y->number);
}

/* Sorts slices, which came by rank, in the order in which they lie in the tensor. */
static bool sort_slices(struct picture *picture)
{
    RFS_FREE uint32_t *to = calloc(picture->slices.n + 1, sizeof *to);

    if (!to || picture->slices.n == 0)
        return to != NULL;
    for (size_t i = 0; i < picture->slices.n; i++)
        picture->slices.data[i].number = (uint32_t)i;
    RFS_SORT_ALL(&picture->slices, by_place);
    for (size_t i = 0; i < picture->slices.n; i++)
        to[picture->slices.data[i].number] = (uint32_t)i;
    for (size_t i = 0; i < picture->pieces.n; i++)
        picture->pieces.data[i].to = to[picture->pieces.data[i].to];
    return true;
}

/* Gives cells that nobody takes anything from the ranks that hold them. */
static bool name_cells(struct picture *picture)
{
    for (size_t i = 0; !picture->copied && i < picture->cells.n; i++) {
        uint32_t cell[RFS_GRID_DIMS] = {0};

        if (picture->cells.data[i].ranks.n > 0)
            continue;
        for (uint32_t k = 0; k < picture->ndim; k++)
            cell[k] =
                rfs_grid_piece(&picture->src, picture->whole, k, picture->cells.data[i].box.at[k]);
        if (!add_rank(&picture->cells.data[i],
                      picture->base + rfs_grid_holder(&picture->src, cell, 0)))
            return false;
    }
    return true;
}

/* ---- a flow: one axis is cut, or none -------------------------------------------------------- */

#define FLOW_LEFT 232.0
#define FLOW_RIGHT 592.0
#define FLOW_BAR 56.0
#define LABEL 12.0 /* from one label to the next */

struct flow {
    const struct picture *picture;
    FILE *out;
    uint32_t axis;
    double top, height; /* extent of the axis, without the gaps */
    double gap;         /* between two nodes of a side */
    uint64_t lo, hi;    /* the window of the axis that is shown */
};

/* Sets how much of the axis is drawn: of very many cells only a slice's, and their neighbours. */
static void set_window(struct flow *flow)
{
    const struct picture *picture = flow->picture;
    const uint64_t whole = picture->ndim > 0 ? picture->whole[flow->axis] : 1;
    uint64_t lo = whole;
    uint64_t hi = 0;

    flow->lo = 0;
    flow->hi = whole;
    if (!picture->explain->one || picture->copied ||
        picture->cells.n + picture->dst.pieces[flow->axis] < 65)
        return;
    for (size_t i = 0; i < picture->cells.n; i++) {
        const struct drawn *cell = &picture->cells.data[i];
        const uint64_t at = cell->box.at[flow->axis];
        if (!cell->touched)
            continue;
        lo = at < lo ? at : lo;
        hi = at + cell->box.len[flow->axis] > hi ? at + cell->box.len[flow->axis] : hi;
    }
    if (hi <= lo)
        return;
    const uint64_t room = (hi - lo) / 2 + 1;
    flow->lo = lo > room ? lo - room : 0;
    flow->hi = whole - hi > room ? hi + room : whole;
}

/* Returns the y of position AT of the axis; one outside of the window is at its edge. */
static double y_of(const struct flow *flow, uint64_t at)
{
    const uint64_t in = at < flow->lo ? flow->lo : at > flow->hi ? flow->hi : at;
    return flow->top + flow->height * (double)(in - flow->lo) / (double)(flow->hi - flow->lo);
}

/*
 * Returns how much further down node I of N begins, for the gaps above it; both sides are centred.
 */
static double shift(const struct flow *flow, size_t i, size_t n)
{
    const struct picture *picture = flow->picture;
    const size_t most = picture->cells.n > picture->slices.n ? picture->cells.n : picture->slices.n;

    return flow->gap * ((double)i + (double)(most - n) / 2);
}

/* Sets the y range that BOX has in node I of N; copied tensors have one node below the other. */
static void node_span(const struct flow *flow, const struct rfs_box *box, size_t i, size_t n,
                      double *from, double *to)
{
    const double down = shift(flow, i, n);

    if (flow->picture->copied || flow->picture->ndim == 0) {
        *from = flow->top + down + flow->height * (double)i / (double)n;
        *to = flow->top + down + flow->height * (double)(i + 1) / (double)n;
    } else {
        *from = y_of(flow, box->at[flow->axis]) + down;
        *to = y_of(flow, box->at[flow->axis] + box->len[flow->axis]) + down;
    }
}

static void draw_label(const struct flow *flow, const struct drawn *drawn, double y, bool left)
{
    char ranks[96], range[64], of[32] = "";
    const double x = left ? FLOW_LEFT - 10 : FLOW_RIGHT + FLOW_BAR + 10;

    label_ranks(flow->picture, drawn, left, ranks, sizeof ranks);
    label_range(flow->picture, &drawn->box, flow->axis, range, sizeof range);
    if (left && drawn->holders > 1)
        snprintf(of, sizeof of, " ×%" PRIu32, drawn->holders);
    rfs_svg_text(flow->out, x, y + 4, left ? "e" : "t", "%s%s · %s", ranks, of, range);
}

/* Draws one side's nodes; labels are those of nodes that the picture is about. */
static void draw_nodes(const struct flow *flow, const struct drawn *nodes, size_t n, bool left)
{
    const double x = left ? FLOW_LEFT : FLOW_RIGHT;
    double last = -LABEL;

    for (size_t i = 0; i < n; i++) {
        double from, to;
        node_span(flow, &nodes[i].box, i, n, &from, &to);
        if (to - from < 0.05)
            continue;
        if (left)
            rfs_svg_fill(flow->out, x, from, FLOW_BAR, to - from, nodes[i].colour,
                         !nodes[i].touched);
        if (!left || to - from > 4)
            rfs_svg_rect(flow->out, x, from, FLOW_BAR, to - from,
                         left && !nodes[i].touched ? "g" : "o");
        const double middle = (from + to) / 2;
        if (middle - last < LABEL ||
            (flow->picture->explain->one && !nodes[i].touched && to - from < LABEL))
            continue;
        draw_label(flow, &nodes[i], middle, left);
        last = middle;
    }
}

/* Draws the cuts of the destination that the picture is not about. */
static void draw_other_nodes(const struct flow *flow)
{
    const struct picture *picture = flow->picture;

    if (picture->copied || picture->ndim == 0 || !picture->explain->one)
        return;
    rfs_svg_rect(flow->out, FLOW_RIGHT, flow->top, FLOW_BAR, flow->height, "f");
    for (uint32_t k = 0; k < picture->dst.pieces[flow->axis]; k++) {
        const uint64_t at = rfs_grid_begin(&picture->dst, picture->whole, flow->axis, k);
        const uint64_t end = at + rfs_grid_length(&picture->dst, picture->whole, flow->axis, k);
        const double from = y_of(flow, at);
        const double to = y_of(flow, end);
        if (to - from >= 1)
            rfs_svg_rect(flow->out, FLOW_RIGHT, from, FLOW_BAR, to - from, "g");
    }
}

static void draw_bands(const struct flow *flow)
{
    const struct picture *picture = flow->picture;

    for (size_t i = 0; i < picture->pieces.n; i++) {
        const struct drawn_piece *piece = &picture->pieces.data[i];
        const struct drawn *cell = &picture->cells.data[piece->from];
        double from0, to0, from1, to1;

        node_span(flow, &piece->box, piece->from, picture->cells.n, &from0, &to0);
        node_span(flow, &piece->box, piece->to, picture->slices.n, &from1, &to1);
        rfs_svg_band(flow->out, FLOW_LEFT + FLOW_BAR, from0, to0, FLOW_RIGHT, from1, to1,
                     cell->colour);
        rfs_svg_fill(flow->out, FLOW_RIGHT, from1, FLOW_BAR, to1 - from1, cell->colour, false);
    }
    if (!picture->explain->one)
        return;
    for (size_t i = 0; i < picture->pieces.n; i++) {
        const struct drawn_piece *piece = &picture->pieces.data[i];
        char size[RFS_SHOWN_BYTES];
        double from0, to0, from1, to1;

        node_span(flow, &piece->box, piece->from, picture->cells.n, &from0, &to0);
        node_span(flow, &piece->box, piece->to, picture->slices.n, &from1, &to1);
        if (to0 - from0 >= LABEL)
            rfs_svg_text(flow->out, (FLOW_LEFT + FLOW_BAR + FLOW_RIGHT) / 2,
                         (from0 + to0 + from1 + to1) / 4 + 4, "k m", "%s",
                         rfs_show_bytes(piece->bytes, size));
    }
}

static void draw_heading(const struct flow *flow, bool left)
{
    const struct picture *picture = flow->picture;

    rfs_svg_text(flow->out, left ? FLOW_LEFT + FLOW_BAR : FLOW_RIGHT, flow->top - 10,
                 left ? "s e" : "s", "%s", left ? picture->source : picture->destination);
}

/*
 * Draws two bars and bands between them, below the title; AXIS is cut. Returns the height, and
 * draws nothing, if OUT is NULL.
 */
static double draw_flow(const struct picture *picture, uint32_t axis, FILE *out, double top)
{
    const size_t n = picture->cells.n > picture->slices.n ? picture->cells.n : picture->slices.n;
    struct flow flow = {.picture = picture, .out = out, .axis = axis, .top = top + TITLES};

    set_window(&flow);
    const bool all = picture->ndim == 0 || (flow.lo == 0 && flow.hi == picture->whole[axis]);
    flow.height = !all || n < 6 ? 156 : n > 64 ? 1280 : (double)n * (n > 32 ? 17 : 24);
    /* The picture of one slice is to scale, with the cuts of the others. */
    flow.gap = (picture->explain->one && !picture->copied) || n > 128 ? 0 : n > 16 ? 3 : 6;
    if (!out)
        return TITLES + flow.height + flow.gap * (double)(n - 1) + (all ? 8 : 24);
    draw_heading(&flow, true);
    draw_heading(&flow, false);
    draw_other_nodes(&flow);
    draw_bands(&flow);
    draw_nodes(&flow, picture->cells.data, picture->cells.n, true);
    draw_nodes(&flow, picture->slices.data, picture->slices.n, false);
    if (!all)
        rfs_svg_text(out, FLOW_LEFT, flow.top + flow.height + 18, "s",
                     "%" PRIu64 ":%" PRIu64 " of the %" PRIu64 " along axis %" PRIu32, flow.lo,
                     flow.hi, picture->whole[axis], axis);
    return 0;
}

/* ---- panels: two axes or more are cut -------------------------------------------------------- */

#define PANEL 356.0
#define PANEL_LEFT 44.0
#define PANEL_RIGHT (WIDTH - MARGIN - PANEL)
#define PANEL_ROWS 24
#define BELOW 22.0 /* an axis below a row */

struct panels {
    const struct picture *picture;
    FILE *out;
    uint32_t n_cut;
    uint32_t cut[RFS_MAX_DIMS]; /* the last two are drawn, the others folded */
    uint32_t down, across;      /* axes */
    double height;              /* height of a panel */
    struct rfs_box row;         /* the interval along folded axes that is being drawn */
    double top;                 /* top of the row */
};

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns the next cut of either side, beyond AT. */
static uint64_t next_cut(const struct picture *picture, uint32_t axis, uint64_t at)
{
    const uint32_t d = rfs_grid_piece(&picture->dst, picture->whole, axis, at);

    return rfs_min_u64(source_end(picture, axis, at),
                       rfs_grid_begin(&picture->dst, picture->whole, axis, d) +
                           rfs_grid_length(&picture->dst, picture->whole, axis, d));
}

static void set_interval(struct panels *panels, uint32_t axis, uint64_t at)
{
    panels->row.at[axis] = at;
    panels->row.len[axis] = next_cut(panels->picture, axis, at) - at;
}

static void first_row(struct panels *panels)
{
    memcpy(panels->row.len, panels->picture->whole, sizeof panels->row.len);
    memset(panels->row.at, 0, sizeof panels->row.at);
    for (uint32_t i = 0; i + 2 < panels->n_cut; i++)
        set_interval(panels, panels->cut[i], 0);
}

/* Goes to the next interval; false after the last. */
static bool next_row(struct panels *panels)
{
    for (uint32_t i = panels->n_cut - 2; i-- > 0;) {
        const uint32_t axis = panels->cut[i];
        const uint64_t end = panels->row.at[axis] + panels->row.len[axis];
        if (end < panels->picture->whole[axis]) {
            set_interval(panels, axis, end);
            return true;
        }
        set_interval(panels, axis, 0);
    }
    return false;
}

/* Returns whether a box has something in the row. */
static bool in_row(const struct panels *panels, const struct rfs_box *box)
{
    for (uint32_t i = 0; i + 2 < panels->n_cut; i++) {
        const uint32_t axis = panels->cut[i];
        if (box->at[axis] >= panels->row.at[axis] + panels->row.len[axis] ||
            panels->row.at[axis] >= box->at[axis] + box->len[axis])
            return false;
    }
    return true;
}

/* Returns whether to draw a row: a picture of one slice has only rows with something of it. */
static bool is_drawn(const struct panels *panels)
{
    bool any = !panels->picture->explain->one;

    for (size_t i = 0; !any && i < panels->picture->slices.n; i++)
        any = in_row(panels, &panels->picture->slices.data[i].box);
    return any;
}

/* ---- one panel ------------------------------------------------------------------------------- */

struct rectangle {
    double x, y, width, height;
};

static struct rectangle project(const struct panels *panels, const struct rfs_box *box, double x)
{
    const uint64_t *whole = panels->picture->whole;
    const double down = panels->height / (double)whole[panels->down];
    const double across = PANEL / (double)whole[panels->across];

    return (struct rectangle){x + across * (double)box->at[panels->across],
                              panels->top + down * (double)box->at[panels->down],
                              across * (double)box->len[panels->across],
                              down * (double)box->len[panels->down]};
}

static void draw_name(const struct panels *panels, const struct drawn *drawn,
                      const struct rectangle *at, bool source, const char *style)
{
    RFS_FREE char *list = rfs_ranks_text(drawn->ranks.data, drawn->ranks.n);
    char name[96], of[32] = "";

    label_ranks(panels->picture, drawn, source, name, sizeof name);
    if (drawn->holders > 1)
        snprintf(of, sizeof of, " ×%" PRIu32, drawn->holders);
    if (at->height < 12)
        return;
    const double y = at->y + at->height / 2 + 4;
    const double x = at->x + at->width / 2;
    if (rfs_svg_width(name) + rfs_svg_width(of) + 6 < at->width)
        rfs_svg_text(panels->out, x, y, style, "%s%s", name, of);
    else if (rfs_svg_width(name) + 6 < at->width)
        rfs_svg_text(panels->out, x, y, style, "%s", name);
    else if (list && rfs_svg_width(list) + 4 < at->width)
        rfs_svg_text(panels->out, x, y, style, "%s", list);
}

static void draw_source(const struct panels *panels)
{
    const struct picture *picture = panels->picture;

    for (size_t i = 0; i < picture->cells.n; i++) {
        const struct drawn *cell = &picture->cells.data[i];
        if (!in_row(panels, &cell->box))
            continue;
        const struct rectangle at = project(panels, &cell->box, PANEL_LEFT);
        rfs_svg_fill(panels->out, at.x, at.y, at.width, at.height, cell->colour, !cell->touched);
        rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "o");
        draw_name(panels, cell, &at, true, cell->touched ? "k m" : "s m");
    }
    /* Boxes that are taken. */
    for (size_t i = 0; picture->explain->one && i < picture->pieces.n; i++)
        if (in_row(panels, &picture->pieces.data[i].box)) {
            const struct rectangle at = project(panels, &picture->pieces.data[i].box, PANEL_LEFT);
            rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "b");
        }
}

/* Draws cuts of the destination that the picture is not about. */
static void draw_other_cuts(const struct panels *panels)
{
    const struct picture *picture = panels->picture;
    const struct rfs_grid *grid = &picture->dst;

    for (uint32_t side = 0; side < 2; side++) {
        const uint32_t axis = side ? panels->across : panels->down;
        for (uint32_t k = 0; k < grid->pieces[axis] && grid->pieces[axis] <= 256; k++) {
            struct rfs_box box = {{0}, {0}};
            memcpy(box.len, picture->whole, sizeof box.len);
            box.at[axis] = rfs_grid_begin(grid, picture->whole, axis, k);
            box.len[axis] = rfs_grid_length(grid, picture->whole, axis, k);
            const struct rectangle at = project(panels, &box, PANEL_RIGHT);
            rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "g");
        }
    }
}

static void draw_destination(const struct panels *panels)
{
    const struct picture *picture = panels->picture;
    struct rfs_box whole = {{0}, {0}};

    memcpy(whole.len, picture->whole, sizeof whole.len);
    const struct rectangle all = project(panels, &whole, PANEL_RIGHT);
    rfs_svg_rect(panels->out, all.x, all.y, all.width, all.height, "f");
    for (size_t i = 0; i < picture->pieces.n; i++) {
        const struct drawn_piece *piece = &picture->pieces.data[i];
        if (!in_row(panels, &piece->box))
            continue;
        const struct rectangle at = project(panels, &piece->box, PANEL_RIGHT);
        struct drawn from = picture->cells.data[piece->from];
        from.holders = 1; /* the other holders are on the left */
        rfs_svg_fill(panels->out, at.x, at.y, at.width, at.height,
                     picture->cells.data[piece->from].colour, false);
        rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "g");
        if (picture->explain->one)
            draw_name(panels, &from, &at, true, "k m");
    }
    if (picture->explain->one)
        draw_other_cuts(panels);
    for (size_t i = 0; i < picture->slices.n; i++) {
        if (!in_row(panels, &picture->slices.data[i].box))
            continue;
        const struct rectangle at = project(panels, &picture->slices.data[i].box, PANEL_RIGHT);
        rfs_svg_rect(panels->out, at.x, at.y, at.width, at.height, "b");
        if (!picture->explain->one)
            draw_name(panels, &picture->slices.data[i], &at, false, "n m");
    }
}

static void draw_axes(const struct panels *panels)
{
    const uint64_t *whole = panels->picture->whole;
    const double y = panels->top + panels->height + 15;
    const double middle = panels->top + panels->height / 2;

    fprintf(panels->out, "<g transform=\"rotate(-90 %.0f %.0f)\">", PANEL_LEFT - 8, middle);
    rfs_svg_text(panels->out, PANEL_LEFT - 8, middle, "s m", "axis %" PRIu32 ": %" PRIu64,
                 panels->down, whole[panels->down]);
    fputs("</g>\n", panels->out);
    rfs_svg_text(panels->out, PANEL_LEFT + PANEL / 2, y, "s m", "axis %" PRIu32 ": %" PRIu64,
                 panels->across, whole[panels->across]);
    rfs_svg_text(panels->out, (PANEL_LEFT + PANEL + PANEL_RIGHT) / 2, middle + 6, "h m", "→");
}

static void draw_row(struct panels *panels)
{
    if (panels->n_cut > 2) {
        double x = PANEL_LEFT;
        for (uint32_t i = 0; i + 2 < panels->n_cut; i++) {
            const uint32_t axis = panels->cut[i];
            rfs_svg_text(panels->out, x, panels->top - 5, "t",
                         "axis %" PRIu32 ": %" PRIu64 ":%" PRIu64 " of %" PRIu64, axis,
                         panels->row.at[axis], panels->row.at[axis] + panels->row.len[axis],
                         panels->picture->whole[axis]);
            x += 180;
        }
    }
    draw_source(panels);
    draw_destination(panels);
    draw_axes(panels);
}

static double panel_height(const struct panels *panels)
{
    const struct picture *picture = panels->picture;
    const uint64_t *whole = picture->whole;
    const uint32_t s = source_pieces(picture, panels->down);
    const uint32_t d = picture->dst.pieces[panels->down];
    const double least = (double)rfs_min_u64(s > d ? s : d, 64) * 15;
    double height = PANEL * (double)whole[panels->down] / (double)whole[panels->across];
    const double most = panels->n_cut > 2 ? 180 : 420;

    height = height > most ? most : height < 120 ? 120 : height;
    return height < least ? least : height;
}

/* Draws both panels of each row. Returns the height; draws nothing if OUT is NULL. */
static double draw_panels(const struct picture *picture, FILE *out, double top)
{
    struct panels panels = {.picture = picture, .out = out};
    uint32_t rows = 0;
    uint32_t more = 0;

    panels.n_cut = cut_axes(picture, panels.cut);
    panels.down = panels.cut[panels.n_cut - 2];
    panels.across = panels.cut[panels.n_cut - 1];
    panels.height = panel_height(&panels);
    if (out) {
        rfs_svg_text(out, PANEL_LEFT, top + 14, "s", "%s", picture->source);
        rfs_svg_text(out, PANEL_RIGHT, top + 14, "s", "%s", picture->destination);
    }
    const double step = panels.height + BELOW + (panels.n_cut > 2 ? 20 : 0);
    first_row(&panels);
    do {
        if (!is_drawn(&panels))
            continue;
        if (rows == PANEL_ROWS) {
            more++;
            continue;
        }
        panels.top = top + TITLES + (panels.n_cut > 2 ? 16 : 0) + step * rows++;
        if (out)
            draw_row(&panels);
    } while (next_row(&panels));
    if (out && more > 0)
        rfs_svg_text(out, PANEL_LEFT, top + TITLES + step * rows + 12, "t",
                     "and %" PRIu32 " more rows, which are not drawn", more);
    return TITLES + step * rows + (more > 0 ? 24 : 0) + 4;
}

/* ---- the whole picture ----------------------------------------------------------------------- */

static double body(const struct picture *picture, FILE *out)
{
    uint32_t axes[RFS_MAX_DIMS];
    const uint32_t n = cut_axes(picture, axes);

    return n > 1 ? draw_panels(picture, out, HEAD)
                 : draw_flow(picture, n > 0 ? axes[0] : 0, out, HEAD);
}

static void draw(const struct picture *picture, FILE *out)
{
    const double height = HEAD + body(picture, NULL) + FOOT;
    uint64_t bytes = 0;
    char size[RFS_SHOWN_BYTES];

    RFS_FREE char *name =
        rfs_text_printf("reshard explain: %s, %s", picture->title, picture->subtitle);
    rfs_svg_begin(out, WIDTH, height, name ? name : "reshard explain");
    rfs_svg_text(out, MARGIN, 30, "h", "%s", picture->title);
    rfs_svg_text(out, MARGIN, 49, "t", "%s", picture->subtitle);
    body(picture, out);
    for (size_t i = 0; i < picture->pieces.n; i++)
        bytes += picture->pieces.data[i].bytes;
    rfs_svg_text(out, MARGIN, height - 30, "s",
                 "Each colour is one slice of the source, and on the right where its bytes go: %zu "
                 "piece%s, %s%s.",
                 picture->pieces.n, picture->pieces.n == 1 ? "" : "s", rfs_show_bytes(bytes, size),
                 picture->explain->one ? "" : ", each slice once");
    rfs_svg_text(
        out, MARGIN, height - 14, "s", "The %s named on the left are those that are read%s.",
        picture->explain->words->sources,
        picture->explain->parts || picture->tensor ? "" : "; ×N tells that N ranks hold the same");
    rfs_svg_end(out);
}

int rfs_explain_picture(struct rfs_explain *explain, struct rfs_error *err)
{
    RFS_CLEANUP(picture_free) struct picture picture = {.explain = explain};
    FILE *out;
    int rc = rfs_explain_each(explain, collect, &picture, err);

    if (rc == 0 && (!name_cells(&picture) || !sort_slices(&picture)))
        rc = rfs_fail_memory(err);
    if (rc == 0)
        rc = rfs_svg_open(explain->svg, &out, err);
    if (rc)
        return rc;
    draw(&picture, out);
    return rfs_svg_close(explain->svg, out, err);
}
