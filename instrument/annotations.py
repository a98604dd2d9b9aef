"""What a developer writes into code: `kernel`, `region`, `step`, `mark`, `annotate`, and the metrics.

All but `kernel` are the recorder's own functions; `kernel` decides once, at decoration, how calls of the
function are seen (see `instrument.wrapping`). Precise types are in the stub beside this file: an import of
the SDK does not load `typing`.
"""

from instrument import wrapping
from instrument._switch import DISABLED
from instrument.recorder._core import annotate, count, gauge, mark, observe, region, step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def kernel(
    function: "Any" = None,
    /,
    *,
    name: "str | None" = None,
    flops: "Any" = None,
    bytes: "Any" = None,
    attrs: "Any" = None,
) -> "Any":
    """Record every call of a function as a span of kind ``kernel``.

    On CPython 3.12+ a plain function of the calling module is returned itself, hooked in place only while a
    session records; elsewhere it is a wrapper with the same signature.

    Args:
        function: the function, when used as ``@kernel`` without parentheses.
        name: the span's constant name; by default the function's ``__qualname__`` without ``<locals>``.
        flops: floating-point operations of one call: a number, a dict per dtype, or a function of the
            kernel's own parameters, bound by name.
        bytes: bytes moved by one call, given in the same way.
        attrs: attributes of one call: a dict, or a function of the kernel's parameters that answers one.

    Returns:
        The function, or a decorator when called with options only.

    Raises:
        TypeError: at decoration, for something that is not a plain function or method, for options of a
            wrong type, and for a parameter that the kernel does not have. Calls raise nothing of ours.

    Cost: nothing while nothing records on 3.12+; about 40 ns a recorded call, 110 ns on 3.11. A ``flops``,
    ``bytes`` or ``attrs`` function costs what it costs, outside the span's time.
    """
    measures = {"flops": flops, "bytes": bytes, "attrs": attrs}
    # The module that decorates: only its own functions are hooked in place.
    caller = wrapping.caller_globals(2)

    def decorate(function: "Any") -> "Any":
        return function if DISABLED else wrapping.wrap_kernel(function, name, measures, caller)

    return decorate if function is None else decorate(function)


__all__ = ["annotate", "count", "gauge", "kernel", "mark", "observe", "region", "step"]
