/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/descriptor.h"

#include <sys/socket.h>
#include <unistd.h>

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
