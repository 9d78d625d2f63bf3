"""What plugins see and change of requests of Pydantic AI to a model."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ImageUrl, ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.native_tools import WebSearchTool
from support.fake_gateway import FakeGateway
from support.points import PointReply, Points, Values, block, outage, patch, replace_text
from support.pydantic_ai_agent import Script, Tools, agent_of, says, user_text

from hookgate.adapters.pydantic_ai import PatchError, guard_model
from hookgate.agent import Blocked, NoDecision


async def test_plugins_change_texts_of_requests(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_llm_request=patch(text="[X]", system_prompt="other"))
    cases: list[dict[str, Any]] = [
        {"instructions": "be brief"},
        {"system_prompt": "be kind"},
        {"instructions": "a", "system_prompt": "b"},
    ]
    for options in cases:
        script = Script([says("done")])
        result = await agent_of(points, script, **options).run("secret")
        assert user_text(script.requests[0]) == ["[X]"]
        prompts = [part.content for part in script.requests[0][0].parts if isinstance(part, SystemPromptPart)]
        assert [*prompts, script.infos[0].instructions] == (
            ["other", None] if "instructions" not in options else ["other"]
        )
        assert user_text(result.all_messages()) == ["secret"]


async def test_a_changed_older_message_loses_the_names_that_its_provider_keeps_it_under(
    fake_gateway: FakeGateway,
) -> None:
    points, script = Points(fake_gateway, before_llm_request=replace_text("secret", "[X]")), Script([says("done")])
    older = ModelResponse(parts=[TextPart(content="a secret", id="msg-1")], provider_response_id="resp-1")
    history: list[ModelMessage] = [ModelRequest.user_text_prompt("first"), older]
    await agent_of(points, script).run("second", message_history=history)
    changed = script.requests[0][1]
    assert isinstance(changed, ModelResponse)
    assert changed.provider_response_id is None
    assert changed.parts == [TextPart(content="a [X]")]
    assert script.requests[0][0] is not changed


async def test_a_plugin_may_leave_out_media_and_tools_but_add_none(fake_gateway: FakeGateway) -> None:
    def without_media(response: Any, _: Values) -> Any:
        del response.payload.images[:]
        response.modified = True
        return response

    prompt: list[Any] = [
        "look",
        ImageUrl("https://example.com/a.png"),
        BinaryContent(b"%PDF", media_type="application/pdf"),
    ]
    points, script = Points(fake_gateway, before_llm_request=without_media), Script([says("done")])
    await agent_of(points, script).run(prompt)
    assert [medium.mime_type for medium in points.media("BeforeLlmRequest")] == ["image/png", "application/pdf"]
    assert [content[0] for content in user_text(script.requests[0])] == ["look"]
    assert [len(content) for content in user_text(script.requests[0])] == [2]

    only = lambda values: {"tools": values["tools"][:1]}  # noqa: E731
    Points(fake_gateway, before_llm_request=patch(only))
    script = Script([says("done")])
    await agent_of(points, script, Tools()).run("hello")
    assert [tool.name for tool in script.infos[0].function_tools] == ["read"]

    added: Any
    for added in ({"name": "shell", "parameters_json_schema": {}}, {"native_tool": "web_search", "id": "web_search"}):
        Points(fake_gateway, before_llm_request=patch(tools=[added]))
        script = Script([says("done")])
        with pytest.raises(PatchError):
            await agent_of(points, script, Tools()).run("hello")
        assert script.requests == []


async def test_a_plugin_may_leave_out_native_tools(fake_gateway: FakeGateway) -> None:
    points, script = Points(fake_gateway, before_llm_request=patch(tools=[])), Script([says("done")])
    parameters = ModelRequestParameters(native_tools=[WebSearchTool()])
    model = guard_model(points.agent, script.model)
    await model_request(model, [ModelRequest.user_text_prompt("hello")], model_request_parameters=parameters)
    assert points.payloads("BeforeLlmRequest")[0]["tools"] == [{"native_tool": "web_search", "id": "web_search"}]
    assert script.infos[0].model_request_parameters.native_tools == []


async def test_a_message_that_is_none_ends_the_run(fake_gateway: FakeGateway) -> None:
    points, script = Points(fake_gateway, before_llm_request=patch(messages=[{"kind": "nonsense"}])), Script([])
    with pytest.raises(PatchError):
        await agent_of(points, script).run("hello")


@pytest.mark.parametrize("reply", [block("stop"), block("stop", "run"), outage])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_request_that_may_not_be_made_is_not_made(
    fake_gateway: FakeGateway, reply: PointReply, is_streamed: bool
) -> None:
    points, script = Points(fake_gateway, before_llm_request=reply), Script([says("done")])
    agent = agent_of(points, script)
    with pytest.raises((Blocked, NoDecision)):
        await (agent.run_stream("hello").__aenter__() if is_streamed else agent.run("hello"))
    assert script.requests == []


async def test_a_fallback_takes_no_block_for_a_failure(fake_gateway: FakeGateway) -> None:
    points, script = Points(fake_gateway, before_llm_request=outage), Script([says("done")])
    both = FallbackModel(guard_model(points.agent, script.model), script.model)
    with pytest.raises(NoDecision):
        await Agent(both).run("hello")
    with pytest.raises(NoDecision):
        await agent_of(points, script).run("hello", model=FallbackModel(script.model, script.model))
    assert script.requests == []


async def test_a_model_that_is_chosen_for_a_run_is_guarded(fake_gateway: FakeGateway) -> None:
    points, script = Points(fake_gateway, before_response=replace_text("secret", "[X]")), Script([says("a secret")])
    assert (await agent_of(points, Script([])).run("hello", model=script.model)).output == "a [X]"


async def test_tokens_are_counted_of_the_judged_request(fake_gateway: FakeGateway) -> None:
    class Counting(FunctionModel):
        async def count_tokens(self, messages: list[ModelMessage], *_: Any) -> Any:
            counted.extend(user_text(messages))

    counted: list[Any] = []
    points = Points(fake_gateway, before_llm_request=patch(text="[X]"))
    model = guard_model(points.agent, Counting(lambda *_: says("done")))
    await model.count_tokens([ModelRequest.user_text_prompt("secret")], None, ModelRequestParameters())
    assert counted == ["[X]"]
