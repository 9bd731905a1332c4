"""A real headless Chromium, driven over its debugging protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.sync.client import connect

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Chromium:
    """One page. ``errors`` collects what the console and the network complain about."""

    def __init__(self, width: int = 1200, height: int = 900) -> None:
        assert PROGRAM is not None
        self.size = (width, height)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._id = 0
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--remote-debugging-port=0", f"--user-data-dir={self._profile.name}"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"]
        options += ["--hide-scrollbars"]
        self._process = subprocess.Popen(
            [PROGRAM, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Chromium:
        file = Path(self._profile.name) / "DevToolsActivePort"
        deadline = time.monotonic() + 600
        while not (file.exists() and file.read_text().count("\n")):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError("chromium did not start")
            time.sleep(0.05)
        port, path = file.read_text().splitlines()[:2]
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(connect(f"ws://127.0.0.1:{port}{path}", max_size=None))
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(*self.size)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._process.terminate()
        self._process.wait(timeout=20)
        self._profile.cleanup()

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def scheme(self, name: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def medium(self, name: str) -> None:
        """``print``, or ``screen``."""
        self.call("Emulation.setEmulatedMedia", media=name)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 30) -> None:
        """Until the expression is true."""
        deadline = time.monotonic() + seconds
        while not self.value(script):
            if time.monotonic() > deadline:
                raise TimeoutError(script)
            time.sleep(0.05)

    def mouse(self, selector: str, click: bool = False, at: tuple[float, float] = (0.5, 0.5)) -> None:
        """Move the mouse to an element, and perhaps click it."""
        script = f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: "center"}}); const b = e.getBoundingClientRect();
            return [b.x + b.width * {at[0]}, b.y + b.height * {at[1]}]; }})()"""
        x, y = self.value(script)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def call(self, method: str, **parameters: Any) -> Any:
        return self._send(method, self._session, **parameters)

    def _send(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = json.loads(self._socket.recv(timeout=60))
            if answer.get("id") == self._id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(event["params"]["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if event["params"]["type"] in ("error", "warning", "assert"):
                self.errors.append(str(event["params"]["args"]))
            case "Log.entryAdded" if event["params"]["entry"]["level"] == "error":
                self.errors.append(event["params"]["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
