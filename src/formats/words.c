/* SPDX-License-Identifier: Apache-2.0 */
/* The words of option format=, which the mount links without the readers. */
#include "formats/words.h"

#include "base/options.h"

#define WORD(name, word) word,
const char *const rfs_format_words[] = {RFS_FORMATS_WRITTEN(WORD) NULL};
