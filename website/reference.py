"""The reference, made from the code: every registered object, every command, every public name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from html import escape
from importlib import import_module
from pkgutil import walk_packages
from textwrap import fill
from typing import Any

import fedalpha
from fedalpha.analysis.registered import Table
from fedalpha.cli.kinds import KINDS
from fedalpha.text import Entry
from website.docstrings import markdown


def packages() -> list[str]:
    """Every package with an ``__all__``, the whole one first; the page of each shows all of it."""
    found = [fedalpha.__name__, *(m.name for m in walk_packages(fedalpha.__path__, "fedalpha.") if m.ispkg)]
    return [name for name in found if hasattr(import_module(name), "__all__")]


def pages() -> dict[str, str]:
    """The generated pages, in the order of the navigation."""
    found = {"reference/index.md": _index(), "reference/command-line.md": _commands()}
    found |= {page_of(kind): _kind(kind) for kind in KINDS}
    return found | {f"reference/api/{package}.md": _package(package) for package in packages()}


def _index() -> str:
    kinds = "\n".join(
        f"| [{kind}]({page_of(kind).rpartition('/')[2]}) | {use_of(kind)} | {_listed(names(kind))} |" for kind in KINDS
    )
    shown = "\n".join(f"| [`{p}`](api/{p}.md) | {_first(inspect.getdoc(import_module(p)) or '')} |" for p in packages())
    return (
        "# Reference\n\nMade from the code when the site is built. `fedalpha list` shows the registered objects in a "
        "terminal, also those of your own plugins (`--plugin`).\n\n"
        "## Registered objects\n\nEach of them can be written as text: on the command line, in TOML files and in "
        "Python.\n\n"
        f"| kind | used as | objects |\n|---|---|---|\n{kinds}\n\n"
        f"## Command line\n\n[All commands](command-line.md) with their options.\n\n"
        f"## Python\n\n| package | what it holds |\n|---|---|\n{shown}\n"
    )


def _listed(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def page_of(kind: str) -> str:
    """The page of a kind."""
    return f"reference/{kind.replace(' ', '-')}.md"


def use_of(kind: str) -> str:
    """Where a kind of object is named."""
    return f"`{KINDS[kind][2]}`"


def names(kind: str) -> list[str]:
    """The registered names of a kind."""
    return [entry.name for entry in _own(kind)]


def _own(kind: str) -> list[Any]:
    """What the package registers; plugins and benchmarks of this process may have added more."""
    return [found for found in _registry(kind) if getattr(found, "make", found).__module__.startswith("fedalpha.")]


def _registry(kind: str) -> Any:
    module, registry, _ = KINDS[kind]
    return getattr(import_module(module), registry)


def _kind(kind: str) -> str:
    registry = _registry(kind)
    package = getattr(registry, "package", None) or getattr(registry, "_package", None)
    about = inspect.getdoc(import_module(package)) or "" if package else ""
    draw = _column if isinstance(registry, Table) else _entry
    texts = [draw(found, KINDS[kind][2]) for found in _own(kind)]
    return f"# {kind.capitalize()}\n\n{markdown(about)}\n\nUsed as {use_of(kind)}.\n\n" + "\n".join(texts)


def _entry(entry: Entry[Any], use: str) -> str:
    make = entry.make
    signature = fill(entry.signature, 88, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    text = [f"## {entry.name}\n", f"```text\n{signature}\n```\n"]
    if entry.formula:
        text.append(f"**Formula:** `{entry.formula}`\n")
    text.append(markdown(inspect.getdoc(make) or "") + "\n")
    text += _arguments(make)
    if entry.reference:
        text.append(f"**Reference:** {entry.reference}\n")
    examples = ", ".join(f"`{_written(use, example)}`" for example in entry.examples)
    text.append(f"**Example{'s' if len(entry.examples) > 1 else ''}:** {examples}\n")
    text.append(f"Source: `{make.__module__.replace('.', '/')}.py`\n")
    return "\n".join(text)


def _written(use: str, example: str) -> str:
    return f'{use} "{example}"' if use.startswith("--") else f"{use} {example}".strip()


def _arguments(make: Any) -> list[str]:
    """The arguments with their types and defaults."""
    try:
        given = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return []
    rows = []
    for p in given:
        kind = p.annotation if isinstance(p.annotation, str) else getattr(p.annotation, "__name__", str(p.annotation))
        shown = "" if p.annotation is p.empty else _code(kind)
        default = "required" if p.default is p.empty else _code(repr(p.default))
        rows.append(f"| `{p.name}` | {shown} | {default if p.kind is not p.VAR_POSITIONAL else 'any number'} |")
    return ["| argument | type | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"] if rows else []


def _column(cls: Any, use: str) -> str:
    text = [f"## {cls.name}\n", markdown(inspect.getdoc(cls) or "") + "\n"]
    heading = getattr(cls, "heading", "")
    if heading and isinstance(heading, str):
        text.append(f"**In tables:** {heading}\n")
    examples = cls.examples() if hasattr(cls, "examples") else ()
    shown = ", ".join(repr(e) for e in examples)
    text.append(f"**Example:** `{use} [{shown}]`\n" if examples else f'**Example:** `history.rows[-1]["{cls.name}"]`\n')
    text.append(f"Source: `{cls.__module__.replace('.', '/')}.py`\n")
    return "\n".join(text)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its name, subcommands as ``data get``."""
    import typer.main

    from fedalpha.cli import app

    def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        for sub, found in getattr(command, "commands", {}).items():
            yield from walk(found, f"{name} {sub}".strip())
        if not hasattr(command, "commands"):
            yield name, command

    return walk(typer.main.get_command(app), "")


def _commands() -> str:
    text = [
        "# Command line\n",
        "`fedalpha COMMAND --help` shows the same. The exit code is 2 for wrong input, 1 for a failure and 130 for "
        "Ctrl-C.\n",
    ]
    for name, command in commands():
        text.append(f"## fedalpha {name}\n\n{markdown(inspect.cleandoc(command.help or ''))}\n")
        rows = []
        for p in command.params:
            if p.name == "help":
                continue
            flags = ", ".join(f"`{o}`" for o in (*p.opts, *p.secondary_opts)) if p.param_type_name == "option" else ""
            said = getattr(p, "help", "") or ""
            default = p.default
            default = "" if callable(default) or default in (None, False, (), []) else str(default)
            takes = "" if getattr(p, "is_flag", False) else p.type.name.removesuffix(" range").replace("|", "\\|")
            rows.append(
                f"| {flags or f'`{p.human_readable_name}`'} | {takes} | {_cell(said)} | "
                f"{_code(default) if default else ''} |"
            )
        if rows:
            text.append("| option | takes | meaning | default |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    """Code in a cell. In backticks the backslash of an escaped | would be shown."""
    return f"<code>{escape(text).replace('|', '&#124;')}</code>" if "|" in text else f"`{_cell(text)}`"


def _package(package: str) -> str:
    module = import_module(package)
    about = markdown(inspect.getdoc(module) or "")
    shown = [name for name in module.__all__ if not name.startswith("__")]
    blocks = "\n\n".join(f"::: {package}.{name}\n    options:\n      heading_level: 2" for name in shown)
    return f"# {package}\n\n{about}\n\n{blocks}\n"


def _first(text: str) -> str:
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
