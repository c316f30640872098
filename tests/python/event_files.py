"""TensorBoard's own reading of event files, in the virtual environment that has it."""
import json
import subprocess

import tensorboard_pages

READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util
board = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0, "images": 0})
board.Reload()
tags = board.Tags()
read = {"scalars": {tag: [[e.step, e.value] for e in board.Scalars(tag)] for tag in tags["scalars"]},
        "histograms": {tag: [[e.step, e.histogram_value.min, e.histogram_value.max, e.histogram_value.num, e.histogram_value.sum,
                              e.histogram_value.sum_squares, list(e.histogram_value.bucket_limit), list(e.histogram_value.bucket)]
                             for e in board.Histograms(tag)] for tag in tags["histograms"]},
        "images": {tag: [[e.step, e.width, e.height, e.encoded_image_string.hex()] for e in board.Images(tag)] for tag in tags["images"]},
        "texts": {}, "hparams": {}}
for tag in tags["tensors"]:
    plugin = board.SummaryMetadata(tag).plugin_data
    if plugin.plugin_name == "text":
        read["texts"][tag] = [[e.step, tensor_util.make_ndarray(e.tensor_proto).item().decode()] for e in board.Tensors(tag)]
    if plugin.plugin_name == "hparams":
        data = plugin_data_pb2.HParamsPluginData.FromString(plugin.content)
        start = data.session_start_info
        for name, value in start.hparams.items():
            read["hparams"][name] = getattr(value, value.WhichOneof("kind"))
        if data.HasField("session_end_info"):
            read["status"] = data.session_end_info.status
if tags["graph"]:
    dims = lambda shape: [dim.size for dim in shape.dim]
    read["graph"] = {node.name: [node.op, list(node.input), [dims(shape) for shape in node.attr["_output_shapes"].list.shape]] for node in board.Graph().node}
    read["attributes"] = {node.name: {name: getattr(value, value.WhichOneof("value")) for name, value in node.attr.items()
                                      if value.WhichOneof("value") in ("i", "f", "b", "type")} for node in board.Graph().node}
json.dump(read, sys.stdout)
"""


def made_reader():
    """A function that has TensorBoard read a directory of event files: {"scalars": {tag: [[step, value], ...]}, ...}; where there is a graph
    {"graph": {node: [operator, [input, ...], [shape, ...]]}}. Skips the test where there is no TensorBoard."""
    interpreter = tensorboard_pages.python()

    def read(directory):
        done = subprocess.run([interpreter, "-c", READER, str(directory)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return read
