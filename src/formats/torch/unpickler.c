/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each opcode is a byte; most push or fold values on the stack. Those with a 2 are read of protocol
 * 2 only, those with a 4 of protocols 4 and 5 only:
 *
 *       80 V              protocol V                     2e           stop: the top is the result
 *     4 95 u8             a frame of so many bytes       28           mark
 *       4e 88 89          None, True, False           2  30 31 32     pop, pop to mark, duplicate
 *       4b u1 4d u2 4a s4 integers                       8a n …       an integer of n bytes
 *       47 8 bytes        a float, big-endian         2  8b nnnn …    an integer of n bytes
 *       58 nnnn …         a text                      4  8c n …       a text
 *     2 54 nnnn … 55 n …  ASCII texts
 *     2 63 module\n name\n a global name              4  93           the name of two texts
 *       29 74 85 86 87    tuples: empty, to mark, of one, two, three
 *       5d 61 65          a list: empty; append one, append to mark
 *       7d 73 75          a dict: empty; set one, set to mark
 *     2 6c 64             a list, a dict of the values to mark
 *     2 71 u1 72 u4       memo: keep the top          4  94           memo: under the next number
 *       68 u1 6a u4       push the kept value
 *       52 81 62          call, new object, build: give the object below a state
 *     2 51                persistent id
 *
 * Source: pickletools of CPython; which of these torch writes: the pickles of torch 1.6 to 2.9, and
 * the .metadata of 2.1 to 2.15.
 */
#include "formats/torch/unpickler.h"

#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"

enum { WINDOW_BYTES = 1 << 17 };

/* ---- failures -------------------------------------------------------------------------------- */

uint64_t rfs_unpickler_fail(struct rfs_unpickler *machine, const char *what)
{
    if (machine->rc == 0)
        machine->rc = rfs_fail(machine->err, -EINVAL, rfs_unpickler_here(machine),
                               machine->builder->damaged, "the pickle in it is damaged: %s", what);
    return 0;
}

uint64_t rfs_unpickler_fail_name(struct rfs_unpickler *machine, const char *module,
                                 size_t module_bytes, const char *name, size_t name_bytes)
{
    if (machine->rc)
        return 0;
    machine->rc =
        rfs_fail(machine->err, -ENOTSUP, rfs_unpickler_here(machine), machine->builder->named,
                 "the pickle in it names %.*s.%.*s, which is not read; nothing was executed",
                 (int)module_bytes, module, (int)name_bytes, name);
    return 0;
}

uint64_t rfs_unpickler_fail_size(struct rfs_unpickler *machine)
{
    if (machine->rc)
        return 0;
    if (machine->budget && machine->builder->memory(machine) > rfs_budget_rest(machine->budget))
        machine->rc = rfs_budget_fail(machine->budget, machine->file, machine->err);
    else
        machine->rc =
            rfs_fail(machine->err, -EFBIG, rfs_unpickler_here(machine), machine->builder->size,
                     "the pickle in it would take more than %zu bytes of memory", machine->most);
    return 0;
}

uint64_t rfs_unpickler_fail_count(struct rfs_unpickler *machine)
{
    if (machine->rc == 0)
        machine->rc = rfs_fail(machine->err, -EINVAL, RFS_IN(machine->file), NULL,
                               "the pickle in it has more than %u values", machine->values_most);
    return 0;
}

uint64_t rfs_unpickler_fail_memory(struct rfs_unpickler *machine)
{
    if (machine->rc == 0)
        machine->rc = rfs_fail_memory(machine->err);
    return 0;
}

/* Fails for want of a value; WHAT is said of protocol 2. */
static uint64_t fail_missing(struct rfs_unpickler *machine, const char *what)
{
    return rfs_unpickler_fail(machine, machine->builder->newer ? "a value is missing" : what);
}

/* ---- the stack ------------------------------------------------------------------------------- */

/* Functions of type bool return false after a failure, their own or an earlier one. */

