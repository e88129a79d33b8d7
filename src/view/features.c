/* SPDX-License-Identifier: Apache-2.0 */
#include "reshard.h"
#include "store/crypt/cipher.h"
#include "store/remote/remote.h"

#include <pthread.h>

#if defined(__x86_64__) || defined(__i386__)
#define AVX2() (__builtin_cpu_supports("avx2") != 0)
#else
#define AVX2() false
#endif

static char features[256];

static void list_features(void)
{
    snprintf(
        features, sizeof features,
        "reads ckpt, safetensors, pt, hfai; shows ckpt, safetensors, pt, hfai; %s; %s; %s kernels",
        rfs_cipher_library(), rfs_remote_library() ? rfs_remote_library() : "no object storage",
        AVX2() ? "AVX2" : "portable");
}

void reshard_load_modules(void)
{
    rfs_cipher_load();
    rfs_remote_load();
}

const char *reshard_version(void)
{
    return RESHARD_VERSION;
}

const char *reshard_features(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, list_features);
    return features;
}
