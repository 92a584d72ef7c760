"""Personal data and secrets: where they are in a text, and what takes their place.

prefilter/        one native pass marks the few places that can hold an instance
obfuscation.py   spellings that hide an instance, read as the plain one
electronic.py accounts.py phones.py national.py credentials.py streets.py   exact finders by kind
names.py      person names, through a model
pii.py        find and mask in one text;  batch.py   the same over Arrow text
quality.py    precision and recall on labelled sentences (labelled.jsonl)
"""
