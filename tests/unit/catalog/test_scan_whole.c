/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of files, and unsharded sources. */
#include "base/path.h"
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

static void map_refused(struct scanning *s, const char *json, int code, const char *part)
{
    put_text(s, "map.json", json);
    REFUSED(s, code, "map.json", part);
}

static void test_map(void **state)
{
    struct scanning *s = *state;
    char text[256];
    put(s, "maps/a/one.ckpt");
    put(s, "elsewhere.ckpt");
    snprintf(text, sizeof text, "{\"10\": \"a/one.ckpt\", \"0\": \"%s/elsewhere.ckpt\"}",
             s->tree.root);
    put_text(s, "maps/map.json", text);
    s->options.files = (char *)tree_path(&s->tree, "maps/map.json");
    scanned(s);
    assert_false(s->scan.whole);
    assert_int_equal(s->scan.n, 2);
    assert_int_equal(s->scan.format, RFS_FORMAT_CKPT);
    assert_string_equal(files_of(s, 0), "elsewhere.ckpt");
    assert_string_equal(files_of(s, 10), "maps/a/one.ckpt");
    assert_null(s->scan.data[0].folder);
    s->options.step = 1;
    MISUSED(s, "files=");
    plain(s);
    s->options.files = (char *)tree_path(&s->tree, "maps/map.json");
    s->options.segmented = true;
    MISUSED(s, "files=");
}

static void test_bad_maps(void **state)
{
    struct scanning *s = *state;
    put(s, "a.ckpt");
    put(s, "a.safetensors");
    tree_folder(&s->tree, "dir.ckpt");
    s->options.files = (char *)tree_path(&s->tree, "map.json");
    REFUSED(s, -ENOENT, "map.json: cannot be read");
    map_refused(s, "", -EINVAL, "not valid JSON");
    map_refused(s, "[\"a.ckpt\"]", -EINVAL, "not a JSON object");
    map_refused(s, "{}", -EINVAL, "names no file");
    map_refused(s, "{\"0\": \"a.ckpt\"", -EINVAL, "not valid JSON");
    map_refused(s, "{\"0\": \"a.ckpt\"} x", -EINVAL, "not valid JSON");
    map_refused(s, "{\"0\": \"a\\u0000.ckpt\"}", -EINVAL, "a string with a NUL");
    map_refused(s, "{\"0\": 1}", -EINVAL, "the value of '0' is not a text");
    map_refused(s, "{\"0\": null}", -EINVAL, "not a text");
    map_refused(s, "{\"0\": [\"a.ckpt\"]}", -EINVAL, "not a text");
    map_refused(s, "{\"0\": \"a.ckpt\", \"0\": \"b.ckpt\"}", -EINVAL,
                "the key '0' comes twice, with 'a.ckpt' and with 'b.ckpt'; try: leave one of them");
    map_refused(s, "{\"0\": \"a.ckpt\", \"0\": 1}", -EINVAL, "the value of '0' is not a text");
    map_refused(s, "{\"00\": \"a.ckpt\"}", -EINVAL, "'00' is not a rank");
    map_refused(s, "{\"1048577\": \"a.ckpt\"}", -EINVAL, "is not a rank");
    map_refused(s, "{\"rank_0\": \"a.ckpt\"}", -EINVAL, "is not a rank");
    map_refused(s, "{\"0\": \"none.ckpt\"}", -ENOENT, "the file of rank 0, ");
    map_refused(s, "{\"0\": \"dir.ckpt\"}", -EINVAL, "not a regular file");
    map_refused(s, "{\"0\": \"s3://b/a.ckpt\"}", -EXDEV,
                "the file of rank 0, 's3://b/a.ckpt', is not below the folder of the map; try: "
                "origins=s3://b, if the map may lead there");
    s->options.origins = (char *)"https://b:s3://b/";
    map_refused(s, "{\"0\": \"s3://b/a.ckpt\"}", -ENOTSUP, "a URL is read here only if the source");
    s->options.origins = NULL;
    s->spec.path = "s3://b"; /* the user has named it */
    map_refused(s, "{\"0\": \"s3://b/a.ckpt\"}", -ENOTSUP, "a URL is read here only if the source");
    map_refused(s, "{\"0\": \"s3://b/../c/a.ckpt\"}", -EXDEV, "is not below the folder of the map");
    s->spec.path = s->tree.root;
    map_refused(s, "{\"0\": \"\"}", -EINVAL, "not a checkpoint by its name");
    map_refused(s, "{\"0\": \"a\"}", -EINVAL, "not a checkpoint by its name");
    map_refused(s, "{\"0\": \"a.ckpt\", \"1\": \"a.safetensors\"}", -EINVAL,
                "both .ckpt and .safetensors");
    tree_file(&s->tree, "map.json", "{\"0\":\0\"a.ckpt\"}", 15);
    REFUSED(s, -EINVAL, "not valid JSON: a value is expected here");
    char deep[4001];
    memset(deep, '[', 4000);
    deep[4000] = '\0';
    map_refused(s, deep, -EINVAL, "not valid JSON");
}

