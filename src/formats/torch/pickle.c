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
 *     71 u1 72 u4          memo: keep the top        68 u1 6a u4          push the kept value
 *     52 81 62             call, new object, build: give the object below a state
 *     51                   persistent id
 *
 * Source: pickletools of CPython; which of these torch.save writes: the pickles of torch 1.6 to
 * 2.9.
 */
#include "formats/torch/pickle_internal.h"

#include "base/checked.h"
#include "base/text.h"

#define REMEDY_SAVE "save plain values and tensors only, or save it with torch's default protocol"
#define REMEDY_LISTS "save numbers in tensors rather than in lists"
#define REMEDY_COPY "compare the file with its original, or save it again"

/* A value can be had again for two bytes: so many are the items of all containers together. */
#define PUSHES_MOST (4 * RFS_PICKLE_NODES)

struct rfs_where rfs_unpickle_where(const struct rfs_unpickler *machine)
{
    return RFS_AT(machine->file,
                  machine->offset + (uint64_t)(machine->op - machine->pickle->bytes));
}

int rfs_unpickle_fail(const struct rfs_unpickler *machine, const char *what)
{
    return rfs_fail(machine->err, -EINVAL, rfs_unpickle_where(machine), REMEDY_COPY,
                    "the pickle in it is damaged: %s", what);
}

int rfs_unpickle_no_node(const struct rfs_unpickler *machine)
{
    if (machine->pickle->n_nodes < RFS_PICKLE_NODES && machine->pushes <= PUSHES_MOST)
        return rfs_fail_memory(machine->err);
    return rfs_fail(machine->err, -EINVAL, RFS_IN(machine->file), NULL,
                    "the pickle in it has more than %u values", RFS_PICKLE_NODES);
}

int rfs_unpickle_push(struct rfs_unpickler *machine, struct rfs_node *node)
{
    if (!node || ++machine->pushes > PUSHES_MOST)
        return rfs_unpickle_no_node(machine);
    return RFS_PUSH(&machine->stack, node) ? 0 : rfs_fail_memory(machine->err);
}

size_t rfs_unpickle_above_mark(const struct rfs_unpickler *machine)
{
    const size_t n = machine->marks.n;
    return machine->stack.n - (n > 0 ? machine->marks.data[n - 1] : 0);
}

struct rfs_node *rfs_unpickle_pop(struct rfs_unpickler *machine)
{
    return rfs_unpickle_above_mark(machine) > 0 ? machine->stack.data[--machine->stack.n] : NULL;
}

struct rfs_node *rfs_unpickle_top(const struct rfs_unpickler *machine)
{
    return rfs_unpickle_above_mark(machine) > 0 ? machine->stack.data[machine->stack.n - 1] : NULL;
}

/* Bytes of an argument, or NULL at the end of the pickle. */
static const unsigned char *take(struct rfs_unpickler *machine, size_t n)
{
    const unsigned char *at = machine->p;
    if (n > (size_t)(machine->end - at))
        return NULL;
    machine->p += n;
    return at;
}

static bool take_number(struct rfs_unpickler *machine, unsigned n, uint32_t *number)
{
    const unsigned char *p = take(machine, n);
    *number = 0;
    for (unsigned i = 0; p && i < n; i++)
        *number |= (uint32_t)p[i] << (8 * i);
    return p != NULL;
}

static int push_int(struct rfs_unpickler *machine, int64_t value)
{
    if (value >= 0 && value <= UINT16_MAX)
        return rfs_unpickle_push(machine, rfs_node_constant(RFS_NODE_INT, (uint16_t)value));
    struct rfs_node *node = rfs_unpickle_node(machine, RFS_NODE_INT);
    if (node)
        node->of.integer = value;
    return rfs_unpickle_push(machine, node);
}

/* A little-endian two's complement of N bytes. */
static int push_long(struct rfs_unpickler *machine, uint32_t n)
{
    const unsigned char *p = take(machine, n);
    if (!p)
        return rfs_unpickle_fail(machine, "it ends within a number");
    if (n <= 8) {
        uint64_t bits = n > 0 && p[n - 1] & 0x80 ? UINT64_MAX : 0;
        for (uint32_t i = n; i-- > 0;)
            bits = bits << 8 | p[i];
        int64_t value;
        memcpy(&value, &bits, sizeof value);
        return push_int(machine, value);
    }
    struct rfs_node *node = rfs_unpickle_node(machine, RFS_NODE_LONG);
    if (node) {
        node->of.text.data = (const char *)p;
        node->of.text.n = n;
    }
    return rfs_unpickle_push(machine, node);
}

static int push_float(struct rfs_unpickler *machine)
{
    const unsigned char *p = take(machine, 8);
    struct rfs_node *node = rfs_unpickle_node(machine, RFS_NODE_FLOAT);
    if (!p)
        return rfs_unpickle_fail(machine, "it ends within a number");
    for (unsigned i = 0; node && i < 8; i++)
        node->of.bits = node->of.bits << 8 | p[i];
    return rfs_unpickle_push(machine, node);
}

