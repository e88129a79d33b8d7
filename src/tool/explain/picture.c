/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/explain/picture.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "tool/common/layout_text.h"
#include "tool/common/show.h"
#include "tool/explain/ranges.h"

#define MARGIN 24.0
#define HEAD 62.0
#define FOOT 50.0

uint32_t rfs_picture_cut_axes(const struct picture *picture, uint32_t *axes)
{
    uint32_t n = 0;

    for (uint32_t i = 0; !picture->copied && i < picture->ndim; i++)
        if (rfs_picture_pieces(picture, i) > 1 || picture->dst.pieces[i] > 1)
            axes[n++] = i;
    return n;
}

void rfs_picture_ranks(const struct picture *picture, const struct drawn *drawn, bool source,
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

void rfs_picture_range(const struct picture *picture, const struct rfs_box *box, uint32_t axis,
                       char *out, size_t cap)
{
    if (picture->ndim == 0 || box->len[axis] == picture->whole[axis])
        snprintf(out, cap, "all of it");
    else
        snprintf(out, cap, "%" PRIu64 ":%" PRIu64, box->at[axis], box->at[axis] + box->len[axis]);
}

/* ---- the drawing's contents ------------------------------------------------------------------ */

bool rfs_drawn_add_rank(struct drawn *drawn, uint32_t rank)
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

static int too_many(const struct picture *picture, uint64_t n, struct rfs_error *err)
{
    return rfs_fail(
        err, -E2BIG,
        RFS_OF(rfs_catalog_path(picture->explain->plans.catalog), picture->explain->param),
        "the text, or --json", "has %" PRIu64 " pieces; at most %d can be drawn", n, PICTURE_MOST);
}

/* All cells of a grid, row-major, with neighbours in other colours. */
static int add_cells(struct picture *picture, struct rfs_error *err)
{
    const struct rfs_grid *grid = &picture->src;
    uint32_t cell[RFS_GRID_DIMS] = {0};
    uint64_t n = 1;

    for (uint32_t i = 0; i < grid->ndim; i++)
        if (!rfs_mul_u64(n, grid->pieces[i], &n) || n > PICTURE_MOST)
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

/* The cell that a place of the whole tensor is in. */
static size_t cell_at(const struct picture *picture, const uint64_t *at)
{
    size_t k = 0;

    if (picture->boxed)
        return rfs_picture_chunk_at(picture, at);
    for (uint32_t i = 0; i < picture->ndim; i++)
        k = k * picture->src.pieces[i] + rfs_grid_piece(&picture->src, picture->whole, i, at[i]);
    return k;
}

/* The slice with that box, which is added if it is new; N when out of memory. */
static size_t slice_of(struct picture *picture, const struct rfs_box *box, bool apart)
{
    for (size_t i = picture->slices.n; !apart && i-- > 0;)
        if (memcmp(&picture->slices.data[i].box, box, sizeof *box) == 0)
            return i;
    return RFS_PUSH(&picture->slices, (struct drawn){.box = *box, .touched = true})
               ? picture->slices.n - 1
               : SIZE_MAX;
}

/* The cell of a copied tensor: one for each rank that gives it. */
static size_t provider_of(struct picture *picture, uint32_t rank)
{
    for (size_t i = 0; i < picture->cells.n; i++)
        if (picture->cells.data[i].ranks.data[0] == rank)
            return i;
    struct drawn drawn = {.holders = 1, .colour = (uint32_t)picture->cells.n};
    memcpy(drawn.box.len, picture->whole, sizeof drawn.box.len);
    if (!rfs_drawn_add_rank(&drawn, rank) || !RFS_PUSH(&picture->cells, drawn)) {
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
                                .bytes = rfs_block_source_bytes(&piece->block)};
    const size_t from =
        picture->copied ? provider_of(picture, piece->rank) : cell_at(picture, piece->whole.at);

    if (from == SIZE_MAX || !rfs_drawn_add_rank(&picture->cells.data[from], piece->rank))
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
    picture->boxes = rfs_catalog_chunks(picture->explain->plans.catalog);
    picture->boxed =
        picture->boxes ? rfs_chunks_find(picture->boxes, slice->name, strlen(slice->name)) : NULL;
    picture->uncut = !geometry;
    picture->copied = !geometry && !picture->boxed;
    picture->dst = geometry ? geometry->dst : (struct rfs_grid){.ndim = picture->ndim, .ranks = 1};
    for (uint32_t i = 0; !geometry && i < picture->ndim; i++)
        picture->dst.pieces[i] = 1;
    if (picture->boxed && picture->boxed->n > PICTURE_MOST)
        return too_many(picture, picture->boxed->n, err);
    if (picture->boxed)
        return rfs_picture_add_chunks(picture) ? rfs_fail_memory(err) : 0;
    if (!geometry)
        return 0;
    picture->base = slice->trace.base;
    picture->src = geometry->src;
    return add_cells(picture, err);
}

/* "source: axis 0 in 8"; malloc'ed. */
static char *heading(const struct picture *picture, const char *name,
                     const struct rfs_explained_side *side)
{
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    fprintf(out, "%s: ", name);
    if (side->words)
        fputs(picture->explain->parts || side->chunks ? side->words : "copied as it is", out);
    else
        rfs_put_cuts(out, side->grid);
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
    rfs_put_dims(out, slice->n_dims, slice->dims);
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
    /* Another stage may cut it in another way; one picture has one way. */
    if (picture->uncut != !geometry ||
        (geometry &&
         (memcmp(&geometry->dst, &picture->dst, sizeof picture->dst) != 0 ||
          (!picture->boxed && memcmp(&geometry->src, &picture->src, sizeof picture->src) != 0))))
        return rfs_fail(
            err, -EINVAL,
            RFS_OF(rfs_catalog_path(picture->explain->plans.catalog), picture->explain->param),
            "--rank N", "is cut in another way for rank_%u than for the ranks before it",
            slice->rank);
    struct rfs_box all = {.at = {0}};
    memcpy(all.len, picture->whole, sizeof all.len);
    for (size_t k = 0; k < (geometry ? slice->boxes.n : 1); k++) {
        at = slice_of(picture, geometry ? &slice->boxes.data[k] : &all, picture->copied);
        if (at == SIZE_MAX || !rfs_drawn_add_rank(&picture->slices.data[at], slice->rank))
            return rfs_fail_memory(err);
    }
    if (picture->slices.n > PICTURE_MOST)
        return too_many(picture, picture->slices.n, err);
    const bool is_new = picture->slices.n > first;
    for (size_t i = 0; i < slice->trace.n; i++)
        if (!add_piece(picture, &slice->trace.pieces[i], first, is_new))
            return rfs_fail_memory(err);
    return picture->pieces.n > PICTURE_MOST ? too_many(picture, picture->pieces.n, err) : 0;
}

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

static int by_place(const void *a, const void *b)
{
    const struct drawn *x = a, *y = b;

    for (uint32_t i = 0; i < RFS_MAX_DIMS; i++)
        if (x->box.at[i] != y->box.at[i])
            return RFS_ORDER(x->box.at[i], y->box.at[i]);
    return RFS_ORDER(x->number, y->number);
}

/* Slices come by rank; they are drawn in the order in which they lie in the tensor. */
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

/* Cells that nobody takes anything from still have ranks that hold them. */
static bool name_cells(struct picture *picture)
{
    for (size_t i = 0; !picture->copied && i < picture->cells.n; i++) {
        uint32_t cell[RFS_GRID_DIMS] = {0};

        if (picture->cells.data[i].ranks.n > 0)
            continue;
        for (uint32_t k = 0; k < picture->ndim; k++)
            cell[k] =
                rfs_grid_piece(&picture->src, picture->whole, k, picture->cells.data[i].box.at[k]);
        if (!rfs_drawn_add_rank(&picture->cells.data[i],
                                picture->base + rfs_grid_holder(&picture->src, cell, 0)))
            return false;
    }
    return true;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static double body(const struct picture *picture, FILE *out)
{
    uint32_t axes[RFS_MAX_DIMS];
    const uint32_t n = rfs_picture_cut_axes(picture, axes);

    return n > 1 ? rfs_picture_panels(picture, out, HEAD)
                 : rfs_picture_flow(picture, n > 0 ? axes[0] : 0, out, HEAD);
}

static void draw(const struct picture *picture, FILE *out)
{
    const double height = HEAD + body(picture, NULL) + FOOT;
    uint64_t bytes = 0;
    char size[RFS_SHOWN_BYTES];

    RFS_FREE char *name =
        rfs_text_printf("reshard explain: %s, %s", picture->title, picture->subtitle);
    rfs_svg_begin(out, PICTURE_WIDTH, height, name ? name : "reshard explain");
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
        picture->explain->parts || picture->boxed ? "" : "; ×N tells that N ranks hold the same");
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
