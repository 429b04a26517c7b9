"""Where the build's files go. A file that has not changed is not touched, so that a watching server stays quiet."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BROWSER = ROOT / "course" / "browser"
NODE_MODULES = BROWSER / "node_modules"
ASSETS = ROOT / "docs" / "assets" / "course"
FRAGMENTS = ROOT / ".cache" / "fragments"
BUNDLE = ROOT / ".cache" / "bundle"


class Folder:
    """A folder that holds what this build wrote, and nothing else once `sweep` has run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: set[Path] = set()

    def write(self, name: str, content: bytes | str) -> None:
        data = content.encode("utf-8") if isinstance(content, str) else content
        target = self.path / name
        self._kept.add(target)
        if target.is_file() and target.read_bytes() == data:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def copy(self, source: Path, name: str) -> None:
        self.write(name, source.read_bytes())

    def sweep(self) -> None:
        """Delete the files of earlier builds."""
        for path in self.path.rglob("*"):
            if path.is_file() and path not in self._kept:
                path.unlink()
