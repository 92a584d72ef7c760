"""Which words are web or mail addresses, as spaCy's tokenizer has them; IP numbers left out."""

import numpy as np

from tasks.data.filtering.alphabet import DIGIT, LETTER, LOWER, Codes, Kinds
from tasks.data.kernels import kernel

LONGEST_LABEL, LONGEST_DOMAIN = 64, 63


@kernel
def is_address(codes: Codes, kinds: Kinds, low: int, high: int) -> bool:
    """Whether all of a word is a web or mail address: host with a domain, port, path."""
    dots, scheme = 0, low
    for at in range(low, high):
        dots += codes[at] == ord(".")
    if not dots:
        return False
    while scheme < high and is_scheme_sign(codes[scheme], kinds[scheme]):
        scheme += 1
    if is_host(codes, kinds, low, high):
        return True
    after = scheme + 3  # `://`
    slashes = after < high and codes[scheme + 1] == codes[scheme + 2] == ord("/")
    if slashes and scheme - low >= 2 and codes[scheme] == ord(":"):
        return is_host(codes, kinds, after, high) or is_host_of_user(codes, kinds, after, high)
    return is_host_of_user(codes, kinds, low, high)


@kernel
def is_host_of_user(codes: Codes, kinds: Kinds, low: int, high: int) -> bool:
    """A host after `user@`."""
    for at in range(low + 1, high - 1):
        if codes[at] == ord("@") and is_host(codes, kinds, at + 1, high):
            return True
    return False


@kernel
def is_scheme_sign(code: np.uint32, kind: np.uint16) -> bool:
    """Letters, digits, `_`, `+`, `-` and `.`"""
    sign = code == ord("+") or code == ord("-") or code == ord(".") or code == ord("_")
    return bool(sign or kind & (LETTER | DIGIT) > 0)


@kernel
def is_host(codes: Codes, kinds: Kinds, low: int, high: int) -> bool:
    """Labels joined by dots, the last of lower-case letters, then perhaps a port and a path."""
    label, at, labels, lower = low, low, 0, True
    while at < high:
        code = codes[at]
        if code == ord("."):
            if not is_label(codes, label, at):
                return False
            label, labels, lower = at + 1, labels + 1, True
        elif code == ord(":") or code == ord("/") or code == ord("?") or code == ord("#"):
            break
        elif not (kinds[at] & (LETTER | DIGIT) or code == ord("-") or code == ord("_")):
            if not 0xA1 <= code <= 0xFFFF:
                return False
            lower = False
        elif not kinds[at] & LOWER:
            lower = False
        at += 1
    if labels == 0 or not lower or not 2 <= at - label <= LONGEST_DOMAIN:
        return False
    if at < high and codes[at] == ord(":"):
        port = at + 1
        while port < high and kinds[port] & DIGIT:
            port += 1
        if not 3 <= port - at <= 6:
            return False
        at = port
    return at == high or codes[at] == ord("/") or codes[at] == ord("?") or codes[at] == ord("#")


@kernel
def is_label(codes: Codes, low: int, high: int) -> bool:
    """A host's label begins and ends with neither `-` nor `_`."""
    if not 1 <= high - low <= LONGEST_LABEL:
        return False
    first, last = codes[low], codes[high - 1]
    return bool(first != ord("-") and first != ord("_") and last != ord("-") and last != ord("_"))
