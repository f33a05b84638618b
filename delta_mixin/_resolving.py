"""What a graph's channels make of their history: the part of compaction that knows `langgraph`.

1. A value is built as the host does it when it loads a checkpoint, from the history that the
   saver's own reader returns.
2. It is built twice, from two readings: with all writes at once, and write by write. A reducer
   that gives the same for both can be replayed from a value stored in between.
3. A channel that the graph holds as a `DeltaChannel` is stored as a snapshot; one that went back
   to a plain reducer as its plain value, which readers of either kind start from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta_mixin.model import _is_delta_snapshot

Channels = Mapping[str, Any]


class UnresolvedError(Exception):
    """A channel that is left as it is; says why."""


class GraphChannels:
    """The channels of a graph and its subgraphs, by namespace.

    Args:
        graph: A compiled graph.
        named: Delta channels by name, for namespaces whose graph does not have them as such.
    """

    def __init__(self, graph: Any, named: Channels) -> None:
        self._graphs: dict[str, Any] = {**dict(graph.get_subgraphs(recurse=True)), "": graph}
        self._named = named

    def of(self, checkpoint_ns: str) -> Channels | None:
        """The channels of the graph that wrote a namespace, `None` if it is not found."""
        parts = checkpoint_ns.split("|")
        if any(part.isdigit() for part in parts):
            return None  # a node's second subgraph: which one it is, is not stored
        graph = self._graphs.get("|".join(part.split(":", 1)[0] for part in parts))
        channels = getattr(graph, "channels", None)
        return channels if isinstance(channels, Mapping) else None

    def fleeting(self, checkpoint_ns: str) -> frozenset[str]:
        """Channels of a namespace that hold nothing between supersteps."""
        from langgraph.channels import AnyValue, EphemeralValue, UntrackedValue

        kinds = (AnyValue, EphemeralValue, UntrackedValue)
        channels = self.of(checkpoint_ns) or {}
        return frozenset(c for c, spec in channels.items() if isinstance(spec, kinds))

    def replayer(self, checkpoint_ns: str, channel: str) -> Replayer:
        """What rebuilds a channel of a namespace.

        Raises:
            UnresolvedError: If nothing says how.
        """
        from langgraph.channels import BinaryOperatorAggregate, DeltaChannel

        channels = self.of(checkpoint_ns)
        if channels is None:
            raise UnresolvedError("the graph of the namespace is not among the graph's subgraphs")
        spec = channels.get(channel)
        plain = isinstance(spec, BinaryOperatorAggregate)
        if isinstance(spec, DeltaChannel):
            return Replayer(channel, spec, plain=False)
        if channel in self._named:
            return Replayer(channel, self._named[channel], plain=plain)
        if plain:
            return Replayer(channel, spec, plain=True)
        kind = "not in the graph" if spec is None else f"{type(spec).__name__} in the graph"
        raise UnresolvedError(f"it is {kind}: name its DeltaChannel in channels={{...}}")


class Replayer:
    """Rebuilds one channel from its history.

    Attributes:
        channel: Its name.
        spec: The channel object that holds the reducer.
        plain: Whether readers expect a plain value rather than a snapshot.
    """

    def __init__(self, channel: str, spec: Any, *, plain: bool) -> None:
        self.channel = channel
        self.spec = spec
        self.plain = plain

    def at_once(self, checkpoint: Any, config: Any, history: Any) -> Any:
        """The value as the host loads it.

        Raises:
            UnresolvedError: If the host would not rebuild the channel, or it has no value.
        """
        return self._value(self._loaded(checkpoint, config, history))

    def one_by_one(self, checkpoint: Any, config: Any, history: Any) -> Any:
        """The value with the writes replayed one at a time, as far as the channel has a say."""
        if not hasattr(self.spec, "replay_writes"):
            return self.at_once(checkpoint, config, history)
        channel = self._loaded(checkpoint, config, {**history, "writes": []})
        for write in history["writes"]:
            channel.replay_writes([write])
        return self._value(channel)

    def stored(self, value: Any) -> Any:
        """What to store for a value.

        Raises:
            UnresolvedError: If readers disagree on what would be stored.
        """
        from langgraph.checkpoint.serde.types import _DeltaSnapshot

        if not self.plain:
            return _DeltaSnapshot(value)
        if value is None or isinstance(value, bool):
            raise UnresolvedError(f"savers differ on a plain {value!r} at a checkpoint")
        return value

    def _loaded(self, checkpoint: Any, config: Any, history: Any) -> Any:
        from langgraph.pregel._checkpoint import channels_from_checkpoint

        reader = _Reader(history)
        saver: Any = reader
        found, _ = channels_from_checkpoint(
            {self.channel: self.spec}, checkpoint, saver=saver, config=config
        )
        if not reader.asked:
            raise UnresolvedError(
                f"this langgraph does not rebuild a {type(self.spec).__name__}: "
                "name its DeltaChannel in channels={...}"
            )
        return found[self.channel]

    def _value(self, channel: Any) -> Any:
        if not channel.is_available():
            raise UnresolvedError("it has no value")
        return channel.get()


class _Reader:
    """Answers the host's question for a history that has been read."""

    def __init__(self, history: Any) -> None:
        self._history = history
        self.asked = False

    def get_delta_channel_history(self, *, config: Any, channels: Any) -> dict[str, Any]:
        self.asked = True
        return dict.fromkeys(channels, self._history)


def same(serde: Any, one: Any, other: Any) -> bool:
    """Whether two values are equal, or else serialize alike."""
    if _is_delta_snapshot(one) and _is_delta_snapshot(other):
        return same(serde, one.value, other.value)
    if type(one) is type(other):
        try:
            if bool(one == other):
                return True
        except Exception:  # such as of arrays, which compare element by element
            pass
    try:
        return bool(serde.dumps_typed(one) == serde.dumps_typed(other))
    except Exception:
        return False


def abbreviated(value: Any) -> str:
    """A value in at most eighty characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:50]} ... {text[-25:]}"
