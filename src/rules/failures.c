/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What statements that fail say: their hint, and one message for each, without those that follow
 * from an earlier failure.
 */
#include "base/cleanup.h"
#include "base/text.h"
#include "rules/compile_internal.h"

/* A failure of more statements ends the compiling, reported or not. */
#define MOST_FAILED 1024

void rfs_rules_insert(struct rfs_error *err, const char *text, const char *between)
{
    static const char remedy[] = "; try: ";
    const struct rfs_error whole = *err;
    const char *at = strstr(whole.text, remedy);

    snprintf(err->text, sizeof err->text, "%.*s; %s%s%s",
             at ? (int)(at - whole.text) : (int)strlen(whole.text), whole.text, text,
             at ? between : "", at ? at + strlen(remedy) : "");
}

/* Keeps a failure for the report. False when there is no room. */
static bool keep(struct rfs_rules_failures *failures, const struct rfs_error *err)
{
    if (failures->n == RFS_RULES_ERRORS)
        failures->more = true;
    else
        failures->list[failures->n++] = *err;
    return !failures->more;
}

int rfs_rules_survive(struct compiling *c, int rc)
{
    const struct statement *statement = c->statement;
    const bool follows = c->follows;

    c->follows = false;
    if (c->map->arena.failed)
        return rfs_fail_memory(c->err);
    if (rc != -EINVAL || c->err->usage)
        return rc;
    if (statement && statement->hint) {
        RFS_FREE char *hint = rfs_text_printf("hint: %s", statement->hint);
        if (hint)
            rfs_rules_insert(c->err, hint, "; try: ");
    }
    if (!c->failures || *c->work > RULES_MOST_WORK || c->failed.n == MOST_FAILED ||
        (statement && statement->kind == STATEMENT_MODELS))
        return rc;
    if (statement)
        RULES_PUSH(c, &c->failed, statement);
    const bool room = follows || keep(c->failures, c->err);
    *c->err = (struct rfs_error){0};
    return room ? 0 : -EINVAL;
}

int rfs_rules_failures_end(struct compiling *c, int rc)
{
    if (c->map->arena.failed)
        return rfs_fail_memory(c->err);
    if (!c->failures)
        return rc;
    if (rc == -EINVAL && !c->err->usage && c->err->code)
        keep(c->failures, c->err);
    return rc || c->failures->n == 0 ? rc : -EINVAL;
}

bool rfs_rules_is_blamed(const struct compiling *c, int side, const char *name)
{
    for (size_t i = 0; i < c->failed.n; i++)
        if (rfs_rules_has_name(c->failed.data[i], side, name))
            return true;
    return false;
}
