"""English stems by Porter's algorithm, as SQLite's full-text index ships it.

SQLite comes with Python, so stemming needs no further library. Stems are compared, never shown.
"""

import sqlite3
from collections.abc import Iterable

from cluster.errors import BadInput

SIGNATURE = "porter-sqlite"


def stems(words: Iterable[str]) -> dict[str, str]:
    """The stem of each distinct lower-case word; words outside ASCII are their own stems.

    Source: Porter, An algorithm for suffix stripping, 1980. Words of one or two letters and of over
    64 letters stay as they are. Raises BadInput when this Python's SQLite lacks the index.
    """
    distinct = sorted(set(words))
    found = {word: word for word in distinct}
    english = [word for word in distinct if word.isascii()]
    with sqlite3.connect(":memory:") as database:
        _create(database)
        database.executemany("INSERT INTO word (rowid, text) VALUES (?, ?)", enumerate(english))
        rows = database.execute("SELECT doc, term FROM stem WHERE offset = 0")
        found.update({english[row]: stem for row, stem in rows})
    return found


def _create(database: sqlite3.Connection) -> None:
    try:
        database.execute(
            "CREATE VIRTUAL TABLE word USING fts5(text, tokenize=\"porter ascii tokenchars '_'\")"
        )
    except sqlite3.OperationalError as error:
        raise BadInput(
            f"stemming needs SQLite's FTS5 index, this Python's SQLite {sqlite3.sqlite_version} "
            f"has none ({error}); score without --stem and without meteor, or use another Python"
        ) from error
    database.execute("CREATE VIRTUAL TABLE stem USING fts5vocab(word, instance)")
