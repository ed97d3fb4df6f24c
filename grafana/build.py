"""Builds the dashboards: `python grafana/build.py [FOLDER]`. A test fails when grafana/dashboards differs from it.

Needs grafana-foundation-sdk, which is a dependency of the tests and not of the program: what is shipped is the JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from boards import agent, overview, pacing, queue, reclaims
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER: Final = Path(__file__).with_name("dashboards")
BOARDS: Final = (overview, queue, reclaims, agent, pacing)


def main(folder: Path) -> None:
    """Write one file per dashboard, named like its uid without our name."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in BOARDS:
        board = module.board()
        text = JSONEncoder(sort_keys=True, indent=2).encode(board.build())
        (folder / f"{board.uid.removeprefix('unstuck-')}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
