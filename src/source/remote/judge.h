/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer means: whether it is right, may be better the next time, or is a failure. */
#pragma once

#include "source/remote/request.h"

#define RFS_AGAIN 1

/* Whether the body that begins is the range that was asked for; else says in http.problem why not. */
bool rfs_judge_range(struct rfs_request *request);
/* 0: it is right; RFS_AGAIN; or -errno with rfs_store_told. */
int rfs_judge(struct rfs_request *request);
/* Says what the store answered last; returns CODE. */
int rfs_judge_told(const struct rfs_request *request, int code);
