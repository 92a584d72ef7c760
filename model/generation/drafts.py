"""Several tokens of a row by one reading of the matrices: guessed in fp16, checked in fp32.

Where few rows write, a step takes as long as the matrices take to be read from memory, whether it
reads one token of a row or five. So the same network, its matrices rounded to fp16 and read in half
the time, guesses the next tokens; the network itself reads all of them in one step and chooses
behind each (speculative decoding: Leviathan et al. 2023; by the rounded network: Zhao et al. 2024,
QSpec). A guess counts if it is what the network chooses, by the same number drawn, so that an
answer is what it would be without.
"""

from typing import Generic

from model.generation.packed import Half, Network, elements, packed

COUNT = 4
"""Tokens guessed in a step."""
ROWS = 4
"""Rows that write above which multiplying takes longer than reading, and guesses save nothing."""
LEAST = 2**24
"""Numbers in matrices below which a CPU's caches hold them, and reading them costs little."""
BEGIN = 128
"""Steps of few rows before matrices are rounded, which takes as long as guessing saves in so many.
"""


class Drafts(Generic[Network]):
    """The network that guesses, where and once it pays to have it."""

    def __init__(self, network: Network, allowed: bool) -> None:
        self.network = network
        self.left: int | None = BEGIN if allowed and elements(network) >= LEAST else None
        """Steps of few rows until it is made; None where it never is."""
        self.quick: Network | None = None

    def begin(self) -> Network | None:
        """What guesses in this step, which has few rows; None where nothing does."""
        if self.left == 0 and self.quick is None:
            self.quick = packed(self.network, Half)
        elif self.left:
            self.left -= 1
        return self.quick
