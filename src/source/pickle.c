/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack machine without effects. Each opcode is a byte, most push or fold nodes on the stack:
 *
 *     80 V                 protocol V                2e                   stop: the top is the result
 *     28                   mark                      30 31 32             pop, pop to mark, duplicate
 *     4e 88 89             None, True, False         4b u1 4d u2 4a s4    integers
 *     8a n … 8b nnnn …     integers of n bytes       47 8 bytes           a float, big-endian
 *     58 nnnn … 54 55      texts                     63 module\n name\n   a global name
 *     29 74 85 86 87       tuples: empty, to mark, of one, two, three
 *     5d 6c 61 65          lists: empty, to mark; append one, append to mark
 *     7d 64 73 75          dicts: empty, to mark; set one, set to mark
 *     71 u1 72 u4          memo: keep the top        68 u1 6a u4          push what was kept
 *     52 81 62             call, new object, build: give the object below a state
 *     51                   persistent id
 *
 * Source: pickletools of CPython; which of these torch.save writes: the pickles of torch 1.6 to 2.9.
 */
#include "source/pickle.h"

#include "base/vec.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define REMEDY_SAVE "save plain values and tensors only, or save it with torch's default protocol"
#define REMEDY_COPY "compare the file with its original, or save it again"
#define NAME_MOST 256 /* bytes of a module's or a callable's name */

/* A value can be had again for two bytes: so many are the items of all containers together. */
#define PUSHES_MOST (4 * RFS_PICKLE_NODES)

struct machine {
    struct rfs_pickle *pickle;
    const char *file;
    struct rfs_error *err;
    const unsigned char *p, *end, *op; /* op: the opcode at hand */
    RFS_VEC(struct rfs_node *) stack;
    RFS_VEC(uint32_t) marks; /* heights of the stack */
    RFS_VEC(struct rfs_node *) memo;
    uint32_t pushes;
    uint16_t origin;
};

static int fail(const struct machine *machine, const char *what)
{
    return rfs_fail(machine->err, -EINVAL,
                    RFS_AT(machine->file, machine->op - machine->pickle->bytes), REMEDY_COPY,
                    "the pickle in it is damaged: %s", what);
}

static struct rfs_node *new_node(struct machine *machine, enum rfs_node_kind kind)
{
    if (machine->pickle->n_nodes >= RFS_PICKLE_NODES)
        return NULL;
    struct rfs_node *node = rfs_arena_alloc(&machine->pickle->arena, sizeof *node);
    if (node) {
        memset(node, 0, sizeof *node);
        node->kind = (uint8_t)kind;
        node->origin = machine->origin;
        node->number = machine->pickle->n_nodes++;
    }
    return node;
}

static int no_node(const struct machine *machine)
{
    if (machine->pickle->n_nodes < RFS_PICKLE_NODES && machine->pushes <= PUSHES_MOST)
        return rfs_fail_memory(machine->err);
    return rfs_fail(machine->err, -EINVAL, RFS_IN(machine->file), NULL,
                    "the pickle in it has more than %u values", RFS_PICKLE_NODES);
}

static int push(struct machine *machine, struct rfs_node *node)
{
    if (!node || ++machine->pushes > PUSHES_MOST)
        return no_node(machine);
    return RFS_PUSH(&machine->stack, node) ? 0 : rfs_fail_memory(machine->err);
}

/* How many nodes lie above the last mark (or the bottom): only those may be taken. */
static size_t above_mark(const struct machine *machine)
{
    const size_t n = machine->marks.n;
    return machine->stack.n - (n > 0 ? machine->marks.data[n - 1] : 0);
}

static struct rfs_node *pop(struct machine *machine)
{
    return above_mark(machine) > 0 ? machine->stack.data[--machine->stack.n] : NULL;
}

static struct rfs_node *top(const struct machine *machine)
{
    return above_mark(machine) > 0 ? machine->stack.data[machine->stack.n - 1] : NULL;
}

/* Bytes of an argument, or NULL at the end of the pickle. */
static const unsigned char *take(struct machine *machine, size_t n)
{
    const unsigned char *at = machine->p;
    if (n > (size_t)(machine->end - at))
        return NULL;
    machine->p += n;
    return at;
}

static bool take_number(struct machine *machine, unsigned n, uint32_t *number)
{
    const unsigned char *p = take(machine, n);
    *number = 0;
    for (unsigned i = 0; p && i < n; i++)
        *number |= (uint32_t)p[i] << (8 * i);
    return p != NULL;
}

