/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `reshard strategy show FILE NAME` prints: how the devices of each stage share a parameter.
 */
#pragma once

#include "survey/headers/fit.h"

/* A parameter of a strategy. */
struct rfs_devices {
    const struct rfs_strategy *strategy;
    const char *path;          /* the strategy's */
    const char *param;         /* the parameter's name */
    const struct rfs_fit *fit; /* a tree that has the dims of its whole tensor; or NULL */
    const uint64_t *shape;     /* [n_shape] these dims; or NULL */
    uint32_t n_shape;
};

/*
 * Draws a box for each device, with its rank and its slice; or prints them as JSON. 0, -ENOMEM,
 * -ENOENT for a parameter that the strategy does not have, or -EINVAL for dims that its layout does
 * not cut, with *err filled.
 */
int rfs_devices_print(const struct rfs_devices *devices, bool json, struct rfs_error *err);