/* Meta's Llama: a file for each rank. */
static void test_model_parallel(void **state)
{
    struct scanning *s = *state;
    put(s, "consolidated.00.pth");
    put(s, "params.json");
    scanned(s);
    assert_true(s->scan.whole && s->scan.model_parallel);
    assert_string_equal(files_of(s, 0), "consolidated.00.pth");
    put(s, "consolidated.02.pth");
    REFUSED(s, -ENOENT, "has 'consolidated.02.pth', and 'consolidated.01.pth' is missing");
    put(s, "consolidated.01.pth");
    put(s, "consolidated.1.pth"); /* no name that Meta gives */
    scanned(s);
    assert_false(s->scan.whole);
    assert_true(s->scan.model_parallel);
    assert_int_equal(s->scan.n, 3);
    assert_int_equal(s->scan.present, 3);
    assert_int_equal(s->scan.format, RFS_FORMAT_TORCH);
    assert_string_equal(files_of(s, 2), "consolidated.02.pth");
    assert_int_equal(s->scan.aside.files.n, 1);
    assert_true(rfs_scan_is_model_parallel(NULL, s->tree.root));
    s->spec.path = tree_path(&s->tree, "consolidated.00.pth");
    s->options.strict = true;
    REFUSED(s, -EINVAL, "one of the tensor-parallel parts of a checkpoint, by its name");
    plain(s);
    assert_int_equal(unlink(tree_path(&s->tree, "consolidated.00.pth")), 0);
    REFUSED(s, -ENOENT, "and 'consolidated.00.pth' is missing");
    put(s, "model.safetensors");
    scanned(s);
    assert_false(s->scan.model_parallel);
    assert_string_equal(files_of(s, 0), "model.safetensors");
    assert_int_equal(s->scan.aside.files.n, 3);
}

