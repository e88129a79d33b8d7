/* SPDX-License-Identifier: Apache-2.0 */
#include "store/remote/environment.h"

#include "base/cleanup.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/text.h"
#include "base/variables.h"

#include <assert.h>
#include <unistd.h>

#define FILE_BYTES ((size_t)1 << 20)
#define HUB_BYTES 4096

/* The variables that count, with those of rfs_variable_certificates. */
static const struct variable {
    const char *name;
    bool is_file; /* that is read later, too */
} variables[] = {
    {"AWS_ACCESS_KEY_ID", false},
    {"AWS_SECRET_ACCESS_KEY", false},
    {"AWS_SESSION_TOKEN", false},
    {"AWS_PROFILE", false},
    {"AWS_SHARED_CREDENTIALS_FILE", false},
    {"AWS_CONFIG_FILE", false},
    {"AWS_WEB_IDENTITY_TOKEN_FILE", true},
    {"AWS_ROLE_ARN", false},
    {"AWS_ROLE_SESSION_NAME", false},
    {"AWS_ENDPOINT_URL_STS", false},
    {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", false},
    {"AWS_CONTAINER_CREDENTIALS_FULL_URI", false},
    {"AWS_CONTAINER_AUTHORIZATION_TOKEN", false},
    {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", true},
    {"AWS_EC2_METADATA_DISABLED", false},
    {"AWS_EC2_METADATA_SERVICE_ENDPOINT", false},
    {"AWS_ENDPOINT_URL_S3", false},
    {"AWS_ENDPOINT_URL", false},
    {"AWS_REGION", false},
    {"AWS_DEFAULT_REGION", false},
    {"HF_ENDPOINT", false},
    {"HF_TOKEN", false},
    {"HUGGING_FACE_HUB_TOKEN", false},
    {"HF_TOKEN_PATH", false},
    {"HF_HOME", false},
    {"XDG_CACHE_HOME", false},
    {"HOME", false},
    {"http_proxy", false},
    {"https_proxy", false},
    {"HTTPS_PROXY", false},
    {"all_proxy", false},
    {"ALL_PROXY", false},
    {"no_proxy", false},
    {"NO_PROXY", false},
};
#define VARIABLES (sizeof variables / sizeof *variables)

/* The texts: first the values of the variables. */
enum {
    CERTIFICATES = VARIABLES, /* the file that has them */
    PROFILE,                  /* its name, where something names it */
    SECTIONS,                 /* its lines in each of the profile's files */
    HUB_FILE = SECTIONS + RFS_PROFILE_FILES,
    HUB_TOKEN, /* text of that file */
    TEXTS
};

struct rfs_environment {
    char *texts[TEXTS]; /* in guarded memory; NULL: there is none */
    char *memory;       /* of the texts; owned */
    size_t bytes;
    bool by_option; /* an option names the profile */
    int hub_failed; /* the -errno of reading its file, or 0 */
};

/* ---- the profile's files --------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Returns a line's text without the spaces around it. */
static const char *trim(const char *at, size_t *n)
{
    while (*n > 0 && is_space(*at)) {
        at++;
        --*n;
    }
    while (*n > 0 && is_space(at[*n - 1]))
        --*n;
    return at;
}

/* Says whether a line is [SECTION] or [profile SECTION]. */
static bool is_section(const char *line, size_t n, const char *section)
{
    if (n < 2 || line[n - 1] != ']')
        return false;
    size_t m = n - 2;
    const char *name = trim(line + 1, &m);
    if (m > 8 && memcmp(name, "profile ", 8) == 0) {
        m -= 8;
        name = trim(name + 8, &m);
    }
    return m == strlen(section) && memcmp(name, section, m) == 0;
}

bool rfs_profile_find(const char *text, const char *section, const char *name, char *out,
                      size_t cap)
{
    bool inside = false;

    for (const char *line = text; *line;) {
        const size_t whole = strcspn(line, "\n");
        size_t n = whole;
        const char *at = trim(line, &n);
        const char *equals = memchr(at, '=', n);
        size_t m = equals ? (size_t)(equals - at) : 0;
        if (n > 0 && *at == '[')
            inside = is_section(at, n, section);
        else if (inside && equals && *at != '#' && *at != ';') {
            const char *key = trim(at, &m);
            size_t length = n - (size_t)(equals + 1 - at);
            const char *value = trim(equals + 1, &length);
            if (m == strlen(name) && memcmp(key, name, m) == 0 && length < cap) {
                memcpy(out, value, length);
                out[length] = '\0';
                return true;
            }
        }
        line += whole + (line[whole] == '\n');
    }
    return false;
}

/* Leaves the lines of a section in TEXT, with their heads, and takes out all others. */
static void keep_section(char *text, const char *section)
{
    bool inside = false;
    char *to = text;

    for (const char *line = text; *line;) {
        const size_t whole = strcspn(line, "\n");
        const size_t taken = whole + (line[whole] == '\n');
        size_t n = whole;
        const char *at = trim(line, &n);
        if (n > 0 && *at == '[')
            inside = is_section(at, n, section);
        if (inside) {
            memmove(to, line, taken);
            to += taken;
        }
        line += taken;
    }
    *to = '\0';
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Texts that are being collected. */
struct collected {
    char *texts[TEXTS]; /* owned; NULL: there is none */
    bool no_memory;
};

static void wipe_collected(struct collected *collected)
{
    for (size_t i = 0; i < TEXTS; i++) {
        if (collected->texts[i])
            rfs_secret_wipe(collected->texts[i], strlen(collected->texts[i]));
        free(collected->texts[i]);
    }
}

/* Sets a text, which is taken over; NULL is out of memory. */
static void set(struct collected *collected, size_t i, char *text)
{
    collected->texts[i] = text;
    collected->no_memory |= !text;
}

static const char *value_of(char *const *texts, const char *name)
{
    size_t i = 0;

    while (i < VARIABLES && strcmp(variables[i].name, name) != 0)
        i++;
    assert(i < VARIABLES);
    return i < VARIABLES ? texts[i] : NULL;
}

/* Returns the path as it will be in another working folder, too. */
static char *absolute(const char *path)
{
    RFS_FREE char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);

    return here ? rfs_text_printf("%s/%s", here, path) : strdup(path);
}

static void take_variables(struct collected *collected)
{
    for (size_t i = 0; i < VARIABLES; i++) {
        const char *value = rfs_variable(variables[i].name);
        if (value)
            set(collected, i, variables[i].is_file ? absolute(value) : strdup(value));
    }
    const char *certificates = rfs_variable_certificates();
    if (certificates)
        set(collected, CERTIFICATES, absolute(certificates));
}

/* Takes the profile's lines of the file that VARIABLE names, or of ~/.aws/NAME. */
static void take_section(struct collected *collected, enum rfs_profile_file file,
                         const char *variable, const char *name)
{
    const char *given = value_of(collected->texts, variable);
    const char *home = value_of(collected->texts, "HOME");
    const char *profile = collected->texts[PROFILE];
    RFS_FREE char *path = given  ? strdup(given)
                          : home ? rfs_text_printf("%s/.aws/%s", home, name)
                                 : NULL;
    RFS_FREE char *text = NULL;
    size_t n = 0;

    collected->no_memory |= !path && (given || home);
    if (!path || rfs_store_read_whole(NULL, path, FILE_BYTES, &text, &n, NULL) != 0)
        return;
    keep_section(text, profile ? profile : "default");
    set(collected, SECTIONS + file, strdup(text));
    rfs_secret_wipe(text, n);
}

static void take_profile(struct collected *collected, const char *option)
{
    const char *name = option ? option : value_of(collected->texts, "AWS_PROFILE");

    if (name)
        set(collected, PROFILE, strdup(name));
    if (collected->no_memory)
        return;
    take_section(collected, RFS_PROFILE_CREDENTIALS, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
    take_section(collected, RFS_PROFILE_CONFIG, "AWS_CONFIG_FILE", "config");
}

/* Returns PATH with the user's folder for a "~" in front; NULL without one, or out of memory. */
static char *at_home(const struct collected *collected, const char *path, const char *rest)
{
    const char *home = value_of(collected->texts, "HOME");

    if (path[0] != '~' || (path[1] && path[1] != '/'))
        return rfs_text_printf("%s%s", path, rest);
    return home ? rfs_text_printf("%s%s%s", home, path + 1, rest) : NULL;
}

/* Returns the file of the hub's token, as the hub's own tools find it. */
static char *find_hub_file(const struct collected *collected)
{
    static const struct {
        const char *variable, *rest;
    } places[] = {
        {"HF_TOKEN_PATH", ""}, {"HF_HOME", "/token"}, {"XDG_CACHE_HOME", "/huggingface/token"}};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = value_of(collected->texts, places[i].variable);
        if (value)
            return at_home(collected, value, places[i].rest);
    }
    return at_home(collected, "~/.cache/huggingface/token", "");
}

/* Reads the file of the hub's token. Returns the -errno of one that cannot be read. */
static int take_hub(struct collected *collected)
{
    RFS_FREE char *text = NULL;
    size_t n = 0;

    if (value_of(collected->texts, "HF_TOKEN") ||
        value_of(collected->texts, "HUGGING_FACE_HUB_TOKEN"))
        return 0;
    char *path = find_hub_file(collected);
    if (!path)
        return 0;
    set(collected, HUB_FILE, path);
    const int rc = rfs_store_read_whole(NULL, path, HUB_BYTES, &text, &n, NULL);
    if (rc < 0)
        return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
    set(collected, HUB_TOKEN, strdup(text));
    rfs_secret_wipe(text, n);
    return 0;
}

/* Copies the texts to guarded memory. False when out of memory. */
static bool guard(struct rfs_environment *environment, const struct collected *collected)
{
    size_t at = 0;

    environment->bytes = 1;
    for (size_t i = 0; i < TEXTS; i++)
        environment->bytes += collected->texts[i] ? strlen(collected->texts[i]) + 1 : 0;
    environment->memory = rfs_secret_map(environment->bytes);
    for (size_t i = 0; environment->memory && i < TEXTS; i++) {
        if (!collected->texts[i])
            continue;
        const size_t n = strlen(collected->texts[i]) + 1;
        environment->texts[i] = memcpy(environment->memory + at, collected->texts[i], n);
        at += n;
    }
    return environment->memory != NULL;
}

struct rfs_environment *rfs_environment_take(const char *profile)
{
    struct rfs_environment *environment = calloc(1, sizeof *environment);
    RFS_CLEANUP(wipe_collected) struct collected collected = {.no_memory = !environment};

    take_variables(&collected);
    if (!collected.no_memory)
        take_profile(&collected, profile);
    const int hub_failed = collected.no_memory ? 0 : take_hub(&collected);
    if (!collected.no_memory && guard(environment, &collected)) {
        environment->by_option = profile != NULL;
        environment->hub_failed = hub_failed;
        return environment;
    }
    free(environment);
    return NULL;
}

void rfs_environment_free(struct rfs_environment *environment)
{
    if (!environment)
        return;
    rfs_secret_unmap(environment->memory, environment->bytes);
    free(environment);
}

bool rfs_environment_equals(const struct rfs_environment *a, const struct rfs_environment *b)
{
    bool same = a->by_option == b->by_option && a->hub_failed == b->hub_failed;

    for (size_t i = 0; same && i < TEXTS; i++)
        same = a->texts[i] && b->texts[i] ? strcmp(a->texts[i], b->texts[i]) == 0
                                          : !a->texts[i] && !b->texts[i];
    return same;
}

/* ---- asking ---------------------------------------------------------------------------------- */

const char *rfs_environment_get(const struct rfs_environment *environment, const char *name)
{
    return value_of(environment->texts, name);
}

/* Returns the first of N variables that was set, or NULL. */
static const char *first_of(const struct rfs_environment *environment, const char *const *names,
                            size_t n)
{
    const char *value = NULL;

    for (size_t i = 0; i < n && !value; i++)
        value = rfs_environment_get(environment, names[i]);
    return value;
}

struct rfs_environment_way rfs_environment_way_to(const struct rfs_environment *environment,
                                                  const char *url)
{
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    static const char *const no_names[] = {"no_proxy", "NO_PROXY"};
    const bool tls = strncmp(url, "https:", 6) == 0;
    const char *hosts = first_of(environment, no_names, sizeof no_names / sizeof *no_names);
    /* A CGI program has a header of its client in HTTP_PROXY. */
    const char *proxy = tls ? NULL : rfs_environment_get(environment, "http_proxy");

    proxy = proxy ? proxy : first_of(environment, names + (tls ? 0 : 2), tls ? 4 : 2);
    return (struct rfs_environment_way){environment->texts[CERTIFICATES], proxy ? proxy : "",
                                        hosts ? hosts : ""};
}

struct rfs_profile rfs_profile_of(const struct rfs_environment *environment)
{
    const char *name = environment->texts[PROFILE];

    return (struct rfs_profile){name ? name : "default", name != NULL, environment->by_option};
}

bool rfs_profile_get(const struct rfs_environment *environment, enum rfs_profile_file file,
                     const char *name, char *out, size_t cap)
{
    const char *text = environment->texts[SECTIONS + (size_t)file];

    return text && rfs_profile_find(text, rfs_profile_of(environment).name, name, out, cap);
}

int rfs_environment_hub_token(const struct rfs_environment *environment, const char **text,
                              const char **from)
{
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    const char *given = first_of(environment, names, sizeof names / sizeof *names);

    *text = given ? given : environment->texts[HUB_TOKEN];
    *from = given ? "HF_TOKEN" : environment->texts[HUB_FILE];
    return environment->hub_failed;
}
