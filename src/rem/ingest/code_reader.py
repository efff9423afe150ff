"""Source code."""

from __future__ import annotations

from rem.ingest.content import Document, FetchedFile
from rem.ingest.mime import ending_of
from rem.ingest.text_reader import decode

_LANGUAGES = {
    "python": "py pyi pyw",
    "javascript": "js mjs cjs jsx",
    "typescript": "ts mts cts tsx",
    "java": "java",
    "kotlin": "kt kts",
    "scala": "scala sc",
    "c": "c h",
    "cpp": "cc cpp cxx hh hpp hxx",
    "csharp": "cs",
    "go": "go",
    "rust": "rs",
    "ruby": "rb rake gemfile rakefile",
    "php": "php",
    "swift": "swift",
    "objective-c": "m mm",
    "r": "r",
    "julia": "jl",
    "lua": "lua",
    "perl": "pl pm",
    "haskell": "hs",
    "elixir": "ex exs",
    "erlang": "erl hrl",
    "clojure": "clj cljs cljc edn",
    "dart": "dart",
    "zig": "zig",
    "sql": "sql",
    "shell": "sh bash zsh fish",
    "powershell": "ps1 psm1",
    "make": "mk makefile",
    "docker": "dockerfile containerfile",
    "cmake": "cmake",
    "css": "css scss sass less",
    "vue": "vue",
    "svelte": "svelte",
    "graphql": "graphql gql",
    "protobuf": "proto",
    "terraform": "tf tfvars hcl",
    "toml": "toml",
    "ini": "ini cfg conf properties env",
    "xml": "xml xsd xsl xslt svg plist",
    "jinja": "j2 jinja jinja2",
}
_BY_ENDING = {ending: language for language, endings in _LANGUAGES.items() for ending in endings.split()}


def language_of(file: FetchedFile) -> str | None:
    """The programming language of a file, by its name."""
    return _BY_ENDING.get(ending_of(file))


def read_code(file: FetchedFile, language: str) -> Document:
    """The file's text as it is."""
    text, facts = decode(file)
    return Document(text, "code", f"text/x-{language}", metadata={**facts, "language": language})
