/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which names may be of one save. A save's name is the same in all ranks. Only each rank's own
 * number differs, which stands in the same places of all of them:
 *
 *   rank_3/net_1-2_4.ckpt             one save with rank_0/net_1-2_4.ckpt, not with net-2_4.ckpt
 *   rank_3/llama_rank_3-2_4.ckpt      one save with rank_0/llama_rank_0-2_4.ckpt
 *   rank_3/part-3_8.ckpt              one save with rank_0/part-0_8.ckpt
 *   rank_11/net_3.ckpt                one save with rank_8/net_0.ckpt: ranks are counted anew in
 *                                     each node or stage
 *
 * Each run of digits is a place. What it may mean is what fits all names: a text that they share,
 * or the rank, with or without leading zeros. MindSpore counts saves in three places itself: the
 * epoch, the step, and the "_1" before them of a second run into the folder. So rank_1/net_1-2_4
 * and rank_2/net_2-2_4 may be the second run's and the third's. There a number is the rank's only
 * if one of them is 0, which MindSpore never writes, or if "rank" is before it. Numbers that count
 * the parts of a checkpoint (divided.c) say nothing of the save.
 */
#include "base/checked.h"
#include "catalog/scan/internal.h"

#define BROKEN "_breakpoint"
#define PART "part"
#define RANK "rank"

