from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from instrument.recorder._core import annotate, count, gauge, mark, observe, region, step

_F = TypeVar("_F", bound=Callable[..., Any])
_Measure = float | Mapping[str, float] | Callable[..., float | Mapping[str, float]]

@overload
def kernel(function: _F, /) -> _F: ...
@overload
def kernel(
    *,
    name: str | None = None,
    flops: _Measure | None = None,
    bytes: _Measure | None = None,
    attrs: Mapping[str, object] | Callable[..., Mapping[str, object]] | None = None,
) -> Callable[[_F], _F]: ...

__all__ = ["annotate", "count", "gauge", "kernel", "mark", "observe", "region", "step"]
