/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack machine for pickles without effects. It reads opcodes from memory or, a window at a time,
 * from a file, and has a builder make the values that it moves between a stack and a memo. Nothing
 * is executed: a name, a call and a state are what the builder makes of them.
 *
 * A value is an address or a number of the builder's; the machine looks into none. The first
 * failure stays, and nothing is done after it. Cost: linear time; the builder counts the memory.
 */
#pragma once

#include "base/budget.h"
#include "base/error.h"
#include "base/vec.h"
#include "formats/walker.h"

struct rfs_unpickler;

/* Most return the value that they make. Any may fail, by a function below, and return 0 then. */
struct rfs_unpickler_builder {
    bool newer;       /* protocols 4 and 5 are read, else protocol 2 */
    bool wide;        /* values are addresses, else numbers of 32 bits */
    size_t text_most; /* bytes of a text; half a window at most, if the pickle is in a file */

    uint64_t (*constant)(struct rfs_unpickler *machine, unsigned char op); /* None, True, False */
    uint64_t (*integer)(struct rfs_unpickler *machine, int64_t value);
    /* An integer of more than 8 bytes, little-endian; NULL: it is refused. */
    uint64_t (*big)(struct rfs_unpickler *machine, const unsigned char *bytes, size_t n);
    uint64_t (*real)(struct rfs_unpickler *machine, uint64_t bits); /* of a double */
    uint64_t (*text)(struct rfs_unpickler *machine, const unsigned char *bytes, size_t n);
    /* Makes a tuple, list or dict ('t', 'l', 'd') of the values of the stack from HEIGHT on. */
    uint64_t (*make)(struct rfs_unpickler *machine, unsigned char kind, size_t height);
    /* Adds the values of the stack from HEIGHT on to CONTAINER. */
    void (*add)(struct rfs_unpickler *machine, uint64_t container, size_t height, bool dict);
    /* Takes a global name: from the bytes (protocol 2) or from the stack. */
    uint64_t (*name)(struct rfs_unpickler *machine);
    uint64_t (*call)(struct rfs_unpickler *machine, uint64_t callee, uint64_t args, bool is_new);
    void (*state)(struct rfs_unpickler *machine, uint64_t object, uint64_t state);
    uint64_t (*storage)(struct rfs_unpickler *machine, uint64_t id); /* protocol 2 */
    /* Returns the bytes of all values, the stack, the memo and the marks. */
    size_t (*memory)(const struct rfs_unpickler *machine);

    /* Remedies, for a pickle that is damaged, of another protocol, has other opcodes or names, */
    const char *damaged, *protocol, *opcode, *named;
    const char *size; /* or takes too much memory */
};

/* Values in a row: uintptr_t if they are wide, else uint32_t. */
struct rfs_unpickler_values {
    void *data;
    size_t n, cap;
};

/* The caller sets the members up to bytes. */
struct rfs_unpickler {
    const struct rfs_unpickler_builder *builder;
    void *ctx; /* the builder's */
    const char *file;
    struct rfs_error *err;               /* or NULL */
    struct rfs_budget *budget;           /* pays for the values; or NULL */
    size_t most;                         /* bytes of memory that they may take */
    uint32_t values_most;                /* four times as many are pushed at most */
    const struct rfs_bytes_source *from; /* NULL: the pickle is in memory */
    uint64_t begin;                      /* where the pickle begins in the file */
    uint64_t size;                       /* bytes of the pickle */
    const unsigned char *bytes;          /* of a pickle in memory; of a window of one in a file */

    size_t n, p; /* bytes of the window, and the position of the next one */
    uint64_t at; /* where the window is in the pickle */
    uint64_t op; /* where the opcode at hand is in the pickle */
    unsigned char *window;
    struct rfs_unpickler_values stack, memo;
    RFS_VEC(uint32_t) marks; /* heights of the stack */
    uint64_t pushes;
    int rc; /* the first failure */
};

/* Reads the pickle; *root is its value. 0 or -errno with the error filled. */
int rfs_unpickler_run(struct rfs_unpickler *machine, uint64_t *root);

/* ---- for builders ---- */

/* Returns where the opcode at hand is, for messages. */
static inline struct rfs_where rfs_unpickler_here(const struct rfs_unpickler *machine)
{
    return RFS_AT(machine->file, machine->begin + machine->op);
}
/*
 * Fail, and return 0: the pickle is damaged; names something else; takes too much memory; has too
 * many values; there is no memory.
 */
uint64_t rfs_unpickler_fail(struct rfs_unpickler *machine, const char *what);
uint64_t rfs_unpickler_fail_name(struct rfs_unpickler *machine, const char *module,
                                 size_t module_bytes, const char *name, size_t name_bytes);
uint64_t rfs_unpickler_fail_size(struct rfs_unpickler *machine);
uint64_t rfs_unpickler_fail_count(struct rfs_unpickler *machine);
uint64_t rfs_unpickler_fail_memory(struct rfs_unpickler *machine);

/* Takes the top of the stack, or fails. WHAT is the problem in the message about protocol 2. */
uint64_t rfs_unpickler_pop(struct rfs_unpickler *machine, const char *what);
