"""Sources that are not on this machine: URLs and Hugging Face data sets, copied once.

Copies lie in `$HEADRACE_HOME/downloads/`; a file is fetched again when its remote checksum changes.
Bytes go from the network to the disk in chunks. What fails in passing is tried again, three times.
"""

import glob
import hashlib
import itertools
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from cluster.addresses import check_host, open_socket
from cluster.errors import BadInput, no_file_system
from cluster.files import write_atomically
from cluster.home import subfolder
from cluster.names import inside
from cluster.url_secrets import hidden, revealed
from tasks.data.reading.formats import ARCHIVES, MEMBERS
from tasks.data.reading.http import TransientError, fetch

HUB = "hf://"
HTTP = ("http://", "https://")
INDEX = ".index.json"
# Of a data set's repository, what is about the data and not the data.
NOT_DATA = ["README*", "LICENSE*", "*/README*", ".*"]
ATTEMPTS = 4
FIRST_WAIT_S = 1.0
Result = TypeVar("Result")
log = logging.getLogger("headrace.read")
for _library in ("fsspec", "s3fs", "gcsfs", "httpx"):  # below, they tell whole URLs, logins and all
    logging.getLogger(_library).setLevel(logging.WARNING)


def download(url: str) -> tuple[str, Path]:
    """The label of a URL, URL pattern or `hf://org/name@revision`, and a local folder of its files.

    Raises BadInput when nothing is there or it cannot be fetched, and MissingExtra when the file
    system's package is not installed.
    """
    if url.startswith(HUB):
        return _from_hub(url.removeprefix(HUB))
    opened, shown = revealed(url), hidden(url)
    folder = subfolder(f"downloads/url-{_short(shown)}")
    if url.startswith(HTTP) and "*" not in opened and not opened.endswith("/"):
        name = PurePosixPath(url.split("?")[0].split("#")[0]).name
        local = inside(folder, name)
        repeated(shown, lambda: fetch(opened, shown, local))
        return name, folder
    _by_fsspec(opened, folder)
    return _label(shown), folder


def repeated(what: str, attempt: Callable[[], Result]) -> Result:
    """The result of an attempt, made again after 1, 2 and 4 seconds while its failure is passing.

    Raises BadInput when the last one fails.
    """
    for number in range(ATTEMPTS):
        try:
            return attempt()
        except TransientError as error:
            if number + 1 == ATTEMPTS:
                raise BadInput(
                    f"{what} cannot be fetched: {error}; {ATTEMPTS} attempts. Run again later"
                ) from error
            log.warning("%s: %s; trying again", what, error)
            time.sleep(FIRST_WAIT_S * 2**number)
    raise AssertionError("unreachable")


def _label(url: str) -> str:
    """The folders of a URL before its first wildcard."""
    host, slash, path = url.split("://", 1)[1].partition("/")
    parts = PurePosixPath(host.rpartition("@")[2] + slash + path).parts
    return "/".join(itertools.takewhile(lambda part: not glob.has_magic(part), parts))


def _from_hub(name: str) -> tuple[str, Path]:
    """`org/name@revision`, and optionally `/` and a pattern of files."""
    repository, pattern = _hub_parts(name)
    wanted = [pattern] if pattern else [f"*{s}*" for s in MEMBERS + ARCHIVES]
    folder = subfolder(f"downloads/hf-{_short(name)}")
    return repository, from_hub(repository, folder, "dataset", wanted, NOT_DATA)


def from_hub(
    repository: str, folder: Path, kind: str, wanted: Sequence[str], unwanted: Sequence[str] = ()
) -> Path:
    """A folder with the files of `org/name@revision` on the Hugging Face hub, a `dataset` or a
    `model`, that match a pattern. Raises BadInput when they cannot be fetched.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    base, _, revision = repository.partition("@")
    try:
        snapshot_download(
            base,
            repo_type=kind,
            revision=revision or None,
            allow_patterns=list(wanted),
            ignore_patterns=list(unwanted),
            local_dir=folder,
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        example = ", or of some files hf://org/name@revision/data/*.parquet"
        raise BadInput(
            f"{HUB}{repository} cannot be fetched: {error}. The form is hf://org/name@revision"
            f"{example if kind == 'dataset' else ''}; what is gated needs `hf auth login`"
        ) from error
    return folder


def _hub_parts(name: str) -> tuple[str, str]:
    parts = name.split("/")
    return "/".join(parts[:2]), "/".join(parts[2:])


def _by_fsspec(url: str, folder: Path) -> None:
    system, found = _listed(url)
    index = folder / INDEX
    known = json.loads(index.read_text()) if index.exists() else {}
    root = os.path.commonpath([str(PurePosixPath(path).parent) for path in found])
    present = {os.path.relpath(path, root): path for path in found}
    for name in known.keys() - present.keys():
        inside(folder, name).unlink(missing_ok=True)
    for name, remote in present.items():
        local = inside(folder, name)

        def attempt(remote: str = remote, local: Path = local, name: str = name) -> str:
            return _fetch(system, remote, local, known.get(name))

        known[name] = repeated(hidden(remote), attempt)
        write_atomically(index, json.dumps({n: known[n] for n in present if n in known}))


def _listed(url: str) -> tuple[Any, list[str]]:
    """The file system of a URL and the paths of its files."""
    import aiohttp
    import fsspec

    check_host(url)
    shown = hidden(url)
    try:
        named = {scheme for scheme in ("http", "https") if f"{scheme}://" in url}
        options = {scheme: {"get_client": _checked_client} for scheme in named}
        system, pattern = fsspec.core.url_to_fs(url, **options)
        system.invalidate_cache()
        found = system.find(pattern) if system.isdir(pattern) else system.glob(pattern)
    except ImportError as error:
        raise no_file_system(f"source '{shown}'", url, error) from error
    except BadInput:
        raise
    except (ValueError, OSError, aiohttp.ClientError) as error:
        raise BadInput(f"source '{shown}' cannot be listed: {hidden(str(error))}") from error
    if not found:
        raise BadInput(f"source '{shown}' matches no file")
    return system, sorted(found)


async def _checked_client(**options: Any) -> Any:
    """The client of fsspec's file system `http`; it connects to no metadata service."""
    import aiohttp

    connector = aiohttp.TCPConnector(socket_factory=open_socket)
    return aiohttp.ClientSession(connector=connector, **options)


def _fetch(system: Any, remote: str, local: Path, known: str | None) -> str:
    """Copy one file unless its checksum is the known one; the checksum."""
    import aiohttp

    shown = hidden(remote)
    try:
        checksum = str(system.checksum(remote))
        if checksum == known and local.exists():
            return checksum
        log.info("fetching %s", shown)
        local.parent.mkdir(parents=True, exist_ok=True)
        partial = local.with_name(f".{local.name}")
        system.get_file(remote, str(partial))
        expected, found = system.size(remote), partial.stat().st_size
        system.invalidate_cache()
        if str(system.checksum(remote)) != checksum:
            raise TransientError("it changed while it was fetched")
    except FileNotFoundError as error:
        raise BadInput(f"{shown} is no longer there") from error
    except PermissionError as error:
        raise BadInput(f"{shown} may not be read: {hidden(str(error))}") from error
    except (OSError, TimeoutError, aiohttp.ClientError) as error:
        raise TransientError(f"{type(error).__name__}: {hidden(str(error))}") from error
    if expected is not None and found != expected:
        raise TransientError(f"got {found} of {expected} bytes")
    partial.replace(local)
    return checksum


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
