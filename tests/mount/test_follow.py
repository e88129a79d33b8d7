# SPDX-License-Identifier: Apache-2.0
"""follow: saves that come, change and go while the mount shows them."""
import errno
import hashlib
import json
import mmap
import os
import random
import re
import shutil
import signal
import time

from forge import WHOLE, Param, Tree, usual
from harness import *
from seal import KEY, key_file, seal
from test_converted import model, tensor_of, transposed

EVERY = 1  # seconds


class Training:
    """A job of 4 ranks that saves; each save has other bytes."""

    def __init__(self, name="job", params=None):
        self.where, self.params = folder(name), params or usual()
        self.tree = Tree(os.path.join(self.where, "0"), self.params, 4, 2)
        self.src = self.tree.src
        for rank in range(4):
            os.unlink(self.tree.path(rank))

    def options(self, *more):
        return self.tree.options(f"follow={EVERY}", *more)

    def state(self, version):
        where = os.path.join(self.where, f"v{version}")
        return Tree(where, self.params, 4, 2, version)

    def path(self, rank, save):
        return os.path.join(self.src, f"rank_{rank}", f"net-{save}.ckpt")

    def put(self, rank, save, data):
        """As save_checkpoint: under another name, which is then changed."""
        with open(self.path(rank, save) + ".tmp", "wb") as file:
            file.write(data)
        os.rename(self.path(rank, save) + ".tmp", self.path(rank, save))

    def save(self, save, version, ranks=range(4)):
        """Returns what the mount must show."""
        state = self.state(version)
        for rank in ranks:
            self.put(rank, save, read_all(state.path(rank)))
        want = [state.expected(rank) for rank in range(2)]
        shutil.rmtree(state.dir)
        return want

    def remove(self, save):
        for rank in range(4):
            if os.path.exists(self.path(rank, save)):
                os.unlink(self.path(rank, save))


def latest(m):
    try:
        return os.readlink(os.path.join(m.mnt, "latest"))
    except FileNotFoundError:
        return None


def saves(m):
    return sorted(set(os.listdir(m.mnt)) - {"latest"})


def state(m):
    return json.loads(read_all(os.path.join(m.mnt, ".reshardfs", "saves.json")))


def why(m, save):
    os.listdir(m.mnt)
    return next((s.get("why") or "" for s in state(m)["saves"] if s["save"] == save), None)


def file_of(m, save, rank):
    return os.path.join(m.mnt, save, f"rank_{rank}", f"checkpoint_{rank}.ckpt")


def shows(m, save, want):
    for rank, data in enumerate(want):
        same_bytes(read_all(file_of(m, save, rank)), data, f"{save}, rank {rank}")


def unchanged(m):
    """Waits until looks would have shown all that is there."""
    for _ in range(4):
        os.listdir(m.mnt)
        time.sleep(EVERY * 0.6)
    os.listdir(m.mnt)


def test_follow():
    job = Training()
    with Foreground(job.src, job.options()) as m:
        equal((os.listdir(m.mnt), latest(m)), ([], None), "before the first save")
        check("no rank_N folder in it has a" in state(m)["trouble"], f"the state: {state(m)}")
        first = job.save("1_10", 1)
        eventually(lambda: latest(m) == "1_10", "the first save is the latest")
        equal(saves(m), ["1_10"], "the saves")
        shows(m, "1_10", first)
        shows(m, "latest", first)
        equal(os.stat(m.mnt).st_nlink, 3, "links of the root")
        second = job.save("1_20", 2, (0, 1, 3))
        unchanged(m)
        equal((saves(m), latest(m)), (["1_10"], "1_10"), "while a rank still saves")
        check("rank 2 has no file of it" in why(m, "1_20") or "rank_2" in why(m, "1_20"), f"the reason: {state(m)}")
        with open(file_of(m, "latest", 0), "rb") as reader:
            head = reader.read(100)
            inode = os.fstat(reader.fileno()).st_ino
            job.save("1_20", 2, (2,))
            eventually(lambda: latest(m) == "1_20", "the second save is the latest")
            shows(m, "latest", second)
            shows(m, "1_10", first)
            same_bytes(head + reader.read(), first[0], "an open file of the save before")
            check(os.stat(file_of(m, "latest", 0)).st_ino != inode, "two saves have the inode numbers of one")
            equal([s["shown"] for s in state(m)["saves"]], [True, True], "shown")
            equal((state(m)["latest"], why(m, "1_20")), ("1_20", ""), "the state")
            job.remove("1_10")
            eventually(lambda: saves(m) == ["1_20"], "a save that was removed disappears")
            os.lseek(reader.fileno(), 0, os.SEEK_SET)
            fails_with(errno.ESTALE, lambda: os.read(reader.fileno(), 4096))
            fails_with(errno.ENOENT, lambda: os.stat(file_of(m, "1_10", 1)))
        equal(latest(m), "1_20", "the latest")
        job.remove("1_20")
        eventually(lambda: latest(m) is None, "no save is left")
        equal(os.listdir(m.mnt), [], "the root")
        third = job.save("1_20", 3)
        eventually(lambda: latest(m) == "1_20", "a save of a number that was there")
        shows(m, "latest", third)


