"""The judge's paid replies, kept: a run that was interrupted asks for none of them again.

    asked    written before a request leaves
    text     written when its reply has arrived

A key is a hash of model, parameters, prompt and sample number; prompts and API keys are not kept.
"""

import hashlib
import json
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def reply_key(model: str, parameters: Mapping[str, Any], prompt: str, sample: int) -> str:
    """What identifies a reply."""
    identity = json.dumps([model, dict(sorted(parameters.items())), prompt, sample])
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

    def get(self, key: str) -> dict[str, Any] | None:
        """The reply, if it has arrived."""
        row = self._database.execute("SELECT text FROM reply WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row and row[0] else None

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

    def close(self) -> None:
        """Close the file."""
        self._database.close()
