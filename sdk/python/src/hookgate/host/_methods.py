"""The methods of the gateway's services (`host.proto`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from hookgate._proto import host_pb2 as pb

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True)
class UnaryMethod(Generic[Q, A]):
    """A method that is called with one message and answers one."""

    service: str
    name: str
    request: type[Q]
    answer: type[A]
    is_write: bool = False
    """Whether it changes something, so that its outcome may be unknown."""

    @property
    def path(self) -> str:
        """As in HTTP/2."""
        return f"/hookgate.host.v1.{self.service}/{self.name}"


_STORAGE: Final = "StorageService"

GET: Final = UnaryMethod(_STORAGE, "Get", pb.GetRequest, pb.GetResponse)
GET_MANY: Final = UnaryMethod(_STORAGE, "GetMany", pb.GetManyRequest, pb.GetManyResponse)
LIST: Final = UnaryMethod(_STORAGE, "List", pb.ListRequest, pb.ListResponse)
PUT: Final = UnaryMethod(_STORAGE, "Put", pb.PutRequest, pb.PutResponse, is_write=True)
DELETE: Final = UnaryMethod(_STORAGE, "Delete", pb.DeleteRequest, pb.DeleteResponse, is_write=True)
ADD: Final = UnaryMethod(_STORAGE, "Add", pb.AddRequest, pb.AddResponse, is_write=True)
TRANSACT: Final = UnaryMethod(_STORAGE, "Transact", pb.TransactRequest, pb.TransactResponse, is_write=True)
WRITE_LOG: Final = UnaryMethod("LogService", "WriteLog", pb.WriteLogRequest, pb.WriteLogResponse)
EMIT_EVENT: Final = UnaryMethod("EventService", "EmitEvent", pb.EmitEventRequest, pb.EmitEventResponse)
RENEW_TOKEN: Final = UnaryMethod("TokenService", "RenewToken", pb.RenewTokenRequest, pb.RenewTokenResponse)
