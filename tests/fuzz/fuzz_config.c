/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a file of options (config=), of lines or of JSON, and as variables of the
 * environment. What is taken goes through the parser of the mount's options.
 */
#include "mount/mount_options.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

FUZZ_GOALS("settings of a file", "options of a mount", "settings of a variable");

static void check_settings(const struct rfs_settings *settings)
{
    for (size_t i = 0; i < settings->list.n; i++) {
        const struct rfs_setting *setting = &settings->list.data[i];

        REQUIRE(setting->name);
        const struct rfs_setting *last = rfs_settings_last(settings, setting->name);
        REQUIRE(last >= setting && strcmp(last->name, setting->name) == 0);
    }
}

static void read_file(const char *path)
{
    struct rfs_settings settings = {0};
    struct rfs_error err = {0};

    if (require_result(rfs_mount_options_add_file(&settings, path, &err), &err)) {
        check_settings(&settings);
        if (settings.list.n > 0)
            fuzz_reached(0);
    }
    rfs_settings_free(&settings);
}

static void mount_with(const char *path)
{
    char program[] = "reshardfs", source[] = "/dev", target[] = "/proc", flag[] = "-o";
    char option[64];
    char *argv[] = {program, source, target, flag, option, NULL};
    struct rfs_mount_options options = {0};
    struct rfs_error err = {0};

    snprintf(option, sizeof option, "config=%s", path);
    if (require_result(rfs_mount_options_parse(5, argv, &options, &err), &err))
        fuzz_reached(1);
    rfs_mount_options_free(&options);
}

static void read_environment(const uint8_t *data, size_t size)
{
    struct rfs_settings settings = {0};
    char *variable = malloc(size + sizeof RFS_OPTIONS_VARIABLE);

    REQUIRE(variable);
    memcpy(variable, RFS_OPTIONS_VARIABLE, sizeof RFS_OPTIONS_VARIABLE);
    if (size > 0)
        memcpy(variable + sizeof RFS_OPTIONS_VARIABLE - 1, data, size);
    variable[size + sizeof RFS_OPTIONS_VARIABLE - 1] = '\0';
    char *environment[] = {variable, NULL};
    REQUIRE(rfs_mount_options_add_environment(&settings, environment) == 0);
    check_settings(&settings);
    if (settings.list.n > 0)
        fuzz_reached(2);
    rfs_settings_free(&settings);
    free(variable);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file("options", data, size);

    read_file(path);
    mount_with(path);
    read_environment(data, size);
}
