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


# By right rules "embed" is cut, too.
FLAT = [Param("embed", (64, 8), 0, 0), Param("a.q", (16, 8), 0, 0), Param("norm", (8,), WHOLE, WHOLE),
        Param("step", (), WHOLE, WHOLE, "Int32")]
WRONG = "src_ranks=4,src_rules=a.*: axis 0 over all;*: whole"
RIGHT = "src_ranks=4,src_rules=a.*: axis 0 over all;embed: axis 0 over all;*: whole"
REMEDY = "; try: a rule that cuts it, or files of one save; reshard verify lists all that differ"


def told(tree, options, line, command=()):
    """Once as a warning by a mount and by --check, which refuses the view, as strict does for both."""
    with Mount(tree.src, options) as mount:
        equal(mount.stderr.splitlines(), [f"reshardfs: warning: {line}"], "stderr")
    got = run(reshardfs, "--check", tree.src, "-o", options)
    refusal = (f"{tree.src}: ranks are not as src_rules says; try: the right strategy or rules, or files of one save; or "
               "without what differs, by drop=; or trust_strategy")
    equal((got.returncode, got.stderr.splitlines()),
          (1, [f"reshardfs: warning: {line}", f"reshardfs: error: {refusal}"]), "--check")
    fails(1, line, tree.src, folder("mnt"), "-o", f"{options},strict")
    fails(1, line, "--check", tree.src, "-o", f"{options},strict")


def silent(tree, options):
    with Mount(tree.src, f"{options},strict") as mount:
        equal(mount.stderr, "", "stderr")
    got = run(reshardfs, "--check", tree.src, "-o", options)
    equal((got.returncode, got.stderr), (0, ""), "--check")


def test_rules_that_call_a_slice_whole():
    tree = Tree(folder("tree"), FLAT, 4, 1)
    tree.one_save()
    silent(tree, RIGHT)
    told(tree, WRONG, f"{tree.path(3)}: parameter 'embed': has other bytes than in rank_0, and is whole by src_rules: "
         "line 2; 1 of 4 parameters that were compared contradict it" + REMEDY)
    silent(tree, f"{WRONG},drop=embed")
    # Ranks that are lost have replicas by these rules, and the others are compared.
    os.unlink(tree.path(3))
    os.unlink(tree.path(0))
    rules = "src_ranks=4,src_rules=a.*: axis 0 over all;*: whole,drop=a.*"
    line = f"{tree.path(2)}: parameter 'embed': has other bytes than in rank_1, and is whole by src_rules: line 2"
    with Mount(tree.src, f"{rules},trust_strategy") as mount:
        check(line in mount.stderr, mount.stderr)
    # It is the only weight of two axes that is left: most of them.
    fails(1, f"{line}; 1 of 3 parameters that were compared contradict it; try: other rules; reshard verify lists all that "
          "differ; or trust_strategy, to go on all the same", tree.src, folder("mnt"), "-o", rules)


def test_rules_for_ranks_of_two_saves():
    tree = Tree(folder("tree"), FLAT, 4, 1)
    later = Tree(folder("later"), FLAT, 4, 1, version=1)
    tree.write(3, later.source(3))
    told(tree, RIGHT, f"{tree.path(3)}: parameter 'step': has other bytes than in rank_0, and is whole by src_rules: "
         "line 3; 2 of 4 parameters that were compared contradict it" + REMEDY)


def test_rules_and_what_each_rank_has_of_its_own():
    """The state of a random generator is no weight: integers of many elements are not compared."""
    states = Param("rng_state", (16,), 0, 0, "Int32")
    silent(Tree(folder("tree"), [*FLAT, states], 4, 1), RIGHT)
