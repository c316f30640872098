"""An `if` on a value inside construct(): both branches are traced, and what they assign is chosen when the network runs.

construct() is rewritten from its source before it is traced. `if test: body else: other` becomes a call of choose(), which
runs one branch where the test is Python's own, and both where it is a value:

    if x > 0:                  def body(y):           def other(y):
        y = x                      y = x                  y = -x
    else:                          return (y,)            return (y,)
        y = -x                 (y,) = choose(x > 0, body, other, (y,), "line 3")

A variable becomes select(test, body's, other's), so does what is returned, so does a parameter that is assigned, and so do the items of
a list that a variable holds and that both branches make as long. Other attributes cannot be set, and other lists cannot be changed,
where a value decides. An `if` in which a loop is left (break, continue) or that returns from within a loop stays as it is: its test
must be Python's own. What is made of constants alone is known while it is traced, and counts as Python's own: loops may count with it.

`self.count += 1` for a number of Python's, or `self.begun = True`, changes what the next call does: what is traced then holds for one call,
and a Model, which traces once, refuses it.

`y[key] = x` gives the variable y a new value where it is a tensor, `y = set_item(y, (key,), x, ...)`; other names of the tensor keep the
old one. All this holds in construct(), in functions that are compiled or differentiated, and, as a call f(x) becomes called(f)(x), in what they
call, an object with __call__(), too, as far as it has a source in Python. In other functions an `if` must be Python's own, and a value's items
cannot be set.
"""
import ast
import collections
import copy
import functools
import inspect
import operator
import os
import sysconfig
import textwrap
import types
import weakref

import numpy as np
from tessera import _indexing, _tessera, _truths

# Of Python's own library, and of what is installed inside of it.
_LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "")
_PACKAGES = tuple({os.path.join(_LIBRARY, name, "") for name in ("site-packages", "dist-packages")})

_CHOOSE, _UNSET, _SET_ITEM, _CALLED = "__tessera_choose", "__tessera_unset", "__tessera_set_item", "__tessera_called"
_CHANGED = "__tessera_changed"
_OWN = ("tessera", "mindspore")  # packages that are written to be traced
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_ENDS = (ast.Return, ast.Raise)
# What changes as a whole where it stands, and the methods that do it.
_CHANGEABLE = (list, dict, set, bytearray, collections.deque)
_CHANGING = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove", "reverse", "setdefault", "sort",
             "update"}

_rewritten = weakref.WeakKeyDictionary()  # construct() as written: as it is traced, None: as it is


class Unset:
    """What a variable is after an `if` of which one branch only has set it."""

    def __init__(self, text):
        self._text = text

    def _refuse(self, *_):
        raise UnboundLocalError(self._text)

    __getattr__ = __call__ = __getitem__ = __iter__ = __len__ = __bool__ = __float__ = __neg__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __lt__ = __gt__ = _refuse


def construct_of(cell):
    """The cell's construct(), with its branches on values traced; what the cell has as _around_construct is called around it, with both."""
    method = cell.construct
    function = getattr(method, "__func__", None)
    if isinstance(function, types.FunctionType) and (made := traced(function)) is not function:
        method = types.MethodType(made, cell)
    around = cell.__dict__.get("_around_construct")
    return method if around is None else functools.partial(around, cell, method)


def traced(function):
    """The function, or method, with its branches on values traced."""
    if isinstance(function, types.MethodType):
        made = traced(function.__func__)
        return function if made is function.__func__ else types.MethodType(made, function.__self__)
    if not isinstance(function, types.FunctionType):
        return function
    if function not in _rewritten:
        _rewritten[function] = None if _is_of_python(function) else _rewrite(function)
    return _rewritten[function] or function


def _is_of_python(function):
    """Whether it is a function of Python's own library, which does not compute with values and may use what no rewriting knows."""
    file = function.__code__.co_filename
    return file.startswith((_LIBRARY, "<frozen ")) and not file.startswith(_PACKAGES)


def called(function):
    """What is called in a function's place where that is rewritten."""
    if isinstance(function, (types.FunctionType, types.MethodType)):
        return function if _is_own(function) else traced(function)
    if type(function) is functools.partial:
        return functools.partial(called(function.func), *function.args, **function.keywords)
    call = None if isinstance(function, (type, _tessera.nn.Cell)) else getattr(type(function), "__call__", None)
    return types.MethodType(traced(call), function) if isinstance(call, types.FunctionType) and not _is_own(call) else function


