"""What help() of a function says beside what its binding says: shapes, what it raises, and an example, in the form of tessera/_examples.py.

The extension module asks for the texts while it is loaded (src/helped_module.h), for what nanobind has made takes no other text; so this file imports
nothing of tessera. tests/python/documentation_test.py runs the examples.
"""
import re

_UNARY = """x: {kind}, of any shape; returns its shape{dtype}. Raises TypeError for what is no tensor, InvalidArgument for another dtype.

    y = ops.{name}(np.ones((2, 3), "float32"){half})  # [2, 3]
    ops.{name}(np.ones(3, "{wrong}"))  # raises InvalidArgument"""
_FLOATING = ("asinh atanh cos cosh exp expm1 floor is_finite log log1p reciprocal relu rsqrt sigmoid sin sinh sqrt tanh").split()
_NUMERIC = "abs neg sign square".split()
_BINARY = """x, y: {kind}, of any shapes that broadcast; returns the shape that both broadcast to{dtype}.

    y = ops.{name}({left}, {right})  # [2, 3]
    ops.{name}({left}, {wrong})  # raises InvalidArgument"""
_ARITHMETIC = "add div maximum minimum mul pow sub".split()
_COMPARISONS = "equal greater greater_equal less less_equal not_equal".split()
_LOGIC = "logical_and logical_or logical_xor".split()
_REDUCTION = """x: {kind}, of any shape; returns its dtype, without the dims that are reduced, or with keep_dims of size 1 there. Raises InvalidArgument for
a dim that x does not have, and for another dtype.

    y = ops.{name}({x}, axes=1)  # [2]
    y = ops.{name}({x}, axes=1, keep_dims=True)  # [2, 1]
    ops.{name}({x}, axes=2)  # raises InvalidArgument"""
_COLLECTIVE = """x: of any shape; {result}. Raises InvalidArgument for a group that there is not, and on all ranks where they give other types, IoError where a
rank is lost. On one rank:

    y = ops.{name}(np.ones((2, 3), "float32"))  # [2, 3]
    ops.{name}(np.ones(3), group="nobody")  # raises InvalidArgument"""
_COLLECTIVES = {
    "all_reduce": "returns its shape and dtype",
    "all_gather": "returns its dtype, as many times as long along `dim` as there are ranks; sizes along it may differ",
    "reduce_scatter": "returns its dtype, along `dim` the rank's part of its size",
    "broadcast": "returns the shape and dtype of root's",
    "all_to_all": "returns its dtype, as many times shorter along split_dim and longer along concat_dim as there are ranks",
}
_SCHEDULE = """schedule(step) is a float, steps counting from 0. Raises InvalidArgument for {refused}.

    rates = nn.schedules.{name}({right})
    assert {claim}
    nn.schedules.{name}({wrong})  # raises InvalidArgument"""
_SCHEDULES = {  # by name: what is refused, a right and a wrong way to make one, what the right one says
    "constant": ("a rate that is negative or not finite", "0.1", "-0.1", "rates(0) == rates(99)"),
    "linear": ("rates that are negative, and fewer than one step", "1.0, 0.0, 10", "1.0, 0.0, 0", "rates(0) == 1 and rates(10) == 0"),
    "cosine": ("rates that are negative, and fewer than one step", "1.0, 10", "1.0, 0", "rates(0) == 1 and abs(rates(5) - 0.5) < 1e-6"),
    "cosine_restarts": ("rates that are negative, and fewer than one step", "1.0, 10", "1.0, 0", "rates(0) == rates(10) == 1"),
    "polynomial": ("rates that are negative, and fewer than one step", "1.0, 10, power=2.0", "1.0, 0", "rates(0) == 1 and rates(10) == 0"),
    "exponential": ("a rate that is negative, and fewer than one step", "1.0, 0.5", "1.0, 0.5, num_steps=0", "rates(0) == 1 and rates(2) == 0.25"),
    "multi_step": ("a rate that is negative, and milestones that do not rise", "1.0, [10, 20]", "1.0, [20, 10]", "rates(9) == 1 and rates(10) < 0.2"),
    "inverse_square_root": ("a rate that is negative, and fewer than one step", "1.0, 10", "1.0, 0", "rates(0) == 1 and rates(30) == 0.5"),
    "one_cycle": ("rates and factors that are not positive, and fewer than one step", "1.0, 10", "1.0, 0", "rates(0) < rates(2)"),
    "warmup": ("fewer than one step", "4, nn.schedules.constant(1.0)", "-1, nn.schedules.constant(1.0)", "rates(0) == 0 and rates(4) == 1"),
    "sequence": ("other than one milestone fewer than schedules", "[nn.schedules.constant(1.0), nn.schedules.constant(0.5)], [10]",
                 "[nn.schedules.constant(1.0)], [10]", "rates(9) == 1 and rates(10) == 0.5"),
}
_INITIALIZER = """Values of any shape. Raises {error} for {refused}.

    weight = nn.Dense(8, 3, weight_init=nn.initializers.{right}).weight  # [3, 8]
    nn.initializers.{wrong}  # raises {error}"""
_INITIALIZERS = {  # by name: what it raises, for what, a right and a wrong call
    "zeros": ("TypeError", "an argument", "zeros()", "zeros(1)"),
    "ones": ("TypeError", "an argument", "ones()", "ones(1)"),
    "constant": ("TypeError", "what is no number", "constant(0.5)", 'constant("a")'),
    "normal": ("TypeError", "what is no number", "normal(0.1)", 'normal("a")'),
    "uniform": ("TypeError", "what is no number", "uniform(0.1)", 'uniform("a")'),
    "truncated_normal": ("TypeError", "what is no number", "truncated_normal(0.1)", 'truncated_normal("a")'),
    "xavier_uniform": ("TypeError", "what is no number", "xavier_uniform()", 'xavier_uniform("a")'),
    "xavier_normal": ("TypeError", "what is no number", "xavier_normal()", 'xavier_normal("a")'),
    "he_uniform": ("TypeError", "an argument", "he_uniform()", "he_uniform(1)"),
    "he_normal": ("TypeError", "an argument", "he_normal()", "he_normal(1)"),
    "initializer": ("InvalidArgument", "a name that there is not", 'initializer("zeros")', 'initializer("none")'),
}
_TRANSFORM = """{words} Raises {error} for {refused}.

    made = tessera.data.{right}({x})  # {shape}
    tessera.data.{wrong}  # raises {error}"""
