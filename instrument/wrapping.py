"""Which wrapper for which kind of callable.

A plain function of the decorating module is hooked in place where the interpreter allows it (3.12+).
Somebody else's function is copied, and the copy hooked, so that nobody's object is changed. Elsewhere a
function gets a wrapper of the very same signature: calls between Python functions take no C stack, so
recursion goes as deep as without us, and neither tracebacks nor the recursion limit show the wrapper.

Generators, coroutines, properties, partials and other callables are refused with a clear text for now.
"""

import sys
from types import CodeType, FunctionType

from instrument._switch import DISABLED
from instrument.recorder import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MADE_HERE = "__instrument_made__"
"""In the globals of our wrappers: attributes of a function are copied by other decorators, these are not."""

CO_VARARGS, CO_VARKEYWORDS = 0x04, 0x08
CO_SUSPENDABLE = 0x20 | 0x80 | 0x100 | 0x200  # generator, coroutine, iterable coroutine, async generator


def caller_globals(depth: int) -> "dict[str, Any] | None":
    """The globals of the Python code `depth` frames up, or None when C called."""
    try:
        return sys._getframe(depth).f_globals
    except ValueError:
        return None


def default_name(function: FunctionType) -> str:
    """A kernel's name: the qualified name without the ``<locals>`` of enclosing functions."""
    return function.__qualname__.replace(".<locals>", "")


def wrap_kernel(
    function: "Any", name: str | None, measures: "Mapping[str, Any]", caller: "dict[str, Any] | None"
) -> "Any":
    """The recorded form of a function; see `instrument.kernel`."""
    if isinstance(function, staticmethod | classmethod):
        return type(function)(wrap_kernel(function.__func__, name, measures, caller))
    require_plain(function, "kernel")
    code = function.__code__
    site = _core.kernel_site(
        default_name(function) if name is None else checked_name(name), code.co_filename, code.co_firstlineno
    )
    evaluate = evaluator(function, measures)
    if _core.HOOKS_IN_PLACE:
        if function.__globals__ is not caller:
            function = copied(function)
        _core.hook(function, site, evaluate)
        return function
    if function.__globals__.get(MADE_HERE) == "kernel":
        return function  # decorated twice records once
    return wrapper("kernel", function, _core.Marker(site, evaluate), measured=evaluate is not None)


def wrap_region(region: "_core.Region", function: "Any") -> "Any":
    """A region used as a decorator: every call of the function is a span of the region."""
    if DISABLED:
        return function
    if isinstance(function, staticmethod | classmethod):
        return type(function)(wrap_region(region, function.__func__))
    require_plain(function, "region")
    return wrapper("region", function, _core.Marker(region), measured=False)


_core.set_region_decorator(wrap_region)


def checked_name(name: object) -> str:
    """The name, or a TypeError."""
    if not isinstance(name, str):
        raise TypeError(f"kernel: name= is a string, not {type(name).__name__}")
    return name


def require_plain(function: object, verb: str) -> None:
    """Refuse what would be measured wrongly: a generator's span would end before its body begins."""
    if not isinstance(function, FunctionType):
        raise TypeError(
            f"{verb}: {function!r} is not a plain function or method; "
            "put the annotation on a function that calls it"
        )
    if function.__code__.co_flags & CO_SUSPENDABLE:
        raise TypeError(
            f"{verb}: {function.__qualname__} is a generator or coroutine function, which cannot be "
            "decorated yet; use `with instrument.region(...)` inside its body"
        )


# ---------------------------------------------------------------- signatures


class Signature:
    """A function's parameters as source text, read from its code object (`inspect` is slow to import)."""

    __slots__ = ("call", "names", "parameters", "stars")

    def __init__(self, code: CodeType) -> None:
        names = code.co_varnames
        positional = list(names[: code.co_argcount])
        only_keyword = list(names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])
        at = code.co_argcount + code.co_kwonlyargcount
        parameters, call = list(positional), list(positional)
        if code.co_posonlyargcount:
            parameters.insert(code.co_posonlyargcount, "/")
        self.names = positional + only_keyword
        if code.co_flags & CO_VARARGS:
            parameters.append(f"*{names[at]}")
            call.append(f"*{names[at]}")
            self.names.append(names[at])
            at += 1
        elif only_keyword:
            parameters.append("*")
        parameters += only_keyword
        call += [f"{name}={name}" for name in only_keyword]
        if code.co_flags & CO_VARKEYWORDS:
            parameters.append(f"**{names[at]}")
            call.append(f"**{names[at]}")
            self.names.append(names[at])
        self.parameters = ", ".join(parameters)
        self.call = ", ".join(call)
        self.stars = frozenset(part for part in call if part.startswith("*"))

    def free(self, name: str) -> str:
        """A name that no parameter has."""
        while name in self.names:
            name += "_"
        return name


_compiled: "dict[str, CodeType]" = {}


