/* SPDX-License-Identifier: Apache-2.0 */
#include "view/tensors.h"

#include "base/order.h"
#include "formats/image.h"
#include "view/internal.h"

/* ---- lists ----------------------------------------------------------------------------------- */

struct rfs_tensors rfs_tensors_of_file(struct rfs_view *view, size_t file,
                                       const struct rfs_image *image)
{
    const struct rfs_params *own = view->kind->params ? view->kind->params(view) : NULL;
    const struct rfs_rank_plan *plan = rfs_view_plan(view, file);
    struct rfs_tensors tensors;

    /* A file with tensors of a group has the group's number. */
    if (!image->storages && view->kind->tensors &&
        view->kind->tensors(view, view->files[file].rank, &tensors, NULL) == 0)
        return tensors;
    return (struct rfs_tensors){
        .view = view,
        .path = rfs_catalog_path(view->catalog),
        .catalog = view->catalog,
        .planner = view->planner,
        .rank = view->files[file].rank,
        .storages = image->storages,
        .params = image->storages ? NULL
                  : own           ? own
                                  : plan->params,
        .plan = plan,
    };
}

int rfs_tensors_of_rank(struct rfs_view *view, struct rfs_planner *planner, uint32_t rank,
                        struct rfs_tensors *out, struct rfs_error *err)
{
    *out = (struct rfs_tensors){.view = view,
                                .path = rfs_catalog_path(view->catalog),
                                .catalog = view->catalog,
                                .planner = planner,
                                .rank = rank};
    const int rc = rfs_planner_rank(planner, rank, &out->plan, err);
    if (rc == 0)
        out->params = out->plan->params;
    return rc;
}

RFS_COMPARE(by_name, struct rfs_tensors_name, x, y, RFS_ORDER(x->name, y->name))

int rfs_tensors_sort_names(struct rfs_tensors *tensors)
{
    const size_t n = rfs_tensors_count(tensors);

    tensors->by_name = calloc(n + 1, sizeof *tensors->by_name);
    if (!tensors->by_name)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        tensors->by_name[i] =
            (struct rfs_tensors_name){rfs_tensors_target(tensors, i)->shown_name, i};
    RFS_SORT(tensors->by_name, n, by_name);
    return 0;
}

struct rfs_tensor rfs_tensors_find(const struct rfs_tensors *tensors, const char *name)
{
    struct rfs_tensors_name wanted = {.name = RFS_NO_ID};
    const struct rfs_tensors_name *found = NULL;

    if (tensors->by_name)
        wanted.name =
            rfs_intern_find(rfs_catalog_tables(tensors->catalog)->names, name, strlen(name));
    if (wanted.name != RFS_NO_ID)
        found =
            bsearch(&wanted, tensors->by_name, rfs_tensors_count(tensors), sizeof wanted, by_name);
    return found ? (struct rfs_tensor){tensors, found->i} : (struct rfs_tensor){NULL, 0};
}

/* ---- their bytes ----------------------------------------------------------------------------- */

int rfs_tensors_slice(const struct rfs_tensors *tensors, uint32_t i, struct rfs_slice *slice)
{
    return tensors->storages ? rfs_slice_storage(tensors->storages, i, slice)
                             : rfs_planner_slice(tensors->planner, tensors->rank,
                                                 rfs_tensors_target(tensors, i), slice);
}

int rfs_tensors_pieces(const struct rfs_tensors *tensors, uint32_t i,
                       const struct rfs_plan_part *box, struct rfs_trace *out)
{
    return rfs_planner_trace(tensors->planner, tensors->rank, rfs_tensors_target(tensors, i), box,
                             out);
}

bool rfs_tensors_is_cast(const struct rfs_tensors *tensors, uint32_t i, struct rfs_casting *cast)
{
    const struct rfs_target *target = tensors->storages ? NULL : rfs_tensors_target(tensors, i);

    if (!target || target->shown_type == target->type)
        return false;
    const struct rfs_type *from = rfs_catalog_type(tensors->catalog, target->type);
    const struct rfs_type *to = rfs_catalog_type(tensors->catalog, target->shown_type);
    *cast = (struct rfs_casting){(enum rfs_dtype)from->dtype, (enum rfs_dtype)to->dtype,
                                 from->dtype == RFS_FLOAT64 && to->dtype != RFS_FLOAT32 &&
                                     rfs_planner_casts(tensors->planner, target)};
    return true;
}

int rfs_tensor_read(struct rfs_tensor tensor, const struct rfs_slice *slice, uint64_t begin,
                    size_t size, void *buf, struct rfs_error *err)
{
    const struct rfs_view *view = tensor.list->view;
    struct rfs_files *files = rfs_catalog_files(view->catalog);
    struct rfs_casting cast;
    int rc = 0;

    if (size > 0)
        rc = rfs_tensors_is_cast(tensor.list, tensor.i, &cast)
                 ? rfs_assemble_cast(view->assembler, slice, &cast, begin, size, true, buf)
                 : rfs_assemble(view->assembler, slice, begin, size, true, buf);
    if (rc == 0)
        return 0;
    /* The reason has been logged with the file. */
    for (size_t i = 0; i < slice->n; i++)
        if (rfs_files_state(files, slice->blocks[i].file) == rc)
            return rfs_files_fail(err, rfs_files_path(files, slice->blocks[i].file), rc);
    return rc == -ENOMEM ? rfs_fail_memory(err)
                         : rfs_fail(err, rc, RFS_OF(tensor.list->path, rfs_tensor_name(tensor)),
                                    "again", "cannot be read: %s", strerror(-rc));
}
