/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `reshard suggest`: what a path is, and the commands that are likely wanted, to be pasted into a
 * shell. Each command that makes a view was tried: the view was opened and its files were planned,
 * from headers alone.
 */
#include "base/cleanup.h"
#include "base/store.h"
#include "base/text.h"
#include "reshard.h"
#include "survey/headers/inspect_file.h"
#include "survey/headers/needed_ranks.h"
#include "survey/rules_report.h"
#include "tool/common/command.h"
#include "tool/common/manifest.h"
#include "tool/common/show.h"
#include "tool/common/source.h"
#include "tool/suggest/internal.h"

enum {
    RUN_COMMANDS = 2, /* of the newest save in a run, beside those of the run */
    MOST_BELOW = 8,   /* folders that are suggested instead */
    MOST_LEFT = 4,    /* checkpoints whose reasons are told */
};

/* Stand for what the user fills in. */
#define NEW "NEW"
#define MOUNT_POINT "MNT"
static const struct {
    const char *in_command, *meaning;
} places[] = {
    {" NEW", "NEW, a path to write to"},
    {" MNT", "MNT, an empty folder"},
    {"key_file=KEY", "KEY, the file of the key"},
    {"lora_alpha=N", "N, lora_alpha of the training"},
    {"files=MAP",
     "MAP, a file such as {\"0\": \"FILE\", \"1\": \"FILE\"}, with the file of each rank"},
};

/* Leaves out the commands after the first N. */
static void keep_commands(struct rfs_advice *advice, size_t n)
{
    while (advice->list.n > n) {
        const struct rfs_wanted *last = &advice->list.data[--advice->list.n];
        free(last->why);
        free(last->command);
    }
}

/* ---- strategies ------------------------------------------------------------------------------ */

/* Returns whether an option says how the source is cut. */
static bool has_cuts(const struct rfs_advice *advice)
{
    return rfs_settings_last(&advice->basis, "src_strategy") ||
           rfs_settings_last(&advice->basis, "src_rules");
}

/*
 * Finds the strategy of a source of several ranks: one by whose cuts its ranks can be planned. One
 * that some ranks contradict is taken if there is no other.
 */
static void find_strategy(struct rfs_advice *advice)
{
    const char *found = NULL;
    const char *doubtful = NULL;
    struct rfs_error doubt = {0};

    if (has_cuts(advice))
        return;
    /* Names that say which side they are of come first. */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < advice->near.strategies.n; i++) {
            const char *path = advice->near.strategies.data[i];
            RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
            if ((strstr(rfs_path_name(path), "src") == NULL) == (pass == 0))
                continue;
            advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0;
            rfs_advice_pairs(advice, &options, RFS_PAIRS("src_strategy", path));
            struct rfs_error err = {0};
            unsigned unused = 0;
            if (advice->failed || !rfs_advice_shows(advice, &options, NULL))
                continue;
            if (rfs_advice_try(advice, &options, true, &unused, &err) != 0) {
                doubt = doubtful ? doubt : err;
                doubtful = doubtful ? doubtful : path;
                continue;
            }
            if (found)
                rfs_advice_note(advice, rfs_text_printf("%s fits as well", path));
            found = found ? found : path;
        }
    if (!found && doubtful)
        rfs_advice_note(advice, strdup(doubt.text));
    found = found ? found : doubtful;
    if (found)
        rfs_advice_pairs(advice, &advice->basis, RFS_PAIRS("src_strategy", found));
}

/*
 * Finds the ready cuts that the ranks bear out: those of one tensor-parallel group, or of several,
 * which hold the same.
 */
static void find_cuts(struct rfs_advice *advice)
{
    const struct rfs_path_list *configs = rfs_advice_configs(advice);

    if (has_cuts(advice))
        return;
    for (uint32_t tp = advice->ranks; tp > 1 && !advice->failed; tp--) {
        RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
        struct rfs_error unused;
        char cuts[16], ranks[16];
        unsigned entries = 0;

        if (advice->ranks % tp)
            continue;
        snprintf(cuts, sizeof cuts, "tp%" PRIu32, tp);
        snprintf(ranks, sizeof ranks, "%" PRIu32, advice->ranks);
        rfs_advice_pairs(advice, &options, RFS_PAIRS("src_rules", cuts));
        if (tp < advice->ranks)
            rfs_advice_pairs(advice, &options, RFS_PAIRS("src_ranks", ranks));
        if (configs->n == 1 && !rfs_settings_last(&advice->basis, "hf_config"))
            rfs_advice_pairs(advice, &options, RFS_PAIRS("hf_config", configs->data[0]));
        advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0;
        if (advice->failed || rfs_advice_try(advice, &options, true, &entries, &unused))
            continue;
        rfs_settings_free(&advice->basis);
        advice->basis = options;
        options = (struct rfs_settings){0};
        rfs_advice_note(advice, rfs_text_printf("cut as by src_rules=%s, which all ranks that were "
                                                "compared bear out",
                                                cuts));
        return;
    }
}

/* Notes what a user may know of the cuts: the strategy's file, or ready cuts for such names. */
static void note_no_cuts(struct rfs_advice *advice)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings whole = {0};
    struct rfs_error err = {0};
    unsigned entries = 0;

    rfs_advice_note(advice, advice->why.code
                                ? rfs_text_printf("no strategy near it fits: %s", advice->why.text)
                                : strdup("no strategy is near it; the training wrote one "
                                         "(strategy_ckpt_config, save_file): give it with -s, or "
                                         "its cuts with -o src_rules=, see RULES in reshardfs(1)"));
    advice->failed |= rfs_settings_add_all(&whole, &advice->basis) != 0;
    rfs_advice_pairs(advice, &whole, RFS_PAIRS("view", "huggingface"));
    const char *ready = rfs_advice_try(advice, &whole, false, &entries, &err)
                            ? strstr(err.text, "src_rules=tp")
                            : NULL;
    if (ready)
        rfs_advice_note(advice,
                        rfs_text_printf("for such names there are ready cuts: -o %s", ready));
}

