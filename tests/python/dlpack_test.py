"""Tensors that other libraries of the process give and take, by DLPack: one memory, let go once, and no struct that crashes."""
import ctypes
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import tessera
from tessera import nn, ops

ROOT = Path(__file__).resolve().parents[2]
TORCH = ROOT / ".venv-torch"
ALL = ["float32", "float64", "float16", "int32", "int64", "uint8", "bool", "int8", "int16", "uint16", "uint32", "uint64"]
NAMES = {True: b"dltensor_versioned", False: b"dltensor"}
_OTHER_NAME = b"tensor"
READ_ONLY, COPIED = 1, 2

_api = ctypes.pythonapi
_api.PyCapsule_New.restype, _api.PyCapsule_New.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetName.restype, _api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
_api.PyCapsule_GetPointer.restype, _api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_INTS = ctypes.POINTER(ctypes.c_int64)
_alive = []  # whose deleters may still be called


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", _INTS), ("strides", _INTS),
                ("byte_offset", ctypes.c_uint64)]


class _Unversioned(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _DELETER)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p), ("deleter", _DELETER),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


def name_of(capsule):
    return _api.PyCapsule_GetName(capsule)


def struct_in(capsule):
    name = name_of(capsule)
    return (_Versioned if name == NAMES[True] else _Unversioned).from_address(_api.PyCapsule_GetPointer(capsule, name))


def address(tensor):
    return tensor.numpy().ctypes.data


class Foreign:
    """Another library's tensor of the elements 0, 1, 2, ..., of whose struct anything may be said."""

    def __init__(self, shape=(2, 3), strides=None, versioned=True, **said):
        self.elements = (ctypes.c_float * 64)(*range(64))
        self.address, self.versioned, self.num_deleted, self.wishes = ctypes.addressof(self.elements), versioned, 0, None
        self._shape, self._strides = ((ctypes.c_int64 * max(len(sizes), 1))(*sizes) for sizes in (shape, strides or ()))
        self._deleter = _DELETER(self._delete)
        self.managed = _Versioned(major=1) if versioned else _Unversioned()
        self.managed.deleter = self._deleter
        described = self.managed.tensor
        described.data, described.device_type, described.ndim = self.address, 1, len(shape)
        described.code, described.bits, described.lanes = 2, 32, 1
        described.shape = self._shape
        if strides is not None:
            described.strides = self._strides
        for name, value in said.items():
            setattr(described if hasattr(described, name) else self.managed, name, value)
        _alive.append(self)

    def _delete(self, _):
        self.num_deleted += 1

    def capsule(self):
        return _api.PyCapsule_New(ctypes.addressof(self.managed), NAMES[self.versioned], None)

    def __dlpack__(self, **wishes):
        self.wishes = wishes
        return self.capsule()


@pytest.mark.parametrize("dtype", ALL)
def test_numpy_and_a_tensor_have_one_memory(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = tessera.from_dlpack(array, copy=False)
    assert tensor.dtype == tessera.Tensor(array).dtype and tensor.shape == (2, 3) and address(tensor) == array.ctypes.data
    back = np.from_dlpack(tensor)
    assert back.ctypes.data == array.ctypes.data and back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_bools_that_are_other_bytes_than_0_and_1_are_copied_as_1_and_never_shared():
    array = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    assert tessera.from_dlpack(array).numpy().view(np.uint8).tolist() == [0, 1, 1, 1]
    with pytest.raises(tessera.InvalidArgument, match="neither 0 nor 1"):
        tessera.from_dlpack(array, copy=False)
    array.view(np.uint8)[2:] = 1
    assert address(tessera.from_dlpack(array, copy=False)) == array.ctypes.data


def test_what_one_writes_the_other_sees():
    array = np.zeros(3, np.float32)
    tensor = tessera.from_dlpack(array)
    array[1] = 5
    assert tensor.numpy().tolist() == [0, 5, 0] and (tensor + 1).numpy().tolist() == [1, 6, 1]
    back = np.from_dlpack(tensor)
    back[0] = 7
    assert array.tolist() == [7, 5, 0]


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 3), (2, 0)])
def test_bfloat16_goes_as_it_is(max_version):
    tensor = tessera.Tensor([1.0, 1 + 2**-7], tessera.bfloat16)
    back = tessera.from_dlpack(tessera.to_dlpack(tensor, max_version=max_version), copy=False)
    assert back.dtype == tessera.bfloat16 and back.numpy().tolist() == [1, 1 + 2**-7]


