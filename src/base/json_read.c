/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_read.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

struct rfs_json_read rfs_json_read_begin(const void *data, size_t n)
{
    return (struct rfs_json_read){.data = data, .n = n};
}

void rfs_json_read_free(struct rfs_json_read *json)
{
    free(json->text);
    json->text = NULL;
}

bool rfs_json_read_fail(struct rfs_json_read *json, const char *wrong)
{
    if (!json->wrong)
        json->wrong = wrong;
    return false;
}

static bool fail_memory(struct rfs_json_read *json)
{
    json->no_memory = !json->wrong;
    return rfs_json_read_fail(json, "out of memory");
}

static void skip_space(struct rfs_json_read *json)
{
    while (json->at < json->n && json->data[json->at] <= ' ' &&
           memchr(" \t\n\r", json->data[json->at], 4))
        json->at++;
}

bool rfs_json_read_peek(struct rfs_json_read *json, char c)
{
    if (json->wrong)
        return false;
    skip_space(json);
    return json->at < json->n && json->data[json->at] == (unsigned char)c;
}

bool rfs_json_read_take(struct rfs_json_read *json, char c)
{
    if (rfs_json_read_peek(json, c)) {
        json->at++;
        return true;
    }
    if (json->at >= json->n)
        return rfs_json_read_fail(json, "it ends too early");
    switch (c) {
    case '{':
        return rfs_json_read_fail(json, "an object is expected here");
    case '[':
        return rfs_json_read_fail(json, "an array is expected here");
    case ':':
        return rfs_json_read_fail(json, "a colon is expected here");
    case ',':
        return rfs_json_read_fail(json, "a comma or the end is expected here");
    default:
        return rfs_json_read_fail(json, "another character is expected here");
    }
}

static bool take_word(struct rfs_json_read *json, const char *word)
{
    const size_t n = strlen(word);
    if (json->wrong)
        return false;
    skip_space(json);
    if (json->n - json->at < n || memcmp(json->data + json->at, word, n) != 0)
        return false;
    json->at += n;
    return true;
}

bool rfs_json_read_null(struct rfs_json_read *json)
{
    return take_word(json, "null");
}

static bool reserve_text(struct rfs_json_read *json, size_t more)
{
    if (json->text_cap - json->text_n > more)
        return true;
    /* Of a text in memory: no overflow. What has no escapes is as long as it will be. */
    const size_t cap = json->text_n + more + 64 + json->text_n / 2;
    char *text = realloc(json->text, cap);
    if (!text)
        return fail_memory(json);
    json->text = text;
    json->text_cap = cap;
    return true;
}

static bool add_bytes(struct rfs_json_read *json, const void *bytes, size_t n)
{
    if (json->passing)
        return true;
    if (!reserve_text(json, n))
        return false;
    memcpy(json->text + json->text_n, bytes, n);
    json->text_n += n;
    return true;
}

/* Four hexadecimal digits. */
static bool read_unit(struct rfs_json_read *json, uint32_t *unit)
{
    *unit = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned char c = json->at < json->n ? json->data[json->at] : 0;
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            digit = (c | 0x20u) - 'a' + 10u;
        else
            return rfs_json_read_fail(json, "\\u is not followed by four hexadecimal digits");
        *unit = *unit << 4 | digit;
        json->at++;
    }
    return true;
}