/* Offers a mount by another strategy that lies near. */
static bool offer_strategies(struct rfs_advice *advice)
{
    const struct rfs_setting *source = rfs_settings_last(&advice->basis, "src_strategy");

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < advice->near.strategies.n; i++) {
            const char *path = advice->near.strategies.data[i];
            if ((source && strcmp(source->value, path) == 0) ||
                (strstr(rfs_path_name(path), "dst") == NULL) == (pass == 0))
                continue;
            if (rfs_advice_offer(advice,
                                 (struct rfs_offer){"as the ranks of the other strategy load it",
                                                    "reshardfs", MOUNT_POINT,
                                                    .pairs = RFS_PAIRS("dst_strategy", path)}))
                return true;
        }
    return false;
}

/* ---- offers ---------------------------------------------------------------------------------- */

static void offer_info(struct rfs_advice *advice)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    const struct rfs_setting *entry = rfs_settings_last(&advice->model, "entry");

    if (advice->list.n >= RFS_ADVICE_MOST)
        return;
    advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0;
    /* info lists all dicts of a file. */
    if (entry && advice->whole && advice->near.folder)
        rfs_advice_pairs(advice, &options, RFS_PAIRS("entry", entry->value));
    rfs_advice_command(advice, "what is in it", "reshard info", advice->path, NULL, &options);
}

/*
 * Offers an adapter as PEFT loads it. If nothing says its lora_alpha, the user does. Returns
 * whether that works.
 */
static bool offer_peft(struct rfs_advice *advice, bool converts)
{
    const char *const why = "the adapter that PEFT loads";
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    struct rfs_settings *const with[] = {&advice->basis, &advice->model, &advice->rules};
    const struct rfs_error before = advice->why;

    if (rfs_advice_offer(advice,
                         (struct rfs_offer){why, "reshard export", NEW, .converts = converts,
                                            .pairs = RFS_PAIRS("view", "peft")}))
        return true;
    for (size_t i = 0; i < (converts ? 3 : 2); i++)
        advice->failed |= rfs_settings_add_all(&options, with[i]) != 0;
    rfs_advice_pairs(advice, &options, RFS_PAIRS("view", "peft", "lora_alpha", "1"));
    if (advice->failed || advice->list.n >= RFS_ADVICE_MOST ||
        !rfs_advice_shows(advice, &options, NULL)) {
        advice->why = before; /* it may be no adapter */
        return false;
    }
    free(options.list.data[options.list.n - 1].value);
    options.list.data[options.list.n - 1].value = strdup("N");
    advice->failed |= !options.list.data[options.list.n - 1].value;
    rfs_advice_command(advice, why, "reshard export", advice->path, NEW, &options);
    return true;
}

/* Offers the other form of a model. */
static void offer_converted(struct rfs_advice *advice)
{
    if (!advice->to)
        return;
    if (strcmp(advice->to, "peft") == 0) {
        offer_peft(advice, true);
    } else if (strcmp(advice->to, "huggingface") == 0)
        rfs_advice_offer(advice, (struct rfs_offer){"the model that HuggingFace's programs load",
                                                    "reshard export", NEW, .converts = true,
                                                    .pairs = RFS_PAIRS("view", "huggingface")});
    else if (!rfs_advice_offer(advice,
                               (struct rfs_offer){"the shards of four tensor-parallel ranks",
                                                  "reshard export", NEW, .converts = true,
                                                  .pairs = RFS_PAIRS("dst_rules", "tp4")}) &&
             !rfs_advice_offer(advice, (struct rfs_offer){"the shards of two tensor-parallel ranks",
                                                          "reshard export", NEW, .converts = true,
                                                          .pairs = RFS_PAIRS("dst_rules", "tp2")}))
        rfs_advice_offer(advice,
                         (struct rfs_offer){"the tensors by the names of a training, in one file",
                                            "reshard export", NEW, .converts = true,
                                            .pairs = RFS_PAIRS("view", "unified")});
}

/* ---- kinds of sources ------------------------------------------------------------------------ */

/* Copies the options of views of a run, with the dict that its files have their tensors in. */
static void add_basis(struct rfs_advice *advice, struct rfs_settings *options)
{
    const struct rfs_setting *entry = rfs_settings_last(&advice->model, "entry");

    advice->failed |= rfs_settings_add_all(options, &advice->basis) != 0;
    if (entry)
        rfs_advice_pairs(advice, options, RFS_PAIRS("entry", entry->value));
}

/* Adds the mount of all saves. */
static void add_follow(struct rfs_advice *advice)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};

    add_basis(advice, &options);
    advice->failed |= rfs_settings_add(&options, "follow", NULL, NULL) != 0;
    rfs_advice_command(advice, "every save and those that come, each in a folder of its own",
                       "reshardfs", advice->path, MOUNT_POINT, &options);
}

static void suggest_saves(struct rfs_advice *advice)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    const struct rfs_error why = advice->why; /* one save is no mistake */
    unsigned saves = 0;

    add_basis(advice, &options);
    rfs_advice_pairs(advice, &options, RFS_PAIRS("step", "all"));
    const bool shows = !advice->failed && !rfs_settings_last(&advice->basis, "step") &&
                       advice->list.n < RFS_ADVICE_MOST &&
                       rfs_advice_shows(advice, &options, &saves);
    advice->why = why;
    if (shows && saves >= 2)
        add_follow(advice);
}

/* Offers the weights as HuggingFace's programs keep them, beside the model's config if one fits. */
static void offer_weights(struct rfs_advice *advice)
{
    const struct rfs_setting *config = rfs_settings_last(&advice->rules, "hf_config");
    struct rfs_offer weights = {rfs_settings_last(&advice->model, "dequantize")
                                    ? "safetensors in bfloat16, as HuggingFace's programs keep them"
                                    : "safetensors, as HuggingFace's programs keep them",
                                "reshard export", NEW, .of_model = true};

    weights.pairs = RFS_PAIRS("view", "huggingface", "hf_config", config ? config->value : NULL);
    if (config && rfs_advice_offer(advice, weights))
        return;
    weights.pairs = RFS_PAIRS("view", "huggingface");
    rfs_advice_offer(advice, weights);
}

