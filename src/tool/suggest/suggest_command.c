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
#include "tool/suggest/near.h"

enum {
    MOST_COMMANDS = 4,
    RUN_COMMANDS = 2,       /* of the newest save in a run, beside those of the run */
    MOST_PLANNED = 64,      /* files of a view */
    MOST_BELOW = 8,         /* folders that are suggested instead */
    CONFIG_BYTES = 1 << 20, /* of one that is compared with another */
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
};

struct request {
    const char *path;
    struct rfs_settings options; /* options of the view */
    bool json;
};

struct wanted {
    char *why, *command; /* owned */
};

struct suggest {
    const struct request *request;
    char *path; /* without slashes at its end; owned */
    char *run;  /* the folder that PATH is the newest save in; owned; NULL: PATH is the user's */
    struct rfs_near near;
    struct rfs_path_list
        given; /* the config that the user gives for rules, in place of those near */
    struct rfs_inspect_model config; /* what the nearest config says */
    char *misfit;                    /* why rules for its model do not fit; owned; or NULL */
    struct rfs_headers_source source;
    char *about;               /* owned */
    struct rfs_settings basis; /* the user's options, and the strategy of the source */
    struct rfs_settings model; /* entry= of the model in a trainer's dict, dequantize */
    struct rfs_settings rules; /* the options of conversion rules, or none */
    char *to;                  /* the side that they make; owned */
    uint32_t ranks;
    bool whole; /* the source is one whole checkpoint, as programs publish it */
    RFS_VEC(struct wanted) list;
    RFS_VEC(char *) notes; /* owned texts */
    struct rfs_error why;  /* the first failure of an attempt */
    bool failed;           /* out of memory */
};

/* ---- words for a shell ----------------------------------------------------------------------- */

/* Returns whether TEXT means itself in a shell. */
static bool is_plain(const char *text)
{
    return *text && text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789_@%+=:,./-")] == '\0';
}

static bool is_shown(const char *text)
{
    for (size_t n; *text; text += n)
        if ((n = rfs_text_shown_length(text)) == 0)
            return false;
    return true;
}

/* Writes a word so that a shell has it again, and that no terminal obeys it. */
static void put_word(FILE *out, const char *text)
{
    if (is_plain(text)) {
        fputs(text, out);
    } else if (is_shown(text)) {
        fputc('\'', out);
        for (; *text; text++)
            fputs(*text == '\'' ? "'\\''" : (const char[]){*text, '\0'}, out);
        fputc('\'', out);
    } else { /* as bash, zsh and others have it */
        fputs("$'", out);
        for (const unsigned char *at = (const unsigned char *)text; *at; at++)
            if (*at < 0x20 || *at > 0x7e || *at == '\'' || *at == '\\')
                fprintf(out, "\\%03o", *at);
            else
                fputc(*at, out);
        fputc('\'', out);
    }
}

/* Writes a path, which no program takes for an option. */
static void put_path(FILE *out, const char *path)
{
    RFS_FREE char *safe = *path == '-' ? rfs_printed_memory(rfs_text_printf("./%s", path)) : NULL;

    put_word(out, safe ? safe : path);
}

/* Writes -s, -d and -o. */
static void put_options(FILE *out, const struct rfs_settings *settings)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings rest = {0};
    bool good = true;

    for (size_t i = 0; i < settings->list.n; i++) {
        const struct rfs_setting *setting = &settings->list.data[i];
        const bool source = strcmp(setting->name, "src_strategy") == 0;
        if (source || strcmp(setting->name, "dst_strategy") == 0) {
            fputs(source ? " -s " : " -d ", out);
            put_path(out, setting->value);
        } else {
            good = good && rfs_settings_add(&rest, setting->name, setting->value, NULL) == 0;
        }
    }
    RFS_FREE char *text = rfs_printed_memory(good ? rfs_settings_text(&rest) : NULL);
    if (*text) {
        fputs(" -o ", out);
        put_word(out, text);
    }
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void free_notes(struct suggest *suggest)
{
    while (suggest->notes.n > 0)
        free(suggest->notes.data[--suggest->notes.n]);
}

static void free_wanted(struct wanted *wanted)
{
    free(wanted->why);
    free(wanted->command);
}

static void add_note(struct suggest *suggest, char *text)
{
    suggest->failed |= !text || !RFS_PUSH(&suggest->notes, text);
}

/* Adds "PROGRAM SRC PLACE OPTIONS"; PLACE may be NULL. */
static void add_command(struct suggest *suggest, const char *why, const char *program,
                        const char *path, const char *place, const struct rfs_settings *options)
{
    struct rfs_printed text;
    FILE *out = rfs_printed_begin(&text);

    fprintf(out, "%s ", program);
    put_path(out, path);
    if (place)
        fprintf(out, " %s", place);
    put_options(out, options);
    const struct wanted wanted = {rfs_printed_memory(strdup(why)), rfs_printed_end(&text)};
    suggest->failed |= !RFS_PUSH(&suggest->list, wanted);
}

/* ---- attempts -------------------------------------------------------------------------------- */

static void ignore(void *ctx, enum reshard_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

/* Plans the files in a folder of a view, and counts its entries. 0 or -errno with *err filled. */
static int plan_folder(reshard_view *view, uint64_t folder, unsigned *planned, unsigned *entries,
                       struct rfs_error *err)
{
    reshard_dirent entry = {.struct_size = sizeof entry};
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && *planned < MOST_PLANNED; at++) {
        reshard_stat st = {.struct_size = sizeof st};
        reshard_error failure = {.struct_size = sizeof failure};
        unsigned unused = 0;
        if (reshard_list(view, folder, at, &entry) != 1)
            break;
        ++*entries;
        if (entry.is_dir) {
            rc = plan_folder(view, entry.id, planned, &unused, err);
            continue;
        }
        ++*planned;
        rc = reshard_getattr(view, entry.id, &st, &failure);
        if (rc)
            *err = (struct rfs_error){.code = rc};
        if (rc)
            memcpy(err->text, failure.message, sizeof err->text);
    }
    return rc;
}

RFS_CLEANUP_OF(close_view, reshard_view *, reshard_close)

static const struct rfs_view_how quiet = {.log = ignore};
static const struct rfs_view_how wary = {.log = ignore, .wary = true};

/* Compares the ranks of a view: sizes that are kept need no plan. 0 or -errno with *err filled. */
static int compare_ranks(reshard_view *view, struct rfs_error *err)
{
    reshard_error failure = {.struct_size = sizeof failure};
    const int rc = reshard_check_strategies(view, &failure);

    if (rc) {
        *err = (struct rfs_error){.code = rc};
        memcpy(err->text, failure.message, sizeof err->text);
    }
    return rc;
}

