/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers in file names.
 *
 *   prefix-EPOCH_STEP.ckpt       ModelCheckpoint; prefix_N-… from the second run into a folder on
 *   prefix-EPOCH_STEP_breakpoint.ckpt   the same, saved when training broke off
 *   rank_N, rank_00N             a rank's folder, its number read as int() does
 */
#include "catalog/scan/internal.h"

#define SAVE_DIGITS 18 /* fit 63 bits */
#define BROKEN "_breakpoint"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool ends_with(const char *text, size_t n, const char *ending)
{
    const size_t k = strlen(ending);
    return n >= k && memcmp(text + n - k, ending, k) == 0;
}

const char *rfs_format_ending(enum rfs_format format)
{
    static const char *const endings[] = {".ckpt", ".safetensors", ".pt"};

    return endings[format];
}

bool rfs_name_format(const char *name, enum rfs_format *format)
{
    for (int i = 0; i < RFS_FORMAT_COUNT; i++) {
        *format = (enum rfs_format)i;
        if (ends_with(name, strlen(name), rfs_format_ending(*format)))
            return true;
    }
    return false;
}

/*
 * Takes the digits off the end of TEXT[0, *n), with the character before them, which must be
 * BEFORE.
 */
static bool take_number(const char *text, size_t *n, char before, int64_t *number)
{
    size_t start = *n;
    while (start > 0 && is_digit(text[start - 1]))
        start--;
    if (start == *n || *n - start > SAVE_DIGITS || start == 0 || text[start - 1] != before)
        return false;
    *number = 0;
    for (size_t i = start; i < *n; i++)
        *number = *number * 10 + (text[i] - '0');
    *n = start - 1;
    return true;
}

bool rfs_name_save(const char *name, struct rfs_save *save)
{
    enum rfs_format format;
    if (!rfs_name_format(name, &format))
        return false;
    size_t n = strlen(name) - strlen(rfs_format_ending(format));
    if (ends_with(name, n, BROKEN))
        n -= strlen(BROKEN);
    return take_number(name, &n, '_', &save->step) && take_number(name, &n, '-', &save->epoch);
}

bool rfs_name_is_pattern(const char *pattern)
{
    const char *at = strchr(pattern, '%');
    return at && at[1] == 'd' && !strchr(at + 1, '%') && !strchr(pattern, '/');
}

/* N digits as a number, or UINT32_MAX. */
static uint32_t read_rank(const char *digits, size_t n)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n; i++) {
        number = number * 10 + (uint64_t)(digits[i] - '0');
        if (number > RFS_MAX_RANK)
            return UINT32_MAX;
    }
    return (uint32_t)number;
}

bool rfs_name_rank(const char *pattern, const char *name, uint32_t *rank)
{
    const size_t before = (size_t)(strchr(pattern, '%') - pattern);
    const char *after = pattern + before + 2;
    if (strncmp(name, pattern, before) != 0)
        return false;
    name += before;
    const size_t n = strlen(name);
    if (n <= strlen(after) || !ends_with(name, n, after))
        return false;
    const size_t digits = n - strlen(after);
    for (size_t i = 0; i < digits; i++)
        if (!is_digit(name[i]))
            return false;
    *rank = read_rank(name, digits);
    return true;
}

bool rfs_name_decimal(const char *text, uint32_t *rank)
{
    const size_t n = strspn(text, "0123456789");
    if (n == 0 || text[n] != '\0' || (text[0] == '0' && n > 1))
        return false;
    *rank = read_rank(text, n);
    return *rank <= RFS_MAX_RANK;
}

/* A run of digits without leading zeros. */
struct run {
    const char *data;
    size_t n;
};

/* The last two runs of digits, in their order; how many there are. */
static size_t last_runs(const char *text, struct run runs[2])
{
    size_t end = strlen(text);
    size_t found = 0;
    while (found < 2) {
        while (end > 0 && !is_digit(text[end - 1]))
            end--;
        if (end == 0)
            break;
        size_t start = end;
        while (start > 0 && is_digit(text[start - 1]))
            start--;
        struct run run = {text + start, end - start};
        for (; run.n > 1 && *run.data == '0'; run.n--)
            run.data++;
        runs[1] = runs[0];
        runs[0] = run;
        found++;
        end = start;
    }
    return found;
}

int rfs_name_compare(const char *a, const char *b)
{
    struct run x[2] = {{0}};
    struct run y[2] = {{0}};
    const size_t n = last_runs(a, x);
    const size_t m = last_runs(b, y);
    for (size_t i = 0; i < n && i < m; i++) {
        if (x[i].n != y[i].n)
            return x[i].n < y[i].n ? -1 : 1;
        const int order = memcmp(x[i].data, y[i].data, x[i].n);
        if (order != 0)
            return order;
    }
    return n < m ? -1 : n > m;
}