/* What follows \u; a pair of surrogates is one character. */
static bool read_unicode(struct rfs_json_read *json)
{
    uint32_t c;
    uint32_t low;
    unsigned char utf8[4];
    size_t n = 0;
    if (!read_unit(json, &c))
        return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (json->n - json->at < 2 || memcmp(json->data + json->at, "\\u", 2) != 0)
            return rfs_json_read_fail(json, "half a surrogate pair is no character");
        json->at += 2;
        if (!read_unit(json, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return rfs_json_read_fail(json, "half a surrogate pair is no character");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c <= 0xdfff) {
        return rfs_json_read_fail(json, "half a surrogate pair is no character");
    }
    if (c == 0)
        return rfs_json_read_fail(json, "a string with a NUL");
    if (c < 0x80) {
        utf8[n++] = (unsigned char)c;
    } else if (c < 0x800) {
        utf8[n++] = (unsigned char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        utf8[n++] = (unsigned char)(0xe0 | c >> 12);
        utf8[n++] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    } else {
        utf8[n++] = (unsigned char)(0xf0 | c >> 18);
        utf8[n++] = (unsigned char)(0x80 | (c >> 12 & 0x3f));
        utf8[n++] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    }
    if (c >= 0x80)
        utf8[n++] = (unsigned char)(0x80 | (c & 0x3f));
    return add_bytes(json, utf8, n);
}

/* What follows a backslash. */
static bool read_escape(struct rfs_json_read *json)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (json->at >= json->n)
        return rfs_json_read_fail(json, "it ends in a string");
    const unsigned char c = json->data[json->at];
    const char *found = c ? strchr(from, c) : NULL;
    if (!found && c != 'u')
        return rfs_json_read_fail(json, "a backslash before a character that needs none");
    json->at++;
    return found ? add_bytes(json, &to[found - from], 1) : read_unicode(json);
}

bool rfs_json_read_string(struct rfs_json_read *json)
{
    if (!json->passing)
        json->text_n = 0;
    if (!rfs_json_read_peek(json, '"'))
        return rfs_json_read_fail(json, json->at >= json->n ? "it ends too early"
                                                            : "a string is expected here");
    const size_t begin = json->at++;
    for (;;) {
        size_t end = json->at;
        while (end < json->n && json->data[end] != '"' && json->data[end] != '\\' &&
               json->data[end] >= 0x20)
            end++;
        /* No character of several bytes has an escape in it. */
        if (!rfs_text_is_utf8((const char *)json->data + json->at, end - json->at)) {
            json->at = begin;
            return rfs_json_read_fail(json, "a string that is not UTF-8");
        }
        if (!add_bytes(json, json->data + json->at, end - json->at))
            return false;
        json->at = end;
        if (end == json->n)
            return rfs_json_read_fail(json, "it ends in a string");
        json->at++;
        if (json->data[end] == '"')
            break;
        if (json->data[end] != '\\') {
            json->at = end;
            return rfs_json_read_fail(json, "a control character in a string");
        }
        if (!read_escape(json))
            return false;
    }
    if (!json->passing)
        json->text[json->text_n] = '\0';
    return true;
}

bool rfs_json_read_u64(struct rfs_json_read *json, uint64_t *value)
{
    *value = 0;
    if (json->wrong)
        return false;
    skip_space(json);
    const size_t begin = json->at;
    for (; json->at < json->n; json->at++) {
        const unsigned char c = json->data[json->at];
        if (c < '0' || c > '9')
            break;
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(c - '0'), value))
            return rfs_json_read_fail(json, "a number above 2^64 - 1");
    }
    const size_t digits = json->at - begin;
    if (digits > 0 && (digits == 1 || json->data[begin] != '0') &&
        (json->at == json->n || !memchr(".eE", json->data[json->at], 3)))
        return true;
    json->at = begin;
    return rfs_json_read_fail(json, "a whole number is expected here");
}

bool rfs_json_read_i64(struct rfs_json_read *json, int64_t *value)
{
    const bool negative = rfs_json_read_peek(json, '-');
    const size_t begin = json->at;
    uint64_t number;

    json->at += negative;
    if (negative &&
        (json->at == json->n || json->data[json->at] < '0' || json->data[json->at] > '9'))
        return rfs_json_read_fail(json, "a whole number is expected here");
    if (!rfs_json_read_u64(json, &number))
        return false;
    *value = (int64_t)(negative ? 0 - number : number);
    if (number <= (uint64_t)INT64_MAX + negative)
        return true;
    json->at = begin;
    return rfs_json_read_fail(json, "a number of more than 64 bits");
}

