"""A hook of mkdocs: blocks of rules are coloured as rules are read."""

from __future__ import annotations

import re
from typing import Any

import pygments.lexers
from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text


class RulesLexer(RegexLexer):
    """The notation of ``.rules`` files."""

    name = "graphopt rules"
    aliases = ("rules",)
    filenames = ("*.rules",)
    flags = re.MULTILINE
    tokens = {  # noqa: RUF012
        "root": [
            (r"#.*$", Comment.Single),
            (r"^([\w-]+)(:)(?!:)", bygroups(Name.Label, Punctuation)),
            (r"=>|==|!=|<=|>=|\*\*|[-+*/%<>|=]", Operator),
            (r"\b(where|and|or|not|in|as|each|like|let|if|else|for|true|false|none)\b", Keyword),
            (r"\b\d+(\.\d+)?(e-?\d+)?\b", Number),
            (r'"[^"\n]*"', String),
            (r"[\w.]+::", Name.Namespace),
            (r"[A-Z]\w*", Name.Function),
            (r"\w+\??", Name.Variable),
            (r"[()\[\]{},:.]", Punctuation),
            (r"\s+|.", Text),
        ]
    }


def on_config(config: Any) -> None:
    """Makes the lexer known to Pygments, which looks it up by name."""
    pygments.lexers.LEXERS["RulesLexer"] = (__name__, RulesLexer.name, RulesLexer.aliases, RulesLexer.filenames, ())
    pygments.lexers._lexer_cache[RulesLexer.name] = RulesLexer
