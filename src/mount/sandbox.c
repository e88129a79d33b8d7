/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/sandbox.h"

#include "base/cleanup.h"
#include "base/variables.h"
#include "mount/message.h"

#ifdef HAVE_SECCOMP
#include <asm/termbits.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netdb.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE_BYTES = 256 };

enum process { SERVER, SERVER_OF_OBJECTS, KEEPER };

#define BIT(capability) (UINT64_C(1) << (capability))

/* ---- new privileges, capabilities, limits ---------------------------------------------------- */

/*
 * Sets limits. The server needs no message queues and no real-time priority. A core file would
 * contain data of the sources; the limit alone does not hold for one that goes to a program. What
 * it writes is for its user, and cannot be executed.
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
 * Returns whether any memory can be locked without a capability; raising the limit takes
 * CAP_SYS_RESOURCE, which goes.
 */
static bool may_lock_all(void)
{
    const struct rlimit any = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit now;

    setrlimit(RLIMIT_MEMLOCK, &any);
    return getrlimit(RLIMIT_MEMLOCK, &now) == 0 && now.rlim_cur == RLIM_INFINITY;
}

/*
 * Picks the capabilities, of those HAD, that reading needs. Root of a container reads the files of
 * others by CAP_DAC_OVERRIDE, where it is not given CAP_DAC_READ_SEARCH. Without CAP_IPC_LOCK a
 * locked page counts against the limit.
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

/* ---- files that would otherwise be opened at their first use, too late ----------------------- */

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

/* ---- system calls ---------------------------------------------------------------------------- */

/*
 * The system calls that a server makes; any other ends it (SIGSYS). The list covers our own code,
 * libfuse, OpenSSL and the C libraries of several years. HACKING.md explains how to add one, and
 * doc/TROUBLESHOOTING.md helps users for whom one is missing.
 */

#ifdef HAVE_SECCOMP

/*
 * The calls by name, because not every architecture has each of them, nor does each library know
 * all.
 */
static const char *const allowed[] = {
    /* sources, the folder of indexes, /dev/fuse, the log */
    "openat2 close close_range read readv pread64 preadv preadv2 write writev "
    "pwrite64 pwritev pwritev2 lseek _llseek dup dup2 dup3 stat stat64 lstat lstat64 fstat "
    "fstat64 fstatat64 newfstatat statx statfs statfs64 fstatfs fstatfs64 access faccessat "
    "faccessat2 readlink readlinkat getdents getdents64 getcwd chdir fchdir getxattr "
    "lgetxattr fgetxattr listxattr llistxattr flistxattr fadvise64 fadvise64_64 readahead "
    "unlink unlinkat rename renameat renameat2 fsync fdatasync ftruncate ftruncate64 fallocate "
    "flock inotify_init1 inotify_add_watch inotify_rm_watch pipe pipe2 eventfd2 poll ppoll "
    "ppoll_time64 select pselect6 pselect6_time64 send recv "
    "recvfrom recvmsg shutdown",
    /* memory */
    "brk munmap mremap madvise mlock mlock2 munlock mincore membarrier",
    /* threads and waiting */
    "futex futex_time64 futex_waitv set_robust_list get_robust_list rseq set_tid_address "
    "arch_prctl set_thread_area exit exit_group sched_yield sched_getaffinity sched_getparam "
    "sched_getscheduler getcpu restart_syscall",
    /* signals */
    "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait rt_sigtimedwait_time64 "
    "rt_sigpending rt_sigsuspend signalfd4 sigaltstack sigreturn pause",
    /* time */
    "clock_gettime clock_gettime64 clock_getres clock_getres_time64 gettimeofday time "
    "nanosleep clock_nanosleep clock_nanosleep_time64",
    /* itself */
    "getpid getppid gettid getuid getuid32 geteuid geteuid32 getgid getgid32 getegid "
    "getegid32 getresuid getresuid32 getresgid getresgid32 getgroups getgroups32 getpgrp "
    "getpgid getsid setsid uname sysinfo getrusage times getrlimit ugetrlimit setrlimit "
    "getrandom capget",
    /* the second step */
    "landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    /* caches of instructions, where the processor keeps none of them */
    "cacheflush riscv_flush_icache",
};

