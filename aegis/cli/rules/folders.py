"""Which folders of rules a command is about."""

import argparse
from pathlib import Path

from aegis.cli.client import CommandError
from aegis.controller import configuration
from aegis.rules import RuleSet


def folders_of(arguments: argparse.Namespace) -> tuple[Path, ...]:
    """The layers, lowest first. The shipped folder itself, when it is named, is the lowest."""
    shipped = configuration.shipped_rules()
    given = [one for one in arguments.rules if one.resolve() != shipped.resolve()]
    if arguments.rules and not given:
        return (shipped,)
    return configuration.layers(given=given, shipped=not arguments.no_shipped_rules)


def load(folders: tuple[Path, ...]) -> RuleSet:
    """The rules of the layers. Raises CommandError with every mistake on a line."""
    try:
        return configuration.load_rules(*folders)
    except configuration.ConfigurationError as error:
        raise CommandError(str(error)) from error
