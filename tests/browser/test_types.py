"""The dashboard's types are those of the API."""

import model_types


def test_the_dashboard_knows_every_field_of_the_api():
    """A field that is added to a dataclass is added to the page's types by one command."""
    assert model_types.FILE.read_text() == model_types.render(), (
        "run `python tests/browser/model_types.py` and review the difference"
    )