static int push_int(struct machine *machine, int64_t value)
{
    struct rfs_node *node = new_node(machine, RFS_NODE_INT);
    if (node)
        node->of.integer = value;
    return push(machine, node);
}

static int push_bool(struct machine *machine, bool truth)
{
    struct rfs_node *node = new_node(machine, RFS_NODE_BOOL);
    if (node)
        node->of.truth = truth;
    return push(machine, node);
}

/* A little-endian two's complement of N bytes. */
static int push_long(struct machine *machine, uint32_t n)
{
    const unsigned char *p = take(machine, n);
    if (!p)
        return fail(machine, "it ends within a number");
    if (n <= 8) {
        uint64_t bits = n > 0 && p[n - 1] & 0x80 ? UINT64_MAX : 0;
        for (uint32_t i = n; i-- > 0;)
            bits = bits << 8 | p[i];
        int64_t value;
        memcpy(&value, &bits, sizeof value);
        return push_int(machine, value);
    }
    struct rfs_node *node = new_node(machine, RFS_NODE_LONG);
    if (node) {
        node->of.text.data = (const char *)p;
        node->of.text.n = n;
    }
    return push(machine, node);
}

static int push_float(struct machine *machine)
{
    const unsigned char *p = take(machine, 8);
    struct rfs_node *node = new_node(machine, RFS_NODE_FLOAT);
    if (!p)
        return fail(machine, "it ends within a number");
    for (unsigned i = 0; node && i < 8; i++)
        node->of.bits = node->of.bits << 8 | p[i];
    return push(machine, node);
}

/* A text with a length of LENGTH_BYTES before it; ASCII: of Python 2's str. */
static int push_text(struct machine *machine, unsigned length_bytes, bool ascii)
{
    uint32_t n;
    const unsigned char *p = take_number(machine, length_bytes, &n) ? take(machine, n) : NULL;
    struct rfs_node *node = new_node(machine, RFS_NODE_TEXT);
    if (!p)
        return fail(machine, "it ends within a text");
    for (uint32_t i = 0; ascii && i < n; i++)
        if (p[i] >= 0x80)
            return fail(machine, "a byte string of Python 2 that is not ASCII");
    if (node) {
        node->of.text.data = (const char *)p;
        node->of.text.n = n;
    }
    return push(machine, node);
}

