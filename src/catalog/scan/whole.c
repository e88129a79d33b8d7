/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unsharded sources: one file, or a folder that is one checkpoint by its own files.
 *
 *   HuggingFace                                 unified_safetensors of MindSpore
 *     model.safetensors                           param_name_map.json       parameter → part
 *   or                                            part0.safetensors …
 *     model.safetensors.index.json                hyper_param.safetensors   the rest;
 *     model-00001-of-00002.safetensors …                                    only if there is any
 *   or pytorch_model.bin, or pytorch_model.bin.index.json with its parts; likewise by the name
 *   diffusion_pytorch_model of diffusers; or an index by another name, or of a variant; or parts
 *   without an index; or adapter_model.safetensors of PEFT
 *
 *   llama.cpp
 *     X.gguf, or X-00001-of-00002.gguf …        the first stands for all
 *
 * or, if nothing else is a model, Llama as Meta publishes it: a file for each model-parallel rank,
 * whose names do not say how many there were. That the shapes fit params.json proves it
 * (plan/meta_llama.h). A single file is the whole model.
 *     consolidated.00.pth … consolidated.07.pth   as torch.save(model.state_dict()) of each rank
 *     params.json                                 the sizes of the model
 *
 * A folder with one .safetensors file and nothing else of the kind is that file, as MindSpore's
 * _load_parallel_checkpoint takes it; it needs no map then.
 */
#include "base/cleanup.h"
#include "base/order.h"
#include "base/origin.h"
#include "base/text.h"
#include "catalog/scan/internal.h"
#include "formats/foreign.h"
#include "formats/safetensors/safetensors.h"

#define HYPER "hyper_param.safetensors"
#define RANK_BEGIN "consolidated." /* a file of one of Meta's ranks */
#define RANK_END ".pth"
#define REMEDY_ROOT "give the folder that holds rank_0, rank_1 and so on"

/* Takes a file, whose path is taken over; NULL counts as out of memory. */
static void take_path(struct rfs_scan *out, enum rfs_format format, char *path)
{
    rfs_scan_add_file(out, out->n > 0 ? out->data : rfs_scan_add(out, 0, NULL), path);
    out->whole = true;
    out->present = 1;
    out->format = format;
}

/*
 * Finds the format of a file at PATH by its name and, where that says little, its first bytes.
 * False: it is none by its name, and has no mark.
 */
static bool find_format(const struct rfs_source_spec *spec, const char *path,
                        enum rfs_format *format)
{
    unsigned char head[RFS_FORMAT_HEAD];
    const bool named = rfs_format_of_name(path, format);

    if (spec->encrypted || (named && !rfs_format_is_vague(*format)))
        return named;
    const ssize_t n = rfs_store_head(spec->store, path, head, sizeof head);
    return (n > 0 && rfs_format_of_file(path, head, (size_t)n, format)) || named;
}

static int fail_name(const struct rfs_source_spec *spec, struct rfs_error *err)
{
    char endings[RFS_FORMAT_ENDINGS_TEXT];
    char remedy[RFS_FORMAT_ENDINGS_TEXT + 32];
    enum rfs_weight_map_style style;
    const bool map = rfs_safetensors_map_style(rfs_path_name(spec->path), &style);

    snprintf(remedy, sizeof remedy, "a %s file, or a folder", rfs_format_endings(true, endings));
    const int rc = rfs_fail(err, -EINVAL, RFS_IN(spec->path),
                            map ? "the folder that this index is in" : remedy,
                            "the source is not a checkpoint by its name");
    return rfs_scan_foreign(spec->store, spec->path, rc, err);
}

/* Says whether a file is that of one of Meta's ranks, and not of the only one. */
static bool is_rank_of_several(const struct rfs_source_spec *spec)
{
    RFS_FREE char *folder = rfs_store_folder(spec->path);
    RFS_FREE char *second = folder ? rfs_path_join(folder, RFS_SCAN_SECOND_RANK) : NULL;
    uint32_t rank;

    return rfs_scan_name_model_parallel(rfs_path_name(spec->path), &rank) &&
           (rank > 0 || (second && rfs_store_there(spec->store, second)));
}

