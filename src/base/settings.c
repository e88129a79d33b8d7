/* SPDX-License-Identifier: Apache-2.0 */
#include "base/settings.h"

#include "base/cleanup.h"

static void free_setting(struct rfs_setting *setting)
{
    free(setting->name);
    free(setting->value);
    free(setting->origin);
}

void rfs_settings_free(struct rfs_settings *settings)
{
    for (size_t i = 0; i < settings->list.n; i++)
        free_setting(&settings->list.data[i]);
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
    free_setting(&new);
    return -ENOMEM;
}

int rfs_settings_add_all(struct rfs_settings *settings, const struct rfs_settings *more)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < more->list.n; i++)
        rc = rfs_settings_add(settings, more->list.data[i].name, more->list.data[i].value,
                              more->list.data[i].origin);
    return rc;
}

const struct rfs_setting *rfs_settings_last(const struct rfs_settings *settings, const char *name)
{
    for (size_t i = settings->list.n; i > 0; i--)
        if (strcmp(settings->list.data[i - 1].name, name) == 0)
            return &settings->list.data[i - 1];
    return NULL;
}

size_t rfs_settings_cut_word(const char *text)
{
    const size_t letters = strncmp(text, "etp", 3) == 0                     ? 3
                           : *text >= 'a' && *text <= 'z' && text[1] == 'p' ? 2
                                                                            : 0;
    const size_t n = letters + (letters > 0 ? strspn(text + letters, "0123456789") : 0);

    return n > letters && (text[n] == '\0' || strchr(", ", text[n])) ? n : 0;
}

bool rfs_settings_is_cuts(const char *value)
{
    size_t n = rfs_settings_cut_word(value);

    while (n > 0 && value[n] != '\0') {
        value += n + strspn(value + n, ", ");
        n = rfs_settings_cut_word(value);
    }
    return n > 0;
}

/*
 * Returns whether the comma at REST belongs to the value: ready cuts have it between their words,
 * and no option has such a name.
 */
static bool is_inside(const char *name, const char *value, const char *rest)
{
    return value && (strcmp(name, "dst_rules") == 0 || strcmp(name, "src_rules") == 0) &&
           rfs_settings_cut_word(value) > 0 && rfs_settings_cut_word(rest + 1) > 0;
}

/* Takes one option off the text, and unescapes its value in place. */
static char *take_option(char **rest, char **value)
{
    char *name = *rest;
    char *to = name;

    *value = NULL;
    for (; **rest && (**rest != ',' || is_inside(name, *value, *rest)); ++*rest) {
        if (**rest == '=' && !*value) {
            *to++ = '\0';
            *value = to;
            continue;
        }
        if (**rest == '\\' && ((*rest)[1] == ',' || (*rest)[1] == '\\'))
            ++*rest;
        *to++ = **rest;
    }
    *rest += **rest == ',';
    *to = '\0';
    return name;
}

int rfs_settings_add_text(struct rfs_settings *settings, const char *text)
{
    RFS_FREE char *copy = strdup(text ? text : "");
    int rc = copy ? 0 : -ENOMEM;

    for (char *rest = copy, *value; rc == 0 && *rest;) {
        const bool empty = *rest == ',';
        const char *name = take_option(&rest, &value);
        if (!empty)
            rc = rfs_settings_add(settings, name, value, NULL);
    }
    return rc;
}

void rfs_settings_write(FILE *out, const char *name, const char *value)
{
    fputs(name, out);
    if (value)
        fputc('=', out);
    for (; value && *value; value++) {
        if (*value == ',' || *value == '\\')
            fputc('\\', out);
        fputc(*value, out);
    }
}

char *rfs_settings_text(const struct rfs_settings *settings)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    for (size_t i = 0; out && i < settings->list.n; i++) {
        fputs(i > 0 ? "," : "", out);
        rfs_settings_write(out, settings->list.data[i].name, settings->list.data[i].value);
    }
    if (out && !ferror(out) && fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}
