"""The gateway's services as a plugin uses them: storage, log and events.

`Context` and `Host` give access to them. For the SDK itself: an instance of a plugin has one `HostLinks`, made in the
event loop, with an offer of each gateway that initialized it; a call's services are those of a `HostClient`:

    links = HostLinks()
    links.add(HostOffer(gateway_instance_id, host_endpoint, host_token))  # at each Initialize
    host = Host(links, capabilities, max_payload_bytes)                   # for `initialize`
    client = HostClient(links, CallAccess(call.host_token, deadline, forwarded))
    Storage(client), Log(client), emit(client, name, message, attributes, severity=severity)
    links.remove(gateway_instance_id)                                     # a gateway releases the instance
    links.close()                                                         # the last one does, after `shutdown`
    await links.settled()                                                 # before the process ends
"""

from hookgate.host._client import CallAccess, HostClient
from hookgate.host._entry import CounterEntry, Entry, Page, ValueEntry
from hookgate.host._errors import HostError, HostErrorKind
from hookgate.host._event import EventSeverity, emit
from hookgate.host._host import Host
from hookgate.host._key import key_part
from hookgate.host._links import HostLink, HostLinks, HostOffer
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
from hookgate.host._period import Period, period_ms
from hookgate.host._record import Attributes
from hookgate.host._storage import Storage

__all__ = [
    "Add",
    "AddResult",
    "Attributes",
    "CallAccess",
    "CounterEntry",
    "Delete",
    "DeleteResult",
    "Entry",
    "EventSeverity",
    "Host",
    "HostClient",
    "HostError",
    "HostErrorKind",
    "HostLink",
    "HostLinks",
    "HostOffer",
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
    "emit",
    "key_part",
    "period_ms",
]
