/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/loads.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL (UINT64_C(1) << 20) /* bytes */
#define BOXES 4                   /* of each tensor */
#define AT_ONCE 64                /* loads of a call, about */

struct check {
    reshard_view *view;
    reshard_tensors *tensors;
    const char *folder; /* "full" and so on */
    uint64_t id;        /* its */
    uint64_t random;
    bool large;
    struct loads *out;
};

/* A box of a tensor, what is loaded of it, and what its file says. */
struct box {
    size_t tensor;
    reshard_load load;
    uint64_t begin[RESHARD_TENSOR_DIMS], end[RESHARD_TENSOR_DIMS];
    unsigned char *got, *want;
    size_t bytes;
};

static uint64_t draw(struct check *check, uint64_t n)
{
    check->random = check->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (check->random >> 33) % n;
}

static void differ(struct check *check, const char *name, const char *what)
{
    if (!check->out->why[0])
        snprintf(check->out->why, sizeof check->out->why, "%s: %s: %.300s", check->folder, name,
                 what);
}

/* Reads the file of tensor I: its content, which the caller frees, or NULL with *rc set. */
static unsigned char *read_file(struct check *check, size_t i, uint64_t bytes, int *rc)
{
    reshard_dirent entry = {.struct_size = sizeof entry};
    reshard_stat st = {.struct_size = sizeof st};

    /* Each tensor has two files; the first is the .npy. */
    *rc = reshard_list(check->view, check->id, 2 * i, &entry) == 1 ? 0 : -EIO;
    if (*rc == 0)
        *rc = reshard_getattr(check->view, entry.id, &st, NULL);
    if (*rc)
        return NULL;
    if (st.size < bytes) {
        *rc = -ERANGE;
        return NULL;
    }
    unsigned char *data = malloc(bytes + 1);
    const ssize_t n =
        data ? reshard_pread(check->view, entry.id, data, bytes, st.size - bytes) : -ENOMEM;
    if (n == (ssize_t)bytes)
        return data;
    *rc = n < 0 ? (int)n : -EIO;
    free(data);
    return NULL;
}

/* Copies a box element by element. */
static void cut(const reshard_tensor *tensor, const struct box *box, const unsigned char *whole,
                size_t item)
{
    uint64_t at[RESHARD_TENSOR_DIMS];
    unsigned char *to = box->want;

    memcpy(at, box->begin, sizeof at);
    for (size_t done = 0; done < box->bytes; done += item) {
        uint64_t number = 0;
        for (uint32_t a = 0; a < tensor->ndim; a++)
            number = number * tensor->shape[a] + at[a];
        memcpy(to + done, whole + number * item, item);
        for (uint32_t a = tensor->ndim; a-- > 0 && ++at[a] == box->end[a];)
            at[a] = box->begin[a];
    }
}

/* Makes a box; the first one of a tensor is all of it. False when out of memory. */
static bool make_box(struct check *check, const reshard_tensor *tensor, unsigned number,
                     const unsigned char *whole, struct box *box)
{
    uint64_t elements = 1;
    uint64_t of_box = 1;

    for (uint32_t a = 0; a < tensor->ndim; a++) {
        box->begin[a] = draw(check, tensor->shape[a] + 1);
        box->end[a] = box->begin[a] + draw(check, tensor->shape[a] - box->begin[a] + 1);
        if (draw(check, 3) == 0) {
            box->begin[a] = 0;
            box->end[a] = tensor->shape[a];
        }
        elements *= tensor->shape[a];
        of_box *= box->end[a] - box->begin[a];
    }
    const size_t item = elements > 0 ? (size_t)(tensor->bytes / elements) : 0;
    box->bytes = number == 0 ? (size_t)tensor->bytes : (size_t)of_box * item;
    box->want = malloc(box->bytes + 1);
    box->got = malloc(box->bytes + 1);
    if (!box->want || !box->got)
        return false;
    memset(box->got, 0xa5, box->bytes + 1);
    if (number == 0)
        memcpy(box->want, whole, box->bytes);
    else
        cut(tensor, box, whole, item);
    return true;
}

