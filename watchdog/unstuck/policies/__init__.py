"""The pacing policies, one small file each; `pacing.policy` in the configuration names one. The contract: policy.py."""

from __future__ import annotations

from typing import Final

from unstuck.policies.fixed import Fixed
from unstuck.policies.fleet import Fleet
from unstuck.policies.formula import Formula
from unstuck.policy import Policy

_ALL: Final[tuple[Policy, ...]] = (Formula(), Fleet(), Fixed())
POLICIES: Final = {policy.name: policy for policy in _ALL}
