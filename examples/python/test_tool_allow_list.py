import pytest
from hookgate.testing import TestPlugin

from tool_allow_list import plugin


@pytest.mark.parametrize(
    ("tool_name", "is_allowed"), [("fs.read", True), ("web.get", True), ("web.get2", False), ("FS.read", False)]
)
async def test_only_listed_tools_are_allowed(tool_name: str, is_allowed: bool) -> None:
    tenant = (await TestPlugin.start(plugin)).with_tenant_config({"allowed_tools": ["fs.*", "web.get"]})
    cancelled = (await tenant.before_tool_call(tool_name)).cancelled
    assert (cancelled and cancelled.code) == (None if is_allowed else "TOOL_NOT_ALLOWED")


async def test_a_tenant_without_a_list_may_use_no_tool() -> None:
    cancelled = (await (await TestPlugin.start(plugin)).before_tool_call("fs.read")).cancelled
    assert cancelled is not None
    assert cancelled.message == "Agents may not use fs.read."
