/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/signals.h"

#include "mount/message.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

static bool is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/*
 * Signals that were ignored when the program started stay so; but a mount in the background logs
 * each SIGHUP.
 */
static void fill(sigset_t *set, bool foreground)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};

    sigemptyset(set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if ((numbers[i] == SIGHUP && !foreground) || !is_ignored(numbers[i]))
            sigaddset(set, numbers[i]);
}

void rfs_signals_block(bool foreground)
{
    sigset_t set;

    fill(&set, foreground);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int rfs_signals_open(bool foreground)
{
    sigset_t set;

    fill(&set, foreground);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

bool rfs_signals_take(int fd, bool foreground)
{
    struct signalfd_siginfo info;
    bool ends = false;

    while (read(fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP && !foreground)
            rfs_message_put(
                NULL, RESHARD_LOG_WARNING,
                "SIGHUP: nothing is read again while it is mounted; try: unmount and mount");
        else
            ends = true;
    }
    return ends;
}
