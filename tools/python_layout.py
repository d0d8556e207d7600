"""A page of the Python reference, from signatures, docstrings and examples: a heading for each class and each call."""

import inspect
import re
from collections.abc import Callable, Iterable
from inspect import isabstract
from itertools import groupby
from pathlib import Path
from types import FunctionType
from typing import Any, Unpack, get_args, get_origin

from tools.python_names import ATTRIBUTES, MEANINGS, SAME, Same

EXAMPLES = Path(__file__).parent / "python_examples.md"
MANY = 3  # a call with this many parameters has a list of them
SHARED = ("estimate", "lower", "upper", "state", "counter", "as_of", "as_dict")  # at the top of the page of answers
ARGUMENTS = re.compile(r"\n+Args:\n(.*)\Z", re.DOTALL)
HIDDEN = re.compile(r"^>>> .*  # hide$")


def section(thing: Any, name: str, constructed: bool, examples: Path = EXAMPLES) -> str:
    """One public name: docstring, signature if programs call it, fields and attributes, an example, and its methods."""
    parts = [f"## {name}", *_words(thing)]
    if isinstance(thing, FunctionType) or constructed:
        parts += _call(name.partition(" ")[0], thing)
    if not isinstance(thing, type):
        return "\n\n".join([*parts, *_example(name, examples)]) + "\n\n"
    shared = SAME.get(name, Same("", "", ()))
    members = [each for each in (*fields(thing), *calls(thing)) if each not in shared.names]
    named = [each for each in members if each == "as_dict" or (each in SHARED and not is_method(thing, each))]
    own = [each for each in members if each not in named]
    methods = [each for each in own if is_method(thing, each)]
    parts += [f"It has {_listed(named)}."] if named and examples == EXAMPLES else []
    parts += [f"As in [{shared.name}]({shared.link}): {_listed(shared.names)}."] if shared.names else []
    skipped = () if examples == EXAMPLES else fields(thing)
    rows = [_attribute(thing, each) for each in own if each not in methods and each not in skipped]
    if rows:
        parts += ["Its attributes:"] * parts[-1].startswith("- ") + [_list(rows)]
    parts += _example(name, examples)
    twins = {each for each in methods if each[0] == "a" and each[1:] in methods}
    for method in methods:
        if method not in twins:
            parts += _method(thing, method, f"a{method}" if f"a{method}" in twins else "", examples)
    return "\n\n".join(parts) + "\n\n"


def calls(thing: object) -> list[str]:
    """The names of its methods and properties that programs use."""
    if not isinstance(thing, type):
        return [getattr(thing, "__name__", "")]
    members = [name for name, value in _members(thing).items() if _is_call(name, value) and name not in fields(thing)]
    return [*ATTRIBUTES.get(thing.__name__, ()), *members]


def fields(kind: type) -> dict[str, object]:
    """The fields of a named tuple or a dataclass, with their types."""
    if issubclass(kind, tuple) or "__dataclass_fields__" in vars(kind):
        return dict(kind.__annotations__)
    return {}


def _members(thing: type) -> dict[str, Any]:
    """Its own, and those of its abstract bases."""
    return {name: value for kind in (*filter(isabstract, thing.__mro__), thing) for name, value in vars(kind).items()}


def is_method(thing: type, name: str) -> bool:
    words = ATTRIBUTES.get(thing.__name__, {}).get(name)
    return not words and (words == "" or isinstance(_members(thing).get(name), FunctionType))


def arguments(thing: object) -> dict[str, str]:
    """The meaning of each parameter, from the section `Args:` of its docstring."""
    found = ARGUMENTS.search(inspect.getdoc(thing) or "")
    rows = re.split(r"\n(?= {4}\S)", f"\n{found[1]}" if found else "")[1:]
    meanings: dict[str, str] = {}
    for names, _, meaning in (row.partition(": ") for row in rows):
        meanings |= dict.fromkeys(names.strip().split(", "), " ".join(meaning.split()))
    return meanings


def parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(function).parameters.values() if each.name not in ("self", "_")]


