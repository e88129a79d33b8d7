/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshardfs: options, then the background, whose parent waits for its word, then the sandbox, then
 * the view (which finds most mistakes before anything is mounted), then the mount.
 */
#include "base/cleanup.h"
#include "base/home.h"
#include "base/limits.h"
#include "base/pages.h"
#include "base/patience.h"
#include "base/secret.h"
#include "base/store.h"
#include "base/thread.h"
#include "base/variables.h"
#include "mount/fuse.h"
#include "mount/keeper.h"
#include "mount/message.h"
#include "mount/mount_options.h"
#include "mount/mountpoint.h"
#include "mount/request.h"
#include "mount/sandbox.h"
#include "mount/session.h"
#include "mount/unmount.h"
#include "reshard.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the background -------------------------------------------------------------------------- */

/*
 * Going to the background: the outcome goes to the waiting parent over a pipe of our own, so that
 * it knows before it exits that the mount answers, or why it does not. No thread exists when the
 * process forks.
 */
struct daemon {
    int pipe; /* the read end in the parent, the write end in the child; -1 in the foreground */
};

/* The word on the pipe is one struct rfs_error, code 0 for "ready": written at once, as it is. */
_Static_assert(sizeof(struct rfs_error) <= PIPE_BUF,
               "the child's word must be written in one piece");

/*
 * Forks. *child is 0 in the child, which belongs to the terminal until it is ready, and ends with
 * its parent until it says otherwise. 0, or -errno.
 */
static int start_daemon(struct daemon *daemon, pid_t *child, struct rfs_error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return rfs_fail(err, -errno, RFS_NOWHERE, NULL, "no pipe to the background: %s",
                        strerror(errno));
    *child = fork();
    if (*child < 0) {
        const int code = errno;

        close(ends[0]);
        close(ends[1]);
        return rfs_fail(err, -code, RFS_NOWHERE, "-f, to stay in the foreground",
                        "cannot go to the background: %s", strerror(code));
    }
    if (*child > 0) {
        close(ends[1]);
        daemon->pipe = ends[0];
        return 0;
    }
    close(ends[0]);
    daemon->pipe = ends[1];
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    rfs_message_reach_syslog();
    return 0;
}

