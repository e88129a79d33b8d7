/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be preloaded into reshardfs, where it does what a program would that somebody has taken over:
 * at SIGUSR1, or instead of the system call with the number RFS_MISBEHAVE_AT, it makes the one that
 * RFS_MISBEHAVE names, and ends with the errno of it as its status, 0 if it worked. RFS_WITHOUT is
 * the number of a system call that this kernel shall not have; with RFS_MOUNT_HANGS, mounting takes
 * as long as the server lives, and with RFS_MOUNT_WAITS until that file is there,
 * beside one with ".begun" behind its name. RFS_UNMOUNT_WAITS makes the end of an unmount by
 * fusermount3 wait in the same way, for a minute at most. RFS_PAGE_BYTES is the size that pages
 * shall have, a multiple of the kernel's, and RFS_NO_MEMORY the number of bytes that nothing can be
 * mapped with.
 * tests/mount/test_sandbox.py builds it.
 */
#include <asm/termbits.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static char what[64], path[4096];
static char mount_waits[4096], unmount_waits[4096];
static int mount_hangs;

static long execute(void)
{
    char *const arguments[] = {(char *)"/bin/true", NULL};
    return execve("/bin/true", arguments, NULL);
}

static long make_process(void)
{
    return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static long connect_out(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static long talk_to_others(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

/* The first descriptor that is a socket: the keeper's, or the system's log. */
static int some_socket(void)
{
    struct stat st;

    for (int fd = 3; fd < 64; fd++)
        if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode))
            return fd;
    return -1;
}

static struct sockaddr_un address(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    strncpy(to.sun_path, "/run/other", sizeof to.sun_path - 1);
    return to;
}

static long connect_again(void)
{
    const struct sockaddr_un to = address();

    return connect(some_socket(), (const struct sockaddr *)&to, sizeof to);
}

static long send_elsewhere(void)
{
    const struct sockaddr_un to = address();

    return sendto(some_socket(), "x", 1, 0, (const struct sockaddr *)&to, sizeof to);
}

static long send_message(void)
{
    struct sockaddr_un to = address();
    struct iovec part = {.iov_base = (void *)"x", .iov_len = 1};
    const struct msghdr message = {
        .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};

    return sendmsg(some_socket(), &message, 0);
}

static long have_signals_sent(void)
{
    return fcntl(0, F_SETOWN, getppid());
}

/* As isatty of glibc from 2.42 on. */
static long ask_terminal(void)
{
    struct termios2 now;

    return ioctl(0, TCGETS2, &now);
}

static long trace(void)
{
    return ptrace(PTRACE_TRACEME, 0, 0, 0);
}

static long mount_something(void)
{
    return mount("none", "/mnt", "tmpfs", 0, NULL);
}

static long unmount(void)
{
    return umount2(path, MNT_DETACH);
}

static long signal_others(void)
{
    return kill(getppid(), 0);
}

/* Gives 0 for a descriptor or another good result, or -1 with errno. */
static long good(long result)
{
    return result >= 0 ? 0 : -1;
}

static long give_powers(void)
{
    return fchmod(open(path, O_RDONLY), 04755);
}

static long make_powerful(void)
{
    return good(open(path, O_WRONLY | O_CREAT | O_EXCL, 06755));
}

/* A filter sees no mode in this call. */
static long make_by_structure(void)
{
    const struct open_how how = {.flags = O_WRONLY | O_CREAT | O_EXCL, .mode = 0777};

    return good(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
}

static long make_folder(void)
{
    return mkdir(path, 0700);
}

static long change_umask(void)
{
    umask(0);
    return 0;
}

static long set_times(void)
{
    return utimensat(AT_FDCWD, path, NULL, 0);
}

static long make_memory_file(void)
{
    return good(memfd_create("code", 0));
}

static long map_code(void)
{
    const int fd = open("/proc/self/exe", O_RDONLY);

    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0), fd,
                0) == MAP_FAILED
               ? -1
               : 0;
}

static long turn_into_code(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return mprotect(page, 4096, PROT_READ | PROT_EXEC);
}

static long become_dumpable(void)
{
    return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static long ask_dumpable(void)
{
    errno = EEXIST;
    return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : -1;
}

/* Calls getpid as 32-bit programs do. */
static long call_as_another_machine(void)
{
#ifdef __x86_64__
    long result = 20;

    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    return result > 0 ? 0 : -1;
#else
    errno = ENOSYS;
    return -1;
#endif
}

static long pair_of_streams(void)
{
    int ends[2];

    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
}

static long pair_of_datagrams(void)
{
    int ends[2];

    return socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
}

static long ask_routes(void)
{
    return good(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
}

static long hear_events(void)
{
    return good(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT));
}

static long write_code(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0) == MAP_FAILED
               ? -1
               : 0;
}

static long share_rings(void)
{
    return syscall(SYS_io_uring_setup, 1, NULL);
}

static long leave_namespace(void)
{
    return syscall(SYS_unshare, 0x10000000);
}

static long change_limits_of_others(void)
{
    return syscall(SYS_prlimit64, getppid(), RLIMIT_CORE, NULL, NULL);
}

