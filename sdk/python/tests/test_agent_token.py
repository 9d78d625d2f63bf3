"""Sources of tokens."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from support.agents import Kind, make_agent
from support.fake_gateway import Failure, FakeGateway

from hookgate.agent import Agent, CallContext, NoDecision, hs256_signer, sync, token_file

SECRET = "0123456789abcdef0123456789abcdef"


def decoded(part: str) -> dict[str, object]:
    members: dict[str, object] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return members


def claims(token: str) -> dict[str, object]:
    return decoded(token.split(".")[1])


def signer(**options: object) -> Callable[[CallContext], str]:
    options = {"secret": SECRET, "issuer": "iss", "audience": "aud", "operator": "bot", **options}
    return hs256_signer(**options)  # type: ignore[arg-type]


def test_a_signed_token_says_who_and_for_how_long() -> None:
    token = signer(tenant="acme", ttl=120, key_id="k1")({})
    signed, _, signature = token.rpartition(".")
    assert decoded(token.split(".")[0]) == {"typ": "JWT", "alg": "HS256", "kid": "k1"}
    members = claims(token)
    issued_at = members.pop("iat")
    assert isinstance(issued_at, int)
    assert abs(issued_at - time.time()) < 60
    who = {"iss": "iss", "aud": "aud", "sub": "bot", "tenant_id": "acme"}
    assert members == {**who, "scope": "hookgate:invoke", "exp": issued_at + 120}
    expected = hmac.digest(SECRET.encode(), signed.encode(), hashlib.sha256)
    assert signature == base64.urlsafe_b64encode(expected).rstrip(b"=").decode()
    assert "kid" not in decoded(signer(tenant="acme")({}).split(".")[0])


def test_a_signer_keeps_each_tenants_token_until_a_fifth_of_its_life_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "time", lambda: now)
    sign = signer(tenant="initech")
    acme = sign({"tenant": "acme"})
    assert [claims(token)["tenant_id"] for token in (acme, sign({"tenant": "globex"}), sign({}))] == [
        "acme",
        "globex",
        "initech",
    ]
    now = 1047.9
    assert sign({"tenant": "acme"}) == acme
    now = 1048.0
    assert sign({"tenant": "acme"}) != acme
    for number in range(3000):
        assert claims(sign({"tenant": str(number)}))["tenant_id"] == str(number)


def test_a_signer_refuses_what_cant_be_right_and_calls_without_a_tenant() -> None:
    cases: list[tuple[str, dict[str, object]]] = [
        ("the secret has 31 bytes; HS256 wants at least 32", {"secret": SECRET[1:]}),
        ("secret must be a str or bytes", {"secret": None}),
        ("ttl must be a whole number of seconds", {"ttl": 0.5}),
        ("ttl must be a whole number of seconds", {"ttl": 0}),
        ("tenant is empty", {"tenant": ""}),
        ("issuer must be a str", {"issuer": None}),
    ]
    for message, options in cases:
        with pytest.raises((TypeError, ValueError), match=message):
            signer(**options)
    with pytest.raises(ValueError, match="no tenant"):
        signer()({})


def test_a_token_that_a_header_cant_carry_is_refused_and_not_shown() -> None:
    for make in (Agent, sync.Agent):
        for token in ("CANARY\n", "", "CANARY CANARY", "CANARY\u00e4", 1, b"CANARY"):
            with pytest.raises(TypeError, match="visible ASCII") as raised:
                make("http://127.0.0.1:1", token=token)  # type: ignore[arg-type]
            assert "CANARY" not in str(raised.value)
        assert "CANARY" not in repr(make("http://127.0.0.1:1", token="CANARY"))


async def test_no_error_shows_the_token(agent_kind: Kind, fake_gateway: FakeGateway, tmp_path: Path) -> None:
    failures = [
        Failure(grpc.StatusCode.UNAUTHENTICATED, "bad", "TOKEN_INVALID"),
        Failure(grpc.StatusCode.UNAUTHENTICATED, "log in"),
        Failure(grpc.StatusCode.UNAVAILABLE, "down"),
    ]
    file = tmp_path / "token"
    file.write_bytes(b"CANARY\xff")
    for token in ("CANARY", lambda _: "CANARY CANARY", token_file(file)):
        async with make_agent(agent_kind, fake_gateway.url, token=token) as agent:
            for failure in failures:
                fake_gateway.reply(failure)
                with pytest.raises(NoDecision) as raised:
                    await agent.before_response(content="c")
                error: BaseException | None = raised.value
                while error is not None:
                    assert "CANARY" not in f"{error} {error!r} {vars(error)}"
                    error = error.__cause__


async def test_a_token_file_is_fresh_when_it_changes(
    agent_kind: Kind, fake_gateway: FakeGateway, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    async with make_agent(agent_kind, fake_gateway.url, token=token_file(file)) as agent:
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            await agent.before_response(content="c")
        assert [call.headers["authorization"] for call in fake_gateway.calls] == ["Bearer first", "Bearer second"]
        file.write_text("\n")
        with pytest.raises(NoDecision, match=r"the token file .* is empty") as raised:
            await agent.before_response(content="c")
        assert raised.value.kind == "token"
        file.unlink()
        with pytest.raises(NoDecision, match="No such file"):
            await agent.before_response(content="c")


async def test_a_token_source_that_fails_or_gives_no_token_is_no_decision_and_nothing_is_sent(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    failure = ConnectionError("no connection to the issuer")

    def fail(_: CallContext) -> str:
        raise failure

    async def fail_later(_: CallContext) -> str:
        await asyncio.sleep(0)
        raise failure

    async def cancelled(_: CallContext) -> str:
        raise asyncio.CancelledError

    sources: list[tuple[str, object]] = [
        ("the token source failed: no connection to the issuer", fail),
        ("must be a str of visible ASCII characters", lambda _: "a\nb"),
        ("must be a str of visible ASCII characters", lambda _: None),
        ("the token has 8193 characters; at most 8192 are allowed", lambda _: "t" * 8193),
    ]
    if agent_kind == "async":
        sources += [
            ("the token source failed: no connection to the issuer", fail_later),
            ("the token source failed: it was cancelled", cancelled),
        ]
    for message, source in sources:
        async with make_agent(agent_kind, fake_gateway.url, token=source) as agent:
            with pytest.raises(NoDecision, match=message) as raised:
                await agent.before_response(content="c")
            assert raised.value.kind == "token"
    async with make_agent(agent_kind, fake_gateway.url, token=fail, on_no_decision="go_on") as agent:
        with pytest.raises(NoDecision) as raised:
            await agent.before_response(content="c")
        assert raised.value.__cause__ is failure
    assert fake_gateway.calls == []


async def test_a_token_source_gets_a_copy_of_the_context(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    def token(context: CallContext) -> str:
        tenant = context["tenant"]
        context["tenant"] = "other"
        return tenant

    of_agent: CallContext = {"tenant": "acme"}
    async with make_agent(agent_kind, fake_gateway.url, token=token, context=of_agent) as agent:
        await agent.before_response(content="c")
        await agent.before_response(content="c")
    assert [call.headers["authorization"] for call in fake_gateway.calls] == ["Bearer acme"] * 2


async def test_a_token_source_that_hangs_is_a_timeout_and_can_be_cancelled(fake_gateway: FakeGateway) -> None:
    cancelled = asyncio.Event()

    async def hang(_: CallContext) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.sleep(0)
            raise
        return ""

    async with make_agent("async", fake_gateway.url, token=hang) as agent:
        with pytest.raises(NoDecision) as raised:
            await agent.before_response(content="c", timeout=0.05)
        assert raised.value.kind == "timeout"
        await asyncio.wait_for(cancelled.wait(), 10)
        cancelled.clear()
        call = asyncio.ensure_future(agent.before_response(content="c"))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(cancelled.wait(), 10)
    assert fake_gateway.calls == []


async def test_a_token_that_comes_late_is_a_timeout(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    def slow(_: CallContext) -> str:
        time.sleep(0.1)
        return "token"

    async with make_agent(agent_kind, fake_gateway.url, token=slow) as agent:
        with pytest.raises(NoDecision) as raised:
            await agent.before_response(content="c", timeout=0.05)
    assert raised.value.kind == "timeout"
    assert fake_gateway.calls == []


def test_a_blocking_agent_refuses_a_token_source_that_is_async(fake_gateway: FakeGateway) -> None:
    async def token(_: CallContext) -> str:
        return "token"

    class Source:
        async def __call__(self, _: CallContext) -> str:
            return "token"

    for source in (token, Source()):
        with pytest.raises(TypeError, match="the token source is async"):
            sync.Agent(fake_gateway.url, token=source)  # type: ignore[arg-type]
    with (
        sync.Agent(fake_gateway.url, token=lambda context: token(context), on_no_decision="go_on") as agent,  # type: ignore[arg-type]
        pytest.raises(TypeError, match="the token source is async"),
    ):
        agent.before_response(content="c")
    assert fake_gateway.calls == []


async def test_a_token_that_calls_share_isnt_cancelled_by_the_end_of_one_of_them(fake_gateway: FakeGateway) -> None:
    shared: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with Agent(fake_gateway.url, token=lambda _: shared) as agent:
        with pytest.raises(NoDecision) as raised:
            await agent.before_response(content="c", timeout=0.05)
        assert raised.value.kind == "timeout"
        shared.set_result("t")
        await agent.before_response(content="c")


def test_secrets_of_agents_and_signers_arent_pickled() -> None:
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(Agent("http://127.0.0.1:1", token="t"))
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(hs256_signer(secret="s" * 32, issuer="me", audience="hookgate", operator="bot"))