_IMAGE = 'np.ones((8, 6, 3), "uint8")'
_TRANSFORMS = {  # by name: what it takes and gives, what it raises, for what, a right and a wrong call, what it is given and what it gives
    "random_crop": ("An image [h,w,c] of any dtype -> [*size,c].", "InvalidArgument", "sizes that are not positive", "random_crop(4, 2)", "random_crop(0)",
                    _IMAGE, "[4, 4, 3]"),
    "random_horizontal_flip": ("An image [h,w,c] of any dtype -> the same.", "InvalidArgument", "a probability outside [0,1]", "random_horizontal_flip()",
                               "random_horizontal_flip(2.0)", _IMAGE, "[8, 6, 3]"),
    "resize": ("An image [h,w,c], uint8 or float32 -> [*size,c], of its dtype.", "InvalidArgument", "sizes that are not positive", "resize((4, 3))",
               "resize(0)", _IMAGE, "[4, 3, 3]"),
    "resize_shorter_side": ("An image [h,w,c] -> its shorter side has this size, and the longer one the same ratio to it, bilinearly.", "InvalidArgument",
                            "a side that is not positive", "resize_shorter_side(3)", "resize_shorter_side(0)", _IMAGE, "[4, 3, 3]"),
    "center_crop": ("An image [h,w,c] of any dtype -> [*size,c].", "InvalidArgument", "sizes that are not positive", "center_crop(4)",
                    "center_crop(0)", _IMAGE, "[4, 4, 3]"),
    "random_resized_crop": ("An image [h,w,c] -> [*size,c], of its dtype.", "InvalidArgument", "sizes that are not positive, and bounds that are none",
                            "random_resized_crop(4)", "random_resized_crop(0)", _IMAGE, "[4, 4, 3]"),
    "rescale": ("Any shape, float32.", "TypeError", "what is no number", "rescale(0.5)", 'rescale("a")', _IMAGE, "[8, 6, 3]"),
    "normalize": ("An image of three dims, float32.", "InvalidArgument", "a std of 0, and other numbers of means than of stds", "normalize([0.5], [0.5])",
                  "normalize([0.5], [0.0])", 'np.ones((8, 6, 3), "float32")', "[8, 6, 3]"),
    "hwc2chw": ("An image of any dtype.", "TypeError", "an argument", "hwc2chw()", "hwc2chw(1)", _IMAGE, "[3, 8, 6]"),
    "type_cast": ("Any shape, in the dtype.", "InvalidArgument", "a dtype that there is not", 'type_cast("float32")', 'type_cast("float3")', _IMAGE,
                  "[8, 6, 3]"),
    "function": ("Any column.", "TypeError", "what cannot be called", "function(lambda x: x[0])", 'function("a")(np.ones(3))', _IMAGE, "[6, 3]"),
}

