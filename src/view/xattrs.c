/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes: short texts about the whole, about files and about tensors. Their names need
 * no plan; some of their values do.
 */
#include "base/cleanup.h"
#include "base/text.h"
#include "view/hidden.h"
#include "view/internal.h"

#define PREFIX "user.reshardfs."

/* The object of an attribute. */
struct subject {
    struct rfs_view *view; /* taken; the first save's for the root of several; or NULL */
    enum { OTHER, ROOT, SHOWN_FILE, TENSOR_FILE } kind;
    const struct rfs_options *options;
    size_t file; /* number of a shown file */
    struct rfs_view_hidden_object object;
};

static void leave(struct subject *of)
{
    rfs_view_leave(of->view);
}

static int find_subject(reshard_view *set, uint64_t id, struct subject *out)
{
    struct rfs_view *view = rfs_view_take(set, id);
    size_t first = 0;

    *out = (struct subject){.view = view ? view : rfs_view_next(set, &first),
                            .options = &set->options};
    if (id == RFS_HIDDEN_TOP)
        return 0;
    if (!view) {
        out->kind = id == RESHARD_ROOT ? ROOT : OTHER;
        return id >> RFS_VIEW_SAVE_SHIFT == 0 ? 0 : set->follow ? -ESTALE : -ENOENT;
    }
    out->options = &view->options;
    if (rfs_view_hidden_owns(view, id)) {
        out->object = rfs_view_hidden_find(view, id);
        out->kind = out->object.kind == RFS_VIEW_HIDDEN_FILE ? TENSOR_FILE : OTHER;
        return out->object.kind == RFS_VIEW_HIDDEN_NONE ? -ENOENT : 0;
    }
    const enum rfs_view_entry_kind kind = rfs_view_entry(view, id, &out->file);
    out->kind = kind == RFS_ENTRY_ROOT ? ROOT : kind == RFS_ENTRY_FILE ? SHOWN_FILE : OTHER;
    return kind == RFS_ENTRY_NONE ? -ENOENT : 0;
}

static int put_version(struct subject *of, FILE *out)
{
    (void)of;
    fputs(reshard_version(), out);
    return 0;
}

static int put_source(struct subject *of, FILE *out)
{
    fputs(rfs_catalog_path(of->view->catalog), out);
    return 0;
}

static int put_options(struct subject *of, FILE *out)
{
    rfs_options_write(of->options, RFS_OPTION_OF_VIEW, out);
    return 0;
}

/*
 * Puts the ending of a shown file's name: weight maps are JSON, and hfai's parts have formats of
 * their own.
 */
static int put_format(struct subject *of, FILE *out)
{
    if (of->kind == TENSOR_FILE) {
        fputs(of->object.about ? "json" : "npy", out);
    } else if (of->kind == SHOWN_FILE) {
        const char *ending = strrchr(of->view->files[of->file].name, '.');
        fputs(ending ? ending + 1 : "", out);
    } else {
        fputs(rfs_formats[of->view->options.format].name, out);
    }
    return 0;
}

static int sources_of_file(struct subject *of, struct rfs_view_origins *origins)
{
    struct rfs_error err = {0};
    uint64_t bytes;

    const int rc = rfs_view_plan_file(of->view, of->file, &bytes, &err);
    if (rc)
        return rfs_view_log_failure(of->view, rc, &err);
    const struct rfs_rank_plan *plan = rfs_view_plan(of->view, of->file);
    return rfs_view_origins_of_files(of->view, plan->sources, plan->n_sources, origins);
}

/* Finds the tensors that a file of the hidden folder is one of. */
static int find_target(struct subject *of, struct rfs_tensors *tensors)
{
    struct rfs_error err = {0};

    const int rc = rfs_view_hidden_tensors(of->view, of->object.group, tensors, &err);
    if (rc)
        return rfs_view_log_failure(of->view, rc, &err);
    return of->object.target < rfs_tensors_count(tensors) ? 0 : -ENOENT;
}

static int put_source_ranks(struct subject *of, FILE *out)
{
    RFS_CLEANUP(rfs_view_origins_free) struct rfs_view_origins origins = {0};
    struct rfs_tensors tensors;
    int rc;

    if (of->kind == ROOT) {
        rc = rfs_view_origins_of_files(of->view, NULL, 0, &origins);
    } else if (of->kind == SHOWN_FILE) {
        rc = sources_of_file(of, &origins);
    } else {
        rc = find_target(of, &tensors)
                 ?: rfs_view_origins_of_target(&tensors, of->object.target, &origins);
    }
    if (rc == 0)
        rfs_text_ranks(out, origins.ranks, origins.n_ranks);
    return rc;
}

