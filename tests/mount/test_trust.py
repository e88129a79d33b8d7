# SPDX-License-Identifier: Apache-2.0
"""What others get to see of sources that they may not read, or that one of them puts in another's place."""
import errno
import os
import shutil
import subprocess

from forge import Param, Tree
from harness import *

BOB = 65533  # the tree is his
NOBODY = 65534
ALONE = [Param("w", (256, 1024), 0, 0)]  # file R is made from rank R alone
OUT = (
    "a symbolic link leads out of the source; try: move it there, or follow_links, "
    "if every user with write permission there may read your files"
)


def as_user(uid, *command, gid=None, groups=(), **how):
    who = [f"--reuid={uid}", f"--regid={gid or uid}"]
    who += ["--groups=" + ",".join(map(str, groups))] if groups else ["--clear-groups"]
    return run("setpriv", *who, *command, **how)


def reads(uid, path, **who):
    """The bytes that the user gets, or how that fails."""
    got = as_user(uid, "cat", path, text=False, **who)
    return got.stdout if got.returncode == 0 else got.stderr.decode().rsplit(": ", 1)[-1].strip()


def needs_root():
    need(os.geteuid() == 0 and shutil.which("setpriv"), "only root may become somebody else")


def bobs(name="tree", ranks=2, mode=0o644):
    """A tree of Bob's that everybody may read."""
    tree = Tree(folder(name), ALONE, ranks, ranks)
    for where, folders, files in os.walk(tree.dir):
        os.chown(where, BOB, BOB)
        for file in files:
            os.chown(os.path.join(where, file), BOB, BOB)
            os.chmod(os.path.join(where, file), mode)
    return tree


def secret(ranks=2):
    """A checkpoint of root's of the same form, in a folder that nobody else may search."""
    os.chmod(folder("private"), 0o700)
    tree = Tree(os.path.join(folder("private"), "tree"), ALONE, ranks, ranks, version=7)
    for rank in range(ranks):
        os.chmod(tree.path(rank), 0o644)
    return tree


def point(link, target):
    """LINK leads to TARGET from now on."""
    if os.path.islink(link) or os.path.isfile(link):
        os.unlink(link)
    elif os.path.isdir(link):
        shutil.rmtree(link)
    os.symlink(target, link)


# ---- links out of the tree -------------------------------------------------------------------------------


def test_links_out_of_the_tree_are_not_mounted():
    needs_root()
    hidden = secret()
    cases = {
        "file": lambda t: (t.path(1), hidden.path(1)),
        "folder": lambda t: (os.path.dirname(t.path(1)), os.path.dirname(hidden.path(1))),
        "above": lambda t: (t.path(1), os.path.join("..", "..", "..", "private", "tree", "src", "rank_1", "net-1_1.ckpt")),
    }
    for name, where in cases.items():
        tree = bobs(name)
        link, target = where(tree)
        point(link, target)
        for options in ("allow_other", "ro"):
            fails(1, f"{link}: {OUT}", tree.src, folder("mnt"), "-o", tree.options(options))
        with Mount(tree.src, tree.options("allow_other,follow_links")) as m:
            same_bytes(m.read(1), hidden.expected(1), f"{name}, with follow_links")
            equal(reads(NOBODY, m.file(1)), "Permission denied", f"{name}: the folder above it is root's alone")


def test_links_out_of_the_tree_put_there_later():
    """Before a file's first use, and after it; in place of the file, and of its folder."""
    needs_root()
    hidden = secret(4)
    for used in (False, True):
        for name in ("file", "folder"):
            tree = bobs(f"{name}-{used}", ranks=4)
            link, target = tree.path(3), hidden.path(3)  # a rank that is not compared with the first
            if name == "folder":
                link, target = os.path.dirname(link), os.path.dirname(target)
            with Mount(tree.src, tree.options("allow_other,cache=0"), mnt=folder(f"mnt-{name}-{used}")) as m:
                if used:
                    same_bytes(reads(NOBODY, m.file(3)), tree.expected(3), "before")
                point(link, target)
                got = reads(NOBODY, m.file(3))
                check(got in ("Stale file handle", "Invalid cross-device link"), f"{name}, used {used}: {got[:60]!r}")
                same_bytes(reads(NOBODY, m.file(0)), tree.expected(0), "the other file")
                if not used:
                    check(f"{tree.path(3)}: {OUT}" in read_all(os.path.join(m.mnt, ".reshardfs", "log")).decode(), "the log tells")