/*
 * Opens a view by OPTIONS and plans its files, counting ENTRIES of its root. 0, or with *err
 * filled.
 */
static int try_view(struct suggest *suggest, const struct rfs_settings *options,
                    const struct rfs_view_how *how, unsigned *entries, struct rfs_error *err)
{
    RFS_CLEANUP(close_view) reshard_view *view = NULL;
    unsigned planned = 0;
    const int rc = rfs_tool_open(suggest->path, options, how, &view, err)
                       ?: compare_ranks(view, err)
                       ?: plan_folder(view, RESHARD_ROOT, &planned, entries, err);

    suggest->failed |= rc == -ENOMEM;
    return rc;
}

/*
 * Returns whether a view by OPTIONS can show its files; ENTRIES may be NULL, else those of its
 * root.
 */
static bool can_show(struct suggest *suggest, const struct rfs_settings *options, unsigned *entries)
{
    struct rfs_error err = {0};
    unsigned unused = 0;
    const int rc = try_view(suggest, options, &quiet, entries ? entries : &unused, &err);

    if (rc && suggest->why.code == 0)
        suggest->why = err;
    return rc == 0;
}

/* Adds names and values, to a NULL. */
static void add_pairs(struct suggest *suggest, struct rfs_settings *to, const char *const *pairs)
{
    for (; pairs && *pairs; pairs += 2)
        suggest->failed |= rfs_settings_add(to, pairs[0], pairs[1], NULL) != 0;
}

/* A command that may be wanted. */
struct offer {
    const char *why, *program, *place;
    bool converts;            /* through the rules that were found */
    const char *const *pairs; /* options: names and values, to a NULL; NULL: none */
    bool of_model;            /* with the options of the model; what converts has them, too */
};
#define PAIRS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* Adds the command of an offer, unless there are enough, if it works. Returns whether it does. */
static bool offer(struct suggest *suggest, struct offer offer)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};

    if (suggest->list.n >= MOST_COMMANDS)
        return false;
    suggest->failed |= rfs_settings_add_all(&options, &suggest->basis) != 0;
    if (offer.of_model || offer.converts)
        suggest->failed |= rfs_settings_add_all(&options, &suggest->model) != 0;
    if (offer.converts)
        suggest->failed |= rfs_settings_add_all(&options, &suggest->rules) != 0;
    add_pairs(suggest, &options, offer.pairs);
    if (suggest->failed || !can_show(suggest, &options, NULL))
        return false;
    add_command(suggest, offer.why, offer.program, suggest->path, offer.place, &options);
    return true;
}

static void offer_info(struct suggest *suggest)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    const struct rfs_setting *entry = rfs_settings_last(&suggest->model, "entry");

    if (suggest->list.n >= MOST_COMMANDS)
        return;
    suggest->failed |= rfs_settings_add_all(&options, &suggest->basis) != 0;
    /* info lists all dicts of a file. */
    if (entry && suggest->whole && suggest->near.folder)
        add_pairs(suggest, &options, PAIRS("entry", entry->value));
    add_command(suggest, "what is in it", "reshard info", suggest->path, NULL, &options);
}

/* ---- strategies ------------------------------------------------------------------------------ */

/*
 * Finds the strategy of a source of several ranks: one by whose cuts its ranks can be planned. One
 * that some ranks contradict is taken if there is no other.
 */
static void find_strategy(struct suggest *suggest)
{
    const char *found = NULL;
    const char *doubtful = NULL;
    struct rfs_error doubt = {0};

    if (rfs_settings_last(&suggest->basis, "src_strategy") ||
        rfs_settings_last(&suggest->basis, "src_rules"))
        return;
    /* Names that say which side they are of come first. */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < suggest->near.strategies.n; i++) {
            const char *path = suggest->near.strategies.data[i];
            RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
            if ((strstr(rfs_path_name(path), "src") == NULL) == (pass == 0))
                continue;
            suggest->failed |= rfs_settings_add_all(&options, &suggest->basis) != 0;
            add_pairs(suggest, &options, PAIRS("src_strategy", path));
            struct rfs_error err = {0};
            unsigned unused = 0;
            if (suggest->failed || !can_show(suggest, &options, NULL))
                continue;
            if (try_view(suggest, &options, &wary, &unused, &err) != 0) {
                doubt = doubtful ? doubt : err;
                doubtful = doubtful ? doubtful : path;
                continue;
            }
            if (found)
                add_note(suggest, rfs_text_printf("%s fits as well", path));
            found = found ? found : path;
        }
    if (!found && doubtful)
        add_note(suggest, strdup(doubt.text));
    found = found ? found : doubtful;
    if (found)
        add_pairs(suggest, &suggest->basis, PAIRS("src_strategy", found));
}

/* Offers a mount by another strategy that lies near. */
static bool offer_strategies(struct suggest *suggest)
{
    const struct rfs_setting *source = rfs_settings_last(&suggest->basis, "src_strategy");

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < suggest->near.strategies.n; i++) {
            const char *path = suggest->near.strategies.data[i];
            if ((source && strcmp(source->value, path) == 0) ||
                (strstr(rfs_path_name(path), "dst") == NULL) == (pass == 0))
                continue;
            if (offer(suggest,
                      (struct offer){"as the ranks of the other strategy load it", "reshardfs",
                                     MOUNT_POINT, .pairs = PAIRS("dst_strategy", path)}))
                return true;
        }
    return false;
}

/* ---- the model in a trainer's dict ----------------------------------------------------------- */

/* Trainers' words for the dict of the model. */
static const char *const model_words[] = {"model", "state_dict", "state.model", "model_state_dict",
                                          "module"};

/* Takes a dict as that of the model, unless another one is or it has no weights. */
static void try_dict(struct suggest *suggest, const char *entry)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    const struct rfs_error before = suggest->why;

    if (rfs_settings_last(&suggest->basis, "entry") || suggest->model.list.n > 0)
        return;
    suggest->failed |= rfs_settings_add_all(&options, &suggest->basis) != 0;
    add_pairs(suggest, &options, PAIRS("view", "huggingface", "entry", entry));
    if (!suggest->failed && can_show(suggest, &options, NULL))
        add_pairs(suggest, &suggest->model, PAIRS("entry", entry));
    suggest->why = before; /* it was a guess */
}

/* Finds the dict of the model among DICTS, as trainers call it. */
static void find_model(struct suggest *suggest, const struct rfs_path_list *dicts)
{
    for (size_t i = 0; i < sizeof model_words / sizeof *model_words; i++)
        for (size_t k = 0; k < dicts->n; k++) {
            const char *dot = strrchr(dicts->data[k], '.');
            if (strcmp(dot ? dot + 1 : dicts->data[k], model_words[i]) == 0)
                try_dict(suggest, dicts->data[k]);
        }
}

/* ---- conversion rules ------------------------------------------------------------------------ */

