/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/foreign.h"

#include "base/glob.h"

struct rfs_foreign {
    const char *name;  /* a pattern; NULL: any name, the mark tells */
    const char *mark;  /* bytes at AT; NULL: the name tells */
    unsigned n, at;    /* length of the mark, and where it begins */
    const char *holds; /* a text in the first bytes, which has to be there, too; or NULL */
    const char *what, *remedy;
};

#define MARK(bytes) .mark = (bytes), .n = sizeof(bytes) - 1
#define BY_MEGATRON "Megatron to load it and to save it with --ckpt-format torch_dist"
#define BY_TORCH "PyTorch to load it, and save_file of safetensors to save its tensors"
#define BY_TENSORFLOW "transformers before 5 with from_tf=True, and save_pretrained"
#define DOWNLOAD "the file itself, downloaded again"

/* The first row that fits counts; those that a name tells stand before those of marks. */
static const struct rfs_foreign rows[] = {
    {.name = "_CHECKPOINT_METADATA",
     .what = "a checkpoint of Orbax",
     .remedy = "Orbax to load it, and save_file of safetensors to save it"},
    {.name = "manifest.ocdbt",
     .what = "a checkpoint of Orbax",
     .remedy = "Orbax to load it, and save_file of safetensors to save it"},
    {.name = "mp_rank_[0-9][0-9]_*",
     .what = "a checkpoint of Megatron's format torch",
     .remedy = BY_MEGATRON},
    {.name = "mp_rank_[0-9][0-9]*",
     .what = "a checkpoint of Megatron's format torch",
     .remedy = "-o rank_dir=mp_rank_%d,file=model_optim_rng.pt,entry=model,src_rules=tpN,"
               "hf_config=FILE, where N is the number of these folders; or " BY_MEGATRON},
    {.name = "metadata.json",
     .holds = "\"zarr\"",
     .what = "a checkpoint of Megatron's format zarr",
     .remedy = BY_MEGATRON},
    {.name = "*.zarray", .what = "an array of zarr", .remedy = "zarr to load it, and safetensors"},
    {.name = "*.pdparams",
     .what = "a file of Paddle",
     .remedy = "paddle.load, and save_file of safetensors.paddle"},
    {.name = "*.pdopt", .what = "a file of Paddle", .remedy = "the .pdparams file of the model"},
    {.name = "*.pdiparams",
     .what = "a file of Paddle, for inference",
     .remedy = "the .pdparams file of the model"},
    {.name = "saved_model.pb",
     .what = "a SavedModel of TensorFlow",
     .remedy = "TensorFlow to load it, and save_file of safetensors.tensorflow"},
    {.name = "*.data-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]",
     .what = "a checkpoint of TensorFlow",
     .remedy = BY_TENSORFLOW},
    {.name = "*.ckpt*.index", .what = "a checkpoint of TensorFlow", .remedy = BY_TENSORFLOW},
    {.name = "*.keras",
     .what = "a model of Keras",
     .remedy = "keras.models.load_model, and save_file of safetensors"},
    {.name = "*.h5",
     .what = "a file of HDF5, as Keras and TensorFlow write",
     .remedy = BY_TENSORFLOW "; or h5py, and save_file of safetensors"},
    {.name = "*.msgpack",
     .what = "a file of Flax",
     .remedy = "transformers before 5 with from_flax=True, and save_pretrained"},
    {.name = "*.onnx",
     .what = "a model of ONNX",
     .remedy = "the checkpoint that it was exported from"},
    {.name = "*.tensors",
     .what = "a file of tensorizer",
     .remedy = "TensorDeserializer, and save_file of safetensors"},
    {.name = "*.npz",
     .what = "arrays of numpy, as MLX writes, too",
     .remedy = "numpy.load, and save_file of safetensors.numpy"},
    {.name = "*.npy",
     .what = "an array of numpy",
     .remedy = "numpy.load, and save_file of safetensors.numpy"},
    {.name = "*.nemo",
     .what = "an archive of NeMo 1",
     .remedy = "tar -xf, and the model in it; or NeMo 2's import of it"},
    {.name = "*.engine",
     .what = "an engine of TensorRT",
     .remedy = "the checkpoint that it was built from"},
    {.name = "*.ot",
     .what = "a file of tch, for Rust",
     .remedy = "the checkpoint that it was made from"},
    {.name = "*.mindir",
     .what = "a network of MindSpore (MindIR)",
     .remedy = "the .ckpt file that it was exported from"},
    {.name = "*.tflite",
     .what = "a model of TensorFlow Lite",
     .remedy = "the checkpoint that it was made from"},
    {MARK("version https://git-lfs.github.com/spec/"),
     .what = "a pointer of Git LFS, and not the file", .remedy = "git lfs pull in the repository"},
    {MARK("<!DOCTYPE html"), .what = "an HTML page, and not the file", .remedy = DOWNLOAD},
    {MARK("<!doctype html"), .what = "an HTML page, and not the file", .remedy = DOWNLOAD},
    {MARK("<html"), .what = "an HTML page, and not the file", .remedy = DOWNLOAD},
    {MARK("{\"error\""), .what = "a server's error, and not the file", .remedy = DOWNLOAD},
    {MARK("Entry not found"), .what = "a server's error, and not the file", .remedy = DOWNLOAD},
    {MARK("Access to model"), .what = "a server's error, and not the file", .remedy = DOWNLOAD},
    {MARK("Invalid username"), .what = "a server's error, and not the file", .remedy = DOWNLOAD},
    {MARK("\x89HDF\r\n\x1a\n"), .what = "a file of HDF5, as Keras and TensorFlow write",
     .remedy = BY_TENSORFLOW "; or h5py, and save_file of safetensors"},
    {MARK("|TZR|"), .what = "a file of tensorizer",
     .remedy = "TensorDeserializer, and save_file of safetensors"},
    {MARK("\x93NUMPY"), .what = "an array of numpy",
     .remedy = "numpy.load, and save_file of safetensors.numpy"},
    {MARK("tjgg"), .what = "a file of GGML, before GGUF", .remedy = "llama.cpp to convert it"},
    {MARK("lmgg"), .what = "a file of GGML, before GGUF", .remedy = "llama.cpp to convert it"},
    {MARK("fmgg"), .what = "a file of GGML, before GGUF", .remedy = "llama.cpp to convert it"},
    {MARK("TFL3"), .at = 4, .what = "a model of TensorFlow Lite",
     .remedy = "the checkpoint that it was made from"},
    {MARK("ftrt"), .what = "an engine of TensorRT",
     .remedy = "the checkpoint that it was built from"},
    {MARK("ustar"), .at = 257, .what = "an archive of tar", .remedy = "tar -xf, and what is in it"},
    {MARK("\x1f\x8b\x08"), .what = "packed by gzip", .remedy = "gunzip, and what comes out"},
    {MARK("BZh"), .what = "packed by bzip2", .remedy = "bunzip2, and what comes out"},
    {MARK("\xfd"
          "7zXZ"),
     .what = "packed by xz", .remedy = "unxz, and what comes out"},
    {MARK("7z\xbc\xaf\x27\x1c"), .what = "packed by 7-Zip", .remedy = "what is in it"},
    {MARK("PK\3\4"), .holds = "code/__torch__", .what = "a model of TorchScript",
     .remedy = "torch.jit.load, and save_file of safetensors with its state_dict()"},
};

