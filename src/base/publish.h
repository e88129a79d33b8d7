/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pointer to an object that is made at its first use, and then only read, without a lock; NULL
 * until then. Several threads may make it at once; the first to publish wins. For objects that are
 * costly to make twice, see base/once.h.
 */
#pragma once

#include "base/std.h"

#include <stdatomic.h>

/* The published object, or NULL. */
#define RFS_PUBLISHED(slot) atomic_load_explicit((slot), memory_order_acquire)

/*
 * Publishes FRESH at SLOT, an _Atomic pointer, unless it is set already: then FRESH is dropped by
 * DROP(fresh). Evaluates to the published pointer.
 */
#define RFS_PUBLISH(slot, fresh, drop)                                                             \
    __extension__({                                                                                \
        __typeof__(&*(fresh)) publish_mine = (fresh), publish_there = NULL;                        \
        if (atomic_compare_exchange_strong((slot), &publish_there, publish_mine))                  \
            publish_there = publish_mine;                                                          \
        else                                                                                       \
            drop(publish_mine);                                                                    \
        publish_there;                                                                             \
    })