def _is_own(function):
    return (function.__module__ or "").partition(".")[0] in _OWN


def choose(test, body, other, variables, where, targets=(), changes=()):
    """What body(*variables) or other(*variables) returns; of both where the test is a value. targets: what else they set, (text,
    function that returns it). changes: the same of what they call methods of that may change it."""
    if isinstance(test, _tessera.nn.Parameter):
        test = _tessera.ops.not_equal(test, 0)
    if not isinstance(test, _tessera.Value) or _tessera.nn.is_known(test):
        return body(*variables) if test else other(*variables)
    for text, get in targets:
        if not _is_parameter(get):
            raise TypeError(f"{where}: {text} is set in an `if` on a value; that takes a variable or a Parameter")
    for text, get in changes:
        if isinstance(_got(get), _CHANGEABLE):
            raise TypeError(f"{where}: {text} is changed in an `if` on a value, which traces both branches: collect values in a list that is a variable of "
                            "the function, or behind the `if` what select() gives")
    if test.size != 1:
        raise TypeError(f"{where}: an `if` needs one truth, the condition has the shape {test.shape}; use select")
    if test.dtype != _tessera.bool_:
        test = _tessera.ops.not_equal(test, 0)
    if test.ndim > 0:
        test = _tessera.ops.reshape(test, ())
    _Branches.depth += 1
    try:
        # Neither branch sees what the other one does to a list.
        return _merge(test, *_tessera.nn.trace_branches(test, lambda: body(*_apart(variables)), lambda: other(*_apart(variables))), where)
    finally:
        _Branches.depth -= 1


class _Branches:
    """How many branches that values decide on are being traced, one within the other."""
    depth = 0


def set_item(variable, keys, value, change, text, where):
    """What a variable is after variable[keys[0]]... = value; change: the name of an operator of `value` and what is there."""
    key, *inner = keys
    if not isinstance(variable, (_tessera.Value, _tessera.Tensor)):
        if _Branches.depth and not isinstance(variable, _tessera.nn.Parameter):
            raise TypeError(f"{where}: {text} is set in an `if` on a value; that takes a variable or a Parameter")
        if not inner:
            variable[key] = value if change is None else getattr(operator, change)(variable[key], value)
            return variable
        item = variable[key]
        made = set_item(item, inner, value, change, text, where)
        if made is not item:
            variable[key] = made
        return variable
    if not _tessera.nn.is_tracing():
        part = variable
        for outer in keys[:-1]:
            part = part[outer]
        part[keys[-1]] = value if change is None else getattr(operator, change)(part[keys[-1]], value)
        return variable
    try:
        if inner:
            value = set_item(variable[key], inner, value, change, text, where)
        elif change is not None:
            value = getattr(operator, change)(variable[key], value)
        return _indexing.with_items(variable, key, value)
    except (TypeError, ValueError, IndexError) as error:
        if str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {text}: {error}") from None


def _apart(variables):
    return [copy.copy(variable) if isinstance(variable, _CHANGEABLE) else variable for variable in variables]


def _got(get):
    try:
        return get()
    except (AttributeError, NameError):
        return None  # not set yet


def _is_parameter(get):
    return isinstance(_got(get), _tessera.nn.Parameter)


def changed(get, new, is_of_itself, text, where):
    """`new`, which is to be what get() returns; is_of_itself: it is made of what that was."""
    kinds = (int, float, str) if is_of_itself else bool
    if isinstance(new, kinds) and _tessera.nn.is_tracing():
        old = _got(get)
        if isinstance(old, kinds) and old != new:
            _tessera.nn.hold_for_one_call(f"{where}: {text}")
    return new


def _is_number(value):
    return isinstance(value, (_tessera.Value, _tessera.Tensor, _tessera.nn.Parameter, bool, int, float, np.ndarray, np.generic))