static bool has_mark(const struct rfs_foreign *row, const unsigned char *head, size_t n)
{
    return !row->mark || (n >= row->at + row->n && memcmp(head + row->at, row->mark, row->n) == 0);
}

const struct rfs_foreign *rfs_foreign_find(const char *name, const unsigned char *head, size_t n)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct rfs_foreign *row = &rows[i];
        const bool named = row->name && name && rfs_glob_match(row->name, name);
        if ((row->name && !named) || ((row->mark || row->holds) && !head))
            continue;
        if (has_mark(row, head, n) &&
            (!row->holds || memmem(head, n, row->holds, strlen(row->holds))))
            return row;
    }
    return NULL;
}

bool rfs_foreign_asks(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].name && rfs_glob_match(rows[i].name, name))
            return rows[i].holds != NULL;
    return false;
}

bool rfs_foreign_counts(const struct rfs_foreign *a, const struct rfs_foreign *b)
{
    return !b || a < b;
}

int rfs_foreign_fail(const char *path, const struct rfs_foreign *row, const char *name,
                     struct rfs_error *err)
{
    return rfs_fail(err, -ENOTSUP, RFS_IN(path), row->remedy,
                    "this is %s, as %s%s%s; this format is not read", row->what, name ? "'" : "",
                    name ? name : "its first bytes", name ? "' shows" : " show");
}

int rfs_foreign_explain(const struct rfs_bytes_source *from, int rc, struct rfs_error *err)
{
    unsigned char head[RFS_FOREIGN_HEAD];
    const size_t n = from->size < sizeof head ? (size_t)from->size : sizeof head;

    if (rc >= 0 || !err || rc == -ENOMEM || rc == -EINTR || rc == -ESTALE || !from->file ||
        rfs_bytes_source_read(from, head, n, 0))
        return rc;
    const struct rfs_foreign *row = rfs_foreign_find(NULL, head, n);
    return row ? rfs_foreign_fail(from->file, row, NULL, err) : rc;
}
