"""Rules: which remedy a fault calls for. Read from YAML text, never from a path."""

from aegis.rules.match import Facts, Match, Scope
from aegis.rules.parse import parse, parse_text
from aegis.rules.problem import Problem, RuleError
from aegis.rules.rule import Guard, Rule, RuleSet, Rung

__all__ = [
    "Facts",
    "Guard",
    "Match",
    "Problem",
    "Rule",
    "RuleError",
    "RuleSet",
    "Rung",
    "Scope",
    "parse",
    "parse_text",
]