def _merge(test, one, two, where):
    if one is two:
        return one
    if isinstance(one, Unset) or isinstance(two, Unset):
        return Unset(f"{where}: one branch of this `if` sets the variable, the other does not")
    if isinstance(one, (tuple, list)) and type(one) is type(two) and len(one) == len(two):
        items = [_merge(test, a, b, where) for a, b in zip(one, two)]
        return one._make(items) if hasattr(one, "_make") else type(one)(items)
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        return {key: _merge(test, one[key], two[key], where) for key in one}
    if not _is_number(one) or not _is_number(two):
        if type(one) is type(two) and not isinstance(one, _tessera.nn.Cell) and one == two:
            return one
        raise TypeError(f"{where}: the branches of this `if` give {_kind(one)} and {_kind(two)}; where a value decides, both "
                        "must give tensors of one shape, or the same")
    one, two = (value if hasattr(value, "dtype") else _tessera.Tensor(value) for value in _alike(one, two))
    if tuple(one.shape) != tuple(two.shape):
        raise TypeError(f"{where}: the branches of this `if` give tensors of shapes {tuple(one.shape)} and {tuple(two.shape)}")
    return _tessera.ops.select(test, one, two)


def _alike(one, two):
    """A Python number takes the dtype of the tensor in the other branch."""
    def number(value, other):
        if isinstance(value, (int, float)) and hasattr(other, "dtype"):
            return _tessera.ops.fill(tuple(other.shape), float(value), other.dtype)
        return value
    return number(one, two), number(two, one)


def _kind(value):
    return "nothing" if value is None else f"a {type(value).__name__}"


def _rewrite(function):
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None  # without a source: an `if` on a value is refused where it stands
    definition = tree.body[0]
    if getattr(definition, "name", "") != function.__code__.co_name:
        return None  # a lambda: its lines are those of the statement around it
    kinds = (ast.If, ast.IfExp) if _is_own(function) else (ast.If, ast.IfExp, ast.Not, ast.BoolOp, ast.Call, ast.AugAssign, ast.Assign)
    if not isinstance(definition, ast.FunctionDef) or not any(isinstance(n, kinds) or _is_stored_item(n) for n in ast.walk(definition)):
        return None
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in _inner(definition.body)):
        return None
    if hasattr(function, "__wrapped__"):
        return None  # what a decorator does around it is not to be lost
    definition.decorator_list = []
    _Mangler(function.__qualname__).visit(definition)
    variables = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
    items = _Items(variables, function.__code__.co_filename, first - 1)
    declared = [node for node in _inner(definition.body) if isinstance(node, (ast.Global, ast.Nonlocal))]
    outer = {name for statement in declared for name in statement.names}
    if not _is_own(function):
        numbers = _Numbers(outer, function.__code__.co_filename, first - 1)
        definition.body = [numbers.visit(statement) for statement in definition.body]
    body = [_Undeclared().visit(items.visit(statement)) for statement in definition.body]
    if not _is_own(function):
        body = [_Calls().visit(_truths.Rewriter().visit(statement)) for statement in body]
    definition.body = declared + _Rewriter(function.__code__.co_filename, first - 1, declared, variables - outer).function_body(body)
    # The names that the function takes from around it are parameters of a function around the new one.
    free = (*function.__code__.co_freevars, _CHOOSE, _UNSET, _SET_ITEM, _CALLED, _CHANGED, _truths.NAME)
    outer = ast.FunctionDef(name="outer", args=_arguments(free), body=[definition], decorator_list=[], returns=None)
    module = ast.fix_missing_locations(ast.Module(body=[outer], type_ignores=[]))
    ast.increment_lineno(module, first - 1)
    made = compile(module, function.__code__.co_filename, "exec")
    code = _code_named(_code_named(made, "outer"), definition.name)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    cells |= {_CHOOSE: types.CellType(choose), _UNSET: types.CellType(Unset("a variable was read before it was set")),
              _SET_ITEM: types.CellType(set_item), _CALLED: types.CellType(called), _CHANGED: types.CellType(changed), _truths.NAME: types.CellType(_truths.Truths)}
    new = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__,
                             tuple(cells[name] for name in code.co_freevars))
    new.__kwdefaults__ = function.__kwdefaults__
    return new


