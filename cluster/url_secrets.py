"""Passwords in URLs: some sources lie behind one, and no record, log or page may show it.

Where a URL enters, in settings or on the command line, a mark takes the place of each; where it is
opened, they are put back. Between the two they are in a variable of this process and of its
workers, and nowhere else.
"""

import hmac
import json
import netrc
import os
import re
from urllib.parse import quote, urlsplit

from cluster.errors import BadInput
from cluster.keys import key_file

VARIABLE = "HEADRACE_URL_SECRETS"
_SECRETS = (
    re.compile(r"(://[^\s/?#:@\\\[\]]*:)([^\s/?#\\\[\]]+)(?=@)"),  # user:password@
    # The same with a character in it that belongs there as %2F only; behind a host is its port.
    re.compile(r"(://[^\s/?#:@\\\[\]]*:)(?!\d*[/?#])([^\s@]+)(?=@)"),
    re.compile(r"(\bhttps?://)([^\s/?#:@\\\[\]]+)(?=@)", re.I),  # token@, elsewhere a bucket's name
    re.compile(
        r"([?&](?:[\w.-]*[_.-])?(?:(?:api|access|account)?key|jwt|sas|token|secret|sig|signature|pass|"
        r"passwd|password|pwd|auth|authorization|credential)=)([^\s&#,\]\"']+)",
        re.I,
    ),
)
_MARK = re.compile(r"<hidden-[0-9a-f]{8}>")


def hidden(text: str) -> str:
    """A text as it may be written: a mark for each password, token and signature in its URLs."""
    if "://" in text:
        for secret in _SECRETS:
            text = secret.sub(lambda found: found[1] + _mark(found[2]), text)
    return text


def revealed(url: str) -> str:
    """A URL as it is opened: what was hidden is put back; one without a login has that of its host
    in `~/.netrc`, or the file that `NETRC` names.

    Raises BadInput for a mark of another process, as secrets are kept by none.
    """
    url = put_back(url)
    parts = urlsplit(url)
    if parts.scheme in ("http", "https") and "@" not in parts.netloc:
        user, _, word = _netrc(parts.hostname or "")
        login = f"{quote(user, '')}:{quote(word or '', '')}@" if user else ""
        url = parts._replace(netloc=login + parts.netloc).geturl() if login else url
    return url


def put_back(url: str) -> str:
    """A URL with what was hidden in it. Raises BadInput for a mark of another process."""
    secrets = known()
    for mark in _MARK.findall(url):
        if mark not in secrets:
            raise BadInput(
                f"{url}: what {mark} stands for is not kept; write the URL anew with it, or "
                "without a login where ~/.netrc has the login of its host"
            )
        url = url.replace(mark, secrets[mark])
    return url


def known() -> dict[str, str]:
    """What this process knows marks to stand for, to be handed to another and nowhere else."""
    found: dict[str, str] = json.loads(os.environ.get(VARIABLE, "{}"))
    return found


def learn(secrets: dict[str, str]) -> None:
    """Know in this process, and those that it starts, what marks stand for."""
    if secrets:
        os.environ[VARIABLE] = json.dumps(known() | secrets)


def check_kept(text: str) -> None:
    """Raise BadInput where a later process would lack what a mark in a text stands for."""
    if mark := _MARK.search(text):
        raise BadInput(
            f"{mark[0]} stands for a password or token in a URL, which no schedule keeps: leave it "
            "out there, and put the login of the host into ~/.netrc of the worker"
        )


def _mark(secret: str) -> str:
    """What stands for a secret: the same in all runs of a home, and nothing to guess it by."""
    if _MARK.fullmatch(secret):
        return secret
    key = key_file("service_key").read_bytes()
    mark = f"<hidden-{hmac.new(key, f'in a URL: {secret}'.encode(), 'sha256').hexdigest()[:8]}>"
    learn({mark: secret})
    return mark


def _netrc(host: str) -> tuple[str, str, str | None]:
    try:
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except FileNotFoundError:
        found = None
    except (OSError, ValueError, netrc.NetrcParseError) as error:
        raise BadInput(f"your logins cannot be read: {error}") from error
    return (found[0], found[1] or "", found[2]) if found else ("", "", None)
