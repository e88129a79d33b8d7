/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the room only: field numbers of a strategy in protobuf; read_protobuf.c draws the
 * messages.
 */
#pragma once

#include "base/std.h"

enum { RFS_STRATEGY_STAGE = 1, RFS_STRATEGY_NODES, RFS_STRATEGY_PARAMS };
enum { RFS_ITEM_NAME = 1, RFS_ITEM_VALUE };
enum { RFS_STRATEGYS_STAGE = 1, RFS_STRATEGYS_CUTS };
enum {
    RFS_LAYOUTS_DEV = 1,
    RFS_LAYOUTS_MAP,
    RFS_LAYOUTS_SPLIT,
    RFS_LAYOUTS_OFFSETS,
    RFS_LAYOUTS_FIELD,
    RFS_LAYOUTS_STEP,
    RFS_LAYOUTS_SIZE
};
enum { RFS_DIMS_DIM = 1 };
