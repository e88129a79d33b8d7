/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls that a server makes; any other ends it (SIGSYS). The list covers our own code,
 * libfuse, OpenSSL and the C libraries of several years. HACKING.md explains how to add one, and
 * doc/TROUBLESHOOTING.md helps users for whom one is missing.
 */
#include "mount/sandbox.h"

#ifdef HAVE_SECCOMP

#include "base/cleanup.h"

#include <asm/termbits.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* By name, because not every architecture has each of them, nor does each library know all. */
static const char *const allowed[] = {
    /* sources, the folder of indexes, /dev/fuse, the log */
    "openat2 close close_range read readv pread64 preadv preadv2 write writev "
    "pwrite64 pwritev pwritev2 lseek _llseek dup dup2 dup3 stat stat64 lstat lstat64 fstat "
    "fstat64 fstatat64 newfstatat statx statfs statfs64 fstatfs fstatfs64 access faccessat "
    "faccessat2 readlink readlinkat getdents getdents64 getcwd chdir fchdir getxattr "
    "lgetxattr fgetxattr listxattr llistxattr flistxattr fadvise64 fadvise64_64 readahead "
    "unlink unlinkat rename renameat renameat2 fsync fdatasync ftruncate ftruncate64 fallocate "
    "flock pipe pipe2 eventfd2 poll ppoll ppoll_time64 select pselect6 pselect6_time64 send recv "
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

/* Where (argument & mask) == value. */
struct condition {
    const char *name;
    unsigned argument;
    uint64_t mask, value;
};

/*
 * With a source in object storage: connections, the names of hosts, and the addresses of this
 * machine that they are chosen by.
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

/* Both conditions of one call must hold. */
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

/* Of fcntl: none of them has signals sent to others. */
static const int descriptor_commands[] = {
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETPIPE_SZ, F_SETPIPE_SZ,
};

/* All calls of a keeper that has mounted (keeper.c). */
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
    /* Modules that a library loads at their first use (load_early in sandbox.c). */
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

/* Those of a list with a blank between. */
static int add_allowed(scmp_filter_ctx filter, const char *names)
{
    char name[32];
    int rc = 0;

    for (int n; rc == 0 && sscanf(names, "%31s%n", name, &n) == 1; names += n)
        rc = add(filter, SCMP_ACT_ALLOW, name, 0, NULL);
    return rc;
}

/* The N conditions, all of one call, must hold. */
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
    enum rfs_sandbox_process process;
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
    if (rc == 0 && plan->process == RFS_SERVER_OF_OBJECTS)
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
    if (plan->process == RFS_THE_KEEPER)
        return add_allowed(filter, keeper_calls)
                   ?: add_each(filter, keeper_conditions, COUNT(keeper_conditions));
    return fill_server(filter, plan);
}

bool rfs_sandbox_has_calls(void)
{
    const uint32_t action = SECCOMP_RET_KILL_PROCESS;

    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

/* The filter, as the kernel takes it. 0 or -errno. */
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
 * By a process of its own: where memory is short, libseccomp 2.5 may crash. Gives a file of memory,
 * or -errno.
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
 * 0, or -errno. The flag (kernels from 4.17 on) leaves speculation on: no foreign code runs here,
 * and turning it off is expensive.
 */
static int load(const struct sock_fprog *program)
{
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, program) ==
            0 ||
        (errno == EINVAL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) == 0))
        return 0;
    return -errno;
}

/* Or it leaves out rules, and says nothing: so it is asked twice. */
static int load_same(int one, int two)
{
    struct sock_filter first[BPF_MAXINSNS], second[BPF_MAXINSNS];
    const ssize_t n = pread(one, first, sizeof first, 0);

    if (n <= 0 || pread(two, second, sizeof second, 0) != n ||
        memcmp(first, second, (size_t)n) != 0)
        return -ENOMEM;
    const struct sock_fprog program = {
        .len = (unsigned short)((size_t)n / sizeof *first),
        .filter = first,
    };
    return load(&program);
}

int rfs_sandbox_calls(enum rfs_sandbox_filter how, enum rfs_sandbox_process process)
{
    const struct plan plan = {how, process, getpid()};

    if (!rfs_sandbox_has_calls())
        return -ENOSYS;
    RFS_CLOSE int one = compile_apart(&plan);
    if (one < 0)
        return one;
    RFS_CLOSE int two = compile_apart(&plan);
    return two < 0 ? two : load_same(one, two);
}

#else

bool rfs_sandbox_has_calls(void)
{
    return false;
}

int rfs_sandbox_calls(enum rfs_sandbox_filter how, enum rfs_sandbox_process process)
{
    (void)how;
    (void)process;
    return -ENOSYS;
}

#endif
