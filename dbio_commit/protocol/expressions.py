"""Checks which expressions in Spark's SQL, from the settings of a table, a writer evaluates. Pure, and linear in time.

Settings come from outside, and a writer with more rights than their author evaluates them. Therefore only a small part
of SQL is allowed (PROTOCOL.md 9.8): operators, literals, columns and the functions named here. This language has no
queries, no variables and no functions of users. Spark reads each text of this language as this module does. The lexical
rules are Spark's; if Spark's settings change how a token is read, this module treats both readings alike.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final, NamedTuple, NoReturn

from dbio_commit.protocol.types import TYPES

MAX_CHARACTERS: Final = 4096
MAX_DEPTH: Final = 32
"""Levels of nested brackets, calls, prefixes and CASEs."""

MAX_SIZE: Final = 4096
"""About how many nodes Spark may make of an expression. For some functions, BETWEEN and CASE, Spark repeats an
argument, and nesting multiplies that. The driver computes the constant parts."""

MAX_LAMBDAS: Final = 2
"""Levels of nested lambda functions. Each runs over an array for each step of the one around it."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OTHERS = """
    abs acos acosh add_months array array_append array_compact array_contains array_distinct array_except
    array_intersect array_join array_max array_min array_position array_prepend array_remove array_size
    array_sort array_union arrays_overlap arrays_zip ascii asin asinh atan atan2 atanh base64 bin bit_count bit_get
    bit_length bround btrim cardinality cbrt ceil ceiling char char_length character_length chr coalesce concat
    concat_ws contains conv convert_timezone cos cosh cot crc32 csc curdate date_add date_diff date_format
    date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek
    dayofyear decode degrees e element_at elt encode endswith equal_null exists exp expm1 factorial filter find_in_set
    flatten floor forall format_number from_json from_unixtime from_utc_timestamp get get_json_object
    getbit greatest hash hex hour hypot if ifnull initcap instr is_valid_utf8 isnan isnotnull isnull
    json_array_length json_object_keys last_day lcase least left len length levenshtein ln locate log log10 log1p log2
    lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values map_zip_with mask md5 minute mod month monthname
    months_between named_struct nanvl negative next_day nullif nullifzero nvl nvl2 octet_length overlay parse_url pi
    pmod position positive pow power quarter radians regexp regexp_count regexp_extract regexp_extract_all
    regexp_instr regexp_like regexp_replace regexp_substr replace reverse right rint round rpad rtrim sec second
    sentences sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice sort_array soundex
    split split_part sqrt startswith str_to_map struct substr substring substring_index tan tanh timestamp_micros
    timestamp_millis timestamp_seconds to_binary to_char to_csv to_date to_json to_number to_timestamp to_timestamp_ltz
    to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar transform transform_keys transform_values translate
    trim trunc try_add try_divide try_element_at try_make_timestamp try_mod try_multiply try_parse_url try_subtract
    try_to_binary try_to_date try_to_number try_to_timestamp try_url_decode try_validate_utf8 typeof ucase unbase64
    unhex unix_date unix_micros unix_millis unix_seconds unix_timestamp upper url_decode url_encode validate_utf8
    weekday weekofyear width_bucket xxhash64 year zeroifnull zip_with
"""
_NAMES_OF_TYPES = """
    bigint binary boolean date decimal double float int smallint string timestamp tinyint
"""
_OF_THE_WRITE = """
    current_catalog current_database current_date current_schema current_timestamp current_timezone current_user
    localtimestamp now session_user user uuid
