/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where key schedules lie while a block is decrypted: from within a read of its cipher text, all
 * memory of the process is searched for the first round's key, which is the key itself. Each test
 * has a process of its own, as OpenSSL's allocator is chosen before it is used.
 */
#include "store/crypt/cipher.h"
#include "store/crypt/key.h"
#include "tests/support/sealer.h"
#include "tests/support/smaps.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define KEY_BYTES 16u
#define PLAIN_BYTES 4096u
#define VEIL 0x5au

static unsigned char veiled[KEY_BYTES]; /* so that this copy is not found */

struct found {
    unsigned guarded, open; /* in pages that are locked and left out of core files, and elsewhere */
};

struct input {
    const unsigned char *encrypted;
    struct found first, last; /* what the first and the last read have found */
    unsigned reads;
};

static unsigned count_in(const unsigned char *from, const unsigned char *to)
{
    unsigned n = 0;
    for (; from + KEY_BYTES <= to; from++) {
        unsigned i = 0;
        while (i < KEY_BYTES && (from[i] ^ VEIL) == veiled[i])
            i++;
        n += i == KEY_BYTES;
    }
    return n;
}

static struct found search(void)
{
    struct found found = {0};
    char line[512];
    unsigned long from = 0;
    unsigned long to = 0;
    char rights[8] = "";
    FILE *maps = fopen("/proc/self/smaps", "re");
    if (!maps)
        abort();
    while (fgets(line, sizeof line, maps)) {
        unsigned long start; /* a line that begins with a hexadecimal letter sets it, too */
        unsigned long end;
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3) {
            from = start;
            to = end;
        }
        if (strncmp(line, "VmFlags:", 8) != 0 || strncmp(rights, "rw", 2) != 0)
            continue;
        const bool guarded = strstr(line, " lo") && strstr(line, " dd");
        *(guarded ? &found.guarded : &found.open) +=
            count_in((const unsigned char *)from, (const unsigned char *)to);
    }
    fclose(maps);
    return found;
}

static int give(void *ctx, struct iovec *spans, int n, uint64_t offset)
{
    struct input *input = ctx;
    for (int i = 0; i < n; i++) {
        memcpy(spans[i].iov_base, input->encrypted + offset, spans[i].iov_len);
        offset += spans[i].iov_len;
    }
    if (!SMAPS_NO_LOCKS) /* what sanitizers map cannot all be read */
        input->last = search();
    if (input->reads++ == 0)
        input->first = input->last;
    return 0;
}

/* The first read is of the header, before there is a schedule; the last one of the cipher text. */
static void decrypt(struct input *input)
{
    static unsigned char plain[PLAIN_BYTES] = {0x0a};
    static unsigned char out[PLAIN_BYTES];
    struct tree tree;
    struct rfs_key *key;
    struct rfs_cipher cipher;
    struct rfs_error err = {0};
    const struct seal how = {RFS_AES_GCM, seal_key(KEY_BYTES), KEY_BYTES, PLAIN_BYTES, false};
    unsigned char *encrypted = malloc(seal_room(&how, PLAIN_BYTES));
    const size_t n = seal(&how, plain, PLAIN_BYTES, 1, encrypted);
    tree_new(&tree);
    tree_file(&tree, "key", how.key, KEY_BYTES);
    const struct rfs_key_config config = {tree_path(&tree, "key"), NULL, -1, RFS_AES_GCM};
    int rc = rfs_key_load(&config, NULL, &key, &err);
    tree_remove(&tree);
    for (unsigned i = 0; i < KEY_BYTES; i++)
        veiled[i] = how.key[i] ^ VEIL;
    input->encrypted = encrypted;
    const struct rfs_cipher_input from = {give, input, n, "encrypted"};
    if (rc == 0)
        rc = rfs_cipher_scan(&from, RFS_AES_GCM, PLAIN_BYTES, &cipher, &err);
    input->reads = 0;
    if (rc == 0)
        rc = rfs_cipher_open_block(&cipher, &from, key, 0, out, &err);
    if (rc != 0 || memcmp(out, plain, PLAIN_BYTES) != 0)
        abort();
    rfs_key_free(key);
    free(encrypted);
}

/* In a child; what it finds more with a schedule than without. */
static void look(bool guard, bool fork_between, struct found *more)
{
    int pipe_fds[2];
    int status;
    assert_int_equal(pipe(pipe_fds), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct input input = {0};
        if (guard && !rfs_cipher_guard())
            _exit(1);
        const pid_t grandchild = fork_between ? fork() : 0; /* as into the background */
        if (grandchild != 0) {
            waitpid(grandchild, &status, 0);
            _exit(status != 0);
        }
        decrypt(&input);
        *more = (struct found){input.last.guarded - input.first.guarded,
                               input.last.open - input.first.open};
        _exit(write(pipe_fds[1], more, sizeof *more) != sizeof *more);
    }
    close(pipe_fds[1]);
    assert_int_equal(read(pipe_fds[0], more, sizeof *more), sizeof *more);
    close(pipe_fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_guarded_schedules(void **state)
{
    struct found more;
    (void)state;
    if (SMAPS_NO_LOCKS)
        return; /* what sanitizers map is too much to search, and mlock does nothing there */
    look(false, false, &more);
    assert_true(more.open > 0); /* so it is found where it lies */
    look(true, false, &more);
    assert_int_equal(more.open, 0);
    assert_true(more.guarded > 0);
}

static void test_guarded_schedules_after_a_fork(void **state)
{
    struct found more;
    (void)state;
    if (SMAPS_NO_LOCKS)
        return;
    look(true, true, &more);
    assert_int_equal(more.open, 0);
    assert_true(more.guarded > 0);
}

/* Once something was allocated, the allocator stays. */
static void test_too_late(void **state)
{
    (void)state;
    const pid_t child = fork();
    int status;
    if (child == 0) {
        struct input input = {0};
        decrypt(&input);
        _exit(rfs_cipher_guard());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guarded_schedules),
        cmocka_unit_test(test_guarded_schedules_after_a_fork),
        cmocka_unit_test(test_too_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
