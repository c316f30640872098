"""How a network is shown, and how the words of other libraries lead to those of this one."""
import subprocess
import sys

import numpy as np
import pytest
import tessera
from small_net import Net
from tessera import nn, ops


def test_a_network_prints_as_its_cells_and_their_parameters():
    assert repr(Net()) == """Net(scale float32[3])
  embed: Embedding(embedding_table float32[4,2])
  head: Dense(weight float32[3,2], bias float32[3])"""
    assert repr(nn.Sequential(nn.Dense(2, 1, has_bias=False), nn.ReLU())) == "Sequential()\n  0: Dense(weight float32[1,2])\n  1: ReLU()"

    class Unmade(nn.Cell):
        def __init__(self):
            self.shown = repr(self)

    assert "Unmade object at" in Unmade().shown


@pytest.mark.parametrize("use, words", [
    (lambda: nn.Linear, "did you mean Dense"), (lambda: nn.Module, "did you mean Cell"), (lambda: nn.ModuleList, "did you mean CellList"),
    (lambda: ops.cat, "did you mean concat"), (lambda: nn.Dens, "did you mean Dense"), (lambda: nn.Dense(1, 1).eval(), r"set_train\(False\)"),
    (lambda: nn.Dense(1, 1).state_dict(), "save_checkpoint"), (lambda: Net().load_state_dict({}), "load_checkpoint"),
    (lambda: nn.Dense(1, 1).wieght, "'wieght'$"), (lambda: Net().set_trian(), "did you mean 'set_train'")])
def test_words_of_other_libraries_lead_to_those_here(use, words):
    with pytest.raises(AttributeError, match=words):
        use()


@pytest.mark.parametrize("use, word", [("tessera.ops.cat", "concat"), ("tessera.nn.Conv2D", "Conv2d"), ("tessera.data.DataLoader", "tensors(columns)"),
                                       ("tessera.data.tensor", "tensors"), ("tessera.Tensor([1.0]).numpyy", "'numpy'")])
def test_there_is_one_hint_where_a_name_is_not_there(use, word):
    done = subprocess.run([sys.executable, "-c", f"import tessera\n{use}"], capture_output=True, text=True, timeout=120)
    said = done.stderr.rstrip().rsplit("\n", 1)[-1]  # above it are lines of the source
    assert said.lower().count("did you mean") == 1 and f"did you mean {word}" in said, done.stderr


def model():
    return tessera.Model(nn.Dense(2, 1), nn.MSELoss(), nn.Momentum(0.1))


class Traced(nn.Cell):
    def construct(self, x):
        return x.backward()


@pytest.mark.parametrize("use, words", [
    (lambda: model().fit(1), r"^'Model' object has no attribute 'fit': train\(num_epochs"), (lambda: model().compile(), r"loss.*metrics=\["),
    (lambda: model().state_dict(), r"names\(\) and value\(name\).*save_checkpoint"), (lambda: model().load_state_dict({}), r"set_value.*load_checkpoint"),
    (lambda: model().parameters(), r"network.parameters\(\)"), (lambda: model().cuda(), r'device="cuda:0"'), (lambda: model().to("cuda"), r'device="cuda:0"'),
    (lambda: model().evaluate(), r"eval\(dataset\)"), (lambda: model().zero_grad(), r"train_step\(\)"), (lambda: model().trian, "did you mean 'train'"),
    (lambda: nn.Dense(2, 1).cuda(), r'no device: tessera.Model\(..., device="cuda:0"\)'), (lambda: Net().fit(), r"tessera.Model\(network, loss, optimizer\).train"),
    (lambda: nn.Momentum(0.1).zero_grad(), "gradients are values of a step"), (lambda: nn.Adam(0.1).step(), r"train_step\(\)"),
    (lambda: tessera.Tensor([1.0]).backward(), r"^'Tensor' object has no attribute 'backward': .*nn.value_and_grad"),
    (lambda: tessera.Parameter([1.0]).grad, r"^'Parameter' object has no attribute 'grad': .*nn.value_and_grad"),
    (lambda: Traced()(np.ones(2, np.float32)), r"^'Value' object has no attribute 'backward'"), (lambda: tessera.Tensor([1.0]).numpyy, "did you mean 'numpy'"),
    (lambda: tessera.Tensor([1.0]).to("cuda"), r"astype\(dtype\).*device="), (lambda: tessera.manual_seed(1), "did you mean set_seed"),
    (lambda: tessera.Tensr, "did you mean Tensor"), (lambda: tessera._nothing, "'_nothing'$"), (lambda: model()._nothing, "'_nothing'$")])
def test_what_people_try_from_other_libraries_is_answered_with_what_to_use(use, words):
    with pytest.raises(AttributeError, match=words):
        use()


@pytest.mark.parametrize("call, words", [
    (lambda: nn.Embedding(4, 2, padding_idx=0), "'padding_idx': a row of zeros.*it takes"), (lambda: nn.Adam(betas=(0.9, 0.99)), "beta1 and beta2"),
    (lambda: ops.all_reduce(1, op="sum"), "did you mean 'reduction'"), (lambda: nn.Dense(1, 1, bias=False), "did you mean 'has_bias'")])
def test_options_of_other_libraries_lead_to_those_here(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_a_value_that_a_model_does_not_have_has_a_near_name():
    with pytest.raises(tessera.InvalidArgument, match='named "head.wieght"; did you mean "head.weight"'):
        tessera.Model(Net()).value("head.wieght")


def test_reductions_and_choices_have_the_names_of_numpy():
    x = np.array([[1, 2], [3, 4]], np.float32)
    assert ops.mean(x).item() == 2.5 and ops.sum(x, 0).numpy().tolist() == [4, 6]
    assert ops.where(ops.greater(x, 2.5), x, 0.0).numpy().tolist() == [[0, 0], [3, 4]]