/* A text with a length of LENGTH_BYTES before it; ASCII: of Python 2's str. */
static int push_text(struct rfs_unpickler *machine, unsigned length_bytes, bool ascii)
{
    uint32_t n;
    const unsigned char *p = take_number(machine, length_bytes, &n) ? take(machine, n) : NULL;
    struct rfs_node *node = rfs_unpickle_node(machine, RFS_NODE_TEXT);
    if (!p)
        return rfs_unpickle_fail(machine, "it ends within a text");
    for (uint32_t i = 0; ascii && i < n; i++)
        if (p[i] >= 0x80)
            return rfs_unpickle_fail(machine, "a byte string of Python 2 that is not ASCII");
    if (!ascii && !rfs_text_is_python((const char *)p, n))
        return rfs_unpickle_fail(machine, "a text that is not UTF-8");
    if (node) {
        node->of.text.data = (const char *)p;
        node->of.text.n = n;
    }
    return rfs_unpickle_push(machine, node);
}

int64_t rfs_unpickle_pop_mark(struct rfs_unpickler *machine)
{
    if (machine->marks.n == 0)
        return rfs_unpickle_fail(machine, "no mark is set");
    return machine->marks.data[--machine->marks.n];
}

static int memo_put(struct rfs_unpickler *machine, unsigned bytes)
{
    uint32_t at;
    struct rfs_node *node = rfs_unpickle_top(machine);

    if (!take_number(machine, bytes, &at) || !node)
        return rfs_unpickle_fail(machine, "nothing to remember");
    if (at > machine->memo.n)
        return rfs_unpickle_fail(machine, "a memo number out of order");
    if (at < machine->memo.n) {
        machine->memo.data[at] = node;
        return 0;
    }
    return RFS_PUSH(&machine->memo, node) ? 0 : rfs_fail_memory(machine->err);
}

static int memo_get(struct rfs_unpickler *machine, unsigned bytes)
{
    uint32_t at;

    if (!take_number(machine, bytes, &at) || at >= machine->memo.n)
        return rfs_unpickle_fail(machine, "a memo number that was never set");
    return rfs_unpickle_push(machine, machine->memo.data[at]);
}

static int refuse(const struct rfs_unpickler *machine)
{
    return rfs_fail(machine->err, -ENOTSUP, rfs_unpickle_where(machine), REMEDY_SAVE,
                    "the pickle in it has the opcode 0x%02x, which torch.save does not write",
                    *machine->op);
}

static int protocol(struct rfs_unpickler *machine)
{
    const unsigned char *version = take(machine, 1);

    if (!version || machine->op != machine->pickle->bytes)
        return rfs_unpickle_fail(machine, "a protocol number in the middle");
    if (*version != 2)
        return rfs_fail(machine->err, -ENOTSUP, RFS_IN(machine->file),
                        "save it again without pickle_protocol=",
                        "the pickle in it is of protocol %u; protocol 2 is read", *version);
    return 0;
}

static int push_sized_int(struct rfs_unpickler *machine, unsigned bytes)
{
    uint32_t number;
    int32_t with_sign;

    if (!take_number(machine, bytes, &number))
        return rfs_unpickle_fail(machine, "it ends within a number");
    memcpy(&with_sign, &number, sizeof with_sign);
    return push_int(machine, bytes == 4 ? with_sign : (int64_t)number);
}

static int push_sized_long(struct rfs_unpickler *machine, unsigned bytes)
{
    uint32_t n;
    return take_number(machine, bytes, &n) ? push_long(machine, n)
                                           : rfs_unpickle_fail(machine, "it ends within a number");
}

static int set_mark(struct rfs_unpickler *machine)
{
    if (++machine->pushes > PUSHES_MOST)
        return rfs_unpickle_no_node(machine);
    return RFS_PUSH(&machine->marks, (uint32_t)machine->stack.n) ? 0
                                                                 : rfs_fail_memory(machine->err);
}

static int drop_to_mark(struct rfs_unpickler *machine)
{
    const int64_t height = rfs_unpickle_pop_mark(machine);
    if (height < 0)
        return (int)height;
    machine->stack.n = (size_t)height;
    return 0;
}

/* Memory for nodes and items, the stack, the memo and marks. */
static size_t memory_of(const struct rfs_unpickler *machine)
{
    return machine->pickle->arena.bytes +
           (machine->stack.cap + machine->memo.cap) * sizeof(struct rfs_node *) +
           machine->marks.cap * sizeof *machine->marks.data;
}

static int fail_size(const struct rfs_unpickler *machine)
{
    if (machine->budget && memory_of(machine) > rfs_budget_rest(machine->budget))
        return rfs_budget_fail(machine->budget, machine->file, machine->err);
    return rfs_fail(machine->err, -EFBIG, rfs_unpickle_where(machine), REMEDY_LISTS,
                    "the pickle in it would take more than %zu bytes of memory", machine->most);
}

