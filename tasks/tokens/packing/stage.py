"""Stage `packing`: which stretches of the training stream make up each sample, source by source.

    ends.arrow      a row per sample: the number of pieces up to its end
    starts.arrow    a row per piece: where its tokens begin in the stream of the split
    lengths.arrow   the same: how many they are

A piece is a stretch of targets; the input before the first of them is the token before it in the
stream: the end of the last document, or, within a document, the token there. So every token is
predicted once, whatever the packing, and a document's first from the end-of-document token alone.

- `concatenate`: a source's documents end to end, cut every `context` tokens; the last few left out.
- `best_fit`: a document is in one sample where it fits, and cut every `context` tokens where it
  does not; samples are filled best-fit decreasing (Ding et al. 2024, "Fewer truncations improve
  language modeling", section 3) and padded at the end.
- `padded`: the same pieces, each in a sample of its own.
"""

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tokens.packing.settings import PackingSettings


@stage(version=1)
def packing(shards: Artifact, settings: PackingSettings, draft: Draft) -> None:
    """Pack the training split's documents into samples of `context` tokens, sorted by source.

    Facts: `kind`, `context`, `sources` (per source `name`, `documents`, `samples`, `tokens` in
    them, `pieces`, `cut_documents`, `unused_tokens`). Metrics: `waste` (share of the samples'
    places that are padding), `cut_share` (of documents, those that are in more than one piece),
    `unused_share` (of tokens, those in no sample).
    Raises BadInput when no source fills a sample.
    """
    from tasks.tokens.packing.pack import pack

    pack(shards, settings, draft)