static void suggest_whole(struct rfs_advice *advice, const char *format)
{
    const bool changed = rfs_settings_last(&advice->model, "dequantize") ||
                         rfs_settings_last(&advice->model, "names");

    offer_converted(advice);
    offer_strategies(advice);
    suggest_saves(advice);
    if (strcmp(format, "safetensors") == 0 && !changed)
        rfs_advice_offer(
            advice, (struct rfs_offer){"a checkpoint that torch.distributed.checkpoint loads",
                                       "reshard export", NEW, .pairs = RFS_PAIRS("view", "dcp")});
    else
        offer_weights(advice);
    offer_info(advice);
}

static void suggest_ranks(struct rfs_advice *advice)
{
    offer_strategies(advice);
    offer_converted(advice);
    suggest_saves(advice);
    rfs_advice_offer(advice, (struct rfs_offer){"one whole checkpoint, in one file",
                                                "reshard export", NEW, .pairs = NULL});
    offer_info(advice);
}

static void suggest_described(struct rfs_advice *advice)
{
    const bool is_training =
        advice->to && (strcmp(advice->to, "huggingface") == 0 || strcmp(advice->to, "peft") == 0);

    if (!is_training && !offer_peft(advice, false))
        offer_weights(advice);
    offer_converted(advice);
    offer_strategies(advice);
    suggest_saves(advice);
    rfs_advice_offer(advice, (struct rfs_offer){"a file that torch.load reads", "reshardfs",
                                                MOUNT_POINT, .pairs = RFS_PAIRS("format", "pt")});
    offer_info(advice);
}

static void suggest_parts(struct rfs_advice *advice)
{
    char other[16];

    snprintf(other, sizeof other, "%" PRIu32, advice->ranks > 1 ? advice->ranks / 2 : 2);
    rfs_advice_offer(advice, (struct rfs_offer){"as another number of parts", "reshardfs",
                                                MOUNT_POINT, .pairs = RFS_PAIRS("nshards", other)});
    offer_info(advice);
}

/* Suggests what to do about a source that can't be read without a key. */
static void suggest_key(struct rfs_advice *advice)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};

    advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0;
    rfs_advice_pairs(advice, &options, RFS_PAIRS("key_file", "KEY"));
    rfs_advice_command(advice, "the same with the key, in the file KEY", "reshard suggest",
                       advice->path, NULL, &options);
}

/* Suggests other paths: the folder above a file or a rank, or folders below. */
static void suggest_path(struct rfs_advice *advice, const char *why, const char *path)
{
    rfs_advice_command(advice, why, "reshard suggest", path, NULL, &advice->request->options);
}

static void suggest_above(struct rfs_advice *advice, const char *why)
{
    RFS_FREE char *above = rfs_printed_memory(rfs_near_above(advice->path));

    suggest_path(advice, why, above);
}

/* ---- what it is ------------------------------------------------------------------------------ */

static void describe(struct rfs_advice *advice, char *about)
{
    free(advice->about);
    advice->about = rfs_printed_memory(about);
}

/* Notes what finds conversion rules for a source that may be of a training, if none are found. */
static void note_config(struct rfs_advice *advice, enum rfs_inspect_what what)
{
    if (advice->to || rfs_settings_last(&advice->basis, "convert"))
        return;
    if (advice->config.type && rfs_advice_configs(advice)->n == 1)
        rfs_advice_note_misfit(advice);
    else if (advice->unread)
        rfs_advice_note(advice, RFS_STEAL(advice->unread));
    else if (advice->given.n > 0)
        rfs_advice_note(advice,
                        rfs_text_printf("no rules of convert= fit it by %s: reshard convert "
                                        "check says why; reshard convert list has the models",
                                        advice->given.data[0]));
    else if (what == RFS_INSPECT_CHUNKS && advice->list.n > 1 &&
             rfs_advice_configs(advice)->n == 0 && !rfs_settings_last(&advice->basis, "hf_config"))
        rfs_advice_note(advice,
                        strdup("conversion rules are looked for with the model's config.json: "
                               "give it with -o hf_config=FILE"));
}

/* Lets the commands follow links that lead out of the source, if there are any. */
static void find_links(struct rfs_advice *advice)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    struct rfs_error why = {0};
    unsigned unused = 0;

    advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0;
    if (advice->ranks == 1)
        rfs_advice_pairs(advice, &options, RFS_PAIRS("view", "huggingface"));
    if (!advice->failed && !rfs_settings_last(&advice->basis, "follow_links") &&
        rfs_advice_try(advice, &options, false, &unused, &why) == -EXDEV)
        advice->failed |= rfs_settings_add(&advice->basis, "follow_links", NULL, NULL) != 0;
}

/*
 * Finds out whether the weights are quantized in a way that is read: then views of the model show
 * numbers.
 */
static void find_codes(struct rfs_advice *advice)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    const struct rfs_error before = advice->why;

    if (rfs_settings_last(&advice->basis, "dequantize"))
        return;
    advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0 ||
                      rfs_settings_add_all(&options, &advice->model) != 0;
    rfs_advice_pairs(advice, &options, RFS_PAIRS("view", "huggingface"));
    if (advice->failed || (!advice->config.quantized && rfs_advice_shows(advice, &options, NULL)))
        return;
    advice->why = (struct rfs_error){0};
    advice->failed |= rfs_settings_add(&options, "dequantize", NULL, NULL) != 0;
    if (rfs_advice_shows(advice, &options, NULL))
        advice->failed |= rfs_settings_add(&advice->model, "dequantize", NULL, NULL) != 0;
    else if (advice->config.quantized)
        rfs_advice_note(advice, strdup(advice->why.text));
    advice->why = before;
}

/* Says whether a loader knows all names of the model without the wrappers in them, and else not. */
static bool is_wrapped(struct rfs_advice *advice)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    const struct rfs_error before = advice->why;

    advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0 ||
                      rfs_settings_add_all(&options, &advice->model) != 0;
    rfs_advice_pairs(advice, &options, RFS_PAIRS("view", "huggingface"));
    advice->failed |= rfs_settings_add(&options, "strict", NULL, NULL) != 0;
    bool wrapped = !advice->failed && !rfs_advice_shows(advice, &options, NULL);
    rfs_advice_pairs(advice, &options, RFS_PAIRS("names", "unwrap"));
    wrapped = wrapped && !advice->failed && rfs_advice_shows(advice, &options, NULL);
    advice->why = before;
    return wrapped;
}