/* A condition of a call: (argument & mask) == value. */
struct condition {
    const char *name;
    unsigned argument;
    uint64_t mask, value;
};

/*
 * The calls for a source in object storage: connections, the names of hosts, and the addresses of
 * this machine that they are chosen by.
 */
static const char network_calls[] =
    "connect sendto sendmsg sendmmsg recvmmsg getsockname getpeername getsockopt setsockopt bind";

#define ALL UINT32_MAX /* of an int */
#define CREATES (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))
#define POWERS 07111 /* set-user-ID and the like, and execution */
#define SOCKET_TYPE 0xf
#define COUNT(table) (sizeof(table) / sizeof *(table))
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif
#ifdef __s390__
#define CLONE_FLAGS 1
#else
#define CLONE_FLAGS 0
#endif

static const struct condition conditions[] = {
    /* A thread, not a process. */
    {"clone", CLONE_FLAGS, CLONE_THREAD, CLONE_THREAD},
    /* Files are made without the right to execute them. (openat2: the umask.) */
    {"open", 1, CREATES, 0},
    {"open", 2, POWERS, 0},
    {"openat", 2, CREATES, 0},
    {"openat", 3, POWERS, 0},
    /* The times of open files, not of any path. */
    {"utimensat", 1, UINT64_MAX, 0},
    /* No memory becomes code. */
    {"mmap", 2, PROT_EXEC, 0},
    {"mmap2", 2, PROT_EXEC, 0},
    {"mprotect", 2, PROT_EXEC, 0},
    /* Connections that exist already: to the keeper, and to the system's log. */
    {"sendto", 4, UINT64_MAX, 0},
    /* Whether something is a terminal (in the way of glibc from 2.42 on, too), and how wide. */
    {"ioctl", 1, ALL, TCGETS},
#ifdef TCGETS2
    {"ioctl", 1, ALL, TCGETS2},
#endif
    {"ioctl", 1, ALL, TIOCGWINSZ},
    {"ioctl", 1, ALL, FIONREAD},
    {"prctl", 0, ALL, PR_SET_NAME},
    {"prctl", 0, ALL, PR_GET_NAME},
    {"prctl", 0, ALL, PR_SET_VMA},
    {"prctl", 0, ALL, PR_GET_DUMPABLE},
    {"prctl", 0, ALL, PR_SET_PDEATHSIG},
    {"prctl", 0, ALL, PR_GET_NO_NEW_PRIVS},
    /* Its own limits. */
    {"prlimit64", 0, ALL, 0},
};

/* Conditions of one call, both of which must hold. */
static const struct condition pairs[][2] = {
    {{"prctl", 0, ALL, PR_SET_DUMPABLE}, {"prctl", 1, UINT64_MAX, 0}},
};

static const struct condition network_conditions[] = {
    {"socket", 0, ALL, AF_INET},
    {"socket", 0, ALL, AF_INET6},
    {"ioctl", 1, ALL, FIONBIO},
};

static const struct condition network_pairs[][2] = {
    /* A pair of datagram sockets could be connected to any socket of this machine. */
    {{"socketpair", 0, ALL, AF_UNIX}, {"socketpair", 1, SOCKET_TYPE, SOCK_STREAM}},
    {{"socket", 0, ALL, AF_NETLINK}, {"socket", 2, ALL, NETLINK_ROUTE}},
};

/* Commands of fcntl, none of which has signals sent to others. */
static const int descriptor_commands[] = {
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETPIPE_SZ, F_SETPIPE_SZ,
};

/* The calls of a keeper that has mounted (keeper.c). */
static const char keeper_calls[] =
    "recv recvfrom recvmsg sendmsg read readv pread64 write writev lseek _llseek close "
    "fstat fstat64 newfstatat fstatat64 stat stat64 lstat lstat64 statx readlink readlinkat getcwd "
    "access faccessat faccessat2 poll ppoll ppoll_time64 pidfd_open brk munmap mremap madvise "
    "futex "
    "futex_time64 rt_sigaction rt_sigprocmask rt_sigreturn getpid gettid getuid getuid32 geteuid "
    "geteuid32 getrandom clock_gettime clock_gettime64 gettimeofday nanosleep clock_nanosleep "
    "clock_nanosleep_time64 restart_syscall exit exit_group";

