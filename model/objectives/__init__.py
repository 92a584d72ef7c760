"""Pretraining objectives: what is hidden from a network, and what it is to say about it.

    catalog    the objectives by name: which family learns them, what tokens they need
    lengths    how many tokens of text fill a row; the tasks of the mixture of denoisers
    rows       what a batch is made of, and what an objective must know of a tokenizer
    transforms a sample of text to a row of a batch, by name; built from the pure functions in
               masking, spans, noising, pairs and permuted
    losses     cross-entropy without ever holding all logits
    base       what is common to the modules that return a loss
    modules    a network and an objective as one such module; detection (with its generator) and
               two_way have those of ELECTRA and ELMo
    preference the same for answers that people prefer to others
    distillation the same for a student of another network

A transform is a pure function of a sample's tokens and of a generator keyed by (seed, sample
number): the same sample gives the same row whatever batch, worker or run it is in. In every module
one function *chooses* (positions, spans, an order) and another *applies* what was chosen, so that a
worked example can be repeated token by token.
"""
