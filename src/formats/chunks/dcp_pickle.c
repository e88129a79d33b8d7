/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack machine without effects, for the opcodes that Python writes with protocols 4 and 5:
 *
 *     80 V                 protocol V                95 u8                a frame of so many bytes
 *     28                   mark                      2e                   stop: the top is the result
 *     4e 88 89             None, True, False         4b u1 4d u2 4a s4    integers
 *     8a n …               an integer of n bytes     47 8 bytes           a float
 *     8c n … 58 nnnn …     texts                     93                   the name of two texts
 *     29 74 85 86 87       tuples: empty, to mark, of one, two, three
 *     5d 61 65             a list: empty; append one, append to mark
 *     7d 73 75             a dict: empty; set one, set to mark
 *     94                   memo: keep the top        68 u1 6a u4          push a kept value
 *     52 81 62             call, new object, build: give the object below a state
 *
 * Source: pickletools of CPython; which of these torch writes: the .metadata of 2.1 to 2.15.
 */
#include "formats/chunks/dcp_pickle.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "formats/chunks/dcp_machine.h"

#define REMEDY_COPY "compare the file with its original, or save the checkpoint again"

/* Bytes: no name and no path is longer. */
enum { TEXT_MOST = 1 << 16 };

struct rfs_where rfs_dcp_here(const struct rfs_dcp_machine *machine)
{
    return RFS_AT(machine->file, machine->op);
}

int rfs_dcp_damaged(const struct rfs_dcp_machine *machine, const char *what)
{
    return rfs_fail(machine->err, -EINVAL, rfs_dcp_here(machine), REMEDY_COPY,
                    "the pickle in it is damaged: %s", what);
}

int rfs_dcp_too_large(const struct rfs_dcp_machine *machine)
{
    return rfs_fail(machine->err, -EFBIG, rfs_dcp_here(machine), RFS_DCP_REMEDY_SAVE,
                    "the pickle in it would take more than %zu bytes of memory", machine->most);
}

/* ---- bytes ---- */

/* Moves the window so that N bytes from the next one on are in it, and all that fit. */
static int refill(struct rfs_dcp_machine *machine, size_t n)
{
    const uint64_t next = machine->at + machine->p;

    if (n > machine->size - next)
        return rfs_dcp_damaged(machine, "it has no end");
    const uint64_t left = machine->size - next;
    const size_t fill = left < RFS_DCP_WINDOW ? (size_t)left : RFS_DCP_WINDOW;
    const int rc = machine->read(machine->ctx, machine->window, fill, next);
    if (rc)
        return rfs_fail_read(machine->err, RFS_AT(machine->file, next), rc);
    machine->at = next;
    machine->p = 0;
    machine->n = fill;
    return 0;
}

/* N bytes, valid until the next call. 0 or -errno with the error filled. */
static int take(struct rfs_dcp_machine *machine, size_t n, const unsigned char **bytes)
{
    const int rc = n > machine->n - machine->p ? refill(machine, n) : 0;

    *bytes = machine->window + machine->p;
    machine->p += rc ? 0 : n;
    return rc;
}

static int take_number(struct rfs_dcp_machine *machine, unsigned n, uint64_t *number)
{
    const unsigned char *p;
    const int rc = take(machine, n, &p);

    *number = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++)
        *number |= (uint64_t)p[i] << (8 * i);
    return rc;
}

/* ---- values ---- */

static int push_plain(struct rfs_dcp_machine *machine, enum rfs_dcp_plain plain)
{
    return rfs_dcp_push(machine, rfs_dcp_value(RFS_DCP_PLAIN, plain));
}

static int push_int(struct rfs_dcp_machine *machine, int64_t value)
{
    uint32_t place = 0;

    if (value >= 0 && value < RFS_DCP_NUMBER_MOST)
        return rfs_dcp_push(machine, rfs_dcp_value(RFS_DCP_INT, (uint32_t)value));
    const int rc = rfs_dcp_new_words(machine, sizeof value / sizeof(uint32_t), &place);
    if (rc)
        return rc;
    memcpy(machine->pickle->words.data + place, &value, sizeof value);
    return rfs_dcp_push(machine, rfs_dcp_value(RFS_DCP_BIG, place));
}

/* N bytes, little-endian; SIGNED: two's complement. */
static int read_int(struct rfs_dcp_machine *machine, unsigned n, bool with_sign)
{
    uint64_t bits;
    int64_t value;
    const int rc = take_number(machine, n, &bits);

    if (rc)
        return rc;
    if (with_sign && n > 0 && n < 8 && bits >> (8 * n - 1))
        bits |= UINT64_MAX << 8 * n;
    memcpy(&value, &bits, sizeof value);
    return push_int(machine, value);
}

