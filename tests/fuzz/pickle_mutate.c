/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mutator for pickles of protocols 2 and 4: opcodes are removed, repeated, moved and put in with
 * their arguments, so that most of what comes out can still be parsed. A third of the mutations are
 * libFuzzer's own, on the bytes.
 *
 * An opcode's argument is nothing, 1, 2, 4 or 8 bytes, bytes behind a length of 1 or 4, or lines.
 */
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
/* libFuzzer's; not there in the programs that replay. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) __attribute__((weak));

#define TOKENS 4096
#define FRONT 2 /* bytes of PROTO */

/* Where the opcode at DATA ends, at most SIZE. */
static size_t token_bytes(const uint8_t *data, size_t size)
{
    static const char one[] = "KqhU";
    static const char two[] = "M";
    static const char four[] = "JrjTX";
    size_t n = 1;

    if (strchr(one, data[0]) && data[0])
        n = 2;
    else if (data[0] == two[0])
        n = 3;
    else if (strchr(four, data[0]) && data[0])
        n = 5;
    else if (data[0] == 'G' || data[0] == 0x95) /* FRAME */
        n = 9;
    if (data[0] == 0x8c) /* SHORT_BINUNICODE */
        n = size > 1 ? 2 + (size_t)data[1] : 2;
    if (data[0] == 0x8a) /* LONG1 */
        n = size > 1 ? 2 + (size_t)data[1] : 2;
    if (data[0] == 'U' && size > 1)
        n += data[1];
    if ((data[0] == 'X' || data[0] == 'T') && size >= 5) {
        uint32_t length;
        memcpy(&length, data + 1, sizeof length);
        n += length;
    }
    for (unsigned lines = data[0] == 'c' ? 2 : 0; lines > 0; lines--) {
        const uint8_t *end = n < size ? memchr(data + n, '\n', size - n) : NULL;
        n = end ? (size_t)(end - data) + 1 : size;
    }
    return n < size ? n : size;
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 12;
}

/* What is put in: opcodes of torch.save, hfai and .metadata, alone and together. */
struct snippet {
    const char *bytes;
    size_t n;
};
#define SNIPPET(text)                                                                              \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
static const struct snippet snippets[] = {
    SNIPPET("}"),
    SNIPPET("]"),
    SNIPPET("("),
    SNIPPET(")"),
    SNIPPET("t"),
    SNIPPET("\x85"),
    SNIPPET("\x86"),
    SNIPPET("\x87"),
    SNIPPET("R"),
    SNIPPET("Q"),
    SNIPPET("N"),
    SNIPPET("\x88"),
    SNIPPET("s"),
    SNIPPET("u"),
    SNIPPET("e"),
    SNIPPET("a"),
    SNIPPET("b"),
    SNIPPET("."),
    SNIPPET("K\1"),
    SNIPPET("M\0\4"),
    SNIPPET("J\xff\xff\xff\x7f"),
    SNIPPET("J\xff\xff\xff\xff"),
    SNIPPET("\x8a\x08\0\0\0\0\0\0\0\x10"),
    SNIPPET("G\x3f\xf0\0\0\0\0\0\0"),
    SNIPPET("h\0"),
    SNIPPET("h\1"),
    SNIPPET("q\0"),
    SNIPPET("q\1"),
    SNIPPET("\x81"),
    SNIPPET("\x93"),
    SNIPPET("\x94"),
    SNIPPET("K\0\x85\x85R"),
    SNIPPET("\x8c\1a"),
    SNIPPET("X\1\0\0\0a"),
    SNIPPET("X\4\0\0\0step"),
    SNIPPET("X\5\0\0\0state"),
    SNIPPET("X\5\0\0\0model"),
    SNIPPET("X\14\0\0\0param_groups"),
    SNIPPET("X\11\0\0\0optimizer"),
    SNIPPET("ccollections\nOrderedDict\n"),
    SNIPPET("ccollections\nOrderedDict\n)R"),
    SNIPPET("ctorch\nSize\n"),
    SNIPPET("ctorch\nFloatStorage\n"),
    SNIPPET("ctorch\nBFloat16Storage\n"),
    SNIPPET("ctorch._utils\n_rebuild_tensor_v2\n"),
    SNIPPET("ctorch._utils\n_rebuild_parameter\n"),
    SNIPPET("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
            "1X\3\0\0\0cpuK\20tQ"),
    SNIPPET("ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
            "1X\3\0\0\0cpuK\20tQK\0K\2K\3\x86K\3K\1\x86\x89"
            "ccollections\nOrderedDict\n)RtR"),
    SNIPPET("ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
            "0X\3\0\0\0cpuK\6tQK\0K\6\x85K\0\x85\x89"
            "ccollections\nOrderedDict\n)RtR"),
};
#define SNIPPETS (sizeof snippets / sizeof *snippets)

/* Puts N bytes at AT; *size grows. */
static void put_in(uint8_t *data, size_t *size, size_t at, const uint8_t *bytes, size_t n)
{
    memmove(data + at + n, data + at, *size - at);
    memcpy(data + at, bytes, n);
    *size += n;
}

static bool is_pickle(const uint8_t *data, size_t size)
{
    return size > FRONT && data[0] == 0x80 && (data[1] == 2 || data[1] == 4);
}

static void mutate_once(uint8_t *data, size_t *size, size_t most, unsigned *seed)
{
    static size_t starts[TOKENS + 1];
    static uint8_t copy[1 << 16];
    size_t n = 0;

    for (size_t at = FRONT; at < *size && n < TOKENS; at += token_bytes(data + at, *size - at))
        starts[n++] = at;
    if (n == 0)
        return;
    const size_t from = starts[next(seed) % n];
    const size_t to = starts[next(seed) % n];
    size_t bytes = token_bytes(data + from, *size - from);
    const unsigned how = next(seed) % 8;
    if (how < 2) { /* a run of opcodes, to another place */
        for (unsigned more = next(seed) % 6; more > 0 && from + bytes < *size; more--)
            bytes += token_bytes(data + from + bytes, *size - from - bytes);
        if (bytes > sizeof copy || *size + bytes > most)
            return;
        memcpy(copy, data + from, bytes);
        put_in(data, size, to, copy, bytes);
    } else if (how < 4) {
        memmove(data + from, data + from + bytes, *size - from - bytes);
        *size -= bytes;
    } else {
        const struct snippet *snippet = &snippets[next(seed) % SNIPPETS];
        if (*size + snippet->n <= most)
            put_in(data, size, to, (const uint8_t *)snippet->bytes, snippet->n);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    if (!is_pickle(data, size) || next(&seed) % 3 == 0)
        return LLVMFuzzerMutate(data, size, most);
    for (unsigned times = 1 + next(&seed) % 4; times > 0; times--)
        mutate_once(data, &size, most, &seed);
    return size;
}
