"""Recipes: defaults, overrides, and messages that say what is wrong and what is allowed."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from cluster.errors import BadInput
from flows.recipe import SHIPPED, Recipe, load

MINIMAL = "name: mine\nsources: [{path: 'data/*.jsonl'}]\n"


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL)
    return path


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_recipes_are_valid_and_named_after_their_file(path: Path) -> None:
    assert load(path.stem).name == path.stem


def test_name_and_sources_suffice(recipe_file: Path) -> None:
    recipe = load(str(recipe_file))
    assert recipe.tokenizer.vocab_size == 4096
    assert recipe.pretrain.batch_tokens == 16_384
    assert (recipe.model.family, recipe.model.depth) == ("decoder", None)
    assert recipe.filters.preset == "basic"
    assert recipe.dedup.exact and recipe.dedup.fuzzy
    assert {"email", "ip", "phone", "card", "iban", "secret"} <= set(recipe.redact.kinds)


def test_overrides_are_yaml_values_at_dotted_keys(recipe_file: Path) -> None:
    recipe = load(
        str(recipe_file),
        [
            "tokenizer.vocab_size=600",
            "redact.kinds=[email]",
            "sources.0.weight=2",
            "sweep=null",
            "placement.workers=2",
        ],
    )
    assert recipe.tokenizer.vocab_size == 600
    assert recipe.redact.kinds == ("email",)
    assert recipe.sources[0].weight == 2.0
    assert recipe.sweep is None
    assert recipe.placement.workers == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "tokenizer.vocab_sise=600",
            "unknown key 'tokenizer.vocab_sise': did you mean 'vocab_size'",
        ),
        ("tokeniser.vocab_size=600", "did you mean 'tokenizer'"),
        ("pretrain.learning_rate=1e-3", "did you mean 'pretrain.optimizer.learning_rate'"),
        (
            "pretrain.micro_batch_tokens=512",
            "'pretrain.micro_batch_tokens' is `placement.micro_batch_tokens` now",
        ),
        ("sources.0.pth=x", "did you mean 'path'"),
        ("sources.0.max_epochs=0", "sources.0.max_epochs = 0"),
        ("pretrain.mixture=[{until: 0.5, weights: {a: 1}}]", "`until` must rise from stage to"),
        ("pretrain.mixture=[{weights: {a: 0}}]", "one of the weights must be above 0"),
        ("pretrain={objective: masked, packing: padded}", "needs full samples: concatenate"),
        ("sweep.width=3", "did you mean 'widths'"),
        ("model.depth=0", "model.depth = 0: input should be greater than or equal to 1"),
        ("pretrain.precision=fp7", "pretrain.precision = 'fp7'"),
        ("pretrain.tokens=.nan", "pretrain.tokens"),
        ("model.heads=3", "model.heads"),
        ("pretrain.batch_tokens=1000", "batch_tokens must be a multiple of the context 256"),
        ("sources.4.path=x", "must be a number from 0 to 0"),
        ("name.first=x", "'name' is a value, not a section"),
        ("seed", "write it as key=value"),
        ("name=../up", "name = '../up'"),
        ("filters=null", "filters = null: it has settings, preset, limits"),
    ],
)
def test_bad_overrides_are_explained(recipe_file: Path, override: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        load(str(recipe_file), [override])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nname: b\nsources: [x]\n", "key 'name' is given twice"),
        ("name: a\n", "'sources' is missing"),
        ("- a\n", "a recipe is a mapping"),
        ("name: a\nsources: !!python/object:os.system x\n", "not valid YAML"),
        ("name: [a\n", "not valid YAML"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        load(str(path))
    assert message in str(error.value) and "bad.yaml" in str(error.value)


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'quickstart'"):
        load("quikstart")


def test_recipes_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load("smoke").seed = 3  # type: ignore[misc]


def test_yaml_numbers_in_exponent_form_are_numbers(recipe_file: Path) -> None:
    recipe = load(str(recipe_file), ["read.max_bad_rate=1e-2"])
    assert recipe.read.max_bad_rate == pytest.approx(0.01)


def test_the_recipe_survives_its_own_json() -> None:
    recipe = load("quickstart")
    assert Recipe.model_validate(recipe.model_dump(mode="json")) == recipe


def loaded(recipe_file: Path, *overrides: str) -> Recipe:
    return load(str(recipe_file), overrides)


@pytest.mark.parametrize(
    ("overrides", "family", "objective"),
    [
        ([], "decoder", "causal"),
        (["model.family=encoder"], "encoder", "masked"),
        (["model.family=encoder_decoder"], "encoder_decoder", "span_corruption"),
        (["model.preset=bert-base-uncased"], "encoder", "masked"),
        (["model.preset=t5-small", "pretrain.tokens=5"], "encoder_decoder", "span_corruption"),
        (["pretrain.objective=prefix"], "decoder", "prefix"),
    ],
)
def test_family_and_objective_are_found_from_each_other(
    recipe_file: Path, overrides: list[str], family: str, objective: str
) -> None:
    recipe = loaded(recipe_file, *overrides)
    assert (recipe.model.family, recipe.pretrain.objective) == (family, objective)
    assert Recipe.model_validate(recipe.model_dump(mode="json")) == recipe


@pytest.mark.parametrize(
    ("overrides", "tokens"),
    [
        ([], ()),
        (["model.family=encoder"], ("<|class|>", "<|mask|>")),
        (
            ["model.family=encoder", "pretrain.objective=next_sentence"],
            ("<|class|>", "<|separator|>", "<|mask|>"),
        ),
        (
            ["model.family=encoder_decoder", "pretrain.context=64"],
            ("<|sentinel_0|>", "<|sentinel_1|>", "<|sentinel_2|>", "<|sentinel_3|>"),
        ),
        (["tokenizer.special_tokens=['<|note|>']"], ("<|note|>",)),
    ],
)
def test_special_tokens_are_those_the_objective_needs(
    recipe_file: Path, overrides: list[str], tokens: tuple[str, ...]
) -> None:
    recipe = loaded(recipe_file, *overrides)
    assert recipe.vocabulary().special_tokens == tokens


def test_a_setting_of_reading_among_the_filters_is_named_where_it_belongs(
    recipe_file: Path,
) -> None:
    with pytest.raises(BadInput, match=r"filters: .*write read.max_bad_rate, 0.5, instead"):
        loaded(recipe_file, "filters.max_bad_rate=0.5")


def test_stages_that_a_model_cannot_do_are_left_out_with_the_reason(recipe_file: Path) -> None:
    encoder = loaded(recipe_file, "model.family=encoder")
    assert encoder.instruct is None and encoder.sweep is None and encoder.classify is not None
    assert encoder.left_out() == [
        "instruct is left out: an encoder is not tuned to answer, which takes a decoder",
        "sweep is left out: scaling laws are of causal losses, the objective is masked",
    ]
    decoder = loaded(recipe_file)
    assert decoder.left_out() == []
    assert all(decoder.asks_for(stage) for stage in ("classify", "instruct", "sweep"))


def test_stages_that_a_model_cannot_do_are_refused_when_asked_for(recipe_file: Path) -> None:
    recipe = loaded(recipe_file, "model.family=encoder", "instruct.tokens=1000")
    with pytest.raises(BadInput, match=r"`instruct`, but an encoder is not tuned .*instruct=null"):
        recipe.asks_for("instruct")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["model.family=encoder", "pretrain.objective=causal"],
            "which model.family decoder learns",
        ),
        (["pretrain.objective=masked"], "learns causal, prefix, permuted"),
        (["model.preset=bert-base-uncased", "model.family=decoder"], "bert-base-uncased is an enc"),
        (["model.family=encoders"], "model.family = 'encoders'"),
        (["pretrain.objective=mask"], "pretrain.objective = 'mask'"),
        (["pretrain.noise.rate=0.2"], "noise.rate: causal has none"),
        (["model.family=encoder_decoder", "tokenizer.vocab_size=262"], "vocab_size 262 must be at"),
        (["tokenizer.special_tokens=[note]"], "must look like <|note|>"),
        (["tokenizer.special_tokens=['<|pad|>']"], "and be new"),
    ],
)
def test_combinations_that_make_no_sense_are_explained(
    recipe_file: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(BadInput) as error:
        loaded(recipe_file, *overrides)
    assert message in str(error.value)
