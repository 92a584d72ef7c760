"""Settings of stages `vectors` and `word_scores`."""

from typing import Annotated, Literal

from pydantic import Field

from cluster.settings import Content, Settings
from tasks.data.reading.hashes import remembered_hash

Method = Literal["one_hot", "ppmi_svd", "skipgram", "cbow"]
Output = Literal["negative_sampling", "hierarchical_softmax"]
FILES = Content(remembered_hash, each=True)


class VectorSettings(Settings):
    """What a word's vector is made of, and how."""

    method: Method = Field(
        "skipgram",
        description="one_hot: a place of its own for each word; ppmi_svd: what stands near it, "
        "counted; skipgram: learnt by predicting its neighbours; cbow: by being predicted",
    )
    output: Output = Field(
        "negative_sampling",
        description="how skipgram and cbow score a word against all others: beside words drawn at "
        "random, or by turns in a Huffman tree",
    )
    width: int = Field(100, ge=1, description="dimensions; one_hot has as many as words")
    window: int = Field(
        5, ge=1, description="words on either side that are near; skipgram and cbow draw 1 to this"
    )
    min_count: int = Field(5, ge=1, description="words that occur less often have no vector")
    max_words: int | None = Field(
        None, ge=2, description="so many of the most frequent words have vectors; null: all"
    )
    epochs: int = Field(5, ge=1, description="passes of skipgram and cbow over the text")
    learning_rate: float = Field(
        0.025, gt=0, description="of skipgram and cbow at first; it falls in a line to 0.0001"
    )
    negatives: int = Field(5, ge=1, description="words drawn for each that occurs")
    noise_power: float = Field(
        0.75,
        ge=0,
        description="power of the counts by which negatives are drawn, and by which ppmi_svd "
        "takes a context to be expected",
    )
    subsample: float = Field(
        1e-3,
        ge=0,
        description="share of the text from which on skipgram and cbow skip some of a word's "
        "places, the more the more frequent it is; 0 skips none",
    )
    sigma_power: float = Field(
        0.5, ge=0, description="ppmi_svd: a vector is its row of U times singular values to this"
    )


class WordScoreSettings(Settings):
    """What word vectors are held against."""

    similarity: Annotated[tuple[str, ...], FILES] = Field(
        (), description="files of two words and people's rating of them a line, as WordSim-353's"
    )
    analogies: Annotated[tuple[str, ...], FILES] = Field(
        (), description="files of four words a line, a is to b as c to d, as questions-words.txt"
    )
