"""The day of a run in the names of its sources: `{date}`, where a schedule brings new text.

logs/{date}/*.jsonl             logs/2026-11-22/*.jsonl
logs/{date-1}/*.jsonl           the day before
logs/{date:%Y/%m/%d}/*.jsonl    logs/2026/11/22/*.jsonl: any form that `strftime` knows
"""

import re
from datetime import UTC, date, datetime, timedelta

DAY = re.compile(r"\{date(-(?P<back>\d+))?(:(?P<form>[^{}]+))?\}")


def day_of(given: datetime | None) -> date:
    """The day of a run that somebody starts, by default today in UTC, as of scheduled ones."""
    return (given or datetime.now(UTC)).date()


def is_dated(path: str) -> bool:
    """Whether a name has a day in it."""
    return DAY.search(path) is not None


def on_day(path: str, day: date) -> str:
    """A name with the day in the place of each `{date}`."""

    def told(found: re.Match[str]) -> str:
        meant = day - timedelta(days=int(found["back"] or 0))
        return meant.strftime(found["form"] or "%Y-%m-%d")

    return DAY.sub(told, path)