static const struct condition keeper_conditions[] = {
    {"open", 1, CREATES, 0},       {"openat", 2, CREATES, 0},
    {"mmap", 2, PROT_EXEC, 0},     {"mmap2", 2, PROT_EXEC, 0},
    {"mprotect", 2, PROT_EXEC, 0}, {"umount2", 1, ALL, MNT_FORCE | MNT_DETACH},
};

/* Calls that libraries try, and do without where they fail. */
static const struct {
    const char *name;
    int code;
} refused[] = {
    {"clone3", ENOSYS}, /* its flags can't be looked at; clone does the same */
    {"mkdir", EACCES},
    {"mkdirat", EACCES},
    {"sched_setaffinity", EPERM},
    {"sched_setscheduler", EPERM},
    {"set_mempolicy", EPERM},
    {"get_mempolicy", ENOSYS},
    {"map_shadow_stack", EOPNOTSUPP},
    {"mseal", ENOSYS},
};

static const struct {
    struct condition condition;
    int code;
} refused_where[] = {
    /* Modules that a library loads at their first use (load_early). */
    {{"mmap", 2, PROT_WRITE | PROT_EXEC, PROT_EXEC}, EPERM},
    {{"mmap2", 2, PROT_WRITE | PROT_EXEC, PROT_EXEC}, EPERM},
    /* The C library connects to the system's log again when that has been started anew. */
    {{"socket", 0, ALL, AF_UNIX}, EPERM},
};

static int add(scmp_filter_ctx filter, uint32_t action, const char *name, unsigned n,
               const struct scmp_arg_cmp *tests)
{
    const int number = seccomp_syscall_resolve_name(name);

    if (number == __NR_SCMP_ERROR)
        return 0;
    const int rc = seccomp_rule_add_array(filter, action, number, n, tests);
    return rc == -EDOM ? 0 : rc; /* this architecture has another way */
}

/* Allows the calls of a list with blanks between. */
static int add_allowed(scmp_filter_ctx filter, const char *names)
{
    char name[32];
    int rc = 0;

    for (int n; rc == 0 && sscanf(names, "%31s%n", name, &n) == 1; names += n)
        rc = add(filter, SCMP_ACT_ALLOW, name, 0, NULL);
    return rc;
}

/* Adds a rule for a call of which N conditions hold. */
static int add_conditions(scmp_filter_ctx filter, uint32_t action, const struct condition *c,
                          unsigned n)
{
    struct scmp_arg_cmp tests[2];

    for (unsigned i = 0; i < n; i++)
        tests[i] = (struct scmp_arg_cmp){
            .arg = c[i].argument,
            .op = SCMP_CMP_MASKED_EQ,
            .datum_a = c[i].mask,
            .datum_b = c[i].value,
        };
    return add(filter, action, c->name, n, tests);
}

static int add_condition(scmp_filter_ctx filter, uint32_t action, const struct condition *c)
{
    return add_conditions(filter, action, c, 1);
}

static int add_pairs(scmp_filter_ctx filter, const struct condition (*pair)[2], size_t n)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_conditions(filter, SCMP_ACT_ALLOW, pair[i], 2);
    return rc;
}

static int add_commands(scmp_filter_ctx filter)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < COUNT(descriptor_commands); i++) {
        const uint64_t command = (uint64_t)descriptor_commands[i];
        const struct condition narrow = {"fcntl", 1, ALL, command};
        const struct condition wide = {"fcntl64", 1, ALL, command};

        rc = add_condition(filter, SCMP_ACT_ALLOW, &narrow)
                 ?: add_condition(filter, SCMP_ACT_ALLOW, &wide);
    }
    return rc;
}

static int add_each(scmp_filter_ctx filter, const struct condition *condition, size_t n)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_condition(filter, SCMP_ACT_ALLOW, &condition[i]);
    return rc;
}

