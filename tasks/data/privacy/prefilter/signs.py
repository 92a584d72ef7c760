"""What hangs on a character: addresses on "@", assignments on ":" and "=", logins, keys."""

from tasks.data.kernels import kernel
from tasks.data.kernels.buffers import Bytes
from tasks.data.privacy.prefilter.marks import (
    EMAIL,
    IP,
    PRIVATE_KEY,
    SECRET,
    is_alphanumeric,
    mark,
    starts_word,
)
from tasks.data.privacy.prefilter.tables import (
    AT,
    BEGIN,
    BLANK,
    BRACKET,
    COLON,
    DOT,
    EQUALS,
    HEX,
    LOCAL,
    VALUE,
    WORDISH,
)


@kernel
def sign(t, lo, hi, i, stop, wanted, marks, flags, names):
    """A character that an address, an assignment, a URL or a key hangs on."""
    if stop == AT:
        if _is_address(t, lo, hi, i, flags):
            mark(marks, wanted, EMAIL, i, i + 1)
    elif stop in (COLON, EQUALS):
        if stop == COLON:
            _colon(t, lo, hi, i, wanted, marks, flags)
        if _is_assigned(t, lo, hi, i, flags, names):
            mark(marks, wanted, SECRET, i, i + 1)
    elif stop == DOT:
        apart = i > lo and i + 2 < hi and not is_alphanumeric(t[i - 1])
        if apart and t[i + 2] | 32 == 0x74 and (i + 3 == hi or not is_alphanumeric(t[i + 3])):
            mark(marks, wanted, EMAIL, max(lo, i - 100), i)
    elif stop == BEGIN and i + 5 < hi:
        dashed = i - 5 >= lo and t[i - 1] == 0x2D and t[i - 5] == 0x2D
        if dashed and t[i + 1] == 0x45 and t[i + 4] == 0x4E:  # -----BEGIN
            mark(marks, wanted, PRIVATE_KEY, i - 5, min(hi, i + 75))
        elif t[i + 1] | 32 == 0x65 or t[i + 1] | 32 == 0x61:  # Bearer, Basic
            # Where it is no scheme, nothing is wanted.
            mark(marks, wanted * _ends_scheme(t, i, hi), SECRET, i, min(hi, i + 7))
    elif stop == BRACKET and i + 3 < hi:
        k = i + 1 + (t[i + 1] == 0x20)
        word = t[k] | 32 == 0x61 and t[k + 1] | 32 == 0x74
        if word and k + 2 < hi and not is_alphanumeric(t[k + 2]):
            mark(marks, wanted, EMAIL, i, k + 3)


@kernel
def _ends_scheme(t: Bytes, i: int, hi: int) -> bool:
    """Whether a word of the length of "Basic" or "Bearer", and its last letter, is followed by a
    space and something.
    """
    if i + 7 < hi and t[i + 6] == 0x20 and t[i + 5] | 32 == 0x72:
        return True
    return i + 6 < hi and t[i + 5] == 0x20 and t[i + 4] | 32 == 0x63


@kernel
def _is_address(t, lo, hi, i, flags):
    """Whether something like a local part precedes, and a domain with a dot follows, the "@"."""
    if i == lo or i + 3 > hi:
        return False
    k = i + 1
    while k < min(hi, i + 4) and not flags[t[k]] & WORDISH:
        if t[k] != 0x20 and t[k] != 0x5D and t[k] != 0x29 and t[k] != 0x7D and t[k] != 0x3E:
            return k == i + 1 and t[k] == 0x2D
        k += 1
    if k == i + 1 and not flags[t[i - 1]] & LOCAL:
        return False
    if k > i + 1 and flags[t[i - 1]] & LOCAL:
        return False
    while k < hi and (flags[t[k]] & WORDISH or t[k] == 0x2D):
        k += 1
    if k + 1 >= hi:
        return False
    if t[k] == 0x2E or t[k] == 0x5B or t[k] == 0x28 or t[k] == 0x7B or t[k] == 0x3C:
        return True
    n = t[k + 1]
    spelled = n | 32 == 0x64 or n == 0x2E or n == 0x5B or n == 0x28 or n == 0x7B or n == 0x3C
    return t[k] == 0x20 and spelled


