/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pages.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGES 64

struct fixture {
    unsigned char *at;
    size_t page;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->page = (size_t)sysconf(_SC_PAGESIZE);
    f->at = mmap(NULL, PAGES * f->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->at != MAP_FAILED);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    munmap(f->at, PAGES * f->page);
    free(f);
    return 0;
}

static unsigned there(const struct fixture *f, size_t first, size_t n)
{
    unsigned char pages[PAGES];
    unsigned count = 0;

    assert_int_equal(mincore(f->at + first * f->page, n * f->page, pages), 0);
    for (size_t i = 0; i < n; i++)
        count += pages[i] & 1;
    return count;
}

/* Fresh memory is all there at once: the pages that lie within it, and no others. */
static void test_fresh(void **state)
{
    const struct fixture *f = *state;

    if (madvise(f->at, f->page, 23) != 0 && errno == EINVAL)
        skip(); /* before Linux 5.14 */
    rfs_pages_expect(f->at + f->page + 1, (PAGES - 2) * f->page);
    assert_int_equal(there(f, 2, PAGES - 3), PAGES - 3);
    assert_int_equal(there(f, 1, 1), 0);
    assert_int_equal(there(f, PAGES - 1, 1), 0);
    for (size_t i = 0; i < PAGES * f->page; i++)
        assert_int_equal(f->at[i], 0);
}

/* Memory in use is left alone, also if a part of it is fresh; and what it holds stays. */
static void test_in_use(void **state)
{
    const struct fixture *f = *state;
    const size_t places[] = {0, PAGES / 2, PAGES - 1};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        assert_int_equal(madvise(f->at, PAGES * f->page, MADV_DONTNEED), 0);
        f->at[places[i] * f->page] = 7;
        rfs_pages_expect(f->at, PAGES * f->page);
        assert_int_equal(there(f, 0, PAGES), 1);
        assert_int_equal(f->at[places[i] * f->page], 7);
    }
}

/* Little memory, none, or addresses without any cost and change nothing. */
static void test_little(void **state)
{
    const struct fixture *f = *state;

    rfs_pages_expect(f->at, 2 * f->page);
    rfs_pages_expect(f->at + 1, f->page / 2);
    rfs_pages_expect(NULL, 0);
    rfs_pages_expect(NULL, PAGES * f->page);
    assert_int_equal(there(f, 0, PAGES), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fresh, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_in_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_little, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
