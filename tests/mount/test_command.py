# SPDX-License-Identifier: Apache-2.0
"""The command line: options, exit statuses, refusals, and what is said where."""
import json
import os
import pty
import re
import shutil
import subprocess
import sys

from forge import Tree, usual
from harness import *


def small(name="tree", src=4, dst=2):
    return Tree(folder(name), usual(), src, dst)


def test_usage_errors():
    tree, mnt = small(), folder("mnt")
    help_line = "; try: reshardfs --help"
    fails(2, "the source folder is missing" + help_line)
    fails(2, "the source folder is missing" + help_line, "", mnt)
    fails(2, "the mount point is missing" + help_line, tree.src)
    fails(2, "the mount point is missing" + help_line, tree.src, "")
    fails(2, "unexpected argument 'more'" + help_line + "; quotes around paths with blanks", tree.src, mnt, "more")
    blank = os.path.join(folder("my run"), "src.ckpt")
    os.rename(os.path.join(tree.dir, "src_strategy.ckpt"), blank)
    for option in ("-s", "-o"):
        given = (option == "-o") * "src_strategy=" + blank
        fails(2, f"unexpected argument '{mnt}'; try: '{given}', in quotes", tree.src, option, *given.split(" "), mnt)
    fails(2, "unknown flag '-x'" + help_line, tree.src, mnt, "-x")
    fails(2, "unknown flag '--chekc'" + help_line, tree.src, mnt, "--chekc")
    fails(2, "unknown flag '--dst-ranks=4'; try: -o dst_ranks=4", tree.src, mnt, "--dst-ranks=4")
    fails(2, "unexpected argument 'dst_ranks=4'; try: -o dst_ranks=4", tree.src, mnt, "dst_ranks=4")
    fails(2, "'-o' needs a value" + help_line, tree.src, mnt, "-o")
    for option, error in {
        "dst_stratgy=x": "unknown option 'dst_stratgy'; try: dst_strategy=VALUE",
        "allow_othr": "unknown option 'allow_othr'; try: allow_other",
        "something_else": "unknown option 'something_else'" + help_line,
        "io=fast": "option io=fast: not one that is known; try: io=auto, direct or cached",
        "io": "option io needs a value" + help_line,
        "strict=1": "option strict takes no value; try: strict",
        "max_threads=0": "option max_threads=0: not a number from 1 to 256; try: max_threads=16",
    }.items():
        fails(2, error, tree.src, mnt, "-o", tree.options(option))
    check(not mounted(mnt), "something is mounted")


def test_view_options_are_refused_as_usage():
    tree, mnt = small(), folder("mnt")
    for option in ("cache=much", "cache=1e3", "prefix=a/b", "prefix=a\nb", "cache="):
        got = run(reshardfs, tree.src, mnt, "-o", tree.options(option))
        equal((got.returncode, mounted(mnt)), (2, False), option)
        equal(len(got.stderr.splitlines()), 1, got.stderr)
    fails(
        2,
        "neither src_strategy nor dst_strategy is given, so there is nothing to reshard; "
        "try: -o src_strategy=FILE,dst_strategy=FILE; reshard suggest SRC says what else there is",
        tree.src,
        mnt,
    )


def test_info_of_a_mount():
    """One line of options, those of the mount, for a person; all that the kernel and the mount say in JSON."""
    tree = small()
    with Mount(tree.src, tree.options("crc")) as m:
        for path in (m.mnt, m.file(1)):
            got = run(reshard, "info", path)
            lines = got.stdout[got.stdout.index("mount: "):].splitlines()
            equal((got.returncode, lines[0]), (0, f"mount: {m.mnt}, by reshardfs, of {tree.src}"), got.stderr)
            told = lines[1].split("options: ")[1].split(",")
            check(tree.options().split(",")[0] in told and "crc" in told, lines[1])
            check(not lines[2].startswith(" "), lines[2])
        mount = json.loads(run(reshard, "info", "--json", m.mnt).stdout)["mount"]
        check("user_id=" in mount["options"] and mount["xattrs"]["ranks"] == str(tree.dst_n), mount)
    with Mount(tree.src, tree.options("control=no")) as m:
        check("options:" not in run(reshard, "info", m.mnt).stdout, "options of a mount that tells none")


