/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/verify/verify.h"

#include "base/cleanup.h"
#include "base/json_write.h"
#include "base/text.h"
#include "tool/common/show.h"

/* Its name in JSON, and its text; "": the detail's. */
static const struct {
    const char *name, *text;
} kinds[] = {
    [RFS_FOUND_RANK] = {"rank", ""},
    [RFS_FOUND_SOURCE_RANK] = {"source_rank", ""},
    [RFS_FOUND_PARTIAL] = {"partial", "is incomplete"},
    [RFS_FOUND_UNCOMPARED] = {"uncompared", "cannot be compared"},
    [RFS_FOUND_MISSING] = {"missing", "is missing"},
    [RFS_FOUND_EXTRA] = {"extra", "should not be there"},
    [RFS_FOUND_TYPE] = {"type", "has another dtype or shape"},
    [RFS_FOUND_BYTES] = {"bytes", "has other bytes than the source"},
    [RFS_FOUND_MANIFEST] = {"manifest", ""},
    [RFS_FOUND_REPLICA] = {"replica", "has other bytes than the ranks that hold the same"},
    [RFS_FOUND_FRAME] = {"frame", "other bytes than a mount shows, beside the tensors"},
    [RFS_FOUND_FILE] = {"file", ""},
    [RFS_FOUND_VALUE] = {"value", ""},
    [RFS_FOUND_OWN] = {"own", ""}, /* notes have sentences of their own */
    [RFS_FOUND_SOURCE] = {"source", ""},
    [RFS_FOUND_MODELS] = {"models", ""},
    [RFS_FOUND_OTHERWISE] = {"otherwise", ""},
};

/* "[3, 17]", the element of a tensor that holds byte AT; "" when it has no axes. */
static const char *show_index(const struct rfs_type *type, uint64_t at, char out[RFS_SHAPE_TEXT])
{
    uint64_t element = at / rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    struct rfs_type index = {.ndim = type->ndim};

    for (unsigned i = type->ndim; i-- > 0; element /= type->dims[i] > 0 ? type->dims[i] : 1)
        index.dims[i] = type->dims[i] > 0 ? element % type->dims[i] : 0;
    return rfs_whole_shape(&index, out);
}

