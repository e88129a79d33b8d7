/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define RED "\033[1;31m"
#define YELLOW "\033[1;33m"
#define PLAIN "\033[0m"

char *rfs_text_vprintf(const char *fmt, va_list args)
{
    char *text;
    return vasprintf(&text, fmt, args) < 0 ? NULL : text;
}

char *rfs_text_printf(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    char *text = rfs_text_vprintf(fmt, args);
    va_end(args);
    return text;
}

const char *rfs_text_time(char out[RFS_TIME_TEXT], struct timespec time)
{
    struct tm utc;
    const size_t n =
        gmtime_r(&time.tv_sec, &utc) ? strftime(out, RFS_TIME_TEXT, "%Y-%m-%d %H:%M:%S", &utc) : 0;

    snprintf(out + n, RFS_TIME_TEXT - n, ".%03ld UTC", time.tv_nsec / 1000000);
    return out;
}

static bool is_continuation(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

/*
 * Characters that turn the direction of a line or have no width, so that a name looks like another:
 * U+061C, U+180E, U+200B to 200F, 2028 to 202E, 2060 to 206F, FEFF.
 */
static bool is_deceptive(const unsigned char *s)
{
    if (s[0] == 0xD8)
        return s[1] == 0x9C;
    if (s[0] == 0xE1)
        return s[1] == 0xA0 && s[2] == 0x8E;
    if (s[0] == 0xE2 && s[1] == 0x80)
        return (s[2] >= 0x8B && s[2] <= 0x8F) || (s[2] >= 0xA8 && s[2] <= 0xAE);
    if (s[0] == 0xE2 && s[1] == 0x81)
        return s[2] >= 0xA0 && s[2] <= 0xAF;
    return s[0] == 0xEF && s[1] == 0xBB && s[2] == 0xBF;
}

/*
 * The lower bound on the second byte refuses overlong forms, and the upper one surrogates and code
 * points beyond U+10FFFF. Never reads past a NUL, which is no continuation byte.
 */
size_t rfs_text_shown_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    if (s[0] >= 0x20 && s[0] < 0x7F)
        return 1;
    if (s[0] == 0xC2) /* U+0080 to U+009F are control characters too */
        return s[1] >= 0xA0 && s[1] <= 0xBF ? 2 : 0;
    if (is_deceptive(s))
        return 0;
    if (s[0] > 0xC2 && s[0] <= 0xDF)
        return is_continuation(s[1]) ? 2 : 0;
    if (s[0] >= 0xE0 && s[0] <= 0xEF) {
        const unsigned char low = s[0] == 0xE0 ? 0xA0 : 0x80;
        const unsigned char high = s[0] == 0xED ? 0x9F : 0xBF;
        return s[1] >= low && s[1] <= high && is_continuation(s[2]) ? 3 : 0;
    }
    if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        const unsigned char low = s[0] == 0xF0 ? 0x90 : 0x80;
        const unsigned char high = s[0] == 0xF4 ? 0x8F : 0xBF;
        return s[1] >= low && s[1] <= high && is_continuation(s[2]) && is_continuation(s[3]) ? 4
                                                                                             : 0;
    }
    return 0;
}

size_t rfs_text_printable(char *out, size_t cap, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)text;
    size_t n = 0;

    while (*s != 0) {
        const size_t length = rfs_text_shown_length((const char *)s);
        if (length > 0) {
            if (n + length >= cap)
                break;
            memcpy(out + n, s, length);
            n += length;
            s += length;
            continue;
        }
        if (n + 4 >= cap)
            break;
        out[n++] = '\\';
        out[n++] = 'x';
        out[n++] = digits[*s >> 4];
        out[n++] = digits[*s & 15];
        s++;
    }
    out[n] = 0;
    return n;
}

char *rfs_text_printable_copy(const char *text)
{
    const size_t cap = strlen(text) * 4 + 1;
    char *out = malloc(cap);

    if (out)
        rfs_text_printable(out, cap, text);
    return out;
}

void rfs_text_put(FILE *out, const char *text)
{
    for (size_t length; *text; text += length > 0 ? length : 1) {
        length = rfs_text_shown_length(text);
        if (length > 0)
            fwrite(text, 1, length, out);
        else
            fprintf(out, "\\x%02x", (unsigned char)*text);
    }
}