def test_a_closed_source_is_opened_beneath_the_tree_again():
    """A link that becomes another between two openings of one path: the descriptor pool has closed the file meanwhile."""
    needs_root()
    os.chmod(folder("private"), 0o700)
    n = 300
    tree = Tree(folder("tree"), [Param("w", (n * 16, 64), 0, 0)], n, n)
    other = Tree(os.path.join(folder("private"), "other"), [Param("w", (n * 16, 64), 0, 0)], n, n, version=3)
    for rank in range(n):
        os.chmod(tree.path(rank), 0o644)
    with Mount(tree.src, tree.options("allow_other,cache=0,index_cache=no")) as m:
        for rank in range(n):  # more than may be open at once: the first ones are closed again
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        point(tree.path(0), other.path(0))
        equal(reads(NOBODY, m.file(0)), "Stale file handle", "another file")


def test_links_within_the_tree_are_followed():
    needs_root()
    tree = bobs()
    store = os.path.join(tree.src, "store")
    os.makedirs(store)
    for rank in range(2):
        os.rename(tree.path(rank), os.path.join(store, f"blob{rank}"))
    os.symlink("../store/blob0", tree.path(0))
    os.symlink(os.path.join(store, "blob1"), tree.path(1))  # absolute
    os.rename(os.path.dirname(tree.path(1)), os.path.join(store, "one"))
    os.symlink("store/one", os.path.dirname(tree.path(1)))
    without = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=openat2", "-e", "inject=openat2:error=ENOSYS"]
    need(shutil.which("strace"), "strace is missing")
    for before in ((), without):
        with Foreground(tree.src, tree.options("allow_other"), before=before) as m:
            for rank in range(2):
                same_bytes(reads(NOBODY, m.file(rank)), tree.expected(rank), f"rank {rank}")


def test_links_out_of_the_tree_without_openat2():
    needs_root()
    need(shutil.which("strace"), "strace is missing")
    hidden = secret(4)
    for error in ("ENOSYS", "EPERM"):
        tree = bobs(error, ranks=4)
        before = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=openat2", "-e", f"inject=openat2:error={error}"]
        with Foreground(tree.src, tree.options("allow_other"), before=before) as m:
            same_bytes(reads(NOBODY, m.file(0)), tree.expected(0), "a file that is none")
            point(tree.path(3), hidden.path(3))
            equal(reads(NOBODY, m.file(3)), "Invalid cross-device link", error)


def test_links_of_one_file_and_of_maps():
    """A file that is named is opened beneath its folder: what it is called is the user's word, a link in its place is not."""
    needs_root()
    hidden, tree = secret(), bobs()
    mapped = os.path.join(tree.dir, "map.json")
    with open(mapped, "w") as file:
        file.write(f'{{"0": "src/rank_0/net-1_0.ckpt", "1": "{tree.path(1)}"}}')
    os.rename(tree.path(0), tree.path(0) + ".0")
    os.symlink("net-1_0.ckpt.0", tree.path(0))  # in the same folder
    elsewhere = folder("elsewhere")
    for source in (tree.src, elsewhere):
        with Mount(source, tree.options(f"allow_other,files={mapped}")) as m:
            for rank in range(2):
                same_bytes(reads(NOBODY, m.file(rank)), tree.expected(rank), f"rank {rank}, source {source}")
    one = os.path.join(tree.dir, "one.ckpt")
    shutil.copy(tree.path(0), one)
    os.chmod(one, 0o644)
    whole = "dst_rules=*: whole,dst_ranks=1,allow_other"
    with Mount(one, whole) as m:
        check(len(reads(NOBODY, m.file(0))) > 256, "one file")
    with Mount(one, whole) as m:
        point(one, hidden.path(1))
        equal(reads(NOBODY, m.file(0)), "Stale file handle", "one file, replaced: rules have read its names")
    point(tree.path(1), hidden.path(1))
    fails(1, f"{tree.path(1)}: {OUT}", elsewhere, folder("mnt"), "-o", tree.options(f"allow_other,files={mapped}"))


def test_links_of_weight_maps():
    """What a map of files in the source leads to, is not read and not quoted."""
    needs_root()
    secret_json = os.path.join(folder("private"), "secret.json")
    os.chmod(folder("private"), 0o700)
    with open(secret_json, "w") as file:
        file.write('{"weight_map": {"password": "hunter2"}}')
    src = folder("huggingface")
    os.symlink(secret_json, os.path.join(src, "model.safetensors.index.json"))
    got = run(reshardfs, src, folder("mnt"), "-o", "format=safetensors,allow_other")
    equal(got.returncode, 1, "status")
    check("hunter2" not in got.stderr and OUT in got.stderr, got.stderr)


