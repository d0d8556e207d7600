"""Formulas as the theory pages write them, `sum over j of e^(-s alpha N0/E)`, as LaTeX.

The pages stay readable as text. `latex` returns None for what is no formula: names of the code, commands, figures.
"""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GREEK = _words("alpha beta gamma delta epsilon eta theta kappa lambda mu pi rho sigma tau phi psi Phi Gamma Delta")
LETTERS = {"ε": "varepsilon", "epsilon": "varepsilon", "phi": "varphi", "π": "pi", "δ": "delta", "κ": "kappa"}
LETTERS |= {"α": "alpha", "β": "beta", "η": "eta", "λ": "lambda", "τ": "tau", "σ": "sigma", "γ": "gamma"}
LETTERS |= {"Δ": "Delta", "Π": "prod", "Σ": "sum", "∫": "int", "ℓ": "ell", "infinity": "infty", "sum": "sum"}
LETTERS |= {"product": "prod", "integral": "int"} | {name: name for name in GREEK - {"epsilon", "phi"}}
LETTERS |= {name: name for name in ("ln", "log", "exp", "sinh", "cosh", "tanh", "sin", "max", "min")}
UPRIGHT = _words(
    "step early late low high offset noise gap base count few many pop mean least lim gone used forgiven left possible "
    "available lower upper answer sign Poisson Laplace Lap Pr mod error term inaccurate fails released true reported "
    "CURRENT limit estimate held spent want past lost share watermark end lowbit threshold tree overflow floor"
)
PROSE = _words(
    "for all some at most in where over of volume with is prefix and these each ever sets slots other the points "
    "values failing to every"
)
SENTENCE = _words("site sites that never asked set geometric offsets phase first or integers")
PRODUCTS = _words("Ck jT kR KT sp sY mA xT dz dX dy du dv dt pG sX sR ib spl spn As kS sv")  # of single letters
WRAPPED = {"sqrt": r"\sqrt{%s}", "floor": r"\lfloor %s\rfloor", "ceil": r"\lceil %s\rceil", "abs": r"\vert %s\vert"}
SIGNS = {"<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", "->": r"\to ", "..": r"\ldots ", "...": r"\ldots ", "±": r"\pm "}
SIGNS |= {"*": r"\cdot ", "·": r"\cdot ", "%": r"\%", "{": r"\{", "}": r"\}", "<": r"\lt ", ">": r"\gt ", "=:": "=:"}
LOW_DIGITS, HIGH_DIGITS = "₀₁₂₃₄₅₆₇₈₉", {"²": "2", "³": "3"}
TOKEN = re.compile(
    r"m̂|\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?|[A-Za-z]+|<=|>=|!=|->|=:|\.\.\.?|\s+|[^\sA-Za-z\d]",
)


def latex(text: str, display: bool = False) -> str | None:
    """The formula in LaTeX, or None if a word in it belongs to no formula. A line of its own may have more words."""
    if re.search(r"^_|[A-Za-z]\.[A-Za-z]|--|[A-Za-z]{2,}_[a-z]{2,}|\w\(\)|[\"#$\\@]", text):
        return None
    tokens = TOKEN.findall(text)
    words = [word for word in tokens if word.isalpha() and len(word) > 1]
    known = GREEK | UPRIGHT | PROSE | PRODUCTS | set(LETTERS) | set(WRAPPED) | (SENTENCE if display else frozenset())
    if not all(word in known for word in words) or (len(tokens) == 1 and words and text not in GREEK | {"step"}):
        return None
    if words and all(word in PROSE | UPRIGHT for word in words) and not re.search(r"[-+*/^=<>_\d(]|\b[A-Za-z]\b", text):
        return None if text != "step" else r"\mathrm{step}"
    return _Reader(tokens).sequence()


class _Reader:
    """Reads the tokens of one formula from left to right."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def sequence(self, end: str = "") -> str:
        """Up to the closing bracket, or the word, that ends it."""
        parts: list[str] = []
        outside, self._depth = self._depth, 0
        while self._at < len(self._tokens):
            item = self._next()
            if item == end and not self._depth:
                break
            self._depth += (item in "([") - (item in ")]")
            parts.append(self._part(item))
        self._depth = outside
        return "".join(parts).strip().replace(r" } \text{ ", " ")

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _part(self, item: str) -> str:
        if item.isspace():
            words = self._at > 1 and self._tokens[self._at - 2] in UPRIGHT and self._peek() in UPRIGHT
            return r"\quad " if len(item) > 1 else r"\ " if words else " "
        if item in "^_":
            return f"{item}{{{self._atom()}}}"
        if "e-" in item:  # 1e-4
            factor, _, power = item.partition("e")
            return ("" if factor == "1" else f"{factor} \\cdot ") + f"10^{{{power}}}"
        if item in WRAPPED and (self._peek() == "(" or item == "sqrt"):
            return WRAPPED[item] % self._atom()
        if item in ("sum", "product", "integral", "Σ") and "".join(self._tokens[self._at : self._at + 3]) == " over ":
            return self._over(item)
        if item in ("sum", "integral") and "".join(self._tokens[self._at : self._at + 3]) == " of ":
            self._at += 3
        if item.isalpha() and item.isascii():
            return self._word(item)
        if item in LOW_DIGITS:
            return f"_{LOW_DIGITS.index(item)}"
        if item in HIGH_DIGITS:
            return f"^{HIGH_DIGITS[item]}"
        if item == "*" and not self._peek().isspace() and not self._tokens[self._at - 2].isspace():
            return "^*"
        if item == "m̂":
            return r"\hat{m}"
        if item == "|":
            return r"\mid " if self._depth and self._peek().isspace() else r"\vert "
        if item == "," and self._peek().isspace():
            return r",\;"
        return f"\\{LETTERS[item]} " if item in LETTERS else SIGNS.get(item, item)

    def _atom(self) -> str:
        """What an exponent, an index or a root applies to: a bracket without its brackets, or one item."""
        while self._peek().isspace():
            self._next()
        item = self._next() if self._peek() else ""
        if item in "({" and item:
            return self.sequence(")" if item == "(" else "}")
        if item in ("-", "<", "+") and self._peek() and not self._peek().isspace() and self._peek() not in "),":
            return SIGNS.get(item, item) + self._part(self._next())
        part = self._part(item).strip() if item else ""
        if item in UPRIGHT and self._peek() == "(":  # a call
            self._next()
            return f"{part}({self.sequence(')')})"
        return part + self._part(self._next()) if self._peek() and self._peek() in LOW_DIGITS else part

    def _over(self, item: str) -> str:
        """`sum over j of x` and, without `of`, what stands below the sign only."""
        self._at += 3
        rest = "".join(self._tokens[self._at :])
        below = self.sequence("of") if re.search(r"\bof\b", rest) else self.sequence()
        return f"\\{LETTERS[item]}_{{{below}}}"

    def _word(self, item: str) -> str:
        if item == "in":
            return r"\in "
        if item == "ln" and self._peek() + self._peek(1) == "+(":
            return rf"\ln^{{{self._next()}}} "
        number = self._next() if self._peek().isdecimal() and len(self._peek()) == 1 else ""
        index = f"_{number}" if number else ""
        if item in LETTERS:
            return f"\\{LETTERS[item]}{index} "
        if item in UPRIGHT:
            return f"\\mathrm{{{item}}}{index}"
        if item in PROSE | SENTENCE:
            return f"\\text{{ {item} }}"
        return f"{item}{index}"
