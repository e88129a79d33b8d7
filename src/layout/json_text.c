/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/json_text.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(struct rfs_json_walk *walk)
{
    while (walk->at < walk->end && is_space(*walk->at))
        walk->at++;
}

static bool stop(struct rfs_json_walk *walk)
{
    walk->wrong = true;
    return false;
}

/* Passes C, with spaces on both sides. */
static bool take(struct rfs_json_walk *walk, char c)
{
    skip_space(walk);
    if (walk->at == walk->end || *walk->at != c)
        return false;
    walk->at++;
    skip_space(walk);
    return true;
}

/* From a quote to after the one that closes it. */
static bool skip_string(struct rfs_json_walk *walk)
{
    for (walk->at++; walk->at < walk->end; walk->at++) {
        if (*walk->at == '"') {
            walk->at++;
            return true;
        }
        if (*walk->at == '\\' && walk->end - walk->at > 1)
            walk->at++;
    }
    return false;
}

/* A string, what brackets enclose (of either kind: the parser will tell), or a word. */
static bool skip_value(struct rfs_json_walk *walk)
{
    const char *begin = walk->at;
    size_t depth = 0;

    while (walk->at < walk->end) {
        const char c = *walk->at;
        if (c == '"') {
            if (!skip_string(walk))
                return false;
            if (depth == 0)
                return true;
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']' || is_space(c)))
            break;
        walk->at++;
        if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0)
            return true;
    }
    return depth == 0 && walk->at > begin;
}

bool rfs_json_is_object(struct rfs_json_text text)
{
    struct rfs_json_walk walk = {.at = text.data, .end = text.data + text.n};

    return take(&walk, '{');
}

struct rfs_json_walk rfs_json_walk_begin(struct rfs_json_text text)
{
    struct rfs_json_walk walk = {.at = text.data, .end = text.data + text.n, .first = true};

    if (!take(&walk, '{'))
        walk.wrong = true;
    return walk;
}

bool rfs_json_walk_next(struct rfs_json_walk *walk, struct rfs_json_text *key,
                        struct rfs_json_text *value)
{
    if (walk->wrong)
        return false;
    if (take(walk, '}'))
        return walk->at == walk->end ? false : stop(walk);
    if (!walk->first && !take(walk, ','))
        return stop(walk);
    walk->first = false;
    key->data = walk->at;
    if (walk->at == walk->end || *walk->at != '"' || !skip_string(walk))
        return stop(walk);
    key->n = (size_t)(walk->at - key->data);
    if (!take(walk, ':'))
        return stop(walk);
    value->data = walk->at;
    if (!skip_value(walk))
        return stop(walk);
    value->n = (size_t)(walk->at - value->data);
    return true;
}