/* Whether the place of a difference is that in the whole tensor, not in one rank's part. */
static bool is_of_whole(const struct rfs_verify *verify, const struct rfs_whole_tensor *tensor)
{
    return tensor && tensor->type->kind == RFS_TENSOR &&
           (tensor->own || !verify->items[tensor - verify->tree.tensors].by_rank);
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_place(const struct rfs_verify *verify, const struct rfs_finding *finding)
{
    const struct rfs_whole_tensor *tensor =
        finding->name ? rfs_whole_find(&verify->tree, finding->name) : NULL;
    char index[RFS_SHAPE_TEXT];

    if (!finding->file)
        return;
    if (is_of_whole(verify, tensor) && tensor->type->ndim > 0 && !tensor->own)
        printf(", first at %s", show_index(tensor->type, finding->at, index));
    fputs(", ", stdout);
    rfs_text_put(stdout, finding->file);
    printf(" offset %" PRIu64, finding->offset);
}

static void print_note(const struct rfs_finding *finding, const char *ranks, bool many)
{
    fputs("note: ", stdout);
    if (finding->kind == RFS_FOUND_OTHERWISE) {
        printf("%s %s laid out differently from a mount with these options: the tensors "
               "were compared, and nothing else\n",
               *ranks ? ranks : "the files", many || !*ranks ? "are" : "is");
        return;
    }
    if (finding->kind == RFS_FOUND_MODELS) {
        fputs("of ", stdout);
        rfs_text_put(stdout, finding->detail);
        fputs(" the models' tensors were compared, and nothing else\n", stdout);
        return;
    }
    rfs_text_put(stdout, finding->name);
    if (finding->kind == RFS_FOUND_OWN)
        printf(": %s %s of %s own; no strategy knows it\n", ranks,
               many ? "have values" : "has a value", many ? "their" : "its");
    else
        printf(": %s %s what a mount shows; ranks of the source that should hold the same "
               "differ\n",
               ranks, many ? "have" : "has");
}

static int print_group(const struct rfs_verify *verify, size_t first, size_t end,
                       struct rfs_error *err)
{
    const struct rfs_finding *finding = &verify->findings.list.data[first];
    const bool said = finding->kind == RFS_FOUND_MANIFEST || finding->kind == RFS_FOUND_VALUE;
    RFS_FREE char *ranks = rfs_findings_ranks(&verify->findings, first, end);

    if (!ranks)
        return rfs_fail_memory(err);
    if (!rfs_finding_is_fault(finding->kind)) {
        print_note(finding, ranks, end - first > 1);
        return 0;
    }
    if (finding->name) {
        rfs_text_put(stdout, finding->name);
        printf("%s%s", said ? " " : ": ", kinds[finding->kind].text);
        if (said)
            rfs_text_put(stdout, finding->detail);
        if (*ranks)
            printf(" in %s", ranks);
    } else {
        rfs_text_put(stdout, *ranks ? ranks : finding->detail);
        if (finding->kind == RFS_FOUND_SOURCE_RANK)
            fputs(" of the source", stdout);
        if (finding->kind == RFS_FOUND_FRAME)
            printf(": %s", kinds[finding->kind].text);
    }
    if (finding->detail && !said && finding->kind != RFS_FOUND_FRAME &&
        finding->kind != RFS_FOUND_FILE) {
        fputs(": ", stdout);
        rfs_text_put(stdout, finding->detail);
    }
    print_place(verify, finding);
    putchar('\n');
    return 0;
}

static size_t count_tensors(const struct rfs_verify *verify)
{
    const struct rfs_findings *findings = &verify->findings;
    const char *last = NULL;
    size_t n = 0;

    for (size_t i = 0; i < findings->list.n; i++) {
        const struct rfs_finding *finding = &findings->list.data[i];
        if (!rfs_finding_is_fault(finding->kind) || !finding->name ||
            finding->kind == RFS_FOUND_VALUE)
            continue;
        n += !last || strcmp(last, finding->name) != 0;
        last = finding->name;
    }
    return n;
}

static size_t count_kind(const struct rfs_verify *verify, enum rfs_finding_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < verify->findings.list.n; i++)
        n += verify->findings.list.data[i].kind == kind;
    return n;
}

/* The faults: "2 tensors, 1 rank". */
static void print_counts(const struct rfs_verify *verify)
{
    const struct {
        size_t n;
        const char *what, *whose;
    } counts[] = {
        {count_tensors(verify), "tensor", ""},
        {count_kind(verify, RFS_FOUND_RANK), "rank", ""},
        {count_kind(verify, RFS_FOUND_SOURCE_RANK), "rank", " of the source"},
        {count_kind(verify, RFS_FOUND_VALUE), "value", ""},
        {count_kind(verify, RFS_FOUND_FRAME) + count_kind(verify, RFS_FOUND_FILE), "file", ""},
    };
    const char *comma = "";

    fputs("not right:", stdout);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i].n == 0)
            continue;
        printf("%s %zu %s%s%s", comma, counts[i].n, counts[i].what, counts[i].n == 1 ? "" : "s",
               counts[i].whose);
        comma = ",";
    }
    putchar('\n');
}

static void print_values(const struct rfs_verify *verify)
{
    if (verify->values > 0)
        printf(", with %zu value%s", verify->values, verify->values == 1 ? "" : "s");
}

static void print_summary(const struct rfs_verify *verify, bool fault)
{
    const struct rfs_verify_options *options = verify->options;
    char shown[RFS_SHOWN_BYTES];
    const size_t n = verify->tree.n + verify->n_lost;
    uint64_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += verify->items[i].tree->type->bytes;
    rfs_text_put(stdout, options->tree);
    printf(": %zu tensor%s, %s: ", n, n == 1 ? "" : "s", rfs_show_bytes(bytes, shown));
    if (fault) {
        print_counts(verify);
        return;
    }
    const char *comma = "";
    if (options->against) {
        fputs("the same as ", stdout);
        rfs_text_put(stdout, options->against);
        print_values(verify);
        comma = ", ";
    }
    if (options->manifest) {
        printf("%s%s ", comma, verify->has_sums ? "as in" : "written down in");
        rfs_text_put(stdout, options->manifest);
        comma = ", ";
    }
    if (verify->tree.ranks > 1 && !options->no_replicas)
        printf("%sall %" PRIu32 " ranks %s", comma, verify->tree.ranks,
               verify->findings.list.n > 0 ? "read" : "agree");
    else if (!*comma) {
        fputs("all could be read", stdout);
        print_values(verify);
    }
    putchar('\n');
}