def _code_named(code, name):
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _arguments(names):
    return ast.arguments(posonlyargs=[], args=[ast.arg(arg=name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[])


def _inner(statements):
    """All nodes of the statements, but not of functions that they define."""
    for node in statements:
        yield node
        if not isinstance(node, _SCOPES):
            yield from _inner(ast.iter_child_nodes(node))


def _assigned(statements, outer):
    """Variables of the function that the statements set, in the order in which they appear; outer: names that are none of its."""
    names = {}
    for node in _inner(statements):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names[node.id] = True
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("__tessera"):
            names[node.name] = True
    return [name for name in names if name not in outer]


def _targets(statements, outer):
    """Attributes, items and variables of `outer` functions that the statements set, each as (text, expression that reads it, of an item what
    it is an item of)."""
    found = {}
    for node in _inner(statements):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in outer:
            found[node.id] = _load(node.id)
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            read = copy.deepcopy(node)
            while isinstance(read, ast.Subscript):
                read = read.value
            read.ctx = ast.Load()
            found[ast.unparse(node)] = read
    return list(found.items())


def _changes(statements):
    """What the statements call methods of that change a list or the like, each as (text, expression)."""
    found = {}
    for node in _inner(statements):
        call = _uncalled(node.func) if isinstance(node, ast.Call) else None
        if isinstance(call, ast.Attribute) and call.attr in _CHANGING and not any(isinstance(part, ast.Call) for part in ast.walk(call.value)):
            found[ast.unparse(call.value)] = call.value
    return list(found.items())


def _uncalled(function):
    """f of called(f)."""
    is_call = isinstance(function, ast.Call) and isinstance(function.func, ast.Name) and function.func.id == _CALLED
    return function.args[0] if is_call else function


def _leaves_loop(statements):
    """Whether a break or continue of a loop around, a yield, or a return from within a loop is among them."""
    for node in statements:
        if isinstance(node, (ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await)):
            return True
        if isinstance(node, _LOOPS):
            if any(isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom)) for n in _inner([node])):
                return True
        elif not isinstance(node, _SCOPES) and _leaves_loop(ast.iter_child_nodes(node)):
            return True
    return False


def _returns(statements):
    return any(isinstance(node, ast.Return) for node in _inner(statements))


