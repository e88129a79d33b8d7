/* SPDX-License-Identifier: Apache-2.0 */
/* Views of hfai's parts: what is made when, and by how many threads at once. */
#include "tests/support/torch_file.h"
#include "tests/unit/view/support.h"
#include "view/internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARTS_SHOWN = 1000, THREADS = 4 };

/* The only part of a state that has one model of one tensor. */
static void write_part(const char *root)
{
    struct torch_file file = {0};

    torch_ops(&file, "}(");
    torch_text(&file, "__nshards__");
    torch_int(&file, 1);
    torch_text(&file, "__version__");
    torch_text(&file, "2.0.0");
    torch_text(&file, "model");
    torch_ops(&file, "](ccollections\nOrderedDict\n)R(");
    torch_text(&file, "w");
    torch_tensor(
        &file,
        &(struct torch_tensor){
            .class = "ByteStorage", .key = "0", .elements = 4, .ndim = 1, .dims = (int64_t[]){4}});
    torch_storage(&file, "0", "abcd", 4);
    torch_ops(&file, "u}\x86"
                     "e");
    torch_text(&file, "optimizer");
    torch_ops(&file, "]u");
    const struct bytes *bytes = torch_end(&file);
    tree_write(root, "parts/PART_000.pt", bytes->data, bytes->n);
    torch_free(&file);
}

static void open_parts(struct fixture *f, const char *options)
{
    const reshard_config config = {.struct_size = sizeof config, .options = options};

    write_part(f->root);
    f->err = (reshard_error){.struct_size = sizeof f->err};
    if (reshard_open(tree_path(f->root, "parts"), &config, &f->view, &f->err))
        fail_msg("%s", f->err.message);
}

static uint64_t find(struct fixture *f, const char *folder, const char *name)
{
    uint64_t id = RESHARD_ROOT;

    if (folder)
        assert_int_equal(reshard_lookup(f->view, id, folder, &id), 0);
    assert_int_equal(reshard_lookup(f->view, id, name, &id), 0);
    return id;
}

/* The file is made when the view is opened, to find out whether it can be shown. */
static void test_safetensors_are_made_once(void **state)
{
    struct fixture *f = *state;

    open_parts(f, "");
    assert_true(reshard_is_ready(f->view, find(f, "merged", "model.safetensors")));
    assert_false(reshard_is_ready(f->view, find(f, "merged", "model.pt")));
    assert_false(reshard_is_ready(f->view, find(f, NULL, "PART_000.pt")));
}

struct looker {
    struct rfs_view *view;
    pthread_barrier_t *together;
    const struct rfs_image *seen[PARTS_SHOWN];
};

static void *look(void *arg)
{
    struct looker *looker = arg;

    for (size_t file = 0; file < PARTS_SHOWN; file++) {
        pthread_barrier_wait(looker->together);
        if (rfs_view_image(looker->view, file, &looker->seen[file], NULL))
            looker->seen[file] = NULL;
        rfs_image_free(looker->seen[file]); /* the file has it for good */
    }
    return NULL;
}

static void test_all_threads_see_one_image(void **state)
{
    struct fixture *f = *state;
    static struct looker lookers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t together;

    open_parts(f, "nshards=1000");
    pthread_barrier_init(&together, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        lookers[i] = (struct looker){.view = rfs_view_only(f->view), .together = &together};
        assert_int_equal(pthread_create(&threads[i], NULL, look, &lookers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    for (size_t file = 0; file < PARTS_SHOWN; file++)
        for (unsigned i = 0; i < THREADS; i++) {
            assert_non_null(lookers[i].seen[file]);
            assert_ptr_equal(lookers[i].seen[file], lookers[0].seen[file]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_safetensors_are_made_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_threads_see_one_image, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("view: hfai's parts", tests, NULL, NULL);
}
