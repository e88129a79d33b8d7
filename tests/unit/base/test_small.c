/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes, bisection, what is made once or published once, files read whole. */
#include "base/cancel.h"
#include "base/first_error.h"
#include "base/once.h"
#include "base/order.h"
#include "base/processor.h"
#include "base/store.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void test_bytes(void **state)
{
    (void)state;
    struct rfs_bytes bytes = {0};

    assert_true(rfs_bytes_put(&bytes, NULL, 0));
    assert_null(bytes.data);
    for (unsigned i = 0; i < 1000; i++)
        assert_true(rfs_bytes_put_text(&bytes, "ab") && rfs_bytes_put_number(&bytes, i % 10));
    assert_int_equal(bytes.n, 3000);
    assert_true(bytes.cap < 2 * bytes.n);
    assert_memory_equal(bytes.data + 2994, "ab8ab9", 6);
    assert_ptr_equal(rfs_bytes_room(&bytes, 5), bytes.data + 3000);

    assert_null(rfs_bytes_room(&bytes, SIZE_MAX - 2000));
    assert_true(bytes.failed);
    assert_false(rfs_bytes_put_text(&bytes, "c"));
    assert_false(rfs_bytes_put(&bytes, NULL, 0));
    assert_int_equal(bytes.n, 3000);
    rfs_bytes_free(&bytes);
    assert_null(bytes.data);
    assert_false(bytes.failed);
}

static void test_reserve(void **state)
{
    (void)state;
    RFS_VEC(uint64_t) list = {0};

    assert_true(RFS_RESERVE(&list, 0));
    assert_null(list.data);
    assert_true(RFS_RESERVE(&list, 100) && list.cap >= 100);
    const uint64_t *data = list.data;
    for (uint64_t i = 0; i < 100; i++)
        assert_true(RFS_PUSH(&list, i));
    assert_ptr_equal(list.data, data);
    assert_false(RFS_RESERVE(&list, SIZE_MAX / 8));
    assert_false(RFS_RESERVE(&list, SIZE_MAX));
    assert_int_equal(list.data[99], 99);
    free(list.data);
}

static void test_at(void **state)
{
    (void)state;
    RFS_VEC(uint32_t) by_id = {0};

    uint32_t *at = RFS_VEC_AT(&by_id, 3, 7);
    assert_ptr_equal(at, by_id.data + 3);
    assert_int_equal(by_id.n, 4);
    for (size_t i = 0; i < by_id.n; i++)
        assert_int_equal(by_id.data[i], 7);
    *at = 1;
    assert_ptr_equal(RFS_VEC_AT(&by_id, 3, 7), at);
    assert_int_equal(*RFS_VEC_AT(&by_id, 5, 8), 8);
    assert_int_equal(by_id.data[3], 1);
    assert_int_equal(by_id.data[4], 8);
    free(by_id.data);
}

static void test_bisect(void **state)
{
    (void)state;
    static const unsigned list[] = {2, 4, 4, 4, 9, 11};

    for (size_t n = 0; n <= 6; n++)
        for (unsigned wanted = 0; wanted < 13; wanted++) {
            size_t first = 0;
            while (first < n && list[first] < wanted)
                first++;
            assert_int_equal(RFS_BISECT(i, n, list[i] >= wanted), first);
        }
}

static unsigned dropped;

static void drop(unsigned *value)
{
    dropped += *value;
}

static unsigned compared;

static int count_up(const void *a, const void *b)
{
    compared++;
    return RFS_ORDER(*(const unsigned *)a, *(const unsigned *)b);
}

static int by_key(const void *a, const void *b, void *keys)
{
    const unsigned *key = keys;

    compared++;
    return RFS_ORDER(key[*(const unsigned *)a], key[*(const unsigned *)b]);
}

/* All orders of five elements, two of them equal. In order already costs one comparison each. */
static void test_sort(void **state)
{
    static const unsigned keys[] = {1, 2, 2, 3, 4};

    (void)state;
    RFS_SORT((unsigned *)NULL, 0, count_up);
    for (unsigned k = 0; k < 5 * 5 * 5 * 5 * 5; k++) {
        unsigned place[] = {k % 5, k / 5 % 5, k / 25 % 5, k / 125 % 5, k / 625};
        unsigned values[5];
        unsigned sum = 0;
        unsigned in_order = 0;
        for (unsigned i = 0; i < 5; i++) {
            values[i] = keys[place[i]];
            sum += 1u << place[i];
            in_order += i > 0 && values[i - 1] <= values[i];
        }
        if (sum != 31) /* not each once */
            continue;
        compared = 0;
        RFS_SORT(values, 5, count_up);
        assert_memory_equal(values, keys, sizeof keys);
        assert_true(in_order == 4 ? compared == 4 : compared > 1);
        compared = 0;
        RFS_SORT_BY(place, 5, by_key, (void *)(uintptr_t)keys);
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(keys[place[i]], keys[i]);
        assert_true(in_order == 4 ? compared == 4 : compared > 1);
    }
}

