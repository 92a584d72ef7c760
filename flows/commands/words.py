"""vectors: what word vectors say of words, of ours or of anybody's word2vec file."""

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import AsJson, Home
from flows.views.output import output


def vectors(
    table: Annotated[
        str, typer.Argument(help="an artifact's name, or a file in word2vec's format (.bin, .txt)")
    ],
    nearest: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="the words most like this one; repeatable"),
    ] = None,
    analogy: Annotated[
        tuple[str, str, str] | None,
        typer.Option(metavar="A B C", help="what is to C as B is to A: man king woman"),
    ] = None,
    similarity: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="two words and a rating a line, as in WordSim-353: the correlation; repeatable",
        ),
    ] = None,
    analogies: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="four words a line: the share of right answers"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="words to tell, of each")] = 10,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write word2vec's format: .bin binary, .txt text"),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Neighbours, analogies and agreement with people of word vectors.

    headrace vectors vectors --nearest river --analogy man king woman
    headrace vectors theirs.bin --similarity wordsim353.tsv --to ours.txt
    """
    from cluster.store import Store
    from flows.views.words import show_vectors
    from tasks.vectors.scores import score_analogies, score_pairs
    from tasks.vectors.table import FILE, read_vectors, write_vectors

    with output(as_json) as out:
        known = read_vectors(
            Path(table) if Path(table).is_file() else Store().get(table).file(FILE)
        )
        near = {word: known.nearest(word, count) for word in nearest or ()}
        result = {
            "words": len(known.words),
            "width": known.vectors_WD.shape[1],
            "nearest": {word: [one._asdict() for one in found] for word, found in near.items()},
            "analogy": [n._asdict() for n in known.analogous(*analogy, count)] if analogy else [],
            "similarity": [score_pairs(known, file) for file in similarity or ()],
            "analogies": [score_analogies(known, file) for file in analogies or ()],
        }
        if to:
            write_vectors(known, to)
            result["path"] = str(to)
        out.result(result)
        show_vectors(out, result)
