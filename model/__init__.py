"""THE NETWORK: blocks, objectives, heads, decoding, parameter and FLOP counts, in pure PyTorch.

Imports torch, numpy, safetensors and the standard library only.
"""
