/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/mount_options.h"

#include "base/cleanup.h"
#include "base/json_read.h"
#include "base/json_tree.h"
#include "base/path.h"
#include "base/store.h"
#include "base/suggest.h"
#include "base/text.h"

#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <sys/auxv.h>
#include <unistd.h>

/* ---- the environment ------------------------------------------------------------------------- */

static int add_variable(struct rfs_settings *settings, const char *variable)
{
    const char *equals = strchr(variable, '=');
    const size_t length = equals ? (size_t)(equals - variable) : strlen(variable);
    RFS_FREE char *origin = strndup(variable, length);
    RFS_FREE char *name = origin ? strdup(origin + strlen(RFS_OPTIONS_VARIABLE)) : NULL;

    if (!origin || !name)
        return -ENOMEM;
    for (char *c = name; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    return rfs_settings_add(settings, name, equals ? equals + 1 : "", origin);
}

int rfs_mount_options_add_environment(struct rfs_settings *settings, char *const *environment)
{
    int rc = 0;

    if (getauxval(AT_SECURE)) /* like secure_getenv: the caller may have fewer rights */
        return 0;
    for (; rc == 0 && *environment; environment++)
        if (strncmp(*environment, RFS_OPTIONS_VARIABLE, strlen(RFS_OPTIONS_VARIABLE)) == 0)
            rc = add_variable(settings, *environment);
    return rc;
}

/* ---- a file of lines ------------------------------------------------------------------------- */

/* Returns a text without the blanks around it, which is changed. */
static char *trimmed(char *text)
{
    static const char blanks[] = " \t\r";

    text += strspn(text, blanks);
    for (size_t n = strlen(text); n > 0 && strchr(blanks, text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

static char *unquoted(char *value)
{
    const size_t n = strlen(value);

    if (n < 2 || value[0] != '"' || value[n - 1] != '"')
        return value;
    value[n - 1] = '\0';
    return value + 1;
}

static int add_line(struct rfs_settings *settings, const char *path, unsigned number, char *line,
                    struct rfs_error *err)
{
    char *name = trimmed(line);
    char *value = strchr(name, '=');

    if (*name == '\0' || *name == '#' || *name == ';' || strcmp(name, "[reshardfs]") == 0)
        return 0;
    if (*name == '[')
        return rfs_fail_usage(err, "[reshardfs], or no section at all",
                              "%s: line %u: there is no section %s", path, number, name);
    RFS_FREE char *origin = rfs_text_printf("%s: line %u", path, number);
    if (!origin)
        return -ENOMEM;
    if (value) {
        *value++ = '\0';
        value = unquoted(trimmed(value));
        name = trimmed(name);
    }
    return rfs_settings_add(settings, name, value, origin);
}

static int add_lines(struct rfs_settings *settings, const char *path, char *text,
                     struct rfs_error *err)
{
    unsigned number = 0;
    int rc = 0;

    for (char *next; rc == 0 && text; text = next) {
        next = strchr(text, '\n');
        if (next)
            *next++ = '\0';
        rc = add_line(settings, path, ++number, text, err);
    }
    return rc;
}

/* ---- a file of JSON -------------------------------------------------------------------------- */

/* Writes the value of a member as text. False: no option has such a value. */
static bool put_value(FILE *out, const cJSON *value)
{
    const cJSON *part;
    const char *between = "";
    int64_t number;

    if (cJSON_IsString(value))
        fputs(value->valuestring, out);
    else if (cJSON_IsBool(value))
        fputs(cJSON_IsTrue(value) ? "yes" : "no", out);
    else if (rfs_json_tree_integer(value, &number) && number >= 0)
        fprintf(out, "%" PRId64, number);
    else if (!cJSON_IsArray(value))
        return false;
    cJSON_ArrayForEach(part, value) /* texts, with ':' between */
    {
        if (!cJSON_IsString(part))
            return false;
        fprintf(out, "%s%s", between, part->valuestring);
        between = ":";
    }
    return true;
}

static int add_member(struct rfs_settings *settings, const char *path, const cJSON *member,
                      struct rfs_error *err)
{
    RFS_FREE char *value = NULL;
    size_t size;
    FILE *out = open_memstream(&value, &size);

    if (!out)
        return -ENOMEM;
    const bool good = put_value(out, member);
    const bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad || !value)
        return -ENOMEM;
    return good
               ? rfs_settings_add(settings, member->string, value, path)
               : rfs_fail_usage(err,
                                "a text, a whole number up to 2^53, true, false or a list of texts",
                                "%s: '%s' has a value that no option takes", path, member->string);
}

static int add_object(struct rfs_settings *settings, const char *path, const char *text, size_t n,
                      struct rfs_error *err)
{
    RFS_CLEANUP(rfs_json_read_free) struct rfs_json_read json = rfs_json_read_begin(text, n);
    cJSON *tree;
    const cJSON *member;

    if (!rfs_json_read_skip(&json) || !rfs_json_read_end(&json))
        return rfs_fail_usage(err, "{\"cache\": \"2G\"}, or lines such as cache = 2G",
                              "%s: offset %zu: not JSON", path, json.at);
    int rc = rfs_json_tree_parse_valid(text, n, RFS_MOUNT_OPTIONS_TREE_BYTES, &tree);
    if (rc == -EFBIG)
        return rfs_fail(err, rc, RFS_IN(path), NULL, "reading it takes more than %zu MiB of memory",
                        RFS_MOUNT_OPTIONS_TREE_BYTES >> 20);
    cJSON_ArrayForEach(member, tree)
    {
        rc = rc ? rc : add_member(settings, path, member, err);
    }
    cJSON_Delete(tree);
    return rc;
}

int rfs_mount_options_add_file(struct rfs_settings *settings, const char *path,
                               struct rfs_error *err)
{
    RFS_FREE char *text = NULL;
    size_t n;
    int rc = rfs_store_read_whole(NULL, path, RFS_MOUNT_OPTIONS_FILE_BYTES, &text, &n, err);

    if (rc)
        return rc;
    if (memchr(text, '\0', n))
        return rfs_fail_usage(err, "config=FILE with a file of options", "%s: holds a NUL byte",
                              path);
    rc = text[strspn(text, " \t\r\n")] == '{' ? add_object(settings, path, text, n, err)
                                              : add_lines(settings, path, text, err);
    return rc == -ENOMEM ? rfs_fail_memory(err) : rc;
}

/* ---- taking options -------------------------------------------------------------------------- */

/*
 * Puts the current folder's path before a path, unless that is absolute. NULL when out of memory.
 * The caller frees.
 */
static char *from_here(const char *path)
{
    const bool stays = path[0] == '/' || rfs_store_is_url(path) || rfs_store_is_foreign(path);
    RFS_FREE char *cwd = stays ? NULL : getcwd(NULL, 0);

    if (!cwd)
        return strdup(path);
    return rfs_text_printf("%s/%s", cwd, path);
}

/*
 * Resolves a path. If that fails, gives the path after the current folder's, so that opening it
 * gives the error. NULL when out of memory. The caller frees.
 */
static char *absolute_path(const char *path)
{
    char *out = rfs_store_is_url(path) ? strdup(path) : realpath(path, NULL);

    return out || errno == ENOMEM ? out : from_here(path);
}

/* Makes each of several paths absolute. Empty ones stay, for the view to refuse. 0 or -ENOMEM. */
static int join_absolute(const char *value, char **out)
{
    RFS_CLEANUP(rfs_path_list_free) struct rfs_path_list paths = {0};
    int rc = rfs_path_list_split(value, &paths);

    for (size_t i = 0; rc == 0 && i < paths.n; i++) {
        RFS_FREE char *before = RFS_STEAL(*out);
        RFS_FREE char *absolute = *paths.data[i] ? absolute_path(paths.data[i]) : strdup("");
        if (absolute)
            *out = rfs_text_printf("%s%s%s", before ? before : "", before ? ":" : "", absolute);
        rc = *out ? 0 : -ENOMEM;
    }
    return rc;
}

/* Returns whether rules are those of a file; words of ready cuts are none, whatever is there. */
static bool is_file_of_rules(const struct rfs_option *option, const char *value)
{
    const bool shipped = strcmp(option->name, "convert") == 0 && !strchr(value, '/') &&
                         !rfs_text_ends(value, ".rules");

    return option->kind == RFS_OPTION_RULES && !shipped && !rfs_settings_is_cuts(value) &&
           access(value, F_OK) == 0;
}

/* Appends an option of the view's, with its paths made absolute. */
static int add_to_view(struct rfs_settings *view, const struct rfs_option *option,
                       const char *value)
{
    RFS_FREE char *path = NULL;
    int rc = 0;

    if (option->kind == RFS_OPTION_PATHS)
        rc = join_absolute(value, &path);
    else if (rfs_option_is_path(option, value) || is_file_of_rules(option, value))
        rc = (path = absolute_path(value)) ? 0 : -ENOMEM;
    else if (option->kind == RFS_OPTION_FOLDER && strcmp(value, "no") != 0)
        rc = (path = from_here(value)) ? 0 : -ENOMEM;
    return rc ? rc : rfs_settings_add(view, option->name, path ? path : value, NULL);
}

/* Returns whether mount(8) keeps an option for itself and its helpers, valued or not. */
static bool is_for_others(const char *name)
{
    return strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0 ||
           strcmp(name, "comment") == 0 || strcmp(name, "user") == 0 ||
           strcmp(name, "uhelper") == 0 || strcmp(name, "helper") == 0;
}

static int take(struct rfs_mount_options *o, const struct rfs_setting *setting,
                struct rfs_error *err)
{
    const struct rfs_option *option = rfs_option_find(setting->name);
    const char *value = setting->value;

    if (is_for_others(setting->name))
        return 0;
    /* Files and variables say of a switch whether it is on. */
    if (option && !rfs_option_is_valued(option) && value && setting->origin) {
        const int on = rfs_option_switch(value);
        if (on < 0)
            return rfs_option_refuse_switch(option->name, value, err);
        if (on == 0)
            return 0;
        value = NULL;
    }
    const int rc = rfs_options_set(&o->set, 0, setting->name, value, err);
    return rc || !(option->flags & RFS_OPTION_OF_VIEW) ? rc : add_to_view(&o->view, option, value);
}

/* Adds the place of a setting to the message, if it was not the command line. */
static int place(const struct rfs_setting *setting, int rc, struct rfs_error *err)
{
    char text[sizeof err->text];

    if (setting->origin && err->code) {
        memcpy(text, err->text, sizeof text);
        rfs_fail_usage(err, NULL, "%s: %s", setting->origin, text);
    }
    return rc;
}

static int take_all(struct rfs_mount_options *o, const struct rfs_settings *settings,
                    struct rfs_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < settings->list.n; i++) {
        rc = take(o, &settings->list.data[i], err);
        if (rc == -EINVAL)
            rfs_options_hint_comma(settings, i, err);
        rc = place(&settings->list.data[i], rc, err);
    }
    return rc;
}

/*
 * Takes variables. One that is no option is the one with the key, if that is how it is named, or a
 * mistake.
 */
static int take_environment(struct rfs_mount_options *o, struct rfs_settings *settings,
                            const struct rfs_settings *file, const struct rfs_settings *command,
                            struct rfs_error *err)
{
    const struct rfs_setting *key = rfs_settings_last(command, "key_env");

    key = key ? key : rfs_settings_last(settings, "key_env");
    key = key ? key : rfs_settings_last(file, "key_env");
    for (size_t i = 0; i < settings->list.n; i++) {
        struct rfs_setting *setting = &settings->list.data[i];
        const bool is_key = key && key->value && strcmp(setting->origin, key->value) == 0;
        const int rc = is_key ? 0 : place(setting, take(o, setting, err), err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Takes the settings of a file; paths in it are looked for from its folder. */
static int take_file(struct rfs_mount_options *o, const char *path,
                     const struct rfs_settings *settings, struct rfs_error *err)
{
    RFS_CLOSE int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    RFS_FREE char *absolute = absolute_path(path);
    int rc = here >= 0 ? 0 : -errno;

    if (!absolute)
        return -ENOMEM;
    if (rc == 0 && chdir(dirname(absolute)) != 0)
        rc = -errno;
    if (rc)
        return rfs_fail(err, rc, RFS_IN(path), NULL, "cannot look from its folder: %s",
                        strerror(-rc));
    rc = take_all(o, settings, err);
    if (fchdir(here) != 0 && rc == 0)
        rc = rfs_fail(err, -errno, RFS_IN("."), NULL, "cannot go back: %s", strerror(errno));
    return rc;
}

/*
 * Takes all settings. The command line overrides the environment, and that the file, because the
 * last of the three counts. mount(8) adds rw by itself, together with dev and suid or their
 * opposites. A user's rw alone is a mistake.
 */
static int take_settings(struct rfs_mount_options *o, const struct rfs_settings *command,
                         struct rfs_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings environment = {0};
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings file = {0};
    int rc = rfs_mount_options_add_environment(&environment, environ);
    const struct rfs_setting *config = rfs_settings_last(command, "config");

    config = config ? config : rfs_settings_last(&environment, "config");
    if (rc == 0 && config && config->value && *config->value)
        rc = rfs_mount_options_add_file(&file, config->value, err);
    if (rc == 0)
        rc = rfs_options_check_twice(&file, err) ?: rfs_options_check_twice(command, err);
    if (rc == 0 && file.list.n > 0)
        rc = take_file(o, config->value, &file, err);
    if (rc == 0)
        rc = take_environment(o, &environment, &file, command, err);
    if (rc == 0)
        rc = take_all(o, command, err);
    if (rc == 0 && o->set.rw && !rfs_settings_last(command, "suid") &&
        !rfs_settings_last(command, "nosuid"))
        rc = rfs_fail_usage(err, "ro, or nothing: it is read-only in any case",
                            "option 'rw' is not possible: the files are made from the source, "
                            "and cannot be written");
    return rc;
}

/* ---- the command line ------------------------------------------------------------------------ */

enum {
    FLAG_CHECK = 256, /* beyond all letters */
    FLAG_DEBUG,
    FLAG_FD_SOCKET,
    FLAG_SINGLE,
    FLAG_HELP_ALL,
};

static const struct option flags[] = {{"src-strategy", required_argument, NULL, 's'},
                                      {"dst-strategy", required_argument, NULL, 'd'},
                                      {"check", no_argument, NULL, FLAG_CHECK},
                                      {"debug", no_argument, NULL, FLAG_DEBUG},
                                      {"fd-socket", required_argument, NULL, FLAG_FD_SOCKET},
                                      {"single-thread", no_argument, NULL, FLAG_SINGLE},
                                      {"help", no_argument, NULL, 'h'},
                                      {"help-all", no_argument, NULL, FLAG_HELP_ALL},
                                      {"version", no_argument, NULL, 'V'},
                                      {NULL, 0, NULL, 0}};

/* Takes a strategy by a flag of its own: as in -o, but a comma is a comma. */
static int take_strategy(struct rfs_settings *settings, int flag, const char *value,
                         struct rfs_error *err)
{
    if (*value == '-') /* the flag that follows, not a file */
        return rfs_fail_usage(err, RFS_PROGRAM_HELP, "'-%c' needs a value", flag);
    return rfs_settings_add(settings, flag == 's' ? "src_strategy" : "dst_strategy", value, NULL);
}

static int take_flag(struct rfs_mount_options *o, int flag, const char *arg,
                     struct rfs_settings *settings, struct rfs_error *err)
{
    switch (flag) {
    case 'o':
        return rfs_settings_add_text(settings, optarg);
    case 's':
    case 'd':
        return take_strategy(settings, flag, optarg, err);
    case 'f':
        o->foreground = true;
        return 0;
    case 'u':
        o->action = RFS_ACTION_UNMOUNT;
        return 0;
    case FLAG_DEBUG:
        o->set.debug = true;
        return 0;
    case FLAG_FD_SOCKET:
        o->fd_socket = optarg;
        return 0;
    case FLAG_SINGLE:
        o->single = true;
        return 0;
    case FLAG_CHECK:
        o->action = RFS_ACTION_CHECK;
        return 0;
    case 'h':
        o->action = RFS_ACTION_HELP;
        return 0;
    case FLAG_HELP_ALL:
        o->action = RFS_ACTION_HELP_ALL;
        return 0;
    case 'V':
        o->action = RFS_ACTION_VERSION;
        return 0;
    case ':':
        return rfs_fail_usage(err, RFS_PROGRAM_HELP, "'%s' needs a value", arg);
    default: {
        RFS_FREE char *typed = strncmp(arg, "--", 2) == 0 ? rfs_option_typed(arg) : NULL;
        return optopt > 0 && optopt < 128 && strncmp(arg, "--", 2) != 0
                   ? rfs_fail_usage(err, RFS_PROGRAM_HELP, "unknown flag '-%c'", optopt)
                   : rfs_fail_usage(err, typed ?: RFS_PROGRAM_HELP, "unknown flag '%s'", arg);
    }
    }
}

static bool reads_a_source(const struct rfs_mount_options *o)
{
    return o->action == RFS_ACTION_MOUNT || o->action == RFS_ACTION_CHECK;
}

/* Takes flags, up to one for help or the version. */
static int take_flags(struct rfs_mount_options *o, int argc, char **argv,
                      struct rfs_settings *settings, struct rfs_error *err)
{
    int rc = 0, flag;

    opterr = 0;
    while (rc == 0 && (reads_a_source(o) || o->action == RFS_ACTION_UNMOUNT) &&
           (flag = getopt_long(argc, argv, ":o:s:d:fhuV", flags, NULL)) != -1)
        rc =
            take_flag(o, flag, optind > 0 && optind <= argc ? argv[optind - 1] : "", settings, err);
    return rc;
}

/* Takes SRC and MNT. GIVEN are the arguments in their order, which getopt changes. */
static int take_places(struct rfs_mount_options *o, int n, char **places, int argc, char **given,
                       struct rfs_error *err)
{
    char remedy[512] = RFS_PROGRAM_HELP "; quotes around paths with blanks";

    /* "" is a variable of the caller's that is not set, not the current folder. */
    if (n < 1 || !*places[0])
        return rfs_fail_usage(err, RFS_PROGRAM_HELP, "the source folder is missing");
    if (n < 2 ? o->action != RFS_ACTION_CHECK : !*places[1])
        return rfs_fail_usage(err, RFS_PROGRAM_HELP, "the mount point is missing");
    if (n > 2) {
        RFS_FREE char *typed = rfs_option_typed(places[2]);
        rfs_suggest_quotes(argc, given, remedy, sizeof remedy);
        return rfs_fail_usage(err, typed ?: remedy, "unexpected argument '%s'", places[2]);
    }
    o->source = absolute_path(places[0]);
    o->mountpoint = n > 1 ? strdup(places[1]) : NULL;
    return o->source && (n < 2 || o->mountpoint) ? 0 : -ENOMEM;
}

/* Takes MNT, which is to be unmounted. */
static int take_unmounted(struct rfs_mount_options *o, int n, char **places, struct rfs_error *err)
{
    if (n != 1 || !*places[0])
        return rfs_fail_usage(err, "reshardfs -u MNT",
                              n > 1 ? "-u takes one mount point" : "the mount point is missing");
    o->mountpoint = strdup(places[0]);
    return o->mountpoint ? 0 : -ENOMEM;
}

/* Refuses to show decrypted content to others or to a cache that outlives this process. */
static int check_keyed(const struct rfs_options *o, struct rfs_error *err)
{
    if (!rfs_options_keyed(o))
        return 0;
    if (o->io == RFS_IO_CACHED)
        return rfs_fail_usage(
            err, "io=direct",
            "io=cached with a key would keep decrypted content in the page cache");
    if ((o->allow_other || o->allow_root) && !o->allow_decrypted)
        return rfs_fail_usage(err, "allow_decrypted as well, to permit that",
                              "%s with a key would show decrypted content to other users",
                              o->allow_other ? "allow_other" : "allow_root");
    return 0;
}

static bool has_objects(const struct rfs_mount_options *options)
{
    bool any = options->source && rfs_store_is_url(options->source);

    for (size_t i = 0; i < options->view.list.n; i++) {
        const char *value = options->view.list.data[i].value;
        const struct rfs_option *option = rfs_option_find(options->view.list.data[i].name);
        const bool is_path =
            option && option->kind >= RFS_OPTION_PATH && option->kind <= RFS_OPTION_RULES;
        any |= is_path && value && rfs_store_has_url(value, NULL);
    }
    return any;
}

int rfs_mount_options_parse(int argc, char **argv, struct rfs_mount_options *out,
                            struct rfs_error *err)
{
    RFS_CLEANUP(rfs_settings_free) struct rfs_settings settings = {0};
    RFS_FREE char **given = calloc((size_t)argc + 1, sizeof *given);
    int rc;

    *out = (struct rfs_mount_options){0};
    *err = (struct rfs_error){0};
    if (given)
        memcpy(given, argv, (size_t)argc * sizeof *given);
    rc = given ? rfs_options_init(&out->set) : -ENOMEM;
    if (rc == 0)
        rc = take_flags(out, argc, argv, &settings, err);
    if (rc == 0 && reads_a_source(out)) {
        rc = take_settings(out, &settings, err)
                ?: take_places(out, argc - optind, argv + optind, argc - 1, given + 1, err)
                ?: check_keyed(&out->set, err);
    }
    if (rc == 0 && out->action == RFS_ACTION_UNMOUNT)
        rc = take_unmounted(out, argc - optind, argv + optind, err);
    if (rc == -ENOMEM && err->code == 0)
        rfs_fail_memory(err);
    out->set.default_permissions |= out->set.allow_other || out->set.allow_root;
    if (out->single)
        out->set.max_threads = 1;
    out->foreground |= out->set.debug;
    out->objects = has_objects(out);
    if (out->set.debug)
        out->set.log_level = RFS_DEBUG;
    return rc;
}

void rfs_mount_options_free(struct rfs_mount_options *options)
{
    free(options->source);
    free(options->mountpoint);
    rfs_options_free(&options->set);
    rfs_settings_free(&options->view);
    *options = (struct rfs_mount_options){0};
}

/* ---- help ------------------------------------------------------------------------------------ */

enum {
    NAMES_COLUMN = 15,
    HELP_WIDTH = 80,
};

static const char usage[] =
    "usage: reshardfs SRC MNT [-s FILE] [-d FILE] [-o OPTION,...] [-f]\n"
    "       reshardfs --check SRC [option...] | -u MNT | --help-all\n"
    "Shows the checkpoint in SRC on MNT as other ranks would save it, read-only.\n";

static const char notes[] =
    "Options also come from RESHARDFS_NAME=VALUE, and lines NAME = VALUE of config=.\n"
    "Write a comma inside a value as \\, . -u unmounts, also what is in use.\n";

static void explain_all(void)
{
    fputs(usage, stdout);
    fputs("\n"
          "  -s FILE, --src-strategy FILE\n"
          "                -o src_strategy=FILE\n"
          "  -d FILE, --dst-strategy FILE\n"
          "                -o dst_strategy=FILE\n"
          "  -f            stay in the foreground\n"
          "  --debug       likewise, and print requests\n"
          "  --single-thread\n"
          "                one request at a time\n"
          "  --fd-socket PATH\n"
          "                serve a mount that another program has made on MNT; its\n"
          "                descriptor of /dev/fuse comes over this Unix socket\n"
          "  --check       plan every rank, report, mount nothing\n"
          "  -u            unmount MNT; if it is in use, say by whom, and end with them\n"
          "  -h, --help    list the options; --help-all: explain them\n"
          "  -V, --version\n",
          stdout);
    rfs_options_help(0, stdout);
    fputs("\nOther options of mount(8), such as ro, nofail and noatime, have no effect.\n", stdout);
    fputs(notes, stdout);
}

/* Prints the name of an option at COLUMN, or in a new line. Returns the next column. */
static int help_name(const struct rfs_option *option, bool last, int column)
{
    char name[128];
    const int n = snprintf(name, sizeof name, "%s%s%s", option->name,
                           rfs_option_is_valued(option) ? "=" : "", last ? "" : ",");

    if (column + 1 + n > HELP_WIDTH) {
        printf("\n%*s", NAMES_COLUMN, "");
        column = NAMES_COLUMN;
    }
    return column + printf("%s%s", column > NAMES_COLUMN ? " " : "", name);
}

static void list_names(void)
{
    const struct rfs_option *option;
    int column = 0;

    fputs(usage, stdout);
    for (size_t i = 0; (option = rfs_option_at(i)); i++) {
        const struct rfs_option *next = rfs_option_at(i + 1);

        if (option->heading) {
            printf("\n%-*s", NAMES_COLUMN, option->heading);
            column = NAMES_COLUMN;
        }
        if (option->help)
            column = help_name(option, !next || !next->help || next->heading, column);
    }
    fputs("\n"
          "-s, -d         src_strategy=, dst_strategy=; --check: plan every rank, no mount\n",
          stdout);
    fputs(notes, stdout);
}

void rfs_mount_options_help(bool all)
{
    if (all)
        explain_all();
    else
        list_names();
}
