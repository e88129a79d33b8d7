/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/control.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/text.h"
#include "mount/message.h"
#include "mount/request_buffer.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ATTRIBUTES "user.reshardfs."
#define OPTIONS ATTRIBUTES "options"

/* ---- config.json ----------------------------------------------------------------------------- */

/* Reads an attribute of the root, owned by the caller; NULL when there is none. */
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

/* Puts the options of the view, as texts; switches are true. */
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

static int write_config(const struct rfs_mount *m, FILE *out)
{
    RFS_FREE char *options = root_attribute(m, OPTIONS);
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
    return 0;
}

/* ---- the numbers of a mount since it began -------------------------------------------------- */

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

/* Writes stats.json. 0. */
static int write_json(const struct rfs_mount *m, FILE *out)
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

/*
 * Writes the same in Prometheus' text format, version 0.0.4: names begin with reshardfs_, those of
 * counters end in _total, the duration of reads is a histogram in seconds, and each sample has the
 * mount point as a label, so that those of several mounts can stand in one file. 0 or -ENOMEM.
 */
static int write_metrics(const struct rfs_mount *m, FILE *out)
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

/* ---- the hidden folder ----------------------------------------------------------------------- */

static int write_log(const struct rfs_mount *m, FILE *out)
{
    size_t bytes = 0;
    RFS_FREE char *text = rfs_message_copy_last(&bytes);

    (void)m;
    if (text)
        fwrite(text, 1, bytes, out);
    return text ? 0 : -ENOMEM;
}

static int write_saves(const struct rfs_mount *m, FILE *out)
{
    RFS_FREE char *text = reshard_describe_saves(m->view);

    fputs(text ? text : "{}\n", out);
    return 0;
}

/* The mount's own files, by id from RFS_CONTROL_IDS on. */
static const struct {
    const char *name;
    int (*write)(const struct rfs_mount *m, FILE *out); /* 0, or -ENOMEM */
} files[] = {
    {"stats.json", write_json},
    {"metrics", write_metrics},
    {"config.json", write_config},
    {"log", write_log},
    /* The last: of a source that is followed alone. */
    {"saves.json", write_saves},
};

enum { N_FILES = sizeof files / sizeof *files };

static uint64_t count_files(const struct rfs_mount *m)
{
    return m->options->set.follow ? N_FILES : N_FILES - 1;
}

int rfs_control_lookup(const struct rfs_mount *m, uint64_t parent, const char *name, uint64_t *id)
{
    if (m->options->set.control == RFS_CONTROL_NOT && parent == RESHARD_ROOT &&
        strcmp(name, RESHARD_CONTROL) == 0)
        return -ENOENT;
    for (size_t i = 0; parent == m->hidden && i < count_files(m); i++)
        if (strcmp(name, files[i].name) == 0) {
            *id = RFS_CONTROL_IDS + i;
            return 0;
        }
    return reshard_lookup(m->view, parent, name, id);
}

int rfs_control_list(const struct rfs_mount *m, uint64_t dir, uint64_t position,
                     reshard_dirent *out)
{
    const bool shows = dir == RESHARD_ROOT && m->options->set.control == RFS_CONTROL_LISTED;
    const uint64_t before = dir == m->hidden ? count_files(m) : shows;

    if (position >= before) {
        const int rc = reshard_list(m->view, dir, position - before, out);
        out->next += before;
        return rc;
    }
    *out = (reshard_dirent){
        .struct_size = sizeof *out,
        .id = shows ? m->hidden : RFS_CONTROL_IDS + position,
        .is_dir = shows,
        .name = shows ? RESHARD_CONTROL : files[position].name,
        .next = position + 1,
    };
    return 1;
}

int rfs_control_text(const struct rfs_mount *m, uint64_t id, char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    if (id - RFS_CONTROL_IDS >= N_FILES)
        return -ENOENT;
    FILE *out = open_memstream(text, bytes);
    if (!out)
        return -ENOMEM;
    int rc = files[id - RFS_CONTROL_IDS].write(m, out);
    const bool bad = ferror(out) != 0;
    if ((fclose(out) != 0 || bad) && rc == 0)
        rc = -ENOMEM;
    if (rc) {
        free(*text);
        *text = NULL;
    }
    return rc;
}

