"""Values that no call can change for another one: configurations, and the JSON of payloads.

Tenants with the same configuration share one object, so a handler that changed it would change it for all of them. A
change of a payload in place would be lost, as only the patch of a reply counts. The models, dataclasses and containers
in them are of subclasses that refuse to change; a copy of one is an ordinary one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from pydantic import BaseModel
from pydantic.types import JsonValue

_T = TypeVar("_T")
_H = TypeVar("_H", bound=Hashable)

_WHY: Final = "a configuration can't be changed, because all calls share it: change a copy"
_set_class: Final[Callable[[object, type], None]] = vars(object)["__class__"].__set__


def _refuse(self: Any, *args: object, **named: object) -> NoReturn:
    raise TypeError(getattr(self, "_why", _WHY))


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


class _FrozenDeque(deque[_T]):
    __slots__ = ()

    append = appendleft = clear = extend = extendleft = insert = pop = popleft = remove = reverse = rotate = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def copy(self) -> Any:
        return deque(self, self.maxlen)

    __copy__ = copy

    def __reduce_ex__(self, protocol: object) -> tuple[type[deque[_T]], tuple[list[_T], int | None]]:
        return deque, (list(self), self.maxlen)


class _FrozenDefaultDict(defaultdict[_H, _T]):
    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = __setattr__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __missing__(self, key: _H) -> _T:
        if self.default_factory is None:
            raise KeyError(key)
        value: _T = freeze(self.default_factory())
        return value

    def copy(self) -> Any:
        return defaultdict(self.default_factory, self)

    __copy__ = copy

    def __reduce_ex__(self, protocol: object) -> tuple[type[defaultdict[_H, _T]], tuple[object, dict[_H, _T]]]:
        return defaultdict, (self.default_factory, dict(self))


class _PayloadList(_FrozenList[_T]):
    __slots__ = ()
    _why: ClassVar[str] = "a payload can't be changed: return proceed({...}) with a changed copy, such as [*call.tools]"


class _PayloadDict(_FrozenDict[_H, _T]):
    __slots__ = ()
    _why: ClassVar[str] = 'a payload can\'t be changed: return proceed({"args": {**call.args, ...}})'


def freeze_json(value: JsonValue) -> JsonValue:
    """The JSON of a payload with its lists and dicts frozen."""
    if isinstance(value, list):
        return _PayloadList(map(freeze_json, value))
    if isinstance(value, dict):
        return _PayloadDict({key: freeze_json(member) for key, member in value.items()})
    return value


def freeze(value: Any) -> Any:
    """The value with its models, dataclasses and containers frozen. Models and dataclasses are changed in place."""
    kind = type(value)
    if getattr(kind, "_hookgate_frozen", False):
        return value
    if isinstance(value, BaseModel):
        _swap_class(value)
        for members in (value.__dict__, value.__pydantic_extra__ or {}):
            for name, member in members.items():
                members[name] = freeze(member)
        return value
    if dataclasses.is_dataclass(kind):
        _freeze_dataclass(value)
        return value
    return _freeze_container(value, kind)


def _freeze_container(value: Any, kind: type) -> Any:
    # Subclasses of an author have a behaviour of their own, and stay.
    if kind is list:
        return _FrozenList(map(freeze, value))
    if kind is dict:
        return _FrozenDict({key: freeze(member) for key, member in value.items()})
    if kind is set:
        return _FrozenSet(map(freeze, value))
    if kind is deque:
        return _FrozenDeque(map(freeze, value), value.maxlen)
    if kind is defaultdict:
        return _FrozenDefaultDict(value.default_factory, {key: freeze(member) for key, member in value.items()})
    if kind is tuple:
        return tuple(map(freeze, value))
    if isinstance(value, tuple) and hasattr(kind, "_make"):  # a named tuple
        return kind._make(map(freeze, value))
    return value


def _freeze_dataclass(value: Any) -> None:
    _swap_class(value)
    for field in dataclasses.fields(value):
        member = getattr(value, field.name, None)
        frozen = freeze(member)
        if frozen is not member:
            object.__setattr__(value, field.name, frozen)


def _swap_class(value: Any) -> None:
    """Makes the object refuse changes, unless its class has no room for that."""
    ordinary: Any = type(value)
    frozen = _frozen_class(ordinary)
    if frozen is not None:
        with contextlib.suppress(TypeError):  # Another layout in memory. Its members are frozen still.
            _set_class(value, frozen)


@functools.cache
def _frozen_class(ordinary: Any) -> type | None:
    """A subclass that refuses changes, says that it is the class itself, and makes ordinary copies."""

    def set_attribute(self: Any, name: str, value: object) -> None:
        # As in pydantic's frozen models, a private attribute may be a cache that a method of the author fills.
        if name not in getattr(ordinary, "__private_attributes__", ()):
            _refuse(self)
        ordinary.__setattr__(self, name, value)

    def reduce(self: Any, protocol: Any) -> Any:
        reduced = ordinary.__reduce_ex__(self, protocol)
        if isinstance(reduced, str):
            return reduced
        make, args, *rest = reduced
        return make, tuple(ordinary if it is frozen else it for it in args), *rest

    def copier(name: str) -> Callable[..., Any]:
        def copy(self: Any, *args: Any) -> Any:
            copied = getattr(ordinary, name)(self, *args)
            if type(copied) is frozen:
                _set_class(copied, ordinary)
            return copied

        return copy

    members: dict[str, object] = {
        "__slots__": (),
        "__module__": ordinary.__module__,
        "__qualname__": ordinary.__qualname__,
        "__doc__": ordinary.__doc__,
        "__class__": property(lambda _: ordinary),
        "__setattr__": set_attribute,
        "__delattr__": _refuse,
        "__reduce_ex__": reduce,
        "_hookgate_frozen": True,
    }
    members.update((name, copier(name)) for name in ("__copy__", "__deepcopy__") if hasattr(ordinary, name))
    frozen: type | None = None
    try:
        # Not by the metaclass itself: that of pydantic would build the model again.
        frozen = type.__new__(type(ordinary), ordinary.__name__, (ordinary,), members)
    except Exception:  # What an author's `__init_subclass__` raises.
        return None
    return frozen