static uint64_t value_at(const struct rfs_unpickler *machine,
                         const struct rfs_unpickler_values *values, size_t i)
{
    return machine->builder->wide ? ((const uintptr_t *)values->data)[i]
                                  : ((const uint32_t *)values->data)[i];
}

/* Sets one of the values, or appends one. */
static bool set_value(struct rfs_unpickler *machine, struct rfs_unpickler_values *values, size_t i,
                      uint64_t value)
{
    const bool wide = machine->builder->wide;

    if (i == values->cap &&
        !rfs_vec_grow(&values->data, &values->cap, i, wide ? sizeof(uintptr_t) : sizeof(uint32_t)))
        return rfs_unpickler_fail_memory(machine);
    values->n += i == values->n;
    if (wide)
        ((uintptr_t *)values->data)[i] = (uintptr_t)value;
    else
        ((uint32_t *)values->data)[i] = (uint32_t)value;
    return true;
}

/* Counts a push: a value can be had again for two bytes. */
static bool count_push(struct rfs_unpickler *machine)
{
    return ++machine->pushes <= 4 * (uint64_t)machine->values_most ||
           rfs_unpickler_fail_count(machine);
}

static bool push(struct rfs_unpickler *machine, uint64_t value)
{
    return machine->rc == 0 && count_push(machine) &&
           set_value(machine, &machine->stack, machine->stack.n, value);
}

/* Returns the height of the last mark, or of the bottom. */
static size_t last_mark(const struct rfs_unpickler *machine)
{
    const size_t n = machine->marks.n;
    return n > 0 ? machine->marks.data[n - 1] : 0;
}

/* Says whether N values lie above the last mark: only those may be taken. */
static bool has(const struct rfs_unpickler *machine, size_t n)
{
    return machine->stack.n - last_mark(machine) >= n;
}

static uint64_t top(const struct rfs_unpickler *machine)
{
    return value_at(machine, &machine->stack, machine->stack.n - 1);
}

uint64_t rfs_unpickler_pop(struct rfs_unpickler *machine, const char *what)
{
    return has(machine, 1) ? value_at(machine, &machine->stack, --machine->stack.n)
                           : fail_missing(machine, what);
}

static bool set_mark(struct rfs_unpickler *machine)
{
    return count_push(machine) && (RFS_PUSH(&machine->marks, (uint32_t)machine->stack.n) ||
                                   rfs_unpickler_fail_memory(machine));
}

