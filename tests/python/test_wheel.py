# SPDX-License-Identifier: Apache-2.0
"""The wheel $RFS_WHEEL in an environment with nothing else: its programs and its library, beside those of this build."""
import glob
import os
import shutil
import subprocess
import sys

from cases import path, run, strategies, tool

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.append(os.path.join(TOP, "tests", "mount"))
import seal  # pylint: disable=wrong-import-position

ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("RESHARD_LIBRARY", "PYTHONPATH")}
READS = """
import sys
import reshard
source, src, dst, key, exported = sys.argv[1:]
for rank in range(4):
    name = f"rank_{rank}/checkpoint_{rank}.ckpt"
    with reshard.View(source, src_strategy=src, dst_strategy=dst, key_file=key) as view, reshard.open(view, name) as file:
        with open(f"{exported}/{name}", "rb") as want:
            assert file.read() == want.read(), name
with open("/proc/self/maps") as maps:
    loaded = {line.split()[-1] for line in maps
              if any(name in line for name in ("libreshard", "libxxhash", "libzstd", "libcjson", "libprotobuf", "libcurl"))}
assert len(loaded) == 1 and loaded.pop().startswith(sys.prefix + "/"), loaded
print("equal")
"""


def inside(*words):
    return subprocess.run([path("alone", "bin", words[0]), *words[1:]], env=ENVIRONMENT, text=True, capture_output=True, check=False)


def test_reads_what_is_encrypted_by_its_own_libraries():
    shutil.copytree(path("e", "src"), path("sealed"))
    for name in glob.glob(path("sealed", "rank_*", "*.ckpt")):
        os.chmod(name, 0o600)
        with open(name, "r+b") as file:
            content = seal.seal(file.read())
            file.seek(0)
            file.write(content)
    with open(path("key"), "wb") as file:
        os.chmod(path("key"), 0o600)
        file.write(seal.KEY)
    got = inside("python", "-c", READS, path("sealed"), *strategies().values(), path("key"), path("exported"))
    assert got.stdout == "equal\n", got


def test_has_the_programs():
    for words in (["reshard"], ["python", "-m", "reshard"]):
        got = inside(*words, "info", path("e", "src"))
        want = subprocess.run(["reshard", "info", path("e", "src")], text=True, capture_output=True, check=True)
        assert (got.returncode, got.stdout) == (0, want.stdout), got
    got = inside("reshardfs", "--version")
    assert got.returncode == 0 and got.stdout.startswith("reshardfs ") and "libfuse 3" in got.stdout, got
    got = inside("reshard", "no-such-command")
    assert got.returncode == 2 and got.stderr.startswith("reshard: "), got


def test_has_what_is_read_beside_the_programs():
    for name in ("man/man1/reshard.1", "man/man1/reshardfs.1", "bash-completion/completions/reshardfs", "zsh/site-functions/_reshard",
                 "reshardfs/convert/qwen3.rules"):
        assert os.path.getsize(path("alone", "share", *name.split("/"))) > 0, name


def test_knows_the_rules_without_their_files():
    got = inside("reshard", "convert", "list")
    assert got.returncode == 0 and "qwen3_moe" in got.stdout, got


def set_up():
    subprocess.run([sys.executable, "-m", "venv", path("alone")], check=True)
    subprocess.run([path("alone", "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
                    os.environ["RFS_WHEEL"]], env=ENVIRONMENT, check=True)
    tool("example", path("e"))
    tool("export", path("e", "src"), path("exported"), "-s", strategies()["src_strategy"], "-d",
         strategies()["dst_strategy"])


if __name__ == "__main__":
    sys.exit(run(globals(), set_up))
