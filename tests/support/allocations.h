/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's own malloc, calloc and realloc, in the place of those of libc (or of a sanitizer),
 * for it and for the libraries that it uses. Included once in a program, which says in
 * allocation_fails what becomes of each.
 */
#ifndef TESTS_SUPPORT_ALLOCATIONS_H
#define TESTS_SUPPORT_ALLOCATIONS_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#ifdef __has_feature
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define REAL(name) __interceptor_##name
#define SANITIZED 1
int __lsan_do_recoverable_leak_check(void);
#define LEAKS() __lsan_do_recoverable_leak_check()
#elif defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define REAL(name) __interceptor_##name
#define SANITIZED 1
#define LEAKS() 0
#else
#define REAL(name) __libc_##name
#define LEAKS() 0
#endif

void *REAL(malloc)(size_t n);
void *REAL(calloc)(size_t n, size_t size);
void *REAL(realloc)(void *old, size_t n);

static _Thread_local bool spared; /* what a sanitizer itself allocates */

/* These are called before a sanitizer is ready to be told of it. */
#define EARLY __attribute__((no_sanitize("thread", "address", "undefined")))
#define INSTEAD EARLY __attribute__((visibility("default")))

EARLY static bool allocation_fails(void);

INSTEAD void *malloc(size_t n)
{
    return allocation_fails() ? NULL : REAL(malloc)(n);
}

INSTEAD void *calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : REAL(calloc)(n, size);
}

INSTEAD void *realloc(void *old, size_t n)
{
    return allocation_fails() ? NULL : REAL(realloc)(old, n);
}

#ifdef SANITIZED
/* Sanitizers ask this at the start of each thread, and cannot do without the answer. */
INSTEAD int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
    int (*real)(pthread_t, pthread_attr_t *);

    spared = true;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_getattr_np");
    const int rc = real ? real(thread, attr) : ENOSYS;
    spared = false;
    return rc;
}
#endif

#endif
