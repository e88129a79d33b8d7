/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/sandbox.h"

#include "base/cleanup.h"
#include "mount/report.h"

#include <dlfcn.h>
#include <linux/capability.h>
#include <netdb.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(capability) (UINT64_C(1) << (capability))

enum { LINE_BYTES = 256 };

/* ---- new privileges, capabilities, limits ---- */

/*
 * The server needs no message queues and no real-time priority. A core file would contain data of
 * the sources; the limit alone does not hold for one that goes to a program. What it writes is for
 * its user, and cannot be executed.
 */
static void set_limits(void)
{
    const struct rlimit none = {0, 0};

    umask(0177);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_MSGQUEUE, &none);
    setrlimit(RLIMIT_RTPRIO, &none);
}

/*
 * Whether any memory can be locked without a capability; raising the limit takes CAP_SYS_RESOURCE,
 * which goes.
 */
static bool may_lock_all(void)
{
    const struct rlimit any = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit now;

    setrlimit(RLIMIT_MEMLOCK, &any);
    return getrlimit(RLIMIT_MEMLOCK, &now) == 0 && now.rlim_cur == RLIM_INFINITY;
}

/*
 * The capabilities, of those HAD, that reading needs. Root of a container reads the files of others
 * by CAP_DAC_OVERRIDE, where it is not given CAP_DAC_READ_SEARCH. Without CAP_IPC_LOCK a locked
 * page counts against the limit.
 */
static uint64_t needed_of(uint64_t had)
{
    const uint64_t reads =
        had & BIT(CAP_DAC_READ_SEARCH) ? BIT(CAP_DAC_READ_SEARCH) : had & BIT(CAP_DAC_OVERRIDE);

    return reads | (may_lock_all() ? 0 : had & BIT(CAP_IPC_LOCK));
}

static uint64_t unmounting_of(uint64_t had)
{
    return had & BIT(CAP_SYS_ADMIN);
}

/* Finds the capabilities that OF picks from those of the process. */
static int get_needed(uint64_t (*of)(uint64_t had), struct __user_cap_header_struct *head,
                      uint64_t *needed)
{
    struct __user_cap_data_struct sets[2] = {{0}, {0}};

    *head = (struct __user_cap_header_struct){.version = _LINUX_CAPABILITY_VERSION_3};
    if (syscall(SYS_capget, head, sets) != 0)
        return -errno;
    *needed = of(sets[0].effective | (uint64_t)sets[1].effective << 32);
    return 0;
}

