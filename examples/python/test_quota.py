import pytest
from hookgate import Cancel
from hookgate.testing import CallError, TestHost, TestPlugin

from quota import plugin

HOUR_MS = 3_600_000


async def cancel_of(tenant: TestPlugin) -> Cancel | None:
    return (await tenant.before_tool_call("fs.read")).cancelled


async def test_replicas_share_a_tenants_quota_until_the_end_of_the_day() -> None:
    host = TestHost()
    host.advance(23 * HOUR_MS)
    replicas = [await TestPlugin.start(plugin, host=host) for _ in range(2)]
    one, other = (replica.with_tenant_config({"calls_per_day": 2}) for replica in replicas)
    assert [await cancel_of(one), await cancel_of(other)] == [None, None]
    cancelled = await cancel_of(one)
    assert cancelled is not None
    assert (cancelled.code, cancelled.retry_after_ms) == ("QUOTA_EXCEEDED", HOUR_MS)
    assert await cancel_of(other.with_tenant("globex")) is None, "another tenant has its own"
    host.advance(HOUR_MS)
    assert await cancel_of(one) is None


async def test_without_the_storage_there_is_no_answer() -> None:
    started = await TestPlugin.start(plugin)
    started.host.set_available(False)
    with pytest.raises(CallError) as raised:
        await cancel_of(started)
    assert raised.value.code.name == "UNAVAILABLE"