def fails_with(number, call):
    try:
        call()
    except OSError as error:
        equal(error.errno, number, "the error")
        return
    check(False, "no error")


def test_follow_a_save_that_is_written_anew():
    """It goes with its first file that changes, and comes again when all have; a rank that is still the old one keeps it away."""
    job = Training()
    first = job.save("1_10", 1)
    latest_of = job.save("1_20", 2)
    with Foreground(job.src, job.options()) as m:
        eventually(lambda: latest(m) == "1_20", "both saves are shown")
        with open(file_of(m, "1_10", 0), "rb") as reader:
            same_bytes(reader.read(4096), first[0][:4096], "before")
            second = job.save("1_10", 3, (0, 2, 3))
            eventually(lambda: saves(m) == ["1_20"], "it is not shown any more")
            os.lseek(reader.fileno(), 0, os.SEEK_SET)
            fails_with(errno.ESTALE, lambda: os.read(reader.fileno(), 1 << 20))
        unchanged(m)
        equal((saves(m), latest(m)), (["1_20"], "1_20"), "while one rank is of the save before")
        equal(why(m, "1_10"), f"{job.path(1, '1_10')} has not changed since the save before of this number", "the reason")
        job.save("1_10", 3, (1,))
        eventually(lambda: saves(m) == ["1_10", "1_20"], "it is shown again")
        shows(m, "1_10", second)
        shows(m, "1_20", latest_of)
        equal(latest(m), "1_20", "the latest")
        check("1_10: is not shown any more: its files have changed" in m.log(), m.log())


def test_follow_a_damaged_save():
    """One line in the log, and the reason beside the state; the latest stays. It comes when it is written well."""
    job = Training()
    first = job.save("1_10", 1)
    with Foreground(job.src, job.options()) as m:
        eventually(lambda: latest(m) == "1_10", "the first save")
        second = job.save("1_20", 2)
        os.truncate(job.path(1, "1_20"), os.path.getsize(job.path(1, "1_20")) - 1)
        unchanged(m)
        unchanged(m)
        equal((saves(m), latest(m)), (["1_10"], "1_10"), "with a save that is cut short")
        check(job.path(1, "1_20") in why(m, "1_20"), f"the reason: {state(m)}")
        lines = [line for line in m.log().splitlines() if "1_20" in line]
        check(len(lines) == 1 and "1_20: is not shown: " in lines[0], f"one line: {lines}")
        shows(m, "latest", first)
        same_bytes(b"".join(second), b"".join(job.save("1_20", 2)), "the same state again")
        eventually(lambda: latest(m) == "1_20", "the save that is whole now")
        shows(m, "latest", second)


def test_follow_by_wrong_rules():
    """No save is shown whose ranks contradict the rules."""
    job = Training()
    job.save("1_10", 1)
    with Foreground(job.src, f"src_ranks=4,src_rules=*: whole,follow={EVERY}") as m:
        eventually(lambda: "ranks are not as src_rules says" in (why(m, "1_10") or ""), "the reason")
        equal((saves(m), latest(m)), ([], None), "what is shown")


