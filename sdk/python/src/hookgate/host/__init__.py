"""The gateway's services as a plugin uses them: storage, log and events.

`Context` and `Host` give access to them. All names can be imported from `hookgate` too.
"""

from hookgate.host._entry import CounterEntry, Entry, Page, ValueEntry
from hookgate.host._errors import HostError, HostErrorKind
from hookgate.host._event import EventSeverity
from hookgate.host._host import Host
from hookgate.host._key import key_part
from hookgate.host._log import Log
from hookgate.host._operation import (
    Add,
    AddResult,
    Delete,
    DeleteResult,
    Operation,
    OperationResult,
    Put,
    PutResult,
    TransactResult,
)
from hookgate.host._period import Period
from hookgate.host._record import Attributes
from hookgate.host._storage import Storage

__all__ = [
    "Add",
    "AddResult",
    "Attributes",
    "CounterEntry",
    "Delete",
    "DeleteResult",
    "Entry",
    "EventSeverity",
    "Host",
    "HostError",
    "HostErrorKind",
    "Log",
    "Operation",
    "OperationResult",
    "Page",
    "Period",
    "Put",
    "PutResult",
    "Storage",
    "TransactResult",
    "ValueEntry",
    "key_part",
]
