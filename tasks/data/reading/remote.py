"""Sources that are not on this machine: fsspec URLs and Hugging Face data sets, copied once.

Copies lie in `$HEADRACE_HOME/downloads/`; a file is fetched again when its remote checksum changes.
"""

import hashlib
import json
import logging
import os
from pathlib import Path, PurePosixPath
from typing import Any

from cluster.errors import BadInput
from cluster.files import write_atomically
from cluster.home import subfolder
from tasks.data.reading.sources import PLAIN, ROWS, TABLES

HUB = "hf://"
INDEX = ".index.json"
log = logging.getLogger("headrace.read")


def download(url: str) -> Path:
    """A local folder with the files of a URL, a URL pattern or `hf://org/name@revision`.

    Raises BadInput when nothing is there or the file system's package is not installed.
    """
    if url.startswith(HUB):
        return _download_from_hub(url.removeprefix(HUB))
    return _download_by_fsspec(url)


def _download_from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    repository, _, revision = name.partition("@")
    folder = subfolder(f"downloads/hf-{_short(name)}")
    try:
        snapshot_download(
            repository,
            repo_type="dataset",
            revision=revision or None,
            allow_patterns=[f"*{s}*" for s in PLAIN + ROWS + TABLES],
            local_dir=folder,
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise BadInput(
            f"{HUB}{name} cannot be fetched: {error}. The form is hf://org/name@revision; "
            "a gated set needs `hf auth login`"
        ) from error
    return folder


def _download_by_fsspec(url: str) -> Path:
    import fsspec

    try:
        system, pattern = fsspec.core.url_to_fs(url)
        found = system.find(pattern) if system.isdir(pattern) else system.glob(pattern)
    except (ImportError, ValueError, OSError) as error:
        raise BadInput(f"source '{url}' cannot be listed: {error}") from error
    if not found:
        raise BadInput(f"source '{url}' matches no file")
    folder = subfolder(f"downloads/url-{_short(url)}")
    index = folder / INDEX
    known = json.loads(index.read_text()) if index.exists() else {}
    root = os.path.commonpath([str(PurePosixPath(path).parent) for path in found])
    present = {os.path.relpath(path, root): path for path in found}
    for name in known.keys() - present.keys():
        (folder / name).unlink(missing_ok=True)
    current = {n: _fetch(system, path, folder / n, known.get(n)) for n, path in present.items()}
    write_atomically(index, json.dumps(current))
    return folder


def _fetch(system: Any, remote: str, local: Path, known: str | None) -> str:
    """Copy one file unless its checksum is the known one; the checksum."""
    checksum = str(system.checksum(remote))
    if checksum != known or not local.exists():
        log.info("fetching %s", remote)
        local.parent.mkdir(parents=True, exist_ok=True)
        partial = local.with_name(f".{local.name}")
        system.get_file(remote, str(partial))
        expected = system.size(remote)
        if expected is not None and partial.stat().st_size != expected:
            raise BadInput(f"{remote}: got {partial.stat().st_size} of {expected} bytes")
        partial.replace(local)
    return checksum


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