/* Takes the last mark off. Returns the height of the stack below the values above it. */
static size_t pop_mark(struct rfs_unpickler *machine)
{
    return machine->marks.n > 0 ? machine->marks.data[--machine->marks.n]
                                : rfs_unpickler_fail(machine, "no mark is set");
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Moves the window so that N bytes from the next one on are in it, and all that fit. */
static bool refill(struct rfs_unpickler *machine, size_t n, const char *what)
{
    const uint64_t next = machine->at + machine->p;
    const uint64_t left = machine->size - next;
    const size_t fill = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;

    if (n > left)
        return rfs_unpickler_fail(machine, machine->builder->newer ? "it has no end" : what);
    const int rc =
        rfs_bytes_source_read(machine->from, machine->window, fill, machine->begin + next);
    machine->rc =
        rc ? rfs_store_fail_read(machine->err, RFS_AT(machine->file, machine->begin + next), rc)
           : 0;
    machine->at = next;
    machine->p = 0;
    machine->n = fill;
    return rc == 0;
}

/*
 * Takes N bytes; NULL after a failure. At the end WHAT is said of protocol 2. Bytes of a file are
 * valid until the next call.
 */
static const unsigned char *take(struct rfs_unpickler *machine, size_t n, const char *what)
{
    if (machine->rc || (n > machine->n - machine->p && !refill(machine, n, what)))
        return NULL;
    machine->p += n;
    return machine->bytes + machine->p - n;
}

/* Takes a little-endian number of N bytes; 0 after a failure. */
static uint64_t take_number(struct rfs_unpickler *machine, unsigned n, const char *what)
{
    const unsigned char *p = take(machine, n, what);
    uint64_t number = 0;

    for (unsigned i = n; p && i-- > 0;)
        number = number << 8 | p[i];
    return number;
}

/* ---- opcodes with arguments ------------------------------------------------------------------ */

static const char in_number[] = "it ends within a number";

static bool protocol(struct rfs_unpickler *machine)
{
    static const char in_middle[] = "a protocol number in the middle";
    const unsigned version = (unsigned)take_number(machine, 1, in_middle);
    const char *remedy = machine->builder->protocol;

    if (machine->rc || machine->op != 0)
        return rfs_unpickler_fail(machine, in_middle);
    if (machine->builder->newer && version != 4 && version != 5)
        machine->rc =
            rfs_fail(machine->err, -ENOTSUP, RFS_IN(machine->file), remedy,
                     "the pickle in it is of protocol %u; protocols 4 and 5 are read", version);
    else if (!machine->builder->newer && version != 2)
        machine->rc = rfs_fail(machine->err, -ENOTSUP, RFS_IN(machine->file), remedy,
                               "the pickle in it is of protocol %u; protocol 2 is read", version);
    return machine->rc == 0;
}

/* Skips the head of a frame, which only says how much to read at once. */
static bool frame(struct rfs_unpickler *machine)
{
    const uint64_t n = take_number(machine, 8, NULL);

    return machine->rc == 0 &&
           (n <= machine->size - (machine->at + machine->p) ||
            rfs_unpickler_fail(machine, "it has no end: a frame is longer than the file"));
}

/* Reads an integer of N bytes, little-endian; WITH_SIGN: two's complement. */
static bool read_int(struct rfs_unpickler *machine, unsigned n, bool with_sign)
{
    uint64_t bits = take_number(machine, n, in_number);
    int64_t value;

    if (with_sign && n > 0 && n < 8 && bits >> (8 * n - 1))
        bits |= UINT64_MAX << 8 * n;
    memcpy(&value, &bits, sizeof value);
    return push(machine, machine->builder->integer(machine, value));
}

static bool read_long(struct rfs_unpickler *machine, unsigned length_bytes)
{
    const size_t n = take_number(machine, length_bytes, in_number);

    if (n <= 8)
        return read_int(machine, (unsigned)n, true);
    if (!machine->builder->big)
        return rfs_unpickler_fail(machine, "an integer of more than 64 bits");
    const unsigned char *p = take(machine, n, in_number);
    return p && push(machine, machine->builder->big(machine, p, n));
}

/* Reads a float, big-endian. */
static bool read_real(struct rfs_unpickler *machine)
{
    const uint64_t bits = __builtin_bswap64(take_number(machine, 8, in_number));
    return push(machine, machine->builder->real(machine, bits));
}

static bool is_ascii(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] >= 0x80)
            return false;
    return true;
}

/* Reads a text with a length of LENGTH_BYTES before it; ASCII: it is a str of Python 2. */
static bool read_text(struct rfs_unpickler *machine, unsigned length_bytes, bool ascii)
{
    static const char in_text[] = "it ends within a text";
    const size_t most = machine->builder->text_most;
    const size_t n = take_number(machine, length_bytes, in_text);

    if (n > most)
        machine->rc =
            rfs_fail(machine->err, -ENOTSUP, rfs_unpickler_here(machine), machine->builder->opcode,
                     "a text in it has more than %zu bytes", most);
    const unsigned char *p = take(machine, n, in_text);
    if (p && ascii && !is_ascii(p, n))
        return rfs_unpickler_fail(machine, "a byte string of Python 2 that is not ASCII");
    if (p && !ascii && !rfs_text_is_python((const char *)p, n))
        return rfs_unpickler_fail(machine, "a text that is not UTF-8");
    return p && push(machine, machine->builder->text(machine, p, n));
}

/* ---- opcodes that fold values ---------------------------------------------------------------- */

