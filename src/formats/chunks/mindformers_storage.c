/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storage_data: for each slice the files that hold a copy of it.
 *
 *   "('w', (3,))": [{"file_name": …, "storage_rank": 3, "rank_group": [3, 7]}, …]
 *
 * The key is Python's text of a name and a slice's number. rank_group is the list of the ranks
 * that have the slice in memory, in each entry again; only layouts need it.
 */
#include "formats/chunks/mindformers_internal.h"

#include "base/order.h"

#define REMEDY "the file as MindSpore Transformers wrote it"

static int fail(const struct rfs_mf *mf, const char *what)
{
    return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY, "%s", what);
}

/* ---- keys ---- */

/* N hexadecimal digits as a character; 0: they are none. */
static uint32_t read_code(const char *at, const char *end, unsigned n)
{
    uint32_t code = 0;

    if ((size_t)(end - at) < n)
        return 0;
    for (unsigned i = 0; i < n; i++) {
        const char c = at[i];
        const uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                               : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                                                      : 16;
        if (digit == 16)
            return 0;
        code = code << 4 | digit;
    }
    return code;
}

/*
 * Appends a character as UTF-8, which takes up to 4 bytes. False for a number that is no character.
 */
static bool put_code(char *out, size_t *n, uint32_t code)
{
    if (code == 0 || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
        return false;
    if (code < 0x80) {
        out[(*n)++] = (char)code;
        return true;
    }
    const unsigned more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[(*n)++] = (char)(lead[more] | code >> 6 * more);
    for (unsigned i = more; i-- > 0;)
        out[(*n)++] = (char)(0x80 | (code >> 6 * i & 0x3f));
    return true;
}

/* An escape in a text that Python printed, behind its backslash. Moves *AT behind it. */
static bool read_escape(const char **at, const char *end, char *out, size_t *n)
{
    static const char from[] = "\\'\"nrt";
    static const char to[] = "\\'\"\n\r\t";
    const char c = *at < end ? *(*at)++ : 0;
    const char *found = c ? strchr(from, c) : NULL;
    const unsigned digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;

    if (found) {
        out[(*n)++] = to[found - from];
        return true;
    }
    if (digits == 0 || !put_code(out, n, read_code(*at, end, digits)))
        return false;
    *at += digits;
    return true;
}

/*
 * A text that Python printed, which ends with the quote that it began with; the name of a tensor.
 */
static bool read_name(struct rfs_mf *mf, const char **at, const char *end)
{
    const char quote = *at < end ? *(*at)++ : 0;
    size_t n = 0;

    if ((quote != '\'' && quote != '"') || !rfs_mf_keep(&mf->name, *at, (size_t)(end - *at)))
        return false;
    while (*at < end && **at != quote) {
        const char c = *(*at)++;
        if (c != '\\')
            mf->name.data[n++] = c;
        else if (!read_escape(at, end, mf->name.data, &n)) /* longer than the character */
            return false;
    }
    mf->name.data[n] = '\0';
    mf->name.n = n;
    return *at < end && *(*at)++ == quote;
}

/* ", (3,))" */
static bool read_number(const char *at, const char *end, uint64_t *number)
{
    const char *digits;

    *number = 0;
    if (end - at < 7 || memcmp(at, ", (", 3) != 0)
        return false;
    for (digits = at += 3; at < end && *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*at - '0'), number))
            return false;
    return at > digits && (*digits != '0' || at == digits + 1) && end - at == 3 &&
           memcmp(at, ",))", 3) == 0;
}

static int read_key(struct rfs_mf *mf, uint64_t *number)
{
    const char *at = mf->json.text;
    const char *end = at + mf->json.text_n;

    mf->name.n = 0;
    if (end - at > 1 && *at++ == '(' && read_name(mf, &at, end) && read_number(at, end, number))
        return 0;
    return rfs_fail(mf->err, -EINVAL, RFS_AT(mf->path, rfs_json_read_place(&mf->json)), REMEDY,
                    "the key %.200s is not ('NAME', (NUMBER,))", mf->json.text);
}

