"""The live page and what other sites, other machines and other processes send to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedalpha.report import live_server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "run"
    place.mkdir()
    (place / "history.jsonl").write_text(json.dumps({"round": 0, "accuracy": 0.5}) + "\n")
    (place / "config.json").write_text(json.dumps({"strategy": "FedAvg"}))
    return place


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    server = live_server(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


def asked(port: int, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{port}", **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    reply = connection.getresponse()
    found = reply.status, reply.headers, reply.read().decode()
    connection.close()
    return found


def test_only_this_machine_under_its_own_name_is_answered(port: int) -> None:
    status, headers, text = asked(port)
    assert (status, headers["X-Content-Type-Options"], headers["Cache-Control"]) == (200, "nosniff", "no-store")
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers
    assert "default-src 'none'" in text
    assert asked(port, Host="localhost")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "[::1]"):  # DNS rebinding
        assert asked(port, Host=host)[0] == 403
    for site in ("cross-site", "same-site"):  # a page elsewhere, or on another port of this machine
        assert asked(port, Sec_Fetch_Site=site)[0] == 403


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/config.json", "http://evil/", "/data.json"],
)
def test_no_other_path_is_served(port: int, path: str) -> None:
    assert asked(port, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_but_reading(port: int, method: str) -> None:
    assert asked(port, method=method)[0] == 501


def test_slow_and_broken_clients_keep_nobody_waiting(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    for client in silent:
        client.send(b"GET / HTTP/1.1\r\nHost: local")
    for request in (b"\x00\x1b]52;c;\x07\r\n\r\n", b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close with a reset
            rude.send(request)
    assert asked(port)[0] == 200
    for client in silent:
        client.close()
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_goes_away_is_an_answer_of_its_own(
    port: int, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder.rename(folder.with_name("<b>"))
    status, _, text = asked(port)
    assert status == 503
    assert "<b>" not in text
    (folder.with_name("<b>") / "history.jsonl").write_text("[]\n")
    folder.with_name("<b>").rename(folder)
    assert asked(port)[0] == 503
    assert capfd.readouterr() == ("", "")
