"""Tests in this folder need the gateway's binary. The others run without it."""

from __future__ import annotations

import os

import pytest
from support.gateway import HOOKGATE


@pytest.fixture(scope="session", autouse=True)
def binary() -> None:
    if not os.access(HOOKGATE, os.X_OK):
        pytest.fail(f"there is no gateway at {HOOKGATE}: build it with `cargo build`, or name it in HOOKGATE_BIN")
