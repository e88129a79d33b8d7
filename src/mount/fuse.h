/* SPDX-License-Identifier: Apache-2.0 */
/* libfuse's low-level interface, at the one version that this room is written for. */
#pragma once

#include "base/std.h"

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