static long read_file(void)
{
    return open(path, O_RDONLY);
}

static long write_file(void)
{
    return open(path, O_WRONLY);
}

static long make_file(void)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
}

static long remove_file(void)
{
    return unlink(path);
}

static const struct {
    const char *name;
    long (*act)(void);
} acts[] = {
    {"execve", execute},
    {"clone", make_process},
    {"socket", connect_out},
    {"socket of this machine", talk_to_others},
    {"connect", connect_again},
    {"sendto", send_elsewhere},
    {"sendmsg", send_message},
    {"F_SETOWN", have_signals_sent},
    {"TCGETS2", ask_terminal},
    {"ptrace", trace},
    {"mount", mount_something},
    {"umount2", unmount},
    {"kill", signal_others},
    {"mmap", write_code},
    {"io_uring_setup", share_rings},
    {"unshare", leave_namespace},
    {"prlimit64", change_limits_of_others},
    {"read", read_file},
    {"write", write_file},
    {"make", make_file},
    {"remove", remove_file},
    {"fchmod", give_powers},
    {"open with 06755", make_powerful},
    {"openat2 with 0777", make_by_structure},
    {"mkdir", make_folder},
    {"umask", change_umask},
    {"utimensat", set_times},
    {"memfd_create", make_memory_file},
    {"mmap of code", map_code},
    {"mprotect", turn_into_code},
    {"PR_SET_DUMPABLE", become_dumpable},
    {"PR_GET_DUMPABLE", ask_dumpable},
    {"another machine's call", call_as_another_machine},
    {"socketpair", pair_of_streams},
    {"socketpair of datagrams", pair_of_datagrams},
    {"netlink", ask_routes},
    {"netlink of events", hear_events},
};

static void on_signal(int number)
{
    (void)number;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        if (strcmp(acts[i].name, what) == 0) {
            errno = 0;
            _exit(acts[i].act() >= 0 ? 0 : errno);
        }
    }
    _exit(255);
}

__attribute__((constructor)) static void prepare(void)
{
    const char *const name = getenv("RFS_MISBEHAVE"), *const file = getenv("RFS_MISBEHAVE_PATH");

    mount_hangs = getenv("RFS_MOUNT_HANGS") != NULL;
    if (getenv("RFS_MOUNT_WAITS"))
        strncpy(mount_waits, getenv("RFS_MOUNT_WAITS"), sizeof mount_waits - 1);
    if (getenv("RFS_UNMOUNT_WAITS"))
        strncpy(unmount_waits, getenv("RFS_UNMOUNT_WAITS"), sizeof unmount_waits - 1);
    if (!name)
        return;
    strncpy(what, name, sizeof what - 1);
    strncpy(path, file ? file : "/nothing", sizeof path - 1);
    signal(SIGUSR1, on_signal);
}

static void tell_it_has_begun(const char *waits)
{
    char begun[sizeof mount_waits + 8];

    snprintf(begun, sizeof begun, "%s.begun", waits);
    close(open(begun, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

/* These are the keeper's. It has no environment by then. */
__attribute__((visibility("default"))) void fuse_session_unmount(void *session)
{
    void (*const real)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "fuse_session_unmount");

    real(session);
    if (!unmount_waits[0])
        return;
    tell_it_has_begun(unmount_waits);
    for (int i = 0; i < 6000 && access(unmount_waits, F_OK) != 0; i++)
        usleep(10000);
}

__attribute__((visibility("default"))) int mount(const char *from, const char *at, const char *type,
                                                 unsigned long flags, const void *data)
{
    const pid_t parent = getppid();

    if (mount_waits[0])
        tell_it_has_begun(mount_waits);
    /* The server may have ended before: its keeper is init's then. */
    while ((mount_hangs || (mount_waits[0] && access(mount_waits, F_OK) != 0)) && parent > 1 &&
           getppid() == parent)
        usleep(10000);
    if (mount_hangs)
        _exit(0);
    return (int)syscall(SYS_mount, from, at, type, flags, data);
}

__attribute__((visibility("default"))) long syscall(long number, ...)
{
    const char *const missing = getenv("RFS_WITHOUT"), *const at = getenv("RFS_MISBEHAVE_AT");
    static long (*real)(long, ...);
    va_list list;
    long a[6];

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (at && atol(at) == number)
        on_signal(0);
    if (missing && atol(missing) == number) {
        errno = ENOSYS;
        return -1;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

__attribute__((visibility("default"))) long sysconf(int name)
{
    const char *const bytes = getenv("RFS_PAGE_BYTES");
    static long (*real)(int);

    if (name == _SC_PAGESIZE && bytes)
        return atol(bytes);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}

__attribute__((visibility("default"))) int getpagesize(void)
{
    return (int)sysconf(_SC_PAGESIZE);
}

__attribute__((visibility("default"))) void *mmap(void *at, size_t bytes, int rights, int flags,
                                                  int fd, off_t offset)
{
    const char *const missing = getenv("RFS_NO_MEMORY");
    static void *(*real)(void *, size_t, int, int, int, off_t);

    if (missing && strtoul(missing, NULL, 10) == bytes) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    return real(at, bytes, rights, flags, fd, offset);
}