/* Lets views of the model take wrappers off its names, where that makes it known to a loader. */
static void find_wrappers(struct rfs_advice *advice)
{
    if (!advice->to && !rfs_settings_last(&advice->basis, "names") && is_wrapped(advice))
        rfs_advice_pairs(advice, &advice->model, RFS_PAIRS("names", "unwrap"));
}

/*
 * Takes from the manifest of an export what reads it again: its cuts are now those of the source.
 * Files that are not there are left out.
 */
static void take_manifest(struct rfs_advice *advice)
{
    static const struct {
        const char *was, *is;
        bool file;
        const char *with; /* counts beside this option; NULL: in any case */
    } back[] = {{"dst_strategy", "src_strategy", true, NULL},
                {"dst_rules", "src_rules", false, NULL},
                {"dst_ranks", "src_ranks", false, "src_rules"},
                {"hf_config", "hf_config", true, NULL}};
    RFS_FREE char *path = rfs_path_join(advice->path, RFS_MANIFEST_NAME);
    RFS_CLEANUP(rfs_manifest_free) struct rfs_manifest manifest = {.source = NULL};
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings made = {0};
    struct rfs_error unused;

    if (!path || has_cuts(advice) || !rfs_store_there(advice->source.store, path) ||
        rfs_manifest_init(&manifest, RFS_MANIFEST_FILES) ||
        rfs_manifest_read(advice->source.store, path, &manifest, &unused) ||
        rfs_settings_add_text(&made, manifest.options))
        return;
    const struct rfs_setting *rules = rfs_settings_last(&made, "dst_rules");
    const bool like = rules && rules->value && strcmp(rules->value, "like source") == 0;
    for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
        const struct rfs_setting *setting =
            rfs_settings_last(&made, like ? back[i].is : back[i].was);
        if (!setting || !setting->value || rfs_settings_last(&advice->basis, back[i].is) ||
            (back[i].with && !rfs_settings_last(&advice->basis, back[i].with)) ||
            (back[i].file && !rfs_store_there(advice->source.store, setting->value)))
            continue;
        advice->failed |= rfs_settings_add(&advice->basis, back[i].is, setting->value, NULL) != 0;
    }
    RFS_FREE char *config = manifest.source ? rfs_path_join(manifest.source, "config.json") : NULL;
    if (config && !rfs_settings_last(&made, "hf_config") && advice->given.n == 0 &&
        rfs_store_there(advice->source.store, config)) {
        advice->failed |= !rfs_path_list_add(&advice->given, strdup(config));
        if (rfs_settings_last(&advice->basis, "src_rules"))
            rfs_advice_pairs(advice, &advice->basis, RFS_PAIRS("hf_config", config));
    }
}

static bool pass_over(void *ctx, const char *name, const struct rfs_type *type, uint64_t offset)
{
    (void)ctx;
    (void)name;
    (void)type;
    (void)offset;
    return true;
}

/* Reads the headers of one whole checkpoint: 0 if info lists it, -ENODATA without tensors. */
static int list_whole(struct rfs_advice *advice, const struct rfs_inspect_kind *kind)
{
    struct rfs_headers headers = {.n = 0};
    struct rfs_inspect_file file;
    struct rfs_error unused = {0};

    if (kind->what == RFS_INSPECT_FILE)
        return rfs_inspect_file(&advice->source, advice->path, kind->row, pass_over, NULL, NULL,
                                &file, &unused);
    int rc = rfs_headers_read(&advice->source, RFS_HEADERS_ALL, NULL, &headers, &unused);
    if (rc == 0 && headers.n > 0)
        rc = headers.ranks[0].empty ? -ENODATA : headers.ranks[0].code;
    rfs_headers_free(&headers);
    return rc;
}

static int describe_chunks(struct rfs_advice *advice, struct rfs_error *err)
{
    struct rfs_inspect_chunks chunks;
    const int rc = rfs_inspect_chunks(&advice->source, &chunks, err);

    free(chunks.files);
    if (rc)
        return rc;
    rfs_advice_find_dict(advice, chunks.inner_dicts);
    rfs_advice_find_dict(advice, chunks.dicts);
    describe(advice,
             rfs_text_printf("a checkpoint of %s, which describes itself: %zu tensor%s",
                             chunks.format, chunks.tensors, chunks.tensors == 1 ? "" : "s"));
    if (chunks.lost)
        rfs_advice_note(
            advice, rfs_text_printf("%s missing, by the numbers in the names of the other files",
                                    chunks.lost));
    return 0;
}

/* Says what an open source of a FORMAT is. 0, or -errno with *err filled. */
static int describe_source(struct rfs_advice *advice, enum rfs_inspect_what what,
                           const char *format, struct rfs_error *err)
{
    if (what == RFS_INSPECT_CHUNKS)
        return describe_chunks(advice, err);
    if (what == RFS_INSPECT_PARTS) {
        describe(advice, rfs_text_printf("a save of hfai in %" PRIu32 " part%s", advice->ranks,
                                         advice->ranks == 1 ? "" : "s"));
    } else if (advice->ranks == 1) {
        const char *file = rfs_path_name(rfs_headers_file(&advice->source));
        const bool adapter = strncmp(file, "adapter_model", strlen("adapter_model")) == 0;
        describe(advice,
                 rfs_text_printf("%s, %s", adapter ? "an adapter of PEFT" : "one whole checkpoint",
                                 strcmp(format, "gguf") == 0 ? "GGUF" : format));
        if (strcmp(format, "pt") == 0)
            rfs_advice_find_dict_inside(advice);
    } else if (rfs_catalog_is_model_parallel(advice->source.catalog)) {
        describe(advice, rfs_text_printf("a model in the files of %" PRIu32
                                         " tensor-parallel ranks, by Meta's names, %s",
                                         advice->ranks, format));
    } else {
        describe(advice,
                 rfs_text_printf("a checkpoint of %" PRIu32 " ranks, %s", advice->ranks, format));
        take_manifest(advice);
        find_strategy(advice);
        find_cuts(advice);
    }
    return 0;
}

