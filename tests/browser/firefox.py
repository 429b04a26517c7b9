"""A stock Firefox, driven by WebDriver BiDi, which it speaks itself: no driver program, no patched build."""

import itertools
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import websocket

KEYS = {"Control": "\ue009", "Shift": "\ue008", "Home": "\ue011", "End": "\ue010", "Enter": "\ue007"}
# Nothing may leave the machine: every other address goes to a proxy that is not there.
PREFERENCES = {
    "remote.active-protocols": 1,
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "datareporting.policy.dataSubmissionEnabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.aboutwelcome.enabled": False,
}
PATIENCE = 120


class Firefox:
    """One tab of a fresh profile. `with Firefox(path) as firefox: …`"""

    def __init__(self, executable: str) -> None:
        self._executable = executable
        self._numbers = itertools.count(1)

    def __enter__(self) -> "Firefox":
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        settings = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items())
        Path(self._profile.name, "user.js").write_text("".join(settings))
        command = [self._executable, "--headless", "--no-remote", "--profile", self._profile.name]
        self._process = subprocess.Popen(
            [*command, "--remote-debugging-port=0", "about:blank"], stderr=subprocess.PIPE, text=True
        )
        self._socket = websocket.create_connection(f"{self._address()}/session", PATIENCE, suppress_origin=True)
        self._ask("session.new", capabilities={})
        self._tab = self._ask("browsingContext.getTree")["contexts"][0]["context"]
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._profile.cleanup()

    def open(self, url: str) -> None:
        self._ask("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """Return what the expression, or the promise that it gives, comes to; it must be JSON."""
        wrapped = f"(async () => JSON.stringify((await ({expression})) ?? null))()"
        answer = self._ask("script.evaluate", expression=wrapped, target={"context": self._tab}, awaitPromise=True)
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def click(self, x: float, y: float) -> None:
        move = {"type": "pointerMove", "x": round(x), "y": round(y)}
        press, release = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        self._act({"type": "pointer", "id": "mouse", "actions": [move, press, release]})

    def press(self, *chord: str) -> None:
        """Press keys together: `press("Control", "Enter")`."""
        keys = [KEYS.get(key, key) for key in chord]
        down = [{"type": "keyDown", "value": key} for key in keys]
        self._act(
            {"type": "key", "id": "keys", "actions": down + [{"type": "keyUp", "value": key} for key in keys[::-1]]}
        )

    def type(self, text: str) -> None:
        for character in text:
            self.press(character)

    def _act(self, source: dict[str, Any]) -> None:
        self._ask("input.performActions", context=self._tab, actions=[source])

    def _address(self) -> str:
        assert self._process.stderr
        said = []
        for line in self._process.stderr:
            said.append(line)
            found = re.search(r"WebDriver BiDi listening on (ws://\S+)", line)
            if found:
                return found[1]
        raise RuntimeError(f"Firefox did not start:\n{''.join(said)}")

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                if answer["type"] == "error":
                    raise RuntimeError(f"{method}: {answer['message']}")
                return answer["result"]
