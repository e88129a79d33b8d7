/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_internal.h"
#include "base/text.h"

static bool reserve_text(struct rfs_json_read *json, size_t more)
{
    if (json->text_cap - json->text_n > more)
        return true;
    /* Of a text in memory: no overflow. Without escapes the string is no longer than its text. */
    const size_t cap = json->text_n + more + 64 + json->text_n / 2;
    char *text = realloc(json->text, cap);
    if (!text)
        return rfs_json_fail_memory(json);
    json->text = text;
    json->text_cap = cap;
    return true;
}

static bool add_bytes(struct rfs_json_read *json, const void *bytes, size_t n)
{
    if (json->passing)
        return true;
    if (json->fill && n > RFS_JSON_BLOCK - json->text_n)
        return rfs_json_read_fail(json, "a string of more than 1 MiB");
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
        const unsigned char c = rfs_json_more(json) ? json->data[json->at] : 0;
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

/* The digits after \u; a pair of surrogates is one character. */
static bool read_unicode(struct rfs_json_read *json)
{
    uint32_t c;
    uint32_t low;
    unsigned char utf8[4];
    size_t n = 0;
    if (!read_unit(json, &c))
        return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (!rfs_json_ahead(json, 2) || memcmp(json->data + json->at, "\\u", 2) != 0)
            return rfs_json_read_fail(json, "half a surrogate pair is not a character");
        json->at += 2;
        if (!read_unit(json, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return rfs_json_read_fail(json, "half a surrogate pair is not a character");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c <= 0xdfff) {
        return rfs_json_read_fail(json, "half a surrogate pair is not a character");
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

/* The character after a backslash. */
static bool read_escape(struct rfs_json_read *json)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (!rfs_json_more(json))
        return rfs_json_read_fail(json, "it ends in a string");
    const unsigned char c = json->data[json->at];
    const char *found = c ? strchr(from, c) : NULL;
    if (!found && c != 'u')
        return rfs_json_read_fail(json, "a backslash before a character that needs none");
    json->at++;
    return found ? add_bytes(json, &to[found - from], 1) : read_unicode(json);
}

/* Bytes of the character that a text of N bytes ends within; 0: it ends behind one. */
static size_t cut_character(const unsigned char *text, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        const unsigned char c = text[n - k];
        const size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
        if (c >= 0xc0)
            return length > k ? k : 0;
        if (c < 0x80)
            return 0;
    }
    return 0;
}

/* The bytes before the next quote, backslash or end of the block, where reading is then. */
static bool read_plain(struct rfs_json_read *json, uint64_t begin)
{
    size_t end = json->at;

    while (end < json->n && json->data[end] != '"' && json->data[end] != '\\' &&
           json->data[end] >= 0x20)
        end++;
    if (end == json->n && json->fill)
        end -= cut_character(json->data + json->at, end - json->at);
    /* No character of several bytes has an escape in it. */
    if (!rfs_text_is_utf8((const char *)json->data + json->at, end - json->at))
        return rfs_json_fail_from(json, begin, "a string that is not UTF-8");
    if (!add_bytes(json, json->data + json->at, end - json->at))
        return false;
    json->at = end;
    return true;
}

bool rfs_json_read_string(struct rfs_json_read *json)
{
    if (!json->passing)
        json->text_n = 0;
    if (!rfs_json_read_peek(json, '"'))
        return rfs_json_read_fail(json, json->at >= json->n ? "it ends too early"
                                                            : "a string is expected here");
    const uint64_t begin = rfs_json_read_place(json);
    for (json->at++;;) {
        if (!read_plain(json, begin))
            return false;
        /* The rest of a block is part of a character, or empty. */
        const unsigned char c = json->at < json->n ? json->data[json->at] : 0x80;
        if (c >= 0x80) {
            if (!rfs_json_refill(json))
                return json->at < json->n
                           ? rfs_json_fail_from(json, begin, "a string that is not UTF-8")
                           : rfs_json_read_fail(json, "it ends in a string");
            continue;
        }
        if (c < 0x20)
            return rfs_json_read_fail(json, "a control character in a string");
        json->at++;
        if (c == '"')
            break;
        if (!read_escape(json))
            return false;
    }
    if (!json->passing)
        json->text[json->text_n] = '\0';
    return true;
}