static int drop_capabilities(uint64_t (*of)(uint64_t had), uint64_t *kept)
{
    struct __user_cap_header_struct head;
    struct __user_cap_data_struct sets[2];
    const int rc = get_needed(of, &head, kept);

    if (rc < 0)
        return rc;
    /*
     * Where that is not permitted there is nothing in them that could be used, since nothing can be
     * executed.
     */
    for (unsigned long cap = 0; cap < 64; cap++)
        if (!(*kept >> cap & 1))
            (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    for (int i = 0; i < 2; i++) {
        const uint32_t part = (uint32_t)(*kept >> (32 * i));

        sets[i] = (struct __user_cap_data_struct){.effective = part, .permitted = part};
    }
    return syscall(SYS_capset, &head, sets) == 0 ? 0 : -errno;
}

/* ---- files that would otherwise be opened at their first use, too late ---- */

/* Loads the modules that a line "hosts: files mdns [NOTFOUND=return] dns" names. */
static void load_modules_of_hosts(void)
{
    FILE *file = fopen("/etc/nsswitch.conf", "re");
    RFS_FREE char *line = NULL;
    size_t room = 0;

    while (file && getline(&line, &room, file) >= 0) {
        char *rest = line, *word;

        line[strcspn(line, "#\n")] = '\0';
        word = strtok_r(line, " \t:", &rest);
        if (!word || strcmp(word, "hosts") != 0)
            continue;
        while ((word = strtok_r(NULL, " \t:", &rest))) {
            char name[64];

            snprintf(name, sizeof name, "libnss_%s.so.2", word);
            if (!strpbrk(word, "[]=/"))
                (void)dlopen(name, RTLD_NOW | RTLD_NODELETE);
        }
    }
    if (file)
        fclose(file);
}

static void load_early(bool network)
{
    struct addrinfo *found = NULL;

    tzset(); /* for syslog's times */
    if (!network)
        return;
    load_modules_of_hosts();
    if (getaddrinfo("localhost", NULL, NULL, &found) == 0)
        freeaddrinfo(found);
}

/* ---- the two steps ---- */

/* A part is not available: an error with sandbox=on, otherwise a line in the log. */
static int leave_out(enum rfs_sandbox_mode mode, const char *part, int rc, struct rfs_error *err)
{
    char line[LINE_BYTES];

    if (mode == RFS_SANDBOX_ON)
        return rfs_fail(err, rc, RFS_NOWHERE, "sandbox=auto, to do without",
                        "sandbox=on is not possible: %s: %s", part, strerror(-rc));
    snprintf(line, sizeof line, "sandbox: %s is not available here (%s)", part, strerror(-rc));
    rfs_report_line(NULL, RESHARD_LOG_INFO, line);
    return 0;
}

int rfs_sandbox_enter(enum rfs_sandbox_mode mode, bool network, struct rfs_sandbox *out,
                      struct rfs_error *err)
{
    const enum rfs_sandbox_filter filter =
        mode == RFS_SANDBOX_LOG ? RFS_FILTER_LOG : RFS_FILTER_KILL;
    int rc;

    if (mode == RFS_SANDBOX_OFF)
        return 0;
    load_early(network);
    set_limits();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return rfs_fail(err, -errno, RFS_NOWHERE, "sandbox=off",
                        "new privileges cannot be given up: %s", strerror(errno));
    out->entered = true;
    out->network = network;
    rc = drop_capabilities(needed_of, &out->kept);
    out->few_rights = rc == 0;
    if (rc < 0)
        rc = leave_out(mode, "giving up capabilities", rc, err);
    if (rc < 0)
        return rc;
    rc = rfs_sandbox_calls(filter, network ? RFS_SERVER_OF_OBJECTS : RFS_SERVER);
    if (rc < 0)
        return leave_out(mode, "a filter of system calls", rc, err);
    out->filter = filter;
    return 0;
}

int rfs_sandbox_enter_keeper(enum rfs_sandbox_mode mode, struct rfs_error *err)
{
    uint64_t kept;
    int rc;

    if (mode == RFS_SANDBOX_OFF || geteuid() != 0)
        return 0;
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    rc = drop_capabilities(unmounting_of, &kept);
    if (rc < 0)
        rc = leave_out(mode, "giving up capabilities", rc, err);
    if (rc < 0)
        return rc;
    rc = rfs_sandbox_calls(mode == RFS_SANDBOX_LOG ? RFS_FILTER_LOG : RFS_FILTER_KILL,
                           RFS_THE_KEEPER);
    return rc < 0 ? leave_out(mode, "a filter of system calls", rc, err) : 0;
}

int rfs_sandbox_close(enum rfs_sandbox_mode mode, reshard_view *view, struct rfs_sandbox *out,
                      struct rfs_error *err)
{
    char line[LINE_BYTES] = "sandbox: ";
    int rc = 0;

    /* A call that is refused there cannot be logged and allowed. */
    if (mode == RFS_SANDBOX_AUTO || mode == RFS_SANDBOX_ON) {
        const int landlock = rfs_sandbox_landlock();

        rc = landlock > 0 ? rfs_sandbox_files(view, landlock, out->network) : -ENOSYS;
        out->landlock = rc == 0 ? landlock : 0;
        if (rc < 0)
            rc = leave_out(mode, "Landlock", rc, err);
    }
    rfs_sandbox_describe(out, line + strlen(line), sizeof line - strlen(line));
    rfs_report_line(NULL, RESHARD_LOG_DEBUG, line);
    return rc;
}

void rfs_sandbox_look(struct rfs_sandbox *out)
{
    struct __user_cap_header_struct head;
    uint64_t kept = 0;
    const bool known = get_needed(needed_of, &head, &kept) == 0;

    *out = (struct rfs_sandbox){
        .entered = true,
        .few_rights = known,
        .kept = kept,
        .filter = rfs_sandbox_has_calls() ? RFS_FILTER_KILL : RFS_FILTER_NONE,
        .landlock = rfs_sandbox_landlock(),
    };
}

static void describe_rights(const struct rfs_sandbox *s, char *out, size_t cap)
{
    snprintf(out, cap, "%s%s%s%s",
             !s->few_rights ? "capabilities as they were"
             : s->kept      ? "no capability but "
                            : "no capabilities",
             s->kept & BIT(CAP_DAC_READ_SEARCH) ? "CAP_DAC_READ_SEARCH"
             : s->kept & BIT(CAP_DAC_OVERRIDE)  ? "CAP_DAC_OVERRIDE"
                                                : "",
             s->kept & ~BIT(CAP_IPC_LOCK) && s->kept & BIT(CAP_IPC_LOCK) ? " and " : "",
             s->kept & BIT(CAP_IPC_LOCK) ? "CAP_IPC_LOCK" : "");
}

void rfs_sandbox_describe(const struct rfs_sandbox *s, char *out, size_t cap)
{
    static const char *const filters[] = {
        [RFS_FILTER_NONE] = "no filter of system calls",
        [RFS_FILTER_LOG] = "a filter of system calls that only logs",
        [RFS_FILTER_KILL] = "a filter of system calls",
    };
    char landlock[32] = "no Landlock", rights[64];

    if (!s->entered) {
        snprintf(out, cap, "off");
        return;
    }
    if (s->landlock > 0)
        snprintf(landlock, sizeof landlock, "Landlock %d", s->landlock);
    describe_rights(s, rights, sizeof rights);
    snprintf(out, cap, "no new privileges, %s, %s, %s%s", rights, filters[s->filter], landlock,
             s->network ? ", connections to object storage" : "");
}
