"""`--over`: variants of a recipe, each with its seeds, with the same stages as any run."""

import pytest

from cluster.errors import BadInput
from cluster.store import Store
from flows.end_to_end import plan
from flows.plan.dag import Dag
from flows.recipe import load
from flows.variants import LABEL_LENGTH, read_over, variants, varied

RATE = "pretrain.optimizer.learning_rate"


def recipe(*over, seeds=None, alone=False, sets=()):
    return varied(load("smoke", sets), over, seeds, alone)


def planned(tmp_path, *over, **about):
    return plan("sweep", Dag("smoke", Store(tmp_path)), recipe(*over, **about))


def labels(*over, **about):
    return [variant.label for variant in variants(recipe(*over, **about))]


def test_values_are_yaml_and_combine():
    found = variants(recipe(f"{RATE}=0.001,0.003", "model.depth=1,2"))
    assert [one.label for one in found] == [
        "learning_rate=0.001,depth=1",
        "learning_rate=0.001,depth=2",
        "learning_rate=0.003,depth=1",
        "learning_rate=0.003,depth=2",
    ]
    assert [one.recipe.model.depth for one in found] == [1, 2, 1, 2]
    assert found[2].values == {RATE: 0.003, "model.depth": 1}
    assert found[2].recipe.pretrain.optimizer.learning_rate == 0.003
    assert found[0].recipe.name == "smoke" and not found[0].recipe.over


def test_one_at_a_time_is_the_recipe_and_each_value_alone():
    found = variants(recipe("model.depth=1,2,3", "shards.heldout_share=0.1", alone=True))
    assert [one.label for one in found] == ["baseline", "depth=1", "depth=3", "heldout_share=0.1"]
    held = load("smoke").shards.heldout_share
    assert [one.values["model.depth"] for one in found] == [2, 1, 3, 2]
    assert [one.values["shards.heldout_share"] for one in found] == [held, held, held, 0.1]


def test_every_variant_has_the_same_seeds_from_the_recipes_on():
    found = variants(recipe("model.depth=1,3", seeds=3, sets=["seed=5"]))
    named = [[(s.label, s.recipe.seed) for s in one.seeded()] for one in found]
    assert named[0] == [("depth=1,seed=5", 5), ("depth=1,seed=6", 6), ("depth=1,seed=7", 7)]
    assert [seed for _, seed in named[1]] == [5, 6, 7]


def test_the_recipe_may_say_it_all():
    said = ["over={model.depth: [1, 3]}", "seeds=2", "one_at_a_time=true"]
    found = variants(load("smoke", said))
    assert [one.label for one in found] == ["baseline", "depth=1", "depth=3"]
    assert [seeded.label for seeded in found[1].seeded()] == ["depth=1,seed=0", "depth=1,seed=1"]


def test_what_makes_the_same_recipe_is_there_once():
    assert labels(f"{RATE}=0.001,1e-3,1.0e-3") == ["learning_rate=0.001"]
    assert labels("model.depth=2,1", "model.width=32", alone=True) == ["baseline", "depth=1"]


def test_labels_are_words_that_a_file_system_takes_and_tell_apart(tmp_path):
    long = "a/" * 40 + "x"
    over = ["tokenizer.special_tokens=[],['<|note|>']", "sources.0.license=MIT/X,MIT-X,mit-x,GPL"]
    found = labels(*over, f"sources.0.id={long},{long}y,null")
    assert len({label.lower() for label in found}) == len(found) == 24
    assert all(set(label) <= set(SAFE) and len(label) <= LABEL_LENGTH for label in found)
    assert "special_tokens=note,license=GPL,id=null" in found


SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-=,"


def test_keys_with_the_same_end_are_named_by_more_of_it():
    assert labels("classify.epochs=1", "instruct.tokens=9000", "pretrain.tokens=2048") == [
        "epochs=1,instruct.tokens=9000,pretrain.tokens=2048"
    ]


def test_stages_that_variants_share_are_planned_once_and_all_others_have_a_label(tmp_path):
    dag = planned(tmp_path, "pretrain.tokens=20480,40960", seeds=2)
    names = [node.name for node in dag]
    shared = [name for name in names if "/" not in name]
    told = {f"tokens={t},seed={s}" for t in (20480, 40960) for s in (0, 1)}
    for stage in ("pretrain", "evaluate"):
        assert {n.split("/")[1] for n in names if n.startswith(stage)} == told
    assert {"read", "tokenizer", "shards", "compare", "report"} <= set(shared)
    assert len(names) == len(set(names)) == len(shared) + 8
    assert all(node.spec.label == node.name.partition("/")[2] for node in dag)


def test_a_varied_tokenizer_has_its_own_data_under_what_its_users_share(tmp_path):
    dag = planned(tmp_path, "tokenizer.vocab_size=300,400", "model.depth=1,2", seeds=2)
    names = [node.name for node in dag]
    assert names.count("read") == 1
    found = [name for name in names if name.startswith(("tokenizer", "shards"))]
    assert sorted(found) == [
        "shards/vocab_size=300",
        "shards/vocab_size=400",
        "tokenizer/vocab_size=300",
        "tokenizer/vocab_size=400",
    ]


def test_one_at_a_time_the_baselines_data_is_what_others_share(tmp_path):
    dag = planned(tmp_path, "tokenizer.vocab_size=300", "model.depth=1", alone=True)
    names = [n.name for n in dag if n.spec.stage in ("tokenizer", "pretrain")]
    assert sorted(names) == [
        "pretrain/baseline",
        "pretrain/depth=1",
        "pretrain/vocab_size=300",
        "tokenizer",
        "tokenizer/vocab_size=300",
    ]


def test_a_single_training_has_its_label_too(tmp_path):
    names = [node.name for node in planned(tmp_path, "model.depth=1")]
    assert {"shards", "pretrain/depth=1", "evaluate/depth=1"} <= set(names)


@pytest.mark.parametrize("text", ["model.depth", "=1,2", "model.depth="])
def test_other_forms_are_refused(text):
    with pytest.raises(BadInput, match="write it as key=value,value"):
        read_over([text])


@pytest.mark.parametrize(
    ("over", "about", "message"),
    [
        (["model.dept=1,2"], {}, r"unknown key 'model.dept': did you mean 'depth'"),
        (["model.depth=1", "model.depth=2"], {}, "given twice"),
        (["seed=1,2"], {}, "--seeds 5"),
        (["sources.7.weight=1,2"], {}, r"over sources.7.weight=1: '7' must be a number from 0"),
        (["placement.workers=1,2"], {}, "workers=1 and workers=2 are the same training"),
        ([], {"seeds": 3}, "seeds: 3, one_at_a_time: false: of what"),
        ([], {"alone": True}, "one_at_a_time: true: of what"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, over, about, message):
    with pytest.raises(BadInput, match=message):
        planned(tmp_path, *over, **about)


def test_an_empty_list_of_values_is_refused():
    with pytest.raises(BadInput, match=r"over.model.depth"):
        load("smoke", ["over={model.depth: []}"])
