/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/credentials.h"

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/secret.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* A line's text without the spaces around it. */
static const char *trim(const char *at, size_t *n)
{
    while (*n > 0 && is_space(*at)) {
        at++;
        --*n;
    }
    while (*n > 0 && is_space(at[*n - 1]))
        --*n;
    return at;
}

/* Whether a line is [SECTION] or [profile SECTION]. */
static bool is_section(const char *line, size_t n, const char *section)
{
    if (n < 2 || line[n - 1] != ']')
        return false;
    size_t m = n - 2;
    const char *name = trim(line + 1, &m);
    if (m > 8 && memcmp(name, "profile ", 8) == 0) {
        m -= 8;
        name = trim(name + 8, &m);
    }
    return m == strlen(section) && memcmp(name, section, m) == 0;
}

bool rfs_credentials_find(const char *text, const char *section, const char *name, char *out,
                          size_t cap)
{
    bool inside = false;

    for (const char *line = text; *line;) {
        const size_t whole = strcspn(line, "\n");
        size_t n = whole;
        const char *at = trim(line, &n);
        const char *equals = memchr(at, '=', n);
        size_t m = equals ? (size_t)(equals - at) : 0;
        if (n > 0 && *at == '[')
            inside = is_section(at, n, section);
        else if (inside && equals && *at != '#' && *at != ';') {
            const char *key = trim(at, &m);
            size_t length = n - (size_t)(equals + 1 - at);
            const char *value = trim(equals + 1, &length);
            if (m == strlen(name) && memcmp(key, name, m) == 0 && length < cap) {
                memcpy(out, value, length);
                out[length] = '\0';
                return true;
            }
        }
        line += whole + (line[whole] == '\n');
    }
    return false;
}

bool rfs_credentials_time(const char *text, time_t *out)
{
    struct tm utc = {0};

    if (!strptime(text, "%Y-%m-%dT%H:%M:%S", &utc))
        return false;
    *out = timegm(&utc);
    return true;
}

/* {"AccessKeyId": …, "SecretAccessKey": …, "Token": …, "Expiration": "2026-01-01T00:00:00Z", …} */
static bool take_member(struct rfs_json_read *json, struct rfs_credentials *out)
{
    const struct {
        const char *name;
        char *to;
        size_t cap;
    } texts[] = {
        {"AccessKeyId", out->key_id, sizeof out->key_id},
        {"SecretAccessKey", out->secret, sizeof out->secret},
        {"Token", out->token, sizeof out->token},
        {"SessionToken", out->token, sizeof out->token},
    };
    const bool ends = rfs_json_read_is(json, "Expiration");

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!rfs_json_read_is(json, texts[i].name))
            continue;
        if (!rfs_json_read_string(json) || json->text_n >= texts[i].cap)
            return false;
        memcpy(texts[i].to, json->text, json->text_n + 1);
        rfs_wipe(json->text, json->text_n);
        return true;
    }
    if (!ends)
        return rfs_json_read_skip(json);
    return rfs_json_read_string(json) && rfs_credentials_time(json->text, &out->ends);
}

bool rfs_credentials_parse(const char *json, size_t n, struct rfs_credentials *out)
{
    RFS_CLEANUP(rfs_json_read_free)
    struct rfs_json_read read = rfs_json_read_begin(json, n);
    bool first = true;

    *out = (struct rfs_credentials){0};
    while (rfs_json_read_member(&read, &first))
        if (!take_member(&read, out))
            return false;
    return !read.wrong && out->key_id[0] && out->secret[0];
}
