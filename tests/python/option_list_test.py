"""The list of a Model's options, which C++ has: Python's signature, its help, and what the package mindspore makes of the keys of its context."""
import inspect
import re

import mindspore  # noqa: F401  (finds its submodules)
import pytest
import tessera
from mindspore import _parallel_options
from mindspore._key_uses import USES
from tessera import nn

OPTIONS = tessera._tessera._model_options()


def test_the_signature_and_the_help_have_every_option_once():
    (signature, *_), = tessera.Model.__init__.__nb_signature__
    names = re.findall(r"[(,] *(\w+)(?=:)", signature)
    assert len(names) == len(set(names))
    assert set(names) - {"network", "loss", "optimizer", "metrics", "sliced_parameters", "states"} == set(OPTIONS)
    assert "parallel_mode: str = 'stand_alone', " in signature and "memory_limit: int | str | None = None, " in signature
    for name, said in OPTIONS.items():
        assert tessera.Model.__doc__.count(f"\n{name}: {said['doc']}\n") == 1


def test_defaults_are_those_of_cpp():
    assert '    "rounds" (16): ' in tessera.Model.__doc__ and '    "schedule" (\'auto\'): ' in tessera.Model.__doc__


@pytest.mark.parametrize("options, words", [
    ({"cpu_fallback": 1}, "cpu_fallback must be a bool, got 1 of type int"),
    ({"full_batch": 1}, "full_batch must be a bool, got 1 of type int"), ({"job_name": 3}, "job_name must be a str, got 3 of type int"),
    ({"keep_batchnorm_fp32": "yes"}, "keep_batchnorm_fp32 must be a bool or None, got 'yes' of type str"),
    ({"search": 3}, "search must be a dict, got 3 of type int"), ({"loss_scale": 2.0}, "loss_scale must be a tessera.nn.LossScale or None, got 2.0 of type float"),
    ({"parallel_optimizer_threshold": "64"}, "parallel_optimizer_threshold must be an int, got '64' of type str")], ids=str)
def test_a_value_of_another_type_is_refused_by_name(options, words):
    with pytest.raises(TypeError, match=rf"^Model\(\): {re.escape(words)}$"):
        tessera.Model(nn.Dense(1, 1), **options)


def test_a_fallback_is_an_option_that_the_cpu_does_not_need(capfd):
    net, x = nn.Dense(2, 2), tessera.Tensor([[1.0, 2.0]])
    assert tessera.Model(net, cpu_fallback=True).predict(x).numpy().tolist() == tessera.Model(net).predict(x).numpy().tolist()
    assert "TESSERA_CPU_FALLBACK is 1" in OPTIONS["cpu_fallback"]["doc"] and "cpu_fallback" not in capfd.readouterr().err


def test_arguments_that_are_no_options_are_explained_as_before():
    with pytest.raises(TypeError, match=r"^Model\(\): network must be a tessera.nn.Cell, got 5 of type int$"):
        tessera.Model(5)
    with pytest.raises(TypeError, match=r"^Model\(\) takes at most 4 arguments, got 5$"):
        tessera.Model(nn.Dense(1, 1), None, None, [], "stand_alone")


def test_the_package_mindspore_knows_every_option_that_it_sets():
    set_by_it = set(re.findall(r'"(\w+)": ', inspect.getsource(_parallel_options.parallel_options) + inspect.getsource(_parallel_options._optimizer_options)))
    assert len(set_by_it) > 10
    assert set_by_it <= set(OPTIONS) | {"sliced_parameters"}


def test_a_key_is_read_wherever_the_option_of_its_name_is():
    """The package has stages by a key of their own, in semi-automatic parallel."""
    shared = {name: said["modes"] for name, said in OPTIONS.items() if name in USES and said["modes"]}
    assert len(shared) >= 8
    for name, modes in shared.items():
        assert set(modes) - {"pipeline_parallel"} <= set(USES[name].by_model), name