/* What may be named. Python 2's module names, as protocol 2 has them. */
static const struct {
    const char *module;
    const char *name;
    enum rfs_callable callable;
} allowed[] = {
    {"collections", "OrderedDict", RFS_CALL_ORDERED_DICT},
    {"torch", "Size", RFS_CALL_SIZE},
    {"torch._utils", "_rebuild_tensor_v2", RFS_CALL_TENSOR},
    {"torch._utils", "_rebuild_tensor_v3", RFS_CALL_TENSOR_V3},
    {"torch._utils", "_rebuild_parameter", RFS_CALL_PARAMETER},
    {"torch", "DoubleStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "FloatStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "HalfStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "BFloat16Storage", RFS_CALL_STORAGE_CLASS},
    {"torch", "LongStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "IntStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "ShortStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "CharStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "ByteStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "BoolStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "ComplexFloatStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "ComplexDoubleStorage", RFS_CALL_STORAGE_CLASS},
    {"torch.storage", "UntypedStorage", RFS_CALL_STORAGE_CLASS},
    {"torch", "float64", RFS_CALL_DTYPE},
    {"torch", "float32", RFS_CALL_DTYPE},
    {"torch", "float16", RFS_CALL_DTYPE},
    {"torch", "bfloat16", RFS_CALL_DTYPE},
    {"torch", "int64", RFS_CALL_DTYPE},
    {"torch", "int32", RFS_CALL_DTYPE},
    {"torch", "int16", RFS_CALL_DTYPE},
    {"torch", "int8", RFS_CALL_DTYPE},
    {"torch", "uint64", RFS_CALL_DTYPE},
    {"torch", "uint32", RFS_CALL_DTYPE},
    {"torch", "uint16", RFS_CALL_DTYPE},
    {"torch", "uint8", RFS_CALL_DTYPE},
    {"torch", "bool", RFS_CALL_DTYPE},
    {"torch", "complex64", RFS_CALL_DTYPE},
    {"torch", "complex128", RFS_CALL_DTYPE},
    {"torch", "float8_e4m3fn", RFS_CALL_DTYPE},
    {"torch", "float8_e5m2", RFS_CALL_DTYPE},
    {"torch", "device", RFS_CALL_PLAIN},
    {"collections", "defaultdict", RFS_CALL_PLAIN},
    {"collections", "deque", RFS_CALL_PLAIN},
    {"collections", "Counter", RFS_CALL_PLAIN},
    {"argparse", "Namespace", RFS_CALL_PLAIN},
    {"_codecs", "encode", RFS_CALL_PLAIN},
    {"__builtin__", "bytes", RFS_CALL_PLAIN},
    {"__builtin__", "bytearray", RFS_CALL_PLAIN},
    {"__builtin__", "set", RFS_CALL_PLAIN},
    {"__builtin__", "frozenset", RFS_CALL_PLAIN},
    {"__builtin__", "complex", RFS_CALL_PLAIN},
    {"__builtin__", "dict", RFS_CALL_PLAIN},
    {"__builtin__", "list", RFS_CALL_PLAIN},
    {"__builtin__", "tuple", RFS_CALL_PLAIN},
    {"__builtin__", "int", RFS_CALL_PLAIN},
    {"__builtin__", "long", RFS_CALL_PLAIN},
    {"__builtin__", "float", RFS_CALL_PLAIN},
    {"__builtin__", "bool", RFS_CALL_PLAIN},
    {"__builtin__", "slice", RFS_CALL_PLAIN},
    {"numpy", "dtype", RFS_CALL_PLAIN},
    {"numpy", "ndarray", RFS_CALL_PLAIN},
    {"numpy.core.multiarray", "scalar", RFS_CALL_PLAIN},
    {"numpy.core.multiarray", "_reconstruct", RFS_CALL_PLAIN},
    {"numpy._core.multiarray", "scalar", RFS_CALL_PLAIN},
    {"numpy._core.multiarray", "_reconstruct", RFS_CALL_PLAIN},
};

static bool same(const char *text, const unsigned char *bytes, size_t n)
{
    return strlen(text) == n && memcmp(text, bytes, n) == 0;
}

static int push_global(struct machine *machine)
{
    const unsigned char *module = machine->p;
    const size_t left = (size_t)(machine->end - module);
    const unsigned char *first = memchr(module, '\n', left);
    const unsigned char *name = first ? first + 1 : NULL;
    const unsigned char *last = name ? memchr(name, '\n', (size_t)(machine->end - name)) : NULL;

    if (!last || first - module > NAME_MOST || last - name > NAME_MOST)
        return fail(machine, "a name without an end");
    machine->p = last + 1;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        if (!same(allowed[i].module, module, (size_t)(first - module)) ||
            !same(allowed[i].name, name, (size_t)(last - name)))
            continue;
        struct rfs_node *node = new_node(machine, RFS_NODE_GLOBAL);
        if (node) {
            node->callable = (uint8_t)allowed[i].callable;
            node->of.global.module = (const char *)module;
            node->of.global.module_bytes = (uint16_t)(first - module);
            node->of.global.name_bytes = (uint16_t)(last - name);
        }
        return push(machine, node);
    }
    return rfs_fail(
        machine->err, -EPERM, RFS_AT(machine->file, machine->op - machine->pickle->bytes),
        REMEDY_SAVE, "the pickle in it names %.*s.%.*s, which is not read; nothing was executed",
        (int)(first - module), (const char *)module, (int)(last - name), (const char *)name);
}

static bool add_item(struct machine *machine, struct rfs_items *items, struct rfs_node *item)
{
    if (items->n == items->cap) {
        const uint32_t cap = items->cap ? items->cap * 2 : 4;
        struct rfs_node **data = rfs_arena_alloc(&machine->pickle->arena, cap * sizeof *data);
        if (!data)
            return false;
        if (items->n > 0)
            memcpy(data, items->data, items->n * sizeof *data);
        items->data = data;
        items->cap = cap;
    }
    items->data[items->n++] = item;
    return true;
}

/* Moves the nodes above HEIGHT to ITEMS. */
static int fold(struct machine *machine, size_t height, struct rfs_items *items)
{
    for (size_t i = height; i < machine->stack.n; i++)
        if (!add_item(machine, items, machine->stack.data[i]))
            return rfs_fail_memory(machine->err);
    machine->stack.n = height;
    return 0;
}

/* Takes the last mark off: the height that it marks, or -EINVAL. */
static int64_t pop_mark(struct machine *machine)
{
    if (machine->marks.n == 0)
        return fail(machine, "no mark is set");
    return machine->marks.data[--machine->marks.n];
}

static int push_folded(struct machine *machine, enum rfs_node_kind kind, int64_t height)
{
    struct rfs_node *node = new_node(machine, kind);

    if (height < 0)
        return (int)height;
    if (!node)
        return no_node(machine);
    if (kind == RFS_NODE_DICT && (machine->stack.n - (size_t)height) % 2 != 0)
        return fail(machine, "a key without a value");
    const int rc = fold(machine, (size_t)height, &node->of.items);
    return rc ? rc : push(machine, node);
}

static int push_tuple(struct machine *machine, size_t n)
{
    if (above_mark(machine) < n)
        return fail(machine, "too few values for a tuple");
    return push_folded(machine, RFS_NODE_TUPLE, (int64_t)(machine->stack.n - n));
}

static struct rfs_after *after_of(struct machine *machine, struct rfs_node *node)
{
    if (!node->of.call.after) {
        node->of.call.after = rfs_arena_alloc(&machine->pickle->arena, sizeof(struct rfs_after));
        if (node->of.call.after)
            *node->of.call.after = (struct rfs_after){NULL, NULL, NULL};
    }
    return node->of.call.after;
}

static bool is_call(const struct rfs_node *node)
{
    return node->kind == RFS_NODE_CALL || node->kind == RFS_NODE_NEW;
}

/* The items of NODE that appending (or, of a dict, setting) adds to; NULL with err filled. */
static struct rfs_items *target_items(struct machine *machine, struct rfs_node *node, bool dict)
{
    const enum rfs_node_kind kind = dict ? RFS_NODE_DICT : RFS_NODE_LIST;
    struct rfs_node **slot;

    if (node && node->kind == kind)
        return &node->of.items;
    if (!node || !is_call(node)) {
        fail(machine,
             dict ? "items are set on what is no dict" : "items are added to what is no list");
        return NULL;
    }
    struct rfs_after *after = after_of(machine, node);
    if (!after) {
        rfs_fail_memory(machine->err);
        return NULL;
    }
    slot = dict ? &after->dict : &after->list;
    if (!*slot)
        *slot = new_node(machine, kind);
    if (!*slot) {
        no_node(machine);
        return NULL;
    }
    return &(*slot)->of.items;
}

/* Adds the nodes above HEIGHT to the container below them. */
static int add_items(struct machine *machine, int64_t height, bool dict)
{
    if (height < 0)
        return (int)height;
    const size_t below = machine->marks.n > 0 ? machine->marks.data[machine->marks.n - 1] : 0;
    if ((size_t)height <= below)
        return fail(machine, "items without a container");
    if (dict && (machine->stack.n - (size_t)height) % 2 != 0)
        return fail(machine, "a key without a value");
    struct rfs_items *items = target_items(machine, machine->stack.data[(size_t)height - 1], dict);
    return items          ? fold(machine, (size_t)height, items)
           : machine->err ? machine->err->code
                          : -EINVAL;
}

static int add_last(struct machine *machine, size_t n, bool dict)
{
    if (above_mark(machine) < n + 1)
        return fail(machine, "items without a container");
    return add_items(machine, (int64_t)(machine->stack.n - n), dict);
}

static int memo_put(struct machine *machine, unsigned bytes)
{
    uint32_t at;
    struct rfs_node *node = top(machine);

    if (!take_number(machine, bytes, &at) || !node)
        return fail(machine, "nothing to remember");
    if (at > machine->memo.n)
        return fail(machine, "a memo number out of order");
    if (at < machine->memo.n) {
        machine->memo.data[at] = node;
        return 0;
    }
    return RFS_PUSH(&machine->memo, node) ? 0 : rfs_fail_memory(machine->err);
}

static int memo_get(struct machine *machine, unsigned bytes)
{
    uint32_t at;

    if (!take_number(machine, bytes, &at) || at >= machine->memo.n)
        return fail(machine, "a memo number that was never set");
    return push(machine, machine->memo.data[at]);
}

static int push_call(struct machine *machine, enum rfs_node_kind kind)
{
    struct rfs_node *args = pop(machine);
    struct rfs_node *callee = pop(machine);
    struct rfs_node *node = new_node(machine, kind);

    if (!args || !callee || args->kind != RFS_NODE_TUPLE || callee->kind != RFS_NODE_GLOBAL)
        return fail(machine, "a call of what is no callable");
    if (callee->callable == RFS_CALL_STORAGE_CLASS || callee->callable == RFS_CALL_DTYPE)
        return fail(machine, "a call of what is no callable");
    if (node) {
        node->of.call.callee = callee;
        node->of.call.args = args;
    }
    return push(machine, node);
}

static int build(struct machine *machine)
{
    struct rfs_node *state = pop(machine);
    struct rfs_node *node = top(machine);

    if (!state || !node || !is_call(node))
        return fail(machine, "a state without an object");
    struct rfs_after *after = after_of(machine, node);
    if (!after)
        return rfs_fail_memory(machine->err);
    if (after->state)
        return fail(machine, "an object with two states");
    after->state = state;
    return 0;
}

/* The only persistent ids are storages. */
static int push_storage(struct machine *machine)
{
    struct rfs_node *id = pop(machine);
    struct rfs_node *node = new_node(machine, RFS_NODE_STORAGE);

    if (!id || id->kind != RFS_NODE_TUPLE)
        return fail(machine, "a persistent id that is no storage");
    struct rfs_node **item = id->of.items.data;
    if (id->of.items.n != 5 || !rfs_node_is_text(item[0], "storage") ||
        item[1]->kind != RFS_NODE_GLOBAL || item[1]->callable != RFS_CALL_STORAGE_CLASS ||
        item[2]->kind != RFS_NODE_TEXT || item[3]->kind != RFS_NODE_TEXT ||
        item[4]->kind != RFS_NODE_INT || item[4]->of.integer < 0)
        return fail(machine, "a persistent id that is no storage");
    if (node)
        node->of.items = id->of.items;
    return push(machine, node);
}

/* Python writes booleans of protocol 0 as I01 and I00; a number otherwise. */
static int refuse(const struct machine *machine)
{
    return rfs_fail(machine->err, -ENOTSUP,
                    RFS_AT(machine->file, machine->op - machine->pickle->bytes), REMEDY_SAVE,
                    "the pickle in it has the opcode 0x%02x, which torch.save does not write",
                    *machine->op);
}

static int protocol(struct machine *machine)
{
    const unsigned char *version = take(machine, 1);

    if (!version || machine->op != machine->pickle->bytes)
        return fail(machine, "a protocol number in the middle");
    if (*version != 2)
        return rfs_fail(machine->err, -ENOTSUP, RFS_IN(machine->file),
                        "save it again without pickle_protocol=",
                        "the pickle in it is of protocol %u; protocol 2 is read", *version);
    return 0;
}

static int push_sized_int(struct machine *machine, unsigned bytes)
{
    uint32_t number;
    int32_t with_sign;

    if (!take_number(machine, bytes, &number))
        return fail(machine, "it ends within a number");
    memcpy(&with_sign, &number, sizeof with_sign);
    return push_int(machine, bytes == 4 ? with_sign : (int64_t)number);
}

static int push_sized_long(struct machine *machine, unsigned bytes)
{
    uint32_t n;
    return take_number(machine, bytes, &n) ? push_long(machine, n)
                                           : fail(machine, "it ends within a number");
}

static int set_mark(struct machine *machine)
{
    if (++machine->pushes > PUSHES_MOST)
        return no_node(machine);
    return RFS_PUSH(&machine->marks, (uint32_t)machine->stack.n) ? 0
                                                                 : rfs_fail_memory(machine->err);
}

static int drop_to_mark(struct machine *machine)
{
    const int64_t height = pop_mark(machine);
    if (height < 0)
        return (int)height;
    machine->stack.n = (size_t)height;
    return 0;
}

static int step(struct machine *machine, unsigned char op)
{
    switch (op) {
    case 0x80:
        return protocol(machine);
    case '(':
        return set_mark(machine);
    case '0':
        return pop(machine) ? 0 : fail(machine, "nothing to drop");
    case '1':
        return drop_to_mark(machine);
    case '2':
        return top(machine) ? push(machine, top(machine)) : fail(machine, "nothing to repeat");
    case 'N':
        return push(machine, new_node(machine, RFS_NODE_NONE));
    case 0x88:
    case 0x89:
        return push_bool(machine, op == 0x88);
    case 'K':
        return push_sized_int(machine, 1);
    case 'M':
        return push_sized_int(machine, 2);
    case 'J':
        return push_sized_int(machine, 4);
    case 0x8a:
        return push_sized_long(machine, 1);
    case 0x8b:
        return push_sized_long(machine, 4);
    case 'G':
        return push_float(machine);
    case 'X':
        return push_text(machine, 4, false);
    case 'U':
        return push_text(machine, 1, true);
    case 'T':
        return push_text(machine, 4, true);
    case 'c':
        return push_global(machine);
    case ')':
        return push(machine, new_node(machine, RFS_NODE_TUPLE));
    case 't':
        return push_folded(machine, RFS_NODE_TUPLE, pop_mark(machine));
    case 0x85:
    case 0x86:
    case 0x87:
        return push_tuple(machine, op - 0x84u);
    case ']':
        return push(machine, new_node(machine, RFS_NODE_LIST));
    case 'l':
        return push_folded(machine, RFS_NODE_LIST, pop_mark(machine));
    case 'a':
        return add_last(machine, 1, false);
    case 'e':
        return add_items(machine, pop_mark(machine), false);
    case '}':
        return push(machine, new_node(machine, RFS_NODE_DICT));
    case 'd':
        return push_folded(machine, RFS_NODE_DICT, pop_mark(machine));
    case 's':
        return add_last(machine, 2, true);
    case 'u':
        return add_items(machine, pop_mark(machine), true);
    case 'q':
        return memo_put(machine, 1);
    case 'r':
        return memo_put(machine, 4);
    case 'h':
        return memo_get(machine, 1);
    case 'j':
        return memo_get(machine, 4);
    case 'R':
        return push_call(machine, RFS_NODE_CALL);
    case 0x81:
        return push_call(machine, RFS_NODE_NEW);
    case 'b':
        return build(machine);
    case 'Q':
        return push_storage(machine);
    default:
        return refuse(machine);
    }
}

static int run(struct machine *machine)
{
    for (;;) {
        machine->op = machine->p;
        if (machine->p == machine->end)
            return fail(machine, "it has no end");
        const unsigned char op = *machine->p++;
        if (op == '.')
            break;
        const int rc = step(machine, op);
        if (rc < 0)
            return rc;
    }
    if (machine->stack.n != 1 || machine->marks.n != 0)
        return fail(machine, "it ends with values left over, or with none");
    if (machine->p != machine->end)
        return fail(machine, "something follows its end");
    machine->pickle->root = machine->stack.data[0];
    return 0;
}

int rfs_pickle_read(unsigned char *bytes, size_t n, uint16_t origin, const char *file,
                    struct rfs_pickle *out, struct rfs_error *err)
{
    struct rfs_error failure = {0}; /* our own: some steps hand its code on */
    struct machine machine = {.pickle = out, .file = file, .err = &failure, .origin = origin};

    *out = (struct rfs_pickle){.bytes = bytes};
    machine.p = machine.op = bytes;
    machine.end = bytes + n;
    const int rc = run(&machine);
    free(machine.stack.data);
    free(machine.marks.data);
    free(machine.memo.data);
    if (rc < 0) {
        rfs_pickle_free(out);
        if (err)
            *err = failure;
    }
    return rc;
}

void rfs_pickle_free(struct rfs_pickle *pickle)
{
    rfs_arena_free(&pickle->arena);
    free(pickle->bytes);
    *pickle = (struct rfs_pickle){0};
}

bool rfs_node_is_text(const struct rfs_node *node, const char *text)
{
    return node && node->kind == RFS_NODE_TEXT && node->of.text.n == strlen(text) &&
           memcmp(node->of.text.data, text, node->of.text.n) == 0;
}

const struct rfs_items *rfs_node_pairs(const struct rfs_node *node)
{
    static const struct rfs_items none;

    if (node->kind == RFS_NODE_DICT)
        return &node->of.items;
    if (node->kind == RFS_NODE_CALL && node->of.call.callee->callable == RFS_CALL_ORDERED_DICT)
        return node->of.call.after && node->of.call.after->dict
                   ? &node->of.call.after->dict->of.items
                   : &none;
    return NULL;
}

const struct rfs_node *rfs_node_get(const struct rfs_node *node, const char *key)
{
    const struct rfs_items *pairs = rfs_node_pairs(node);
    const struct rfs_node *found = NULL;

    for (uint32_t i = 0; pairs && i + 1 < pairs->n; i += 2)
        if (rfs_node_is_text(pairs->data[i], key))
            found = pairs->data[i + 1];
    return found;
}