"""
FUNCTIONS: Final = _words(_OTHERS) | _words(_NAMES_OF_TYPES) | _words(_OF_THE_WRITE)
"""Functions in lower case. They are Spark's own, use one row, and reach nothing outside it: no reflection, no file, no
variable of a session, no XML. Except for COUNTED, none fills memory by a number or a loop (`repeat`, `sequence`,
`aggregate`)."""

COUNTED: Final = _words("lpad rpad round bround ceil ceiling floor format_number")
"""The second argument of these is the size of their result: a number of at most four digits."""

_TWICE = _words(
    "array_append array_prepend array_size btrim contains date_part datepart decode endswith equal_null extract get if "
    "ifnull left len map_contains_key mask nullif nullifzero nvl nvl2 overlay regexp_substr right split_part "
    "startswith to_binary try_to_binary weekday zeroifnull"
)
"""Spark replaces these by other expressions, in which an argument may appear twice."""

_GROWTH: Mapping[str, int] = {
    "array_join": 1, "concat_ws": 0, "map_zip_with": 2, "regexp_replace": 2, "replace": 2, "transform": 1,
    "transform_keys": 1, "transform_values": 1, "zip_with": 2,
}  # fmt: skip
"""Functions that repeat texts as often as another argument has parts, with the index of the first argument that has
such texts."""

_WITHOUT_BRACKETS = _words(
    "current_catalog current_database current_date current_schema current_timestamp current_user localtimestamp "
    "session_user user"
)
"""Functions that are also called without brackets, if there is no such column."""

_TYPES = frozenset(name for row in TYPES for name in row.sql)
_RESERVED = _words(
    "and as between case cast distinct else end exists extract from in is map not or reduce select table then try_cast "
    "values when where with"
)
"""Words that are columns only in backticks: a query could begin with some of them."""

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n]++)
    | (?P<string>'(?:[^'\\]|\\.|'')*+')
    | (?P<quoted>`(?:[^`]|``)++`)
    | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,3}[FD]?|BD|[LSYFD])?(?![A-Za-z0-9_]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*+)
    | (?P<sign><=>|<>|!=|<=|>=|==|->|\|\||--|/\*|[-=<>+*/%&|^~()\[\],.!:])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE | re.ASCII,  # otherwise other letters would match k, s and i
)

_PREFIXES = frozenset({"not", "!", "-", "+", "~"})
_OPERATORS = frozenset(
    {"and", "or", "div", "like", "ilike", "rlike", "regexp", "between"}
    | {"=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "&", "|", "^"}
)
_NEGATED = frozenset({"like", "ilike", "rlike", "regexp", "between", "in"})
_LITERALS = frozenset({"true", "false", "null"})
"""Words that are values, although a column may have such a name: that column stands in backticks."""
_LITERAL_TYPES = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz", "x"})


class _Token(NamedTuple):
    kind: str
    text: str
    """The text; words are in lower case."""
    at: int


_END = _Token("end", "", 0)


class _Refusal(Exception):
    """The expression is refused, for this reason."""


def problem_of(sql: str, columns: Iterable[str] | None = None) -> str | None:
    """Why no writer evaluates the expression; None if writers do.

    The expression may use these columns, whatever their case, and no other name: Spark takes an unknown name for a
    variable of the session. `columns` is None if they are not known yet.
    """
    try:
        _Reader(_tokens(sql), None if columns is None else {column.lower() for column in columns}).read()
    except _Refusal as refusal:
        return str(refusal)
    return None


def _tokens(sql: str) -> list[_Token]:
    if len(sql) > MAX_CHARACTERS:
        raise _Refusal(f"it has {len(sql)} characters, and may have {MAX_CHARACTERS}")
    if "${" in sql:
        raise _Refusal("it holds ${, in whose place Spark puts variables of the writer")
    tokens: list[_Token] = []
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        kind = found.lastgroup if found else None
        if found is None or kind is None or found[0] in ("--", "/*"):
            raise _Refusal(
                f"{sql[at : at + 10]!r:.60}, at character {at + 1}, is no part of an expression{_hint(sql[at])}"
            )
        if kind != "space":
            tokens.append(_Token(kind, found[0].lower() if kind == "word" else found[0], at))
        at = found.end()
    return tokens


def _hint(character: str) -> str:
    if character == '"':
        return (
            "; texts stand in single quotes, and names in backticks, since Spark's settings say which of both that is"
        )
    return "; put a name that is not ASCII in backticks" if character.isalpha() and not character.isascii() else ""


class _Reader:
    """Reads an expression by recursive descent, at most MAX_DEPTH deep. Each method returns a size: how large Spark may
    make what it read."""

    def __init__(self, tokens: list[_Token], columns: Set[str] | None) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0
        self._columns, self._parameters, self._lambdas = columns, list[str](), 0

    def read(self) -> None:
        size = self._expression()
        if self._next.kind != "end":
            self._refuse()
        if size > MAX_SIZE:
            raise _Refusal(
                "it nests functions, BETWEEN or CASE so that Spark would expand it to an expression that is too large: "
                "make it simpler, or split it in two"
            )

    # --- tokens

    @property
    def _next(self) -> _Token:
        return self._peek(0)

    def _peek(self, further: int) -> _Token:
        at = self._at + further
        return self._tokens[at] if at < len(self._tokens) else _END

    def _is(self, *texts: str, further: int = 0) -> bool:
        """Whether the token there is one of these words or signs."""
        token = self._peek(further)
        return token.kind in ("word", "sign") and token.text in texts

    def _takes(self, *texts: str) -> bool:
        if self._is(*texts):
            self._at += 1
            return True
        return False

    def _expect(self, *texts: str) -> None:
        if not self._takes(*texts):
            self._refuse()

    def _expect_kind(self, *kinds: str) -> None:
        if self._next.kind not in kinds:
            self._refuse()
        self._at += 1

    def _refuse(self) -> NoReturn:
        token = self._next
        if token.kind == "end":
            raise _Refusal("it ends too early")
        raise _Refusal(f"{token.text!r:.60}, at character {token.at + 1}, is not expected there")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Refusal(f"it nests more than {MAX_DEPTH} deep")

    # --- the grammar

    def _expression(self) -> int:
        self._enter()
        size = part = 0
        while True:
            part += self._operand()
            while self._takes("is"):
                self._takes("not")
                if self._takes("distinct"):
                    self._expect("from")
                    part += self._operand()
                else:
                    self._expect("null", "true", "false", "unknown")
            if self._is("not") and self._is(*_NEGATED, further=1):
                self._at += 1
            if self._takes("in"):
                part += self._list()
            operator = self._next.text
            if not self._takes(*_OPERATORS):
                break
            if operator in ("and", "or"):
                size, part = size + part, 0
            elif operator == "between":
                part *= 2
        self._depth -= 1
        return size + part

    def _operand(self) -> int:
        prefixes = 0
        while self._takes(*_PREFIXES):
            prefixes += 1
            self._enter()
        size = prefixes + self._primary()
        while True:
            if self._takes("["):
                size += self._expression()
                self._expect("]")
            elif self._is("."):
                self._field()
            elif self._takes("escape"):
                self._expect_kind("string")
            else:
                break
        self._depth -= prefixes
        return size

    def _primary(self) -> int:
        token = self._next
        if token.kind in ("number", "string"):
            self._at += 1
        elif token.kind == "quoted":
            self._at += 1
            if self._is("("):
                raise _Refusal(f"{token.text!r:.60} is called as a function, and its name stands in backticks")
            self._name(token, token.text[1:-1].replace("``", "`").lower())
        elif token.kind == "word":
            return self._word(token)
        elif self._is("("):
            return self._list()
        else:
            self._refuse()
        return 1

    def _word(self, token: _Token) -> int:
        word, called = token.text, self._is("(", further=1)
        self._at += 1
        if word in _LITERAL_TYPES and self._next.kind == "string":
            self._at += 1
        elif word == "case":
            return self._case()
        elif word == "interval" and not called:
            self._interval()
        elif called and (special := _SPECIAL.get(word)):
            self._at += 1
            size = special(self)
            self._expect(")")
            return 1 + size
        elif called:
            return self._call(word)
        elif word in _RESERVED:
            self._at -= 1
            self._refuse()
        elif word not in _WITHOUT_BRACKETS | _LITERALS:
            self._name(token, word)
        return 1

    def _name(self, token: _Token, name: str) -> None:
        """Checks the first part of a column's name."""
        if self._columns is not None and name not in self._columns and name not in self._parameters:
            raise _Refusal(f"{token.text!r:.60}, at character {token.at + 1}, is no column that the expression may use")

    def _field(self) -> None:
        self._expect(".")
        self._expect_kind("word", "quoted")
        if self._is("("):
            raise _Refusal("a function is called by a name with dots, and may be a function of a user")

    def _list(self) -> int:
        """Expressions in brackets, at least one."""
        self._expect("(")
        size = self._expression()
        while self._takes(","):
            size += self._expression()
        self._expect(")")
        return size

    def _call(self, function: str) -> int:
        if function not in FUNCTIONS:
            raise _Refusal(f"{function}() is none of the functions that a setting may use")
        self._at += 1
        starts, sizes = list[int](), list[int]()
        while not self._takes(")"):
            if starts:
                self._expect(",")
            starts.append(self._at)
            if len(starts) == 2 and function in COUNTED:
                self._count(function)
            sizes.append(self._argument())
        size = 1 + sum(sizes)
        if function == "decode":
            size += sizes[0] * len(sizes) if sizes else 0
        elif function in _TWICE:
            size *= 2
        if (first := _GROWTH.get(function)) is not None and first < len(starts):
            end = starts[1] if function == "concat_ws" and len(starts) > 1 else self._at
            texts = (it.text for it in self._tokens[starts[first] : end] if it.kind == "string")
            size *= max(1, sum(len(text) - 2 for text in texts))
        return size

    def _count(self, function: str) -> None:
        sign = self._is("-", "+")
        number, end = self._peek(sign), self._is(")", ",", further=sign + 1)
        if not (end and number.kind == "number" and number.text.isdigit() and len(number.text) <= 4):
            raise _Refusal(f"the second argument of {function}() must be a number of at most four digits")

    def _argument(self) -> int:
        """An expression, or a lambda function: `x -> x + 1`, `(x, y) -> x + y`."""
        taken, before = self._lambda(), len(self._parameters)
        if not taken:
            return self._expression()
        names = [token.text for token in self._tokens[self._at : self._at + taken] if token.kind == "word"]
        self._lambdas += 1
        if self._lambdas > MAX_LAMBDAS:
            raise _Refusal(f"it nests more than {MAX_LAMBDAS} lambda functions")
        self._parameters += names
        self._at += taken
        size = self._expression()
        del self._parameters[before:]
        self._lambdas -= 1
        return size

    def _lambda(self) -> int:
        """How many tokens the parameters of a lambda function take, with the arrow; 0 if none follows."""
        if self._is_name(0) and self._is("->", further=1):
            return 2
        end = 1
        while self._is("(") and self._is_name(end) and self._is(",", further=end + 1):
            end += 2
        is_list = end > 1 and self._is_name(end)
        return end + 3 if is_list and self._is(")", further=end + 1) and self._is("->", further=end + 2) else 0

    def _is_name(self, further: int) -> bool:
        token = self._peek(further)
        return token.kind == "word" and token.text not in _RESERVED

    def _case(self) -> int:
        """Counts the operand once for each WHEN: Spark repeats it."""
        self._enter()
        compared, size, branches = 0 if self._is("when") else self._expression(), 1, 0
        while self._takes("when"):
            size += self._expression()
            self._expect("then")
            size += self._expression()
            branches += 1
        if self._takes("else"):
            size += self._expression()
        self._expect("end")
        self._depth -= 1
        return size + compared * max(1, branches)

    def _interval(self) -> None:
        """`INTERVAL '1' DAY`, `INTERVAL 1 DAY 2 HOURS`, `INTERVAL '1-2' YEAR TO MONTH`, `INTERVAL '1 day'`."""
        self._takes("-", "+")
        self._expect_kind("number", "string")
        while self._takes(*_UNITS):
            if self._takes("to"):
                self._expect(*_UNITS)
            if self._next.kind in ("number", "string"):
                self._at += 1

    def _cast(self) -> int:
        size = self._expression()
        self._expect("as")
        self._type()
        return size

    def _type(self) -> None:
        self._enter()
        if self._takes("array"):
            self._expect("<")
            self._type()
            self._expect(">")
        elif self._takes("map"):
            self._expect("<")
            self._type()
            self._expect(",")
            self._type()
            self._expect(">")
        elif self._takes("struct"):
            self._expect("<")
            while True:
                self._expect_kind("word", "quoted")
                self._takes(":")
                self._type()
                if not self._takes(","):
                    break
            self._expect(">")
        else:
            self._expect(*_TYPES)
            if self._takes("("):
                self._expect_kind("number")
                if self._takes(","):
                    self._expect_kind("number")
                self._expect(")")
        self._depth -= 1

    def _extract(self) -> int:
        self._expect_kind("word")
        self._expect("from")
        return 2 * self._expression()

    def _trim(self) -> int:
        """`TRIM(x)`, `TRIM(a, b)`, `TRIM(BOTH a FROM b)`, `TRIM(BOTH FROM b)`."""
        self._takes("both", "leading", "trailing")
        size = 0
        if not self._takes("from"):
            size = self._expression()
            if not self._takes("from", ","):
                return size
        return size + self._expression()


_UNITS = frozenset(
    f"{unit}{ending}"
    for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
    for ending in ("", "s")
)
_SPECIAL: Mapping[str, Callable[[_Reader], int]] = {
    "cast": _Reader._cast,
    "try_cast": _Reader._cast,
    "extract": _Reader._extract,
    "trim": _Reader._trim,
}
