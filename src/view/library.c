/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library itself: its version and features, and how results, errors and keys of any view reach
 * or leave a caller, who may have been built with older and smaller structs.
 */
#include "base/processor.h"
#include "store/crypt/cipher.h"
#include "store/remote/remote.h"
#include "view/internal.h"

#ifdef HAVE_HFAI
#define HFAI ", hfai"
#else
#define HFAI ""
#endif

#define FORMATS 96 /* bytes of a list */

static char features[2 * FORMATS + 256];

/* Lists the formats of files that are read, or with WRITTEN those that are shown. Returns OUT. */
static const char *list_formats(bool written, char out[FORMATS])
{
    size_t n = 0;

    for (unsigned i = 0; i < RFS_FORMAT_COUNT && n < FORMATS; i++)
        if (!written || rfs_formats[i].encode)
            n += (size_t)snprintf(out + n, FORMATS - n, "%s%s", i > 0 ? ", " : "",
                                  rfs_formats[i].name);
    return out;
}

static void list_features(void)
{
    char read[FORMATS];
    char written[FORMATS];

    snprintf(features, sizeof features, "reads %s" HFAI "; shows %s" HFAI "; %s; %s; %s kernels",
             list_formats(false, read), list_formats(true, written), rfs_cipher_library(),
             rfs_remote_library() ? rfs_remote_library() : "no object storage",
             rfs_processor_has_avx2() ? "AVX2" : "portable");
}

void reshard_load_modules(void)
{
    rfs_cipher_load();
    rfs_remote_load();
}

int reshard_guard_keys(void)
{
    return rfs_cipher_guard() ? 0 : -EALREADY;
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

/* ---- results and errors ---------------------------------------------------------------------- */

void rfs_view_give(void *to, void *from, size_t size)
{
    size_t theirs;

    memcpy(&theirs, to, sizeof theirs);
    memcpy(from, &theirs, sizeof theirs);
    memcpy(to, from, theirs < size ? theirs : size);
}

int rfs_view_report(reshard_error *out, const struct rfs_error *err, int code)
{
    reshard_error full = {.code = code, .usage = err->usage};

    if (!out || code == 0)
        return code;
    snprintf(full.message, sizeof full.message, "%s", err->text[0] ? err->text : strerror(-code));
    rfs_view_give(out, &full, sizeof full);
    return code;
}

int rfs_view_log_failure(struct rfs_view *view, int rc, const struct rfs_error *err)
{
    if (rc != -EINTR && err->text[0])
        rfs_log_limited(&view->log, RFS_ERROR, "%s", err->text);
    return rc;
}
