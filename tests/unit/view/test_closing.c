/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight threads use and close files, lists and views under the discipline of the Python package's
 * gates (python/reshard/_gate.py): a call is counted before it looks whether its object is closed;
 * the closer waits until no call is counted, and another one until the first has freed; what was
 * opened in a view is freed before it. Under ThreadSanitizer, all that the library does in these
 * calls is in some order.
 */
#include "tests/unit/view/support.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 8
#define ROUNDS 40

enum { FILE_GATE, LIST_GATE, CANCEL_GATE, VIEW_GATE, GATES };

/* An object of the library, and the calls on it. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *object; /* NULL: freed */
    unsigned calls;
    bool shut, freeing;
};

struct shared {
    struct gate gates[GATES];
    pthread_barrier_t begin;
    unsigned char want[64];
    atomic_uint reads, wrong;
};

struct worker {
    struct shared *shared;
    unsigned seed;
};

static bool enter(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    const bool open = !gate->shut;
    gate->calls += open;
    pthread_mutex_unlock(&gate->lock);
    return open;
}

static void leave(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->calls--;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static void free_object(struct shared *shared, int which)
{
    void *object = shared->gates[which].object;

    if (which == FILE_GATE)
        reshard_reader_close(object);
    else if (which == LIST_GATE)
        reshard_tensors_close(object);
    else if (which == CANCEL_GATE)
        reshard_cancel_free(object);
    else
        reshard_close(object);
}

/* Returns when the object has been freed, by this thread or by another one. */
static void close_gate(struct shared *shared, int which)
{
    struct gate *gate = &shared->gates[which];

    pthread_mutex_lock(&gate->lock);
    gate->shut = true;
    while (gate->calls > 0 || gate->freeing)
        pthread_cond_wait(&gate->changed, &gate->lock);
    const bool mine = gate->object != NULL;
    gate->freeing = mine;
    pthread_mutex_unlock(&gate->lock);
    if (!mine)
        return;
    for (int i = 0; which == VIEW_GATE && i < VIEW_GATE; i++)
        close_gate(shared, i);
    free_object(shared, which);
    pthread_mutex_lock(&gate->lock);
    gate->object = NULL;
    gate->freeing = false;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static void use(struct shared *shared, int which)
{
    struct gate *gate = &shared->gates[which];
    unsigned char got[64];
    reshard_statistics statistics = {.struct_size = sizeof statistics};

    if (!enter(gate))
        return;
    if (which == FILE_GATE) {
        const ssize_t n = reshard_reader_pread(gate->object, got, sizeof got, 0);
        if (n != (ssize_t)sizeof got || memcmp(got, shared->want, sizeof got) != 0)
            atomic_fetch_add(&shared->wrong, 1);
    } else if (which == LIST_GATE) {
        const reshard_load load = {.tensor = 0, .to = got};
        reshard_tensor tensor = {.struct_size = sizeof tensor};
        reshard_error err = {.struct_size = sizeof err};
        if (reshard_tensors_get(gate->object, 0, &tensor) || tensor.bytes > sizeof got ||
            reshard_tensors_load(gate->object, &load, 1, NULL, NULL, &err))
            atomic_fetch_add(&shared->wrong, 1);
    } else if (which == CANCEL_GATE) {
        reshard_cancel_use(gate->object);
        reshard_cancel_set(gate->object, false);
        reshard_cancel_use(NULL);
    } else {
        reshard_get_statistics(gate->object, &statistics);
    }
    atomic_fetch_add(&shared->reads, 1);
    leave(gate);
}

static void *work(void *arg)
{
    const struct worker *worker = arg;
    unsigned random = worker->seed;

    pthread_barrier_wait(&worker->shared->begin);
    for (int i = 0; i < 50; i++) {
        random = random * 1103515245u + 12345u;
        const int which = (int)(random >> 16) % GATES;
        if ((random >> 24) % 24 == 0)
            close_gate(worker->shared, which);
        else
            use(worker->shared, which);
    }
    for (int i = 0; i < GATES; i++)
        close_gate(worker->shared, ((int)worker->seed + i) % GATES);
    return NULL;
}

static void *opened(struct fixture *f, int which)
{
    reshard_reader *reader;
    reshard_tensors *tensors;
    reshard_cancel *cancel;

    if (which == FILE_GATE) {
        assert_int_equal(reshard_reader_open(f->view, file_id(f, 0), &reader), 0);
        return reader;
    }
    if (which == LIST_GATE) {
        assert_int_equal(reshard_tensors_open(f->view, "full", &tensors, &f->err), 0);
        return tensors;
    }
    if (which == CANCEL_GATE) {
        assert_int_equal(reshard_cancel_new(f->view, &cancel), 0);
        return cancel;
    }
    return f->view;
}

static void test_eight_threads_close(void **state)
{
    struct fixture *f = *state;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct shared shared = {0};
        struct worker workers[THREADS];
        pthread_t threads[THREADS];

        open_view(f);
        pthread_barrier_init(&shared.begin, NULL, THREADS);
        for (int i = 0; i < GATES; i++) {
            pthread_mutex_init(&shared.gates[i].lock, NULL);
            pthread_cond_init(&shared.gates[i].changed, NULL);
            shared.gates[i].object = opened(f, i);
        }
        assert_int_equal(reshard_reader_pread(shared.gates[FILE_GATE].object, shared.want,
                                              sizeof shared.want, 0),
                         sizeof shared.want);
        f->view = NULL; /* the threads close it */
        for (unsigned i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){&shared, round * THREADS + i};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(shared.wrong, 0);
        for (int i = 0; i < GATES; i++) {
            assert_null(shared.gates[i].object);
            pthread_mutex_destroy(&shared.gates[i].lock);
            pthread_cond_destroy(&shared.gates[i].changed);
        }
        pthread_barrier_destroy(&shared.begin);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_eight_threads_close, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
