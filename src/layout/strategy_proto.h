/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the room only: the messages of a strategy in protobuf; strategy_protobuf.c draws them. */
#ifndef RFS_LAYOUT_STRATEGY_PROTO_H
#define RFS_LAYOUT_STRATEGY_PROTO_H

#include "base/proto_read.h"

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

extern const struct rfs_proto_shape rfs_proto_strategy;
extern const struct rfs_proto_shape rfs_proto_strategy_item;
extern const struct rfs_proto_shape rfs_proto_strategys;
extern const struct rfs_proto_shape rfs_proto_layout_item;
extern const struct rfs_proto_shape rfs_proto_layouts;

/* A name and what has it, of either kind of item; of a message of the right shape. */
struct rfs_proto_item {
    struct rfs_proto name, value;
};
struct rfs_proto_item rfs_proto_item(struct rfs_proto message);
/* The stage of an operator's strategies. */
uint32_t rfs_proto_stage(struct rfs_proto strategys);

#endif
