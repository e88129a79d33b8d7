/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard mounts`: the mounts of reshardfs that this process sees, by the kernel's table, and what
 * each says of itself in its folder .reshardfs. One whose server is gone says nothing, and one of
 * another user than root is not asked.
 */
#include "base/cleanup.h"
#include "base/json_tree.h"
#include "base/mountinfo.h"
#include "base/path.h"
#include "base/settings.h"
#include "base/text.h"
#include "reshard.h"
#include "tool/common/command.h"
#include "tool/common/output.h"
#include "tool/common/show.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOUNT_TYPE "fuse.reshardfs"

enum { MOST_BYTES = 1 << 20, MOST_TREE = 8 << 20 };

#define FAMILY "# HELP "  /* begins the lines of a name, in Prometheus' text format */
#define OURS "reshardfs_" /* begins a name */
#define LINES_MOST 1000   /* of the metrics of a mount; ours have about 150 */

struct request {
    bool json;
    char *metrics_file; /* NULL: none */
};

/* The way to a mount, through all mounts above it. */
struct way {
    const char *point;
    bool foreign; /* a server of another user may be asked on it */
};

static bool look_for_foreign(void *ctx, const struct rfs_mountinfo *mount)
{
    struct way *way = ctx;
    uid_t user;

    way->foreign |= rfs_path_within(way->point, mount->point) && rfs_mountinfo_user(mount, &user) &&
                    user != 0 && user != geteuid();
    return !way->foreign;
}

/*
 * Says whether the way to a mount, and the mount itself, are root's and this user's. Any server may
 * leave a call without an answer, and then not even SIGKILL ends the caller.
 */
static bool is_safe(const struct rfs_mountinfo *mount)
{
    struct way way = {.point = mount->point};

    return rfs_mountinfo_each(look_for_foreign, &way) == 0 && !way.foreign;
}

/* Reads a file of a mount's control folder. Returns its text with a NUL, malloc'ed, or NULL. */
static char *read_file(const struct rfs_mountinfo *mount, const char *name, size_t *size)
{
    RFS_FREE char *path =
        rfs_printed_memory(rfs_text_printf("%s/" RESHARD_CONTROL "/%s", mount->point, name));
    RFS_CLOSE int fd =
        is_safe(mount) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    RFS_FREE char *text = rfs_printed_memory(malloc(MOST_BYTES));
    struct stat st;
    ssize_t n = 1;

    /* Another mount may lie over this one. */
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_dev != mount->device)
        return NULL;
    for (*size = 0; n > 0 && *size<MOST_BYTES; *size += n> 0 ? (size_t)n : 0)
        n = read(fd, text + *size, MOST_BYTES - *size);
    if (n != 0)
        return NULL;
    text[*size] = '\0';
    return RFS_STEAL(text);
}

/* Returns a document of a mount, or NULL; to be freed by cJSON_Delete. */
static cJSON *read_document(const struct rfs_mountinfo *mount, const char *name)
{
    size_t size = 0;
    RFS_FREE char *text = read_file(mount, name, &size);
    struct rfs_error unused = {0};
    cJSON *out = NULL;

    if (text)
        rfs_json_tree_parse(name, text, size, MOST_TREE, NULL, &out, &unused);
    return out;
}

RFS_CLEANUP_OF(free_document, cJSON *, cJSON_Delete)

/* Returns a number of a document, which may be NULL, or -1. */
static int64_t number(const cJSON *document, const char *name)
{
    int64_t out;

    return rfs_json_tree_integer(rfs_json_tree_member(document, name), &out) ? out : -1;
}

/* Writes options as they stand after -o. */
static void put_options(FILE *out, const cJSON *options)
{
    const cJSON *option;
    const char *before = "";

    cJSON_ArrayForEach(option, options)
    {
        fputs(before, out);
        rfs_settings_write(out, option->string,
                           cJSON_IsString(option) ? option->valuestring : NULL);
        before = ",";
    }
}

/* Prints a mount for people. CONFIG and STATS may be NULL. */
static void print_mount(const struct rfs_mountinfo *mount, const cJSON *config, const cJSON *stats)
{
    char text[RFS_TEXT_AMOUNT];

    rfs_text_put(stdout, mount->point);
    fputs(": of ", stdout);
    rfs_text_put(stdout, mount->source);
    if (!config || !stats) {
        fputs("\n  it tells no more: another user's, without its folder " RESHARD_CONTROL
              ", or its server is gone\n",
              stdout);
        return;
    }
    struct rfs_printed options;
    put_options(rfs_printed_begin(&options), rfs_json_tree_member(config, "view"));
    RFS_FREE char *shown = rfs_printed_end(&options);
    printf("\n  ranks: %" PRId64 " → %" PRId64 "\n  read: %s", number(config, "source_ranks"),
           number(config, "target_ranks"),
           rfs_text_amount((uint64_t)number(stats, "bytes_replied"), text));
    printf(" in %s", rfs_text_duration((double)number(stats, "seconds"), text));
    printf(", %s of the source\n  options: ",
           rfs_text_amount((uint64_t)number(stats, "source_bytes"), text));
    rfs_text_put(stdout, shown);
    putchar('\n');
}

static void put_number(struct rfs_json_write *json, const char *key, const cJSON *document,
                       const char *name)
{
    const int64_t value = number(document, name);

    if (value < 0)
        rfs_json_put_null(json, key);
    else
        rfs_json_put_i64(json, key, value);
}

/* Puts a mount for scripts; what it does not tell is null. */
static void put_mount(struct rfs_json_write *json, const struct rfs_mountinfo *mount,
                      const cJSON *config, const cJSON *stats)
{
    struct rfs_printed options;

    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, "mount", mount->point);
    rfs_json_put_text(json, "source", mount->source);
    put_number(json, "source_ranks", config, "source_ranks");
    put_number(json, "target_ranks", config, "target_ranks");
    put_number(json, "pid", config, "pid");
    put_number(json, "seconds", stats, "seconds");
    put_number(json, "reads", stats, "reads");
    put_number(json, "bytes", stats, "bytes_replied");
    put_number(json, "source_bytes", stats, "source_bytes");
    put_options(rfs_printed_begin(&options), rfs_json_tree_member(config, "view"));
    RFS_FREE char *shown = rfs_printed_end(&options);
    rfs_json_put_text(json, "options", config ? shown : NULL);
    rfs_json_end(json);
}

/* Prints a mount, if it is one of reshardfs: for people, or with a writer for scripts. */
static bool take(void *ctx, const struct rfs_mountinfo *mount)
{
    struct rfs_json_write *const *json = ctx;

    if (strcmp(mount->type, MOUNT_TYPE) != 0)
        return true;
    RFS_CLEANUP(free_document) cJSON *config = read_document(mount, "config.json");
    RFS_CLEANUP(free_document) cJSON *stats = read_document(mount, "stats.json");
    if (*json)
        put_mount(*json, mount, config, stats);
    else
        print_mount(mount, config, stats);
    return true;
}

/* ---- metrics --------------------------------------------------------------------------------- */

/* The metrics of each mount that tells them. */
struct text {
    char *metrics; /* malloc'ed */
    dev_t device;  /* of the mount */
};
struct texts {
    RFS_VEC(struct text) list;
};

/*
 * Returns whether a text looks like that of our server. Another program may serve a mount of this
 * type, and one bad line would have Prometheus refuse those of all mounts.
 */
static bool is_in_form(const char *text, size_t size)
{
    static const char *const heads[] = {(FAMILY OURS), ("# TYPE " OURS), OURS};
    unsigned lines = 0;

    if (strlen(text) != size || strncmp(text, heads[0], strlen(heads[0])) != 0)
        return false;
    while (*text && ++lines <= LINES_MOST) {
        const char *end = strchr(text, '\n');
        bool known = false;
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
            known |= strncmp(text, heads[i], strlen(heads[i])) == 0;
        if (!known || !end)
            return false;
        text = end + 1;
    }
    return !*text;
}

/* Takes the metrics of a mount, once: a bind mount shows it at a second place. */
static bool take_metrics(void *ctx, const struct rfs_mountinfo *mount)
{
    struct texts *texts = ctx;
    size_t size = 0;

    if (strcmp(mount->type, MOUNT_TYPE) != 0)
        return true;
    for (size_t i = 0; i < texts->list.n; i++)
        if (texts->list.data[i].device == mount->device)
            return true;
    RFS_FREE char *metrics = read_file(mount, "metrics", &size);
    if (metrics && is_in_form(metrics, size)) {
        const struct text text = {RFS_STEAL(metrics), mount->device};
        rfs_printed_memory(RFS_PUSH(&texts->list, text) ? text.metrics : NULL);
    }
    return true;
}

/* Returns where the lines of a name end: where those of the next one begin. */
static const char *end_of(const char *family)
{
    const char *next = strstr(family, "\n" FAMILY);

    return next ? next + 1 : family + strlen(family);
}

/* Finds the lines of the name that FAMILY has. NULL if the text has none. */
static const char *find(const char *text, const char *family)
{
    const size_t head = strcspn(family + strlen(FAMILY), " \n") + strlen(FAMILY) + 1;

    for (; *text; text = end_of(text))
        if (strncmp(text, family, head) == 0)
            return text;
    return NULL;
}

/* Writes the lines from BEGIN to END, without comments if they have been written. */
static void put_lines(FILE *out, const char *begin, const char *end, bool bare)
{
    while (begin < end) {
        const char *newline = memchr(begin, '\n', (size_t)(end - begin));
        const char *next = newline ? newline + 1 : end;
        if (!bare || *begin != '#')
            fwrite(begin, 1, (size_t)(next - begin), out);
        begin = next;
    }
}

/*
 * Writes the samples that text FIRST and those after it have of a name, unless one before it has
 * the name, too.
 */
static void put_family(FILE *out, const struct texts *texts, size_t first, const char *family)
{
    for (size_t i = 0; i < first; i++)
        if (find(texts->list.data[i].metrics, family))
            return;
    put_lines(out, family, end_of(family), false);
    for (size_t i = first + 1; i < texts->list.n; i++) {
        const char *same = find(texts->list.data[i].metrics, family);
        if (same)
            put_lines(out, same, end_of(same), true);
    }
}

/* Writes the samples of all mounts, those of one name together, as the format wants it. */
static void put_metrics(FILE *out, const struct texts *texts)
{
    for (size_t i = 0; i < texts->list.n; i++)
        for (const char *family = texts->list.data[i].metrics; *family; family = end_of(family))
            put_family(out, texts, i, family);
}

static int write_metrics(const char *path, struct rfs_error *err)
{
    struct texts texts = {0};
    struct rfs_printed metrics;
    int rc = rfs_mountinfo_each(take_metrics, &texts);

    if (rc == 0) {
        put_metrics(rfs_printed_begin(&metrics), &texts);
        RFS_FREE char *text = rfs_printed_end(&metrics);
        rc = rfs_output_write(path, text, strlen(text), true, err);
    } else {
        rfs_fail(err, rc, RFS_IN("/proc/self/mountinfo"), NULL, "cannot be read");
    }
    for (size_t i = 0; i < texts.list.n; i++)
        free(texts.list.data[i].metrics);
    free(texts.list.data);
    return rc;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run(void *given, struct rfs_error *err)
{
    const struct request *request = given;
    struct rfs_json_write json = {.file = stdout};
    struct rfs_json_write *out = request->json ? &json : NULL;

    if (request->metrics_file)
        return write_metrics(request->metrics_file, err);
    if (out)
        rfs_json_array(out, NULL, RFS_JSON_ROWS);
    const int rc = rfs_mountinfo_each(take, &out);
    if (out)
        rfs_json_finish(out);
    return rc ? rfs_fail(err, rc, RFS_IN("/proc/self/mountinfo"), NULL, "cannot be read") : 0;
}

static const struct rfs_argument arguments[] = {
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    RFS_ARG_TEXT("metrics-file", "PATH", struct request, metrics_file,
                 "write the counters of all mounts for Prometheus"),
    {0},
};

const struct rfs_command rfs_command_mounts = {
    .name = "mounts",
    .usage = "reshard mounts [--json]\n"
             "reshard mounts --metrics-file PATH\n",
    .summary = "lists what is mounted, from where, and what was read",
    .arguments = arguments,
    .request_bytes = sizeof(struct request),
    .run = run,
};
