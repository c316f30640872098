"""An `if` on a value inside construct(): both branches are traced, and what they assign is chosen when the network runs.

construct() is rewritten from its source before it is traced. `if test: body else: other` becomes a call of choose(), which
runs one branch where the test is Python's own, and both where it is a value:

    if x > 0:                  def body(y):           def other(y):
        y = x                      y = x                  y = -x
    else:                          return (y,)            return (y,)
        y = -x                 (y,) = choose(x > 0, body, other, (y,), "line 3")

A variable becomes select(test, body's, other's), so does what is returned, and so does a parameter that is assigned. Other
attributes cannot be set where a value decides. An `if` in which a loop is left (break, continue) or that returns from
within a loop stays as it is: its test must be Python's own.

`y[key] = x` gives the variable y a new value where it is a tensor, `y = set_item(y, (key,), x, ...)`; other names of the tensor keep the
old one. All this holds in construct(), in functions that are compiled or differentiated, and, as a call f(x) becomes called(f)(x), in what they
call, as far as it has a source in Python. In other functions an `if` must be Python's own, and a value's items cannot be set.
"""
import ast
import copy
import inspect
import operator
import textwrap
import types
import weakref

import numpy as np
from tessera import _indexing, _tessera, _truths

_CHOOSE, _UNSET, _SET_ITEM, _CALLED = "__tessera_choose", "__tessera_unset", "__tessera_set_item", "__tessera_called"
_OWN = ("tessera", "mindspore")  # packages that are written to be traced
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_ENDS = (ast.Return, ast.Raise)

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
    """The cell's construct(), with its branches on values traced."""
    method = cell.construct
    function = getattr(method, "__func__", None)
    if not isinstance(function, types.FunctionType):
        return method
    made = traced(function)
    return method if made is function else types.MethodType(made, cell)


def traced(function):
    """The function, or method, with its branches on values traced."""
    if isinstance(function, types.MethodType):
        made = traced(function.__func__)
        return function if made is function.__func__ else types.MethodType(made, function.__self__)
    if not isinstance(function, types.FunctionType):
        return function
    if function not in _rewritten:
        _rewritten[function] = _rewrite(function)
    return _rewritten[function] or function


def called(function):
    """What is called in a function's place where that is rewritten."""
    return traced(function) if isinstance(function, (types.FunctionType, types.MethodType)) and not _is_own(function) else function


def _is_own(function):
    return (function.__module__ or "").partition(".")[0] in _OWN


def choose(test, body, other, variables, where, targets=()):
    """What body(*variables) or other(*variables) returns; of both where the test is a value. targets: what else they set, (text,
    function that returns it)."""
    if isinstance(test, _tessera.nn.Parameter):
        test = _tessera.ops.not_equal(test, 0)
    if not isinstance(test, _tessera.Value):
        return body(*variables) if test else other(*variables)
    for text, get in targets:
        if not _is_parameter(get):
            raise TypeError(f"{where}: {text} is set in an `if` on a value; that takes a variable or a Parameter")
    if test.size != 1:
        raise TypeError(f"{where}: an `if` needs one truth, the condition has the shape {test.shape}; use select")
    if test.dtype != _tessera.bool_:
        test = _tessera.ops.not_equal(test, 0)
    if test.ndim > 0:
        test = _tessera.ops.reshape(test, ())
    _Branches.depth += 1
    try:
        return _merge(test, *_tessera.nn.trace_branches(test, lambda: body(*variables), lambda: other(*variables)), where)
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


