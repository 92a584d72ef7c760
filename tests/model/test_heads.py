"""The sequence classifier reads the last real token of each row."""

import math

import pytest
import torch

from model.config import from_depth
from model.heads import SequenceClassifier, last_tokens
from model.transformer import Transformer

SMALL = from_depth(2, vocab_size=31, context=16, width=32, heads=2)


def test_the_last_token_is_the_last_that_is_not_padding():
    documents = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]])
    assert last_tokens(documents, documents).tolist() == [2, 0, 3, 3]
    assert last_tokens(documents, None).tolist() == [3, 3, 3, 3]


def test_padding_changes_no_score():
    torch.manual_seed(0)
    model = SequenceClassifier(Transformer(SMALL), classes=3).eval()
    torch.nn.init.normal_(model.classifier.weight)
    text = torch.randint(0, 31, (1, 6))
    padded = torch.cat((text, torch.randint(0, 31, (1, 5))), 1)
    documents = torch.tensor([[1] * 6 + [0] * 5])
    assert torch.allclose(model.scores(padded, documents), model.scores(text), atol=1e-5)


def test_the_first_loss_is_that_of_equally_likely_classes():
    model = SequenceClassifier(Transformer(SMALL), classes=7)
    loss = model(torch.zeros(2, 4, dtype=torch.long), labels=torch.tensor([0, 6]))
    assert loss.item() == pytest.approx(math.log(7))


def test_it_learns_which_token_comes_last():
    torch.manual_seed(0)
    model = SequenceClassifier(Transformer(SMALL), classes=2)
    inputs = torch.randint(2, 31, (32, 8))
    labels = torch.arange(32) % 2
    inputs[:, -1] = labels
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(20):
        loss = model(inputs, labels=labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (model.scores(inputs).argmax(1) == labels).all()
