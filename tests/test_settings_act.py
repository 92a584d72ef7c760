"""Every setting of a recipe acts: each is read by what carries it out, not by identities alone."""

from tests.typed_reads import classes, lineage, reads, typed


def sections(name: str = "Recipe") -> set[str]:
    """The settings classes that a recipe is made of, with those that they inherit from."""
    found = set(lineage(name))
    for each in lineage(name):
        for annotation in classes()[each].fields.values():
            inner = {c for c in typed(annotation).classes if "Settings" in lineage(c)}
            found |= {s for c in inner - found for s in sections(c)}
    return found


def test_every_setting_is_read_where_it_is_to_act() -> None:
    names = sections() - {"Settings"}
    assert {"Recipe", "PretrainSettings", "Placement"} <= names
    alive = {name: {field for each, field in reads() if each in lineage(name)} for name in names}
    assert not {n: dead for n in names if (dead := classes()[n].fields.keys() - alive[n])}


def test_no_setting_of_a_stage_is_one_of_placement() -> None:
    """What says where work is done stands in one section, which is in no fingerprint."""
    placed = classes()["Placement"].fields.keys()
    assert not {
        name: both
        for name in sections() - {"Placement"}
        if (both := placed & classes()[name].fields.keys())
    }
