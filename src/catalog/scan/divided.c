/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One checkpoint in several files whose names count them. Such a number is no epoch, step or rank:
 *
 *   transformers   model-00001-of-00002.safetensors, model-00001-of-00002.fp16.safetensors,
 *                  pytorch_model-00001-of-00002.bin, tf_model-00001-of-00002.h5
 *   diffusers      diffusion_pytorch_model.fp16-00001-of-00002.safetensors
 *   llama.cpp      model-Q4_K_M-00001-of-00002.gguf
 *
 * The first number is 1; some writers begin with 0.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/text.h"
#include "catalog/scan/internal.h"

#define DIGITS_MOST 9

/* A part of a checkpoint, by its name. */
struct part {
    const char *name; /* borrowed */
    struct rfs_scan_part of;
};

/* ---- names ----------------------------------------------------------------------------------- */

/* Reads the N digits at TEXT. */
static uint32_t read_digits(const char *text, size_t n)
{
    uint32_t number = 0;

    for (size_t i = 0; i < n; i++)
        number = number * 10 + (uint32_t)(text[i] - '0');
    return number;
}

/* Reads the numbers around "of", which is at OF. */
static bool read_around(const char *name, const char *of, struct rfs_scan_part *out)
{
    const char separator = of > name ? of[-1] : '\0';
    const char *count = of + 3;
    const char *end = of - 1;

    if ((separator != '-' && separator != '_') || of[2] != separator)
        return false;
    const char *number = end;
    while (number > name && number[-1] >= '0' && number[-1] <= '9')
        number--;
    const size_t digits = (size_t)(end - number);
    const size_t behind = strspn(count, "0123456789");
    if (digits == 0 || digits > DIGITS_MOST || behind == 0 || behind > DIGITS_MOST ||
        count[behind] != '.')
        return false;
    *out = (struct rfs_scan_part){.begin = (size_t)(number - name),
                                  .end = (size_t)(count + behind - name),
                                  .digits = (unsigned)digits,
                                  .number = read_digits(number, digits),
                                  .count = read_digits(count, behind)};
    return out->count > 0;
}

bool rfs_scan_name_part(const char *name, struct rfs_scan_part *out)
{
    bool found = false;
    struct rfs_scan_part part;

    for (const char *of = name; (of = strstr(of, "of")) != NULL; of++)
        if (read_around(name, of, &part)) {
            *out = part;
            found = true;
        }
    return found;
}

char *rfs_scan_part_pattern(const char *name, const struct rfs_scan_part *part)
{
    const size_t number_end = part->begin + part->digits;

    return rfs_text_printf("%.*s*%s", (int)part->begin, name, name + number_end);
}

/* Compares what is around the numbers, which the parts of a checkpoint share. */
static int compare_stems(const struct part *x, const struct part *y)
{
    return rfs_order_bytes(x->name, x->of.begin, y->name, y->of.begin)
               ?: strcmp(x->name + x->of.end, y->name + y->of.end);
}

bool rfs_scan_is_first(const char *path, enum rfs_format format)
{
    struct rfs_scan_part part;

    return rfs_formats[format].divided && rfs_scan_name_part(rfs_path_name(path), &part) &&
           part.number <= 1 && part.count > 1;
}

bool rfs_scan_same_parts(const char *one, const char *other)
{
    struct part x = {.name = one};
    struct part y = {.name = other};

    return rfs_scan_name_part(one, &x.of) && rfs_scan_name_part(other, &y.of) &&
           x.of.count == y.of.count && compare_stems(&x, &y) == 0;
}

RFS_COMPARE(by_number, struct part, x, y,
            compare_stems(x, y) ?: RFS_ORDER(x->of.count, y->of.count)
            ?: RFS_ORDER(x->of.number, y->of.number)
            ?: strcmp(x->name, y->name))

/* ---- one checkpoint -------------------------------------------------------------------------- */

static int fail_beside(const char *path, const struct part *part, const char *other,
                       struct rfs_error *err)
{
    RFS_FREE char *pattern = rfs_scan_part_pattern(part->name, &part->of);
    RFS_FREE char *remedy =
        pattern ? rfs_text_printf("file='%s', if these parts are the checkpoint", pattern) : NULL;

    if (!remedy)
        return rfs_fail_memory(err);
    return rfs_fail(err, -EINVAL, RFS_IN(path), remedy,
                    "'%s', a part of %" PRIu32 ", and '%s' are not files of one checkpoint, by "
                    "their names",
                    part->name, part->of.count, other);
}

