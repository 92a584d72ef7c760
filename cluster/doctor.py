"""Whether this machine, or the cluster that the environment names, is ready for a run.

    for check in examine():
        check.name, check.ok, check.why, check.cure

Every node tells of itself (`node_report`); each check is a plain function of what they told, and
stands in `CHECKS`. Without `RAY_ADDRESS` this machine is the only node, and Ray is not started.
"""

import base64
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.environment import given, given_store, has_gpu, prepare
from cluster.errors import BadInput
from cluster.home import home
from cluster.node_report import NodeReport, Questions, report, versions
from cluster.nodes import Nodes

SKEW_S = 2.0
REFUSED = (401, 403)
LOCAL = "127.0.0.1"


class Check(NamedTuple):
    """What was looked at, whether it is in order, what was found, and what to do about it."""

    name: str
    ok: bool
    why: str
    cure: str = ""


@dataclass(frozen=True)
class Findings:
    """What the nodes told, by node: its report, or why it is `silent`; the GPUs that Ray was
    `promised`; `skews`, the seconds by which its clock is ahead of this machine's. `groups` is by
    backend of a process group: what went wrong, nothing where all nodes summed. `cluster` is
    RAY_ADDRESS; None is this machine alone.
    """

    cluster: str | None
    reports: Mapping[str, NodeReport]
    store: str | None = None
    silent: Mapping[str, str] = field(default_factory=dict)
    promised: Mapping[str, int] = field(default_factory=dict)
    skews: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def hosts(self) -> int:
        """How many machines there are; nodes of one have the same address."""
        return len({one.address for one in self.reports.values()})

    def faults(self, of: Callable[[NodeReport], str]) -> dict[str, str]:
        """By node, what is wrong with it."""
        return {name: wrong for name, one in self.reports.items() if (wrong := of(one))}


def examine() -> list[Check]:
    """All checks, made now; a cluster that cannot be joined is a failed one."""
    prepare()
    try:
        found = _ask_nodes() if os.environ.get("RAY_ADDRESS") else _ask_this_machine()
    except BadInput as error:
        first, _, cure = str(error).partition("\n")
        return [Check("ray", False, first, cure or "start it, or `unset RAY_ADDRESS`")]
    return [made for check in CHECKS if (made := check(found))]


def _ask_this_machine() -> Findings:
    asked = _questions("")
    return Findings(None, {"this machine": report(asked, LOCAL, int(has_gpu()))}, asked.store)


def _ask_nodes() -> Findings:
    """Join the cluster and have every node report. Those that see the home find a file in it."""
    from cluster import ray_session

    ray_session.start(checked=False)
    nodes, mark = Nodes.of_session(), f".doctor-{uuid.uuid4().hex}"
    asked = _questions(mark)
    (home() / mark).write_text("the home of the driver")
    try:
        reports, silent = nodes.reports(asked)
    finally:
        (home() / mark).unlink(missing_ok=True)
    return Findings(
        os.environ["RAY_ADDRESS"],
        reports,
        asked.store,
        silent,
        nodes.gpus,
        nodes.skews(reports),
        nodes.groups(reports),
    )


def _questions(mark: str) -> Questions:
    services: dict[str, tuple[str, dict[str, str]]] = {}
    if api := given("PREFECT_API_URL"):
        key, login = os.environ.get("PREFECT_API_KEY"), os.environ.get("PREFECT_API_AUTH_STRING")
        services["Prefect"] = (f"{api}/admin/version", _authorization(key, login))
    if (uri := given_store()) and uri.startswith("http"):
        user = os.environ.get("MLFLOW_TRACKING_USERNAME")
        login = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}" if user else None
        headers = _authorization(os.environ.get("MLFLOW_TRACKING_TOKEN"), login)
        services["MLflow"] = (f"{uri}/api/2.0/mlflow/experiments/search?max_results=1", headers)
    return Questions(services, os.environ.get("HEADRACE_STORE"), mark)


def _authorization(token: str | None, login: str | None) -> dict[str, str]:
    if token:
        return {"Authorization": f"Bearer {token}"}
    return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}


def _check(name: str, faults: Mapping[str, str], fine: str, cure: str) -> Check:
    """In order where no node has a fault; nodes with the same fault are told of together."""
    if not faults:
        return Check(name, True, fine)
    alike: dict[str, list[str]] = {}
    for node, fault in faults.items():
        alike.setdefault(fault, []).append(node)
    why = "; ".join(f"{', '.join(nodes)}: {fault}" for fault, nodes in alike.items())
    return Check(name, False, why, cure)


def _ray(found: Findings) -> Check:
    if found.cluster is None:
        return Check("ray", True, "starts with each run, on this machine alone")
    return _check(
        "ray",
        found.silent,
        f"{len(found.reports)} nodes on {found.hosts} hosts at {found.cluster}",
        "install the same Headrace and libraries on every node, in one image or one folder, start "
        "its Ray from there (`ray start`), and see that it has memory to start a worker",
    )


def _versions(found: Findings) -> Check:
    """Nodes are compared with this machine, from which tasks come."""
    here = versions()

    def other(one: NodeReport) -> str:
        apart = [name for name in here if one.versions[name] != here[name]]
        return ", ".join(f"{name} {one.versions[name]}, here {here[name]}" for name in apart)

    return _check(
        "versions",
        found.faults(other),
        ", ".join(f"{name} {value}" for name, value in here.items()),
        "use one image, or one folder, for every node and for the machine that starts runs",
    )


