/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/daemon.h"

#include "mount/message.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The word on the pipe is one struct rfs_error, code 0 for "ready": written at once, as it is. */
_Static_assert(sizeof(struct rfs_error) <= PIPE_BUF,
               "the child's word must be written in one piece");

int rfs_daemon_start(struct rfs_daemon *daemon, pid_t *child, struct rfs_error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return rfs_fail(err, -errno, RFS_NOWHERE, NULL, "no pipe to the background: %s",
                        strerror(errno));
    *child = fork();
    if (*child < 0) {
        const int code = errno;

        close(ends[0]);
        close(ends[1]);
        return rfs_fail(err, -code, RFS_NOWHERE, "-f, to stay in the foreground",
                        "cannot go to the background: %s", strerror(code));
    }
    if (*child > 0) {
        close(ends[1]);
        daemon->pipe = ends[0];
        return 0;
    }
    close(ends[0]);
    daemon->pipe = ends[1];
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    rfs_message_reach_syslog();
    return 0;
}

/* Says why there was no word. */
static int report_end(pid_t child, struct rfs_error *err)
{
    int status = 0;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        return rfs_fail(err, -EIO, RFS_NOWHERE,
                        "sandbox=log and dmesg, to see which; sandbox=off, to do without",
                        "the sandbox has ended the server for a system call that it does not know");
    return rfs_fail(err, -EIO, RFS_NOWHERE, "--debug, to see how far it gets",
                    "the server ended before the mount answered");
}

int rfs_daemon_wait(struct rfs_daemon *daemon, pid_t child, struct rfs_error *err)
{
    struct rfs_error word = {0};
    char *to = (char *)&word;
    size_t got = 0;

    while (got < sizeof word) {
        const ssize_t n = read(daemon->pipe, to + got, sizeof word - got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    close(daemon->pipe);
    daemon->pipe = -1;
    if (got < sizeof word)
        return report_end(child, err);
    word.text[sizeof word.text - 1] = '\0';
    *err = word;
    return word.code;
}

static int send_word(struct rfs_daemon *daemon, const struct rfs_error *word)
{
    const ssize_t n = write(daemon->pipe, word, sizeof *word);
    const int rc = n == (ssize_t)sizeof *word ? 0 : n < 0 ? -errno : -EIO;

    close(daemon->pipe);
    daemon->pipe = -1;
    return rc;
}

/* Lets go of the terminal. 0 or -errno. */
static int leave_terminal(void)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    setsid();
    if (chdir("/") != 0)
        return -errno;
    rfs_message_use_syslog();
    if (null < 0)
        return -errno;
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
    return 0;
}

void rfs_daemon_outlive(void)
{
    (void)prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
}

int rfs_daemon_ready(struct rfs_daemon *daemon)
{
    const struct rfs_error ready = {0};

    if (daemon->pipe < 0)
        return 0;
    const int rc = leave_terminal();
    return rc == 0 ? send_word(daemon, &ready) : rc;
}

bool rfs_daemon_fail(struct rfs_daemon *daemon, const struct rfs_error *err)
{
    return daemon->pipe >= 0 && send_word(daemon, err) == 0;
}
