/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/settings.h"

#include "base/cleanup.h"
#include "mount/known.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

void rfs_settings_free(struct rfs_settings *settings)
{
    for (size_t i = 0; i < settings->list.n; i++) {
        free(settings->list.data[i].name);
        free(settings->list.data[i].value);
        free(settings->list.data[i].origin);
    }
    free(settings->list.data);
    *settings = (struct rfs_settings){0};
}

int rfs_settings_add(struct rfs_settings *settings, const char *name, const char *value,
                     const char *origin)
{
    struct rfs_setting new = {strdup(name), value ? strdup(value) : NULL,
                              origin ? strdup(origin) : NULL};

    if (new.name && (new.value || !value) && (new.origin || !origin) &&
        RFS_PUSH(&settings->list, new))
        return 0;
    free(new.name);
    free(new.value);
    free(new.origin);
    return -ENOMEM;
}

const struct rfs_setting *rfs_settings_last(const struct rfs_settings *settings, const char *name)
{
    for (size_t i = settings->list.n; i > 0; i--)
        if (strcmp(settings->list.data[i - 1].name, name) == 0)
            return &settings->list.data[i - 1];
    return NULL;
}

int rfs_settings_switch(const char *value)
{
    static const char *const on[] = {"yes", "true", "on", "1"};
    static const char *const off[] = {"no", "false", "off", "0", ""};

    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        if (strcasecmp(value, on[i]) == 0)
            return 1;
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (strcasecmp(value, off[i]) == 0)
            return 0;
    return -1;
}

/* ---- a list ------------------------------------------------------------------------------------------ */

/* In place: "\," and "\\" become the second character; any other backslash stays. */
static void unescape(char *value)
{
    char *to = value;

    for (; *value; value++) {
        if (*value == '\\' && (value[1] == ',' || value[1] == '\\'))
            value++;
        *to++ = *value;
    }
    *to = '\0';
}

/* One option, "name" or "name=value", still escaped; is changed. */
static int add_escaped(struct rfs_settings *settings, char *option)
{
    char *value = strchr(option, '=');

    if (value) {
        *value++ = '\0';
        unescape(value);
    }
    return rfs_settings_add(settings, option, value, NULL);
}

int rfs_settings_add_list(struct rfs_settings *settings, const char *list)
{
    RFS_FREE char *copy = strdup(list);
    int rc = copy ? 0 : -ENOMEM;

    for (char *start = copy, *at = copy; rc == 0; at++) {
        const bool last = *at == '\0';

        if (*at == '\\' && at[1]) {
            at++;
        } else if (last || *at == ',') {
            *at = '\0';
            if (*start)
                rc = add_escaped(settings, start);
            start = at + 1;
        }
        if (last)
            break;
    }
    return rc;
}

/* ---- the environment --------------------------------------------------------------------------------- */

static int add_variable(struct rfs_settings *settings, const char *variable)
{
    const char *equals = strchr(variable, '=');
    const size_t length = equals ? (size_t)(equals - variable) : strlen(variable);
    RFS_FREE char *origin = strndup(variable, length);
    RFS_FREE char *name = origin ? strdup(origin + strlen(RFS_SETTINGS_VARIABLE)) : NULL;

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

    if (getauxval(AT_SECURE)) /* as secure_getenv: it is the environment of who has fewer rights */
        return 0;
    for (; rc == 0 && *environment; environment++)
        if (strncmp(*environment, RFS_SETTINGS_VARIABLE, strlen(RFS_SETTINGS_VARIABLE)) == 0)
            rc = add_variable(settings, *environment);
    return rc;
}

/* ---- a file ------------------------------------------------------------------------------------------ */

static int read_text(const char *path, char **out, struct rfs_error *err)
{
    RFS_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    RFS_FREE char *text = NULL;
    struct stat st;
    size_t n = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        return rfs_fail(err, -errno, RFS_IN(path), "config=FILE with a file of options",
                        "cannot open: %s", strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > RFS_SETTINGS_FILE_BYTES)
        return rfs_fail(err, -EINVAL, RFS_IN(path), "config=FILE with a file of options",
                        S_ISREG(st.st_mode) ? "too large for a file of options" : "not a file");
    const size_t size = (size_t)st.st_size;
    text = malloc(size + 1);
    if (!text)
        return rfs_fail_memory(err);
    while (n < size) {
        const ssize_t got = read(fd, text + n, size - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return rfs_fail(err, -errno, RFS_IN(path), NULL, "cannot read: %s", strerror(errno));
        if (got == 0)
            break;
        n += (size_t)got;
    }
    text[n] = '\0';
    if (memchr(text, '\0', n))
        return rfs_fail_usage(err, "config=FILE with a file of options", "%s: holds a NUL byte",
                              path);
    *out = RFS_STEAL(text);
    return 0;
}

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
    RFS_FREE char *origin = NULL;

    if (*name == '\0' || *name == '#' || *name == ';' || strcmp(name, "[reshardfs]") == 0)
        return 0;
    if (*name == '[')
        return rfs_fail_usage(err, "[reshardfs], or no section at all",
                              "%s: line %u: there is no section %s", path, number, name);
    if (asprintf(&origin, "%s: line %u", path, number) < 0) {
        origin = NULL;
        return -ENOMEM;
    }
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

int rfs_settings_add_file(struct rfs_settings *settings, const char *path, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    int rc = read_text(path, &text, err);

    if (rc)
        return rc;
    rc = text[strspn(text, " \t\r\n")] == '{' ? rfs_settings_add_json(settings, path, text, err)
                                              : add_lines(settings, path, text, err);
    return rc == -ENOMEM ? rfs_fail_memory(err) : rc;
}