/* Says why there was no word. */
static int report_end(pid_t child, struct rfs_error *err)
{
    int status = 0;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        return rfs_fail(err, -EIO, RFS_NOWHERE,
                        "sandbox=log and dmesg, to see which; sandbox=off, to do without",
                        "the sandbox has ended the server for a system call that it does not know");
    if (WIFSIGNALED(status))
        return rfs_fail(err, -EIO, RFS_NOWHERE, "--debug, to see how far it gets",
                        "signal %d (%s) ended the server before the mount answered",
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
    return rfs_fail(err, -EIO, RFS_NOWHERE, "--debug, to see how far it gets",
                    "the server ended before the mount answered");
}

/*
 * Waits, in the parent, for the child's word. 0 when it is ready, or -errno with the child's error.
 */
static int wait_for_word(struct daemon *daemon, pid_t child, struct rfs_error *err)
{
    struct rfs_error word = {0};
    char *to = (char *)&word;
    size_t got = 0;

    while (got < sizeof word) {
        const ssize_t n = read(daemon->pipe, to + got, sizeof word - got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    close(daemon->pipe);
    daemon->pipe = -1;
    if (got < sizeof word)
        return report_end(child, err);
    word.text[sizeof word.text - 1] = '\0';
    *err = word;
    return word.code;
}

static int send_word(struct daemon *daemon, const struct rfs_error *word)
{
    const ssize_t n = write(daemon->pipe, word, sizeof *word);
    const int rc = n == (ssize_t)sizeof *word ? 0 : n < 0 ? -errno : -EIO;

    close(daemon->pipe);
    daemon->pipe = -1;
    return rc;
}

/* Lets go of the terminal. 0 or -errno. */
static int leave_terminal(void)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    setsid();
    if (chdir("/") != 0)
        return -errno;
    rfs_message_use_syslog();
    if (null < 0)
        return -errno;
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
    return 0;
}

/* Makes the child outlive its parent from now on. By the thread that began in it. */
static void outlive_parent(void)
{
    (void)prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
}

/*
 * Lets the child go of the terminal, lead a session of its own in "/", and send the word. 0, or
 * -EPIPE when the parent has gone (it was interrupted), and so wants no mount. Does nothing in the
 * foreground.
 */
static int send_ready(struct daemon *daemon)
{
    const struct rfs_error ready = {0};

    if (daemon->pipe < 0)
        return 0;
    const int rc = leave_terminal();
    return rc == 0 ? send_word(daemon, &ready) : rc;
}

/* Hands the parent the error to print. Returns whether there was a parent to take it. */
static bool send_failure(struct daemon *daemon, const struct rfs_error *err)
{
    return daemon->pipe >= 0 && send_word(daemon, err) == 0;
}

/* ---- messages to users ----------------------------------------------------------------------- */

static void show_version(void)
{
    struct rfs_sandbox sandbox;
    char text[128];

    rfs_sandbox_look(&sandbox);
    rfs_sandbox_describe(&sandbox, text, sizeof text);
    printf("reshardfs %s\nlibfuse %s\n%s\nsandbox: %s%s\n", reshard_version(), fuse_pkgversion(),
           reshard_features(), text,
           RFS_SANDBOX_DEFAULT == RFS_SANDBOX_OFF ? "; not by default" : "");
}

/* Copies the library's failure into our own form. */
static void adopt(struct rfs_error *err, const reshard_error *from)
{
    err->code = from->code;
    err->usage = from->usage != 0;
    snprintf(err->text, sizeof err->text, "%s", from->message);
}

/* Writes "8 → 4 ranks, 412 parameters", with an ASCII arrow where the locale is not UTF-8. */
static void summarize(char *out, size_t cap, reshard_view *view)
{
    const char *arrow = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? "\u2192" : "->";
    reshard_summary sum = {.struct_size = sizeof sum};
    int n;

    reshard_summarize(view, &sum);
    if (sum.entries <= 1) { /* the root alone */
        snprintf(out, cap, "no complete save yet");
        return;
    }
    n = snprintf(out, cap, "%" PRIu32 " %s %" PRIu32 " %s", sum.source_ranks, arrow,
                 sum.target_ranks, sum.target_ranks == 1 ? "rank" : "ranks");
    if (sum.parameters > 0 && n >= 0 && (size_t)n < cap)
        snprintf(out + n, cap - (size_t)n, ", %" PRIu64 " %s", sum.parameters,
                 sum.parameters == 1 ? "parameter" : "parameters");
}

/* The count of ranks that are read or planned, shown on a terminal after half a second. */
struct progress {
    const char *what;
    struct timespec begun, drawn;
    bool shown;
};

static double passed(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

static void show_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *progress = ctx;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (passed(&progress->begun, &now) < 0.5 || passed(&progress->drawn, &now) < 0.1)
        return;
    fprintf(stderr, "\r%s: %s %" PRIu64 " of %" PRIu64 " ranks", RFS_PROGRAM, progress->what, done,
            total);
    progress->drawn = now;
    progress->shown = true;
}

/* Returns the function that shows progress; NULL without a terminal. */
static reshard_progress_fn *begin_progress(struct progress *progress, const char *what)
{
    *progress = (struct progress){.what = what};
    clock_gettime(CLOCK_MONOTONIC, &progress->begun);
    return isatty(STDERR_FILENO) ? show_progress : NULL;
}

static void end_progress(const struct progress *progress)
{
    if (progress->shown)
        fprintf(stderr, "\r%*s\r", 60, "");
}

static int open_view(const struct rfs_mount_options *options, reshard_view **view,
                     struct rfs_error *err)
{
    struct progress progress;
    const size_t n = options->view.list.n;
    RFS_FREE reshard_option *pairs = calloc(n + 1, sizeof *pairs);
    const reshard_config config = {
        .struct_size = sizeof config,
        .log = rfs_message_put,
        .progress = begin_progress(&progress, "headers of"),
        .progress_ctx = &progress,
        .for_others = options->set.allow_other || options->set.allow_root,
        .pairs = pairs,
        .pair_count = n,
        .follow = options->set.follow,
    };
    reshard_error why = {.struct_size = sizeof why};
    int rc;

    if (!pairs)
        return rfs_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        pairs[i] =
            (reshard_option){options->view.list.data[i].name, options->view.list.data[i].value};
    rc = reshard_open(options->source, &config, view, &why);
    end_progress(&progress);
    if (rc < 0)
        adopt(err, &why);
    return rc;
}

/* Plans each file. 0, or -errno with *err filled. */
static int check_all(reshard_view *view, struct rfs_error *err)
{
    reshard_error why = {.struct_size = sizeof why};
    struct progress progress;
    reshard_progress_fn *show = begin_progress(&progress, "planned");
    const int rc = reshard_check(view, show, &progress, &why);

    rfs_patience_end();
    end_progress(&progress);
    if (rc < 0)
        adopt(err, &why);
    return rc;
}

/* Refuses a mount for its strategies, or with check_first for any file. */
static int check_first(const struct rfs_mount_options *options, reshard_view *view,
                       struct rfs_error *err)
{
    reshard_error why = {.struct_size = sizeof why};

    if (options->set.check_first)
        return check_all(view, err);
    const int rc = reshard_check_strategies(view, &why);
    rfs_patience_end();
    if (rc < 0)
        adopt(err, &why);
    return rc;
}

static int check(reshard_view *view, struct rfs_error *err)
{
    char summary[128];
    const int rc = check_all(view, err);

    if (rc < 0)
        return rc;
    summarize(summary, sizeof summary, view);
    printf("%s: %s; every rank can be read\n", RFS_PROGRAM, summary);
    return 0;
}

/* Prints the line that a user at a terminal sees; scripts get none. */
static void greet(const char *summary, const char *mountpoint)
{
    if (isatty(STDOUT_FILENO)) {
        printf("%s: %s; errors: %s/" RESHARD_CONTROL "/log; unmount with: fusermount3 -u %s\n",
               RFS_PROGRAM, summary, mountpoint, mountpoint);
        fflush(stdout);
    }
}

/* Says where the reasons are, when some of the files cannot be read already. */
static void tell_log(const char *mountpoint)
{
    char line[PATH_MAX + 128];

    snprintf(line, sizeof line,
             "files that need it cannot be read; the reasons are in %s/" RESHARD_CONTROL "/log",
             mountpoint);
    rfs_message_put(NULL, RESHARD_LOG_WARNING, line);
}

struct greeting {
    struct daemon *daemon;
    const char *summary, *mountpoint;
};

static int answers(void *ctx)
{
    const struct greeting *g = ctx;

    greet(g->summary, g->mountpoint);
    return send_ready(g->daemon);
}

/* The mount point, and the processes that belong to it. */
struct place {
    char *resolved; /* owned; NULL: nothing is mounted */
    int folder;     /* what was looked at there, for the keeper; or -1 */
    struct rfs_keeper keeper;
    struct daemon daemon;
};

static void close_folder(struct place *place)
{
    if (place->folder >= 0)
        close(rfs_steal_fd(&place->folder));
}

static int mount_view(const struct rfs_mount_options *options, struct place *place,
                      const struct rfs_sandbox *sandbox, reshard_view *view, struct rfs_error *err)
{
    char summary[128];
    struct greeting greeting = {&place->daemon, summary, options->mountpoint};

    const int rc = check_first(options, view, err);
    if (rc < 0)
        return rc;
    if (rfs_message_any_error())
        tell_log(options->mountpoint);
    summarize(summary, sizeof summary, view);
    outlive_parent();
    return rfs_session_run(options, place->resolved, &place->keeper, sandbox, view, answers,
                           &greeting, err);
}

/* ---- ending threads -------------------------------------------------------------------------- */

/* Ends the thread that it runs in. */
static void *end_thread(void *arg)
{
    (void)arg;
    pthread_exit(NULL); /* this loads it, and keeps where its functions are */
}

/* Fails where the library cannot be loaded: pthread_exit, too, would abort then. */
static int check_unwind(struct rfs_error *err)
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

/*
 * Loads what ending threads takes: libfuse ends its threads by pthread_cancel(3), for which the GNU
 * C library loads libgcc_s.so.1 when it is first called, and aborts where it cannot: when the
 * server is to end, and no descriptor or address is left. Here it is loaded while there are some.
 * Starts a thread, which has ended on return. 0, or -errno with *err filled.
 */
static int load_unwind(struct rfs_error *err)
{
    pthread_t thread;
    int rc = check_unwind(err);

    if (rc < 0)
        return rc;
    rc = rfs_thread_start(&thread, end_thread, NULL);
    if (rc != 0)
        return rfs_fail(err, -rc, RFS_NOWHERE, NULL, "no thread can be started: %s", strerror(rc));
    pthread_join(thread, NULL);
    return 0;
}

/* ---- serving --------------------------------------------------------------------------------- */

/* Makes the folder of index_cache=, which the sandbox does not let the server make. */
static void make_kept(const struct rfs_mount_options *options)
{
    struct rfs_home kept;
    const char *given = NULL;

    for (size_t i = 0; i < options->view.list.n; i++)
        if (strcmp(options->view.list.data[i].name, "index_cache") == 0)
            given = options->view.list.data[i].value;
    if (options->set.sandbox == RFS_SANDBOX_OFF || (given && strcmp(given, "no") == 0) ||
        !rfs_home_find(given, &kept))
        return;
    (void)rfs_home_make(&kept); /* a failure is reported where the folder is used */
    rfs_home_free(&kept);
}

/*
 * Serves the mount, or checks the source. From here on there is one process, with a keeper if it
 * mounts. The sandbox begins before any file of the source is read.
 */
static int serve(const struct rfs_mount_options *options, struct place *place, char **argv,
                 struct rfs_error *err)
{
    const bool mounts = place->folder >= 0;
    struct rfs_sandbox sandbox = {0};
    reshard_view *view = NULL;
    int rc = 0;

    if (mounts)
        rc = rfs_keeper_start(options, place->resolved, place->folder, argv, &place->keeper, err);
    close_folder(place);
    /* The sandbox opens no library. */
    if (rc == 0 && place->resolved)
        rc = load_unwind(err);
    if (rc == 0)
        make_kept(options);
    if (rc == 0 && (rfs_options_keyed(&options->set) || options->objects))
        reshard_load_modules();
    /* The sandbox sets no alarm. */
    if (rc == 0 && options->objects)
        rfs_patience_begin(RFS_PROGRAM,
                           rfs_store_is_url(options->source) ? options->source : "object storage");
    if (rc == 0)
        rc = rfs_sandbox_enter((enum rfs_sandbox_mode)options->set.sandbox, options->objects,
                               &sandbox, err);
    if (rc == 0)
        rc = open_view(options, &view, err);
    if (options->objects)
        rfs_variables_wipe(); /* the view has its copies, in memory of their own */
    if (rc == 0 && mounts)
        rc = rfs_mountpoint_check_device(err);
    if (rc == 0)
        rc = rfs_sandbox_close((enum rfs_sandbox_mode)options->set.sandbox, view, &sandbox, err);
    if (rc == 0)
        rc = place->resolved ? mount_view(options, place, &sandbox, view, err) : check(view, err);
    reshard_close(view);
    rfs_guard_rest();
    if (rc < 0 && send_failure(&place->daemon, err))
        *err = (struct rfs_error){.code = rc};
    return rc;
}

static int run(const struct rfs_mount_options *options, char **argv, struct rfs_error *err)
{
    const bool mounts = options->action == RFS_ACTION_MOUNT;
    struct place place = {NULL, -1, RFS_KEEPER_NONE, {-1}};
    pid_t child = 0;
    int rc = 0;

    if (mounts)
        rc = rfs_mountpoint_open(options, &place.resolved, &place.folder, err);
    if (rc == 0 && (rfs_options_keyed(&options->set) || options->objects))
        rc = rfs_secret_harden(err);
    if (rc == 0 && rfs_options_keyed(&options->set)) {
        (void)reshard_guard_keys(); /* nothing has used OpenSSL yet */
        rfs_pages_wipe_all();       /* those of this program; the library has its own */
    }
    if (rc == 0 && mounts && !options->foreground) {
        fflush(stdout);
        rc = start_daemon(&place.daemon, &child, err);
    }
    if (rc == 0)
        rc = child > 0 ? wait_for_word(&place.daemon, child, err)
                       : serve(options, &place, argv, err);
    close_folder(&place);
    free(place.resolved);
    return rc;
}

/*
 * Opens the descriptors of 0 to 2 that the parent process has closed. Nothing opened later may get
 * their numbers, because the background replaces these three.
 */
static void fill_standard_descriptors(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

/*
 * Bounds the memory of malloc. A heap for each thread would keep freed memory for that thread
 * alone. Reads allocate little, so two heaps are enough for all threads. Large blocks go back to
 * the system when they are freed.
 */
static void bound_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}

/* Ends the output: a success whose output was not written is a failure. */
static int finish_output(struct rfs_error *err)
{
    return fflush(stdout) == 0 && !ferror(stdout)
               ? 0
               : rfs_fail(err, -EIO, RFS_NOWHERE, NULL, "cannot write to the standard output");
}

/* Writes "reshardfs: error: …". Returns the exit status that belongs to it. */
static int put_error(const struct rfs_error *err)
{
    rfs_message_put(NULL, RESHARD_LOG_ERROR, err->text);
    return err->usage ? RFS_EXIT_USAGE : RFS_EXIT_INPUT;
}

int main(int argc, char **argv)
{
    struct rfs_mount_options options;
    struct rfs_error err = {0};
    int rc, status = 0;

    /* A parent that ignores it passes that on, and the ends of our own processes are asked for. */
    signal(SIGCHLD, SIG_DFL);
    /*
     * A file that may not become longer (ulimit -f), a log or an index, is not written; the server
     * goes on.
     */
    signal(SIGXFSZ, SIG_IGN);
    fill_standard_descriptors();
    bound_memory();
    rfs_limits_raise_files();
    if (rfs_limits_raise_stack(&err) < 0)
        return put_error(&err);
    setlocale(LC_CTYPE, "");
    rc = rfs_mount_options_parse(argc, argv, &options, &err);
    if (rc == 0) {
        rfs_message_set_level((enum reshard_level)options.set.log_level);
        if (options.action == RFS_ACTION_HELP || options.action == RFS_ACTION_HELP_ALL)
            rfs_mount_options_help(options.action == RFS_ACTION_HELP_ALL);
        else if (options.action == RFS_ACTION_VERSION)
            show_version();
        else if (options.action == RFS_ACTION_UNMOUNT)
            rc = rfs_unmount_path(options.mountpoint, &err);
        else
            rc = run(&options, argv, &err);
        if (rc == 0 && options.action != RFS_ACTION_MOUNT)
            rc = finish_output(&err);
    }
    if (rc < 0)
        status = err.text[0] ? put_error(&err) : RFS_EXIT_INPUT;
    rfs_mount_options_free(&options);
    return status;
}