/* The search for shipped rules that fit. */
struct matching {
    struct suggest *suggest;
    const char *config; /* NULL: that of the source */
    bool named;         /* only rules that are named after a model */
};

/* Returns whether WORD is among words with blanks between. */
static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);

    for (; words; words = strchr(words, ' '), words = words ? words + 1 : NULL)
        if (strncmp(words, word, n) == 0 && (words[n] == ' ' || words[n] == '\0'))
            return true;
    return false;
}

/* Collects the options of an attempt at rules. 0 or -ENOMEM. */
static int rules_options(const struct suggest *suggest, const char *rules, const char *config,
                         struct rfs_settings *out)
{
    return rfs_settings_add_all(out, &suggest->basis)
               ?: rfs_settings_add_all(out, &suggest->model)
               ?: rfs_settings_add(out, "convert", rules, NULL)
               ?: config ? rfs_settings_add(out, "hf_config", config, NULL) : 0;
}

/* Opens a view through rules, and gives their result. 0 or -errno with *err filled. */
static int open_rules(const struct suggest *suggest, const struct rfs_settings *options,
                      struct rfs_inspect_rules *result, struct rfs_error *err)
{
    RFS_CLEANUP(close_view) reshard_view *view = NULL;

    return rfs_tool_open(suggest->path, options, &quiet, &view, err)
               ?: rfs_inspect_rules(view, result, err);
}

static int try_rules(void *ctx, const struct rfs_inspect_shipped *shipped, struct rfs_error *err)
{
    const struct matching *matching = ctx;
    struct suggest *suggest = matching->suggest;
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    struct rfs_error why = {0};
    struct rfs_inspect_rules result;
    const char *config = rfs_settings_last(&suggest->basis, "hf_config") ? NULL : matching->config;
    const char *const *pairs = PAIRS("convert", shipped->name, config ? "hf_config" : NULL, config);

    if (has_word(shipped->models, shipped->name) != matching->named ||
        (suggest->config.type && !has_word(shipped->models, suggest->config.type)))
        return 0;
    if (rules_options(suggest, shipped->name, config, &options))
        return rfs_fail_memory(err);
    if (open_rules(suggest, &options, &result, &why)) {
        if (!suggest->misfit && matching->named)
            suggest->misfit =
                rfs_text_printf("convert=%s does not fit: %s", shipped->name, why.text);
        return 0;
    }
    if (suggest->to) {
        add_note(suggest, rfs_text_printf("the rules %s fit as well: convert=%s", shipped->name,
                                          shipped->name));
        return 0;
    }
    suggest->to = strdup(result.to);
    add_pairs(suggest, &suggest->rules, pairs);
    return suggest->to ? 0 : rfs_fail_memory(err);
}

/* Returns whether two small files have one text. */
static bool is_same_text(struct rfs_store *store, const char *a, const char *b)
{
    RFS_FREE char *x = NULL;
    RFS_FREE char *y = NULL;
    struct rfs_error unused;
    size_t n;
    size_t m;

    return rfs_store_read_whole(store, a, CONFIG_BYTES, &x, &n, &unused) == 0 &&
           rfs_store_read_whole(store, b, CONFIG_BYTES, &y, &m, &unused) == 0 && n == m &&
           memcmp(x, y, n) == 0;
}

/* The configs that count: the user's, or those of the nearest place. */
static const struct rfs_path_list *configs_of(const struct suggest *suggest)
{
    static const struct rfs_path_list none = {.n = 0};
    const enum rfs_near_place place = suggest->near.place;

    if (suggest->given.n > 0)
        return &suggest->given;
    /* A neighbour of one whole model is another model. */
    if (place == RFS_NEAR_NOWHERE || (place == RFS_NEAR_BESIDE && suggest->whole))
        return &none;
    return &suggest->near.places[place];
}

/* Returns whether a view finds the config by itself. */
static bool is_own(const struct suggest *suggest)
{
    return suggest->given.n == 0 && suggest->near.place == RFS_NEAR_OWN && suggest->near.folder;
}

/*
 * Returns whether the rules that were found fit by the config I alone. If they fit by another, too,
 * which says something else, nothing tells whose model it is: they are forgotten.
 */
static bool is_the_only(struct suggest *suggest, const struct rfs_path_list *configs, size_t i)
{
    const struct rfs_setting *rules = rfs_settings_last(&suggest->rules, "convert");

    for (size_t k = i + 1; k < configs->n; k++) {
        RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
        struct rfs_inspect_rules result;
        struct rfs_error unused;
        if (is_same_text(suggest->source.store, configs->data[i], configs->data[k]))
            continue;
        suggest->failed |= rules_options(suggest, rules->value, configs->data[k], &options) != 0;
        if (suggest->failed || open_rules(suggest, &options, &result, &unused))
            continue;
        free_notes(suggest);
        add_note(suggest, rfs_text_printf("rules fit it by %s and by %s, which differ: give that "
                                          "of its model with -o hf_config=FILE",
                                          configs->data[i], configs->data[k]));
        free(suggest->to);
        suggest->to = NULL;
        rfs_settings_free(&suggest->rules);
        suggest->rules = (struct rfs_settings){0};
        return false;
    }
    return true;
}

/* Reads what a config says of its model. One that cannot be read says nothing. 0 or -ENOMEM. */
static int learn_config(struct suggest *suggest, const char *path, struct rfs_error *err)
{
    struct rfs_error unused = {0};

    rfs_inspect_model_free(&suggest->config);
    return rfs_inspect_model(suggest->source.store, path, &suggest->config, &unused) == -ENOMEM
               ? rfs_fail_memory(err)
               : 0;
}

/* Finds rules and a config that fit the tensors of the source. */
static int find_rules(struct suggest *suggest, struct rfs_error *err)
{
    const struct rfs_path_list *configs = configs_of(suggest);
    int rc = 0;

    if (rfs_settings_last(&suggest->basis, "convert"))
        return 0;
    for (size_t i = 0; rc == 0 && !suggest->to && i < configs->n; i++) {
        rc = learn_config(suggest, configs->data[i], err);
        for (int pass = 0; rc == 0 && pass < 2; pass++) {
            struct matching matching = {suggest, is_own(suggest) ? NULL : configs->data[i],
                                        pass == 0};
            rc = rfs_inspect_shipped(try_rules, &matching, err);
        }
        if (rc == 0 && suggest->to && !is_the_only(suggest, configs, i))
            return 0;
    }
    if (rc == 0 && suggest->to && suggest->given.n == 0 && suggest->near.place == RFS_NEAR_BESIDE)
        add_note(suggest, rfs_text_printf("by %s, which lies near: no file says that it is of this "
                                          "model",
                                          rfs_settings_last(&suggest->rules, "hf_config")->value));
    return rc;
}