@kernel
def _is_assigned(t, lo, hi, i, flags, names):
    """Whether a value that may be a secret follows, and a telling name precedes, the sign."""
    return _has_value(t, hi, i + 1, flags) and _has_name(t, lo, i, flags, names)


@kernel
def _has_value(t, hi, k, flags):
    """Whether 16 characters or more of letters and digits, or 8 of three kinds, follow from k on,
    after `>`, white space and a quote.
    """
    if k < hi and (t[k] == 0x3D or t[k] == 0x3A):
        return False
    if k < hi and t[k] == 0x3E:
        k += 1
    for _ in range(4):
        k += k < hi and flags[t[k]] & BLANK != 0
    k += k < hi and (t[k] == 0x22 or t[k] == 0x27)
    first, upper, lower, digit, other = k, 0, 0, 0, 0
    # Bounded: a long run of such characters would be read anew for each "=" in it.
    while k < hi and k - first < 256 and flags[t[k]] & VALUE:
        c = t[k]
        digit |= 48 <= c <= 57
        upper |= 65 <= c <= 90
        lower |= 97 <= c <= 122
        other |= not is_alphanumeric(c)
        k += 1
    kinds = upper + lower + digit + other
    if k - first < 16:
        return k - first >= 8 and kinds >= 3
    return kinds >= 3 or (digit and upper | lower)


@kernel
def _has_name(t, lo, i, flags, names):
    """Whether a telling name ends before the sign at i, and signs, white space and a quote."""
    k = i
    for _ in range(2):
        k -= k > lo and (t[k - 1] == 0x3D or t[k - 1] == 0x3A)
    for _ in range(4):
        k -= k > lo and flags[t[k - 1]] & BLANK != 0
    k -= k > lo and (t[k - 1] == 0x22 or t[k - 1] == 0x27)
    first, reach = k, max(lo, i - names[2])
    while first > reach and (flags[t[first - 1]] & WORDISH or t[first - 1] == 0x2D):
        first -= 1
    while first < k:
        if t[first] | 32 >= 0x61 and starts_word(t, first, k, names):
            return True
        first += 1
    return False


@kernel
def _colon(t, lo, hi, i, wanted, marks, flags):
    """A login in a URL, or the first colon, or the double one, of an IPv6 address."""
    if i + 8 < hi and t[i + 1] == 0x2F and t[i + 2] == 0x2F:
        if _has_login(t, hi, i + 3, flags):
            mark(marks, wanted, SECRET, i, i + 1)
    elif i > lo and flags[t[i - 1]] & HEX and i + 2 <= hi:
        _address(t, lo, hi, i, wanted, marks, flags)


@kernel
def _has_login(t, hi, start, flags):
    """Whether `user:password@` begins there, in the first 197 bytes of a URL's rest."""
    parts = False
    for k in range(start, min(hi, start + 197)):
        c = t[k]
        if c == 0x40:
            return parts
        if flags[c] & BLANK or c == 0x2F or c == 0x22 or c == 0x27 or c == 0x3C or c == 0x3E:
            return False
        parts |= c == 0x3A
    return False


@kernel
def _address(t, lo, hi, i, wanted, marks, flags):
    """Mark the run of hexadecimal digits and colons around i when it may be an IPv6 address."""
    first, end = i - 1, i
    # Bounded: each colon of a long run would walk back to its start. Where the
    # bound is met, the finder is to look.
    while first > lo and i - first < 30 and (flags[t[first - 1]] & HEX or t[first - 1] == 0x3A):
        first -= 1
    while end < hi and (flags[t[end]] & HEX or t[end] == 0x3A):
        end += 1
    if i + 1 < hi and t[i + 1] == 0x3A:
        head = first
        while flags[t[head]] & HEX:
            head += 1
        routed = t[first] == 0x32 or t[first] == 0x33 or t[first] | 32 == 0x66
        if (head - first == 4 and routed) or i - first >= 30:
            mark(marks, wanted, IP, first, end)
    elif end - i >= 13 and i - first <= 4:
        colons = 0
        for k in range(i, min(end, i + 36)):
            colons += t[k] == 0x3A
        if colons >= 7:
            mark(marks, wanted, IP, first, end)
