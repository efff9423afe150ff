"""Find every regular expression of a package, and texts that make one of them slow.

Run as a script with the name of a package, this prints each slow pattern as a line of JSON. The test runs it in a
process of its own, so that a pattern that never ends cannot stop the tests.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from types import FrameType, ModuleType
from typing import Any, NamedTuple, TypeGuard

from rem.db.yaml import load_yaml

FUNCTIONS = frozenset({"compile", "match", "search", "fullmatch", "split", "findall", "finditer", "sub", "subn"})
"""The functions of `re` whose first argument is a pattern."""
PROBE_CHARACTERS = " -aAk0.,:;'\"/_@#|*=~`!?+<>()[]{}\\&%$^\n\t\rsé’“…中かß\u00a0\x01"
SHORT, PROBE, LONG = 250, 1_000, 20_000
MANY = 12
"""A repeat that ends after fewer repetitions costs little."""
FAST_SECONDS = 0.00008
"""A pattern that reads a text of PROBE characters in less time reads LONG characters in at most 32 ms."""
STOP_SECONDS = 1.0
MAX_GROWTH = 4.5
"""How much more time each character may take in a text of LONG characters. For quadratic time it is 20 times more."""
MAX_BOUND_SECONDS = 0.01
PLACEHOLDER = "ada-lin"
"""Stands for a text that is known only at run time, such as a name."""


class Found(NamedTuple):
    """A pattern and where the source has it."""

    place: str
    pattern: str | bytes
    flags: int
    max_chars: int | None = None
    """The pattern reads no longer texts."""
    methods: tuple[str, ...] = ("match", "search", "fullmatch", "finditer")


class Slow(NamedTuple):
    """A pattern whose time grows faster than the text."""

    place: str
    pattern: str
    method: str
    text: str
    milliseconds: float


class TimeOver(BaseException):
    """A pattern has read a text for STOP_SECONDS."""


# --- attack ---------------------------------------------------------------------------------------------------------


class Attack(NamedTuple):
    """A text of any length: a start, a body that is repeated, and an end."""

    start: str
    body: str
    end: str

    def write(self, length: int) -> str:
        """Return the text with a length."""
        return self.start + self.body * max(1, (length - len(self.start) - len(self.end)) // len(self.body)) + self.end

    def __str__(self) -> str:
        return f"{self.start!r} + {self.body!r} * n + {self.end!r}"


METHODS: Mapping[str, Callable[[re.Pattern[Any], Any], Any]] = {
    "match": lambda pattern, text: pattern.match(text),
    "search": lambda pattern, text: pattern.search(text),
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "finditer": lambda pattern, text: sum(1 for _ in pattern.finditer(text)),
}


ALL = tuple(METHODS)


class Grammar:
    """The parts of a parsed pattern as texts that match them."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.tree = sre_parser.parse(pattern, flags)
        self.flags = self.tree.state.flags
        self.groups: dict[int, Any] = {}
        self.sets: list[Callable[[str], bool]] = []
        self._matchers: dict[int, Callable[[str], bool]] = {}
        self._collect(self.tree)
        self.characters = self._choose_characters()

    def _collect(self, nodes: Any) -> None:
        for node in nodes:
            op, value = node
            if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN, sre.CATEGORY):
                self.sets.append(self._matcher(node))
            if op is sre.SUBPATTERN and value[0] is not None:
                self.groups[value[0]] = value[3]
            for child in children(node):
                self._collect(child)

    def _matcher(self, node: Any) -> Callable[[str], bool]:
        known = self._matchers.get(id(node))
        if known is None:
            from re import _compiler as compiler  # type: ignore[attr-defined]

            tree = sre_parser.SubPattern(self.tree.state, [node if node[0] is not sre.CATEGORY else (sre.IN, [node])])
            compiled = compiler.compile(tree, self.flags & ~sre_parser.TYPE_FLAGS)
            known = self._matchers[id(node)] = lambda character: compiled.match(character) is not None
        return known

    def _choose_characters(self) -> list[str]:
        """Return one character for each combination of sets that match it, those in most sets first."""
        chosen: dict[tuple[bool, ...], str] = {}
        literals = {chr(value) for value in self._literals(self.tree)}
        for character in [*PROBE_CHARACTERS, *sorted(literals)]:
            signature = tuple(matches(character) for matches in self.sets)
            if any(signature):
                chosen.setdefault(signature, character)
        return [character for _, character in sorted(chosen.items(), key=lambda item: -sum(item[0]))]

    def _literals(self, nodes: Any) -> Iterator[int]:
        for node in nodes:
            if node[0] is sre.LITERAL:
                yield node[1]
            for child in children(node):
                yield from self._literals(child)

    def sample(self, nodes: Any, preferred: str = "", branch: int = 0, optional: bool = False) -> str:
        """Return a text that matches parts of the pattern, with a preferred character and branch where they fit."""
        return "".join(self._sample_node(node, preferred, branch, optional) for node in nodes)

    def _sample_node(self, node: Any, preferred: str, branch: int, optional: bool) -> str:
        op, value = node
        if op is sre.LITERAL:
            return chr(value)
        if op in (sre.NOT_LITERAL, sre.ANY, sre.IN, sre.CATEGORY):
            matches = self._matcher(node)
            return next((one for one in [preferred, *self.characters, *PROBE_CHARACTERS] if one and matches(one)), "")
        if op is sre.BRANCH:
            return self.sample(value[1][branch % len(value[1])], preferred, branch, optional)
        if op is sre.SUBPATTERN:
            return self.sample(value[3], preferred, branch, optional)
        if op is sre.ATOMIC_GROUP:
            return self.sample(value, preferred, branch, optional)
        if op in REPEATS:
            least, most, body = value
            times: int = max(least, 1 if optional and most else 0)
            return self.sample(body, preferred, branch, optional) * times
        if op is sre.GROUPREF:
            return self.sample(self.groups.get(value, ()), preferred, branch, optional)
        if op is sre.ASSERT and value[0] < 0:
            return self.sample(value[1], preferred, branch, optional)
        if op is sre.GROUPREF_EXISTS:
            return self.sample(value[1], preferred, branch, optional)
        return ""

    def find_repeats(self, nodes: Any, start: str = "") -> Iterator[tuple[str, Any, str]]:
        """Yield what comes before each repeat, its body, and what comes after it."""
        nodes = list(nodes)
        for index, node in enumerate(nodes):
            rest = self.sample(nodes[index + 1 :])
            if node[0] in REPEATS and node[1][1] >= MANY:
                yield start, node[1][2], rest
            for child in children(node):
                for before, body, after in self.find_repeats(child, start):
                    yield before, body, after + rest
            start += self._sample_node(node, "", 0, False)

    def bodies(self, body: Any) -> Iterator[str]:
        """Yield texts that match the body of a repeat."""
        branches = max(1, min(8, count_branches(body)))
        characters = dict.fromkeys((" ", "\n", *self.characters[:8]))
        for branch in range(branches):
            for preferred in characters:
                for optional in (False, True):
                    yield self.sample(body, preferred, branch, optional)

    def attacks(self) -> Iterator[Attack]:
        """Yield attacks on each repeat of the pattern."""
        for start, body, after in self.find_repeats(self.tree):
            failing = self._find_failing(body)
            for text in islice(dict.fromkeys(text for text in self.bodies(body) if text), MAX_BODIES):
                for end in dict.fromkeys((failing, "\x01", " x", "\n\n", after)):
                    yield Attack(start, text, end)
                others = [other for other in dict.fromkeys((" ", *self.characters[:3])) if other != text]
                for pump in (text, *(text + other for other in others)):
                    for end in dict.fromkeys((failing, "\x01")):
                        yield Attack(start, pump, end)
                        yield Attack("", start + pump, end)

    def _find_failing(self, body: Any) -> str:
        """Return a character that a repeat does not match, if one character shows that."""
        if len(body) == 1 and (matches := self._matchers.get(id(body[0]))):
            return next((one for one in reversed(PROBE_CHARACTERS) if not matches(one)), "\x01")
        return "\x01"


