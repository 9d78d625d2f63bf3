"""What a plugin under test gets of a payload that it doesn't read all of."""

from hookgate import BeforeToolCall, Context, Plugin, ToolCallReply, proceed
from hookgate.testing import TestPlugin


async def test_members_that_are_not_read_are_left_out_but_not_of_a_call_of_a_tool() -> None:
    plugin = Plugin("p", version="1.0.0")
    seen: list[BeforeToolCall] = []

    @plugin.before_tool_call(reads=["extra"])
    async def look(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        seen.append(call)
        return proceed({"args": {"b": 2}})

    @plugin.tool("p.double", description="d")
    def double(number: int) -> int:
        return number * 2

    tested = await TestPlugin.start(plugin)
    reply = await tested.before_tool_call("fs.read", {"a": 1}, call_id="1", extra={"x": 1})
    call = seen[0]
    assert (call.tool_name, call.args, call.call_id, call.extra) == ("fs.read", None, "1", {"x": 1})
    assert reply.patch == {"args": {"b": 2}}, "what isn't read may be replaced"
    assert await tested.run_tool("p.double", {"number": 2}) == 4
