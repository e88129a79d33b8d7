/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors in messages of Unix sockets (SCM_RIGHTS, unix(7)): from the keeper to the server, and
 * from a program that has mounted for us. A descriptor that is received closes on exec. Thread-safe
 * for different sockets.
 */
#pragma once

#include "base/error.h"

/* Sends N bytes, with a descriptor unless FD is -1. 0 or -errno. */
int rfs_descriptor_send(int socket, const void *data, size_t n, int fd);

/*
 * Receives up to N bytes of one message, and the first descriptor in it, or -1; the caller closes
 * it. Returns the number of bytes or -errno.
 */
ssize_t rfs_descriptor_receive(int socket, void *data, size_t n, int *fd);
