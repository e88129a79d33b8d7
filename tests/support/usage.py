# SPDX-License-Identifier: Apache-2.0
"""The words on the command line of a suite's run script, which is a program of Python; others have suite_words of scripts/lib.sh."""
import re
import sys


def words(about, *options):
    """
    All words but OPTIONS, of which only these are known. ABOUT is the script's docstring, in which a line begins with its path:
    --help prints it, and another option ends the script with that line. FLAG=VALUE is an option FLAG.
    """
    line = next(line.strip() for line in about.splitlines() if line.strip().startswith("tests/"))
    line = re.split("  +", line)[0]
    given = sys.argv[1:]
    if "-h" in given or "--help" in given:
        print(about.strip())
        sys.exit(0)
    for word in given:
        wrong = f"there is no option {word}" if word.startswith("-") and word.partition("=")[0] not in options else \
            "it takes no words" if " " not in line else None
        if wrong:
            print(f"usage: {line}\n{wrong}", file=sys.stderr)
            sys.exit(2)
    return [word for word in given if not word.startswith("-")]


def fit_nothing(given):
    """Says that no test is like one of the words; the exit status."""
    print(f"no test is like: {' '.join(given)}; try: --list", file=sys.stderr)
    return 2
