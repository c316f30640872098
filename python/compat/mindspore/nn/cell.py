"""Cell.

What a parameter is called is a text, as in the reference: a cell that becomes an attribute names all that is below it by the attribute and the path
from there on, and what happens to that cell later names nothing above it. So the order in which a network is put together decides: a parameter
that a part gets once it is an attribute has no path in front of its name until the whole becomes part of another cell."""
import tessera

from mindspore import _check, _modes, _parameter_server, _stand_ins, context
from mindspore._join import join_by_role
from mindspore._shard import shard
from mindspore.common.initializer import PendingTensor
from mindspore.common.parameter import Parameter
from mindspore.common.scripts import JitConfig
from mindspore.nn.hooks import Hooks


def _optimizers_in(cell):
    if hasattr(cell, "prefix_states"):
        yield cell
    for _, child in cell.children():
        if child.__dict__.get("_holds_optimizers"):
            yield from _optimizers_in(child)


def _held(cell):
    """(name, parameter) of what the cell itself has, as scripts see it: also what its inner cell has."""
    if not isinstance(cell, Cell):
        return cell.named_parameters()
    inner = None if cell._inner is None else dict(cell.children()).get(cell._inner)
    # A cell may have an attribute of the method's name.
    return tessera.nn.Cell.own_parameters(cell) + ([] if inner is None else inner.named_parameters())


def named_parameters(cell):
    """(path of attributes, parameter) of a cell of either package."""
    return cell.parameters_and_names() if isinstance(cell, Cell) else iter(cell.named_parameters())


def rename(cell, prefix):
    """Names the parameters of a cell of either package by the prefix and the path from the cell on."""
    if isinstance(cell, Cell):
        cell.update_parameters_name(prefix)
        return
    for path, parameter in cell.named_parameters():
        parameter.given_name = prefix + path


def _name_states_apart(cell):
    """Of two optimizers below, the second one's states begin with its path where both would have a state of one name."""
    taken, seen = set(), set()
    for optimizer in _optimizers_in(cell):
        if id(optimizer) in seen:
            continue
        seen.add(id(optimizer))
        if any(state.name in taken for state in optimizer.state_parameters()):
            optimizer.prefix_states(optimizer.path() + ".")
        taken.update(state.name for state in optimizer.state_parameters())


def _with_all_below(cell):
    yield cell
    for _, child in cell.children():
        yield from _with_all_below(child)


