"""Which base of a saver's class a method comes from."""

from __future__ import annotations

from collections.abc import Sequence

from delta_mixin._drive import twin


def overrides(cls: type, hook: str, others: Sequence[str]) -> bool:
    """Whether a class has this hook, on either side, from no base behind those of the others."""

    def depth(name: str) -> int:
        names = {name, twin(name)}
        return next(n for n, base in enumerate(cls.__mro__) if names & vars(base).keys())

    return depth(hook) <= min(map(depth, others))


def refuse_shadowed(cls: type, mixin: type, names: Sequence[str]) -> None:
    """Refuse a class in which a method of the saver, not of the mixin, would be called.

    Raises:
        TypeError: Naming the method and the order of bases that mends it.
    """
    for name in names:
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if not issubclass(owner, mixin):
            raise TypeError(
                f"class {cls.__name__}: {owner.__name__}.{name} would be called instead of "
                f"{mixin.__name__}.{name}. Put the mixin before the saver: "
                f"class {cls.__name__}({mixin.__name__}, {owner.__name__})"
            )
