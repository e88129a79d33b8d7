/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of stats.json and config.json: objects with a member a line. */
#include "base/cleanup.h"
#include "base/text.h"
#include "mount/hidden.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OPTIONS "user.reshardfs.options"

#define COUNTER(name)                                                                              \
    {                                                                                              \
#name, offsetof(reshard_statistics, name)                                                  \
    }

static const struct {
    const char *name;
    size_t at;
} counters[] = {
    COUNTER(reads),         COUNTER(reads_failed),      COUNTER(bytes_asked),
    COUNTER(bytes_replied), COUNTER(source_opens),      COUNTER(source_reads),
    COUNTER(source_bytes),  COUNTER(source_errors),     COUNTER(decrypted_blocks),
    COUNTER(ranks_indexed), COUNTER(ranks_predicted),   COUNTER(index_bytes),
    COUNTER(cache_budget),  COUNTER(cache_bytes),       COUNTER(cache_hits),
    COUNTER(cache_misses),  COUNTER(cache_evictions),   COUNTER(cache_inserts),
    COUNTER(cache_regrets), COUNTER(read_ahead_pieces), COUNTER(read_ahead_unread),
};

/* A member's name, with what separates it from the one before. */
static void put_key(FILE *out, bool first, const char *indent, const char *key)
{
    fprintf(out, "%s%s\"%s\": ", first ? "\n" : ",\n", indent, key);
}

/* A text of N bytes from anywhere: what is not printable is \xNN in it. */
static void put_text(FILE *out, const char *text, size_t n)
{
    RFS_FREE char *copy = strndup(text, n);
    RFS_FREE char *printable = malloc(4 * n + 2);

    if (!copy || !printable)
        return;
    rfs_text_printable(printable, 4 * n + 2, copy);
    fputc('"', out);
    for (const char *at = printable; *at; at++) {
        if (*at == '"' || *at == '\\')
            fputc('\\', out);
        fputc(*at, out);
    }
    fputc('"', out);
}

static int finish(FILE *out, char **text)
{
    const bool bad = ferror(out) != 0;

    if (fclose(out) == 0 && !bad)
        return 0;
    free(*text);
    *text = NULL;
    return -ENOMEM;
}

static void put_latency(FILE *out, const reshard_statistics *now)
{
    put_key(out, false, "  ", "latency");
    fprintf(out, "{\n    \"sum_ns\": %" PRIu64 ",\n    \"below_us\": [", now->latency_sum);
    for (unsigned i = 0; i + 1 < RESHARD_LATENCIES; i++)
        fprintf(out, "%" PRIu64 ", ", UINT64_C(1) << i);
    fputs("null],\n    \"reads\": [", out);
    for (unsigned i = 0; i < RESHARD_LATENCIES; i++)
        fprintf(out, "%s%" PRIu64, i > 0 ? ", " : "", now->latency[i]);
    fputs("]\n  }", out);
}

static void put_sandbox(FILE *out, const struct rfs_sandbox *sandbox)
{
    char text[128];

    rfs_sandbox_tell(sandbox, text, sizeof text);
    put_key(out, false, "  ", "sandbox");
    put_text(out, text, strlen(text));
}

int rfs_hidden_stats(const struct rfs_mount *m, char **text, size_t *bytes)
{
    reshard_statistics now = {.struct_size = sizeof now};
    struct timespec clock;
    FILE *out = open_memstream(text, bytes);

    if (!out)
        return -ENOMEM;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    reshard_get_statistics(m->view, &now);
    fputc('{', out);
    put_key(out, true, "  ", "seconds");
    fprintf(out, "%lld", (long long)(clock.tv_sec - m->since));
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        uint64_t count;
        memcpy(&count, (const char *)&now + counters[i].at, sizeof count);
        put_key(out, false, "  ", counters[i].name);
        fprintf(out, "%" PRIu64, count);
    }
    put_latency(out, &now);
    put_sandbox(out, m->sandbox);
    fputs("\n}\n", out);
    return finish(out, text);
}

