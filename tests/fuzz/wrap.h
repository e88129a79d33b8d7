/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.save for fuzz targets: a bare pickle is put into an archive with a few storages.
 */
#ifndef TESTS_FUZZ_WRAP_H
#define TESTS_FUZZ_WRAP_H

#include <stddef.h>
#include <stdint.h>

struct wrapped {
    uint8_t *data; /* owned */
    size_t size;
};

/*
 * Data that begins as a pickle of protocol 2 becomes data.pkl of an archive that has storages of
 * 24, 64, 0 and 1 bytes, data/0 to data/3; any other is the file. To be freed by the caller.
 */
struct wrapped wrap_torch(const uint8_t *data, size_t size);

#endif