class _Rewriter:
    def __init__(self, path, first_line, declared, variables):
        """declared: the function's global and nonlocal statements, which its branches need too; variables: its own."""
        self.path, self.first_line, self.declared, self.variables = path, first_line, declared, variables
        self.outer = {name for statement in declared for name in statement.names}
        self.count = 0

    def function_body(self, statements):
        """The statements of a function, of which each path ends in a return where a branch returns."""
        made = []
        for i, statement in enumerate(statements):
            if isinstance(statement, ast.If) and _returns([statement]) and not _leaves_loop([statement]) and not self.is_nested_return(statement):
                rest = statements[i + 1:]
                targets, changes = _targets([statement, *rest], self.outer), _changes([statement, *rest])
                body = self.function_body(self.ended(statement.body, rest))
                other = self.function_body(self.ended(statement.orelse, rest))
                return made + self.returning_choice(statement, body, other, targets, changes)
            made += self.statement(statement)
        return made

    def is_nested_return(self, statement):
        """Whether a return stands in a `with` or `try`, which choose() cannot leave."""
        compound = [node for node in _inner([statement]) if isinstance(node, (ast.With, ast.Try, ast.Match))]
        return any(_returns([node]) for node in compound)

    def ended(self, branch, rest):
        branch = copy.deepcopy(branch)
        if branch and isinstance(branch[-1], _ENDS):
            return branch
        branch += copy.deepcopy(rest)
        if not branch or not isinstance(branch[-1], _ENDS):
            branch.append(ast.Return(value=ast.Constant(value=None)))
        return branch

    def statement(self, statement):
        """The statements that take its place."""
        if isinstance(statement, _SCOPES):
            return [statement]
        targets, changes = _targets([statement], self.outer), _changes([statement])
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(statement, field, None)
            if isinstance(inner, list):
                setattr(statement, field, [made for part in inner for made in self.statement(part)])
        for handler in getattr(statement, "handlers", []):
            handler.body = [made for part in handler.body for made in self.statement(part)]
        statement = _Expressions(self).visit(statement)
        if isinstance(statement, ast.If) and not _leaves_loop([statement]) and not _returns([statement]):
            return self.choice(statement, targets, changes)
        return [statement]

    def where(self, node):
        return f"{self.path}:{node.lineno + self.first_line}"

    def branches(self, body, other, variables):
        self.count += 1
        names = f"__tessera_body_{self.count}", f"__tessera_other_{self.count}"
        return names, [ast.FunctionDef(name=name, args=_arguments(variables), body=copy.deepcopy(self.declared) + statements, decorator_list=[], returns=None)
                       for name, statements in zip(names, (body, other))]

    def call(self, node, test, body, other, variables, targets=(), changes=()):
        # Variables that are not set yet: a name is looked up among the locals.
        now = [ast.Call(func=ast.Attribute(value=ast.Call(func=_load("locals"), args=[], keywords=[]), attr="get", ctx=ast.Load()),
                        args=[ast.Constant(value=name), _load(_UNSET)], keywords=[]) for name in variables]
        sets, changed = ([ast.Tuple(elts=[ast.Constant(value=text), _lambda(copy.deepcopy(read))], ctx=ast.Load()) for text, read in found]
                         for found in (targets, changes))
        return ast.Call(func=_load(_CHOOSE), args=[test, body, other, ast.Tuple(elts=now, ctx=ast.Load()), ast.Constant(value=self.where(node)),
                                                   ast.Tuple(elts=sets, ctx=ast.Load()), ast.Tuple(elts=changed, ctx=ast.Load())], keywords=[])

    def parted(self, statements, changes):
        """(the function's own variables that the statements set or change, what else they change)."""
        variables = _assigned(statements, self.outer)
        variables += [text for text, _ in changes if text in self.variables and text not in variables]
        return variables, [(text, read) for text, read in changes if text not in self.variables]

    def choice(self, node, targets, changes):
        variables, changes = self.parted(node.body + node.orelse, changes)
        result = ast.Return(value=ast.Tuple(elts=[_load(name) for name in variables], ctx=ast.Load()))
        names, functions = self.branches(node.body + [result], node.orelse + [copy.deepcopy(result)], variables)
        call = self.call(node, node.test, _load(names[0]), _load(names[1]), variables, targets, changes)
        if not variables:
            return self.placed(node, functions + [ast.Expr(value=call)])
        target = ast.Tuple(elts=[ast.Name(id=name, ctx=ast.Store()) for name in variables], ctx=ast.Store())
        return self.placed(node, functions + [ast.Assign(targets=[target], value=call)])

    def returning_choice(self, node, body, other, targets, changes):
        test = _Expressions(self).visit(node.test)
        variables, changes = self.parted(body + other, changes)
        names, functions = self.branches(body, other, variables)
        call = self.call(node, test, _load(names[0]), _load(names[1]), variables, targets, changes)
        return self.placed(node, functions + [ast.Return(value=call)])

    def placed(self, node, statements):
        for statement in statements:
            ast.copy_location(statement, node)
            ast.fix_missing_locations(statement)
        return statements


class _Undeclared(ast.NodeTransformer):
    """Without the global and nonlocal statements, which stand where the function begins."""

    def visit(self, node):
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_Global(self, node):
        return ast.copy_location(ast.Pass(), node)

    visit_Nonlocal = visit_Global


class _Expressions(ast.NodeTransformer):
    """`a if test else b` outside of statements that are rewritten by themselves."""

    def __init__(self, rewriter):
        self.rewriter = rewriter

    def visit_IfExp(self, node):
        where = node
        node = self.generic_visit(node)
        if any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):
            return node
        made = self.rewriter.call(where, node.test, _lambda(node.body), _lambda(node.orelse), ())
        return ast.fix_missing_locations(ast.copy_location(made, node))


def _is_stored_item(node):
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


class _Numbers(ast.NodeTransformer):
    """x.n += 1 and x.n = value for attributes of variables, and for variables of `outer` functions."""

    def __init__(self, outer, path, first_line):
        self.outer, self.path, self.first_line = outer, path, first_line

    def visit(self, node):
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_Assign(self, node):
        if len(node.targets) != 1 or not self.is_kept(node.targets[0]):
            return node
        text = ast.unparse(node.targets[0])
        is_of_itself = any(isinstance(inner, type(node.targets[0])) and ast.unparse(inner) == text for inner in ast.walk(node.value))
        return self.placed(node, node.targets[0], node.value, is_of_itself)

    def visit_AugAssign(self, node):
        if not self.is_kept(node.target):
            return node
        change = ast.Attribute(value=ast.Attribute(value=_load(_CHANGED), attr="by", ctx=ast.Load()), attr=_CHANGES[type(node.op)], ctx=ast.Load())
        return self.placed(node, node.target, ast.Call(func=change, args=[self.read(node.target), node.value], keywords=[]), True)

    def is_kept(self, target):
        """Whether what is set is there at the next call."""
        base = target
        while isinstance(base, ast.Attribute):
            base = base.value
        return isinstance(base, ast.Name) and (base is not target or base.id in self.outer)

    @staticmethod
    def read(target):
        read = copy.deepcopy(target)
        read.ctx = ast.Load()
        return read

    def placed(self, node, target, value, is_of_itself):
        where = f"{self.path}:{node.lineno + self.first_line}"
        call = ast.Call(func=_load(_CHANGED), args=[_lambda(self.read(target)), value, *[ast.Constant(value=part) for part in (
            is_of_itself, ast.unparse(target), where)]], keywords=[])
        return ast.fix_missing_locations(ast.copy_location(ast.Assign(targets=[target], value=call), node))


