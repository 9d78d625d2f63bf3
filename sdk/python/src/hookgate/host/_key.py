"""Keys of the storage."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Final

from hookgate.host._argument import check_text, wrong_type
from hookgate.host._errors import invalid

_MAX_KEY_BYTES: Final = 512
_MAX_TEXT_BYTES: Final = 256
_DIGEST_PREFIX: Final = "sha256:"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""What Unicode calls control characters."""
_KEY_RANGE: Final = "1 to 512 bytes, no control characters"


def key_part(text: str) -> str:
    """`text` as a part of a key, for names that come from an agent or a model.

    A text of at most 256 bytes without control characters stays as it is; any other becomes `sha256:` and its digest.
    Different texts stay different.

        key = f"failures/{key_part(call.tool_name)}"

    :raises TypeError: If it is no text.
    """
    check_text("text", text)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        # UTF-8 has no form for half of a surrogate pair, so such a text is digested as UTF-16, after a byte that UTF-8
        # doesn't have.
        data = b"\xff" + text.encode("utf-16-le", "surrogatepass")
    else:
        if len(data) <= _MAX_TEXT_BYTES and not _CONTROL.search(text) and not text.startswith(_DIGEST_PREFIX):
            return text
    return _DIGEST_PREFIX + hashlib.sha256(data).hexdigest()


def check_key(key: str, field: str = "key") -> str:
    """Checks a key before it is sent.

    :raises HostError: If the gateway would refuse it, or if it holds half of a surrogate pair, which UTF-8 can't have.
    :raises TypeError: If it is no text.
    """
    check_text(field, key)
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise invalid(field, "Unicode text without halves of surrogate pairs") from None
    if 1 <= size <= _MAX_KEY_BYTES and not _CONTROL.search(key):
        return key
    raise invalid(field, _KEY_RANGE)


def check_keys(keys: Sequence[str]) -> list[str]:
    """Checks the keys of one request.

    :raises HostError: If the gateway would refuse one, or their number.
    :raises TypeError: If they are no texts.
    """
    # A text is a sequence of texts, too.
    if not isinstance(keys, Collection) or isinstance(keys, str):
        raise wrong_type("keys", "a list of texts", keys)
    if not 1 <= len(keys) <= 32:
        raise invalid("keys", "1 to 32 keys")
    for index, key in enumerate(keys):
        check_text(f"keys[{index}]", key)
    return [check_key(key, "keys") for key in keys]


def check_bound(key: str, field: str) -> str:
    """Checks the `prefix` or the `after` of a list, which may be empty.

    :raises HostError: If the gateway would refuse it.
    :raises TypeError: If it is no text.
    """
    return key if key == "" else check_key(key, field)
