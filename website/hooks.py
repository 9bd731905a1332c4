"""What MkDocs calls while it builds the site (``hooks`` in mkdocs.yml)."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parents[1]))

from website import extending, notebooks, reference, stored
from website.files import BESIDE, ROOT, as_on_a_host, linked

_GENERATED: dict[str, str] = {}
_SOURCES = {page: source for source, page in BESIDE.items()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: generated pages, and pages of ``docs`` that it does not name."""
    _GENERATED.clear()
    for make in (extending.pages, reference.pages, stored.pages, notebooks.pages):
        _GENERATED.update(make())
    nav: list[dict[str, Any]] = config.nav or []
    by_name = {name: entries for section in nav for name, entries in section.items()}
    by_name["Extending"] += _below(f"{extending.FOLDER}/")
    by_name["Tutorial"] += [{"Notebooks": ["tutorial/notebooks.md", *_below("tutorial/")]}]
    python = [{page.split("/")[-1].removesuffix(".md"): page} for page in _below("reference/api/")]
    by_name["Reference"] += [p for p in _below("reference/") if "/api/" not in p]
    by_name["Reference"] += [{"Python": python}]
    known = set(_named(nav))
    docs = Path(config.docs_dir)
    unnamed = sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))
    by_name["Concepts"] += [p for p in unnamed if p not in known and not p.startswith("results/")]
    return config


def _below(folder: str) -> list[str]:
    return [page for page in _GENERATED if page.startswith(folder)]


def _named(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in _named(part)]


def on_files(found: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code and from files beside ``docs``."""
    for page, text in _GENERATED.items():
        found.append(File.generated(config, page, content=text))
    for page, content in notebooks.pictures().items():
        found.append(File.generated(config, page, content=content))
    for source, page in BESIDE.items():
        if (ROOT / source).is_file():
            found.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return found


_CODE = re.compile(r"<(pre|code|script|style)\b.*?</\1>|<[^>]+>", re.DOTALL)
_VALUE = re.compile(r"([−-]?\d(?:[\d.,]*\d)?) ±\u00a0(\d(?:[\d.,]*\d)?)")
_NUMBER = re.compile(r"(?<=\d) (?=%)|(?<=±) (?=\d)|(?<=[≥≤]) (?=\d)|(?<=&lt;) (?=\d)|(?<=&gt;) (?=\d)")


def on_page_content(html: str, **_: Any) -> str:
    """Keep "95 %" and "88.97 ± 2.90" in one piece; code stays as it is, because readers copy it."""
    found, end = [], 0
    for code in _CODE.finditer(html):
        found += [_joined(html[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*found, _joined(html[end:])])


def _joined(text: str) -> str:
    return _VALUE.sub('<span class="value">\\1 ±\u00a0\\2</span>', _NUMBER.sub("\u00a0", text))


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages, and lists into Python-Markdown's."""
    uri = page.file.src_uri
    source = _SOURCES.get(uri, posixpath.join("docs", uri))
    if uri == "extending.md":
        markdown = extending.overview(markdown)
    elif uri in _GENERATED and uri.startswith(f"{extending.FOLDER}/"):
        source, markdown = "docs/extending.md", markdown.replace("](#", "](extending.md#")
    elif uri in _GENERATED:
        source = f"notebooks/{posixpath.basename(uri)}" if uri.startswith("tutorial/") else source
        return linked(markdown, source, uri) if uri.startswith("tutorial/") else markdown
    return as_on_a_host(linked(markdown, source, uri))
