/* SPDX-License-Identifier: Apache-2.0 */
#include "base/filename.h"

#include "base/text.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#define HASH_DIGITS 32
#define SHORT_TAIL (2 + HASH_DIGITS) /* "%~" and the digits */
#define SHORT_HEAD (RFS_FILENAME_STEM - SHORT_TAIL)

/* Writes the next character of NAME to OUT; returns how many bytes of NAME it is. */
static size_t write_character(const char *name, bool first, char out[5], size_t *written)
{
    const size_t shown = rfs_text_shown_length(name);

    if (shown > 0 && *name != '%' && *name != '/' && !(first && *name == '.')) {
        memcpy(out, name, shown);
        *written = shown;
        return shown;
    }
    snprintf(out, 5, "%%%02X", (unsigned char)*name);
    *written = 3;
    return 1;
}

/* Writes as many whole characters as LIMIT bytes hold; returns how many bytes these are. */
static size_t write_name(const char *name, size_t limit, char *out, bool *all)
{
    char character[5];
    size_t length = 0;
    size_t written;

    for (const char *at = name; *at;) {
        at += write_character(at, at == name, character, &written);
        if (written > limit - length) {
            *all = false;
            return length;
        }
        memcpy(out + length, character, written);
        length += written;
    }
    *all = true;
    return length;
}

size_t rfs_filename_make(const char *name, char out[RFS_FILENAME_STEM + 1])
{
    bool all;
    size_t length = write_name(name, RFS_FILENAME_STEM, out, &all);

    if (!all) {
        const XXH128_hash_t hash = XXH3_128bits(name, strlen(name));
        length = write_name(name, SHORT_HEAD, out, &all);
        length += (size_t)snprintf(out + length, SHORT_TAIL + 1, "%%~%016llx%016llx",
                                   (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    } else if (length == 0) {
        out[length++] = '%';
    }
    out[length] = '\0';
    return length;
}

bool rfs_filename_is_short(const char *stem, size_t n)
{
    return n >= SHORT_TAIL && memcmp(stem + n - SHORT_TAIL, "%~", 2) == 0;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool rfs_filename_read(const char *stem, size_t n, char out[RFS_FILENAME_STEM + 1])
{
    char again[RFS_FILENAME_STEM + 1];
    size_t length = 0;

    if (n == 0 || n > RFS_FILENAME_STEM)
        return false;
    for (size_t i = 0; i < n && !(n == 1 && stem[0] == '%'); i++) {
        out[length++] = stem[i];
        if (stem[i] != '%')
            continue;
        if (n - i < 3 || digit(stem[i + 1]) < 0 || digit(stem[i + 2]) < 0)
            return false;
        out[length - 1] = (char)(digit(stem[i + 1]) * 16 + digit(stem[i + 2]));
        i += 2;
    }
    out[length] = '\0';
    /* A name that is not in the canonical form is invalid, as is one with a NUL. */
    return rfs_filename_make(out, again) == n && memcmp(again, stem, n) == 0;
}
