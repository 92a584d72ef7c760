"""What the pass looks for, how it notes a place, and the kinds of bytes its parts ask for."""

from tasks.data.kernels import kernel

# What is looked for, each a bit of `wanted`; marks carry the number of the bit.
PREFILTERS = (
    "secret", "private_key", "email", "iban", "card", "national_id", "ip", "phone", "address",
)  # fmt: skip
SECRET, PRIVATE_KEY, EMAIL, IBAN, CARD, NATIONAL_ID, IP, PHONE, ADDRESS = range(len(PREFILTERS))


@kernel
def mark(marks, wanted, prefilter, lo, hi):
    """Note a place, if that prefilter is wanted. The first row counts the marks, also those for
    which there is no room.
    """
    if wanted >> prefilter & 1:
        marks[0, 0] += 1
        if marks[0, 0] < len(marks):
            place = marks[0, 0]
            marks[place, 1], marks[place, 2], marks[place, 3] = lo, hi, prefilter


@kernel
def is_digit(c: int) -> bool:
    """Whether a byte is 0 to 9."""
    return 48 <= c <= 57


@kernel
def is_alphanumeric(c: int) -> bool:
    """Whether a byte is an ASCII letter or digit."""
    return 48 <= c <= 57 or 97 <= (c | 32) <= 122


@kernel
def starts_word(t, k, hi, words):
    """Whether one of the words, in either case, begins at k."""
    joined, offsets, _ = words
    for w in range(len(offsets) - 1):
        length = offsets[w + 1] - offsets[w]
        if t[k] | 32 == joined[offsets[w]] and k + length <= hi:
            same = True
            for m in range(1, length):
                c = t[k + m]
                same = same and (c | 32 if c < 0x5B else c) == joined[offsets[w] + m]
            if same:
                return True
    return False