/* Tells that a file is a part of a checkpoint, by its name: strict refuses it. */
static int tell_part(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_error *err)
{
    struct rfs_scan_part part;
    const bool named = rfs_scan_name_part(rfs_path_name(spec->path), &part) && part.count > 1;
    char several[40] = "the tensor-parallel";

    if (!named && !is_rank_of_several(spec))
        return 0;
    if (named)
        snprintf(several, sizeof several, "%" PRIu32, part.count);
    if (spec->options->strict)
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path),
                        "the folder that it is in; or without -o strict, for its tensors alone",
                        "the source is one of %s parts of a checkpoint, by its name", several);
    rfs_log(log, RFS_WARNING,
            "%s: the source is one of %s parts of a checkpoint, by its name: the tensors of the "
            "others are not there",
            spec->path, several);
    return 0;
}

/*
 * Takes the parts of one checkpoint in the folder PATH; none may be missing. 1, 0: there are none,
 * or -errno with *err filled.
 */
static int take_parts(const char *path, const struct rfs_scan_found *const *parts, size_t n,
                      struct rfs_scan *out, struct rfs_error *err)
{
    const int rc = rfs_scan_found_divided(path, parts, n, false, err);

    for (size_t i = 0; rc == 1 && i < n; i++)
        take_path(out, parts[i]->format, rfs_path_join(path, parts[i]->name));
    return rc;
}

/* Takes the parts beside a source that stands for all of them: as take_parts. */
static int take_beside(const struct rfs_source_spec *spec, struct rfs_scan *out,
                       struct rfs_error *err)
{
    RFS_CLEANUP(rfs_scan_listing_free) struct rfs_scan_listing listing = {0};
    RFS_FREE char *folder = rfs_store_folder(spec->path);
    size_t n = 0;

    if (!folder)
        return rfs_fail_memory(err);
    const int rc = rfs_scan_listing_read(spec, folder, NULL, &listing, err);
    if (rc)
        return rc;
    RFS_FREE const struct rfs_scan_found **parts = calloc(listing.n + 1, sizeof *parts);
    if (!parts)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < listing.n; i++)
        if (rfs_scan_same_parts(rfs_path_name(spec->path), listing.data[i].name))
            parts[n++] = &listing.data[i];
    return take_parts(folder, parts, n, out, err);
}

int rfs_scan_file(const struct rfs_source_spec *spec, struct rfs_log *log, struct rfs_scan *out,
                  struct rfs_error *err)
{
    enum rfs_format format;
    struct stat st;
    if (rfs_store_stat(spec->store, spec->path, &st) == 0 && !S_ISREG(st.st_mode))
        return rfs_fail(err, -ENOTDIR, RFS_IN(spec->path), REMEDY_ROOT,
                        "the source is neither a folder nor a file");
    if (rfs_foreign_find(rfs_path_name(spec->path), NULL, 0) ||
        !find_format(spec, spec->path, &format))
        return fail_name(spec, err);
    if (spec->options->rank_dir || spec->options->file || rfs_scan_asks_save(spec))
        return rfs_fail_usage(
            err, "the folder that the file is in",
            "the source is one file: rank_dir, file, step and epoch have no effect");
    int rc = rfs_scan_is_first(spec->path, format) ? take_beside(spec, out, err) : 0;
    if (rc == 0) {
        take_path(out, format, strdup(spec->path));
        rc = tell_part(spec, log, err);
    }
    out->file = rc >= 0;
    return rc < 0 ? rc : 0;
}

/* ---- files that a weight map names ----------------------------------------------------------- */

/* Returns N of partN.safetensors, or UINT32_MAX for another name. */
static uint32_t part_number(const char *name)
{
    uint32_t number;
    return rfs_scan_name_rank("part%d.safetensors", name, &number) ? number : UINT32_MAX;
}

static int compare_files(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    const uint32_t i = part_number(*x);
    const uint32_t k = part_number(*y);
    if (i != k)
        return i < k ? -1 : 1;
    return strcmp(*x, *y);
}

