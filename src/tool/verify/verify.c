/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard verify`: a tree against its source, against a manifest, and against itself
 * (survey/verify/verify.h names the steps). The command's options, the manifest and the report.
 */
#include "survey/verify/verify.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/json_write.h"
#include "base/options.h"
#include "base/path.h"
#include "base/store.h"
#include "base/text.h"
#include "tool/common/command.h"
#include "tool/common/manifest.h"
#include "tool/common/show.h"
#include "tool/common/source.h"
#include "tool/common/tool.h"
#include "view/view_options.h"

#include <sys/stat.h>

/* ---- the command line ------------------------------------------------------------------------ */

struct request {
    const char *tree;
    const char *against;                     /* NULL: no source */
    struct rfs_settings tree_view, src_view; /* options of views; owned, as names */
    const char *manifest;                    /* NULL: none */
    struct rfs_globs globs;
    bool write, no_replicas, list, json;
    unsigned threads;
    /* The views as they were given: -s and -d, NULL: none; -o and --tree-options. */
    struct {
        const char *strategy[2];
        struct rfs_settings view, tree_view;
    } given;
};

/* A run of the command. */
struct run {
    struct request *options;
    struct rfs_verify verify;
    struct rfs_manifest sums; /* sums of the manifest, if it exists */
    bool has_sums;
};

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("TREE", struct request, tree, "--against SRC for the source"),
    RFS_ARG_TEXT("against", "SRC", struct request, against, "the source of TREE"),
    RFS_ARG_FILE('s', struct request, given.strategy[0], NULL),
    RFS_ARG_FILE('d', struct request, given.strategy[1],
                 "the strategies of SRC and of TREE; -s alone: of TREE"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct request, given.view,
                 "the options that TREE was mounted or exported with"),
    RFS_ARG_VIEW_NAMED("tree-options", "OPTION,…", NULL, struct request, given.tree_view,
                       "options to read TREE by"),
    RFS_ARG_TEXT("manifest", "FILE", struct request, manifest,
                 "compare with the checksums in FILE; if missing, write it"),
    RFS_ARG_FLAG("write", struct request, write, "write it in any case"),
    RFS_ARG_FLAG("no-replicas", struct request, no_replicas,
                 "read one copy of slices that several ranks have"),
    RFS_ARG_TEXTS("name", "GLOB", struct request, globs,
                  "only these tensors; may be given several times"),
    RFS_ARG_FLAG("list", struct request, list, "show the XXH3-128 of each tensor as a whole"),
    RFS_ARG_THREADS("threads", struct request, threads),
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    {0},
};

/* Adds an option of a view, if there is a value. 0 or -ENOMEM. */
static int add_option(struct rfs_settings *view, const char *name, const char *value)
{
    return value ? rfs_settings_add(view, name, value, NULL) : 0;
}

/* Makes the options of both views. */
static int make_views(struct request *out)
{
    const char *const *strategy = out->given.strategy;
    struct rfs_settings *tree = &out->tree_view;
    int rc = out->against ? rfs_settings_add_all(tree, &out->given.tree_view)
                          : add_option(tree, "src_strategy", strategy[0])
                                ?: rfs_settings_add_all(tree, &out->given.view);

    /* Headers of the tree are read, whatever an earlier view has kept of them. */
    if (rc == 0 && !rfs_settings_last(tree, "index_cache"))
        rc = add_option(tree, "index_cache", "no");
    if (rc || !out->against)
        return rc;
    return add_option(&out->src_view, "src_strategy", strategy[0])
            ?: add_option(&out->src_view, "dst_strategy", strategy[1])
            ?: rfs_settings_add_all(&out->src_view, &out->given.view)
            ?: rfs_tool_share_store(&out->src_view, tree);
}

static int check_options(const struct request *options, struct rfs_error *err)
{
    if (!options->tree)
        return rfs_fail_usage(err, "reshard verify TREE --against SRC",
                              "verify takes the path of a tree");
    if (!options->against && options->given.strategy[1])
        return rfs_fail_usage(err, "-s FILE for the strategy of TREE",
                              "-d is the strategy of TREE beside --against SRC only");
    if (!options->against && options->given.tree_view.list.n > 0)
        return rfs_fail_usage(err, "-o", "--tree-options goes with --against SRC only");
    if (options->write && !options->manifest)
        return rfs_fail_usage(err, "--manifest FILE",
                              "--write writes a manifest, and none is named");
    /* -s and -d beside -o; --tree-options are on top of what -d says of the tree. */
    return rfs_options_check_twice(options->against ? &options->src_view : &options->tree_view,
                                   err);
}

/*
 * Makes the views' options, and checks all. 0, or -errno with *err filled; to be freed in any case.
 */
static int settle(struct request *options, struct rfs_error *err)
{
    const int rc = make_views(options);

    return rc == -ENOMEM ? rfs_fail_memory(err) : rc ? rc : check_options(options, err);
}

static void free_views(struct request *options)
{
    rfs_settings_free(&options->tree_view);
    rfs_settings_free(&options->src_view);
}

/* ---- the report ------------------------------------------------------------------------------ */

/* Names of findings in JSON, and their texts; "": the detail is the text. */
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

/*
 * Writes "[3, 17]", the element of a tensor that holds byte AT; "" when it has no axes. Returns
 * OUT.
 */
static const char *show_index(const struct rfs_type *type, uint64_t at, char out[RFS_SHAPE_TEXT])
{
    uint64_t element = at / rfs_dtype_bytes((enum rfs_dtype)type->dtype);
    struct rfs_type index = {.ndim = type->ndim};

    for (unsigned i = type->ndim; i-- > 0; element /= type->dims[i] > 0 ? type->dims[i] : 1)
        index.dims[i] = type->dims[i] > 0 ? element % type->dims[i] : 0;
    return rfs_text_dims(out, RFS_SHAPE_TEXT, index.ndim, index.dims);
}

/* Returns whether a difference is at a byte of the whole tensor, not of one rank's value. */
static bool is_of_whole(const struct run *run, struct rfs_tensor tensor)
{
    return tensor.list && rfs_tensor_type(tensor)->kind == RFS_TENSOR &&
           (rfs_whole_is_own(&run->verify.tree, tensor.i) || !run->verify.items[tensor.i].by_rank);
}

/* Returns the tensor of the tree that a finding is of, or none. */
static struct rfs_tensor tensor_of(const struct run *run, const struct rfs_finding *finding)
{
    return finding->name ? rfs_tensors_find(&run->verify.tree.list, finding->name)
                         : (struct rfs_tensor){NULL, 0};
}

static size_t count_all(const struct run *run)
{
    return rfs_tensors_count(&run->verify.tree.list);
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_position(const struct run *run, const struct rfs_finding *finding)
{
    const struct rfs_tensor tensor = tensor_of(run, finding);
    char index[RFS_SHAPE_TEXT];

    if (!finding->file)
        return;
    if (is_of_whole(run, tensor) && rfs_tensor_type(tensor)->ndim > 0 &&
        !rfs_whole_is_own(&run->verify.tree, tensor.i))
        printf(", first at %s", show_index(rfs_tensor_type(tensor), finding->at, index));
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

/*
 * Returns "rank 3", "ranks 0-5, 7" for findings [first, end), malloc'ed; "" if they have no rank;
 * NULL when out of memory.
 */
static char *name_ranks(const struct rfs_findings *findings, size_t first, size_t end)
{
    const struct rfs_finding *list = findings->list.data;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    if (list[first].rank != RFS_NO_RANK)
        fputs(end - first > 1 ? "ranks" : "rank", out);
    for (size_t i = first, last; i < end && list[first].rank != RFS_NO_RANK; i = last + 1) {
        for (last = i; last + 1 < end && list[last + 1].rank == list[last].rank + 1;)
            last++;
        fprintf(out, "%s %" PRIu32, i > first ? "," : "", list[i].rank);
        if (last > i)
            fprintf(out, "-%" PRIu32, list[last].rank);
    }
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}

static int print_group(const struct run *run, size_t first, size_t end, struct rfs_error *err)
{
    const struct rfs_finding *finding = &run->verify.findings.list.data[first];
    const bool said = finding->kind == RFS_FOUND_MANIFEST || finding->kind == RFS_FOUND_VALUE;
    RFS_FREE char *ranks = name_ranks(&run->verify.findings, first, end);

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
    print_position(run, finding);
    putchar('\n');
    return 0;
}

static size_t count_tensors(const struct run *run)
{
    const struct rfs_findings *findings = &run->verify.findings;
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

static size_t count_kind(const struct run *run, enum rfs_finding_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < run->verify.findings.list.n; i++)
        n += run->verify.findings.list.data[i].kind == kind;
    return n;
}

/* Prints the number of faults: "2 tensors, 1 rank". */
static void print_counts(const struct run *run)
{
    const struct {
        size_t n;
        const char *what, *whose;
    } counts[] = {
        {count_tensors(run), "tensor", ""},
        {count_kind(run, RFS_FOUND_RANK), "rank", ""},
        {count_kind(run, RFS_FOUND_SOURCE_RANK), "rank", " of the source"},
        {count_kind(run, RFS_FOUND_VALUE), "value", ""},
        {count_kind(run, RFS_FOUND_FRAME) + count_kind(run, RFS_FOUND_FILE), "file", ""},
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

static void print_values(const struct run *run)
{
    if (run->verify.values > 0)
        printf(", with %zu value%s", run->verify.values, run->verify.values == 1 ? "" : "s");
}

static void print_summary(const struct run *run, bool fault)
{
    const struct request *options = run->options;
    char shown[RFS_TEXT_AMOUNT];
    const size_t n = count_all(run) + rfs_tensors_count(&run->verify.lost);
    uint64_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += rfs_tensor_type(run->verify.items[i].tree)->bytes;
    rfs_text_put(stdout, options->tree);
    printf(": %zu tensor%s, %s: ", n, n == 1 ? "" : "s", rfs_text_amount(bytes, shown));
    if (fault) {
        print_counts(run);
        return;
    }
    const char *comma = "";
    if (options->against) {
        fputs("the same as ", stdout);
        rfs_text_put(stdout, options->against);
        print_values(run);
        comma = ", ";
    }
    if (options->manifest) {
        printf("%s%s ", comma, run->has_sums ? "as in" : "written down in");
        rfs_text_put(stdout, options->manifest);
        comma = ", ";
    }
    if (run->verify.tree.ranks > 1 && !options->no_replicas)
        printf("%sall %" PRIu32 " ranks %s", comma, run->verify.tree.ranks,
               run->verify.findings.list.n > 0 ? "read" : "agree");
    else if (!*comma) {
        fputs("all could be read", stdout);
        print_values(run);
    }
    putchar('\n');
}

static int print_text_report(const struct run *run, bool fault, struct rfs_error *err)
{
    const struct rfs_findings *findings = &run->verify.findings;
    char hash[RFS_HASH_TEXT];

    for (size_t i = 0; run->options->list && i < count_all(run); i++) {
        printf("%s  ", rfs_hash_text(run->verify.items[i].hash, hash));
        rfs_text_put(stdout, rfs_tensor_name(run->verify.items[i].tree));
        putchar('\n');
    }
    for (size_t i = 0, end; i < findings->list.n; i = end) {
        end = findings->list.data[i].group;
        const int rc = print_group(run, i, end, err);
        if (rc)
            return rc;
    }
    print_summary(run, fault);
    return 0;
}

/* ---- for scripts ----------------------------------------------------------------------------- */

static void put_tensor(struct rfs_json_write *json, const struct run *run,
                       const struct rfs_verify_item *item)
{
    const char *name = rfs_tensor_name(item->tree);
    const struct rfs_type *type = rfs_tensor_type(item->tree);
    char hash[RFS_HASH_TEXT];

    rfs_json_break(json);
    rfs_json_object(json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(json, "name", name);
    rfs_json_put_text(json, "dtype", rfs_whole_dtype(type));
    rfs_json_put_u64s(json, "shape", RFS_JSON_SPACED, type->dims, type->ndim);
    rfs_json_put_u64(json, "bytes", type->bytes);
    rfs_json_put_bool(json, "rank_own", rfs_whole_is_own(&run->verify.tree, item->tree.i));
    rfs_json_put_text(json, "xxh3_128", rfs_hash_text(item->hash, hash));
    rfs_json_put_bool(json, "equal", !rfs_findings_fault(&run->verify.findings, name));
    rfs_json_end(json);
}

static void put_finding(struct rfs_json_write *json, const struct run *run,
                        const struct rfs_finding *finding)
{
    const struct rfs_tensor tensor = tensor_of(run, finding);
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
    if (finding->file && is_of_whole(run, tensor))
        rfs_json_print(json, "index", "%s",
                       show_index(rfs_tensor_type(tensor), finding->at, index));
    rfs_json_end(json);
}

/* Writes the faults, or the notes. */
static void put_findings(struct rfs_json_write *json, const struct run *run, const char *key,
                         bool notes)
{
    rfs_json_break(json);
    rfs_json_array(json, key, RFS_JSON_TIGHT);
    for (size_t i = 0; i < run->verify.findings.list.n; i++)
        if (rfs_finding_is_fault(run->verify.findings.list.data[i].kind) != notes)
            put_finding(json, run, &run->verify.findings.list.data[i]);
    rfs_json_end(json);
}

static void print_json(const struct run *run, bool fault)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "tree", run->options->tree);
    rfs_json_put_text(&json, "against", run->options->against);
    rfs_json_put_text(&json, "manifest", run->options->manifest);
    rfs_json_put_bool(&json, "equal", !fault);
    rfs_json_break(&json);
    rfs_json_array(&json, "tensors", RFS_JSON_TIGHT);
    for (size_t i = 0; i < count_all(run); i++)
        put_tensor(&json, run, &run->verify.items[i]);
    rfs_json_end(&json);
    put_findings(&json, run, "differences", false);
    put_findings(&json, run, "notes", true);
    rfs_json_finish(&json);
}

/* Prints to the standard output. 0, or -ENOMEM with *err filled. */
static int print_report(struct run *run, struct rfs_error *err)
{
    const bool fault = rfs_findings_fault(&run->verify.findings, NULL);

    if (!run->options->json)
        return print_text_report(run, fault, err);
    print_json(run, fault);
    return 0;
}

/* ---- the manifest ---------------------------------------------------------------------------- */

static bool is_there(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 || errno != ENOENT;
}

/* Reads the manifest, before anything else, so that a wrong file does not cost an hour. */
static int load_sums(struct run *run, struct rfs_error *err)
{
    const struct request *options = run->options;

    if (rfs_manifest_init(&run->sums, RFS_MANIFEST_TENSORS))
        return rfs_fail_memory(err);
    if (!options->manifest || options->write || !is_there(options->manifest))
        return 0;
    run->has_sums = true;
    return rfs_manifest_read(NULL, options->manifest, &run->sums, err);
}

static void find_sum(struct run *run, const char *name, const char *detail)
{
    rfs_findings_add_plain(&run->verify.findings, RFS_FOUND_MANIFEST, name, RFS_NO_RANK, detail);
}

static void check_sums(struct run *run)
{
    const struct rfs_manifest *sums = &run->sums;

    for (size_t i = 0; i < count_all(run); i++) {
        const struct rfs_verify_item *item = &run->verify.items[i];
        const char *name = rfs_tensor_name(item->tree);
        struct rfs_manifest_entry *entry = rfs_manifest_find(sums, name);
        if (entry)
            entry->met = true;
        if (!entry)
            find_sum(run, name, "is not in the manifest");
        else if (!rfs_manifest_fits(sums, entry, rfs_tensor_type(item->tree)))
            find_sum(run, name, "has another dtype or shape in the manifest");
        else if (!rfs_hash_equal(entry->hash, item->hash))
            find_sum(run, name, "has other bytes than the manifest says");
    }
    for (uint32_t i = 0; i < sums->entries.n; i++)
        if (!sums->entries.data[i].met &&
            !rfs_whole_lacks(&run->verify.tree, rfs_intern_text(sums->names, i)) &&
            rfs_globs_match(&run->options->globs, rfs_intern_text(sums->names, i)))
            find_sum(run, rfs_intern_text(sums->names, i),
                     "is in the manifest, and not in the tree");
}

static int save_sums(const struct rfs_manifest *sums, const char *path, struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    const char *what;
    size_t size = 0;

    if (rfs_manifest_text(sums, NULL, &text, &size))
        return rfs_fail_memory(err);
    const int rc = rfs_io_write_whole(path, text, size, true, &what);
    return rc ? rfs_fail(err, rc, RFS_IN(path), "a folder that you may write to",
                         "cannot be written: %s", strerror(-rc))
              : 0;
}

/* Writes the manifest; the tree has no faults. */
static int write_sums(struct run *run, struct rfs_error *err)
{
    for (size_t i = 0; i < count_all(run); i++) {
        const struct rfs_verify_item *item = &run->verify.items[i];
        const char *name = rfs_tensor_name(item->tree);
        const int rc =
            rfs_manifest_put_tensor(&run->sums, name, rfs_tensor_type(item->tree), item->hash);
        if (rc == -EEXIST)
            return rfs_fail(err, rc, RFS_OF(run->verify.tree.list.path, name),
                            "verify without --manifest",
                            "another name looks the same once it is printable");
        if (rc)
            return rfs_fail_memory(err);
    }
    return save_sums(&run->sums, run->options->manifest, err);
}

static int do_manifest(struct run *run, struct rfs_error *err)
{
    if (run->has_sums)
        check_sums(run);
    else if (run->options->manifest && !rfs_findings_fault(&run->verify.findings, NULL))
        return write_sums(run, err);
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

/*
 * Names the missing option, where a tree that describes its own cuts got the destination's
 * strategy: the view that makes such trees.
 */
static void name_view(struct rfs_error *err)
{
    if (strstr(err->text, RFS_STRATEGY_UNWANTED))
        rfs_fail_usage(err,
                       "-o view=dcp, view=hyper_parallel or view=mindformers, with which such a "
                       "tree is made",
                       "TREE describes its own cuts, and takes no strategy but by its view");
}

/* Opens the source, whose view says how the tree is cut. */
static int open_source(struct run *run, struct rfs_error *err)
{
    struct request *options = run->options;
    struct rfs_verify *verify = &run->verify;
    const struct rfs_view_how how = {.late = true, .files = true};
    struct rfs_options view = {0};
    int rc = rfs_view_options_take(&options->src_view, &view, err);
    const bool described = rfs_options_describes(&view);

    rfs_options_free(&view);
    rc = rc
             ?: rfs_tool_tensors(options->against, &options->src_view, &options->globs, &how,
                                 &verify->src, described ? &verify->cut : &verify->shown, err);
    rfs_tool_name_strategy("-s", err);
    return rc;
}

static int open_tree(struct run *run, struct rfs_error *err)
{
    struct request *options = run->options;
    const struct rfs_view_how how = {.late = true, .maker = run->verify.src.list.view};
    const int rc = rfs_tool_tensors(options->tree, &options->tree_view, &options->globs, &how,
                                    &run->verify.tree, NULL, err);

    rfs_tool_name_strategy(options->against ? "-d" : "-s", err);
    if (rc && options->against)
        name_view(err);
    return rc;
}

static int open_all(struct run *run, struct rfs_error *err)
{
    struct rfs_globs *globs = &run->options->globs;
    const int rc = (run->options->against ? open_source(run, err) : 0) ?: open_tree(run, err);

    for (uint32_t i = 0; i < run->sums.entries.n; i++)
        rfs_globs_take(globs, rfs_intern_text(run->sums.names, i));
    return rc ? rc : rfs_globs_check(globs, err);
}

/*
 * Returns whether hfai's parts, which could not be opened, are bad; not after a mistake of usage.
 */
static bool has_bad_parts(struct run *run, int rc, const struct rfs_error *err)
{
    const struct request *options = run->options;
    struct rfs_verify *verify = &run->verify;
    const bool of_source = options->against && !verify->src.list.view;

    if (rc == -ENOMEM || rc == -EINTR || err->usage || verify->tree.list.view)
        return false;
    if (!of_source)
        return rfs_verify_parts(verify, options->tree, RFS_FOUND_RANK);
    return rfs_verify_parts(verify, options->against, RFS_FOUND_SOURCE_RANK);
}

static int compare_all(struct run *run, struct rfs_error *err)
{
    const int rc = rfs_verify_all(&run->verify, err);

    rfs_tool_name_strategy("-s", err);
    return rc ? rc : do_manifest(run, err);
}

static int do_all(struct run *run, struct rfs_error *err)
{
    int rc = load_sums(run, err);

    if (rc)
        return rc;
    rc = open_all(run, err);
    if (rc == 0)
        rc = compare_all(run, err);
    else if (has_bad_parts(run, rc, err))
        rc = 0;
    if (rc == 0 && run->verify.findings.failed)
        rc = rfs_fail_memory(err);
    if (rc)
        return rc;
    rfs_findings_sort(&run->verify.findings);
    return print_report(run, err);
}

static bool match(const void *globs, const char *name)
{
    return rfs_globs_match(globs, name);
}

static void warn(const char *line)
{
    rfs_tool_warn(line, NULL);
}

static int run(void *request, struct rfs_error *err)
{
    struct request *options = request;
    struct run run = {.options = options,
                      .verify.wishes = {.match = match,
                                        .match_ctx = &options->globs,
                                        .some = options->globs.n > 0,
                                        .wants_sums = options->manifest != NULL,
                                        .no_replicas = options->no_replicas,
                                        .threads = options->threads,
                                        .warn = warn}};
    const int rc = rfs_verify_begin(&run.verify, err) ?: settle(options, err) ?: do_all(&run, err);
    const bool fault = rc == 0 && rfs_findings_fault(&run.verify.findings, NULL);

    rfs_verify_end(&run.verify);
    rfs_manifest_free(&run.sums);
    free_views(options);
    return rc ? rc : fault ? RFS_EXIT_INPUT : RFS_EXIT_OK;
}

const struct rfs_command rfs_command_verify = {
    .name = "verify",
    .usage = "reshard verify TREE --against SRC [-s FILE] [-d FILE] [option…]\n"
             "reshard verify TREE [-s FILE] [--manifest FILE] [option…]\n",
    .summary = "proves that a mount, an export or a tree equals its source",
    .arguments = arguments,
    .after = "\nExit status: 0 all is right, 1 something differs or is damaged, 2 trouble.\n",
    .request_bytes = sizeof(struct request),
    .trouble = RFS_EXIT_USAGE,
    .run = run,
};
