# SPDX-License-Identifier: Apache-2.0
"""safetensors' own tests of its Python package, with reshard.safe_open in the place of its own.

RFS_SAFETENSORS_TESTS is the folder of the tests, from its source distribution. --theirs runs them as they are; a word that
is not safetensors_own chooses other tests than these.
"""
import importlib
import os
import shutil
import sys
import tempfile
import unittest

MODULES = ("test_handle", "test_multithreaded", "test_pread_backend", "test_pt_comparison", "test_pt_model", "test_simple")
# Tests that ours does not pass, and why.
EXCEPTIONS: dict[str, str] = {}


def use_ours():
    import reshard
    import reshard.safetensors
    import safetensors
    import safetensors.numpy
    import safetensors.torch

    for module in (safetensors, safetensors.numpy, safetensors.torch):
        module.safe_open = reshard.safe_open
    safetensors._safe_open_handle = reshard.safetensors._safe_open_handle


def tests_of(name):
    """Cases, and functions as pytest finds them."""
    module = importlib.import_module(name)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    suite.addTests(unittest.FunctionTestCase(function, description=f"{name}.{word}") for word, function in vars(module).items()
                   if word.startswith("test_") and callable(function))
    return suite


def label(test):
    return test.shortDescription() if isinstance(test, unittest.FunctionTestCase) else test.id()


def run():
    """The names of the tests by their result."""
    passed, failed, skipped = [], {}, []

    class Result(unittest.TestResult):
        def addSuccess(self, test):
            passed.append(label(test))

        def addFailure(self, test, err):
            failed[label(test)] = f"{err[0].__name__}: {err[1]}"

        addError = addFailure

        def addSkip(self, test, reason):
            skipped.append(label(test))

    for name in MODULES:
        tests_of(name).run(Result())
    return passed, failed, skipped


def main(tests):
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(tests, os.path.join(work, "tests"))
        os.chdir(work)
        sys.path.insert(0, os.path.join(work, "tests"))
        if "--theirs" not in sys.argv:
            use_ours()
        passed, failed, skipped = run()
        os.chdir("/")
    wrong = 0
    for name, why in failed.items():
        wrong += name not in EXCEPTIONS
        print(f"{'known' if name in EXCEPTIONS else 'FAIL'} {name}: {EXCEPTIONS.get(name, why)}")
    for name in sorted(set(EXCEPTIONS) & set(passed)):
        wrong += 1
        print(f"FAIL {name}: it passes, and is in the list of exceptions")
    print(f"# {len(passed)} of {len(passed) + len(failed)} of safetensors' own tests pass; {len(skipped)} are skipped by themselves")
    print(f"{len(passed)} passed, {wrong} failed, 0 skipped")
    return wrong > 0 or not passed


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--theirs"]
    if words and "safetensors_own" not in words:
        print("0 passed, 0 failed, 0 skipped")
        sys.exit(0)
    sys.exit(main(os.environ["RFS_SAFETENSORS_TESTS"]))