/* Suggests for a source whose cuts are known. 0, or -errno with *err filled. */
static int suggest_known(struct rfs_advice *advice, const struct rfs_inspect_kind *kind,
                         const char *format, struct rfs_error *err)
{
    const bool chunks = kind->what == RFS_INSPECT_CHUNKS;
    const bool sharded = !chunks && advice->ranks > 1;
    const struct rfs_path_list *configs = rfs_advice_configs(advice);

    advice->whole = !sharded && !chunks;
    int rc = configs->n > 0 ? rfs_advice_learn_config(advice, configs->data[0], err) : 0;
    find_codes(advice);
    rc = rc ?: rfs_advice_find_rules(advice, err);
    if (rc == 0 && chunks)
        rc = rfs_advice_find_rules_in_names(advice, err);
    if (rc == 0 && !sharded)
        find_wrappers(advice);
    if (rc == 0 && chunks)
        suggest_described(advice);
    else if (rc == 0 && sharded)
        suggest_ranks(advice);
    else if (rc == 0)
        suggest_whole(advice, format);
    const int listed = rc == 0 && advice->whole && advice->list.n <= 1 && advice->why.code
                           ? list_whole(advice, kind)
                           : 0;
    if (listed)
        keep_commands(advice, 0);
    if (listed && listed != -ENODATA) {
        *err = advice->why;
        return err->code;
    }
    note_config(advice, kind->what);
    return rc;
}

/* Suggests for a source of one checkpoint or of ranks, once its files are known. */
static int suggest_source(struct rfs_advice *advice, const struct rfs_inspect_kind *kind,
                          struct rfs_error *err)
{
    struct rfs_headers headers = {.n = 0};
    int rc = rfs_headers_open(&advice->source, advice->path, err)
                 ?: rfs_headers_read(&advice->source, RFS_HEADERS_LISTED, NULL, &headers, err);

    if (rc == 0)
        advice->ranks = headers.end;
    RFS_FREE char *format = rfs_printed_memory(strdup(rc == 0 ? headers.format : ""));
    const char *mode = advice->source.encryption;
    rfs_headers_free(&headers);
    if (rc)
        return rc;
    if (mode) {
        describe(advice, rfs_text_printf("a checkpoint of %" PRIu32 " rank%s, encrypted (%s)",
                                         advice->ranks, advice->ranks == 1 ? "" : "s", mode));
        suggest_key(advice);
        return 0;
    }
    find_links(advice);
    rc = describe_source(advice, kind->what, format, err);
    if (rc)
        return rc;
    if (kind->what == RFS_INSPECT_PARTS) {
        suggest_parts(advice);
        return 0;
    }
    if (kind->what == RFS_INSPECT_CHUNKS || advice->ranks <= 1 ||
        rfs_catalog_is_model_parallel(advice->source.catalog) || has_cuts(advice))
        return suggest_known(advice, kind, format, err);
    note_no_cuts(advice);
    offer_info(advice);
    return 0;
}

/* Suggests for strategies: what they say, and one file of them. 0 or -errno with *err filled. */
static int suggest_strategy(struct rfs_advice *advice, bool folder, struct rfs_error *err)
{
    const struct rfs_settings none = {0};
    struct rfs_inspect_ranks *ranks;
    const int rc = rfs_inspect_ranks_open(advice->source.store, advice->path, NULL, &ranks, err);

    rfs_inspect_ranks_close(ranks);
    describe(advice, strdup(folder ? "a folder of strategies" : "a strategy"));
    if (folder) {
        if (rc == 0)
            rfs_advice_command(advice, "one file of all", "reshard strategy merge NEW.ckpt",
                               advice->path, NULL, &none);
        return rc;
    }
    rfs_advice_command(advice, "how it cuts each parameter", "reshard strategy show", advice->path,
                       NULL, &none);
    rfs_advice_command(advice, "a copy to read and edit", "reshard strategy convert", advice->path,
                       "NEW.json", &none);
    return rc;
}

/* Returns the folder above a path if that is WHAT, malloc'ed, or else NULL. */
static char *above_of(struct rfs_store *store, const char *path, enum rfs_inspect_what what)
{
    char *above = rfs_printed_memory(rfs_near_above(path));

    if (rfs_inspect_is(store, above, what))
        return above;
    free(above);
    return NULL;
}

/*
 * Suggests the whole tree if PATH is the folder of a rank in it, or a file in such a folder.
 * Returns whether it is.
 */
static bool suggest_tree(struct rfs_advice *advice, const char *path)
{
    RFS_FREE char *tree = above_of(advice->source.store, path, RFS_INSPECT_TREE);

    if (!tree)
        return false;
    describe(advice, strdup("one rank of a tree"));
    suggest_path(advice, "all ranks", tree);
    offer_info(advice);
    return true;
}

/* Suggests the checkpoint that describes itself if PATH is a file of it. Returns whether it is. */
static bool suggest_whole_of(struct rfs_advice *advice)
{
    RFS_FREE char *whole = above_of(advice->source.store, advice->path, RFS_INSPECT_CHUNKS);
    struct stat st;

    if (!whole || rfs_store_stat(advice->source.store, advice->path, &st) != 0 ||
        !S_ISREG(st.st_mode))
        return false;
    describe(advice, strdup("a file of a checkpoint that describes itself"));
    suggest_path(advice, "the checkpoint", whole);
    return true;
}

/* Returns whether a path has the name of one of the ranks that were found. */
static bool is_of_ranked(const struct rfs_scan_ranked *ranked, const char *path)
{
    const char *place = strstr(ranked->pattern, "%d");
    const size_t before = (size_t)(place - ranked->pattern);
    const char *name = rfs_path_name(path);
    const size_t digits =
        strncmp(name, ranked->pattern, before) == 0 ? strspn(name + before, "0123456789") : 0;

    return digits > 0 && strcmp(name + before + digits, place + strlen("%d")) == 0;
}

/*
 * Suggests what the folder above PATH has if that is the folder, or with FILES the file, of a rank
 * there, by another name than rank_N. Returns whether it is.
 */
