"""Stage `redact`: e-mail addresses, IP addresses, phone, card and account numbers and secrets leave
the text; no row is dropped.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.data.ledger import Sorter

CHANGED = "documents"
Kind = Literal["email", "ip", "phone", "card", "iban", "secret"]
KEY_VARIABLE = "HEADRACE_REDACT_KEY"
KEY_CHARS = 16
# Reserved for documentation, or invalid: nobody's.
FIXED = {
    "email": "email@example.com",
    "ip": "192.0.2.1",
    "phone": "+1-202-555-0100",
    "card": "4000 0000 0000 0000",
    "iban": "XX00 0000 0000 0000",
    "secret": "REDACTED_SECRET",
}


class RedactSettings(Settings):
    """What to take out, and what to put in its place."""

    kinds: tuple[Kind, ...] = ("email", "ip", "phone", "card", "iban", "secret")
    how: Literal["mask", "replace", "pseudonymise"] = Field(
        "mask",
        description="<EMAIL>; a fixed email@example.com; or <EMAIL:1f0c...>, the same for the same "
        f"value, keyed by ${KEY_VARIABLE}",
    )

    def identity(self) -> dict[str, Any]:
        """The values, and for pseudonyms a hash of the key instead of the key."""
        key = hashlib.sha256(pseudonym_key()).hexdigest() if self.how == "pseudonymise" else None
        return {"kinds": sorted(self.kinds), "how": self.how, "key": key}


@stage(version=1)
def redact(text: Artifact, settings: RedactSettings, draft: Draft) -> None:
    """Replace every instance of the kinds; all rows stay, in order.

    Raises BadInput when pseudonyms are asked for without a key.
    """
    from tasks.data.blocks import map_text

    if settings.how == "pseudonymise":
        pseudonym_key()
    account = map_text(text, draft, partial(_redact_block, settings))
    counts = {kind: account.counts[kind] for kind in sorted(settings.kinds)}
    draft.facts["counts"] = counts
    draft.metrics["documents_changed"] = account.counts[CHANGED]
    draft.metrics["instances"] = sum(counts.values())


def _redact_block(
    settings: RedactSettings, batches: "Iterator[pa.RecordBatch]", rows: "Sorter"
) -> None:
    import pyarrow as pa

    from tasks.data.privacy.pii import find, substitute

    replacement = replacer(settings.how)
    for batch in batches:
        texts = batch.column("text").to_pylist()
        found = [find(t, settings.kinds) for t in texts]
        rows.account.counts.update(span.kind for spans in found for span in spans)
        rows.account.counts[CHANGED] += sum(map(bool, found))
        clean = [substitute(t, s, replacement) for t, s in zip(texts, found, strict=True)]
        index = batch.schema.get_field_index("text")
        rows.keep(batch.set_column(index, "text", pa.array(clean, pa.large_string())))


def replacer(how: str) -> Callable[[str, str], str]:
    """The function from kind and value to what stands in the value's place."""
    if how == "mask":
        return lambda kind, value: f"<{kind.upper()}>"
    if how == "replace":
        return lambda kind, value: FIXED[kind]
    key = pseudonym_key()
    return lambda kind, value: f"<{kind.upper()}:{_pseudonym(key, kind, value)}>"


def pseudonym_key() -> bytes:
    """The key of the pseudonyms. Raises BadInput when it is absent or short enough to guess."""
    key = os.environ.get(KEY_VARIABLE, "")
    if len(key) < KEY_CHARS:
        raise BadInput(
            f"redact.how is 'pseudonymise', and ${KEY_VARIABLE} has {len(key)} characters; it "
            f"needs {KEY_CHARS} or more: export {KEY_VARIABLE}=$(openssl rand -hex 32)"
        )
    return key.encode()


def _pseudonym(key: bytes, kind: str, value: str) -> str:
    """Spelling does not matter: letters lower-cased, separators of numbers dropped."""
    plain = "".join(value.lower().split())
    if kind in ("phone", "card"):
        plain = "".join(c for c in plain if c.isdigit())
    return hmac.new(key, f"{kind}:{plain}".encode(), hashlib.sha256).hexdigest()[:16]