/* Makes a tuple, a list or a dict of the values from HEIGHT on. */
static bool make(struct rfs_unpickler *machine, unsigned char kind, size_t height)
{
    const uint64_t value = machine->rc ? 0 : machine->builder->make(machine, kind, height);

    machine->stack.n = height;
    return push(machine, value);
}

static bool make_tuple(struct rfs_unpickler *machine, size_t n)
{
    return has(machine, n) ? make(machine, 't', machine->stack.n - n)
                           : fail_missing(machine, "too few values for a tuple");
}

/* Adds the values from HEIGHT on to the container below them. */
static bool add(struct rfs_unpickler *machine, size_t height, bool dict)
{
    if (machine->rc || height <= last_mark(machine))
        return rfs_unpickler_fail(machine, "items without a container");
    machine->builder->add(machine, value_at(machine, &machine->stack, height - 1), height, dict);
    machine->stack.n = height;
    return machine->rc == 0;
}

static bool add_last(struct rfs_unpickler *machine, size_t n, bool dict)
{
    return has(machine, n) ? add(machine, machine->stack.n - n, dict)
                           : fail_missing(machine, "items without a container");
}

/* Keeps the top under the number AT, which is at most the next one. */
static bool memo_put(struct rfs_unpickler *machine, uint64_t at)
{
    if (machine->rc || !has(machine, 1))
        return rfs_unpickler_fail(machine, "nothing to remember");
    return at <= machine->memo.n ? set_value(machine, &machine->memo, (size_t)at, top(machine))
                                 : rfs_unpickler_fail(machine, "a memo number out of order");
}

static bool memo_get(struct rfs_unpickler *machine, unsigned bytes)
{
    static const char never[] = "a memo number that was never set";
    const uint64_t at = take_number(machine, bytes, never);

    return at < machine->memo.n ? push(machine, value_at(machine, &machine->memo, (size_t)at))
                                : rfs_unpickler_fail(machine, never);
}

static bool call(struct rfs_unpickler *machine, bool is_new)
{
    static const char none[] = "a call of something that is not callable";
    const uint64_t args = rfs_unpickler_pop(machine, none);
    const uint64_t callee = rfs_unpickler_pop(machine, none);

    return machine->rc == 0 && push(machine, machine->builder->call(machine, callee, args, is_new));
}

/* Gives the object below a state. */
static bool build(struct rfs_unpickler *machine)
{
    static const char none[] = "a state without an object";
    const uint64_t state = rfs_unpickler_pop(machine, none);

    if (machine->rc || !has(machine, 1))
        return rfs_unpickler_fail(machine, none);
    machine->builder->state(machine, top(machine), state);
    return machine->rc == 0;
}

static bool persistent(struct rfs_unpickler *machine)
{
    const uint64_t id = rfs_unpickler_pop(machine, "a persistent id that is not a storage");
    return machine->rc == 0 && push(machine, machine->builder->storage(machine, id));
}

/* ---- opcodes --------------------------------------------------------------------------------- */

static bool refuse(struct rfs_unpickler *machine, unsigned char op)
{
    const struct rfs_where here = rfs_unpickler_here(machine);
    const char *remedy = machine->builder->opcode;

    machine->rc =
        machine->builder->newer
            ? rfs_fail(machine->err, -ENOTSUP, here, remedy,
                       "the pickle in it has the opcode 0x%02x, which torch does not write here",
                       op)
            : rfs_fail(machine->err, -ENOTSUP, here, remedy,
                       "the pickle in it has the opcode 0x%02x, which torch.save does not write",
                       op);
    return false;
}

