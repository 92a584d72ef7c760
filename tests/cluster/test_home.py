"""The home is the user's alone, whatever it was before."""

import os
import stat
from pathlib import Path

import pytest

from cluster.errors import BadInput
from cluster.home import home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("inside", [None, "ray_token", "artifacts"])
def test_a_home_that_is_open_to_others_is_closed(fresh_home: Path, inside: str | None) -> None:
    fresh_home.mkdir(mode=0o755)
    if inside:
        (fresh_home / inside).touch()
    assert mode(fresh_home) == 0o755
    assert mode(home()) == 0o700


@pytest.mark.parametrize(("lax", "inside"), [(0o1777, "services.json"), (0o755, "thesis.tex")])
def test_a_folder_that_holds_other_things_is_left_as_it_is(
    fresh_home: Path, lax: int, inside: str
) -> None:
    """Such as /tmp, or all that the user has."""
    fresh_home.mkdir()
    (fresh_home / inside).touch()
    fresh_home.chmod(lax)
    with pytest.raises(BadInput, match=f"chmod 700 {fresh_home}"):
        home()
    assert mode(fresh_home) == lax
    fresh_home.chmod(0o700)
    assert home() == fresh_home


@pytest.mark.skipif(os.getuid() != 0, reason="makes a folder another user's")
def test_a_home_of_another_user_is_refused(fresh_home: Path) -> None:
    fresh_home.mkdir(mode=0o700)
    os.chown(fresh_home, 65534, 65534)
    with pytest.raises(BadInput, match="belongs to another user"):
        home()
