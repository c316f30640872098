"""Recurrent layers and cells."""
import tessera

from mindspore import _check, context
from mindspore.common.parameter import ParameterTuple
from mindspore.nn.cell import Cell


def _is_tensor(value):
    return isinstance(value, (tessera.Tensor, tessera.Parameter, tessera.Value))


def _check_tensor(who, name, value, dtype=None):
    """TypeError unless it is a tensor of float32 or float16, and of `dtype`."""
    if not _is_tensor(value):
        raise TypeError(f"For '{who}', the '{name}' must be Tensor, but got {type(value).__name__}.")
    if value.dtype not in (tessera.float32, tessera.float16):
        raise TypeError(f"For '{who}', the '{name}' should be one of [Float32, Float16], but got {value.dtype}.")
    if dtype is not None and value.dtype != dtype:
        raise TypeError(f"For '{who}', the type of '{name}' should be same as 'x', but got 'x' with type {dtype} and '{name}' with type {value.dtype}.")


def _check_pair(who, hx):
    if not isinstance(hx, tuple):
        raise TypeError(f"For '{who}', the 'hx' must be Tuple, but got {type(hx).__name__}.")
    if len(hx) != 2:
        raise TypeError(f"For '{who}', the length of 'hx' must be '2', but got '{len(hx)}'")


def _float_dtype(who, dtype):
    if dtype not in (tessera.float32, tessera.float16, tessera.float64, tessera.bfloat16):
        raise TypeError(f"For '{who}', the 'dtype' must be a floating dtype, but got {dtype}.")
    return dtype


class _Native(Cell):
    """A recurrent cell of tessera's, whose parameters are this one's."""

    _inner = "rnn"

    def __init__(self, native):
        super().__init__(auto_prefix=False)
        self.rnn = native

    def __getattr__(self, name):
        if name.startswith(("weight_", "bias_")):
            return getattr(self.rnn, name)
        return super().__getattr__(name)


class _Layer(_Native):
    """Layers of recurrent cells over sequences."""

    def __init__(self, recurrence, input_size, hidden_size, num_layers=1, has_bias=True, batch_first=False, dropout=0.0, bidirectional=False,
                 dtype=tessera.float32):
        who = type(self).__name__
        _check.integer(who, "hidden_size", hidden_size, 1)
        _check.integer(who, "input_size", input_size, 1)
        _check.integer(who, "num_layers", num_layers, 1)
        if not isinstance(dropout, float):
            raise TypeError(f"For '{who}', the type of 'dropout' must be 'float', but got '{type(dropout).__name__}'.")
        _check.boolean(who, "has_bias", has_bias)
        _check.boolean(who, "batch_first", batch_first)
        _check.boolean(who, "bidirectional", bidirectional)
        if not 0 <= dropout < 1:
            raise ValueError(f"For '{who}', the 'dropout' must be a number in range [0, 1) representing the probability of an element being zeroed, "
                             f"but got {dropout}.")
        if dropout > 0 and num_layers == 1:
            context.warn_once(f"{who}: dropout={dropout} is between layers, and num_layers is 1: nothing is dropped")
        super().__init__(tessera.nn.RecurrentLayer(input_size, hidden_size, recurrence, num_layers, has_bias, batch_first,
                                                   dropout if num_layers > 1 else 0.0, bidirectional,
                                                   _float_dtype(who, dtype)))
        self.hidden_size, self.num_layers, self.has_bias, self.batch_first = hidden_size, num_layers, has_bias, batch_first
        self.dropout, self.bidirectional, self.is_lstm = dropout, bidirectional, recurrence == "lstm"

    def _of_kind(self, kind):
        return ParameterTuple(parameter for name, parameter in self.rnn.named_parameters() if name.startswith(kind))

    w_ih_list = property(lambda self: self._of_kind("weight_ih"), doc="weight_ih of every layer and direction.")
    w_hh_list = property(lambda self: self._of_kind("weight_hh"), doc="weight_hh of every layer and direction.")
    b_ih_list = property(lambda self: self._of_kind("bias_ih"), doc="bias_ih of every layer and direction.")
    b_hh_list = property(lambda self: self._of_kind("bias_hh"), doc="bias_hh of every layer and direction.")

    def construct(self, x, hx=None, seq_length=None):
        """x [t,n,input_size], or [n,t,...] with batch_first -> (output, state after the last step)."""
        who = type(self).__name__
        _check_tensor(who, "x", x)
        if hx is not None and self.is_lstm:
            _check_pair(who, hx)
            for i in range(2):
                _check_tensor(who, f"hx[{i}]", hx[i], x.dtype)
        elif hx is not None:
            _check_tensor(who, "hx", hx, x.dtype)
        if seq_length is not None:
            if not _is_tensor(seq_length) or seq_length.dtype not in (tessera.int32, tessera.int64):
                raise TypeError(f"For '{who}', the 'seq_length' should be a Tensor of one of [Int32, Int64], but got "
                                f"{getattr(seq_length, 'dtype', type(seq_length).__name__)}.")
            rows = x.shape[0 if self.batch_first else 1]
            if seq_length.shape[0] != rows:
                raise ValueError(f"For '{who}' batch size of x and seq_length must be equal, but got {rows} of x and {seq_length.shape[0]} of "
                                 "seq_length.")
        return self.rnn(x, hx, seq_length)


