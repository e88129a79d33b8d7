/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/settings.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

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
