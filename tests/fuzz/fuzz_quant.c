/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder with quantized weights: the config up to the first NUL, and behind it the file of the
 * tensors. All that is shown is read.
 */
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/walk.h"

void fuzz_one(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    const size_t config = end ? (size_t)(end - data) : size;
    const size_t skip = config + (end != NULL);
    static const char *const options[] = {
        "dequantize,view=huggingface",
        "dequantize,dst_ranks=2,dst_rules=*: axis 1 over all,index_cache=no",
        "dequantize,dtype=*.a=float32,view=unified",
    };

    fuzz_file("config.json", data, config);
    fuzz_file("model.safetensors", data + skip, size - skip);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        reshard_view *view = walk_open(fuzz_folder(), options[i]);
        if (view)
            walk_all(view);
        reshard_close(view);
    }
}