int rfs_control_stat(const struct rfs_mount *m, uint64_t id, struct stat *st)
{
    struct timespec now;
    char *text;
    size_t bytes;

    const int rc = rfs_control_text(m, id, &text, &bytes);
    if (rc)
        return rc;
    free(text);
    clock_gettime(CLOCK_REALTIME, &now);
    *st = (struct stat){
        .st_ino = id,
        .st_mode = S_IFREG | (rfs_options_keyed(&m->options->set) ? 0400 : 0444),
        .st_nlink = 1,
        .st_uid = geteuid(),
        .st_gid = getegid(),
        .st_size = (off_t)bytes,
        .st_atim = now,
        .st_mtim = now,
        .st_ctim = now,
    };
    return 0;
}

/* ---- extended attributes --------------------------------------------------------------------- */

/* Replies as the system calls do: a length for size 0. */
static void reply(fuse_req_t req, const char *value, ssize_t n, size_t size)
{
    if (n < 0)
        fuse_reply_err(req, n == -ENOENT ? EIO : (int)-n);
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)n);
    else
        fuse_reply_buf(req, value, (size_t)n);
}

/* Returns whether there are no attributes: the kernel does not ask again. */
static bool has_none(const struct rfs_mount *m)
{
    return m->options->set.control == RFS_CONTROL_NOT;
}

/*
 * Returns whether the caller may have attributes. For files, the kernel checks the permission to
 * read. Attributes of folders describe all sources, so they follow the rule of the hidden folder.
 * Of the caller's groups only the first is known here.
 */
static bool may_ask(const struct rfs_mount *m, fuse_req_t req, uint64_t id)
{
    const struct fuse_ctx *caller = fuse_req_ctx(req);
    reshard_stat st = {.struct_size = sizeof st};

    if ((!m->options->set.allow_other && !m->options->set.allow_root) || caller->uid == 0 ||
        caller->uid == geteuid() || !reshard_is_ready(m->view, id) ||
        reshard_getattr(m->view, id, &st, NULL) != 0 || !S_ISDIR(st.mode))
        return true;
    if (reshard_getattr(m->view, m->hidden, &st, NULL) != 0)
        return false;
    if (caller->uid == st.uid)
        return st.mode & S_IRUSR;
    return (st.mode & S_IRGRP) && (caller->gid == st.gid || (st.mode & S_IROTH));
}

void rfs_control_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    struct rfs_mount *m = fuse_req_userdata(req);

    if (has_none(m)) {
        fuse_reply_err(req, ENOSYS);
        return;
    }
    if (!may_ask(m, req, ino)) {
        fuse_reply_err(req, EACCES);
        return;
    }
    if (rfs_control_owns(ino) || strncmp(name, ATTRIBUTES, strlen(ATTRIBUTES)) != 0) {
        fuse_reply_err(req, ENODATA);
        return;
    }
    if (rfs_guard_is_me()) { /* it may take a plan */
        rfs_guard_defer(req);
        return;
    }
    char *buf = size > 0 ? rfs_request_buffer_get(size) : NULL;
    if (size > 0 && !buf) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    struct rfs_request *request = rfs_request_begin(req);
    const ssize_t n = reshard_get_attribute(m->view, ino, name, buf, size);
    if (rfs_request_end(request, req))
        reply(req, buf, n, size);
}

void rfs_control_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    struct rfs_mount *m = fuse_req_userdata(req);
    char *buf = size > 0 ? rfs_request_buffer_get(size) : NULL;

    if (has_none(m))
        fuse_reply_err(req, ENOSYS);
    else if (size > 0 && !buf)
        fuse_reply_err(req, ENOMEM);
    else
        reply(req, buf,
              rfs_control_owns(ino) ? 0 : reshard_list_attributes(m->view, ino, buf, size), size);
}
