"""A JSON object that is read field by field, with errors that say where it stands."""

import json
from dataclasses import dataclass
from typing import Any, TypeVar

NUMBER_MAX = 1 << 62  # nanoseconds, bytes, counts, rates: measured values are far below
T = TypeVar("T")


class RecordError(ValueError):
    """A file is no record; the message has its name, and the expected form."""


@dataclass(frozen=True)
class Node:
    """A JSON object with its place in the file, for error messages."""

    fields: dict[str, Any]
    where: str

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """@throws RecordError  the field is missing and has no default, or is of another kind"""
        value = self.fields.get(name, default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) < NUMBER_MAX else value
        if not isinstance(value, kind) or (kind in (int, float) and not is_number(value)):
            found = "nothing" if name not in self.fields else json.dumps(value)[:40]
            raise RecordError(f"{self.where}: expected {_kind(kind)} in `{name}`, found {found}")
        return value

    def count(self, name: str, least: int = 0) -> int:
        value = self.get(name, int)
        if value < least:
            raise RecordError(f"{self.where}: expected {least} or more in `{name}`, found {value}")
        return value

    def present(self, name: str) -> None:
        """@throws RecordError  the field is missing"""
        if name not in self.fields:
            raise RecordError(f"{self.where}: expected something in `{name}`, found nothing")

    def child(self, name: str) -> "Node":
        return Node(self.get(name, dict), f"{self.where}: {name}")

    def children(self, name: str) -> list["Node"]:
        found = []
        for number, value in enumerate(self.get(name, list)):
            where = f"{self.where}: {name}[{number}]"
            if not isinstance(value, dict):
                raise RecordError(f"{where}: expected an object, found {json.dumps(value)[:40]}")
            found.append(Node(value, where))
        return found

    def numbers(self, name: str, default: list[float] | None = None) -> tuple[float, ...]:
        """@return the finite numbers: JSON has null for the others"""
        values = [value for value in self.get(name, list, default) if value is not None]
        if not all(map(is_number, values)):
            raise RecordError(f"{self.where}: expected numbers in `{name}`")
        return tuple(map(float, values))

    def runs(self, name: str) -> tuple[float | None, ...]:
        """@return numbers, and None for a run without one"""
        values = self.get(name, list)
        if not all(value is None or is_number(value) for value in values):
            raise RecordError(f"{self.where}: expected numbers in `{name}`")
        return tuple(None if value is None else float(value) for value in values)

    def texts(self, name: str) -> dict[str, str]:
        return {key: str(value) for key, value in self.get(name, dict).items()}


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < NUMBER_MAX  # NaN is not below


def _kind(kind: type) -> str:
    return {dict: "an object", list: "a list", str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[kind]
