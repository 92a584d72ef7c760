"""Hosts on one machine, for tests: network namespaces with an address, a name, processes and a disk
of their own. Needs root, iproute2 and util-linux.

    with hosts(3, folder) as (one, two, three):
        one.run(["hostname"]); two.kill()

They share the machine's disk but for `folder`, which is empty and each host's own. The machine
itself is reached at `GATEWAY`.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

GATEWAY, BRIDGE, PREFIX = "10.78.0.1", "hrtest", "hrt"
INSIDE = """
set -e
hostname {name}
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o size=1g,mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs {folder}
touch {folder}/ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Host:
    """One of them; `pid` is that of its first process."""

    name: str
    address: str
    folder: Path
    pid: int

    def start(
        self, command: list[str], variables: Mapping[str, str], **options: object
    ) -> subprocess.Popen[str]:
        """A command on this host."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-u", "-p", "-n", f"-w{self.folder}"]
        own = {"HOME": str(self.folder), "TMPDIR": str(self.folder)}
        return subprocess.Popen(
            [*enter, *command],
            env=plain() | own | dict(variables),
            text=True,
            **options,  # type: ignore[call-overload]
        )

    def runs(self, title: str) -> bool:
        """Whether a process of this title runs here."""
        command = ["ip", "netns", "pids", self.name]
        pids = subprocess.run(command, capture_output=True, text=True).stdout.split()
        for pid in pids:
            with contextlib.suppress(OSError):
                if title in Path(f"/proc/{pid}/cmdline").read_text():
                    return True
        return False

    def kill(self) -> None:
        """End all of its processes at once; what lay in its folder is gone."""
        subprocess.run(["kill", "-9", str(self.pid)], check=True)


def plain() -> dict[str, str]:
    """The environment without what this test run has set for its own services."""
    ours = ("HEADRACE_", "PREFECT_", "MLFLOW_", "RAY_", "DS_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@contextlib.contextmanager
def hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    """Some hosts while the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    _down(count)
    try:
        _ip(f"link add {BRIDGE} type bridge", f"addr add {GATEWAY}/24 dev {BRIDGE}")
        _ip(f"link set {BRIDGE} up")
        yield [_up(number, folder) for number in range(1, count + 1)]
    finally:
        _down(count)


def _up(number: int, folder: Path) -> Host:
    name, address = f"{PREFIX}{number}", f"10.78.0.{10 + number}"
    _ip(f"netns add {name}", f"link add {name}v type veth peer name eth0 netns {name}")
    _ip(f"link set {name}v master {BRIDGE} up", f"-n {name} link set lo up")
    _ip(f"-n {name} addr add {address}/24 dev eth0", f"-n {name} link set eth0 up")
    _ip(f"-n {name} route add default via {GATEWAY}")
    inside = INSIDE.format(name=name, folder=folder)
    spaces = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child"]
    outer = subprocess.Popen(["ip", "netns", "exec", name, *spaces, "bash", "-c", inside])
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.05)
    host = Host(name, address, folder, int(found[0]))
    while not Path(f"/proc/{host.pid}/root{folder}/ready").exists():
        assert outer.poll() is None, f"{name} did not start"
        time.sleep(0.05)
    return host


def _down(count: int) -> None:
    """Remove what there is, also of a test that was killed."""
    for number in range(1, count + 1):
        pids = subprocess.run(
            ["ip", "netns", "pids", f"{PREFIX}{number}"], capture_output=True, text=True
        ).stdout.split()
        if pids:
            subprocess.run(["kill", "-9", *pids], stderr=subprocess.DEVNULL)
        for gone in (["netns", "del", f"{PREFIX}{number}"], ["link", "del", f"{PREFIX}{number}v"]):
            subprocess.run(["ip", *gone], stderr=subprocess.DEVNULL)
    subprocess.run(["ip", "link", "del", BRIDGE], stderr=subprocess.DEVNULL)


def _ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
