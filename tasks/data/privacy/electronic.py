"""E-mail and IP addresses.

A finder takes the plain spelling of a text and the places `lo` to `hi` where instances may begin
to show (an "@", a number); what it looks at beyond them is bounded. So it finds in a window of the
text what it finds in the whole.
"""

import ipaddress
import re
from collections.abc import Iterator

from tasks.data.privacy.spans import RUN, is_alone

LOCAL_CHARS, DOMAIN_CHARS = 64, 254
LOCAL_PART = re.compile(r"[\w.%+'-]{1,64}\Z")
DOMAIN = re.compile(r"(?:[\w-]{1,63}\.){1,8}(?:xn--[\w-]{2,59}|[^\W\d_]{2,24})(?![\w-])")
MARK = re.compile(r"@|(?<![A-Za-z])[aA][tT](?![A-Za-z])")
BEFORE_BRACKET, AFTER_BRACKET = re.compile(r" ?[\[({<] ?\Z"), re.compile(r" ?[\])}>] ?")
DOT = r"(?:\.| ?[\[({<] ?(?:dot|\.) ?[\])}>] ?| dot | \. )"
SPELLED_DOMAIN = re.compile(rf"(?:[\w-]{{1,63}}{DOT}){{1,4}}[^\W\d_]{{2,12}}(?![\w-])", re.I)
SPELLED_DOT = re.compile(r"\bdot\b|[\s\[({<]", re.I)
# Spelled-out and spaced addresses must end in one of these: ordinary words stand around "at" too.
_COMMON_ENDINGS = (
    "com org net edu gov mil int info biz name io ai dev app co uk de fr es it nl be ch at se no "
    "dk fi pl pt ie eu us ca au nz jp cn in br mx ar ru ua cz sk hu ro gr tr za kr tw hk sg"
)
COMMON_ENDINGS = frozenset(_COMMON_ENDINGS.split())
_NOT_A_DOMAIN = "the a an this that each every one some any which whose our my your"
NOT_A_DOMAIN = frozenset(_NOT_A_DOMAIN.split())
_FILE_ENDINGS = (
    "png jpg jpeg gif svg webp avif ico css js mjs ts tsx jsx html htm json yaml yml toml xml txt "
    "csv py ipynb whl gz zip tar tgz exe dll so"
)
FILE_ENDINGS = frozenset(_FILE_ENDINGS.split())
# In code "@" also multiplies matrices and names SSH users.
NOT_A_PERSON = frozenset(("git", "hg"))
MATRIX = re.compile(r"[(\[]")


def emails(text: str, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Addresses whose "@", or the word for it, stands at `lo` to `hi`."""
    for mark in MARK.finditer(text, lo, hi):
        span = _plain_address(text, mark.start()) if mark.group() == "@" else None
        if span := span or _spelled_address(text, *mark.span()):
            yield span


def _plain_address(text: str, at: int) -> tuple[int, int] | None:
    local = LOCAL_PART.search(text[max(0, at - LOCAL_CHARS) : at])
    domain = DOMAIN.match(text, at + 1, at + 1 + DOMAIN_CHARS)
    if not (local and domain):
        return None
    name, host = local.group().lstrip(".'-%+"), domain.group().lower()
    ending = host.rpartition(".")[2]
    if not name or name in NOT_A_PERSON or ending in FILE_ENDINGS:
        return None
    if ending not in COMMON_ENDINGS and (
        host.startswith("self.") or MATRIX.match(text, domain.end())
    ):
        return None
    return at - len(name), domain.end()


def _spelled_address(text: str, start: int, end: int) -> tuple[int, int] | None:
    """`jane [at] example.org`, `jane at example dot org`, `jane @ example.org`, `jane@a[dot]io`."""
    sign = text[start:end] == "@"
    first = max(0, start - LOCAL_CHARS - 4)
    before, after = text[first:start], end
    opening, closing = BEFORE_BRACKET.search(before), AFTER_BRACKET.match(text, end)
    apart = text[start - 1 : start] == " " == text[end : end + 1]
    if opening and closing:
        before, after = before[: opening.start()], closing.end()
    elif apart:
        before, after = before[:-1], end + 1
    elif not sign:
        return None
    domain = SPELLED_DOMAIN.match(text, after, after + DOMAIN_CHARS)
    name = local.group().lstrip(".'-%+") if (local := LOCAL_PART.search(before)) else ""
    if not (domain and name):
        return None
    labels = re.split(r"\W+", domain.group().lower())
    if labels[-1] not in COMMON_ENDINGS or labels[0] in NOT_A_DOMAIN:
        return None
    # Where one of the two is plain, the other tells that this is an address in obfuscation.
    plain = sign and not (apart or opening), SPELLED_DOT.search(domain.group()) is None
    if all(plain) or (not sign and not opening and plain[1]):
        return None
    return first + len(before) - len(name), domain.end()


IPV4 = re.compile(r"(?<![0-9])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9])")
GROUP = r"[0-9A-Fa-f]{1,4}"
FULL_IPV6 = re.compile(rf"(?<![\w:.])(?:{GROUP}:){{7}}{GROUP}")
GOES_ON = re.compile(r"[\w:]")
DOUBLE_COLON = re.compile(r"(?<=[0-9A-Fa-f])::[0-9A-Fa-f:]{0,35}")
HEX_BEFORE = re.compile(r"[0-9A-Fa-f:]{1,30}\Z")
VERSION = re.compile(
    r"(?:\b(?:v|ver|version|release|rev|build|section|chapter|firmware|oid)\W{0,3}|[=<>~^]=\s?"
    r"|[A-Za-z]-)\Z",
    re.I,
)
VERSION_REACH = 12
# Hosts that are nobody's: the machine itself, any host, every host, and net masks.
NOBODY = frozenset(("127.0.0.1", "0.0.0.0", "255.255.255.255"))  # noqa: S104 (looked for)
MASK = "255."


def ip_addresses(text: str, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Valid IPv4 and IPv6 addresses, public and private; not loopback, wildcard or net masks.

    Four numbers after "version", "v", "release", "build", "section", "==" and the like, or joined
    to a word by "-", are a version. IPv6 needs all eight groups, or "::" with a digit and a first
    group in 2000::/3 or fc00::/6; slices and scope operators look like the rest.
    """
    for run in RUN.finditer(text, lo, hi):
        for match in IPV4.finditer(text, *run.span()):
            start, end = match.span()
            version = VERSION.search(text[max(0, start - VERSION_REACH) : start])
            if not version and is_alone(text, start, end) and _is_somebodys(match.group()):
                yield start, end
    for middle in DOUBLE_COLON.finditer(text, lo, hi):
        head = HEX_BEFORE.search(text[max(0, middle.start() - 30) : middle.start()])
        start, end = middle.start() - len(head.group() if head else ""), middle.end()
        if _is_routable(text[start:end]) and is_alone(text, start, end):
            yield start, end
    for match in FULL_IPV6.finditer(text, lo, hi):
        if not GOES_ON.match(text, match.end()):
            yield match.span()


def _is_somebodys(address: str) -> bool:
    return _is_valid(address) and address not in NOBODY and not address.startswith(MASK)


def _is_valid(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _is_routable(address: str) -> bool:
    if not _is_valid(address):
        return False
    first = int(ipaddress.IPv6Address(address)) >> 112
    return (0x2000 <= first < 0x4000 or first >= 0xFC00) and any(map(str.isdigit, address))
