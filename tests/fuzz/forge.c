/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/forge.h"

#include "tests/fuzz/fuzz.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void forge_add(struct forged *out, const void *bytes, size_t n)
{
    if (n > out->cap - out->n) {
        out->cap = (out->n + n) * 2;
        out->data = realloc(out->data, out->cap);
        REQUIRE(out->data);
    }
    if (n > 0)
        memcpy(out->data + out->n, bytes, n);
    out->n += n;
}

void forge_print(struct forged *out, const char *fmt, ...)
{
    va_list args;
    char *text;

    va_start(args, fmt);
    const int n = vasprintf(&text, fmt, args);
    va_end(args);
    REQUIRE(n >= 0);
    forge_add(out, text, (size_t)n);
    free(text);
}

void forge_varint(struct forged *out, uint64_t number)
{
    do {
        const uint8_t byte = (uint8_t)((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
        forge_add(out, &byte, 1);
        number >>= 7;
    } while (number > 0);
}

void forge_field(struct forged *out, unsigned field, const void *bytes, size_t n)
{
    forge_varint(out, field << 3 | 2);
    forge_varint(out, n);
    forge_add(out, bytes, n);
}

void forge_ckpt(struct forged *out, const struct forge_tensor *tensor)
{
    struct forged inner = {0};
    struct forged value = {0};

    for (unsigned i = 0; i < tensor->ndim; i++) {
        forge_varint(&inner, 1 << 3);
        forge_varint(&inner, tensor->dims[i]);
    }
    forge_field(&inner, 2, tensor->dtype, strlen(tensor->dtype));
    forge_field(&inner, 3, tensor->content, tensor->bytes);
    forge_field(&value, 1, tensor->name, strlen(tensor->name));
    forge_field(&value, 2, inner.data, inner.n);
    forge_field(out, 1, value.data, value.n);
    free(inner.data);
    free(value.data);
}

void forge_safetensors(struct forged *out, const struct forge_tensor *tensors, size_t n)
{
    struct forged header = {0};
    uint64_t at = 0;

    for (size_t i = 0; i < n; i++) {
        forge_print(&header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i > 0 ? "," : "{",
                    tensors[i].name, tensors[i].dtype);
        for (unsigned k = 0; k < tensors[i].ndim; k++)
            forge_print(&header, "%s%" PRIu64, k > 0 ? "," : "", tensors[i].dims[k]);
        forge_print(&header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
                    at + tensors[i].bytes);
        at += tensors[i].bytes;
    }
    forge_print(&header, n > 0 ? "}" : "{}");
    const uint64_t length = header.n;
    forge_add(out, &length, sizeof length);
    forge_add(out, header.data, header.n);
    for (size_t i = 0; i < n; i++)
        forge_add(out, tensors[i].content, tensors[i].bytes);
    free(header.data);
}