static bool suggest_ranked(struct rfs_advice *advice, const char *path, bool files)
{
    RFS_CLEANUP(rfs_scan_ranked_free) struct rfs_scan_ranked ranked = {.n = 0};
    RFS_FREE char *above = rfs_printed_memory(rfs_near_above(path));

    rfs_inspect_ranked(advice->source.store, above, &ranked);
    if (ranked.n == 0 || ranked.doubtful || ranked.files != files || !is_of_ranked(&ranked, path))
        return false;
    describe(advice, rfs_text_printf("one of %zu %s, by its name", ranked.n,
                                     ranked.parts   ? "parts of a checkpoint"
                                     : ranked.files ? "files of ranks"
                                                    : "folders of ranks"));
    suggest_path(advice, ranked.parts ? "all parts" : "all ranks", above);
    offer_info(advice);
    return true;
}

/* Suggests for files of ranks that lie side by side: only a map says which rank has which. */
static void suggest_map(struct rfs_advice *advice, const struct rfs_scan_ranked *ranked)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};

    describe(advice, rfs_text_printf("files of %zu ranks side by side, by their names: %s",
                                     ranked->n, ranked->pattern));
    advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0;
    rfs_advice_pairs(advice, &options, RFS_PAIRS("files", "MAP"));
    rfs_advice_command(advice, "all of them as one checkpoint", "reshard suggest", advice->path,
                       NULL, &options);
    rfs_advice_command(advice, "what is in the first one", "reshard info", ranked->first, NULL,
                       &advice->basis);
}

static int suggest_for(struct rfs_advice *advice, const struct rfs_inspect_kind *kind,
                       struct rfs_error *err)
{
    switch (kind->what) {
    case RFS_INSPECT_STRATEGY:
    case RFS_INSPECT_STRATEGIES:
        return suggest_strategy(advice, kind->what == RFS_INSPECT_STRATEGIES, err);
    case RFS_INSPECT_ENCRYPTED:
        describe(advice, strdup("an encrypted checkpoint"));
        suggest_key(advice);
        return 0;
    case RFS_INSPECT_GROUP:
        describe(advice, strdup("group info: ranks with equal checkpoints"));
        offer_info(advice);
        return 0;
    case RFS_INSPECT_RULES:
        describe(advice, strdup("a file of rules"));
        offer_info(advice);
        return 0;
    case RFS_INSPECT_CONFIG:
        describe(advice, strdup("the config of a model"));
        suggest_above(advice, "the model");
        return 0;
    case RFS_INSPECT_WEIGHT_MAP:
        describe(advice, strdup("the list of the files of a checkpoint"));
        suggest_above(advice, "the checkpoint");
        return 0;
    case RFS_INSPECT_MANIFEST: {
        RFS_FREE char *above = rfs_printed_memory(rfs_near_above(advice->path));
        describe(advice, strdup("the manifest of an export"));
        rfs_advice_command(advice, "whether the files are as they were written",
                           "reshard export --verify", above, NULL, &advice->request->options);
        suggest_above(advice, "the files");
        return 0;
    }
    case RFS_INSPECT_RANK:
        return suggest_tree(advice, advice->path) || suggest_ranked(advice, advice->path, false)
                   ? 0
                   : suggest_source(advice, kind, err);
    case RFS_INSPECT_FILE: {
        RFS_FREE char *rank = above_of(advice->source.store, advice->path, RFS_INSPECT_RANK);
        const bool in_rank =
            rank && (suggest_tree(advice, rank) || suggest_ranked(advice, rank, false));
        return in_rank || suggest_ranked(advice, advice->path, true)
                   ? 0
                   : suggest_source(advice, kind, err);
    }
    case RFS_INSPECT_TREE:
    case RFS_INSPECT_PARTS:
    case RFS_INSPECT_CHUNKS:
        break;
    }
    return suggest_source(advice, kind, err);
}

/* Returns the config that is only for rules that are still to be found; NULL: none is given. */
static const char *config_for_rules(const struct rfs_settings *options)
{
    static const char *const users[] = {"convert", "src_rules", "dequantize"};
    const struct rfs_setting *config = rfs_settings_last(options, "hf_config");

    for (size_t i = 0; i < sizeof users / sizeof *users; i++)
        if (rfs_settings_last(options, users[i]))
            return NULL;
    return config ? config->value : NULL;
}

/* Divides the user's options into the basis and the config that rules are tried with. */
static int take_options(struct rfs_advice *advice, struct rfs_error *err)
{
    const struct rfs_settings *options = &advice->request->options;
    const char *config = config_for_rules(options);
    bool good = !config || rfs_path_list_add(&advice->given, strdup(config));

    for (size_t i = 0; i < options->list.n && good; i++) {
        const struct rfs_setting *setting = &options->list.data[i];
        good = (config && strcmp(setting->name, "hf_config") == 0) ||
               rfs_settings_add(&advice->basis, setting->name, setting->value, NULL) == 0;
    }
    return good ? 0 : rfs_fail_memory(err);
}

/* Looks at the path by itself. 0, or -errno with *err filled. */
static int look(struct rfs_advice *advice, struct rfs_error *err)
{
    struct rfs_inspect_kind kind = {0};
    int rc = rfs_tool_source_prepare(&advice->basis, advice->path, NULL, NULL, &advice->source,
                                     err)
                 ?: rfs_inspect_detect(advice->source.store, advice->path,
                                       advice->source.encrypted != NULL, &kind, err)
                 ?: rfs_near_find(advice->source.store, advice->path, &advice->near, err);

    if (rc)
        return rc;
    rc = suggest_for(advice, &kind, err);
    if (rc && rc != -ENOMEM && !err->usage && suggest_whole_of(advice)) {
        *err = (struct rfs_error){0};
        rc = 0;
    }
    return rc;
}

