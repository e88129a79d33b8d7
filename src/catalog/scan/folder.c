/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder: its entries, the numbers in their names, its checkpoints, and which of them counts.
 *
 *   prefix-EPOCH_STEP.ckpt       ModelCheckpoint; prefix_N-… from the second run into a folder on
 *   prefix-EPOCH_STEP_breakpoint.ckpt   saved when training broke off
 *   rank_N, rank_00N             a rank's folder, its number read as int() does
 *
 * Names with a leading dot don't count, as glob passes over them. Of .ckpt files it is the last in
 * byte order (_transform_checkpoints of MindSpore 2.10); of .safetensors files the one whose path
 * ends with the greatest two numbers (_find_most_matching_file), which is not settled by the names
 * where two paths end with equal ones: MindSpore then takes whichever the folder lists last. Parts
 * of one checkpoint (divided.c) count together. Names that count ranks or parts (counted.c) are of
 * one save, whatever MindSpore takes.
 */
#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/store.h"
#include "base/text.h"
#include "base/vec.h"
#include "catalog/scan/internal.h"

/* ---- numbers in names ------------------------------------------------------------------------ */

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

bool rfs_scan_name_save(const char *name, struct rfs_save *save)
{
    enum rfs_format format;
    if (!rfs_format_of_name(name, &format))
        return false;
    size_t n = rfs_format_stem(name, format);
    if (ends_with(name, n, BROKEN))
        n -= strlen(BROKEN);
    return take_number(name, &n, '_', &save->step) && take_number(name, &n, '-', &save->epoch);
}

bool rfs_scan_name_is_pattern(const char *pattern)
{
    const char *at = strchr(pattern, '%');
    return at && at[1] == 'd' && !strchr(at + 1, '%') && !strchr(pattern, '/');
}

/* Reads N digits as a rank, or returns UINT32_MAX. */
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

bool rfs_scan_name_rank(const char *pattern, const char *name, uint32_t *rank)
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

/* A run of digits without leading zeros. */
struct run {
    const char *data;
    size_t n;
};

/* Finds the last two runs of digits, in their order. Returns how many there are. */
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

int rfs_scan_name_compare(const char *a, const char *b)
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

/* ---- entries --------------------------------------------------------------------------------- */

static int fail_folder(struct rfs_error *err, const char *path, int code)
{
    if (code == EXDEV)
        return rfs_beneath_fail(err, path);
    return rfs_fail(err, -code, RFS_IN(path), code == EACCES ? "check its permissions" : NULL,
                    "the folder cannot be listed: %s", rfs_store_why(path, code));
}

int rfs_scan_entry_next(struct rfs_dir *dir, const char *path, const struct dirent **entry,
                        struct rfs_error *err)
{
    *entry = rfs_dir_next(dir);
    return *entry || errno == 0 ? 0 : fail_folder(err, path, errno);
}

int rfs_scan_entry_each(struct rfs_store *store, const char *path, rfs_scan_entry_fn *each,
                        void *ctx, struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const struct dirent *entry = NULL;
    int rc = rfs_dir_open(store, path, &dir);

    if (rc < 0)
        return rfs_fail(err, rc, RFS_IN(path),
                        rfs_store_is_url(path) ? rfs_store_remedy(path, rc)
                                               : "check the folder's permissions",
                        "the source cannot be listed: %s", rfs_store_why(path, rc));
    while (rc == 0 && (rc = rfs_scan_entry_next(&dir, path, &entry, err)) == 0 && entry)
        rc = each(ctx, entry);
    return rc;
}

int rfs_scan_entry_is(const struct rfs_source_spec *spec, const char *path,
                      const struct dirent *entry, mode_t type, struct rfs_error *err)
{
    struct stat st;
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == IFTODT(type);
    RFS_FREE char *whole = rfs_path_join(path, entry->d_name);
    if (!whole)
        return rfs_fail_memory(err);
    const int failed = rfs_beneath_stat(spec->beneath, spec->store, whole, &st);
    if (failed == 0)
        return (st.st_mode & S_IFMT) == type;
    if (failed == -ENOENT || failed == -ENOTDIR || failed == -ELOOP)
        return 0;
    if (failed == -EXDEV)
        return rfs_beneath_fail(err, whole);
    return rfs_fail(err, failed, RFS_IN(whole), failed == -EACCES ? "check its permissions" : NULL,
                    "cannot be looked at: %s", strerror(-failed));
}

/* ---- lists of names -------------------------------------------------------------------------- */

void rfs_scan_names_add(struct rfs_scan_names *names, const char *name)
{
    if (names->n++ < RFS_SCAN_NAMES_SHOWN && names->used < sizeof names->text)
        names->used += (size_t)snprintf(names->text + names->used, sizeof names->text - names->used,
                                        "%s'%s'", names->n > 1 ? ", " : "", name);
}