/* ---- copies ---- */

/* Of a slice: the lowest rank with a copy, and the lowest whose file is there; or UINT64_MAX. */
struct copies {
    uint64_t lowest, best;
};

/* [3, 7] */
static int read_group(struct rfs_mf *mf, uint64_t number)
{
    uint64_t rank;
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_element(&mf->json, &first) &&
           rfs_json_read_u64(&mf->json, &rank))
        rc = rfs_mf_note_rank(mf, number, rank);
    return rc ? rc : rfs_mf_ended(mf);
}

/* {"file_name": …, "storage_rank": …, "rank_group": …} */
static int read_copy(struct rfs_mf *mf, uint64_t number, uint64_t *rank)
{
    struct rfs_json_read *json = &mf->json;
    bool first = true, has_file = false, has_rank = false;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(json, &first)) {
        if (rfs_json_read_is(json, "file_name")) {
            if (!rfs_json_read_string(json))
                break;
            if (!rfs_mf_keep(&mf->file, json->text, json->text_n))
                return rfs_fail_memory_of(mf->err, mf->path);
            has_file = true;
        } else if (rfs_json_read_is(json, "storage_rank")) {
            has_rank = rfs_json_read_u64(json, rank);
        } else if (mf->layouts && rfs_json_read_is(json, "rank_group")) {
            rc = read_group(mf, number);
        } else {
            rfs_json_read_skip(json);
        }
    }
    if (rc == 0)
        rc = rfs_mf_ended(mf);
    if (rc)
        return rc;
    if (!has_file || !has_rank)
        return fail(mf, "a copy of its slice has no file_name or no storage_rank");
    if (mf->file.n == 0 || memchr(mf->file.data, '/', mf->file.n))
        return rfs_fail(mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY,
                        "its file_name '%.200s' is not the name of a file in this folder",
                        mf->file.data);
    return 0;
}

static void swap(struct rfs_mf_text *a, struct rfs_mf_text *b)
{
    const struct rfs_mf_text was = *a;
    *a = *b;
    *b = was;
}

/* Notes the copy that was read, and takes it if it is the best so far. */
static int take_copy(struct rfs_mf *mf, struct copies *copies, uint64_t rank)
{
    const uint32_t number = rfs_chunks_copy_file(mf->boxes, mf->file.data, mf->file.n, mf->err);
    const bool lower = rank < copies->lowest;
    const uint32_t listed = rfs_intern_find(mf->listing, mf->file.data, mf->file.n);
    const bool there = rank < copies->best && listed != RFS_NO_ID;

    if (listed != RFS_NO_ID)
        mf->named.data[listed] = 1;

    if (number == RFS_NO_ID || !RFS_PUSH(&mf->copies, number))
        return rfs_fail_memory_of(mf->err, mf->path);
    if (lower) {
        copies->lowest = rank;
        if (!there && !rfs_mf_keep(&mf->first, mf->file.data, mf->file.n))
            return rfs_fail_memory_of(mf->err, mf->path);
    }
    if (there) {
        copies->best = rank;
        swap(&mf->best, &mf->file);
    }
    return 0;
}

static int note_missing(struct rfs_mf *mf)
{
    mf->stand_ins++;
    if (!mf->missing && (mf->missing = rfs_intern_new()) == NULL)
        return rfs_fail_memory_of(mf->err, mf->path);
    return rfs_intern_add(mf->missing, mf->first.data, mf->first.n) == RFS_NO_ID
               ? rfs_fail_memory_of(mf->err, mf->path)
               : 0;
}

RFS_COMPARE(by_number, uint32_t, x, y, RFS_ORDER(*x, *y))

