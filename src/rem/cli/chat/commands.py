"""The commands of a chat, such as /sessions: what they do, and how their names are completed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rem.cli.chat.connection import ChatConnection, MessageLine, NamedChoice
from rem.cli.chat.prompt import Prompt
from rem.cli.chat.screen import Screen
from rem.cli.output import shorten
from rem.errors import InvalidInputError, RemError
from rem.models.results import Result
from rem.sessions.message import NOTE_TOOLS
from rem.text import did_you_mean

MAX_LISTED_SESSIONS = 15
MAX_DESCRIPTION_CHARS = 100
MAX_COMPLETIONS = 20
_RATINGS = {"up": 1, "down": -1, "good": 1, "bad": -1}


@dataclass(slots=True)
class ChatState:
    """What the user chose so far."""

    user: str | None
    session: str | None = None
    agent: str | None = None
    model: str | None = None
    last_answer: str | None = None
    """The id of the last answer, which /feedback rates."""
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One call of a command, with all it may use."""

    argument: str
    connection: ChatConnection
    screen: Screen
    prompt: Prompt
    state: ChatState

    async def find_session(self) -> str:
        """Return the id of the current session. Raise InvalidInputError if nothing was said yet."""
        if self.state.session is None:
            raise InvalidInputError("There is no session yet: say something first, or /load one.")
        return (await self.connection.find_session(self.state.session)).id


Handler: TypeAlias = Callable[[CommandCall], Awaitable[None]]


async def run_command(line: str, connection: ChatConnection, screen: Screen, prompt: Prompt, state: ChatState) -> None:
    """Run a line such as "/load boat". Raise InvalidInputError for an unknown command."""
    name, _, argument = line[1:].partition(" ")
    if name not in COMMANDS:
        raise InvalidInputError(f"There is no command /{name}.{did_you_mean(name, list(COMMANDS))} /help lists all.")
    await COMMANDS[name][0](CommandCall(argument.strip(), connection, screen, prompt, state))


async def complete_line(line: str, connection: ChatConnection) -> tuple[str, Sequence[NamedChoice]]:
    """Return the end of a line that can be completed, and what it can become.

    That is a command, a session, an agent, a model or a key.
    """
    if not line.startswith("/"):
        return "", ()
    command, has_argument, argument = line[1:].partition(" ")
    if not has_argument:
        word, choices = line, [NamedChoice(f"/{name}", text) for name, (_, _, text) in COMMANDS.items()]
    else:
        # The name of a session may have several words.
        word = argument if command == "load" else argument.rpartition(" ")[2]
        try:
            choices = await _list_choices(command, word, connection)
        except RemError:
            choices = []
    return word, [choice for choice in choices if choice.name.lower().startswith(word.lower())]


async def _list_choices(command: str, word: str, connection: ChatConnection) -> list[NamedChoice]:
    match command:
        case "agent":
            return list(await connection.list_agents())
        case "model":
            return list(await connection.list_models())
        case "load":
            sessions = await connection.list_sessions(MAX_LISTED_SESSIONS)
            return [NamedChoice(line.name or line.id, "" if line.name else line.title) for line in sessions]
        case "query" | "search" if len(word) > 1:
            found = await connection.query(f"FUZZY {json.dumps(word)} THRESHOLD 0.3 LIMIT {MAX_COMPLETIONS}")
            return [NamedChoice(hit.key, "") for hit in found.hits]
    return []


async def _show_help(call: CommandCall) -> None:
    call.screen.list_lines([(f"/{name} {usage}".strip(), text) for name, (_, usage, text) in COMMANDS.items()])
    call.screen.say("Everything else is a message. Alt-Enter begins a new line, Ctrl-C stops an answer, Ctrl-D leaves.")


async def _list_sessions(call: CommandCall) -> None:
    sessions = await call.connection.list_sessions(MAX_LISTED_SESSIONS)
    if not sessions:
        call.screen.say("You have no sessions yet.")
    call.screen.list_lines(
        [
            (
                line.id,
                f"{'(this one) ' if line.id == call.state.session else ''}{line.updated_at:%Y-%m-%d %H:%M}, "
                f"{line.message_count} messages: {line.title}",
            )
            for line in sessions
        ]
    )


