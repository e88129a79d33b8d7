/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/seen.h"

#include "base/glob.h"
#include "formats/numbered.h"

const struct rfs_seen_form *rfs_seen_rank(const struct rfs_seen_form *forms, const char *name,
                                          uint32_t *rank)
{
    for (const struct rfs_seen_form *form = forms; form->before; form++) {
        char digits[16];
        const size_t before = strlen(form->before);
        if (strncmp(name, form->before, before) != 0)
            continue;
        const size_t n = strspn(name + before, "0123456789");
        if (n == 0 || n >= sizeof digits || !rfs_glob_match(form->behind, name + before + n))
            continue;
        memcpy(digits, name + before, n);
        digits[n] = '\0';
        return rfs_numbered_decimal(digits, rank) ? form : NULL;
    }
    return NULL;
}
