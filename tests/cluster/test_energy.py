"""Energy of work, by counters that a machine may have."""

from pathlib import Path

import pytest

from cluster import energy


def counter(folder: Path, name: str, joules: float) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{joules * 1e6:.0f}\n")


@pytest.fixture
def rapl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(energy, "RAPL", tmp_path)
    monkeypatch.setattr(energy, "NVML", "no such library")
    return tmp_path


def test_work_is_told_its_share_of_what_processors_took(
    rapl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((100.0, 110.0))
    monkeypatch.setattr(energy, "_busy", lambda: next(clock))
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):
        counter(rapl, name, 50)
    before = energy.reading()
    for name in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0"):  # a part of the first
        counter(rapl, name, 90)
    assert before.joules_since(cpu_seconds=2.5) == pytest.approx(0.25 * 80)


def test_a_counter_that_began_again_tells_nothing_and_no_counter_none(rapl: Path) -> None:
    assert energy.reading().joules_since(1.0) is None
    counter(rapl, "intel-rapl:0", 50)
    before = energy.reading()
    counter(rapl, "intel-rapl:0", 1)
    assert before.joules_since(1e9) == 0.0
