"""Sources of bearer tokens: a file, or short-lived tokens that are signed here."""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from hookgate.agent._context import CallContext, is_visible_ascii

if TYPE_CHECKING:
    import os

_MIN_SECRET_BYTES: Final = 32
"""The minimum length of an HS256 secret (RFC 7518, section 3.2; docs/protocol.md, section 5)."""

_MAX_TOKEN_LENGTH: Final = 8192
"""The gateway's limit for a token."""

_MAX_KEPT_TOKENS: Final = 1024
"""Tokens that are kept. More tenants than this at a time only cost signatures."""


def token_file(path: str | os.PathLike[str]) -> Callable[[CallContext], str]:
    """The token in a file, such as a projected service account token.

    The file is read for each call, so a new token counts at once. White space around the token is ignored.
    """
    file = Path(path)

    def read(_: CallContext) -> str:
        try:
            token = file.read_text("utf-8").strip()
        except UnicodeDecodeError:
            # The error itself holds what was read.
            raise ValueError(f"the token file {file} isn't UTF-8") from None
        if not token:
            raise ValueError(f"the token file {file} is empty")
        return token

    return read


def hs256_signer(
    *,
    secret: str | bytes,
    issuer: str,
    audience: str,
    operator: str,
    tenant: str | None = None,
    ttl: int = 60,
    key_id: str | None = None,
) -> Callable[[CallContext], str]:
    """Signs tokens with HS256 for the tenant of the call's context.

    They have the scope `hookgate:invoke`, and are used until a fifth of their life is left.

    :param secret: At least 32 bytes.
    :param issuer: `iss`: an issuer that the gateway is configured with.
    :param audience: `aud`: the gateway's audience.
    :param operator: `sub`: who acts for the tenant.
    :param tenant: `tenant_id`: the tenant of calls whose context names none.
    :param ttl: How long a token is valid, in whole seconds, at least 1. Keep it short: a token can't be revoked.
    :param key_id: `kid`: names the key, if the gateway knows several.
    :raises TypeError: An argument has another type.
    :raises ValueError: The secret has fewer than 32 bytes, the time to live is less than 1 s, or the tenant is empty.
    """
    texts = {"issuer": issuer, "audience": audience, "operator": operator, "tenant": tenant, "key_id": key_id}
    for name, text in texts.items():
        if not isinstance(text, str) and not (text is None and name in ("tenant", "key_id")):
            raise TypeError(f"{name} must be a str, is of the type {type(text).__name__}")
    if tenant == "":
        raise ValueError("tenant is empty: leave it out, or name the tenant")
    if isinstance(ttl, bool) or not isinstance(ttl, int) or ttl < 1:
        raise ValueError(f"ttl must be a whole number of seconds from 1, is {ttl!r}")
    header = {"typ": "JWT", "alg": "HS256"} if key_id is None else {"typ": "JWT", "alg": "HS256", "kid": key_id}
    claims = {"iss": issuer, "aud": audience, "sub": operator, "scope": "hookgate:invoke"}
    return _Signer(_key(secret), header, claims, tenant, ttl).token


def _key(secret: object) -> bytes:
    if not isinstance(secret, (str, bytes)):
        raise TypeError(f"secret must be a str or bytes, is of the type {type(secret).__name__}")
    key = secret.encode() if isinstance(secret, str) else secret
    if len(key) < _MIN_SECRET_BYTES:
        raise ValueError(f"the secret has {len(key)} bytes; HS256 wants at least {_MIN_SECRET_BYTES}")
    return key


class _Signer:
    """Signs and keeps one token per tenant. Threads may share it: at worst, two of them sign the same token."""

    def __init__(
        self, key: bytes, header: dict[str, str], claims: dict[str, str], tenant: str | None, ttl: int
    ) -> None:
        self._key = key
        self._header = _base64url(json.dumps(header).encode())
        self._claims = claims
        self._tenant = tenant
        self._ttl = ttl
        self._kept: dict[str, tuple[str, float]] = {}

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signer can't be pickled, because it has the secret: make one in each process")

    def token(self, context: CallContext) -> str:
        tenant = context.get("tenant", self._tenant)
        if tenant is None:
            raise ValueError("no tenant: name it in `call_context`, in the call's context, or for the signer")
        now = time.monotonic()
        token, renew_at = self._kept.get(tenant, ("", now))
        if now < renew_at:
            return token
        token = self._sign(tenant)
        self._kept.pop(tenant, None)
        if len(self._kept) >= _MAX_KEPT_TOKENS:
            self._kept.pop(next(iter(self._kept.copy())), None)
        self._kept[tenant] = (token, now + self._ttl * 0.8)
        return token

    def _sign(self, tenant: str) -> str:
        now = int(time.time())
        claims = {**self._claims, "tenant_id": tenant, "iat": now, "exp": now + self._ttl}
        signed = f"{self._header}.{_base64url(json.dumps(claims).encode())}"
        return f"{signed}.{_base64url(hmac.digest(self._key, signed.encode(), hashlib.sha256))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def authorization(token: object) -> str:
    """The header of a token.

    :raises TypeError: It isn't a str that a header can carry. The message doesn't contain it.
    :raises ValueError: It is too long. A gateway would end the connection, which other calls share.
    """
    if not (isinstance(token, str) and is_visible_ascii(token)):
        raise TypeError("the token must be a str of visible ASCII characters")
    if len(token) > _MAX_TOKEN_LENGTH:
        raise ValueError(f"the token has {len(token)} characters; at most {_MAX_TOKEN_LENGTH} are allowed")
    return f"Bearer {token}"


def check_token(source: object, *, may_await: bool) -> None:
    """:raises TypeError: It is no source of tokens.
    :raises ValueError: It is a token that is too long.
    """
    if source is None:
        return
    if not callable(source):
        authorization(source)
    elif not may_await and (inspect.iscoroutinefunction(source) or inspect.iscoroutinefunction(source.__call__)):
        raise TypeError("the token source is async: the blocking agent needs one that isn't")
