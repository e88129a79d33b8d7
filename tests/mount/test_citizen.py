# SPDX-License-Identifier: Apache-2.0
"""Options from files and the environment, terminals, log levels, SIGHUP: what users of a file system expect."""
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess

from harness import (PATIENCE, Foreground, Mount, check, equal, eventually, folder, mounted, need, reshardfs, run,
                     same_bytes, servers, unmount)
from test_command import small
from test_life import in_namespace


def written(name, text):
    path = os.path.join(folder("etc"), name)
    with open(path, "w") as file:
        file.write(text)
    return path


def clean(**more):
    """The environment without options of its own, and with MORE."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith("RESHARDFS_")}, **more}


def bare(tree, *options, env=None, mnt=None):
    """A mount with these options alone."""
    got = run(reshardfs, tree.src, mnt or folder("mnt"), *options, env=env or clean())
    return got.returncode, got.stdout, got.stderr


def strategies(tree):
    return dict(option.split("=", 1) for option in tree.options().split(","))


def test_config_of_lines():
    tree, mnt = small(), folder("mnt")
    src, dst = strategies(tree)["src_strategy"], strategies(tree)["dst_strategy"]
    os.symlink(src, os.path.join(folder("etc"), "here.ckpt"))
    path = written("a.ini", f"""# of the training in May
[reshardfs]
src_strategy = here.ckpt
; a path from this folder, above
  dst_strategy={dst}
