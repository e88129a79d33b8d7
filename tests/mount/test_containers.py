# SPDX-License-Identifier: Apache-2.0
"""Containers: a mount whose descriptor comes over a socket, and the manifests of contrib/kubernetes."""
import ctypes
import hashlib
import json
import os
import shutil
import socket
import subprocess
import threading

from forge import Tree, usual
from harness import (PATIENCE, equal, eventually, fails, folder, mounted, need, needs_programs_of_all, read_all, reshard,
                     reshardfs, run, same_bytes, top, unmount)

MANIFESTS = os.path.join(top, "contrib", "kubernetes")


def small():
    return Tree(folder("tree"), usual(), 4, 2)


def mounted_on(mnt):
    """Mounts as a CSI driver does; the descriptor of /dev/fuse."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    data = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions".encode()
    equal(libc.mount(b"ours", mnt.encode(), b"fuse", 1, data), 0, f"mount: {os.strerror(ctypes.get_errno())}")
    return fd


class Sender:
    """A socket on which the first client gets a message of these descriptors, as meta-fuse-csi-plugin sends it."""

    def __init__(self, path, descriptors, text=b'{"volumeName":"fuse"}'):
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        os.chmod(path, 0o777)
        self.thread = threading.Thread(target=self.serve, args=(descriptors, text))

    def serve(self, descriptors, text):
        client, _ = self.server.accept()
        with client:
            if text:
                socket.send_fds(client, [text], descriptors)

    def start(self):
        self.server.listen()
        self.thread.start()

    def stop(self):
        self.thread.join(PATIENCE)
        self.server.close()


def test_a_descriptor_over_a_socket():
    """Also one that nobody listens to yet, and with a second descriptor; the server ends when it was unmounted."""
    need(os.geteuid() == 0, "only root can mount by itself")
    tree, mnt = small(), folder("mnt")
    for background in (False, True):
        path = os.path.join(folder("sockets"), f"{background}.sock")
        fd = mounted_on(mnt)
        flags = [] if background else ["-f"]
        command = [reshardfs, tree.src, mnt, "--fd-socket", path, "-o", tree.options(), *flags]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        sender = Sender(path, [fd, fd][: 1 + background])
        sender.start()
        sender.stop()
        os.close(fd)
        try:
            same_bytes(read_all(os.path.join(mnt, "rank_1", "checkpoint_1.ckpt")), tree.expected(1), "rank 1")
            config = json.loads(read_all(os.path.join(mnt, ".reshardfs", "config.json")))
            equal(config["mountpoint"], mnt, "the place that is told")
            if background:
                equal(process.wait(PATIENCE), 0, "the parent's status")
        finally:
            unmount(mnt)
        equal(process.wait(PATIENCE), 0, "status")


def test_sockets_without_a_descriptor():
    tree, sockets = small(), folder("sockets")

    def refused(name, why, *sent, remedy=""):
        path = os.path.join(sockets, name)
        sender = Sender(path, *sent) if sent else None
        if sender:
            sender.start()
        fails(1, f"{path}: {why}{remedy}", tree.src, folder("mnt"), "-f", "--fd-socket", path, "-o", tree.options())
        if sender:
            sender.stop()

    none = "a message without a descriptor came over the socket; try: a program that sends it by SCM_RIGHTS"
    refused("none", none, [], b"text")
    refused("closed", none, [], b"")
    refused("x" * 120, "the path of a socket has at most 107 bytes; try: a shorter path")
    strategy = os.path.join(tree.dir, "src_strategy.ckpt")
    for other in (strategy, "/dev/null"):
        with open(other) as file:
            refused(os.path.basename(other), "the descriptor is not one of /dev/fuse", [file.fileno()],
                    remedy="; try: a program that sends the one that it has mounted")


VALIDATE = """
import json, sys, yaml, kubernetes_validate
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        manifest = yaml.safe_load(file)
    kubernetes_validate.validate(manifest, "1.37", strict=True)
    print(json.dumps(manifest))
