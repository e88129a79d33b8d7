/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes zip archives of stored entries into memory, right or wrong, as torch.save does. For tests.
 */
#ifndef TESTS_SUPPORT_ARCHIVE_H
#define TESTS_SUPPORT_ARCHIVE_H

#include "tests/support/tree.h"

#include <stdbool.h>

struct archive {
    struct bytes file, directory;
    unsigned n;
};

/* An entry. What is 0 or NULL is as it should be; the rest says what is wrong. */
struct member {
    const char *name;
    const void *content;
    size_t n;
    const char *local_name;
    unsigned method, flags, local_method;
    bool local_sizes;    /* in the local header, without a descriptor behind the content */
    bool wide;           /* sizes and offset in a zip64 extra field of the directory */
    uint32_t says;       /* added to the size in the directory */
    uint32_t csays;      /* added to the compressed one alone */
    uint32_t local_says; /* added to the size in the local header, with local_sizes */
    int64_t shift;       /* added to the offset of the local header */
    size_t fill;         /* bytes of an extra field of the local header */
    bool no_crc;         /* 0 in the place of the checksum */
};

/* Returns where the content begins. */
uint64_t archive_add(struct archive *archive, const struct member *member);
/* "data/0" and so on below "x/". */
uint64_t archive_put(struct archive *archive, const char *name, const void *content, size_t n);
enum archive_end { END_PLAIN, END_WIDE, END_DIFFERS, END_SPLIT, END_MORE, END_FEWER, END_COMMENT };
/* Ends the archive; its bytes are in archive->file. */
void archive_end(struct archive *archive, enum archive_end end);
void archive_free(struct archive *archive);

#endif
