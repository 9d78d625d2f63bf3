import pytest
from hookgate import Notice
from hookgate.testing import TestPlugin

from redaction import plugin

CARD = "4111 1111 1111 1111"


async def test_addresses_and_card_numbers_are_masked_in_all_values_of_a_result() -> None:
    started = await TestPlugin.start(plugin)
    kept = {"order": "4111 1111 1111 1112", "id": 2**60, "ratio": 0.5, "none": None, "long": 10**5000}
    result = {"owner": "Ada <ada@example.org>", "cards": [CARD, 4111111111111111], **kept}
    reply = await started.after_tool_result("crm.get", result)
    assert reply.patch == {"result": {"owner": "Ada <[email]>", "cards": ["[card]", "[card]"], **kept}}
    details = {"email": 1, "card": 2}
    assert reply.notices == [Notice("info", "Personal data was masked.", code="REDACTED", details=details)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"Order 5 {CARD}", "Order 5 [card]"),
        (f"{CARD} 123", "[card] 123"),
        ("4111111111111111 12", "[card] 12"),
        ("12-4111-1111-1111-1111", "12-[card]"),
        ("4111\u00a01111  1111.1111", "[card]"),
        (f"{CARD}, {CARD}", "[card], [card]"),
        ("ada@exämple.org", "[email]"),
    ],
)
async def test_a_card_number_is_found_among_other_digits_and_with_other_separators(content: str, expected: str) -> None:
    reply = await (await TestPlugin.start(plugin)).before_response(content)
    assert reply.patch == {"content": expected}


async def test_an_answer_is_masked_with_its_reasoning() -> None:
    started = await TestPlugin.start(plugin)
    reply = await started.before_response(f"Pay with {CARD}.", reasoning="ada@example.org asks")
    assert reply.patch == {"content": "Pay with [card].", "reasoning": "[email] asks"}


async def test_a_tenant_chooses_the_kinds_and_what_has_none_of_them_is_not_patched() -> None:
    tenant = (await TestPlugin.start(plugin)).with_tenant_config({"kinds": ["email"]})
    reply = await tenant.before_response(CARD)
    assert (reply.patch, reply.notices) == (None, [])
    assert (await tenant.after_tool_result("t", CARD)).patch is None
    assert (await tenant.before_response("10 20 30 40")).patch is None
