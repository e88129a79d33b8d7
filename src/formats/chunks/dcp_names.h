/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that read .metadata only: the names that may stand in it. */
#pragma once

#include "formats/chunks/dcp_value.h"
#include "formats/dtype.h"

/* The use of a name. */
enum rfs_dcp_use {
    RFS_DCP_USE_CLASS, /* an object of it is made, and given a state */
    RFS_DCP_USE_SHAPE, /* called with a tuple, which is its result */
    RFS_DCP_USE_SAME,  /* called with a text, which is its result */
    RFS_DCP_USE_ENUM,  /* called with a number; the result is not looked at */
    RFS_DCP_USE_PATH,  /* called with texts; the result is not looked at */
    RFS_DCP_USE_DICT,  /* called with nothing: an empty dict */
    RFS_DCP_USE_DTYPE, /* not called */
};

/* Puts the words that mean something first into an empty table. False when out of memory. */
bool rfs_dcp_add_words(struct rfs_intern *texts);
/* The value of a name; None when it is not one that may stand in the file. */
uint32_t rfs_dcp_name(const char *module, const char *name);
/* Whether the value is a name, and its use. */
bool rfs_dcp_use(uint32_t value, enum rfs_dcp_use *use);
/* Of a name that is a class. */
enum rfs_dcp_class rfs_dcp_name_class(uint32_t value);
/* False when the value is no dtype, or one that is not read. */
bool rfs_dcp_dtype(uint32_t value, enum rfs_dtype *dtype);
/* "its elements are torch.qint8" of a dtype that is not read; NULL of all else. */
const char *rfs_dcp_unread_dtype(uint32_t value);
