/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_read.h"

#include "base/text.h"

struct rfs_json_read rfs_json_read_begin(const void *data, size_t n)
{
    return (struct rfs_json_read){.data = data, .n = n};
}

struct rfs_json_read rfs_json_read_begin_blocks(rfs_json_fill *fill, void *ctx, uint64_t offset)
{
    return (struct rfs_json_read){.base = offset, .fill = fill, .ctx = ctx};
}

void rfs_json_read_free(struct rfs_json_read *json)
{
    free(json->text);
    free(json->block);
    json->text = NULL;
    json->block = NULL;
}

bool rfs_json_read_is(const struct rfs_json_read *json, const char *text)
{
    return json->text_n == strlen(text) && memcmp(json->text, text, json->text_n) == 0;
}

bool rfs_json_read_fail(struct rfs_json_read *json, const char *wrong)
{
    if (!json->wrong)
        json->wrong = wrong;
    return false;
}

/* Fails at a place that was passed, whose block may be gone. */
static bool fail_from(struct rfs_json_read *json, uint64_t place, const char *wrong)
{
    if (!json->wrong && json->fill) {
        json->base = place;
        json->at = json->n = 0;
    } else if (!json->wrong) {
        json->at = (size_t)place;
    }
    return rfs_json_read_fail(json, wrong);
}

static bool fail_memory(struct rfs_json_read *json)
{
    json->no_memory = !json->wrong;
    return rfs_json_read_fail(json, "out of memory");
}

/*
 * Reads on where the text comes in blocks: bytes that are not passed yet move to the front. Returns
 * false at the end of the text.
 */
static bool refill(struct rfs_json_read *json)
{
    const size_t rest = json->n - json->at;
    size_t got = 0;

    if (!json->fill || json->wrong || rest == RFS_JSON_BLOCK)
        return false;
    if (!json->block && (json->block = malloc(RFS_JSON_BLOCK)) == NULL)
        return fail_memory(json);
    if (rest > 0)
        memmove(json->block, json->data + json->at, rest);
    json->data = json->block;
    json->base += json->at;
    json->at = 0;
    json->n = rest;
    json->failed =
        json->fill(json->ctx, json->block + rest, RFS_JSON_BLOCK - rest, json->base + rest, &got);
    if (json->failed)
        return rfs_json_read_fail(json, "it can't be read");
    json->n += got;
    return got > 0;
}

/* Returns whether there is another byte, data[at]. */
static inline bool more(struct rfs_json_read *json)
{
    return json->at < json->n || refill(json);
}

/* Returns whether there are N more bytes. */
static bool is_ahead(struct rfs_json_read *json, size_t n)
{
    while (json->n - json->at < n)
        if (!refill(json))
            return false;
    return true;
}

