/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_write.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <assert.h>

static void put(struct rfs_json_write *json, const void *data, size_t n)
{
    if (json->file)
        fwrite(data, 1, n, json->file);
    else if (!json->failed)
        json->failed = !rfs_bytes_put(json->bytes, data, n);
}

static void put_chars(struct rfs_json_write *json, const char *text)
{
    put(json, text, strlen(text));
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Returns the letter of a short escape, or 0. */
static char short_escape(unsigned char c)
{
    static const char letters[] = "btn\0fr"; /* of 0x08 to 0x0d */

    if (c == '"' || c == '\\')
        return (char)c;
    return c >= 0x08 && c <= 0x0d ? letters[c - 0x08] : 0;
}

/* Puts a character as one unit of UTF-16 or two. */
static void put_units(struct rfs_json_write *json, uint32_t character)
{
    char text[16];

    if (character < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", character & 0xffff);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x",
                 0xd800 + ((character - 0x10000) >> 10 & 0x3ff), 0xdc00 + (character & 0x3ff));
    put_chars(json, text);
}

/* Decodes the character at TEXT, which is valid UTF-8 and has LEFT bytes, and its length. */
static uint32_t decode(const unsigned char *text, size_t left, size_t *length)
{
    const unsigned char c = text[0];

    *length = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (*length > left)
        *length = left;
    uint32_t character = *length == 1 ? c : c & (0xffu >> (*length + 1));
    for (size_t i = 1; i < *length; i++)
        character = character << 6 | (text[i] & 0x3fu);
    return character;
}

static void put_escaped(struct rfs_json_write *json, const char *text, size_t n)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = 1;
    size_t plain = 0; /* where those begin that are as they are */

    for (size_t i = 0; i < n; i += length) {
        const char letter = short_escape(at[i]);
        const uint32_t character = decode(at + i, n - i, &length);
        const bool units =
            character < 0x20 || (json->escapes == RFS_JSON_ASCII && character > 0x7e);
        if (!letter && !units)
            continue;
        put(json, at + plain, i - plain);
        plain = i + length;
        if (letter)
            put(json, (const char[]){'\\', letter}, 2);
        else
            put_units(json, character);
    }
    put(json, at + plain, n - plain);
}

/*
 * Goes character by character, as the text may be long, and a lack of memory could not be reported.
 */
static void put_shown(struct rfs_json_write *json, const char *text, size_t length)
{
    const char *end = text + length;

    while (text < end && *text != '\0') {
        const size_t n = rfs_text_shown_length(text);
        char character[8] = {0};
        char shown[4 * sizeof character];

        memcpy(character, text, n > 0 ? n : 1);
        rfs_text_printable(shown, sizeof shown, character);
        put_escaped(json, shown, strlen(shown));
        text += n > 0 ? n : 1;
    }
}

static void put_string(struct rfs_json_write *json, const char *text, size_t n)
{
    put(json, "\"", 1);
    if (json->escapes == RFS_JSON_SHOWN)
        put_shown(json, text, n);
    else
        put_escaped(json, text, n);
    put(json, "\"", 1);
}

/* ---- nesting --------------------------------------------------------------------------------- */

static bool is_spaced(enum rfs_json_form form)
{
    return form == RFS_JSON_SPACED || form == RFS_JSON_LINES;
}

static void put_line(struct rfs_json_write *json)
{
    put(json, "\n", 1);
    for (unsigned i = 0; i < json->depth * json->indent; i++)
        put(json, " ", 1);
}

/* Puts the separator before the next member or element. */
static void separate(struct rfs_json_write *json)
{
    if (json->depth == 0)
        return;
    const enum rfs_json_form form = json->levels[json->depth - 1].form;
    const bool any = json->levels[json->depth - 1].any;
    const bool line = json->next == RFS_JSON_BY_FORM
                          ? form == RFS_JSON_LINES || (form == RFS_JSON_ROWS && any)
                          : json->next == RFS_JSON_BREAK;
    if (any)
        put(json, ",", 1);
    if (line)
        put_line(json);
    else if (any && is_spaced(form))
        put(json, " ", 1);
    json->levels[json->depth - 1].any = true;
    json->next = RFS_JSON_BY_FORM;
}

void rfs_json_put_key(struct rfs_json_write *json, const char *key, size_t n)
{
    assert(json->depth > 0 && !json->levels[json->depth - 1].array && !json->keyed);
    separate(json);
    put_string(json, key, n);
    put_chars(json, is_spaced(json->levels[json->depth - 1].form) ? ": " : ":");
    json->keyed = true;
}

