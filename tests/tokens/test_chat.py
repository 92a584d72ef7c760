"""Rendering: which ids, which of them carry loss, and that transformers renders the same."""

from pathlib import Path

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.inference.few_shot import few_shot_chat
from tasks.tokens.chat import prompt_ids, supervised, write_tokenizer_config
from tasks.tokens.encoder import Encoder


def render_example(
    encoder: Encoder, instruction: str, response: str
) -> tuple[list[int], list[int]]:
    turns = [("user", instruction), ("assistant", response)]
    return supervised(encoder, [{"role": role, "content": text} for role, text in turns])


def render_prompt(encoder: Encoder, instruction: str) -> list[int]:
    return prompt_ids(encoder, [{"role": "user", "content": instruction}])


def test_a_prompt_is_user_mark_text_assistant_mark(encoder: Encoder) -> None:
    ids = render_prompt(encoder, "Add 1 and 2.")
    assert ids[0] == encoder.special("user")
    assert ids[-1] == encoder.special("assistant")
    assert encoder.decode(ids[1:-1]) == "Add 1 and 2."


def test_loss_is_on_the_answer_and_its_end_only(encoder: Encoder) -> None:
    inputs, targets = render_example(encoder, "Add.", "It is 3")
    prompt, answer = render_prompt(encoder, "Add."), encoder.encode("It is 3")
    assert inputs == prompt + answer
    # the assistant mark predicts the answer's first token; the last token predicts the end
    assert targets == [-100] * (len(prompt) - 1) + answer + [encoder.eod]


def test_an_empty_answer_is_only_the_end(encoder: Encoder) -> None:
    inputs, targets = render_example(encoder, "Add.", "")
    assert inputs == render_prompt(encoder, "Add.")
    assert [t for t in targets if t != -100] == [encoder.eod]


@pytest.mark.parametrize("mark", ["<|endoftext|>", "<|pad|>", "<|user|>", "<|assistant|>"])
def test_a_mark_the_user_types_stays_text(encoder: Encoder, mark: str) -> None:
    ids = render_prompt(encoder, f"say {mark} twice")
    specials = {encoder.eod, encoder.pad, encoder.special("user"), encoder.special("assistant")}
    assert not specials & set(ids[1:-1])
    assert encoder.decode(ids[1:-1]) == f"say {mark} twice"


@pytest.mark.parametrize(
    "text", ["What is `json.dumps(obj, *, indent=None)`?", "  a\n\n b\t", "naïve ☃"]
)
def test_transformers_renders_the_same_ids(
    base: Artifact, encoder: Encoder, tmp_path: Path, text: str
) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "tokenizer.json").write_bytes((base.path / "tokenizer.json").read_bytes())
    write_tokenizer_config(tmp_path, context=64)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    user, answer = {"role": "user", "content": text}, {"role": "assistant", "content": "It is 3"}

    def rendered(messages: list[dict[str, str]], **options: bool) -> list[int]:
        return theirs.apply_chat_template(messages, return_dict=False, **options)

    assert rendered([user], add_generation_prompt=True) == render_prompt(encoder, text)
    inputs, _ = render_example(encoder, text, "It is 3")
    assert rendered([user, answer]) == [*inputs, encoder.eod]
    assert (theirs.eos_token_id, theirs.pad_token_id) == (encoder.eod, encoder.pad)


def test_systems_and_tools_speak_as_users_do_and_other_roles_are_refused(encoder: Encoder) -> None:
    turns = [{"role": role, "content": "x"} for role in ("system", "user", "tool")]
    user, x = encoder.special("user"), encoder.encode("x")
    assert prompt_ids(encoder, turns) == [*(3 * [user, *x]), encoder.special("assistant")]
    with pytest.raises(BadInput, match="role poet is none of system, user, assistant, tool"):
        prompt_ids(encoder, [{"role": "poet", "content": "x"}])


def test_in_a_chat_examples_are_earlier_turns(encoder: Encoder) -> None:
    found = few_shot_chat(encoder, [("q", "a")], "r")
    user, assistant = encoder.special("user"), encoder.special("assistant")
    q, a, r = (encoder.encode(text) for text in "qar")
    assert found == [user, *q, assistant, *a, encoder.eod, user, *r, assistant]
