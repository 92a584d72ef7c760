"""Members of tar and zip archives, one after another, never extracted to disk.

Only regular files with plain relative names are taken. What could trick an extraction is refused,
with its name: `..`, absolute paths, links, devices, two members of one name. An archive inside an
archive is refused too: nothing would bound how many members it has.
"""

import stat
import tarfile
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from cluster.errors import BadInput
from cluster.names import leads_out
from tasks.data.reading.decompress import (
    CHUNK_BYTES,
    DAMAGE,
    ChunkFile,
    Entry,
    check_ratio,
    damaged,
)
from tasks.data.reading.formats import is_archive

MAX_MEMBERS = 500_000
TAR_BLOCK = 512


def members(archive: Entry) -> Iterator[Entry]:
    """The files of an archive in its order, hidden ones left out.

    An entry can be read until the next is asked for. Raises BadInput for a damaged archive, a
    member that is refused, more than 500,000 members, and content of more than 200 times its size.
    """
    return _zip(archive) if archive.format == ".zip" else _tar(archive)


def _tar(archive: Entry) -> Iterator[Entry]:
    names = _Names(archive)
    stream: Any = ChunkFile(archive.chunks())
    try:
        with tarfile.open(mode="r|", fileobj=stream, bufsize=CHUNK_BYTES) as tar:
            for member in tar:
                name = names.take(member.name, member.isdir(), _odd_kind(member))
                setattr(tar, "members", [])  # noqa: B010 (it would keep every header)
                if name and (file := tar.extractfile(member)):
                    yield Entry(f"{archive.name}/{name}", names.shown(name), member.size, file)
            while stream.read(CHUNK_BYTES):  # the rest must be intact too
                pass
            # tarfile takes a broken header for the end; the end is two blocks of zeros.
            if not 2 * TAR_BLOCK <= stream.total - tar.offset <= stream.zeros:
                raise tarfile.ReadError(f"no end mark at byte {tar.offset}")
    except DAMAGE as error:
        raise damaged(archive.shown, error, f"{names.count} members") from error


def _odd_kind(member: tarfile.TarInfo) -> str | None:
    if member.issym() or member.islnk():
        return f"a link to {member.linkname}"
    if member.issparse():
        return "a sparse file"
    return None if member.isreg() or member.isdir() else "a device or pipe"


def _zip(archive: Entry) -> Iterator[Entry]:
    names, done = _Names(archive), 0
    try:
        with zipfile.ZipFile(archive.file) as package:
            for member in package.infolist():
                kind = stat.S_IFMT(member.external_attr >> 16)
                odd = "a link or device" if kind not in (0, stat.S_IFREG, stat.S_IFDIR) else None
                odd = "it is encrypted" if member.flag_bits & 1 else odd
                name = names.take(member.filename, member.is_dir(), odd)
                done += member.file_size  # zipfile reads no more than that
                check_ratio(archive.shown, archive.size, done)
                if name:
                    with package.open(member) as file:
                        shown = names.shown(name)
                        yield Entry(f"{archive.name}/{name}", shown, member.file_size, file)
    except DAMAGE as error:
        raise damaged(archive.shown, error, f"{names.count} members") from error


class _Names:
    """The member names of one archive so far."""

    def __init__(self, archive: Entry):
        self.count = 0
        self._archive = archive
        self._seen: dict[str, bool] = {}

    def shown(self, name: str) -> str:
        return f"{self._archive.shown}, member {name}"

    def take(self, name: str, is_folder: bool, refusal: str | None) -> str | None:
        """The member's name, None if it is not to be read; raises BadInput if it is refused."""
        self.count += 1
        parts = PurePosixPath(name).parts
        if refusal is None:
            refusal = self._unsafe(name, parts) or self._repeated(parts, is_folder)
        if refusal is None and not is_folder and is_archive(name):
            refusal = "an archive inside an archive; unpack it and name the folder as a source"
        if refusal is not None:
            raise BadInput(f"{self._archive.shown}: member {name!r} is refused: {refusal}")
        hidden = any(part.startswith((".", "__MACOSX")) for part in parts)
        return None if is_folder or hidden else "/".join(parts)

    def _unsafe(self, name: str, parts: tuple[str, ...]) -> str | None:
        if self.count > MAX_MEMBERS:
            return f"the archive has more than {MAX_MEMBERS} members"
        if not parts and name not in (".", "./"):
            return "it has no name"
        if (parts and leads_out(name)) or not name.isprintable():
            return "its name could lead out of the folder it is unpacked in"
        return None

    def _repeated(self, parts: tuple[str, ...], is_folder: bool) -> str | None:
        key = unicodedata.normalize("NFC", "/".join(parts)).casefold()
        if key in self._seen and not (is_folder and self._seen[key]):
            return "a member before it has the same name, but for case perhaps"
        self._seen[key] = is_folder
        return None
