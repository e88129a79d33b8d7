# SPDX-License-Identifier: Apache-2.0
"""A Slurm of one node, on free ports, with its own key. Its programs are ended by their process numbers."""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CPUS = 8  # whatever the machine has
PATIENCE = 60

SETTINGS = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={base}/munge.socket
CredType=cred/munge
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
PrologFlags=Alloc
Prolog={base}/scripts/prolog
Epilog={base}/scripts/epilog
TaskProlog={base}/scripts/task_prolog
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not():
    """What is missing to start one; None if nothing is."""
    if os.geteuid() != 0:
        return "only root can start Slurm's programs"
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun") if not shutil.which(name)]
    return f"{missing[0]} is missing; try: scripts/test slurm" if missing else None


def free_ports(n):
    held = [socket.socket() for _ in range(n)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def write_scripts(base, mounts):
    """The prolog and the epilog that users get, with another folder for the mounts."""
    os.makedirs(os.path.join(base, "scripts"))
    for name in ("prolog", "epilog", "task_prolog"):
        with open(os.path.join(top, "contrib", "slurm", name), encoding="utf-8") as file:
            text = file.read()
        assert "/run/reshardfs" in text, name
        path = os.path.join(base, "scripts", name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("/run/reshardfs", mounts))
        os.chmod(path, 0o755)


def process_of(base, name):
    try:
        with open(os.path.join(base, name + ".pid"), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def stop(base):
    for name in ("slurmd", "slurmctld", "munged"):
        pid = process_of(base, name)
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                os.kill(pid, 0)
                time.sleep(0.05)


def is_ready():
    got = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False)
    return got.stdout.strip() == "idle"


@contextlib.contextmanager
def slurm():
    """Sets SLURM_CONF; the value is the folder below which the prolog makes those of jobs."""
    base = tempfile.mkdtemp(prefix="reshard-slurm-")
    mounts = os.path.join(base, "mounts")
    os.chmod(base, 0o755)
    for name in ("state", "spool"):
        os.mkdir(os.path.join(base, name))
    write_scripts(base, mounts)
    with open(os.open(os.path.join(base, "key"), os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.write(os.urandom(1024))
    control, node = free_ports(2)
    settings = os.path.join(base, "slurm.conf")
    with open(settings, "w", encoding="ascii") as file:
        file.write(SETTINGS.format(base=base, host=socket.gethostname().split(".")[0], control=control, node=node, cpus=CPUS))
    os.environ["SLURM_CONF"] = settings
    try:
        subprocess.run(["munged", "--force", "--key-file", f"{base}/key", "--socket", f"{base}/munge.socket", "--pid-file",
                        f"{base}/munged.pid", "--log-file", f"{base}/munged.log", "--seed-file", f"{base}/munge.seed"],
                       check=True)
        for program in ("slurmctld", "slurmd"):
            subprocess.run([program, "-f", settings], check=True)
        end = time.monotonic() + PATIENCE
        while not is_ready():
            if time.monotonic() > end:
                raise TimeoutError(f"Slurm is not ready; its logs are in {base}")
            time.sleep(0.1)
        yield mounts
    finally:
        stop(base)
    shutil.rmtree(base)
