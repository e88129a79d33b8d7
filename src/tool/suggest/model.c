/* SPDX-License-Identifier: Apache-2.0 */
/* The model in a source: its dict in that of a trainer, its config, and the rules that fit it. */
#include "base/cleanup.h"
#include "base/store.h"
#include "tool/suggest/internal.h"

enum { CONFIG_BYTES = 1 << 20 /* of one that is compared with another */ };

/* ---- the dict -------------------------------------------------------------------------------- */

/* Trainers' words for the dict of the model. */
static const char *const model_words[] = {"model", "state_dict", "state.model", "model_state_dict",
                                          "module"};

/* Takes a dict as that of the model, unless another one is or it has no weights. */
static void try_dict(struct rfs_advice *advice, const char *entry)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    const struct rfs_error before = advice->why;

    if (rfs_settings_last(&advice->basis, "entry") || advice->model.list.n > 0)
        return;
    advice->failed |= rfs_settings_add_all(&options, &advice->basis) != 0;
    rfs_advice_pairs(advice, &options, RFS_PAIRS("view", "huggingface", "entry", entry));
    if (!advice->failed && rfs_advice_shows(advice, &options, NULL))
        rfs_advice_pairs(advice, &advice->model, RFS_PAIRS("entry", entry));
    advice->why = before; /* it was a guess */
}

void rfs_advice_find_dict(struct rfs_advice *advice, const struct rfs_path_list *dicts)
{
    for (size_t i = 0; i < sizeof model_words / sizeof *model_words; i++)
        for (size_t k = 0; k < dicts->n; k++) {
            const char *dot = strrchr(dicts->data[k], '.');
            if (strcmp(dot ? dot + 1 : dicts->data[k], model_words[i]) == 0)
                try_dict(advice, dicts->data[k]);
        }
}

void rfs_advice_find_dict_inside(struct rfs_advice *advice)
{
    for (size_t i = 0; i < sizeof model_words / sizeof *model_words; i++)
        if (rfs_headers_begin(&advice->source, model_words[i]) == 0)
            try_dict(advice, model_words[i]);
}

/* ---- conversion rules ------------------------------------------------------------------------ */