_TEXTS = """
# set_seed
Raises InvalidArgument unless it is from 0 to 2**64 - 1.

    tessera.set_seed(7)
    assert tessera.get_seed() == 7
    tessera.set_seed(-1)  # raises InvalidArgument

# get_seed
The number that set_seed() was given last; 1 before. Raises TypeError for an argument.

    tessera.set_seed(7)
    assert tessera.get_seed() == 7
    tessera.get_seed(1)  # raises TypeError

# gpus
Raises TypeError for an argument, and nothing where there is no driver.

    assert all(isinstance(name, str) for name in tessera.gpus())
    tessera.gpus(1)  # raises TypeError

# from_dlpack

    x = tessera.from_dlpack(np.ones((2, 3), "float32"))  # [2, 3]
    tessera.from_dlpack(3)  # raises TypeError

# to_dlpack

    x = tessera.from_dlpack(tessera.to_dlpack(tessera.Tensor(np.ones((2, 3), "float32"))))  # [2, 3]
    tessera.to_dlpack(tessera.Tensor(1.0), stream=1)  # raises InvalidArgument

# beam_search
Raises InvalidArgument where the logits have another shape, or a size is not positive.

    scores = np.log(np.array([0.1, 0.2, 0.3, 0.1, 0.3], "float32"))  # of the words 0 to 4, of which 2 ends a sequence
    found = tessera.beam_search(1, lambda prefixes, length: np.tile(scores, (len(prefixes), 1)), 4, beam_size=2)
    assert len(found) == 1 and isinstance(found[0], tessera.Decoded)
    tessera.beam_search(1, lambda prefixes, length: np.zeros(3, "float32"), 4)  # raises InvalidArgument

# export_onnx

    network = nn.Dense(8, 3)
    tessera.export_onnx(network, tessera.Tensor(np.ones((4, 8), "float32")), path="dense.onnx")
    tessera.export_onnx(3, path="number.onnx")  # raises TypeError

# checkpoint.save
Tensors of any shape and dtype. Raises IoError where the file cannot be written, InvalidArgument for a key of another length.

    path = tessera.checkpoint.save("net", {"x": np.ones((4, 8), "float32"), "note": "a text"})
    assert path == "net.ckpt"
    y = tessera.checkpoint.load(path)["x"]  # [4, 8]
    tessera.checkpoint.save("other", {"x": np.ones(3)}, enc_key=b"short")  # raises InvalidArgument

# checkpoint.find_writer

    assert tessera.checkpoint.find_writer("saved") == 0

# checkpoint.save_safetensors
Tensors of any shape. Folders that are missing are made. Raises IoError where the file cannot be written, InvalidArgument for what the form cannot hold.

    tessera.checkpoint.save_safetensors("net.safetensors", {"x": np.ones((4, 8), "float32")})
    y = tessera.checkpoint.load_safetensors("net.safetensors")["x"]  # [4, 8]
    tessera.checkpoint.save_safetensors("net.safetensors", 3)  # raises TypeError

# checkpoint.load_safetensors
They have the shapes and dtypes that they were saved with. Raises InvalidArgument for a damaged file, IoError for one that cannot be read.

    tessera.checkpoint.save_safetensors("net.safetensors", {"x": np.ones((4, 8), "float32")})
    y = tessera.checkpoint.load_safetensors("net.safetensors")["x"]  # [4, 8]
    tessera.checkpoint.load_safetensors("absent.safetensors")  # raises IoError

# checkpoint.load

    tessera.checkpoint.save("net.ckpt", {"x": np.ones((4, 8), "float32")})
    y = tessera.checkpoint.load("net.ckpt")["x"]  # [4, 8]
    tessera.checkpoint.load("absent.ckpt")  # raises IoError

# checkpoint.open

    tessera.checkpoint.save("net.ckpt", {"x": np.ones((4, 8), "float32")})
    y = tessera.checkpoint.open("net.ckpt")["x"]  # [4, 8]
    tessera.checkpoint.open("absent.ckpt")  # raises IoError

# checkpoint.transform_checkpoints

    tessera.checkpoint.save("from/rank_0/net.ckpt", {"x": np.ones((4, 8), "float32")})
    files = tessera.checkpoint.transform_checkpoints("from", "to", "moved")
    y = tessera.checkpoint.load(files[0])["x"]  # [4, 8]
    tessera.checkpoint.transform_checkpoints("absent", "there", "moved")  # raises InvalidArgument

# checkpoint.rank_list_for_transform
Raises InvalidArgument for a rank that the destination does not have, IoError for a file that cannot be read.

    assert tessera.checkpoint.rank_list_for_transform(0) == [0]
    tessera.checkpoint.rank_list_for_transform(1)  # raises InvalidArgument

# checkpoint.transform_checkpoint_by_rank
Raises InvalidArgument where a file is missing that is needed, IoError for one that cannot be read.

    tessera.checkpoint.save("net.ckpt", {"x": np.ones((4, 8), "float32")})
    tessera.checkpoint.transform_checkpoint_by_rank(0, {0: "net.ckpt"}, "moved.ckpt")
    y = tessera.checkpoint.load("moved.ckpt")["x"]  # [4, 8]
    tessera.checkpoint.transform_checkpoint_by_rank(0, {}, "other.ckpt")  # raises InvalidArgument

# checkpoint.merge_pipeline_strategys
Writes it to dst_strategy_file. Raises InvalidArgument for a directory without such files, and where the files contradict each other.

    tessera.checkpoint.merge_pipeline_strategys("absent", "all.ckpt")  # raises InvalidArgument

# checkpoint.build_searched_strategy
Raises InvalidArgument for what is no strategy file, IoError for one that cannot be read.

    tessera.checkpoint.build_searched_strategy("absent.ckpt")  # raises IoError

# checkpoint.merge_sliced_parameter
Slices of one dtype, [4, 8] each of [8, 8] in two. Raises InvalidArgument for no slices, and for those that do not fit together.

    y = tessera.checkpoint.merge_sliced_parameter([np.ones((4, 8), "float32")] * 2)  # [8, 8]
    tessera.checkpoint.merge_sliced_parameter([])  # raises InvalidArgument

# checkpoint.slice_parameter
A part of the tensor's shape, as [4, 8] of [8, 8]. Raises InvalidArgument for a rank that the layout does not have, and where the layout is of other dims.

    layout = tessera.checkpoint.ParameterLayout("up.weight", [2], [[0], []])
    y = tessera.checkpoint.slice_parameter(np.ones((8, 8), "float32"), layout, 1)  # [4, 8]
    tessera.checkpoint.slice_parameter(np.ones((8, 8), "float32"), layout, 2)  # raises InvalidArgument

# checkpoint.restore_group_info_list
Raises InvalidArgument for what is no group file, IoError for one that cannot be read.

    tessera.checkpoint.restore_group_info_list("absent.pb")  # raises IoError

# cluster.init

    tessera.cluster.init()
    assert tessera.cluster.is_initialized() and tessera.cluster.rank() < tessera.cluster.size()

# cluster.is_initialized
Whether this process has joined its job. Raises TypeError for an argument.

    tessera.cluster.init()
    assert tessera.cluster.is_initialized()
    tessera.cluster.is_initialized(1)  # raises TypeError

# cluster.leave
Raises IoError where another rank has failed.

    if tessera.cluster.size() > 1 and tessera.cluster.rank() == 0:  # where this rank has found something to be wrong
        tessera.cluster.leave("what rank 0 reads is gone")
    tessera.cluster.leave(3)  # raises TypeError

# cluster.transport
The name of what the ranks' messages go by. Raises IoError where the job cannot be joined, TypeError for an argument.

    assert isinstance(tessera.cluster.transport(), str)
    tessera.cluster.transport(1)  # raises TypeError

# cluster.rank
From 0; raises InvalidArgument for a group that there is not, IoError where the job cannot be joined.

    assert 0 <= tessera.cluster.rank() < tessera.cluster.size()
    tessera.cluster.rank("nobody")  # raises InvalidArgument

# cluster.size
At least 1; raises InvalidArgument for a group that there is not, IoError where the job cannot be joined.

    assert tessera.cluster.size() == len(tessera.cluster.ranks())
    tessera.cluster.size("nobody")  # raises InvalidArgument

# cluster.ranks
Raises InvalidArgument for a group that there is not, IoError where the job cannot be joined.

    assert tessera.cluster.ranks() == list(range(tessera.cluster.size()))
    tessera.cluster.ranks("nobody")  # raises InvalidArgument

# cluster.local_rank
From 0. Raises IoError where the job cannot be joined, TypeError for an argument.

    assert tessera.cluster.local_rank() < tessera.cluster.local_size()
    tessera.cluster.local_rank(1)  # raises TypeError

# cluster.local_size
The number of the job's ranks on this host. Raises IoError where the job cannot be joined, TypeError for an argument.

    assert 1 <= tessera.cluster.local_size() <= tessera.cluster.size()
    tessera.cluster.local_size(1)  # raises TypeError

# cluster.num_servers
Raises IoError where the job cannot be joined, TypeError for an argument.

    assert tessera.cluster.num_servers() == 0
    tessera.cluster.num_servers(1)  # raises TypeError

# cluster.num_compute_threads
The threads of this rank that compute, where a model's num_threads does not say it. Raises IoError where the job cannot be joined, TypeError for an
argument.

    assert tessera.cluster.num_compute_threads() >= 1
    tessera.cluster.num_compute_threads(1)  # raises TypeError

# cluster.create_group
Raises InvalidArgument for a rank that there is not, one that is named twice, and a name that is taken.

    tessera.cluster.create_group("first", [0])
    assert tessera.cluster.ranks("first") == [0]
    tessera.cluster.create_group("first", [0])  # raises InvalidArgument
    tessera.cluster.destroy_group("first")

# cluster.destroy_group
From here on there is no group of that name. Every rank of the job calls it, in the same order. Raises InvalidArgument where there is none.

    tessera.cluster.create_group("passing", [0])
    tessera.cluster.destroy_group("passing")
    assert not tessera.cluster.has_group("passing")
    tessera.cluster.destroy_group("passing")  # raises InvalidArgument

# cluster.has_group
Whether there is a group of that name. Raises TypeError unless it is a text.

    assert tessera.cluster.has_group("world") and not tessera.cluster.has_group("nobody")
    tessera.cluster.has_group(1)  # raises TypeError

# cluster.barrier
Raises InvalidArgument for a group that there is not, IoError where a rank is lost.

    tessera.cluster.barrier()
    tessera.cluster.barrier("nobody")  # raises InvalidArgument

# cluster.run_together

    assert tessera.cluster.run_together("cannot look", lambda: "seen") == ["seen"] * tessera.cluster.size()
    tessera.cluster.run_together("cannot count", lambda: 3)  # raises TypeError

# cluster.run_scheduler
Raises IoError where nobody can listen there, InvalidArgument for numbers that make no sense.

    tessera.cluster.run_scheduler("127.0.0.1", 0, "two")  # raises TypeError

# data.decode
Raises InvalidArgument, when a row is made, for bytes that are no such image.

    files = tessera.data.decode()
    files(np.zeros(4, "uint8"))  # raises InvalidArgument

# data.cifar10
Raises InvalidArgument for another usage, for files that are no whole number of images, and for a directory without them.

    tessera.data.write_synthetic_cifar10("cifar", 20, 10)
    assert tessera.data.cifar10("cifar", "train").batch(4).output_shapes() == [(4, 32, 32, 3), (4, )]
    tessera.data.cifar10("absent")  # raises InvalidArgument

# data.mnist
Raises InvalidArgument for another usage, for damaged files, and for a directory without them.

    tessera.data.mnist("absent")  # raises InvalidArgument

# data.image_folder
Raises InvalidArgument for a folder without folders or images, and for a class that is none of the folders.

    tessera.data.image_folder("absent")  # raises InvalidArgument

# data.image_classes
Raises InvalidArgument for a folder without folders.

    tessera.data.image_classes("absent")  # raises InvalidArgument

# data.write_synthetic_cifar10
Images u8[32,32,3] of ten classes. Raises IoError where the directory cannot be written, InvalidArgument for counts that make no sense.

    tessera.data.write_synthetic_cifar10("cifar", 20, 10)
    assert tessera.data.cifar10("cifar", "test").get_dataset_size() == 10

# data.generator
Columns have the arrays' shapes and dtypes. Raises InvalidArgument where the samples have other types or numbers of columns.

    rows = tessera.data.generator([(np.ones(8, "float32"), np.int32(1))] * 4, ["x", "label"]).batch(2)
    assert rows.output_shapes() == [(2, 8), (2, )]
    tessera.data.generator([(1, 2)], ["x"])  # raises InvalidArgument

# data.stream
Columns have the arrays' shapes and dtypes. Raises InvalidArgument where the samples have other types or numbers of columns.

    rows = tessera.data.stream(lambda: iter([(np.ones(8, "float32"), )] * 4), ["x"]).batch(2)
    assert rows.output_shapes() == [(2, 8)]
    tessera.data.stream(3, ["x"])  # raises TypeError

# data.tensors
Columns [rows, ...], each of its dtype. Raises InvalidArgument where they have other numbers of rows.

    rows = tessera.data.tensors({"x": np.ones((4, 8), "float32")}).batch(2)
    assert rows.output_shapes() == [(2, 8)]
    tessera.data.tensors({"x": np.ones(3), "y": np.ones(4)})  # raises InvalidArgument

# data.read_segment_pairs
Raises InvalidArgument for files with other numbers of segments, IoError for one that cannot be read.

    for name, line in (("a.sgm", "one"), ("b.sgm", "eins")):
        with open(name, "w") as file:
            file.write('<seg id="1">' + line + "</seg>")
    assert tessera.data.read_segment_pairs("a.sgm", "b.sgm") == [("one", "eins")]
    tessera.data.read_segment_pairs("absent", "absent")  # raises IoError

# data.read_sentence_pairs
Raises InvalidArgument for a line without a tab, IoError for a file that cannot be read.

    tessera.data.write_sentence_pairs("pairs.txt", [("one", "eins")])
    assert tessera.data.read_sentence_pairs("pairs.txt") == [("one", "eins")]
    tessera.data.read_sentence_pairs("absent.txt")  # raises IoError

# data.write_sentence_pairs
Raises IoError where the file cannot be written, InvalidArgument for a sentence with a tab or a line's end.

    tessera.data.write_sentence_pairs("pairs.txt", [("one", "eins")])
    assert tessera.data.read_sentence_pairs("pairs.txt") == [("one", "eins")]

# data.write_synthetic_translation
Raises IoError where the directory cannot be written.

    tessera.data.write_synthetic_translation("language", 20, 10)
    assert len(tessera.data.read_segment_pairs("language/test.source.sgm", "language/test.target.sgm")) == 10

# data.translation
Raises InvalidArgument for another form, and where no pair fits.

    words = tessera.data.Vocabulary.build(["a b", "c d"])
    rows = tessera.data.translation([("a b", "c d")] * 4, words, words, 5, 6).batch(2)
    assert rows.output_shapes() == [(2, 5), (2, 6), (2, 6)]
    tessera.data.translation([("a b", "c d")], words, words, 5, 6, form="half")  # raises InvalidArgument

# data.source_rows
Raises InvalidArgument for a length that is not positive.

    words = tessera.data.Vocabulary.build(["a b", "c d"])
    y = tessera.data.source_rows(["a b", "c"], words, 5)  # [2, 5]
    tessera.data.source_rows(["a b"], words, 0)  # raises InvalidArgument

# data.bleu
Raises InvalidArgument where there are not as many lists of references as hypotheses.

    assert round(tessera.data.bleu(["a b c d e"], [["a b c d e"]]).score) == 100
    tessera.data.bleu(["a"], [])  # raises InvalidArgument

# data.tokenize_13a
Raises TypeError for what is no text.

    assert tessera.data.tokenize_13a("Well, done.") == ["Well", ",", "done", "."]
    tessera.data.tokenize_13a(3)  # raises TypeError

# ops.stop_gradient
x: of any shape and dtype; returns the same. Raises TypeError for what is no tensor.

    y = ops.stop_gradient(np.ones((2, 3), "float32"))  # [2, 3]
    ops.stop_gradient("a")  # raises TypeError

# ops.logical_not
x: bool, of any shape; returns the same shape, bool. Raises InvalidArgument for another dtype.

    y = ops.logical_not(np.ones((2, 3), "bool"))  # [2, 3]
    ops.logical_not(np.ones(3, "float32"))  # raises InvalidArgument

# ops.flatten
x [n, ...] -> [n, product of the rest], of its dtype. Raises InvalidArgument for x without dims.

    y = ops.flatten(np.ones((2, 3, 4), "float32"))  # [2, 12]
    ops.flatten(1.0)  # raises InvalidArgument

# ops.zeros_like
Raises TypeError for what is no tensor.

    y = ops.zeros_like(np.ones((2, 3), "float32"))  # [2, 3]
    ops.zeros_like("a")  # raises TypeError

# ops.ones_like
Raises TypeError for what is no tensor.

    y = ops.ones_like(np.ones((2, 3), "float32"))  # [2, 3]
    ops.ones_like("a")  # raises TypeError

# ops.select
x and y of one dtype, which the result has, in the shape that the three broadcast to. Raises InvalidArgument for a condition that is no bool, and for
shapes that do not fit.

    y = ops.select(np.array([True, False, True]), np.ones((2, 3), "float32"), 0.0)  # [2, 3]
    ops.select(np.ones(3, "float32"), np.ones(3, "float32"), 0.0)  # raises InvalidArgument

# ops.promote_numbers
Raises TypeError unless it is a bool.

    ops.promote_numbers(True)
    assert (tessera.Tensor([1, 2]) + 0.5).dtype == tessera.float32
    ops.promote_numbers(False)
    ops.promote_numbers("no")  # raises TypeError

# ops.gelu
x: floating, of any shape; returns the same. Raises InvalidArgument for another dtype.

    y = ops.gelu(np.ones((2, 3), "float32"))  # [2, 3]
    ops.gelu(np.ones(3, "int32"))  # raises InvalidArgument

# ops.cast
x of any shape and dtype; returns the shape. Raises InvalidArgument for a dtype that there is not.

    y = ops.cast(np.ones((2, 3), "float32"), "int32")  # [2, 3]
    ops.cast(np.ones(3), "int3")  # raises InvalidArgument

# ops.clip_by_value

    y = ops.clip_by_value(np.ones((2, 3), "float32"), -1.0, 1.0)  # [2, 3]
    ops.clip_by_value(np.ones(3))  # raises InvalidArgument

# ops.clip_by_norm

    y = ops.clip_by_norm(np.ones((2, 3), "float32"), 1.0, axes=1)  # [2, 3]
    ops.clip_by_norm(np.ones(3, "float32"), 0.0)  # raises InvalidArgument

# ops.clip_by_global_norm

    first, second = ops.clip_by_global_norm([np.ones((2, 3), "float32"), np.ones(4, "float32")], 1.0)
    assert tuple(first.shape) == (2, 3) and tuple(second.shape) == (4, )
    ops.clip_by_global_norm([], 1.0)  # raises InvalidArgument

# ops.argmax
x: of any shape and number type; returns int32 of the shape without the axis. Raises InvalidArgument for an axis that x does not have.

    y = ops.argmax(np.ones((2, 3), "float32"), 1)  # [2]
    ops.argmax(np.ones((2, 3), "float32"), 2)  # raises InvalidArgument

# ops.top_k
x [..., n] of a number type -> [..., k] of its dtype, and int32[..., k]. Raises InvalidArgument for a k that is not from 1 to n.

    values, places = ops.top_k(np.ones((2, 3), "float32"), 2)
    assert tuple(values.shape) == tuple(places.shape) == (2, 2)
    ops.top_k(np.ones((2, 3), "float32"), 4)  # raises InvalidArgument

# ops.cumsum
x: of any shape and number type; returns the same. Raises InvalidArgument for an axis that x does not have.

    y = ops.cumsum(np.ones((2, 3), "float32"), 1)  # [2, 3]
    ops.cumsum(np.ones((2, 3), "float32"), 2)  # raises InvalidArgument

# ops.reshape
x: of any shape and dtype; returns the dtype. Raises InvalidArgument where the shape has another number of elements.

    y = ops.reshape(np.ones((2, 3), "float32"), (3, -1))  # [3, 2]
    ops.reshape(np.ones((2, 3)), (4, 2))  # raises InvalidArgument

# ops.transpose
x: of any shape and dtype; returns the dtype. Raises InvalidArgument for a perm that is none of the dims.

    y = ops.transpose(np.ones((2, 3, 4), "float32"), (0, 2, 1))  # [2, 4, 3]
    ops.transpose(np.ones((2, 3)), (0, 0))  # raises InvalidArgument

# ops.squeeze
x: of any shape and dtype; returns the dtype. None: without all dims of size 1. Raises InvalidArgument for a dim of another size.

    y = ops.squeeze(np.ones((2, 1, 3), "float32"), 1)  # [2, 3]
    ops.squeeze(np.ones((2, 3)), 0)  # raises InvalidArgument

# ops.expand_dims
x: of any shape and dtype; returns the dtype. Raises InvalidArgument for a place that the result does not have.

    y = ops.expand_dims(np.ones((2, 3), "float32"), 1)  # [2, 1, 3]
    ops.expand_dims(np.ones((2, 3)), 5)  # raises InvalidArgument

# ops.concat
Operands of one dtype, which the result has, in their shape but for the axis. Raises InvalidArgument for those that do not fit, and for none.

    y = ops.concat([np.ones((2, 3), "float32"), np.ones((1, 3), "float32")])  # [3, 3]
    ops.concat([np.ones((2, 3)), np.ones((2, 4))])  # raises InvalidArgument

# ops.stack
The operands, of one shape and dtype, along a new dim at `axis`. Raises InvalidArgument for those of other types, and for none.

    y = ops.stack([np.ones((2, 3), "float32")] * 4, 1)  # [2, 4, 3]
    ops.stack([np.ones(3), np.ones(4)])  # raises InvalidArgument

# ops.split
x of any shape and dtype -> num_parts pieces of its dtype, equal along the axis. Raises InvalidArgument where the size is no multiple of num_parts.

    first, second = ops.split(np.ones((4, 3), "float32"), 2)
    assert tuple(first.shape) == tuple(second.shape) == (2, 3)
    ops.split(np.ones((4, 3)), 3)  # raises InvalidArgument

# ops.split_sizes
x of any shape and dtype -> pieces of its dtype, of these sizes along the axis. Raises InvalidArgument where they do not add up to its size.

    first, second = ops.split_sizes(np.ones((4, 3), "float32"), (1, 3))
    assert tuple(first.shape) == (1, 3) and tuple(second.shape) == (3, 3)
    ops.split_sizes(np.ones((4, 3)), (1, 2))  # raises InvalidArgument

# ops.slice
x of any shape and dtype -> its elements from begin to end, without end, one of each strides[i] along dim i, as x[begin:end:stride] has them; dims behind
begin's are whole. Raises InvalidArgument for other numbers in end than in begin, for more than x has dims, and for a stride of 0.

    y = ops.slice(np.ones((4, 6), "float32"), (1, 0), (4, 6), (1, 2))  # [3, 3]
    ops.slice(np.ones((4, 6)), (0, 0), (4, ))  # raises InvalidArgument

# ops.pad
x: of any shape and dtype; returns the dtype. Raises InvalidArgument for numbers below 0, and for others than one for each dim.

    y = ops.pad(np.ones((2, 3), "float32"), (0, 1), (0, 2))  # [2, 6]
    ops.pad(np.ones((2, 3)), (1, ), (1, ))  # raises InvalidArgument

# ops.tile
x: of any shape and dtype; returns the dtype. Raises InvalidArgument for others than one number for each dim.

    y = ops.tile(np.ones((2, 3), "float32"), (2, 1))  # [4, 3]
    ops.tile(np.ones((2, 3)), (2, -1))  # raises InvalidArgument

# ops.broadcast_to
x: of any shape and dtype; returns the dtype. Raises InvalidArgument for a shape that x cannot be stretched to.

    y = ops.broadcast_to(np.ones((2, 1), "float32"), (4, 2, 3))  # [4, 2, 3]
    ops.broadcast_to(np.ones((2, 3)), (2, 4))  # raises InvalidArgument

# ops.fill
Returns a tensor of that shape and dtype. Raises InvalidArgument for a dtype that there is not, and for negative sizes.

    y = ops.fill((2, 3), 0.5)  # [2, 3]
    ops.fill((2, -3), 0.5)  # raises InvalidArgument

# ops.range
Returns [ceil((limit - start) / delta)]. Raises InvalidArgument for a delta of 0.

    y = ops.range(0, 6, 2)  # [3]
    ops.range(0, 6, 0)  # raises InvalidArgument

# ops.one_hot
indices: int32 or int64, of any shape; returns the dtype of on and off. Raises InvalidArgument for indices of another dtype, and a depth below 0.

    y = ops.one_hot(np.zeros((2, 3), "int32"), 5)  # [2, 3, 5]
    ops.one_hot(np.zeros(3, "float32"), 5)  # raises InvalidArgument

# ops.gather
indices: int32 or int64, of any shape; returns the table's dtype. Raises InvalidArgument for indices of another dtype, and an axis that there is not.

    y = ops.gather(np.ones((5, 8), "float32"), np.zeros((2, 3), "int32"))  # [2, 3, 8]
    ops.gather(np.ones((5, 8)), np.zeros(3, "float32"))  # raises InvalidArgument

# ops.scatter_add
indices: int32 or int64, of any shape; returns base's type. Raises InvalidArgument for updates of another shape.

    y = ops.scatter_add(np.ones((5, 8), "float32"), np.zeros(3, "int32"), np.ones((3, 8), "float32"))  # [5, 8]
    ops.scatter_add(np.ones((5, 8), "float32"), np.zeros(3, "int32"), np.ones((2, 8), "float32"))  # raises InvalidArgument

# ops.matmul
Raises InvalidArgument for other dims, dtypes that differ, and a k that is not the same.

    y = ops.matmul(np.ones((2, 3), "float32"), np.ones((3, 4), "float32"))  # [2, 4]
    ops.matmul(np.ones((2, 3), "float32"), np.ones((4, 3), "float32"))  # raises InvalidArgument

# ops.batch_matmul
Raises InvalidArgument for leading dims that differ, dtypes that differ, and a k that is not the same.

    y = ops.batch_matmul(np.ones((5, 2, 3), "float32"), np.ones((5, 3, 4), "float32"))  # [5, 2, 4]
    ops.batch_matmul(np.ones((5, 2, 3), "float32"), np.ones((4, 3, 4), "float32"))  # raises InvalidArgument

# ops.bias_add
Returns x's type. Raises InvalidArgument for another number of channels.

    y = ops.bias_add(np.ones((2, 3), "float32"), np.ones(3, "float32"))  # [2, 3]
    ops.bias_add(np.ones((2, 3), "float32"), np.ones(4, "float32"))  # raises InvalidArgument

# ops.conv2d
Raises InvalidArgument for other channels, and a window that does not fit into the image.

    y = ops.conv2d(np.ones((2, 3, 8, 8), "float32"), np.ones((4, 3, 3, 3), "float32"), pad_mode="same")  # [2, 4, 8, 8]
    ops.conv2d(np.ones((2, 3, 8, 8), "float32"), np.ones((4, 2, 3, 3), "float32"))  # raises InvalidArgument

# ops.conv2d_transpose
Raises InvalidArgument for other channels, and a size that conv2d does not make.

    y = ops.conv2d_transpose(np.ones((2, 3, 8, 8), "float32"), np.ones((3, 4, 2, 2), "float32"), stride=2)  # [2, 4, 16, 16]
    ops.conv2d_transpose(np.ones((2, 3, 8, 8), "float32"), np.ones((2, 4, 2, 2), "float32"))  # raises InvalidArgument

# ops.max_pool2d
Returns y alone. Raises InvalidArgument for a window that does not fit into the image.

    y = ops.max_pool2d(np.ones((2, 3, 8, 8), "float32"), 2, 2)  # [2, 3, 4, 4]
    ops.max_pool2d(np.ones((2, 3, 2, 2), "float32"), 3)  # raises InvalidArgument

# ops.avg_pool2d
Raises InvalidArgument for a window that does not fit into the image.

    y = ops.avg_pool2d(np.ones((2, 3, 8, 8), "float32"), 2, 2)  # [2, 3, 4, 4]
    ops.avg_pool2d(np.ones((2, 3, 2, 2), "float32"), 3)  # raises InvalidArgument

# ops.attention
Returns out [b,t,h,e] alone. Raises InvalidArgument for shapes that do not fit.

    y = ops.attention(np.ones((2, 5, 4, 8), "float32"), np.ones((2, 6, 4, 8), "float32"), np.ones((2, 6, 4, 3), "float32"))  # [2, 5, 4, 3]
    ops.attention(np.ones((2, 5, 4, 8), "float32"), np.ones((2, 6, 4, 7), "float32"), np.ones((2, 6, 4, 3), "float32"))  # raises InvalidArgument

# ops.softmax
x: floating, of any shape; returns the same. Raises InvalidArgument for another dtype, and an axis that x does not have.

    y = ops.softmax(np.ones((2, 3), "float32"))  # [2, 3]
    ops.softmax(np.ones((2, 3), "float32"), 2)  # raises InvalidArgument

# ops.log_softmax
x: floating, of any shape; returns the same. Raises InvalidArgument for another dtype, and an axis that x does not have.

    y = ops.log_softmax(np.ones((2, 3), "float32"))  # [2, 3]
    ops.log_softmax(np.ones((2, 3), "float32"), 2)  # raises InvalidArgument

# ops.softmax_cross_entropy
Returns the losses alone, of the logits' dtype. Raises InvalidArgument for labels of another shape or dtype.

    loss = ops.softmax_cross_entropy(np.ones((4, 3), "float32"), np.zeros(4, "int32"))  # [4]
    ops.softmax_cross_entropy(np.ones((4, 3), "float32"), np.zeros(5, "int32"))  # raises InvalidArgument

# ops.layer_norm
Returns y alone, of x's shape and dtype. Raises InvalidArgument where gamma or beta have other dims.

    y = ops.layer_norm(np.ones((2, 3), "float32"), np.ones(3, "float32"), np.zeros(3, "float32"))  # [2, 3]
    ops.layer_norm(np.ones((2, 3), "float32"), np.ones(4, "float32"), np.zeros(3, "float32"))  # raises InvalidArgument

# ops.send
x of any type. Both ranks call it within the same step. Raises InvalidArgument for a peer that there is not, IoError where it is lost.

    ops.send(np.ones(3, "float32"), 99)  # raises InvalidArgument

# ops.receive
Returns the shape and dtype. Raises InvalidArgument for a peer that there is not, IoError where it is lost.

    ops.receive((3, ), "float32", 99)  # raises InvalidArgument

# ops.lay_out
x: of any type, which the result has. Raises InvalidArgument for others than one count for each dim, and outside of construct() nothing is split.

    class Rows(nn.Cell):
        def construct(self, x):
            return ops.lay_out(x * 2.0, (1, 1))

    y = Rows()(np.ones((4, 8), "float32"))  # [4, 8]

# ops.shard
x: of any type. Raises InvalidArgument, when the network is compiled, for counts that do not fit the operands or the ranks.

    class Product(nn.Cell):
        def construct(self, x, y):
            return ops.shard(ops.matmul(x, y), [(1, 1), (1, 1)])

    y = Product()(np.ones((2, 3), "float32"), np.ones((3, 4), "float32"))  # [2, 4]

# ops.conv3d
Raises InvalidArgument for other channels, ValueError for a window that does not fit.

    y = ops.conv3d(np.ones((2, 3, 4, 8, 8), "float32"), np.ones((4, 3, 2, 3, 3), "float32"))  # [2, 4, 3, 6, 6]
    ops.conv3d(np.ones((2, 3, 1, 8, 8), "float32"), np.ones((4, 3, 2, 3, 3), "float32"))  # raises ValueError

# ops.conv3d_transpose
[n,co,d',h',w']. Raises InvalidArgument for other channels.

    y = ops.conv3d_transpose(np.ones((2, 3, 4, 8, 8), "float32"), np.ones((3, 4, 2, 2, 2), "float32"), stride=2)  # [2, 4, 8, 16, 16]
    ops.conv3d_transpose(np.ones((2, 2, 4, 8, 8), "float32"), np.ones((3, 4, 2, 2, 2), "float32"))  # raises InvalidArgument

# ops.max_pool3d
Returns [n,c,d',h',w']. Raises ValueError for a window that does not fit.

    y = ops.max_pool3d(np.ones((2, 3, 4, 8, 8), "float32"), 2, 2)  # [2, 3, 2, 4, 4]
    ops.max_pool3d(np.ones((2, 3, 1, 8, 8), "float32"), 2, 2)  # raises ValueError

# ops.avg_pool3d
Returns [n,c,d',h',w']. Raises ValueError for a window that does not fit.

    y = ops.avg_pool3d(np.ones((2, 3, 4, 8, 8), "float32"), 2, 2)  # [2, 3, 2, 4, 4]
    ops.avg_pool3d(np.ones((2, 3, 1, 8, 8), "float32"), 2, 2)  # raises ValueError

# ops.max_pool2d_with_places
Both are [n,c,h',w']. Raises ValueError for a window that does not fit.

    largest, places = ops.max_pool2d_with_places(np.ones((2, 3, 8, 8), "float32"), 2, 2)
    assert tuple(largest.shape) == tuple(places.shape) == (2, 3, 4, 4)
    ops.max_pool2d_with_places(np.ones((2, 3, 1, 8), "float32"), 2, 2)  # raises ValueError

# nn.num_compiled
Raises TypeError for an argument.

    before = nn.num_compiled()
    nn.Dense(8, 3)(np.ones((4, 8), "float32"))
    assert nn.num_compiled() > before
    nn.num_compiled(1)  # raises TypeError

# nn.retrace
Raises TypeError for an argument.

    nn.retrace()
    nn.retrace(1)  # raises TypeError

# nn.make_model
A network of images f32[n,c,h,w] -> logits f32[n,num_classes].

    y = nn.make_model("lenet5", 10)(np.ones((2, 3, 32, 32), "float32"))  # [2, 10]
    nn.make_model("lenet6", 10)  # raises InvalidArgument

# nn.lenet5
Raises InvalidArgument for counts that are not positive.

    y = nn.lenet5()(np.ones((2, 3, 32, 32), "float32"))  # [2, 10]
    nn.lenet5(0)  # raises InvalidArgument

# nn.resnet50
Raises InvalidArgument for a count that is not positive.

    network = nn.resnet50(10)
    nn.resnet50(0)  # raises InvalidArgument

# nn.rotary_positions
Returns x's type. Raises InvalidArgument for an odd d, and for other dims.

    y = nn.rotary_positions(np.ones((2, 5, 4, 8), "float32"))  # [2, 5, 4, 8]
    nn.rotary_positions(np.ones((2, 5, 4, 7), "float32"))  # raises InvalidArgument

# nn.dynamic_loss_scale
Raises InvalidArgument for a scale below 1, and a factor or window that makes no sense.

    scale = nn.dynamic_loss_scale(1024.0)
    assert scale.initial == 1024 and scale.factor == 2
    nn.dynamic_loss_scale(0.5)  # raises InvalidArgument

# nn.fixed_loss_scale
A scale that stays; drop_overflow_update: a step that overflows is skipped. Raises InvalidArgument for a scale that is not positive, or not finite.

    scale = nn.fixed_loss_scale(128.0)
    assert scale.initial == 128 and scale.drop_overflow_update
    nn.fixed_loss_scale(0.0)  # raises InvalidArgument

# nn.cosine_decay_lr
One rate for each of total_steps. Raises InvalidArgument for rates that make no sense, and counts that are not positive.

    rates = nn.cosine_decay_lr(0.0, 0.1, 10, 5, 2)
    assert len(rates) == 10
    nn.cosine_decay_lr(0.2, 0.1, 10, 5, 2)  # raises InvalidArgument

# nn.piecewise_constant_lr
One rate for each step up to the last milestone. Raises InvalidArgument for milestones that do not rise, and other numbers of rates.

    assert nn.piecewise_constant_lr([2, 3], [0.5, 0.25]) == [0.5, 0.5, 0.25]
    nn.piecewise_constant_lr([3, 2], [0.5, 0.25])  # raises InvalidArgument

# nn.with_warmup
As many rates as the table has. Raises InvalidArgument for a negative number of steps.

    assert nn.with_warmup([1.0, 1.0, 1.0], 2) == [0.5, 1.0, 1.0]
    nn.with_warmup([1.0], -1)  # raises InvalidArgument

# nn.is_tracing
Raises TypeError for an argument.

    assert not nn.is_tracing()
    nn.is_tracing(1)  # raises TypeError

# nn.is_known
Raises TypeError for what is no value.

    nn.is_known(3)  # raises TypeError

# nn.hold_for_one_call

    nn.hold_for_one_call("outside of construct() nothing is traced")
    nn.hold_for_one_call(3)  # raises TypeError

# nn.value_and_grad
A gradient has the type of what it belongs to. Raises InvalidArgument for a number that no argument has.

    class Slope(nn.Cell):
        def construct(self, x):
            return nn.value_and_grad(lambda x: ops.reduce_sum(x * x), [x], argument_numbers=[0])[1][0]

    y = Slope()(np.ones((2, 3), "float32"))  # [2, 3]

# nn.trace_branches
Raises InvalidArgument for a condition that is no bool[].

    nn.trace_branches(3, abs, abs)  # raises TypeError

# nn.random_uniform

    y = nn.random_uniform((2, 3))  # [2, 3]
    nn.random_uniform((2, 3), 1.0, 0.0)  # raises InvalidArgument

# nn.random_normal

    y = nn.random_normal((2, 3))  # [2, 3]
    nn.random_normal((2, 3), 0.0, -1.0)  # raises InvalidArgument

# nn.group_parameters
A list of dicts. Raises KeyError for another setting.

    network = nn.Dense(8, 3)
    optimizer = nn.AdamW(1e-3, groups=nn.group_parameters(network, {"bias": {"weight_decay": 0}}))
    nn.group_parameters(network, {"bias": {"decay": 0}})  # raises KeyError
"""