def test_help_and_version():
    got = run(reshardfs, "--help")
    equal((got.returncode, got.stderr), (0, ""), "--help")
    for word in ("SRC", "MNT", "src_strategy=", " io=", "--check", "-u MNT"):
        check(word in got.stdout, f"{word} is not in the help")
    equal(run(reshardfs, "-h").stdout, got.stdout, "-h")
    lines = got.stdout.splitlines()
    for word in ("src_strategy=FILE", "io=auto|direct|cached"):
        check(word in run(reshardfs, "--help-all").stdout, f"{word} is not in --help-all")
    equal((len(lines) <= 23, max(map(len, lines)) <= 80), (True, True), "it fits 24 lines of 80 columns")
    got = run(reshardfs, "-V")
    check(re.match(r"reshardfs \d+\.\d+\.\d+\nlibfuse 3\.\d+", got.stdout), got.stdout)


def test_unmounting():
    t = Tree(folder("tree"), usual(), 2, 2)
    m = Mount(t.src, t.options())
    m.start()
    got = run(reshardfs, "-u", m.mnt)
    equal((got.returncode, got.stdout, got.stderr), (0, "", ""), "an unmount")
    check(not mounted(m.mnt), "it is still mounted")
    eventually(lambda: not servers(m.mnt), "the server ends")
    for words, why in (([m.mnt], f"{m.mnt}: no mount of reshardfs is there; try: one of those that reshard mounts lists"),
                       ([t.src], f"{t.src}: no mount of reshardfs is there; try: one of those that reshard mounts lists"),
                       ([], "the mount point is missing; try: reshardfs -u MNT"),
                       ([m.mnt, t.src], "-u takes one mount point; try: reshardfs -u MNT")):
        got = run(reshardfs, "-u", *words)
        equal((got.returncode, got.stderr), (1 if len(words) == 1 else 2, f"reshardfs: error: {why}\n"), f"-u {words}")


