/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/capture.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

void rfs_capture_start(struct rfs_capture *capture)
{
    fflush(stderr);
    *capture = (struct rfs_capture){-1, {-1, -1}};
    /* Who writes more than a pipe holds loses the rest, and does not wait. */
    if (pipe2(capture->ends, O_CLOEXEC | O_NONBLOCK) == 0)
        capture->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (capture->saved >= 0)
        dup2(capture->ends[1], STDERR_FILENO);
}

static void first_line(char *text)
{
    static const char *const names[] = {"fuse: ", "fusermount3: ", "fusermount: "};

    text[strcspn(text, "\n")] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t n = strlen(names[i]);

        if (strncmp(text, names[i], n) == 0)
            memmove(text, text + n, strlen(text + n) + 1);
    }
}

void rfs_capture_end(struct rfs_capture *capture, char *line, size_t cap)
{
    ssize_t n = 0;

    line[0] = '\0';
    if (capture->saved >= 0) {
        fflush(stderr);
        dup2(capture->saved, STDERR_FILENO);
        close(capture->saved);
        n = read(capture->ends[0], line, cap - 1);
    }
    for (int i = 0; i < 2; i++)
        if (capture->ends[i] >= 0)
            close(capture->ends[i]);
    line[n > 0 ? n : 0] = '\0';
    first_line(line);
}
