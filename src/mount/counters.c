/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/counters.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/text.h"

#include <inttypes.h>
#include <time.h>

#define NS_PER_US 1000
#define US_PER_S 1e6

#define COUNTER(name, help)                                                                        \
    {                                                                                              \
#name, offsetof(reshard_statistics, name), false, help                                     \
    }
#define GAUGE(name, help)                                                                          \
    {                                                                                              \
#name, offsetof(reshard_statistics, name), true, help                                      \
    }

static const struct count {
    const char *name;
    size_t at;
    bool falls; /* the number is that of the moment */
    const char *help;
} numbers[] = {
    COUNTER(reads, "Reads that returned at least one byte."),
    COUNTER(reads_failed, "Reads that returned an error."),
    COUNTER(bytes_asked, "Bytes that readers asked for."),
    COUNTER(bytes_replied, "Bytes that readers got."),
    COUNTER(source_opens, "Times that a source file was opened."),
    COUNTER(source_reads, "Reads of source files."),
    COUNTER(source_bytes, "Bytes that were read of source files."),
    COUNTER(source_errors, "Source files found changed, damaged or unreadable."),
    COUNTER(decrypted_blocks, "Blocks of encrypted source files that were decrypted."),
    COUNTER(ranks_indexed, "Source files whose headers were read."),
    COUNTER(ranks_predicted, "Source files whose headers were as predicted."),
    GAUGE(index_bytes, "Memory of the indexes."),
    GAUGE(cache_budget, "Bytes that the cache may have."),
    GAUGE(cache_bytes, "Bytes that the cache has."),
    COUNTER(cache_hits, "Pieces that were in the cache or being made."),
    COUNTER(cache_misses, "Pieces that were not in the cache."),
    COUNTER(cache_evictions, "Pieces that the cache dropped for others."),
    COUNTER(cache_inserts, "Pieces that were put into the cache."),
    COUNTER(cache_regrets, "Pieces that the cache had dropped a short time before."),
    COUNTER(read_ahead_pieces, "Pieces that were made before they were asked for."),
    COUNTER(read_ahead_unread, "Pieces that were made ahead and dropped without a read."),
};

enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

static uint64_t value_of(const struct count *number, const reshard_statistics *now)
{
    uint64_t value;

    memcpy(&value, (const char *)now + number->at, sizeof value);
    return value;
}

static int64_t seconds_since(time_t begin)
{
    struct timespec clock;

    clock_gettime(CLOCK_MONOTONIC, &clock);
    return clock.tv_sec - begin;
}

/* ---- stats.json: a member a line ------------------------------------------------------------- */

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

int rfs_counters_json(const struct rfs_mount *m, FILE *out)
{
    reshard_statistics now = {.struct_size = sizeof now};
    struct rfs_json_write json = {.file = out, .indent = 2};
    char sandbox[128];

    reshard_get_statistics(m->view, &now);
    rfs_json_object(&json, NULL, RFS_JSON_LINES);
    rfs_json_put_i64(&json, "seconds", seconds_since(m->since));
    for (size_t i = 0; i < N_NUMBERS; i++)
        rfs_json_put_u64(&json, numbers[i].name, value_of(&numbers[i], &now));
    put_latency(&json, &now);
    rfs_sandbox_describe(m->sandbox, sandbox, sizeof sandbox);
    rfs_json_put_text(&json, "sandbox", sandbox);
    rfs_json_finish(&json);
    return 0;
}

/* ---- metrics --------------------------------------------------------------------------------- */

/*
 * Writes a label's value in quotes; bytes that are not printable UTF-8 become \xNN. 0 or -ENOMEM.
 */
static int put_label(FILE *out, const char *name, const char *value)
{
    RFS_FREE char *text = rfs_text_printable_copy(value);

    if (!text)
        return -ENOMEM;
    fprintf(out, "%s=\"", name);
    for (const char *c = text; *c; c++) {
        if (*c == '\\' || *c == '"')
            fputc('\\', out);
        fputc(*c, out);
    }
    fputc('"', out);
    return 0;
}

static void put_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP reshardfs_%s %s\n# TYPE reshardfs_%s %s\n", name, help, name, type);
}

/* Writes the durations of reads. The histogram's buckets are sums up to their bound. */
static void put_durations(FILE *out, const reshard_statistics *now, const char *label)
{
    static const char name[] = "read_duration_seconds";
    uint64_t below = 0;

    put_head(out, name, "histogram", "Reads that returned at least one byte, by their duration.");
    for (unsigned i = 0; i < RESHARD_LATENCIES; i++) {
        below += now->latency[i];
        if (i + 1 < RESHARD_LATENCIES)
            fprintf(out, "reshardfs_%s_bucket{%s,le=\"%.6f\"} %" PRIu64 "\n", name, label,
                    (double)(UINT64_C(1) << i) / US_PER_S, below);
    }
    fprintf(out, "reshardfs_%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name, label, below);
    fprintf(out, "reshardfs_%s_sum{%s} %.9f\n", name, label,
            (double)now->latency_sum / NS_PER_US / US_PER_S);
    fprintf(out, "reshardfs_%s_count{%s} %" PRIu64 "\n", name, label, below);
}

static int put_info(const struct rfs_mount *m, FILE *out, const char *label)
{
    put_head(out, "info", "gauge", "The version and the source of a mount; always 1.");
    fprintf(out, "reshardfs_info{%s,", label);
    int rc = put_label(out, "source", m->options->source);
    fputc(',', out);
    rc = rc ?: put_label(out, "version", reshard_version());
    fputs("} 1\n", out);
    put_head(out, "uptime_seconds", "gauge", "Seconds since the mount began.");
    fprintf(out, "reshardfs_uptime_seconds{%s} %" PRId64 "\n", label, seconds_since(m->since));
    return rc;
}

/* Makes the label that all samples of a mount have, malloc'ed; NULL when out of memory. */
static char *label_of(const struct rfs_mount *m)
{
    char *label = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&label, &size);

    if (!out)
        return NULL;
    const int rc = put_label(out, "mountpoint", m->mountpoint);
    if (fclose(out) == 0 && rc == 0)
        return label;
    free(label);
    return NULL;
}

int rfs_counters_metrics(const struct rfs_mount *m, FILE *out)
{
    reshard_statistics now = {.struct_size = sizeof now};
    RFS_FREE char *label = label_of(m);

    if (!label)
        return -ENOMEM;
    reshard_get_statistics(m->view, &now);
    const int rc = put_info(m, out, label);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const struct count *number = &numbers[i];
        char name[64];
        snprintf(name, sizeof name, "%s%s", number->name, number->falls ? "" : "_total");
        put_head(out, name, number->falls ? "gauge" : "counter", number->help);
        fprintf(out, "reshardfs_%s{%s} %" PRIu64 "\n", name, label, value_of(number, &now));
    }
    put_durations(out, &now, label);
    return rc;
}
