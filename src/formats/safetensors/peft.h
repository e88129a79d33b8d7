/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters of PEFT (LoRA): adapter_model.safetensors has two tensors for each module, A and B, and
 * adapter_config.json beside it says how PEFT loads them: their rank, the modules that they belong
 * to, and alpha, the numerator of their scale.
 *
 * A parameter of fused experts, [E, out, in] or [E, in, out], has an adapter of E times the rank.
 * Two parameters of one module have one within the other:
 *
 *     layers.0.mlp.experts.base_layer.lora_A.weight  [E * rank, hidden]   gate_up_proj
 *     layers.0.mlp.experts.lora_A.weight             [E * rank, ffn]      down_proj
 *
 * Only the weights below say which is whose, and E.
 */
#pragma once

#include "base/error.h"
#include "base/intern.h"
#include "formats/image.h"

#define RFS_PEFT_CONFIG "adapter_config.json"
#define RFS_PEFT_MODEL "adapter_model.safetensors"
#define RFS_PEFT_PREFIX "base_model.model." /* of its names: what PEFT's model is in its wrapper */

/* An adapter, as its tensors show it. */
struct rfs_peft {
    uint64_t rank;
    struct rfs_intern *modules;    /* last parts of their names; owned */
    struct rfs_intern *parameters; /* ends of the names of parameters, or whole names; owned */
};

/* A weight of the model below, by its name in that model. Borrowed. */
struct rfs_peft_weight {
    const char *name;
    const struct rfs_type *type;
};

/*
 * Reads the names and shapes of N tensors, which must be pairs of A and B of one rank. WEIGHTS are
 * those of the model below that are known and have three axes. PATH is the source's, for messages.
 * 0, or -errno with *err filled; to be freed in any case. O(n log n) of both.
 */
int rfs_peft_read(const struct rfs_image_tensor *tensors, size_t n,
                  const struct rfs_peft_weight *weights, size_t n_weights, const char *path,
                  struct rfs_peft *out, struct rfs_error *err);
/* Takes what PEFT's wrappers put into the name of a parameter out of it. */
void rfs_peft_strip(char *name);
void rfs_peft_free(struct rfs_peft *adapter);
/* Makes adapter_config.json. 0 or -ENOMEM. */
int rfs_peft_encode(const struct rfs_peft *adapter, uint64_t alpha, struct rfs_image **out);
