# SPDX-License-Identifier: Apache-2.0
"""Processes that run a share of the cases each: what they print, as soon as a case has ended, and their numbers."""
import re
from concurrent.futures import ThreadPoolExecutor

SUMMARY = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped\n")
CASE_ENDS = ("ok ", "SKIP ", "  replay: ")


def relay(part):
    """Prints a part's lines, those of one case together. The numbers of its summary."""
    name, process = part
    counts, held = None, ""
    for line in process.stdout:
        said = SUMMARY.fullmatch(line)
        if said:
            counts = [int(n) for n in said.groups()]
            continue
        held += line
        if line.startswith(CASE_ENDS):
            print(held, end="", flush=True)
            held = ""
    status = process.wait()
    if not counts:
        held += f"FAIL {name}: it did not get to its end: exit {status}\n"
    print(held, end="", flush=True)
    return counts or [0, 1, 0]


def run(parts):
    """The sums of what [(name, process with a text pipe)] count."""
    with ThreadPoolExecutor(len(parts)) as threads:
        return [sum(numbers) for numbers in zip(*threads.map(relay, parts))]
