"""The page of the command `rca`: the text of its help, command by command, as a manual page has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from richcomponents.cli import EXAMPLES, app


def cell(text: str) -> str:
    """Text inside a table of a Markdown page."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


def option_row(option: Any, context: Any) -> str:
    """Name, default and help of one option or argument."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.param_type_name == "argument":
        names = f"`{option.name.upper()}`"
    default = option.get_default(context)
    many = isinstance(default, (list, tuple))
    shown = ", ".join(map(str, default)) if many else "" if default is None or default is False else str(default)
    needed = " (needed)" if option.required else ""
    return f"| {names}{needed} | {cell(getattr(option, 'help', None) or '')} | {shown} |"


def section(name: str, command: Any) -> list[str]:
    """One command."""
    title = f"rca {name}".strip()
    context = command.make_context(title, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context)).translate({ord(brace): None for brace in "{}"})
    said = [line.strip() for line in (command.help or "").strip().split("\n")]
    rows = [option_row(option, context) for option in command.params if not getattr(option, "hidden", False)]
    lines = [f"## {title}", "", *said, "", "```text", f"{title} {usage}", "```", ""]
    lines += ["| option | | default |", "|---|---|---|", *rows, ""]
    for about, line in EXAMPLES[name]:
        lines += [about, "", f"    {line}", ""]
    return lines


def text() -> str:
    """The whole page."""
    whole = typer.main.get_command(app)
    lines = ["# rca: every command, every option", ""]
    lines += [
        "The text of `rca --help` and of the help of each command. [The guide](../commands.md) says when to use which; "
        "`rca --install-completion` teaches your shell (bash, zsh, fish, PowerShell) to complete commands and options.",
        "",
    ]
    lines += section("", whole)
    for name, command in whole.commands.items():
        lines += section(name, command)
    lines += ["## Exit codes", "", "0 done; 1 the data or the request cannot be used; 2 a wrong option.", ""]
    return "\n".join(lines)


def write(target: Path) -> None:
    page = text()
    if not target.exists() or target.read_text(encoding="utf-8") != page:
        target.write_text(page, encoding="utf-8")
