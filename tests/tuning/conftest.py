"""A toy pretrained model: a model folder as an artifact, with a tokenizer of 300 tokens."""

import pytest

from cluster.artifact import Artifact
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.tokens.encoder import Encoder, load
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer
from tests.tokens.conftest import PROSE, write_text

CONTEXT = 64


@stage(version=1)
def toy_model(tokenizer: Artifact, family: str, seed: int, draft: Draft) -> None:
    """Random weights; nothing is trained."""
    import shutil

    import torch

    from model import hub
    from model.encoder_decoder import build as network
    from model.shapes import from_depth

    torch.manual_seed(seed)
    vocab_size = load(tokenizer).vocab_size
    shape = {"width": 32, "heads": 2, "family": family}
    config = from_depth(2, vocab_size=vocab_size, context=CONTEXT, **shape)
    hub.save(draft.path, network(config))
    shutil.copyfile(tokenizer.file("tokenizer.json"), draft.path / "tokenizer.json")


@pytest.fixture(scope="session")
def tuning_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("tuning"))


@pytest.fixture(scope="session")
def base(tuning_store: Store) -> Artifact:
    text = build(write_text, tuning_store, texts=PROSE[:3])
    settings = TokenizerSettings(vocab_size=300)
    tokenizer = build(train_tokenizer, tuning_store, text=text, settings=settings)
    return build(toy_model, tuning_store, tokenizer=tokenizer, family="decoder", seed=0)


@pytest.fixture(scope="session")
def encoder_base(tuning_store: Store) -> Artifact:
    """An encoder, with the special tokens of one."""
    text = build(write_text, tuning_store, texts=PROSE[:3])
    settings = TokenizerSettings(vocab_size=300, special_tokens=("<|class|>", "<|mask|>"))
    tokenizer = build(train_tokenizer, tuning_store, text=text, settings=settings)
    return build(toy_model, tuning_store, tokenizer=tokenizer, family="encoder", seed=0)


@pytest.fixture(scope="session")
def fresh(tuning_store: Store) -> Artifact:
    """An encoder-decoder with the tokenizer of the decoder."""
    text = build(write_text, tuning_store, texts=PROSE[:3])
    settings = TokenizerSettings(vocab_size=300)
    tokenizer = build(train_tokenizer, tuning_store, text=text, settings=settings)
    family = "encoder_decoder"
    return build(toy_model, tuning_store, tokenizer=tokenizer, family=family, seed=1)


@pytest.fixture(scope="session")
def encoder(base: Artifact) -> Encoder:
    return load(base)
