/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attempts: a view is opened by some options and its files are planned, from headers alone; what
 * works becomes a command, whose words a shell has again, and no terminal obeys.
 */
#include "base/cleanup.h"
#include "base/text.h"
#include "reshard.h"
#include "tool/common/show.h"
#include "tool/suggest/internal.h"

enum { MOST_PLANNED = 64 /* files of a view */ };

/* ---- what a shell takes as it is meant ------------------------------------------------------- */

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

/*
 * Returns "PROGRAM PATH PLACE OPTIONS", malloc'ed, as a shell takes it: no program takes the path
 * for an option. PLACE may be NULL.
 */
static char *command_of(const char *program, const char *path, const char *place,
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

/* ---- notes and commands ---------------------------------------------------------------------- */

void rfs_advice_free_notes(struct rfs_advice *advice)
{
    while (advice->notes.n > 0)
        free(advice->notes.data[--advice->notes.n]);
}

void rfs_advice_note(struct rfs_advice *advice, char *text)
{
    advice->failed |= !text || !RFS_PUSH(&advice->notes, text);
}

void rfs_advice_command(struct rfs_advice *advice, const char *why, const char *program,
                        const char *path, const char *place, const struct rfs_settings *options)
{
    const struct rfs_wanted wanted = {rfs_printed_memory(strdup(why)),
                                      command_of(program, path, place, options)};

    advice->failed |= !RFS_PUSH(&advice->list, wanted);
}

/* ---- views ----------------------------------------------------------------------------------- */

static void ignore(void *ctx, enum reshard_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

/* Fills *err from a failure of the library, unless RC is 0. Returns RC. */
static int take_failure(int rc, const reshard_error *failure, struct rfs_error *err)
{
    if (rc) {
        *err = (struct rfs_error){.code = rc};
        memcpy(err->text, failure->message, sizeof err->text);
    }
    return rc;
}

/* Plans the files in a folder of a view, and counts its entries. 0 or -errno with *err filled. */
static int plan_folder(reshard_view *view, uint64_t folder, unsigned *planned, unsigned *entries,
                       struct rfs_error *err)
{
    reshard_dirent entry = {.struct_size = sizeof entry};
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && *planned < MOST_PLANNED; at++) {
        reshard_stat st = {.struct_size = sizeof st};
        reshard_error failure = {.struct_size = sizeof failure};
        unsigned unused = 0;
        if (reshard_list(view, folder, at, &entry) != 1)
            break;
        ++*entries;
        if (entry.is_dir) {
            rc = plan_folder(view, entry.id, planned, &unused, err);
            continue;
        }
        ++*planned;
        rc = take_failure(reshard_getattr(view, entry.id, &st, &failure), &failure, err);
    }
    return rc;
}

RFS_CLEANUP_OF(close_view, reshard_view *, reshard_close)

/* Compares the ranks of a view: sizes that are kept need no plan. 0 or -errno with *err filled. */
static int compare_ranks(reshard_view *view, struct rfs_error *err)
{
    reshard_error failure = {.struct_size = sizeof failure};

    return take_failure(reshard_check_strategies(view, &failure), &failure, err);
}

int rfs_advice_try(struct rfs_advice *advice, const struct rfs_settings *options, bool wary,
                   unsigned *entries, struct rfs_error *err)
{
    RFS_CLEANUP(close_view) reshard_view *view = NULL;
    const struct rfs_view_how how = {.log = ignore, .wary = wary};
    unsigned planned = 0;
    const int rc = rfs_tool_open(advice->path, options, &how, &view, err)
                       ?: compare_ranks(view, err)
                       ?: plan_folder(view, RESHARD_ROOT, &planned, entries, err);

    advice->failed |= rc == -ENOMEM;
    return rc;
}

bool rfs_advice_shows(struct rfs_advice *advice, const struct rfs_settings *options,
                      unsigned *entries)
{
    struct rfs_error err = {0};
    unsigned unused = 0;
    const int rc = rfs_advice_try(advice, options, false, entries ? entries : &unused, &err);

    if (rc && advice->why.code == 0)
        advice->why = err;
    return rc == 0;
}

void rfs_advice_pairs(struct rfs_advice *advice, struct rfs_settings *to, const char *const *pairs)
{
    for (; pairs && *pairs; pairs += 2)
        advice->failed |= rfs_settings_add(to, pairs[0], pairs[1], NULL) != 0;
}

bool rfs_advice_offer(struct rfs_advice *advice, struct rfs_offer offer)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};

    if (advice->list.n >= RFS_ADVICE_MOST)
        return false;
    advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0;
    if (offer.of_model || offer.converts)
        advice->failed |= rfs_settings_add_all(&options, &advice->model) != 0;
    if (offer.converts)
        advice->failed |= rfs_settings_add_all(&options, &advice->rules) != 0;
    rfs_advice_pairs(advice, &options, offer.pairs);
    if (advice->failed || !rfs_advice_shows(advice, &options, NULL))
        return false;
    rfs_advice_command(advice, offer.why, offer.program, advice->path, offer.place, &options);
    return true;
}

int rfs_advice_open_rules(const struct rfs_advice *advice, const struct rfs_settings *options,
                          char **to, struct rfs_error *err)
{
    RFS_CLEANUP(close_view) reshard_view *view = NULL;
    const struct rfs_view_how how = {.log = ignore};
    struct rfs_inspect_rules result;
    const int rc = rfs_tool_open(advice->path, options, &how, &view, err)
                       ?: rfs_inspect_rules(view, &result, err);

    if (rc || !to)
        return rc;
    *to = strdup(result.to);
    return *to ? 0 : rfs_fail_memory(err);
}
