/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files convert/NAME.cuts have these holes:
 *
 *     {tp} {pp} {ep}    degrees of tensor, pipeline and expert parallelism
 *     {dp} {edp}        the replicas of a stage's devices beside tp, and beside ep
 *     {etp1}            1: no tensor parallelism of experts, if a training has said so
 *     {etp}             the degree of tensor parallelism of experts: that of all tensors, unless
 *                       experts are over ep, there is none, or the user gives another
 *     {embedding}       the stages of the embedding: the first, and the last if that is the output
 *     {gated}           ", fields 2" where an MLP has gate and up; Mamba models have no gate
 *     {embedding_axis}  0, or 1 where the user of the cuts says that Llama's is cut by columns
 *
 * Only files with {ep} know experts that are cut over devices.
 */
#include "rules/cuts.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/settings.h"
#include "base/text.h"
#include "rules/shipped.h"

#include <ctype.h>

#define REMEDY "tp4, or several as in tp2,pp2; the words are tp, pp, ep, etp and dp"
#define WHOLE_EXPERTS "etp1"
#define HOLE_ETP "{etp}"
#define DIGITS 7 /* of the largest number of devices */

RFS_CLEANUP_OF(free_rules, struct rfs_layout_rules *, rfs_layout_rules_free)

/* Degrees of parallelism; 0: not given. */
enum { TP, PP, EP, DP, ETP, DEGREES };
static const char *const words[] = {"tp", "pp", "ep", "dp", "etp"};

struct cuts {
    const char *option, *value;
    const struct rfs_layout_rules_use *use;
    struct rfs_error *err;
    uint32_t degree[DEGREES];
    uint32_t devices; /* of a stage */
    bool own_experts; /* etp is given */
};

static int take_word(struct cuts *cuts, const char *word, size_t n)
{
    const size_t length = strcspn(word, "0123456789");
    const unsigned long number =
        length < n && n <= length + DIGITS ? strtoul(word + length, NULL, 10) : ULONG_MAX;
    unsigned kind = 0;

    while (kind < DEGREES &&
           (length >= n || strlen(words[kind]) != length || memcmp(words[kind], word, length) != 0))
        kind++;
    if (kind == DEGREES)
        return rfs_fail_usage(cuts->err, REMEDY, "%s=%s: '%.*s' is not known", cuts->option,
                              cuts->value, (int)n, word);
    if (cuts->degree[kind] > 0)
        return rfs_fail_usage(cuts->err, REMEDY, "%s=%s: '%s' is given twice", cuts->option,
                              cuts->value, words[kind]);
    if (number == 0 || number > RFS_MAX_DEVICES)
        return rfs_fail_usage(cuts->err, REMEDY, "%s=%s: '%.*s' is not a number of devices",
                              cuts->option, cuts->value, (int)n, word);
    cuts->degree[kind] = (uint32_t)number;
    return 0;
}

/* Returns the devices that experts need: each group of ep has as many parts as etp says. */
static uint64_t devices_of_experts(const struct cuts *cuts)
{
    return (uint64_t)cuts->degree[EP] * (cuts->own_experts ? cuts->degree[ETP] : 1);
}

static bool is_output(const char *name)
{
    return rfs_text_ends(name, "lm_head.weight") || strcmp(name, "output.weight") == 0 ||
           (rfs_text_ends(name, "output_layer.weight") && !strstr(name, "mtp."));
}

static bool is_expert(const char *name)
{
    return strstr(name, ".experts.") != NULL;
}

static bool is_one_expert(const char *name)
{
    const char *found = strstr(name, ".experts.");

    return found && isdigit((unsigned char)found[strlen(".experts.")]);
}

/* Returns whether the model has a parameter of a kind. */
static bool has(const struct rfs_layout_rules_use *use, bool (*is)(const char *name))
{
    const size_t n = use->source ? rfs_strategy_count(use->source) : use->n;

    for (size_t i = 0; i < n; i++)
        if (is(use->source ? rfs_strategy_param(use->source, i) : use->names[i]))
            return true;
    return false;
}

