"""A folder of a user's own code, by the names that Headrace's has."""

from pathlib import Path


def spoil(folder: Path) -> Path:
    """A folder in which whoever imports one of Headrace's names gets an error."""
    for name in ("tasks/__init__.py", "cluster/__init__.py", "model.py", "flows.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('raise RuntimeError("the user\'s own")\n')
    return folder