/* Offers the saves of a run: all of them, as they come, and one by the step in its name. */
static void offer_run(struct rfs_advice *advice)
{
    char *const newest = advice->path;
    const int64_t number = rfs_inspect_step(newest);
    const struct rfs_error before = advice->why;
    char step[32];

    snprintf(step, sizeof step, "%" PRId64, number);
    advice->path = advice->run;
    keep_commands(advice, RUN_COMMANDS);
    rfs_settings_free(&advice->basis);
    advice->failed |= rfs_settings_add_all(&advice->basis, &advice->request->options) != 0;
    suggest_saves(advice);
    if (number >= 0)
        rfs_advice_offer(advice, (struct rfs_offer){"one save by its step", "reshardfs",
                                                    MOUNT_POINT, .pairs = RFS_PAIRS("step", step)});
    advice->path = newest;
    advice->why = before;
}

static void free_all(struct rfs_advice *advice)
{
    keep_commands(advice, 0);
    rfs_advice_free_notes(advice);
    free(advice->list.data);
    free(advice->notes.data);
    free(advice->about);
    free(advice->to);
    free(advice->path);
    free(advice->run);
    free(advice->misfit);
    free(advice->unread);
    rfs_inspect_model_free(&advice->config);
    rfs_settings_free(&advice->basis);
    rfs_settings_free(&advice->model);
    rfs_settings_free(&advice->rules);
    rfs_near_free(&advice->near);
    rfs_path_list_free(&advice->given);
    rfs_headers_close(&advice->source);
}

/*
 * Looks at another path without a word about it. Says whether something of it can be shown. Puts
 * why not into *why, if that is empty.
 */
static bool is_good(const struct rfs_advice *advice, const char *path, struct rfs_error *why)
{
    struct rfs_advice one = {.request = advice->request, .path = strdup(path)};
    struct rfs_error err = {0};
    const bool good = one.path && (take_options(&one, &err) ?: look(&one, &err)) == 0 &&
                      one.list.n > 0 && !(one.whole && one.list.n == 1 && one.why.code);

    if (!good && !why->code)
        *why = err;

    free_all(&one);
    return good;
}

/* Adds a note that a checkpoint is passed over; one without a reason has no tensors. */
static void leave_out(struct rfs_path_list *left, const char *path, const struct rfs_error *why)
{
    if (why->code && left->n < MOST_LEFT)
        (void)rfs_path_list_add(left, rfs_text_printf("%s is left out: %s", path, why->text));
}

/*
 * Tries the paths, and keeps those that show something. Replaces a folder of files by the file that
 * counts, if one does. *why says why the first of the others shows nothing, and LEFT of each.
 */
static void keep_good(struct rfs_advice *advice, struct rfs_path_list *paths,
                      struct rfs_path_list *left, struct rfs_error *why)
{
    const size_t n = paths->n;

    paths->n = 0;
    for (size_t i = 0; i < n; i++) {
        char *path = paths->data[i];
        RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list files = {0};
        struct rfs_error own = {0};
        bool good = is_good(advice, path, &own);
        if (!good)
            rfs_inspect_likely(advice->source.store, path, &files);
        if (files.n == 1) {
            free(path);
            path = files.data[--files.n];
        }
        good = good || files.n > 1 || is_good(advice, path, &own);
        if (good) {
            paths->data[paths->n++] = path;
            continue;
        }
        if (own.code != -ENOENT) /* no files of tensors */
            leave_out(left, path, &own);
        *why = why->code ? *why : own;
        free(path);
    }
}

/* Forgets what was learned of the source, to look at it or at another one anew. */
static void forget(struct rfs_advice *advice)
{
    keep_commands(advice, 0);
    rfs_advice_free_notes(advice);
    rfs_headers_close(&advice->source);
    advice->source = (struct rfs_headers_source){0};
    rfs_near_free(&advice->near);
    advice->why = (struct rfs_error){0};
}

/*
 * Looks at ranks that have other names than rank_N, or at parts, by the option that says so.
 * Returns 1, 0 if there are none, or -errno with *err filled.
 */
static int look_at_ranks(struct rfs_advice *advice, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_scan_ranked_free) struct rfs_scan_ranked ranked = {.n = 0};
    const struct rfs_settings *given = &advice->basis;

    if (!rfs_settings_last(given, "rank_dir") && !rfs_settings_last(given, "files") &&
        !rfs_settings_last(given, "file") && !rfs_settings_last(given, "segmented"))
        rfs_inspect_ranked(advice->source.store, advice->path, &ranked);
    if (ranked.n == 0 || ranked.doubtful)
        return 0;
    forget(advice);
    if (ranked.files && !ranked.parts) {
        suggest_map(advice, &ranked);
        return 1;
    }
    advice->failed |=
        (ranked.parts ? rfs_settings_add(&advice->basis, "segmented", NULL, NULL)
                      : rfs_settings_add(&advice->basis, "rank_dir", ranked.pattern, NULL)) != 0;
    return look(advice, err) ?: 1;
}

/* Notes that what was found may be of the ranks of one save. */
static void note_doubt(struct rfs_advice *advice)
{
    RFS_CLEANUP(rfs_scan_ranked_free) struct rfs_scan_ranked ranked = {.n = 0};

    rfs_inspect_ranked(advice->source.store, advice->path, &ranked);
    if (ranked.doubtful)
        rfs_advice_note(advice,
                        rfs_text_printf("nothing says whether the numbers of %s are of "
                                        "saves or of the ranks of one; for ranks: -o %s%s",
                                        ranked.pattern, ranked.files ? "files=MAP" : "rank_dir=",
                                        ranked.files ? "" : ranked.pattern));
}

/* Leaves out what follows a save by the number in its name and is none: a save that broke off. */
static void look_at_later(const struct rfs_advice *advice, const struct rfs_path_list *saves,
                          struct rfs_path_list *left)
{
    for (size_t i = 0; i < saves->n; i++) {
        RFS_FREE char *later = rfs_inspect_later(advice->source.store, saves->data[i]);
        struct rfs_error why = {0};
        if (later && !is_good(advice, later, &why))
            leave_out(left, later, &why);
    }
}

static void note_left(struct rfs_advice *advice, const struct rfs_path_list *left)
{
    for (size_t i = 0; i < left->n; i++)
        rfs_advice_note(advice, strdup(left->data[i]));
}

