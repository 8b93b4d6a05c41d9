"""The dashboard's types are those of the API."""

import importlib.util
from pathlib import Path


def test_the_dashboard_knows_every_field_of_the_api():
    """A field that is added to a dataclass is added to the page's types by one command."""
    file = Path(__file__).with_name("model_types.py")
    spec = importlib.util.spec_from_file_location("model_types", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.FILE.read_text() == module.render(), (
        "run `python tests/browser/model_types.py` and review the difference"
    )
