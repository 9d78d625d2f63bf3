"""Data of the plugin, kept by the gateway in its database: all replicas share it and it survives restarts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Final

from pydantic import JsonValue

from hookgate import _json
from hookgate._proto import host_pb2 as pb
from hookgate.host._argument import is_integer, wrong_type
from hookgate.host._client import HostClient
from hookgate.host._entry import CounterEntry, Entry, Page, entry_from_wire
from hookgate.host._errors import invalid
from hookgate.host._key import check_bound, check_key, check_keys
from hookgate.host._methods import ADD, DELETE, GET, GET_MANY, LIST, PUT, TRANSACT
from hookgate.host._operation import (
    Add,
    AddResult,
    Delete,
    DeleteResult,
    Operation,
    Put,
    PutResult,
    TransactResult,
    add_result,
    add_to_wire,
    delete_result,
    delete_to_wire,
    put_result,
    put_to_wire,
    transact_result,
    transact_to_wire,
)
from hookgate.host._pending import PendingEntries, pending

_MAX_PAGE_SIZE: Final = 100


class Storage:
    """A plugin's data, for one tenant or its own.

    No plugin can read the data of another one. The plugin needs the capability `storage:read` to get and list, and
    `storage:write` for the other methods.

    Every method raises `HostError`, and `TypeError` if an argument has a wrong type. A call ends after the time that
    the plugin's own call has left, and after at most 5 s.

        # Whether the tenant may make another request in this minute.
        result = await ctx.storage.add("requests", 1, limit=60, window="minute")
        if not result.added:
            return cancel("TOO_MANY", "Try again in a minute.", retry_after_ms=result.resets_in_ms)
    """

    __slots__ = ("_client",)

    def __init__(self, client: HostClient) -> None:
        """Only the SDK makes it."""
        self._client = client

    @pending
    async def get(self, key: str) -> Entry | None:
        """Reads an entry; `None` if there is none."""
        answer = await self._client.call(GET, pb.GetRequest(key=check_key(key)))
        return entry_from_wire(answer.entry) if answer.HasField("entry") else None

    @pending
    async def get_json(self, key: str) -> JsonValue:
        """Reads a value as JSON; `None` if there is no entry, or if the value is `null`.

        A counter is its number. To know the version too, and to tell `null` from no entry, use `get`.

        :raises JsonError: If the value isn't JSON.
        """
        entry = await self.get(key)
        if entry is None:
            return None
        return entry.counter if isinstance(entry, CounterEntry) else entry.json()

    @pending
    async def get_many(self, keys: Sequence[str]) -> list[Entry]:
        """Reads the entries of 1 to 32 keys as of one moment: those that exist, in the order of the keys."""
        answer = await self._client.call(GET_MANY, pb.GetManyRequest(keys=check_keys(keys)))
        return [entry_from_wire(entry) for entry in answer.entries]

    @pending
    async def list_page(self, prefix: str = "", *, after: str = "", page_size: int = _MAX_PAGE_SIZE) -> Page:
        """Reads one page of entries, in the order of their keys' bytes.

        :param prefix: Keys begin with this. By default all.
        :param after: Keys after this one: `next_after` of the previous page. By default from the first on.
        :param page_size: Most entries of the page, 1 to 100. A page may end earlier, at 1 MiB.
        """
        if not is_integer(page_size):
            raise wrong_type("page_size", "an integer from 1 to 100", page_size)
        if not 1 <= page_size <= _MAX_PAGE_SIZE:
            raise invalid("page_size", "1 to 100")
        request = pb.ListRequest(
            prefix=check_bound(prefix, "prefix"), after=check_bound(after, "after"), page_size=page_size
        )
        answer = await self._client.call(LIST, request)
        return Page([entry_from_wire(entry) for entry in answer.entries], answer.next_after or None)

    @pending
    async def put(
        self, key: str, value: bytes | str, *, expected_version: int | None = None, ttl_ms: float | None = None
    ) -> PutResult:
        """Writes a value, also in place of a counter.

        :param key: 1 to 512 bytes, no control characters.
        :param value: At most 64 KiB. A text is written as UTF-8.
        :param expected_version: Writes only if the entry has this version; 0: only if there is no entry.
        :param ttl_ms: The entry expires after this many milliseconds, 1 to 31,622,400,000 (366 days), rounded up. By
            default never.
        """
        request = put_to_wire(Put(key, value, expected_version, ttl_ms))
        return put_result(await self._client.call(PUT, request))

    @pending
    async def put_json(
        self, key: str, value: object, *, expected_version: int | None = None, ttl_ms: float | None = None
    ) -> PutResult:
        """Writes a value as JSON, at most 64 KiB. The parameters are those of `put`.

        :raises JsonError: If the value has no JSON form.
        """
        return await self.put(key, _json.dumps(value), expected_version=expected_version, ttl_ms=ttl_ms)

    @pending
    async def delete(self, key: str, *, expected_version: int | None = None) -> DeleteResult:
        """Deletes an entry.

        :param expected_version: Deletes only if the entry has this version, at least 1.
        """
        request = delete_to_wire(Delete(key, expected_version))
        return delete_result(await self._client.call(DELETE, request))

    @pending
    async def add(
        self, key: str, delta: int, *, limit: int | None = None, window: float | str | None = None
    ) -> AddResult:
        """Adds to a counter, atomically among all replicas. A counter that doesn't exist is 0.

        :param delta: Between -2^53 and 2^53; may be negative, or 0.
        :param limit: Adds nothing if the counter would exceed this number, between -2^53 and 2^53.
        :param window: The counter expires at the end of the window in which it was created. Windows of this length,
            1 ms to 366 days, follow each other from 1970-01-01T00:00:00Z on: `"day"` are UTC days, `"minute"` full
            minutes. A number is in milliseconds. Without a window, the counter never expires.
        :raises ValueError: If `window` is a text that is no period.
        """
        request = add_to_wire(Add(key, delta, limit, window))
        return add_result(await self._client.call(ADD, request), limit)

    @pending
    async def transact(self, operations: Sequence[Operation]) -> TransactResult:
        """Makes 1 to 32 changes, each of another key: all, or none.

        if await ctx.storage.transact([Add("seats", 1, limit=10), Put("last", "Ada")]):
            ...
        """
        answer = await self._client.call(TRANSACT, transact_to_wire(operations))
        return transact_result(answer, operations)

    # Last, because inside of the class its name hides the type.
    def list(self, prefix: str = "", *, after: str = "", page_size: int = _MAX_PAGE_SIZE) -> AsyncIterable[Entry]:
        """Reads entries in the order of their keys' bytes.

        It reads page after page while the loop goes on; each page is as of its own moment. The parameters are those of
        `list_page`.

            async for entry in ctx.storage.list("failures/"):
                ...
        """
        return PendingEntries(self._read(prefix, after, page_size))

    async def _read(self, prefix: str, after: str, page_size: int) -> AsyncGenerator[Entry, None]:
        while True:
            page = await self.list_page(prefix, after=after, page_size=page_size)
            for entry in page.entries:
                yield entry
            if page.next_after is None:
                return
            after = page.next_after