static int read_long(struct rfs_dcp_machine *machine)
{
    uint64_t n;
    const int rc = take_number(machine, 1, &n);

    if (rc)
        return rc;
    return n <= 8 ? read_int(machine, (unsigned)n, true)
                  : rfs_dcp_damaged(machine, "an integer of more than 64 bits");
}

static int read_text(struct rfs_dcp_machine *machine, unsigned length_bytes)
{
    const unsigned char *p;
    uint64_t n;
    int rc = take_number(machine, length_bytes, &n);

    if (rc == 0 && n > TEXT_MOST)
        rc = rfs_fail(machine->err, -ENOTSUP, rfs_dcp_here(machine), RFS_DCP_REMEDY_SAVE,
                      "a text in it has more than %d bytes", TEXT_MOST);
    if (rc == 0)
        rc = take(machine, (size_t)n, &p);
    if (rc)
        return rc;
    if (!rfs_text_is_python((const char *)p, (size_t)n))
        return rfs_dcp_damaged(machine, "a text that is not UTF-8");
    const uint32_t id = rfs_intern_add(machine->pickle->texts, p, (size_t)n);
    if (id == RFS_NO_ID)
        return rfs_fail_memory(machine->err);
    machine->text_bytes = rfs_intern_memory(machine->pickle->texts);
    return id < RFS_DCP_NUMBER_MOST ? rfs_dcp_push(machine, rfs_dcp_value(RFS_DCP_TEXT, id))
                                    : rfs_dcp_too_large(machine);
}

/* ---- opcodes ---- */

static int protocol(struct rfs_dcp_machine *machine)
{
    uint64_t version;
    const int rc = take_number(machine, 1, &version);

    if (rc)
        return rc;
    if (machine->op != 0)
        return rfs_dcp_damaged(machine, "a protocol number in the middle");
    if (version != 4 && version != 5)
        return rfs_fail(machine->err, -ENOTSUP, RFS_IN(machine->file), RFS_DCP_REMEDY_SAVE,
                        "the pickle in it is of protocol %u; protocols 4 and 5 are read",
                        (unsigned)version);
    return 0;
}

/* A frame only says how much to read at once. */
static int frame(struct rfs_dcp_machine *machine)
{
    uint64_t n;
    const int rc = take_number(machine, 8, &n);

    if (rc)
        return rc;
    return n <= machine->size - (machine->at + machine->p)
               ? 0
               : rfs_dcp_damaged(machine, "it has no end: a frame is longer than the file");
}

static int skip_float(struct rfs_dcp_machine *machine)
{
    const unsigned char *p;
    const int rc = take(machine, 8, &p);
    return rc ? rc : push_plain(machine, RFS_DCP_OPAQUE);
}

static int set_mark(struct rfs_dcp_machine *machine)
{
    return RFS_PUSH(&machine->marks, (uint32_t)machine->stack.n) ? 0
                                                                 : rfs_fail_memory(machine->err);
}

static int memo_put(struct rfs_dcp_machine *machine)
{
    if (rfs_dcp_above_mark(machine) == 0)
        return rfs_dcp_damaged(machine, "nothing to remember");
    return RFS_PUSH(&machine->memo, machine->stack.data[machine->stack.n - 1])
               ? 0
               : rfs_fail_memory(machine->err);
}

static int memo_get(struct rfs_dcp_machine *machine, unsigned bytes)
{
    uint64_t i;
    const int rc = take_number(machine, bytes, &i);

    if (rc)
        return rc;
    return i < machine->memo.n ? rfs_dcp_push(machine, machine->memo.data[i])
                               : rfs_dcp_damaged(machine, "a memo number that was never set");
}

static int refuse(const struct rfs_dcp_machine *machine, unsigned char op)
{
    return rfs_fail(machine->err, -ENOTSUP, rfs_dcp_here(machine), RFS_DCP_REMEDY_SAVE,
                    "the pickle in it has the opcode 0x%02x, which torch does not write here", op);
}

