/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of a parameter: left the source files that give something, right the slices of the
 * destination, and a band for each piece. Heights are bytes. A band has the piece's place in the
 * file's tensor at its left end, and its place in the whole tensor at its right end.
 *
 * The list of pieces is all that it needs: it knows no format, and no way to cut.
 */
#include "tool/explain/picture.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/order.h"
#include "base/path.h"
#include "base/text.h"
#include "tool/common/args.h"
#include "tool/common/show.h"

#define MOST 4096 /* pieces, or slices; more are not drawn */
#define WIDTH 960.0
#define MARGIN 24.0
#define TOP 96.0
#define FOOT 54.0
#define BAR 40.0
#define LEFT 190.0  /* the bar of files */
#define RIGHT 660.0 /* the bar of slices */
#define LINE 12.0   /* from one label to the next */
#define NAME 18.0   /* above the files of another tensor */
#define LABEL 96

/* ---- SVG ------------------------------------------------------------------------------------- */

/*
 * Pictures in SVG, as few bytes as may be: shapes with classes of one style sheet, which also has
 * the colours of dark surroundings. Numbers are pixels, printed to a tenth.
 *
 * Colours are light forms of those of Okabe and Ito, which people with any kind of colour blindness
 * tell apart; each thing that has one also has a label, so that nothing depends on them, on paper
 * either.
 */
static const char *const colours[] = {"#a6d3ee", "#f4c56a", "#86d0b3", "#f0e794",
                                      "#93b4e3", "#f2ab8c", "#dcaacb", "#cdcdcd"};
#define PLAIN (sizeof colours / sizeof *colours)
#define COLOURS ((uint32_t)(2 * PLAIN)) /* plain ones, then striped ones */

/* Prints a number without zeros that say nothing. */
static void put(FILE *out, const char *before, double number)
{
    char text[32];
    size_t n = (size_t)snprintf(text, sizeof text, "%.1f", number);

    if (n > 2 && strcmp(text + n - 2, ".0") == 0)
        text[n - 2] = '\0';
    fprintf(out, "%s%s", before, text);
}

static void put_box(FILE *out, double x, double y, double width, double height)
{
    put(out, " x=\"", x);
    put(out, "\" y=\"", y);
    put(out, "\" width=\"", width);
    put(out, "\" height=\"", height);
    fputc('"', out);
}