def test_links_of_an_ordinary_user():
    """Who reads for himself alone follows links wherever they lead."""
    needs_programs_of_all()
    needs_root()
    tree, away = bobs(), bobs("away")
    point(tree.path(1), away.path(1))
    got = as_user(BOB, reshardfs, "--check", tree.src, "-o", tree.options("index_cache=no"))
    equal((got.returncode, got.stderr), (0, ""), "without allow_other")
    got = as_user(BOB, reshardfs, "--check", tree.src, "-o", tree.options("index_cache=no,allow_other"))
    equal((got.returncode, got.stderr), (1, f"reshardfs: error: {tree.path(1)}: {OUT}\n"), "with it")


# ---- access control lists, and folders above --------------------------------------------------------------

ALICE, TEAM = 65532, 65531
DENIED = "Permission denied"


def acl(path, *entries):
    need(shutil.which("setfacl"), "setfacl is missing")
    got = run("setfacl", "-m", ",".join(entries), path)
    equal((got.returncode, got.stderr), (0, ""), f"setfacl {entries}")


def same_through(m, tree, rank, uid, what, may=True, **who):
    """Who may read a source may read what is made of it, and nobody else."""
    equal(reads(uid, tree.path(rank), **who), tree.source(rank) if may else DENIED, f"{what}: the source")
    equal(reads(uid, m.file(rank), **who), tree.expected(rank) if may else DENIED, f"{what}: the mount")


def test_access_control_lists():
    """Of the group, of another group, of a user; nobody reads through the mount what the list denies."""
    needs_root()
    tree = Tree(folder("tree"), ALONE, 6, 6)
    for rank in range(6):
        os.chown(tree.path(rank), BOB, TEAM)
        os.chmod(tree.path(rank), 0o644)
    acl(tree.path(0), "group::---", f"user:{ALICE}:r--")
    acl(tree.path(1), f"group:{ALICE}:---")
    acl(tree.path(2), f"user:{ALICE}:---")
    acl(tree.path(3), "mask::---", "group::r--")
    acl(tree.path(4), f"user:{ALICE}:r--")
    with Mount(tree.src, tree.options("allow_other")) as m:
        same_through(m, tree, 0, BOB, "the owner")
        same_through(m, tree, 0, NOBODY, "one of the group, which is denied", may=False, gid=TEAM)
        same_through(m, tree, 0, NOBODY, "one of the group, by his other groups", may=False, groups=(TEAM,))
        same_through(m, tree, 0, NOBODY, "another")
        same_through(m, tree, 1, ALICE, "one of a group that is denied", may=False)
        same_through(m, tree, 1, NOBODY, "one of the group", gid=TEAM)
        equal(reads(NOBODY, m.file(1)), DENIED, "another, who cannot be told from that group's")
        same_through(m, tree, 2, ALICE, "a user who is denied", may=False)
        same_through(m, tree, 2, ALICE, "a user who is denied, of the group", may=False, gid=TEAM)
        same_through(m, tree, 3, NOBODY, "one of the group, masked", may=False, gid=TEAM)
        same_through(m, tree, 4, ALICE, "a user who is named")
        same_through(m, tree, 4, NOBODY, "all others")
        same_through(m, tree, 5, NOBODY, "no list")
        mode = os.stat(m.file(5)).st_mode & 0o7777
        equal((mode, os.stat(m.file(5)).st_uid, os.stat(m.file(5)).st_gid), (0o444, BOB, TEAM), "no list")


def test_the_worst_source():
    """A file of several sources: what one of them denies is denied."""
    needs_root()
    tree = Tree(folder("tree"), [Param("w", (64, 256), 0, 1)], 4, 2)
    for rank in range(4):
        os.chown(tree.path(rank), BOB, TEAM)
        os.chmod(tree.path(rank), 0o644)
    acl(tree.path(2), "group::---")
    os.chmod(tree.path(3), 0o640)
    with Mount(tree.src, tree.options("allow_other")) as m:
        same_bytes(reads(BOB, m.file(0)), tree.expected(0), "the owner of all")
        equal(reads(NOBODY, m.file(0), gid=TEAM), DENIED, "the group: not source 2")
        equal(reads(NOBODY, m.file(0)), DENIED, "others: not source 3")


