"""Which mixture of the sources to train on: a swarm of small runs, a regression, a proposal."""
