"""What a request may do: every combination of token, address and headers; and what a revoked token ends (C95)."""

from contextlib import AbstractContextManager
from functools import partial
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from countless.server.http.access.auth import EVERYTHING, NOTHING, Access, Grant, peer_of
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import digest, new_token
from countless.token_file import SCOPES

NOW = 2_000_000_000.0
FORWARDED = (
    *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "via", "x-real-ip", "x-client-ip"),
    *("x-cluster-client-ip", "true-client-ip", "cf-connecting-ip"),
)


def caller(address: str | None, http_version: str = "1.1", **headers: str) -> HTTPConnection:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    client = None if address is None else (address, 5000)
    return HTTPConnection({"type": "http", "http_version": http_version, "client": client, "headers": pairs})


def test_only_a_valid_token_or_an_open_coordinator_for_local_programs_allows_anything() -> None:
    store = SqliteStore(None)
    valid = {new_token(store, scope, scope, "web" if scope == "site" else None): scope for scope in SCOPES}
    expired, revoked = new_token(store, "operator", "expired"), new_token(store, "operator", "revoked")
    store.expire(digest(expired), int(NOW))
    assert store.revoke("revoked") == 1
    sent = {f"Bearer {token}": scope for token, scope in valid.items()} | {f"bearer  {t}": s for t, s in valid.items()}
    sent |= dict.fromkeys(("", "Bearer", "Bearer x", f"Bearer {expired}", f"Bearer {revoked}"), "")
    sent |= dict.fromkeys((*valid, f"Basic {next(iter(valid))}"), "")
    addresses = {
        "127.0.0.1": True,
        "::1": True,
        "127.9.9.9": True,
        "192.0.2.1": False,
        "testclient": False,
        None: False,
    }
    hosts = {"127.0.0.1:2686": True, "localhost": True, "[::1]:1": True, "evil.example": False, "127.0.0.1.x": False}
    others = {"": True, "origin": False, "sec-fetch-site": False} | dict.fromkeys(FORWARDED, False)
    for is_open in (False, True):
        access = Access(store, is_open, lambda: NOW)
        for authorization, address, host, other, version in product(sent, addresses, hosts, others, ("1.1", "1.0")):
            headers = {"host": host} | ({other: "x"} if other else {})
            headers |= {"authorization": authorization} if authorization else {}
            grant = access.authenticate(caller(address, version, **headers))
            local = addresses[address] and hosts[host] and others[other] and version == "1.1"
            if scope := sent[authorization]:
                assert grant[:2] == (frozenset({scope}), "web" if scope == "site" else None)
            else:
                allowed = EVERYTHING if is_open and local and not authorization else NOTHING
                assert grant == allowed, (authorization, address, headers)
    store.close()


def test_operator_learns_why_a_caller_is_refused_and_no_text_of_the_caller() -> None:
    store = SqliteStore(None)
    valid, expired = new_token(store, "read", "dashboards"), new_token(store, "site", "fleet")
    store.expire(digest(expired), int(NOW))
    access = Access(store, clock=lambda: NOW)
    reasons = {
        valid: "a token of scope read, which does not allow this",
        expired: "a token that has expired, with label fleet",
        "guess": "a token that is not known here",
    }
    for token, reason in reasons.items():
        assert access.why_refused(caller("192.0.2.1", authorization=f"Bearer {token}")) == reason
    assert access.why_refused(caller("192.0.2.1")) == "no token"
    store.close()


def test_one_token_is_one_peer_however_it_is_written() -> None:
    store = SqliteStore(None)
    access, token = Access(store), new_token(store, "site", "fleet")
    callers = [caller("192.0.2.1", authorization=f"{kind} {token}") for kind in ("Bearer", "bearer", "bEarer  ")]
    assert len({peer_of(each, access.authenticate(each)) for each in callers}) == 1
    store.close()


def test_operator_includes_the_other_scopes_and_they_include_none() -> None:
    allowed = {scope: [each for each in SCOPES if Grant(frozenset({scope})).allows(each)] for scope in SCOPES}
    assert allowed == {"site": ["site"], "read": ["read"], "operator": list(SCOPES)}


@given(st.lists(st.tuples(st.sampled_from(["make", "expire", "revoke", "wait"]), st.sampled_from("abc")), max_size=12))
def test_closed_coordinator_stays_closed_whatever_happens_to_tokens(steps: list[tuple[str, str]]) -> None:
    now, store = NOW, SqliteStore(None)
    access, ended, valid = Access(store, clock=lambda: now), set[str](), dict[str, str]()  # texts and labels
    held: list[AbstractContextManager[None]] = []
    for step, label in steps:
        if step == "make":
            text = new_token(store, "read", label)
            valid[text] = label
            grant = access.authenticate(caller("127.0.0.1", host="127.0.0.1", authorization=f"Bearer {text}"))
            held.append(access.hold(grant, partial(ended.add, text)))
            held[-1].__enter__()
        elif step == "wait":
            now += 10
        else:
            for text in [text for text, each in valid.items() if each == label]:
                store.expire(digest(text), int(now))
                del valid[text]
            if step == "revoke":
                store.revoke(label)
        before = set(ended)
        access.end_revoked()
        assert not ended & set(valid)
        assert len(before) <= len(ended)
        assert access.authenticate(caller("127.0.0.1", host="127.0.0.1")) == NOTHING
        for text in valid:
            asked = access.authenticate(caller("192.0.2.1", authorization=f"Bearer {text}"))
            assert asked.allows("read")
    made = sum(step == "make" for step, _ in steps)
    assert len(ended) + len(valid) == made  # each held connection has ended, unless its token is valid
    assert access.take_uses().keys() >= {digest(text) for text in valid}
    store.close()