static int step(struct rfs_unpickler *machine, unsigned char op)
{
    switch (op) {
    case 0x80:
        return protocol(machine);
    case '(':
        return set_mark(machine);
    case '0':
        return rfs_unpickle_pop(machine) ? 0 : rfs_unpickle_fail(machine, "nothing to drop");
    case '1':
        return drop_to_mark(machine);
    case '2':
        return rfs_unpickle_top(machine) ? rfs_unpickle_push(machine, rfs_unpickle_top(machine))
                                         : rfs_unpickle_fail(machine, "nothing to repeat");
    case 'N':
        return rfs_unpickle_push(machine, rfs_node_constant(RFS_NODE_NONE, 0));
    case 0x88:
    case 0x89:
        return rfs_unpickle_push(machine, rfs_node_constant(RFS_NODE_BOOL, op == 0x88));
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
        return rfs_unpickle_global(machine);
    case ')':
        return rfs_unpickle_tuple(machine, 0);
    case 't':
        return rfs_unpickle_fold(machine, RFS_NODE_TUPLE, rfs_unpickle_pop_mark(machine));
    case 0x85:
    case 0x86:
    case 0x87:
        return rfs_unpickle_tuple(machine, op - 0x84u);
    case ']':
        return rfs_unpickle_push(machine, rfs_unpickle_node(machine, RFS_NODE_LIST));
    case 'l':
        return rfs_unpickle_fold(machine, RFS_NODE_LIST, rfs_unpickle_pop_mark(machine));
    case 'a':
        return rfs_unpickle_add_last(machine, 1, false);
    case 'e':
        return rfs_unpickle_add(machine, rfs_unpickle_pop_mark(machine), false);
    case '}':
        return rfs_unpickle_push(machine, rfs_unpickle_node(machine, RFS_NODE_DICT));
    case 'd':
        return rfs_unpickle_fold(machine, RFS_NODE_DICT, rfs_unpickle_pop_mark(machine));
    case 's':
        return rfs_unpickle_add_last(machine, 2, true);
    case 'u':
        return rfs_unpickle_add(machine, rfs_unpickle_pop_mark(machine), true);
    case 'q':
        return memo_put(machine, 1);
    case 'r':
        return memo_put(machine, 4);
    case 'h':
        return memo_get(machine, 1);
    case 'j':
        return memo_get(machine, 4);
    case 'R':
        return rfs_unpickle_call(machine, RFS_NODE_CALL);
    case 0x81:
        return rfs_unpickle_call(machine, RFS_NODE_NEW);
    case 'b':
        return rfs_unpickle_build(machine);
    case 'Q':
        return rfs_unpickle_storage(machine);
    default:
        return refuse(machine);
    }
}

static int run(struct rfs_unpickler *machine)
{
    for (;;) {
        machine->op = machine->p;
        if (machine->p == machine->end)
            return rfs_unpickle_fail(machine, "it has no end");
        const unsigned char op = *machine->p++;
        if (op == '.')
            break;
        int rc = step(machine, op);
        if (rc == 0 && memory_of(machine) > machine->most)
            rc = fail_size(machine);
        if (rc < 0)
            return rc;
    }
    if (machine->stack.n != 1 || machine->marks.n != 0)
        return rfs_unpickle_fail(machine, "it ends with values left over, or with none");
    if (machine->p != machine->end)
        return rfs_unpickle_fail(machine, "something follows its end");
    machine->pickle->root = machine->stack.data[0];
    return 0;
}

int rfs_pickle_read(unsigned char *bytes, size_t n, const struct rfs_pickle_from *from,
                    struct rfs_pickle *out, struct rfs_error *err)
{
    struct rfs_unpickler machine = {.pickle = out,
                                    .most = rfs_pickle_memory(n),
                                    .budget = from->budget,
                                    .file = from->file,
                                    .offset = from->offset,
                                    .origin = from->origin,
                                    .pieces = from->pieces,
                                    .err = err};

    *out = (struct rfs_pickle){.bytes = bytes, .n_bytes = n};
    machine.p = machine.op = bytes;
    machine.end = bytes + n;
    int rc = 0;
    if (machine.budget) {
        rc = rfs_budget_take(machine.budget, n, from->file, err);
        machine.most = (size_t)rfs_min_u64(machine.most, rfs_budget_rest(machine.budget));
    }
    if (rc == 0)
        rc = run(&machine);
    if (rc == 0 && machine.budget)
        rc = rfs_budget_take(machine.budget, out->arena.bytes, from->file, err);
    free(machine.stack.data);
    free(machine.marks.data);
    free(machine.memo.data);
    if (rc < 0)
        rfs_pickle_free(out);
    return rc;
}

void rfs_pickle_free(struct rfs_pickle *pickle)
{
    rfs_arena_free(&pickle->arena);
    free(pickle->bytes);
    *pickle = (struct rfs_pickle){0};
}