/*
 * Looks at the checkpoints below a folder that is none: at the newest itself, if they are saves of
 * one run, else names them. Returns 1, 0 if there is none, or -errno with *err filled.
 */
static int look_below(struct rfs_advice *advice, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list found = {0};
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list left = {0};

    rfs_inspect_below(advice->source.store, advice->path, &found);
    if (found.n == 0)
        rfs_inspect_likely(advice->source.store, advice->path, &found);
    struct rfs_error why = {0};
    look_at_later(advice, &found, &left);
    keep_good(advice, &found, &left, &why);
    keep_commands(advice, 0);
    rfs_advice_free_notes(advice);
    if (found.n == 0 && why.code) {
        *err = why;
        return why.code;
    }
    if (found.n != 1) {
        for (size_t i = 0; i < found.n && i < MOST_BELOW; i++)
            suggest_path(advice, "a checkpoint in it", found.data[i]);
        describe(advice, strdup("a folder with checkpoints in it"));
        note_doubt(advice);
        note_left(advice, &left);
        return found.n > 0;
    }
    if (advice->run)
        free(advice->path);
    else
        advice->run = advice->path;
    advice->path = found.data[0];
    found.n = 0;
    forget(advice);
    *err = (struct rfs_error){0};
    const int rc = look(advice, err);
    note_left(advice, &left);
    if (rc == 0)
        offer_run(advice);
    return rc ? rc : 1;
}

static int find_all(struct rfs_advice *advice, struct rfs_error *err)
{
    int rc = take_options(advice, err) ?: look(advice, err);

    /* A folder that is no checkpoint may have some in it. */
    if (rc && rc != -ENOMEM && !err->usage) {
        struct rfs_error below = *err;
        const int found = look_at_ranks(advice, &below) ?: look_below(advice, &below);
        if (found != 0) {
            *err = found < 0 ? below : (struct rfs_error){0};
            rc = found < 0 ? found : 0;
        }
    }
    return rc == 0 && advice->failed ? rfs_fail_memory(err) : rc;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* Says what stands for what, as far as it is in a command. */
static void print_places(const struct rfs_advice *advice)
{
    const char *before = "# fill in ";

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        bool any = false;
        for (size_t j = 0; j < advice->list.n; j++)
            any = any || strstr(advice->list.data[j].command, places[i].in_command);
        if (any)
            printf("%s%s", before, places[i].meaning);
        before = any ? "; " : before;
    }
    fputs(*before == ';' ? "\n" : "", stdout);
}

static void print_text(const struct rfs_advice *advice)
{
    fputs("# ", stdout);
    rfs_text_put(stdout, advice->run ? advice->run : advice->path);
    if (advice->run) {
        fputs(": the newest checkpoint in it is ", stdout);
        rfs_text_put(stdout, advice->path);
    }
    printf(": %s\n", advice->about);
    print_places(advice);
    for (size_t i = 0; i < advice->notes.n; i++) {
        fputs("# note: ", stdout);
        rfs_text_put(stdout, advice->notes.data[i]);
        putchar('\n');
    }
    for (size_t i = 0; i < advice->list.n; i++)
        printf("# %s\n%s\n", advice->list.data[i].why, advice->list.data[i].command);
}

static void print_json(const struct rfs_advice *advice)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "path", advice->run ? advice->run : advice->path);
    if (advice->run)
        rfs_json_put_text(&json, "newest", advice->path);
    rfs_json_put_text(&json, "about", advice->about);
    rfs_json_array(&json, "notes", RFS_JSON_TIGHT);
    for (size_t i = 0; i < advice->notes.n; i++)
        rfs_json_put_text(&json, NULL, advice->notes.data[i]);
    rfs_json_end(&json);
    rfs_json_array(&json, "commands", RFS_JSON_ROWS);
    for (size_t i = 0; i < advice->list.n; i++) {
        rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(&json, "why", advice->list.data[i].why);
        rfs_json_put_text(&json, "command", advice->list.data[i].command);
        rfs_json_end(&json);
    }
    rfs_json_finish(&json);
}

/* Notes the files beside the source's that are not read. */
static void note_aside(struct rfs_advice *advice)
{
    const struct rfs_aside *aside = NULL;
    struct rfs_error unused = {0};

    if (!advice->source.catalog)
        return;
    (void)rfs_headers_aside(&advice->source, &aside, &unused);
    if (aside->files.n > 0)
        rfs_advice_note(advice, rfs_printed_memory(rfs_aside_text(aside)));
}

static int run(void *given, struct rfs_error *err)
{
    const struct rfs_advice_request *request = given;
    struct rfs_advice advice = {.request = request};

    if (!request->path || !*request->path)
        return rfs_fail_usage(err, "reshard suggest SRC", "suggest takes one path");
    if (rfs_settings_last(&request->options, "key_env") ||
        rfs_settings_last(&request->options, "key_fd"))
        return rfs_fail_usage(err, "key_file=FILE",
                              "suggest opens SRC several times, and this key can be read once");
    advice.path = rfs_store_without_slash(request->path);
    int rc = advice.path ? find_all(&advice, err) : rfs_fail_memory(err);
    /* If no view of it can be shown, the reason is what its user needs. */
    if (rc == 0 && advice.list.n <= 1 && advice.why.code && advice.notes.n == 0)
        rfs_advice_note(&advice, strdup(advice.why.text));
    if (rc == 0)
        note_aside(&advice);
    if (rc == 0 && request->json)
        print_json(&advice);
    else if (rc == 0)
        print_text(&advice);
    free_all(&advice);
    return rc;
}

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("SRC", struct rfs_advice_request, path, "one SRC"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct rfs_advice_request, options,
                 "the strategy of SRC"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct rfs_advice_request, options,
                 "any option of the view; the commands get it, too"),
    RFS_ARG_FLAG("json", struct rfs_advice_request, json, "for scripts"),
    {0},
};

const struct rfs_command rfs_command_suggest = {
    .name = "suggest",
    .usage = "reshard suggest SRC [-s FILE] [-o OPTION,…] [--json]\n",
    .summary = "says what a path is, and prints commands for it",
    .arguments = arguments,
    .request_bytes = sizeof(struct rfs_advice_request),
    .run = run,
};
