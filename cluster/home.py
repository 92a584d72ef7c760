"""The folder that holds all state of Headrace on this machine: `$HEADRACE_HOME`, mode 0700.

Where the nodes of a cluster have homes of their own, a run is *apart*: what its processes leave for
each other goes through the shared store, and a path below the home means the same place in the home
of whichever node it is passed to.
"""

import copyreg
import os
import stat
from pathlib import Path
from typing import Any

from cluster.errors import BadInput

OF_A_HOME = {"artifacts", "locks", "ray_token", "runs", "services.json", "tracking"}
OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
APART = "HEADRACE_APART"
"""Set, once the nodes were asked, in all processes of a run whose nodes have their own homes: the
home of the command.
"""


def home() -> Path:
    """`$HEADRACE_HOME` or `~/.headrace`, private to the user: made so, or refused with BadInput. On
    a node apart that names none it has the path of the command's.
    """
    named = os.environ.get("HEADRACE_HOME") or os.environ.get(APART)
    path = Path(named or Path.home() / ".headrace").expanduser().resolve()
    if path.exists() and not path.is_dir():
        raise BadInput(f"the home {path} is a file; name a folder, with --home or HEADRACE_HOME")
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)  # another process may be as far
    except FileNotFoundError as error:  # a file system in which nothing is made, as /proc
        raise BadInput(
            f"the home {path} cannot be made; name another, with --home or HEADRACE_HOME"
        ) from error
    about = path.stat()
    if about.st_uid != os.getuid() or about.st_mode & OF_OTHERS:
        _make_private(path, about)
    return path


def _make_private(path: Path, about: os.stat_result) -> None:
    """Close a home to other users. Raises BadInput where it cannot be one's own.

    What holds other things, as /tmp does, is nobody's to close.
    """
    if about.st_uid != os.getuid():
        raise BadInput(
            f"the home {path} belongs to another user (id {about.st_uid}), who could read and "
            "change what is in it; name a folder of your own, with --home or HEADRACE_HOME"
        )
    inside = {entry.name for entry in path.iterdir()}
    if about.st_mode & stat.S_ISVTX or (inside and not inside & OF_A_HOME):
        raise BadInput(
            f"the home {path} is open to other users and holds other things: `chmod 700 {path}` if "
            "it is yours alone, or name another folder, with --home or HEADRACE_HOME"
        )
    path.chmod(stat.S_IRWXU)
    if path.stat().st_mode & OF_OTHERS:
        raise BadInput(
            f"the home {path} cannot be closed to other users, as its file system keeps no modes; "
            "name a folder elsewhere, with --home or HEADRACE_HOME"
        )


def subfolder(name: str) -> Path:
    """A folder of the home, created on first use: artifacts, work, runs, prefect, mlflow, ..."""
    path = home() / name
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def apart() -> bool:
    """Whether the nodes of this run have homes of their own."""
    return APART in os.environ


def below_home(name: str) -> Path:
    """A place in the home of this node."""
    return home() / name


def _reduced(path: Path) -> Any:
    if apart() and path.is_relative_to(home()):
        return below_home, (path.relative_to(home()).as_posix(),)
    return path.__reduce__()


copyreg.pickle(type(Path()), _reduced)


def cache_folder(name: str) -> Path:
    """A folder for what can be made anew, compiled kernels or bytecode, which all clones and homes
    of a user share: in `headrace` in the system's cache folder, `~/.cache`.

    Where nothing can be written there, as for a user without a home, in `$HEADRACE_HOME/cache`.
    """
    try:
        system = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = system / "headrace" / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        writable = os.access(folder, os.W_OK)
    except (OSError, RuntimeError):
        writable = False
    return folder if writable else subfolder(f"cache/{name}")