size_t rfs_text_width(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += !is_continuation((unsigned char)*text);
    return n;
}

/* ANY: NULs and surrogates too. */
static bool is_utf8(const char *text, size_t n, bool any)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        const unsigned char c = s[i++];
        if (c < 0x80 && (c > 0 || any))
            continue;
        const unsigned more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        if (c < 0xc2 || c > 0xf4 || more > n - i)
            return false;
        const unsigned char low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
        const unsigned char high = c == 0xed && !any ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        if (s[i] < low || s[i] > high)
            return false;
        for (unsigned k = 1; k < more; k++)
            if (!is_continuation(s[i + k]))
                return false;
        i += more;
    }
    return true;
}

bool rfs_text_is_utf8(const char *text, size_t n)
{
    return is_utf8(text, n, false);
}

bool rfs_text_is_python(const char *text, size_t n)
{
    return is_utf8(text, n, true);
}

const char *rfs_text_dims(char *out, size_t cap, uint32_t n, const uint64_t *dims)
{
    size_t at = (size_t)snprintf(out, cap, "[");

    for (uint32_t i = 0; i < n && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%" PRIu64, i > 0 ? ", " : "", dims[i]);
    if (at < cap)
        snprintf(out + at, cap - at, "]");
    return out;
}

void rfs_text_add_name(struct rfs_text_names *names, size_t most, const char *name)
{
    const char *between = names->n > 0 ? ", " : "";

    if (names->n++ > most)
        return;
    const int wrote = snprintf(names->text + names->used, sizeof names->text - names->used, "%s%s",
                               between, names->n > most ? "…" : name);
    names->used += wrote > 0 ? (size_t)wrote : 0;
    if (names->used >= sizeof names->text)
        names->used = sizeof names->text - 1;
}

char *rfs_text_option_value(const char *value)
{
    char *out = malloc(2 * strlen(value) + 1), *to = out;

    if (!out)
        return NULL;
    for (; *value; value++) {
        if (*value == ',' || *value == '\\')
            *to++ = '\\';
        *to++ = *value;
    }
    *to = '\0';
    return out;
}

void rfs_text_ranks(FILE *out, const uint32_t *ranks, size_t n)
{
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && ranks[next] == ranks[next - 1] + 1;)
            next++;
        fprintf(out, "%s%u", i > 0 ? "," : "", ranks[i]);
        if (next - i > 1)
            fprintf(out, "-%u", ranks[next - 1]);
    }
}

static bool has_colours(int fd)
{
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");

    return (!no || !*no) && term && *term && strcmp(term, "dumb") != 0 && isatty(fd) == 1;
}

const char *rfs_text_error_label(int fd)
{
    return has_colours(fd) ? RED "error:" PLAIN " " : "error: ";
}

const char *rfs_text_warning_label(int fd)
{
    return has_colours(fd) ? YELLOW "warning:" PLAIN " " : "warning: ";
}

unsigned rfs_text_columns(int fd)
{
    struct winsize size;

    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

const char *rfs_text_digits(uint64_t number, char out[RFS_TEXT_DIGITS])
{
    char *at = out + RFS_TEXT_DIGITS - 1;

    *at = '\0';
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return at;
}

const char *rfs_text_amount(uint64_t bytes, char out[RFS_TEXT_AMOUNT])
{
    static const char units[] = "KMGTPE";
    double shown = (double)bytes;
    int unit = -1;

    while (shown >= 1023.95 && unit < 5) {
        shown /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(out, RFS_TEXT_AMOUNT, "%" PRIu64 " bytes", bytes);
    else
        snprintf(out, RFS_TEXT_AMOUNT, "%.1f %ciB", shown, units[unit]);
    return out;
}

const char *rfs_text_duration(double seconds, char out[RFS_TEXT_AMOUNT])
{
    const unsigned long whole = seconds < 0          ? 0
                                : seconds > 359999.0 ? 359999
                                                     : (unsigned long)(seconds + 0.5);
    const unsigned long hours = whole / 3600;

    if (hours > 0)
        snprintf(out, RFS_TEXT_AMOUNT, "%lu:%02lu:%02lu", hours, whole / 60 % 60, whole % 60);
    else
        snprintf(out, RFS_TEXT_AMOUNT, "%lu:%02lu", whole / 60, whole % 60);
    return out;
}