/* Puts all that comes before a value. */
static void begin_value(struct rfs_json_write *json, const char *key)
{
    if (key)
        rfs_json_put_key(json, key, strlen(key));
    else if (!json->keyed)
        separate(json);
    json->keyed = false;
}

static void open_level(struct rfs_json_write *json, const char *key, enum rfs_json_form form,
                       bool array)
{
    begin_value(json, key);
    put(json, array ? "[" : "{", 1);
    assert(json->depth < RFS_JSON_LEVELS);
    json->levels[json->depth].form = form;
    json->levels[json->depth].array = array;
    json->levels[json->depth].any = false;
    json->depth++;
}

void rfs_json_object(struct rfs_json_write *json, const char *key, enum rfs_json_form form)
{
    open_level(json, key, form, false);
}

void rfs_json_array(struct rfs_json_write *json, const char *key, enum rfs_json_form form)
{
    open_level(json, key, form, true);
}

void rfs_json_end(struct rfs_json_write *json)
{
    assert(json->depth > 0);
    json->depth--;
    json->next = RFS_JSON_BY_FORM;
    if (json->levels[json->depth].form == RFS_JSON_LINES && json->levels[json->depth].any)
        put_line(json);
    put(json, json->levels[json->depth].array ? "]" : "}", 1);
}

void rfs_json_finish(struct rfs_json_write *json)
{
    while (json->depth > 0)
        rfs_json_end(json);
    put(json, "\n", 1);
}

void rfs_json_break(struct rfs_json_write *json)
{
    json->next = RFS_JSON_BREAK;
}

void rfs_json_stay(struct rfs_json_write *json)
{
    json->next = RFS_JSON_STAY;
}

/* ---- values ---------------------------------------------------------------------------------- */

void rfs_json_put_text(struct rfs_json_write *json, const char *key, const char *text)
{
    begin_value(json, key);
    if (text)
        put_string(json, text, strlen(text));
    else
        put_chars(json, "null");
}

static void put_formatted(struct rfs_json_write *json, const char *fmt, va_list args)
{
    char text[128];
    va_list again;

    if (json->file) {
        vfprintf(json->file, fmt, args);
        return;
    }
    va_copy(again, args);
    const int n = vsnprintf(text, sizeof text, fmt, args);
    if (n >= 0 && (size_t)n < sizeof text) {
        put(json, text, (size_t)n);
    } else {
        RFS_FREE char *all = rfs_text_vprintf(fmt, again);
        json->failed |= !all;
        if (all)
            put_chars(json, all);
    }
    va_end(again);
}

void rfs_json_print(struct rfs_json_write *json, const char *key, const char *fmt, ...)
{
    va_list args;

    begin_value(json, key);
    va_start(args, fmt);
    put_formatted(json, fmt, args);
    va_end(args);
}

/* Puts a number with SIGN before it. Of metadata numbers are a large part. */
static void put_number(struct rfs_json_write *json, const char *key, const char *sign,
                       uint64_t number)
{
    char digits[RFS_TEXT_DIGITS];

    begin_value(json, key);
    put_chars(json, sign);
    put_chars(json, rfs_text_digits(number, digits));
}

void rfs_json_put_u64(struct rfs_json_write *json, const char *key, uint64_t number)
{
    put_number(json, key, "", number);
}

void rfs_json_put_i64(struct rfs_json_write *json, const char *key, int64_t number)
{
    put_number(json, key, number < 0 ? "-" : "", number < 0 ? -(uint64_t)number : (uint64_t)number);
}

void rfs_json_put_bool(struct rfs_json_write *json, const char *key, bool value)
{
    begin_value(json, key);
    put_chars(json, value ? "true" : "false");
}

void rfs_json_put_null(struct rfs_json_write *json, const char *key)
{
    rfs_json_put_text(json, key, NULL);
}

void rfs_json_put_u64s(struct rfs_json_write *json, const char *key, enum rfs_json_form form,
                       const uint64_t *numbers, size_t n)
{
    rfs_json_array(json, key, form);
    for (size_t i = 0; i < n; i++)
        rfs_json_put_u64(json, NULL, numbers[i]);
    rfs_json_end(json);
}

void rfs_json_put_u32s(struct rfs_json_write *json, const char *key, enum rfs_json_form form,
                       const uint32_t *numbers, size_t n)
{
    rfs_json_array(json, key, form);
    for (size_t i = 0; i < n; i++)
        rfs_json_put_u64(json, NULL, numbers[i]);
    rfs_json_end(json);
}
