/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/readahead.h"

#include "mount/report.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define WANTED_KIB "1024"

static int put(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n;
    int code;

    if (fd < 0)
        return -errno;
    n = write(fd, text, strlen(text));
    code = n < 0 ? -errno : 0;
    close(fd);
    return code;
}

static void name(dev_t dev, char *path, size_t cap)
{
    snprintf(path, cap, "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
}

int rfs_readahead_raise(dev_t dev)
{
    char path[64];

    name(dev, path, sizeof path);
    return put(path, WANTED_KIB);
}

void rfs_readahead_report(dev_t dev, int rc)
{
    char path[64], line[256];

    if (rc == 0)
        return;
    name(dev, path, sizeof path);
    snprintf(line, sizeof line,
             "read-ahead stays at the kernel's default (%s); as root: echo " WANTED_KIB " > %s",
             strerror(-rc), path);
    rfs_report_line(NULL, RESHARD_LOG_INFO, line);
}
