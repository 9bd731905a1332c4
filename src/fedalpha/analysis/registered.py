"""A table of classes of one kind: a file each in one package, imported when the table is first read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Generic, Protocol, TypeVar

from fedalpha.text import import_all


class Named(Protocol):
    """What a table holds: classes with a name and a place among the others."""

    name: ClassVar[str]
    order: ClassVar[int]


N = TypeVar("N", bound=Named)


class Table(Generic[N]):
    """Classes by name, sorted by ``order`` and name.

    A file in the table's package, or a user's plugin, adds a class with ``@TABLE.register``.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._classes: dict[str, type[N]] = {}
        self._complete = False

    def register(self, cls: type[N]) -> type[N]:
        """Add a class; its name must be new, and the class attributes that its kind needs must be there."""
        for attribute in getattr(cls, "needed", ("name",)):
            if not isinstance(getattr(cls, attribute, None), str):
                raise TypeError(
                    f'the {self.kind} {cls.__name__} has no {attribute}; write {attribute} = "…" in the class'
                )
        inside = cls.__module__.startswith(f"{self.package}.")
        if cls.name in (self._classes if inside else [known.name for known in self]):
            raise ValueError(f"the {self.kind} {cls.name!r} is registered already; choose another name")
        self._classes[cls.name] = cls
        return cls

    def __iter__(self) -> Iterator[type[N]]:
        if not self._complete:
            import_all(self.package)
            self._complete = True
        return iter(sorted(self._classes.values(), key=lambda cls: (cls.order, cls.name)))
