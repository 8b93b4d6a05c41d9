"""The settings that are shipped as examples, read by the programs that they are for."""

import argparse
from pathlib import Path

import yaml

from aegis.controller.command import configure as configure_controller
from aegis.controller.configuration import load_policy
from aegis.model.policy import Mode, Policy
from aegis_agent import settings
from aegis_agent.main import configure as configure_agent

ETC = Path(__file__).resolve().parents[3] / "packaging" / "etc"


def test_a_fresh_install_only_observes():
    """Nobody's node is taken away by installing a package."""
    policy = load_policy(ETC / "aegis" / "policy.yaml")
    assert policy.mode is Mode.OBSERVE


def test_the_shipped_policy_says_what_the_defaults_are():
    """A reader of the file must be able to trust it."""
    assert load_policy(ETC / "aegis" / "policy.yaml") == Policy()


def test_the_agent_reads_its_example_and_every_line_in_it_that_is_commented_out():
    """An example that does not work when its # is taken away is worse than none."""
    plain = ETC / "aegis" / "agent.yaml"
    assert settings.read(plain, {}, "host").node == "host"
    keys = ("node:", "fabric:", "labels:")
    lines = [line.removeprefix("# ") for line in plain.read_text().splitlines()]
    opened = yaml.safe_load("\n".join(line for line in lines if line.startswith(keys)))
    assert set(opened) == {"node", "fabric", "labels"}


def test_the_flags_in_etc_default_exist():
    """Both files show flags; a program that does not know them would not start."""
    for name, configure in (("controller", configure_controller), ("agent", configure_agent)):
        parser = argparse.ArgumentParser()
        configure(parser)
        text = (ETC / "default" / f"aegis-{name}").read_text()
        (line,) = [line for line in text.splitlines() if "_ARGUMENTS=" in line]
        parser.parse_args(line.split('"')[1].split())