/*
 * Finds rules that fit names which begin with a trainer's dict, though nothing says that it is one.
 */
static int find_rules_in_names(struct suggest *suggest, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof model_words / sizeof *model_words; i++) {
        if (suggest->to || suggest->model.list.n > 0)
            return 0;
        try_dict(suggest, model_words[i]);
        rc = suggest->model.list.n > 0 ? find_rules(suggest, err) : 0;
        if (!suggest->to) {
            rfs_settings_free(&suggest->model);
            suggest->model = (struct rfs_settings){0};
        }
    }
    return rc;
}

/*
 * Offers an adapter as PEFT loads it. If nothing says its lora_alpha, the user does. Returns
 * whether that works.
 */
static bool offer_peft(struct suggest *suggest, bool converts)
{
    const char *const why = "the adapter that PEFT loads";
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    struct rfs_settings *const with[] = {&suggest->basis, &suggest->model, &suggest->rules};
    const struct rfs_error before = suggest->why;

    if (offer(suggest, (struct offer){why, "reshard export", NEW, .converts = converts,
                                      .pairs = PAIRS("view", "peft")}))
        return true;
    for (size_t i = 0; i < (converts ? 3 : 2); i++)
        suggest->failed |= rfs_settings_add_all(&options, with[i]) != 0;
    add_pairs(suggest, &options, PAIRS("view", "peft", "lora_alpha", "1"));
    if (suggest->failed || suggest->list.n >= MOST_COMMANDS || !can_show(suggest, &options, NULL)) {
        suggest->why = before; /* it may be no adapter */
        return false;
    }
    free(options.list.data[options.list.n - 1].value);
    options.list.data[options.list.n - 1].value = strdup("N");
    suggest->failed |= !options.list.data[options.list.n - 1].value;
    add_command(suggest, why, "reshard export", suggest->path, NEW, &options);
    return true;
}

/* Offers the other form of a model. */
static void offer_converted(struct suggest *suggest)
{
    if (!suggest->to)
        return;
    if (strcmp(suggest->to, "peft") == 0) {
        offer_peft(suggest, true);
    } else if (strcmp(suggest->to, "huggingface") == 0)
        offer(suggest,
              (struct offer){"the model that HuggingFace's programs load", "reshard export", NEW,
                             .converts = true, .pairs = PAIRS("view", "huggingface")});
    else if (!offer(suggest,
                    (struct offer){"the shards of four tensor-parallel ranks", "reshard export",
                                   NEW, .converts = true, .pairs = PAIRS("dst_rules", "tp4")}) &&
             !offer(suggest,
                    (struct offer){"the shards of two tensor-parallel ranks", "reshard export", NEW,
                                   .converts = true, .pairs = PAIRS("dst_rules", "tp2")}))
        offer(suggest, (struct offer){"the tensors by the names of a training, in one file",
                                      "reshard export", NEW, .converts = true,
                                      .pairs = PAIRS("view", "unified")});
}

/* ---- kinds of sources ------------------------------------------------------------------------ */

/* Adds the mount of all saves. */
static void add_follow(struct suggest *suggest)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};

    suggest->failed |= rfs_settings_add_all(&options, &suggest->basis) != 0 ||
                       rfs_settings_add(&options, "follow", NULL, NULL) != 0;
    add_command(suggest, "every save and those that come, each in a folder of its own", "reshardfs",
                suggest->path, MOUNT_POINT, &options);
}

static void suggest_saves(struct suggest *suggest)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    const struct rfs_error why = suggest->why; /* one save is no mistake */
    unsigned saves = 0;

    suggest->failed |= rfs_settings_add_all(&options, &suggest->basis) != 0;
    add_pairs(suggest, &options, PAIRS("step", "all"));
    const bool shows = !suggest->failed && !rfs_settings_last(&suggest->basis, "step") &&
                       suggest->list.n < MOST_COMMANDS && can_show(suggest, &options, &saves);
    suggest->why = why;
    if (shows && saves >= 2)
        add_follow(suggest);
}

/* Offers the weights as HuggingFace's programs keep them, beside the model's config if one fits. */
static void offer_weights(struct suggest *suggest)
{
    const struct rfs_setting *config = rfs_settings_last(&suggest->rules, "hf_config");
    struct offer weights = {rfs_settings_last(&suggest->model, "dequantize")
                                ? "safetensors in bfloat16, as HuggingFace's programs keep them"
                                : "safetensors, as HuggingFace's programs keep them",
                            "reshard export", NEW, .of_model = true};

    weights.pairs = PAIRS("view", "huggingface", "hf_config", config ? config->value : NULL);
    if (config && offer(suggest, weights))
        return;
    weights.pairs = PAIRS("view", "huggingface");
    offer(suggest, weights);
}

static void suggest_whole(struct suggest *suggest, const char *format)
{
    const bool quantized = rfs_settings_last(&suggest->model, "dequantize");

    offer_converted(suggest);
    offer_strategies(suggest);
    suggest_saves(suggest);
    if (strcmp(format, "safetensors") == 0 && !quantized)
        offer(suggest, (struct offer){"a checkpoint that torch.distributed.checkpoint loads",
                                      "reshard export", NEW, .pairs = PAIRS("view", "dcp")});
    else
        offer_weights(suggest);
    offer_info(suggest);
}

static void suggest_ranks(struct suggest *suggest)
{
    offer_strategies(suggest);
    offer_converted(suggest);
    suggest_saves(suggest);
    offer(suggest, (struct offer){"one whole checkpoint, in one file", "reshard export", NEW,
                                  .pairs = NULL});
    offer_info(suggest);
}

static void suggest_described(struct suggest *suggest)
{
    const bool is_training = suggest->to && (strcmp(suggest->to, "huggingface") == 0 ||
                                             strcmp(suggest->to, "peft") == 0);

    if (!is_training && !offer_peft(suggest, false))
        offer_weights(suggest);
    offer_converted(suggest);
    offer_strategies(suggest);
    suggest_saves(suggest);
    offer(suggest, (struct offer){"a file that torch.load reads", "reshardfs", MOUNT_POINT,
                                  .pairs = PAIRS("format", "pt")});
    offer_info(suggest);
}

static void suggest_parts(struct suggest *suggest)
{
    char other[16];

    snprintf(other, sizeof other, "%" PRIu32, suggest->ranks > 1 ? suggest->ranks / 2 : 2);
    offer(suggest, (struct offer){"as another number of parts", "reshardfs", MOUNT_POINT,
                                  .pairs = PAIRS("nshards", other)});
    offer_info(suggest);
}

/* Suggests what to do about a source that can't be read without a key. */
static void suggest_key(struct suggest *suggest)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};

    suggest->failed |= rfs_settings_add_all(&options, &suggest->basis) != 0;
    add_pairs(suggest, &options, PAIRS("key_file", "KEY"));
    add_command(suggest, "the same with the key, in the file KEY", "reshard suggest", suggest->path,
                NULL, &options);
}

