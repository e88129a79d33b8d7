/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/report.h"

#include "base/term.h"
#include "mount/ring.h"

#include <langinfo.h>
#include <stdatomic.h>
#include <syslog.h>
#include <unistd.h>

static atomic_bool to_syslog;
static atomic_int least = RESHARD_LOG_INFO;

static const struct {
    const char *label;
    int priority;
} levels[] = {
    [RESHARD_LOG_ERROR] = {"error: ", LOG_ERR},
    [RESHARD_LOG_WARNING] = {"warning: ", LOG_WARNING},
    [RESHARD_LOG_INFO] = {"", LOG_INFO},
    [RESHARD_LOG_DEBUG] = {"debug: ", LOG_DEBUG},
};

static const char *coloured(enum reshard_level level)
{
    return level == RESHARD_LOG_ERROR     ? rfs_term_error(STDERR_FILENO)
           : level == RESHARD_LOG_WARNING ? rfs_term_warning(STDERR_FILENO)
                                          : levels[level].label;
}

void rfs_report_level(enum reshard_level level)
{
    atomic_store(&least, (int)level);
}

void rfs_report_reach_syslog(void)
{
    openlog(RFS_PROGRAM, LOG_PID | LOG_NDELAY, LOG_DAEMON);
}

void rfs_report_to_syslog(void)
{
    atomic_store(&to_syslog, true);
}

void rfs_report_line(void *ctx, enum reshard_level level, const char *line)
{
    (void)ctx;
    if (level < RESHARD_LOG_ERROR || level > RESHARD_LOG_DEBUG)
        level = RESHARD_LOG_ERROR;
    if ((int)level > atomic_load(&least))
        return;
    rfs_ring_add(level, line);
    if (atomic_load(&to_syslog))
        syslog(levels[level].priority, "%s%s", levels[level].label, line);
    else
        fprintf(stderr, "%s: %s%s\n", RFS_PROGRAM, coloured(level), line);
}

int rfs_report_error(const struct rfs_error *err)
{
    rfs_report_line(NULL, RESHARD_LOG_ERROR, err->text);
    return err->usage ? RFS_EXIT_USAGE : RFS_EXIT_INPUT;
}

void rfs_report_adopt(struct rfs_error *err, const reshard_error *from)
{
    err->code = from->code;
    err->usage = from->usage != 0;
    snprintf(err->text, sizeof err->text, "%s", from->message);
}

void rfs_report_summary(char *out, size_t cap, reshard_view *view)
{
    const char *arrow = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? "\u2192" : "->";
    reshard_summary sum = {.struct_size = sizeof sum};
    int n;

    reshard_summarize(view, &sum);
    n = snprintf(out, cap, "%" PRIu32 " %s %" PRIu32 " %s", sum.source_ranks, arrow,
                 sum.target_ranks, sum.target_ranks == 1 ? "rank" : "ranks");
    if (sum.parameters > 0 && n >= 0 && (size_t)n < cap)
        snprintf(out + n, cap - (size_t)n, ", %" PRIu64 " %s", sum.parameters,
                 sum.parameters == 1 ? "parameter" : "parameters");
}
