"""Errors a user can mend: what failed, the value, what is allowed, the next command."""

import errno


class BadInput(ValueError):
    """A recipe, file or flag that cannot be used; the command exits with status 2."""


class StageFailed(RuntimeError):
    """A stage of a run failed; its own message has been shown, the command exits with status 1."""


class MissingExtra(BadInput):
    """An optional dependency is absent; the message is the command that installs it."""


# What to install for URLs that fsspec knows and cannot open by itself, by scheme.
FILE_SYSTEMS = {"s3": "headrace[s3]", "s3a": "headrace[s3]", "gs": "headrace[gcs]"}
FILE_SYSTEMS |= {"gcs": "headrace[gcs]", "az": "adlfs", "abfs": "adlfs"}


def no_file_system(what: str, url: str, error: Exception) -> BadInput:
    """What to say of a URL, named by `what`, that fsspec cannot open."""
    needed = FILE_SYSTEMS.get(url.split("://")[0])
    if needed is None or not isinstance(error, ImportError):
        return BadInput(f"{what} cannot be opened: {error}")
    extra = needed.removeprefix("headrace[").removesuffix("]")
    clone = f" (in a clone: `uv sync --extra {extra}`)" if extra != needed else ""
    return MissingExtra(
        f"{what} needs a package that is not installed: `uv pip install '{needed}'`{clone}"
    )


WAYS = "name another with --home, --to or in the recipe"
MENDED_BY_USER = {
    errno.ENOENT: "there is no such file; check the path",
    errno.EISDIR: "it is a folder; name a file",
    errno.ENOTDIR: "a file stands where a folder is needed; check the path",
    errno.EEXIST: "a file stands where a folder is needed; check the path",
    errno.EACCES: f"it may not be read or written by this user; change its rights, or {WAYS}",
    errno.EPERM: f"it may not be changed by this user; {WAYS}",
    errno.EROFS: f"it lies on a file system that is read-only; {WAYS}",
    errno.ENAMETOOLONG: "its name is too long for the file system; choose a shorter one",
}
MENDED_ON_THE_MACHINE = {
    errno.ENOSPC: "the disk is full; `headrace gc` frees what no kept run needs, --home names a "
    "folder on another disk; the same command then goes on from here",
    errno.EDQUOT: "the quota of the disk is used up; `headrace gc` frees what no kept run needs, "
    "--home names a folder on another disk; the same command then goes on from here",
    errno.EFBIG: "a file may not grow so large: raise the limit (`ulimit -f unlimited`), or name a "
    "folder on another file system with --home; the same command then goes on from here",
    errno.EIO: "the disk failed to read or write; what lies there may be damaged, `headrace verify`"
    " tells",
    errno.EMFILE: "too many files are open; raise the limit with `ulimit -n 65536`",
    errno.ENOMEM: "there is not enough memory; fewer workers need less: "
    "--set placement.data_workers=1",
}


def sentence(error: object) -> str | None:
    """What an error says to a user who can mend it; None for one that nobody foresaw."""
    if isinstance(error, (BadInput, StageFailed)):
        return str(error)
    known = explain(error) if isinstance(error, OSError) else None
    return known[0] if known else None


def explain(error: OSError) -> tuple[str, int] | None:
    """What to do about an error of the operating system, in a sentence that names the file, and the
    exit status; None for one that says nothing a user can act on.
    """
    number = error.errno or 0
    where = error.filename2 or error.filename
    name = where.decode(errors="replace") if isinstance(where, bytes) else str(where)
    if number in MENDED_BY_USER and where is not None and not isinstance(where, int):
        return f"{name}: {MENDED_BY_USER[number]}", 2
    if number in MENDED_ON_THE_MACHINE:
        remedy = MENDED_ON_THE_MACHINE[number]
        return (remedy if where is None else f"{name}: {remedy}"), 1
    return None