/* Refuses parts FIRST[0, n) of one checkpoint that lacks others. */
static int fail_missing(const char *path, const struct part *first, size_t n, uint32_t from,
                        struct rfs_error *err)
{
    struct rfs_scan_names missing = {.n = 0};
    const uint32_t count = first->of.count;
    uint32_t number = from;
    enum rfs_format format;

    for (size_t i = 0; i <= n && missing.n < RFS_SCAN_NAMES_SHOWN; i++) {
        const uint32_t next = i < n ? first[i].of.number : from + count;
        for (; number < next && missing.n < RFS_SCAN_NAMES_SHOWN; number++) {
            RFS_FREE char *name = rfs_text_printf("%.*s%0*" PRIu32 "%s", (int)first->of.begin,
                                                  first->name, (int)first->of.digits, number,
                                                  first->name + first->of.begin + first->of.digits);
            if (!name)
                return rfs_fail_memory(err);
            rfs_scan_names_add(&missing, name);
        }
        number = next + 1;
    }
    missing.n = count - n;
    const char *list = rfs_scan_names_end(&missing);
    const bool divided = rfs_format_of_name(first->name, &format) && rfs_formats[format].divided;
    return rfs_fail(
        err, -ENOENT, RFS_IN(path),
        divided ? "all parts in one folder"
                : "all parts in one folder; or a file itself as the source, for its tensors alone",
        "%s %s missing, of %" PRIu32 " parts of one checkpoint", list,
        missing.n == 1 ? "is" : "are", count);
}

/* Checks that N parts of one checkpoint, by number, are all of it. */
static int check_whole(const char *path, const struct part *parts, size_t n, struct rfs_error *err)
{
    const uint32_t from = parts->of.number == 0 ? 0 : 1;
    const struct part *last = &parts[n - 1];

    for (size_t i = 1; i < n; i++)
        if (parts[i].of.number == parts[i - 1].of.number)
            return rfs_fail(err, -EINVAL, RFS_IN(path), "move one of them away",
                            "'%s' and '%s' have the number of one part", parts[i - 1].name,
                            parts[i].name);
    if (last->of.number - from >= last->of.count)
        return rfs_fail(err, -EINVAL, RFS_IN(path), "the names that the files were saved by",
                        "'%s' has a number beyond the last of %" PRIu32 " parts, which begin with "
                        "%" PRIu32,
                        last->name, last->of.count, from);
    return n == last->of.count ? 0 : fail_missing(path, parts, n, from, err);
}

/* Returns the end of the parts of one checkpoint that begin at FROM. */
static size_t end_of_checkpoint(const struct part *parts, size_t n, size_t from)
{
    size_t end = from + 1;

    while (end < n && compare_stems(&parts[from], &parts[end]) == 0 &&
           parts[from].of.count == parts[end].of.count)
        end++;
    return end;
}

/* Sorts parts, and leaves out names that come again. Returns how many are left. */
static size_t sort_parts(struct part *parts, size_t n)
{
    size_t left = 0;

    RFS_SORT(parts, n, by_number);
    for (size_t i = 0; i < n; i++)
        if (left == 0 || strcmp(parts[left - 1].name, parts[i].name) != 0)
            parts[left++] = parts[i];
    return left;
}

int rfs_scan_divided(const char *path, const char *const *names, size_t n, bool several,
                     struct rfs_error *err)
{
    RFS_FREE struct part *parts = calloc(n + 1, sizeof *parts);
    const char *other = NULL; /* a file that is no part */
    size_t n_parts = 0;
    int rc = 0;

    if (!parts)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        parts[n_parts].name = names[i];
        if (rfs_scan_name_part(names[i], &parts[n_parts].of))
            n_parts++;
        else
            other = other ? other : names[i];
    }
    n_parts = sort_parts(parts, n_parts);
    if (n_parts > 0 && other && !several)
        return fail_beside(path, parts, other, err);
    for (size_t i = 0, end; rc == 0 && i < n_parts; i = end) {
        const struct part *next = parts + (end = end_of_checkpoint(parts, n_parts, i));
        if (end < n_parts && (!several || compare_stems(&parts[i], next) == 0))
            return fail_beside(path, &parts[i], next->name, err);
        rc = check_whole(path, &parts[i], end - i, err);
    }
    return rc < 0 ? rc : n_parts > 0;
}