"""


def manifests():
    """The manifests by their file, valid by the schemas of Kubernetes."""
    python = os.environ.get("RFS_NUMBERS_PYTHON", "")
    need(os.path.exists(python), "kubernetes-validate is missing; try: scripts/test numbers-packages")
    names = sorted(os.listdir(MANIFESTS))
    got = run(python, "-c", VALIDATE, *(os.path.join(MANIFESTS, name) for name in names))
    equal((got.returncode, got.stderr), (0, ""), "the schemas")
    return dict(zip(names, map(json.loads, got.stdout.splitlines()), strict=True))


class Pod:
    """What the commands of a container find here: its paths, programs and variables."""

    def __init__(self, tree, container, **paths):
        for name in ("src_strategy.ckpt", "dst_strategy.ckpt"):
            shutil.copy(os.path.join(tree.dir, name), tree.src)
        self.paths = {"/source": tree.src, **{"/" + name: path for name, path in paths.items()}}
        self.command = [self.here(word) for word in container["command"] + container.get("args", [])]
        self.env = {**os.environ, **{e["name"]: self.here(e["value"]) for e in container.get("env", [])}}

    def here(self, word):
        if word in ("reshard", "reshardfs"):
            return {"reshard": reshard, "reshardfs": reshardfs}[word]
        for theirs, ours in self.paths.items():
            word = word.replace(theirs, ours)
        return word


def unprivileged(pod, container):
    """Whether the container may do nothing but what each program of user 65534 may."""
    both = {**pod["securityContext"], **container.get("securityContext", {})}
    wanted = {"runAsNonRoot": True, "runAsUser": 65534, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {name: both.get(name) for name in wanted} == wanted


def test_manifests_give_no_more_than_is_needed():
    """No program of a container has a right that it can do without: only mounting has one."""
    for name, manifest in manifests().items():
        pod = manifest["spec"].get("template", manifest)["spec"]
        equal(pod.get("automountServiceAccountToken"), False, f"{name}: a token of the cluster")
        equal(pod.get("securityContext", {}).get("seccompProfile"), {"type": "RuntimeDefault"}, f"{name}: system calls")
        equal({"hostPID", "hostIPC", "hostNetwork"} & set(pod), set(), f"{name}: the node's")
        for container in pod.get("initContainers", []) + pod["containers"]:
            mounts = name == "device-plugin.yaml"
            equal(unprivileged(pod, container), not mounts, f"{name}: container {container['name']} is unprivileged")
            equal([v["name"] for v in container["volumeMounts"] if v["name"] == "source" and not v.get("readOnly")], [], name)


def test_the_program_that_loads_has_no_capability():
    """In a container that mounts by itself, with the capabilities that its manifest gives it."""
    need(os.geteuid() == 0, "only root can mount by itself")
    needs_programs_of_all()
    container = manifests()["device-plugin.yaml"]["spec"]["containers"][0]
    given = container["securityContext"]["capabilities"]
    equal(given.get("drop"), ["ALL"], "what the container drops")
    tree, programs, mnt = small(), folder("bin"), folder("mnt")
    for rank in range(4):
        os.chmod(tree.path(rank), 0o644)
    os.symlink(reshardfs, os.path.join(programs, "reshardfs"))
    with open(os.path.join(programs, "python"), "w") as file:  # load.py --ckpt FOLDER
        file.write("#!/bin/sh\ngrep -E '^(Uid|Cap|NoNewPrivs)' /proc/self/status\nexec sha256sum <$3/rank_1/checkpoint_1.ckpt\n")
    os.chmod(os.path.join(programs, "python"), 0o755)
    pod = Pod(tree, container, resharded=mnt)
    bounds = ",".join(["-all", *("+" + name.lower() for name in given["add"])])
    try:
        got = run("setpriv", f"--bounding-set={bounds}", f"--inh-caps={bounds}", *pod.command,
                  env={**pod.env, "PATH": programs + ":" + os.environ["PATH"]})
        equal((got.returncode, got.stderr), (0, ""), "status, stderr")
    finally:
        if mounted(mnt):
            unmount(mnt)
    *rights, sum_ = got.stdout.splitlines()
    said = dict(line.split(":\t", 1) for line in rights)
    equal({value for name, value in said.items() if name.startswith("Cap")}, {"0" * 16}, f"capabilities: {said}")
    equal((said["NoNewPrivs"], said["Uid"]), ("1", "\t".join(["65534"] * 4)), "what else it may")
    equal(sum_.split()[0], hashlib.sha256(tree.expected(1)).hexdigest(), "rank 1")


def test_manifests_are_valid_and_their_commands_work():
    """The sidecar without any privilege, its probe, and each task of the export, as the user of the manifests."""
    given = manifests()
    equal(list(given), ["device-plugin.yaml", "export.yaml", "sidecar.yaml"], "manifests")
    tree, target = small(), folder("target")
    job = given["export.yaml"]["spec"]
    equal(job["completions"], job["parallelism"], "all at once")
    pod = Pod(tree, job["template"]["spec"]["containers"][0], target=target)
    without = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs")
    if os.geteuid() == 0:
        needs_programs_of_all()
        os.chmod(target, 0o777)  # fsGroup
        for rank in range(4):
            os.chmod(tree.path(rank), 0o644)
        pod.command = [*without, *pod.command]
    for task in range(job["completions"]):
        got = run(*(word.replace("$(JOB_COMPLETION_INDEX)", str(task)) for word in pod.command),
                  env={**pod.env, "JOB_COMPLETION_INDEX": str(task)})
        equal((got.returncode, "warning" in got.stderr), (0, False), got.stderr)
    equal(run(reshard, "export", "--verify", os.path.join(target, "resharded")).returncode, 0, "all of it")

    need(os.geteuid() == 0, "only root can mount by itself")
    sockets, mnt = folder("sockets"), folder("mnt")
    sidecar = given["sidecar.yaml"]["spec"]["initContainers"][0]
    pod = Pod(tree, sidecar, socket=sockets, resharded=mnt)
    probe = [pod.here(word) for word in sidecar["startupProbe"]["exec"]["command"]]
    equal(run(*probe).returncode, 1, "the probe before")
    process = subprocess.Popen([*without, *pod.command], env=pod.env, stdin=subprocess.DEVNULL)
    fd = mounted_on(mnt)
    sender = Sender(os.path.join(sockets, "fuse.sock"), [fd])
    sender.start()
    sender.stop()
    os.close(fd)
    try:
        eventually(lambda: run(*probe).returncode == 0, "the probe")
        same_bytes(read_all(os.path.join(mnt, "rank_1", "checkpoint_1.ckpt")), tree.expected(1), "rank 1")
    finally:
        unmount(mnt)
    equal(process.wait(PATIENCE), 0, "status")