def _is_parameter(get):
    try:
        return isinstance(get(), _tessera.nn.Parameter)
    except (AttributeError, NameError):
        return False  # not set yet


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
    kinds = (ast.If, ast.IfExp) if _is_own(function) else (ast.If, ast.IfExp, ast.Not, ast.BoolOp, ast.Call)
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
    body = [_Undeclared().visit(items.visit(statement)) for statement in definition.body]
    if not _is_own(function):
        body = [_Calls().visit(_truths.Rewriter().visit(statement)) for statement in body]
    definition.body = declared + _Rewriter(function.__code__.co_filename, first - 1, declared).function_body(body)
    # The names that the function takes from around it are parameters of a function around the new one.
    free = (*function.__code__.co_freevars, _CHOOSE, _UNSET, _SET_ITEM, _CALLED, _truths.NAME)
    outer = ast.FunctionDef(name="outer", args=_arguments(free), body=[definition], decorator_list=[], returns=None)
    module = ast.fix_missing_locations(ast.Module(body=[outer], type_ignores=[]))
    ast.increment_lineno(module, first - 1)
    made = compile(module, function.__code__.co_filename, "exec")
    code = _code_named(_code_named(made, "outer"), definition.name)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    cells |= {_CHOOSE: types.CellType(choose), _UNSET: types.CellType(Unset("a variable was read before it was set")),
              _SET_ITEM: types.CellType(set_item), _CALLED: types.CellType(called), _truths.NAME: types.CellType(_truths.Truths)}
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
    def __init__(self, path, first_line, declared):
        """declared: the function's global and nonlocal statements, which its branches need too."""
        self.path, self.first_line, self.declared = path, first_line, declared
        self.outer = {name for statement in declared for name in statement.names}
        self.count = 0

    def function_body(self, statements):
        """The statements of a function, of which each path ends in a return where a branch returns."""
        made = []
        for i, statement in enumerate(statements):
            if isinstance(statement, ast.If) and _returns([statement]) and not _leaves_loop([statement]) and not self.is_nested_return(statement):
                rest = statements[i + 1:]
                targets = _targets([statement, *rest], self.outer)
                body = self.function_body(self.ended(statement.body, rest))
                other = self.function_body(self.ended(statement.orelse, rest))
                return made + self.returning_choice(statement, body, other, targets)
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
        targets = _targets([statement], self.outer)
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(statement, field, None)
            if isinstance(inner, list):
                setattr(statement, field, [made for part in inner for made in self.statement(part)])
        for handler in getattr(statement, "handlers", []):
            handler.body = [made for part in handler.body for made in self.statement(part)]
        statement = _Expressions(self).visit(statement)
        if isinstance(statement, ast.If) and not _leaves_loop([statement]) and not _returns([statement]):
            return self.choice(statement, targets)
        return [statement]

    def where(self, node):
        return f"{self.path}:{node.lineno + self.first_line}"

    def branches(self, body, other, variables):
        self.count += 1
        names = f"__tessera_body_{self.count}", f"__tessera_other_{self.count}"
        return names, [ast.FunctionDef(name=name, args=_arguments(variables), body=copy.deepcopy(self.declared) + statements, decorator_list=[], returns=None)
                       for name, statements in zip(names, (body, other))]

    def call(self, node, test, body, other, variables, targets=()):
        # Variables that are not set yet: a name is looked up among the locals.
        now = [ast.Call(func=ast.Attribute(value=ast.Call(func=_load("locals"), args=[], keywords=[]), attr="get", ctx=ast.Load()),
                        args=[ast.Constant(value=name), _load(_UNSET)], keywords=[]) for name in variables]
        sets = [ast.Tuple(elts=[ast.Constant(value=text), _lambda(read)], ctx=ast.Load())
                for text, read in targets]
        return ast.Call(func=_load(_CHOOSE), args=[test, body, other, ast.Tuple(elts=now, ctx=ast.Load()), ast.Constant(value=self.where(node)),
                                                   ast.Tuple(elts=sets, ctx=ast.Load())], keywords=[])

    def choice(self, node, targets):
        variables = _assigned(node.body + node.orelse, self.outer)
        result = ast.Return(value=ast.Tuple(elts=[_load(name) for name in variables], ctx=ast.Load()))
        names, functions = self.branches(node.body + [result], node.orelse + [copy.deepcopy(result)], variables)
        call = self.call(node, node.test, _load(names[0]), _load(names[1]), variables, targets)
        if not variables:
            return self.placed(node, functions + [ast.Expr(value=call)])
        target = ast.Tuple(elts=[ast.Name(id=name, ctx=ast.Store()) for name in variables], ctx=ast.Store())
        return self.placed(node, functions + [ast.Assign(targets=[target], value=call)])

    def returning_choice(self, node, body, other, targets):
        test = _Expressions(self).visit(node.test)
        variables = _assigned(body + other, self.outer)
        names, functions = self.branches(body, other, variables)
        call = self.call(node, test, _load(names[0]), _load(names[1]), variables, targets)
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


class _Calls(ast.NodeTransformer):
    """f(x) for what a variable, an attribute or an item holds."""

    def visit(self, node):
        # Functions within are rewritten when they are called.
        return node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else super().visit(node)

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, (ast.Name, ast.Attribute, ast.Subscript)) and getattr(node.func, "id", "") not in (_SET_ITEM, "super", "locals"):
            node.func = ast.copy_location(ast.Call(func=_load(_CALLED), args=[node.func], keywords=[]), node.func)
        return ast.fix_missing_locations(node)


class _Key:
    """_Key()[...] is the key."""

    def __getitem__(self, key):
        return key


set_item.key = _Key()


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
