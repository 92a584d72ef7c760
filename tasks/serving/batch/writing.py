"""What stage `infer` writes: answers beside the rows they are to, and refused rows with reasons."""

import json
from collections import Counter
from collections.abc import Iterator

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Draft
from tasks.adoption.stage import AdoptSettings
from tasks.data.ledger import SAMPLE_CHARS, SAMPLES, Account
from tasks.data.privacy.pii import mask
from tasks.data.reading.rows import show
from tasks.serving.batch.engine import Reply, answer_rows
from tasks.serving.batch.rows import Refusal, Row, read_rows
from tasks.serving.batch.settings import ANSWERS, REJECTS, InferSettings
from tasks.tokens.origins import folder_of
from tasks.tuning.files import row_file


def answer_file(
    settings: InferSettings,
    model: Artifact | None,
    origin: AdoptSettings | None,
    seed: int,
    draft: Draft,
) -> None:
    """See stage `infer`."""
    everything = list(read_rows(row_file(settings.data), settings.field))
    if not everything:
        raise BadInput(f"{settings.data} has no rows")
    rows = [row for row in everything if isinstance(row, Row)]
    folder = model.path if model else folder_of(origin.model if origin else "")
    found = answer_rows(folder, rows, settings, seed, draft)
    account, ended = Account(), Counter[str]()
    with (
        (draft.path / ANSWERS).open("w", encoding="utf-8") as answers,
        (draft.path / REJECTS).open("w", encoding="utf-8") as rejects,
    ):
        for row, reply in _settled(everything, found.replies):
            if isinstance(row, Refusal):
                rejects.write(_refused(row, account) + "\n")
            else:
                answers.write(_answer(row, reply, account) + "\n")
                ended[reply["ended"]] += 1
    account.close(draft)
    draft.tokens = account.counts["tokens"]
    draft.facts |= {
        "ended": dict(ended),
        "asked": found.asked,
        "reused": len(rows) - found.asked,
    }


def _settled(
    rows: list[Row | Refusal], replies: dict[int, Reply]
) -> Iterator[tuple[Row | Refusal, Reply]]:
    """Each row with its reply; one that the model was not asked is a refusal from here on."""
    for row in rows:
        reply = {} if isinstance(row, Refusal) else replies[row.number]
        if isinstance(row, Row) and "refused" in reply:
            reason, detail = reply["refused"], reply["detail"]
            yield Refusal(row.number, reason, detail, show(row.fields)), reply
        else:
            yield row, reply


def _answer(row: Row, reply: Reply, account: Account) -> str:
    """A line of the answers; in ASCII, so that half a surrogate pair in another field stays one."""
    account.rows_out += 1
    account.counts["tokens"] += reply["tokens"]
    if len(account.kept) < SAMPLES:
        account.kept.append(_sample(row.number, reply["text"]))
    own = {"id": row.number, **row.fields}
    said = {"prediction": reply["text"], "ended": reply["ended"], "tokens": reply["tokens"]}
    return json.dumps(own | said)


def _refused(row: Refusal, account: Account) -> str:
    account.reasons[row.reason] += 1
    samples = account.samples.setdefault(row.reason, [])
    if len(samples) < SAMPLES:
        samples.append(_sample(row.number, f"{row.detail}: {row.shown}"))
    found = {"line": row.number, "reason": row.reason, "detail": row.detail, "row": row.shown}
    return json.dumps(found)


def _sample(number: int, text: str) -> dict[str, str]:
    return {"id": str(number), "origin": f"line {number}", "text": mask(text)[:SAMPLE_CHARS]}
