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

static bool ends_by_hangup(const struct rfs_mount_options *options)
{
    return options->foreground && !options->set.follow;
}

/*
 * Signals that were ignored when the program started stay so; but a SIGHUP that does not end the
 * mount does something else.
 */
static void fill(sigset_t *set, const struct rfs_mount_options *options)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};

    sigemptyset(set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if ((numbers[i] == SIGHUP && !ends_by_hangup(options)) || !is_ignored(numbers[i]))
            sigaddset(set, numbers[i]);
}

void rfs_signals_block(const struct rfs_mount_options *options)
{
    sigset_t set;

    fill(&set, options);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int rfs_signals_open(const struct rfs_mount_options *options)
{
    sigset_t set;

    fill(&set, options);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

unsigned rfs_signals_take(int fd, const struct rfs_mount_options *options)
{
    struct signalfd_siginfo info;
    unsigned asked = 0;

    while (read(fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP && options->set.follow)
            asked |= RFS_SIGNALS_LOOK;
        else if (info.ssi_signo == SIGHUP && !options->foreground)
            rfs_message_put(
                NULL, RESHARD_LOG_WARNING,
                "SIGHUP: nothing is read again while it is mounted; try: unmount and mount");
        else
            asked |= RFS_SIGNALS_END;
    }
    return asked;
}
