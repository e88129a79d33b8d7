# SPDX-License-Identifier: Apache-2.0
"""What the commands of reshard draw while they work, on a terminal alone; and reshard get, when it is stopped."""
import os
import pty
import re
import signal
import subprocess
import termios
import time

from exporting import *
from forge import Param, Tree, WHOLE

RANKS = 12


def tree(name="tree", shape=(RANKS * 64, 4096)):
    """Large enough for several pieces, on so many ranks that their headers take a while where reads do."""
    return Tree(folder(name), [Param("w", shape, 0, 0)], RANKS, RANKS)


def received(terminal):
    """All that comes until the other end is closed."""
    shown = b""
    try:
        while more := os.read(terminal, 4096):
            shown += more
    except OSError:  # it is closed
        pass
    return shown


def drawn(command, delay, columns=80):
    """What a terminal gets that is the standard error alone, and what is printed; reads take DELAY microseconds more."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    with subprocess.Popen([*slowed("pread64,preadv,preadv2", delay), *command], stdout=subprocess.PIPE, stderr=theirs,
                          env=under_strace()) as process:
        os.close(theirs)
        shown = received(ours)
        out = process.stdout.read()
    os.close(ours)
    equal(process.returncode, 0, f"the exit status of {command[1]}, with {shown[-400:]}")
    return shown.decode(), out


def is_drawn(command, line, delay=30000, columns=80):
    """A line that is drawn over again and is gone in the end; the result is that without a terminal."""
    shown, out = drawn(command, delay, columns)
    parts = shown.split("\r")
    check(re.search(line, shown), f"{command[1]}: {shown[:400]!r}")
    check(all(len(part) < columns for part in parts), f"{command[1]}: {shown[:400]!r}")
    check(shown.startswith("\r") and parts[-2].strip() == "" and parts[-1] == "", f"{command[1]}: {shown[-200:]!r}")
    if BYTES in line:
        check(re.search(r"\[#+\] 100% ", parts[-3]), f"{command[1]}: the last line is {parts[-3]!r}")
        check(all(("100%" in part) == ("[#" in part and "." not in part.split("]")[0]) for part in parts[:-2]), f"{command[1]}: {parts}")
    got = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    equal(got.stderr, b"", f"what {command[1]} says without a terminal")
    same_bytes(out, got.stdout, f"what {command[1]} prints")


BYTES = r" \[[#.]{8,20}\] +\d+% [0-9.]+ (bytes|[KMG]iB) of "


def test_progress_on_a_terminal():
    t = tree()
    src = t.options().split(",")[0]
    is_drawn([reshard, "stats", t.src, "-j", "1", "-o", src], "measuring" + BYTES)
    is_drawn([reshard, "verify", t.src, "-j", "1", "-o", src], "verifying" + BYTES)
    is_drawn([reshard, "diff", t.src, t.src, "-j", "1", "-o", src, "--options-b", src], "comparing" + BYTES)
    is_drawn([reshard, "get", t.src, "w", folder("got") + "/w.npy", "--force", "-j", "1", "-o", src], "writing" + BYTES)
    is_drawn([reshard, "info", t.src, "--all"], r"reading[a-z ]*: \d+ of \d+ files", 250000)
    is_drawn([reshard, "verify", t.src, "-j", "1", "-o", src], r"verifying +\d+% [0-9.]+ ", columns=30)
    is_drawn([reshard, "verify", t.src, "-j", "1", "-o", src], "verif", columns=7)


def printed(command, columns):
    """The lines that a terminal of so many columns gets."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        shown = received(ours)
        equal((process.stderr.read(), process.wait()), (b"", 0), f"{command}")
    os.close(ours)
    return shown.decode().split("\r\n")


def test_tables_fit_the_terminal():
    """Their rows go on in the next line, further in; all words are there, in the order of a line that is long enough."""
    t = Tree(folder("tree"), [Param("a.name.of.thirty.characters.it.is", (RANKS, 8), 0, 0), Param("b", (8,), WHOLE, WHOLE)], RANKS, RANKS)
    src = t.options().split(",")[0]
    for command in ([reshard, "info", t.src, "-o", src], [reshard, "stats", t.src, "-o", src],
                    [reshard, "strategy", "show", src.split("=")[1]]):
        plain = run(*command).stdout.split("\n")
        equal(printed(command, 200), plain, f"{command[1]} where there is room")
        table = plain[:plain.index("")] if "" in plain else plain
        for columns in (60, 40):
            lines = printed(command, columns)
            equal(" ".join(lines).split(), " ".join(plain).split(), f"the words of {command[1]} in {columns} columns")
            at = len(table)
            while " ".join(lines[:at]).split() != " ".join(table).split():
                at += 1
            check(all(len(line) <= columns for line in lines[:at]), f"{command[1]} in {columns} columns: {lines[:at]}")
            check(any(line.startswith("    ") for line in lines[:at]), f"{command[1]} is not folded in {columns} columns: {lines[:at]}")


def test_get_stopped_by_a_signal():
    t = tree("stopped")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        where = folder(f"out{number}")
        command = [*slowed("pread64,preadv,preadv2", 200000), reshard, "get", t.src, "w", where + "/w.npy", "-j", "1",
                   "-o", t.options().split(",")[0]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=under_strace()) as process:
            end = time.monotonic() + PATIENCE
            while not os.listdir(where) and process.poll() is None and time.monotonic() < end:
                time.sleep(0.001)
            process.send_signal(number)
            out, errors = process.communicate()
        equal((process.returncode, out, errors), (-number, "", "reshard: error: stopped by a signal\n"), "how it ends")
        equal(os.listdir(where), [], "what is left")
