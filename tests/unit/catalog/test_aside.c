/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors beside a checkpoint: which, why, and what they hold that nothing else has. */
#include "catalog/catalog.h"
#include "scanning.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define INDEX "model.safetensors.index.json"

/* Writes a safetensors file of Float32 tensors with N elements each, by NAMES up to a NULL. */
static void put_tensors(const struct scanning *s, const char *file, unsigned n,
                        const char *const *names)
{
    char text[2048] = "        {";
    size_t used = 9;
    unsigned bytes = 0;

    for (size_t i = 0; names[i]; i++, bytes += 4 * n)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%u],\"data_offsets\":[%u,"
                                 "%u]}",
                                 i > 0 ? "," : "", names[i], n, bytes, bytes + 4 * n);
    text[used++] = '}';
    const uint64_t header = used - 8;
    for (unsigned i = 0; i < 8; i++)
        text[i] = (char)(header >> 8 * i);
    memset(text + used, 0, bytes);
    put(s, file); /* makes its folder */
    tree_file(&s->tree, file, text, used + bytes);
}
#define TENSORS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Returns "NAME (reason)" of each file beside the checkpoint, with ", " between. */
static const char *beside(const struct scanning *s)
{
    static char text[2048];
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < s->scan.aside.files.n; i++) {
        const struct rfs_aside_file *file = &s->scan.aside.files.data[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s (%s)", i > 0 ? ", " : "",
                                 file->path + strlen(s->tree.root) + 1, file->why);
    }
    return text;
}

/* Beside folders of ranks: a copy that somebody consolidated, but no strategy. */
static void test_beside_ranks(void **state)
{
    struct scanning *s = *state;
    put(s, "rank_0/net-1_2.ckpt");
    put(s, "rank_0/net-1_1.ckpt");
    put(s, "rank_1/net-1_2.ckpt");
    put(s, "model.safetensors");
    put(s, "all.ckpt");
    put(s, "optimizer.pt");
    put(s, ".hidden.ckpt");
    put(s, "cuts.ckpt");
    put(s, "src_strategy.ckpt");
    put(s, "notes.txt");
    put(s, "folder.ckpt/x");
    s->options.src_strategy = (char *)"/elsewhere/cuts.ckpt";
    scanned(s);
    assert_string_equal(beside(s), "all.ckpt (the folders of ranks are read), "
                                   "model.safetensors (the folders of ranks are read), "
                                   "optimizer.pt (a state of the training)");
    s->options.src_strategy = NULL;
    assert_int_equal(s->scan.n, 2);
}

static void test_model(void **state)
{
    struct scanning *s = *state;
    put(s, "model.safetensors");
    put(s, "config.json");
    put(s, "tokenizer.json");
    put(s, ".hidden.safetensors");
    tree_folder(&s->tree, "onnx.safetensors");
    scanned(s);
    assert_string_equal(beside(s), "");
    put(s, "mtp.safetensors");
    put(s, "model.fp16.safetensors");
    put(s, "consolidated.safetensors");
    put(s, "adapter_model.safetensors");
    put(s, "optimizer.pt");
    put(s, "pytorch_model.bin");
    put(s, "tf_model.h5");
    put(s, "training_args.bin");
    scanned(s);
    assert_string_equal(files_of(s, 0), "model.safetensors");
    assert_string_equal(beside(s),
                        "adapter_model.safetensors (an adapter, which is not merged), "
                        "consolidated.safetensors (the model by the names of its own program), "
                        "model.fp16.safetensors (another variant, by its name), "
                        "mtp.safetensors (another file is the model, by its name), "
                        "optimizer.pt (a state of the training), "
                        "pytorch_model.bin (the model in another form, by its name), "
                        "tf_model.h5 (the model in another form, by its name), "
                        "training_args.bin (a state of the training)");
}

static void test_index(void **state)
{
    struct scanning *s = *state;
    put(s, "model-00001-of-00001.safetensors");
    put(s, "model-mtp-of-00001.safetensors");
    put(s, "shards/a.safetensors");
    put(s, "shards/b.safetensors");
    put(s, "elsewhere/c.safetensors");
    put_text(s, INDEX,
             "{\"weight_map\": {\"a\": \"model-00001-of-00001.safetensors\", "
             "\"b\": \"./shards/a.safetensors\"}}");
    scanned(s);
    assert_string_equal(beside(s), "model-mtp-of-00001.safetensors (the index does not name it), "
                                   "shards/b.safetensors (the index does not name it)");
    /* An index of files in folders alone is still in its own. */
    put_text(s, INDEX, "{\"weight_map\": {\"b\": \"shards/a.safetensors\"}}");
    scanned(s);
    assert_string_equal(beside(s), "model-00001-of-00001.safetensors (the index does not name it), "
                                   "model-mtp-of-00001.safetensors (the index does not name it), "
                                   "shards/b.safetensors (the index does not name it)");
    /* What the user chooses is not told. */
    s->options.file = (char *)"model-0*";
    scanned(s);
    assert_string_equal(beside(s), "");
    s->options.file = NULL;
    s->options.segmented = true;
    scanned(s);
    assert_string_equal(beside(s), "");
    s->options.segmented = false;
    s->spec.path = tree_path(&s->tree, "shards/a.safetensors");
    scanned(s);
    assert_string_equal(beside(s), "");
}

static void test_described(void **state)
{
    struct scanning *s = *state;
    put(s, ".metadata");
    put(s, "__0_0.distcp");
    put(s, "common.pt");
    put(s, "model.safetensors");
    scanned(s);
    assert_non_null(s->scan.described);
    assert_string_equal(beside(s), "common.pt (a state of the training), "
                                   "model.safetensors (the save does not name it)");
}

