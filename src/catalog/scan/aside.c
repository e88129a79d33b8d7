/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of files of tensors that lie beside a checkpoint:
 *
 *   transformers   optimizer.pt, scheduler.pt, rng_state_0.pth, scaler.pt, training_args.bin of its
 *                  Trainer; model.fp16.safetensors, a variant; pytorch_model.bin, tf_model.h5
 *   accelerate     optimizer.bin, scheduler.bin, sampler.bin, optimizer_1.bin
 *   peft           adapter_model.safetensors beside a base model
 *   Mistral, Meta  consolidated.safetensors, consolidated.00.pth
 *   verl           optim_world_size_8_rank_0.pt, extra_state_world_size_8_rank_0.pt
 *   Megatron       common.pt; meta.pt of Lightning
 *   others         mtp.safetensors, for programs that open all *.safetensors of a folder
 */
#include "catalog/scan/aside.h"

#include "base/cleanup.h"
#include "base/glob.h"
#include "base/order.h"
#include "base/path.h"
#include "base/text.h"
#include "catalog/scan/internal.h"

#define STATE "a state of the training"
#define OTHER_FORM "the model in another form, by its name"
#define NAMED 4 /* files that a line names */

/* The first row that a name is like has it. */
static const struct kind {
    const char *like; /* a pattern */
    const char *why;
    bool state, again;
} kinds[] = {
    {"optimizer*", STATE, true, false},
    {"optim_*", STATE, true, false},
    {"*_optim_states*", STATE, true, false},
    {"scheduler*", STATE, true, false},
    {"lr_scheduler*", STATE, true, false},
    {"sampler*", STATE, true, false},
    {"scaler*", STATE, true, false},
    {"dataloader*", STATE, true, false},
    {"data.pt", STATE, true, false},
    {"rng_state*", STATE, true, false},
    {"random_states*", STATE, true, false},
    {"extra_state*", STATE, true, false},
    {"train_state*", STATE, true, false},
    {"trainer_state*", STATE, true, false},
    {"training_args*", STATE, true, false},
    {"training_state*", STATE, true, false},
    {"common.pt", STATE, true, false},
    {"meta.pt", STATE, true, false},
    {"adapter_model*", "an adapter, which is not merged", false, false},
    {"consolidated*", "the model by the names of its own program", false, true},
    {"model.*.safetensors", "another variant, by its name", false, false},
    {"*_model.*.safetensors", "another variant, by its name", false, false},
    {"pytorch_model.*.bin", "another variant, by its name", false, false},
    {"pytorch_model*", OTHER_FORM, false, false},
    {"*.h5", OTHER_FORM, false, true},
    {"*.msgpack", OTHER_FORM, false, true},
    {"*.ot", OTHER_FORM, false, true},
    {"*.onnx", OTHER_FORM, false, true},
    {"*.gguf", OTHER_FORM, false, true},
};

void rfs_aside_free(struct rfs_aside *aside)
{
    for (size_t i = 0; i < aside->files.n; i++) {
        free(aside->files.data[i].path);
        free(aside->files.data[i].first);
        free(aside->files.data[i].fault);
    }
    free(aside->files.data);
    *aside = (struct rfs_aside){0};
}

/* Returns the row of a file of tensors by its name; NULL: none has it. */
static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (rfs_glob_match_file(kinds[i].like, name))
            return &kinds[i];
    return NULL;
}

/* Says whether a file has tensors, by its name; those of other programs' formats have, too. */
static bool is_of_tensors(const char *name)
{
    static const char *const foreign[] = {".h5", ".msgpack", ".ot", ".onnx"};
    enum rfs_format unused;

    if (name[0] == '.')
        return false;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (rfs_text_ends(name, foreign[i]))
            return true;
    return rfs_format_of_name(name, &unused);
}

static bool is_state(const struct rfs_scan_found *found)
{
    const struct kind *kind =
        rfs_formats[found->format].last == RFS_LAST_NONE ? find_kind(found->name) : NULL;

    return kind && kind->state;
}

size_t rfs_aside_drop_states(struct rfs_scan_listing *listing, char **first)
{
    const size_t n = listing->n;
    size_t left = 0;

    for (size_t i = 0; i < n; i++)
        left += !is_state(&listing->data[i]);
    if (left == 0 || left == n)
        return 0;
    listing->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_state(&listing->data[i]))
            listing->data[listing->n++] = listing->data[i];
        else if (first && !*first)
            *first = listing->data[i].name;
        else
            free(listing->data[i].name);
    return n - left;
}

/* ---- folders --------------------------------------------------------------------------------- */

struct looking {
    const struct rfs_source_spec *spec;
    const struct rfs_scan *scan;
    const char *folder;
    const char *why;            /* of files that no row has */
    const char *const *counted; /* [n] paths of files that are read, sorted */
    size_t n;
    struct rfs_aside *out;
    struct rfs_error *err;
};

static bool is_counted(const struct looking *looking, const char *path)
{
    const size_t i = RFS_BISECT(k, looking->n, strcmp(looking->counted[k], path) >= 0);

    return i < looking->n && strcmp(looking->counted[i], path) == 0;
}

