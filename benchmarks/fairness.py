"""What keeps a comparison honest: peers that are there, texts that are there, work that is done."""

import sys
from collections.abc import Callable
from importlib.util import find_spec

from cluster.artifact import Artifact
from cluster.store import Store


def need(**packages: str) -> None:
    """End with the command that helps unless these modules can be imported: module=requirement."""
    missing = [wanted for module, wanted in packages.items() if find_spec(module) is None]
    if missing:
        options = " ".join(f"--with '{wanted}'" for wanted in missing)
        sys.exit(
            f"{', '.join(missing)} is not installed: uv run {options} python {sys.argv[0]} ..."
        )


def need_texts(texts: list[str], origin: object) -> list[str]:
    """The texts; ends with a message where there is no word in any of them."""
    if not any(text.strip() for text in texts):
        sys.exit(f"{origin} holds no text: name a file with some, or a folder with .py files")
    return texts


def made(store: Store, work: Callable[[], Artifact]) -> Callable[[], Artifact]:
    """The work, refused once it is done where the store had its artifact before: no work was timed.

    Call it before the clock starts.
    """
    known = {artifact.fingerprint for artifact in store.artifacts()}

    def checked() -> Artifact:
        artifact = work()
        if artifact.fingerprint in known:
            sys.exit(f"{artifact.name} was found in the store: there was nothing to time")
        return artifact

    return checked
