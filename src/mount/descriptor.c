/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/descriptor.h"

#include "base/cleanup.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PATIENCE 60 /* seconds */
#define LOOK 100    /* milliseconds from one look for the socket to the next */

/* Room for a descriptor in a message. */
union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
};

int rfs_descriptor_send(int socket, const void *data, size_t n, int fd)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = n};
    union control control = {.room = {0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control.room;
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Takes the first descriptor of a message, and closes others that found room in its padding. */
static void take_first(struct msghdr *message, int *fd)
{
    const struct cmsghdr *head = CMSG_FIRSTHDR(message);

    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
        return;
    for (size_t at = 0; CMSG_LEN(at + sizeof *fd) <= head->cmsg_len; at += sizeof *fd) {
        int other;

        memcpy(&other, CMSG_DATA(head) + at, sizeof other);
        if (at == 0)
            *fd = other;
        else
            close(other);
    }
}

ssize_t rfs_descriptor_receive(int socket, void *data, size_t n, int *fd)
{
    struct iovec part = {.iov_base = data, .iov_len = n};
    union control control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.room};
    ssize_t got;

    *fd = -1;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    take_first(&message, fd);
    return got;
}

/* Returns whether another look may find a socket that is listened to. */
static bool may_come(int code)
{
    return code == ENOENT || code == ECONNREFUSED || code == EINTR;
}

/* Connects, also to a socket that is yet to come. Returns it, or -errno. */
static int connect_to(const struct sockaddr_un *at)
{
    RFS_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    for (int looks = 0; connect(fd, (const struct sockaddr *)at, sizeof *at) != 0; looks++) {
        if (!may_come(errno) || looks == PATIENCE * 1000 / LOOK)
            return -errno;
        (void)poll(NULL, 0, LOOK);
    }
    return rfs_steal_fd(&fd);
}

int rfs_descriptor_fetch(const char *path, int *fd, struct rfs_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char text[4096];

    *fd = -1;
    if (strlen(path) >= sizeof at.sun_path)
        return rfs_fail(err, -ENAMETOOLONG, RFS_IN(path), "a shorter path",
                        "the path of a socket has at most %zu bytes", sizeof at.sun_path - 1);
    memcpy(at.sun_path, path, strlen(path));
    RFS_CLOSE int talk = connect_to(&at);
    if (talk < 0)
        return rfs_fail(err, talk, RFS_IN(path), "start the program that mounts",
                        "no connection to the socket: %s", strerror(-talk));
    struct pollfd message = {.fd = talk, .events = POLLIN};
    const int ready = poll(&message, 1, PATIENCE * 1000);
    const ssize_t n = ready > 0 ? rfs_descriptor_receive(talk, text, sizeof text, fd)
                                : (ready < 0 ? -errno : -ETIMEDOUT);
    if (n < 0)
        return rfs_fail(err, (int)n, RFS_IN(path), NULL, "no descriptor came over the socket: %s",
                        strerror((int)-n));
    return *fd >= 0 ? 0
                    : rfs_fail(err, -EPROTO, RFS_IN(path), "a program that sends it by SCM_RIGHTS",
                               "a message without a descriptor came over the socket");
}