/* Checks the name of a file in an index, whose files are of one FORMAT. */
static int check_name(const char *index, const struct rfs_mapfile_pair *pair,
                      enum rfs_format format, struct rfs_error *err)
{
    const char *ending = rfs_formats[format].endings[0];
    enum rfs_format named;
    if (!rfs_origin_stays(pair->value))
        return rfs_fail(err, -EINVAL, RFS_OF(index, pair->key), "names of files in its folder",
                        "its file '%s' is not one of the same folder", pair->value);
    if (rfs_format_of_name(pair->value, &named) && named == format)
        return 0;
    RFS_FREE char *remedy = rfs_text_printf("names in %s", ending);
    return rfs_fail(err, -EINVAL, RFS_OF(index, pair->key), remedy,
                    "its file '%s' is not a %s file by its name", pair->value,
                    rfs_formats[format].name);
}

static int take_named(const struct rfs_source_spec *spec, const char *index, const char *name,
                      enum rfs_format format, struct rfs_scan *out, struct rfs_error *err)
{
    struct stat st;
    RFS_FREE char *path = rfs_path_join(spec->path, name);
    if (!path)
        return rfs_fail_memory(err);
    const int failed = rfs_beneath_stat(spec->beneath, spec->store, path, &st);
    if (failed == -EXDEV)
        return rfs_beneath_fail(err, path);
    if (failed)
        return rfs_fail(err, failed, RFS_IN(index), "copy it there",
                        "it names '%s', which cannot be found: %s", name,
                        rfs_store_why(path, failed));
    if (!S_ISREG(st.st_mode))
        return rfs_fail(err, -EINVAL, RFS_IN(index), NULL,
                        "it names '%s', which is not a regular file", name);
    take_path(out, format, RFS_STEAL(path));
    return 0;
}

/* Takes each file that the map names once, in order. Most pairs name the same file as the last. */
static int take_map(const struct rfs_source_spec *spec, const char *index,
                    const struct rfs_mapfile *map, struct rfs_scan *out, struct rfs_error *err)
{
    RFS_FREE const char **names = calloc(map->n > 0 ? map->n : 1, sizeof *names);
    struct rfs_weight_map_name of = {.format = RFS_FORMAT_SAFETENSORS};
    size_t n = 0;
    int rc = 0;
    rfs_safetensors_map_name(rfs_path_name(index), &of);
    if (!names)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < map->n; i++) {
        if (n > 0 && strcmp(names[n - 1], map->data[i].value) == 0)
            continue;
        rc = check_name(index, &map->data[i], of.format, err);
        if (rc < 0)
            return rc;
        names[n++] = map->data[i].value;
    }
    if (map->n == 0)
        return rfs_fail(err, -EINVAL, RFS_IN(index), "the file as it was written",
                        "it names no file");
    RFS_SORT(names, n, compare_files);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (i == 0 || strcmp(names[i - 1], names[i]) != 0)
            rc = take_named(spec, index, names[i], of.format, out, err);
    return rc;
}

/*
 * Takes the files that a weight map names: one at least, unless OTHERS are there. INDEX is taken
 * over.
 */
static int take_index(const struct rfs_source_spec *spec, char *index,
                      enum rfs_weight_map_style style, bool others, struct rfs_scan *out,
                      struct rfs_error *err)
{
    RFS_CLEANUP(rfs_mapfile_free) struct rfs_mapfile map = {0};
    RFS_FREE char *path = index;
    if (!path)
        return rfs_fail_memory(err);
    int rc =
        rfs_mapfile_read(spec->beneath, spec->store, path, rfs_weight_map_forms[style], &map, err);
    if (rc || (map.n == 0 && others))
        return rc;
    rc = take_map(spec, path, &map, out, err);
    if (rc == 0 && out->n > 0) {
        out->data[0].weight_map = RFS_STEAL(path);
        out->map = map;
        map = (struct rfs_mapfile){0};
    }
    return rc;
}

