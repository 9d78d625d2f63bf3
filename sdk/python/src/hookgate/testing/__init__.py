"""Test plugins without a gateway and without a socket, with any test runner.

`TestPlugin` calls a plugin as a gateway does. `TestHost` is the gateway's storage, log and events, in memory.
"""

from hookgate.testing._call_error import CallError
from hookgate.testing._records import EmittedEvent, LogLine
from hookgate.testing._replies import ProvidedTool
from hookgate.testing._test_host import TestHost
from hookgate.testing._test_plugin import Config, TestPlugin
from hookgate.testing._windows import WindowedResponse

__all__ = [
    "CallError",
    "Config",
    "EmittedEvent",
    "LogLine",
    "ProvidedTool",
    "TestHost",
    "TestPlugin",
    "WindowedResponse",
]
