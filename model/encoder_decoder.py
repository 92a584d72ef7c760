"""The encoder-decoder: an encoder that reads one sequence, a decoder that writes another.

    network = build(from_depth(4, vocab_size=4096, context=256, family="encoder_decoder"))
    hidden_BTD = network(inputs_BS, decoder_inputs_BT)
    logits_BTV = network.logits(hidden_BTD)

Vaswani et al. 2017; T5: Raffel et al. 2020; BART: Lewis et al. 2020. To generate, `encode` once and
`decode` token by token with a cache.

Letters: B rows, S encoder positions, T decoder positions, D width.
"""

from torch import Tensor, nn

from model.cache import Cache
from model.config import ModelConfig
from model.initialise import initialise
from model.memory import Memory
from model.stack import Stack
from model.transformer import LanguageModel, Transformer


def build(config: ModelConfig) -> "Transformer | EncoderDecoder":
    """The network of a config, with fresh weights from PyTorch's global generator."""
    return EncoderDecoder(config) if config.family == "encoder_decoder" else Transformer(config)


class EncoderDecoder(LanguageModel):
    """Two stacks on one embedding, with one head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.encoder = Stack(config, config.encoder_depth or config.depth, causal=False)
        self.decoder = Stack(config, config.depth, causal=True, cross=True)
        self.add_head()
        initialise(self)

    def forward(
        self,
        inputs_BS: Tensor,
        decoder_inputs_BT: Tensor,
        documents_BS: Tensor | None = None,
        decoder_documents_BT: Tensor | None = None,
        positions_BS: Tensor | None = None,
        decoder_positions_BT: Tensor | None = None,
        begins_N: Tensor | None = None,
    ) -> Tensor:
        """The decoder's final hidden states `[B, T, D]` of token ids `[B, S]` and `[B, T]`.

        Documents and positions are as in `Transformer.forward`; a document of the decoder sees the
        encoder's document of the same number.
        """
        memory = self.encode(inputs_BS, documents_BS, positions_BS, begins_N)
        return self.decode(decoder_inputs_BT, memory, decoder_documents_BT, decoder_positions_BT)

    def encode(
        self,
        inputs_BS: Tensor,
        documents_BS: Tensor | None = None,
        positions_BS: Tensor | None = None,
        begins_N: Tensor | None = None,
    ) -> Memory:
        """What the decoder looks at: the encoder's states of `[B, S]` token ids."""
        embedded_BSD = self.embed(inputs_BS)
        states_BSD = self.encoder.run(embedded_BSD, documents_BS, positions_BS, begins_N=begins_N)
        return Memory(states_BSD, documents_BS)

    def decode(
        self,
        decoder_inputs_BT: Tensor,
        memory: Memory,
        documents_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Final hidden states `[B, T, D]` of the decoder's token ids, which continue the cache's.

        Without `documents_BT` they see all of the memory that is not padding.
        """
        return self.decoder.run(
            self.embed(decoder_inputs_BT), documents_BT, positions_BT, cache=cache, memory=memory
        )