/* ---- kinds of folders ------------------------------------------------------------------------ */

/*
 * A model has one of these names, or parts and an index that begins with it. A loader of
 * HuggingFace takes the first that is there.
 */
static const char *const models[] = {
    "model.safetensors",           "diffusion_pytorch_model.safetensors", "pytorch_model.bin",
    "diffusion_pytorch_model.bin", "adapter_model.safetensors",           "adapter_model.bin"};
enum {
    ADAPTER = 4,                             /* the first, which counts when there is no model */
    MODELS = sizeof models / sizeof *models, /* what follows are indexes: by another name */
    CONSOLIDATED,                            /* by the names of a model's own program */
    VARIANT,
};

/* Files of the folder besides checkpoints. */
struct seen {
    const struct rfs_source_spec *spec;
    struct rfs_error *err;
    bool unified, hyper;
    const struct rfs_scan_found *model; /* of the listing; NULL: none has a model's name */
    char *index;                        /* the name of the one that counts; owned; NULL: none */
    char *other;                        /* the name of one that counts as much; owned; or NULL */
    unsigned order;                     /* place of INDEX in the order in which they count */
};

static void free_seen(struct seen *seen)
{
    free(seen->index);
    free(seen->other);
}

/* Returns the place of an index in the order in which they count: first all of safetensors. */
static unsigned order_of(const char *name, const struct rfs_weight_map_name *of)
{
    unsigned order = strncmp(name, "consolidated", 12) == 0 ? CONSOLIDATED : MODELS;

    for (unsigned i = 0; i < ADAPTER; i++)
        if (strlen(models[i]) == of->file_bytes && memcmp(models[i], name, of->file_bytes) == 0)
            order = i;
    return of->variant ? VARIANT : order;
}

static int note_entry(void *ctx, const struct dirent *entry)
{
    struct seen *seen = ctx;
    const char *name = entry->d_name;
    enum rfs_weight_map_style style;
    struct rfs_weight_map_name of;
    if (name[0] == '.' || !rfs_safetensors_map_style(name, &style))
        return 0;
    const int rc = rfs_scan_entry_is(seen->spec, seen->spec->path, entry, S_IFREG, seen->err);
    if (rc <= 0)
        return rc;
    seen->unified |= style == RFS_WEIGHT_MAP_MINDSPORE;
    if (!rfs_safetensors_map_name(name, &of))
        return 0;
    const unsigned order = order_of(name, &of);
    if (seen->index && order > seen->order)
        return 0;
    char **slot = seen->index && order == seen->order ? &seen->other : &seen->index;
    if (slot == &seen->index) {
        free(seen->other);
        seen->other = NULL;
    }
    free(*slot);
    *slot = strdup(name);
    seen->order = order;
    return *slot ? 0 : rfs_fail_memory(seen->err);
}

/* Takes one file of the folder. Without ERR nobody is going to open it, and its name is enough. */
static int take_name(const struct rfs_source_spec *spec, const char *name, struct rfs_scan *out,
                     struct rfs_error *err)
{
    enum rfs_format format = RFS_FORMAT_SAFETENSORS;
    char *path = rfs_path_join(spec->path, name);

    if (!path)
        return rfs_fail_memory(err);
    (void)(err ? find_format(spec, path, &format) : rfs_format_of_name(name, &format));
    take_path(out, format, path);
    return 0;
}

static int take_unified(const struct rfs_source_spec *spec, bool hyper, struct rfs_scan *out,
                        struct rfs_error *err)
{
    int rc = take_index(spec, rfs_path_join(spec->path, RFS_WEIGHT_MAP_MINDSPORE_NAME),
                        RFS_WEIGHT_MAP_MINDSPORE, hyper, out, err);
    if (rc < 0 || !hyper)
        return rc;
    return take_name(spec, HYPER, out, err);
}

/* Returns the place of a name among those of models; MODELS: it is none. */
static unsigned place_of(const char *name)
{
    unsigned i = 0;

    while (i < MODELS && strcmp(models[i], name) != 0)
        i++;
    return i;
}

