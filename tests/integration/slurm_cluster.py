"""A Slurm cluster of one machine that lasts as long as a `with` block and touches no other.

    python tests/integration/slurm_cluster.py COMMAND …

runs a command in such a cluster. It needs Debian's slurmctld, slurmd, slurm-client and munge, and nothing in /etc.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
TOOLS = ("sbatch", "srun", "scontrol", "squeue", "scancel")

# The node is called localhost so that its name leads to it. Jobs of `urgent` push out those of `normal`, which have
# GraceTime seconds to leave; a requeued job starts again after cred_expire seconds, of which Slurm allows five or more.
CONFIGURATION = """
ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2
PartitionName=normal Nodes=localhost Default=YES PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=localhost PriorityTier=10 PreemptMode=OFF
"""


class Unavailable(Exception):
    """The cluster cannot start here; the message says why."""


@contextlib.contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands speak to a new cluster of one idle node with two cores.

    Raises:
      Unavailable: a program is missing or a daemon does not come up.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    missing = [name for name in (*DAEMONS, *TOOLS) if shutil.which(name, path=path) is None]
    if missing:
        raise Unavailable(f"no {', '.join(missing)} here: apt-get install slurmctld slurmd slurm-client munge")
    # A path this short leaves room for the names of sockets.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    environment = os.environ | {"PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}
    daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(*command: str) -> None:
        with (folder / f"{command[0]}.out").open("wb") as output:
            daemons[command[0]] = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    try:
        folder.chmod(0o755)  # munge wants no more and no less
        configure(folder)
        munge = folder / "munge"
        options = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        start("munged", "--foreground", "--force", *(f"--{name}={munge / file}" for name, file in options.items()))
        wait_until(lambda: (munge / "socket").exists(), folder, daemons)
        start("slurmctld", "-D", "-c")
        start("slurmd", "-D", "-N", "localhost")
        wait_until(lambda: asked(environment, "sinfo", "--noheader", "--format=%T").startswith("idle"), folder, daemons)
        yield environment
    finally:
        if all(name in daemons and daemons[name].poll() is None for name in DAEMONS):  # else they would not answer
            asked(environment, "scancel", "--signal=KILL", "--full", f"--user={os.getuid()}")
            asked(environment, "scancel", f"--user={os.getuid()}")
            with contextlib.suppress(Unavailable):
                wait_until(lambda: not asked(environment, "squeue", "--noheader"), folder, daemons)
        for daemon in daemons.values():
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
        shutil.rmtree(folder, ignore_errors=True)


def configure(folder: Path) -> None:
    """The files and folders that the daemons start from."""
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(mode=0o755)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    with socket.socket() as one, socket.socket() as other:
        for listener in (one, other):
            listener.bind(("127.0.0.1", 0))
        ports = [listener.getsockname()[1] for listener in (one, other)]
    host = socket.gethostname().split(".")[0]
    user = subprocess.run(["id", "--user", "--name"], capture_output=True, text=True, check=True).stdout.strip()
    text = CONFIGURATION.format(folder=folder, host=host, ports=ports, user=user)
    (folder / "slurm.conf").write_text(text)


def asked(environment: dict[str, str], *command: str) -> str:
    """What a command of Slurm prints; nothing when it fails."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def wait_until(
    true: Callable[[], bool], folder: Path, daemons: dict[str, subprocess.Popen[bytes]], seconds: float = 30
) -> None:
    """Wait for `true()`; a daemon that has ended or the end of patience raises `Unavailable` with the last words."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in daemons.values()):
            logs = [*folder.glob("*.out"), *folder.glob("*.log"), folder / "munge" / "log"]
            words = [log.read_text().strip().split("\n")[-1] for log in logs if log.exists()]
            raise Unavailable("it does not start: " + " | ".join(filter(None, words)))
        time.sleep(0.1)


if __name__ == "__main__":
    try:
        with cluster() as here:
            sys.exit(subprocess.run(sys.argv[1:] or [os.environ.get("SHELL", "sh")], env=here).returncode)
    except Unavailable as error:
        sys.exit(f"No Slurm: {error}")