@pytest.mark.parametrize("share", [tessera.from_dlpack, tessera.Tensor.from_numpy])
def test_an_assignment_ends_the_sharing_and_a_write_to_the_elements_does_not(share):
    array = np.zeros(3, np.float32)
    tensor = share(array)
    taken = np.from_dlpack(tensor)
    tensor.numpy()[0] = 4
    assert array.tolist() == taken.tolist() == [4, 0, 0]
    tensor[0] = 5
    array[1] = 6
    assert tensor.numpy().tolist() == [5, 0, 0] and array.tolist() == taken.tolist() == [4, 6, 0]


@pytest.mark.parametrize("shape", [(), (0, ), (2, 0, 3), (1, 1), (1, 2, 1, 1, 1, 2, 1, 2)])
def test_every_shape_goes_and_comes(shape):
    array = np.full(shape, 3, np.int16)
    tensor = tessera.from_dlpack(array, copy=False)
    assert tensor.shape == shape and tensor.dtype == tessera.int16
    for max_version in (None, (1, 0)):
        assert tessera.from_dlpack(tessera.to_dlpack(tensor, max_version=max_version)).shape == shape
    np.testing.assert_array_equal(np.from_dlpack(tensor), array)


def test_a_capsule_says_what_the_specification_has():
    tensor = tessera.Tensor(np.zeros((2, 3), np.float64))
    assert tensor.__dlpack_device__() == (1, 0)
    for max_version, name in ((None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), b"dltensor_versioned")):
        capsule = tensor.__dlpack__(max_version=max_version)
        assert name_of(capsule) == name
        described = struct_in(capsule).tensor
        assert (described.data, described.device_type, described.device_id, described.byte_offset) == (address(tensor), 1, 0, 0)
        assert (described.ndim, described.shape[:2], described.strides[:2]) == (2, [2, 3], [3, 1])
        assert (described.code, described.bits, described.lanes) == (2, 64, 1)
    managed = struct_in(capsule)
    assert (managed.major, managed.minor, managed.flags) == (1, 0, 0)


def test_a_copy_is_made_where_one_is_asked_for():
    tensor = tessera.Tensor([1.0, 2.0])
    capsule = tensor.__dlpack__(max_version=(1, 0), copy=True)
    assert struct_in(capsule).flags == COPIED and struct_in(capsule).tensor.data != address(tensor)
    assert tessera.from_dlpack(capsule).numpy().tolist() == [1, 2]
    for copy in (None, False):
        capsule = tensor.__dlpack__(copy=copy)
        assert struct_in(capsule).tensor.data == address(tensor)
    array = np.ones(3, np.float32)
    assert address(tessera.from_dlpack(array, copy=True)) != array.ctypes.data


