"""The judge's paid replies, kept: a run that was interrupted asks for none of them again.

    reply    asked    written before a request leaves
             text     written when its reply has arrived
    spent    usd      what a work has cost in all its invocations, requests under way included
             ratio    the highest real price of a request over its estimate

A reply's key is a hash of address, model, parameters, prompt and sample number; prompts and API
keys are not kept.
"""

import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster.home import subfolder


def reply_key(url: str, model: str, parameters: Mapping[str, Any], prompt: str, sample: int) -> str:
    """What identifies a reply: two addresses may serve different models under one name."""
    identity = json.dumps([url, model, dict(sorted(parameters.items())), prompt, sample])
    return hashlib.sha256(identity.encode()).hexdigest()


class ReplyStore:
    """Replies by key in one SQLite file, which several processes may share."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made here and not by SQLite, so that nobody else can ever read it.
        path.touch(mode=0o600)
        # Without `isolation_level` each statement is committed at once: a kill takes no reply back.
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        # What is written survives a kill of this process; a power cut loses the last moments.
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS reply (key TEXT PRIMARY KEY, asked REAL, text TEXT)"
        )
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS spent (work TEXT PRIMARY KEY, usd REAL, ratio REAL)"
        )

    @classmethod
    def of_home(cls) -> "ReplyStore":
        """The one that all judges of this home share."""
        return cls(subfolder("judge") / "replies.sqlite")

    def get(self, key: str) -> dict[str, Any] | None:
        """The reply, if it has arrived."""
        row = self._database.execute("SELECT text FROM reply WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row and row[0] else None

    def arrived(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """All replies that have arrived, by key."""
        query = "SELECT key, text FROM reply WHERE text IS NOT NULL"
        yield from ((key, json.loads(text)) for key, text in self._database.execute(query))

    def ask(self, key: str) -> None:
        """Note that a request is about to leave."""
        self._database.execute(
            "INSERT INTO reply (key, asked) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET asked = excluded.asked",
            (key, time.time()),
        )

    def answer(self, key: str, reply: Mapping[str, Any]) -> None:
        """Keep a reply; a kill after this loses nothing."""
        self._database.execute("UPDATE reply SET text = ? WHERE key = ?", (json.dumps(reply), key))

    def spend(self, work: str, usd: float, budget: float | None = None, ratio: float = 1.0) -> bool:
        """Add to what a work has cost, unless that would pass its budget; whether it was added. In
        one statement, so that two processes at once keep it, too.
        """
        most = math.inf if budget is None else budget
        row = self._database.execute(
            "INSERT INTO spent SELECT :work, :usd, :ratio WHERE :usd <= :most "
            "OR EXISTS (SELECT 1 FROM spent WHERE work = :work) "
            "ON CONFLICT (work) DO UPDATE "
            "SET usd = usd + :usd, ratio = MAX(ratio, :ratio) WHERE usd + :usd <= :most "
            "RETURNING usd",
            {"work": work, "usd": usd, "most": most, "ratio": ratio},
        ).fetchone()
        return row is not None

    def spent(self, work: str) -> float:
        """USD that a work has cost until now."""
        return self._of_work("usd", work) or 0.0

    def ratio(self, work: str) -> float:
        """The highest real price of its requests over their estimates, at least 1."""
        return self._of_work("ratio", work) or 1.0

    def _of_work(self, column: str, work: str) -> float | None:
        query = f"SELECT {column} FROM spent WHERE work = ?"  # noqa: S608 (a name of ours)
        row = self._database.execute(query, (work,)).fetchone()
        return row[0] if row else None

    def close(self) -> None:
        """Close the file."""
        self._database.close()