/* Suggests other paths: the folder above a file or a rank, or folders below. */
static void suggest_path(struct suggest *suggest, const char *why, const char *path)
{
    add_command(suggest, why, "reshard suggest", path, NULL, &suggest->request->options);
}

static void suggest_above(struct suggest *suggest, const char *why)
{
    RFS_FREE char *above = rfs_printed_memory(rfs_near_above(suggest->path));

    suggest_path(suggest, why, above);
}

/* ---- what it is ------------------------------------------------------------------------------ */

static void describe(struct suggest *suggest, char *about)
{
    free(suggest->about);
    suggest->about = rfs_printed_memory(about);
}

/* Adds the models that rules are for to the list at CTX, each once. */
static int add_models(void *ctx, const struct rfs_inspect_shipped *shipped, struct rfs_error *err)
{
    char **const list = ctx;

    for (const char *at = shipped->models; *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        RFS_FREE char *word = strndup(at, n);
        RFS_FREE char *before = *list;
        if (!word)
            return rfs_fail_memory(err);
        *list = !before                  ? strdup(word)
                : has_word(before, word) ? strdup(before)
                                         : rfs_text_printf("%s %s", before, word);
        if (!*list)
            return rfs_fail_memory(err);
        at += n;
    }
    return 0;
}

/* Notes why no rules fit the model of the config. */
static void note_misfit(struct suggest *suggest)
{
    RFS_FREE char *models = NULL;
    struct rfs_error unused;

    if (suggest->misfit) {
        add_note(suggest, RFS_STEAL(suggest->misfit));
        return;
    }
    if (rfs_inspect_shipped(add_models, &models, &unused)) {
        suggest->failed = true;
        return;
    }
    if (has_word(models, suggest->config.type))
        add_note(suggest, rfs_text_printf("no rules for %s fit its tensors; reshard convert check "
                                          "says why",
                                          suggest->config.type));
    else
        add_note(suggest, rfs_text_printf("no rules of convert= are for %s; there are some for: "
                                          "%s; try: rules of your own, convert=FILE, or a view "
                                          "without convert=",
                                          suggest->config.type, models));
}

/* Notes what finds conversion rules for a source that may be of a training, if none are found. */
static void note_config(struct suggest *suggest, enum rfs_inspect_what what)
{
    if (suggest->to || rfs_settings_last(&suggest->basis, "convert"))
        return;
    if (suggest->config.type && configs_of(suggest)->n == 1)
        note_misfit(suggest);
    else if (suggest->given.n > 0)
        add_note(suggest, rfs_text_printf("no rules of convert= fit it by %s: reshard convert "
                                          "check says why; reshard convert list has the models",
                                          suggest->given.data[0]));
    else if (what == RFS_INSPECT_CHUNKS && suggest->list.n > 1 && configs_of(suggest)->n == 0 &&
             !rfs_settings_last(&suggest->basis, "hf_config"))
        add_note(suggest, strdup("conversion rules are looked for with the model's config.json: "
                                 "give it with -o hf_config=FILE"));
}

/* Lets the commands follow links that lead out of the source, if there are any. */
static void find_links(struct suggest *suggest)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    struct rfs_error why = {0};
    unsigned unused = 0;

    suggest->failed |= rfs_settings_add_all(&options, &suggest->basis) != 0;
    if (suggest->ranks == 1)
        add_pairs(suggest, &options, PAIRS("view", "huggingface"));
    if (!suggest->failed && !rfs_settings_last(&suggest->basis, "follow_links") &&
        try_view(suggest, &options, &quiet, &unused, &why) == -EXDEV)
        suggest->failed |= rfs_settings_add(&suggest->basis, "follow_links", NULL, NULL) != 0;
}

/*
 * Finds out whether the weights are quantized in a way that is read: then views of the model show
 * numbers.
 */
static void find_codes(struct suggest *suggest)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    const struct rfs_error before = suggest->why;

    if (rfs_settings_last(&suggest->basis, "dequantize"))
        return;
    suggest->failed |= rfs_settings_add_all(&options, &suggest->basis) != 0 ||
                       rfs_settings_add_all(&options, &suggest->model) != 0;
    add_pairs(suggest, &options, PAIRS("view", "huggingface"));
    if (suggest->failed || (!suggest->config.quantized && can_show(suggest, &options, NULL)))
        return;
    suggest->why = (struct rfs_error){0};
    suggest->failed |= rfs_settings_add(&options, "dequantize", NULL, NULL) != 0;
    if (can_show(suggest, &options, NULL))
        suggest->failed |= rfs_settings_add(&suggest->model, "dequantize", NULL, NULL) != 0;
    else if (suggest->config.quantized)
        add_note(suggest, strdup(suggest->why.text));
    suggest->why = before;
}

/*
 * Takes from the manifest of an export what reads it again: its cuts are now those of the source.
 * Files that are not there are left out.
 */
static void take_manifest(struct suggest *suggest)
{
    static const struct {
        const char *was, *is;
        bool file;
    } back[] = {{"dst_strategy", "src_strategy", true},
                {"dst_rules", "src_rules", false},
                {"hf_config", "hf_config", true}};
    RFS_FREE char *path = rfs_path_join(suggest->path, RFS_MANIFEST_NAME);
    RFS_CLEANUP(rfs_manifest_free) struct rfs_manifest manifest = {.source = NULL};
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings made = {0};
    struct rfs_error unused;

    if (!path || rfs_settings_last(&suggest->basis, "src_strategy") ||
        rfs_settings_last(&suggest->basis, "src_rules") ||
        !rfs_store_there(suggest->source.store, path) ||
        rfs_manifest_init(&manifest, RFS_MANIFEST_FILES) ||
        rfs_manifest_read(suggest->source.store, path, &manifest, &unused) ||
        rfs_settings_add_text(&made, manifest.options))
        return;
    for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
        const struct rfs_setting *setting = rfs_settings_last(&made, back[i].was);
        if (!setting || !setting->value || rfs_settings_last(&suggest->basis, back[i].is) ||
            (back[i].file && !rfs_store_there(suggest->source.store, setting->value)))
            continue;
        suggest->failed |= rfs_settings_add(&suggest->basis, back[i].is, setting->value, NULL) != 0;
    }
    RFS_FREE char *config = manifest.source ? rfs_path_join(manifest.source, "config.json") : NULL;
    if (config && !rfs_settings_last(&made, "hf_config") && suggest->given.n == 0 &&
        rfs_store_there(suggest->source.store, config)) {
        suggest->failed |= !rfs_path_list_add(&suggest->given, strdup(config));
        if (rfs_settings_last(&suggest->basis, "src_rules"))
            add_pairs(suggest, &suggest->basis, PAIRS("hf_config", config));
    }
}