def test_follow_looks_at_hangup():
    """In the foreground, too. Nobody else looks: the root is listed by no one, and SECONDS are many."""
    job = Training()
    job.save("1_10", 1)
    with Foreground(job.src, job.tree.options("follow=3600")) as m:
        path = os.path.join(m.mnt, ".reshardfs", "saves.json")
        check("1_10" in json.loads(read_all(path))["saves"][0]["save"], "what was there at the mount")
        job.save("1_20", 2)
        equal(len(json.loads(read_all(path))["saves"]), 1, "nobody has looked")
        m.process.send_signal(signal.SIGHUP)
        eventually(lambda: len(json.loads(read_all(path))["saves"]) == 2, "SIGHUP")
        check(not os.path.lexists(os.path.join(m.mnt, "1_20")), "it may still change for an hour")


def test_follow_a_save_that_is_removed():
    """As trainings do that keep the last ones: the log has one line, and no error."""
    job = Training()
    job.save("1_10", 1)
    job.save("1_20", 2)
    with Foreground(job.src, job.options()) as m:
        eventually(lambda: saves(m) == ["1_10", "1_20"], "both")
        read_all(file_of(m, "1_10", 0))
        before = len(m.log())
        job.remove("1_10")
        eventually(lambda: saves(m) == ["1_20"], "one")
        equal(m.stop(), 0, "exit status")
        equal(m.log()[before:], "reshardfs: 1_10: is not there any more\n", "log")


def switches(pid):
    """Of all threads: one that wakes, and sleeps again, counts."""
    return {t: re.findall(rb"ctxt_switches:\s+(\d+)", read_all(f"/proc/{pid}/task/{t}/status"))
            for t in os.listdir(f"/proc/{pid}/task")}


def test_follow_idles():
    """No work while nobody looks."""
    if sanitized("tsan"):
        return  # it has a thread of its own that wakes
    job = Training()
    job.save("1_10", 1)
    with Foreground(job.src, job.options()) as m:
        eventually(lambda: latest(m) == "1_10", "the save")
        time.sleep(0.5)

        def idle():
            before = switches(m.process.pid)
            time.sleep(3 * EVERY)
            return switches(m.process.pid) == before

        eventually(idle, "none of its threads wakes")


