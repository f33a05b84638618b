"""Statements of a migration list, cut and edited at token positions.

1. A tokenizer with PostgreSQL's rules says where strings, quoted names, dollar quotes and nested
   comments end. Only tokens outside of them are looked at.
2. Edits replace the characters of single tokens in the source; nothing is generated anew, so what
   a reviewer reads is what the library ships.
3. A statement that cannot be placed with certainty is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from delta_mixin.schema.errors import MissingExtraError, UnsupportedStatementError

__all__ = ["Name", "Statement", "created_tables", "split"]

# Neither a transaction block nor a migration tool's own transaction can hold these.
_OWN_TRANSACTION = (
    ("VACUUM",),
    ("ALTER", "SYSTEM"),
    ("CREATE", "DATABASE"),
    ("DROP", "DATABASE"),
    ("CREATE", "TABLESPACE"),
    ("DROP", "TABLESPACE"),
    ("CREATE", "SUBSCRIPTION"),
    ("DROP", "SUBSCRIPTION"),
)
_TRANSACTION_CONTROL = (
    *(("BEGIN",), ("START",), ("COMMIT",), ("END",), ("ROLLBACK",), ("ABORT",), ("SAVEPOINT",)),
    ("RELEASE",),
    ("PREPARE", "TRANSACTION"),
)
_ADD_CONSTRAINT = frozenset(
    ("CONSTRAINT", "CHECK", "UNIQUE", "PRIMARY", "PRIMARY KEY", "EXCLUDE", "FOREIGN")
) | {"FOREIGN KEY"}


@dataclass(frozen=True)
class _Token:
    start: int
    end: int
    word: str
    """In upper case; empty for strings, and for anything else in quotes."""


@dataclass(frozen=True)
class Name:
    """A possibly qualified name, as the server reads it.

    Attributes:
        parts: Its parts, folded to lower case where they stand without quotes.
        source: Its spelling in the statement.
    """

    parts: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Statement:
    """One statement and the places in it that a migration may have to edit.

    Attributes:
        text: The source with its comments, without the closing semicolon.
    """

    text: str
    _tokens: tuple[_Token, ...]

    @property
    def is_comment(self) -> bool:
        """Nothing but comments."""
        return not self._tokens

    @property
    def words(self) -> tuple[str, ...]:
        """Each token outside quotes in upper case, an empty string for the quoted ones."""
        return tuple(token.word for token in self._tokens)

    @property
    def terminated(self) -> str:
        """The statement with its semicolon, which a comment at the end must not swallow."""
        if self.is_comment:
            return self.text
        ends_in_comment = self._tokens[-1].end != len(self.text)
        return f"{self.text}\n;" if ends_in_comment else f"{self.text};"

    @property
    def builds_concurrently(self) -> bool:
        """A `CREATE INDEX CONCURRENTLY`."""
        return self.words[: self._after_index][-1:] == ("CONCURRENTLY",) and self.is_index

    @property
    def drops_concurrently(self) -> bool:
        """A `DROP INDEX CONCURRENTLY`."""
        return self.words[:3] == ("DROP", "INDEX", "CONCURRENTLY")

    @property
    def is_index(self) -> bool:
        """A `CREATE INDEX` of any sort."""
        return self.words[:2] == ("CREATE", "INDEX") or self.words[:3] == (
            "CREATE",
            "UNIQUE",
            "INDEX",
        )

    @property
    def refusal(self) -> str | None:
        """Why no migration file can hold this statement, if so."""
        words = self.words
        if any(words[: len(start)] == start for start in _TRANSACTION_CONTROL):
            return "it controls the transaction, which is the migration's own"
        concurrent = words[:1] in (("REINDEX",), ("ALTER",)) and "CONCURRENTLY" in words
        if concurrent or any(words[: len(start)] == start for start in _OWN_TRANSACTION):
            return "it cannot run in a transaction and leaves nothing to verify it by"
        return None

    def without_concurrently(self) -> Statement:
        """The same statement for a transaction: `CONCURRENTLY` of an index build or drop gone."""
        if not (self.builds_concurrently or self.drops_concurrently):
            return self
        position = self.words.index("CONCURRENTLY")
        here, following = self._tokens[position], self._tokens[position + 1]
        between = self.text[here.end : following.start]
        # A comment between the two tokens stays; plain space goes with the word.
        end = following.start if not between.strip() else here.end
        return _one(self.text[: here.start] + self.text[end:])

    def repeatable(self) -> Statement:
        """The same statement, doing nothing where its table, column or index exists already."""
        places = [
            self._tokens[i - 1].end
            for i in self._creations()
            if self.words[i : i + 3] != ("IF", "NOT", "EXISTS")
        ]
        text = self.text
        for place in reversed(places):
            text = f"{text[:place]} IF NOT EXISTS{text[place:]}"
        return _one(text) if places else self

    def index_and_table(self) -> tuple[Name | None, Name]:
        """What a `CREATE INDEX` builds, and on which table; no name if the server chooses it."""
        at = self._skip_if_not_exists(self._after_index)
        index = None
        if self.words[at] != "ON":
            index, at = self._name(at)
        at += 1 + (self.words[at + 1] == "ONLY")
        return index, self._name(at)[0]

    def dropped_indexes(self) -> tuple[Name, ...]:
        """The indexes that a `DROP INDEX CONCURRENTLY` removes."""
        at = 3 + 2 * (self.words[3:5] == ("IF", "EXISTS"))
        names = []
        while True:
            name, at = self._name(at)
            names.append(name)
            if self.words[at : at + 1] != (",",):
                return tuple(names)
            at += 1

    def created_table(self) -> Name | None:
        """The table that a `CREATE TABLE` creates."""
        if self.words[:2] != ("CREATE", "TABLE"):
            return None
        return self._name(self._skip_if_not_exists(2))[0]

    @property
    def _after_index(self) -> int:
        at = self.words.index("INDEX") + 1 if self.is_index else 0
        return at + (self.words[at : at + 1] == ("CONCURRENTLY",))

    def _skip_if_not_exists(self, at: int) -> int:
        return at + 3 * (self.words[at : at + 3] == ("IF", "NOT", "EXISTS"))

    def _name(self, at: int) -> tuple[Name, int]:
        parts = []
        first = self._tokens[at]
        while True:
            token = self._tokens[at]
            spelled = self.text[token.start : token.end]
            quoted = spelled.startswith('"')
            parts.append(spelled[1:-1].replace('""', '"') if quoted else spelled.lower())
            at += 1
            if self.words[at : at + 1] != (".",):
                return Name(tuple(parts), self.text[first.start : token.end]), at
            at += 1

    def _creations(self) -> Iterator[int]:
        """Positions at which `IF NOT EXISTS` may stand."""
        words = self.words
        if words[:2] == ("CREATE", "TABLE"):
            yield 2
        elif self.is_index:
            if words[self._after_index] != "ON":  # a nameless index cannot be looked for
                yield self._after_index
        elif words[:2] == ("ALTER", "TABLE"):
            depth = 0
            for i, word in enumerate(words):
                depth += (word == "(") - (word == ")")
                starts = depth == 0 and word == "ADD"
                if starts and words[i + 1] not in _ADD_CONSTRAINT:
                    yield i + 1 + (words[i + 1] == "COLUMN")


def split(sql: str, *, version: int = 0) -> tuple[Statement, ...]:
    """Cut a text into its statements; pieces that hold comments alone are kept as such.

    Args:
        sql: Any number of statements.
        version: Position in the migration list, for the error's sake.

    Raises:
        UnsupportedStatementError: The text does not end where its quotes end.
    """
    tokens = _tokenize(sql, version)
    found: list[Statement] = []
    start = depth = bodies = 0
    pending: list[_Token] = []
    for i, token in enumerate(tokens):
        word = token.word
        # A rule's actions stand in parentheses, a SQL function's body in BEGIN ATOMIC … END.
        depth += (word == "(") - (word == ")")
        following = tokens[i + 1].word if i + 1 < len(tokens) else ""
        if (word == "BEGIN" and following == "ATOMIC") or (bodies and word == "CASE"):
            bodies += 1
        elif bodies and word == "END":
            bodies -= 1
        if word == ";" and depth <= 0 and not bodies:
            found.append(_piece(sql, start, token.start, pending))
            start, depth, pending = token.end, 0, []
        else:
            pending.append(token)
    found.append(_piece(sql, start, len(sql), pending))
    return tuple(piece for piece in found if piece.text)


def _piece(sql: str, start: int, end: int, tokens: list[_Token]) -> Statement:
    text = sql[start:end]
    shift = start + len(text) - len(text.lstrip())
    moved = tuple(_Token(t.start - shift, t.end - shift, t.word) for t in tokens)
    return Statement(text.strip(), moved)


def _one(sql: str) -> Statement:
    (statement,) = split(sql)
    return statement


def _tokenize(sql: str, version: int) -> list[_Token]:
    try:
        from sqlglot import TokenType
        from sqlglot.dialects.postgres import Postgres
        from sqlglot.errors import SqlglotError
    except ImportError as missing:
        raise MissingExtraError("schema", "sqlglot") from missing

    class Tokenizer(Postgres.Tokenizer):
        # sqlglot packs what follows VACUUM, DO and the like into one string otherwise.
        COMMANDS = set()  # noqa: RUF012

    plain = {TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.IDENTIFIER}
    try:
        tokens = Tokenizer(dialect="postgres").tokenize(sql)
    except SqlglotError as broken:
        raise UnsupportedStatementError(version, sql, f"it cannot be read: {broken}") from broken
    found = []
    continues_escapes = False
    for token in tokens:
        spelled = sql[token.start : token.end + 1]
        if continues_escapes and "\\" in spelled:
            reason = "an E'…' string goes on in a second literal that holds a backslash"
            raise UnsupportedStatementError(version, sql, reason)
        continues_escapes = spelled[:2] in ("E'", "e'")
        quoted = token.token_type in plain or spelled[-1:] in ("'", '"', "$")
        found.append(_Token(token.start, token.end + 1, "" if quoted else spelled.upper()))
    return found


def created_tables(statements: Iterable[str]) -> tuple[str, ...]:
    """Names of the tables that the statements create, in order."""
    found: dict[str, None] = {}
    for version, sql in enumerate(statements):
        for statement in split(sql, version=version):
            if table := statement.created_table():
                found[table.parts[-1]] = None
    return tuple(found)
