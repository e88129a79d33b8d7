/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry of every fuzz target. It measures the processor time of all threads, which other
 * programs on the machine hardly change. An input over its limit is tried again, so that a slow
 * moment does not count.
 */
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#ifdef __SANITIZE_THREAD__
#define SLOWER 10
#else
#define SLOWER 1
#endif
#define BASE_NS (UINT64_C(250000000) * SLOWER) /* that any input may take */
#define NS_PER_BYTE (UINT64_C(1000) * SLOWER)  /* and for each of its bytes, with sanitizers */
#define TRIES 3
#define GOALS_MOST 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool reached[GOALS_MOST];

void fuzz_reached(unsigned goal)
{
    REQUIRE(goal < GOALS_MOST);
    reached[goal] = true;
}

unsigned fuzz_print_missed(void)
{
    unsigned missed = 0;

    for (unsigned i = 0; fuzz_goals[i]; i++) {
        if (reached[i])
            continue;
        fprintf(stderr, "no input of the corpus reaches '%s'\n", fuzz_goals[i]);
        missed++;
    }
    return missed;
}

char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    REQUIRE(text);
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

int fuzz_read(void *ctx, void *buf, size_t n, uint64_t offset)
{
    const struct fuzz_input *input = ctx;

    REQUIRE(offset <= input->size && n <= input->size - offset);
    memcpy(buf, input->data + offset, n);
    return 0;
}

static uint64_t processor_ns(void)
{
    struct timespec time;

    REQUIRE(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool prepared;
    const uint64_t limit = BASE_NS + size * NS_PER_BYTE;
    uint64_t took = 0;

    if (!prepared && fuzz_prepare)
        fuzz_prepare();
    prepared = true;
    for (int i = 0; i < TRIES; i++) {
        const uint64_t start = processor_ns();
        fuzz_one(data, size);
        took = processor_ns() - start;
        if (took <= limit)
            return 0;
    }
    fprintf(stderr, "%llu ns of processor time for %zu bytes, %llu allowed\n",
            (unsigned long long)took, size, (unsigned long long)limit);
    abort();
}