/* Says whether a part is one of a model, by a name such as model-00001-of-00002.safetensors. */
static bool is_part_of_model(const char *name)
{
    struct rfs_scan_part part;

    for (unsigned i = 0; i < ADAPTER && rfs_scan_name_part(name, &part); i++) {
        const size_t n = (size_t)(strrchr(models[i], '.') - models[i]);
        if (part.begin == n + 1 && memcmp(name, models[i], n) == 0 &&
            strcmp(name + part.end, models[i] + n) == 0)
            return true;
    }
    return false;
}

/* Says whether an index names the file NAME. One that cannot be read names none. */
static bool names_file(const struct rfs_source_spec *spec, const char *index, const char *name)
{
    RFS_CLEANUP(rfs_mapfile_free) struct rfs_mapfile map = {0};
    RFS_FREE char *path = rfs_path_join(spec->path, index);
    struct rfs_error unused;
    bool found = false;

    if (!path || rfs_mapfile_read(spec->beneath, spec->store, path,
                                  rfs_weight_map_forms[RFS_WEIGHT_MAP_HUGGINGFACE], &map, &unused))
        return false;
    for (size_t i = 0; i < map.n && !found; i++)
        found = strcmp(map.data[i].value, name) == 0;
    return found;
}

/*
 * Takes the parts of one checkpoint of a FORMAT, where no index names them. Those of a model by its
 * name count before others. None may be missing.
 */
static int take_unlisted(const struct rfs_source_spec *spec, const struct rfs_scan_listing *listing,
                         enum rfs_format format, struct rfs_scan *out, struct rfs_error *err)
{
    RFS_FREE const struct rfs_scan_found **parts = calloc(listing->n + 1, sizeof *parts);
    size_t n = 0;
    bool of_model = false;

    if (!parts)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < listing->n; i++) {
        const struct rfs_scan_found *found = &listing->data[i];
        if (!found->part || found->format != format)
            continue;
        const bool named = is_part_of_model(found->name);
        if (named && !of_model)
            n = 0;
        if (named || !of_model)
            parts[n++] = found;
        of_model |= named;
    }
    const int rc = take_parts(spec->path, parts, n, out, err);
    return rc < 0 ? rc : 0;
}

/*
 * Takes a model by the names of HuggingFace, as far as there are any: of safetensors files, else of
 * those of torch.save, as its loaders do, which is the order of their rows.
 */
static int take_huggingface(const struct rfs_source_spec *spec, const struct seen *seen,
                            const struct rfs_scan_listing *listing, struct rfs_scan *out,
                            struct rfs_error *err)
{
    const unsigned model = seen->model ? place_of(seen->model->name) : MODELS;
    const bool indexed =
        seen->index && (model >= ADAPTER || seen->order < model ||
                        (seen->order == model && names_file(spec, seen->index, seen->model->name)));

    if (model < ADAPTER && !indexed)
        return take_name(spec, seen->model->name, out, err);
    if (seen->other)
        return rfs_fail(err, -EINVAL, RFS_IN(spec->path), "move one of them away",
                        "the folder has both '%s' and '%s'", seen->index, seen->other);
    if (indexed)
        return take_index(spec, rfs_path_join(spec->path, seen->index), RFS_WEIGHT_MAP_HUGGINGFACE,
                          false, out, err);
    int rc = 0;
    for (unsigned i = 0; i < RFS_FORMAT_COUNT && rc == 0 && out->n == 0; i++)
        if (rfs_formats[i].alone)
            rc = take_unlisted(spec, listing, (enum rfs_format)i, out, err);
    return rc || out->n > 0 || !seen->model ? rc : take_name(spec, seen->model->name, out, err);
}

/* A link that may lead to a checkpoint. */
struct lost {
    const struct rfs_source_spec *spec;
    char *name; /* of one that leads to nothing; owned; NULL: there is none */
};

