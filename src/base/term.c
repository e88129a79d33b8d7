/* SPDX-License-Identifier: Apache-2.0 */
#include "base/term.h"

#include <unistd.h>

#define RED "\033[1;31m"
#define YELLOW "\033[1;33m"
#define PLAIN "\033[0m"

bool rfs_term_has_colours(int fd)
{
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");

    return (!no || !*no) && term && *term && strcmp(term, "dumb") != 0 && isatty(fd) == 1;
}

const char *rfs_term_error(int fd)
{
    return rfs_term_has_colours(fd) ? RED "error:" PLAIN " " : "error: ";
}

const char *rfs_term_warning(int fd)
{
    return rfs_term_has_colours(fd) ? YELLOW "warning:" PLAIN " " : "warning: ";
}
