"""up, down, status, ui, doctor: the services, and whether all is ready."""

import getpass
import os
import socket
import sys
import webbrowser
from collections.abc import Mapping
from html import escape
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from cluster.errors import BadInput, StageFailed
from cluster.home import home as root
from cluster.home import subfolder
from flows.commands.options import AsJson, Home
from flows.views.output import Output, output, waiting
from tasks.report.words import duration


def up(home: Home = None, as_json: AsJson = False) -> None:
    """Start the local Prefect server and MLflow UI, or find those that run."""
    from cluster.services import status as state
    from cluster.services import up as start

    with output(as_json) as out:
        start(wait_for_mlflow=True)
        _show(out, state())


def down(
    force: Annotated[bool, typer.Option("--force", help="even while a run needs them")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Stop the local services; what they stored stays. Refuses while a run is going on here."""
    from cluster.services import down as stop

    with output(as_json) as out:
        if not force:
            _check_idle()
        stopped = stop()
        out.result({"stopped": stopped})
        out.say("stopped " + (", ".join(stopped) or "nothing: no service was running"))


def _check_idle() -> None:
    """Raise BadInput naming the runs of this home that are going on, which need the services."""
    from cluster.runs import records

    if running := [r.id for r in records(root()) if r.status == "running" and r.alive]:
        raise BadInput(
            f"{', '.join(running)} is going on and needs the services: wait for it or end it, or "
            "stop them all the same with `headrace down --force`"
        )


def status(home: Home = None, as_json: AsJson = False) -> None:
    """The services and their URLs; runs that go on, with pace and time left; runs that ended."""
    from cluster.services import status as state
    from flows.views.going_on import runs

    with output(as_json) as out:
        services = state()
        _show(out, services)
        found = runs(root())
        out.result(services | {"runs": found})
        for run in found:
            _tell_of(out, run)


def _tell_of(out: Output, run: dict[str, Any]) -> None:
    """A run in a line, and one for each stage that is under way."""
    from flows.views.going_on import used, words

    told = f"{run['status']}, goal {run['goal']}, {duration(run['seconds'])}"
    if "done" in run:
        told += f", {run['done']} of {run['total']} stages"
    if (left := run.get("seconds_left")) is not None:
        told += f", about {duration(left)} left as planned"
    out.say(f"\n{run['id']}  {told}{used(run)}")
    for stage in run.get("stages", ()):
        out.say(f"  {stage['name']}: {words(stage)}")
    if run.get("waiting"):
        out.say(f"  waits for another run: {', '.join(run['waiting'])}")
    if run.get("silent"):
        out.say(f"  not heard of for {duration(run['silent'])}")


def ui(home: Home = None, as_json: AsJson = False) -> None:
    """Open the pages of Prefect and MLflow, signed in: the links work once, for ten minutes."""
    from cluster.services import sign_in
    from cluster.services import up as start

    with output(as_json) as out:
        start(wait_for_mlflow=True)
        links = sign_in()
        out.result({"urls": links})
        for name, url in links.items():
            out.say(f"{name:8} {url}")
        out.say("Each link signs a browser in, once, in ten minutes. On another machine, first:")
        out.say(_tunnel(links))
        if not as_json and _has_screen():
            _open(links)


def _tunnel(links: Mapping[str, str]) -> str:
    """The command that brings the pages to another machine, where the same links open them."""
    local = [urlsplit(url) for url in links.values()]
    ports = [f"-L {u.port}:127.0.0.1:{u.port}" for u in local if u.hostname == "127.0.0.1"]
    return " ".join(["ssh -N", *ports, f"{getpass.getuser()}@{socket.gethostname()}"])


def _has_screen() -> bool:
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in screens)


def _open(links: Mapping[str, str]) -> None:
    """Let the browser open a private page that leads to each link: everybody on the machine may
    read the command that starts it.
    """
    for name, url in links.items():
        page = subfolder("ui") / f"{name}.html"
        page.write_text(f'<meta http-equiv="refresh" content="0; url={escape(url)}">')
        webbrowser.open(page.as_uri())


def _show(out: Output, services: dict[str, Any]) -> None:
    out.result(services)
    rows = (
        (name, s.get("url"), s.get("pid"), "healthy" if s.get("healthy") else "not running")
        for name, s in services.items()
    )
    out.table(("service", "url", "pid", "state"), rows)


def doctor(home: Home = None, as_json: AsJson = False) -> None:
    """Whether this machine, or the cluster that the environment names, is ready for a run.

    Every node of RAY_ADDRESS is asked. What is not in order comes with its cure; exit status 1.
    """
    from cluster.doctor import examine

    with output(as_json) as out:
        with waiting("asking every node"):
            checks = examine()
        out.result({"checks": [check._asdict() for check in checks]})
        out.table(("check", "", "found"), ((c.name, "ok" if c.ok else "no", c.why) for c in checks))
        bad = [check for check in checks if not check.ok]
        for check in bad:
            out.say(f"\n{check.name}: {check.cure}")
        if bad:
            raise StageFailed(f"not in order: {', '.join(check.name for check in bad)}")
