/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of the C library that most files need. Every header of ours includes this one, by
 * itself or by another one. Those of POSIX and of libraries stand where they are used: they tell
 * what a file touches.
 */
#pragma once

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
