"""Secrets: private keys, tokens of providers, passwords in URLs and values of telling names."""

import math
import re
from collections import Counter
from collections.abc import Iterator

# Known forms: the first three characters, then the whole. Sources: the providers' documentation
# and their secret-scanning pages.
TOKENS = {
    "AKI": r"AKIA[A-Z0-9]{16}",  # AWS access key ids
    "ASI": r"ASIA[A-Z0-9]{16}",
    "ghp": r"ghp_[A-Za-z0-9]{36,255}",  # GitHub
    "gho": r"gho_[A-Za-z0-9]{36,255}",
    "ghu": r"ghu_[A-Za-z0-9]{36,255}",
    "ghs": r"ghs_[A-Za-z0-9]{36,255}",
    "ghr": r"ghr_[A-Za-z0-9]{36,255}",
    "git": r"github_pat_\w{60,255}",
    "glp": r"glpat-[\w-]{20,64}",  # GitLab
    "glr": r"glrt-[\w-]{20,64}",
    "xox": r"xox[abeoprs]-[A-Za-z0-9-]{10,255}",  # Slack
    "xap": r"xapp-[0-9]-[A-Za-z0-9-]{20,255}",
    "AIz": r"AIza[\w-]{35}",  # Google
    "ya2": r"ya29\.[\w-]{20,255}",
    "GOC": r"GOCSPX-[\w-]{28}",
    "sk_": r"sk_(?:live|test)_[A-Za-z0-9]{16,255}",  # Stripe
    "rk_": r"rk_(?:live|test)_[A-Za-z0-9]{16,255}",
    "pk_": r"pk_live_[A-Za-z0-9]{16,255}",
    "whs": r"whsec_[A-Za-z0-9+/=]{24,255}",
    "sk-": r"sk-[\w-]{32,255}",  # OpenAI, Anthropic, OpenRouter
    "gsk": r"gsk_[A-Za-z0-9]{40,255}",  # Groq
    "hf_": r"hf_[A-Za-z0-9]{30,255}",  # Hugging Face
    "npm": r"npm_[A-Za-z0-9]{36}",
    "pyp": r"pypi-[\w-]{50,255}",
    "dop": r"dop_v1_[a-f0-9]{64}",  # DigitalOcean
    "doo": r"doo_v1_[a-f0-9]{64}",
    "dor": r"dor_v1_[a-f0-9]{64}",
    "shp": r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",  # Shopify
    "SG.": r"SG\.[\w-]{16,32}\.[\w-]{32,64}",  # SendGrid
    "key": r"key-[a-f0-9]{32}",  # Mailgun
    "EAA": r"EAA[A-Za-z0-9]{80,255}",  # Facebook
    "sq0": r"sq0[a-z]{3}-[\w-]{22,50}",  # Square
    "dap": r"dapi[a-f0-9]{32}",  # Databricks
    "NRA": r"NRAK-[A-Z0-9]{27}",  # New Relic
    "lin": r"lin_api_[A-Za-z0-9]{32,64}",  # Linear
    "eyJ": r"eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,2000}",  # JSON web token
}
PREFIXES = tuple(TOKENS)
# No real token goes this far without a digit.
DIGIT, DIGIT_REACH = re.compile("[0-9]"), 48
TOKEN = re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(TOKENS.values())})")
TOKEN_PLACE = re.compile(
    rf"(?<![A-Za-z0-9_])(?:{'|'.join(map(re.escape, PREFIXES))}|(?:Bearer|BEARER|Basic|BASIC) )"
)
PEM_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
PEM_CHARS = 16384
BEARER = re.compile(r"(?:Bearer|BEARER|Basic|BASIC) ([A-Za-z0-9+/=_.~-]{20,512})")

ASSIGNMENT = re.compile("[:=](?![:=])")
URL_LOGIN = re.compile(
    r"://([^\s/?#@:\"'<>{}$%\[\]]{0,64}:(?!%[sd(])[^\s/?#@\"'<>{}$\[\]]{1,128})@(?=[\w\[])"
)

# Value of a telling name: `api_key = "..."`, `password: ...`, `"access_token": "..."`.
NAMES = ("secret", "token", "passw", "pwd", "api", "access", "private", "credential", "auth")
NAME_CHARS = 40
TELLING = re.compile(
    r"(?:secret|token|passw(?:or)?d|pwd|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key"
    r"|credential)\w{0,20}[\"']?\s{0,4}[:=]{0,2}\Z",
    re.I,
)
PASSWORD = re.compile(r"(?:passw(?:or)?d|pwd)[\"']?\s{0,4}[:=]{0,2}\Z", re.I)
VALUE = re.compile(r"[:=]>?\s{0,4}([\"']?)([A-Za-z0-9+/=_.!@#$%^&*~-]{8,256}+)(?![\w(\[{])")
LONG_VALUE = 16
MIN_ENTROPY = 3.5
CLASSES = [re.compile(kind) for kind in ("[a-z]", "[A-Z]", "[0-9]", "[^A-Za-z0-9]")]


def private_keys(text: str, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """PEM blocks of private keys that begin at `lo` to `hi`."""
    for begin in PEM_BEGIN.finditer(text, lo, hi):
        if end := PEM_END.search(text, begin.end(), begin.end() + PEM_CHARS):
            yield begin.start(), end.end()


def secrets(text: str, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Tokens of known form that begin, and URLs with `user:password` and random-looking values of
    telling names whose ":" or "=" stands, at `lo` to `hi`.
    """
    for place in TOKEN_PLACE.finditer(text, lo, hi):
        if (match := TOKEN.match(text, place.start())) and DIGIT.search(
            match.group()[:DIGIT_REACH]
        ):
            yield match.span()
        elif (match := BEARER.match(text, place.start())) and _looks_random(match.group(1)):
            yield match.span(1)
    for mark in ASSIGNMENT.finditer(text, lo, hi):
        if login := URL_LOGIN.match(text, mark.start()):
            yield login.span(1)
        elif match := VALUE.match(text, mark.start()):
            before = text[max(0, mark.start() - NAME_CHARS) : mark.start()]
            if TELLING.search(before) and _is_secret(before, *match.groups()):
                yield match.span(2)


def _is_secret(before: str, quote: str, value: str) -> bool:
    if len(value) >= LONG_VALUE:
        return _looks_random(value)
    return (
        bool(quote and PASSWORD.search(before)) and sum(bool(c.search(value)) for c in CLASSES) >= 3
    )


def _looks_random(value: str) -> bool:
    """Letters and digits mixed, and at least 3.5 bits of entropy per character."""
    if not (any(c.isdigit() for c in value) and any(c.isalpha() for c in value)):
        return False
    shares = [n / len(value) for n in Counter(value).values()]
    return -sum(p * math.log2(p) for p in shares) >= MIN_ENTROPY
