"""Policy and rule files: read whole or refused with a sentence."""

import os

import pytest

from aegis.controller.configuration import (
    FILE_BYTES_MAX,
    ConfigurationError,
    load_policy,
    load_rules,
    shipped_rules,
)
from aegis.model.policy import Mode, Policy


def policy(tmp_path, text):
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return load_policy(file)


def test_without_a_policy_aegis_observes():
    """A fresh install touches nothing."""
    assert load_policy(None) == Policy()
    assert Policy().mode is Mode.OBSERVE


def test_a_policy_says_only_what_differs(tmp_path):
    """What it leaves out keeps its default."""
    read = policy(tmp_path, "mode: enforce\nhold_down_seconds: 2\n")
    assert read.mode is Mode.ENFORCE
    assert read.hold_down_seconds == 2.0
    assert read.cooldown_seconds == Policy().cooldown_seconds


def test_an_empty_policy_is_the_default(tmp_path):
    """A file with nothing but comments is no mistake."""
    assert policy(tmp_path, "# nothing yet\n") == Policy()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mod: enforce", "did you mean 'mode'"),
        ("job_mode: loud", "write one of observe, notify, approve, enforce"),
        ("nodes_out_max: many", "nodes_out_max"),
        ("hold_down_seconds: -1", "0 is the least"),
        ("hold_down_seconds: .nan", "0 is the least"),
        ("- mode", "must be a mapping"),
        ("mode: [", "not YAML"),
        ("nodes_out_max: 2024-13-45", "not YAML: month must be in 1..12"),
        ("mode: " + "[" * 5000, "not YAML"),
        ("nodes_out_max: " + "9" * 5000, "not YAML"),
        ("mode: observe\nmode: enforce", r":2:1: 'mode' is given twice"),
        ("nodes_out_max: true", "write a number"),
        ("cooldown_seconds: 010", "YAML reads 010 as another number"),
        ("nodes_out_fraction: 5", "1 is the most"),
        ("nodes_out_window_seconds: 0", "1 is the least"),
        ("approval_seconds: 0", "1 is the least"),
        ("approvals_needed: 0", "1 is the least"),
    ],
)
def test_a_wrong_policy_is_refused_with_its_place(tmp_path, text, why):
    """The file, the key, and what to write instead."""
    with pytest.raises(ConfigurationError, match=why) as refused:
        policy(tmp_path, text)
    assert "policy.yaml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_policy_is_refused(tmp_path):
    """A typing mistake in the path must not mean the default."""
    with pytest.raises(ConfigurationError, match="no such file"):
        load_policy(tmp_path / "none.yaml")


def test_the_shipped_rules_load():
    """What a fresh install starts with."""
    assert load_rules(shipped_rules()).rules


def test_what_is_no_rule_file_is_refused_and_not_waited_for(tmp_path):
    """A pipe would be read for ever, and what is too big keeps the controller from its work."""
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(ConfigurationError, match=r"a\.yaml is no file"):
        load_rules(tmp_path)
    (tmp_path / "a.yaml").unlink()
    (tmp_path / "b.yaml").write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigurationError, match=r"b\.yaml has 1,048,577 bytes, more than 1 MiB"):
        load_rules(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigurationError, match=r"b\.yaml is not UTF-8"):
        load_rules(tmp_path)
