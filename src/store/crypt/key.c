/* SPDX-License-Identifier: Apache-2.0 */
#include "store/crypt/key.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static struct rfs_key *new_key(struct rfs_log *log)
{
    struct rfs_key *key =
        mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (key == MAP_FAILED)
        return NULL;
    key->log = log;
    rfs_key_hold(key);
    return key;
}

void rfs_key_hold(const struct rfs_key *key)
{
    struct rfs_key *own = (struct rfs_key *)(uintptr_t)key;
    const pid_t process = getpid();
    if (atomic_exchange_explicit(&own->locked_in, process, memory_order_relaxed) == process)
        return;
    const int rc = rfs_secret_guard(own, page_bytes());
    if (rc == 0 || !own->log)
        return;
    rfs_log(own->log, RFS_WARNING,
            "the key cannot be kept from the swap: locking %zu bytes: %s; try: a higher limit of "
            "locked memory (ulimit -l, or LimitMEMLOCK= of systemd)",
            page_bytes(), strerror(-rc));
    own->log = NULL;
}

void rfs_key_free(struct rfs_key *key)
{
    if (!key)
        return;
    OPENSSL_cleanse(key, page_bytes());
    munmap(key, page_bytes());
}

static bool is_length(size_t n)
{
    return n == 16 || n == 24 || n == 32;
}

/* Reads to the end, or until there is more than a key and a newline. 0 or -errno. */
static int read_key(int fd, struct rfs_key *key)
{
    const ssize_t n = rfs_io_read_most(fd, key->bytes, sizeof key->bytes);

    if (n < 0)
        return (int)n;
    key->n = (size_t)n;
    return 0;
}

static int fail_call(struct rfs_error *err, const char *file, const char *remedy, int code)
{
    return rfs_fail(err, -code, RFS_IN(file), remedy, "the key cannot be read: %s", strerror(code));
}

static int load_file(const char *path, struct rfs_key *key, struct rfs_log *log,
                     struct rfs_error *err)
{
    struct stat st;
    RFS_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return fail_call(err, path, "check the path", errno);
    const int rc = read_key(fd, key);
    if (rc < 0)
        return fail_call(err, path, "name a file that holds the key", -rc);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077))
        rfs_log(log, RFS_WARNING, "%s: the key may be read by others; try: chmod 600", path);
    return 0;
}

/* Closes a descriptor. Nothing opened later may get the number of a standard one. */
static void close_fd(int fd)
{
    RFS_CLOSE int null = fd <= STDERR_FILENO ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    if (null >= 0)
        dup2(null, fd);
    else
        close(fd);
}

static int load_fd(int fd, struct rfs_key *key, struct rfs_error *err)
{
    const int rc = read_key(fd, key);
    if (rc != -EBADF)
        close_fd(fd);
    return rc < 0 ? fail_call(err, NULL, "open the key's file as that descriptor: 3< FILE", -rc)
                  : 0;
}

static int load_env(const char *name, struct rfs_key *key, struct rfs_error *err)
{
    char *value = getenv(name);
    if (!value)
        return rfs_fail_usage(err, "key_env=NAME, without $",
                              "the environment has no variable that key_env names");
    const size_t n = strlen(value);
    key->n = n < sizeof key->bytes ? n : sizeof key->bytes;
    memcpy(key->bytes, value, key->n);
    OPENSSL_cleanse(value, n);
    unsetenv(name);
    return 0;
}

static int load(const struct rfs_key_config *config, struct rfs_log *log, struct rfs_key *key,
                struct rfs_error *err)
{
    int rc = config->file  ? load_file(config->file, key, log, err)
             : config->env ? load_env(config->env, key, err)
                           : load_fd(config->fd, key, err);
    if (rc < 0)
        return rc;
    if (key->n > 0 && key->bytes[key->n - 1] == '\n' && is_length(key->n - 1))
        key->bytes[--key->n] = 0;
    if (is_length(key->n))
        return 0;
    if (key->n > RFS_KEY_LONGEST)
        return rfs_fail_usage(err, "a key of 16, 24 or 32 bytes, as they are",
                              "the key is longer than 32 bytes");
    return rfs_fail_usage(err, "a key of 16, 24 or 32 bytes, as they are", "the key has %zu bytes",
                          key->n);
}

int rfs_key_load(const struct rfs_key_config *config, struct rfs_log *log, struct rfs_key **out,
                 struct rfs_error *err)
{
    *out = NULL;
    if ((config->file != NULL) + (config->env != NULL) + (config->fd >= 0) != 1)
        return rfs_fail_usage(err, "one of key_file, key_env and key_fd",
                              "there is more than one place for the key, or none");
    struct rfs_key *key = new_key(log);
    if (!key)
        return rfs_fail_memory(err);
    key->mode = config->mode;
    const int rc = load(config, log, key, err);
    if (rc < 0)
        rfs_key_free(key);
    else
        *out = key;
    return rc;
}
