"""Every link of the built site, and of the README, leads somewhere; nothing is loaded from another host."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
BASE = "http://localhost/"
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "src"), ("iframe", "src"), ("video", "src")}


class Reference(NamedTuple):
    """One address in a page; `loaded` when the browser fetches it unasked."""

    address: str
    loaded: bool


class PageParser(HTMLParser):
    """Collects what a page refers to and the anchors that it offers."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[Reference] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if attributes.get("id"):
            self.anchors.add(attributes["id"])
        for name in ("href", "src"):
            address = attributes.get(name)
            # A canonical address names a page; it loads nothing.
            if address and attributes.get("rel") not in ("canonical", "next", "prev"):
                self.references.append(Reference(address, (tag, name) in LOADS))


@cache
def parse(page: Path) -> PageParser:
    parser = PageParser()
    parser.feed(page.read_text("utf-8"))
    return parser


def target_of(address: str) -> Path:
    path = SITE / unquote(urlsplit(address).path).lstrip("/")
    return path / "index.html" if path.is_dir() else path


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    found = sorted(SITE.rglob("*.html"))
    if not found:
        pytest.fail("the site is not built: run `make site`", pytrace=False)
    return found


def test_links_lead_somewhere(pages):
    broken = []
    for page in pages:
        here = urljoin(BASE, page.relative_to(SITE).as_posix().removesuffix("index.html"))
        for reference in parse(page).references:
            address = urljoin(here, reference.address)
            if not address.startswith(BASE):
                continue
            target, anchor = target_of(address), unquote(urlsplit(address).fragment)
            if not target.is_file():
                broken.append(f"{page.relative_to(SITE)}: {reference.address}: no such file")
            elif anchor and target.suffix == ".html" and anchor not in parse(target).anchors:
                broken.append(f"{page.relative_to(SITE)}: {reference.address}: no such anchor")
    assert not broken, "\n".join(broken)


def test_nothing_is_loaded_from_elsewhere(pages):
    loaded = {
        reference.address
        for page in pages
        for reference in parse(page).references
        if reference.loaded and urlsplit(urljoin(BASE, reference.address)).netloc != urlsplit(BASE).netloc
    }
    assert loaded == set()


def test_readme_links_to_files_that_exist():
    text = (ROOT / "README.md").read_text("utf-8")
    addresses = re.findall(r"\]\(([^)#]+)\)", text)
    assert addresses
    assert [each for each in addresses if "://" not in each and not (ROOT / each).exists()] == []


def test_readme_names_folders_that_exist():
    text = (ROOT / "README.md").read_text("utf-8")
    folders = re.findall(r"^\| `([^`]+/)` \|", text, flags=re.MULTILINE)
    assert folders
    assert [each for each in folders if not (ROOT / each).is_dir()] == []
