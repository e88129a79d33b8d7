/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes of the tensors of a hostile tree, some of which do not exist. The input makes the tree, and
 * then chooses folders, tensors and boxes. A call is refused where one of its boxes does not exist,
 * and only there; what it loads is what a load of the whole tensor has there.
 */
#include "tests/fuzz/forge_tree.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

FUZZ_GOALS("a box", "a whole tensor");

#define MOST (UINT64_C(1) << 20) /* bytes of a tensor that is loaded */
#define AT_ONCE 8                /* loads of a call, at most */
#define CALLS 8

struct box {
    reshard_tensor tensor;
    uint64_t begin[RESHARD_TENSOR_DIMS], end[RESHARD_TENSOR_DIMS];
    unsigned char *to; /* owned, of just so many bytes */
    uint64_t item;     /* bytes of an element; 0: there are none */
    size_t bytes;
    bool whole, exists;
};

/* A bound of an axis: one that it has, or now and then any number. */
static uint64_t choose_bound(struct forge_choices *in, uint64_t size)
{
    static const uint64_t odd[] = {UINT64_MAX, INT64_MAX, UINT64_C(1) << 32, UINT64_C(1) << 61};
    const uint8_t how = forge_next(in);

    if (how >= 250)
        return how < 254 ? odd[how - 250] : size + how - 253;
    return size < UINT8_MAX ? how % (size + 1) : size / 249 * how;
}

/* Chooses a box. False where its tensor is too large. */
static bool choose_box(struct forge_choices *in, const reshard_tensors *tensors, struct box *box,
                       reshard_load *load)
{
    const size_t n = reshard_tensors_count(tensors);
    const uint8_t how = forge_next(in);
    uint64_t elements = 1;
    uint64_t of_box = 1;

    *box = (struct box){.tensor.struct_size = sizeof box->tensor, .whole = how % 4 == 0};
    *load = (reshard_load){.tensor = how == 255 ? n : forge_next(in) % (n + (n == 0))};
    if (reshard_tensors_get(tensors, load->tensor, &box->tensor)) {
        REQUIRE(load->tensor >= n);
        box->to = malloc(1);
        return true;
    }
    if (box->tensor.bytes > MOST)
        return false;
    REQUIRE(box->tensor.ndim <= RESHARD_TENSOR_DIMS);
    box->exists = true;
    for (uint32_t a = 0; a < box->tensor.ndim; a++) {
        box->begin[a] = choose_bound(in, box->tensor.shape[a]);
        box->end[a] = choose_bound(in, box->tensor.shape[a]);
        if (box->begin[a] > box->end[a] && how % 8 != 1) {
            const uint64_t begin = box->begin[a];
            box->begin[a] = box->end[a];
            box->end[a] = begin;
        }
        box->exists &= box->begin[a] <= box->end[a] && box->end[a] <= box->tensor.shape[a];
        elements *= box->tensor.shape[a];
        of_box *= box->end[a] - box->begin[a];
    }
    box->exists |= box->whole;
    box->item = elements > 0 ? box->tensor.bytes / elements : 0;
    box->bytes = box->whole    ? (size_t)box->tensor.bytes
                 : box->exists ? (size_t)(of_box * box->item)
                               : 0;
    if (!box->whole) {
        load->begin = box->begin;
        load->end = box->end;
    }
    box->to = malloc(box->bytes + (box->bytes == 0));
    return true;
}

/* Compares a box with the whole tensor, element by element. */
static void compare(const struct box *box, const unsigned char *whole)
{
    uint64_t at[RESHARD_TENSOR_DIMS];

    memcpy(at, box->begin, sizeof at);
    for (size_t done = 0; done < box->bytes; done += (size_t)box->item) {
        uint64_t number = 0;
        for (uint32_t a = 0; a < box->tensor.ndim; a++)
            number = number * box->tensor.shape[a] + at[a];
        REQUIRE(memcmp(box->to + done, whole + number * box->item, (size_t)box->item) == 0);
        for (uint32_t a = box->tensor.ndim; a-- > 0 && ++at[a] == box->end[a];)
            at[a] = box->begin[a];
    }
}

static int load_some(const reshard_tensors *tensors, const reshard_load *loads, size_t n)
{
    reshard_error err = {.struct_size = sizeof err};
    const int rc = reshard_tensors_load(tensors, loads, n, NULL, NULL, &err);

    REQUIRE(rc <= 0);
    REQUIRE(rc == 0 || (err.code == rc && err.message[0] && !strpbrk(err.message, "\n\r\t\033")));
    return rc;
}

static void compare_with_whole(const reshard_tensors *tensors, const struct box *box, size_t i)
{
    unsigned char *whole = malloc((size_t)box->tensor.bytes + 1);
    const reshard_load load = {.tensor = i, .to = whole};

    REQUIRE(whole);
    if (box->bytes > 0 && load_some(tensors, &load, 1) == 0)
        compare(box, whole);
    free(whole);
}

static void call(struct forge_choices *in, const reshard_tensors *tensors)
{
    struct box boxes[AT_ONCE];
    reshard_load loads[AT_ONCE];
    const size_t wanted = forge_below(in, AT_ONCE + 1);
    bool exist = true;
    bool bounded = true; /* values without elements have no boxes */
    size_t n = 0;

    for (size_t i = 0; i < wanted; i++) {
        struct box *box = &boxes[n];
        if (!choose_box(in, tensors, box, &loads[n]))
            continue;
        REQUIRE(box->to);
        loads[n].to = box->to;
        exist &= box->exists;
        bounded &= box->whole || box->tensor.ndim > 0;
        n++;
    }
    const int rc = load_some(tensors, loads, n);
    REQUIRE(exist || rc < 0);
    REQUIRE(rc != -EINVAL || !exist || !bounded);
    for (size_t i = 0; i < n; i++) {
        if (rc == 0 && boxes[i].bytes > 0)
            fuzz_reached(boxes[i].whole);
        if (rc == 0 && !boxes[i].whole && boxes[i].item > 0)
            compare_with_whole(tensors, &boxes[i], loads[i].tensor);
        free(boxes[i].to);
    }
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct forge_choices in = {data, size, 0};
    reshard_view *view = forge_tree(&in);
    const unsigned calls = view ? 1 + forge_below(&in, CALLS) : 0;

    for (unsigned i = 0; i < calls; i++) {
        const unsigned which = forge_below(&in, 8);
        reshard_error err = {.struct_size = sizeof err};
        reshard_tensors *tensors;
        char folder[16] = "full";
        if (which < 6)
            snprintf(folder, sizeof folder, "rank_%u", which);
        const int rc = reshard_tensors_open(view, folder, &tensors, &err);
        REQUIRE(rc == 0 ? tensors != NULL : !tensors && rc == err.code && err.message[0]);
        if (rc == 0)
            call(&in, tensors);
        reshard_tensors_close(tensors);
    }
    reshard_close(view);
}
