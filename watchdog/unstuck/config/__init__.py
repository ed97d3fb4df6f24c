"""The configuration: what can be set, how it is read, and what may be wrong with it.

``load`` reads file, environment and flags into ``Settings``; ``Settings.for_queue`` says what holds for one queue;
``schema`` and ``reference`` describe all of it. What may go wrong is one exception, ConfigurationError, that holds
every fault found, each with its place, its key and its mend.
"""

from unstuck.config.custom import Collection, CustomLayout
from unstuck.config.environment import OTHERS, flag, variable
from unstuck.config.loading import load
from unstuck.config.passwords import PasswordHash
from unstuck.config.reference import Setting, reference, schema
from unstuck.config.settings import (
    BACKENDS,
    OWN,
    Audit,
    Brake,
    Deadline,
    Http,
    Leader,
    Log,
    Pacing,
    QueueRule,
    QueueSettings,
    Settings,
    Tls,
    Webhook,
)
from unstuck.config.units import HookUrl, ListenAddress, MemoryLimit, Seconds, Secret, Share

__all__ = [
    "BACKENDS",
    "OTHERS",
    "OWN",
    "Audit",
    "Brake",
    "Collection",
    "CustomLayout",
    "Deadline",
    "HookUrl",
    "Http",
    "Leader",
    "ListenAddress",
    "Log",
    "MemoryLimit",
    "Pacing",
    "PasswordHash",
    "QueueRule",
    "QueueSettings",
    "Seconds",
    "Secret",
    "Setting",
    "Settings",
    "Share",
    "Tls",
    "Webhook",
    "flag",
    "load",
    "reference",
    "schema",
    "variable",
]