/* The search for shipped rules that fit. */
struct matching {
    struct rfs_advice *advice;
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
static int rules_options(const struct rfs_advice *advice, const char *rules, const char *config,
                         struct rfs_settings *out)
{
    return rfs_settings_add_all(out, &advice->basis)
               ?: rfs_settings_add_all(out, &advice->model)
               ?: rfs_settings_add(out, "convert", rules, NULL)
               ?: config ? rfs_settings_add(out, "hf_config", config, NULL) : 0;
}

static int try_rules(void *ctx, const struct rfs_inspect_shipped *shipped, struct rfs_error *err)
{
    const struct matching *matching = ctx;
    struct rfs_advice *advice = matching->advice;
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
    struct rfs_error why = {0};
    const char *config = rfs_settings_last(&advice->basis, "hf_config") ? NULL : matching->config;
    const char *const *pairs =
        RFS_PAIRS("convert", shipped->name, config ? "hf_config" : NULL, config);

    if (has_word(shipped->models, shipped->name) != matching->named ||
        (advice->config.type && !has_word(shipped->models, advice->config.type)))
        return 0;
    if (rules_options(advice, shipped->name, config, &options))
        return rfs_fail_memory(err);
    const int rc = rfs_advice_open_rules(advice, &options, advice->to ? NULL : &advice->to, &why);
    if (rc == -ENOMEM)
        return rfs_fail_memory(err);
    if (rc) {
        if (!advice->misfit && matching->named)
            advice->misfit =
                rfs_text_printf("convert=%s does not fit: %s", shipped->name, why.text);
        return 0;
    }
    if (advice->rules.list.n > 0)
        rfs_advice_note(advice, rfs_text_printf("the rules %s fit as well: convert=%s",
                                                shipped->name, shipped->name));
    else
        rfs_advice_pairs(advice, &advice->rules, pairs);
    return 0;
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

const struct rfs_path_list *rfs_advice_configs(const struct rfs_advice *advice)
{
    static const struct rfs_path_list none = {.n = 0};
    const enum rfs_near_place place = advice->near.place;

    if (advice->given.n > 0)
        return &advice->given;
    /* A neighbour of one whole model is another model. */
    if (place == RFS_NEAR_NOWHERE || (place == RFS_NEAR_BESIDE && advice->whole))
        return &none;
    return &advice->near.places[place];
}

/* Returns whether a view finds the config by itself. */
static bool is_own(const struct rfs_advice *advice)
{
    return advice->given.n == 0 && advice->near.place == RFS_NEAR_OWN && advice->near.folder;
}

/*
 * Returns whether the rules that were found fit by the config I alone. If they fit by another, too,
 * which says something else, nothing tells whose model it is: they are forgotten.
 */
static bool is_the_only(struct rfs_advice *advice, const struct rfs_path_list *configs, size_t i)
{
    const struct rfs_setting *rules = rfs_settings_last(&advice->rules, "convert");

    for (size_t k = i + 1; k < configs->n; k++) {
        RFS_CLEANUP(rfs_settings_free) struct rfs_settings options = {0};
        struct rfs_error unused;
        if (is_same_text(advice->source.store, configs->data[i], configs->data[k]))
            continue;
        advice->failed |= rules_options(advice, rules->value, configs->data[k], &options) != 0;
        if (advice->failed || rfs_advice_open_rules(advice, &options, NULL, &unused))
            continue;
        rfs_advice_free_notes(advice);
        rfs_advice_note(advice,
                        rfs_text_printf("rules fit it by %s and by %s, which differ: give that "
                                        "of its model with -o hf_config=FILE",
                                        configs->data[i], configs->data[k]));
        free(advice->to);
        advice->to = NULL;
        rfs_settings_free(&advice->rules);
        return false;
    }
    return true;
}

int rfs_advice_learn_config(struct rfs_advice *advice, const char *path, struct rfs_error *err)
{
    struct rfs_error why = {0};

    rfs_inspect_model_free(&advice->config);
    const int rc = rfs_inspect_model(advice->source.store, path, &advice->config, &why);
    if (rc && !advice->unread)
        advice->unread = strdup(why.text);
    return rc == -ENOMEM || (rc && !advice->unread) ? rfs_fail_memory(err) : 0;
}

/* Tries all rules with a config, or that of the source. */
static int try_all(struct rfs_advice *advice, const char *config, struct rfs_error *err)
{
    struct matching matching = {advice, config, true};
    const int rc = rfs_inspect_shipped(try_rules, &matching, err);

    matching.named = false;
    return rc ? rc : rfs_inspect_shipped(try_rules, &matching, err);
}

int rfs_advice_find_rules(struct rfs_advice *advice, struct rfs_error *err)
{
    const struct rfs_path_list *configs = rfs_advice_configs(advice);
    int rc = 0;

    if (rfs_settings_last(&advice->basis, "convert"))
        return 0;
    if (configs->n == 0 && rfs_headers_have_model(&advice->source))
        return try_all(advice, NULL, err);
    for (size_t i = 0; rc == 0 && !advice->to && i < configs->n; i++) {
        rc = rfs_advice_learn_config(advice, configs->data[i], err)
                 ?: try_all(advice, is_own(advice) ? NULL : configs->data[i], err);
        if (rc == 0 && advice->to && !is_the_only(advice, configs, i))
            return 0;
    }
    if (rc == 0 && advice->to && advice->given.n == 0 && advice->near.place == RFS_NEAR_BESIDE)
        rfs_advice_note(advice,
                        rfs_text_printf("by %s, which lies near: no file says that it is of this "
                                        "model",
                                        rfs_settings_last(&advice->rules, "hf_config")->value));
    return rc;
}

int rfs_advice_find_rules_in_names(struct rfs_advice *advice, struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof model_words / sizeof *model_words; i++) {
        if (advice->to || advice->model.list.n > 0)
            return 0;
        try_dict(advice, model_words[i]);
        rc = advice->model.list.n > 0 ? rfs_advice_find_rules(advice, err) : 0;
        if (!advice->to)
            rfs_settings_free(&advice->model);
    }
    return rc;
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

void rfs_advice_note_misfit(struct rfs_advice *advice)
{
    RFS_FREE char *models = NULL;
    struct rfs_error unused;

    if (advice->misfit) {
        rfs_advice_note(advice, RFS_STEAL(advice->misfit));
        return;
    }
    if (rfs_inspect_shipped(add_models, &models, &unused)) {
        advice->failed = true;
        return;
    }
    if (has_word(models, advice->config.type))
        rfs_advice_note(advice,
                        rfs_text_printf("no rules for %s fit its tensors; reshard convert check "
                                        "says why",
                                        advice->config.type));
    else
        rfs_advice_note(advice,
                        rfs_text_printf("no rules of convert= are for %s; there are some for: "
                                        "%s; try: rules of your own, convert=FILE, or a view "
                                        "without convert=",
                                        advice->config.type, models));
}
