/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that cost much more than their size would make one think, for tests: what they share is
 * walked once for each reference, what is empty takes memory all the same, what is nested wants a
 * stack. Each is made of about N bytes.
 */
#ifndef TESTS_SUPPORT_HOSTILE_H
#define TESTS_SUPPORT_HOSTILE_H

#include "tests/support/tree.h"

struct hostile {
    const char *name;
    void (*make)(struct bytes *out, size_t n); /* NULL: a text, as what follows says */
    const char *head, *again, *tail;           /* AGAIN as often as makes N bytes */
};
void hostile_make(const struct hostile *hostile, struct bytes *out, size_t n);

/* Each list ends with a name of NULL. */
extern const struct hostile hostile_torch[];    /* state dicts in files of torch.save */
extern const struct hostile hostile_parts[];    /* either of two parts of hfai */
extern const struct hostile hostile_dcp[];      /* .metadata of distributed checkpoints */
extern const struct hostile hostile_hyper[];    /* metadata of HyperParallel, or of each rank */
extern const struct hostile hostile_maps[];     /* JSON that says which file has what */
extern const struct hostile hostile_json[];     /* strategies in JSON */
extern const struct hostile hostile_protobuf[]; /* strategies in protobuf */
extern const struct hostile hostile_metadata[]; /* metadata.json of Checkpoint 2.0 */
extern const struct hostile hostile_groups[];   /* group info */
extern const struct hostile hostile_fsdp[];     /* a rank's file of DTensors */
extern const struct hostile hostile_zero[];     /* both files of a save by DeepSpeed */
enum { HOSTILE_ZERO_RANKS = 20 };
extern const struct hostile hostile_zero_ranks[]; /* the first two files of one by so many ranks */
extern const struct hostile hostile_shards[];     /* safetensors with DCP_SHARDING_INFO */
extern const struct hostile hostile_gguf[];       /* files of llama.cpp */
/* what a store answers: pages of keys, indexes of folders in HTML, the same in JSON */
extern const struct hostile hostile_pages[];
extern const struct hostile hostile_links[];
extern const struct hostile hostile_lists[];

#endif
