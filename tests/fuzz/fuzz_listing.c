/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a store answers: a page of keys, an index of a folder, credentials, an error.
 */
#include "store/remote/credentials.h"
#include "store/remote/environment.h"
#include "store/remote/listing.h"
#include "store/remote/markup.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum goal { PAGE, JSON, HTML, TREE, CODE, NEXT, SETTING, CREDENTIALS };
FUZZ_GOALS("a page of keys", "an index in JSON", "an index in HTML", "a hub's list",
           "an error's code", "a link to the next page", "a setting of a profile",
           "credentials of a service");

static void check(struct rfs_remote_listing *listing, int rc, bool deep, enum goal goal)
{
    REQUIRE(rc == 0 || rc == -EINVAL || rc == -ENOMEM);
    for (size_t i = 0; i < listing->n; i++) {
        const char *name = listing->data[i].name;
        REQUIRE(name[0] && name[0] != '/' && strcmp(name, "..") != 0 && !strstr(name, "//"));
        REQUIRE(strncmp(name, "../", 3) != 0 && !strstr(name, "/../"));
        REQUIRE(deep || !strchr(name, '/'));
        fuzz_reached(goal);
    }
    rfs_remote_listing_free(listing);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + (size > 0);
    const size_t n = size - (size > 0);
    struct rfs_remote_listing listing = {0};
    struct rfs_credentials credentials;
    char out[64];

    switch (size > 0 ? data[0] % 4 : 0) {
    case 0:
        check(&listing, rfs_listing_page(text, n, "a/", &listing, out, sizeof out), true, PAGE);
        break;
    case 1:
    case 2:
        check(&listing, rfs_listing_index(text, n, data[0] % 4 == 1, &listing), false,
              data[0] % 4 == 1 ? JSON : HTML);
        check(&listing, rfs_listing_tree(text, n, &listing), true, TREE);
        break;
    default: {
        char *copy = strndup(text, n);
        REQUIRE(copy);
        if (rfs_markup_text(copy, "Code", out, sizeof out))
            fuzz_reached(CODE);
        if (rfs_listing_next(copy, out, sizeof out) && *out)
            fuzz_reached(NEXT);
        REQUIRE(strlen(out) < sizeof out);
        if (rfs_profile_find(copy, "default", "region", out, sizeof out))
            fuzz_reached(SETTING);
        if (rfs_credentials_parse(text, n, &credentials))
            fuzz_reached(CREDENTIALS);
        free(copy);
    }
    }
}
