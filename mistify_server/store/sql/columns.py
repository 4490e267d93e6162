"""Column types and SQL expressions with the same meaning in SQLite and PostgreSQL."""

import re
from collections.abc import Collection
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Dialect,
    Float,
    Integer,
    String,
    Text,
    literal,
    literal_column,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine
from typing_extensions import override

#: The null character in JSON, after any number of escaped backslashes.
_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def json_text(value: object) -> str:
    """Return a value as JSON, with infinite numbers as `Infinity`."""
    return to_json(value, inf_nan_mode="constants").decode()


class _JsonText(TypeDecorator[Any]):
    """JSON as text, as in SQLite: PostgreSQL's own type has no infinite numbers.

    PostgreSQL reads no member of an object with a null character, not even of another member.
    """

    impl = Text
    cache_ok = True

    @override
    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        text = json_text(value)
        # The expression looks at each character: a plain search takes a hundredth of its time.
        return _NUL.sub(r"\1\\ufffd", text) if r"\u0000" in text else text

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else from_json(value)


#: JSON as text.
JSON_COLUMN: Final[TypeEngine[Any]] = JSON().with_variant(_JsonText(), "postgresql")

#: 64 bits, as in SQLite.
INTEGER_COLUMN: Final[TypeEngine[int]] = Integer().with_variant(BigInteger(), "postgresql")

#: Text in the order of its code points, as in SQLite, whatever the locale of the database.
TEXT_COLUMN: Final[TypeEngine[str]] = String().with_variant(String(collation="C"), "postgresql")


class Casefolded(FunctionElement[str]):
    """A text without its differences of case, for comparisons with others."""

    name = "casefolded"
    type = String()
    inherit_cache = True


@compiles(Casefolded, "sqlite")
def _casefold(element: Casefolded, compiler: SQLCompiler, **options: Any) -> str:
    return f"casefold({compiler.process(element.clauses, **options)})"


@compiles(Casefolded, "postgresql")
def _lower(element: Casefolded, compiler: SQLCompiler, **options: Any) -> str:
    return f'lower(({compiler.process(element.clauses, **options)}) COLLATE "und-x-icu")'


class Position(FunctionElement[int]):
    """The position of the second text in the first, from 1; 0 if it is not contained."""

    name = "position_of"
    type = Integer()
    inherit_cache = True


@compiles(Position, "sqlite")
def _instr(element: Position, compiler: SQLCompiler, **options: Any) -> str:
    return f"instr({compiler.process(element.clauses, **options)})"


@compiles(Position, "postgresql")
def _strpos(element: Position, compiler: SQLCompiler, **options: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **options)})"


class DatabaseClock(FunctionElement[float]):
    """The time by the clock of the database, in seconds since 1970, also within a transaction."""

    name = "database_clock"
    type = Float()
    inherit_cache = True


@compiles(DatabaseClock, "sqlite")
def _julian_day(element: DatabaseClock, compiler: SQLCompiler, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(DatabaseClock, "postgresql")
def _clock_timestamp(element: DatabaseClock, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


class JsonElements(FunctionElement[Any]):
    """The texts in a JSON list, as rows with the column `value`."""

    name = "json_elements"
    inherit_cache = True


@compiles(JsonElements, "sqlite")
def _json_each(element: JsonElements, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(JsonElements, "postgresql")
def _json_array_elements(element: JsonElements, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_array_elements_text(({compiler.process(element.clauses, **options)})::json)"


def is_one_of(text: Any, others: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a text is one of others.

    They are one parameter of the statement, because databases limit the number of parameters.
    """
    listed = JsonElements(literal(list(others), JSON_COLUMN)).table_valued("value")
    condition: ColumnElement[bool] = text.in_(select(listed.c.value))
    return condition


class _JsonMember(FunctionElement[Any]):
    name = "json_member"
    type = JSON_COLUMN
    inherit_cache = True


@compiles(_JsonMember, "sqlite")
def _json_extract(element: _JsonMember, compiler: SQLCompiler, **options: Any) -> str:
    column, *keys = (compiler.process(clause, **options) for clause in element.clauses)
    path = " || '.' || ".join(["'$'", *keys])
    return f"json_quote(json_extract({column}, {path}))"


@compiles(_JsonMember, "postgresql")
def _json_arrow(element: _JsonMember, compiler: SQLCompiler, **options: Any) -> str:
    column, *keys = (compiler.process(clause, **options) for clause in element.clauses)
    return f"(({column})::json -> {' -> '.join(keys)})::text"


def json_member(column: Any, *keys: str) -> ColumnElement[Any]:
    """Return the value at nested keys of a JSON object, without reading the rest; None if there is none.

    Args:
        keys: Plain names, which become part of the statement.
    """
    return _JsonMember(column, *(literal_column(f"'{key}'") for key in keys))
