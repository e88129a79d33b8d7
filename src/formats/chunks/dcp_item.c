/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/chunks/dcp_item.h"

#include "base/text.h"
#include "formats/torch/archive.h"

#define REMEDY_COPY "compare the file with its original, or save the checkpoint again"

/* The ends of an archive: torch writes less than 1 KiB before a tensor's bytes and behind them. */
enum { END_BYTES = 4096, LABEL_BYTES = 4200, NAME_SHOWN = 320 };

struct end {
    uint64_t offset;
    size_t n; /* 0: nothing was read yet */
    unsigned char data[END_BYTES];
};

/* The item as a file of its own. */
struct window {
    const struct rfs_dcp_item *item;
    rfs_read_fn *read;
    void *ctx;
    struct end head, tail;
};

static int fill(const struct window *window, struct end *end, uint64_t offset)
{
    const uint64_t left = window->item->bytes - offset;
    const size_t n = left < END_BYTES ? (size_t)left : END_BYTES;
    const int rc = window->read(window->ctx, end->data, n, window->item->offset + offset);

    end->offset = offset;
    end->n = rc ? 0 : n;
    return rc;
}

static int read_window(void *ctx, void *buf, size_t n, uint64_t offset)
{
    struct window *window = ctx;
    const uint64_t bytes = window->item->bytes;
    const uint64_t tail = bytes > END_BYTES ? bytes - END_BYTES : 0;
    struct end *end = offset < END_BYTES ? &window->head : &window->tail;

    if (offset > bytes || n > bytes - offset)
        return -EINVAL;
    int rc = end->n > 0 ? 0 : fill(window, end, end == &window->head ? 0 : tail);
    if (rc)
        return rc;
    if (offset < end->offset || n > end->n || offset - end->offset > end->n - n)
        return window->read(window->ctx, buf, n, window->item->offset + offset);
    memcpy(buf, end->data + (offset - end->offset), n);
    return 0;
}

/* An item that is no archive of torch.save may be of torch's other format. */
static int check_format(struct window *window, struct rfs_error *err)
{
    const struct rfs_dcp_item *item = window->item;
    unsigned char head[9] = {0};
    const int rc = item->bytes < sizeof head ? 0 : read_window(window, head, sizeof head, 0);

    if (rc)
        return rfs_fail_read(err, RFS_AT(item->file, item->offset), rc);
    if (memcmp(head + 3, "\0\0\0\0\0{", 6) != 0)
        return 0;
    return rfs_fail(err, -ENOTSUP, RFS_OF(item->file, item->param),
                    "save it with SerializationFormat.TORCH_SAVE, which is the default",
                    "is stored as safetensors in the checkpoint's file (SerializationFormat."
                    "SAFETENSORS)");
}

static bool is_the_same(const struct rfs_torch_tensor *tensor, const struct rfs_dcp_item *item)
{
    return tensor->dtype == item->dtype && tensor->ndim == item->ndim &&
           (item->ndim == 0 ||
            memcmp(tensor->dims, item->sizes, item->ndim * sizeof *item->sizes) == 0);
}

static int check_tensor(const struct rfs_torch_tensor *tensor, const struct rfs_dcp_item *item,
                        const char *label, struct rfs_error *err)
{
    char have[RFS_DIMS_TEXT(RFS_MAX_DIMS)];
    char want[RFS_DIMS_TEXT(RFS_MAX_DIMS)];

    if (!is_the_same(tensor, item))
        return rfs_fail(err, -EINVAL, RFS_OF(label, item->param), REMEDY_COPY,
                        "is %s %s here, and %s %s in the metadata", rfs_dtype_name(tensor->dtype),
                        rfs_text_dims(have, sizeof have, tensor->ndim, tensor->dims),
                        rfs_dtype_name(item->dtype),
                        rfs_text_dims(want, sizeof want, item->ndim, item->sizes));
    if (tensor->elements > tensor->record->bytes / rfs_dtype_bytes(tensor->dtype))
        return rfs_fail(err, -ENOTSUP, RFS_OF(label, item->param),
                        "save the tensor after contiguous()",
                        "the tensor has more elements than are stored");
    return 0;
}

