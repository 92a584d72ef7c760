"""The price of a plan: learnt from the store, banded, and that of its schedule."""

import heapq
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.artifact import Artifact
from cluster.placement import Placement
from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store
from flows.cli import app
from flows.plan.at_hand import planned
from flows.plan.dag import Dag
from flows.plan.estimate import estimate
from flows.plan.experience import Experience, Kind, Past
from flows.plan.price import price
from flows.plan.schedule import Host
from flows.recipe import load

BANDED = ("seconds", "cost", "device_hours", "bytes_written", "judge_tokens")


class Grind(Settings):
    sacks: int = 1


@stage(version=1)
def grind(settings: Grind, draft: Draft) -> None:
    (draft.path / "flour").write_bytes(bytes(1000))


def ground(store: Store, count: int, seconds: float) -> None:
    """Artifacts that took so long, of a stage of which nothing is known beforehand."""
    for sacks in range(count):
        made = build(grind, store, settings=Grind(sacks=sacks), work={"bytes": 0.0})
        manifest = made.manifest.model_copy(update={"seconds": seconds * (1 + sacks % 2 / 10)})
        (made.path / "artifact.json").write_text(manifest.sealed())


def expected(store: Store) -> dict[str, float | None]:
    dag = Dag("mill", store)
    dag.add(grind, settings=Grind(sacks=99))
    return price(dag, Placement(usd_per_hour=3600), [Host(2)]).of("grind")


def test_time_is_learnt_from_what_the_store_holds_and_the_band_narrows(tmp_path: Path) -> None:
    store = Store(tmp_path)
    found = []
    for count in (0, 3, 20):
        ground(store, count, seconds=2.0)
        found.append(expected(store))
    wide = [one["seconds_high"] / one["seconds_low"] for one in found]
    assert found[0]["seconds"] == 0.2 and found[1]["seconds"] > 1
    assert found[2]["seconds"] == pytest.approx(2.1, rel=0.1)
    assert wide[0] > 5 > 2.5 > wide[2] and wide[1] < wide[0]
    assert found[2]["cost"] == pytest.approx(found[2]["seconds"])
    assert found[2]["bytes_written"] == pytest.approx(1000, rel=0.4)


def test_a_slow_machine_is_slow_for_what_it_never_did(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ground(store, 20, seconds=2.0)  # ten times the nominal
    past = Experience({"grind": store.catalogue().newest("grind", 20)}, [])
    fresh = Experience({}, [])
    assert (
        past.seconds("other", {}, {"bytes": 1e6}).value
        > 3 * fresh.seconds("other", {}, {"bytes": 1e6}).value
    )


def test_what_is_like_a_stage_tells_more_of_it_than_what_is_not() -> None:
    quick, slow = Past({"preset": "basic"}, 1.0, 0.0), Past({"preset": "web"}, 1.0, 2.0)
    kind = Kind([quick, slow])
    basic, web = (kind.guess({"preset": p}, 1.0, 0.0).value for p in ("basic", "web"))
    assert web > 1.5 * basic
    large = Kind([Past({}, 1.0, 0.0), Past({}, 100.0, 1.0)])
    assert large.guess({}, 100.0, 0.0).value > 150 > 100 * large.guess({}, 1.0, 0.0).value


def test_every_stage_and_the_whole_have_a_time_with_its_band(fresh_home: Path) -> None:
    said = ["placement.usd_per_hour=2", "evaluate.judge.model=m", "placement.judge_url=http://j/v1"]
    plan = estimate(load("smoke", [*said, "placement.judge_usd=10"]))
    for one in (plan, *plan["stages"]):
        assert all(one[f"{key}_low"] <= one[key] <= one[f"{key}_high"] for key in BANDED)
    assert len({one["seconds"] for one in plan["stages"]}) > len(plan["stages"]) / 2
    judge = next(one for one in plan["stages"] if one["name"] == "judge")
    assert judge["judge_tokens"] > 1000
    assert judge["cost"] > judge["judge_tokens"] / 1e6 * 10
    assert plan["judge_tokens"] > judge["judge_tokens"]  # the steps are written by it too
    assert plan["device_hours"] < plan["seconds"] / 3600 * 2
    assert json.dumps(plan["joules"]) in ("null",) or plan["joules"] > 0


def simulated(dag: Dag, seconds: dict[str, float], places: int) -> float:
    """When the last of some stages ends, by a queue of events."""
    names = list(seconds)
    nodes = {node.name: node for node in dag}
    needs = {
        name: {
            need.name
            for value in nodes[name].upstream.values()
            for need in (value if isinstance(value, list) else [value])
        }
        | ({nodes[name].after.name} if nodes[name].after else set())
        for name in names
    }
    ended = {node.name for node in dag} - set(names)
    events, queue, free, now = list[tuple[float, str]](), list[str](), places, 0.0
    waiting = list(names)
    while waiting or queue or events:
        queue += [n for n in waiting if needs[n] <= ended]
        waiting = [n for n in waiting if n not in queue]
        while queue and free:
            name = queue.pop(0)
            free -= 1
            heapq.heappush(events, (now + seconds[name], name))
        now, name = heapq.heappop(events)
        free += 1
        ended.add(name)
    return now


def test_a_sweep_of_a_hundred_members_on_eight_hosts_is_priced_as_its_schedule(
    fresh_home: Path,
) -> None:
    widths, tokens = list(range(16, 336, 32)), [4000 * 2**k for k in range(10)]
    said = [f"sweep.widths={widths}", f"sweep.tokens={tokens}", "sweep.targets=[]"]
    recipe = load("smoke", [*said, "placement.usd_per_hour=2.5"])
    swept = estimate(recipe, hosts=[Host(1)] * 8)["sweep"]
    assert len(swept["runs"]) == 100 and swept["slots"] == 8
    dag = planned("sweep", recipe)
    apart = simulated(dag, swept["stage_seconds"], places=8)
    assert swept["seconds"] == pytest.approx(apart, rel=0.05)
    assert swept["cost"] == pytest.approx(apart / 3600 * 2.5 * 8, rel=0.05)


def test_hosts_are_told_by_number_and_size(fresh_home: Path) -> None:
    def seconds(*said: str) -> float:
        found = CliRunner().invoke(app, ["plan", "smoke", "--json", *said])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)["seconds"]

    assert seconds("--hosts", "4x2") < seconds("--hosts", "1x1")
    wrong = CliRunner().invoke(app, ["plan", "smoke", "--hosts", "many"])
    assert wrong.exit_code != 0


def test_what_is_cached_takes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    build(grind, store, recipe="mill", settings=Grind())
    dag = Dag("mill", store)
    dag.add(grind, settings=Grind())
    found = price(dag, Placement(), [Host(1)])
    assert found.of("grind")["seconds"] == 0 and found.whole()["seconds"] < 2
    assert isinstance(dag.nodes[0].found, Artifact)