def made(source: str, function: FunctionType, **values: object) -> FunctionType:
    """The function that `source` defines inside a factory with `values` as its parameters."""
    source = f"def factory({', '.join(values)}):\n{source}"
    code = _compiled.get(source)
    if code is None:
        code = compile(source, "<instrument>", "exec")
        if len(_compiled) < 1000:  # many signatures are alike; closures decorated in a loop are one
            _compiled[source] = code
    space: dict[str, Any] = {"__name__": function.__module__}
    exec(code, space)
    result: FunctionType = space["factory"](**values)
    result.__defaults__ = function.__defaults__
    result.__kwdefaults__ = function.__kwdefaults__
    return result


def dressed(result: FunctionType, function: FunctionType) -> FunctionType:
    """Give a stand-in the looks of the function: `inspect.signature`, doctest and pickle see that one."""
    result.__name__ = function.__name__
    result.__qualname__ = function.__qualname__
    result.__module__ = function.__module__
    result.__doc__ = function.__doc__
    result.__annotations__ = function.__annotations__
    result.__dict__.update(function.__dict__)
    if hasattr(function, "__type_params__"):
        result.__type_params__ = function.__type_params__  # type: ignore[attr-defined, unused-ignore]
    result.__wrapped__ = function  # type: ignore[attr-defined]
    return result


def copied(function: FunctionType) -> FunctionType:
    """A function of the same code, globals and closure."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return dressed(copy, function)


def wrapper(verb: str, function: FunctionType, marker: "_core.Marker", *, measured: bool) -> FunctionType:
    """A function of the same signature that opens and ends a span around the call."""
    signature = Signature(function.__code__)
    call, mark, enter, measure, fail = (
        signature.free(name) for name in ("_call", "_mark", "_enter", "_measure", "_fail")
    )
    result, error, work = signature.free("_result"), signature.free("_error"), signature.free("_work")
    # `+mark` enters the span and `-mark` leaves it, as cheaply as byte code can call C. The first is inside
    # the `try`: an interrupt right after it still ends the span. `measure` and `-mark` are outside: an
    # interrupt right after them must not end a span that is not open.
    source = f"""
    def wrapper({signature.parameters}):
        {f"{work} = {measure}({signature.call})" if measured else ""}
        try:
            {f"{enter}({work})" if measured else f"+{mark}"}
            {result} = {call}({signature.call})
        except BaseException as {error}:
            {fail}({error})
            raise
        -{mark}
        return {result}
    return wrapper
"""
    values = {
        call: function,
        enter: marker.enter,
        measure: marker.measure,
        mark: marker,
        fail: marker.fail,
    }
    wrapped = dressed(made(source, function, **values), function)
    wrapped.__globals__[MADE_HERE] = verb
    return wrapped


# ---------------------------------------------------------------- flops=, bytes=, attrs=


def evaluator(
    function: FunctionType, options: "Mapping[str, Any]"
) -> "Callable[..., tuple[Any, ...]] | tuple[Any, ...] | None":
    """What answers ``(flops, bytes, attrs)`` of a call: a function of the kernel's signature,
    or the constants themselves; None when no option is given.
    """
    for option, value in options.items():
        check_option(function, option, value)
    if all(value is None for value in options.values()):
        return None
    if not any(callable(value) for value in options.values()):
        return tuple(options.values())
    signature = Signature(function.__code__)
    values: dict[str, Any] = {}
    parts = []
    for option, value in options.items():
        key = signature.free(f"_{option}")
        values[key] = value
        if callable(value):
            key = f"{key}({', '.join(arguments(function, option, value, signature))})"
        parts.append(key)
    source = f"""
    def evaluate({signature.parameters}):
        return ({", ".join(parts)})
    return evaluate
"""
    return made(source, function, **values)


def check_option(function: FunctionType, option: str, value: object) -> None:
    """Refuse at decoration what could only fail at each call."""
    if value is None or callable(value) or isinstance(value, dict):
        return
    if option == "attrs" or not (isinstance(value, int | float) or is_numpy_scalar(value)):
        what = "a dict or a function" if option == "attrs" else "a number, a dict per dtype, or a function"
        raise TypeError(f"kernel {default_name(function)}: {option}= is {what}, not {type(value).__name__}")


def is_numpy_scalar(value: object) -> bool:
    """Whether a value is one of numpy's numbers, as products of shapes are; numpy is not loaded for it."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.integer | numpy.floating)


def arguments(function: FunctionType, option: str, value: "Any", signature: Signature) -> "list[str]":
    """How to call an option's function with the kernel's parameters, bound by name."""
    import inspect

    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"kernel {default_name(function)}: {option}= is a function of unknown parameters: {value!r}"
        ) from error
    bound = []
    stars: dict[Any, str] = {
        inspect.Parameter.POSITIONAL_ONLY: "{0}",
        inspect.Parameter.VAR_POSITIONAL: "*{0}",
        inspect.Parameter.VAR_KEYWORD: "**{0}",
    }
    for parameter in parameters:
        kind = parameter.kind
        variable = kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if variable and stars[kind].format(parameter.name) not in signature.stars:
            continue  # the kernel has none, so there is nothing for it to take
        if parameter.name in signature.names:
            bound.append(stars.get(kind, "{0}={0}").format(parameter.name))
        elif parameter.default is parameter.empty:
            raise TypeError(
                f"kernel {default_name(function)}: {option}= has a parameter {parameter.name!r}, "
                f"which {function.__name__}({signature.parameters}) has not"
            )
    return bound
