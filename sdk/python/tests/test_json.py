"""JSON texts keep their values, and what would change on its way is refused."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, Field

from hookgate._json import JsonError, dumps, loads, well_formed


def test_integers_of_any_size_survive_wherever_they_are() -> None:
    text = '{"id":9007199254740993,"list":[-12345678901234567890123,0],"o":{"n":18446744073709551615}}'
    assert dumps(loads(text)).decode() == text
    for digits in ("1" * 4301, "9" * 20_000, "1" + "0" * 50_000, "7" * 4000):
        assert (
            dumps(loads(f'[{digits},-{digits},{{"n":{digits}}}]')).decode() == f'[{digits},-{digits},{{"n":{digits}}}]'
        )


def test_floats_keep_their_value() -> None:
    for text in ("1e300", "-1.5E-7", "0.1", "123456789012.25", "1e21", "-0.0", "5e-324"):
        assert float(dumps(loads(text))) == float(text)
    assert dumps(loads("-0.0")) == b"-0.0"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("{", "property name"),
        ("1 2", "Extra data"),
        ("NaN", "NaN is no number"),
        ('{"a":[-Infinity]}', "-Infinity is no number"),
        ("[1e]", "delimiter"),
        ("\ufeff1", "Expecting value"),
        (b'"\xff"', "invalid start byte"),
        (b'"\xed\xa0\x80"', "invalid continuation byte"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_not_json_is_refused_without_being_quoted(text: str | bytes, problem: str) -> None:
    with pytest.raises(JsonError, match=f"^args is not JSON: .*{problem}"):
        loads(text, "args")


def test_texts_and_names_of_members_are_made_well_formed() -> None:
    assert dumps({"\ud83d": "a\udca9b"}).decode() == '{"\ufffd":"a\ufffdb"}'
    assert dumps("\ud83d\ude00 \ude00\ud83d").decode() == '"\U0001f600 \ufffd\ufffd"'
    assert well_formed("äöü") == "äöü"
    with pytest.raises(JsonError, match="twice"):
        dumps({chr(0xD83D): 1, chr(0xD83E): 2})


class Pair(NamedTuple):
    a: int
    b: int


class Model(BaseModel):
    number: int = Field(alias="n")


def test_what_people_use_as_objects_and_lists_is_written() -> None:
    assert dumps(OrderedDict(a=(1, Pair(2, 3)))) == b'{"a":[1,[2,3]]}'
    assert dumps({"m": [Model(n=1)], "p": MappingProxyType({"x": None})}) == b'{"m":[{"n":1}],"p":{"x":null}}'


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [{"id": float("nan")}]}, "args.a[0].id is nan, which JSON doesn't have"),
        ([float("-inf")], "args[0] is -inf, which JSON doesn't have"),
        ({"a": {1: "x"}}, "args.a has the key 1, which isn't a string"),
        ({True: 1}, "args has the key True, which isn't a string"),
        ({"a": b"x"}, "args.a is of the type bytes, which JSON doesn't have"),
        ({"a": {1, 2}}, "args.a is of the type set, which JSON doesn't have"),
        (object, "args is of the type type, which JSON doesn't have"),
    ],
)
def test_a_value_without_a_json_form_is_refused_by_its_path(value: object, problem: str) -> None:
    with pytest.raises(JsonError) as raised:
        dumps(value, "args")
    assert str(raised.value) == problem


def test_values_nest_64_levels_and_do_not_contain_themselves() -> None:
    value: Any = 1
    for _ in range(64):
        value = [value]
    assert loads(dumps(value)) == value
    with pytest.raises(JsonError, match="is nested deeper than 64 levels"):
        dumps({"a": value})
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(JsonError, match="or contains itself"):
        dumps(circle)


def test_every_value_survives() -> None:
    chance = random.Random(1)

    def value(depth: int) -> Any:
        kind = chance.randrange(8 if depth > 0 else 6)
        if kind == 0:
            return chance.choice([None, True, False])
        if kind in (1, 2):
            return chance.randrange(-(10 ** chance.randrange(400)), 10 ** chance.randrange(1, 400))
        if kind == 3:
            return chance.uniform(-1, 1) * 10.0 ** chance.randrange(-300, 300)
        if kind in (4, 5):
            return "".join(
                chr(chance.choice([34, 92, 10, 65, 0xE9, 0x2028, 0x1F600])) for _ in range(chance.randrange(9))
            )
        size = range(chance.randrange(4))
        return [value(depth - 1) for _ in size] if kind == 6 else {str(it): value(depth - 1) for it in size}

    for _ in range(2000):
        one = value(4)
        assert loads(dumps(one)) == one == json.loads(dumps(one))
