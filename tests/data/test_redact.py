import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cluster.errors import BadInput
from cluster.settings import contents
from cluster.stage import build, specify
from tasks.data.privacy.accounts import luhn, mod97
from tasks.data.privacy.pii import find, mask
from tasks.data.privacy.settings import KEY_VARIABLE, RedactSettings
from tasks.data.privacy.spans import KINDS
from tasks.data.privacy.stage import redact
from tasks.data.text import read_table

AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
MASKED = {
    # e-mail
    "mail jane.doe@example.org or o'neil+x@a-b.co.uk now": "mail <EMAIL> or <EMAIL> now",
    "<mailto:Jane_Doe99@mail.example.museum>.": "<mailto:<EMAIL>>.",
    "jürgen@müller.de": "<EMAIL>",
    "ivan@xn--e1afmkfd.xn--p1ai, JANE@EXAMPLE.ORG": "<EMAIL>, <EMAIL>",
    "jane@example.org": "<EMAIL>",
    "jane\u200b@exam\u200bple.org!": "<EMAIL>!",
    "a @ b, @decorator.name, x@y, matrix@vector[0].T": None,
    "jane(at)example.org, jane &#64; example.org": "<EMAIL>, <EMAIL>",
    # IP
    "from 192.168.7.31 to 8.8.8.8:53 and 10.0.0.0/8.": "from <IP> to <IP>:53 and <IP>/8.",
    "10.0.0.1-10.0.0.9": "<IP>-<IP>",
    "127.0.0.1, 0.0.0.0, 255.255.255.0 are nobody's": None,
    "at 2001:db8::1, fe80::1ff:fe23:4567:890a%eth0": "at <IP>, <IP>%eth0",
    "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:443": "[<IP>]:443",
    "::ffff:192.0.2.128": "::ffff:<IP>",
    "version 1.2.3.4, v1.2.3.4, numpy==1.2.3.4, lib-1.2.3.4, release: 10.1.2.3": None,
    "1.2.3.4.5, 1.2.3, 256.1.1.1, 1.2.3.04, 3.14159": None,
    "x[1::2], std::cout, a::b, 12:30:45, 00:1b:44:11:3a:b7, dead::beef, ::": None,
    # phone
    "call +1 (202) 555-0143 or +44 20 7946 0958": "call <PHONE> or <PHONE>",
    "(202) 555-0143, 202-555-0143 and 202.555.0143": "<PHONE>, <PHONE> and <PHONE>",
    "Tel.: 030 1234567": "Tel.: <PHONE>",
    "+491701234567": "<PHONE>",
    "2024-05-01 12:30:45, 1234567890, 555-0143, 0.1234567890, 1+23456789012345678": None,
    "00 01 02 03 04 05 06 07": None,
    "stop messages to 699 956 915": "stop messages to <PHONE>",
    "930.167.3943 fax, 416 60 039 office": "<PHONE> fax, <PHONE> office",
    "0688 872 49 99 at night": "<PHONE> at night",
    "Телефон: 81655122150, 8 (816) 781-0586": "Телефон: <PHONE>, <PHONE>",
    "text 00420 603 212 402, (0141) 496 0654": "text <PHONE>, <PHONE>",
    "699 956 915 is my cell, mój numer to 786168188": "<PHONE> is my cell, mój numer to <PHONE>",
    "invoice 0171-2345-6789, arXiv:0704.00123, at 17031 2202 Main Street": None,
    "on Fri, 05/11/2012 - 00:33, T03:05:07.123457-05:00, call(12345678)": None,
    # card
    "card 4111 1111 1111 1111 and 378282246310005": "card <CARD> and <CARD>",
    "4111-1111-1111-1111": "<CARD>",
    "EAN 4881831651236 is an article": None,
    "4111 1111 1111 1112 and 0.4111111111111111": None,
    # IBAN
    "IBAN GB29 NWBK 6016 1331 9268 19 TODAY": "IBAN <IBAN> TODAY",
    "DE89370400440532013000, de89370400440532013000": "<IBAN>, <IBAN>",
    "DE89370400440532013001, XX89370400440532013000": None,
    "pay 4111 1111 1111 1111 12/27 123": "pay <CARD> 12/27 123",
    "5749986484189612790. My card: 060426070011": "5749986484189612790. My card: <CARD>",
    # national numbers
    "SSN 078-05-1121, DNI 12345678Z": "SSN <NATIONAL_ID>, DNI <NATIONAL_ID>",
    "DNI 12345678A, 000-12-3456, 111.111.111-11": None,
    # secrets
    "postgres://admin:hunter2@db.example.com/x": "postgres://<SECRET>@db.example.com/x",
    "http://user:${PASSWORD}@host, http://%s:%s@host, a://b/c:d@e": None,
    f"key={AWS}": "key=<SECRET>",
    f"git clone https://{GITHUB}:x@host": "git clone https://<SECRET>@host",
    'password = "hG7!kd93_Lq0zPw2"': 'password = "<SECRET>"',
    "api_key: 9f8e7d6c5b4a39281706f5e4d3c2b1a0": "api_key: <SECRET>",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nend": (
        "<SECRET>\nend"
    ),
    "token = tokenizer.get_next_token(stream)": None,
    'password = "aaaaaaaaaaaaaaaaaaaaaa"': None,
    "PRIVATE KEY----- but no begin": None,
}


