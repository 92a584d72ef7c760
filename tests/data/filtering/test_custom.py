import pyarrow as pa
import pytest

from cluster.errors import BadInput
from tasks.data.filtering.custom import Runner, find

SOURCE = """
import os, time

def no_poems(text):
    print("a filter may print")
    if "boom" in text:
        raise KeyError("boom")
    if "hang" in text:
        time.sleep(60)
    if "die" in text:
        os._exit(1)
    if "rhyme" in text:
        return "rhymes"
    return "poem" not in text

def keeps_all(text):
    pass
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def test_answers_become_reasons(mine):
    texts = ["prose", "a poem", "a rhyme", "boom", "prose"]
    with Runner(find(f"{mine}:no_poems"), seconds=30) as run:
        assert run(pa.array(texts)) == [None, "no_poems", "no_poems:rhymes", "error:KeyError", None]
    with Runner(find(f"{mine}:keeps_all"), seconds=30) as run:
        assert run(pa.array(texts)) == [None] * 5


def test_a_document_on_which_it_hangs_or_dies_costs_that_document(mine):
    with Runner(find(f"{mine}:no_poems"), seconds=2) as run:
        reasons = run(pa.array(["prose", "hang", "die", "a poem"]))
    assert reasons == [None, "timeout", "error:ProcessDied", "no_poems"]


def test_identity_is_the_source_and_the_function(mine, tmp_path):
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text(SOURCE)
    assert find(f"{mine}:no_poems").identity == find(f"{elsewhere}:no_poems").identity
    assert find(f"{mine}:no_poems").identity != find(f"{mine}:keeps_all").identity
    elsewhere.write_text(SOURCE + "# changed\n")
    assert find(f"{mine}:no_poems").identity != find(f"{elsewhere}:no_poems").identity


def test_what_cannot_be_used_is_named(mine, tmp_path):
    with pytest.raises(BadInput, match=r"has no function 'no_poem': did you mean 'no_poems'\?"):
        find(f"{mine}:no_poem")
    with pytest.raises(BadInput, match=r"'mine' is not of the form my_filters\.py:my_function"):
        find("mine")
    with pytest.raises(BadInput, match=r"absent\.py cannot be read: .*No such file"):
        find(f"{tmp_path}/absent.py:f")
    mine.write_text("def broken(:\n")
    with pytest.raises(BadInput, match=r"mine\.py cannot be read: .*invalid syntax"):
        find(f"{mine}:broken")
    mine.write_text("import nowhere_to_be_found\ndef f(text): pass\n")
    with pytest.raises(BadInput, match="cannot be imported: ModuleNotFoundError"):
        Runner(find(f"{mine}:f"), 1).__enter__()


@pytest.mark.parametrize(
    "line", ["import tasks.mine", "from model import mine", "import tasks; tasks.mine()"]
)
def test_of_a_name_that_headrace_has_the_error_says_so(mine, line):
    mine.write_text(f"{line}\ndef f(text): pass\n")
    with pytest.raises(BadInput, match=r"'(tasks|model)' is Headrace's own package here"):
        Runner(find(f"{mine}:f"), 1).__enter__()
