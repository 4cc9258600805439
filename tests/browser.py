"""A headless Chromium for tests, spoken to through the DevTools protocol over a pipe: no port and no driver."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from processes import LONGEST

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--remote-debugging-pipe",
)  # fmt: skip
# The protocol's pipes are file descriptors 3 and 4.
MOVE = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """The program, or None where none is installed."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page. requests: addresses that it asked for; complaints: errors and exceptions of its console."""

    def __init__(self, program: str):
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        words = [program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", MOVE, str(theirs_in), str(theirs_out), *words],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        os.set_blocking(ours_in, False)
        self._in, self._out, self._buffer, self._last, self._session = ours_in, ours_out, b"", 0, None
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the program; it need not have started well."""
        self._session = None
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.call("Browser.close")
            self._process.wait(LONGEST)
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def open(self, path: Path, width: int, height: int = 800, scheme: str = "light") -> None:
        """Load a file in a window so wide, from nothing: what was asked for and complained of is forgotten."""
        self.requests.clear()
        self.complaints.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + LONGEST
        while not self.value(f"document.readyState === 'complete' && location.href === {path.resolve().as_uri()!r}"):
            if time.monotonic() > end:
                raise TimeoutError(f"{path} did not load")

    def value(self, script: str) -> Any:
        """What an expression is in the page."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise AssertionError(told["exceptionDetails"]["exception"].get("description", script))
        return told["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as a keyboard sends it: Tab or Enter."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """The window as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol, and its answer; events that come meanwhile are noted."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._last:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _attach(self) -> None:
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _note(self, event: dict) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(told["entry"]["text"])
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(told["args"]))

    def _read(self) -> dict:
        end = time.monotonic() + LONGEST
        while b"\0" not in self._buffer:
            try:
                part = os.read(self._in, 1 << 20)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError("the browser does not answer") from None
                time.sleep(0.005)
                continue
            if not part:
                raise ConnectionError("the browser is gone")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
