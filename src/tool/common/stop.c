/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/stop.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

/*
 * Written by signal handlers while other threads read it; without a lock on every machine that
 * there is.
 */
static atomic_int stopped;
static atomic_int wake_fd = -1;
static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler may not wait for a lock");

int rfs_stopped(void)
{
    return stopped;
}

void rfs_stop_wake(int fd)
{
    wake_fd = fd;
}

static void on_signal(int number)
{
    const int before = errno;
    const int fd = wake_fd;
    stopped = number;
    if (fd >= 0 && write(fd, "", 1) < 0)
        errno = before; /* full: somebody is awake */
    errno = before;
}

void rfs_stop_catch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    struct sigaction before;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &act, NULL);
}

void rfs_stop_end(void)
{
    if (!stopped)
        return;
    signal(stopped, SIG_DFL);
    raise(stopped);
}
