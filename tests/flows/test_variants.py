"""`--over`: every combination of some fields' values, with the same stages as any run."""

import pytest

from cluster.errors import BadInput
from cluster.store import Store
from flows.dag import Dag
from flows.end_to_end import plan
from flows.recipe import load
from flows.variants import label, read_over, variants


def varied(*over):
    return load("smoke").model_copy(update={"over": dict(map(read_over, over))})


def test_values_are_yaml_and_combine():
    recipe = varied("pretrain.optimizer.learning_rate=0.001,0.003", "model.depth=1,2")
    found = list(variants(recipe))
    assert [label(values) for values, _ in found] == [
        "learning_rate=0.001,depth=1",
        "learning_rate=0.001,depth=2",
        "learning_rate=0.003,depth=1",
        "learning_rate=0.003,depth=2",
    ]
    assert [made.model.depth for _, made in found] == [1, 2, 1, 2]
    assert found[2][1].pretrain.optimizer.learning_rate == 0.003
    assert found[0][1].name == "smoke" and not found[0][1].over


def test_stages_that_variants_share_are_planned_once(tmp_path):
    dag = plan("sweep", Dag("smoke", Store(tmp_path)), varied("pretrain.tokens=20480,40960"))
    names = [node.name for node in dag]
    assert names.count("shards") == 1
    assert {"pretrain/tokens=20480", "pretrain/tokens=40960", "compare"} <= set(names)
    assert len(names) == len(set(names))


def test_a_varied_tokenizer_has_its_own_data(tmp_path):
    dag = plan("sweep", Dag("smoke", Store(tmp_path)), varied("tokenizer.vocab_size=300,400"))
    names = [node.name for node in dag]
    assert names.count("read") == 1
    assert {"tokenizer", "tokenizer/vocab_size=400", "shards/vocab_size=400"} <= set(names)


@pytest.mark.parametrize("text", ["model.depth", "=1,2", "model.depth="])
def test_other_forms_are_refused(text):
    with pytest.raises(BadInput, match="write it as key=value,value"):
        read_over(text)


def test_an_unknown_key_is_refused():
    with pytest.raises(BadInput, match=r"unknown key 'model.dept': did you mean 'depth'"):
        list(variants(varied("model.dept=1,2")))
