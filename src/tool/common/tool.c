/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/tool.h"

#include "base/checked.h"
#include "base/text.h"

#include <assert.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static void print_error(const char *line)
{
    fprintf(stderr, "reshard: %s%s\n", rfs_text_error_label(STDERR_FILENO), line);
}

int rfs_tool_failed(const struct rfs_error *err)
{
    print_error(err->text);
    return err->usage ? RFS_EXIT_USAGE : RFS_EXIT_INPUT;
}

void rfs_tool_warn(const char *line, const char *remedy)
{
    fprintf(stderr, "reshard: %s%s%s%s\n", rfs_text_warning_label(STDERR_FILENO), line,
            remedy ? "; try: " : "", remedy ? remedy : "");
}

void rfs_tool_log(void *ctx, enum reshard_level level, const char *line)
{
    (void)ctx;
    if (level == RESHARD_LOG_WARNING)
        rfs_tool_warn(line, NULL);
    else if (level == RESHARD_LOG_ERROR)
        print_error(line);
}

static unsigned shift_of(char suffix)
{
    static const char suffixes[] = "kKmMgGtT";
    const char *at = suffix ? strchr(suffixes, suffix) : NULL;
    return at ? 10 * ((unsigned)(at - suffixes) / 2 + 1) : 0;
}

bool rfs_tool_number(const char *text, bool suffix, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (!rfs_mul_u64(value, 10, &value) || !rfs_add_u64(value, (uint64_t)(*at - '0'), &value))
            return false;
    if (at == text)
        return false;
    if (suffix && shift_of(*at) != 0 && !rfs_mul_u64(value, UINT64_C(1) << shift_of(*at++), &value))
        return false;
    if (*at != '\0' || value < min || value > max)
        return false;
    *out = value;
    return true;
}

unsigned rfs_tool_processors(unsigned most)
{
    cpu_set_t set;
    const long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                               : sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : n > (long)most ? most : (unsigned)n;
}

/* ---- signals --------------------------------------------------------------------------------- */

/*
 * The signal that came, or 0. Signal handlers write while other threads read, without a lock on
 * every machine that there is.
 */
static atomic_int stopped;
static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler may not wait for a lock");

int rfs_tool_stopped(void)
{
    return stopped;
}

static void on_signal(int number)
{
    stopped = number;
}

void rfs_tool_catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    struct sigaction before;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &act, NULL);
}
