/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ready cuts: the layouts that trainings give to the models of the conversion rules, by the degrees
 * of parallelism alone, as in "tp4" or "tp2,pp2". They are rules of layouts (layout/layout_rules.h)
 * that are shipped, one file for each kind of names, with the degrees left open.
 */
#pragma once

#include "layout/layout_rules.h"

/*
 * Makes the rules of ready cuts (rfs_settings_is_cuts) for the parameters and ranks of USE: those
 * of the kind of names whose rules know each parameter. OPTION is their name in messages. 0 with
 * *out owned by the caller, or -errno with *err filled.
 */
int rfs_cuts_rules(const char *option, const char *value, const struct rfs_layout_rules_use *use,
                   struct rfs_layout_rules **out, struct rfs_error *err);