/* Stores the files of the slice at hand but the one that is taken, each once. */
static int store_others(struct rfs_mf *mf, const struct rfs_chunked_tensor *tensor,
                        const uint64_t *offset)
{
    const uint32_t taken = rfs_chunks_copy_file(mf->boxes, mf->best.data, mf->best.n, mf->err);
    uint32_t *files = mf->copies.data;
    size_t n = 0;

    RFS_SORT(files, mf->copies.n, by_number);
    for (size_t i = 0; i < mf->copies.n; i++)
        if (files[i] != taken && (n == 0 || files[i] != files[n - 1]))
            files[n++] = files[i];
    return taken == RFS_NO_ID
               ? mf->err->code
               : rfs_chunks_store_copies(mf->boxes, tensor, offset, files, NULL, n, mf->err);
}

static int store(struct rfs_mf *mf, uint64_t number)
{
    const struct rfs_chunked_tensor *tensor = rfs_chunks_find(mf->boxes, mf->name.data, mf->name.n);
    uint64_t offset[RFS_MAX_DIMS];

    if (!tensor)
        return fail(mf, "storage_data has slices of it, but state_dict_metadata lacks the tensor");
    const struct rfs_type *whole = rfs_chunks_type(mf->boxes, tensor->type);
    if (tensor->n == 0)
        return 0; /* it has no elements, or the proof that it is whole will fail */
    const struct rfs_type *slice =
        rfs_chunks_type(mf->boxes, mf->boxes->chunks.data[tensor->first].type);
    uint64_t rest = number;
    for (uint32_t i = whole->ndim; i-- > 0;) {
        const uint64_t pieces = whole->dims[i] / slice->dims[i];
        offset[i] = rest % pieces * slice->dims[i];
        rest /= pieces;
    }
    if (rest > 0)
        return rfs_fail(
            mf->err, -EINVAL, RFS_MF_HERE(mf), REMEDY,
            "storage_data has a slice %" PRIu64 " of it, but axis_fragmentations does not", number);
    const uint32_t file = rfs_chunks_file(mf->boxes, mf->best.data, mf->best.n, mf->err);
    if (file == RFS_NO_ID)
        return mf->err->code;
    return rfs_chunks_store(mf->boxes, tensor, offset, file, 0, 0, mf->err)
               ?: store_others(mf, tensor, offset);
}

static int read_slice(struct rfs_mf *mf, uint64_t number)
{
    struct copies copies = {.lowest = UINT64_MAX, .best = UINT64_MAX};
    uint64_t rank = 0;
    bool first = true;
    int rc = 0;

    mf->n_seen++;
    mf->copies.n = 0;
    while (rc == 0 && rfs_json_read_element(&mf->json, &first)) {
        rc = read_copy(mf, number, &rank);
        if (rc == 0 && mf->layouts)
            rc = rfs_mf_note_rank(mf, number, rank);
        else if (rc == 0)
            rc = take_copy(mf, &copies, rank);
    }
    if (rc == 0)
        rc = rfs_mf_ended(mf);
    if (rc || mf->layouts)
        return rc;
    if (copies.lowest == UINT64_MAX)
        return fail(mf, "storage_data names no file for a slice of it");
    if (copies.best == UINT64_MAX)
        return rfs_fail(mf->err, -ENOENT, RFS_MF_HERE(mf),
                        "an iteration with all its files, or the files from the place of the save",
                        "its slice %" PRIu64
                        " is in '%.200s', which is missing, and in no other file",
                        number, mf->first.data);
    if (copies.best != copies.lowest && (rc = note_missing(mf)) != 0)
        return rc;
    return store(mf, number);
}

int rfs_mf_read_storage(struct rfs_mf *mf)
{
    uint64_t number = 0;
    bool first = true;
    int rc = 0;

    while (rc == 0 && rfs_json_read_member(&mf->json, &first)) {
        rc = read_key(mf, &number) ?: read_slice(mf, number);
    }
    return rc ? rc : rfs_mf_ended(mf);
}
