/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what reshard_tensors_load reads with the .npy files of the hidden folder. */
#ifndef TESTS_SUPPORT_LOADS_H
#define TESTS_SUPPORT_LOADS_H

#include "reshard.h"

struct loads {
    unsigned tensors, boxes, failed; /* failed: tensors that neither way can read */
    char why[512];                   /* the first difference; "": none */
};

/*
 * Loads each tensor of each folder of VIEW, whole and in random boxes, by calls of several loads,
 * and compares them with the bytes of its .npy file, element by element. Tensors of more than 1 MiB
 * and their boxes are left out unless LARGE. SEED makes the boxes.
 */
void loads_check(reshard_view *view, uint64_t seed, bool large, struct loads *out);

#endif
