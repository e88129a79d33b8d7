/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures in SVG, as few bytes as may be: shapes with classes of one style sheet, which also has
 * the colours of dark surroundings. Numbers are pixels, printed to a tenth.
 *
 * Colours are light forms of those of Okabe and Ito, which people with any kind of colour blindness
 * tell apart; each thing that has one also has a label, so that nothing depends on them, on paper
 * either.
 */
#pragma once

#include "base/error.h"

/* Begins a picture, whose size comes first in the file. TITLE is for screen readers. */
void rfs_svg_begin(FILE *out, double width, double height, const char *title);
void rfs_svg_end(FILE *out);

/*
 * Draws a line of text at its baseline. XML's characters are escaped, and bytes that are not
 * printable UTF-8 stand as \xNN. Classes: "h" heading, "t" text, "s" small, "k" on a colour; "e" at
 * its end, as in "s e".
 */
void rfs_svg_text(FILE *out, double x, double y, const char *style, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Draws a rectangle. Class: "o" outline. */
void rfs_svg_rect(FILE *out, double x, double y, double width, double height, const char *style);
/* Fills a rectangle with a colour. There are 8 plain ones, then 8 striped ones, and so on. */
void rfs_svg_fill(FILE *out, double x, double y, double width, double height, uint32_t colour);
/* Draws a band from a piece of the line x = X0 to one of x = X1, in a colour without stripes. */
void rfs_svg_band(FILE *out, double x0, double from0, double to0, double x1, double from1,
                  double to1, uint32_t colour);
/* Returns about how wide a text of the small class is. */
double rfs_svg_width(const char *text);

/*
 * Open PATH ("-": the standard output) for a picture, and close it, so that it is whole or an
 * error. Return 0, or -errno with *err filled.
 */
int rfs_svg_open(const char *path, FILE **out, struct rfs_error *err);
int rfs_svg_close(const char *path, FILE *out, struct rfs_error *err);
