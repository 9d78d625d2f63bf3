"""Makes the helpers of this folder importable in every test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from support.agents import Kind
from support.fake_gateway import FakeGateway


@pytest.fixture(params=["async", "blocking"])
def agent_kind(request: pytest.FixtureRequest) -> Kind:
    return cast("Kind", request.param)


@pytest.fixture
def fake_gateway() -> Iterator[FakeGateway]:
    gateway = FakeGateway()
    yield gateway
    gateway.stop()