static void escape(FILE *out, const char *text)
{
    static const char specials[] = "<>&\"";
    static const char *const escaped[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
    RFS_FREE char *clean = rfs_text_printable_copy(text);

    for (const char *at = clean ? clean : ""; *at; at++) {
        const char *special = strchr(specials, *at);
        if (special)
            fputs(escaped[special - specials], out);
        else
            fputc(*at, out);
    }
}

/* Draws a rectangle. Class: "o" outline. */
static void svg_rect(FILE *out, double x, double y, double width, double height, const char *style)
{
    fprintf(out, "<rect class=\"%s\"", style);
    put_box(out, x, y, width, height);
    fputs("/>\n", out);
}

/* Begins a picture, whose size comes first in the file. TITLE is for screen readers. */
static void svg_begin(FILE *out, double width, double height, const char *title)
{
    fputs("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0", out);
    put(out, " ", width);
    put(out, " ", height);
    put(out, "\" width=\"", width);
    put(out, "\" height=\"", height);
    fputs("\" role=\"img\">\n<title>", out);
    escape(out, title);
    fputs("</title>\n<style>\n"
          "text{font-family:\"DejaVu "
          "Sans\",Verdana,Helvetica,Arial,sans-serif;font-size:12px;fill:#1d2126}\n"
          ".h{font-size:17px;font-weight:bold}.s,.k{font-size:11px}.s{fill:#565e68}.k{fill:#111}\n"
          ".e{text-anchor:end}.p{fill:#fff}.o{fill:none;stroke:#30363d}.r{opacity:.6}\n",
          out);
    for (size_t i = 0; i < PLAIN; i++)
        fprintf(out, ".c%zu{fill:%s}", i, colours[i]);
    for (size_t i = 0; i < PLAIN; i++)
        fprintf(out, ".c%zu{fill:url(#p%zu)}", i + PLAIN, i);
    fputs("\n@media(prefers-color-scheme:dark){text{fill:#e6e8ea}.s{fill:#a9b1ba}.k{fill:#111}"
          ".p{fill:#15181c}.o{stroke:#d5dade}}\n"
          "</style>\n<defs>",
          out);
    for (size_t i = 0; i < PLAIN; i++)
        fprintf(out,
                "<pattern id=\"p%zu\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" "
                "patternTransform=\"rotate(45)\"><path class=\"c%zu\" d=\"M0 0h8v8H0z\"/>"
                "<path fill=\"#fff\" opacity=\".55\" d=\"M0 0h3v8H0z\"/></pattern>",
                i, i);
    fputs("</defs>\n", out);
    svg_rect(out, 0, 0, width, height, "p");
}

static void svg_end(FILE *out)
{
    fputs("</svg>\n", out);
}

/*
 * Draws a line of text at its baseline. XML's characters are escaped, and bytes that are not
 * printable UTF-8 stand as \xNN. Classes: "h" heading, "t" text, "s" small, "k" on a colour; "e" at
 * its end, as in "s e".
 */
static void __attribute__((format(printf, 5, 6)))
svg_text(FILE *out, double x, double y, const char *style, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    RFS_FREE char *text = rfs_text_vprintf(fmt, args);
    va_end(args);
    put(out, "<text x=\"", x);
    put(out, "\" y=\"", y);
    fprintf(out, "\" class=\"%s\">", style);
    escape(out, text ? text : "");
    fputs("</text>\n", out);
}

/* Fills a rectangle with a colour. There are 8 plain ones, then 8 striped ones, and so on. */
static void svg_fill(FILE *out, double x, double y, double width, double height, uint32_t colour)
{
    char style[16];

    snprintf(style, sizeof style, "c%" PRIu32, colour % COLOURS);
    svg_rect(out, x, y, width, height, style);
}

/* Draws a band from a piece of the line x = X0 to one of x = X1, in a colour without stripes. */
static void svg_band(FILE *out, double x0, double from0, double to0, double x1, double from1,
                     double to1, uint32_t colour)
{
    const double middle = (x0 + x1) / 2;

    const double numbers[] = {x0,  from0,  middle, from0,  middle, from1, x1, from1,
                              to1, middle, to1,    middle, to0,    x0,    to0};
    static const char before[] = "M C     VC     ";

    fprintf(out, "<path class=\"c%" PRIu32 " r\" d=\"", colour % (uint32_t)PLAIN);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put(out, (const char[]){before[i], '\0'}, numbers[i]);
    fputs("z\"/>\n", out);
}

/* Returns about how wide a text of the small class is. */
static double svg_width(const char *text)
{
    return (double)rfs_text_width(text) * 6.6;
}

/*
 * Opens PATH ("-": the standard output) for a picture, which svg_close closes, so that it is whole
 * or an error. Returns 0, or -errno with *err filled.
 */
static int svg_open(const char *path, FILE **out, struct rfs_error *err)
{
    *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    return *out ? 0
                : rfs_fail(err, -errno, RFS_IN(path), "another FILE for --svg",
                           "cannot write the picture: %s", strerror(errno));
}

static int svg_close(const char *path, FILE *out, struct rfs_error *err)
{
    const bool bad = ferror(out) != 0;
    const int rc = out == stdout ? fflush(out) : fclose(out);

    if (!bad && rc == 0)
        return 0;
    const int code = errno > 0 ? -errno : -EIO;
    return rfs_fail(err, code, RFS_IN(path), "another FILE for --svg",
                    "cannot write the picture: %s", strerror(-code));
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Prints the entries of a piece along an axis. */
static void put_entries(FILE *out, const struct rfs_explained_piece *piece, int side, uint32_t axis)
{
    const struct rfs_box *box = side == RFS_EXPLAINED_MADE ? piece->whole : piece->source;
    const uint64_t first = piece->side[side].begin[axis];
    uint64_t count[RFS_EXPLAINED_STEPS] = {box ? box->len[axis] : 1};
    uint64_t step[RFS_EXPLAINED_STEPS] = {1};
    uint32_t n = 0;

    for (uint32_t k = 0; k < piece->n; k++) { /* the smallest step first */
        uint32_t at = n;
        if (piece->steps[k].axis[side] != axis)
            continue;
        for (; at > 0 && step[at - 1] > piece->steps[k].step[side]; at--) {
            step[at] = step[at - 1];
            count[at] = count[at - 1];
        }
        step[at] = piece->steps[k].step[side];
        count[at] = piece->steps[k].count;
        n++;
    }
    const uint64_t end = first + (count[0] - 1) * step[0] + 1;
    if (first == 0 && end == piece->side[side].dims[axis] && step[0] == 1)
        fputs(":", out);
    else
        fprintf(out, "%" PRIu64 ":%" PRIu64, first, end);
    if (step[0] > 1)
        fprintf(out, ":%" PRIu64, step[0]);
    for (uint32_t k = 1; k < n; k++)
        fprintf(out, " and %" PRIu64 " more, each %" PRIu64 " further", count[k] - 1, step[k]);
}

void rfs_explain_put_place(FILE *out, const struct rfs_explained_piece *piece, int side)
{
    fputc('[', out);
    for (uint32_t a = 0; a < piece->side[side].ndim; a++) {
        fputs(a > 0 ? ", " : "", out);
        put_entries(out, piece, side, a);
    }
    fputc(']', out);
}

/* A source file, or a slice of the destination. */
struct holder {
    RFS_VEC(uint32_t) ranks; /* ranks that give the pieces, or have the slice; ascending */
    struct rfs_box box;      /* box of a slice */
    const char *label;       /* the slice's place */
    const char *name;        /* tensor of the file; NULL for a slice */
    size_t first, n;         /* pieces of a slice */
    uint64_t bytes;
    uint32_t tensor, number; /* order of tensors, and of holders */
    double top, height;
    double used; /* height of the pieces that have a place */
};

struct drawn {
    uint64_t at[RFS_MAX_DIMS]; /* first element in the whole tensor */
    uint32_t from, to;         /* indexes in files, slices */
    uint32_t order;            /* number of the slice */
    uint64_t bytes;
    const char *source, *place; /* texts of both ends */
    double left, right, height;
};

struct picture {
    struct rfs_arena memory; /* that of all below */
    const struct rfs_explained_view *view;
    RFS_VEC(struct holder) files, slices;
    RFS_VEC(struct drawn) pieces;
    uint32_t replicas; /* ranks that hold each slice of the source */
    const char *title, *subtitle, *source, *destination;
    uint64_t bytes;
    double height, gap; /* height of all bytes; gap between two holders */
};

static void picture_free(struct picture *picture)
{
    rfs_arena_free(&picture->memory);
}

/* ---- contents -------------------------------------------------------------------------------- */

/* Appends to a list of the picture. */
#define ADD(picture, list, ...)                                                                    \
    do {                                                                                           \
        RFS_ADD(&(picture)->memory, list, __VA_ARGS__);                                            \
        if ((picture)->memory.failed)                                                              \
            rfs_printed_memory(NULL);                                                              \
    } while (0)

/* Ends a text, which the picture keeps. */
static const char *keep_text(struct picture *picture, struct rfs_printed *shown)
{
    RFS_FREE char *text = rfs_printed_end(shown);

    return rfs_printed_memory(rfs_arena_text(&picture->memory, text, strlen(text)));
}

static bool has_rank(const struct holder *holder, uint32_t rank)
{
    return RFS_BISECT_KEY(i, holder->ranks.n, holder->ranks.data[i], rank) < holder->ranks.n;
}

static void add_rank(struct picture *picture, struct holder *holder, uint32_t rank)
{
    const size_t at = RFS_BISECT(i, holder->ranks.n, holder->ranks.data[i] >= rank);

    if (has_rank(holder, rank))
        return;
    ADD(picture, &holder->ranks, rank);
    memmove(holder->ranks.data + at + 1, holder->ranks.data + at,
            (holder->ranks.n - 1 - at) * sizeof *holder->ranks.data);
    holder->ranks.data[at] = rank;
}

/* Returns the index of the file of a rank that gives something of the tensor NAME. */
static uint32_t file_of(struct picture *picture, const char *name, uint32_t rank)
{
    uint32_t tensor = UINT32_MAX;
    uint32_t i = 0;

    for (; i < picture->files.n; i++) {
        const struct holder *file = &picture->files.data[i];
        if (strcmp(file->name, name) != 0)
            continue;
        if (has_rank(file, rank))
            return i;
        tensor = file->tensor;
    }
    ADD(picture, &picture->files,
        (struct holder){.name = name, .tensor = tensor == UINT32_MAX ? i : tensor});
    add_rank(picture, &picture->files.data[i], rank);
    return i;
}

/*
 * Returns the piece of a slice that begins at AT, as piece I of another rank with the same slice;
 * NULL: none does.
 */
static const struct drawn *same_piece(const struct picture *picture, const struct holder *slice,
                                      const uint64_t *at, size_t i)
{
    const struct drawn *pieces = picture->pieces.data + slice->first;

    for (size_t k = 0; k < slice->n; k++) {
        const struct drawn *piece = &pieces[(i + k) % slice->n];
        if (memcmp(piece->at, at, sizeof piece->at) == 0)
            return piece;
    }
    return NULL;
}

static void add_piece(struct picture *picture, uint32_t to, const struct rfs_explained_piece *piece)
{
    struct drawn drawn = {
        .from = file_of(picture, piece->name, piece->rank), .to = to, .bytes = piece->bytes};
    struct rfs_printed shown;
    char size[RFS_TEXT_AMOUNT];

    memcpy(drawn.at, piece->side[RFS_EXPLAINED_MADE].begin, sizeof drawn.at);
    FILE *out = rfs_printed_begin(&shown);
    rfs_explain_put_place(out, piece, RFS_EXPLAINED_SOURCE);
    fprintf(out, ", %s", rfs_text_amount(drawn.bytes, size));
    drawn.source = keep_text(picture, &shown);
    rfs_explain_put_place(rfs_printed_begin(&shown), piece, RFS_EXPLAINED_MADE);
    drawn.place = keep_text(picture, &shown);
    ADD(picture, &picture->pieces, drawn);
    picture->slices.data[to].n++;
    picture->slices.data[to].bytes += drawn.bytes;
    picture->files.data[drawn.from].bytes += drawn.bytes;
    picture->bytes += drawn.bytes;
}

static bool box_has(const struct rfs_box *box, uint32_t ndim, const uint64_t *at)
{
    for (uint32_t i = 0; i < ndim; i++)
        if (at[i] < box->at[i] || at[i] - box->at[i] >= box->len[i])
            return false;
    return true;
}

/*
 * Returns whether a box of a rank's slice is that of slice TO. Where no
 * strategy cuts the tensor, each rank may have a value of its own.
 */
static bool is_same(const struct picture *picture, uint32_t to, const struct rfs_explained *slice,
                    const struct rfs_box *box)
{
    const struct holder *holder = &picture->slices.data[to];

    if (memcmp(&holder->box, box, sizeof *box) != 0)
        return false;
    if (slice->boxes.n > 0 || slice->n == 0 || holder->n == 0)
        return true;
    const struct drawn *piece = &picture->pieces.data[holder->first];
    struct rfs_explained_piece first;
    rfs_explained_piece(picture->view, slice, 0, &first);
    return has_rank(&picture->files.data[piece->from], first.rank);
}

/* Adds a box of a rank's slice, with its pieces; or the rank to the one that has that box. */
static void add_slice(struct picture *picture, const struct rfs_explained *slice,
                      const struct rfs_box *box)
{
    uint32_t to = 0;
    struct rfs_printed shown;

    while (to < picture->slices.n && !is_same(picture, to, slice, box))
        to++;
    const bool is_new = to == picture->slices.n;
    if (is_new) {
        struct holder holder = {.box = *box, .first = picture->pieces.n};
        rfs_show_box(rfs_printed_begin(&shown), slice->type->ndim, slice->whole, box->at, box->len);
        holder.label = keep_text(picture, &shown);
        ADD(picture, &picture->slices, holder);
    }
    add_rank(picture, &picture->slices.data[to], slice->rank);
    for (size_t i = 0, n = 0; i < slice->n; i++) {
        struct rfs_explained_piece piece;
        rfs_explained_piece(picture->view, slice, i, &piece);
        const uint64_t *at = piece.side[RFS_EXPLAINED_MADE].begin;
        if (piece.zeros || !box_has(box, slice->type->ndim, at))
            continue;
        const struct drawn *same =
            is_new ? NULL : same_piece(picture, &picture->slices.data[to], at, n++);
        if (is_new)
            add_piece(picture, to, &piece);
        else if (same)
            add_rank(picture, &picture->files.data[same->from], piece.rank);
    }
}

/* Returns "source: axis 0 in 8". What rules make is cut on one side alone. */
static const char *heading(struct picture *picture, const char *name,
                           const struct rfs_explained_side *side)
{
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    fputs(name, out);
    if (side)
        fputs(": ", out);
    if (side && side->words)
        fputs(side->words, out);
    else if (side)
        rfs_show_cuts(out, side->grid);
    return keep_text(picture, &shown);
}

static void title(struct picture *picture, const struct rfs_explained *slice)
{
    const struct rfs_explained_view *view = picture->view;
    const struct rfs_explained_words *words = view->words;
    struct rfs_printed shown;
    FILE *out = rfs_printed_begin(&shown);

    fputs(rfs_dtype_name((enum rfs_dtype)slice->type->dtype), out);
    if (slice->type->dtype != slice->shown->dtype)
        fprintf(out, " to %s", rfs_dtype_name((enum rfs_dtype)slice->shown->dtype));
    fputc(' ', out);
    rfs_show_dims(out, slice->n_dims, slice->dims);
    if (slice->rule_file)
        fprintf(out, ", made by %s: line %" PRIu32, rfs_path_name(slice->rule_file),
                slice->rule_line);
    fprintf(out, ", from %" PRIu32 " %s to %" PRIu32, view->n_sources,
            view->n_sources == 1 ? words->source : words->sources, view->n_ranks);
    if (strcmp(words->sources, words->many) != 0)
        fprintf(out, " %s", view->n_ranks == 1 ? words->one : words->many);
    if (view->one)
        fprintf(out, "; the slice of %s %" PRIu32, words->one, slice->rank);
    picture->subtitle = keep_text(picture, &shown);
    picture->title = rfs_printed_memory(
        rfs_arena_text(&picture->memory, slice->shown_name, strlen(slice->shown_name)));
    const char *const both = slice->made ? NULL : slice->source.words;
    const bool alike =
        both && slice->destination.words && strcmp(both, slice->destination.words) == 0;
    picture->source = heading(picture, alike ? "source and destination" : "source",
                              slice->made ? NULL : &slice->source);
    picture->destination = alike ? "" : heading(picture, "destination", &slice->destination);
    picture->replicas = slice->source.grid ? slice->source.grid->replicas : 1;
}

static int collect(void *ctx, const struct rfs_explained *slice, struct rfs_error *err)
{
    struct picture *picture = ctx;
    struct rfs_box all = {.at = {0}};

    if (!picture->title)
        title(picture, slice);
    memcpy(all.len, slice->whole, slice->type->ndim * sizeof *all.len);
    for (size_t k = 0; k < slice->boxes.n; k++)
        add_slice(picture, slice, &slice->boxes.data[k]);
    if (slice->boxes.n == 0)
        add_slice(picture, slice, &all);
    const size_t n = picture->pieces.n > picture->slices.n ? picture->pieces.n : picture->slices.n;
    return n <= MOST ? 0
                     : rfs_fail(err, -E2BIG, RFS_OF(picture->view->path, picture->view->param),
                                "the text, or --json", "has %zu pieces; at most %d can be drawn", n,
                                MOST);
}

/* ---- places on the page ---------------------------------------------------------------------- */

static int by_at(const uint64_t *x, const uint64_t *y)
{
    for (uint32_t i = 0; i < RFS_MAX_DIMS; i++)
        if (x[i] != y[i])
            return RFS_ORDER(x[i], y[i]);
    return 0;
}

RFS_COMPARE(by_slice, struct drawn, x, y, RFS_ORDER(x->order, y->order) ?: by_at(x->at, y->at))
RFS_COMPARE(by_number, struct holder *, x, y,
            RFS_ORDER((*x)->tensor, (*y)->tensor) ?: RFS_ORDER((*x)->number, (*y)->number))
RFS_COMPARE(by_box, struct holder *, x, y,
            by_at((*x)->box.at, (*y)->box.at) ?: RFS_ORDER((*x)->first, (*y)->first))

/* Returns the sorted holders, malloc'ed, and numbers them. */
static struct holder **sorted(struct holder *holders, size_t n,
                              int (*compare)(const void *, const void *))
{
    struct holder **list = rfs_printed_memory(calloc(n + 1, sizeof *list));

    for (size_t i = 0; i < n; i++)
        list[i] = &holders[i];
    RFS_SORT(list, n, compare);
    for (size_t i = 0; i < n; i++)
        list[i]->number = (uint32_t)i;
    return list;
}

/* Returns whether the name of a file's tensor stands above it. */
static bool is_named(const struct picture *picture, struct holder *const *holders, size_t i)
{
    return holders[i]->name && strcmp(holders[i]->name, picture->title) != 0 &&
           (i == 0 || holders[i]->tensor != holders[i - 1]->tensor);
}

/* Places holders one below the other. Returns the height. */
static double stack(const struct picture *picture, struct holder **holders, size_t n)
{
    double y = 0;

    for (size_t i = 0; i < n; i++) {
        struct holder *holder = holders[i];
        holder->top = y + (is_named(picture, holders, i) ? NAME : 0);
        holder->height = picture->height / (double)n;
        if (picture->bytes > 0)
            holder->height = picture->height * (double)holder->bytes / (double)picture->bytes;
        y = holder->top + holder->height + picture->gap;
    }
    return y - (n > 0 ? picture->gap : 0);
}

static void centre(struct holder **holders, size_t n, double room)
{
    for (size_t i = 0; i < n; i++)
        holders[i]->top += TOP + room / 2;
}

/* Places a piece below those before it, on both sides. */
static void place(struct picture *picture, struct drawn *piece)
{
    struct holder *from = &picture->files.data[piece->from];
    struct holder *to = &picture->slices.data[piece->to];

    piece->height = picture->height * (double)piece->bytes / (double)picture->bytes;
    piece->left = from->top + from->used;
    piece->right = to->top + to->used;
    from->used += piece->height;
    to->used += piece->height;
}

/* Sorts slices and pieces as they lie in the tensor, and files by their first pieces. */
static double arrange(struct picture *picture, struct holder ***files, struct holder ***slices)
{
    const size_t n = picture->pieces.n > picture->slices.n ? picture->pieces.n : picture->slices.n;

    *slices = sorted(picture->slices.data, picture->slices.n, by_box);
    for (size_t i = 0; i < picture->pieces.n; i++)
        picture->pieces.data[i].order = picture->slices.data[picture->pieces.data[i].to].number;
    RFS_SORT_ALL(&picture->pieces, by_slice);
    for (size_t i = picture->pieces.n; i-- > 0;)
        picture->files.data[picture->pieces.data[i].from].number = (uint32_t)i;
    *files = sorted(picture->files.data, picture->files.n, by_number);
    picture->height = n < 6 ? 156 : n > 64 ? 1280 : (double)n * (n > 32 ? 17 : 24);
    picture->gap = n > 128 ? 0 : n > 16 ? 3 : 6;
    const double left = stack(picture, *files, picture->files.n);
    const double right = stack(picture, *slices, picture->slices.n);
    centre(*files, picture->files.n, right > left ? right - left : 0);
    centre(*slices, picture->slices.n, left > right ? left - right : 0);
    for (size_t i = 0; i < picture->pieces.n; i++)
        place(picture, &picture->pieces.data[i]);
    return left > right ? left : right;
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Draws the texts at a band's ends: in a line, or else one above the other in its middle. */
static void draw_places(FILE *out, const struct drawn *piece)
{
    const double room = RIGHT - LEFT - BAR - 12;
    const double from = svg_width(piece->source);
    const double to = svg_width(piece->place);
    const bool apart = from + to + LINE > room;
    const double middle = (piece->left + piece->right + piece->height) / 2;

    if (piece->height < (apart ? 2 * LINE : LINE - 1))
        return;
    if (from < room)
        svg_text(out, LEFT + BAR + 6, apart ? middle - 3 : piece->left + piece->height / 2 + 4, "k",
                 "%s", piece->source);
    if (to < room)
        svg_text(out, RIGHT - 6, apart ? middle + 11 : piece->right + piece->height / 2 + 4, "k e",
                 "%s", piece->place);
}

static void draw_pieces(const struct picture *picture, FILE *out)
{
    for (size_t i = 0; i < picture->pieces.n; i++) {
        const struct drawn *piece = &picture->pieces.data[i];
        const uint32_t colour = picture->files.data[piece->from].number;
        svg_band(out, LEFT + BAR, piece->left, piece->left + piece->height, RIGHT, piece->right,
                 piece->right + piece->height, colour);
        svg_fill(out, LEFT, piece->left, BAR, piece->height, colour);
        svg_fill(out, RIGHT, piece->right, BAR, piece->height, colour);
    }
    for (size_t i = 0; i < picture->pieces.n; i++)
        draw_places(out, &picture->pieces.data[i]);
}

/* Writes "rank 3", "ranks 0, 4", "rank 0 and 7 more". */
static void label_ranks(const struct holder *holder, const char *one, const char *many,
                        char out[LABEL])
{
    RFS_FREE char *list = rfs_ranks_text(holder->ranks.data, holder->ranks.n);

    if (strlen(list) <= 14)
        snprintf(out, LABEL, "%s %s", holder->ranks.n > 1 ? many : one, list);
    else
        snprintf(out, LABEL, "%s %" PRIu32 " and %zu more", one, holder->ranks.data[0],
                 holder->ranks.n - 1);
}

static void label_file(const struct picture *picture, FILE *out, const struct holder *file,
                       double y)
{
    const struct rfs_explained_words *words = picture->view->words;
    char ranks[LABEL], of[32] = "";

    label_ranks(file, words->source, words->sources, ranks);
    if (picture->replicas > file->ranks.n)
        snprintf(of, sizeof of, " ×%" PRIu32, picture->replicas);
    svg_text(out, LEFT - 10, y, "e", "%s%s", ranks, of);
}

static void label_slice(const struct picture *picture, FILE *out, const struct holder *slice,
                        double y)
{
    const struct rfs_explained_words *words = picture->view->words;
    const double x = RIGHT + BAR + 10;
    char ranks[LABEL];

    label_ranks(slice, words->one, words->many, ranks);
    const bool fits = x + svg_width(ranks) + svg_width(slice->label) < WIDTH - MARGIN / 2;
    svg_text(out, x, y, "t", "%s %s", ranks, fits ? slice->label : "");
}

/* Draws the outlines and the labels of a bar at X. */
static void draw_bar(const struct picture *picture, FILE *out, struct holder *const *holders,
                     size_t n, double x)
{
    double last = -LINE;

    for (size_t i = 0; i < n; i++) {
        const struct holder *holder = holders[i];
        const double middle = holder->top + holder->height / 2;
        if (is_named(picture, holders, i))
            svg_text(out, MARGIN, holder->top - 5, "s", "%s", holder->name);
        svg_rect(out, x, holder->top, BAR, holder->height, "o");
        if (middle - last < LINE)
            continue;
        last = middle;
        (holder->name ? label_file : label_slice)(picture, out, holder, middle + 4);
    }
}

static void draw(struct picture *picture, FILE *out)
{
    const struct rfs_explained_words *words = picture->view->words;
    struct holder **files_, **slices_;
    const double height = TOP + arrange(picture, &files_, &slices_) + FOOT;
    RFS_FREE struct holder **files = files_;
    RFS_FREE struct holder **slices = slices_;
    char size[RFS_TEXT_AMOUNT];

    RFS_FREE char *name =
        rfs_text_printf("reshard explain: %s, %s", picture->title, picture->subtitle);
    svg_begin(out, WIDTH, height, name ? name : "reshard explain");
    svg_text(out, MARGIN, 30, "h", "%s", picture->title);
    svg_text(out, MARGIN, 49, "t", "%s", picture->subtitle);
    svg_text(out, MARGIN, TOP - 16, "s", "%s", picture->source);
    if (*picture->destination)
        svg_text(out, WIDTH - MARGIN, TOP - 16, "s e", "%s", picture->destination);
    draw_pieces(picture, out);
    draw_bar(picture, out, files, picture->files.n, LEFT);
    draw_bar(picture, out, slices, picture->slices.n, RIGHT);
    svg_text(out, MARGIN, height - 28, "s",
             "Each colour is what one source %s gives, and on the right where its bytes go: %zu "
             "piece%s, %s%s.",
             words->source, picture->pieces.n, picture->pieces.n == 1 ? "" : "s",
             rfs_text_amount(picture->bytes, size), picture->view->one ? "" : ", each slice once");
    svg_text(out, MARGIN, height - 12, "s",
             "Left are the %s that are read, and places in their tensors; right are places in "
             "the whole tensor%s.",
             words->sources, picture->replicas > 1 ? "; ×N tells that N ranks hold the same" : "");
    svg_end(out);
}

int rfs_explain_picture(struct rfs_explained_view *view, const char *path, struct rfs_error *err)
{
    RFS_CLEANUP(picture_free) struct picture picture = {.view = view};
    FILE *out;
    const int rc =
        rfs_explained_each(view, NULL, collect, &picture, err) ?: svg_open(path, &out, err);

    if (rc)
        return rc;
    draw(&picture, out);
    return svg_close(path, out, err);
}
