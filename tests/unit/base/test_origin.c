/* SPDX-License-Identifier: Apache-2.0 */
/* Where documents that name files may lead. */
#include "base/origin.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/tree.h"

/* Names that lead out of every folder, as a document gives them. */
static const char *const away[] = {
    "",
    "..",
    "../a",
    "a/..",
    "a/../../b",
    "a/b/../..",
    "./../a",
    "/",
    "/etc/shadow",
    "//host/a",
    "///a",
    "s3://other/run/a",
    "hf://acme/other/src/a",
    "http://other/x/a",
    "https://other:8/x/a",
};

/* Names of files below the folder, however they look. */
static const char *const inside[] = {
    "a",      "a/b",      "./a",    "a//b",   "...",   "..a",           "a..",
    ".a/..b", "%2e%2e/a", "..%2fa", "a%2F..", "..\\a", "gs://bucket/a", "file:///etc/shadow",
    "HTTP:",  "a?b",      "a#b",    "~/a",    "a:b",   "C:\\a",         "HTTPS://host/a",
};

static const char *const folders[] = {
    "/data",        "s3://bucket",      "s3://bucket/run",   "http://host",
    "http://host/", "https://host:8/x", "hf://acme/net/src",
};

/* Returns where a name leads, or NULL; it is compared with WANT. */
static void expect(const char *folder, const char *name, const struct rfs_origins *origins,
                   const char *want)
{
    char *path = NULL;
    const int rc = rfs_origin_lead(folder, name, origins, &path);

    if (rc != (want ? 0 : -EXDEV) || !path || (want && strcmp(path, want) != 0))
        fail_msg("'%s' in %s: %d, '%s', and not '%s'", name, folder, rc, path ? path : "",
                 want ? want : "elsewhere");
    free(path);
}

static void names_stay_below_their_folder(void **unused)
{
    const struct rfs_origins none = {0};

    (void)unused;
    for (size_t i = 0; i < sizeof away / sizeof *away; i++) {
        assert_false(rfs_origin_stays(away[i]));
        for (size_t k = 0; k < sizeof folders / sizeof *folders; k++)
            expect(folders[k], away[i], &none, NULL);
    }
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        if (!rfs_origin_stays(inside[i]))
            fail_msg("'%s' leads elsewhere", inside[i]);
        for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
            const size_t n = strlen(folders[k]);
            char want[256];
            snprintf(want, sizeof want, "%s%s%s", folders[k], folders[k][n - 1] == '/' ? "" : "/",
                     inside[i]);
            expect(folders[k], inside[i], &none, want);
        }
    }
}

