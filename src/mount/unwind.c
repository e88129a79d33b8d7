/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/unwind.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

static void *end(void *arg)
{
    (void)arg;
    pthread_exit(NULL); /* this loads it, and keeps where its functions are */
}

/* pthread_exit, too, would abort where it cannot be loaded. */
static int check(struct rfs_error *err)
{
#ifdef __GLIBC__
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_NODELETE);

    if (!library)
        return rfs_fail(err, -ENOENT, RFS_NOWHERE,
                        "install libgcc_s, or a higher limit (ulimit -n, -v)",
                        "threads cannot be ended: %s", dlerror());
    dlclose(library);
#else
    (void)err;
#endif
    return 0;
}

int rfs_unwind_load(struct rfs_error *err)
{
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    int rc = check(err);

    if (rc < 0)
        return rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, end, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return rfs_fail(err, -rc, RFS_NOWHERE, NULL, "no thread can be started: %s", strerror(rc));
    pthread_join(thread, NULL);
    return 0;
}
