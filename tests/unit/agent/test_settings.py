"""Settings from agent.yaml and flags: what is wrong is said in one sentence."""

from pathlib import Path

import pytest

from aegis_agent import settings as module
from aegis_agent.settings import SettingsError, read


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "agent.yaml"
        path.write_text(text)
        return path

    return write


def test_flags_win_over_the_file_and_the_file_over_defaults(config):
    """The file is the site's, the flag is today's."""
    path = config("node: n7\nfabric: [fab0, fab1]\npoll_seconds: 2\nlabels: {rack: r1}\n")
    chosen = read(path, {"node": "n8", "controller": None}, "host")
    assert (chosen.node, chosen.fabric, chosen.poll_seconds) == ("n8", ("fab0", "fab1"), 2.0)
    assert chosen.labels == (("rack", "r1"),)
    assert chosen.sys_root == Path("/sys")
    assert read(None, {}, "host").node == "host"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("polls: 3", r"unknown key 'polls'; the keys are node, controller,"),
        ("poll_seconds: soon", r"poll_seconds must be .*, not 'soon'"),
        ("poll_seconds: 0", r"poll_seconds must be between 0.05 and 3600 seconds, not 0"),
        ("controller: controller:8500", r'controller must be an address such as "http://'),
        ("fabric: {a: b}", r"fabric must be a list of network interfaces"),
        ("labels: rack", r"labels must be keys and values such as"),
        ("- node", r"must hold keys and values such as `node: n1`"),
        ("node: [", r"is not YAML: .*line 1, column 8"),
    ],
)
def test_a_wrong_file_is_refused_with_what_would_be_right(config, text, sentence):
    """The agent does not start with half its settings."""
    with pytest.raises(SettingsError, match=sentence):
        read(config(text), {}, "host")


def test_a_file_that_is_not_there_is_said(tmp_path):
    """A typing error in --config."""
    with pytest.raises(SettingsError, match="cannot be read"):
        read(tmp_path / "none.yaml", {}, "host")


def test_a_label_has_a_name_and_a_value():
    """rack=r1 and nothing shorter."""
    assert module.parse_label("rack=r1") == ("rack", "r1")
    with pytest.raises(ValueError, match="rack=r1"):
        module.parse_label("rack")
