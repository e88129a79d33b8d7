/* SPDX-License-Identifier: Apache-2.0 */
#include "scanning.h"
#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

int scanning_setup(void **state)
{
    struct scanning *s = calloc(1, sizeof *s);
    if (!s)
        return -1;
    tree_new(&s->tree);
    lines_init(&s->lines);
    plain(s);
    *state = s;
    return 0;
}

int scanning_teardown(void **state)
{
    struct scanning *s = *state;
    rfs_scan_free(&s->scan);
    tree_remove(&s->tree);
    free(s);
    return 0;
}

void plain(struct scanning *s)
{
    s->options = rfs_options_defaults;
    s->spec = (struct rfs_source_spec){.path = s->tree.root, .options = &s->options};
}

void put_text(const struct scanning *s, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", s->tree.root, name);
    for (char *slash = path + strlen(s->tree.root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    tree_file(&s->tree, name, text, strlen(text));
}

void put(const struct scanning *s, const char *name)
{
    put_text(s, name, "");
}

void scanned(struct scanning *s)
{
    struct rfs_error err = {0};
    rfs_scan_free(&s->scan);
    if (rfs_scan_open(&s->spec, &s->lines.log, &s->scan, &err) < 0)
        fail_msg("%s", err.text);
    size_t present = 0;
    for (size_t i = 0; i < s->scan.n; i++) {
        assert_true(i == 0 || s->scan.data[i - 1].rank < s->scan.data[i].rank);
        present += s->scan.data[i].n_files > 0;
    }
    assert_int_equal(s->scan.present, present);
    assert_true(present > 0);
    if (s->scan.whole)
        assert_true(s->scan.n == 1 && s->scan.data[0].rank == 0);
}

const char *files_of(const struct scanning *s, uint32_t rank)
{
    static char texts[8][1024];
    static unsigned next;
    const size_t root = strlen(s->tree.root);
    for (size_t i = 0; i < s->scan.n; i++) {
        const struct rfs_scanned *item = &s->scan.data[i];
        char *text = texts[next++ % 8];
        size_t at = 0;
        if (item->rank != rank)
            continue;
        for (size_t k = 0; k < item->n_files; k++) {
            assert_int_equal(strncmp(item->files[k], s->tree.root, root), 0);
            at += (size_t)snprintf(text + at, sizeof texts[0] - at, "%s%s", k > 0 ? " " : "",
                                   item->files[k] + root + 1);
        }
        return item->n_files > 0 ? text : "-";
    }
    return "";
}

void scan_refused(struct scanning *s, int code, bool usage, const char *const *parts)
{
    struct rfs_error err = {0};
    struct rfs_scan scan;
    const int rc = rfs_scan_open(&s->spec, &s->lines.log, &scan, &err);
    if (rc == 0)
        rfs_scan_free(&scan);
    if (rc != code)
        fail_msg("%d instead of %d: %s", rc, code, err.text);
    assert_int_equal(err.code, code);
    assert_int_equal(err.usage, usage);
    assert_null(scan.data);
    for (; *parts; parts++)
        if (!strstr(err.text, *parts))
            fail_msg("no '%s' in: %s", *parts, err.text);
}