/* Loads the boxes by one call, and compares and frees them. */
static void flush(struct check *check, struct box *boxes, size_t n)
{
    reshard_load loads[AT_ONCE + BOXES + 1] = {0};
    reshard_error err = {.struct_size = sizeof err};
    reshard_tensor tensor = {.struct_size = sizeof tensor};

    for (size_t i = 0; i < n; i++) {
        struct box *box = &boxes[i];
        box->load.to = box->got;
        if (box->load.begin) { /* it has moved */
            box->load.begin = box->begin;
            box->load.end = box->end;
        }
        loads[i] = box->load;
    }
    const int rc = reshard_tensors_load(check->tensors, loads, n, NULL, NULL, &err);
    for (size_t i = 0; i < n; i++) {
        struct box *box = &boxes[i];
        reshard_tensors_get(check->tensors, box->tensor, &tensor);
        if (rc)
            differ(check, tensor.name, err.message);
        else if (memcmp(box->got, box->want, box->bytes) != 0)
            differ(check, tensor.name,
                   box->load.begin ? "a box has other bytes" : "it has other bytes");
        else if (box->got[box->bytes] != 0xa5)
            differ(check, tensor.name, "bytes behind it were written");
        free(box->got);
        free(box->want);
    }
}

/* Says whether a tensor that has no readable file fails to load, too. */
static void expect_failure(struct check *check, size_t i, const reshard_tensor *tensor, int rc)
{
    reshard_error err = {.struct_size = sizeof err};
    unsigned char *to = malloc(tensor->bytes + 1);
    const reshard_load load = {.tensor = i, .to = to};

    check->out->failed++;
    if (to && rc != -ERANGE &&
        reshard_tensors_load(check->tensors, &load, 1, NULL, NULL, &err) == 0)
        differ(check, tensor->name, "it could be loaded, but its file could not be read");
    else if (to && rc != -ERANGE && !strstr(err.message, "memory") && !err.message[0])
        differ(check, tensor->name, "it failed without a message");
    free(to);
}

static void check_list(struct check *check)
{
    struct box boxes[AT_ONCE + BOXES + 1];
    reshard_tensor tensor = {.struct_size = sizeof tensor};
    size_t n = 0;

    for (size_t i = 0; reshard_tensors_get(check->tensors, i, &tensor) == 0; i++) {
        size_t found = SIZE_MAX;
        int rc;
        if (reshard_tensors_find(check->tensors, tensor.name, &found) || found != i)
            differ(check, tensor.name, "it is not found by its name");
        if (tensor.bytes > SMALL && !check->large)
            continue;
        unsigned char *whole = read_file(check, i, tensor.bytes, &rc);
        if (!whole) {
            expect_failure(check, i, &tensor, rc);
            continue;
        }
        check->out->tensors++;
        const bool can_cut = strcmp(tensor.dtype, "Map") != 0 && strcmp(tensor.dtype, "str") != 0;
        for (unsigned b = 0; b < (can_cut ? 1 + BOXES : 1); b++) {
            struct box *box = &boxes[n++];
            *box = (struct box){.tensor = i, .load = {.tensor = i}};
            if (!make_box(check, &tensor, b, whole, box))
                abort();
            box->load.begin = b == 0 ? NULL : box->begin;
            box->load.end = b == 0 ? NULL : box->end;
            check->out->boxes += b > 0;
        }
        free(whole);
        if (n >= AT_ONCE) {
            flush(check, boxes, n);
            n = 0;
        }
    }
    flush(check, boxes, n);
}

/* Checks the folders below ID, whose path below "tensors" is PATH; those of tensors have files. */
static void check_folders(struct check *check, uint64_t id, const char *path)
{
    reshard_dirent entry = {.struct_size = sizeof entry};

    for (uint64_t i = 0; reshard_list(check->view, id, i, &entry) == 1; i++) {
        char below[256];
        if (!entry.is_dir)
            return;
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "/" : "", entry.name);
        check->id = entry.id;
        check->folder = below;
        if (reshard_tensors_open(check->view, below, &check->tensors, NULL) == 0)
            check_list(check);
        else
            check_folders(check, entry.id, below);
        reshard_tensors_close(check->tensors);
        check->tensors = NULL;
    }
}

void loads_check(reshard_view *view, uint64_t seed, bool large, struct loads *out)
{
    struct check check = {.view = view, .random = seed, .large = large, .out = out};
    uint64_t top, tensors;

    *out = (struct loads){0};
    if (reshard_lookup(view, RESHARD_ROOT, RESHARD_CONTROL, &top) == 0 &&
        reshard_lookup(view, top, "tensors", &tensors) == 0)
        check_folders(&check, tensors, "");
}
