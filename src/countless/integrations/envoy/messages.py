"""The messages of `envoy.service.ratelimit.v3` that the agent uses, with their numbers on the wire.

They are made here, because the packages that have all of Envoy's cost more than these lines: `xds-protos` overwrites
files of other packages, and with `envoy-data-plane` a request takes 70 times as long to read.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
OK, OVER_LIMIT = 1, 2
UNITS = {"minute": 2, "hour": 3, "day": 4, "month": 5, "week": 7}  # by the period of a budget; others have none
MAX_UINT32 = (1 << 32) - 1

_SCHEMA = {
    "RateLimitRequest": {1: "domain: string", 2: "descriptors: *Descriptor", 3: "hits_addend: uint32"},
    "Descriptor": {1: "entries: *Entry", 3: "hits_addend: UInt64Value", 4: "is_negative_hits: bool"},
    "Entry": {1: "key: string", 2: "value: string"},
    "UInt64Value": {1: "value: uint64"},
    "RateLimitResponse": {
        1: "overall_code: int32",
        2: "statuses: *Status",
        3: "response_headers_to_add: *Header",
        5: "raw_body: bytes",
    },
    "Status": {
        1: "code: int32",
        2: "current_limit: RateLimit",
        3: "limit_remaining: uint32",
        4: "duration_until_reset: Duration",
    },
    "RateLimit": {1: "requests_per_unit: uint32", 2: "unit: int32", 3: "name: string"},
    "Duration": {1: "seconds: int64"},
    "Header": {1: "key: string", 2: "value: string"},
}
_PACKAGE = "countless.envoy"  # not Envoy's own, of which a process has only one; it does not reach the wire


def _classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="countless/envoy.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _SCHEMA.items():
        described = file.message_type.add(name=message)
        for number, declared in fields.items():
            name, _, kind = declared.partition(": ")
            field = described.field.add(name=name, number=number, label=3 if kind.startswith("*") else 1)
            kind = kind.removeprefix("*")
            if kind in _SCHEMA:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _SCHEMA}


_MADE = _classes()
RateLimitRequest, RateLimitResponse = _MADE["RateLimitRequest"], _MADE["RateLimitResponse"]
