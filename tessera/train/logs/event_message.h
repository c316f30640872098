// What an event file of TensorBoard holds, byte by byte: records, and in each a message Event in the wire form of
// Protocol Buffers. The numbers of the fields are those of TensorBoard's event.proto, summary.proto, histogram.proto,
// tensor.proto, tensor_shape.proto, plugins/hparams/plugin_data.proto, graph.proto, node_def.proto, attr_value.proto,
// types.proto and versions.proto:
//
//   Event            wall_time = 1 double, step = 2 int64, file_version = 3, graph_def = 4, summary = 5,
//                    session_log = 7
//   SessionLog       status = 1: START is 1
//   Summary          value = 1, repeated
//   Summary.Value    tag = 1, simple_value = 2 float, image = 4, histo = 5, tensor = 8, metadata = 9
//   Summary.Image    height = 1, width = 2, colorspace = 3 (the number of channels), encoded_image_string = 4
//   SummaryMetadata  plugin_data = 1, data_class = 4: of tensors 2
//   PluginData       plugin_name = 1, content = 2
//   HistogramProto   min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, bucket_limit = 6, bucket = 7: doubles, packed
//   TensorProto      dtype = 1: DT_FLOAT is 1, DT_STRING 7; tensor_shape = 2, float_val = 5 packed, string_val = 8
//   TensorShapeProto dim = 2, in it size = 1
//   HParamsPluginData version = 1, session_start_info = 3, session_end_info = 4
//   SessionStartInfo hparams = 1, a map of google.protobuf.Value; start_time_secs = 5 double
//   SessionEndInfo   status = 1: success is 1, failure 2; end_time_secs = 2 double
//   Value            number_value = 2 double, string_value = 3, bool_value = 4
//   GraphDef         node = 1, repeated; versions = 4, in it producer = 1
//   NodeDef          name = 1, op = 2, input = 3, repeated; attr = 5, a map of AttrValue
//   AttrValue        list = 1, s = 2, i = 3, f = 4 float, b = 5, type = 6
//   AttrValue.ListValue  i = 3 and f = 4 packed, shape = 7
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "tessera/train/logs/histogram.h"

namespace tessera::ir {
class Graph;
}

namespace tessera::train {

// What a training was made with, by name.
using HyperParameter = std::variant<bool, double, std::string>;
using HyperParameters = std::map<std::string, HyperParameter>;

// A picture in a form that browsers know, such as PNG.
struct EncodedImage {
  int64_t height = 0;
  int64_t width = 0;
  int64_t num_channels = 0;
  std::string bytes;
};

// A Summary that grows.
class EventSummary {
 public:
  void add_scalar(std::string_view tag, double value);
  // With how many elements are not finite as a scalar TAG/non_finite, where there are any.
  void add_histogram(std::string_view tag, const Histogram& histogram);
  // `text` is shown as Markdown.
  void add_text(std::string_view tag, std::string_view text);
  void add_image(std::string_view tag, const EncodedImage& image);
  void add_session_start(const HyperParameters& parameters, double wall_time);
  void add_session_end(bool has_failed, double wall_time);

  bool is_empty() const { return bytes_.empty(); }
  const std::string& bytes() const { return bytes_; }

 private:
  // A value of the field `kind` of Summary.Value.
  void add_value(std::string_view tag, int kind, std::string_view content, std::string_view metadata = {});

  std::string bytes_;
};

// The first event of a file says its version.
std::string version_event(double wall_time);
// Says that the training begins anew with this step: what an earlier file has of it and later ones is void.
std::string restart_event(double wall_time, int64_t step);
std::string summary_event(double wall_time, int64_t step, const EventSummary& summary);
// Of the whole training: it has no step. `graph`: a GraphDef.
std::string graph_event(double wall_time, std::string_view graph);

// A GraphDef of what the loss of a logical graph is computed from, without gradients and updates; of a graph that has
// no result "loss" of what its results are computed from. A node is called by the cell that makes it and its operator,
// "layer1/conv1/conv2d", and further ones of that name have numbers, "layer1/conv1/conv2d_1"; parameters, states and
// columns, of the operators "param", "state" and "input", are called by their own names. Nodes have the attributes of
// their operators, but for lists of more than 64 numbers; _output_shapes, and as T the dtype of the first result;
// `line` of the script where that is known, and `stage` where the network names one.
std::string graph_message(const ir::Graph& graph);

// A record of the file: its length, eight bytes, the least first; the masked checksum of these; the content; its masked
// checksum. Masked is the CRC-32C, turned right by 15 bits, plus 0xa282ead8.
std::string event_record(std::string_view content);

}  // namespace tessera::train
