"""Loads plugins from modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from hookgate.plugin import Plugin

_AnyPlugin: TypeAlias = Plugin[Any, Any]


class LoadError(Exception):
    """Why there is no plugin."""


def load_plugins(name: str) -> list[_AnyPlugin]:
    """The plugins of `module:variable` or `path/to/module.py:variable`: one or a list.

    The module may be in the current folder, or else in that of the file.

    :raises LoadError: If there is no such module, or no plugin in it. Exceptions of the module itself are passed on.
    """
    module_name, _, variable = name.rpartition(":")
    if not module_name or not variable:
        raise LoadError(f"`{name}` names no plugin: write `module:variable`, such as `my_plugin:plugin`")
    folder, file = Path(), None
    if module_name.endswith(".py"):
        file = Path(module_name).resolve()
        folder, module_name = file.parent, file.stem
    # As if the file was run, so that it may import what is beside it.
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    try:
        module: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise LoadError(f"there is no module `{module_name}` in {folder.resolve()}") from None
    other = getattr(module, "__file__", None)
    if file is not None and (other is None or Path(other).resolve() != file):
        raise LoadError(f"another module is called `{module_name}`, {other}: rename {file}")
    found = module
    for attribute in variable.split("."):
        found = getattr(found, attribute, None)
    candidates = list(found) if isinstance(found, Sequence) else [found]
    plugins = [plugin for plugin in candidates if isinstance(plugin, Plugin)]
    if not plugins or len(plugins) < len(candidates):
        raise LoadError(f"`{name}` is no plugin: write `{variable} = Plugin(...)`, or a list of plugins")
    return plugins
