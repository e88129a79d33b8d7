/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/svg.h"

#include "base/cleanup.h"
#include "base/text.h"

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

void rfs_svg_begin(FILE *out, double width, double height, const char *title)
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
    rfs_svg_rect(out, 0, 0, width, height, "p");
}

void rfs_svg_end(FILE *out)
{
    fputs("</svg>\n", out);
}

void rfs_svg_text(FILE *out, double x, double y, const char *style, const char *fmt, ...)
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

void rfs_svg_rect(FILE *out, double x, double y, double width, double height, const char *style)
{
    fprintf(out, "<rect class=\"%s\"", style);
    put_box(out, x, y, width, height);
    fputs("/>\n", out);
}

void rfs_svg_fill(FILE *out, double x, double y, double width, double height, uint32_t colour)
{
    char style[16];

    snprintf(style, sizeof style, "c%" PRIu32, colour % COLOURS);
    rfs_svg_rect(out, x, y, width, height, style);
}

void rfs_svg_band(FILE *out, double x0, double from0, double to0, double x1, double from1,
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

double rfs_svg_width(const char *text)
{
    return (double)rfs_text_width(text) * 6.6;
}

int rfs_svg_open(const char *path, FILE **out, struct rfs_error *err)
{
    *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    return *out ? 0
                : rfs_fail(err, -errno, RFS_IN(path), "another FILE for --svg",
                           "cannot write the picture: %s", strerror(errno));
}

int rfs_svg_close(const char *path, FILE *out, struct rfs_error *err)
{
    const bool bad = ferror(out) != 0;
    const int rc = out == stdout ? fflush(out) : fclose(out);

    if (!bad && rc == 0)
        return 0;
    const int code = errno > 0 ? -errno : -EIO;
    return rfs_fail(err, code, RFS_IN(path), "another FILE for --svg",
                    "cannot write the picture: %s", strerror(-code));
}