static int print_text_report(const struct rfs_verify *verify, bool fault, struct rfs_error *err)
{
    const struct rfs_findings *findings = &verify->findings;
    char hash[RFS_HASH_TEXT];

    for (size_t i = 0; verify->options->list && i < verify->tree.n; i++) {
        printf("%s  ", rfs_hash_text(verify->items[i].hash, hash));
        rfs_text_put(stdout, verify->items[i].tree->name);
        putchar('\n');
    }
    for (size_t i = 0, end; i < findings->list.n; i = end) {
        end = rfs_findings_group(findings, i);
        const int rc = print_group(verify, i, end, err);
        if (rc)
            return rc;
    }
    print_summary(verify, fault);
    return 0;
}

/* ---- for scripts ----------------------------------------------------------------------------- */

static void put_tensor(struct rfs_json_write *json, const struct rfs_verify *verify,
                       const struct rfs_verify_item *item)
{
    const struct rfs_type *type = item->tree->type;
    char hash[RFS_HASH_TEXT];

    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, "name", item->tree->name);
    rfs_json_put_text(json, "dtype", rfs_whole_dtype(type));
    rfs_json_put_u64s(json, "shape", RFS_JSON_SPACED, type->dims, type->ndim);
    rfs_json_put_u64(json, "bytes", type->bytes);
    rfs_json_put_bool(json, "rank_own", item->tree->own);
    rfs_json_put_text(json, "xxh3_128", rfs_hash_text(item->hash, hash));
    rfs_json_put_bool(json, "equal", !rfs_findings_fault(&verify->findings, item->tree->name));
    rfs_json_end(json);
}

static void put_finding(struct rfs_json_write *json, const struct rfs_verify *verify,
                        const struct rfs_finding *finding)
{
    const struct rfs_whole_tensor *tensor =
        finding->name ? rfs_whole_find(&verify->tree, finding->name) : NULL;
    char index[RFS_SHAPE_TEXT];

    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, "what", kinds[finding->kind].name);
    rfs_json_put_text(json, "name", finding->name);
    if (finding->rank == RFS_NO_RANK)
        rfs_json_put_null(json, "rank");
    else
        rfs_json_put_u64(json, "rank", finding->rank);
    rfs_json_put_text(json, "detail", finding->detail);
    rfs_json_put_text(json, "file", finding->file);
    if (finding->file)
        rfs_json_put_u64(json, "offset", finding->offset);
    if (finding->file && is_of_whole(verify, tensor))
        rfs_json_print(json, "index", "%s", show_index(tensor->type, finding->at, index));
    rfs_json_end(json);
}

/* Faults, or notes. */
static void put_findings(struct rfs_json_write *json, const struct rfs_verify *verify,
                         const char *key, bool notes)
{
    rfs_json_break(json);
    rfs_json_array(json, key, RFS_JSON_TIGHT);
    for (size_t i = 0; i < verify->findings.list.n; i++)
        if (rfs_finding_is_fault(verify->findings.list.data[i].kind) != notes)
            put_finding(json, verify, &verify->findings.list.data[i]);
    rfs_json_end(json);
}

static void print_json(const struct rfs_verify *verify, bool fault)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "tree", verify->options->tree);
    rfs_json_put_text(&json, "against", verify->options->against);
    rfs_json_put_text(&json, "manifest", verify->options->manifest);
    rfs_json_put_bool(&json, "equal", !fault);
    rfs_json_break(&json);
    rfs_json_array(&json, "tensors", RFS_JSON_TIGHT);
    for (size_t i = 0; i < verify->tree.n; i++)
        put_tensor(&json, verify, &verify->items[i]);
    rfs_json_end(&json);
    put_findings(&json, verify, "differences", false);
    put_findings(&json, verify, "notes", true);
    rfs_json_finish(&json);
}

int rfs_verify_write(struct rfs_verify *verify, struct rfs_error *err)
{
    const bool fault = rfs_findings_fault(&verify->findings, NULL);

    if (!verify->options->json)
        return print_text_report(verify, fault, err);
    print_json(verify, fault);
    return 0;
}
