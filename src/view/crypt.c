/* SPDX-License-Identifier: Apache-2.0 */
#include "view/crypt.h"

#include "base/checked.h"
#include "store/crypt/cipher.h"
#include "store/encrypted.h"

#define TRIED 2 /* sources: one may be damaged */

/* The cache's share for decrypted blocks: half, if that is enough for one. */
static int share_cache(struct reshard_view *set, struct rfs_error *err)
{
    uint64_t *cache = &set->options.cache;
    if (*cache < RFS_CRYPT_LEAST && !set->options.cache_given)
        *cache = RFS_CRYPT_LEAST;
    if (*cache < RFS_CRYPT_LEAST)
        return rfs_fail_usage(
            err, "cache=80M or more",
            "the cache is too small for encrypted sources: a block of 64 MiB must "
            "fit, and 16 MiB beside it");
    const uint64_t share = rfs_max_u64(*cache / 2, RFS_CIPHER_BLOCK);
    set->encrypted = rfs_encrypted_new(set->key, share, &set->log);
    *cache -= share;
    return set->encrypted ? 0 : rfs_fail_memory(err);
}

int reshard_guard_keys(void)
{
    return rfs_cipher_guard() ? 0 : -EALREADY;
}

int rfs_view_read_key(const struct rfs_options *options, struct rfs_log *log, struct rfs_key **out,
                      struct rfs_error *err)
{
    const struct rfs_key_config config = {options->key_file, options->key_env, options->key_fd,
                                          (enum rfs_cipher_mode)(options->key_mode + 1)};

    return rfs_key_load(&config, log, out, err);
}

int rfs_view_load_key(struct reshard_view *set, struct rfs_error *err)
{
    if (!rfs_options_keyed(&set->options))
        return set->options.key_mode >= 0
                   ? rfs_fail_usage(err, "key_file=FILE", "there is a key_mode, but no key")
                   : 0;
    const int rc = rfs_view_read_key(&set->options, &set->log, &set->key, err);
    return rc < 0 ? rc : share_cache(set, err);
}

/*
 * Opens the file and reads its last byte: of its last block, which is the shortest. 1: it is empty.
 */
static int try_file(struct rfs_files *files, uint32_t id)
{
    struct rfs_reading reading;
    unsigned char byte = 0;
    int rc = rfs_reading_begin_quiet(files, id, &reading);
    if (rc < 0)
        return rc;
    if (reading.size > 0)
        rc = rfs_reading_pread(&reading, &byte, 1, reading.size - 1);
    else
        rc = 1;
    rfs_wipe(&byte, 1);
    const int end = rfs_reading_end(&reading);
    return end < 0 ? end : rc;
}

int rfs_view_try_key(struct rfs_view *view, struct rfs_error *err)
{
    struct rfs_files *files = rfs_catalog_files(view->stored);
    int first = 0;
    unsigned tried = 0;
    if (!view->set->encrypted || view->set->key_fits)
        return 0;
    for (uint32_t rank = 0; rank < rfs_catalog_ranks(view->stored) && tried < TRIED; rank++) {
        if (!rfs_catalog_has(view->stored, rank))
            continue;
        const uint32_t id = rfs_catalog_file(view->stored, rank);
        const int rc = try_file(files, id);
        tried += rc <= 0;
        if (rc == 0) {
            view->set->key_fits = true;
            first = 0;
            break;
        }
        /* Errors unrelated to the key are reported when the file is needed. */
        if (first == 0 && rfs_files_reason(files, id, rc, err))
            first = rc;
    }
    return first;
}
