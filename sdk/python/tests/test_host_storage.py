"""The storage of a plugin: over a socket, and that of the test kit."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.fake_host import FakeHost
from support.storage_cases import CASES, HOUR_MS, Case

from hookgate.host import Add, CounterEntry, Delete, HostError, Operation, Put, Storage, key_part
from hookgate.host._period import period_ms
from hookgate.testing._test_host import TestHost

DAY_MS = 24 * HOUR_MS
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


@every_case
async def test_over_a_socket(case: Case) -> None:
    async with FakeHost() as host:
        await case(host.storage_of("p", "acme"))


@every_case
async def test_of_the_test_kit(case: Case) -> None:
    await case(TestHost().storage_of("p", "acme"))


async def test_an_entry_expires_after_its_time_which_is_rounded_up() -> None:
    host = TestHost()
    storage = host.storage_of("p", "acme")
    await storage.put("k", "v", ttl_ms=1.5)
    entry = await storage.get("k")
    assert entry is not None
    assert entry.expires_in_ms == 2
    host.advance(2)
    assert await storage.get("k") is None


async def test_a_counter_starts_again_in_the_next_window() -> None:
    host = TestHost()
    storage = host.storage_of("p", "acme")
    host.advance(10_000)  # ten seconds after midnight
    two = await storage.add("n", 2, limit=3, window="day")
    assert (two.remaining, two.resets_in_ms) == (1, DAY_MS - 10_000)
    refused = await storage.add("n", 2, limit=3, window="day")
    assert (refused.added, refused.resets_in_ms) == (False, DAY_MS - 10_000)
    host.advance(DAY_MS - 10_000)
    again = await storage.add("n", 1, limit=3, window="day")
    assert again.counter == 1
    entry = await storage.get("n")
    assert isinstance(entry, CounterEntry)
    assert (entry.counter, entry.expires_in_ms) == (1, DAY_MS)


async def test_data_belongs_to_one_plugin_and_one_tenant() -> None:
    host = TestHost()
    await host.storage_of("p", "acme").put("k", "acme")
    await host.storage_of("p").put("k", "own")
    for plugin, tenant, expected in [
        ("p", "acme", b"acme"),
        ("p", None, b"own"),
        ("p", "globex", None),
        ("q", "acme", None),
    ]:
        entry = await host.storage_of(plugin, tenant).get("k")
        assert (entry and getattr(entry, "value", None)) == expected


async def test_what_the_gateway_would_refuse_is_not_sent() -> None:
    async with FakeHost() as host:
        storage = host.storage_of("p", "acme")
        many: list[Operation] = [Delete(str(number)) for number in range(33)]
        cases: list[tuple[Callable[[Storage], Awaitable[object]], str]] = [
            (lambda s: s.get(""), "`key`: 1 to 512 bytes, no control characters"),
            (lambda s: s.get("a\nb"), "`key`"),
            (lambda s: s.get("\x85"), "`key`"),
            (lambda s: s.get("x" * 513), "`key`"),
            (lambda s: s.get("é" * 257), "`key`"),
            (lambda s: s.get("\ud800"), "`key`: Unicode text without halves of surrogate pairs"),
            (lambda s: s.get_many(["a", ""]), "`keys`: 1 to 512 bytes"),
            (lambda s: s.get_many([]), "`keys`: 1 to 32 keys"),
            (lambda s: s.put("k", bytes((64 << 10) + 1)), "`value`: at most 64 KiB"),
            (lambda s: s.put("k", "\udc00"), "`value`: Unicode text"),
            (lambda s: s.put("k", "", ttl_ms=0), "`ttl_ms`: 1 to 31622400000 milliseconds"),
            (lambda s: s.put("k", "", ttl_ms=float("inf")), "`ttl_ms`"),
            (lambda s: s.put("k", "", ttl_ms=float("nan")), "`ttl_ms`"),
            (lambda s: s.put("k", "", expected_version=-1), "`expected_version`"),
            (lambda s: s.put("k", "", expected_version=2**64), "`expected_version`"),
            (lambda s: s.delete("k", expected_version=0), "`expected_version`"),
            (lambda s: s.add("k", 2**53 + 1), "`delta`: a whole number between -2^53 and 2^53"),
            (lambda s: s.add("k", 1, limit=-(2**53) - 1), "`limit`"),
            (lambda s: s.add("k", 1, window=DAY_MS * 367), "`window_ms`"),
            (lambda s: s.add("k", 1, window="0ms"), "`window_ms`"),
            (lambda s: s.list_page(page_size=101), "`page_size`: 1 to 100"),
            (lambda s: s.list_page("a\0"), "`prefix`"),
            (lambda s: s.list_page(after="a\0"), "`after`"),
            (lambda s: s.transact([]), "`operations`: 1 to 32 operations"),
            (lambda s: s.transact(many), "`operations`: 1 to 32 operations"),
            (lambda s: s.transact([Delete("k"), Add("k", 1)]), "`operations`: each on another key"),
        ]
        for call, expected in cases:
            with pytest.raises(HostError, match=re.escape(expected)) as failure:
                await call(storage)
            assert failure.value.kind == "invalid"
            assert not failure.value.is_outcome_unknown
        assert host.calls == []


async def test_an_argument_of_a_wrong_type_is_named_and_nothing_is_sent() -> None:
    async with FakeHost() as host:
        # Whatever a program without a type checker passes.
        storage: Any = host.storage_of("p", "acme")
        period = "a number of milliseconds"
        operations = "`operations` must be a list of Put, Delete and Add"
        version = "`expected_version` must be a version that the storage answered, which is an integer"
        cases: list[tuple[Callable[[], Awaitable[object]], str]] = [
            (lambda: storage.get(5), "`key` must be a text, not int"),
            (lambda: storage.get_json(b"k"), "`key` must be a text, not bytes"),
            (lambda: storage.get_many("abc"), "`keys` must be a list of texts, not str"),
            (lambda: storage.get_many(None), "`keys` must be a list of texts, not NoneType"),
            (lambda: storage.get_many(["k", 5]), "`keys[1]` must be a text, not int"),
            (lambda: storage.put(5, "v"), "`key` must be a text, not int"),
            (lambda: storage.put("k", 5), "`value` must be bytes or a text, not int"),
            (lambda: storage.put("k", None), "`value` must be bytes or a text, not NoneType"),
            (lambda: storage.put("k", "v", ttl_ms="5s"), f"`ttl_ms` must be {period}, not str"),
            (lambda: storage.put("k", "v", ttl_ms=True), f"`ttl_ms` must be {period}, not bool"),
            (lambda: storage.put("k", "v", expected_version="1"), f"{version}, not str"),
            (lambda: storage.put_json("k", "v", expected_version=True), f"{version}, not bool"),
            (lambda: storage.delete(None), "`key` must be a text, not NoneType"),
            (lambda: storage.delete("k", expected_version=1.0), f"{version}, not float"),
            (lambda: storage.add("k", 0.5), "`delta` must be an integer, not float"),
            (lambda: storage.add("k", True), "`delta` must be an integer, not bool"),
            (lambda: storage.add("k", 1, limit="9"), "`limit` must be an integer, not str"),
            (
                lambda: storage.add("k", 1, window=[]),
                f"`window` must be {period}, or a text such as `day` or `30s`, not list",
            ),
            (lambda: storage.list_page(5), "`prefix` must be a text, not int"),
            (lambda: storage.list_page(after=None), "`after` must be a text, not NoneType"),
            (lambda: storage.list_page(page_size="9"), "`page_size` must be an integer from 1 to 100, not str"),
            (lambda: anext(aiter(storage.list("p", after=None))), "`after` must be a text, not NoneType"),
            (lambda: storage.transact(Delete("k")), f"{operations}, not Delete"),
            (lambda: storage.transact([object()]), f"{operations}, not object"),
            (lambda: storage.transact([Put("k", 5)]), "`value` must be bytes or a text, not int"),  # type: ignore[arg-type]
        ]
        for call, expected in cases:
            with pytest.raises(TypeError, match=f"^{re.escape(expected)}$"):
                await call()
        assert host.calls == []
        await storage.put("k", bytearray(b"a"))
        entry = await storage.get("k")
        assert (entry.value, len(host.calls)) == (b"a", 2), "any buffer is bytes"


async def test_a_full_storage_is_named() -> None:
    async with FakeHost(quota_bytes=100) as host:
        storage = host.storage_of("p", "acme")
        await storage.put("v", "x")
        with pytest.raises(HostError, match=r"^the gateway's storage is full: ") as failure:
            await storage.put("k", bytes(98))
        assert failure.value.kind == "quota_exceeded"
        assert not failure.value.is_outcome_unknown
        assert (await storage.put("k", bytes(97))).written


def test_an_odd_text_becomes_a_digest_as_a_part_of_a_key_and_any_other_stays() -> None:
    for text in ["", "fs.read", "a/b c", "Ünïcode", "x" * 256]:
        assert key_part(text) == text
    # As the Rust SDK digests it.
    assert key_part("a\nb") == "sha256:7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78"
    odd = [key_part(text) for text in ["a\nb", "\u0085", "sha256:", "x" * 257, "\ud800", "\ud801", "\udc00"]]
    for part in odd:
        assert re.fullmatch("sha256:[0-9a-f]{64}", part)
    assert len(set(odd)) == len(odd)
    with pytest.raises(TypeError, match=r"^`text` must be a text, not NoneType$"):
        key_part(None)  # type: ignore[arg-type]


def test_a_period_is_a_name_or_a_whole_number_with_a_unit() -> None:
    periods = {"minute": 60_000, "hour": HOUR_MS, "day": DAY_MS, "0ms": 0, "500ms": 500, "30s": 30_000, "24h": DAY_MS}
    for text, ms in periods.items():
        assert period_ms(text) == ms
    for text in ["1d", "1.5s", "-1s", "1 s", "s", "30", "", "99999999999999999999s", "1s\n", "٣s"]:
        with pytest.raises(ValueError, match="is no period: write a whole number"):
            period_ms(text)