static int put_parameters(struct subject *of, FILE *out)
{
    struct rfs_error err = {0};
    uint64_t n;

    if (of->kind == SHOWN_FILE) {
        const int rc = rfs_view_plan_file(of->view, of->file, &n, &err);
        if (rc)
            return rfs_view_log_failure(of->view, rc, &err);
        n = of->view->files[of->file].parameters;
        if (n == RFS_IN_PLAN)
            n = rfs_view_plan(of->view, of->file)->params->n;
    } else {
        n = rfs_view_count_parameters(of->view);
    }
    fprintf(out, "%" PRIu64, n);
    return 0;
}

static int put_ranks_shown(struct subject *of, FILE *out)
{
    fprintf(out, "%" PRIu32, rfs_view_ranks(of->view));
    return 0;
}

static int put_parameter(struct subject *of, FILE *out)
{
    struct rfs_tensors tensors;

    const int rc = find_target(of, &tensors);
    if (rc == 0)
        fputs(rfs_tensors_name(&tensors, of->object.target), out);
    return rc;
}

static int put_dtype(struct subject *of, FILE *out)
{
    struct rfs_tensors tensors;

    const int rc = find_target(of, &tensors);
    if (rc)
        return rc;
    const struct rfs_type *type = rfs_tensors_type(&tensors, of->object.target);
    fputs(rfs_dtype_name((enum rfs_dtype)type->dtype), out);
    return 0;
}

enum { OF_ROOT = 1 << ROOT, OF_FILE = 1 << SHOWN_FILE, OF_TENSOR = 1 << TENSOR_FILE };

static const struct {
    const char *name;
    unsigned of;
    int (*put)(struct subject *of, FILE *out);
} attributes[] = {
    {PREFIX "format", OF_ROOT | OF_FILE | OF_TENSOR, put_format},
    {PREFIX "source_ranks", OF_ROOT | OF_FILE | OF_TENSOR, put_source_ranks},
    {PREFIX "parameters", OF_ROOT | OF_FILE, put_parameters},
    {PREFIX "parameter", OF_TENSOR, put_parameter},
    {PREFIX "dtype", OF_TENSOR, put_dtype},
    {PREFIX "version", OF_ROOT, put_version},
    {PREFIX "source", OF_ROOT, put_source},
    {PREFIX "ranks", OF_ROOT, put_ranks_shown},
    {PREFIX "options", OF_ROOT, put_options},
};

enum { N_ATTRIBUTES = sizeof attributes / sizeof *attributes };

/* Returns whether a subject has an attribute. Only files made of tensors alone have parameters. */
static bool applies(const struct subject *of, size_t attribute)
{
    const struct rfs_view *view = of->view;

    if (!(attributes[attribute].of & 1u << of->kind))
        return false;
    if (!view) /* no save is shown */
        return attributes[attribute].put == put_version || attributes[attribute].put == put_options;
    if (attributes[attribute].put == put_parameters)
        return of->kind == ROOT ? view->planner != NULL : view->files[of->file].parameters > 0;
    return true;
}

/* Gives a text as getxattr and listxattr do. */
static ssize_t give(const char *text, size_t n, void *to, size_t size)
{
    if (size == 0)
        return (ssize_t)n;
    if (n > size)
        return -ERANGE;
    memcpy(to, text, n);
    return (ssize_t)n;
}

ssize_t reshard_get_attribute(reshard_view *set, uint64_t id, const char *name, void *value,
                              size_t size)
{
    RFS_FREE char *text = NULL;
    RFS_CLEANUP(leave) struct subject of = {0};
    size_t n = 0;
    size_t at = 0;

    int rc = find_subject(set, id, &of);
    if (rc)
        return rc;
    while (at < N_ATTRIBUTES && (strcmp(attributes[at].name, name) != 0 || !applies(&of, at)))
        at++;
    if (at == N_ATTRIBUTES)
        return -ENODATA;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return -ENOMEM;
    rc = attributes[at].put(&of, out);
    const bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad)
        return rc ? rc : -ENOMEM;
    return rc ? rc : give(text, n, value, size);
}

ssize_t reshard_list_attributes(reshard_view *set, uint64_t id, char *names, size_t size)
{
    RFS_CLEANUP(leave) struct subject of = {0};
    size_t most = 1;
    size_t n = 0;

    const int rc = find_subject(set, id, &of);
    if (rc)
        return rc;
    for (size_t i = 0; i < N_ATTRIBUTES; i++)
        most += strlen(attributes[i].name) + 1;
    RFS_FREE char *all = malloc(most);
    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < N_ATTRIBUTES; i++)
        if (applies(&of, i)) {
            const size_t length = strlen(attributes[i].name) + 1;
            memcpy(all + n, attributes[i].name, length);
            n += length;
        }
    return give(all, n, names, size);
}
