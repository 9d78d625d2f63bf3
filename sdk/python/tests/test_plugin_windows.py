"""Plugins that judge an answer in windows, and what the test kit makes of them."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from support.gateway_client import served

from hookgate import (
    BeforeResponse,
    BeforeToolCall,
    Context,
    Notice,
    Offer,
    Plugin,
    ResponseReply,
    ResponseWindow,
    TokenUsage,
    ToolCallReply,
    cancel,
    proceed,
)
from hookgate.testing import CallError, TestPlugin, WindowedResponse

KIB = 1024
Handle = Callable[[BeforeResponse], ResponseReply]


def make() -> Plugin[Any, Any]:
    return Plugin("p", version="1.0.0")


async def started(handle: Handle) -> TestPlugin:
    plugin = make()

    @plugin.before_response(windows=True)
    async def judge(call: BeforeResponse, ctx: Context) -> ResponseReply:
        return handle(call)

    return await TestPlugin.start(plugin)


def is_end(call: BeforeResponse) -> bool:
    return call.window is None or call.window.last


def hide_digits(call: BeforeResponse) -> ResponseReply:
    """Consumes words, and replaces those with digits."""
    consumed = len(call.content) if is_end(call) else call.content.rfind(" ") + 1
    words = call.content[:consumed]
    hidden = re.sub(r"\S*\d\S*", "#", words)
    return proceed(consumed=consumed) if hidden == words else proceed({"content": hidden}, consumed=consumed)


def test_windows_are_refused_where_there_can_be_none() -> None:
    def judge(call: Any, ctx: Any) -> Any:
        return proceed()

    class Handler:
        async def before_tool_call(self, call: Any, ctx: Any) -> ToolCallReply:
            return proceed()

    class Hooks:
        async def on_hook(self, call: Any, ctx: Any) -> Any: ...

    with pytest.raises(TypeError, match="unexpected keyword argument 'windows'"):
        make().before_tool_call(windows=True)(judge)  # type: ignore[call-overload]
    only_there = "`windows` is only for before_response, not for before_tool_call"
    with pytest.raises(ValueError, match=only_there):
        Plugin("p", version="1.0.0", handler=Handler, points={"before_tool_call": Offer(windows=True)})
    with pytest.raises(ValueError, match="`windows` is only for before_response, not for recall"):
        Plugin("p", version="1.0.0", handler=Hooks, hooks={"recall": Offer(windows=True)})
    with pytest.raises(ValueError, match="`windows` of before_response needs `content`: add it to `reads`"):
        make().before_response(windows=True, reads=["reasoning"])(judge)
    with pytest.raises(ValueError, match="`windows` must be True or False, not 'yes'"):
        make().before_response(windows="yes")(judge)  # type: ignore[call-overload]
    make().before_response(windows=True, reads=["content"])(judge)


async def test_describe_offers_windows_only_where_the_plugin_does() -> None:
    class Handler:
        async def before_response(self, call: Any, ctx: Any) -> ResponseReply:
            return proceed()

    for windows in (True, False):
        plugin = Plugin(
            "p", version="1.0.0", handler=Handler, points={"before_response": Offer(reads=["content"], windows=windows)}
        )
        async with served(plugin) as (client, _):
            described = await client.describe()
        assert [it.windows for it in described.points] == [windows]


async def test_a_handler_sees_its_window_and_says_how_much_it_consumed() -> None:
    seen: list[ResponseWindow | None] = []

    def judge(call: BeforeResponse) -> ResponseReply:
        seen.append(call.window)
        return proceed({"content": "J"}, notices=[Notice("info", "n")], consumed=2)

    plugin = await started(judge)
    window = ResponseWindow(seq=3, before="\U0001f600 ", offset=1_000_000, last=False)
    reply = await plugin.before_response("\U0001f600é?", window=window)
    assert (reply.consumed, reply.patch, [it.message for it in reply.notices]) == (2, {"content": "J"}, ["n"])
    whole = await plugin.before_response("é?")
    assert seen == [window, None]
    assert (whole.consumed, whole.patch) == (2, {"content": "J"})
    # The rest of a whole answer would pass unjudged.
    with pytest.raises(CallError, match="`consumed` is 2, but nothing follows: all 3 characters must go on"):
        await plugin.before_response("é?!")


async def test_without_a_word_about_it_all_of_a_window_goes_on() -> None:
    plugin = await started(lambda _: proceed())
    assert (await plugin.before_response("text", window=ResponseWindow())).consumed is None
    plugin = await started(lambda _: proceed(consumed=0))
    assert (await plugin.before_response("text", window=ResponseWindow())).consumed == 0


@pytest.mark.parametrize(
    ("content", "last", "consumed", "fault"),
    [
        ("Füße", False, 5, "`consumed` is 5, but `content` has only 4 characters"),
        ("Füße", True, 3, "`consumed` is 3, but nothing follows: all 4 characters must go on"),
        ("Füße", False, -1, "`consumed` must be a number of characters, not -1"),
        ("Füße", False, 1.0, "`consumed` must be a number of characters, not 1.0"),
        ("Füße", False, True, "`consumed` must be a number of characters, not True"),
        ("é" * 33 * KIB, False, 1023, "`consumed` is 1023, which leaves 65538 bytes of `content` to come again, 65536"),
    ],
)
async def test_a_count_that_a_gateway_would_refuse_is_an_error(
    content: str, last: bool, consumed: Any, fault: str
) -> None:
    plugin = await started(lambda _: proceed(consumed=consumed))
    with pytest.raises(CallError, match=re.escape(fault)) as failure:
        await plugin.before_response(content, window=ResponseWindow(last=last))
    assert failure.value.code.name == "INTERNAL"


async def test_the_rest_may_have_64_kib() -> None:
    plugin = await started(lambda _: proceed(consumed=KIB))
    assert (await plugin.before_response("é" * 33 * KIB, window=ResponseWindow())).consumed == KIB


async def test_consumed_is_refused_at_other_points() -> None:
    plugin = make()

    @plugin.before_tool_call
    async def judge(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return proceed(consumed=1)

    with pytest.raises(CallError, match="`consumed` is only for before_response, not for before_tool_call"):
        await (await TestPlugin.start(plugin)).before_tool_call("t")


async def test_a_plugin_that_offers_no_windows_gets_none() -> None:
    plugin = make()
    plugin.before_response(lambda call, ctx: proceed())
    tested = await TestPlugin.start(plugin)
    with pytest.raises(CallError, match="the plugin doesn't offer `windows`"):
        await tested.before_response("part", window=ResponseWindow())
    with pytest.raises(CallError, match="the plugin doesn't offer `windows`"):
        await tested.before_response_in_windows(["part"])
    assert (await tested.before_response("all")).cancelled is None


async def test_cuts_do_not_matter_to_a_plugin_that_is_exact() -> None:
    plugin = await started(hide_digits)
    text = "Zimmer 4b, \U0001f511 0815\U0001f600 und Füße."
    expected = "Zimmer # \U0001f511 # und Füße."
    whole = await plugin.before_response(text)
    assert whole.patch == {"content": expected}
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            answer = await plugin.before_response_in_windows([text[:first], text[first:second], text[second:]])
            assert answer == WindowedResponse(expected, None, None, [])
    assert (await plugin.before_response_in_windows(text)).content == expected, "a character at a time"


async def test_windows_show_the_rest_with_more_behind_it() -> None:
    seen: list[tuple[str, ResponseWindow | None]] = []

    def judge(call: BeforeResponse) -> ResponseReply:
        seen.append((call.content, call.window))
        return hide_digits(call)

    plugin = await started(judge)
    answer = await plugin.before_response_in_windows(["room 1", "2 is", " free", ""])
    assert answer.content == "room # is free"
    assert seen == [
        ("room 1", ResponseWindow(seq=0, before="", offset=0)),
        ("12 is", ResponseWindow(seq=1, before="room ", offset=5)),
        ("is free", ResponseWindow(seq=2, before="room 12 ", offset=8)),
        ("free", ResponseWindow(seq=3, before="room 12 is ", offset=11, last=True)),
    ]


async def test_before_has_the_last_1024_consumed_characters() -> None:
    seen: list[ResponseWindow] = []

    def judge(call: BeforeResponse) -> ResponseReply:
        assert call.window is not None
        seen.append(call.window)
        return proceed({"content": ""})

    plugin = await started(judge)
    assert (await plugin.before_response_in_windows(["ä" * 1023, "bc", "d"])).content == ""
    assert [(len(it.before), it.offset) for it in seen] == [(0, 0), (1023, 1023), (1024, 1025)]
    assert seen[2].before == "ä" * 1022 + "bc"


async def test_a_cancel_stops_the_answer_after_what_went_out() -> None:
    def judge(call: BeforeResponse) -> ResponseReply:
        notices = [Notice("info", call.content)]
        return cancel("SEEN", "no", notices=notices) if "bad" in call.content else proceed(notices=notices)

    answer = await (await started(judge)).before_response_in_windows(["good ", "bad ", "never seen"])
    assert answer.content == "good "
    assert answer.cancelled is not None
    assert answer.cancelled.code == "SEEN"
    assert [it.message for it in answer.notices] == ["good ", "bad "]


async def test_reasoning_is_in_the_first_window_and_the_usage_in_the_last() -> None:
    seen: list[tuple[object, ...]] = []

    def judge(call: BeforeResponse) -> ResponseReply:
        seen.append((call.reasoning, call.model, call.token_usage, call.stop_reason))
        return proceed() if call.reasoning is None else proceed({"reasoning": "hidden"})

    plugin = await started(judge)
    usage = TokenUsage(1, 2)
    answer = await plugin.before_response_in_windows(
        ["a", "b"], reasoning="why", model="m", token_usage=usage, stop_reason="stop"
    )
    assert seen == [("why", "m", None, None), (None, "m", usage, "stop")]
    assert (answer.content, answer.reasoning) == ("ab", "hidden")
    plugin = await started(lambda _: proceed())
    assert (await plugin.before_response_in_windows(["a"], reasoning="why")).reasoning == "why"


async def test_an_empty_answer_is_one_window() -> None:
    seen: list[ResponseWindow | None] = []

    def judge(call: BeforeResponse) -> ResponseReply:
        seen.append(call.window)
        return proceed()

    assert (await (await started(judge)).before_response_in_windows([])).content == ""
    assert seen == [ResponseWindow(last=True)]


async def test_a_bad_reply_ends_the_answer_with_an_error() -> None:
    plugin = await started(lambda call: proceed(consumed=0))
    with pytest.raises(CallError, match="all 2 characters must go on"):
        await plugin.before_response_in_windows(["a", "b"])


def test_an_agent_can_not_say_which_window_its_answer_is() -> None:
    with pytest.raises(TypeError, match="window"):
        BeforeResponse(content="a", window=ResponseWindow())  # type: ignore[call-arg]
    assert BeforeResponse(content="a").window is None
