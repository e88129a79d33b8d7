/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an answer is right, may be better the next time, or is a failure. */
#pragma once

#include "store/remote/request.h"

#define RFS_AGAIN 1

/* Whether the body that begins is the requested range; else http.problem has the reason. */
bool rfs_judge_range(struct rfs_request *request);
/* 0: it is right; RFS_AGAIN; or -errno with rfs_store_fail. */
int rfs_judge(struct rfs_request *request);
/* Reports the store's last answer by rfs_store_fail; returns CODE. */
int rfs_judge_fail(const struct rfs_request *request, int code);
