"""Masks e-mail addresses and card numbers in tools' results and in answers.

Neither the model nor the user sees them. It masks values, not the names of members. A tenant may choose the kinds.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from hookgate import (
    AfterToolResult,
    BeforeResponse,
    BeforeResponsePatch,
    Context,
    JsonValue,
    Notice,
    Plugin,
    ResponseReply,
    ToolResultReply,
    proceed,
)
from pydantic import BaseModel, Field

Kind = Literal["email", "card"]

PATTERNS: dict[Kind, re.Pattern[str]] = {
    # Begins where an address can begin, so that a long text without one takes linear time.
    "email": re.compile(r"(?<![\w.%+-])[\w.%+-]+@[\w-]+(?:\.[\w-]+)+"),
    # Digits, also in groups. A number of a card may be a part of them.
    "card": re.compile(r"\d(?:[\s.-]{0,2}\d){12,}"),
}
CARD_DIGITS = range(13, 20)


class TenantConfig(BaseModel, extra="forbid"):
    kinds: list[Kind] = Field(default=["email", "card"], description="What is masked.")


plugin = Plugin("redaction", version="1.0.0", tenant_config=TenantConfig)


@plugin.after_tool_result(access="modify", side_effects="none")
async def redact_result(call: AfterToolResult, ctx: Context[None, TenantConfig]) -> ToolResultReply:
    redactor = Redactor(ctx.tenant_config.kinds)
    redacted = redactor.redact(call.result)
    # An unchanged result stays out of the patch, byte for byte as it was.
    return proceed({"result": redacted}, notices=redactor.notices) if redactor.found else proceed()


@plugin.before_response(access="modify", side_effects="none")
async def redact_answer(call: BeforeResponse, ctx: Context[None, TenantConfig]) -> ResponseReply:
    redactor = Redactor(ctx.tenant_config.kinds)
    patch: BeforeResponsePatch = {"content": redactor.redact_text(call.content)}
    if call.reasoning is not None:
        patch["reasoning"] = redactor.redact_text(call.reasoning)
    return proceed(patch, notices=redactor.notices) if redactor.found else proceed()


class Redactor:
    """Masks values, and counts what it found."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = kinds
        self.found: Counter[Kind] = Counter()

    def redact(self, value: JsonValue) -> JsonValue:
        """The value without what must not be seen. An equal value if there is nothing."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list):
            return [self.redact(item) for item in value]
        if isinstance(value, dict):
            return {name: self.redact(member) for name, member in value.items()}
        # Larger numbers are no cards', and Python writes no integers of more than 4300 digits.
        if value is None or isinstance(value, bool) or abs(value) >= 10**CARD_DIGITS.stop:
            return value
        text = str(value)
        redacted = self.redact_text(text)
        return value if redacted == text else redacted

    def redact_text(self, text: str) -> str:
        for kind in self.kinds:
            text = PATTERNS[kind].sub(self._mask_cards if kind == "card" else self._mask_email, text)
        return text

    @property
    def notices(self) -> list[Notice]:
        """A notice that says how much was masked, and nothing else."""
        details = {str(kind): count for kind, count in self.found.items()}
        return [Notice("info", "Personal data was masked.", code="REDACTED", details=details)]

    def _mask_email(self, _: re.Match[str]) -> str:
        return self._mask("email")

    def _mask(self, kind: Kind) -> str:
        self.found[kind] += 1
        return f"[{kind}]"

    def _mask_cards(self, match: re.Match[str]) -> str:
        """Groups of digits with a mask in place of those that are the number of a card."""
        text = match[0]
        groups = list(re.finditer(r"\d+", text))
        masked, end, first = "", 0, 0
        while first < len(groups):
            last = last_of_card(groups, first)
            if last is not None:
                masked += text[end : groups[first].start()] + self._mask("card")
                first, end = last, groups[last].end()
            first += 1
        return masked + text[end:]


def last_of_card(groups: Sequence[re.Match[str]], first: int) -> int | None:
    """The last of the groups of digits that are the number of a card and begin with `first`; `None` if none are."""
    digits, last = "", None
    for index in range(first, len(groups)):
        digits += groups[index][0]
        if len(digits) >= CARD_DIGITS.stop:
            break
        if len(digits) in CARD_DIGITS and is_card_number(digits):
            last = index
    return last


def is_card_number(digits: str) -> bool:
    """Whether the last digit checks the others (Luhn), as in numbers of cards."""
    doubled = [2 * int(digit) for digit in digits[-2::-2]]
    return sum([*map(int, digits[-1::-2]), *(it - 9 if it > 9 else it for it in doubled)]) % 10 == 0