MAX_BODIES = 8
REPEATS = tuple(getattr(sre, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(sre, name))


def children(node: Any) -> list[Any]:
    """Return the sequences of parts inside a part of a parsed pattern."""
    op, value = node
    if op is sre.BRANCH:
        return list(value[1])
    if op is sre.SUBPATTERN:
        return [value[3]]
    if op in REPEATS:
        return [value[2]]
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return [value[1]]
    if op is sre.ATOMIC_GROUP:
        return [value]
    if op is sre.GROUPREF_EXISTS:
        return [part for part in value[1:] if part is not None]
    return []


def count_branches(nodes: Any) -> int:
    """Return the largest number of alternatives in parts of a pattern."""
    counts = [1]
    for node in nodes:
        if node[0] is sre.BRANCH:
            counts.append(len(node[1][1]))
        counts += [count_branches(child) for child in children(node)]
    return max(counts)


def measure(run: Callable[[Any, Any], Any], pattern: re.Pattern[Any] | None, text: Any, times: int = 1) -> float:
    """Return the least CPU seconds of one call. Raise TimeOver after STOP_SECONDS."""
    least = STOP_SECONDS
    signal.setitimer(signal.ITIMER_VIRTUAL, STOP_SECONDS)
    try:
        for _ in range(times):
            # Linux reads the clock of the process in ticks while a timer runs.
            started = time.thread_time()
            run(pattern, text)
            least = min(least, time.thread_time() - started)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return least


def find_slow(found: Found) -> Iterator[Slow]:
    """Yield the first attack by each method that makes a pattern slow."""
    pattern = re.compile(found.pattern, found.flags)
    encode = (
        (lambda text: text.encode("latin-1", "ignore")) if isinstance(found.pattern, bytes) else (lambda text: text)
    )
    limit = found.max_chars
    methods = {name: METHODS[name] for name in found.methods}
    slow: set[str] = set()

    def run_all(pattern: re.Pattern[Any], text: Any) -> None:
        for run in methods.values():
            run(pattern, text)

    for attack in dict.fromkeys(Grammar(pattern.pattern, found.flags).attacks()):
        if not _is_suspicious(run_all, pattern, attack, encode, limit):
            continue
        for name, run in methods.items():
            if name not in slow and (seconds := _confirm(run, pattern, attack, encode, limit)):
                slow.add(name)
                yield Slow(found.place, str(found.pattern), name, str(attack), round(seconds * 1000, 1))
        if slow:
            break


def _is_suspicious(run_all: Any, pattern: re.Pattern[Any], attack: Attack, encode: Any, limit: int | None) -> bool:
    try:
        seconds = measure(run_all, pattern, encode(attack.write(limit or PROBE)))
        if limit:
            return seconds > MAX_BOUND_SECONDS
        return seconds > FAST_SECONDS and seconds > 6 * measure(run_all, pattern, encode(attack.write(SHORT)))
    except TimeOver:
        return True


def _confirm(run: Any, pattern: re.Pattern[Any], attack: Attack, encode: Any, limit: int | None) -> float:
    """Return the seconds of a slow call, or 0 if the time is linear."""
    try:
        if limit:
            seconds = measure(run, pattern, encode(attack.write(limit)), 3)
            return seconds if seconds > MAX_BOUND_SECONDS else 0
        short = measure(run, pattern, encode(attack.write(SHORT)), 3)
        probe = measure(run, pattern, encode(attack.write(PROBE)), 3)
        if probe < FAST_SECONDS / 4 or probe < short * PROBE / SHORT * 1.7:
            return 0
        long = measure(run, pattern, encode(attack.write(LONG)), 1)
        if long < probe * LONG / PROBE * MAX_GROWTH:
            return 0
        # The time of another process on the machine may count here, too, so each length is measured again.
        lengths = (PROBE, LONG // 4, LONG)
        probe, middle, long = (measure(run, pattern, encode(attack.write(length)), 4) for length in lengths)
        return long if long > probe * LONG / PROBE * MAX_GROWTH and long > middle * 4 * 1.7 else 0
    except TimeOver:
        return STOP_SECONDS


# --- find -----------------------------------------------------------------------------------------------------------


class Finder:
    """Finds every regular expression that the source and the YAML files of a package have.

    It imports the package and runs its cached functions while it watches `re`. It works out the other patterns, those
    inside functions, from the source: a part that is known only at run time becomes PLACEHOLDER.
    """

    def __init__(self, package: str) -> None:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ValueError(f"there is no package {package}")
        self._package = package
        self._root = Path(spec.submodule_search_locations[0])
        self._places: dict[tuple[str | bytes, int, int | None, tuple[str, ...]], str] = {}
        self._compiled_at: set[tuple[str, int]] = set()
        self._methods: dict[str, dict[int, tuple[str, ...]]] = {}

    def find(self) -> list[Found]:
        """Return the patterns, each once. Raise ValueError if a use of `re` hides its pattern."""
        for module in self._record_compiled():
            self._read_source(module)
        for path in sorted(self._root.rglob("*.yaml")):
            self._read_yaml(path)
        return [Found(place, *key) for key, place in self._places.items()]

    def _add(
        self, place: str, pattern: str | bytes, flags: int, max_chars: int | None = None, methods: tuple[str, ...] = ALL
    ) -> None:
        self._places.setdefault((pattern, flags, max_chars, methods), place)

    def _record_compiled(self) -> list[ModuleType]:
        compile_pattern = re._compile  # type: ignore[attr-defined]

        def record(pattern: Any, flags: Any) -> re.Pattern[Any]:
            compiled: re.Pattern[Any] = compile_pattern(pattern, flags)
            self._record(compiled, sys._getframe(1))
            return compiled

        re._compile = record  # type: ignore[attr-defined]
        try:
            names = [info.name for info in pkgutil.walk_packages([str(self._root)], f"{self._package}.")]
            names = [self._package, *(name for name in names if not name.endswith("__main__"))]
            modules = [importlib.import_module(name) for name in names]
            for module in modules:
                _call_cached_functions(module)
            return modules
        finally:
            re._compile = compile_pattern  # type: ignore[attr-defined]

    def _record(self, compiled: re.Pattern[Any], caller: FrameType | None) -> None:
        max_chars = None
        while caller is not None and (caller.f_globals.get("__name__") == "re" or caller.f_code.co_name == BOUND):
            max_chars = caller.f_locals["max_chars"] if caller.f_code.co_name == BOUND else max_chars
            caller = caller.f_back
        path = Path(caller.f_code.co_filename) if caller is not None else Path()
        if caller is not None and path.is_relative_to(self._root):
            name = str(path.relative_to(self._root))
            self._compiled_at.add((name, caller.f_lineno))
            methods = self._find_methods(name).get(caller.f_lineno, ALL)
            self._add(f"{name}:{caller.f_lineno}", compiled.pattern, compiled.flags, max_chars, methods)

    def _find_methods(self, name: str) -> dict[int, tuple[str, ...]]:
        """Return the lines with `re.compile(…).match`: nothing else can be done with such a pattern."""
        if name not in self._methods:
            self._methods[name] = _list_methods(ast.parse((self._root / name).read_text(encoding="utf-8")))
        return self._methods[name]

    def _read_source(self, module: ModuleType) -> None:
        """Add the patterns of calls that nobody has run."""
        path = Path(str(module.__file__))
        name = str(path.relative_to(self._root))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            is_hidden = isinstance(node, ast.ImportFrom) and node.module == "re"
            is_renamed = isinstance(node, ast.Import) and any(one.name == "re" and one.asname for one in node.names)
            if is_hidden or is_renamed:
                raise ValueError(f"{name}:{node.lineno}: write `import re`, so that the patterns can be found")
        called = {id(call.func) for _, call in _list_calls(tree, None)}
        for node in ast.walk(tree):
            if _is_function_of_re(node) and id(node) not in called:
                raise ValueError(f"{name}:{node.lineno}: call it with its pattern, so that the pattern can be found")
        for function, call in _list_calls(tree, None):
            lines = range(call.lineno, (call.end_lineno or call.lineno) + 1)
            if any((name, line) in self._compiled_at for line in lines):
                continue
            scope = Scope(module, tree, function)
            values = [scope.evaluate(value) for value in (*call.args[1:], *(one.value for one in call.keywords))]
            flags = next((int(value) for value in values if isinstance(value, re.RegexFlag)), 0)
            is_bounded = isinstance(call.func, ast.Name)
            for pattern in scope.evaluate_all(call.args[0]):
                if isinstance(pattern, str | bytes):
                    methods = self._find_methods(name).get(call.lineno, ALL)
                    self._add(f"{name}:{call.lineno}", pattern, flags, int(values[0]) if is_bounded else None, methods)

    def _read_yaml(self, path: Path) -> None:
        """Add each entry of a list in a YAML file that is a regular expression, also if nothing uses it yet."""
        compiled = {key[0] for key in self._places}
        for entry in _list_texts(load_yaml(path.read_text(encoding="utf-8"))):
            if entry in compiled:
                continue
            try:
                re.compile(entry)
            except (re.error, OverflowError):
                continue  # A part of a pattern is tested with the rest of it, where it is compiled.
            # It is a part of patterns, which are tested with all methods where they are compiled.
            name = f"{path.relative_to(self._root)}: {entry[:40]}"
            self._add(name, entry, int(re.IGNORECASE), methods=("match", "fullmatch"))


BOUND = "compile_bounded"
"""The function of `rem.text` whose patterns read at most `max_chars` characters."""


class Scope(dict[str, Any]):
    """The names inside a function, with values as far as the source has them."""

    def __init__(self, module: ModuleType, tree: ast.Module, function: ast.AST | None) -> None:
        super().__init__()
        self._module = module
        self._tree = tree
        self._assigned: dict[str, ast.expr] = {}
        self._arguments: list[str] = []
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self._arguments = [argument.arg for argument in function.args.args]
            for node in ast.walk(function):
                if isinstance(node, ast.Assign):
                    self._assigned |= dict(_list_assigned(node.targets[0], node.value))

    def __missing__(self, name: str) -> Any:
        if name in self._assigned:
            self[name] = PLACEHOLDER  # A name in its own value: `name = f"{name}s"`.
            self[name] = self.evaluate(self._assigned[name])
            return self[name]
        if name not in self._arguments and (name in vars(self._module) or hasattr(builtins, name)):
            return vars(self._module).get(name, getattr(builtins, name, None))
        return PLACEHOLDER

    def evaluate_all(self, expression: ast.expr) -> Iterator[Any]:
        """Yield the values of an expression, for each text of the module that may be the argument of the function."""
        values = [self.evaluate(expression)]
        if self._arguments and PLACEHOLDER in str(values[0]):
            constants = {str(node.value) for node in ast.walk(self._tree) if isinstance(node, ast.Constant)}
            for text in sorted(filter(str.isidentifier, constants)):
                self.clear()
                self[self._arguments[0]] = text
                values.append(self.evaluate(expression))
        known = [value for value in values if PLACEHOLDER not in str(value)]
        yield from known or values[:1]

    def evaluate(self, expression: ast.expr) -> Any:
        """Return the value of an expression, with PLACEHOLDER in place of what only a run has."""
        if isinstance(expression, ast.JoinedStr):
            return "".join(str(self.evaluate(part)) for part in expression.values)
        if isinstance(expression, ast.FormattedValue):
            return self.evaluate(expression.value)
        if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
            return self.evaluate(expression.left) + self.evaluate(expression.right)
        try:
            code = compile(ast.Expression(expression), "<pattern>", "eval")
            return eval(code, vars(self._module), self)
        except Exception:  # noqa: BLE001 - only a run has the value
            return PLACEHOLDER


def _list_assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of an assignment with their values."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple):
        values = [getattr(value, "elt", value)] * len(target.elts)
        if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
            values = value.elts
        for name, part in zip(target.elts, values, strict=True):
            yield from _list_assigned(name, part)


def _list_methods(tree: ast.Module) -> dict[int, tuple[str, ...]]:
    return {
        node.lineno: (node.attr,)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and node.attr in METHODS
        if ast.unparse(node.value.func) == "re.compile"
    }


def _call_cached_functions(module: ModuleType) -> None:
    """Call the functions that compile patterns once, so that they are seen."""
    for value in list(vars(module).values()):
        if hasattr(value, "cache_info") and value.__module__ == module.__name__:
            needs = [one for one in inspect.signature(value).parameters.values() if one.default is one.empty]
            source = inspect.getsource(value)
            if not needs and any(word in source for word in ("Pattern", "re.compile", BOUND)):
                value()


def _list_calls(node: ast.AST, function: ast.AST | None) -> Iterator[tuple[ast.AST | None, ast.Call]]:
    """Yield each call of a function of `re`, with the function that contains it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            is_bound = isinstance(child.func, ast.Name) and child.func.id == BOUND
            if _is_function_of_re(child.func) or is_bound:
                yield function, child
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _list_calls(child, child if is_function else function)


def _is_function_of_re(node: ast.AST) -> TypeGuard[ast.Attribute]:
    if not isinstance(node, ast.Attribute) or node.attr not in FUNCTIONS:
        return False
    return isinstance(node.value, ast.Name) and node.value.id == "re"


def _list_texts(value: Any) -> Iterator[str]:
    """Yield the texts in the lists of a parsed YAML file."""
    if isinstance(value, dict):
        for part in value.values():
            yield from _list_texts(part)
    elif isinstance(value, list):
        yield from (part for part in value if isinstance(part, str))
        yield from (text for part in value if not isinstance(part, str) for text in _list_texts(part))


def stop(number: int, frame: FrameType | None) -> None:
    """End the call that has taken STOP_SECONDS."""
    raise TimeOver


def main(package: str) -> None:
    """Print the number of patterns, and each slow one."""
    signal.signal(signal.SIGVTALRM, stop)
    found = Finder(package).find()
    print(json.dumps({"patterns": len(found)}))
    for pattern in found:
        for slow in find_slow(pattern):
            print(json.dumps(slow._asdict()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
