/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a checkpoint for fuzz targets: well-formed where the target wants it, with any numbers
 * in it.
 */
#ifndef TESTS_FUZZ_FORGE_H
#define TESTS_FUZZ_FORGE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that grow; zero-initialise, and free data. */
struct forged {
    uint8_t *data;
    size_t n, cap;
};
void forge_add(struct forged *out, const void *bytes, size_t n);
void forge_print(struct forged *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A field of protobuf: its key, and a number or bytes. */
void forge_varint(struct forged *out, uint64_t number);
void forge_field(struct forged *out, unsigned field, const void *bytes, size_t n);

#define FORGE_DIMS 4
struct forge_tensor {
    const char *name;
    const char *dtype; /* as the format writes it */
    unsigned ndim;
    uint64_t dims[FORGE_DIMS];
    const uint8_t *content;
    size_t bytes;
};
/* Appends a parameter to a .ckpt. */
void forge_ckpt(struct forged *out, const struct forge_tensor *tensor);
/* A whole safetensors file. */
void forge_safetensors(struct forged *out, const struct forge_tensor *tensors, size_t n);

#endif