@pytest.mark.parametrize("text", MASKED, ids=lambda t: t[:40])
def test_what_is_found_and_what_is_not(text):
    assert mask(text) == (text if MASKED[text] is None else MASKED[text])


def test_only_the_wanted_kinds_are_found():
    text = f"jane@example.org 8.8.8.8 {AWS}"
    assert [span.kind for span in find(text, ["ip"])] == ["ip"]
    assert find(text, []) == []


def test_check_digits():
    assert luhn("4111111111111111")
    assert not luhn("4111111111111112")
    assert not luhn("0000000000000000")
    assert mod97("GB29NWBK60161331926819")
    assert not mod97("GB29NWBK60161331926818")


@given(st.text(st.sampled_from("a1.:@+-( )/=_\"'\u200bＡ\n"), max_size=80))
def test_spans_are_ordered_disjoint_and_masking_once_is_enough(text):
    spans = find(text)
    assert all(a.end <= b.start for a, b in itertools.pairwise(spans))
    assert all(0 <= s.start < s.end <= len(text) for s in spans)
    assert all(s.kind in KINDS for s in spans)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000 + "!",
        "a." * 100_000,
        "a@" * 40_000,
        "1 " * 100_000,
        "1." * 100_000,
        "a:" * 60_000,
        "::" * 60_000,
        "12" * 100_000,
        "token" * 40_000,
        "secret=" * 20_000,
        "eyJ" * 4_000,
        "-----BEGIN PRIVATE KEY-----" * 2_000,
        "jane@example.org " * 4_000,
    ],
    ids=lambda t: t[:12],
)
def test_no_text_takes_more_than_linear_time(text):
    find(text)


def test_rows_stay_and_counts_are_kept(store, text_artifact):
    texts = ["nothing here", "jane@example.org, joe@example.org", "host 8.8.8.8", "also nothing"]
    out = build(redact, store, text=text_artifact(texts), settings=RedactSettings())
    assert read_table(out)["text"].to_pylist() == [
        "nothing here",
        "<EMAIL>, <EMAIL>",
        "host <IP>",
        "also nothing",
    ]
    ledger = out.manifest.ledger
    assert (ledger.rows_in, ledger.rows_out, ledger.rejects) == (4, 4, {})
    assert out.manifest.facts["counts"] == {
        "card": 0,
        "email": 2,
        "iban": 0,
        "ip": 1,
        "national_id": 0,
        "phone": 0,
        "secret": 0,
    }
    assert out.manifest.metrics["documents_changed"] == 2


