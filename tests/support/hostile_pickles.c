/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/hostile.h"
#include "tests/support/torch_file.h"

#include <stdlib.h>
#include <string.h>

/* Opcodes with NULs in them. */
#define OPS(file, ops) bytes_add(&(file)->pickle, ops, sizeof(ops) - 1)

static void begin(struct torch_file *file)
{
    *file = (struct torch_file){0};
    torch_ops(file, "");
}

static void repeat(struct torch_file *file, const char *ops, size_t n_ops, size_t end)
{
    while (file->pickle.n < end)
        bytes_add(&file->pickle, ops, n_ops);
}
#define REPEAT(file, ops, end) repeat(file, ops, sizeof(ops) - 1, end)

/* In batches, as items are added to a list or a dict on the stack: ADD is "e" or "u". */
static void batches(struct torch_file *file, const char *ops, size_t n_ops, const char *add,
                    size_t end)
{
    while (file->pickle.n < end) {
        torch_ops(file, "(");
        for (unsigned i = 0; i < 1000 && file->pickle.n < end; i++)
            bytes_add(&file->pickle, ops, n_ops);
        torch_ops(file, add);
    }
}
#define BATCHES(file, ops, add, end) batches(file, ops, sizeof(ops) - 1, add, end)

/* A text of N bytes in the memo's place 0, and dropped. */
static void keep_text(struct torch_file *file, size_t n)
{
    char *text = malloc(n + 1);

    if (!text)
        abort();
    memset(text, 'k', n);
    text[n] = '\0';
    torch_text(file, text);
    OPS(file, "q\0000");
    free(text);
}

static void finish(struct torch_file *file, struct bytes *out)
{
    torch_storage(file, "0", "1234", 4);
    const struct bytes *all = torch_end(file);
    bytes_add(out, all->data, all->n);
    torch_free(file);
}

/* Six letters. */
static void name_of(unsigned i, char name[7])
{
    for (unsigned k = 0; k < 6; k++)
        name[k] = (char)('a' + (i >> 4 * k & 15));
    name[6] = '\0';
}

/* A tensor of four bytes in the memo's place 0, and dropped. */
static void keep_tensor(struct torch_file *file)
{
    torch_tensor(file, &(struct torch_tensor){.class = "FloatStorage",
                                              .key = "0",
                                              .elements = 1,
                                              .ndim = 1,
                                              .dims = (const int64_t[]){1}});
    OPS(file, "q\0000");
}

/* torch.Size of one tuple, over and over. */
static void sizes_of_one(struct bytes *out, size_t n)
{
    struct torch_file file;
    begin(&file);
    torch_ops(&file, "(");
    REPEAT(&file, "K\1", n / 4);
    OPS(&file, "tq\0");
    torch_ops(&file, "0ctorch\nSize\nq\1");
    torch_ops(&file, "0h\1"
                     "h");
    OPS(&file, "\0\x85q\2"
               "00}");
    REPEAT(&file, "h\1h\2R0", n);
    finish(&file, out);
}

/* One long name as the key of everything. */
static void keys_of_one(struct bytes *out, size_t n)
{
    struct torch_file file;
    begin(&file);
    keep_text(&file, n / 2);
    torch_ops(&file, "}");
    BATCHES(&file, "h\0N", "u", n);
    finish(&file, out);
}

/* Names of their own, all of one tensor. */
static void one_tensor(struct bytes *out, size_t n)
{
    struct torch_file file;
    char name[8];
    begin(&file);
    keep_tensor(&file);
    torch_ops(&file, "}");
    for (unsigned i = 0; file.pickle.n < n; i++) {
        name_of(i, name);
        torch_text(&file, name);
        OPS(&file, "h\0s");
    }
    finish(&file, out);
}

static void nested(struct bytes *out, size_t n)
{
    struct torch_file file;
    begin(&file);
    torch_ops(&file, "}");
    torch_text(&file, "w");
    REPEAT(&file, "]", n / 2);
    REPEAT(&file, "a", n);
    torch_ops(&file, "s");
    finish(&file, out);
}

static void fill(struct bytes *out, size_t n, const char *op)
{
    struct torch_file file;
    begin(&file);
    torch_ops(&file, "}");
    torch_text(&file, "w");
    torch_ops(&file, "(");
    repeat(&file, op, strlen(op), n);
    torch_ops(&file, "ts");
    finish(&file, out);
}

static void empty_lists(struct bytes *out, size_t n)
{
    fill(out, n, "]");
}

static void nothing(struct bytes *out, size_t n)
{
    fill(out, n, "N");
}

static void marks(struct bytes *out, size_t n)
{
    fill(out, n, "(");
}

static void names(struct bytes *out, size_t n)
{
    fill(out, n, "ctorch\nbool\n");
}

static void one_list_grows(struct bytes *out, size_t n)
{
    struct torch_file file;
    begin(&file);
    torch_ops(&file, "}");
    torch_text(&file, "w");
    torch_ops(&file, "]");
    REPEAT(&file, "Na", n);
    torch_ops(&file, "s");
    finish(&file, out);
}

/* A few bytes that say that they are 1 TiB. */
static void stride_0(struct bytes *out, size_t n)
{
    struct torch_file file;
    (void)n;
    begin(&file);
    torch_ops(&file, "}");
    torch_text(&file, "w");
    torch_tensor(&file, &(struct torch_tensor){.class = "FloatStorage",
                                               .key = "0",
                                               .elements = 1,
                                               .ndim = 1,
                                               .dims = (const int64_t[]){INT64_C(1) << 38},
                                               .strides = (const int64_t[]){0}});
    torch_ops(&file, "s");
    finish(&file, out);
}

