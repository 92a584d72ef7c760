"""A store of its own for each test, and text artifacts from plain strings."""

import json

import pytest

from cluster.stage import build
from cluster.store import Store
from tasks.data.reading.stage import ReadSettings, read


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return Store()


@pytest.fixture
def read_path(store):
    """Run `read` on paths (or source settings); the artifact."""

    def run(*sources, max_bad_rate=0.01):
        entries = tuple(s if isinstance(s, dict) else {"path": str(s)} for s in sources)
        settings = ReadSettings(sources=entries, max_bad_rate=max_bad_rate)
        return build(read, store, settings=settings)

    return run


@pytest.fixture
def text_artifact(tmp_path, read_path):
    """A text artifact whose rows are the given texts."""

    def make(texts, name="texts.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
        return read_path(path)

    return make