static int add_network(scmp_filter_ctx filter)
{
    return add_allowed(filter, network_calls)
               ?: add_each(filter, network_conditions, COUNT(network_conditions))
               ?: add_pairs(filter, network_pairs, COUNT(network_pairs));
}

static int add_refused(scmp_filter_ctx filter, enum rfs_sandbox_filter how)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < COUNT(refused); i++)
        rc = add(filter, SCMP_ACT_ERRNO((uint32_t)refused[i].code), refused[i].name, 0, NULL);
    /* A filter that only logs does that with all others, too. */
    for (size_t i = 0; rc == 0 && how != RFS_FILTER_LOG && i < COUNT(refused_where); i++)
        rc = add_condition(filter, SCMP_ACT_ERRNO((uint32_t)refused_where[i].code),
                           &refused_where[i].condition);
    return rc;
}

/* A filter to be made. */
struct plan {
    enum rfs_sandbox_filter how;
    enum process process;
    pid_t self;
};

static int fill_server(scmp_filter_ctx filter, const struct plan *plan)
{
    /* Signals go to threads of this process alone. */
    const struct condition to_itself = {"tgkill", 0, ALL, (uint64_t)plan->self};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < COUNT(allowed); i++)
        rc = add_allowed(filter, allowed[i]);
    if (rc == 0)
        rc = add_each(filter, conditions, COUNT(conditions))
                 ?: add_pairs(filter, pairs, COUNT(pairs))
                 ?: add_refused(filter, plan->how) ?: add_commands(filter);
    if (rc == 0 && plan->process == SERVER_OF_OBJECTS)
        rc = add_network(filter);
    return rc == 0 ? add_condition(filter, SCMP_ACT_ALLOW, &to_itself) : rc;
}

static int fill(scmp_filter_ctx filter, const struct plan *plan)
{
    /* System calls of another processor, in which none of these rules would hold. */
    const uint32_t foreign = plan->how == RFS_FILTER_LOG ? SCMP_ACT_LOG : SCMP_ACT_KILL_PROCESS;

    (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* calls are found by bisection */
    const int rc = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, foreign);
    if (rc < 0)
        return rc;
    if (plan->process == KEEPER)
        return add_allowed(filter, keeper_calls)
                   ?: add_each(filter, keeper_conditions, COUNT(keeper_conditions));
    return fill_server(filter, plan);
}

/* Returns whether there is a filter in this build and this kernel. */
static bool has_calls(void)
{
    const uint32_t action = SECCOMP_RET_KILL_PROCESS;

    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

/* Compiles the filter, as the kernel takes it. 0 or -errno. */
static int compile(const struct plan *plan, int fd)
{
    const scmp_filter_ctx filter =
        seccomp_init(plan->how == RFS_FILTER_LOG ? SCMP_ACT_LOG : SCMP_ACT_KILL_PROCESS);
    if (!filter)
        return -ENOMEM;
    int rc = fill(filter, plan) ?: seccomp_export_bpf(filter, fd);
    seccomp_release(filter);
    return rc;
}

/*
 * Compiles it in a process of its own: where memory is short, libseccomp 2.5 may crash. Gives a
 * file of memory, or -errno.
 */
static int compile_apart(const struct plan *plan)
{
    RFS_CLOSE int fd = memfd_create("filter", MFD_CLOEXEC);
    const pid_t child = fd < 0 ? -1 : fork();
    int status = 0;

    if (child < 0)
        return -errno;
    if (child == 0)
        _exit(compile(plan, fd) == 0 ? 0 : 1);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return status == 0 ? rfs_steal_fd(&fd) : -ENOMEM;
}

/*
 * Loads a filter. 0 or -errno. The flag (kernels from 4.17 on) leaves speculation on: no foreign
 * code runs here, and turning it off is expensive.
 */
static int load(const struct sock_fprog *program)
{
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, program) ==
            0 ||
        (errno == EINVAL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) == 0))
        return 0;
    return -errno;
}

