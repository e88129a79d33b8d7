/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/arguments.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "mount/capture.h"
#include "mount/report.h"
#include "mount/scratch.h"

static int add_text(struct fuse_args *args, const char *name, const char *value)
{
    RFS_FREE char *escaped = rfs_text_option_value(value);
    RFS_FREE char *option = escaped ? rfs_text_printf("-o%s=%s", name, escaped) : NULL;

    return option ? fuse_opt_add_arg(args, option) : -1;
}

static int make_args(const struct rfs_mount_options *o, struct fuse_args *args)
{
    const struct rfs_options *set = &o->set;
    const struct {
        bool on;
        const char *arg;
    } flags[] = {
        {true, RFS_PROGRAM},
        {true, "-oro,nosuid,nodev"},
        {set->noexec, "-onoexec"},
        {set->allow_other, "-oallow_other"},
        {set->allow_root, "-oallow_root"},
        {set->default_permissions, "-odefault_permissions"},
        {set->auto_unmount, "-oauto_unmount"},
        {set->debug, "-odebug"},
    };
    char max_read[32];

    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (flags[i].on && fuse_opt_add_arg(args, flags[i].arg) < 0)
            return -1;
    snprintf(max_read, sizeof max_read, "-omax_read=%zu", RFS_REQUEST_BYTES);
    if (fuse_opt_add_arg(args, max_read) < 0 ||
        add_text(args, "fsname", set->fsname ? set->fsname : o->source) < 0)
        return -1;
    return add_text(args, "subtype", set->subtype ? set->subtype : RFS_PROGRAM);
}

struct fuse_session *rfs_arguments_session(const struct rfs_mount_options *options,
                                           const struct fuse_lowlevel_ops *ops, void *userdata,
                                           const char *mountpoint, struct rfs_error *err)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct fuse_session *session = NULL;
    struct rfs_capture capture;
    char said[512];

    rfs_capture_start(&capture);
    if (make_args(options, &args) == 0)
        session = fuse_session_new(&args, ops, sizeof *ops, userdata);
    fuse_opt_free_args(&args);
    rfs_capture_end(&capture, said, sizeof said);
    if (!session)
        rfs_fail(err, -EINVAL, RFS_IN(mountpoint), NULL, "no FUSE session: %s",
                 said[0] ? said : "out of memory");
    return session;
}
