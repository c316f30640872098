"""`not x`, `x and y`, `x or y` inside construct(), where x or y is a value: operators of the graph. Python's own truths stay what they are.

`not x` becomes truths.no(x), `x and y` truths.both(x, lambda: y), `x or y` truths.either(x, lambda: y), where `truths` is a name that the
rewritten function is given.
"""
import ast

from tessera import _tessera

NAME = "__tessera_truths"


def _is_value(x):
    """Whether only a run knows it."""
    if isinstance(x, _tessera.Value):
        return not _tessera.nn.is_known(x)
    return isinstance(x, _tessera.nn.Parameter) and _tessera.nn.is_tracing()


def _truth(x):
    """A value of bools, or Python's truth."""
    if isinstance(x, _tessera.nn.Parameter):
        return _tessera.ops.not_equal(x, 0)
    return bool(x) if not isinstance(x, _tessera.Value) else x if x.dtype == _tessera.bool_ else _tessera.ops.not_equal(x, 0)


class Truths:
    """What a rewritten function calls."""

    @staticmethod
    def no(x):
        """not x."""
        return _tessera.ops.logical_not(_truth(x)) if _is_value(x) else not x

    @staticmethod
    def both(x, rest):
        """x and rest()."""
        if not _is_value(x):
            return x and rest()
        other = _truth(rest())
        return _tessera.ops.logical_and(_truth(x), other) if _is_value(other) else _truth(x) if other else False

    @staticmethod
    def either(x, rest):
        """x or rest()."""
        if not _is_value(x):
            return x or rest()
        other = _truth(rest())
        return _tessera.ops.logical_or(_truth(x), other) if _is_value(other) else True if other else _truth(x)


class Rewriter(ast.NodeTransformer):
    """Puts the calls in their places, but not in functions within, which are rewritten when they are called."""

    def visit(self, node):
        return node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else super().visit(node)

    def visit_UnaryOp(self, node):
        self.generic_visit(node)
        return _call(node, "no", [node.operand]) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node):
        self.generic_visit(node)
        if any(isinstance(inner, (ast.NamedExpr, ast.Await)) for inner in ast.walk(node)):
            return node  # what a lambda assigns is its own
        *first, made = node.values
        for value in reversed(first):
            rest = ast.Lambda(args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]), body=made)
            made = _call(node, "both" if isinstance(node.op, ast.And) else "either", [value, rest])
        return made


def _call(node, name, args):
    function = ast.Attribute(value=ast.Name(id=NAME, ctx=ast.Load()), attr=name, ctx=ast.Load())
    return ast.fix_missing_locations(ast.copy_location(ast.Call(func=function, args=args, keywords=[]), node))
