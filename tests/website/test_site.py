"""The site: it builds strictly, links lead somewhere, nothing comes from the network, nothing public is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

from fedalpha.cli.kinds import KINDS
from report.chromium import PROGRAM, Chromium
from website.docstrings import markdown
from website.files import as_on_a_host, linked
from website.hooks import on_page_content
from website.reference import commands, names, packages, page_of

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """The anchors, the links and the loaded resources of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("img", "script", "iframe", "source") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") not in ("next", "prev", "canonical"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def found(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


def test_every_internal_link_leads_somewhere(site: Path, found: dict[Path, Page]) -> None:
    broken = []
    for path, page in found.items():
        for target in [*page.links, *page.loaded]:
            if re.match(r"[a-z]+:|//|/", target) or path.name == "404.html":
                continue
            place, _, anchor = target.partition("#")
            file = path if not place else (path.parent / unquote(place.partition("?")[0])).resolve()
            file = file / "index.html" if file.is_dir() else file
            if not file.exists() or (anchor and file in found and unquote(anchor) not in found[file].ids):
                broken.append(f"{path.relative_to(site)}: {target}")
    assert broken == []


def test_nothing_is_loaded_from_the_network(site: Path, found: dict[Path, Page]) -> None:
    assert [url for page in found.values() for url in page.loaded if re.match(r"(https?:)?//", url)] == []
    for style in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//[^)]*", style.read_text()) == []
    assert "fonts.googleapis" not in "".join(path.read_text() for path in found)


def test_every_page_is_in_the_navigation(site: Path, found: dict[Path, Page]) -> None:
    start = found[site / "index.html"]
    named = {(site / link.partition("#")[0]).resolve() for link in start.links if not re.match(r"[a-z]+:", link)}
    own = {path for path in found if "results" not in path.parts[len(site.parts) : -1]} - {site / "404.html"}
    assert {str(path.relative_to(site)) for path in own - named} == set()


@pytest.mark.parametrize("kind", KINDS)
def test_every_registered_object_is_shown(site: Path, found: dict[Path, Page], kind: str) -> None:
    page = site / page_of(kind).replace(".md", ".html")
    text = page.read_text()
    assert {name.lower() for name in names(kind)} <= found[page].ids
    assert text.count("<strong>Example") == len(names(kind))
    module, registry, _ = KINDS[kind]
    entries = [
        entry
        for entry in getattr(import_module(module), registry)
        if entry.name in names(kind) and hasattr(entry, "formula")
    ]
    assert text.count("<strong>Formula:") == sum(bool(entry.formula) for entry in entries)
    assert text.count("<strong>Reference:") == sum(bool(entry.reference) for entry in entries)


def test_every_public_name_is_shown(site: Path, found: dict[Path, Page]) -> None:
    for package in packages():
        page = found[site / "reference" / "api" / f"{package}.html"]
        shown = {anchor.rpartition(".")[2] for anchor in page.ids}
        public = {name for name in import_module(package).__all__ if not name.startswith("__")}
        assert public - shown == set(), package


def test_every_option_of_every_command_is_shown(site: Path) -> None:
    text = (site / "reference" / "command-line.html").read_text()
    for name, command in commands():
        assert f"fedalpha {name}<" in text
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert f"<code>{parameter.opts[0]}</code>" in text, (name, parameter.name)


def test_the_first_pages_table_is_the_stored_one() -> None:
    stored = json.loads((ROOT / "docs" / "results" / "demo" / "comparison.json").read_text())["table"]
    for page in ("README.md", "docs/index.md"):
        rows = re.findall(r"^\| ((?:Fed|switch).*?) \| (.*?) \| (.*?) \| (.*?) \|$", (ROOT / page).read_text(), re.M)
        assert [tuple(cell.replace("−", "-") for cell in row) for row in rows] == [
            (line["strategy"], line["accuracy_text"], line["rounds_text"], line["difference_text"]) for line in stored
        ], page


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium here; install it with: apt-get install chromium")
def test_a_browser_reads_and_searches_the_site_from_the_disk(site: Path) -> None:
    with Chromium(390, 844) as browser:
        browser.resize(390, 844, mobile=True)
        for page in ("reference/strategies.html", "tutorial/first_look.html"):
            browser.open((site / page).as_uri())
            assert browser.value("document.documentElement.scrollWidth") <= 390, page
        browser.resize(1280, 900)
        browser.open((site / "index.html").as_uri())
        browser.value("document.querySelector('[data-md-component=search-query]').focus()")
        browser.call("Input.insertText", text="patience")
        browser.wait("document.querySelectorAll('.md-search-result__item').length > 0")
        assert browser.errors == []
        assert all(url.startswith(("file:", "data:", "blob:")) for url in browser.requests)


def test_tests_that_pages_name_exist() -> None:
    defined = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    for page in ROOT.glob("docs/**/*.md"):
        named = set(re.findall(r"`(test_\w+_\w+)`", page.read_text()))
        assert named <= defined, page


def test_links_between_files_become_links_between_pages() -> None:
    text = "[a](../SECURITY.md#x) [`b`](../src/fedalpha/rng.py) [c](results/demo) `[d](../SECURITY.md)` [e](gone.md)"
    made = linked(text, "docs/round.md", "round.md")
    assert made.startswith("[a](project/security.md#x) `b` [c](results/stored.md#demo)")
    assert made.endswith("[e](gone.md)")


def test_lists_of_code_hosts_are_understood() -> None:
    assert (
        as_on_a_host("text\n- a\n  b\n\n  ```sh\n  c\n  ```\nd") == "text\n\n- a\n    b\n\n    ```sh\n    c\n    ```\nd"
    )


def test_numbers_stay_in_one_piece_and_code_as_it_is() -> None:
    code = "<code>95 % of 1 ± 2</code></p><pre>1 ± 2 <b>3 %</b></pre>"
    joined = '<p>95\u00a0% of <span class="value">88.97 ±\u00a02.90</span>, p &lt;\u00a00.001 '
    assert on_page_content(f"<p>95 % of 88.97 ± 2.90, p &lt; 0.001 {code}") == joined + code


def test_docstrings_become_markdown() -> None:
    assert markdown("A::\n\n    x = 1\n\n>>> 1\n1\n\nEnd.") == (
        "A:\n\n```text\nx = 1\n```\n\n```pycon\n>>> 1\n1\n```\n\nEnd."
    )
