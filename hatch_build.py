"""The build hook: puts what is made or kept elsewhere into the wheel and the sdist.

    dashboards/web        built by npm      aegis/controller/static
    rules/                as they are       aegis/rules/shipped, with their tests
    examples/bytes_lm     as it is          aegis/cli/demo/bytes_lm

A wheel built from the sdist finds the dashboard built already, so `pip install` needs no Node. An
editable install needs none of this: the programs look into the source tree.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """hatchling finds it by its name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each target is built; `version` is "standard" or "editable"."""
        if version == "editable":
            return
        root = Path(self.root)
        if not (root / "aegis" / "controller" / "static" / "index.html").is_file():
            subprocess.run([root / "dashboards" / "build.sh", sys.executable], check=True)
        if self.target_name == "wheel":
            build_data["force_include"] |= self._kept_elsewhere(root)

    def _kept_elsewhere(self, root: Path) -> dict[str, str]:
        rules = {
            str(file): f"aegis/rules/shipped/{file.relative_to(root / 'rules')}"
            for pattern in ("*.yaml", "tests/*.yaml")
            for file in (root / "rules").glob(pattern)
        }
        example = root / "examples" / "bytes_lm"
        scripts = {
            str(file): f"aegis/cli/demo/bytes_lm/{file.name}" for file in example.glob("*.py")
        }
        return rules | scripts
