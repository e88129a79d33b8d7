# SPDX-License-Identifier: Apache-2.0
"""Makes each layout, asks reshard suggest about it, and types all that it prints."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

import checked
import made


def suggest(path):
    done = subprocess.run(["reshard", "suggest", "--json", path], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def check(layout):
    """None, or what is wrong."""
    path = layout.make()
    status, out, err = suggest(path)
    if layout.refused:
        if status == 0:
            return f"is not refused: {out}"
        missing = [w for w in layout.refused if w not in err]
        return f"the refusal does not say {missing}: {err}" if missing else None
    if status:
        return f"suggest: exit {status}: {err}"
    said = json.loads(out)
    text = " ".join([said["about"], *said["notes"], *(c["command"] for c in said["commands"])])
    missing = [w for w in layout.says if w not in text]
    wrong = [w for w in layout.never if w in text]
    if missing or wrong or not said["commands"]:
        return f"does not say {missing}, says {wrong}: {json.dumps(said, indent=1)}"
    checked.RENAMED[0] = layout.renamed
    return checked.commands(said["commands"], layout.truth, layout.exact)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    layouts = [one for one in made.LAYOUTS if not args.words or any(w in one.name for w in args.words)]
    if args.list:
        for one in layouts:
            print(f"{one.name}: {one.program}")
        return 0
    if not layouts:
        print(f"no layout is like: {' '.join(args.words)}; try: --list", file=sys.stderr)
        return 2
    work = tempfile.mkdtemp(prefix="layouts-")
    failed = 0
    for one in layouts:
        folder = os.path.join(work, one.name)
        os.mkdir(folder)
        os.chdir(folder)
        try:
            why = check(one)
        except Exception:  # of a fixture or a reader here
            why = traceback.format_exc()
        failed += why is not None
        print(f"ok {one.name}" if why is None else f"FAIL {one.name} ({one.program}): {why}", flush=True)
        os.chdir(work)
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if args.keep:
        print(work)
    else:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{len(layouts) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