def test_unmounting_what_is_in_use():
    """It is off the tree at once, and users are named and can go on; the server ends with the last of them."""
    t = Tree(folder("tree"), usual(), 2, 2)
    for user in ("folder", "file", "map"):
        m = Mount(t.src, t.options("io=cached"))
        m.start()
        program = {"folder": "input()", "file": "file = open(sys.argv[1], 'rb'); print(); input(); print(len(file.read()))",
                   "map": "file = open(sys.argv[1], 'rb'); m = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ); file.close(); print(); input(); "
                          "print(len(m[:]))"}[user]
        with subprocess.Popen([sys.executable, "-c", "import mmap, sys; print(); " + program, m.file(0)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, cwd=m.mnt if user == "folder" else "/", text=True) as process:
            for _ in range(1 if user == "folder" else 2):
                process.stdout.readline()
            with open(f"/proc/{process.pid}/comm", encoding="utf-8") as file:
                name = file.read().strip()
            got = run(reshardfs, m.mnt, "-u")
            equal((got.returncode, got.stdout, got.stderr),
                  (0, "", f"reshardfs: warning: {m.mnt}: is unmounted, and ends when it is no longer used by {name} ({process.pid})\n"), user)
            check(not mounted(m.mnt), f"{user}: it is still mounted")
            out, _ = process.communicate("\n")
            equal((process.returncode, out.strip()), (0, "" if user == "folder" else str(len(t.expected(0)))), f"what the user of a {user} gets")
        eventually(lambda: not servers(m.mnt), "the server ends with its last user")


def test_output_that_nobody_gets_is_a_failure():
    tree = small()
    note = "reshardfs: parameter 'moment' of [40] is in no strategy, copied unsliced as rank_0 has it\n"
    for before, arguments in (("", ["--help"]), ("", ["--version"]), (note, ["--check", tree.src, "-o", tree.options()])):
        got = run("sh", "-c", 'exec "$@" >/dev/full', "sh", reshardfs, *arguments)
        want = (1, "", before + "reshardfs: error: cannot write to the standard output\n")
        equal((got.returncode, got.stdout, got.stderr), want, arguments[0])


def test_options_of_mount_are_accepted():
    tree = small()
    generic = "rw,dev,suid,noatime,noauto,user,_netdev,nofail,x-systemd.automount,x-a=b,comment=c,noexec"
    with Mount(tree.src, tree.options(*generic.split(","))) as m:
        (source, _, kind, flags), = [x for x in mounts() if x[1] == m.mnt]
        equal((source, kind), (tree.src, "fuse.reshardfs"), "source and type")
        check({"ro", "nosuid", "nodev", "noexec", "max_read=1048576"} <= flags, flags)
        same_bytes(m.read(1), tree.expected(1), "rank 1")


def test_strategies_by_flags():
    tree = small("with, comma")
    src, dst = (os.path.join(tree.dir, name) for name in ("src_strategy.ckpt", "dst_strategy.ckpt"))
    with Mount(tree.src, "nonempty", "-s", src, "-d", dst) as m:
        same_bytes(m.read(1), tree.expected(1), "rank 1")


def test_an_option_with_two_values():
    tree = small()
    for twice in ("prefix=first-,prefix=last-", "io=direct,io=cached"):
        name, first, last = re.match(r"(\w+)=([^,]*),\w+=(.*)", twice).groups()
        fails(2, f"option {name} is given twice, as '{first}' and as '{last}'; try: one of them",
              tree.src, folder("mnt"), "-o", tree.options(twice))
    with Mount(tree.src, "prefix=same-,ro," + tree.options("prefix=same-", "ro")) as m:
        same_bytes(read_all(m.file(1, "same-")), tree.expected(1), "rank 1")


def test_fsname_and_subtype():
    tree = small()
    with Mount(tree.src, tree.options("fsname=a\\,b c", "subtype=shown")) as m:
        (source, _, kind, _), = [x for x in mounts() if x[1] == m.mnt]
        equal((source, kind), ("a,b c", "fuse.shown"), "source and type")


def test_refused_mount_points():
    tree = small()
    inside, full = folder("tree/src/inside"), folder("full")
    o = ["-o", tree.options()]
    file = os.path.join(full, "file")
    with open(file, "w"):
        pass
    elsewhere = "; try: a mount point elsewhere"
    fails(1, f"{inside}: the mount point is inside the source {tree.src}{elsewhere}", tree.src, inside, *o)
    os.rmdir(inside)
    fails(1, f"{tree.src}: the mount point is the source{elsewhere}", tree.src, tree.src, *o)
    fails(1, f"{tree.dir}: the source {tree.src} is inside the mount point{elsewhere}", tree.src, tree.dir, *o)
    link = os.path.join(full, "link")
    os.symlink(tree.dir, link)
    fails(1, f"{tree.dir}: the source {tree.src} is inside the mount point{elsewhere}", tree.src, link, *o)
    fails(1, f"{file}: the mount point is not a folder; try: a folder", tree.src, file, *o)
    fails(
        1,
        f"{full}/none: the mount point cannot be used: No such file or directory; try: mkdir -p {full}/none",
        tree.src,
        f"{full}/none",
        *o,
    )


def test_nonempty():
    tree, full = small(), folder("full")
    with open(os.path.join(full, "file"), "w"):
        pass
    fails(
        1,
        f"{full}: the mount point is not empty; "
        "try: an empty folder, or -o nonempty to cover its content",
        tree.src,
        full,
        "-o",
        tree.options(),
    )
    with Mount(tree.src, tree.options("nonempty"), mnt=full):
        equal(sorted(os.listdir(full)), ["rank_0", "rank_1"], "what is shown")
    equal(os.listdir(full), ["file"], "what was covered")


def test_mounting_twice():
    tree = small("a tree")
    with Mount(tree.src, tree.options()) as m:
        why = f"{m.mnt}: reshardfs already shows {tree.src} here; try: fusermount3 -u {m.mnt}"
        fails(1, why, tree.src, m.mnt, "-o", tree.options())
        fails(1, why, tree.src, m.mnt, "-o", tree.options("fsname=other"))


def test_swapped_source_and_mount_point():
    tree, mnt = small(), folder("mnt")
    why = (f"{tree.src}: the mount point holds folders of ranks, and the source {{0}} is a place to mount on: "
           f"they look swapped; try: reshardfs {tree.src} {{0}}")
    fails(1, why.format(mnt), mnt, tree.src, "-o", tree.options())
    with Mount(tree.src, tree.options()) as m:
        fails(1, why.format(m.mnt), m.mnt, tree.src, "-o", tree.options())


def test_names_with_commas_spaces_and_backslashes():
    tree = small("a,b \\c\\,d")
    mnt = folder("m,n \\o")
    with Mount(tree.src, tree.options("prefix=x\\,y-"), mnt=mnt) as m:
        same_bytes(read_all(m.file(1, "x,y-")), tree.expected(1), "rank 1")
        equal([x[0] for x in mounts() if x[1] == mnt], [tree.src], "the source that mount shows")


def test_relative_paths():
    tree, mnt = small(), folder("mnt")
    options = "src_strategy=tree/src_strategy.ckpt,dst_strategy=./tree/../tree/dst_strategy.ckpt"
    got = run(reshardfs, "tree/src", "mnt", "-o", options, cwd=os.path.dirname(tree.dir))
    equal((got.returncode, got.stderr), (0, ""), "mounting by relative paths")
    same_bytes(read_all(os.path.join(mnt, "rank_1", "checkpoint_1.ckpt")), tree.expected(1), "rank 1")
    unmount(mnt)
    eventually(lambda: not servers("mnt"), "the server ends")


def test_paths_that_end_in_a_slash_or_are_links():
    tree, mnt = small(), folder("mnt")
    links = folder("links")
    os.symlink(tree.src, os.path.join(links, "src"))
    os.symlink(mnt, os.path.join(links, "mnt"))
    for src, spot in ((tree.src + "/", mnt + "/"), (os.path.join(links, "src"), os.path.join(links, "mnt"))):
        got = run(reshardfs, src, spot, "-o", tree.options())
        equal((got.returncode, got.stderr), (0, ""), f"mounting {src} on {spot}")
        equal([x[0] for x in mounts() if x[1] == mnt], [tree.src], "the source that mount shows")
        same_bytes(read_all(os.path.join(mnt, "rank_1", "checkpoint_1.ckpt")), tree.expected(1), "rank 1")
        unmount(mnt)
        eventually(lambda: not servers(spot), "the server ends")


def test_started_in_a_folder_that_is_gone():
    tree, mnt, gone = small(), folder("mnt"), folder("gone")
    start = 'cd "$0" && rmdir "$0" && exec "$@"'
    got = run("sh", "-c", start, gone, reshardfs, tree.src, mnt, "-o", tree.options())
    said = [line for line in got.stderr.splitlines() if line.startswith("reshardfs:")]  # not libtool's wrapper
    equal((got.returncode, said), (0, []), "mounting by absolute paths")
    same_bytes(read_all(os.path.join(mnt, "rank_1", "checkpoint_1.ckpt")), tree.expected(1), "rank 1")
    unmount(mnt)
    eventually(lambda: not servers(mnt), "the server ends")


def test_started_without_standard_descriptors():
    tree, mnt = small(), folder("mnt")
    got = run("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", reshardfs, tree.src, mnt, "-o", tree.options())
    equal(got.returncode, 0, "status")
    same_bytes(read_all(os.path.join(mnt, "rank_1", "checkpoint_1.ckpt")), tree.expected(1), "rank 1")
    unmount(mnt)
    eventually(lambda: not servers(mnt), "the server ends")


def test_check_mounts_nothing():
    tree, mnt = small(), folder("mnt")
    for where in ([], [mnt]):
        got = run(reshardfs, "--check", tree.src, *where, "-o", tree.options())
        told = "reshardfs: parameter 'moment' of [40] is in no strategy, copied unsliced as rank_0 has it\n"
        want = (0, "reshardfs: 4 → 2 ranks, 5 parameters; every rank can be read\n", told)
        equal((got.returncode, got.stdout, got.stderr), want, "--check")
    check(not mounted(mnt), "--check has mounted")


def test_check_finds_what_mounting_cannot_know():
    tree = small()
    tree.write(3, tree.source(3)[:-8])
    with Mount(tree.src, tree.options()):
        pass
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    equal((got.returncode, got.stdout), (1, ""), "status, stdout")
    check(got.stderr.startswith(f"reshardfs: error: {tree.path(3)}: offset "), got.stderr)
    equal(len(got.stderr.splitlines()), 1, got.stderr)


def on_terminal(*command, env):
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    out = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        out += part
    os.close(master)
    return process.wait(PATIENCE), out.decode()


def test_one_line_on_a_terminal():
    tree, mnt = small(), folder("mnt")
    for locale, arrow in (("C.UTF-8", "→"), ("C", "->")):
        got = on_terminal(reshardfs, tree.src, mnt, "-o", tree.options(), env={**os.environ, "LC_ALL": locale})
        line = f"reshardfs: 4 {arrow} 2 ranks, 5 parameters; errors: {mnt}/.reshardfs/log; unmount with: " \
               f"fusermount3 -u {mnt}\r\n"
        equal(got, (0, line), f"what a terminal sees under {locale}")
        unmount(mnt)
        eventually(lambda: not servers(mnt), "the server ends")


def test_ranks_that_take_long_are_counted_on_a_terminal():
    need(shutil.which("strace"), "strace is missing")
    tree = small(src=4, dst=4)
    slowly = ("strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pread64", "-e", "inject=pread64:delay_enter=300000")
    env = {**os.environ, "ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"}
    status, out = on_terminal(*slowly, reshardfs, "--check", tree.src, "-o", tree.options("index_cache=no"), env=env)
    equal(status, 0, out)
    lines = re.findall(r"\rreshardfs: planned (\d) of 4 ranks", out)
    check(lines and lines == sorted(lines) and re.search(r"\r +\r", out), repr(out))
    status, out = on_terminal(reshardfs, "--check", tree.src, "-o", tree.options(), env=dict(os.environ))
    check(status == 0 and "planned" not in out, f"a short one: {out!r}")


def by_mount(*commands, tree, mnt):
    """
    Runs shell commands where mount(8) finds the program: it gives its helpers no PATH, so that only the
    shell's own folders count. One of them is covered by the build's, in a mount namespace.
    """
    needs_namespace("use mount(8)")
    set_up = 'set -e; mount --make-rprivate /; mount --bind "$1" /usr/local/sbin; cd "$5"\n'
    return run(
        *("unshare", "-m", "sh", "-c", set_up + "\n".join(commands), "sh"),
        *(os.path.dirname(reshardfs), tree.src, mnt, tree.options(), folder("out")),
    )


def test_mount_helper():
    tree, mnt = small(), folder("mnt")
    got = by_mount(
        'mount -t fuse.reshardfs "$2" "$3" -o "$4,allow_other"',
        'grep " $3 " /proc/self/mounts >mounts',
        'cp "$3/rank_0/checkpoint_0.ckpt" copy',
        'umount "$3"',
        'status=0; mount -t fuse.reshardfs "$2" "$3" -o "$4,nonsense" || status=$?; echo $status',
        tree=tree,
        mnt=mnt,
    )
    line = "reshardfs: error: unknown option 'nonsense'; try: reshardfs --help\n"
    equal((got.returncode, got.stdout, got.stderr), (0, "2\n", line), "mount -t fuse.reshardfs")
    same_bytes(read_all(os.path.join(folder("out"), "copy")), tree.expected(0), "rank 0")
    check(b" fuse.reshardfs ro,nosuid,nodev" in read_all(os.path.join(folder("out"), "mounts")), "type")
    eventually(lambda: not servers(mnt), "the server ends")


def test_fstab():
    tree, mnt = small("tr,ee"), folder("mnt")
    with open(os.path.join(folder("out"), "fstab"), "w") as file:
        file.write(f"{tree.src} {mnt} fuse.reshardfs {tree.options('noauto', 'x-systemd.automount')} 0 0\n")
    got = by_mount(
        'mount -T fstab "$3"',
        'cp "$3/rank_0/checkpoint_0.ckpt" copy',
        'umount "$3"',
        tree=tree,
        mnt=mnt,
    )
    equal((got.returncode, got.stderr), (0, ""), "mount by fstab")
    same_bytes(read_all(os.path.join(folder("out"), "copy")), tree.expected(0), "rank 0")
    eventually(lambda: not servers(mnt), "the server ends")


def test_systemd_unit():
    """What systemd runs for the unit: mount What Where -t Type -o Options."""
    tree, mnt = small(), folder("mnt")
    given = dict(option.split("=", 1) for option in tree.options().split(","))
    with open(os.path.join(top, "contrib", "systemd", "mnt-ckpt.mount")) as file:
        unit = dict(line.strip().split("=", 1) for line in file if "=" in line and line[0] != "#")
    options = unit["Options"].replace("/ckpt/src.ckpt", given["src_strategy"]).replace("/ckpt/dst.ckpt", given["dst_strategy"])
    equal((unit["What"], unit["Where"]), ("/ckpt/src", "/mnt/ckpt"), "what the unit mounts")
    got = by_mount(
        f'mount "$2" "$3" -t {unit["Type"]} -o {options}',
        'cp "$3/rank_1/checkpoint_1.ckpt" copy',
        'umount "$3"',
        tree=tree,
        mnt=mnt,
    )
    equal((got.returncode, got.stderr), (0, ""), "mounting")
    same_bytes(read_all(os.path.join(folder("out"), "copy")), tree.expected(1), "rank 1")
    eventually(lambda: not servers(mnt), "the server ends")


def test_options_in_contrib_are_known():
    lists = []
    with open(os.path.join(top, "contrib", "fstab.example")) as file:
        lists += [line.split()[3] for line in file if line.strip() and line[0] != "#"]
    with open(os.path.join(top, "contrib", "systemd", "mnt-ckpt.mount")) as file:
        lists += [line[8:].strip() for line in file if line.startswith("Options=")]
    equal(len(lists), 4, "lists of options")
    for options in lists:
        got = run(reshardfs, "--check", os.path.join(folder("mnt"), "none"), "-o", options)
        equal(got.returncode, 1, f"{options}: {got.stderr}")