async def _load(call: CommandCall) -> None:
    if not call.argument:
        raise InvalidInputError("Name a session: /load SESSION. /sessions lists yours.")
    session = await call.connection.find_session(call.argument)
    call.state.session, call.state.last_answer = session.id, None
    call.screen.say(f"Continuing {session.title or session.id}, {session.message_count} messages.")
    messages = await call.connection.list_messages(session.id)
    for message in [message for message in messages if message.role != "tool"][-2:]:
        _show_message(call.screen, message)


async def _save(call: CommandCall) -> None:
    session = await call.find_session()
    if call.argument:
        await call.connection.rename_session(session, call.argument)
        call.screen.say(f"Named this session {call.argument!r}: /load {call.argument} continues it.")
    else:
        call.screen.say(f"Everything is stored already: /load {session} continues it. /save NAME gives it a name.")


async def _show_history(call: CommandCall) -> None:
    for message in await call.connection.list_messages(await call.find_session()):
        if message.role != "tool":
            _show_message(call.screen, message)
        elif message.tool_name not in NOTE_TOOLS:
            call.screen.note(message.tool_name or "tool call")


async def _start_over(call: CommandCall) -> None:
    count = await call.connection.start_over(await call.find_session())
    call.screen.say(f"Starting over: the {count} messages so far stay stored, and the agent no longer sees them.")


async def _forget(call: CommandCall) -> None:
    session = await call.find_session()
    count = len(await call.connection.list_messages(session))
    answer = await call.prompt.ask(f"Delete this session with its {count} messages? Type yes: ")
    if (answer or "").strip().lower() not in ("yes", "y"):
        call.screen.say("Nothing was deleted.")
        return
    await call.connection.delete_session(session)
    call.state.session = call.state.last_answer = None
    call.screen.say("Deleted. The next message begins a new session.")


async def _new(call: CommandCall) -> None:
    call.state.session = call.state.last_answer = None
    call.screen.say("The next message begins a new session.")


async def _choose_agent(call: CommandCall) -> None:
    agents = await call.connection.list_agents()
    if call.argument:
        _require_known(call.argument, [choice.name for choice in agents], "agent")
        call.state.agent = call.argument
        call.screen.say(f"You talk to {call.argument} now.")
        return
    current = call.state.agent or "rem"
    call.screen.list_lines(
        [
            (
                f"{'* ' if choice.name == current else ''}{choice.name}",
                shorten(choice.description, MAX_DESCRIPTION_CHARS),
            )
            for choice in agents
        ]
    )


async def _choose_model(call: CommandCall) -> None:
    if call.argument:
        # Providers have more models than the list.
        await call.connection.check_model(call.argument)
        call.state.model = call.argument
        call.screen.say(f"{call.argument} answers from now on.")
        return
    call.screen.list_lines([(choice.name, choice.description) for choice in await call.connection.list_models()])


async def _show_memory(call: CommandCall) -> None:
    if call.argument:
        _show_result(call, await call.connection.ask_memory(call.argument))
        return
    result = await call.connection.query("SQL moments ORDER BY starts_timestamp DESC LIMIT 10")
    if result.count:
        _show_result(call, result)
    else:
        call.screen.say("There are no moments yet: dreaming makes them of what you say (`rem dreaming full`).")


async def _search(call: CommandCall) -> None:
    if not call.argument:
        raise InvalidInputError("Name what to look for: /search WORDS.")
    _show_result(call, await call.connection.query(f"SEARCH {json.dumps(call.argument, ensure_ascii=False)}"))


async def _query(call: CommandCall) -> None:
    if not call.argument:
        raise InvalidInputError('Write a query: /query LOOKUP "sarah-chen".')
    _show_result(call, await call.connection.query(call.argument))


def _show_result(call: CommandCall, result: Result) -> None:
    from rem.cli.query_table import print_rows

    if result.count:
        print_rows(result)
    else:
        call.screen.say("No rows.")
    for note in result.notes:
        call.screen.note(note.text)


