"""Rules: which remedy a fault calls for. Read from YAML text, never from a path."""

from aegis.rules.parse import RuleError, parse, parse_text
from aegis.rules.rule import Rule, RuleSet

__all__ = ["Rule", "RuleError", "RuleSet", "parse", "parse_text"]
