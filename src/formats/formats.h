/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of formats: a format is a folder beside this file, and a row. Rows that describe a
 * checkpoint by itself have OPEN; files of the first RFS_FORMAT_COUNT rows have an index each
 * (catalog/built.c). A test compares the table with the options, --version, the folders and the
 * fuzz targets.
 */
#pragma once

#include "base/options.h"
#include "formats/chunks/chunks.h"
#include "formats/numbered.h"

/* Rows; those before them are of enum rfs_format. */
enum rfs_format_row_number {
    RFS_ROW_DCP = RFS_FORMAT_COUNT,
    RFS_ROW_MINDFORMERS,
    RFS_ROW_SHARDS,
    RFS_ROW_FSDP,
#ifdef HAVE_HFAI
    RFS_ROW_HFAI,
#endif
    RFS_ROWS
};

struct rfs_format_row {
    const char *folder;    /* its fuzz target is fuzz_FOLDER */
    const char *word;      /* word of option format=, or else of view=; NULL: it is not written */
    enum rfs_format files; /* format of its files */
    const char *metadata;  /* name of the file that describes the checkpoint, or NULL */
    const struct rfs_numbered_form *names; /* names with numbers, or NULL */
    rfs_chunks_open_fn *open;              /* NULL: it does not describe itself */
};

extern const struct rfs_format_row rfs_formats[RFS_ROWS];
