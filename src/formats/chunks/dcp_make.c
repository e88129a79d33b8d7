/* SPDX-License-Identifier: Apache-2.0 */
/* The opcodes of a .metadata that make new values of those on the stack. */
#include "formats/chunks/dcp_machine.h"

enum {
    NAME_MOST = 256, /* bytes of a module's or a class's name */
    LIST_WORDS = 3,  /* of the head of a list */
    BLOCK_WORDS = 2, /* of the head of a block of items */
};

int rfs_dcp_push(struct rfs_dcp_machine *machine, uint32_t value)
{
    return RFS_PUSH(&machine->stack, value) ? 0 : rfs_fail_memory(machine->err);
}

int rfs_dcp_new_words(struct rfs_dcp_machine *machine, size_t n, uint32_t *place)
{
    struct rfs_dcp_pickle *pickle = machine->pickle;

    if (n > RFS_DCP_NUMBER_MOST - pickle->words.n)
        return rfs_dcp_too_large(machine);
    if (!RFS_RESERVE(&pickle->words, n))
        return rfs_fail_memory(machine->err);
    *place = (uint32_t)pickle->words.n;
    memset(pickle->words.data + *place, 0, n * sizeof(uint32_t));
    pickle->words.n += n;
    return 0;
}

size_t rfs_dcp_above_mark(const struct rfs_dcp_machine *machine)
{
    const size_t n = machine->marks.n;
    return machine->stack.n - (n > 0 ? machine->marks.data[n - 1] : 0);
}

int rfs_dcp_pop(struct rfs_dcp_machine *machine, uint32_t *value)
{
    if (rfs_dcp_above_mark(machine) == 0)
        return rfs_dcp_damaged(machine, "a value is missing");
    *value = machine->stack.data[--machine->stack.n];
    return 0;
}

/* A tuple of the values from HEIGHT on. */
static int make_tuple(struct rfs_dcp_machine *machine, size_t height)
{
    const size_t n = machine->stack.n - height;
    uint32_t place = RFS_DCP_EMPTY_TUPLE;
    const int rc = n > 0 ? rfs_dcp_new_words(machine, n + 1, &place) : 0;

    if (rc)
        return rc;
    if (n > 0) {
        machine->pickle->words.data[place] = (uint32_t)n;
        memcpy(machine->pickle->words.data + place + 1, machine->stack.data + height,
               n * sizeof(uint32_t));
    }
    machine->stack.n = height;
    return rfs_dcp_push(machine, rfs_dcp_value(RFS_DCP_TUPLE, place));
}

int rfs_dcp_make_tuple(struct rfs_dcp_machine *machine, size_t n)
{
    return rfs_dcp_above_mark(machine) < n ? rfs_dcp_damaged(machine, "a value is missing")
                                           : make_tuple(machine, machine->stack.n - n);
}

int rfs_dcp_make_empty(struct rfs_dcp_machine *machine, enum rfs_dcp_kind kind)
{
    uint32_t place = 0;
    const int rc = rfs_dcp_new_words(machine, LIST_WORDS, &place);
    return rc ? rc : rfs_dcp_push(machine, rfs_dcp_value(kind, place));
}

/* Adds the values from HEIGHT on, as one block, to the list or dict below them. */
static int add_items(struct rfs_dcp_machine *machine, size_t height, enum rfs_dcp_kind kind)
{
    const size_t n = machine->stack.n - height;
    const size_t below = machine->marks.n > 0 ? machine->marks.data[machine->marks.n - 1] : 0;
    uint32_t place = 0;

    if (height <= below || rfs_dcp_kind(machine->stack.data[height - 1]) != kind)
        return rfs_dcp_damaged(machine, "items without a container");
    if (kind == RFS_DCP_DICT && n % 2 != 0)
        return rfs_dcp_damaged(machine, "a key without a value");
    if (n == 0)
        return 0;
    const int rc = rfs_dcp_new_words(machine, BLOCK_WORDS + n, &place);
    if (rc)
        return rc;
    uint32_t *words = machine->pickle->words.data;
    uint32_t *head = words + rfs_dcp_number(machine->stack.data[height - 1]);
    if (n > UINT32_MAX - head[0])
        return rfs_dcp_too_large(machine);
    words[place + 1] = (uint32_t)n;
    memcpy(words + place + BLOCK_WORDS, machine->stack.data + height, n * sizeof(uint32_t));
    *(head[2] ? &words[head[2]] : &head[1]) = place;
    head[2] = place;
    head[0] += (uint32_t)n;
    machine->stack.n = height;
    return 0;
}

int rfs_dcp_add(struct rfs_dcp_machine *machine, size_t n, enum rfs_dcp_kind kind)
{
    return rfs_dcp_above_mark(machine) < n ? rfs_dcp_damaged(machine, "a value is missing")
                                           : add_items(machine, machine->stack.n - n, kind);
}

/* Takes the last mark off; *height is that of the stack below the values above it. */
static int pop_mark(struct rfs_dcp_machine *machine, size_t *height)
{
    if (machine->marks.n == 0)
        return rfs_dcp_damaged(machine, "no mark is set");
    *height = machine->marks.data[--machine->marks.n];
    return 0;
}

