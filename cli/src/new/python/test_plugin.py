from hookgate.testing import TestPlugin

from plugin import plugin


async def test_it_refuses_what_the_tenants_configuration_lists() -> None:
    tenant = (await TestPlugin.start(plugin)).with_tenant_config({"refused_tools": ["shell.exec"]})
    refused = (await tenant.before_tool_call("shell.exec")).cancelled
    assert refused is not None
    assert refused.code == "TOOL_NOT_ALLOWED"
    assert (await tenant.before_tool_call("fs.read")).cancelled is None