static bool skip_digits(struct rfs_json_read *json)
{
    const size_t begin = json->at;
    while (json->at < json->n && json->data[json->at] >= '0' && json->data[json->at] <= '9')
        json->at++;
    return json->at > begin;
}

static bool skip_number(struct rfs_json_read *json)
{
    const size_t begin = json->at;
    bool good = true;
    if (json->data[json->at] == '-')
        json->at++;
    const size_t whole = json->at;
    good = skip_digits(json) && (json->at - whole == 1 || json->data[whole] != '0');
    if (good && json->at < json->n && json->data[json->at] == '.') {
        json->at++;
        good = skip_digits(json);
    }
    if (good && json->at < json->n && (json->data[json->at] | 0x20) == 'e') {
        json->at++;
        if (json->at < json->n && (json->data[json->at] == '+' || json->data[json->at] == '-'))
            json->at++;
        good = skip_digits(json);
    }
    if (good)
        return true;
    json->at = begin;
    return rfs_json_read_fail(json, "a value is expected here");
}

/* A value that holds no others. */
static bool skip_plain(struct rfs_json_read *json)
{
    if (rfs_json_read_peek(json, '"'))
        return rfs_json_read_string(json);
    if (json->wrong)
        return false;
    if (json->at >= json->n)
        return rfs_json_read_fail(json, "it ends too early");
    const unsigned char c = json->data[json->at];
    if ((c == 't' && take_word(json, "true")) || (c == 'f' && take_word(json, "false")) ||
        (c == 'n' && take_word(json, "null")))
        return true;
    return skip_number(json);
}

static bool skip_value(struct rfs_json_read *json)
{
    bool object[RFS_JSON_DEPTH]; /* else an array */
    bool first = true;
    unsigned depth = 0;
    do {
        if (depth > 0 && !(object[depth - 1] ? rfs_json_read_member(json, &first)
                                             : rfs_json_read_element(json, &first))) {
            if (json->wrong)
                return false;
            depth--; /* to the container around it, which has one element at least */
            first = false;
            continue;
        }
        const bool is_object = rfs_json_read_peek(json, '{');
        if (is_object || rfs_json_read_peek(json, '[')) {
            if (depth == RFS_JSON_DEPTH)
                return rfs_json_read_fail(json, "it is nested too deep");
            object[depth++] = is_object;
            first = true;
        } else if (!skip_plain(json)) {
            return false;
        }
    } while (depth > 0);
    return true;
}

bool rfs_json_read_skip(struct rfs_json_read *json)
{
    json->passing = true;
    const bool skipped = skip_value(json);
    json->passing = false;
    return skipped;
}

bool rfs_json_read_part(struct rfs_json_read *json, struct rfs_json_part *part)
{
    rfs_json_read_peek(json, ' '); /* which passes the spaces before it */
    part->at = json->at;
    const bool skipped = rfs_json_read_skip(json);
    part->n = json->at - part->at;
    return skipped;
}

/* To the next item between these brackets; false at the end, or when the text is wrong. */
static bool next(struct rfs_json_read *json, bool *first, char open, char close)
{
    const bool was_first = *first;
    *first = false;
    if (was_first && !rfs_json_read_take(json, open))
        return false;
    if (rfs_json_read_peek(json, close)) {
        json->at++;
        return false;
    }
    return was_first || rfs_json_read_take(json, ',');
}

bool rfs_json_read_member(struct rfs_json_read *json, bool *first)
{
    return next(json, first, '{', '}') && rfs_json_read_string(json) &&
           rfs_json_read_take(json, ':');
}

bool rfs_json_read_element(struct rfs_json_read *json, bool *first)
{
    return next(json, first, '[', ']');
}

bool rfs_json_read_end(struct rfs_json_read *json)
{
    if (json->wrong)
        return false;
    skip_space(json);
    return json->at == json->n || rfs_json_read_fail(json, "something follows after its end");
}
