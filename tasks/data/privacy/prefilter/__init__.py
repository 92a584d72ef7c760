"""The native pass that marks the few places of a batch of texts that can hold an instance.

scan.py       the pass over a batch; texts in disguise a second time, in their plain spelling
texts.py      one text from end to end, and its words with digits
numbers.py    runs of digits: addresses of the Internet, cards, identity numbers, telephones
signs.py      what hangs on a character: "@", ":", "=", brackets
plain.py      the plain spelling of a text
tables.py     what bytes and words are looked up in
marks.py      what is looked for, how a place is noted, kinds of bytes

`t`: bytes of a text in plain spelling; `lo`, `hi`: where the text begins and ends in `t`.
"""