static int step(struct rfs_dcp_machine *machine, unsigned char op)
{
    switch (op) {
    case 0x80:
        return protocol(machine);
    case 0x95:
        return frame(machine);
    case '(':
        return set_mark(machine);
    case 'N':
        return push_plain(machine, RFS_DCP_NONE);
    case 0x88:
        return push_plain(machine, RFS_DCP_TRUE);
    case 0x89:
        return push_plain(machine, RFS_DCP_FALSE);
    case 'K':
        return read_int(machine, 1, false);
    case 'M':
        return read_int(machine, 2, false);
    case 'J':
        return read_int(machine, 4, true);
    case 0x8a:
        return read_long(machine);
    case 'G':
        return skip_float(machine);
    case 0x8c:
        return read_text(machine, 1);
    case 'X':
        return read_text(machine, 4);
    case 0x93:
        return rfs_dcp_find_name(machine);
    case ')':
        return rfs_dcp_make_tuple(machine, 0);
    case 't':
        return rfs_dcp_to_mark(machine, RFS_DCP_TUPLE);
    case 0x85:
    case 0x86:
    case 0x87:
        return rfs_dcp_make_tuple(machine, op - 0x84u);
    case ']':
        return rfs_dcp_make_empty(machine, RFS_DCP_LIST);
    case 'a':
        return rfs_dcp_add(machine, 1, RFS_DCP_LIST);
    case 'e':
        return rfs_dcp_to_mark(machine, RFS_DCP_LIST);
    case '}':
        return rfs_dcp_make_empty(machine, RFS_DCP_DICT);
    case 's':
        return rfs_dcp_add(machine, 2, RFS_DCP_DICT);
    case 'u':
        return rfs_dcp_to_mark(machine, RFS_DCP_DICT);
    case 0x94:
        return memo_put(machine);
    case 'h':
        return memo_get(machine, 1);
    case 'j':
        return memo_get(machine, 4);
    case 'R':
        return rfs_dcp_call(machine);
    case 0x81:
        return rfs_dcp_make_object(machine);
    case 'b':
        return rfs_dcp_build(machine);
    default:
        return refuse(machine, op);
    }
}

/* Memory for values, the stack and the memo. */
static size_t memory_of(const struct rfs_dcp_machine *machine)
{
    return machine->text_bytes +
           (machine->pickle->words.n + machine->stack.n + machine->marks.n + machine->memo.n) *
               sizeof(uint32_t);
}

static int run(struct rfs_dcp_machine *machine)
{
    for (;;) {
        const unsigned char *op;
        machine->op = machine->at + machine->p;
        int rc = take(machine, 1, &op);
        if (rc == 0 && *op == '.')
            break;
        if (rc == 0)
            rc = step(machine, *op);
        if (rc == 0 && memory_of(machine) > machine->most)
            rc = rfs_dcp_too_large(machine);
        if (rc)
            return rc;
    }
    if (machine->stack.n != 1 || machine->marks.n != 0)
        return rfs_dcp_damaged(machine, "it ends with values left over, or with none");
    if (machine->at + machine->p != machine->size)
        return rfs_dcp_damaged(machine, "something follows its end");
    machine->pickle->root = machine->stack.data[0];
    return 0;
}

static int begin(struct rfs_dcp_machine *machine)
{
    struct rfs_dcp_pickle *pickle = machine->pickle;
    uint32_t place;

    pickle->texts = rfs_intern_new();
    if (!pickle->texts || !rfs_dcp_add_words(pickle->texts))
        return rfs_fail_memory(machine->err);
    /* At place 0 there is nothing, and at 1 the empty tuple. */
    return rfs_dcp_new_words(machine, RFS_DCP_EMPTY_TUPLE + 1, &place);
}

static int fail_size(const struct rfs_dcp_machine *machine)
{
    return rfs_fail(machine->err, -EFBIG, RFS_IN(machine->file), NULL,
                    "the file has more than %llu bytes", (unsigned long long)RFS_DCP_MOST);
}

int rfs_dcp_pickle_read(rfs_read_fn *read, void *ctx, uint64_t size, const char *file,
                        struct rfs_dcp_pickle *out, struct rfs_error *err)
{
    RFS_FREE struct rfs_dcp_machine *machine = malloc(sizeof *machine);

    *out = (struct rfs_dcp_pickle){.root = rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE)};
    if (!machine)
        return rfs_fail_memory(err);
    memset(machine, 0, offsetof(struct rfs_dcp_machine, window));
    machine->pickle = out;
    machine->read = read;
    machine->ctx = ctx;
    machine->size = size;
    machine->file = file;
    machine->err = err;
    machine->most = rfs_dcp_memory(size);
    int rc = size <= RFS_DCP_MOST ? begin(machine) : fail_size(machine);
    if (rc == 0)
        rc = run(machine);
    free(machine->stack.data);
    free(machine->marks.data);
    free(machine->memo.data);
    if (rc)
        rfs_dcp_pickle_free(out);
    return rc;
}

void rfs_dcp_pickle_free(struct rfs_dcp_pickle *pickle)
{
    free(pickle->words.data);
    rfs_intern_free(pickle->texts);
    *pickle = (struct rfs_dcp_pickle){.root = rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE)};
}
