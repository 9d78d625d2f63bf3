"""Configurations that no call can change for another one.

Tenants with the same configuration share one object, so a handler that appended to a list in it would change it for all
of them. The containers in it are subclasses that refuse to change; a copy of one is an ordinary container.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

_T = TypeVar("_T")
_H = TypeVar("_H", bound=Hashable)


def _refuse(self: object, *args: object, **named: object) -> NoReturn:
    raise TypeError("a configuration can't be changed, because all calls share it: change a copy")


class _FrozenList(list[_T]):
    __slots__ = ()

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce_ex__(self, protocol: object) -> tuple[type[list[_T]], tuple[list[_T]]]:
        return list, (list(self),)


class _FrozenDict(dict[_H, _T]):
    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce_ex__(self, protocol: object) -> tuple[type[dict[_H, _T]], tuple[dict[_H, _T]]]:
        return dict, (dict(self),)


class _FrozenSet(set[_H]):
    __slots__ = ()

    add = clear = discard = pop = remove = update = _refuse
    difference_update = intersection_update = symmetric_difference_update = _refuse
    __iand__ = __ior__ = __isub__ = __ixor__ = _refuse

    def __reduce_ex__(self, protocol: object) -> tuple[type[set[_H]], tuple[set[_H]]]:
        return set, (set(self),)


def freeze(value: Any) -> Any:
    """The value with its lists, dicts and sets frozen, also those in fields of models. Models are changed in place."""
    if isinstance(value, BaseModel):
        for members in (value.__dict__, value.__pydantic_extra__ or {}):
            for name, member in members.items():
                members[name] = freeze(member)
        return value
    # Subclasses of an author have a behaviour of their own, and stay.
    if type(value) is list:
        return _FrozenList(map(freeze, value))
    if type(value) is dict:
        return _FrozenDict({key: freeze(member) for key, member in value.items()})
    if type(value) is set:
        return _FrozenSet(value)
    if type(value) is tuple:
        return tuple(map(freeze, value))
    return value