/* Carries out an opcode of the protocols that are read. */
static bool step(struct rfs_unpickler *machine, unsigned char op)
{
    switch (op) {
    case 0x80:
        return protocol(machine);
    case 0x95:
        return frame(machine);
    case '(':
        return set_mark(machine);
    case '0':
        rfs_unpickler_pop(machine, "nothing to drop");
        return machine->rc == 0;
    case '1':
        machine->stack.n = pop_mark(machine);
        return machine->rc == 0;
    case '2':
        return has(machine, 1) ? push(machine, top(machine))
                               : rfs_unpickler_fail(machine, "nothing to repeat");
    case 'N':
    case 0x88:
    case 0x89:
        return push(machine, machine->builder->constant(machine, op));
    case 'K':
    case 'M':
    case 'J':
        return read_int(machine, op == 'K' ? 1 : op == 'M' ? 2 : 4, op == 'J');
    case 0x8a:
    case 0x8b:
        return read_long(machine, op == 0x8a ? 1 : 4);
    case 'G':
        return read_real(machine);
    case 'X':
    case 0x8c:
        return read_text(machine, op == 'X' ? 4 : 1, false);
    case 'T':
    case 'U':
        return read_text(machine, op == 'T' ? 4 : 1, true);
    case 'c':
    case 0x93:
        return push(machine, machine->builder->name(machine));
    case ')':
        return make_tuple(machine, 0);
    case 0x85:
    case 0x86:
    case 0x87:
        return make_tuple(machine, op - 0x84u);
    case 't':
    case 'l':
    case 'd':
        return make(machine, op, pop_mark(machine));
    case ']':
    case '}':
        return make(machine, op == ']' ? 'l' : 'd', machine->stack.n);
    case 'a':
    case 's':
        return add_last(machine, op == 'a' ? 1 : 2, op == 's');
    case 'e':
    case 'u':
        return add(machine, pop_mark(machine), op == 'u');
    case 'q':
    case 'r':
        return memo_put(machine, take_number(machine, op == 'q' ? 1 : 4, "nothing to remember"));
    case 0x94:
        return memo_put(machine, machine->memo.n);
    case 'h':
    case 'j':
        return memo_get(machine, op == 'h' ? 1 : 4);
    case 'R':
    case 0x81:
        return call(machine, op == 0x81);
    case 'b':
        return build(machine);
    case 'Q':
        return persistent(machine);
    default:
        return refuse(machine, op);
    }
}

/* Opcodes that are read of other protocols only; the second row is for the newer ones. */
static const bool others[2][256] = {
    {[0x8c] = true, [0x93] = true, [0x94] = true, [0x95] = true},
    {['0'] = true,
     ['1'] = true,
     ['2'] = true,
     ['Q'] = true,
     ['T'] = true,
     ['U'] = true,
     ['c'] = true,
     ['d'] = true,
     ['l'] = true,
     ['q'] = true,
     ['r'] = true,
     [0x8b] = true},
};

static bool run(struct rfs_unpickler *machine)
{
    const bool *refused = others[machine->builder->newer];
    const unsigned char *op;

    for (;;) {
        machine->op = machine->at + machine->p;
        op = take(machine, 1, "it has no end");
        if (!op || *op == '.')
            break;
        if (!(refused[*op] ? refuse(machine, *op) : step(machine, *op)))
            return false;
        if (machine->builder->memory(machine) > machine->most)
            return rfs_unpickler_fail_size(machine);
    }
    if (machine->rc || machine->stack.n != 1 || machine->marks.n != 0)
        return rfs_unpickler_fail(machine, "it ends with values left over, or with none");
    return machine->at + machine->p == machine->size ||
           rfs_unpickler_fail(machine, "something follows its end");
}

int rfs_unpickler_run(struct rfs_unpickler *machine, uint64_t *root)
{
    RFS_FREE unsigned char *window = machine->from ? malloc(WINDOW_BYTES) : NULL;

    if (machine->from && !window)
        return rfs_fail_memory(machine->err);
    if (machine->from)
        machine->bytes = machine->window = window;
    else
        machine->n = (size_t)machine->size;
    *root = run(machine) ? top(machine) : 0;
    free(machine->stack.data);
    free(machine->memo.data);
    free(machine->marks.data);
    return machine->rc;
}