def example(name: str, examples: Path = EXAMPLES) -> str:
    """The doctest of a name, all of it."""
    found = re.search(
        rf"^## {re.escape(name)}\n\n(.*?)(?=^## |\Z)", examples.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return found[1].strip() if found else ""


def _is_call(name: str, value: object) -> bool:
    if name.startswith("_"):
        return False
    return isinstance(value, property) or (isinstance(value, FunctionType) and name == value.__name__)


def _words(thing: object) -> list[str]:
    """The paragraphs of its docstring, with examples as code blocks."""
    text = ARGUMENTS.sub("", inspect.getdoc(thing) or "")
    paragraphs = text.split("\n\n") if text else []
    return [f"```pycon\n{each}\n```" if each.startswith(">>>") else each for each in paragraphs]


def _line(thing: object) -> str:
    """Its docstring in one line, without examples."""
    return " ".join(" ".join(each for each in _words(thing) if not each.startswith("```")).split())


def _call(name: str, function: Callable[..., object]) -> list[str]:
    """The signature; with many parameters, the types are in the list below it."""
    given, meanings = parameters(function), arguments(function)
    listed = len(given) >= MANY and bool(meanings)
    texts = [_parameter(each, typed=not listed) for each in given]
    keywords = [index for index, each in enumerate(given) if each.kind is each.KEYWORD_ONLY]
    if keywords and not any(each.kind is each.VAR_POSITIONAL for each in given):
        texts.insert(keywords[0], "*")
    text = f"{name}({', '.join(texts)}){_result(function)}"
    if len(text) > 100:
        text = f"{name}(\n" + "".join(f"    {each},\n" for each in texts) + f"){_result(function)}"
    parts = [f"```py\n{text}\n```"]
    if listed:
        groups = groupby(given, lambda each: meanings.get(each.name, ""))
        parts.append(_list([(", ".join(map(_typed, together)), meaning) for meaning, together in groups]))
    return parts


def _typed(parameter: inspect.Parameter) -> str:
    return f"`{parameter.name}` (`{_type(parameter.annotation)}`)"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _parameter(parameter: inspect.Parameter, typed: bool) -> str:
    return _short(str(parameter if typed else parameter.replace(annotation=parameter.empty)))


def _result(function: Callable[..., object]) -> str:
    result = inspect.signature(function).return_annotation
    if isinstance(function, type) or result in (None, inspect.Signature.empty):
        return ""
    return f" -> {_type(result)}"


def _attribute(thing: type, name: str) -> tuple[str, str]:
    """A field or a property with its type, and what it means."""
    if name in fields(thing):
        return f"`{name}` (`{_type(fields(thing)[name])}`)", MEANINGS[name]
    found = _members(thing).get(name)
    getter = found.fget if isinstance(found, property) else None
    kind = inspect.signature(getter).return_annotation if getter else None
    words = ATTRIBUTES.get(thing.__name__, {}).get(name) or _line(found) or MEANINGS.get(name, f"{name}.")
    return f"`{name}` (`{_type(kind)}`)" if kind else f"`{name}`", words


def _method(thing: type, name: str, twin: str, examples: Path) -> list[str]:
    """A heading, the signature, what it does, and an example."""
    heading = f"### {thing.__name__}.{name}"
    if ATTRIBUTES.get(thing.__name__, {}).get(name) == "":  # a slot that holds a bound method
        return [
            heading,
            f"```py\n{name}(n: int = 1)\n```",
            "Count `n` events.",
            *_example(f"{thing.__name__}.{name}", examples),
        ]
    function = _members(thing)[name]
    code, *listed = _call(name, function)
    parts = [heading, code, *(_words(function) or [MEANINGS.get(name, f"{name}.")]), *listed]
    if twin:
        parts.append(f"`{twin}`: {_line(_members(thing)[twin])}")
    return [*parts, *_example(f"{thing.__name__}.{name}", examples)]


def _example(name: str, examples: Path) -> list[str]:
    """The doctest as readers see it: without lines that end in `# hide`, and without what stands after `# hide:`."""
    kept, hiding = [], False
    for line in example(name, examples).splitlines():
        if line.startswith(">>> "):
            hiding = HIDDEN.match(line) is not None
        if not hiding:
            code, mark, scaffolding = line.partition("  # hide: ")
            kept.append(code.replace(scaffolding, "", 1) if mark else line)
    return ["```pycon\n" + "\n".join(kept) + "\n```"] if kept else []


def _list(rows: list[tuple[str, str]]) -> str:
    """One sentence has no full stop."""
    return "\n".join(f"- {names}: {text if '. ' in text else text.removesuffix('.')}" for names, text in rows)


def _type(annotation: object) -> str:
    annotation = next(iter(get_args(annotation)), annotation) if get_origin(annotation) is Unpack else annotation
    return _short(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def _short(text: str) -> str:
    text = re.sub(r"<class '(\w+)'>", r"\1", text)
    text = re.sub(r"Optional\[(Literal\[.*?\])\]", r"\1 | None", text)
    text = text.replace("Literal['minute', 'hour', 'day', 'month']", "Per").replace("datetime.datetime", "datetime")
    text = re.sub(r"LeakMap\(name='always 0 fixed positions'.*?frozenset\(\)\)", "NOTHING_LEAKS", text)
    text = re.sub(r"<function \S*<lambda> at \w+>", "...", text).replace("<built-in function time>", "time.time")
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text).replace("MutableMapping[str, Any]", "Scope")
    text = text.replace("'WSGIEnvironment'", "WSGIEnvironment")
    text = re.sub(r"Union\[Literal\['auto', [^]]*\], Scheme\]", "str | Scheme", text)
    text = text.replace(
        "Callable[[Scope, Callable[[], Awaitable[Scope]], Callable[[Scope], Awaitable[None]]], Awaitable[None]]",
        "ASGIApp",
    )
    return re.sub(r"(^|: )'(\w+)'", r"\1\2", text)