/* States of a training are no rival of the model, and count where there is nothing else. */
static void test_states(void **state)
{
    struct scanning *s = *state;
    put(s, "optimizer.bin");
    put(s, "pytorch_model_fsdp.bin");
    put(s, "scheduler.bin");
    scanned(s);
    assert_string_equal(files_of(s, 0), "pytorch_model_fsdp.bin");
    assert_string_equal(beside(s), "optimizer.bin (a state of the training), "
                                   "scheduler.bin (a state of the training)");
    assert_int_equal(unlink(tree_path(&s->tree, "pytorch_model_fsdp.bin")), 0);
    assert_int_equal(unlink(tree_path(&s->tree, "scheduler.bin")), 0);
    scanned(s);
    assert_string_equal(files_of(s, 0), "optimizer.bin");
    put(s, "scheduler.bin");
    REFUSED(s, -ENOENT, "no rank_N folder in it");
    put(s, "tree/rank_0/model.pt");
    put(s, "tree/rank_0/optimizer.pt");
    put(s, "tree/rank_1/model.pt");
    s->spec.path = tree_path(&s->tree, "tree");
    scanned(s);
    assert_string_equal(files_of(s, 0), "tree/rank_0/model.pt");
    assert_non_null(strstr(s->lines.last, "1 file beside those of the model is not read, such as "
                                          "'optimizer.pt'"));
    /* MindSpore takes the last by name. */
    put(s, "saves/rank_0/net.ckpt");
    put(s, "saves/rank_0/optimizer.ckpt");
    s->spec.path = tree_path(&s->tree, "saves");
    scanned(s);
    assert_string_equal(files_of(s, 0), "saves/rank_0/optimizer.ckpt");
}

/* ---- what they hold -------------------------------------------------------------------------- */

static struct rfs_catalog *opened(struct scanning *s)
{
    struct rfs_catalog *catalog;
    struct rfs_error err = {0};

    if (rfs_catalog_open(&s->spec, &s->lines.log, NULL, &catalog, &err))
        fail_msg("%s", err.text);
    return catalog;
}

/* Strict refuses the source with a message that has the parts, up to a NULL. */
static void strict_refuses(struct scanning *s, const char *const *parts)
{
    struct rfs_catalog *catalog = opened(s);
    struct rfs_error err = {0};

    assert_int_equal(rfs_catalog_tell_aside(catalog, &s->lines.log, false, false, &err), 0);
    const int rc = rfs_catalog_tell_aside(catalog, &s->lines.log, false, true, &err);
    assert_int_equal(rc, parts[0] ? -EINVAL : 0);
    for (size_t i = 0; parts[i]; i++)
        if (!strstr(err.text, parts[i]))
            fail_msg("'%s' is not in: %s", parts[i], err.text);
    rfs_catalog_close(catalog);
}
#define STRICT_REFUSES(s, ...) strict_refuses(s, (const char *const[]){__VA_ARGS__, NULL})

static void test_strict(void **state)
{
    struct scanning *s = *state;
    put_tensors(s, "model.safetensors", 6, TENSORS("model.a", "model.b"));
    put(s, "optimizer.pt"); /* no file of torch.save: nothing opens it */
    put(s, "tf_model.h5");
    STRICT_REFUSES(s, NULL);
    /* A variant, or what an earlier save left, has the model's tensors. */
    put_tensors(s, "model.fp16.safetensors", 6, TENSORS("model.a", "model.b"));
    put_tensors(s, "model-00001-of-00002.safetensors", 3, TENSORS("model.b"));
    STRICT_REFUSES(s, NULL);
    put_tensors(s, "model-mtp.safetensors", 6, TENSORS("mtp.x", "model.a", "mtp.y"));
    STRICT_REFUSES(s, "model-mtp.safetensors: it is not read", "has 2 tensors that no other file",
                   "such as 'mtp.x'");
    assert_int_equal(unlink(tree_path(&s->tree, "model-mtp.safetensors")), 0);
    put(s, "more.safetensors");
    STRICT_REFUSES(s, "what it holds is not known", "more.safetensors");
}

/* The model by other names has as many elements. */
static void test_again(void **state)
{
    struct scanning *s = *state;
    put_tensors(s, "model.safetensors", 6, TENSORS("model.a", "model.b"));
    put_tensors(s, "consolidated.safetensors", 6, TENSORS("a", "b"));
    STRICT_REFUSES(s, NULL);
    put_tensors(s, "consolidated.safetensors", 6, TENSORS("a", "b", "c"));
    STRICT_REFUSES(s, "has 3 tensors", "such as 'a'");
}

static void test_line(void **state)
{
    struct scanning *s = *state;
    char name[64];
    put_tensors(s, "model.safetensors", 6, TENSORS("model.a"));
    put(s, "optimizer.pt");
    for (unsigned i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "more-%u.safetensors", i);
        put(s, name);
    }
    scanned(s);
    char *text = rfs_aside_text(&s->scan.aside);
    assert_non_null(strstr(text, "6 files of tensors are not read: 'more-0.safetensors' ("));
    assert_non_null(strstr(text, ") and 2 more"));
    assert_null(strstr(text, "optimizer.pt"));
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scanning_setup, scanning_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_beside_ranks), TEST(test_model),  TEST(test_index), TEST(test_described),
        TEST(test_states),       TEST(test_strict), TEST(test_again), TEST(test_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
