/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/suggest/shell.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "tool/common/show.h"

/* Returns whether TEXT means itself in a shell. */
static bool is_plain(const char *text)
{
    return *text && text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789_@%+=:,./-")] == '\0';
}

static bool is_shown(const char *text)
{
    for (size_t n; *text; text += n)
        if ((n = rfs_text_shown_length(text)) == 0)
            return false;
    return true;
}

/* Writes a word so that a shell has it again, and that no terminal obeys it. */
static void put_word(FILE *out, const char *text)
{
    if (is_plain(text)) {
        fputs(text, out);
    } else if (is_shown(text)) {
        fputc('\'', out);
        for (; *text; text++)
            fputs(*text == '\'' ? "'\\''" : (const char[]){*text, '\0'}, out);
        fputc('\'', out);
    } else { /* as bash, zsh and others have it */
        fputs("$'", out);
        for (const unsigned char *at = (const unsigned char *)text; *at; at++)
            if (*at < 0x20 || *at > 0x7e || *at == '\'' || *at == '\\')
                fprintf(out, "\\%03o", *at);
            else
                fputc(*at, out);
        fputc('\'', out);
    }
}

/* Writes a path, which no program takes for an option. */
static void put_path(FILE *out, const char *path)
{
    RFS_FREE char *safe = *path == '-' ? rfs_printed_memory(rfs_text_printf("./%s", path)) : NULL;

    put_word(out, safe ? safe : path);
}

/* Writes -s, -d and -o. */
static void put_options(FILE *out, const struct rfs_settings *settings)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings rest = {0};
    bool good = true;

    for (size_t i = 0; i < settings->list.n; i++) {
        const struct rfs_setting *setting = &settings->list.data[i];
        const bool source = strcmp(setting->name, "src_strategy") == 0;
        if (source || strcmp(setting->name, "dst_strategy") == 0) {
            fputs(source ? " -s " : " -d ", out);
            put_path(out, setting->value);
        } else {
            good = good && rfs_settings_add(&rest, setting->name, setting->value, NULL) == 0;
        }
    }
    RFS_FREE char *text = rfs_printed_memory(good ? rfs_settings_text(&rest) : NULL);
    if (*text) {
        fputs(" -o ", out);
        put_word(out, text);
    }
}

char *rfs_shell_command(const char *program, const char *path, const char *place,
                        const struct rfs_settings *options)
{
    struct rfs_printed text;
    FILE *out = rfs_printed_begin(&text);

    fprintf(out, "%s ", program);
    put_path(out, path);
    if (place)
        fprintf(out, " %s", place);
    put_options(out, options);
    return rfs_printed_end(&text);
}
