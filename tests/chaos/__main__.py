"""Runs of the recipe `smoke` under a seeded nemesis, and an oracle of what comes of them.

    python -m tests.chaos FOLDER --seeds 0-99      # goes on where it was interrupted
    python -m tests.chaos FOLDER --seeds 7 --only 0,2   # of that seed, the first and third fault

Each seed has a home, services and a judge of its own. A run that stops is started again with what
its message names, as a user would. What comes of it:

    rode through     the command itself came to the clean result
    same command     it stopped, and the same command, once or more, came to it
    remedy           so did the command with what its message named
    person           it stopped, and neither helped
    wrong            documents, tokens, losses or the judge's questions differ from the clean ones,
                     or a question was paid twice that was not under way at a kill
    hang             a command took more than five minutes, and five times what an undisturbed takes
    left             a process, or a run that is shown as going on, was left

For the last four the faults are left out one by one as long as it stays so, and what is left is
printed as the command to see it again.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.chaos.nemesis import Fault, cut, drawn, processes, strike
from tests.chaos.witness import Witness, left_running, question
from tests.endpoint import Server, completion, serving

BAD = ("person", "wrong", "hang", "left")
MOST_ATTEMPTS, LONGEST = 4, 300.0
IN_FLIGHT = 64  # requests that are under way at once, which a kill may make be paid twice
LESS = {"pretrain.tokens": "10_000", "instruct.tokens": "4_000", "sweep.tokens": "[4_000]"}


@dataclass
class Trial:
    """What came of a seed, in seconds; the faults that struck, and what was said."""

    seed: int
    outcome: str
    seconds: float
    faults: list[str]
    said: str = ""


@dataclass
class Clean:
    """What an undisturbed run came to, and how many seconds it took."""

    witness: Witness
    seconds: float


class Chaos:
    """The recipe in homes below a folder."""

    def __init__(self, folder: Path, changes: Sequence[str]):
        self.folder, self.changes = folder, [word for one in changes for word in ("--set", one)]
        self.longest = LONGEST

    def clean(self) -> Clean:
        """The undisturbed run; made once, and kept."""
        kept = self.folder / "clean.json"
        if not kept.exists():
            with self._at_home("clean") as home, serving() as judge:
                began = time.monotonic()
                process = self._start(home, judge, [])
                run, said = _ended(process, 10 * LONGEST)
                assert run.get("status") == "completed", said
                found = {
                    "witness": asdict(_witness(run, judge)),
                    "seconds": time.monotonic() - began,
                }
            kept.write_text(json.dumps(found))
        told = json.loads(kept.read_text())
        return Clean(Witness(**told["witness"]), told["seconds"])

    def trial(self, seed: int, faults: list[Fault], clean: Clean) -> Trial:
        """A seed's run until it has come to an end."""
        self.longest = max(LONGEST, 5 * clean.seconds)
        began, struck = time.monotonic(), list[str]()
        with self._at_home(f"seed-{seed}") as home, serving() as judge:
            judge.script = lambda body, call: completion("4")
            outcome, said = self._attempts(seed, home, judge, faults, clean, struck)
            if outcome not in BAD and (running := left_running(home)):
                outcome, said = "left", f"{running} runs are shown as going on"
        if orphans := [f"{one.pid} {' '.join(one.cmdline())[:80]}" for one in processes(home)]:
            outcome, said = "left", f"processes: {orphans}"
            for one in processes(home):
                one.kill()
        if outcome not in BAD:
            shutil.rmtree(home, ignore_errors=True)
        return Trial(seed, outcome, round(time.monotonic() - began, 1), struck, said[-500:])

    def _attempts(
        self,
        seed: int,
        home: Path,
        judge: Server,
        faults: list[Fault],
        clean: Clean,
        struck: list[str],
    ) -> tuple[str, str]:
        more, outcome, said = list[str](), "rode through", ""
        for attempt in range(MOST_ATTEMPTS):
            process = self._start(home, judge, more)
            if attempt == 0:
                _disturb(process, home, judge, faults, clean.seconds, struck)
            run, said = _ended(process, self.longest)
            if run.get("error") == "hang":
                return "hang", said
            if run.get("status") == "completed":
                cuts = [fault for fault in faults if fault.kind == "cut"] if attempt == 0 else []
                if not cuts:
                    break
                struck.append(f"cut {cut(home, seed)}")
            named = named_in(said, judge) if "status" in run else None
            more = named or []
            outcome = "same command" if named is None and outcome != "remedy" else "remedy"
        if run.get("status") != "completed":
            return "person", said
        found, answered = _witness(run, judge), _answered(judge)
        failing = any(fault.kind == "judge" for fault in faults)
        wrong = found.differs(clean.witness, unasked=failing)
        twice = sum(answered.values()) - len(answered)
        kills = sum(fault.kind in ("kill", "stop", "judge") for fault in faults)
        if twice > IN_FLIGHT * kills:
            wrong.append(f"{twice} answers paid twice")
        return ("wrong", ", ".join(wrong)) if wrong else (outcome, said if outcome in BAD else "")

    def _start(self, home: Path, judge: Server, more: list[str]) -> "subprocess.Popen[str]":
        command = [str(Path(sys.executable).with_name("headrace")), "run", "smoke", "--json"]
        judged = ["evaluate.judge.model=j", "evaluate.judge.qag=false"]
        judged = [f"--set={one}" for one in (*judged, f"placement.judge_url={judge.url}")]
        return subprocess.Popen(
            [*command, *self.changes, *judged, *more],
            env=os.environ | {"HEADRACE_HOME": str(home), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=(home.parent / f"{home.name}.log").open("a"),
            text=True,
        )

    @contextmanager
    def _at_home(self, name: str) -> Iterator[Path]:
        """A new home, its services ended afterwards."""
        home = (self.folder / name).resolve()
        shutil.rmtree(home, ignore_errors=True)
        (self.folder / f"{name}.log").unlink(missing_ok=True)
        try:
            yield home
        finally:
            command = [str(Path(sys.executable).with_name("headrace")), "down"]
            variables = os.environ | {"HEADRACE_HOME": str(home)}
            subprocess.run(command, env=variables, capture_output=True, timeout=120)
            time.sleep(1)


def _disturb(
    process: "subprocess.Popen[str]",
    home: Path,
    judge: Server,
    faults: list[Fault],
    seconds: float,
    struck: list[str],
) -> None:
    began = time.monotonic()
    for fault in faults:
        if fault.kind == "cut":
            continue
        while time.monotonic() < began + fault.when * seconds and process.poll() is None:
            time.sleep(0.05)
        if process.poll() is None and strike(fault, home, process.pid, judge):
            struck.append(str(fault))


def _ended(process: "subprocess.Popen[str]", longest: float) -> tuple[dict[str, Any], str]:
    """What a command printed; what it said last, of a failure."""
    try:
        printed, _ = process.communicate(timeout=longest)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": "hang"}, f"did not end in {longest:.0f} s"
    run: dict[str, Any] = {}
    with suppress(ValueError):
        run = json.loads(printed)
    errors = [str(stage["error"]) for stage in run.get("stages") or [] if stage.get("error")]
    return run, " ".join([str(run.get("error") or ""), *errors, f"status {process.returncode}"])


def named_in(said: str, judge: Server) -> list[str] | None:
    """What a message names to add to the command; a judge that it wants mended is. None if it names
    nothing.
    """
    if "Mend that" in said:
        judge.script = lambda body, call: completion("4")
        return []
    found = re.findall(r"--rebuild [\w/.-]+", said)
    return found[0].split() if found else None


def _answered(judge: Server) -> Counter[str]:
    """The questions that a judge was asked, each as often as it was."""
    return Counter(map(question, judge.bodies))


def _witness(run: dict[str, Any], judge: Server) -> Witness:
    stages = {stage["name"]: Path(stage["artifact"]) for stage in run["stages"]}
    return Witness.of(stages, _answered(judge))


def _shrunk(chaos: Chaos, seed: int, faults: list[Fault], clean: Clean) -> list[int]:
    """The fewest of a seed's faults, by number, that still end badly."""
    kept = list(range(len(faults)))
    for number in range(len(faults)):
        fewer = [n for n in kept if n != number]
        if fewer and chaos.trial(seed, [faults[n] for n in fewer], clean).outcome in BAD:
            kept = fewer
    return kept


def main() -> None:
    """A line for each seed, then how many came to what; status 1 where one ended badly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="0-99", help="one, or the first and the last")
    parser.add_argument("--only", help="numbers of a seed's faults, from 0")
    parser.add_argument("--set", action="append", dest="changes")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    first, _, last = given.seeds.partition("-")
    chaos = Chaos(given.folder, given.changes or [f"{k}={v}" for k, v in LESS.items()])
    clean, kept = chaos.clean(), given.folder / "outcomes.jsonl"
    lines = kept.read_text().splitlines() if kept.exists() else []
    known = {one["seed"]: one for one in map(json.loads, lines)}
    wanted = range(int(first), int(last or first) + 1)
    for seed in (seed for seed in wanted if given.only or seed not in known):
        faults = drawn(seed)
        numbers = [int(n) for n in given.only.split(",")] if given.only else range(len(faults))
        told = chaos.trial(seed, [faults[n] for n in numbers], clean)
        print(json.dumps(asdict(told)), flush=True)
        if given.only:
            continue
        known[seed] = asdict(told)
        with kept.open("a") as file:
            file.write(json.dumps(asdict(told)) + "\n")
        if told.outcome in BAD:
            only = ",".join(map(str, _shrunk(chaos, seed, faults, clean)))
            print(f"again: python -m tests.chaos {given.folder} --seeds {seed} --only {only}")
    outcomes = Counter(known[seed]["outcome"] for seed in wanted if seed in known)
    print(json.dumps({"seeds": sum(outcomes.values()), "outcomes": dict(outcomes)}))
    sys.exit(any(outcomes[bad] for bad in BAD))


if __name__ == "__main__":
    main()
