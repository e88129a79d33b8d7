/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/common/show.h"

#include "tool/common/tool.h"

const char *rfs_show_bytes(uint64_t bytes, char out[RFS_SHOWN_BYTES])
{
    static const char units[] = "KMGTPE";
    double shown = (double)bytes;
    int unit = -1;

    while (shown >= 1023.95 && unit < 5) {
        shown /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(out, RFS_SHOWN_BYTES, "%" PRIu64 " bytes", bytes);
    else
        snprintf(out, RFS_SHOWN_BYTES, "%.1f %ciB", shown, units[unit]);
    return out;
}

const char *rfs_show_seconds(double seconds, char out[RFS_SHOWN_BYTES])
{
    const unsigned long whole = seconds < 0          ? 0
                                : seconds > 359999.0 ? 359999
                                                     : (unsigned long)(seconds + 0.5);
    const unsigned long hours = whole / 3600;

    if (hours > 0)
        snprintf(out, RFS_SHOWN_BYTES, "%lu:%02lu:%02lu", hours, whole / 60 % 60, whole % 60);
    else
        snprintf(out, RFS_SHOWN_BYTES, "%lu:%02lu", whole / 60, whole % 60);
    return out;
}

void *rfs_printed_memory(void *memory)
{
    struct rfs_error err = {0};

    if (memory)
        return memory;
    rfs_fail_memory(&err);
    exit(rfs_tool_failed(&err));
}

FILE *rfs_printed_begin(struct rfs_printed *shown)
{
    *shown = (struct rfs_printed){.text = NULL};
    return shown->out = rfs_printed_memory(open_memstream(&shown->text, &shown->size));
}

char *rfs_printed_end(struct rfs_printed *shown)
{
    const int failed = ferror(shown->out);

    return rfs_printed_memory(fclose(shown->out) == 0 && !failed ? shown->text : NULL);
}