const struct hostile hostile_torch[] = {
    {.name = "torch.Size of one tuple", .make = sizes_of_one},
    {.name = "one name as each key", .make = keys_of_one},
    {.name = "one tensor by many names", .make = one_tensor},
    {.name = "nested lists", .make = nested},
    {.name = "empty lists", .make = empty_lists},
    {.name = "None", .make = nothing},
    {.name = "marks", .make = marks},
    {.name = "names of types", .make = names},
    {.name = "a list that grows", .make = one_list_grows},
    {.name = "a stride of 0", .make = stride_0},
    {.name = NULL},
};

/* ---- parts of hfai --------------------------------------------------------------------------- */

/* Up to the list of models. */
static void begin_part(struct torch_file *file)
{
    torch_ops(file, "}(");
    torch_text(file, "__nshards__");
    torch_int(file, 2);
    torch_text(file, "__version__");
    torch_text(file, "2.0.0");
    torch_text(file, "model");
    torch_ops(file, "]");
}

/* From the list of models to the dict of the one optimizer, which is open. */
static void begin_optimizer(struct torch_file *file)
{
    torch_text(file, "optimizer");
    torch_ops(file, "](}(");
}

static void end_optimizer(struct torch_file *file)
{
    torch_ops(file, "u}\x86"
                    "eu");
}

static void one_parameter(struct bytes *out, size_t n)
{
    struct torch_file file;
    begin(&file);
    keep_tensor(&file);
    torch_text(&file, "w");
    OPS(&file, "q\1"
               "0");
    begin_part(&file);
    torch_ops(&file, "}");
    BATCHES(&file, "h\1h\0", "u", n);
    torch_ops(&file, "}\x86"
                     "a");
    torch_text(&file, "optimizer");
    torch_ops(&file, "]u");
    finish(&file, out);
}

/* Lists of two of the list before: 2^50 when each is walked. */
static void doubled(struct bytes *out, size_t n)
{
    struct torch_file file;
    begin(&file);
    begin_part(&file);
    begin_optimizer(&file);
    torch_text(&file, "state");
    torch_ops(&file, "}");
    torch_text(&file, "param_groups");
    OPS(&file, "]q\0");
    for (unsigned i = 0; i < 50; i++) {
        const unsigned char last = (unsigned char)i;
        const unsigned char pair[] = {'0', ']', '(', 'h', last, 'h', last, 'e', 'q', last + 1};
        bytes_add(&file.pickle, pair, sizeof pair);
    }
    torch_text(&file, "padding");
    torch_ops(&file, "]");
    BATCHES(&file, "K\1", "e", n);
    end_optimizer(&file);
    finish(&file, out);
}

/* A long text over and over in what has to be the same in all parts. */
static void one_text(struct bytes *out, size_t n)
{
    struct torch_file file;
    begin(&file);
    keep_text(&file, n / 2);
    begin_part(&file);
    begin_optimizer(&file);
    torch_text(&file, "state");
    torch_ops(&file, "}");
    torch_text(&file, "param_groups");
    torch_ops(&file, "]");
    BATCHES(&file, "h\0", "e", n);
    end_optimizer(&file);
    finish(&file, out);
}

/* One long text in the pair of keys of each entry. */
static void one_text_in_keys(struct bytes *out, size_t n)
{
    struct torch_file file;
    begin(&file);
    keep_text(&file, n / 100);
    begin_part(&file);
    begin_optimizer(&file);
    torch_text(&file, "state");
    torch_ops(&file, "}");
    for (unsigned i = 0; i < 2000; i++) {
        const unsigned char entry[] = {'h',  0,   'M', (unsigned char)i, (unsigned char)(i >> 8),
                                       0x86, 'N', 's'};
        bytes_add(&file.pickle, entry, sizeof entry);
    }
    torch_text(&file, "padding");
    torch_ops(&file, "]");
    BATCHES(&file, "K\1", "e", n);
    end_optimizer(&file);
    finish(&file, out);
}

/* The same large state for each parameter. */
static void one_state(struct bytes *out, size_t n)
{
    struct torch_file file;
    char name[8];
    begin(&file);
    keep_tensor(&file);
    begin_part(&file);
    begin_optimizer(&file);
    torch_text(&file, "state");
    torch_ops(&file, "}K\1}");
    for (unsigned i = 0; file.pickle.n < n / 2; i++) {
        name_of(i, name);
        torch_text(&file, name);
        OPS(&file, "h\0s");
    }
    OPS(&file, "q\1s");
    for (unsigned i = 2; file.pickle.n < n; i++) {
        name_of(i, name);
        torch_text(&file, name);
        OPS(&file, "h\1s");
    }
    end_optimizer(&file);
    finish(&file, out);
}

/* The same long list of parameters in each group. */
static void one_group(struct bytes *out, size_t n)
{
    struct torch_file file;
    begin(&file);
    begin_part(&file);
    begin_optimizer(&file);
    torch_text(&file, "state");
    torch_ops(&file, "}");
    torch_text(&file, "param_groups");
    torch_ops(&file, "]}");
    torch_text(&file, "params");
    torch_ops(&file, "]");
    BATCHES(&file, "K\1", "e", n / 2);
    OPS(&file, "sq\0a");
    BATCHES(&file, "h\0", "e", n);
    end_optimizer(&file);
    finish(&file, out);
}

const struct hostile hostile_parts[] = {
    {.name = "one name for each parameter", .make = one_parameter},
    {.name = "lists of two, 50 levels", .make = doubled},
    {.name = "one text to compare", .make = one_text},
    {.name = "one text in all keys", .make = one_text_in_keys},
    {.name = "one state for each parameter", .make = one_state},
    {.name = "one list of parameters", .make = one_group},
    {.name = NULL},
};
