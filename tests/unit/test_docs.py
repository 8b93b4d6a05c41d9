"""The documentation: what is made is fresh, and every link leads somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/**/*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def generate():
    path = ROOT / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("docs_generate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_of_faults_are_fresh(generate) -> None:
    """`make docs` was run after the catalogue, the rules or the patterns changed."""
    made = generate.pages()
    there = {path: path.read_text() for path in generate.FAULTS.glob("*.md")}
    stale = sorted(path.name for path, text in made.items() if there.get(path) != text)
    gone = sorted(path.name for path in there if path not in made)
    assert (stale, gone) == ([], []), "run `make docs`"


def test_each_runbook_of_a_fault_is_there(generate) -> None:
    """A page that sends someone on at night must not send them nowhere."""
    runbooks = ROOT / "docs" / "runbooks"
    assert [
        one for one in generate.RUNBOOKS.values() if not (runbooks / f"{one}.md").exists()
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page: Path) -> None:
    """Files are there, and headings that a link names are in them."""
    text = _FENCE.sub("", page.read_text())
    broken = [link for link in _LINK.findall(text) if not _leads_somewhere(page, link)]
    assert broken == []


def _leads_somewhere(page: Path, link: str) -> bool:
    if link.startswith(("https://", "http://", "mailto:")):
        return True
    path, _, heading = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not heading or heading in _headings(target)


def _headings(page: Path) -> set[str]:
    """As the forge makes anchors of them."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("#")]
    words = [line.lstrip("#").strip().lower() for line in lines]
    return {re.sub(r"[^\w\- ]", "", word).replace(" ", "-") for word in words}
