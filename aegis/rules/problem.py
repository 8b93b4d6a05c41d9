"""What is wrong in rule files."""

from collections.abc import Iterable
from dataclasses import dataclass

from aegis.rules.yaml_text import Place


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong, and how to mend it."""

    place: Place
    text: str
    layer: int = 0  # of the file
    is_doubt: bool = False  # the rules can be read; they are not what anyone would mean

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class RuleError(ValueError):
    """Rule files that cannot be used: where, what is wrong, how to mend it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        ordered = sorted(problems, key=lambda one: (-one.layer, one.place))
        super().__init__("\n".join(str(one) for one in ordered))
        self.problems = tuple(ordered)
