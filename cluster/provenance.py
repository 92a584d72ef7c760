"""Who runs what, where, with which source: what a run's record, page and tracked run say of it."""

import getpass
import os
import platform
import shlex
import socket
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from cluster.environment import ROOT
from cluster.url_secrets import hidden

GIT_SECONDS = 5.0


def provenance() -> dict[str, str]:
    """User, host, command, Headrace's version and commit (`-dirty` where files were changed since),
    Python; without what cannot be told.
    """
    found = {
        "user": _user(),
        "host": socket.gethostname(),
        "command": hidden(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])),
        "headrace": _version(),
        "commit": commit(),
        "python": platform.python_version(),
    }
    return {name: value for name, value in found.items() if value}


@cache
def commit() -> str:
    """The commit of Headrace's source, from its checkout or from how it was installed; else ''."""
    if not Path(ROOT, ".git").exists():
        told = _distribution("direct_url.json")
        return told.rsplit('"commit_id": "', 1)[1].split('"')[0] if '"commit_id": "' in told else ""
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": GIT_SECONDS}
    try:
        return subprocess.run(command, check=True, **options).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or a checkout that is another user's
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user has no name
        return str(os.getuid())


def _version() -> str:
    try:
        return distribution("headrace").version
    except PackageNotFoundError:
        return ""


def _distribution(file: str) -> str:
    try:
        return distribution("headrace").read_text(file) or ""
    except PackageNotFoundError:
        return ""