static void place_of(const struct rfs_torch_tensor *tensor, const struct rfs_dcp_item *item,
                     struct rfs_dcp_place *out)
{
    const uint64_t bytes = rfs_dtype_bytes(tensor->dtype);

    *out =
        (struct rfs_dcp_place){.at = item->offset + tensor->record->offset + tensor->offset * bytes,
                               .strided = !tensor->contiguous};
    for (uint32_t i = 0; i < tensor->ndim; i++)
        out->stride[i] = tensor->strides[i] * bytes;
}

/* Whether the item is in the file, and an archive. */
static int check_item(struct window *window, uint64_t file_bytes, struct rfs_error *err)
{
    const struct rfs_dcp_item *item = window->item;

    if (item->offset > file_bytes || item->bytes > file_bytes - item->offset)
        return rfs_fail(err, -EINVAL, RFS_OF(item->file, item->param), REMEDY_COPY,
                        "lies at offset %llu with %llu bytes, and the file has only %llu",
                        (unsigned long long)item->offset, (unsigned long long)item->bytes,
                        (unsigned long long)file_bytes);
    return check_format(window, err);
}

static const char *name_item(const struct rfs_dcp_item *item, char label[LABEL_BYTES])
{
    snprintf(label, LABEL_BYTES, "%s (item at %llu)", item->file, (unsigned long long)item->offset);
    return label;
}

int rfs_dcp_item_open(const struct rfs_dcp_item *item, rfs_read_fn *read, void *ctx,
                      uint64_t file_bytes, struct rfs_budget *budget, struct rfs_torch *out,
                      struct rfs_error *err)
{
    struct window window = {.item = item, .read = read, .ctx = ctx};
    char label[LABEL_BYTES];
    const int rc = check_item(&window, file_bytes, err);

    return rc ? rc
              : rfs_torch_keep(read_window, &window, item->bytes, 0, name_item(item, label), budget,
                               out, err);
}

int rfs_dcp_item_prove(const struct rfs_dcp_item *item, rfs_read_fn *read, void *ctx,
                       uint64_t file_bytes, bool all, struct rfs_error *err)
{
    struct window window = {.item = item, .read = read, .ctx = ctx};
    char label[LABEL_BYTES];
    const int rc = check_item(&window, file_bytes, err);

    snprintf(label, sizeof label, "%s (item at %llu, '%.*s')", item->file,
             (unsigned long long)item->offset, NAME_SHOWN, item->param);
    return rc ? rc : rfs_torch_prove(read_window, &window, item->bytes, label, all, err);
}

int rfs_dcp_item_find(const struct rfs_dcp_item *item, rfs_read_fn *read, void *ctx,
                      uint64_t file_bytes, struct rfs_dcp_place *out, struct rfs_error *err)
{
    struct window window = {.item = item, .read = read, .ctx = ctx};
    struct rfs_torch torch;
    struct rfs_torch_tensor tensor;
    char label[LABEL_BYTES];

    int rc = check_item(&window, file_bytes, err);
    if (rc)
        return rc;
    name_item(item, label);
    rc = rfs_torch_open(read_window, &window, item->bytes, 0, label, &torch, err);
    if (rc)
        return rc;
    rc = rfs_torch_tensor(&torch, torch.pickle.root, label, item->param, &tensor, err);
    if (rc == 0)
        rc = rfs_fail(err, -EINVAL, RFS_OF(label, item->param), REMEDY_COPY,
                      "there is no tensor here");
    else if (rc == 1)
        rc = check_tensor(&tensor, item, label, err);
    if (rc == 0)
        place_of(&tensor, item, out);
    rfs_torch_free(&torch);
    return rc;
}

int rfs_dcp_item_verify(const struct rfs_dcp_item *item, rfs_read_fn *read, void *ctx,
                        struct rfs_error *err)
{
    struct window window = {.item = item, .read = read, .ctx = ctx};
    char label[LABEL_BYTES];

    return rfs_zip_verify(read_window, &window, item->bytes, name_item(item, label), err);
}