def _home(found: Findings) -> Check:
    where = ", ".join(sorted({one.home for one in found.reports.values()}))
    return _check(
        "home",
        found.faults(lambda one: one.home_error),
        f"{where} can be written",
        "set HEADRACE_HOME to a folder that the user of every node may write",
    )


def _shared(found: Findings) -> Check | None:
    """Nodes find each other's artifacts in a home that is one folder, or in the store."""
    if found.cluster is None:
        return None
    apart = found.faults(lambda one: "" if one.sees_mark else "does not see this machine's home")
    if apart and found.store:
        return Check("shared", True, f"artifacts go through {found.store}; homes are each node's")
    return _check(
        "shared",
        apart,
        "the home is one folder for all nodes",
        "set HEADRACE_STORE to a bucket (s3://bucket/prefix), or HEADRACE_HOME to a folder on a "
        "disk that all nodes mount",
    )


def _store(found: Findings) -> Check | None:
    if not found.store:
        return None
    return _check(
        "store",
        found.faults(lambda one: one.store_error),
        f"{found.store} can be written and read",
        "set its credentials where the run is started (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
        " and AWS_ENDPOINT_URL for a server of your own; workers get them), or on every node; "
        "`uv pip install 'headrace[s3]'` brings what speaks S3",
    )


def _names(found: Findings) -> Check | None:
    if found.cluster is None and not any(one.resolved for one in found.reports.values()):
        return None

    def wrong(one: NodeReport) -> str:
        if found.hosts > 1 and one.interface is None:
            return f"none of its interfaces has the address {one.address}"
        for service, address in one.resolved.items():
            if not address[:1].isdigit():
                return f"the host of {service} is {address}"
            if found.hosts > 1 and address.startswith("127."):
                return f"the host of {service} is {address}, each node itself"
        return ""

    used = sorted({one.interface or one.address for one in found.reports.values()})
    return _check(
        "names",
        found.faults(wrong),
        f"nodes talk over {', '.join(used)}",
        "name services in PREFECT_API_URL and MLFLOW_TRACKING_URI by a name or address that every "
        "node reaches; start Ray with --node-ip-address=ADDRESS where it chose the wrong one",
    )


def _ports(found: Findings) -> Check:
    def closed(one: NodeReport) -> str:
        dead = {name: told for name, told in one.services.items() if isinstance(told, str)}
        return ", ".join(f"{name} does not answer ({told})" for name, told in dead.items())

    asked = sorted({name for one in found.reports.values() for name in one.services})
    if found.hosts > 1 and "Prefect" not in asked:
        return Check(
            "ports",
            False,
            "PREFECT_API_URL is not set, and a server that a run starts is for this machine alone",
            "start a Prefect server that all nodes reach, and name it in PREFECT_API_URL",
        )
    return _check(
        "ports",
        found.faults(closed),
        f"{' and '.join(asked)} answer" if asked else "Prefect and MLflow start with a run, here",
        "start the service, on 0.0.0.0 and not on the loopback, and let its port through the "
        "firewall",
    )


def _credentials(found: Findings) -> Check | None:
    def refused(one: NodeReport) -> str:
        answers = {name: told for name, told in one.services.items() if told in REFUSED}
        strange = {n: t for n, t in one.services.items() if isinstance(t, int) and t >= 400}
        told = answers or strange
        return ", ".join(f"{name} answers with status {status}" for name, status in told.items())

    if not any(one.services for one in found.reports.values()):
        return None
    return _check(
        "credentials",
        found.faults(refused),
        "accepted",
        "set PREFECT_API_AUTH_STRING (or PREFECT_API_KEY), MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD where the run is started; an MLflow server must also allow the "
        "name it is called by (--allowed-hosts)",
    )


def _clock(found: Findings) -> Check | None:
    if found.cluster is None:
        return None
    apart = {n: f"{s:+.1f} seconds" for n, s in found.skews.items() if abs(s) > SKEW_S}
    most = max(map(abs, found.skews.values()), default=0.0)
    return _check(
        "clock",
        apart,
        f"at most {most:.1f} seconds apart",
        "let the nodes follow a time server (chrony, systemd-timesyncd); S3 refuses what is dated "
        "wrong",
    )


def _gpus(found: Findings) -> Check:
    def missing(one: NodeReport, promised: int) -> str:
        if one.gpu_error:
            return f"torch cannot use its GPU ({one.gpu_error})"
        if len(one.gpus) < promised:
            return f"Ray was told of {promised} GPUs, torch sees {len(one.gpus)}"
        return ""

    wrong = {n: missing(one, found.promised.get(n, 0)) for n, one in found.reports.items()}
    seen = [gpu for one in found.reports.values() for gpu in one.gpus]
    return _check(
        "gpus",
        {name: what for name, what in wrong.items() if what},
        f"{len(seen)}: {', '.join(sorted(set(seen)))}" if seen else "none",
        "install a driver that is as new as torch's CUDA (`nvidia-smi` tells), the CUDA build of "
        "torch, and start containers with their GPUs (--gpus all)",
    )


def _groups(found: Findings) -> Check | None:
    if not found.groups:
        return None
    return _check(
        "process groups",
        {backend: wrong for backend, wrong in found.groups.items() if wrong},
        f"all nodes sum with {' and '.join(found.groups)}",
        "let all ports between the nodes through the firewall; where they have several networks, "
        "name the interface in GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, which workers get; "
        "NCCL_DEBUG=INFO says more",
    )


CHECKS: tuple[Callable[[Findings], Check | None], ...] = (
    _ray,
    _versions,
    _home,
    _shared,
    _store,
    _names,
    _ports,
    _credentials,
    _clock,
    _gpus,
    _groups,
)