def test_replace_puts_a_fixed_value(store, text_artifact):
    settings = RedactSettings(how="replace", kinds=("email", "ip"))
    out = build(
        redact, store, text=text_artifact(["a@b.org 8.8.8.8 +491701234567"]), settings=settings
    )
    assert read_table(out)["text"].to_pylist() == ["email@example.com 192.0.2.1 +491701234567"]


def test_pseudonyms_are_consistent_and_keyed(store, text_artifact, monkeypatch):
    settings, text = (
        RedactSettings(how="pseudonymise"),
        text_artifact(["jane@x.org wrote to JANE@x.org and joe@x.org"]),
    )

    def run(key):
        monkeypatch.setenv(KEY_VARIABLE, key)
        (line,) = read_table(build(redact, store, text=text, settings=settings))["text"].to_pylist()
        return line.replace(" wrote to ", " ").replace(" and ", " ").split()

    one, two = run("k" * 16), run("q" * 16)
    assert one[0] == one[1] != one[2]
    assert one[0].startswith("<EMAIL:")
    assert not set(one) & set(two)
    manifest = specify(
        redact, "r", {"text": "f"}, {"settings": settings}, found=contents(settings)
    ).settings
    assert "qqqq" not in str(manifest)


def test_pseudonyms_need_a_key(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(BadInput, match=r"\$HEADRACE_REDACT_KEY has 5 characters; it needs 16"):
        contents(RedactSettings(how="pseudonymise"))


def test_all_spellings_of_a_value_have_one_pseudonym(store, text_artifact, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "k" * 16)
    spellings = [
        "jane@example.org",
        "JANE@Example.org",
        "jane [at] example.org",
        "jane&#64;example.org",
    ]
    spellings += ["jane@example\u3002org", "ja\u200bne@example.org", "jane at example dot org"]
    settings = RedactSettings(how="pseudonymise", kinds=("email",))
    out = build(redact, store, text=text_artifact(spellings), settings=settings)
    assert len(set(read_table(out)["text"].to_pylist())) == 1
    numbers = ["+1 (202) 555-0143", "+1-202-555-0143"]
    settings = RedactSettings(how="pseudonymise", kinds=("phone",))
    out = build(redact, store, text=text_artifact(numbers, "n.jsonl"), settings=settings)
    assert len(set(read_table(out)["text"].to_pylist())) == 1


def test_names_need_a_model(store, text_artifact):
    with pytest.raises(BadInput, match=r"needs a model: set redact\.names\.model"):
        build(redact, store, text=text_artifact(["a"]), settings=RedactSettings(kinds=("name",)))


def test_quality_is_measured_on_our_sentences_and_the_users(store, text_artifact, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"text": "x jane@example.org", "spans": [{"start": 2, "end": 18, "kind": "email"}]}\n'
    )
    rows = []
    for labelled in (None, path):
        settings = RedactSettings(kinds=("email",), labelled=labelled)
        out = build(redact, store, text=text_artifact(["a@b.org"]), settings=settings)
        (row,) = out.manifest.facts["quality"]
        rows.append(row)
    assert rows[1]["instances"] == rows[0]["instances"] + 1
    assert rows[1]["right"] == rows[0]["right"] + 1
    settings = RedactSettings(labelled=path)
    before = settings.identity(contents(settings))
    path.write_text("")
    assert settings.identity(contents(settings)) != before


def test_an_unknown_region_is_refused():
    with pytest.raises(ValidationError, match="unknown region 'XX'"):
        RedactSettings(regions=("XX",))


def test_an_unknown_kind_is_refused():
    with pytest.raises(
        ValidationError, match="'email', 'ip', 'phone', 'card', 'iban', 'national_id', 'secret'"
    ):
        RedactSettings(kinds=("mail",))
