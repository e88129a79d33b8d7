/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/fuse.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "mount/message.h"
#include "mount/mount_options.h"
#include "mount/request_buffer.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

/* ---- the output of libfuse and fusermount3 --------------------------------------------------- */

/* Output that is caught, so that a failure is printed once and in our form. */
struct capture {
    int saved;   /* the real stderr */
    int ends[2]; /* the ends of a pipe in its place */
};

/* Begins to catch output. If that fails, output goes to stderr. */
static void start_capture(struct capture *capture)
{
    fflush(stderr);
    *capture = (struct capture){-1, {-1, -1}};
    /* Who writes more than a pipe holds loses the rest, and does not wait. */
    if (pipe2(capture->ends, O_CLOEXEC | O_NONBLOCK) == 0)
        capture->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (capture->saved >= 0)
        dup2(capture->ends[1], STDERR_FILENO);
}

/* Cuts a text to its first line, without the name of the program. */
static void first_line(char *text)
{
    static const char *const names[] = {"fuse: ", "fusermount3: ", "fusermount: "};

    text[strcspn(text, "\n")] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t n = strlen(names[i]);

        if (strncmp(text, names[i], n) == 0)
            memmove(text, text + n, strlen(text + n) + 1);
    }
}

/* Ends that. LINE is the first line that was printed, without the name of the program, or "". */
static void end_capture(struct capture *capture, char *line, size_t cap)
{
    ssize_t n = 0;

    line[0] = '\0';
    if (capture->saved >= 0) {
        fflush(stderr);
        dup2(capture->saved, STDERR_FILENO);
        close(capture->saved);
        n = read(capture->ends[0], line, cap - 1);
    }
    for (int i = 0; i < 2; i++)
        if (capture->ends[i] >= 0)
            close(capture->ends[i]);
    line[n > 0 ? n : 0] = '\0';
    first_line(line);
}

/* ---- sessions -------------------------------------------------------------------------------- */

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

struct fuse_session *rfs_fuse_session(const struct rfs_mount_options *options,
                                      const struct fuse_lowlevel_ops *ops, void *userdata,
                                      const char *mountpoint, struct rfs_error *err)
{
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    struct fuse_session *session = NULL;
    struct capture capture;
    char said[512];

    start_capture(&capture);
    if (make_args(options, &args) == 0)
        session = fuse_session_new(&args, ops, sizeof *ops, userdata);
    fuse_opt_free_args(&args);
    end_capture(&capture, said, sizeof said);
    if (!session)
        rfs_fail(err, -EINVAL, RFS_IN(mountpoint), NULL, "no FUSE session: %s",
                 said[0] ? said : "out of memory");
    return session;
}

int rfs_fuse_mount(struct fuse_session *session, const char *place, char *said, size_t cap)
{
    struct capture capture;

    start_capture(&capture);
    const int rc = fuse_session_mount(session, place);
    end_capture(&capture, said, cap);
    if (rc != 0 && !said[0])
        snprintf(said, cap, "no reason was given");
    return rc == 0 ? 0 : -EIO;
}
