"""Trainings that could not be what was meant are refused, or said to be so, in the words of the script."""
import numpy as np
import pytest
import tessera
from small_net import IDS, Net, trained
from tessera import nn, ops


class Constant(nn.Cell):
    def construct(self, logits, label):
        return 3.0


class Stopped(nn.Cell):
    def construct(self, logits, label):
        return ops.reduce_mean(ops.stop_gradient(logits))


class Errors(nn.Cell):
    def construct(self, logits, label):
        return ops.reduce_mean(ops.cast(ops.not_equal(ops.cast(ops.argmax(logits, -1), tessera.int32), label), tessera.float32))


@pytest.mark.parametrize("loss", [Constant, Stopped, Errors])
def test_a_loss_that_no_parameter_has_part_in_is_refused(loss):
    words = r'the loss f32\[\].* has no gradient.*"scale", "embed.embedding_table", "head.weight" and 1 other.*stop_gradient, argmax'
    with pytest.raises(tessera.InvalidArgument, match=words):
        trained(Net(), loss())


class Two(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inner = Net()

    def construct(self, ids, feats):
        return self.inner(ids) + feats


FEATS = np.ones((4, 3), np.float32)


@pytest.mark.parametrize("columns, words", [
    ({"ids": IDS, "label": IDS % 3}, r"^Two: construct\(ids, feats\) cannot take 1 column \(ids\): missing a required argument: 'feats'; columns go by position"),
    ({"ids": IDS, "feats": FEATS, "weight": FEATS, "label": IDS % 3}, r"cannot take 3 columns \(ids, feats, weight\): too many positional arguments")])
def test_columns_that_construct_does_not_take_are_named(columns, words):
    model = tessera.Model(Two(), nn.CrossEntropyLoss(), nn.SGD(0.1))
    with pytest.raises(TypeError, match=words):
        model.train(1, tessera.data.tensors(columns).batch(4))


def test_arguments_that_construct_does_not_take_are_named_by_type():
    with pytest.raises(TypeError, match=r"^Two: construct\(ids, feats\) cannot take 1 argument \(int32\[4\]\): missing"):
        tessera.Model(Two()).predict(IDS)


def test_a_callback_that_was_not_made_says_so():
    class Late(tessera.Callback):
        def __init__(self):
            self.losses = []

    model = tessera.Model(Net(), nn.CrossEntropyLoss(), nn.SGD(0.1))
    rows = tessera.data.tensors({"ids": IDS, "label": IDS % 3}).batch(4)
    with pytest.raises(TypeError, match=r"Late: super\(\).__init__\(\) must be called"):
        model.train(1, rows, [Late()])
    with pytest.raises(TypeError, match="callbacks must be tessera.Callbacks, one is 3 of type int"):
        model.train(1, rows, [3])
    with pytest.raises(TypeError, match=r"callbacks must be tessera.Callbacks, one is the class Late: an instance is wanted, which is made by a call, Late\(\)$"):
        model.train(1, rows, [Late])


def wide(dtype, cast=False):
    class Line(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(3, 1)

        def construct(self, x):
            return self.dense(ops.cast(x, tessera.float32) if cast else x)

    x = np.ones((8, 3), dtype)
    model = tessera.Model(Line(), nn.MSELoss(), nn.SGD(0.1))
    rows = tessera.data.tensors({"x": x, "y": np.ones((8, 1), np.float32)}).batch(4)
    model.train(1, rows)
    model.train(2, rows)


def test_a_column_of_doubles_is_said_once(capfd):
    wide(np.float64)
    said = capfd.readouterr().err
    assert said.count('the data set gives f64 for "x"') == 1 and "astype(numpy.float32)" in said
    wide(np.float32)
    wide(np.float64, cast=True)
    assert "f64" not in capfd.readouterr().err


def test_a_pipeline_on_one_rank_refuses_what_no_number_of_ranks_could_do(capfd):
    def model(stage, micro_batches):
        net = Net()
        net.head.set_stage(stage)
        return trained(net, parallel_mode="pipeline_parallel", pipeline={"stages": 2, "micro_batches": micro_batches})

    model(1, 2)
    assert "pipeline.stages = 2 has no effect on one rank, which computes all stages: tessera run -n 2" in capfd.readouterr().err
    with pytest.raises(tessera.InvalidArgument, match='cell "head" is on stage 9, but the stages are 0 to 1'):
        model(9, 2)
    with pytest.raises(tessera.InvalidArgument, match="a batch of 4 rows cannot be cut into 3 micro-batches"):
        model(1, 3)


def test_the_ranks_of_stages_are_a_list_of_whole_numbers():
    for ranks in (2, "2", [2, 0], [1.5, 1]):
        with pytest.raises(tessera.InvalidArgument, match="pipeline: ranks must be a list of whole numbers"):
            trained(Net(), parallel_mode="pipeline_parallel", pipeline={"ranks": ranks})
    with pytest.raises(tessera.InvalidArgument, match='pipeline: stages must be a whole number above 0, or "auto", got \'many\''):
        trained(Net(), parallel_mode="auto_parallel", pipeline={"stages": "many"})


def test_parameters_for_servers_that_are_not_there_are_said_once(capfd):
    net = Net()
    net.embed.set_on_servers()
    model = trained(net)
    model.train(1, tessera.data.tensors({"ids": IDS[:2], "label": IDS[:2] % 3}).batch(2))
    said = capfd.readouterr().err
    assert said.count('parameter "embed.embedding_table" is set_on_servers(), but the job has no parameter servers: start some by tessera run') == 1


def test_strategies_on_one_rank_are_said_to_have_no_effect(capfd):
    net = Net()
    net.head.shard("matmul", ((7, 1), (1, 1)))
    trained(net, parallel_mode="semi_auto_parallel")
    assert 'have no effect on one rank, "head:matmul" has one: start several by tessera run -n N' in capfd.readouterr().err


def test_what_is_no_cell_is_told_what_becomes_one():
    with pytest.raises(TypeError, match="loss must be a tessera.nn.Cell or None, got .* of type function; a function becomes one in the construct"):
        tessera.Model(Net(), lambda logits, label: logits, nn.SGD(0.1))


def test_the_short_word_of_another_package_for_the_learning_rate_is_known():
    for optimizer in (nn.SGD, nn.Adam):
        with pytest.raises(TypeError, match="unexpected keyword argument 'lr'; did you mean 'learning_rate'"):
            optimizer(lr=0.1)


def test_columns_that_are_no_numbers_are_named_with_their_dtype():
    for column, words in ((np.array(["a", "b"]), "<U1"), (np.array([object(), None]), "object")):
        with pytest.raises(TypeError, match=rf'tensors\(\): column "words": a tensor of numbers is needed, got .* with the dtype {words}'):
            tessera.data.tensors({"words": column})
    with pytest.raises(tessera.InvalidArgument, match=r'tensors\(\): column "waves": unknown dtype "complex64"'):
        tessera.data.tensors({"waves": np.ones(2, np.complex64)})


def test_a_source_and_samples_that_do_not_fit_are_named():
    with pytest.raises(TypeError, match=r"generator: the source must have __len__ and __getitem__.* got generator; .*tessera.data.stream"):
        tessera.data.generator((i for i in range(4)), ["x"])
    with pytest.raises(tessera.InvalidArgument, match='a sample has 3 values, the data set has 2 columns: "x", "y"; '):
        tessera.data.generator([(1.0, 2.0, 3.0)], ["x", "y"])
    words = "a sample, a dict, has no value for the column \"x\"; its keys are 'a', 'y': column_names says which of them are columns"
    with pytest.raises(tessera.InvalidArgument, match=words):
        tessera.data.generator([{"a": 1.0, "y": 2.0}], ["x", "y"])
    with pytest.raises(tessera.InvalidArgument, match=words):
        list(tessera.data.generator([{"x": 1.0, "y": 2.0}, {"a": 1.0, "y": 2.0}], ["x", "y"]).batch(2))


def test_a_metric_called_as_another_package_does_is_answered_with_its_name_here():
    with pytest.raises(tessera.InvalidArgument, match=r'^EarlyStopping: "val_loss" is called "loss" here, of the data set that `valid` gives$'):
        tessera.EarlyStopping("val_loss")


def test_a_file_where_a_folder_is_to_be_is_called_one(tmp_path):
    (tmp_path / "afile").write_text("")
    rows = tessera.data.tensors({"ids": IDS, "label": IDS % 3}).batch(4)
    for callback in (lambda folder: tessera.ModelCheckpoint("ck", folder), tessera.TensorBoard):
        with pytest.raises(OSError, match="cannot create the directory: .*afile is a file"):
            tessera.Model(Net(), nn.CrossEntropyLoss(), nn.SGD(0.1)).train(1, rows, [callback(str(tmp_path / "afile" / "sub"))])


@pytest.mark.parametrize("strategy, why", [
    (((0, 1), (1, 1)), r"splits dim 0 of operand 0 in 0; a count must be at least 1"), (((1, 1), (1, -2)), r"splits dim 1 of operand 1 in -2"),
    (((1, 1), ), r"has 1 tuple, the operator has 2 operands")])
def test_a_strategy_without_its_form_is_refused_on_one_rank_too(strategy, why):
    net = Net()
    net.head.shard("matmul", strategy)
    with pytest.raises(tessera.InvalidArgument, match=why):
        trained(net, parallel_mode="semi_auto_parallel").build(tessera.data.tensors({"ids": IDS[:2], "label": IDS[:2] % 3}).batch(2))


def test_a_precision_that_there_is_not_is_refused_by_the_options_name():
    with pytest.raises(tessera.InvalidArgument, match=r"^precision must be float32, bfloat16 or float16, got 'fp16'; that is called float16 here$"):
        tessera.Model(Net(), nn.CrossEntropyLoss(), nn.SGD(0.1), precision="fp16")


def test_a_model_that_lacks_a_part_says_how_it_gets_one():
    rows = tessera.data.tensors({"ids": IDS, "label": IDS % 3}).batch(4)
    with pytest.raises(tessera.InvalidArgument, match=r"needs an optimizer, and this model has none: Model\(network, loss, optimizer\)"):
        tessera.Model(Net(), nn.CrossEntropyLoss()).train(1, rows)
    with pytest.raises(tessera.InvalidArgument, match=r'has no metrics: name them where it is made, as metrics=\["accuracy"\]'):
        tessera.Model(Net(), nn.CrossEntropyLoss(), nn.SGD(0.1)).eval(rows)