class _Items(ast.NodeTransformer):
    """y[key] = x, y[key][key] = x and y[key] += x for a variable y."""

    def __init__(self, variables, path, first_line):
        self.variables, self.path, self.first_line = variables, path, first_line

    def visit(self, node):
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_Assign(self, node):
        if len(node.targets) == 1 and _is_stored_item(node.targets[0]):
            return self.placed(node, node.targets[0], node.value, None)
        return node

    def visit_AugAssign(self, node):
        if _is_stored_item(node.target):
            return self.placed(node, node.target, node.value, _CHANGES[type(node.op)])
        return node

    def visit_AnnAssign(self, node):
        if node.value is not None and _is_stored_item(node.target):
            return self.placed(node, node.target, node.value, None)
        return node

    def placed(self, node, target, value, change):
        keys, base = [], target
        while isinstance(base, ast.Subscript):
            keys.insert(0, ast.Subscript(value=ast.Attribute(value=_load(_SET_ITEM), attr="key", ctx=ast.Load()), slice=base.slice, ctx=ast.Load()))
            base = base.value
        if not isinstance(base, ast.Name) or base.id not in self.variables:
            return node
        where = f"{self.path}:{node.lineno + self.first_line}"
        call = ast.Call(func=_load(_SET_ITEM), args=[_load(base.id), ast.Tuple(elts=keys, ctx=ast.Load()), value, ast.Constant(value=change),
                                                     ast.Constant(value=ast.unparse(target)), ast.Constant(value=where)], keywords=[])
        made = ast.Assign(targets=[ast.Name(id=base.id, ctx=ast.Store())], value=call)
        return ast.fix_missing_locations(ast.copy_location(made, node))


# The operators in place, by their names in the module operator.
_CHANGES = {ast.Add: "iadd", ast.Sub: "isub", ast.Mult: "imul", ast.Div: "itruediv", ast.FloorDiv: "ifloordiv", ast.Mod: "imod", ast.Pow: "ipow",
            ast.MatMult: "imatmul", ast.BitAnd: "iand", ast.BitOr: "ior", ast.BitXor: "ixor", ast.LShift: "ilshift", ast.RShift: "irshift"}


def _is_ours(function):
    """Whether the expression is what is called here in any case: a function of this module's, or one that looks at its caller."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return getattr(function, "id", "") in (_SET_ITEM, _CHANGED, "super", "locals")


class _Calls(ast.NodeTransformer):
    """f(x) for what a variable, an attribute or an item holds."""

    def visit(self, node):
        # Functions within are rewritten when they are called.
        return node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else super().visit(node)

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, (ast.Name, ast.Attribute, ast.Subscript)) and not _is_ours(node.func):
            node.func = ast.copy_location(ast.Call(func=_load(_CALLED), args=[node.func], keywords=[]), node.func)
        return ast.fix_missing_locations(node)


class _Key:
    """_Key()[...] is the key."""

    def __getitem__(self, key):
        return key


set_item.key = _Key()
changed.by = operator


class _Mangler(ast.NodeTransformer):
    """self.__x as it is called within a class."""

    def __init__(self, qualified_name):
        parts = qualified_name.split(".")
        self.owner = parts[-2].lstrip("_") if len(parts) > 1 else ""

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if self.owner and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{self.owner}{node.attr}"
        return node


def _lambda(expression):
    return ast.Lambda(args=_arguments(()), body=expression)


def _load(name):
    return ast.Name(id=name, ctx=ast.Load())