def test_other_devices_and_streams_are_refused():
    tensor = tessera.Tensor([1.0])
    assert name_of(tensor.__dlpack__(stream=None, dl_device=(1, 0))) == name_of(tensor.__dlpack__(stream=-1)) == b"dltensor"
    with pytest.raises(BufferError, match=r"the host's memory, which is dl_device=\(1, 0\), got \(2, 0\)"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(tessera.InvalidArgument, match="stream must be None, got 7"):
        tensor.__dlpack__(stream=7)
    with pytest.raises(tessera.InvalidArgument, match='device must be None or "cpu", got \'cuda:0\''):
        tessera.from_dlpack(np.ones(2), device="cuda:0")
    with pytest.raises(TypeError, match="a Tensor or a Parameter is needed, got .*ndarray"):
        tessera.to_dlpack(np.ones(2))


def test_a_capsule_is_taken_once():
    for max_version in (None, (1, 0)):
        capsule = tessera.to_dlpack(tessera.Tensor([1.0, 2.0]), max_version=max_version)
        tensor = tessera.from_dlpack(capsule)
        assert name_of(capsule).startswith(b"used_dltensor") and tensor.numpy().tolist() == [1, 2]
        with pytest.raises(tessera.InvalidArgument, match="the capsule was used: a capsule is taken once"):
            tessera.from_dlpack(capsule)
        assert tensor.numpy().tolist() == [1, 2]


def test_a_consumer_keeps_the_memory():
    array = np.arange(3, dtype=np.float32)
    known = weakref.ref(array)
    tensor = tessera.from_dlpack(array)
    taken = np.from_dlpack(tensor)
    del array, tensor
    assert known() is not None and taken.tolist() == [0, 1, 2]
    del taken
    assert known() is None


def test_a_capsule_that_nobody_takes_lets_go_of_the_memory():
    for max_version in (None, (1, 0)):
        array = np.arange(3, dtype=np.float32)
        known = weakref.ref(array)
        capsule = tessera.to_dlpack(tessera.Tensor.from_numpy(array), max_version=max_version)
        del array
        assert known() is not None
        del capsule
        assert known() is None


@pytest.mark.parametrize("versioned", [True, False])
def test_a_deleter_is_called_once_when_the_last_one_lets_go(versioned):
    foreign = Foreign(versioned=versioned)
    tensor = tessera.from_dlpack(foreign)
    array = tensor.numpy()
    assert address(tensor) == foreign.address
    del tensor
    assert foreign.num_deleted == 0 and array.tolist() == [[0, 1, 2], [3, 4, 5]]
    del array
    assert foreign.num_deleted == 1


def test_whichever_thread_lets_go_calls_the_deleter():
    foreign = Foreign()
    tensors = [tessera.from_dlpack(foreign)]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert foreign.num_deleted == 1


@pytest.mark.parametrize("said, elements, reason", [
    ({"shape": (3, 2), "strides": (1, 3)}, [[0, 3], [1, 4], [2, 5]], "do not lie dense and row-major"),
    ({"shape": (2, 2), "strides": (0, 1)}, [[0, 1], [0, 1]], "do not lie dense and row-major"),
    ({"shape": (3, ), "strides": (-2, ), "byte_offset": 16}, [4, 2, 0], "do not lie dense and row-major"),
    ({"shape": (2, ), "flags": READ_ONLY}, [0, 1], "read-only"),
    ({"shape": (2, ), "byte_offset": 1}, np.frombuffer(np.arange(3, dtype=np.float32).tobytes()[1:9], np.float32).tolist(),
     "no multiple of an element's size"),
])
def test_what_a_tensor_cannot_share_is_copied_unless_that_is_refused(said, elements, reason):
    foreign = Foreign(**said)
    with pytest.raises(tessera.InvalidArgument, match=f"cannot be shared: its .*{reason}.*allow that it is copied"):
        tessera.from_dlpack(foreign, copy=False)
    assert foreign.num_deleted == 0
    for num_deleted, copy in enumerate((None, True), 1):
        tensor = tessera.from_dlpack(foreign, copy=copy)
        assert foreign.num_deleted == num_deleted, "at once"
        assert tensor.numpy().tolist() == elements


def test_arrays_of_numpy_that_are_no_tensors_are_copied():
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    frozen = array.copy()
    frozen.flags.writeable = False
    for view, reason in ((array.T, "dense"), (array[:, ::2], "dense"), (array[::-1], "dense"), (frozen, "read-only")):
        tensor = tessera.from_dlpack(view)
        np.testing.assert_array_equal(tensor.numpy(), view)
        tensor.numpy()[:] = 0
        assert view.any()
        with pytest.raises(tessera.InvalidArgument, match=reason):
            tessera.from_dlpack(view, copy=False)
    part = tessera.from_dlpack(array[1:3], copy=False)
    assert address(part) == array[1:].ctypes.data and part.shape == (2, 6)


def test_what_the_producer_has_copied_is_not_copied_again():
    foreign = Foreign(flags=COPIED)
    assert address(tessera.from_dlpack(foreign, copy=True)) == foreign.address
    foreign = Foreign(versioned=False)
    assert address(tessera.from_dlpack(foreign, copy=True)) != foreign.address and foreign.num_deleted == 1


def test_a_producer_hears_what_the_consumer_wishes():
    foreign = Foreign()
    for options, wishes in (({}, {}), ({"copy": True}, {"copy": True}), ({"copy": False}, {"copy": False}), ({"device": "cpu"}, {"dl_device": (1, 0)})):
        tessera.from_dlpack(foreign, **options)
        assert foreign.wishes == {"max_version": (1, 0), **wishes}


def test_a_producer_of_the_older_protocol_is_asked_in_its_words():
    class Older:
        def __dlpack__(self, stream=None):
            return np.arange(3, dtype=np.int8).__dlpack__()

    assert tessera.from_dlpack(Older()).numpy().tolist() == [0, 1, 2]
    assert tessera.from_dlpack(Older(), copy=True).numpy().tolist() == [0, 1, 2]


def test_a_producers_own_errors_come_through():
    class Refuses:
        def __dlpack__(self, **wishes):
            raise BufferError("it is not to be had")

    class GivesNone:
        def __dlpack__(self, **wishes):
            return None

    with pytest.raises(BufferError, match="it is not to be had"):
        tessera.from_dlpack(Refuses())
    with pytest.raises(TypeError, match='a capsule "dltensor" or "dltensor_versioned" is needed, got None'):
        tessera.from_dlpack(GivesNone())
    with pytest.raises(TypeError, match="__dlpack__.* is needed, or a capsule, got list"):
        tessera.from_dlpack([1.0, 2.0])
    other = _api.PyCapsule_New(ctypes.addressof(Foreign().managed), _OTHER_NAME, None)
    with pytest.raises(TypeError, match="a capsule .* is needed, got <capsule object"):
        tessera.from_dlpack(other)


@pytest.mark.parametrize("said, words", [
    ({"ndim": -1}, "0 to 8 dims, got -1"), ({"ndim": 9}, "0 to 8 dims, got 9"), ({"ndim": 2**31 - 1}, "0 to 8 dims, got 2147483647"),
    ({"lanes": 4}, "got float of 32 bits and 4 lanes"), ({"lanes": 0}, "and 0 lanes"), ({"code": 200}, "got type code 200 of 32 bits"),
    ({"code": 5, "bits": 64}, "got complex of 64 bits"), ({"bits": 24}, "got float of 24 bits"), ({"code": 6, "bits": 1}, "got bool of 1 bits"),
    ({"data": None}, r"f32\[2,3\] must have memory, got a null pointer"), ({"shape": (2, -3)}, "sizes are at least 0, got -3 in dim 1"),
    ({"shape": (2**40, 2**40)}, "more elements than an int64 counts bytes of"), ({"shape": (0, 2**62, 4)}, "more elements than an int64 counts bytes of"),
    ({"shape": (2, 2), "strides": (2**63 - 1, 1)}, "lies outside of all addresses"), ({"shape": (2, ), "strides": (-2**52, )}, "lies outside of all addresses"),
    ({"byte_offset": 2**64 - 1}, "lies outside of all addresses"), ({"shape": (2**58, )}, "lies outside of all addresses"),
    ({"device_type": 2, "device_id": 3}, r"in that of CUDA:3: .*from_dlpack\(x, device=\"cpu\"\)"), ({"device_type": -7}, "in that of device type -7:0"),
    ({"major": 2}, r"version 1.x is needed, got 2.0: ask for max_version=\(1, 0\)"),
])
@pytest.mark.parametrize("copy", [None, False, True])
def test_a_struct_that_is_no_tensor_is_refused_and_stays_its_producers(said, words, copy):
    foreign = Foreign(**said)
    capsule = foreign.capsule()
    with pytest.raises(tessera.InvalidArgument, match=words):
        tessera.from_dlpack(capsule, copy=copy)
    assert foreign.num_deleted == 0 and name_of(capsule) == b"dltensor_versioned"


def test_a_parameter_is_shared_and_read_only_once_a_model_has_it():
    network = nn.Dense(2, 2)
    np.from_dlpack(network.weight)[:] = 3.0
    assert network.weight.numpy()[0, 0] == 3 and network.weight.__dlpack_device__() == (1, 0)
    model = tessera.Model(network, nn.MSELoss(), nn.SGD(0.1))
    x = np.ones((2, 2), np.float32)
    model.train_step(x, x)
    shown, capsule = np.from_dlpack(network.weight), network.weight.__dlpack__(max_version=(1, 0))
    assert not shown.flags.writeable and struct_in(capsule).flags == READ_ONLY
    np.testing.assert_array_equal(shown, network.weight.numpy())
    with pytest.raises(BufferError, match=r"read-only.*max_version=\(1, 0\), or for copy=True"):
        tessera.to_dlpack(network.weight)
    copied = np.from_dlpack(network.weight, copy=True)
    copied[:] = 0
    assert name_of(tessera.to_dlpack(network.weight, copy=True)) == b"dltensor" and network.weight.numpy().any()


def test_a_trace_has_no_elements_to_share():
    class Shares(nn.Cell):
        def __init__(self, share):
            super().__init__()
            self.w = tessera.Parameter(np.ones(2, np.float32))
            self.share = share

        def construct(self, x):
            return x + tessera.Tensor(np.from_dlpack(self.w)) if self.share == "w" else tessera.from_dlpack(x)

    with pytest.raises(TypeError, match=r"construct\(\) is traced"):
        Shares("w")(np.ones(2, np.float32))
    with pytest.raises(TypeError, match="__dlpack__.* is needed, or a capsule, got .*Value"):
        Shares("x")(np.ones(2, np.float32))


def test_memory_of_others_is_trained_on():
    rows = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    network = nn.Dense(3, 2)
    np.testing.assert_allclose(network(tessera.from_dlpack(rows)).numpy(), network(tessera.Tensor(rows)).numpy(), rtol=1e-6)
    np.testing.assert_array_equal(ops.relu(tessera.from_dlpack(rows[:, 1:])).numpy(), np.maximum(rows[:, 1:], 0))


def test_the_package_mindspore_has_it_where_its_reference_has():
    import mindspore as ms
    from mindspore.utils.dlpack import from_dlpack, to_dlpack

    tensor = ms.Tensor([[1.0, 2.0]], ms.float32)
    capsule = to_dlpack(tensor)
    assert name_of(capsule) == b"dltensor"
    back = from_dlpack(capsule)
    assert back.shape == (1, 2) and back.asnumpy().ctypes.data == tensor.asnumpy().ctypes.data
    assert from_dlpack(np.ones(3, np.float32)).dtype == ms.float32 and np.from_dlpack(tensor).tolist() == [[1, 2]]
    assert from_dlpack(to_dlpack(ms.Parameter(tensor, name="w"))).asnumpy().tolist() == [[1, 2]]
    with pytest.raises(TypeError, match="For 'to_dlpack', the 'tensor' must be a Tensor, but got int"):
        to_dlpack(3)


WITH_TORCH = """
import gc

import tessera
import torch

for name in "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split():
    theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    ours = tessera.from_dlpack(theirs, copy=False)
    assert ours.shape == (2, 3) and ours.dtype == getattr(tessera, "bool_" if name == "bool" else name), name
    back = torch.from_dlpack(ours)
    assert back.data_ptr() == theirs.data_ptr() and back.dtype == theirs.dtype and back.tolist() == theirs.tolist(), name

theirs = torch.zeros(3)
ours = tessera.from_dlpack(theirs)
theirs[1] = 5
assert ours.numpy().tolist() == [0, 5, 0]
assert torch.utils.dlpack.from_dlpack(tessera.to_dlpack(ours)).data_ptr() == theirs.data_ptr()
assert tessera.from_dlpack(torch.utils.dlpack.to_dlpack(theirs), copy=False).numpy().tolist() == [0, 5, 0]

ours = tessera.Tensor([1.0, 2.0])
taken = torch.from_dlpack(ours)
taken += 1
assert ours.numpy().tolist() == [2, 3]
del ours
gc.collect()
assert taken.tolist() == [2, 3]

matrix = torch.arange(6.0).reshape(2, 3)
assert tessera.from_dlpack(matrix.T).numpy().tolist() == matrix.T.tolist()
assert tessera.from_dlpack(matrix[1:], copy=False).numpy().tolist() == [[3, 4, 5]]
assert tessera.from_dlpack(matrix, device="cpu", copy=False).shape == (2, 3)
try:
    tessera.from_dlpack(matrix.T, copy=False)
    raise AssertionError("columns were taken for rows")
except tessera.InvalidArgument as error:
    assert "dense and row-major" in str(error)
try:
    tessera.from_dlpack(torch.ones(2, requires_grad=True))
    raise AssertionError("what has a gradient was taken")
except BufferError as error:
    assert "detach" in str(error)
assert torch.from_dlpack(tessera.Tensor(3.0)).item() == 3 and torch.from_dlpack(tessera.from_dlpack(torch.zeros(0, 2))).shape == (0, 2)
assert torch.from_dlpack(tessera.nn.Dense(2, 3).weight).shape == (3, 2)
print("as it should be")
"""


def test_pytorch_and_a_tensor_have_one_memory(tmp_path):
    python = TORCH / "bin" / "python"
    if not (TORCH / "ready").exists():
        pytest.skip("PyTorch's side of DLPack: scripts/torch_env.py has not made .venv-torch")
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True, check=True).stdout
    if version.strip() != str(sys.version_info[:2]):
        pytest.skip(f"PyTorch's side of DLPack: .venv-torch has Python {version.strip()}, the package is built for {sys.version_info[:2]}")
    (tmp_path / "program.py").write_text(WITH_TORCH, encoding="utf-8")
    done = subprocess.run([python, "-B", "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and "as it should be" in done.stdout, done.stdout + done.stderr