int rfs_dcp_to_mark(struct rfs_dcp_machine *machine, enum rfs_dcp_kind kind)
{
    size_t height = 0;
    const int rc = pop_mark(machine, &height);

    if (rc)
        return rc;
    return kind == RFS_DCP_TUPLE ? make_tuple(machine, height) : add_items(machine, height, kind);
}

int rfs_dcp_find_name(struct rfs_dcp_machine *machine)
{
    uint32_t values[2];
    size_t n[2];
    int rc = rfs_dcp_pop(machine, &values[1]) ?: rfs_dcp_pop(machine, &values[0]);

    if (rc)
        return rc;
    const char *module = rfs_dcp_text(machine->pickle, values[0], &n[0]);
    const char *name = rfs_dcp_text(machine->pickle, values[1], &n[1]);
    if (!module || !name || n[0] > NAME_MOST || n[1] > NAME_MOST || strlen(module) != n[0] ||
        strlen(name) != n[1])
        return rfs_dcp_damaged(machine, "a name that is not one");
    const uint32_t value = rfs_dcp_name(module, name);
    if (value == rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE))
        return rfs_fail(machine->err, -ENOTSUP, rfs_dcp_here(machine), RFS_DCP_REMEDY_SAVE,
                        "the pickle in it names %s.%s, which is not read; nothing was executed",
                        module, name);
    return rfs_dcp_push(machine, value);
}

/* The two values on the top: the function, and the tuple of its arguments. */
static int pop_call(struct rfs_dcp_machine *machine, uint32_t *callee, enum rfs_dcp_use *use,
                    const uint32_t **args, uint32_t *n)
{
    uint32_t tuple = 0;
    int rc = rfs_dcp_pop(machine, &tuple) ?: rfs_dcp_pop(machine, callee);

    if (rc)
        return rc;
    *args = rfs_dcp_tuple(machine->pickle, tuple, n);
    return *args && rfs_dcp_use(*callee, use)
               ? 0
               : rfs_dcp_damaged(machine, "a call of something that is not callable");
}

static bool are_texts(const uint32_t *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (rfs_dcp_kind(values[i]) != RFS_DCP_TEXT)
            return false;
    return true;
}

int rfs_dcp_call(struct rfs_dcp_machine *machine)
{
    uint32_t callee = 0;
    uint32_t n = 0;
    enum rfs_dcp_use use = RFS_DCP_USE_DTYPE;
    const uint32_t *args = NULL;
    const int rc = pop_call(machine, &callee, &use, &args, &n);

    if (rc)
        return rc;
    if ((use == RFS_DCP_USE_SHAPE && n == 1 && rfs_dcp_kind(args[0]) == RFS_DCP_TUPLE) ||
        (use == RFS_DCP_USE_SAME && n == 1 && rfs_dcp_kind(args[0]) == RFS_DCP_TEXT))
        return rfs_dcp_push(machine, args[0]);
    if ((use == RFS_DCP_USE_ENUM && n == 1 && rfs_dcp_kind(args[0]) == RFS_DCP_INT) ||
        (use == RFS_DCP_USE_PATH && are_texts(args, n)))
        return rfs_dcp_push(machine, rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_OPAQUE));
    if (use == RFS_DCP_USE_DICT && n == 0)
        return rfs_dcp_make_empty(machine, RFS_DCP_DICT);
    return rfs_dcp_damaged(machine, "a call that torch does not write");
}

int rfs_dcp_make_object(struct rfs_dcp_machine *machine)
{
    uint32_t callee = 0;
    uint32_t n = 0;
    uint32_t place = 0;
    enum rfs_dcp_use use = RFS_DCP_USE_DTYPE;
    const uint32_t *args;
    int rc = pop_call(machine, &callee, &use, &args, &n);

    if (rc)
        return rc;
    if (use != RFS_DCP_USE_CLASS || n != 0)
        return rfs_dcp_damaged(machine, "an object that torch does not write");
    rc = rfs_dcp_new_words(machine, 2, &place);
    if (rc)
        return rc;
    machine->pickle->words.data[place] = rfs_dcp_name_class(callee);
    return rfs_dcp_push(machine, rfs_dcp_value(RFS_DCP_OBJECT, place));
}

int rfs_dcp_build(struct rfs_dcp_machine *machine)
{
    uint32_t state = 0;
    const int rc = rfs_dcp_pop(machine, &state);

    if (rc)
        return rc;
    if (rfs_dcp_above_mark(machine) == 0 ||
        (rfs_dcp_kind(state) != RFS_DCP_DICT && rfs_dcp_kind(state) != RFS_DCP_TUPLE))
        return rfs_dcp_damaged(machine, "a state without an object");
    const uint32_t object = machine->stack.data[machine->stack.n - 1];
    uint32_t *words = machine->pickle->words.data + rfs_dcp_number(object);
    if (rfs_dcp_kind(object) != RFS_DCP_OBJECT ||
        words[1] != rfs_dcp_value(RFS_DCP_PLAIN, RFS_DCP_NONE))
        return rfs_dcp_damaged(machine, "a state without an object");
    words[1] = state;
    return 0;
}