/* An attribute of the root, owned by the caller; NULL when there is none. */
static char *root_attribute(const struct rfs_mount *m, const char *name)
{
    const ssize_t n = reshard_get_attribute(m->view, RESHARD_ROOT, name, NULL, 0);
    char *value = n < 0 ? NULL : calloc(1, (size_t)n + 1);

    if (value && n > 0 &&
        reshard_get_attribute(m->view, RESHARD_ROOT, name, value, (size_t)n) != n) {
        free(value);
        value = NULL;
    }
    return value;
}

/* The options of the view, as texts; those without a value are true. */
static void put_view_options(FILE *out, const char *text)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};

    (void)rfs_settings_add_text(&options, text);
    for (size_t i = 0; i < options.list.n; i++) {
        const struct rfs_setting *option = &options.list.data[i];
        put_key(out, i == 0, "    ", option->name);
        if (option->value)
            put_text(out, option->value, strlen(option->value));
        else
            fputs("true", out);
    }
}

static void put_mount_options(FILE *out, const struct rfs_mount_options *o)
{
    const struct rfs_option *option;

    put_key(out, true, "    ", "foreground");
    fputs(o->foreground ? "true" : "false", out);
    for (size_t i = 0; (option = rfs_option_at(i)); i++) {
        char number[RFS_OPTION_BYTES];
        const char *value = rfs_options_value(&o->set, option, number);
        if (!option->help || option->flags & RFS_OPTION_OF_VIEW)
            continue;
        if (!value && option->kind != RFS_OPTION_SWITCH)
            continue;
        put_key(out, false, "    ", option->name);
        if (option->kind == RFS_OPTION_SWITCH)
            fputs(value ? "true" : "false", out);
        else if (option->kind == RFS_OPTION_COUNT)
            fputs(value, out);
        else
            put_text(out, value, strlen(value));
    }
}

static void put_scale(FILE *out, const struct rfs_mount *m)
{
    reshard_summary sum = {.struct_size = sizeof sum};

    reshard_summarize(m->view, &sum);
    put_key(out, false, "  ", "source_ranks");
    fprintf(out, "%" PRIu32, sum.source_ranks);
    put_key(out, false, "  ", "source_stages");
    fprintf(out, "%" PRIu32, sum.source_stages);
    put_key(out, false, "  ", "target_ranks");
    fprintf(out, "%" PRIu32, sum.target_ranks);
    put_key(out, false, "  ", "target_stages");
    fprintf(out, "%" PRIu32, sum.target_stages);
    put_key(out, false, "  ", "parameters");
    fprintf(out, "%" PRIu64, sum.parameters);
}

static void put_versions(FILE *out, const struct rfs_mount *m)
{
    put_key(out, true, "  ", "version");
    put_text(out, reshard_version(), strlen(reshard_version()));
    put_key(out, false, "  ", "features");
    put_text(out, reshard_features(), strlen(reshard_features()));
    put_key(out, false, "  ", "libfuse");
    put_text(out, fuse_pkgversion(), strlen(fuse_pkgversion()));
    put_key(out, false, "  ", "fuse_protocol");
    fprintf(out, "\"%u.%u\"", m->protocol[0], m->protocol[1]);
    put_key(out, false, "  ", "pid");
    fprintf(out, "%ld", (long)getpid());
}

int rfs_hidden_config(const struct rfs_mount *m, char **text, size_t *bytes)
{
    RFS_FREE char *options = root_attribute(m, OPTIONS);
    FILE *out = open_memstream(text, bytes);

    if (!out)
        return -ENOMEM;
    fputc('{', out);
    put_versions(out, m);
    put_key(out, false, "  ", "source");
    put_text(out, m->options->source, strlen(m->options->source));
    put_key(out, false, "  ", "mountpoint");
    put_text(out, m->mountpoint, strlen(m->mountpoint));
    put_scale(out, m);
    put_key(out, false, "  ", "view");
    fputc('{', out);
    put_view_options(out, options);
    fputs("\n  }", out);
    put_key(out, false, "  ", "mount");
    fputc('{', out);
    put_mount_options(out, m->options);
    fputs("\n  }\n}\n", out);
    return finish(out, text);
}
