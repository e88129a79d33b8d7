/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of stats.json and config.json: objects with a member a line. */
#include "base/cleanup.h"
#include "base/json_write.h"
#include "mount/hidden.h"

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

static int finish(FILE *out, char **text)
{
    const bool bad = ferror(out) != 0;

    if (fclose(out) == 0 && !bad)
        return 0;
    free(*text);
    *text = NULL;
    return -ENOMEM;
}

static void put_latency(struct rfs_json_write *json, const reshard_statistics *now)
{
    rfs_json_object(json, "latency", RFS_JSON_LINES);
    rfs_json_put_u64(json, "sum_ns", now->latency_sum);
    rfs_json_array(json, "below_us", RFS_JSON_SPACED);
    for (unsigned i = 0; i + 1 < RESHARD_LATENCIES; i++)
        rfs_json_put_u64(json, NULL, UINT64_C(1) << i);
    rfs_json_put_null(json, NULL);
    rfs_json_end(json);
    rfs_json_put_u64s(json, "reads", RFS_JSON_SPACED, now->latency, RESHARD_LATENCIES);
    rfs_json_end(json);
}

static void put_sandbox(struct rfs_json_write *json, const struct rfs_sandbox *sandbox)
{
    char text[128];

    rfs_sandbox_describe(sandbox, text, sizeof text);
    rfs_json_put_text(json, "sandbox", text);
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
    struct rfs_json_write json = {.file = out, .indent = 2};
    rfs_json_object(&json, NULL, RFS_JSON_LINES);
    rfs_json_put_i64(&json, "seconds", clock.tv_sec - m->since);
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        uint64_t count;
        memcpy(&count, (const char *)&now + counters[i].at, sizeof count);
        rfs_json_put_u64(&json, counters[i].name, count);
    }
    put_latency(&json, &now);
    put_sandbox(&json, m->sandbox);
    rfs_json_finish(&json);
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
static void put_view_options(struct rfs_json_write *json, const char *text)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};

    (void)rfs_settings_add_text(&options, text);
    for (size_t i = 0; i < options.list.n; i++) {
        const struct rfs_setting *option = &options.list.data[i];
        if (option->value)
            rfs_json_put_text(json, option->name, option->value);
        else
            rfs_json_put_bool(json, option->name, true);
    }
}

static void put_mount_options(struct rfs_json_write *json, const struct rfs_mount_options *o)
{
    const struct rfs_option *option;

    rfs_json_put_bool(json, "foreground", o->foreground);
    for (size_t i = 0; (option = rfs_option_at(i)); i++) {
        char number[RFS_OPTION_BYTES];
        const char *value = rfs_options_value(&o->set, option, number);
        if (!option->help || option->flags & RFS_OPTION_OF_VIEW)
            continue;
        if (!value && option->kind != RFS_OPTION_SWITCH)
            continue;
        if (option->kind == RFS_OPTION_SWITCH)
            rfs_json_put_bool(json, option->name, value != NULL);
        else if (option->kind == RFS_OPTION_COUNT)
            rfs_json_print(json, option->name, "%s", value);
        else
            rfs_json_put_text(json, option->name, value);
    }
}

static void put_scale(struct rfs_json_write *json, const struct rfs_mount *m)
{
    reshard_summary sum = {.struct_size = sizeof sum};

    reshard_summarize(m->view, &sum);
    rfs_json_put_u64(json, "source_ranks", sum.source_ranks);
    rfs_json_put_u64(json, "source_stages", sum.source_stages);
    rfs_json_put_u64(json, "target_ranks", sum.target_ranks);
    rfs_json_put_u64(json, "target_stages", sum.target_stages);
    rfs_json_put_u64(json, "parameters", sum.parameters);
}

static void put_versions(struct rfs_json_write *json, const struct rfs_mount *m)
{
    char protocol[32];

    snprintf(protocol, sizeof protocol, "%u.%u", m->protocol[0], m->protocol[1]);
    rfs_json_put_text(json, "version", reshard_version());
    rfs_json_put_text(json, "features", reshard_features());
    rfs_json_put_text(json, "libfuse", fuse_pkgversion());
    rfs_json_put_text(json, "fuse_protocol", protocol);
    rfs_json_put_i64(json, "pid", getpid());
}

int rfs_hidden_config(const struct rfs_mount *m, char **text, size_t *bytes)
{
    RFS_FREE char *options = root_attribute(m, OPTIONS);
    FILE *out = open_memstream(text, bytes);

    if (!out)
        return -ENOMEM;
    struct rfs_json_write json = {.file = out, .indent = 2};
    rfs_json_object(&json, NULL, RFS_JSON_LINES);
    put_versions(&json, m);
    rfs_json_put_text(&json, "source", m->options->source);
    rfs_json_put_text(&json, "mountpoint", m->mountpoint);
    put_scale(&json, m);
    rfs_json_object(&json, "view", RFS_JSON_LINES);
    put_view_options(&json, options);
    rfs_json_end(&json);
    rfs_json_object(&json, "mount", RFS_JSON_LINES);
    put_mount_options(&json, m->options);
    rfs_json_finish(&json);
    return finish(out, text);
}
