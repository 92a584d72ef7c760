"""What a plan and a cached run of many small stages take: wall and CPU seconds, by their number.

    uv run python benchmarks/many_stages.py [--stages 250 1000]

The stages are one function in a user's file, with different settings. They are built in this
process, without Prefect or Ray; then `headrace plan` and `headrace data` are timed as commands of
their own, in a home whose services are up. Twice the stages should take twice the time.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster.artifact import Artifact
from cluster.stage import build
from flows.plan.at_hand import planned
from flows.recipe import load

STAGES = """
from headrace import Artifact, Draft, Settings, stage

class Count(Settings):
    letter: int = 0

@stage(version=1)
def count(text: Artifact, settings: Count, draft: Draft) -> None:
    draft.metrics["letter"] = settings.letter
"""
TEXT = "The water of the race turns the wheel, and the wheel turns the stone. " * 30


def main() -> None:
    """Build, then time the commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, nargs="+", default=[250, 1000])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hr-many-") as folder:
        os.environ["HEADRACE_HOME"] = f"{folder}/home"
        try:
            for count in asked.stages:
                recipe = _written(Path(folder), count)
                _build(recipe)
                _timed("up")
                for command in ("plan", "data"):
                    wall, cpu = _timed(command, str(recipe), "--json")
                    told = {"stages": count, "command": command, "seconds": round(wall, 2)}
                    print(json.dumps(told | {"cpu_seconds": round(cpu, 2)}), flush=True)
        finally:
            _timed("down", "--force")


def _written(folder: Path, count: int) -> Path:
    """A recipe with so many stages of one's own."""
    (folder / "mine.py").write_text(STAGES)
    rows = [json.dumps({"text": f"{number} {TEXT}"}) for number in range(40)]
    (folder / "rows.jsonl").write_text("\n".join(rows))
    entry = {"function": f"{folder}/mine.py:count", "inputs": {"text": "redact"}}
    own = [{**entry, "name": f"count_{n}", "settings": {"letter": n}} for n in range(count)]
    recipe = {
        "name": f"many-{count}",
        "sources": [f"{folder}/rows.jsonl"],
        "filters": {"limits": {}},
        "dedup": {"fuzzy": False},
        "shards": {"heldout_share": 0.4},
        "tokenizer": {"vocab_size": 300},
        "stages": own,
    }
    path = folder / f"many-{count}.yaml"
    path.write_text(json.dumps(recipe))
    return path


def _build(path: Path) -> None:
    recipe = load(str(path))
    dag = planned("data", recipe)
    made: dict[str, Artifact] = {}
    for node in dag:
        inputs = {
            key: [made[one.name] for one in value] if isinstance(value, list) else made[value.name]
            for key, value in node.upstream.items()
        }
        arguments = inputs | node.literals
        made[node.name] = node.found or build(node.function, dag.store, spec=node.spec, **arguments)


def _timed(*arguments: str) -> tuple[float, float]:
    """Wall and CPU seconds of a command."""
    command = [sys.executable, "-c", "import headrace; headrace.main()", *arguments]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu


if __name__ == "__main__":
    main()
