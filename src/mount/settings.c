/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/settings.h"

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/read_whole.h"
#include "base/text.h"

#include <sys/auxv.h>

/* ---- the environment ------------------------------------------------------------------------- */

static int add_variable(struct rfs_settings *settings, const char *variable)
{
    const char *equals = strchr(variable, '=');
    const size_t length = equals ? (size_t)(equals - variable) : strlen(variable);
    RFS_FREE char *origin = strndup(variable, length);
    RFS_FREE char *name = origin ? strdup(origin + strlen(RFS_OPTIONS_VARIABLE)) : NULL;

    if (!origin || !name)
        return -ENOMEM;
    for (char *c = name; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    return rfs_settings_add(settings, name, equals ? equals + 1 : "", origin);
}

int rfs_settings_add_environment(struct rfs_settings *settings, char *const *environment)
{
    int rc = 0;

    if (getauxval(AT_SECURE)) /* like secure_getenv: the caller may have fewer rights */
        return 0;
    for (; rc == 0 && *environment; environment++)
        if (strncmp(*environment, RFS_OPTIONS_VARIABLE, strlen(RFS_OPTIONS_VARIABLE)) == 0)
            rc = add_variable(settings, *environment);
    return rc;
}

/* ---- a file of lines ------------------------------------------------------------------------- */

/* Without the blanks around it; is changed. */
static char *trimmed(char *text)
{
    static const char blanks[] = " \t\r";

    text += strspn(text, blanks);
    for (size_t n = strlen(text); n > 0 && strchr(blanks, text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

static char *unquoted(char *value)
{
    const size_t n = strlen(value);

    if (n < 2 || value[0] != '"' || value[n - 1] != '"')
        return value;
    value[n - 1] = '\0';
    return value + 1;
}

static int add_line(struct rfs_settings *settings, const char *path, unsigned number, char *line,
                    struct rfs_error *err)
{
    char *name = trimmed(line);
    char *value = strchr(name, '=');

    if (*name == '\0' || *name == '#' || *name == ';' || strcmp(name, "[reshardfs]") == 0)
        return 0;
    if (*name == '[')
        return rfs_fail_usage(err, "[reshardfs], or no section at all",
                              "%s: line %u: there is no section %s", path, number, name);
    RFS_FREE char *origin = rfs_text_printf("%s: line %u", path, number);
    if (!origin)
        return -ENOMEM;
    if (value) {
        *value++ = '\0';
        value = unquoted(trimmed(value));
        name = trimmed(name);
    }
    return rfs_settings_add(settings, name, value, origin);
}

static int add_lines(struct rfs_settings *settings, const char *path, char *text,
                     struct rfs_error *err)
{
    unsigned number = 0;
    int rc = 0;

    for (char *next; rc == 0 && text; text = next) {
        next = strchr(text, '\n');
        if (next)
            *next++ = '\0';
        rc = add_line(settings, path, ++number, text, err);
    }
    return rc;
}

/* ---- of JSON --------------------------------------------------------------------------------- */

/* A list of texts, with ':' between. */
static int put_list(struct rfs_json_read *json, FILE *out)
{
    const char *between = "";

    for (bool first = true; rfs_json_read_element(json, &first) && rfs_json_read_string(json);
         between = ":")
        fprintf(out, "%s%s", between, json->text);
    return json->wrong ? -EINVAL : 0;
}

/* Puts the value at JSON, which is well-formed, as text. -EINVAL: no option has such a value. */
static int put_value(struct rfs_json_read *json, FILE *out)
{
    uint64_t number;

    if (rfs_json_read_peek(json, '['))
        return put_list(json, out);
    if (rfs_json_read_peek(json, '"'))
        fputs(rfs_json_read_string(json) ? json->text : "", out);
    else if (rfs_json_read_peek(json, 't') || rfs_json_read_peek(json, 'f'))
        fputs(rfs_json_read_peek(json, 't') ? "yes" : "no", out);
    else if (rfs_json_read_u64(json, &number) && rfs_json_read_end(json))
        fprintf(out, "%" PRIu64, number);
    return json->wrong ? -EINVAL : 0;
}

static int add_member(struct rfs_settings *settings, const char *path, const char *name,
                      const char *text, size_t n, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_json_read_free) struct rfs_json_read json = rfs_json_read_begin(text, n);
    RFS_FREE char *value = NULL;
    size_t size;
    FILE *out = open_memstream(&value, &size);

    if (!out)
        return -ENOMEM;
    const int rc = put_value(&json, out);
    const bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad || !value || json.no_memory)
        return -ENOMEM;
    return rc ? rfs_fail_usage(err, "a text, a whole number, true, false or a list of texts",
                               "%s: '%s' has a value that no option takes", path, name)
              : rfs_settings_add(settings, name, value, path);
}

static int add_object(struct rfs_settings *settings, const char *path, const char *text, size_t n,
                      struct rfs_error *err)
{
    RFS_CLEANUP(rfs_json_read_free) struct rfs_json_read json = rfs_json_read_begin(text, n);
    struct rfs_json_part part;
    int rc = 0;

    for (bool first = true; rc == 0 && rfs_json_read_member(&json, &first);) {
        RFS_FREE char *name = strdup(json.text);
        if (!name)
            return -ENOMEM;
        if (rfs_json_read_part(&json, &part))
            rc = add_member(settings, path, name, text + part.at, part.n, err);
    }
    if (rc || rfs_json_read_end(&json))
        return rc;
    return json.no_memory ? -ENOMEM
                          : rfs_fail_usage(err, "{\"cache\": \"2G\"}, or lines such as cache = 2G",
                                           "%s: offset %zu: not JSON", path, json.at);
}

int rfs_settings_add_file(struct rfs_settings *settings, const char *path, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t n;
    int rc = rfs_read_whole(path, RFS_SETTINGS_FILE_BYTES, &text, &n, err);

    if (rc)
        return rc;
    if (memchr(text, '\0', n))
        return rfs_fail_usage(err, "config=FILE with a file of options", "%s: holds a NUL byte",
                              path);
    rc = text[strspn(text, " \t\r\n")] == '{' ? add_object(settings, path, text, n, err)
                                              : add_lines(settings, path, text, err);
    return rc == -ENOMEM ? rfs_fail_memory(err) : rc;
}
