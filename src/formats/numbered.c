/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/numbered.h"

#include "base/glob.h"

#define NUMBER_MOST 9 /* digits that are read */

/* Reads the digits at *AT, which is moved behind them. False: none, or too many. */
static bool read_number(const char **at, unsigned digits, uint32_t *number, bool *exact)
{
    const size_t n = strspn(*at, "0123456789");

    if (n == 0 || n > NUMBER_MOST)
        return false;
    *exact = *exact && (n == digits || (n > digits && **at != '0'));
    *number = 0;
    for (size_t i = 0; i < n; i++)
        *number = *number * 10 + (uint32_t)((*at)[i] - '0');
    *at += n;
    return true;
}

static bool in_bounds(const struct rfs_numbered_name *file)
{
    const uint32_t first = file->form->first;
    const uint32_t count = file->of[RFS_NUMBERED_COUNT];
    const uint32_t rank = file->of[RFS_NUMBERED_RANK];
    const bool in_count = file->form->counts_parts ? file->of[RFS_NUMBERED_PART] >= first &&
                                                         file->of[RFS_NUMBERED_PART] <= count
                                                   : rank < count;

    return count > 0 && count <= RFS_MAX_RANK && rank >= first && rank - first <= RFS_MAX_RANK &&
           in_count;
}

/* Reads a name from AT on by a form. */
static bool read_form(const struct rfs_numbered_form *form, const char *at,
                      struct rfs_numbered_name *out)
{
    *out = (struct rfs_numbered_name){.form = form, .exact = true};
    out->of[RFS_NUMBERED_PART] = form->part;
    for (unsigned i = 0; i <= RFS_NUMBERED_ROLES && form->words[i]; i++) {
        const size_t n = strlen(form->words[i]);
        if (strncmp(at, form->words[i], n) != 0)
            return false;
        at += n;
        if (i < RFS_NUMBERED_ROLES && form->words[i + 1] &&
            !read_number(&at, form->digits, &out->of[form->roles[i]], &out->exact))
            return false;
    }
    return *at == '\0' && in_bounds(out);
}

/*
 * Finds where the form begins behind a prefix, in a name that its writer would write. SIZE_MAX: it
 * does not.
 */
static size_t find_prefix(const struct rfs_numbered_form *form, const char *name)
{
    const size_t n = strlen(name);
    const size_t tail = strlen(form->words[0]) + strlen(form->words[1]) + strlen(form->words[2]) +
                        (size_t)2 * form->digits;

    return n < tail || (n > tail && name[n - tail - 1] != '-') ? SIZE_MAX : n - tail;
}

bool rfs_numbered_read(const struct rfs_numbered_form *forms, const char *name,
                       struct rfs_numbered_name *out)
{
    for (const struct rfs_numbered_form *form = forms; form; form = form->next) {
        const size_t prefix = form->prefixed ? find_prefix(form, name) : 0;
        if (prefix == SIZE_MAX || !read_form(form, name + prefix, out))
            continue;
        out->prefix = prefix;
        return !form->prefixed || out->exact;
    }
    return false;
}

bool rfs_numbered_like(const struct rfs_numbered_form *forms, const char *name)
{
    return rfs_glob_match(forms->similar, name);
}

uint32_t rfs_numbered_count(const struct rfs_numbered_form *forms, const char *name)
{
    struct rfs_numbered_name file;

    return rfs_numbered_read(forms, name, &file) ? file.of[RFS_NUMBERED_COUNT] : 0;
}

bool rfs_numbered_decimal(const char *text, uint32_t *rank)
{
    bool exact = true;

    return read_number(&text, 1, rank, &exact) && *text == '\0' && exact && *rank <= RFS_MAX_RANK;
}
