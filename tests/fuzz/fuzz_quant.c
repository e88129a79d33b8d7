/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder with quantized weights: the config up to the first NUL, and behind it the file of the
 * tensors; or a GGUF file alone. All that one view shows is read.
 */
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/walk.h"

/* The options of views; the size of the input chooses. */
#define OPTIONS 3
FUZZ_GOALS("dequantize,view=huggingface",
           "dequantize,dst_ranks=2,dst_rules=*: axis 1 over all,index_cache=no",
           "dequantize,dtype=*.a=float32,view=unified");

void fuzz_one(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    const size_t config = end ? (size_t)(end - data) : size;
    const size_t skip = config + (end != NULL);

    fuzz_folder_clear("src");
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
        fuzz_file("src/model.gguf", data, size);
    } else {
        fuzz_file("src/config.json", data, config);
        fuzz_file("src/model.safetensors", data + skip, size - skip);
    }
    const unsigned row = (unsigned)(size % OPTIONS);
    reshard_view *view = walk_open("src", fuzz_goals[row]);
    if (view && walk_all(view))
        fuzz_reached(row);
    reshard_close(view);
}
