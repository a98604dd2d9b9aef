from collections.abc import Callable
from typing import Any, TypeVar, overload

from instrument.recorder._core import annotate, count, gauge, mark, observe, region, step

_F = TypeVar("_F", bound=Callable[..., Any])
_Measure = float | dict[str, float] | Callable[..., float | dict[str, float]]

@overload
def kernel(function: _F, /) -> _F: ...
@overload
def kernel(
    *,
    name: str | None = None,
    flops: _Measure | None = None,
    bytes: _Measure | None = None,
    attrs: dict[str, Any] | Callable[..., dict[str, Any]] | None = None,
) -> Callable[[_F], _F]: ...

__all__ = ["annotate", "count", "gauge", "kernel", "mark", "observe", "region", "step"]