static void test_digits(void **state)
{
    char out[RFS_TEXT_DIGITS];

    (void)state;
    assert_string_equal(rfs_text_digits(0, out), "0");
    assert_string_equal(rfs_text_digits(9, out), "9");
    assert_string_equal(rfs_text_digits(10, out), "10");
    assert_string_equal(rfs_text_digits(1203, out), "1203");
    assert_string_equal(rfs_text_digits(UINT64_MAX, out), "18446744073709551615");
}

static void test_publish(void **state)
{
    (void)state;
    _Atomic(unsigned *) slot = NULL;
    unsigned one = 1, two = 2;

    assert_null(RFS_PUBLISHED(&slot));
    assert_ptr_equal(RFS_PUBLISH(&slot, &one, drop), &one);
    assert_int_equal(dropped, 0);
    assert_ptr_equal(RFS_PUBLISH(&slot, &two, drop), &one);
    assert_int_equal(dropped, 2);
    assert_ptr_equal(RFS_PUBLISHED(&slot), &one);
}

struct thing {
    pthread_mutex_t lock;
    pthread_cond_t done;
    struct rfs_once once;
    unsigned tries, made, got;
};

/* The first two tries fail. */
static void *want(void *arg)
{
    struct thing *thing = arg;
    int rc;

    pthread_mutex_lock(&thing->lock);
    while ((rc = rfs_once_begin(&thing->once, &thing->done, &thing->lock)) == 1) {
        pthread_mutex_unlock(&thing->lock);
        usleep(2000);
        pthread_mutex_lock(&thing->lock);
        const bool made = ++thing->tries == 3;
        thing->made += made;
        rfs_once_end(&thing->once, &thing->done, made);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(thing->made, 1);
    thing->got++;
    pthread_mutex_unlock(&thing->lock);
    return NULL;
}

static void test_once(void **state)
{
    (void)state;
    struct thing thing = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[8];

    assert_int_equal(rfs_cancel_init_cond(&thing.done), 0);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, want, &thing), 0);
    for (unsigned i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(thing.tries, 3);
    assert_int_equal(thing.got, 8);

    /* A thread whose work is given up does not wait for another. */
    struct rfs_cancel cancel = {.now = true};
    thing.once = (struct rfs_once){RFS_ONCE_UNDER_WAY};
    rfs_cancel_enter(&cancel);
    pthread_mutex_lock(&thing.lock);
    assert_int_equal(rfs_once_begin(&thing.once, &thing.done, &thing.lock), -EINTR);
    pthread_mutex_unlock(&thing.lock);
    rfs_cancel_enter(NULL);
    pthread_cond_destroy(&thing.done);
}

static void test_read_whole(void **state)
{
    (void)state;
    char path[] = "/tmp/rfs-small-XXXXXX";
    const int fd = mkstemp(path);
    char *data = NULL;
    size_t n = 0;
    struct rfs_error err;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a\0b", 3), 3);
    assert_int_equal(rfs_store_read_whole(NULL, path, 3, &data, &n, &err), 0);
    assert_int_equal(n, 3);
    assert_memory_equal(data, "a\0b", 4);
    free(data);
    assert_int_equal(rfs_store_read_whole(NULL, path, 2, &data, &n, &err), -EFBIG);
    assert_non_null(strstr(err.text, "larger than 2 bytes"));
    assert_int_equal(rfs_store_read_whole(NULL, "/tmp", 2, &data, &n, &err), -EISDIR);
    assert_int_equal(rfs_store_read_whole(NULL, "/dev/null", 2, &data, &n, &err), -EINVAL);
    assert_int_equal(rfs_store_read_fd(-EACCES, path, 2, &data, &n, &err), -EACCES);
    assert_non_null(strstr(err.text, "permissions"));
    close(fd);
    unlink(path);
    assert_int_equal(rfs_store_read_whole(NULL, path, 2, &data, &n, &err), -ENOENT);
}