static inline bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static inline bool is_space(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(struct rfs_json_read *json)
{
    while (more(json) && is_space(json->data[json->at]))
        json->at++;
}

bool rfs_json_read_peek(struct rfs_json_read *json, char c)
{
    if (json->wrong)
        return false;
    skip_space(json);
    return more(json) && json->data[json->at] == (unsigned char)c;
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

/* ---- strings --------------------------------------------------------------------------------- */

static bool reserve_text(struct rfs_json_read *json, size_t bytes)
{
    if (json->text_cap - json->text_n > bytes)
        return true;
    /* The text is in memory: no overflow. Without escapes the string is no longer than its text. */
    const size_t cap = json->text_n + bytes + 64 + json->text_n / 2;
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
    if (json->fill && n > RFS_JSON_BLOCK - json->text_n)
        return rfs_json_read_fail(json, "a string of more than 1 MiB");
    if (!reserve_text(json, n))
        return false;
    memcpy(json->text + json->text_n, bytes, n);
    json->text_n += n;
    return true;
}

/* Reads four hexadecimal digits. */
static bool read_unit(struct rfs_json_read *json, uint32_t *unit)
{
    *unit = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned char c = more(json) ? json->data[json->at] : 0;
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

/* Reads the digits after \u; a pair of surrogates is one character. */
static bool read_unicode(struct rfs_json_read *json)
{
    uint32_t c;
    uint32_t low;
    unsigned char utf8[4];
    size_t n = 0;
    if (!read_unit(json, &c))
        return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (!is_ahead(json, 2) || memcmp(json->data + json->at, "\\u", 2) != 0)
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

/* Reads the character after a backslash. */
static bool read_escape(struct rfs_json_read *json)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (!more(json))
        return rfs_json_read_fail(json, "it ends in a string");
    const unsigned char c = json->data[json->at];
    const char *found = c ? strchr(from, c) : NULL;
    if (!found && c != 'u')
        return rfs_json_read_fail(json, "a backslash before a character that needs none");
    json->at++;
    return found ? add_bytes(json, &to[found - from], 1) : read_unicode(json);
}

/* Counts the bytes of the character that a text of N bytes ends within; 0: it ends behind one. */
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

/*
 * Returns where the plain text from AT on ends: at a quote, a backslash, a control character or N.
 * *ASCII: no byte of it is above 0x7f. Looks at eight bytes at a time while they are all plain
 * ASCII: below, a subtraction borrows into the high bit of a byte that is too small, or 0.
 */
static size_t plain_end(const unsigned char *data, size_t at, size_t n, bool *ascii)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t highs = 0x80 * ones;
    unsigned char all = 0;
    uint64_t word;

    for (; n - at >= sizeof word; at += sizeof word) {
        memcpy(&word, data + at, sizeof word);
        const uint64_t quotes = (word ^ '"' * ones) - ones;
        const uint64_t backslashes = (word ^ '\\' * ones) - ones;
        if ((word | quotes | backslashes | (word - ' ' * ones)) & highs)
            break;
    }
    for (; at < n && data[at] != '"' && data[at] != '\\' && data[at] >= ' '; at++)
        all |= data[at];
    *ascii = all < 0x80;
    return at;
}

/* Reads the bytes before the next quote, backslash or end of the block. */
static bool read_plain(struct rfs_json_read *json, uint64_t begin)
{
    bool ascii;
    size_t end = plain_end(json->data, json->at, json->n, &ascii);

    if (end == json->n && json->fill && !ascii)
        end -= cut_character(json->data + json->at, end - json->at);
    /* No character of several bytes has an escape in it. */
    if (!ascii && !rfs_text_is_utf8((const char *)json->data + json->at, end - json->at))
        return fail_from(json, begin, "a string that is not UTF-8");
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
            if (!refill(json))
                return json->at < json->n ? fail_from(json, begin, "a string that is not UTF-8")
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

/* ---- numbers and words ----------------------------------------------------------------------- */

static bool take_word(struct rfs_json_read *json, const char *word)
{
    const size_t n = strlen(word);
    if (json->wrong)
        return false;
    skip_space(json);
    if (!is_ahead(json, n) || memcmp(json->data + json->at, word, n) != 0)
        return false;
    json->at += n;
    return true;
}

bool rfs_json_read_null(struct rfs_json_read *json)
{
    return take_word(json, "null");
}

bool rfs_json_read_u64(struct rfs_json_read *json, uint64_t *value)
{
    *value = 0;
    if (json->wrong)
        return false;
    skip_space(json);
    const uint64_t begin = rfs_json_read_place(json);
    const bool zero = more(json) && json->data[json->at] == '0';
    for (; more(json); json->at++) {
        const unsigned char c = json->data[json->at];
        if (!is_digit(c))
            break;
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(c - '0'), value))
            return rfs_json_read_fail(json, "a number above 2^64 - 1");
    }
    const uint64_t digits = rfs_json_read_place(json) - begin;
    if (digits > 0 && (digits == 1 || !zero) &&
        (!more(json) || !memchr(".eE", json->data[json->at], 3)))
        return true;
    return fail_from(json, begin, "a whole number is expected here");
}

bool rfs_json_read_i64(struct rfs_json_read *json, int64_t *value)
{
    const bool negative = rfs_json_read_peek(json, '-');
    const uint64_t begin = rfs_json_read_place(json);
    uint64_t number;

    json->at += negative;
    if (negative && (!more(json) || !is_digit(json->data[json->at])))
        return rfs_json_read_fail(json, "a whole number is expected here");
    if (!rfs_json_read_u64(json, &number))
        return false;
    *value = (int64_t)(negative ? 0 - number : number);
    if (number <= (uint64_t)INT64_MAX + negative)
        return true;
    return fail_from(json, begin, "a number of more than 64 bits");
}

/* Passes digits and counts them, up to 2: more are as good. */
static unsigned skip_digits(struct rfs_json_read *json)
{
    unsigned n = 0;
    for (; more(json) && is_digit(json->data[json->at]); json->at++)
        n += n < 2;
    return n;
}

static bool skip_number(struct rfs_json_read *json)
{
    const uint64_t begin = rfs_json_read_place(json);
    if (json->data[json->at] == '-')
        json->at++;
    const bool zero = more(json) && json->data[json->at] == '0';
    const unsigned whole = skip_digits(json);
    bool good = whole == 1 || (whole > 1 && !zero);
    if (good && more(json) && json->data[json->at] == '.') {
        json->at++;
        good = skip_digits(json) > 0;
    }
    if (good && more(json) && (json->data[json->at] | 0x20) == 'e') {
        json->at++;
        if (more(json) && (json->data[json->at] == '+' || json->data[json->at] == '-'))
            json->at++;
        good = skip_digits(json) > 0;
    }
    return good || fail_from(json, begin, "a value is expected here");
}

/* ---- values that are passed by --------------------------------------------------------------- */

/* Passes a value that holds no others. */
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

/*
 * Skips the numbers of an array that lie in this block, except the last, which may go on in the
 * next. Most of a large text is lists of ranks.
 */
static void skip_list(struct rfs_json_read *json)
{
    const unsigned char *const end = json->data + json->n;
    const unsigned char *at = json->data + json->at;

    while (at < end && is_digit(*at)) {
        json->at = (size_t)(at - json->data);
        if (*at == '0' && at + 1 < end && is_digit(at[1]))
            return;
        while (at < end && is_digit(*at))
            at++;
        while (at < end && is_space(*at))
            at++;
        if (at == end || *at != ',')
            return;
        for (at++; at < end && is_space(*at);)
            at++;
    }
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
        const bool is_object = rfs_json_read_peek(json, '{'); /* which passes the spaces */
        if (depth > 0 && !object[depth - 1])
            skip_list(json);
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

/* Goes to the next item between these brackets. False at the end, or when the text is wrong. */
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
    return !more(json) || rfs_json_read_fail(json, "something follows after its end");
}

/* ---- objects of one fixed shape -------------------------------------------------------------- */

bool rfs_json_read_object(struct rfs_json_read *json, const struct rfs_json_field *fields, size_t n,
                          const char *lacks, void *to)
{
    uint64_t seen = 0; /* a bit for each field */
    bool first = true;

    while (rfs_json_read_member(json, &first)) {
        size_t i = 0;
        while (i < n && !rfs_json_read_is(json, fields[i].name))
            i++;
        seen |= i < n ? UINT64_C(1) << i : 0;
        if (!(i < n ? fields[i].read(json, (char *)to + fields[i].offset)
                    : rfs_json_read_skip(json)))
            return false;
    }
    for (size_t i = 0; !json->wrong && i < n; i++)
        if (fields[i].required && !(seen >> i & 1))
            return rfs_json_read_fail(json, lacks);
    return !json->wrong;
}

bool rfs_json_field_u64(struct rfs_json_read *json, void *at)
{
    return rfs_json_read_u64(json, at);
}

bool rfs_json_field_u32(struct rfs_json_read *json, void *at)
{
    uint64_t number;

    if (!rfs_json_read_u64(json, &number))
        return false;
    *(uint32_t *)at = (uint32_t)number;
    return number <= UINT32_MAX || rfs_json_read_fail(json, "a number is too large");
}

bool rfs_json_field_text(struct rfs_json_read *json, void *at)
{
    char **text = at;

    if (!rfs_json_read_string(json))
        return false;
    free(*text);
    *text = strdup(json->text);
    json->no_memory |= !*text;
    return *text || rfs_json_read_fail(json, "out of memory");
}

int rfs_json_read_whole(const char *text, size_t size, const struct rfs_json_field *fields,
                        size_t n, const char *lacks, void *to, uint64_t *at, const char **wrong)
{
    struct rfs_json_read json = rfs_json_read_begin(text, size);
    const bool good = rfs_json_read_object(&json, fields, n, lacks, to) && rfs_json_read_end(&json);

    *at = rfs_json_read_place(&json);
    *wrong = json.wrong;
    rfs_json_read_free(&json);
    return good ? 0 : json.no_memory ? -ENOMEM : -EINVAL;
}