def texts_of(all_of_them):
    """By the names that stand behind `# ` in a line of their own, the texts below them."""
    return {name: text.strip("\n") for name, text in re.findall(r"^# (\S+)\n(.*?)(?=^# |\Z)", all_of_them, re.MULTILINE | re.DOTALL)}


def with_text(doc, text):
    """A function's own words with such a text, whose indented end is the example."""
    words, _, code = ("\n" + text).partition("\n    ")
    parts = [doc.strip(), words.strip(), "For example:", f"    {code}"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _all():
    """By a function's name, without tessera's, its text."""
    rows, numbers = 'np.ones((2, 3), "float32")', 'np.ones(3, "float32")'
    texts = {}
    for name in _FLOATING:
        half = " * 0.5" if name == "atanh" else ""
        texts[f"ops.{name}"] = _UNARY.format(name=name, kind="floating", dtype=", bool" if name == "is_finite" else " and dtype", half=half, wrong="int32")
    for name in _NUMERIC:
        texts[f"ops.{name}"] = _UNARY.format(name=name, kind="of a number type", dtype=" and dtype", half="", wrong="bool")
    for name in _ARITHMETIC:
        texts[f"ops.{name}"] = _BINARY.format(name=name, kind="numbers", dtype=", of the dtype that they are promoted to", left=rows, right=numbers,
                                              wrong='np.ones(4, "float32")')
    for name in _COMPARISONS:
        texts[f"ops.{name}"] = _BINARY.format(name=name, kind="of one dtype", dtype=", bool", left=rows, right=numbers, wrong='np.ones(4, "float32")')
    for name in _LOGIC:
        texts[f"ops.{name}"] = _BINARY.format(name=name, kind="bool", dtype=", bool", left='np.ones((2, 3), "bool")', right="True", wrong=numbers)
    for name in ("sum", "mean", "max", "min", "prod", "all", "any"):
        is_of_truths = name in ("all", "any")
        texts[f"ops.reduce_{name}"] = _REDUCTION.format(name=f"reduce_{name}", kind="bool" if is_of_truths else "of a number type",
                                                        x='np.ones((2, 3), "bool")' if is_of_truths else rows)
    for name, result in _COLLECTIVES.items():
        texts[f"ops.{name}"] = _COLLECTIVE.format(name=name, result=result)
    for name, (refused, right, wrong, claim) in _SCHEDULES.items():
        texts[f"nn.schedules.{name}"] = _SCHEDULE.format(name=name, refused=refused, right=right, wrong=wrong, claim=claim)
    for name, (error, refused, right, wrong) in _INITIALIZERS.items():
        texts[f"nn.initializers.{name}"] = _INITIALIZER.format(error=error, refused=refused, right=right, wrong=wrong)
    for name, (words, error, refused, right, wrong, x, shape) in _TRANSFORMS.items():
        texts[f"data.{name}"] = _TRANSFORM.format(words=words, error=error, refused=refused, right=right, wrong=wrong, x=x, shape=shape)
    return texts | texts_of(_TEXTS)


TEXTS = _all()


def with_help(module, name, doc):
    """`doc` with the text of a function of that module of the extension, in which it is named so."""
    path = f"{module.removeprefix('tessera._tessera').removeprefix('.')}.{name}".lstrip(".")
    return with_text(doc, TEXTS[path]) if path in TEXTS else doc


def add_to_functions(root):
    """Puts the texts behind those of the functions that are written in Python, of the module `root` and of its modules."""
    for path in TEXTS:
        item = root
        *modules, name = path.split(".")
        for part in modules:
            item = getattr(item, part)
        function = vars(item).get(name)
        if hasattr(function, "__code__"):
            function.__doc__ = with_help(".".join(["tessera._tessera", *modules]), name, function.__doc__ or "")
