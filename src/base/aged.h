/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists by age: an owner has the members oldest and newest, an element older and newer. Neither
 * allocates nor locks.
 */
#pragma once

#include <stddef.h>

/* Makes an element, which is in no list, the newest one. Evaluates both more than once. */
#define RFS_AGED_ADD(list, element)                                                                \
    do {                                                                                           \
        (element)->older = (list)->newest;                                                         \
        (element)->newer = NULL;                                                                   \
        *((list)->newest ? &(list)->newest->newer : &(list)->oldest) = (element);                  \
        (list)->newest = (element);                                                                \
    } while (0)

/* Takes an element out of its list. Evaluates both more than once. */
#define RFS_AGED_REMOVE(list, element)                                                             \
    do {                                                                                           \
        *((element)->older ? &(element)->older->newer : &(list)->oldest) = (element)->newer;       \
        *((element)->newer ? &(element)->newer->older : &(list)->newest) = (element)->older;       \
        (element)->older = (element)->newer = NULL;                                                \
    } while (0)
