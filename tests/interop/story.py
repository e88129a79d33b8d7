# SPDX-License-Identifier: Apache-2.0
"""Cases that are told rather than described: a function writes a source by whatever tool, says with which
options it is to be mounted, and what must then be seen. For inputs and outputs that a Case (build.py),
which is a .ckpt tree between two strategies, has no words for."""
import os
import subprocess
from dataclasses import dataclass, field

import mounting


@dataclass
class Story:
    """What a story's function returns; its docstring is the note. The function is called with (rng, folder),
    folder being empty; the source is folder/src unless said otherwise."""
    options: dict = field(default_factory=dict)  # after -o; a value of None is an option without a value
    source: str = ""          # the path to mount
    expected: str = ""        # a folder that the mount must be equal to, file by file, byte by byte
    check: object = None      # called with the mount point, after the comparison; asserts
    refusal: str = ""         # fragment of the message: the mount, or every stat, must fail
    exit_code: int = 1        # for a refusal; 2: the options are at fault
    says: tuple = ()          # fragments that --check must print (warnings)
    env: dict = field(default_factory=dict)


class Told:
    """Looks to mounting.py as a built case does."""

    def __init__(self, name, story, folder, note):
        self.name, self.story, self.folder, self.note = name, story, folder, note
        self.case = self
        self.kind = "refuse" if story.refusal else "told"
        self.noise, self.problem, self.why = False, None, ""
        self.refusal, self.exit_code = story.refusal, story.exit_code

    def describe(self):
        return f"{self.name}: {self.note}\n  options: {self.story.options}"


class StoryMount(mounting.Mount):
    def command(self, *more):
        story = self.built.story
        places = ("src_strategy", "dst_strategy", "files", "group_info")
        options = ",".join(k if v is None else f"{k}={mounting.escape(mounting.place(str(v)) if k in places else str(v))}"
                           for k, v in story.options.items())
        source = story.source or os.path.join(self.built.folder, "src")
        return [self.program, *more, mounting.place(source), self.path] + (["-o", options] if options else [])

    def run(self, *more):
        return subprocess.run(self.command(*more), stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=mounting.TIMEOUT, check=False,
                              env={**os.environ, **self.built.story.env})


def check(program, told):
    """Mounts and compares. None when all is well, else the failure."""
    story = told.story
    if story.refusal:
        return mounting.check_refusal(program, told, StoryMount)
    assert story.expected or story.check, "a story without an end proves nothing"
    with StoryMount(program, told) as mount:
        if mount.error:
            return f"does not mount: {mount.error}"
        try:
            problem = compare(mount.path, story.expected) if story.expected else None
            if not problem and story.check:
                story.check(mount.path)
        except OSError as e:
            return f"{e}; --check says: {mount.run('--check').stdout.strip()}"
        if not problem and not story.says:
            problem = mounting.doubts(mount, False)
        if not problem and story.says:
            said = mount.run("--check").stdout
            problem = next((f"--check does not say '{x}': {said}" for x in story.says
                            if x not in said), None)
        return problem


def compare(path, expected):
    got, want = mounting.listing(path), mounting.listing(expected)
    if got != want:
        return f"missing {sorted(set(want) - set(got))[:4]}, extra {sorted(set(got) - set(want))[:4]}"
    for name in want:
        problem = mounting.same_file(os.path.join(path, name), os.path.join(expected, name))
        if problem:
            return f"{name}: {problem}"
    return None
