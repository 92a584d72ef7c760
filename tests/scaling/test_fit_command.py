"""`headrace fit` as people use it: their files, and what they read."""

import json

import numpy as np
import pytest

from cluster.errors import BadInput
from flows.commands.measures import fit
from tasks.scaling.law.fit_file import fit_file

HEADER = ("params", "tokens", "loss")


def table(noise=0.002):
    params, tokens = (m.ravel() for m in np.meshgrid(np.geomspace(1e6, 1e9, 5), [1e9, 1e10, 1e11]))
    loss = 1.7 + 400 / params**0.34 + 2000 / tokens**0.36
    error = np.random.default_rng(0).normal(0, noise, len(params))
    return list(zip(params, tokens, loss * np.exp(error), strict=True))


def write(path, rows, header=HEADER, mark=","):
    lines = [mark.join(header), *(mark.join(f"{cell:.9g}" for cell in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("mark", [";", "\t"])
def test_files_parted_by_other_marks_are_read(tmp_path, mark):
    plain = fit_file(write(tmp_path / "a.csv", table()))
    assert fit_file(write(tmp_path / "b.csv", table(), mark=mark)) == plain


def test_columns_of_other_names_are_read(tmp_path, capsys):
    plain = fit_file(write(tmp_path / "a.csv", table()))
    theirs = write(tmp_path / "b.csv", table(), ("N", "tokens seen", "val"))
    fit(str(theirs), columns="params=N,tokens=tokens seen,loss=val", as_json=True)
    assert json.loads(capsys.readouterr().out) == plain
    with pytest.raises(
        BadInput, match=r"no column 'params'.*its columns are N.*--columns params=n"
    ):
        fit_file(theirs)
    with pytest.raises(BadInput, match="no 'parms' is read here; did you mean 'params'"):
        fit(str(theirs), columns="parms=N")


def test_a_run_that_is_there_twice_is_counted_once(tmp_path):
    rows = table()
    rows[9] = (*rows[9][:2], rows[9][2] * 1.1)
    once = fit_file(write(tmp_path / "once.csv", rows))
    twice = fit_file(write(tmp_path / "twice.csv", [*rows[:4], *rows]))
    assert twice["warnings"][0] == "4 rows repeat others in every column and are left out"
    assert (twice["n"], twice["E"]) == (once["n"], pytest.approx(once["E"], rel=1e-6))
    assert (once["suspects"], twice["suspects"]) == ([10], [14])
    one = fit_file(write(tmp_path / "one.csv", [*rows, rows[0]]))
    assert one["warnings"][0] == "1 row repeats another in every column and is left out"


def test_the_verdict_does_not_depend_on_the_number_of_resamples(tmp_path):
    """Noisy little sweeps, in which resamples drive E to 0 that the runs themselves do not."""
    for noise in (0.002, 0.01, 0.03):
        path = write(tmp_path / "runs.csv", table(noise))
        without, few = (fit_file(path, bootstrap=n) for n in (0, 30))
        for key in ("identifiable", "E_band", "warnings"):
            assert without[key] == few[key]


def test_people_read_a_headline_parameters_with_bands_and_predictions(tmp_path, capsys):
    path = write(tmp_path / "runs.csv", table())
    fit(str(path), bootstrap=20, predict=["7e9,1.4e11", "1e9,2e10"])
    said = capsys.readouterr().out
    assert "{" not in said
    lines = said.splitlines()
    assert lines[0].startswith(
        "chinchilla: loss = E + A / params^alpha + B / tokens^beta, through 15"
    )
    assert any(line.startswith("E     1.") and line.endswith("]") for line in lines)
    assert any(line.startswith("7G params, 140G tokens: loss ") for line in lines)
    assert "  9.8 times the largest run fitted; " in said
    assert "  0.2 times the largest run fitted; " in said


def test_people_read_one_optimum_a_line(tmp_path, capsys):
    flops = np.repeat([1e18, 1e19, 1e20], 5)
    params = 0.1 * np.sqrt(flops) * np.tile(np.geomspace(0.2, 5, 5), 3)
    loss = 50 * flops**-0.06 + 0.08 * np.log(params / 0.1 / np.sqrt(flops)) ** 2
    path = write(tmp_path / "runs.csv", zip(params, flops / 6 / params, loss, strict=True))
    fit(str(path), form="isoflop")
    lines = capsys.readouterr().out.splitlines()
    assert "1e+19 FLOP, 5 runs: 316M params, 5.27G tokens, loss 3.622" in lines
    assert "least loss at compute C: params ~ C^0.500, tokens ~ C^0.500" in lines
