/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that count what one save is divided into. The word before the number says so:
 *
 *   net_part0.ckpt, net_part1.ckpt         parts: all of them are wanted
 *   model_rank_0.safetensors, tp1/a.pt     shards: each belongs to its rank
 *   model-rank-1-part-0.safetensors        both
 *
 * Names without such a word that count from 0 may mean ranks as well as epochs.
 */
#include "catalog/scan/internal.h"

static const char *const rank_words[] = {"rank", "shard", "tp",   "pp",   "mp",     "dp",
                                         "gpu",  "npu",   "node", "host", "device", "worker"};
static const char *const part_words[] = {"part", "segment"};
static const char *const save_words[] = {"step", "epoch", "iter",      "iteration",
                                         "ckpt", "save",  "checkpoint"};

#define IS_BEHIND(name, at, words) is_behind(name, at, words, sizeof(words) / sizeof *(words))

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Says whether the number at AT of a NAME is behind one of N words. */
static bool is_behind(const char *name, const char *at, const char *const *words, size_t n)
{
    if (at > name && strchr("_-.=", at[-1]))
        at--;
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(words[i]);
        if ((size_t)(at - name) >= length && strncasecmp(at - length, words[i], length) == 0 &&
            ((size_t)(at - name) == length || !is_letter(at[-(ptrdiff_t)length - 1])))
            return true;
    }
    return false;
}

/* Reads N digits; a number too large becomes UINT32_MAX. */
static uint32_t read_digits(const char *at, size_t n)
{
    uint64_t number = 0;

    for (size_t i = 0; i < n && number < UINT32_MAX; i++)
        number = number * 10 + (uint64_t)(at[i] - '0');
    return number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

/* Adds a place where names have different numbers: of NAME at AT, N digits. */
static void add_place(struct rfs_scan_counted *counted, const char *name, const char *at, size_t n)
{
    if (IS_BEHIND(name, at, rank_words))
        counted->ranks++;
    else if (IS_BEHIND(name, at, part_words))
        counted->parts++;
    else if (IS_BEHIND(name, at, save_words))
        counted->saves++;
    else
        counted->others++;
    counted->begin = (size_t)(at - name);
    counted->digits = n;
    counted->number = read_digits(at, n);
}

bool rfs_scan_count(const char *one, const char *other, struct rfs_scan_counted *counted)
{
    const char *x = one;
    const char *y = other;

    *counted = (struct rfs_scan_counted){0};
    while (*x || *y) {
        const size_t n = strspn(x, "0123456789");
        const size_t m = strspn(y, "0123456789");
        if ((n == 0 || m == 0) && *x != *y)
            return false;
        if (n != m || memcmp(x, y, n) != 0)
            add_place(counted, one, x, n);
        x += n > 0 ? n : 1;
        y += m > 0 ? m : 1;
    }
    return true;
}

bool rfs_scan_is_divided_by(const char *one, const char *other, struct rfs_scan_counted *counted)
{
    struct rfs_save x;
    struct rfs_save y;

    if (rfs_scan_name_save(one, &x) && rfs_scan_name_save(other, &y) &&
        rfs_scan_saves_compare(&x, &y) != 0)
        return false; /* part-1_3.ckpt and part-2_3.ckpt */
    return rfs_scan_count(one, other, counted) && counted->ranks + counted->parts > 0 &&
           counted->saves + counted->others == 0;
}

bool rfs_scan_name_counts_ranks(const char *name)
{
    const char *at = name + strlen(name);

    while (at > name && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return *at && IS_BEHIND(name, at, rank_words);
}

bool rfs_scan_number_of(const char *const *names, size_t n, size_t i, struct rfs_scan_counted *at)
{
    return rfs_scan_count(names[i], names[i > 0 ? 0 : n - 1], at) &&
           at->ranks + at->parts + at->saves + at->others == 1;
}

/* Says whether N names count from LOWEST, which is 0 or 1 at most, without a gap, at one place. */
static bool counts_up(const char *const *names, size_t n, uint32_t lowest)
{
    uint64_t most = 0;
    uint64_t least = UINT32_MAX;

    for (size_t i = 0; i < n; i++) {
        struct rfs_scan_counted at;
        if (!rfs_scan_number_of(names, n, i, &at))
            return false;
        most = at.number > most ? at.number : most;
        least = at.number < least ? at.number : least;
    }
    return n > 1 && least <= lowest && most - least == n - 1;
}

enum rfs_scan_division rfs_scan_division_of(const char *const *names, size_t n)
{
    struct rfs_scan_counted sum = {0};

    for (size_t i = 1; i < n; i++) {
        struct rfs_scan_counted at;
        if (!rfs_scan_count(names[0], names[i], &at))
            return RFS_SCAN_UNDIVIDED;
        sum.ranks += at.ranks;
        sum.parts += at.parts;
        sum.saves += at.saves;
        sum.others += at.others;
    }
    if (sum.ranks > 0)
        return sum.saves + sum.others + sum.parts == 0 && counts_up(names, n, 1)
                   ? RFS_SCAN_RANKS
                   : RFS_SCAN_DOUBTFUL;
    if (sum.parts > 0)
        return sum.saves + sum.others == 0 && counts_up(names, n, 1) ? RFS_SCAN_PARTS
                                                                     : RFS_SCAN_DOUBTFUL;
    return sum.saves == 0 && counts_up(names, n, 0) ? RFS_SCAN_DOUBTFUL : RFS_SCAN_UNDIVIDED;
}
