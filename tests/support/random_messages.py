"""Random messages of the protocol, made from its descriptions, and bytes that are none."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

#: Values of the fields with a name that a server knows, such as the id of a job.
Known = Mapping[str, st.SearchStrategy[Any]]

_TEXTS = ["", "a", "\0", "é🙂", " ", "%", "*" * 20, "../..", "0" * 64, "a" * 5_000, "tag:a", "branch-0", "-1"]
_INTEGERS = [0, 1, -1, 3, 64, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]

_SCALARS: Mapping[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: st.sampled_from(_TEXTS) | st.text(st.characters(codec="utf-8"), max_size=9),
    FieldDescriptor.TYPE_BYTES: st.sampled_from([b"", bytes(32), bytes(70_000)]) | st.binary(max_size=40),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_ENUM: st.integers(-1, 5) | st.just(2**31 - 1),
}


def messages(kind: Descriptor, known: Known) -> st.SearchStrategy[Message]:
    """Return messages of a kind with any of its fields."""
    fields = {field.name: _values(field, known) for field in kind.fields}
    make = GetMessageClass(kind)
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: make(**values))


@st.composite
def requests(draw: st.DrawFn, kind: Descriptor, known: Known) -> bytes:
    """Return the bytes of a message, the same with a few changed bytes, or random ones."""
    if draw(st.integers(0, 7)) == 0:
        return draw(st.binary(max_size=40))
    content = bytearray(draw(messages(kind, known)).SerializeToString())
    if content and draw(st.integers(0, 3)) == 0:
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
        del content[draw(st.integers(0, len(content))) :]
    return bytes(content)


def _values(field: FieldDescriptor, known: Known) -> st.SearchStrategy[Any]:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = (_values(each, known) for each in kind.fields)
        return st.dictionaries(key, value, max_size=3)
    single = _scalars(field, known) if kind is None else st.deferred(lambda: messages(kind, known))
    return st.lists(single, max_size=3) if field.is_repeated else single


def _scalars(field: FieldDescriptor, known: Known) -> st.SearchStrategy[Any]:
    any_value = _of_type(field)
    return known[field.name] | any_value if field.name in known else any_value


def _of_type(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type in _SCALARS:
        return _SCALARS[field.type]
    is_signed = field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
    is_short = field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
    bits = (32 if is_short else 64) - is_signed
    least, most = (-(2**bits) if is_signed else 0), 2**bits - 1
    return st.integers(0, 9) | st.sampled_from([each for each in _INTEGERS if least <= each <= most])
