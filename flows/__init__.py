"""WHEN: the DAGs and the `headrace` command. Imports `tasks`, `model` and `cluster`.

read > filter > dedup > redact +-> vectors > word_scores, dense
                               +-> tokenizer -+
                               |              v
                               +---------> shards +-> sweep (one stage a run) --> fit
                                                  |
                                                  +-> pretrain +-> evaluate
                                                               +-> classify, regress, label, extract
                                                               +-> instruct > prefer > answers
                                                                                        > judge

the finished model -> infer; every stage -> report
"""
