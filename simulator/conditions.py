"""The integer expression behind an #if, with the preprocessor's arithmetic."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d[\w']*)|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^!~?:()]))"
)
_BINARY = [  # from the loosest to the tightest
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
]
_LEVELS = {sign: level for level, signs in enumerate(_BINARY) for sign in signs}
_DEEPEST = 40  # nested brackets


class _NoExpression(Exception):
    pass


def value(expression: str) -> int | None:
    """The value of a preprocessor expression.

    None if it depends on a name, which may be a macro, or is no integer expression of C. Arithmetic
    has 64 bits, so that no expression takes long.
    """
    try:
        return _Expression(expression).value()
    except _NoExpression:
        return None


class _Expression:
    def __init__(self, text: str):
        self._tokens: list[tuple[str, str]] = []
        text, position = text.strip(), 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise _NoExpression
            self._tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
            position = match.end()
        self._next, self._depth = 0, 0

    def value(self) -> int | None:
        found = self._conditional()
        if self._next != len(self._tokens):
            raise _NoExpression
        return found

    def _take(self, *signs: str) -> str | None:
        """Takes the next token, if it is one of these signs."""
        if self._next < len(self._tokens) and self._tokens[self._next] in (
            ("sign", sign) for sign in signs
        ):
            self._next += 1
            return self._tokens[self._next - 1][1]
        return None

    def _conditional(self) -> int | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _NoExpression
        found = self._binary(0)
        if self._take("?"):
            first = self._conditional()
            if not self._take(":"):
                raise _NoExpression
            second = self._conditional()
            found = None if found is None else first if found else second
        self._depth -= 1
        return found

    def _binary(self, level: int) -> int | None:
        left = self._unary()
        while self._next < len(self._tokens):
            kind, sign = self._tokens[self._next]
            if kind != "sign" or _LEVELS.get(sign, -1) < level:
                break
            self._next += 1
            left = _result(left, sign, self._binary(_LEVELS[sign] + 1))
        return left

    def _unary(self) -> int | None:
        signs = []
        while sign := self._take("!", "-", "+", "~"):
            signs.append(sign)
        found = self._primary()
        for sign in reversed(signs):
            if found is not None:
                found = {"!": int(not found), "-": _wrapped(-found), "+": found, "~": ~found}[sign]
        return found

    def _primary(self) -> int | None:
        if self._take("("):
            found = self._conditional()
            if not self._take(")"):
                raise _NoExpression
            return found
        if self._next == len(self._tokens):
            raise _NoExpression
        kind, text = self._tokens[self._next]
        self._next += 1
        if kind == "number":
            return _number(text)
        if kind != "word":
            raise _NoExpression
        if text in ("true", "false"):
            return int(text == "true")
        if self._take("("):  # the macro's arguments, or a header's name
            self._skip_arguments()
        return None

    def _skip_arguments(self) -> None:
        depth = 1
        while depth:
            if self._next == len(self._tokens):
                raise _NoExpression
            depth += {("sign", "("): 1, ("sign", ")"): -1}.get(self._tokens[self._next], 0)
            self._next += 1


def _result(left: int | None, sign: str, right: int | None) -> int | None:
    if sign in ("&&", "||"):
        decides = sign == "||"
        for side in (left, right):
            if side is not None and bool(side) == decides:
                return int(decides)
        return None if left is None or right is None else int(not decides)
    if left is None or right is None:
        return None
    match sign:
        case "/" | "%":
            if right == 0:
                raise _NoExpression
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return _wrapped(quotient if sign == "/" else left - quotient * right)
        case "<<" | ">>":
            if not 0 <= right < 64:
                raise _NoExpression
            return _wrapped(left << right) if sign == "<<" else left >> right
    comparisons = {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        ">": left > right,
        "<=": left <= right,
        ">=": left >= right,
    }
    if sign in comparisons:
        return int(comparisons[sign])
    bits = {"|": left | right, "^": left ^ right, "&": left & right}
    return (
        bits[sign]
        if sign in bits
        else _wrapped({"+": left + right, "-": left - right, "*": left * right}[sign])
    )


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _number(text: str) -> int:
    digits = re.fullmatch(r"(0[xX][\da-fA-F]+|0[bB][01]+|\d+)[uUlLzZ]{0,3}", text.replace("'", ""))
    if digits is None or len(digits[1]) > 70:
        raise _NoExpression
    base = {"0x": 16, "0b": 2}.get(digits[1][:2].lower(), 8 if digits[1][0] == "0" else 10)
    try:
        return _wrapped(int(digits[1], base))
    except ValueError:
        raise _NoExpression from None
