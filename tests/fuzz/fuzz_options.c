/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text after -o. It goes through the mount's parser, and what that passes on through the
 * view's. Then it is the value of an option itself: escaped, it must come back as it was.
 */
#include "mount/mount_options.h"
#include "tests/fuzz/fuzz.h"
#include "view/view_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FUZZ_GOALS("options of a view", "options of a mount");

/* A refusal says why, in one line, and says that the user's text is at fault. */
static bool take_view(const struct rfs_settings *settings, struct rfs_options *out)
{
    struct rfs_error err = {0};

    if (rfs_view_options_take(settings, out, &err) != 0) {
        require_refusal(&err);
        REQUIRE(err.usage);
        return false;
    }
    REQUIRE(out->prefix != NULL && strchr(out->prefix, '/') == NULL);
    return true;
}

static bool parse_view(const char *text, struct rfs_options *out)
{
    struct rfs_settings settings = {0};

    REQUIRE(rfs_settings_add_text(&settings, text) == 0);
    const bool taken = take_view(&settings, out);
    rfs_settings_free(&settings);
    return taken;
}

static void parse_mount(char *text)
{
    char program[] = "reshardfs", source[] = "/dev", target[] = "/proc", flag[] = "-o";
    char *argv[] = {program, source, target, flag, text, NULL};
    struct rfs_mount_options mount = {0};
    struct rfs_options view = {0};
    struct rfs_error err = {0};

    if (rfs_mount_options_parse(5, argv, &mount, &err) != 0) {
        require_refusal(&err);
    } else {
        if (take_view(&mount.view, &view) && text[0] != '\0')
            fuzz_reached(1);
        rfs_options_free(&view);
    }
    rfs_mount_options_free(&mount);
}

static void round_trip(const char *text)
{
    struct rfs_options view = {0};
    char *option = NULL;
    size_t n;
    FILE *out = open_memstream(&option, &n);

    if (out) {
        fputs("strict,", out);
        rfs_settings_write(out, "src_strategy", text);
        fputs(",cache=1K", out);
        REQUIRE(fclose(out) == 0);
        if (parse_view(option, &view)) {
            REQUIRE(strcmp(view.src_strategy, text) == 0);
            REQUIRE(view.strict && view.cache == 1024);
        } else {
            REQUIRE(text[0] == 0); /* the only value that is none */
        }
        rfs_options_free(&view);
    }
    free(option);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct rfs_options view = {0};
    uint64_t bytes = 0;
    char *text = fuzz_text(data, size);

    rfs_option_size(text, &bytes);
    if (parse_view(text, &view) && size > 0)
        fuzz_reached(0);
    rfs_options_free(&view);
    round_trip(text);
    parse_mount(text); /* last: it may change the text */
    free(text);
}