def test_sources_of_several_owners():
    needs_root()
    tree = Tree(folder("tree"), [Param("w", (64, 256), 0, 1)], 2, 2)
    for rank, (user, group, mode) in enumerate(((BOB, BOB, 0o640), (ALICE, ALICE, 0o604))):
        os.chown(tree.path(rank), user, group)
        os.chmod(tree.path(rank), mode)
    with Mount(tree.src, tree.options("allow_other")) as m:
        for uid in (BOB, ALICE, NOBODY):
            for gid in (BOB, ALICE, TEAM, 0):
                both = all(isinstance(reads(uid, tree.path(r), gid=gid), bytes) for r in range(2))
                got = reads(uid, m.file(0), gid=gid)
                check(got == DENIED or both, f"user {uid}, group {gid}: both sources {both}, the mount {got[:20]!r}")


def test_folders_above_a_source():
    """One that denies search, by its mode or its list, of the rank, of the tree, and of what is above it."""
    needs_root()
    for name, where in (("rank", "src/rank_0"), ("tree", "src"), ("above", ".")):
        for how in ("mode", "group", "list"):
            tree = bobs(f"{name}-{how}")
            spot = os.path.join(tree.dir, where)
            if how == "mode":
                os.chmod(spot, 0o700)
            elif how == "group":
                os.chown(spot, BOB, TEAM)
                os.chmod(spot, 0o750)
            else:
                acl(spot, f"user:{ALICE}:---")
            with Mount(tree.src, tree.options("allow_other"), mnt=folder(f"mnt-{name}-{how}")) as m:
                same_through(m, tree, 0, BOB, f"{name}, {how}: the owner")
                same_through(m, tree, 0, ALICE, f"{name}, {how}: who is kept out", may=False)
                if how == "group":
                    same_through(m, tree, 0, NOBODY, f"{name}, {how}: the group that may search", gid=TEAM)
                if how != "list" and name == "rank":
                    same_through(m, tree, 1, ALICE, f"{name}, {how}: of another folder")
            check(reads(0, os.path.join(tree.src, "rank_0", "net-1_0.ckpt")), "root reads")


def test_folders_above_that_change_while_mounted():
    """They count as they are when a file is planned, whatever was seen for another file before."""
    needs_root()
    tree = bobs(ranks=3)
    with Mount(tree.src, tree.options("allow_other,index_cache=no")) as m:
        same_through(m, tree, 0, NOBODY, "all may search")
        os.chmod(tree.dir, 0o700)
        same_through(m, tree, 1, NOBODY, "denied since", may=False)
        os.chmod(tree.dir, 0o755)
        same_through(m, tree, 2, NOBODY, "all may search again")


def test_a_source_that_is_a_link_into_a_private_folder():
    """The source itself is the user's word; what is above it counts all the same."""
    needs_root()
    hidden, link = secret(), os.path.join(folder("public"), "latest")
    os.symlink(hidden.src, link)
    with Mount(link, hidden.options("allow_other")) as m:
        equal(reads(NOBODY, m.file(0)), DENIED, "in a folder of root's alone")


def test_folders_above_count_for_others_alone():
    """Where nobody else may come, modes are those of the sources."""
    needs_root()
    tree = bobs()
    os.chmod(tree.dir, 0o700)
    with Mount(tree.src, tree.options()) as m:
        equal(os.stat(m.file(0)).st_mode & 0o7777, 0o444, "mode")


# ---- the hidden folder -------------------------------------------------------------------------------------


def attribute(uid, name, path, **who):
    code = "import os,sys; print(os.getxattr(sys.argv[2], sys.argv[1]).decode())"
    got = as_user(uid, "python3", "-c", code, name, path, **who)
    return got.stdout.strip() if got.returncode == 0 else got.stderr.strip().splitlines()[-1]


def lists(uid, path, **who):
    got = as_user(uid, "ls", path, **who)
    return got.stdout.split() if got.returncode == 0 else got.stderr.rsplit(": ", 1)[-1].strip()


