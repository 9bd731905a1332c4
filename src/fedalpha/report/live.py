"""A page that follows a study or a run while it runs, served on loopback only."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedalpha.loopback import LOOPBACK, asked_here
from fedalpha.report.content import content
from fedalpha.report.findings import gather
from fedalpha.report.single import is_run, run_page
from fedalpha.report.write import html
from fedalpha.study import status
from fedalpha.text import plain


def live_data(folder: Path) -> dict[str, Any]:
    """The page's current data, with the running cells."""
    now = status(folder)
    running = "; ".join(f"{r['label']} (round {r['round']}/{r['rounds']})" for r in now.running)
    left = "" if now.seconds_left is None or now.done == now.total else f", about {now.seconds_left / 60:.0f} min left"
    state = f"running: {running}" if running else "finished" if now.done == now.total else "not running now"
    return {**content(gather(folder)), "live": True, "status": f"{now.done} of {now.total} cells{left}; {state}"}


def _study_page(folder: Path, path: str) -> str:
    data = live_data(folder)
    return html(data) if path == "/" else json.dumps(data, ensure_ascii=False, allow_nan=False)


def live_server(folder: str | Path, port: int = 0) -> ThreadingHTTPServer:
    """A server on 127.0.0.1; ``port`` 0 takes any free one."""
    place = Path(folder)
    single = is_run(place)
    run_page(place) if single else live_data(place)  # raises at once if the folder is wrong

    alone = threading.Lock()  # only one page is computed at a time, for any number of requests

    class Handler(BaseHTTPRequestHandler):
        timeout = 60  # seconds for a request to arrive

        def do_GET(self) -> None:
            if not asked_here(self.headers.get("Host"), self.headers.get("Sec-Fetch-Site")):
                self.send_error(403)
                return
            path = self.path.split("?")[0]
            if path not in (("/",) if single else ("/", "/data.json")):
                self.send_error(404)
                return
            try:
                with alone:
                    text = run_page(place, refresh=5) if single else _study_page(place, path)
            except (ValueError, OSError, RuntimeError) as error:  # the folder may change, or go, at any time
                reason = plain(str(error).partition("\n")[0])
                self.send_error(503, reason.encode("latin-1", "replace").decode("latin-1"))  # HTTP's first line
                return
            self._send(text, "text/html" if path == "/" else "application/json")

        def _send(self, text: str, kind: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing: the terminal belongs to the study."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # a few silent connections must not delay others

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Write nothing: a closed connection is not an error, and the terminal belongs to the study."""

    try:
        return Server((LOOPBACK, port), Handler)
    except OSError as error:
        raise RuntimeError(
            f"cannot serve on port {port}: {error.strerror}; choose another --port, or 0 for any"
        ) from None