static int look_for_lost(void *ctx, const struct dirent *entry)
{
    struct lost *lost = ctx;
    enum rfs_format unused;
    struct stat st;

    if (lost->name || entry->d_type != DT_LNK || !rfs_format_of_name(entry->d_name, &unused))
        return 0;
    RFS_FREE char *path = rfs_path_join(lost->spec->path, entry->d_name);
    const int failed = path ? rfs_store_stat(lost->spec->store, path, &st) : 0;
    if (failed == -ENOENT || failed == -ELOOP)
        lost->name = strdup(entry->d_name);
    return 0;
}

/* Says that a folder has a link to a file that is not there: 0 where there is no such link. */
static int fail_lost(const struct rfs_source_spec *spec, struct rfs_error *err)
{
    struct lost lost = {.spec = spec};

    (void)rfs_scan_entry_each(spec->store, spec->path, look_for_lost, &lost, NULL);
    RFS_FREE char *name = lost.name;
    return name ? rfs_fail(err, -ENOENT, RFS_IN(spec->path), "copy or download the file again",
                           "the link '%s' leads to a file that is not there", name)
                : 0;
}

static int fail_unknown(const struct rfs_source_spec *spec, const struct rfs_scan_listing *listing,
                        struct rfs_error *err)
{
    RFS_FREE char *below =
        err ? rfs_scan_named(spec->store, spec->path, spec->options->step) : NULL;
    RFS_CLEANUP(rfs_scan_ranked_free) struct rfs_scan_ranked ranked = {.n = 0};
    if (err && listing->n > 0)
        rfs_scan_ranked(spec->store, spec->path, &ranked);
    const char *own = listing->n == 0 ? ""
                      : ranked.files && !ranked.parts
                          ? "; or files=MAP, which names the file of each rank"
                          : "; or a checkpoint file itself, or segmented to take all files as one";
    RFS_FREE char *remedy =
        listing->n == 1 && !below
            ? rfs_text_printf("%s/%s itself, if it is all of the checkpoint; or " REMEDY_ROOT,
                              spec->path, listing->data[0].name)
            : rfs_text_printf("%s%s", below ? below : REMEDY_ROOT, own);
    struct rfs_scan_names names = {.n = 0};
    const bool several = listing->n > 1 && !below;
    const int lost = err && listing->n == 0 && !below ? fail_lost(spec, err) : 0;

    if (!remedy || lost)
        return lost ? lost : rfs_fail_memory(err);
    for (size_t i = 0; i < listing->n; i++)
        rfs_scan_names_add(&names, listing->data[i].name);
    return rfs_fail(err, -ENOENT, RFS_IN(spec->path), remedy,
                    "the folder has no rank_N folder in it%s%s",
                    several ? ", and no name says which of its files counts: " : "",
                    several ? rfs_scan_names_end(&names) : "");
}

static int look_for_folder(void *ctx, const struct dirent *entry)
{
    bool *found = ctx;

    *found |= entry->d_type == DT_DIR && entry->d_name[0] != '.';
    return 0;
}

/*
 * Takes the folder's one file, unless it is a program's own beside checkpoints: data.pt of verl,
 * common.pt of Megatron. Without ERR no folder below is looked into: any may have some.
 */
static int take_only(const struct rfs_source_spec *spec, const struct rfs_scan_found *file,
                     struct rfs_scan *out, struct rfs_error *err)
{
    bool below = false;
    int rc = rfs_scan_found_divided(spec->path, &file, 1, false, err);

    if (rc == 0 && !err && rfs_formats[file->format].beside)
        rc = rfs_scan_entry_each(spec->store, spec->path, look_for_folder, &below, NULL);
    if (rc < 0 || below)
        return rc < 0 ? rc : -EINVAL;
    /* MindSpore takes the only safetensors file. */
    RFS_FREE char *inside = rfs_formats[file->format].beside
                                ? rfs_scan_named(spec->store, spec->path, spec->options->step)
                                : NULL;
    RFS_FREE char *remedy =
        inside ? rfs_text_printf("%s; or %s/%s", inside, spec->path, file->name) : NULL;

