"""What holds for every storage: that of a gateway, and that of the test kit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from hookgate._json import JsonError
from hookgate.host import (
    Add,
    AddResult,
    CounterEntry,
    Delete,
    DeleteResult,
    HostError,
    Operation,
    Put,
    PutResult,
    Storage,
    TransactResult,
    ValueEntry,
)

HOUR_MS = 3_600_000
Case = Callable[[Storage], Awaitable[None]]


async def values_are_written_read_and_deleted(storage: Storage) -> None:
    assert await storage.get("k") is None
    first = await storage.put("k", "één")
    entry = await storage.get("k")
    assert entry == ValueEntry("k", "één".encode(), first.version)
    assert entry is not None
    assert entry.kind == "value"
    assert entry.text() == "één"
    assert await storage.delete("k") == DeleteResult(True, True)
    assert await storage.delete("k") == DeleteResult(True, False)
    second = await storage.put("k", b"")
    assert second.written
    assert second.version > first.version, "a version never returns"
    empty = await storage.get("k")
    assert isinstance(empty, ValueEntry)
    assert empty.value == b""


async def a_write_with_another_version_changes_nothing(storage: Storage) -> None:
    first = await storage.put("k", "one", expected_version=0)
    assert first
    refused = await storage.put("k", "two", expected_version=0)
    assert not refused, "what wasn't written is false"
    assert refused == PutResult(False, first.version)
    assert await storage.delete("k", expected_version=first.version + 1) == DeleteResult(False, True, first.version)
    assert await storage.delete("new", expected_version=7) == DeleteResult(False, False, 0)
    third = await storage.put("k", "three", expected_version=first.version)
    assert third.written
    assert await storage.put("new", "", expected_version=7) == PutResult(False, 0)
    assert await storage.get("new") is None
    assert await storage.delete("k", expected_version=third.version) == DeleteResult(True, True)


async def values_are_json_too_with_their_integers(storage: Storage) -> None:
    assert await storage.get_json("k") is None
    value = {"id": 2**60, "huge": 10**5000, "list": [1, None, True, 0.5, "é"]}
    await storage.put_json("k", value)
    assert await storage.get_json("k") == value
    await storage.put("text", "{")
    with pytest.raises(JsonError):
        await storage.get_json("text")
    with pytest.raises(JsonError):
        await storage.put_json("k", object())
    await storage.add("n", 7)
    assert await storage.get_json("n") == 7


async def an_entry_says_when_it_expires(storage: Storage) -> None:
    await storage.put("k", "v", ttl_ms=HOUR_MS)
    entry = await storage.get("k")
    assert entry is not None
    assert entry.expires_in_ms is not None
    assert HOUR_MS - 60_000 < entry.expires_in_ms <= HOUR_MS
    await storage.put("k", "v")
    entry = await storage.get("k")
    assert entry is not None
    assert entry.expires_in_ms is None, "another put without a time to live"


async def a_counter_stops_at_its_limit(storage: Storage) -> None:
    two = await storage.add("n", 2, limit=3)
    assert two
    assert two == AddResult(True, 2, two.version, remaining=1)
    refused = await storage.add("n", 2, limit=3)
    assert not refused, "what wasn't added is false"
    assert refused == AddResult(False, 2, None, remaining=1)
    assert (await storage.add("n", 1, limit=3)).remaining == 0
    unlimited = await storage.add("n", 4)
    assert (unlimited.counter, unlimited.remaining) == (7, None)
    beyond = await storage.add("n", 0, limit=3)
    assert (beyond.added, beyond.remaining) == (False, 0), "never negative"
    less = await storage.add("n", -8)
    assert (less.counter, less.added) == (-1, True)
    entry = await storage.get("n")
    assert less.version is not None
    assert entry == CounterEntry("n", -1, less.version)
    replaced = await storage.put("n", "a value")
    assert replaced.written
    with pytest.raises(HostError, match=r"^not a counter: ") as failure:
        await storage.add("n", 1)
    assert failure.value.kind == "not_a_counter"
    assert not failure.value.is_outcome_unknown


async def a_counter_has_a_window(storage: Storage) -> None:
    first = await storage.add("n", 1, window="day")
    assert first.resets_in_ms is not None
    assert 0 < first.resets_in_ms <= 24 * HOUR_MS
    # The window of the creation stays.
    second = await storage.add("n", 1, limit=1, window=366 * 24 * HOUR_MS)
    assert (second.added, second.counter) == (False, 1)
    assert second.resets_in_ms is not None
    assert second.resets_in_ms <= first.resets_in_ms
    entry = await storage.get("n")
    assert entry is not None
    assert entry.expires_in_ms is not None
    assert entry.expires_in_ms <= first.resets_in_ms


async def counters_reach_both_ends_of_their_range(storage: Storage) -> None:
    assert (await storage.add("n", 2**53)).counter == 2**53
    assert await storage.add("n", 1) == AddResult(False, 2**53, None)
    assert (await storage.add("m", -(2**53))).counter == -(2**53)
    assert await storage.add("m", -1) == AddResult(False, -(2**53), None)


async def a_transaction_makes_all_changes_or_none(storage: Storage) -> None:
    first = await storage.put("a", "1")
    changes: list[Operation] = [Put("a", "2", expected_version=first.version), Delete("b"), Add("n", 1, limit=1)]
    committed = await storage.transact(changes)
    assert committed
    put, deleted, added = committed.results
    assert isinstance(put, PutResult)
    assert isinstance(added, AddResult)
    assert put.version > first.version
    assert deleted == DeleteResult(True, False)
    assert (added.counter, added.remaining) == (1, 0)

    conflict = await storage.transact(changes)
    assert not conflict, "what wasn't committed is false"
    assert conflict == TransactResult(False, (), 0, "conflict", PutResult(False, put.version))
    rejected = await storage.transact([Put("a", "3"), Add("n", 1, limit=1)])
    limit_reached = AddResult(False, 1, None, remaining=0)
    assert rejected == TransactResult(False, (), 1, "limit_reached", limit_reached)
    deletion = await storage.transact([Put("c", ""), Delete("a", expected_version=put.version + 1)])
    assert deletion == TransactResult(False, (), 1, "conflict", DeleteResult(False, True, put.version))
    assert await storage.get("c") is None
    entry = await storage.get("a")
    assert isinstance(entry, ValueEntry)
    assert entry.text() == "2"


async def several_entries_are_read_in_the_order_of_the_keys(storage: Storage) -> None:
    await storage.add("n", 7)
    await storage.put("v", "x")
    entries = await storage.get_many(["v", "none", "n", "v"])
    assert [(entry.key, entry.kind) for entry in entries] == [("v", "value"), ("n", "counter"), ("v", "value")]


async def entries_are_listed_over_all_pages(storage: Storage) -> None:
    numbers = [f"k/{number:03}" for number in range(130)]
    for start in range(0, 130, 26):
        assert await storage.transact([Put(key, "") for key in numbers[start : start + 26]])
    # The order is that of the bytes: U+FFFF before U+10000.
    for key in ("j", "l", "\U00010000", "\uffff", "é"):
        await storage.put(key, "")
    page = await storage.list_page("k/")
    assert (len(page.entries), page.next_after) == (100, "k/099")
    last = await storage.list_page("k/", after="k/099")
    assert ([entry.key for entry in last.entries], last.next_after) == (numbers[100:], None)
    assert [entry.key async for entry in storage.list("k/", page_size=17)] == numbers
    every = [entry.key async for entry in storage.list()]
    assert every == ["j", *numbers, "l", "é", "\uffff", "\U00010000"]
    assert [entry.key async for entry in storage.list("k/", after="k/128")] == ["k/129"]
    assert [entry async for entry in storage.list("none")] == []


async def large_entries_end_a_page_early(storage: Storage) -> None:
    for number in range(10, 30):
        await storage.put(str(number), bytes(64 << 10))
    page = await storage.list_page()
    assert (len(page.entries), page.next_after) == (16, "25"), "with the entry that reaches 1 MiB"
    assert len([entry async for entry in storage.list()]) == 20


async def keys_may_have_every_allowed_form(storage: Storage) -> None:
    keys = ["x" * 512, "é" * 256, " ", "a/b c", "\U0001f600", "%", "'", "\u00a0", "K", "k"]
    for number, key in enumerate(keys):
        await storage.put(key, str(number))
    entries = await storage.get_many(keys)
    assert [entry.key for entry in entries] == keys
    assert len([entry async for entry in storage.list()]) == len(keys)


CASES: tuple[Case, ...] = (
    values_are_written_read_and_deleted,
    a_write_with_another_version_changes_nothing,
    values_are_json_too_with_their_integers,
    an_entry_says_when_it_expires,
    a_counter_stops_at_its_limit,
    a_counter_has_a_window,
    counters_reach_both_ends_of_their_range,
    a_transaction_makes_all_changes_or_none,
    several_entries_are_read_in_the_order_of_the_keys,
    entries_are_listed_over_all_pages,
    large_entries_end_a_page_early,
    keys_may_have_every_allowed_form,
)