/* Loads a filter that was compiled twice: libseccomp may leave out rules and say nothing. */
static int load_same(int one, int two)
{
    const size_t most = BPF_MAXINSNS * sizeof(struct sock_filter);
    RFS_FREE struct sock_filter *first = malloc(most);
    RFS_FREE struct sock_filter *second = malloc(most);
    const ssize_t n = first && second ? pread(one, first, most, 0) : 0;

    if (n <= 0 || pread(two, second, most, 0) != n || memcmp(first, second, (size_t)n) != 0)
        return -ENOMEM;
    const struct sock_fprog program = {
        .len = (unsigned short)((size_t)n / sizeof *first),
        .filter = first,
    };
    return load(&program);
}

/*
 * Sets the filter of system calls of a process. 0, or -errno: -ENOSYS where the build or the kernel
 * has none.
 */
static int filter_calls(enum rfs_sandbox_filter how, enum process process)
{
    const struct plan plan = {how, process, getpid()};

    if (!has_calls())
        return -ENOSYS;
    RFS_CLOSE int one = compile_apart(&plan);
    if (one < 0)
        return one;
    RFS_CLOSE int two = compile_apart(&plan);
    return two < 0 ? two : load_same(one, two);
}

#else

/* Returns whether there is a filter in this build and this kernel. */
static bool has_calls(void)
{
    return false;
}

/*
 * Sets the filter of system calls of a process. 0, or -errno: -ENOSYS where the build or the kernel
 * has none.
 */
static int filter_calls(enum rfs_sandbox_filter how, enum process process)
{
    (void)how;
    (void)process;
    return -ENOSYS;
}

#endif

/* ---- files ----------------------------------------------------------------------------------- */

/*
 * Landlock: the files that the process can still open. It reads sources and /proc, writes the
 * folder of indexes, does both with /dev/null, and opens no other file. Landlock does not restrict
 * looking at names and attributes.
 */

/* The kernel's interface, as of version 6, because the headers at hand may know less of it. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
enum { ASK_VERSION = 1, RULE_BENEATH = 1 };

struct ruleset {
    uint64_t files, network, scoped;
};

struct __attribute__((packed)) rule {
    uint64_t allowed;
    int32_t folder;
};

#define WRITE_FILE (UINT64_C(1) << 1)
#define READ_FILE (UINT64_C(1) << 2)
#define READ_DIR (UINT64_C(1) << 3)
#define REMOVE_FILE (UINT64_C(1) << 5)
#define MAKE_FILE (UINT64_C(1) << 8)
#define TRUNCATE (UINT64_C(1) << 14)

/* Returns the rights on files that a version of Landlock knows. */
static uint64_t known_files(int version)
{
    const unsigned bits = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;

    return (UINT64_C(1) << bits) - 1;
}

/* Returns the version of Landlock, or 0. */
static int landlock_version(void)
{
    const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);

    return version > 0 ? (int)version : 0;
}

struct rules {
    int fd;
    uint64_t known;
};

/* Allows ACCESS to a path. One that is missing or may not be entered needs no rule. */
static int allow(const struct rules *rules, const char *path, uint64_t access)
{
    RFS_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    struct rule rule = {.allowed = access & rules->known, .folder = fd};
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        rule.allowed &= ~READ_DIR; /* there is no such right to a file */
    if (fd < 0)
        return errno == ENOENT || errno == EACCES || errno == ENOTDIR ? 0 : -errno;
    return syscall(SYS_landlock_add_rule, rules->fd, RULE_BENEATH, &rule, 0) == 0 ? 0 : -errno;
}

static int allow_folder(void *ctx, const char *path, bool written)
{
    return allow(ctx, path,
                 READ_FILE | READ_DIR |
                     (written ? WRITE_FILE | REMOVE_FILE | MAKE_FILE | TRUNCATE : 0));
}