/* What a shell makes of names with blanks that nobody put into quotes. */
static void test_quotes(void **state)
{
    static const struct {
        const char *args[5], *remedy; /* NULL: none */
    } cases[] = {
        {{"in", "mnt", "-s", "my", "run.ckpt"}, "'my run.ckpt', in quotes"},
        {{"-o", "src_strategy=my", "run.ckpt", "in", "mnt"},
         "'src_strategy=my run.ckpt', in quotes"},
        {{"-o", "src_strategy=x:my", "run.ckpt:y,format=pt", "in"},
         "'src_strategy=x:my run.ckpt:y,format=pt', in quotes"},
        {{"--src-strategy=my", "run.ckpt"}, "'--src-strategy=my run.ckpt', in quotes"},
        {{"three", "small", "words", "mnt"}, "'three small words', in quotes"},
        {{"in", "mnt", "-o", "src_strategy=a,", "dst_strategy=b"},
         "src_strategy=a,dst_strategy=b, without a blank"},
        {{"in", "mnt", "more"}, NULL},
        {{"my", "-f", "run.ckpt"}, NULL},
        {{"run.ckpt", "my"}, NULL},
        {{"it's", "run.ckpt"}, NULL},
        {{"", "", ""}, NULL},
        {{"-o", "a=b,", "in"}, NULL},
    };
    static const char *const names[] = {"my run.ckpt", "three small words", "it's run.ckpt"};
    char folder[] = "/tmp/rfs-small-XXXXXX";
    char *before = getcwd(NULL, 0);
    char remedy[100];

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(close(open(names[i], O_CREAT | O_WRONLY, 0600)), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *args[5];
        int n = 0;
        while (n < 5 && cases[i].args[n]) {
            args[n] = strdup(cases[i].args[n]);
            n++;
        }
        assert_int_equal(rfs_suggest_quotes(n, args, remedy, sizeof remedy),
                         cases[i].remedy != NULL);
        if (cases[i].remedy)
            assert_string_equal(remedy, cases[i].remedy);
        while (n > 0)
            free(args[--n]);
    }
    for (size_t i = 0; i < 3; i++)
        unlink(names[i]);
    assert_int_equal(chdir(before), 0);
    rmdir(folder);
    free(before);
}

static void test_the_first_failure_keeps_its_code(void **state)
{
    struct rfs_first_error first = RFS_FIRST_ERROR;
    struct rfs_error err = {0}, a = {.text = "first"}, b = {.text = "second"},
                     c = {.text = "zeroth"};

    (void)state;
    assert_int_equal(rfs_first_error_take(&first, -EINTR, &err), -EINTR);
    assert_int_equal(rfs_first_error_note(&first, 1, 0, &b), 0);
    assert_int_equal(rfs_first_error_take(&first, 0, &err), 0);
    assert_int_equal(rfs_first_error_note(&first, 4, -EIO, &a), -EIO);
    assert_int_equal(rfs_first_error_note(&first, 5, -ESTALE, &b), -ESTALE);
    /* The loop gives the code of the second one, which ended before the first. */
    assert_int_equal(rfs_first_error_take(&first, -ESTALE, &err), -EIO);
    assert_string_equal(err.text, "first");
    assert_int_equal(rfs_first_error_take(&first, -ESTALE, NULL), -EIO);
    /* A lower call counts, though it ends later. */
    assert_int_equal(rfs_first_error_note(&first, 0, -EINVAL, &c), -EINVAL);
    assert_int_equal(rfs_first_error_take(&first, -ESTALE, &err), -EINVAL);
    assert_string_equal(err.text, "zeroth");
}

/* Says whether the system lists a feature of the processor. */
static bool is_listed(const char *feature)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[8192];
    bool listed = false;

    assert_non_null(file);
    while (!listed && fgets(line, sizeof line, file)) {
        char *rest;
        if (strncmp(line, "flags", 5) == 0)
            for (char *word = strtok_r(line, " \t\n", &rest); word && !listed;
                 word = strtok_r(NULL, " \t\n", &rest))
                listed = strcmp(word, feature) == 0;
    }
    fclose(file);
    return listed;
}

static void test_processor(void **state)
{
    (void)state;
    for (unsigned again = 0; again < 2; again++)
        assert_int_equal(rfs_processor_has_avx2(), is_listed("avx2") && is_listed("f16c"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_at),
        cmocka_unit_test(test_bisect),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_publish),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_read_whole),
        cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_the_first_failure_keeps_its_code),
        cmocka_unit_test(test_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