static void test_one_file(void **state)
{
    struct scanning *s = *state;
    put(s, "net.ckpt");
    put(s, "net.safetensors");
    put(s, "net.bin");
    s->spec.path = tree_path(&s->tree, "net.ckpt");
    scanned(s);
    assert_true(s->scan.whole);
    assert_int_equal(s->scan.format, RFS_FORMAT_CKPT);
    assert_string_equal(files_of(s, 0), "net.ckpt");
    s->options.segmented = true;
    scanned(s);
    s->spec.path = tree_path(&s->tree, "net.safetensors");
    scanned(s);
    assert_int_equal(s->scan.format, RFS_FORMAT_SAFETENSORS);
    s->options.step = 1;
    MISUSED(s, "the source is one file");
    plain(s);
    /* The first bytes count where the ending says little, or nothing. */
    static const struct {
        const char *name, *bytes;
        enum rfs_format format;
    } rows[] = {
        {"net.bin", "PK\3\4rest", RFS_FORMAT_TORCH},
        {"net.pth", "PK\3\4rest", RFS_FORMAT_TORCH},
        {"net.th", "\x80\2\x8a\nl\xfc", RFS_FORMAT_TORCH}, /* before torch 1.6 */
        {"light.ckpt", "\x80\2\x8a\nl\xfc", RFS_FORMAT_TORCH},
        {"blob", "PK\3\4rest", RFS_FORMAT_TORCH},
        {"quantized.bin", "GGUF", RFS_FORMAT_GGUF},
        {"odd.bin", "nothing of these", RFS_FORMAT_TORCH},
        {"a.safetensors", "PK\3\4rest", RFS_FORMAT_SAFETENSORS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_text(s, rows[i].name, rows[i].bytes);
        s->spec.path = tree_path(&s->tree, rows[i].name);
        scanned(s);
        assert_int_equal(s->scan.format, rows[i].format);
    }
    put_text(s, "text", "nothing of these");
    s->spec.path = tree_path(&s->tree, "text");
    REFUSED(s, -EINVAL, "text: the source is not a checkpoint by its name");
    put(s, "model.safetensors.index.fp16.json");
    s->spec.path = tree_path(&s->tree, "model.safetensors.index.fp16.json");
    REFUSED(s, -EINVAL, "not a checkpoint by its name; try: the folder that this index is in");
    assert_int_equal(mkfifo(tree_path(&s->tree, "f.ckpt"), 0644), 0);
    s->spec.path = tree_path(&s->tree, "f.ckpt");
    REFUSED(s, -ENOTDIR, "neither a folder nor a file");
}

/* A link's own name tells the format, as in HuggingFace's cache of blobs. */
static void test_resolve(void **state)
{
    struct scanning *s = *state;
    struct rfs_error err = {0};
    char *path = NULL;
    put(s, "blobs/0123");
    put(s, "real/a/x.ckpt");
    assert_int_equal(symlink("blobs/0123", tree_path(&s->tree, "model.safetensors")), 0);
    assert_int_equal(symlink("real", tree_path(&s->tree, "link")), 0);
    assert_int_equal(rfs_path_resolve(NULL, tree_path(&s->tree, "model.safetensors"), &path, &err),
                     0);
    assert_string_equal(path, tree_path(&s->tree, "model.safetensors"));
    free(path);
    assert_int_equal(rfs_path_resolve(NULL, tree_path(&s->tree, "link/a/x.ckpt"), &path, &err), 0);
    assert_string_equal(path, tree_path(&s->tree, "real/a/x.ckpt"));
    free(path);
    assert_int_equal(rfs_path_resolve(NULL, tree_path(&s->tree, "link/./a/"), &path, &err), 0);
    assert_string_equal(path, tree_path(&s->tree, "real/a"));
    free(path);
    assert_int_equal(rfs_path_resolve(NULL, tree_path(&s->tree, "none"), &path, &err), -ENOENT);
    assert_null(path);
    assert_int_equal(chdir(s->tree.root), 0);
    assert_int_equal(rfs_path_resolve(NULL, "model.safetensors", &path, &err), 0);
    assert_string_equal(path, tree_path(&s->tree, "model.safetensors"));
    free(path);
    assert_int_equal(chdir("/"), 0);
}

#define MAP "{\"metadata\": {\"total_size\": 8}, \"weight_map\": "

static void test_huggingface(void **state)
{
    struct scanning *s = *state;
    put(s, "config.json");
    put(s, "pytorch_model.ckpt.bin");
    put(s, "model-00001-of-00002.safetensors");
    put(s, "model-00002-of-00002.safetensors");
    put_text(s, "model.safetensors.index.json",
             MAP "{\"b\": \"model-00002-of-00002.safetensors\", "
                 "\"a\": \"model-00001-of-00002.safetensors\", "
                 "\"c\": \"model-00002-of-00002.safetensors\"}}");
    scanned(s);
    assert_true(s->scan.whole);
    assert_int_equal(s->scan.format, RFS_FORMAT_SAFETENSORS);
    assert_string_equal(files_of(s, 0),
                        "model-00001-of-00002.safetensors model-00002-of-00002.safetensors");
    assert_string_equal(s->scan.data[0].weight_map,
                        tree_path(&s->tree, "model.safetensors.index.json"));
    /* As transformers joins them to the folder. */
    put(s, "shards/x/a.safetensors");
    put_text(s, "model.safetensors.index.json",
             MAP "{\"b\": \"./model-00002-of-00002.safetensors\", "
                 "\"a\": \"shards/x/a.safetensors\", \"d\": \".//shards/./x//a.safetensors\", "
                 "\"c\": \"model-00002-of-00002.safetensors\"}}");
    scanned(s);
    assert_string_equal(files_of(s, 0), "model-00002-of-00002.safetensors shards/x/a.safetensors");
    put(s, "other.safetensors.index.json");
    put(s, "consolidated.safetensors.index.json");
    scanned(s);
    assert_string_equal(files_of(s, 0), "model-00002-of-00002.safetensors shards/x/a.safetensors");
    put(s, "model.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "model.safetensors");
    assert_null(s->scan.data[0].weight_map);
    /* MLX writes one for a single file, too. */
    put_text(s, "model.safetensors.index.json",
             MAP "{\"b\": \"model.safetensors\", \"a\": \"model-00001-of-00002.safetensors\"}}");
    scanned(s);
    assert_string_equal(files_of(s, 0), "model-00001-of-00002.safetensors model.safetensors");
    assert_non_null(s->scan.data[0].weight_map);
    put_text(s, "model.safetensors.index.json", "<html>");
    scanned(s);
    assert_string_equal(files_of(s, 0), "model.safetensors");
}

static void drop(struct scanning *s, const char *name)
{
    assert_int_equal(unlink(tree_path(&s->tree, name)), 0);
}

/* Indexes by other names count after those that loaders look for. */
static void test_other_indexes(void **state)
{
    struct scanning *s = *state;
    put_text(s, "one.safetensors.index.json", MAP "{\"a\": \"a.safetensors\"}}");
    put_text(s, "consolidated.safetensors.index.json", MAP "{\"b\": \"b.safetensors\"}}");
    put_text(s, "model.safetensors.index.fp16.json", MAP "{\"c\": \"c.safetensors\"}}");
    put_text(s, "model.index.fp16.json", MAP "{\"d\": \"d.safetensors\"}}");
    put_text(s, "model.safetensors.index.a.b.json", MAP "{\"d\": \"d.safetensors\"}}");
    put(s, "a.safetensors");
    put(s, "b.safetensors");
    put(s, "c.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "a.safetensors");
    put(s, "two.safetensors.index.json");
    REFUSED(s, -EINVAL, "the folder has both ", "one.safetensors.index.json",
            "two.safetensors.index.json");
    drop(s, "two.safetensors.index.json");
    drop(s, "one.safetensors.index.json");
    scanned(s);
    assert_string_equal(files_of(s, 0), "b.safetensors");
    drop(s, "consolidated.safetensors.index.json");
    scanned(s);
    assert_string_equal(files_of(s, 0), "c.safetensors");
    drop(s, "model.safetensors.index.fp16.json");
    REFUSED(s, -ENOENT, "no name says which of its files counts: 'a.safetensors', 'b.safetensors'",
            "segmented");
    put_text(s, "pytorch_model.bin.index.bf16.json", MAP "{\"d\": \"d.bin\"}}");
    put(s, "d.bin");
    scanned(s);
    assert_string_equal(files_of(s, 0), "d.bin");
    assert_int_equal(s->scan.format, RFS_FORMAT_TORCH);
}

/* Parts without an index are one checkpoint, if all are there. */
static void test_parts(void **state)
{
    struct scanning *s = *state;
    put(s, "model-00001-of-00002.safetensors");
    REFUSED(s, -ENOENT, "'model-00002-of-00002.safetensors' is missing, of 2 parts");
    put(s, "model-00002-of-00002.safetensors");
    put(s, "mtp.safetensors");
    put(s, "optimizer.pt");
    put(s, "model-00001-of-00001.fp16.safetensors");
    put(s, "pytorch_model-00001-of-00003.bin");
    scanned(s);
    assert_true(s->scan.whole);
    assert_null(s->scan.data[0].weight_map);
    assert_string_equal(files_of(s, 0),
                        "model-00001-of-00002.safetensors model-00002-of-00002.safetensors");
    assert_int_equal(s->scan.aside.files.n, 4);
    put(s, "model-00001-of-00003.safetensors");
    REFUSED(s, -EINVAL, "are not files of one checkpoint", "file='model-");
    put(s, "diffusion_pytorch_model.bin");
    scanned(s);
    assert_string_equal(files_of(s, 0), "diffusion_pytorch_model.bin");
    put(s, "diffusion_pytorch_model.safetensors");
    put(s, "diffusion_pytorch_model.fp16.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "diffusion_pytorch_model.safetensors");
}

/* LLaMA-Factory's reward models have both; a base model or its parts count before an adapter. */
static void test_adapter(void **state)
{
    struct scanning *s = *state;
    put(s, "adapter_model.safetensors");
    put(s, "value_head.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "adapter_model.safetensors");
    assert_int_equal(s->scan.aside.files.n, 1);
    put(s, "model-00001-of-00001.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "model-00001-of-00001.safetensors");
    put(s, "pytorch_model.bin");
    scanned(s);
    assert_string_equal(files_of(s, 0), "pytorch_model.bin");
}

/* The hub's cache before a download has ended, and a file that was moved. */
static void test_lost_link(void **state)
{
    struct scanning *s = *state;
    assert_int_equal(symlink("blobs/0", tree_path(&s->tree, "model.safetensors")), 0);
    REFUSED(s, -ENOENT, "the link 'model.safetensors' leads to a file that is not there");
    put(s, "pytorch_model.bin");
    scanned(s);
    assert_string_equal(files_of(s, 0), "pytorch_model.bin");
}

/* As transformers takes them: safetensors files, else those of torch.save. */
static void test_torch_model(void **state)
{
    struct scanning *s = *state;
    put(s, "pytorch_model-00001-of-00002.bin");
    put(s, "pytorch_model-00002-of-00002.bin");
    put(s, "training_args.bin");
    put_text(s, "pytorch_model.bin.index.json",
             MAP "{\"b\": \"pytorch_model-00002-of-00002.bin\", "
                 "\"a\": \"pytorch_model-00001-of-00002.bin\"}}");
    scanned(s);
    assert_int_equal(s->scan.format, RFS_FORMAT_TORCH);
    assert_string_equal(files_of(s, 0),
                        "pytorch_model-00001-of-00002.bin pytorch_model-00002-of-00002.bin");
    put(s, "pytorch_model.bin");
    scanned(s);
    assert_string_equal(files_of(s, 0), "pytorch_model.bin");
    put(s, "model-1.safetensors");
    put_text(s, "model.safetensors.index.json", MAP "{\"a\": \"model-1.safetensors\"}}");
    scanned(s);
    assert_string_equal(files_of(s, 0), "model-1.safetensors");
    assert_int_equal(unlink(tree_path(&s->tree, "model.safetensors.index.json")), 0);
    put(s, "model.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "model.safetensors");
    assert_int_equal(unlink(tree_path(&s->tree, "model.safetensors")), 0);
    assert_int_equal(unlink(tree_path(&s->tree, "pytorch_model.bin.index.json")), 0);
    scanned(s);
    assert_string_equal(files_of(s, 0), "pytorch_model.bin");
    put_text(s, "pytorch_model.bin.index.json", MAP "{\"a\": \"model-1.safetensors\"}}");
    assert_int_equal(unlink(tree_path(&s->tree, "pytorch_model.bin")), 0);
    REFUSED(s, -EINVAL, "its file 'model-1.safetensors' is not a pt file by its name", "in .pt");
}

static void index_refused(struct scanning *s, const char *json, int code, const char *part)
{
    put_text(s, "model.safetensors.index.json", json);
    REFUSED(s, code, "model.safetensors.index.json: ", part);
}

static void test_bad_indexes(void **state)
{
    struct scanning *s = *state;
    put(s, "a.safetensors");
    put(s, "a.ckpt");
    tree_folder(&s->tree, "dir.safetensors");
    index_refused(s, "x", -EINVAL, "not valid JSON");
    index_refused(s, "[]", -EINVAL, "not a JSON object");
    index_refused(s, "{\"metadata\": {}}", -EINVAL, "no weight_map");
    index_refused(s, "{\"a\": \"a.safetensors\"}", -EINVAL, "no weight_map");
    index_refused(s, "{\"weight_map\": []}", -EINVAL, "weight_map is not an object");
    index_refused(s, "{\"weight_map\": {}}", -EINVAL, "names no file");
    index_refused(s, "{\"weight_map\": {}, \"weight_map\": {}}", -EINVAL, "weight_map comes twice");
    index_refused(s, MAP "{\"w\": 3}}", -EINVAL, "the value of 'w' is not a text");
    index_refused(s,
                  MAP "{\"w\": \"a.safetensors\", \"v\": \"a.safetensors\", "
                      "\"w\": \"./b\\n.safetensors\"}}",
                  -EINVAL,
                  "the key 'w' comes twice, with 'a.safetensors' and with './b\\x0a.safetensors'; "
                  "try: leave one of them out");
    index_refused(s, MAP "{\"w\": \"none.safetensors\"}}", -ENOENT, "'none.safetensors'");
    index_refused(s, MAP "{\"w\": \"dir.safetensors\"}}", -EINVAL, "not a regular file");
    index_refused(s, MAP "{\"w\": \"a.ckpt\"}}", -EINVAL, "not a safetensors file by its name");
    index_refused(s, MAP "{\"w\": \"..\"}}", -EINVAL, "parameter 'w'");
    index_refused(s, MAP "{\"w\": \"../a.safetensors\"}}", -EINVAL, "not one of the same folder");
    index_refused(s, MAP "{\"w\": \"./b/../a.safetensors\"}}", -EINVAL,
                  "'./b/../a.safetensors' is not one of the same folder");
    index_refused(s, MAP "{\"w\": \"./\"}}", -EINVAL, "not one of the same folder");
    index_refused(s, MAP "{\"w\": \"/a.safetensors\"}}", -EINVAL, "not one of the same folder");
    index_refused(s, MAP "{\"w\": \"//host/a.safetensors\"}}", -EINVAL,
                  "not one of the same folder");
    index_refused(s, MAP "{\"w\": \"s3://b/a.safetensors\"}}", -EINVAL,
                  "not one of the same folder");
    index_refused(s, MAP "{\"w\": \"https://h/a.safetensors\"}}", -EINVAL,
                  "not one of the same folder");
    index_refused(s, MAP "{\"w\": \"%2e%2e%2fa.safetensors\"}}", -ENOENT, "cannot be found");
}

static void test_unified(void **state)
{
    struct scanning *s = *state;
    put(s, "part0.safetensors");
    put(s, "part2.safetensors");
    put(s, "part10.safetensors");
    put(s, "part11.safetensors"); /* of an older run: the map doesn't name it */
    put_text(s, "param_name_map.json",
             MAP "{\"a\": \"part10.safetensors\", \"b\": \"part2.safetensors\", "
                 "\"c\": \"part0.safetensors\"}}");
    scanned(s);
    assert_true(s->scan.whole);
    assert_string_equal(files_of(s, 0), "part0.safetensors part2.safetensors part10.safetensors");
    assert_string_equal(s->scan.data[0].weight_map, tree_path(&s->tree, "param_name_map.json"));
    put(s, "hyper_param.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "part0.safetensors part2.safetensors part10.safetensors "
                                        "hyper_param.safetensors");
    put_text(s, "param_name_map.json", "{\"a\": \"part2.safetensors\"}"); /* as before 2.5 */
    scanned(s);
    assert_string_equal(files_of(s, 0), "part2.safetensors hyper_param.safetensors");
    put_text(s, "param_name_map.json", "{\"a\": \"part3.safetensors\"}");
    REFUSED(s, -ENOENT, "param_name_map.json: ", "'part3.safetensors'");
    put_text(s, "param_name_map.json", "{\"metadata\": {\"total_size\": 8}}");
    REFUSED(s, -EINVAL, "the value of 'metadata' is not a text");
}

static void test_other_folders(void **state)
{
    struct scanning *s = *state;
    REFUSED(s, -ENOENT, "no rank_N folder in it", "rank_0");
    put(s, "net-1_2.safetensors");
    scanned(s); /* the only one */
    assert_string_equal(files_of(s, 0), "net-1_2.safetensors");
    put(s, "net-1_10.safetensors");
    REFUSED(s, -ENOENT, "no rank_N folder in it", "a checkpoint file itself");
    s->options.step = 10;
    scanned(s);
    assert_true(s->scan.whole);
    assert_string_equal(files_of(s, 0), "net-1_10.safetensors");
    plain(s);
    s->options.file = (char *)"*";
    scanned(s);
    assert_string_equal(files_of(s, 0), "net-1_10.safetensors");
    s->options.file = (char *)"x*";
    REFUSED(s, -ENOENT, "no .ckpt, .safetensors, .pt or .gguf file that matches 'x*'");
    plain(s);
    s->options.rank_dir = (char *)"node%d";
    REFUSED(s, -ENOENT, "no nodeN folder in it");
    put(s, "files/tp0.pt");
    put(s, "files/tp1.pt");
    s->spec.path = tree_path(&s->tree, "files");
    s->options.rank_dir = NULL;
    REFUSED(s, -ENOENT, "no rank_N folder in it", "files=MAP, which names the file of each rank");
    plain(s);
    s->spec.path = tree_path(&s->tree, "loop");
    tree_folder(&s->tree, "loop");
    assert_int_equal(symlink("model.pt", tree_path(&s->tree, "loop/model.pt")), 0);
    REFUSED(s, -ENOENT, "the link 'model.pt' leads to a file that is not there");
    plain(s);
    put(s, "rank_0/a.ckpt"); /* then it is a tree */
    plain(s);
    scanned(s);
    assert_false(s->scan.whole);
    assert_string_equal(files_of(s, 0), "rank_0/a.ckpt");
}

static void test_one_ckpt_is_not_guessed(void **state)
{
    struct scanning *s = *state;
    put(s, "net.ckpt");
    REFUSED(s, -ENOENT, "no rank_N folder in it",
            "/net.ckpt itself, if it is all of the checkpoint");
    s->options.segmented = true;
    scanned(s);
    assert_string_equal(files_of(s, 0), "net.ckpt");
}

static void test_segmented_folder(void **state)
{
    struct scanning *s = *state;
    put(s, "c_part1.ckpt");
    put(s, "c_part0.ckpt");
    put(s, ".c_part2.ckpt");
    put(s, "c_part3.tmp");
    s->options.segmented = true;
    scanned(s);
    assert_true(s->scan.whole);
    assert_string_equal(files_of(s, 0), "c_part0.ckpt c_part1.ckpt");
    s->options.file = (char *)"*1.ckpt";
    scanned(s);
    assert_string_equal(files_of(s, 0), "c_part1.ckpt");
}

/* Parts of llama.cpp need no index: the folder and the first of them stand for all. */
static void test_split_gguf(void **state)
{
    struct scanning *s = *state;
    put(s, "a-00001-of-00003.gguf");
    put(s, "a-00002-of-00003.gguf");
    put(s, "a-00003-of-00003.gguf");
    put(s, "README.md");
    for (int file = 0; file < 2; file++) {
        plain(s);
        if (file)
            s->spec.path = tree_path(&s->tree, "a-00001-of-00003.gguf");
        scanned(s);
        assert_true(s->scan.whole);
        assert_int_equal(s->scan.format, RFS_FORMAT_GGUF);
        assert_string_equal(files_of(s, 0),
                            "a-00001-of-00003.gguf a-00002-of-00003.gguf a-00003-of-00003.gguf");
    }
    /* Another one counts by its own name; a folder with those of several is none. */
    s->spec.path = tree_path(&s->tree, "a-00002-of-00003.gguf");
    scanned(s);
    assert_string_equal(files_of(s, 0), "a-00002-of-00003.gguf");
    put(s, "b-00001-of-00003.gguf");
    put(s, "a-00001-of-00002.gguf");
    put(s, "mmproj.gguf");
    s->spec.path = tree_path(&s->tree, "a-00001-of-00003.gguf");
    scanned(s);
    assert_string_equal(files_of(s, 0),
                        "a-00001-of-00003.gguf a-00002-of-00003.gguf a-00003-of-00003.gguf");
    s->spec.path = s->tree.root;
    REFUSED(s, -EINVAL, "are not files of one checkpoint", "file='a-*-of-0000");
    s->spec.path = tree_path(&s->tree, "b-00001-of-00003.gguf");
    REFUSED(s, -ENOENT, "'b-00002-of-00003.gguf', 'b-00003-of-00003.gguf' are missing",
            "try: all parts in one folder");
    /* A file alone that is all of it; and those of safetensors, whose first is itself alone. */
    put(s, "one/c-00001-of-00001.gguf");
    s->spec.path = tree_path(&s->tree, "one");
    scanned(s);
    assert_string_equal(files_of(s, 0), "one/c-00001-of-00001.gguf");
    put(s, "few/d-00002-of-00002.gguf");
    s->spec.path = tree_path(&s->tree, "few");
    REFUSED(s, -ENOENT, "'d-00001-of-00002.gguf' is missing");
    put(s, "hf/d-00001-of-00002.safetensors");
    put(s, "hf/d-00002-of-00002.safetensors");
    put(s, "hf/d-00001-of-00002.gguf");
    s->spec.path = tree_path(&s->tree, "hf");
    scanned(s);
    assert_string_equal(files_of(s, 0),
                        "hf/d-00001-of-00002.safetensors hf/d-00002-of-00002.safetensors");
    s->spec.path = tree_path(&s->tree, "hf/d-00001-of-00002.safetensors");
    scanned(s);
    assert_string_equal(files_of(s, 0), "hf/d-00001-of-00002.safetensors");
    put(s, ".e-00001-of-00002.gguf");
    s->spec.path = tree_path(&s->tree, ".e-00001-of-00002.gguf");
    scanned(s);
    assert_string_equal(files_of(s, 0), ".e-00001-of-00002.gguf");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scanning_setup, scanning_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_map),
        TEST(test_bad_maps),
        TEST(test_model_parallel),
        TEST(test_one_file),
        TEST(test_resolve),
        TEST(test_huggingface),
        TEST(test_other_indexes),
        TEST(test_parts),
        TEST(test_adapter),
        TEST(test_lost_link),
        TEST(test_torch_model),
        TEST(test_bad_indexes),
        TEST(test_unified),
        TEST(test_other_folders),
        TEST(test_segmented_folder),
        TEST(test_split_gguf),
        TEST(test_one_ckpt_is_not_guessed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
