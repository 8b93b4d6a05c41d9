"""The dashboard's types are those of the API, and it has words for what the core names."""

import re
from pathlib import Path

import model_types

import aegis.core


def test_the_dashboard_knows_every_field_of_the_api():
    """A field that is added to a dataclass is added to the page's types by one command."""
    assert model_types.FILE.read_text() == model_types.render(), (
        "run `python tests/browser/model_types.py` and review the difference"
    )


def test_the_dashboard_has_words_for_every_rail():
    """A rail without one is shown by its bare name, which says nothing to who has not met it."""
    core = Path(aegis.core.__file__).parent
    texts = ((core / name).read_text() for name in ("rails.py", "repair_rails.py"))
    rails = {name for text in texts for name in re.findall(r'_said\(\s*"([a-z_]+)"', text)}
    words = (model_types.FILE.parent / "words.ts").read_text()
    named = words.partition("const RAILS")[2].partition("};")[0]
    assert len(rails) > 15
    assert rails == set(re.findall(r"^  ([a-z_]+):", named, re.MULTILINE))