/* Reads the words, and finds the number of ranks and of replicas. */
static int take_words(struct cuts *cuts)
{
    const uint32_t ranks = cuts->use->ranks;
    uint32_t *degree = cuts->degree;
    int rc = 0;

    for (const char *at = cuts->value; *at && rc == 0;) {
        const size_t n = rfs_settings_cut_word(at);
        rc = take_word(cuts, at, n);
        at += n + strspn(at + n, ", ");
    }
    if (rc)
        return rc;
    const bool replicated = degree[DP] > 0;
    cuts->own_experts = degree[ETP] > 0;
    for (unsigned i = 0; i < DEGREES; i++)
        degree[i] += degree[i] == 0;
    const uint64_t experts = devices_of_experts(cuts);
    const uint64_t least = replicated ? (uint64_t)degree[TP] * degree[DP]
                                      : degree[TP] / rfs_gcd_u64(degree[TP], experts) * experts;
    const uint64_t devices = ranks > 0 && !replicated ? ranks / degree[PP] : least;
    if (devices * degree[PP] > RFS_MAX_DEVICES || devices % least != 0 || devices % experts != 0 ||
        (ranks > 0 && devices * degree[PP] != ranks) || devices == 0)
        return ranks > 0 ? rfs_fail_usage(cuts->err, "leave it out", "%s=%s does not fit %s=%u",
                                          cuts->option, cuts->value, cuts->use->ranks_option, ranks)
                         : rfs_fail_usage(cuts->err, REMEDY,
                                          "%s=%s: the devices of a stage are not a multiple of ep, "
                                          "or of ep times etp",
                                          cuts->option, cuts->value);
    cuts->devices = (uint32_t)devices;
    degree[DP] = cuts->devices / degree[TP];
    if (!cuts->own_experts) /* of a model without experts nothing is cut over them */
        degree[ETP] = degree[EP] > 1 || !has(cuts->use, is_expert) ? 1 : degree[TP];
    return 0;
}

static bool is_mamba(const char *name)
{
    return strstr(name, ".mixer.") || strstr(name, "decoder.final_norm.");
}

/* Returns whether a model has Mamba mixers, by its names or by its config. */
static bool has_mamba(const struct rfs_layout_rules_use *use)
{
    struct rfs_error ignored = {0};
    uint64_t heads;

    return has(use, is_mamba) ||
           (use->number && use->number(use->ctx, "mamba_num_heads", &heads, &ignored) == 0);
}

/* Returns the text of a file with its holes filled; owned. NULL when out of memory. */
static char *fill(const struct cuts *cuts, const char *text)
{
    const bool uses_etp = strstr(text, HOLE_ETP) != NULL;
    const struct {
        const char *hole;
        uint32_t number;
    } numbers[] = {
        {"{tp}", cuts->degree[TP]},
        {"{pp}", cuts->degree[PP]},
        {"{ep}", cuts->degree[EP]},
        {"{edp}", cuts->devices / cuts->degree[EP] / (uses_etp ? cuts->degree[ETP] : 1)},
        {"{dp}", cuts->degree[DP]},
        {"{etp1}", 1},
        {"{etp}", cuts->degree[ETP]},
        {"{embedding_axis}", cuts->use->by_columns},
    };
    const bool tied = !has(cuts->use, is_output), mamba = has_mamba(cuts->use);
    char *filled = NULL;
    size_t size;
    FILE *out = open_memstream(&filled, &size);

    for (size_t n; out && *text; text += n) {
        n = strcspn(text, "{");
        if (n > 0) {
            fwrite(text, 1, n, out);
            continue;
        }
        n = strcspn(text, "}") + 1;
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            if (strncmp(text, numbers[i].hole, n) == 0)
                fprintf(out, "%" PRIu32, numbers[i].number);
        if (strncmp(text, "{embedding}", n) == 0)
            fputs(tied ? "first last" : "first", out);
        if (strncmp(text, "{gated}", n) == 0)
            fputs(mamba ? "" : ", fields 2", out);
    }
    if (out && !ferror(out) && fclose(out) == 0)
        return filled;
    free(filled);
    return NULL;
}

static int parse_file(const struct cuts *cuts, const struct rfs_rules_file *file,
                      struct rfs_layout_rules **out)
{
    RFS_FREE char *text = fill(cuts, file->text);
    RFS_FREE char *name = rfs_text_printf(RFS_SHIPPED_FOLDER "%s", file->name);

    return text && name ? rfs_layout_rules_parse(name, text, strlen(text), out, cuts->err)
                        : rfs_fail_memory(cuts->err);
}

