from hookgate.testing import EmittedEvent, LogLine, TestPlugin

from audit import plugin


async def test_a_decision_becomes_a_line_with_who_asked_and_who_decided_without_the_payload() -> None:
    agent = (await TestPlugin.start(plugin)).with_tenant("acme").with_context(operator="ada", session_id="s-1")
    blocked = agent.with_chain_result("block", plugin="no-shell", code="TOOL_NOT_ALLOWED")
    await blocked.before_tool_call("shell.exec", {"secret": "hush"})
    attributes = {
        "point": "before_tool_call",
        "decision": "block",
        "plugin": "no-shell",
        "code": "TOOL_NOT_ALLOWED",
        "operator": "ada",
        "session": "s-1",
    }
    [line] = await agent.host.log_lines(1)
    message = "an agent's call was decided"
    assert line == LogLine(plugin="audit", tenant="acme", severity="info", message=message, attributes=attributes)
    [event] = agent.host.events
    assert event == EmittedEvent(
        plugin="audit", tenant="acme", severity="warn", message="", attributes=attributes, name="decision.blocked"
    )


async def test_every_point_is_audited_and_only_what_did_not_go_on_is_an_event() -> None:
    started = await TestPlugin.start(plugin)
    passed = started.with_chain_result("continue")
    await passed.before_llm_request("hush")
    await passed.before_tool_call("fs.read")
    await passed.after_tool_result("fs.read", "hush")
    await passed.before_response("hush")
    points = {line.attributes["point"] for line in await started.host.log_lines(4)}
    assert points == {"after_tool_result", "before_llm_request", "before_response", "before_tool_call"}
    assert not started.host.events
    await started.with_chain_result(None, code="PLUGIN_TIMEOUT").before_response("hush")
    assert [event.name for event in started.host.events] == ["decision.failed"]
    assert "hush" not in repr((await started.host.log_lines(5), started.host.events))