static void names_of_entries(void **unused)
{
    static const char *const good[] = {"a", "a/b", "...", "a/..b", " ", "a\\b"};
    static const char *const bad[] = {"",   "/",     "/a",   "a/",   "a//b", ".",
                                      "..", "a/./b", "../a", "a/..", "./a",  "a/."};

    (void)unused;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(rfs_origin_is_names(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(rfs_origin_is_names(bad[i], strlen(bad[i])));
    assert_true(rfs_origin_is_names("a/../b", 1)); /* the rest is not its own */
}

static void urls_of_the_same_place(void **unused)
{
    static const struct {
        const char *origin, *url;
        bool has;
    } cases[] = {
        {"https://host/run", "https://host/run/a", true},
        {"https://host/run", "https://host/run", true},
        {"https://host/run/", "https://host/run/a", true},
        {"https://host/run", "https://HOST/run/a", true},
        {"https://Host/run", "https://hOST:443/run/a", true},
        {"https://host:443/run", "https://host/run/a", true},
        {"http://host:80", "http://host/a", true},
        {"http://host", "http://host:80/a", true},
        {"https://host", "https://host/a", true},
        {"https://host/", "https://host/a", true},
        {"http://[::1]:80/a", "http://[::1]/a/b", true},
        {"http://host:8080/a", "http://host:8080/a/b", true},
        {"https://host/run", "https://host/runs/a", false},
        {"https://host/run", "https://host/RUN/a", false},
        {"https://host/run", "https://host/run/../a", false},
        {"https://host/run", "https://host/run/a/..", false},
        {"https://host/run", "https://host//run/a", false},
        {"https://host/run", "https://host/%72un/a", false},
        {"https://host/run", "https://host/a", false},
        {"https://host/run", "http://host/run/a", false},
        {"https://host/run", "https://host.evil/run/a", false},
        {"https://host/run", "https://host:444/run/a", false},
        {"https://host/run", "https://host:80/run/a", false},
        {"https://host/run", "https://host:0443/run/a", false},
        {"https://host/run", "https://user@host/run/a", false},
        {"https://host", "https://host@evil/run/a", false},
        {"https://host", "https://host:443@evil/run/a", false},
        {"https://host", "https://host\\@evil/run/a", false},
        {"https://host", "https://host?/run/a", false},
        {"https://host", "https://host#/run/a", false},
        {"https://host", "https://hostile/a", false},
        {"https://", "https://host/a", false},
        {"https:///", "https://host/a", false},
        {"s3://bucket/run", "s3://bucket/run/a", true},
        {"s3://bucket", "s3://bucket/a", true},
        {"s3://bucket/run", "s3://bucket/run2/a", false},
        {"s3://bucket", "s3://bucket2/a", false},
        {"s3://bucket", "s3://BUCKET/a", false},
        {"s3://bucket/run", "s3://bucket/run/../a", false},
        {"s3://", "s3://bucket/a", false},
        {"s3://bucket/run", "hf://bucket/run/a", false},
        {"hf://acme/net", "hf://acme/net/a", true},
        {"hf://models/acme/net", "hf://acme/net/a", true},
        {"hf://acme/net", "hf://models/acme/net/a", true},
        {"hf://acme/net@v1/src", "hf://acme/net@v1/src/a", true},
        {"hf://acme/net", "hf://acme/net@v1/a", false},
        {"hf://acme/net@v1", "hf://acme/net@v2/a", false},
        {"hf://acme/net@v1", "hf://acme/net/a", false},
        {"hf://acme/net", "hf://datasets/acme/net/a", false},
        {"hf://acme/net", "hf://acme/net2/a", false},
        {"/data", "https://host/data/a", false},
        {"https://host/data", "/data/a", false},
        {"https://host/data", "https:/host/data/a", false},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (rfs_origin_has(cases[i].origin, cases[i].url) != cases[i].has)
            fail_msg("%s and %s", cases[i].origin, cases[i].url);
}

static void paths_of_this_machine(void **unused)
{
    char *root = tree_new();
    char path[512], link[512];

    (void)unused;
    tree_write(root, "data/run/a", "", 0);
    tree_write(root, "other/a", "", 0);
    snprintf(path, sizeof path, "%s/other", root);
    snprintf(link, sizeof link, "%s/data/out", root);
    assert_int_equal(symlink(path, link), 0);
    snprintf(link, sizeof link, "%s/in", root);
    snprintf(path, sizeof path, "%s/data", root);
    assert_int_equal(symlink(path, link), 0);
    static const struct {
        const char *path;
        bool has;
    } cases[] = {
        {"data/a", true},      {"data/run/a", true},   {"data/run/../a", true},
        {"in/run/a", true},    {"data/run/..", false}, {"data/../other", false},
        {"data/out/a", false}, {"other/a", false},     {"data/none/a", false},
        {"data2/a", false},    {"data/run/", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char whole[600];
        snprintf(whole, sizeof whole, "%s/%s", root, cases[i].path);
        if (rfs_origin_has(path, whole) != cases[i].has ||
            rfs_origin_has(link, whole) != cases[i].has)
            fail_msg("%s", cases[i].path);
    }
    tree_remove(root);
}

static void a_map_leads_to_named_places(void **unused)
{
    const struct rfs_origins here = {.here = true};
    const struct rfs_origins named = {.named = "s3://bucket/run:https://host:8/a", .here = true};
    const struct rfs_origins source = {.source = "s3://bucket/run"};
    const struct rfs_origins local = {.source = "/etc"};
    const struct rfs_origins tmp = {.named = "/tmp"};

    (void)unused;
    /* A map on this machine is the user's own word about its files, and no more. */
    expect("/maps", "/data/a", &here, "/data/a");
    expect("/maps", "../a", &here, "/maps/../a");
    expect("/maps", "s3://bucket/run/a", &here, NULL);
    expect("/maps", "http://host/a", &here, NULL);
    expect("/maps", "s3://bucket/run/a", &named, "s3://bucket/run/a");
    expect("/maps", "https://host:8/a/b", &named, "https://host:8/a/b");
    expect("/maps", "https://host:9/a/b", &named, NULL);
    /* One from elsewhere is not, even if the caller said so. */
    expect("https://host/maps", "/data/a", &here, NULL);
    expect("https://host/maps", "../a", &named, NULL);
    expect("https://host/maps", "s3://bucket/run/a", &source, "s3://bucket/run/a");
    expect("https://host/maps", "s3://bucket/other", &source, NULL);
    expect("https://host/maps", "/etc/shadow", &local, NULL);
    expect("https://host/maps", "/tmp/a", &tmp, "/tmp/a");
    expect("https://host/maps", "/tmp/../etc/shadow", &tmp, NULL);
    expect("https://host/maps", "https://HOST:443/maps/a", &local, "https://HOST:443/maps/a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stay_below_their_folder), cmocka_unit_test(names_of_entries),
        cmocka_unit_test(urls_of_the_same_place),        cmocka_unit_test(paths_of_this_machine),
        cmocka_unit_test(a_map_leads_to_named_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