def test_the_hidden_folder_of_private_sources():
    """Names, options, counters and the log are for those who may read every source."""
    needs_root()
    for name, options in (("one", ()), ("saves", ("step=all",))):
        tree = bobs(name)
        tree.one_save()
        tensors = "tensors/1_5" if options else "tensors"
        os.chown(tree.path(1), BOB, TEAM)
        os.chmod(tree.path(1), 0o640)
        with Mount(tree.src, tree.options("allow_other", "control=show", *options), mnt=folder(f"mnt-{name}")) as m:
            hidden = os.path.join(m.mnt, ".reshardfs")
            equal(sorted(lists(BOB, hidden)), ["config.json", "log", "metrics", "stats.json", "tensors"], "their owner")
            check(b'"version"' in reads(BOB, os.path.join(hidden, "config.json")), "config.json, their owner")
            for what in ("config.json", "stats.json", "metrics", "log", f"{tensors}/full/w.json", f"{tensors}/rank_0/w.npy"):
                equal(reads(NOBODY, os.path.join(hidden, what)), DENIED, f"{what}, another")
            equal(lists(NOBODY, hidden), DENIED, "its list")
            equal(lists(NOBODY, os.path.join(hidden, tensors, "full")), DENIED, "names of parameters")
            for spot in (m.mnt, os.path.join(m.mnt, sorted(os.listdir(m.mnt))[-1])):
                check(DENIED in attribute(NOBODY, "user.reshardfs.format", spot), "attributes of a folder, another")
            equal(attribute(BOB, "user.reshardfs.ranks", m.mnt), "2", "attributes of the root, their owner")
            if not options:
                same_bytes(reads(NOBODY, m.file(0)), tree.expected(0), "what another may read")
                equal(attribute(NOBODY, "user.reshardfs.source_ranks", m.file(0)), "0", "and its attributes")
                check(DENIED in attribute(NOBODY, "user.reshardfs.source_ranks", m.file(1)), "of a file that he may not read")


def test_the_hidden_folder_of_public_sources():
    needs_root()
    tree = bobs()
    with Mount(tree.src, tree.options("allow_other")) as m:
        hidden = os.path.join(m.mnt, ".reshardfs")
        check(b'"version"' in reads(NOBODY, os.path.join(hidden, "config.json")), "config.json")
        equal(lists(NOBODY, os.path.join(hidden, "tensors", "full")), ["w.json", "w.npy"], "names")
        equal(attribute(NOBODY, "user.reshardfs.ranks", m.mnt), "2", "attributes of the root")


def test_folders_shown_of_private_folders():
    """The root has the permissions of the source's folder, at most to read and search, and the owner's to write, which a copy needs."""
    needs_root()
    for mode, shown in ((0o700, 0o700), (0o750, 0o750), (0o711, 0o711), (0o777, 0o755)):
        tree = bobs(f"tree-{mode:o}")
        os.chmod(tree.src, mode)
        for options in ("allow_other", "ro"):
            with Mount(tree.src, tree.options(options), mnt=folder(f"mnt-{mode:o}")) as m:
                for spot in (m.mnt, os.path.join(m.mnt, "rank_0")):
                    equal((os.stat(spot).st_mode & 0o7777, os.stat(spot).st_uid), (shown, BOB), f"{spot}, {options}")
                if options == "allow_other":
                    equal(lists(NOBODY, m.mnt), ["rank_0", "rank_1"] if mode == 0o777 else DENIED, f"list of {mode:o}")


# ---- environments ------------------------------------------------------------------------------------------


def test_variables_of_who_has_fewer_rights():
    needs_programs_of_all()
    needs_root()
    tree, program = bobs(), os.path.join(folder("bin"), "reshardfs")
    shutil.copy(reshardfs, program)
    os.chmod(program, 0o4755)
    env = {**os.environ, "RESHARDFS_NONSENSE": "1"}
    what = ("--check", tree.src, "-o", tree.options("index_cache=no"))
    got = as_user(NOBODY, reshardfs, *what, env=env)
    check(got.returncode == 2 and "RESHARDFS_NONSENSE" in got.stderr, f"his own rights: {got}")
    got = as_user(NOBODY, program, *what, env=env)
    equal((got.returncode, got.stderr), (0, ""), "those of root")


def test_a_long_name_pads_no_other_row():
    params = [Param("n" * 60000, (4, 4), 0, 0), *(Param(f"w{i}", (4, 4), 0, 0) for i in range(500))]
    tree = Tree(folder("tree"), params, 1, 1)
    got = run(reshard, "info", tree.path(0))
    equal(got.returncode, 0, got.stderr)
    check("w499" in got.stdout and len(got.stdout) < 60000 + 500 * 400, f"{len(got.stdout)} characters")
