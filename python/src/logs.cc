// Callbacks that write down how a training goes, and event files by themselves.
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <utility>

#include "python/src/bind.h"
#include "python/src/callbacks.h"
#include "python/src/python_model.h"

namespace tessera::python {
namespace {

using RateOfStep = std::function<double(int64_t)>;

train::LogOptions log_options(int64_t every_steps, std::optional<RateOfStep> learning_rate) {
  return {.every_steps = every_steps, .learning_rate = std::move(learning_rate).value_or(RateOfStep())};
}

train::EncodedImage encoded_image(const nb::bytes& bytes, int64_t height, int64_t width, int64_t num_channels) {
  return {.height = height, .width = width, .num_channels = num_channels, .bytes = {bytes.c_str(), bytes.size()}};
}

void bind_text_logs(nb::module_& m) {
  nb::class_<train::CsvLog, train::TrainingLog>(m, "CsvLog",
                                                R"(Writes a training as a table of comma-separated values, on rank 0.

A row for every so many steps (every_steps=0: for none), each epoch and each evaluation: kind, time, seconds, epoch, step, loss,
learning_rate, rows_per_second, resident_bytes, arena_bytes and evaluated_NAME of metrics. A training that goes on from a
checkpoint continues the file, without rows of later steps; the file of another training becomes FILE.1. learning_rate: a function
of the step, for a schedule that is a cell; of numbers and lists the log knows.)")
      .def(
          "__init__",
          [](train::CsvLog* self, const Path& file, int64_t every_steps, std::optional<RateOfStep> learning_rate) {
            new (self) train::CsvLog(file.bytes, log_options(every_steps, std::move(learning_rate)));
          },
          "file"_a, "every_steps"_a = 1, "learning_rate"_a = nb::none());
  nb::class_<train::JsonLog, train::TrainingLog>(m, "JsonLog",
                                                 R"(Writes a training as JSON Lines, on rank 0.

A line for every so many steps (every_steps=0: for none), each epoch and each evaluation, with the keys that are the columns of
CsvLog, and metrics by name. A record of kind run says before the first step how the process was started, one of kind end how the
training ended. Numbers that are not finite are "NaN", "Infinity" and "-Infinity". It goes on, and takes
learning_rate, as CsvLog does.)")
      .def(
          "__init__",
          [](train::JsonLog* self, const Path& file, int64_t every_steps, std::optional<RateOfStep> learning_rate) {
            new (self) train::JsonLog(file.bytes, log_options(every_steps, std::move(learning_rate)));
          },
          "file"_a, "every_steps"_a = 1, "learning_rate"_a = nb::none());
}

void bind_tensor_board(nb::module_& m) {
  nb::class_<train::TensorBoard, train::TrainingLog>(
      m, "TensorBoard",
      R"(Writes a training as an event file that TensorBoard shows, on rank 0.

Into `directory`: loss, learning_rate, rows_per_second and memory every so many steps, the means of epochs, metrics of evaluations;
histograms of the parameters every histogram_steps (0: none; where parameters are split, every rank needs the callback);
hyper_parameters: numbers, bools and texts by name, for the page HPARAMS; before the first step the network's graph, for the page
GRAPHS (graph=False: none). learning_rate as CsvLog takes it. The add_ functions write at the present step, while a training goes
on that has the callback.)")
      .def(
          "__init__",
          [](train::TensorBoard* self, const Path& directory, int64_t every_steps, int64_t histogram_steps,
             const train::HyperParameters& hyper_parameters, std::optional<RateOfStep> learning_rate, bool graph) {
            new (self) train::TensorBoard(directory.bytes, {.log = log_options(every_steps, std::move(learning_rate)),
                                                            .histogram_steps = histogram_steps,
                                                            .graph = graph,
                                                            .hyper_parameters = hyper_parameters});
          },
          "directory"_a, "every_steps"_a = 1, "histogram_steps"_a = 0, "hyper_parameters"_a = nb::dict(),
          "learning_rate"_a = nb::none(), "graph"_a = true)
      .def("add_scalar", &train::TensorBoard::add_scalar, "tag"_a, "value"_a)
      .def(
          "add_histogram",
          [](train::TensorBoard& self, const std::string& tag, nb::handle value) {
            self.add_histogram(tag, to_tensor(value));
          },
          "tag"_a, "value"_a, "How the elements of a tensor are distributed.")
      .def("add_text", &train::TensorBoard::add_text, "tag"_a, "text"_a, "Markdown.")
      .def(
          "add_image",
          [](train::TensorBoard& self, const std::string& tag, const nb::bytes& image, int64_t height, int64_t width,
             int64_t num_channels) { self.add_image(tag, encoded_image(image, height, width, num_channels)); },
          "tag"_a, "image"_a, "height"_a, "width"_a, "num_channels"_a = 3, "An image as the bytes of a PNG file.");
}

void bind_trace(nb::module_& m) {
  nb::class_<train::Trace, train::Callback>(m, "Trace", R"(Records what all ranks do, step by step, for ui.perfetto.dev.

Into `file`, when the training ends: operators, collectives and who was late in them, waits for batches, saves, the critical path;
`tessera trace summary FILE` says where the time went. Steps first_step to last_step, counted from the beginning of the training;
last_step=0: to the end. num_spans: for so many there is room on a rank, of 32 bytes each; where there are more, the oldest go.
Every rank needs the callback. Where the job is recorded already, by `tessera run --trace`, it does nothing but warn.)")
      .def(
          "__init__",
          [](train::Trace* self, const Path& file, int64_t first_step, int64_t last_step, int64_t num_spans) {
            new (self)
                train::Trace(file.bytes, {.first_step = first_step, .last_step = last_step, .num_spans = num_spans});
          },
          "file"_a, "first_step"_a = 1, "last_step"_a = 0, "num_spans"_a = train::TraceOptions{}.num_spans);
}

// One event of one value.
template <typename Add>
void add_event(train::EventWriter& writer, int64_t step, const Add& add) {
  train::EventSummary summary;
  add(summary);
  writer.add(summary, step);
}

void bind_event_writer(nb::module_& m) {
  nb::class_<train::EventWriter>(m, "EventWriter",
                                 R"(An event file of TensorBoard in `directory`, for loops of one's own.

first_step: what older files of the directory have of it and of later steps is void. Every value is with the system when the
call returns. Each call makes a file of its own, PREFIX.out.tfevents.TIME.HOST.PIDSUFFIX; only one rank should. Raises
InvalidArgument for a prefix or a suffix with a '/'.)")
      .def(
          "__init__",
          [](train::EventWriter* self, const Path& directory, int64_t first_step, const std::string& prefix,
             const std::string& suffix) {
            new (self) train::EventWriter(FileSystem::local(), Clock::system(), directory.bytes, first_step,
                                          {.prefix = prefix, .suffix = suffix});
          },
          "directory"_a, "first_step"_a = 0, "prefix"_a = "events", "suffix"_a = "")
      .def_prop_ro("path", [](const train::EventWriter& self) { return Path{self.path()}; })
      .def(
          "add_scalar",
          [](train::EventWriter& self, const std::string& tag, double value, int64_t step) {
            add_event(self, step, [&](auto& summary) { summary.add_scalar(tag, value); });
          },
          "tag"_a, "value"_a, "step"_a)
      .def(
          "add_histogram",
          [](train::EventWriter& self, const std::string& tag, nb::handle value, int64_t step) {
            const auto histogram = train::histogram_of(to_tensor(value));
            add_event(self, step, [&](auto& summary) { summary.add_histogram(tag, histogram); });
          },
          "tag"_a, "value"_a, "step"_a, "How the elements of a tensor are distributed.")
      .def(
          "add_text",
          [](train::EventWriter& self, const std::string& tag, const std::string& text, int64_t step) {
            add_event(self, step, [&](auto& summary) { summary.add_text(tag, text); });
          },
          "tag"_a, "text"_a, "step"_a, "Markdown.")
      .def(
          "add_image",
          [](train::EventWriter& self, const std::string& tag, const nb::bytes& image, int64_t height, int64_t width,
             int64_t step, int64_t num_channels) {
            const auto encoded = encoded_image(image, height, width, num_channels);
            add_event(self, step, [&](auto& summary) { summary.add_image(tag, encoded); });
          },
          "tag"_a, "image"_a, "height"_a, "width"_a, "step"_a, "num_channels"_a = 3,
          "An image as the bytes of a PNG file.")
      .def(
          "add_graph",
          [](train::EventWriter& self, PythonModel& model) {
            const Turn turn = model.turn();
            self.add_graph(model.as_it_is());
          },
          "model"_a,
          "The forward pass of the training step that the model has compiled for its latest batch. A run has one "
          "graph: the latest. Raises InvalidArgument where it has compiled none yet.")
      .def("close", &train::EventWriter::close);
}

}  // namespace

void bind_logs(nb::module_& m) {
  nb::class_<train::TrainingLog, train::Callback>(m, "TrainingLog",
                                                  "What CsvLog, JsonLog and TensorBoard have in common.")
      .def("add_metrics", &train::TrainingLog::add_metrics, "metrics"_a,
           "Numbers of one's own by name, as an evaluation at the present step, while a training goes on.");
  bind_text_logs(m);
  bind_tensor_board(m);
  bind_event_writer(m);
  bind_trace(m);
  nb::class_<train::ProgressBar, train::Callback>(m, "ProgressBar", R"(How far a training is, on rank 0.

On a terminal one line that is drawn over, with loss, learning rate, rows a second, memory, and how long epoch and training will
take by the median of the latest steps; elsewhere a line after the first step and then every `seconds`. log_format="json": each
line is a JSON object, also those of epochs and evaluations. rows_per_step: of all ranks, where the data set does not say;
row_name: what a row is, in the plural.)")
      .def(
          "__init__",
          [](train::ProgressBar* self, int64_t rows_per_step, const std::string& row_name, double seconds,
             const std::string& log_format) {
            new (self) train::ProgressBar({.rows_per_step = rows_per_step,
                                           .row_name = row_name,
                                           .interval_s = seconds,
                                           .format = train::parse_log_format(log_format)},
                                          print_in_python);
          },
          "rows_per_step"_a = 0, "row_name"_a = "rows", "seconds"_a = 10.0, "log_format"_a = "text");
}

}  // namespace tessera::python
