/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How outputs are named and converted: an odd first byte means a map of names in JSON, an even one the rules
 * of dtype=, a line break and a name to look up.
 */
#include "plan/outward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

/* No two are shown by one name; what is shown has no control character. */
static void check_names(const struct rfs_outward *outward, const char *name)
{
    const char *shown = rfs_outward_name(outward, name);

    REQUIRE(rfs_outward_dtype(outward, name, RFS_FLOAT32) == RFS_FLOAT32);
    if (shown && shown != name)
        for (const char *at = shown; *at || at == shown; at++)
            REQUIRE((unsigned char)*at >= 0x20 && *at != 0x7f);
    rfs_outward_report(outward, NULL);
}

static void parse_names(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("names", MFD_CLOEXEC);
    struct rfs_outward *outward = NULL;
    struct rfs_error err = {0};
    char path[32];

    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const struct rfs_outward_config config = {.names = path};
    if (rfs_outward_open(&config, &outward, &err))
        REQUIRE(err.code < 0 && err.text[0] && !strpbrk(err.text, "\n\r\t\033"));
    else
        check_names(outward, "a");
    rfs_outward_free(outward);
    close(fd);
}

static void parse_rules(char *text)
{
    char *name = strchr(text, '\n');
    struct rfs_outward *outward = NULL;
    struct rfs_error err = {0};

    if (name)
        *name++ = '\0';
    const struct rfs_outward_config config = {.dtype = text};
    if (rfs_outward_open(&config, &outward, &err))
        REQUIRE(err.code < 0 && err.usage && err.text[0] && !strpbrk(err.text, "\n\r\t\033"));
    for (unsigned d = 0; outward && d < RFS_DTYPE_COUNT; d++) {
        const enum rfs_dtype to = rfs_outward_dtype(outward, name ? name : "a", (enum rfs_dtype)d);
        REQUIRE(to == d ||
                (rfs_dtype_is_float((enum rfs_dtype)d) && rfs_dtype_is_float_target(to)));
    }
    rfs_outward_free(outward);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2) {
        parse_names(data + 1, size - 1);
        return 0;
    }
    char *text = malloc(size);
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    parse_rules(text);
    free(text);
    return 0;
}