/* Returns whether a tensor is one of all layers, which Megatron-Core has. */
static bool is_stacked(const char *name)
{
    static const char layers[] = "decoder.layers.";
    const char *found = strstr(name, layers);

    return found && strspn(found + strlen(layers), "0123456789") == 0;
}

/* Chooses the file that knows all parameters. */
static int choose(const struct cuts *cuts, const struct rfs_rules_file **chosen,
                  struct rfs_layout_rules **out)
{
    size_t fewest = SIZE_MAX;
    const char *unknown = NULL;
    int rc = 0;

    for (const struct rfs_rules_file *file = rfs_cuts_shipped; file->name && rc == 0; file++) {
        RFS_CLEANUP(free_rules) struct rfs_layout_rules *rules = NULL;
        const char *first;
        rc = parse_file(cuts, file, &rules);
        const size_t n =
            rc ? SIZE_MAX
               : rfs_layout_rules_unmatched(rules, cuts->use, fewest + (fewest == 0), &first);
        if (rc == 0 && n == 0 && fewest == 0)
            return rfs_fail_usage(cuts->err, "rules of your own",
                                  "%s=%s: the names of this checkpoint are those of %s and of %s",
                                  cuts->option, cuts->value, (*chosen)->name, file->name);
        if (n >= fewest)
            continue;
        fewest = n;
        unknown = first;
        *chosen = file;
        rfs_layout_rules_free(*out);
        *out = RFS_STEAL(rules);
    }
    if (rc || fewest == 0)
        return rc;
    return rfs_fail(cuts->err, -EINVAL, RFS_OF(cuts->value, unknown),
                    is_stacked(unknown) ? "convert_options=layers=numbered; or rules of your own"
                                        : "rules of your own",
                    "no ready cut is known for it, in %s"
                    "%s",
                    RFS_SHIPPED_FOLDER, (*chosen)->name);
}

/* Checks what the degrees say of experts against what a file knows of them. */
static int check_experts(const struct cuts *cuts, const struct rfs_rules_file *file)
{
    const uint32_t *degree = cuts->degree;
    const bool never = strstr(file->text, "{etp1}") != NULL; /* a training may not cut them by tp */
    const bool known = strstr(file->text, HOLE_ETP) != NULL;
    const bool whole = cuts->own_experts && degree[ETP] == 1;

    if (degree[EP] > 1 && (!strstr(file->text, "{ep}") || has(cuts->use, is_one_expert)))
        return rfs_fail_usage(cuts->err,
                              "convert=, for names whose experts are one tensor, such as "
                              "experts=fused; or leave ep out",
                              "%s=%s: no parameter with the names of %s is cut over ep",
                              cuts->option, cuts->value, file->name);
    if (cuts->own_experts && !known && !(never && whole))
        return rfs_fail_usage(cuts->err, never ? WHOLE_EXPERTS : "leave it out",
                              "%s=%s: 'etp%u' is not for the names of %s", cuts->option,
                              cuts->value, degree[ETP], file->name);
    if (never && degree[TP] > 1 && !whole && has(cuts->use, is_expert))
        return rfs_fail_usage(cuts->err,
                              WHOLE_EXPERTS
                              " beside it, if expert_tensor_parallel_size is 1 in the "
                              "training; otherwise rules of your own",
                              "%s=%s: tp cuts experts, too, in a training with the names of %s",
                              cuts->option, cuts->value, file->name);
    if (known && degree[TP] > 1 && degree[EP] > 1 && !cuts->own_experts)
        return rfs_fail_usage(
            cuts->err, "etp1 beside it, or etp2 and so on, as the training has it",
            "%s=%s: with ep, tp alone does not say how experts are cut", cuts->option, cuts->value);
    return 0;
}

int rfs_cuts_rules(const char *option, const char *value, const struct rfs_layout_rules_use *use,
                   struct rfs_layout_rules **out, struct rfs_error *err)
{
    RFS_CLEANUP(free_rules) struct rfs_layout_rules *rules = NULL;
    struct cuts cuts = {.option = option, .value = value, .use = use, .err = err};
    const struct rfs_rules_file *file = NULL;

    *out = NULL;
    const int rc = take_words(&cuts) ?: choose(&cuts, &file, &rules) ?: check_experts(&cuts, file);
    if (rc == 0)
        *out = RFS_STEAL(rules);
    return rc;
}