    if (!inside && strcmp(file->name, "common.pt") == 0 &&
        rfs_scan_foreign(spec->store, spec->path, -EINVAL, err) == -ENOTSUP)
        return -ENOTSUP;
    if (!inside)
        return take_name(spec, file->name, out, err);
    return rfs_fail(err, -EINVAL, RFS_IN(spec->path), remedy,
                    "the folder has '%s', and checkpoints in folders below", file->name);
}

bool rfs_scan_name_model_parallel(const char *name, uint32_t *rank)
{
    char expected[48];

    if (strncmp(name, RANK_BEGIN, strlen(RANK_BEGIN)) != 0)
        return false;
    const unsigned long number = strtoul(name + strlen(RANK_BEGIN), NULL, 10);
    snprintf(expected, sizeof expected, RANK_BEGIN "%02lu" RANK_END, number);
    *rank = (uint32_t)number;
    return number <= RFS_MAX_RANK && strcmp(name, expected) == 0;
}

/*
 * Takes the files of Meta's model-parallel ranks out of a folder's: out->n stays 0 where there is
 * none. All ranks below the highest must have one.
 */
static int take_model_parallel(const struct rfs_source_spec *spec,
                               const struct rfs_scan_listing *listing, struct rfs_scan *out,
                               struct rfs_error *err)
{
    uint32_t highest = 0;
    uint32_t n = 0;

    for (size_t i = 0; i < listing->n; i++) {
        uint32_t rank;
        if (!rfs_scan_name_model_parallel(listing->data[i].name, &rank))
            continue;
        highest = rank > highest ? rank : highest;
        n++;
    }
    for (uint32_t rank = 0; n > 0 && rank <= highest; rank++) {
        char name[48];
        snprintf(name, sizeof name, RANK_BEGIN "%02" PRIu32 RANK_END, rank);
        const size_t at = RFS_BISECT(k, listing->n, strcmp(listing->data[k].name, name) >= 0);
        if (at == listing->n || strcmp(listing->data[at].name, name) != 0)
            return rfs_fail(err, -ENOENT, RFS_IN(spec->path), "copy it there",
                            "has '" RANK_BEGIN "%02" PRIu32 RANK_END "', and '%s' is missing",
                            highest, name);
        rfs_scan_add_file(out, rfs_scan_add(out, rank, NULL), rfs_path_join(spec->path, name));
    }
    out->present = n;
    out->format = RFS_FORMAT_TORCH;
    out->whole = n == 1;
    out->model_parallel = n > 0;
    return 0;
}

const struct rfs_scan_found *rfs_scan_model(const struct rfs_scan_listing *listing)
{
    for (unsigned k = 0; k < MODELS; k++)
        for (size_t i = 0; i < listing->n; i++)
            if (strcmp(listing->data[i].name, models[k]) == 0)
                return &listing->data[i];
    return NULL;
}

int rfs_scan_whole(const struct rfs_source_spec *spec, struct rfs_scan *out, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_scan_listing_free) struct rfs_scan_listing listing = {0};
    RFS_CLEANUP(free_seen) struct seen seen = {.spec = spec, .err = err};
    int rc = rfs_scan_entry_each(spec->store, spec->path, note_entry, &seen, err)
                 ?: rfs_scan_listing_read(spec, spec->path, NULL, &listing, err);
    if (rc < 0)
        return rc;
    rfs_aside_drop_states(&listing, NULL);
    for (size_t i = 0; i < listing.n; i++)
        seen.hyper = seen.hyper || strcmp(listing.data[i].name, HYPER) == 0;
    seen.model = rfs_scan_model(&listing);
    if (seen.unified)
        return take_unified(spec, seen.hyper, out, err);
    rc = take_huggingface(spec, &seen, &listing, out, err);
    if (rc == 0 && out->n == 0)
        rc = take_model_parallel(spec, &listing, out, err);
    if (rc || out->n > 0)
        return rc;
    if (listing.n == 1 && rfs_formats[listing.data[0].format].alone)
        return take_only(spec, &listing.data[0], out, err);
    return rfs_scan_foreign(spec->store, spec->path, fail_unknown(spec, &listing, err), err);
}
