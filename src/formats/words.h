/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of files of tensors; formats.h says all else of them. */
#pragma once

/*
 * Those that are written, with their words in option format=. The order is the precedence where
 * files of several are found.
 */
#define RFS_FORMATS_WRITTEN(ROW)                                                                   \
    ROW(CKPT, "ckpt") ROW(SAFETENSORS, "safetensors") ROW(TORCH, "pt") ROW(GGUF, "gguf")

/* Those that are only read stand behind the others. */
#define RFS_FORMAT_NUMBER(name, word) RFS_FORMAT_##name,
enum rfs_format { RFS_FORMATS_WRITTEN(RFS_FORMAT_NUMBER) RFS_FORMAT_COUNT };