prefix = "my one "
strict = no
cache\t= 64M\r
nonempty
log_level = warning
""")
    equal(bare(tree, "-o", f"config={path}", mnt=mnt), (0, "", ""), "mounting")
    with open(os.path.join(mnt, "rank_0", "my one 0.ckpt"), "rb") as file:
        same_bytes(file.read(), tree.expected(0), "rank 0")
    unmount(mnt)
    eventually(lambda: not servers(mnt), "the server ends")


def test_config_of_json():
    tree, mnt = small(), folder("mnt")
    path = written("a.json", json.dumps({**strategies(tree), "src_strategy": [strategies(tree)["src_strategy"]],
                                         "prefix": "x", "strict": False, "max_threads": 3, "io": "direct"}))
    equal(bare(tree, "-o", f"config={path},prefix=y", mnt=mnt), (0, "", ""), "mounting")
    equal(os.listdir(os.path.join(mnt, "rank_1")), ["y1.ckpt"], "the command line counts")
    unmount(mnt)
    eventually(lambda: not servers(mnt), "the server ends")


def test_configs_that_are_refused():
    tree, mnt = small(), folder("mnt")
    for text, error in {
        "cahce = 2G\n": "FILE: line 1: unknown option 'cahce'; try: cache=VALUE",
        "\n\nio = fast": "FILE: line 3: option io=fast: not one that is known; try: io=auto, direct or cached",
        "strict = perhaps": "FILE: line 1: option strict is on or off, not 'perhaps'; try: yes or no",
        "cache": "FILE: line 1: option cache needs a value; try: reshardfs --help",
        "key = 0123": "FILE: line 1: a key cannot be given on a command line, where other users see it; "
                      "try: -o key_file=FILE, key_env=NAME or key_fd=N",
        "[mount]\n": "FILE: line 1: there is no section [mount]; try: [reshardfs], or no section at all",
        '{"cache": 1.5}': "FILE: 'cache' has a value that no option takes; "
                          "try: a text, a whole number up to 2^53, true, false or a list of texts",
        '{"cache": {}}': "FILE: 'cache' has a value that no option takes; "
                         "try: a text, a whole number up to 2^53, true, false or a list of texts",
        '{"strict": true, "x": "y"}': "FILE: unknown option 'x'; try: reshardfs --help",
        '{"cache": "2G"': 'FILE: offset 14: not JSON; try: {"cache": "2G"}, or lines such as cache = 2G',
    }.items():
        path = written("bad", text)
        got = bare(tree, "-o", f"config={path},{tree.options()}", mnt=mnt)
        equal(got, (2, "", "reshardfs: error: " + error.replace("FILE:", path + ":") + "\n"), text)
    gone = os.path.join(folder("etc"), "gone")
    equal(bare(tree, "-o", f"config={gone}", mnt=mnt),
          (1, "", f"reshardfs: error: {gone}: cannot be read: No such file or directory; "
                  "try: check the path\n"), "no such file")
    equal(bare(tree, "-o", f"config={folder('etc')}", mnt=mnt)[:2], (1, ""), "a folder")
    check(not mounted(mnt), "something is mounted")


def test_environment():
    tree, mnt = small(), folder("mnt")
    env = clean(**{"RESHARDFS_" + key.upper(): value for key, value in strategies(tree).items()},
                RESHARDFS_PREFIX="env_", RESHARDFS_STRICT="", RESHARDFS_NONEMPTY="1")
    equal(bare(tree, env=env, mnt=mnt), (0, "", ""), "mounting")
    equal(os.listdir(os.path.join(mnt, "rank_1")), ["env_1.ckpt"], "a prefix of the environment")
    unmount(mnt)
    eventually(lambda: not servers(mnt), "the server ends")
    path = written("e.ini", "prefix = file_\nmax_threads = 2\n")
    equal(bare(tree, env={**env, "RESHARDFS_CONFIG": path}, mnt=mnt), (0, "", ""), "with a file")
    equal(os.listdir(os.path.join(mnt, "rank_1")), ["env_1.ckpt"], "the environment counts before the file")
    unmount(mnt)
    eventually(lambda: not servers(mnt), "the server ends")
    equal(bare(tree, env={**env, "RESHARDFS_CAHCE": "2G"}, mnt=mnt),
          (2, "", "reshardfs: error: RESHARDFS_CAHCE: unknown option 'cahce'; try: cache=VALUE\n"), "a mistake")
    equal(bare(tree, env={**env, "RESHARDFS_IO": "fast"}, mnt=mnt)[0], 2, "a value that it does not take")


def test_rw_is_refused():
    tree, mnt = small(), folder("mnt")
    equal(bare(tree, "-o", tree.options("rw"), mnt=mnt),
          (2, "", "reshardfs: error: option 'rw' is not possible: the files are made from the source, and cannot "
                  "be written; try: ro, or nothing: it is read-only in any case\n"), "rw")
    with Mount(tree.src, tree.options("ro")) as m:
        same_bytes(m.read(0), tree.expected(0), "ro")


def test_version_tells_features():
    got = run(reshardfs, "--version")
    check(re.fullmatch(r"reshardfs \S+\nlibfuse \S+\nreads ckpt, .*; OpenSSL \d.*; (AVX2|portable) kernels\n"
                       r"sandbox: .*\n", got.stdout), got.stdout)


def on_terminal(*command, **env):
    """(status, all that a terminal shows)"""
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=clean(**env)) as process:
        os.close(slave)
        out = b""
        while select.select([master], [], [], PATIENCE)[0]:
            try:
                part = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            out += part
        os.close(master)
        return process.wait(PATIENCE), out.decode()


def test_colours():
    tree = small()
    command = (reshardfs, "--check", tree.src, "-o", "something_else")
    plain = "reshardfs: error: unknown option 'something_else'; try: reshardfs --help\r\n"
    coloured = plain.replace("error:", "\033[1;31merror:\033[0m")
    equal(on_terminal(*command, TERM="xterm", NO_COLOR=""), (2, coloured), "a terminal")
    equal(on_terminal(*command, TERM="xterm", NO_COLOR="1"), (2, plain), "NO_COLOR")
    equal(on_terminal(*command, TERM="dumb", NO_COLOR=""), (2, plain), "a dumb terminal")
    got = run(*command, env=clean(TERM="xterm"))
    equal(got.stderr, plain.replace("\r", ""), "no terminal")


def test_log_levels():
    tree = small()
    tree.write(3, tree.source(3)[:-8])
    for level, lines in (("error", 1), ("warning", 1), ("info", 1), ("debug", None)):
        with Foreground(tree.src, tree.options(f"log_level={level}")) as m:
            try:
                m.read(1)
                check(False, "a damaged source is read")
            except OSError:
                pass
            m.stop()
            got = m.log().splitlines()
            equal(sum("error: " in line for line in got), 1, got)
            check(lines is None or len(got) == lines, got)
    got = bare(tree, "-o", tree.options("log_level=loud"))
    equal(got[2], "reshardfs: error: option log_level=loud: not one that is known; "
                  "try: log_level=error, warning, info or debug\n", "another level")


def test_hangup_reads_nothing_again():
    tree, mnt, dev = small(), folder("mnt"), folder("dev")
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind(os.path.join(dev, "log"))
    log.settimeout(PATIENCE)
    script = """
        mknod -m 666 "$dev/fuse" c 10 229; replace
        "$1" "$2" "$3" -o "$4"
        before=$(md5sum <"$3/rank_0/checkpoint_0.ckpt")
        for line in /proc/[0-9]*/cmdline; do
            pid=${line%/cmdline}
            if tr '\\0' ' ' <"$line" 2>/dev/null | grep -q "reshardfs $2 $3 -o"; then kill -HUP "${pid#/proc/}"; fi
        done
        sleep 0.5
        [ "$before" = "$(md5sum <"$3/rank_0/checkpoint_0.ckpt")" ] || exit 9
        fusermount3 -u "$3"
    """
    got = in_namespace(script, reshardfs, tree.src, mnt, tree.options())
    equal(got.returncode, 0, got.stderr)
    line = log.recv(4096).decode()
    check(line.endswith("1 parameter in no strategy, copied unsliced: moment [40]"), line)
    line = log.recv(4096).decode()
    check(line.endswith("warning: SIGHUP: nothing is read again while it is mounted; try: unmount and mount"), line)
    log.close()
    eventually(lambda: not servers(mnt), "the server ends")


def test_hangup_of_the_terminal_ends_the_foreground():
    tree = small()
    with Foreground(tree.src, tree.options()) as m:
        equal(m.stop(signal.SIGHUP), 0, "status")
        check(not mounted(m.mnt), "still mounted")


def test_headers_that_take_long_are_counted_on_a_terminal():
    need(shutil.which("strace"), "strace is missing")
    tree = small(src=8, dst=1)
    slowly = ("strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pread64,read", "-e",
              "inject=pread64,read:delay_enter=60000")
    status, out = on_terminal(*slowly, reshardfs, "--check", tree.src, "-o",
                              f"src_strategy={strategies(tree)['src_strategy']},view=unified,index_cache=no", TERM="xterm",
                              ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
    equal(status, 0, out)
    lines = re.findall(r"\rreshardfs: headers of (\d+) of 8 ranks", out)
    check(lines and [int(n) for n in lines] == sorted(int(n) for n in lines), repr(out))
    check(re.search(r"\r +\r", out), "the line stays: " + repr(out))
