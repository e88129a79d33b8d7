/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compared with what the kernel does, written down again: for each of a few people, in all their
 * groups.
 */
#include "store/access.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PEOPLE 4u /* users and groups 1 to PEOPLE */

struct acl {
    unsigned owner, group, others, mask;
    bool masked;
    struct {
        unsigned tag, id, may;
    } named[3];
    size_t n;
};

static unsigned seed = 12345;

static unsigned chance(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return seed >> 16 & 0x7fff ? (seed >> 16 & 0x7fff) % n : 0;
}

static size_t put(unsigned char *at, unsigned tag, unsigned may, unsigned id)
{
    const unsigned char entry[8] = {
        (unsigned char)tag, 0, (unsigned char)may, 0, (unsigned char)id, 0, 0, 0};
    memcpy(at, entry, sizeof entry);
    return sizeof entry;
}

static size_t write_list(const struct acl *acl, unsigned char *out)
{
    size_t n = 4;
    memcpy(out, "\2\0\0\0", 4);
    n += put(out + n, 1, acl->owner, 0);
    for (size_t i = 0; i < acl->n; i++)
        n += put(out + n, acl->named[i].tag, acl->named[i].may, acl->named[i].id);
    n += put(out + n, 4, acl->group, 0);
    if (acl->masked)
        n += put(out + n, 16, acl->mask, 0);
    return n + put(out + n, 32, acl->others, 0);
}

/* acl(5), "access check algorithm", of reading. */
static bool may(const struct acl *acl, const struct stat *st, unsigned user, unsigned groups)
{
    const unsigned mask = acl->masked ? acl->mask : 7;
    bool named = false;
    if (user == st->st_uid)
        return acl->owner & 4;
    for (size_t i = 0; i < acl->n; i++)
        if (acl->named[i].tag == 2 && acl->named[i].id == user)
            return acl->named[i].may & mask & 4;
    if (groups >> st->st_gid & 1) {
        named = true;
        if (acl->group & mask & 4)
            return true;
    }
    for (size_t i = 0; i < acl->n; i++)
        if (acl->named[i].tag == 8 && (groups >> acl->named[i].id & 1)) {
            named = true;
            if (acl->named[i].may & mask & 4)
                return true;
        }
    return !named && (acl->others & 4);
}

static bool lets(struct rfs_access access, unsigned user, unsigned groups)
{
    return user == access.uid                              ? access.user
           : access.gid < 31 && (groups >> access.gid & 1) ? access.group
                                                           : access.others;
}

static struct acl random_acl(struct stat *st)
{
    struct acl acl = {
        .owner = chance(8), .group = chance(8), .others = chance(8), .mask = chance(8)};
    acl.n = chance(4);
    for (size_t i = 0; i < acl.n; i++) {
        acl.named[i].tag = chance(2) ? 2 : 8;
        acl.named[i].id = 1 + (unsigned)i;
        acl.named[i].may = chance(8);
    }
    acl.masked = acl.n > 0 || chance(2);
    st->st_uid = 1 + chance(PEOPLE);
    st->st_gid = 1 + chance(PEOPLE);
    st->st_mode = S_IFREG | acl.owner << 6 | (acl.masked ? acl.mask : acl.group) << 3 | acl.others;
    return acl;
}

static struct rfs_access access_to(const struct acl *acl, const struct stat *st)
{
    unsigned char list[128];
    const size_t n = write_list(acl, list);
    return rfs_access_listed(st, RFS_MAY_READ, list, n);
}

static void test_lists(void **state)
{
    unsigned let_in = 0;
    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        struct stat st = {0};
        const struct acl acl = random_acl(&st);
        const struct rfs_access access = access_to(&acl, &st);
        for (unsigned user = 1; user <= PEOPLE; user++)
            for (unsigned groups = 0; groups < 2u << PEOPLE; groups += 2) {
                if (lets(access, user, groups) && !may(&acl, &st, user, groups))
                    fail_msg("round %u: user %u, groups %x", round, user, groups);
                let_in += lets(access, user, groups);
            }
        assert_int_equal(access.user, (acl.owner & 4) != 0);
        if (acl.n == 0) {
            assert_int_equal(access.others, (acl.others & 4) != 0);
            assert_int_equal(access.group, (acl.group & 4) && (!acl.masked || (acl.mask & 4)));
        }
    }
    assert_true(let_in > 0);
}

static void test_both(void **state)
{
    unsigned let_in = 0;
    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        struct stat st[3] = {0};
        struct acl acl[3];
        for (unsigned i = 0; i < 3; i++)
            acl[i] = random_acl(&st[i]);
        const struct rfs_access two =
            rfs_access_both(access_to(&acl[0], &st[0]), access_to(&acl[1], &st[1]));
        const struct rfs_access all[] = {rfs_access_both(two, access_to(&acl[2], &st[2])),
                                         rfs_access_below(access_to(&acl[2], &st[2]), two)};
        for (unsigned user = 1; user <= PEOPLE; user++)
            for (unsigned groups = 0; groups < 2u << PEOPLE; groups += 2)
                for (unsigned k = 0; k < 2; k++) {
                    if (user == geteuid() || !lets(all[k], user, groups))
                        continue;
                    let_in++;
                    for (unsigned i = 0; i < 3; i++)
                        if (!may(&acl[i], &st[i], user, groups))
                            fail_msg("round %u: user %u, groups %x, file %u", round, user, groups,
                                     i);
                }
    }
    assert_true(let_in > 0);
}

/* What is no list denies all but the owner. */
static void test_damaged(void **state)
{
    const struct stat st = {.st_mode = S_IFREG | 0666, .st_uid = 1, .st_gid = 2};
    const struct acl plain = {.owner = 4, .group = 4, .others = 4};
    unsigned char list[128] = {0};
    (void)state;
    const size_t n = write_list(&plain, list);
    assert_true(rfs_access_listed(&st, RFS_MAY_READ, list, n).others);
    for (size_t i = 0; i < n; i++)
        if (i % 8 != 4) {
            const struct rfs_access cut = rfs_access_listed(&st, RFS_MAY_READ, list, i);
            assert_false(cut.group || cut.others);
        }
    list[0] = 3;
    assert_false(rfs_access_listed(&st, RFS_MAY_READ, list, n).others);
    list[0] = 2;
    list[4] = 64;
    assert_false(rfs_access_listed(&st, RFS_MAY_READ, list, n).others);
}

/* The rights to search a folder above are kept, until they change. */
static void test_above(void **state)
{
    struct rfs_access_above above = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct tree tree;

    (void)state;
    tree_new(&tree);
    tree_folder(&tree, "a");
    tree_folder(&tree, "a/b");
    tree_folder(&tree, "a/b/c");
    const char *file = tree_path(&tree, "a/b/c/file"), *folder = tree_path(&tree, "a");
    assert_int_equal(chmod(tree.root, 0755), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(rfs_access_above(&above, file).others, rfs_access_above(NULL, file).others);
    const bool before = rfs_access_above(&above, file).others;
    assert_int_equal(chmod(folder, 0700), 0);
    assert_false(rfs_access_above(&above, file).others);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(rfs_access_above(&above, file).others, before);
    /* Another folder in its place. */
    assert_int_equal(rename(folder, tree_path(&tree, "before")), 0);
    tree_folder(&tree, "a");
    tree_folder(&tree, "a/b");
    tree_folder(&tree, "a/b/c");
    assert_int_equal(chmod(folder, 0700), 0);
    assert_false(rfs_access_above(&above, file).others);
    free(above.path);
    tree_remove(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_both),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
