# SPDX-License-Identifier: Apache-2.0
"""Rules instead of strategy files, as a user gives them."""
import os

from forge import WHOLE, Param, Tree, escape, usual
from harness import *

PARAMS = [Param("a.q", (16, 8), 0, 0), Param("a.o", (16, 8), 0, 1), Param("step", (), WHOLE, WHOLE, "Int32")]
SRC = "src_ranks=4,src_rules=step: whole;*: axis 0 over all"
DST = "step: whole\n*.q: axis 0 over all\n*.o: axis 1 over all\n"


def compare(tree, options):
    with Mount(tree.src, options) as mount:
        for rank in range(tree.dst_n):
            same_bytes(mount.read(rank), tree.expected(rank), f"rank {rank}")
        return mount.stderr


def test_rules_in_the_option_and_in_a_file():
    tree = Tree(folder("tree"), PARAMS, 4, 2)
    inline = DST.strip().replace("\n", ";")
    equal(compare(tree, f"{SRC},dst_ranks=2,dst_rules={inline}"), "", "stderr")
    for name in ("rules.txt", "dst: a,b;c\\d"):
        path = os.path.join(folder("rules"), name)
        with open(path, "w") as file:
            file.write("# by columns and rows\n" + DST)
        compare(tree, f"{SRC},dst_ranks=2,dst_rules={escape(path)}")
    # A path relative to where it was started: the server has another folder by the time it reads it.
    here = os.getcwd()
    os.chdir(folder("rules"))
    try:
        compare(tree, f"{SRC},dst_ranks=2,dst_rules=rules.txt")
    finally:
        os.chdir(here)


def test_rules_over_a_strategy():
    tree = Tree(folder("tree"), usual(), 4, 2)
    src = tree.options().split(",")[0]
    rules = "turned: axis 1 over all;bias: whole;cols: axis 1 over all;*: axis -2 over all"
    with Mount(tree.src, f"{src},dst_ranks=2,dst_rules={rules}") as mount:
        for rank in range(2):
            same_bytes(mount.read(rank), tree.expected(rank), f"rank {rank}")


def test_rules_are_refused_with_their_line():
    tree, mnt = Tree(folder("tree"), PARAMS, 4, 2), folder("mnt")
    path = os.path.join(folder("rules"), "rules.txt")
    with open(path, "w") as file:
        file.write("axes tp=2\n\n*.q: axis 0 over dp\n")
    fails(
        1,
        f"{path}: line 3: there is no device axis 'dp'; try: one of those in the line of axes",
        tree.src,
        mnt,
        "-o",
        f"{SRC},dst_ranks=2,dst_rules={path}",
    )
    fails(
        1,
        "src_rules: line 1: parameter 'step': the rule cuts axis 0 of a tensor that has 0 axes; try: 'step: whole' "
        "before that rule",
        tree.src,
        mnt,
        "-o",
        "src_ranks=4,src_rules=*: axis 0 over all",
    )
    fails(
        2,
        "nothing says how many ranks src_rules is for; try: src_ranks=8, or a line such as \"axes dp=2 tp=4\"",
        tree.src,
        mnt,
        "-o",
        "src_rules=*: whole",
    )
    got = run(reshardfs, "--check", tree.src, "-o", f"{SRC};x: whole")
    equal(got.returncode, 0, got.stderr)
    check("src_rules: line 3: no parameter takes the rule 'x'" in got.stderr, got.stderr)