async def _show_profile(call: CommandCall) -> None:
    profile = await call.connection.load_profile()
    if profile is None:
        call.screen.say("There is no profile yet: dreaming makes one of what you say (`rem dreaming full`).")
        return
    shown = {name: profile.get(name) for name in ("name", "email", "summary", "interests", "preferred_topics")}
    call.screen.list_lines(
        [
            (name.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            for name, value in shown.items()
            if value
        ]
    )


async def _give_feedback(call: CommandCall) -> None:
    word, _, comment = call.argument.partition(" ")
    rating = _RATINGS.get(word.lower()) or (int(word) if word in ("1", "2", "3", "4", "5") else None)
    if rating is None:
        raise InvalidInputError(
            "Rate the last answer: /feedback up, /feedback down or /feedback 1 to 5, and a comment."
        )
    if call.state.last_answer is None:
        raise InvalidInputError("There is no answer to rate yet.")
    await call.connection.rate(call.state.last_answer, rating, comment.strip() or None)
    call.screen.say("Thank you. Your rating is stored.")


async def _export(call: CommandCall) -> None:
    session = await call.find_session()
    messages = await call.connection.list_messages(session)
    messages = [message for message in messages if message.role != "tool"]
    path = Path(call.argument or f"session-{session}.md")
    if path.suffix == ".json":
        rows = [{"role": m.role, "content": m.content, "created_at": m.created_at.isoformat()} for m in messages]
        text = json.dumps(rows, ensure_ascii=False, indent=2) + "\n"
    else:
        text = "\n".join(f"**{m.role}**, {m.created_at:%Y-%m-%d %H:%M}\n\n{m.content}\n" for m in messages)
    _write_private(path, text)
    call.screen.say(f"Wrote {len(messages)} messages to {path}.")


def _write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner can read. An existing file is not replaced."""
    try:
        path = path.expanduser()
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise InvalidInputError(f"{path} exists: choose another name, or remove it first.") from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error


async def _show_reasoning(call: CommandCall) -> None:
    call.screen.markdown("".join(call.screen.reasoning) or "The last answer came without reasoning.")


async def _quit(call: CommandCall) -> None:
    call.state.is_over = True


def _show_message(screen: Screen, message: MessageLine) -> None:
    screen.say(f"{message.role}, {message.created_at:%Y-%m-%d %H:%M}")
    if message.role == "user":
        # What a person typed keeps its lines.
        screen.say(message.content)
    else:
        screen.markdown(message.content or "(no text)")
    screen.say()


def _require_known(name: str, names: Sequence[str], noun: str) -> None:
    if name not in names:
        raise InvalidInputError(f"There is no {noun} {name!r}.{did_you_mean(name, list(names))}")


MESSAGE_COMMANDS = ("ask", "remember", "forget", "correct", "approve", "reject")
"""Commands that the memory itself reads: they are sent as messages."""
COMMANDS: dict[str, tuple[Handler, str, str]] = {
    "help": (_show_help, "", "List the commands."),
    "sessions": (_list_sessions, "", "List your sessions, newest first."),
    "load": (_load, "SESSION", "Continue a session, by its id or name."),
    "new": (_new, "", "Begin a new session."),
    "save": (_save, "[NAME]", "Give the session a name. Every message is stored as it is sent."),
    "history": (_show_history, "", "Show the messages of the session."),
    "clear": (_start_over, "", "Start over: the agent no longer sees the messages so far; they stay stored."),
    "forget": (_forget, "", "Delete the session, after a confirmation. With words: forget what is about them."),
    "agent": (_choose_agent, "[NAME]", "List the agents, or talk to another one."),
    "model": (_choose_model, "[NAME]", "List the models, or use another one."),
    "memory": (_show_memory, "[QUESTION]", "Show the latest moments, or what the memory says to a question."),
    "search": (_search, "WORDS", "Search the memory."),
    "query": (_query, "QUERY", 'Run a query, such as LOOKUP "sarah-chen".'),
    "profile": (_show_profile, "", "Show what is known about you."),
    "reasoning": (_show_reasoning, "", "Show the reasoning of the last answer."),
    "feedback": (_give_feedback, "up|down|1-5 [COMMENT]", "Rate the last answer."),
    "export": (_export, "[FILE]", "Write the session as Markdown, or as JSON if the name ends with .json."),
    "quit": (_quit, "", "Leave the chat."),
}