static int look_at(void *ctx, const struct dirent *entry)
{
    const struct looking *looking = ctx;
    const struct rfs_format_row *row = looking->scan->described;
    const char *name = entry->d_name;

    if (!is_of_tensors(name) || (row && rfs_format_sees(row, name)))
        return 0;
    RFS_FREE char *path = rfs_path_join(looking->folder, name);
    if (!path)
        return rfs_fail_memory(looking->err);
    const int rc = is_counted(looking, path) ? 0
                                             : rfs_scan_entry_is(looking->spec, looking->folder,
                                                                 entry, S_IFREG, looking->err);
    if (rc <= 0)
        return rc;
    const struct kind *kind = find_kind(name);
    const struct rfs_aside_file file = {.path = path,
                                        .why = kind ? kind->why : looking->why,
                                        .state = kind && kind->state,
                                        .again = kind && kind->again};
    if (!RFS_PUSH(&looking->out->files, file))
        return rfs_fail_memory(looking->err);
    RFS_STEAL(path);
    return 0;
}

RFS_COMPARE(by_text, const char *, x, y, strcmp(*x, *y))
RFS_COMPARE(by_path, struct rfs_aside_file, x, y, strcmp(x->path, y->path))

/* Looks into folders [n], sorted. One that cannot be listed now was listed before, or has a map. */
static int look_into(const struct looking *common, char *const *folders, size_t n)
{
    struct rfs_error unused;
    struct looking looking = *common;
    int rc = 0;

    looking.err = &unused;
    for (size_t i = 0; i < n && rc != -ENOMEM; i++) {
        if (i > 0 && strcmp(folders[i - 1], folders[i]) == 0)
            continue;
        looking.folder = folders[i];
        rc = rfs_scan_entry_each(looking.spec->store, folders[i], look_at, &looking, &unused);
    }
    return rc == -ENOMEM ? rc : 0;
}

/* Says whether a file beside rank folders is one of those that say how the ranks are cut. */
static bool is_of_cuts(const struct rfs_options *options, const char *name)
{
    const char *const given[] = {options->src_strategy, options->dst_strategy, options->group_info};

    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i] && strstr(given[i], name))
            return true;
    return strstr(name, "strategy") != NULL;
}

bool rfs_aside_note(const struct rfs_source_spec *spec, const struct dirent *entry,
                    struct rfs_aside *out)
{
    const struct kind *kind = find_kind(entry->d_name);

    if (!is_of_tensors(entry->d_name) || is_of_cuts(spec->options, entry->d_name) ||
        rfs_scan_entry_is(spec, spec->path, entry, S_IFREG, NULL) != 1)
        return true;
    struct rfs_aside_file file = {.path = rfs_path_join(spec->path, entry->d_name),
                                  .why = kind && kind->state ? kind->why
                                                             : "the folders of ranks are read",
                                  .state = kind && kind->state,
                                  .weighed = true};
    if (file.path && RFS_PUSH(&out->files, file))
        return true;
    free(file.path);
    return false;
}

void rfs_aside_sort(struct rfs_aside *aside)
{
    RFS_SORT_ALL(&aside->files, by_path);
}

/* Says whether the files of a source were found in folders, not by their own names. */
static bool finds_files(const struct rfs_source_spec *spec, const struct rfs_scan *scan)
{
    return (scan->model_parallel || (scan->whole && scan->n == 1)) && scan->data[0].n_files > 0 &&
           !spec->options->file && !spec->options->files && !spec->options->segmented &&
           !scan->file && !(rfs_scan_asks_save(spec) && spec->saves && spec->saves->tree);
}

int rfs_aside_find(const struct rfs_source_spec *spec, const struct rfs_scan *scan,
                   struct rfs_aside *out, struct rfs_error *err)
{
    const char *map = scan->n > 0 ? scan->data[0].weight_map : NULL;
    struct looking looking = {.spec = spec, .scan = scan, .out = out};
    size_t files = 0;
    size_t n = 0;

    if (!finds_files(spec, scan))
        return 0;
    for (size_t i = 0; i < scan->n; i++)
        files += scan->data[i].n_files;
    RFS_FREE const char **counted = calloc(files, sizeof *counted);
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list folders = {0};
    bool full = counted != NULL;
    for (size_t i = 0; i < scan->n; i++)
        for (size_t k = 0; full && k < scan->data[i].n_files; k++) {
            counted[n] = scan->data[i].files[k];
            full = rfs_path_list_add(&folders, rfs_store_folder(counted[n++]));
        }
    if (full && map)
        full = rfs_path_list_add(&folders, rfs_store_folder(map));
    if (!full)
        return rfs_fail_memory(err);
    RFS_SORT(counted, n, by_text);
    rfs_path_list_sort(&folders);
    looking.counted = counted;
    looking.n = n;
    looking.why = map               ? "the index does not name it"
                  : scan->described ? "the save does not name it"
                                    : "another file is the model, by its name";
    if (look_into(&looking, folders.data, folders.n))
        return rfs_fail_memory(err);
    RFS_SORT_ALL(&out->files, by_path);
    return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

char *rfs_aside_text(const struct rfs_aside *aside)
{
    const size_t n = aside->files.n;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    fprintf(out,
            n == 1 ? "a file of tensors is not read: " : "%zu files of tensors are not read: ", n);
    /* Files of a model come first, as one may miss them. */
    for (size_t state = 0, named = 0; state < 2; state++)
        for (size_t i = 0; i < n && named < NAMED; i++) {
            const struct rfs_aside_file *file = &aside->files.data[i];
            if (file->state == (state == 1))
                fprintf(out, "%s'%s' (%s)", named++ > 0 ? ", " : "", rfs_path_name(file->path),
                        file->why);
        }
    if (n > NAMED)
        fprintf(out, " and %zu more", n - NAMED);
    const bool bad = ferror(out) != 0;
    if (fclose(out) == 0 && !bad)
        return text;
    free(text);
    return NULL;
}
