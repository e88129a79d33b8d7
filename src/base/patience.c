/* SPDX-License-Identifier: Apache-2.0 */
#include "base/patience.h"

#include "base/std.h"

#include <signal.h>
#include <unistd.h>

#define SECONDS 2

/* Written before the handler is set, and not after. */
static char line[600];
static size_t line_bytes;

static void tell(int signal)
{
    const int before = errno;

    (void)signal;
    (void)!write(STDERR_FILENO, line, line_bytes);
    errno = before;
}

void rfs_patience_begin(const char *program, const char *url)
{
    const struct sigaction action = {.sa_handler = tell, .sa_flags = SA_RESTART};

    if (line_bytes > 0 || isatty(STDERR_FILENO) != 1)
        return;
    snprintf(line, sizeof line - 1, "%s: waiting for %.500s", program, url);
    for (char *c = line; *c; c++)
        *c = (unsigned char)*c < 0x20 ? '?' : *c;
    line_bytes = strlen(line) + 1;
    line[line_bytes - 1] = '\n';
    sigaction(SIGALRM, &action, NULL);
    alarm(SECONDS);
}

void rfs_patience_end(void)
{
    /* The alarm stays where it cannot be ended: in the sandbox. */
    if (line_bytes > 0)
        signal(SIGALRM, SIG_IGN);
}