const char *rfs_scan_names_end(struct rfs_scan_names *names)
{
    if (names->n > RFS_SCAN_NAMES_SHOWN && names->used < sizeof names->text)
        snprintf(names->text + names->used, sizeof names->text - names->used,
                 " and %" PRIu64 " more", names->n - RFS_SCAN_NAMES_SHOWN);
    return names->text;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

void rfs_scan_listing_free(struct rfs_scan_listing *listing)
{
    for (size_t i = 0; i < listing->n; i++)
        free(listing->data[i].name);
    free(listing->data);
    *listing = (struct rfs_scan_listing){0};
}

RFS_COMPARE(compare_found, struct rfs_scan_found, x, y, strcmp(x->name, y->name))

static bool is_wanted(const char *name, const char *glob)
{
    return glob ? rfs_glob_match_file(glob, name) : name[0] != '.';
}

/* Adds a checkpoint. False when out of memory. */
static bool add_found(struct rfs_scan_listing *listing, struct rfs_scan_found *found,
                      const char *name)
{
    found->name = strdup(name);
    if (found->name && RFS_PUSH(listing, *found))
        return true;
    free(found->name);
    return false;
}

int rfs_scan_listing_read(const struct rfs_source_spec *spec, const char *path, const char *glob,
                          struct rfs_scan_listing *out, struct rfs_error *err)
{
    RFS_CLOSE_DIR struct rfs_dir dir = {0};
    const int failed = rfs_beneath_dir(spec->beneath, spec->store, path, &dir);
    if (failed < 0)
        return fail_folder(err, path, -failed);
    for (;;) {
        const struct dirent *entry;
        struct rfs_scan_found found = {0};
        struct rfs_scan_part part;
        int rc = rfs_scan_entry_next(&dir, path, &entry, err);
        if (rc < 0)
            return rc;
        if (!entry)
            break;
        if (!rfs_format_of_name(entry->d_name, &found.format) || !is_wanted(entry->d_name, glob))
            continue;
        rc = rfs_scan_entry_is(spec, path, entry, S_IFREG, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        found.saved = rfs_scan_name_save(entry->d_name, &found.save);
        found.part = rfs_scan_name_part(entry->d_name, &part);
        if (!add_found(out, &found, entry->d_name))
            return rfs_fail_memory(err);
    }
    RFS_SORT_ALL(out, compare_found);
    return 0;
}

void rfs_scan_settle(const struct rfs_scan_listing *listings, size_t n,
                     struct rfs_scan_formats *out)
{
    *out = (struct rfs_scan_formats){.first = RFS_FORMAT_COUNT, .rival = RFS_FORMAT_COUNT};
    for (size_t i = n; i-- > 0;)
        for (size_t k = 0; k < listings[i].n; k++) {
            out->names[listings[i].data[k].format] = listings[i].data[k].name;
            out->at[listings[i].data[k].format] = i;
        }
    for (unsigned f = RFS_FORMAT_COUNT; f-- > 0;) {
        if (!out->names[f])
            continue;
        if (out->first < RFS_FORMAT_COUNT && !rfs_formats[out->first].beside)
            out->rival = out->first;
        out->first = (enum rfs_format)f;
    }
}

static int fail_tie(struct rfs_error *err, enum rfs_format format, const char *path, const char *a,
                    const char *b)
{
    if (rfs_formats[format].last == RFS_LAST_NONE)
        return rfs_fail(err, -EINVAL, RFS_IN(path), "file=GLOB that only one of them matches",
                        "the folder has several %s files, '%s' and '%s'",
                        rfs_formats[format].endings[0], a, b);
    return rfs_fail(err, -EINVAL, RFS_IN(path), "file=GLOB that only one of them matches",
                    "the numbers in '%s' and '%s' don't say which one is the last", a, b);
}

/* Refuses files that are no saves beside each other, as one save was divided into them. */
static int fail_counted(struct rfs_error *err, const char *path, const char *a, const char *b,
                        const struct rfs_scan_counted *counted)
{
    if (counted->ranks > 0)
        return rfs_fail(err, -EINVAL, RFS_IN(path),
                        "files=MAP, which names the file of each rank; or file=GLOB that only one "
                        "of them matches",
                        "by their names, '%s' and '%s' are of two ranks, and only one of them can "
                        "count here",
                        a, b);
    return rfs_fail(err, -EINVAL, RFS_IN(path),
                    "segmented to take all files as one; or file=GLOB that only one of them "
                    "matches",
                    "by their names, '%s' and '%s' are parts of one checkpoint", a, b);
}

int rfs_scan_found_divided(const char *path, const struct rfs_scan_found *const *files, size_t n,
                           bool several, struct rfs_error *err)
{
    bool some = false;

    for (size_t i = 0; i < n; i++)
        some |= files[i]->part;
    RFS_FREE const char **names = some ? calloc(n, sizeof *names) : NULL;
    if (!names)
        return some ? rfs_fail_memory(err) : 0;
    for (size_t i = 0; i < n; i++)
        names[i] = files[i]->name;
    return rfs_scan_divided(path, names, n, several, err);
}

int rfs_scan_choose(const struct rfs_scan_found *const *files, size_t n, const char *path,
                    enum rfs_format format, size_t *out, struct rfs_error *err)
{
    RFS_FREE char *best = NULL; /* path of *out, where numbers count */
    size_t rival = SIZE_MAX;    /* has the same numbers as *out */
    const int divided = rfs_scan_found_divided(path, files, n, false, err);

    *out = 0;
    if (divided != 0)
        return divided;
    const enum rfs_format_last rule = rfs_formats[format].last;
    *out = n > 0 ? (rule == RFS_LAST_NAME ? n - 1 : 0) : SIZE_MAX;
    if (rule == RFS_LAST_NONE && n > 1)
        rival = n - 1;
    for (size_t i = 0; rule == RFS_LAST_NUMBERS && i < n; i++) {
        RFS_FREE char *whole = rfs_path_join(path, files[i]->name);
        if (!whole)
            return rfs_fail_memory(err);
        const int order = best ? rfs_scan_name_compare(whole, best) : 1;
        if (order == 0)
            rival = i;
        if (order <= 0)
            continue;
        free(best);
        best = RFS_STEAL(whole);
        *out = i;
        rival = SIZE_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        struct rfs_scan_counted counted;
        if (i != *out && rfs_scan_is_divided_by(files[i]->name, files[*out]->name, &counted))
            return fail_counted(err, path, files[i]->name, files[*out]->name, &counted);
    }
    return rival == SIZE_MAX ? 0
                             : fail_tie(err, format, path, files[*out]->name, files[rival]->name);
}