def iterations(job, view, prefix, digits):
    """Saves as MindSpore Transformers and Megatron lay them out; their tracker is written last."""
    source = folder(view)

    def save(step, version, tracks=True):
        tree = Tree(os.path.join(job.where, f"{view}{version}"), job.params, 4, 2, version)
        out = os.path.join(source, f"{prefix}{step:0{digits}}")
        got = run(reshard, "export", tree.src, out, "--no-fsync", "-o", tree.options(f"view={view}"))
        equal(got.returncode, 0, f"exporting: {got.stderr}")
        if tracks:
            track(step)
        return [tree.expected(rank) for rank in range(2)]

    def track(step):
        with open(os.path.join(source, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write(str(step))

    return source, save, track


def test_follow_trackers():
    """latest moves when the tracker does, also back; a save that it does not name yet is not shown."""
    job = Training()
    for view, prefix, digits in (("mindformers", "iteration_", 8), ("dcp", "iter_", 7)):
        source, save, track = iterations(job, view, prefix, digits)
        dst = f"dst_strategy={job.tree.dir}/dst_strategy.ckpt,format=ckpt,follow={EVERY}"
        with Foreground(source, dst, mnt=folder(f"mnt-{view}")) as m:
            first = save(10, 1, tracks=False)
            unchanged(m)
            equal(saves(m), [], f"{view}: a save without a tracker")
            check("the tracker file names no step from 10 on" in why(m, "0_10"), f"{state(m)}")
            track(10)
            eventually(lambda: latest(m) == "0_10", f"{view}: the tracker names it")
            shows(m, "latest", first)
            second = save(20, 2, tracks=False)
            unchanged(m)
            equal((saves(m), latest(m)), (["0_10"], "0_10"), f"{view}: while a save ends")
            track("")
            unchanged(m)
            equal((saves(m), latest(m)), (["0_10"], "0_10"), f"{view}: an empty tracker")
            track(20)
            eventually(lambda: latest(m) == "0_20", f"{view}: the second save")
            shows(m, "latest", second)
            equal(state(m)["tracked"], 20, "the tracker's step")
            track(10)
            os.listdir(m.mnt)
            equal((saves(m), latest(m)), (["0_10", "0_20"], "0_10"), f"{view}: the tracker goes back")
            with open(os.path.join(source, f"{prefix}{20:0{digits}}", ".metadata.tmp"), "wb"):
                pass
            shows(m, "0_20", second)
            shutil.rmtree(os.path.join(source, f"{prefix}{20:0{digits}}"))
            eventually(lambda: saves(m) == ["0_10"], f"{view}: a folder that was removed")


class Steps:
    """A run whose saves are of torch.distributed.checkpoint. Every step has other bytes."""

    def __init__(self, name="steps"):
        self.job, self.run, self.version = Training(f"{name}-job"), folder(name), 0

    def options(self, *more):
        return ",".join((f"dst_strategy={self.job.tree.dir}/dst_strategy.ckpt", "format=ckpt", *more))

    def make(self, where):
        """Writes all but .metadata. Returns its bytes, and what the mount must show."""
        self.version += 1
        tree, out = self.job.state(self.version), os.path.join(self.job.where, "exported")
        got = run(reshard, "export", tree.src, out, "--no-fsync", "-o", tree.options("view=dcp"))
        equal(got.returncode, 0, f"exporting: {got.stderr}")
        os.makedirs(where)
        for name in os.listdir(out):
            if name.endswith(".distcp"):
                shutil.move(os.path.join(out, name), where)
        metadata, want = read_all(os.path.join(out, ".metadata")), [tree.expected(rank) for rank in range(2)]
        shutil.rmtree(out)
        shutil.rmtree(tree.dir)
        return metadata, want

    def path(self, *parts):
        return os.path.join(self.run, *parts)

    def put(self, path, data):
        with open(self.path(path), "wb") as file:
            file.write(data)


NEVER = "follow=3600"  # seconds, so that no look is due while a test runs


def test_follow_at_once():
    """What ends a save is heard: the next name that is looked up in the root is one after a look."""
    steps = Steps()
    with Foreground(steps.run, steps.options(NEVER)) as m:
        equal(latest(m), None, "before the first save")
        metadata, first = steps.make(steps.path("step-1"))
        equal(latest(m), None, "without its metadata")
        steps.put("step-1/.metadata.tmp", metadata)
        equal(latest(m), None, "with metadata by another name")
        os.rename(steps.path("step-1/.metadata.tmp"), steps.path("step-1/.metadata"))
        equal(latest(m), "0_1", "metadata that got its name")
        shows(m, "latest", first)

        metadata, second = steps.make(steps.path("tmp.2"))
        steps.put("tmp.2/.metadata", metadata)
        equal(latest(m), "0_1", "a save by another name")
        os.rename(steps.path("tmp.2"), steps.path("step-2"))
        equal(latest(m), "0_2", "a save that got its name")
        shows(m, "latest", second)

        metadata, third = steps.make(steps.path("step-3"))
        equal(latest(m), "0_2", "without its metadata")
        with open(steps.path("step-3/.metadata"), "wb", buffering=0) as file:
            file.write(metadata[:100])
            equal(latest(m), "0_2", "a part of its metadata")
            file.write(metadata[100:])
        equal(latest(m), "0_3", "metadata that was closed")
        shows(m, "latest", third)
        shows(m, "0_1", first)

        shutil.rmtree(steps.path("step-3"))
        equal(latest(m), "0_2", "a save that was removed")
        check("reports no changes" not in m.log(), m.log())


def test_follow_trackers_at_once():
    """Also one that is written by another name. A save with files newer than its tracker waits."""
    steps = Steps()
    with Foreground(steps.run, steps.options(NEVER)) as m:
        want = {}
        for step in (1, 2, 3):
            metadata, want[step] = steps.make(steps.path(f"iter_{step:07}"))
            steps.put(f"iter_{step:07}/.metadata", metadata)
            equal(latest(m), f"0_{step - 1}" if step > 1 else None, "before the tracker names it")
            if step == 1:
                steps.put("latest_checkpointed_iteration.txt", b"1")
            elif step == 2:
                steps.put("tracker.tmp", b"2")
                os.rename(steps.path("tracker.tmp"), steps.path("latest_checkpointed_iteration.txt"))
            else:
                steps.put("latest_checkpointed_iteration.txt", b"3")
                time.sleep(0.05)  # times of files have a coarse clock
                os.chmod(steps.path(f"iter_{step:07}", "__0_0.distcp"), 0o640)  # changes it
            if step < 3:
                equal(latest(m), f"0_{step}", "the tracker names it")
                shows(m, "latest", want[step])
        equal(latest(m), "0_2", "with a file that is newer than the tracker")
        equal(why(m, "0_3"), "it is complete, and shown when nothing has changed for 3600 s", "the reason")


def test_follow_where_the_kernel_reports_nothing():
    """One line in the log; saves come with looks, and their end still tells that they are complete."""
    needs_strace_of_a_mount()
    steps = Steps()
    for call, error in (("inotify_init1", "EMFILE"), ("inotify_add_watch", "ENOSPC")):
        shutil.rmtree(steps.run)
        os.mkdir(steps.run)
        inject = ("strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:error={error}")
        with Foreground(steps.run, steps.options(NEVER), before=inject) as m:
            for step in (1, 2):
                metadata, want = steps.make(steps.path(f"step-{step}"))
                steps.put(f"step-{step}/.metadata", metadata)
                equal(latest(m), "0_1" if step > 1 else None, "no look is due")
                eventually(lambda: os.listdir(m.mnt) and latest(m) == f"0_{step}", "a look, a second after the last")
                shows(m, "latest", want)
            equal(m.log().count(f"the kernel reports no changes in it ({os.strerror(getattr(errno, error))})"), 1, m.log())


def test_follow_makes_no_look_in_vain():
    """Logs of a training, and files of saves under way, are no news."""
    needs_strace_of_a_mount()
    steps = Steps()
    trace = folder("trace") + "/calls"
    metadata, _ = steps.make(steps.path("step-1"))
    steps.put("step-1/.metadata", metadata)
    before = ("strace", "-D", "-f", "-qq", "-o", trace, "-e", "trace=getdents64", "-e", "inject=getdents64:delay_enter=1")
    with Foreground(steps.run, steps.options(NEVER), before=before) as m:
        equal(latest(m), "0_1", "the save")
        steps.make(steps.path("step-2"))
        equal(latest(m), "0_1", "a look for the new folder")
        looked = len(read_all(trace))
        for n in range(20):
            steps.put("train.log", b"loss")
            steps.put(f"step-2/__{n}_1.distcp", b"x")
            equal(latest(m), "0_1", "while a save is under way")
        equal(len(read_all(trace)), looked, "folders that were listed")
        steps.put("step-2/.metadata", metadata)
        equal(latest(m), "0_2", "the end of the save")
        check(len(read_all(trace)) > looked, "the trace has no look")


def test_follow_folders_that_end_in_numbers():
    """Of a program that is in no table: they are shown when nothing changes, or at once where their format says the end."""
    steps = Steps()
    with Foreground(steps.run, steps.options(NEVER)) as m:
        want = {}
        for step in (5, 10):
            metadata, want[step] = steps.make(steps.path(f"epoch_{step}"))
            steps.put(f"epoch_{step}/.metadata", metadata)
            equal(latest(m), f"0_{step}", "the end of a save")
        for step in want:
            shows(m, f"0_{step}", want[step])
    for options in ("step=5", "step=all"):
        with Mount(steps.run, steps.options(options)) as m:
            where = "0_5" if options == "step=all" else "."
            shows(m, where, want[5])
    os.mkdir(steps.path("model"))
    os.rename(steps.path("epoch_10"), steps.path("model", "weights"))
    shutil.rmtree(steps.path("epoch_5"))
    got = run(reshardfs, steps.run, folder("none"), "-o", steps.options("follow"))
    equal((got.returncode, got.stderr.count("\n")), (1, 1), "status and lines where nothing can come")
    check("other folders of one kind that end in a number" in got.stderr and steps.path("model", "weights") in got.stderr, got.stderr)


def test_follow_in_the_sandbox():
    """New folders of the source can be read, and the strategies and rules elsewhere again."""
    job = Training()
    with Foreground(job.src, job.options("sandbox=on" if not sanitized() else "")) as m:
        equal(os.listdir(m.mnt), [], "before the first save")
        want = job.save("1_10", 1)
        eventually(lambda: latest(m) == "1_10", "the first save")
        shows(m, "latest", want)
        os.makedirs(os.path.join(job.src, "rank_4"))  # of no rank
        job.save("1_20", 2)
        unchanged(m)
        equal(latest(m), "1_10", "with a folder of a rank that has no file")


def test_follow_replicas():
    """All ranks hold the same slices: one that is missing could be done without, but its save has not ended."""
    job = Training(params=[Param("w", (64, 64), WHOLE, WHOLE)])
    with Foreground(job.src, job.options()) as m:
        want = job.save("1_10", 1, (0, 1, 2))
        unchanged(m)
        equal(saves(m), [], "without a rank")
        check("rank 3 has no file of it: its save has not ended" in why(m, "1_10"), f"{state(m)}")
        job.save("1_10", 1, (3,))
        eventually(lambda: latest(m) == "1_10", "all ranks")
        shows(m, "latest", want)


def test_follow_a_model():
    """convert= and view=huggingface: an engine reads MNT/latest. Rules, config and tokenizer lie elsewhere, and are first
    read in the sandbox, when there is a save."""
    tree, _, options = model()
    os.makedirs(os.path.join(tree.dir, "later"))
    later = Tree(os.path.join(tree.dir, "later", "2"), tree.params, 4, 2, version=1)
    parts = [read_all(tree.path(rank)) for rank in range(4)]
    for rank in range(4):
        os.unlink(tree.path(rank))
    with Foreground(tree.src, f"{options},follow={EVERY}") as m:
        for save, ranks in (("1_10", parts), ("1_20", [read_all(later.path(rank)) for rank in range(4)])):
            for rank in range(4):
                with open(os.path.join(tree.src, f"rank_{rank}", f"net-{save}.ckpt"), "wb") as file:
                    file.write(ranks[rank])
            eventually(lambda: latest(m) == save, f"{save}: {state(m)}")
            engine = os.path.join(m.mnt, "latest")
            equal(sorted(os.listdir(engine)), ["config.json", "model.safetensors", "tokenizer.json"], "the model")
            full = (tree if save == "1_10" else later).full["w"]
            with open(os.path.join(engine, "model.safetensors"), "rb") as file, \
                    mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
                same_bytes(tensor_of(bytes(mapped))[1], transposed(full, 64, 32, len(full) // (64 * 32)), save)
            hidden = os.path.join(m.mnt, ".reshardfs", "tensors")
            equal(os.listdir(os.path.join(hidden, save, "full")), ["model.w.npy", "model.w.json"], "its tensors")
        for rank in range(4):
            os.unlink(os.path.join(tree.src, f"rank_{rank}", "net-1_10.ckpt"))
        eventually(lambda: saves(m) == ["1_20"], "the first one was removed")
        fails_with(errno.ENOENT, lambda: os.listdir(os.path.join(hidden, "1_10")))
        equal(os.listdir(hidden), ["1_20"], "the hidden folder")


def test_follow_encrypted_saves():
    """The key is read once, and opens each save; one of another key is not shown."""
    job = Training()

    def save_sealed(save, version, key):
        want = job.save("0_0", version)
        for rank in range(4):
            with open(job.path(rank, save), "wb") as file:
                file.write(seal(read_all(job.path(rank, "0_0")), key))
        job.remove("0_0")
        return want

    path = key_file(job.tree)
    with Foreground(job.src, job.options(f"key_file={path}", "cache=80M")) as m:
        os.unlink(path)
        for version, save in enumerate(("1_10", "1_20"), 1):
            want = save_sealed(save, version, KEY)
            eventually(lambda: latest(m) == save, f"{save}: {state(m)}")
            shows(m, "latest", want)
        save_sealed("1_30", 3, KEY[::-1])
        unchanged(m)
        equal((saves(m), latest(m)), (["1_10", "1_20"], "1_20"), "with a save of another key")
        check(job.path(0, "1_30") in why(m, "1_30"), f"{state(m)}")


def test_follow_is_refused():
    job = Training()
    job.save("1_10", 1)
    for options, what in (
        ("follow,step=10", "option follow shows all saves, and step= one; try: follow without step=, or with step=all"),
        ("follow=0", "option follow=0: not a number from 1 to 86400; try: follow=10"),
        ("follow=soon", "option follow=soon: not a number from 1 to 86400; try: follow=10"),
    ):
        fails(2, what, job.src, folder("mnt"), "-o", job.tree.options(options))
    fails(2, "option follow: a source on a hub stays at one commit; try: a mount without follow",
          "hf://acme/net", folder("mnt"), "-o", job.tree.options("follow"))
    whole = Tree(folder("whole"), usual(), 1, 2)
    fails(2, "option step=all: the source is one checkpoint; try: a source with several checkpoints in a folder",
          whole.path(0), folder("mnt"), "-o", f"dst_strategy={whole.dir}/dst_strategy.ckpt,follow")
    with Mount(job.src, job.tree.options("follow")) as m:
        config = json.loads(read_all(os.path.join(m.mnt, ".reshardfs", "config.json")))
        equal((config["mount"]["follow"], config["view"]["step"]), ("5", "all") if isinstance(config["mount"]["follow"], str) else (5, "all"), "the options")


# ---- a training, and readers under load ------------------------------------------------------------------


class Reader:
    """A process that reads what latest, or any folder, leads to. It believes the sums that the training noted, before
    it ended a save, and nothing else: each file whole, and of one save."""

    def __init__(self, mnt, notes, seed):
        out, into = os.pipe()
        self.pid, self.out = os.fork(), out
        if self.pid == 0:
            signal.alarm(0)
            os.close(out)
            told = self.run(mnt, notes, random.Random(seed))
            os.write(into, json.dumps(told).encode())
            os._exit(0)
        os.close(into)

    def run(self, mnt, notes, choose):
        told = {"reads": 0, "errors": {}, "wrong": None, "moves": 0}
        newest = 0
        while not os.path.exists(os.path.join(notes, "end")):
            try:
                save = os.readlink(os.path.join(mnt, "latest"))
                step = int(save.split("_")[1])
                told["moves"] += step > newest
                if step < newest:
                    told["wrong"] = f"latest went from {newest} back to {step}"
                    break
                newest = step
                if choose.random() < 0.5:
                    save = choose.choice([name for name in os.listdir(mnt) if name != "latest"])
                rank = choose.randrange(2)
                path = os.path.join(mnt, save, f"rank_{rank}", f"checkpoint_{rank}.ckpt")
                data = b""
                with open(path, "rb", buffering=0) as file:
                    while piece := file.read(choose.choice((4096, 100000, 1 << 20))):
                        data += piece
                told["reads"] += 1
                with open(os.path.join(notes, save)) as file:
                    if f"{rank} {hashlib.sha256(data).hexdigest()}" not in file.read().splitlines():
                        told["wrong"] = f"{path}: {len(data)} bytes of no save"
                        break
            except OSError as error:
                name = errno.errorcode.get(error.errno, str(error.errno))
                told["errors"][name] = told["errors"].get(name, 0) + 1
                time.sleep(0.01)
            except IndexError:  # no folder
                pass
        return told

    def join(self):
        with os.fdopen(self.out, "rb") as out:
            told = json.loads(out.read() or b"null")
        os.waitpid(self.pid, 0)
        return told


class Play(Training):
    """Saves of all fates: whole ones, slow ones, those whose writers are killed, and some that are written again."""

    def __init__(self, seed):
        super().__init__()
        self.notes, self.choose = folder("notes"), random.Random(seed)
        self.version = 0

    def next(self, save):
        """The bytes of the source's ranks in a new state, whose sums are noted."""
        self.version += 1
        state = self.state(self.version)
        data = [read_all(state.path(rank)) for rank in range(4)]
        with open(os.path.join(self.notes, save), "a") as file:
            for rank in range(2):
                file.write(f"{rank} {hashlib.sha256(state.expected(rank)).hexdigest()}\n")
        shutil.rmtree(state.dir)
        return data

    def ranks(self):
        return self.choose.sample(range(4), 4)

    def whole(self, save):
        data = self.next(save)
        for rank in self.ranks():
            self.put(rank, save, data[rank])
            time.sleep(self.choose.random() * 0.1)

    def slow(self, save):
        """In place, and at full length from the beginning on."""
        data = self.next(save)
        for rank in self.ranks():
            with open(self.path(rank, save), "wb", buffering=0) as file:
                os.truncate(file.fileno(), len(data[rank]))
                for at in range(0, len(data[rank]), len(data[rank]) // 3):
                    file.write(data[rank][at : at + len(data[rank]) // 3])
                    time.sleep(self.choose.random() * EVERY / 4)

    def killed(self, save):
        """Some ranks are whole, one is cut short, one is missing. Its sums are never noted."""
        state = self.state(-1 - self.version)
        for n, rank in enumerate(self.ranks()):
            data = read_all(state.path(rank))
            if n < 3:
                self.put(rank, save, data[: len(data) if n < 2 else self.choose.randrange(len(data))])
        shutil.rmtree(state.dir)

    def run(self, m, n):
        """N saves. Returns how many were of which fate."""
        kept, fates = [], {}
        for step in range(1, n + 1):
            save = f"1_{step}"
            fate = "whole" if step in (1, n) else self.choose.choice(("whole", "whole", "slow", "killed", "killed again"))
            fates[fate] = fates.get(fate, 0) + 1
            if fate.startswith("killed"):
                self.killed(save)
                time.sleep(self.choose.random() * 2 * EVERY)
            if fate == "killed again":  # the job starts again, and saves over what is there
                self.whole(save)
            elif fate != "killed":
                getattr(self, fate)(save)
            if fate != "killed":
                eventually(lambda: latest(m) == save, f"{save}, {fate}, is the latest")
                kept.append(save)
            if len(kept) > 2 and self.choose.random() < 0.3:
                fates["written anew"] = fates.get("written anew", 0) + 1
                self.whole(kept[-2])
            while len(kept) > 4:
                self.remove(kept.pop(0))
        return fates


def play(n, readers, seed, job=None, source=None, **how):
    """Returns what the readers tell, summed up."""
    job, total = job or Play(seed), {"reads": 0, "errors": {}, "moves": 0}
    with Foreground(source or job.src, job.options("cache=16M"), **how) as m:
        crowd = [Reader(m.mnt, job.notes, f"{seed}-{k}") for k in range(readers)]
        try:
            fates = job.run(m, n)
            unchanged(m)
            for save in saves(m):
                for rank in range(2):
                    data = read_all(file_of(m, save, rank))
                    last = read_all(os.path.join(job.notes, save)).decode().splitlines()[rank - 2]
                    equal(last, f"{rank} {hashlib.sha256(data).hexdigest()}", f"{save} at the end")
        finally:
            with open(os.path.join(job.notes, "end"), "w"):
                pass
            told = [reader.join() for reader in crowd]
        equal([one["wrong"] for one in told], [None] * readers, "what readers found")
        for one in told:
            total["reads"] += one["reads"]
            total["moves"] = max(total["moves"], one["moves"])
            for name, k in one["errors"].items():
                total["errors"][name] = total["errors"].get(name, 0) + k
        equal(set(total["errors"]) - {"ENOENT", "ESTALE"}, set(), "errors that nobody caused")
        check(total["reads"] > 5 * n and total["moves"] >= 3, f"the readers: {total}")
        check(not [line for line in m.log().splitlines() if "AddressSanitizer" in line], m.log())
    return {**fates, **total}


def test_follow_a_training():
    """A short one; tests/stress has the long one."""
    seed = int(os.environ.get("RFS_SEED") or time.time())
    print(f"seed {seed}: {play(8, 4, seed)}", flush=True)
