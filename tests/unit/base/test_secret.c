/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is kept out of core files and of the swap, and wiped. */
#include "base/secret.h"
#include "tests/support/smaps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES ((size_t)1 << 20)

static void test_guarded(void **state)
{
    struct rfs_secret secret = {0};
    unsigned char *p = rfs_secret_map(&secret, 1000);
    (void)state;
    assert_non_null(p);
    assert_true(smaps_has(p, "dd"));
    assert_true(smaps_has(p, "lo"));
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(p[i], 0);
    memset(p, 7, 1000);
    rfs_secret_unmap(p, 1000);
    rfs_secret_unmap(NULL, 1000);
    assert_false(atomic_load(&secret.logged));
}

static void test_released(void **state)
{
    struct rfs_secret secret = {0};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(p != MAP_FAILED);
    memset(p, 7, 3 * page);
    assert_true(rfs_secret_guard(&secret, p + page, page));
    assert_true(SMAPS_NO_LOCKS || !smaps_has(p, "lo"));
    assert_true(smaps_has(p + page, "lo"));
    assert_int_equal(p[page], 7);
    rfs_secret_release(p + page, page);
    assert_true(SMAPS_NO_LOCKS || !smaps_has(p + page, "lo"));
    for (size_t i = 0; i < 3 * page; i++)
        assert_int_equal(p[i], i / page == 1 ? 0 : 7);
    munmap(p, 3 * page);
}

static void test_wipe(void **state)
{
    char text[] = "something";
    (void)state;
    rfs_secret_wipe(text + 1, 4);
    assert_memory_equal(text, "s\0\0\0\0hing", sizeof text);
    rfs_secret_wipe(NULL, 0);
}

struct told {
    unsigned n;
    char line[512];
};

static void keep(void *ctx, enum rfs_level level, const char *line)
{
    struct told *told = ctx;
    told->n += level == RFS_WARNING;
    snprintf(told->line, sizeof told->line, "%s", line);
}

/* In a child of nobody's, whose limit is small: it goes on, and says so once. */
static int with_little(void)
{
    struct told told = {0};
    struct rfs_log log;
    struct rfs_secret secret = {.log = &log};
    const struct rlimit little = {65536, 65536};
    rfs_log_init(&log, keep, &told);
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0 || (geteuid() == 0 && setuid(65534) != 0))
        return 10;
    for (unsigned i = 0; i < 3; i++) {
        unsigned char *p = rfs_secret_map(&secret, BYTES);
        if (!p)
            return 1;
        if (smaps_has(p, "lo") || !smaps_has(p, "dd"))
            return 2;
        memset(p, 1, BYTES);
        rfs_secret_unmap(p, BYTES);
    }
    unsigned char *small = rfs_secret_map(&secret, 4096);
    if (!small || !smaps_has(small, "lo"))
        return 3;
    if (told.n != 1 || !strstr(told.line, "locking 1048576 bytes: ") ||
        !strstr(told.line, "ulimit -l"))
        return 4;
    return 0;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guarded),
        cmocka_unit_test(test_released),
        cmocka_unit_test(test_wipe),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