class RNN(_Layer):
    """Elman layers, tanh(W x + b + U h + c) or with nonlinearity="relu": (x, hx=None, seq_length=None) -> (output, hx_n)."""

    def __init__(self, *args, **kwargs):
        nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"For '{type(self).__name__}', the 'nonlinearity' must be in ['tanh', 'relu'], but got {nonlinearity}.")
        super().__init__(nonlinearity, *args, **kwargs)


class GRU(_Layer):
    """Gated recurrent units: (x, hx=None, seq_length=None) -> (output, hx_n). Cho et al., EMNLP 2014."""

    def __init__(self, *args, **kwargs):
        super().__init__("gru", *args, **kwargs)


class LSTM(_Layer):
    """Long short-term memory: (x, hx=None, seq_length=None) -> (output, (h_n, c_n)); hx is (h_0, c_0). Hochreiter and Schmidhuber, 1997."""

    def __init__(self, *args, **kwargs):
        super().__init__("lstm", *args, **kwargs)


class _Step(_Native):
    """One step of a recurrence."""

    def __init__(self, recurrence, input_size, hidden_size, has_bias, dtype):
        who = type(self).__name__
        _check.boolean(who, "has_bias", has_bias)
        _check.integer(who, "hidden_size", hidden_size, 1)
        _check.integer(who, "input_size", input_size, 1)
        super().__init__(tessera.nn.RecurrentCell(input_size, hidden_size, recurrence, has_bias, _float_dtype(who, dtype)))
        self.input_size, self.hidden_size, self.has_bias = input_size, hidden_size, has_bias
        if not has_bias:
            self.bias_ih = self.bias_hh = None

    def construct(self, x, hx):
        who = type(self).__name__
        _check_tensor(who, "x", x)
        _check_tensor(who, "hx", hx)
        return self.rnn(x, hx)


class RNNCell(_Step):
    """(x [n,input_size], hx [n,hidden_size]) -> tanh(W x + b + U h + c), or its rectifier."""

    def __init__(self, input_size, hidden_size, has_bias=True, nonlinearity="tanh", dtype=tessera.float32):
        if not isinstance(nonlinearity, str):
            raise TypeError(f"For 'RNNCell', the type of 'nonlinearity' should be 'str', but got type '{type(nonlinearity).__name__}'.")
        super().__init__(_check.one_of("RNNCell", "nonlinearity", nonlinearity, ("tanh", "relu")), input_size, hidden_size, has_bias, dtype)
        self.nonlinearity = nonlinearity


class GRUCell(_Step):
    """(x [n,input_size], hx [n,hidden_size]) -> the next hx."""

    def __init__(self, input_size, hidden_size, has_bias=True, dtype=tessera.float32):
        super().__init__("gru", input_size, hidden_size, has_bias, dtype)


class LSTMCell(_Step):
    """(x [n,input_size], hx = (h, c), each [n,hidden_size]) -> the next (h, c)."""

    def __init__(self, *args, **kwargs):
        if len(args) > 4 or {"batch_size", "dropout", "bidirectional"} & set(kwargs):
            raise ValueError("The arguments of `nn.LSTMCell` from old MindSpore version(<1.6) are detected, if you still need use single LSTM layer, "
                             "please use `nn.LSTM` instead.")
        self._make(*args, **kwargs)

    def _make(self, input_size, hidden_size, has_bias=True, dtype=tessera.float32):
        super().__init__("lstm", input_size, hidden_size, has_bias, dtype)

    def construct(self, x, hx):
        _check_tensor("LSTMCell", "x", x)
        _check_pair("LSTMCell", hx)
        for i in range(2):
            _check_tensor("LSTMCell", f"hx[{i}]", hx[i])
        return self.rnn(x, hx)
