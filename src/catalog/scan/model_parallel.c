/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a model as Meta publishes Llama, with a file for each model-parallel rank:
 *
 *   consolidated.00.pth … consolidated.07.pth   as torch.save(model.state_dict()) of each rank
 *   params.json                                 the sizes of the model
 *
 * Names do not say how many ranks there were: that the shapes fit params.json proves it
 * (plan/meta_llama.h). A single file is the whole model.
 */
#include "base/order.h"
#include "catalog/scan/internal.h"

#define BEGIN "consolidated."
#define END ".pth"

bool rfs_scan_name_model_parallel(const char *name, uint32_t *rank)
{
    char expected[48];

    if (strncmp(name, BEGIN, strlen(BEGIN)) != 0)
        return false;
    const unsigned long number = strtoul(name + strlen(BEGIN), NULL, 10);
    snprintf(expected, sizeof expected, BEGIN "%02lu" END, number);
    *rank = (uint32_t)number;
    return number <= RFS_MAX_RANK && strcmp(name, expected) == 0;
}

int rfs_scan_model_parallel(const struct rfs_source_spec *spec,
                            const struct rfs_scan_listing *listing, struct rfs_scan *out,
                            struct rfs_error *err)
{
    uint32_t highest = 0;
    uint32_t n = 0;

    for (size_t i = 0; i < listing->n; i++) {
        uint32_t rank;
        if (!rfs_scan_name_model_parallel(listing->data[i].name, &rank))
            continue;
        highest = rank > highest ? rank : highest;
        n++;
    }
    for (uint32_t rank = 0; n > 0 && rank <= highest; rank++) {
        char name[48];
        snprintf(name, sizeof name, BEGIN "%02" PRIu32 END, rank);
        const size_t at = RFS_BISECT(k, listing->n, strcmp(listing->data[k].name, name) >= 0);
        if (at == listing->n || strcmp(listing->data[at].name, name) != 0)
            return rfs_fail(err, -ENOENT, RFS_IN(spec->path), "copy it there",
                            "has '" BEGIN "%02" PRIu32 END "', and '%s' is missing", highest, name);
        struct rfs_scanned *item = rfs_scan_add(out, rank, NULL);
        if (!item || !rfs_scan_add_file(item, rfs_path_join(spec->path, name)))
            return rfs_fail_memory(err);
    }
    out->present = n;
    out->format = RFS_FORMAT_TORCH;
    out->whole = n == 1;
    out->model_parallel = n > 0;
    return 0;
}