/* Allows what finding hosts and trusting their certificates reads, with each new connection. */
static int allow_network(const struct rules *rules)
{
    static const char *const paths[] = {
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/host.conf",
        "/etc/gai.conf",
        "/etc/nsswitch.conf",
        "/etc/services",
        "/etc/ssl",
        "/etc/pki",
        "/etc/ca-certificates",
        "/usr/lib/ssl",
        "/usr/share/ca-certificates",
        "/usr/local/share/ca-certificates",
        "/run/systemd/resolve",
    };
    const char *certificates = rfs_variable_certificates();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof paths / sizeof *paths; i++)
        rc = allow(rules, paths[i], READ_FILE | READ_DIR);
    if (rc == 0 && certificates)
        rc = allow(rules, certificates, READ_FILE);
    return rc;
}

/*
 * Allows from now on only the files that VIEW reads and writes to be opened; with NETWORK also
 * those that names of hosts and certificates take. 0 or -errno.
 */
static int restrict_files(reshard_view *view, int landlock, bool network)
{
    const struct ruleset set = {
        .files = known_files(landlock),
        /* Binding TCP sockets, and connecting them. */
        .network = landlock < 4 ? 0
                   : network    ? 1
                                : 3,
        .scoped = landlock >= 6 ? 3 : 0, /* abstract sockets of others, signals to others */
    };
    const size_t bytes = landlock >= 6   ? sizeof set
                         : landlock >= 4 ? 2 * sizeof(uint64_t)
                                         : sizeof(uint64_t);
    struct rules rules = {-1, set.files};
    int rc;

    RFS_CLOSE int fd = (int)syscall(SYS_landlock_create_ruleset, &set, bytes, 0);
    if (fd < 0)
        return -errno;
    rules.fd = fd;
    rc = allow(&rules, "/dev/null", READ_FILE | WRITE_FILE);
    /*
     * /proc shows which callers are being killed, and which threads sleep. Secrets of others there
     * need the right to trace.
     */
    if (rc == 0)
        rc = allow(&rules, "/proc", READ_FILE | READ_DIR);
    if (rc == 0)
        rc = reshard_folders(view, allow_folder, &rules);
    if (rc == 0 && network)
        rc = allow_network(&rules);
    if (rc == 0 && syscall(SYS_landlock_restrict_self, fd, 0) != 0)
        rc = -errno;
    return rc;
}

/* ---- the two steps --------------------------------------------------------------------------- */

/* Reports a part that is not available: an error with sandbox=on, else a line in the log. */
static int leave_out(enum rfs_sandbox_mode mode, const char *part, int rc, struct rfs_error *err)
{
    char line[LINE_BYTES];

    if (mode == RFS_SANDBOX_ON)
        return rfs_fail(err, rc, RFS_NOWHERE, "sandbox=auto, to do without",
                        "sandbox=on is not possible: %s: %s", part, strerror(-rc));
    snprintf(line, sizeof line, "sandbox: %s is not available here (%s)", part, strerror(-rc));
    rfs_message_put(NULL, RESHARD_LOG_INFO, line);
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
    rc = filter_calls(filter, network ? SERVER_OF_OBJECTS : SERVER);
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
    rc = filter_calls(mode == RFS_SANDBOX_LOG ? RFS_FILTER_LOG : RFS_FILTER_KILL, KEEPER);
    return rc < 0 ? leave_out(mode, "a filter of system calls", rc, err) : 0;
}

int rfs_sandbox_close(enum rfs_sandbox_mode mode, reshard_view *view, struct rfs_sandbox *out,
                      struct rfs_error *err)
{
    char line[LINE_BYTES] = "sandbox: ";
    int rc = 0;

    /* A call that is refused there cannot be logged and allowed. */
    if (mode == RFS_SANDBOX_AUTO || mode == RFS_SANDBOX_ON) {
        const int landlock = landlock_version();

        rc = landlock > 0 ? restrict_files(view, landlock, out->network) : -ENOSYS;
        out->landlock = rc == 0 ? landlock : 0;
        if (rc < 0)
            rc = leave_out(mode, "Landlock", rc, err);
    }
    rfs_sandbox_describe(out, line + strlen(line), sizeof line - strlen(line));
    rfs_message_put(NULL, RESHARD_LOG_DEBUG, line);
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
        .filter = has_calls() ? RFS_FILTER_KILL : RFS_FILTER_NONE,
        .landlock = landlock_version(),
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
