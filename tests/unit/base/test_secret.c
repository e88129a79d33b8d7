/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of content and of keys: what of it is in core files and in the swap. */
#include "base/pages.h"
#include "base/secret.h"
#include "tests/support/smaps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES ((size_t)1 << 20)

static void test_guarded(void **state)
{
    unsigned char *p = rfs_secret_map(1000);
    (void)state;
    assert_non_null(p);
    assert_true(smaps_has(p, "dd"));
    assert_true(smaps_has(p, "lo"));
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(p[i], 0);
    memset(p, 7, 1000);
    rfs_secret_unmap(p, 1000);
    rfs_secret_unmap(NULL, 1000);
}

static void test_wipe(void **state)
{
    char text[] = "something";
    (void)state;
    rfs_secret_wipe(text + 1, 4);
    assert_memory_equal(text, "s\0\0\0\0hing", sizeof text);
    rfs_secret_wipe(NULL, 0);
}

/*
 * In a child of nobody's, whose limit is small: memory that cannot be locked is used all the same.
 */
static int with_little(void)
{
    const struct rlimit little = {65536, 65536};
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0 || (geteuid() == 0 && setuid(65534) != 0))
        return 10;
    unsigned char *p = rfs_secret_map(BYTES);
    if (!p)
        return 1;
    if (smaps_has(p, "lo") || !smaps_has(p, "dd") || rfs_secret_guard(p, BYTES) != -ENOMEM)
        return 2;
    memset(p, 1, BYTES);
    rfs_secret_unmap(p, BYTES);
    unsigned char *small = rfs_secret_map(4096);
    return small && smaps_has(small, "lo") ? 0 : 3;
}

static void test_limit(void **state)
{
    int status;
    (void)state;
    if (SMAPS_NO_LOCKS)
        return;
    const pid_t child = fork();
    if (child == 0)
        _exit(with_little());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Content is left out of core files, and not locked. */
static void test_content(void **state)
{
    unsigned char *p = rfs_pages_alloc(BYTES);
    (void)state;
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % getauxval(AT_PAGESZ), 0);
    assert_true(smaps_has(p, "dd"));
    assert_true(SMAPS_NO_LOCKS || !smaps_has(p, "lo"));
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < BYTES; i++)
            assert_int_equal(p[i], 0);
        memset(p, 7, BYTES);
        rfs_pages_release(p, BYTES);
        rfs_pages_wipe_all();
    }
    rfs_pages_free(p, BYTES);
    rfs_pages_free(rfs_pages_alloc(0), 0);
    rfs_pages_free(NULL, 1);
}

/* Huge pages are used only where they are small: tests/fault/large_pages tries others, too. */
static void test_huge_pages(void **state)
{
    unsigned char *p = rfs_pages_alloc(2 * RFS_HUGE_PAGE);
    (void)state;
    assert_non_null(p);
    const bool advised = smaps_has(p, "hg");
    const bool can = madvise(p, RFS_HUGE_PAGE, MADV_HUGEPAGE) == 0;
    rfs_pages_free(p, 2 * RFS_HUGE_PAGE);
    if (!can)
        skip(); /* a kernel without huge pages */
    assert_int_equal(advised, sysconf(_SC_PAGESIZE) == 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guarded),    cmocka_unit_test(test_wipe),
        cmocka_unit_test(test_limit),      cmocka_unit_test(test_content),
        cmocka_unit_test(test_huge_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
