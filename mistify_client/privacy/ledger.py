"""The ledger of a device's privacy budget: an append-only file that loses no record in a crash.

Every line is a record: the SHA-256 of the previous digest and of its own content, then the content as JSON.
The first record has the budget. A release is recorded, and the record flushed to disk, before the caller
may continue.

A crash can leave part of the last line, or zeros in its place. Its release did not happen, because `spend`
had not returned, so the remainder is removed. A complete record without a line end counts, because an editor
may have removed the line end. After any other damage, no further release is allowed.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import lock
from mistify.files.writing import sync_file, sync_path

__all__ = ["PrivacyLedger"]

#: Epsilons are stored in units of 10^-9.
_UNIT: Final = 10**9

_DIGEST_LETTERS: Final = 64


@dataclass(frozen=True)
class PrivacyLedger:
    """The ledger of one data set in a file, which is created on first use.

    Attributes:
        path: The ledger file. If it is deleted, the record of past releases is lost.
        budget: The maximum total epsilon over all releases; it cannot be changed later.
    """

    path: Path
    budget: Fraction

    def spent(self) -> Fraction:
        """Return the total epsilon of all releases so far, by sequential composition.

        Raises:
            MistifyError: PRIVACY_BUDGET, the ledger is damaged, or was created with another budget.
        """
        with self._locked() as file:
            return Fraction(sum(self._entries(file)), _UNIT)

    def spend(self, epsilon: Fraction, purpose: str) -> None:
        """Record a planned release, and return when the record is durable.

        Processes that share a ledger wait for each other.

        Args:
            epsilon: The release's epsilon, rounded up to multiples of 10^-9.
            purpose: The release's purpose, for the record and the message.

        Raises:
            MistifyError: PRIVACY_BUDGET, less than this is left, the ledger is damaged, or was created with
                another budget. Nothing may be released.
            ValueError: Epsilon is not above 0.
        """
        if epsilon <= 0:
            raise ValueError(f"got the epsilon {epsilon}; expected an epsilon above 0")
        units = -(-epsilon.numerator * _UNIT // epsilon.denominator)
        with self._locked() as file:
            left = self._budget_units() - sum(self._entries(file))
            if units > left:
                raise MistifyError(
                    ErrorCode.PRIVACY_BUDGET,
                    f"{purpose} needs an epsilon of {units / _UNIT:g}; {left / _UNIT:g} is left of the "
                    f"budget of {float(self.budget):g} for these data; nothing was released",
                )
            self._append(file, {"epsilon_billionths": units, "purpose": purpose})

    def _budget_units(self) -> int:
        return self.budget.numerator * _UNIT // self.budget.denominator

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open and lock the file, initialise it if it is empty, and repair it after a crash."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            lock(file)
            self._repair(file)
            if not os.fstat(file).st_size:
                self._append(file, {"budget_billionths": self._budget_units()})
                sync_path(self.path.parent)
            yield file
        finally:
            os.close(file)

    def _repair(self, file: int) -> None:
        """Remove an incomplete record after a crash; add the line end of a complete one."""
        content = _content(file)
        written = content.rstrip(b"\0")
        end = written.rfind(b"\n") + 1
        if end == len(content):
            return
        if _is_record(written[end:]):
            os.ftruncate(file, len(written))
            self._write(file, b"\n")
        else:
            os.ftruncate(file, end)
            sync_file(file)

    def _entries(self, file: int) -> Iterator[int]:
        """Verify each record, and yield the epsilon of its release in units of 10^-9."""
        before = ""
        for number, line in enumerate(_content(file).splitlines()):
            digest, content = line[:_DIGEST_LETTERS].decode(errors="replace"), line[_DIGEST_LETTERS + 1 :]
            if digest != _digest(before, content):
                raise self._refused(f"is damaged in line {number + 1}")
            record = json.loads(content)
            if number == 0 and record["budget_billionths"] != self._budget_units():
                raise self._refused(f"was created with the budget {record['budget_billionths'] / _UNIT:g}")
            if number > 0:
                yield record["epsilon_billionths"]
            before = digest

    def _append(self, file: int, record: dict[str, object]) -> None:
        lines = _content(file).splitlines()
        before = lines[-1][:_DIGEST_LETTERS].decode() if lines else ""
        content = json.dumps(record).encode()
        self._write(file, _digest(before, content).encode() + b" " + content + b"\n")

    def _write(self, file: int, data: bytes) -> None:
        """Append data, and return when they are on disk."""
        try:
            written = os.write(file, data)
            sync_file(file)
        except OSError as error:
            raise self._refused(f"cannot be written ({error.strerror})") from error
        if written < len(data):
            raise self._refused("cannot be written (the disk is full)")

    def _refused(self, reason: str) -> MistifyError:
        return MistifyError(
            ErrorCode.PRIVACY_BUDGET,
            f"the privacy ledger {self.path} {reason}; expected the one of these data and this budget "
            f"({float(self.budget):g}); nothing is released",
        )


def _is_record(line: bytes) -> bool:
    """Check whether a line is complete JSON, regardless of its digest."""
    try:
        json.loads(line[_DIGEST_LETTERS + 1 :])
    except (ValueError, RecursionError):
        return False
    return True


def _digest(before: str, content: bytes) -> str:
    return sha256(before.encode() + content).hexdigest()


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)
