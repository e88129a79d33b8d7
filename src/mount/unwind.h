/* SPDX-License-Identifier: Apache-2.0 */
/* Ending threads. */
#pragma once

#include "base/error.h"

/*
 * libfuse ends its threads by pthread_cancel(3), for which the GNU C library loads libgcc_s.so.1
 * when it is first called, and aborts where it cannot: when the server is to end, and no descriptor
 * or address is left. Here it is loaded while there are some. Starts a thread, which has ended on
 * return. 0, or -errno with *err filled.
 */
int rfs_unwind_load(struct rfs_error *err);