/* Returns whether a path is that of an adapter, by its name. */
static bool is_adapter(struct rfs_store *store, const char *path)
{
    RFS_FREE char *inside = rfs_path_join(path, "adapter_config.json");

    return strncmp(rfs_path_name(path), "adapter_model", strlen("adapter_model")) == 0 ||
           (inside && rfs_store_there(store, inside));
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
static int list_whole(struct suggest *suggest, const struct rfs_inspect_kind *kind)
{
    struct rfs_headers headers = {.n = 0};
    struct rfs_inspect_file file;
    struct rfs_error unused = {0};

    if (kind->what == RFS_INSPECT_FILE)
        return rfs_inspect_file(&suggest->source, suggest->path, kind->row, pass_over, NULL, NULL,
                                &file, &unused);
    int rc = rfs_headers_read(&suggest->source, RFS_HEADERS_ALL, NULL, &headers, &unused);
    if (rc == 0 && headers.n > 0)
        rc = headers.ranks[0].empty ? -ENODATA : headers.ranks[0].code;
    rfs_headers_free(&headers);
    return rc;
}

/* Suggests for a source of one checkpoint or of ranks, once its files are known. */
static int suggest_source(struct suggest *suggest, const struct rfs_inspect_kind *kind,
                          struct rfs_error *err)
{
    const enum rfs_inspect_what what = kind->what;
    struct rfs_headers headers = {.n = 0};
    int rc = rfs_headers_open(&suggest->source, suggest->path, err)
                 ?: rfs_headers_read(&suggest->source, RFS_HEADERS_LISTED, NULL, &headers, err);

    if (rc == 0)
        suggest->ranks = headers.end;
    RFS_FREE char *format = rfs_printed_memory(strdup(rc == 0 ? headers.format : ""));
    const char *mode = suggest->source.encryption;
    rfs_headers_free(&headers);
    if (rc)
        return rc;
    if (mode) {
        describe(suggest, rfs_text_printf("a checkpoint of %" PRIu32 " rank%s, encrypted (%s)",
                                          suggest->ranks, suggest->ranks == 1 ? "" : "s", mode));
        suggest_key(suggest);
        return 0;
    }
    find_links(suggest);
    if (what == RFS_INSPECT_CHUNKS) {
        struct rfs_inspect_chunks chunks;
        rc = rfs_inspect_chunks(&suggest->source, &chunks, err);
        free(chunks.files);
        if (rc)
            return rc;
        find_model(suggest, chunks.inner_dicts);
        find_model(suggest, chunks.dicts);
        describe(suggest,
                 rfs_text_printf("a checkpoint of %s, which describes itself: %zu tensor%s",
                                 chunks.format, chunks.tensors, chunks.tensors == 1 ? "" : "s"));
        if (chunks.lost)
            add_note(suggest,
                     rfs_text_printf("%s missing, by the numbers in the names of the other files",
                                     chunks.lost));
    } else if (what == RFS_INSPECT_PARTS) {
        describe(suggest, rfs_text_printf("a save of hfai in %" PRIu32 " part%s", suggest->ranks,
                                          suggest->ranks == 1 ? "" : "s"));
    } else if (suggest->ranks == 1) {
        describe(suggest, rfs_text_printf("%s, %s",
                                          suggest->near.places[RFS_NEAR_BASE].n > 0 ||
                                                  is_adapter(suggest->source.store, suggest->path)
                                              ? "an adapter of PEFT"
                                              : "one whole checkpoint",
                                          strcmp(format, "gguf") == 0 ? "GGUF" : format));
        for (size_t i = 0; i < sizeof model_words / sizeof *model_words; i++)
            if (strcmp(format, "pt") == 0 && !rfs_headers_begin(&suggest->source, model_words[i]))
                try_dict(suggest, model_words[i]);
    } else {
        describe(suggest,
                 rfs_text_printf("a checkpoint of %" PRIu32 " ranks, %s", suggest->ranks, format));
        take_manifest(suggest);
        find_strategy(suggest);
    }
    const bool sharded = what != RFS_INSPECT_CHUNKS && suggest->ranks > 1;
    const bool cuts = !sharded || rfs_settings_last(&suggest->basis, "src_strategy") ||
                      rfs_settings_last(&suggest->basis, "src_rules");
    if (what == RFS_INSPECT_PARTS) {
        suggest_parts(suggest);
        return 0;
    }
    if (!cuts) {
        add_note(suggest, suggest->why.code
                              ? rfs_text_printf("no strategy near it fits: %s", suggest->why.text)
                              : strdup("no strategy is near it; the training wrote one "
                                       "(strategy_ckpt_config, save_file): give it with -s, or "
                                       "its cuts with -o src_rules=, see RULES in reshardfs(1)"));
        offer_info(suggest);
        return 0;
    }
    suggest->whole = !sharded && what != RFS_INSPECT_CHUNKS;
    const struct rfs_path_list *configs = configs_of(suggest);
    rc = configs->n > 0 ? learn_config(suggest, configs->data[0], err) : 0;
    find_codes(suggest);
    rc = rc ?: find_rules(suggest, err);
    if (rc == 0 && what == RFS_INSPECT_CHUNKS)
        rc = find_rules_in_names(suggest, err);
    if (rc == 0 && what == RFS_INSPECT_CHUNKS)
        suggest_described(suggest);
    else if (rc == 0 && sharded)
        suggest_ranks(suggest);
    else if (rc == 0)
        suggest_whole(suggest, format);
    const int listed = rc == 0 && suggest->whole && suggest->list.n <= 1 && suggest->why.code
                           ? list_whole(suggest, kind)
                           : 0;
    while (listed && suggest->list.n > 0)
        free_wanted(&suggest->list.data[--suggest->list.n]);
    if (listed && listed != -ENODATA) {
        *err = suggest->why;
        return err->code;
    }
    note_config(suggest, what);
    return rc;
}

/* Suggests for strategies: what they say, and one file of them. 0 or -errno with *err filled. */
static int suggest_strategy(struct suggest *suggest, bool folder, struct rfs_error *err)
{
    const struct rfs_settings none = {0};
    struct rfs_inspect_ranks *ranks;
    const int rc = rfs_inspect_ranks_open(suggest->source.store, suggest->path, NULL, &ranks, err);

    rfs_inspect_ranks_close(ranks);
    describe(suggest, strdup(folder ? "a folder of strategies" : "a strategy"));
    if (folder) {
        if (rc == 0)
            add_command(suggest, "one file of all", "reshard strategy merge NEW.ckpt",
                        suggest->path, NULL, &none);
        return rc;
    }
    add_command(suggest, "how it cuts each parameter", "reshard strategy show", suggest->path, NULL,
                &none);
    add_command(suggest, "a copy to read and edit", "reshard strategy convert", suggest->path,
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
static bool suggest_tree(struct suggest *suggest, const char *path)
{
    RFS_FREE char *tree = above_of(suggest->source.store, path, RFS_INSPECT_TREE);

    if (!tree)
        return false;
    describe(suggest, strdup("one rank of a tree"));
    suggest_path(suggest, "all ranks", tree);
    offer_info(suggest);
    return true;
}

/* Suggests the checkpoint that describes itself if PATH is a file of it. Returns whether it is. */
static bool suggest_whole_of(struct suggest *suggest)
{
    RFS_FREE char *whole = above_of(suggest->source.store, suggest->path, RFS_INSPECT_CHUNKS);
    struct stat st;

    if (!whole || rfs_store_stat(suggest->source.store, suggest->path, &st) != 0 ||
        !S_ISREG(st.st_mode))
        return false;
    describe(suggest, strdup("a file of a checkpoint that describes itself"));
    suggest_path(suggest, "the checkpoint", whole);
    return true;
}

static int suggest_for(struct suggest *suggest, const struct rfs_inspect_kind *kind,
                       struct rfs_error *err)
{
    switch (kind->what) {
    case RFS_INSPECT_STRATEGY:
    case RFS_INSPECT_STRATEGIES:
        return suggest_strategy(suggest, kind->what == RFS_INSPECT_STRATEGIES, err);
    case RFS_INSPECT_ENCRYPTED:
        describe(suggest, strdup("an encrypted checkpoint"));
        suggest_key(suggest);
        return 0;
    case RFS_INSPECT_GROUP:
        describe(suggest, strdup("group info: ranks with equal checkpoints"));
        offer_info(suggest);
        return 0;
    case RFS_INSPECT_RULES:
        describe(suggest, strdup("a file of rules"));
        offer_info(suggest);
        return 0;
    case RFS_INSPECT_CONFIG:
        describe(suggest, strdup("the config of a model"));
        suggest_above(suggest, "the model");
        return 0;
    case RFS_INSPECT_WEIGHT_MAP:
        describe(suggest, strdup("the list of the files of a checkpoint"));
        suggest_above(suggest, "the checkpoint");
        return 0;
    case RFS_INSPECT_MANIFEST: {
        RFS_FREE char *above = rfs_printed_memory(rfs_near_above(suggest->path));
        describe(suggest, strdup("the manifest of an export"));
        add_command(suggest, "whether the files are as they were written",
                    "reshard export --verify", above, NULL, &suggest->request->options);
        suggest_above(suggest, "the files");
        return 0;
    }
    case RFS_INSPECT_RANK:
        return suggest_tree(suggest, suggest->path) ? 0 : suggest_source(suggest, kind, err);
    case RFS_INSPECT_FILE: {
        RFS_FREE char *rank = above_of(suggest->source.store, suggest->path, RFS_INSPECT_RANK);
        return rank && suggest_tree(suggest, rank) ? 0 : suggest_source(suggest, kind, err);
    }
    case RFS_INSPECT_TREE:
    case RFS_INSPECT_PARTS:
    case RFS_INSPECT_CHUNKS:
        break;
    }
    return suggest_source(suggest, kind, err);
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
static int take_options(struct suggest *suggest, struct rfs_error *err)
{
    const struct rfs_settings *options = &suggest->request->options;
    const char *config = config_for_rules(options);
    bool good = !config || rfs_path_list_add(&suggest->given, strdup(config));

    for (size_t i = 0; i < options->list.n && good; i++) {
        const struct rfs_setting *setting = &options->list.data[i];
        good = (config && strcmp(setting->name, "hf_config") == 0) ||
               rfs_settings_add(&suggest->basis, setting->name, setting->value, NULL) == 0;
    }
    return good ? 0 : rfs_fail_memory(err);
}

/* Looks at the path by itself. 0, or -errno with *err filled. */
static int look(struct suggest *suggest, struct rfs_error *err)
{
    struct rfs_inspect_kind kind = {0};
    int rc = rfs_tool_source_prepare(&suggest->basis, suggest->path, NULL, NULL, &suggest->source,
                                     err)
                 ?: rfs_inspect_detect(suggest->source.store, suggest->path,
                                       suggest->source.encrypted != NULL, &kind, err)
                 ?: rfs_near_find(suggest->source.store, suggest->path, &suggest->near, err);

    if (rc)
        return rc;
    rc = suggest_for(suggest, &kind, err);
    if (rc && rc != -ENOMEM && !err->usage && suggest_whole_of(suggest)) {
        *err = (struct rfs_error){0};
        rc = 0;
    }
    return rc;
}

/* Offers the saves of a run: all of them, as they come, and one by the step in its name. */
static void offer_run(struct suggest *suggest)
{
    char *const newest = suggest->path;
    const char *step = newest + strlen(newest);
    const struct rfs_error before = suggest->why;

    while (step > newest && step[-1] >= '0' && step[-1] <= '9')
        step--;
    suggest->path = suggest->run;
    while (suggest->list.n > RUN_COMMANDS)
        free_wanted(&suggest->list.data[--suggest->list.n]);
    rfs_settings_free(&suggest->basis);
    suggest->basis = (struct rfs_settings){0};
    suggest->failed |= rfs_settings_add_all(&suggest->basis, &suggest->request->options) != 0;
    suggest_saves(suggest);
    offer(suggest, (struct offer){"one save by its step", "reshardfs", MOUNT_POINT,
                                  .pairs = PAIRS("step", step)});
    suggest->path = newest;
    suggest->why = before;
}

static void free_all(struct suggest *suggest)
{
    for (size_t i = 0; i < suggest->list.n; i++)
        free_wanted(&suggest->list.data[i]);
    free_notes(suggest);
    free(suggest->list.data);
    free(suggest->notes.data);
    free(suggest->about);
    free(suggest->to);
    free(suggest->path);
    free(suggest->run);
    free(suggest->misfit);
    rfs_inspect_model_free(&suggest->config);
    rfs_settings_free(&suggest->basis);
    rfs_settings_free(&suggest->model);
    rfs_settings_free(&suggest->rules);
    rfs_near_free(&suggest->near);
    rfs_path_list_free(&suggest->given);
    rfs_headers_close(&suggest->source);
}

/* Looks at another path without a word about it. Says whether something of it can be shown. */
static bool is_good(const struct suggest *suggest, const char *path)
{
    struct suggest one = {.request = suggest->request, .path = strdup(path)};
    struct rfs_error unused = {0};
    const bool good = one.path && (take_options(&one, &unused) ?: look(&one, &unused)) == 0 &&
                      one.list.n > 0 && !(one.whole && one.list.n == 1 && one.why.code);

    free_all(&one);
    return good;
}

/*
 * Keeps the paths of which something can be shown: advice is tried. A folder of files is replaced
 * by the file that counts.
 */
static void keep_good(struct suggest *suggest, struct rfs_path_list *paths)
{
    const size_t n = paths->n;

    paths->n = 0;
    for (size_t i = 0; i < n; i++) {
        char *path = paths->data[i];
        bool good = is_good(suggest, path);
        char *file = good ? NULL : rfs_inspect_newest(suggest->source.store, path);
        if (file) {
            free(path);
            path = file;
            good = is_good(suggest, path);
        }
        if (good)
            paths->data[paths->n++] = path;
        else
            free(path);
    }
}

/*
 * Looks at the checkpoints below a folder that is none: at the newest itself, if they are saves of
 * one run, else names them. Returns 1, 0 if there is none, or -errno with *err filled.
 */
static int look_below(struct suggest *suggest, struct rfs_error *err)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list found = {0};

    rfs_inspect_below(suggest->source.store, suggest->path, &found);
    char *file = found.n == 0 ? rfs_inspect_newest(suggest->source.store, suggest->path) : NULL;
    if (file && !rfs_path_list_add(&found, file))
        return rfs_fail_memory(err);
    keep_good(suggest, &found);
    while (suggest->list.n > 0)
        free_wanted(&suggest->list.data[--suggest->list.n]);
    free_notes(suggest);
    if (found.n != 1) {
        for (size_t i = 0; i < found.n && i < MOST_BELOW; i++)
            suggest_path(suggest, "a checkpoint in it", found.data[i]);
        describe(suggest, strdup("a folder with checkpoints in it"));
        return found.n > 0;
    }
    if (suggest->run)
        free(suggest->path);
    else
        suggest->run = suggest->path;
    suggest->path = found.data[0];
    found.n = 0;
    rfs_headers_close(&suggest->source);
    suggest->source = (struct rfs_headers_source){0};
    rfs_near_free(&suggest->near);
    suggest->why = *err = (struct rfs_error){0};
    const int rc = look(suggest, err);
    if (rc == 0)
        offer_run(suggest);
    return rc ? rc : 1;
}

static int find_all(struct suggest *suggest, struct rfs_error *err)
{
    int rc = take_options(suggest, err) ?: look(suggest, err);

    /* A folder that is no checkpoint may have some in it. */
    if (rc && rc != -ENOMEM && !err->usage) {
        struct rfs_error below = *err;
        const int found = look_below(suggest, &below);
        if (found != 0) {
            *err = found < 0 ? below : (struct rfs_error){0};
            rc = found < 0 ? found : 0;
        }
    }
    return rc == 0 && suggest->failed ? rfs_fail_memory(err) : rc;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* Says what stands for what, as far as it is in a command. */
static void print_places(const struct suggest *suggest)
{
    const char *before = "# fill in ";

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        bool any = false;
        for (size_t j = 0; j < suggest->list.n; j++)
            any = any || strstr(suggest->list.data[j].command, places[i].in_command);
        if (any)
            printf("%s%s", before, places[i].meaning);
        before = any ? "; " : before;
    }
    fputs(*before == ';' ? "\n" : "", stdout);
}

static void print_text(const struct suggest *suggest)
{
    fputs("# ", stdout);
    rfs_text_put(stdout, suggest->run ? suggest->run : suggest->path);
    if (suggest->run) {
        fputs(": the newest checkpoint in it is ", stdout);
        rfs_text_put(stdout, suggest->path);
    }
    printf(": %s\n", suggest->about);
    print_places(suggest);
    for (size_t i = 0; i < suggest->notes.n; i++) {
        fputs("# note: ", stdout);
        rfs_text_put(stdout, suggest->notes.data[i]);
        putchar('\n');
    }
    for (size_t i = 0; i < suggest->list.n; i++)
        printf("# %s\n%s\n", suggest->list.data[i].why, suggest->list.data[i].command);
}

static void print_json(const struct suggest *suggest)
{
    struct rfs_json_write json = {.file = stdout};

    rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
    rfs_json_put_text(&json, "path", suggest->run ? suggest->run : suggest->path);
    if (suggest->run)
        rfs_json_put_text(&json, "newest", suggest->path);
    rfs_json_put_text(&json, "about", suggest->about);
    rfs_json_array(&json, "notes", RFS_JSON_TIGHT);
    for (size_t i = 0; i < suggest->notes.n; i++)
        rfs_json_put_text(&json, NULL, suggest->notes.data[i]);
    rfs_json_end(&json);
    rfs_json_array(&json, "commands", RFS_JSON_ROWS);
    for (size_t i = 0; i < suggest->list.n; i++) {
        rfs_json_object(&json, NULL, RFS_JSON_TIGHT);
        rfs_json_put_text(&json, "why", suggest->list.data[i].why);
        rfs_json_put_text(&json, "command", suggest->list.data[i].command);
        rfs_json_end(&json);
    }
    rfs_json_finish(&json);
}

static int run(void *given, struct rfs_error *err)
{
    const struct request *request = given;
    struct suggest suggest = {.request = request};

    if (!request->path || !*request->path)
        return rfs_fail_usage(err, "reshard suggest SRC", "suggest takes one path");
    if (rfs_settings_last(&request->options, "key_env") ||
        rfs_settings_last(&request->options, "key_fd"))
        return rfs_fail_usage(err, "key_file=FILE",
                              "suggest opens SRC several times, and this key can be read once");
    suggest.path = rfs_store_without_slash(request->path);
    int rc = suggest.path ? find_all(&suggest, err) : rfs_fail_memory(err);
    /* If no view of it can be shown, the reason is what its user needs. */
    if (rc == 0 && suggest.list.n <= 1 && suggest.why.code && suggest.notes.n == 0)
        add_note(&suggest, strdup(suggest.why.text));
    if (rc == 0 && request->json)
        print_json(&suggest);
    else if (rc == 0)
        print_text(&suggest);
    free_all(&suggest);
    return rc;
}

static const struct rfs_argument arguments[] = {
    RFS_ARG_OPERAND("SRC", struct request, path, "one SRC"),
    RFS_ARG_VIEW('s', "FILE", "src_strategy", struct request, options, "the strategy of SRC"),
    RFS_ARG_VIEW('o', "OPTION,…", NULL, struct request, options,
                 "any option of the view; the commands get it, too"),
    RFS_ARG_FLAG("json", struct request, json, "for scripts"),
    {0},
};

const struct rfs_command rfs_command_suggest = {
    .name = "suggest",
    .usage = "reshard suggest SRC [-s FILE] [-o OPTION,…] [--json]\n",
    .summary = "says what a path is, and prints commands for it",
    .arguments = arguments,
    .request_bytes = sizeof(struct request),
    .run = run,
};