/* What a place may mean. */
enum {
    A_TEXT = 1,   /* the same digits in all names */
    A_RANK = 2,   /* the rank, or what is left when it is divided by the ranks of a node or stage */
    A_PADDED = 4, /* the rank with as many digits in all names */
    A_PART = 8,   /* any number, of a part */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits_at(const char *at)
{
    return strspn(at, "0123456789");
}

/* Says whether the place at AT of a NAME is behind a WORD, maybe with "_" or "-" between. */
static bool is_behind(const char *name, const char *at, const char *word)
{
    const size_t n = strlen(word);

    if (at > name && (at[-1] == '_' || at[-1] == '-'))
        at--;
    return (size_t)(at - name) >= n && strncasecmp(at - n, word, n) == 0;
}

/*
 * Narrows what a place may mean by N digits at Y in the name of a file of RANK; beside X, M digits
 * of the first name.
 */
static void narrow(struct rfs_scan_place *place, const char *x, size_t m, const char *y, size_t n,
                   uint32_t rank)
{
    uint64_t number = 0;

    for (size_t i = 0; i < n && number <= rank; i++)
        number = number * 10 + (uint64_t)(y[i] - '0');
    if (n != m || memcmp(x, y, n) != 0)
        place->meanings &= (unsigned char)~A_TEXT;
    if (n != m || n == 1 || number != rank)
        place->meanings &= (unsigned char)~A_PADDED;
    if (number <= rank) {
        place->ranks = rfs_gcd_u64(place->ranks, rank - number);
        place->most = rfs_max_u64(place->most, number);
        place->zero |= number == 0;
    }
    if (number > rank || (n > 1 && y[0] == '0') ||
        (place->ranks > 0 && place->most >= place->ranks))
        place->meanings &= (unsigned char)~A_RANK;
}

void rfs_scan_same_free(struct rfs_scan_same *same)
{
    free(same->places);
    same->name = NULL;
    same->places = NULL;
}

static int begin(struct rfs_scan_same *same, const char *name, uint32_t rank)
{
    struct rfs_scan_part part;
    const bool divided = rfs_scan_name_part(name, &part);
    size_t n = 0;

    same->places = calloc(strlen(name) + 1, sizeof *same->places);
    if (!same->places)
        return -ENOMEM;
    same->name = name;
    for (const char *at = name; *at; at++) {
        const size_t digits = digits_at(at);
        if (digits == 0)
            continue;
        const bool counts = divided && at >= name + part.begin && at < name + part.end;
        const bool any = same->any_part && is_behind(name, at, PART);
        same->places[n].meanings =
            counts ? A_PART : A_TEXT | A_RANK | A_PADDED | (any ? A_PART : 0);
        narrow(&same->places[n++], at, digits, at, digits, rank);
        at += digits - 1;
    }
    return 1;
}

/*
 * Walks through both names, and narrows the places with SET. Says whether they may be of one save.
 */
static bool compare(const struct rfs_scan_same *same, const char *name, uint32_t rank, bool set)
{
    const char *x = same->name;
    const char *y = name;

    for (size_t i = 0; *x || *y; i++) {
        for (; *x == *y && *x && !is_digit(*x); y++)
            x++;
        const size_t n = digits_at(x);
        const size_t m = digits_at(y);
        if (n == 0 || m == 0)
            return !*x && !*y;
        struct rfs_scan_place place = same->places[i];
        narrow(&place, x, n, y, m, rank);
        if (place.meanings == 0)
            return false;
        if (set)
            same->places[i] = place;
        x += n;
        y += m;
    }
    return true;
}

int rfs_scan_same_add(struct rfs_scan_same *same, const char *name, uint32_t rank)
{
    if (!same->name)
        return begin(same, name, rank);
    if (!compare(same, name, rank, false))
        return 0;
    compare(same, name, rank, true);
    return 1;
}

/* ---- numbers that are no rank's -------------------------------------------------------------- */

/* Returns where the places begin in which MindSpore counts saves; NULL: the name is no save's. */
static const char *counted(const char *name)
{
    struct rfs_save save;
    const char *at = strrchr(name, '.');

    if (!rfs_scan_name_save(name, &save))
        return NULL;
    if ((size_t)(at - name) > strlen(BROKEN) &&
        strncmp(at - strlen(BROKEN), BROKEN, strlen(BROKEN)) == 0)
        at -= strlen(BROKEN);
    while (*--at != '-') /* the epoch and the step are behind it */
        continue;
    const char *suffix = at;
    while (suffix > name && is_digit(suffix[-1]))
        suffix--;
    return suffix < at && suffix > name && suffix[-1] == '_' && !is_behind(name, suffix, RANK)
               ? suffix
               : at;
}

bool rfs_scan_same_counts_ranks(const struct rfs_scan_same *same)
{
    const char *from = counted(same->name);
    size_t i = 0;

    for (const char *at = same->name; *at; at++) {
        const size_t digits = digits_at(at);
        if (digits == 0)
            continue;
        const struct rfs_scan_place *place = &same->places[i++];
        const bool is_rank = place->ranks == 0 && !(from && at >= from);
        if (!(place->meanings & (A_TEXT | A_PART)) && !place->zero && !is_rank)
            return false;
        at += digits - 1;
    }
    return true;
}

bool rfs_scan_same_rival(const struct rfs_scan_same *same, const char *chosen, const char *name)
{
    bool differ = false;

    for (size_t place = 0; *chosen || *name; place++) {
        for (; *chosen == *name && *name && !is_digit(*name); name++)
            chosen++;
        const size_t n = digits_at(chosen);
        const size_t m = digits_at(name);
        if (n == 0 || m == 0)
            return differ && !*chosen && !*name;
        if (n != m || memcmp(chosen, name, n) != 0) {
            if (same->places[place].meanings & (A_TEXT | A_PART))
                return false;
            differ = true;
        }
        chosen += n;
        name += m;
    }
    return differ;
}

char *rfs_scan_same_pattern(const struct rfs_scan_same *same)
{
    char *out = NULL;
    size_t size;
    size_t place = 0;
    FILE *file = open_memstream(&out, &size);

    for (const char *at = same->name; file && *at;) {
        const size_t digits = digits_at(at);
        if (digits > 0 && !(same->places[place++].meanings & A_TEXT))
            fputc('*', file);
        else
            fprintf(file, "%s%.*s", strchr("*?[\\", *at) ? "\\" : "", digits > 0 ? (int)digits : 1,
                    at);
        at += digits > 0 ? digits : 1;
    }
    if (file && fclose(file) == 0)
        return out;
    free(out);
    return NULL;
}