class Cell(Hooks, tessera.nn.Cell):
    """A piece of a network: parameters, child cells and construct(), which is traced once for each signature.

    In PYNATIVE_MODE a cell called with tensors runs construct() as it stands, operator by operator."""

    # Cells whose construct() asks for gradients are traced in any mode.
    _is_always_traced = False
    # Cells whose parameters are called as they are, whatever cell they become part of.
    _keeps_names = False
    # Cells whose own parameters have the path of the cell in front of their names, of optimizers.
    _names_by_path = False
    # The child that does the work of a cell which scripts see as one.
    _inner = None

    def __init__(self, auto_prefix=True, flags=None):
        super().__init__(auto_prefix=bool(auto_prefix))  # scripts pass anything
        # What scripts name in their errors.
        self.__dict__["cls_name"] = type(self).__name__
        if flags:
            self.add_flags(**flags)

    def __call__(self, *inputs, **kwargs):
        if self._has_hooks():
            return self._call_with_hooks(self._call, inputs, kwargs)
        return self._call(*inputs, **kwargs)

    def _call(self, *inputs, **kwargs):
        if context.get_context("mode") == context.PYNATIVE_MODE and not self._is_always_traced and not tessera.nn.is_tracing():
            self._refresh_names()
            return self._run_construct(*inputs, **kwargs)
        if not tessera.nn.is_tracing():
            self._refresh_names()
        return super().__call__(*inputs, **kwargs)

    def _refresh_names(self):
        """Before the first call: no two parameters have one name."""
        if not self.__dict__.get("_has_unique_names"):
            self.check_names_and_refresh_name()
            self.__dict__["_has_unique_names"] = True

    def __setattr__(self, name, value):
        if isinstance(value, PendingTensor) and not tessera.nn.is_tracing():
            held = [p for path, p in self.named_parameters() if path == name]
            if held:
                held[0].set_data(value)
                return
        self._hold(name, value)
        if isinstance(value, tessera.nn.Cell) and self.auto_prefix and not getattr(value, "_keeps_names", False):
            rename(value, f"{name}.")

    def _hold(self, name, value):
        """Makes the value an attribute; what its parameters are called they go on to be called."""
        is_cell = isinstance(value, tessera.nn.Cell)
        if not self._names_by_path and not tessera.nn.is_tracing():
            if isinstance(value, tessera.Parameter) and not value.given_name:
                value.given_name = value.name or name
            elif is_cell and not isinstance(value, Cell):  # one of Tessera's, whose parameters nobody has named
                for parameter in value.parameters():
                    parameter.given_name = parameter.name
        super().__setattr__(name, value)
        if isinstance(value, Cell):
            value.__dict__["_is_part"] = True
            if value.__dict__.get("_holds_optimizers"):
                self.__dict__["_holds_optimizers"] = True
                _name_states_apart(self)
        if is_cell and self.auto_prefix and not getattr(value, "_keeps_names", False):
            self.lead_to(name)

    @property
    def phase(self):
        """The name of what the cell is compiled as. Once a script has set it, calls of one phase and signature run what was
        compiled at the first of them, whatever has become of the flags."""
        return self.__dict__.get("_phase", "")

    @phase.setter
    def phase(self, name):
        if not isinstance(name, str):
            raise TypeError(f"For 'Cell', the property 'phase' must be str, but got {type(name).__name__}.")
        self.__dict__["_phase"] = name

    @property
    def cell_init_args(self):
        """The class and what __init__ was given, as cell_attr_register writes it; "" without that decorator."""
        return self.__dict__.get("_cell_init_args", "")

    @cell_init_args.setter
    def cell_init_args(self, value):
        if not isinstance(value, str):
            raise TypeError(f"For 'Cell', the property 'cell_init_args' must be string type, but got type {type(value).__name__}.")
        self.__dict__["_cell_init_args"] = value

    def construct(self, *inputs, **kwargs):
        """What the cell computes; to be overridden."""
        raise AttributeError(f"For 'Cell', the method 'construct' of {type(self).__name__} is not defined.")

    def get_parameters(self, expand=True):
        """The parameters here and below; expand=False: here."""
        return iter(self._own_parameters(expand))

    def trainable_params(self, recurse=True):
        """The parameters that training changes."""
        return [p for p in self._own_parameters(recurse) if p.requires_grad]

    def untrainable_params(self, recurse=True):
        """The others."""
        return [p for p in self._own_parameters(recurse) if not p.requires_grad]

    def _own_parameters(self, recurse):
        # Not self.parameters(): a cell may have an attribute of that name.
        return tessera.nn.Cell.parameters(self) if recurse else [p for _, p in self.parameters_and_names(expand=False)]

    def parameters_and_names(self, name_prefix="", expand=True):
        """(path of attributes, parameter) of each, of several paths the first."""
        seen = {}  # by id, which is that of another one once a parameter is gone
        for path, cell in self.cells_and_names(name_prefix=name_prefix) if expand else [(name_prefix, self)]:
            for name, parameter in _held(cell):
                if id(parameter) not in seen:
                    seen[id(parameter)] = parameter
                    yield f"{path}.{name}" if path else name, parameter

    def parameters_dict(self, recurse=True):
        """Parameters by name."""
        return {p.name: p for p in self._own_parameters(recurse)}

    def cells(self):
        """The child cells."""
        return [cell for _, cell in self.children()]

    def name_cells(self):
        """The child cells by name."""
        return dict(self.children())

    def cells_and_names(self, cells=None, name_prefix=""):
        """(path, cell) of this cell and all below, each at the first place that it has; not of those in `cells`, to which they are added."""
        seen = cells or set()
        if self in seen:
            return
        seen.add(self)
        yield name_prefix, self
        for name, cell in self.children():
            if name == self._inner or not cell:  # of an empty list nothing is said
                continue
            path = f"{name_prefix}.{name}" if name_prefix else name
            if isinstance(cell, Cell):
                yield from cell.cells_and_names(seen, path)
            elif cell not in seen:
                seen.add(cell)
                yield path, cell

    def insert_param_to_cell(self, param_name, param, check_name_contain_dot=True):
        """Makes the parameter an attribute."""
        if not param_name:
            raise KeyError("For 'insert_param_to_cell', the argument 'param_name' should not be None or empty.")
        if check_name_contain_dot and "." in param_name:
            raise KeyError("For 'insert_param_to_cell', the argument 'param_name' should not contain '.'.")
        if not isinstance(param, Parameter):
            raise TypeError(f"For 'insert_param_to_cell', the argument 'param' must be 'Parameter', but got {type(param).__name__}.")
        setattr(self, param_name, param)

    def insert_child_to_cell(self, child_name, child_cell):
        """Makes the cell an attribute, and names none of its parameters."""
        if not child_name or "." in child_name:
            raise KeyError("For 'insert_child_to_cell', the argument 'child_name' must be a name without '.'.")
        if not isinstance(child_cell, tessera.nn.Cell):
            raise TypeError(f"For 'insert_child_to_cell', the argument 'child_cell' must be 'Cell', but got {type(child_cell).__name__}.")
        self._hold(child_name, child_cell)

    def add_flags(self, **flags):
        """Sets attributes that construct() looks at; for each set of them a cell is compiled once. Returns itself."""
        return self.set_flags(**flags)

    def add_flags_recursive(self, **flags):
        """The same here and below."""
        for _, cell in self.cells_and_names():
            if isinstance(cell, Cell):
                cell.add_flags(**flags)
        return self

    def set_comm_fusion(self, fusion_type, recurse=True):
        """The fusion id of the trainable parameters; gradients of equal ids travel together."""
        if isinstance(fusion_type, bool) or not isinstance(fusion_type, int) or fusion_type < 0:
            raise ValueError(f"The argument 'fusion_type' must be an int >= 0, but got {fusion_type}.")
        for parameter in self.trainable_params(recurse):
            parameter.comm_fusion = fusion_type
        return self

    def recompute(self, **kwargs):
        """Backward computes what is inside of this cell once more instead of keeping it.

        mp_comm_recompute=True: collectives, too; parallel_optimizer_comm_recompute=False: the gathering of parameters that
        share an optimizer, too; recompute_slice_activation=False is accepted. ValueError for any other, TypeError in
        PYNATIVE_MODE, RuntimeError where this cell, one above or one below is recomputed already."""
        if context.get_context("mode") == context.PYNATIVE_MODE:
            raise TypeError("Recompute is not supported in pynative mode currently.")
        settings = {"mp_comm_recompute": True, "parallel_optimizer_comm_recompute": False, "recompute_slice_activation": False}
        for name, value in kwargs.items():
            if name not in settings:
                raise ValueError(f"Recompute keyword '{name}' is not recognized! It must be one of {list(settings)}.")
            if not isinstance(value, bool):
                raise TypeError(f"For 'recompute', the argument '{name}' must be bool, but got {type(value).__name__}.")
        settings.update(kwargs)
        if settings.pop("recompute_slice_activation"):
            context.warn_once("recompute_slice_activation=True: what a block reads is kept as it lies, a slice where it is split already")
        try:
            super().recompute(**settings)
        except ValueError as error:
            raise RuntimeError(str(error)) from None

    def to_float(self, dst_type):
        """What operators here and below compute in: float16 or float32 (bfloat16, too). Returns itself."""
        if dst_type not in (tessera.float16, tessera.float32, tessera.bfloat16):
            raise ValueError(f"For 'to_float', the argument 'dst_type' must be float32, float16 or bfloat16, but got {dst_type}.")
        return super().to_float(dst_type)

    def get_flags(self):
        """What add_flags() has set."""
        return {name: value for name, value in self.__dict__.get("_flags", {}).items() if name not in (_modes.FLAG, "_hooks")}

    def set_train(self, mode=True):
        """Whether the cell and all below run as in training: dropout, statistics of the batch. Returns itself."""
        super().set_train(mode)
        _modes.note(self, mode)
        return self

    @property
    def training(self):
        """Whether the cell runs as in training. Setting it says so of the cell alone; set_train() of all below, too."""
        return tessera.nn.Cell.training.__get__(self)

    @training.setter
    def training(self, mode):
        below = [(child, child.training) for name, part in self.children() if name != self._inner for child in _with_all_below(part)]
        self.set_train(bool(mode))
        for child, was in below:  # parents first
            if child.training != was:
                child.set_train(was)

    def set_jit_config(self, jit_config):
        """Accepted, without effect: every network is compiled as a whole."""
        if not isinstance(jit_config, JitConfig):
            raise TypeError(f"For 'Cell.set_jit_config', the 'jit_config' must be JitConfig, but got {type(jit_config).__name__}.")
        context.warn_once("Cell.set_jit_config has no effect: every network is compiled as a whole")

    @property
    def pipeline_stage(self):
        """The stage that computes this cell, and those below it that have none of their own; 0 where none is set. TypeError unless an int,
        ValueError for a negative one."""
        return self.__dict__.get("_pipeline_stage", 0)

    @pipeline_stage.setter
    def pipeline_stage(self, value):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError("For 'Cell', the property 'pipeline_stage' must be int type.")
        if value < 0:
            raise ValueError("For 'Cell', the property 'pipeline_stage' can not be less than 0.")
        self.__dict__["_pipeline_stage"] = value
        self.set_stage(value, self.pipeline_segment)

    @property
    def pipeline_segment(self):
        """In which pass of the network over the stages this cell is computed, where pipeline_config interleaves; 0 where none is set. It goes
        with the cell's own pipeline_stage. TypeError unless an int, ValueError for a negative one."""
        return self.__dict__.get("_pipeline_segment", 0)

    @pipeline_segment.setter
    def pipeline_segment(self, value):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError("For 'Cell', the property 'pipeline_segment' must be int type.")
        if value < 0:
            raise ValueError("For 'Cell', the property 'pipeline_segment' can not be less than 0.")
        self.__dict__["_pipeline_segment"] = value
        if "_pipeline_stage" in self.__dict__:
            self.set_stage(self.pipeline_stage, value)

    @property
    def param_prefix(self):
        """What the names of the parameters begin with: the path."""
        return self.path()

    @property
    def parameter_layout_dict(self):
        """How the parameters lie on the ranks, once a Model was built with this network, or trained: {name: (device_matrix, tensor_map,
        slice_shape, field, uniform_split, opt_shard_group, full_shape)}."""
        return dict(self.__dict__.get("_parameter_layouts", {}))

    def shard(self, in_strategy, out_strategy=None, parameter_plan=None, device="Ascend", level=0):
        """From here on the cell's inputs are split as in_strategy says in semi-automatic and automatic parallel, its results as out_strategy says and
        parameters as parameter_plan says; operators inside that have no strategy follow their neighbours. Returns a function that calls the cell."""
        return shard(self, in_strategy, out_strategy, parameter_plan, device, level)

    def infer_param_pipeline_stage(self):
        """The trainable parameters of this rank's stage, of all stages where there is one rank; one that cells of several stages have is of all
        of them. RuntimeError for one whose cell has no stage, where there are several."""
        stages = context.get_auto_parallel_context("pipeline_stages")
        if stages == 1 or tessera.cluster.size() == 1:
            return self.trainable_params()
        own = tessera.cluster.rank() // max(tessera.cluster.size() // stages, 1)
        stages_of = {}

        def walk(cell, stage):
            stage = cell.__dict__.get("_pipeline_stage", stage)
            children = [child for _, child in cell.children()]  # Tessera's own cells, too
            inner = {id(parameter) for child in children for parameter in tessera.nn.Cell.trainable_parameters(child)}
            for parameter in tessera.nn.Cell.trainable_parameters(cell):
                if stage is not None and id(parameter) not in inner:
                    stages_of.setdefault(id(parameter), set()).add(stage)
            for child in children:
                walk(child, stage)

        walk(self, None)
        for parameter in self.trainable_params():
            if id(parameter) not in stages_of:
                raise RuntimeError(f"The parameter {parameter.name} does not belong to any stage, please check whether the cell where the param "
                                   "locates has been set pipeline_stage: cell.pipeline_stage = 1")
        return [parameter for parameter in self.trainable_params() if own in stages_of[id(parameter)]]

    def set_grad(self, requires_grad=True):
        """Gradients are made where training asks for them, whatever requires_grad says. Returns itself."""
        _check.boolean("Cell.set_grad", "requires_grad", requires_grad)
        return self

    def set_param_ps(self, recurse=True, init_in_server=False):
        """Servers keep the trainable parameters, those of this cell only where recurse is False. init_in_server has no effect: values begin
        equal everywhere."""
        for name, value in (("recurse", recurse), ("init_in_server", init_in_server)):
            if not isinstance(value, bool):
                raise TypeError(f"For 'Cell.set_param_ps', the '{name}' must be bool, but got {type(value).__name__}.")
        _parameter_server.require_servers("Cell.set_param_ps")
        join_by_role("Cell.set_param_ps")
        for parameter in self.trainable_params(recurse):
            parameter.on_servers = True

    def update_parameters_name(self, prefix="", recurse=True):
        """Names the parameters by the prefix and the path of attributes from this cell on, those of this cell only where recurse is False."""
        if not isinstance(prefix, str):
            raise TypeError(f"For 'update_parameters_name', the 'prefix' must be str, but got {type(prefix).__name__}.")
        if not isinstance(recurse, bool):
            raise TypeError(f"For 'update_parameters_name', the 'recurse' must be bool, but got {type(recurse).__name__}.")
        for path, parameter in self.parameters_and_names(expand=recurse):
            parameter.given_name = prefix + path

    def check_names(self):
        """ValueError where two parameters have one name."""
        seen = set()
        for path, parameter in self.parameters_and_names():
            if parameter.name in seen:
                raise ValueError(f"The value of {path} is {parameter}, its name '{parameter.name}' already exists. Please set a unique name for the "
                                 "parameter.")
            seen.add(parameter.name)

    def check_names_and_refresh_name(self):
        """Where two parameters have one name all are named by the paths of attributes from here on."""
        names = [parameter.name for parameter in self.get_parameters()]
        if len(set(names)) < len(names):
            self.update_parameters_name()
            self.check_names()

    def place(self, role, rank_id):
        """Accepted for the one worker of a job of one process, this one; RuntimeError for any other place: operators run where the plan has them."""
        _check.place("Cell", role, rank_id)

    def offload(self, backward_prefetch="Auto"):
        """Accepted, without effect: activations lie in the host's memory, where this would bring them."""
        if backward_prefetch != "Auto":
            _check.integer("Cell.offload", "backward_prefetch", backward_prefetch, 1)
        context.warn_once("Cell.offload has no effect: activations are in the host's memory already; recompute() keeps less of them")

    def set_auto_parallel(self):
        """How a network is split is the context's business."""

    def set_broadcast_flag(self, mode=True):
        """Whether a Model of this network, that is made from here on, gives all ranks the values of rank 0, as parameter_broadcast of the context
        does. Returns itself."""
        self.__dict__["_is_broadcast"] = _check.boolean("Cell.set_broadcast_flag", "mode", mode)
        return self

    def init_parameters_data(self, auto_parallel_mode=False):
        """{parameter: itself} of all here and below, whose values are there. auto_parallel_mode has no effect: Model.build() gives slices."""
        _check.boolean("Cell.init_parameters_data", "auto_parallel_mode", auto_parallel_mode)
        return {parameter: parameter for parameter in self.get_parameters()}


_stand_ins.derive_from("mindspore.nn", Cell)
