#include "tessera/train/logs/tensor_board.h"

#include <utility>

#include "tessera/base/error.h"
#include "tessera/session/session.h"
#include "tessera/train/model.h"

namespace tessera::train {

TensorBoard::TensorBoard(std::string directory, TensorBoardOptions options)
    : TrainingLog("TensorBoard", options.log), directory_(std::move(directory)), options_(std::move(options)) {
  if (directory_.empty()) throw InvalidArgument("TensorBoard: the directory has no name");
  if (options_.histogram_steps < 0) {
    throw InvalidArgument("TensorBoard: histogram_steps must not be negative, got {}", options_.histogram_steps);
  }
}

double TensorBoard::open(RunContext& run, Beginning beginning) {
  auto& context = run.model.context();
  writer_.reset();
  writer_.emplace(context.file_system(), context.clock(), directory_, beginning == Beginning::kNew ? 0 : run.step + 1);
  if (!options_.hyper_parameters.empty()) {
    EventSummary summary;
    summary.add_session_start(options_.hyper_parameters, writer_->wall_time());
    writer_->add(summary, run.step);
  }
  return 0;
}

void TensorBoard::start(RunContext& run) {
  if (options_.graph && run.model.train_executable() != nullptr) attempt([&] { writer_->add_graph(run.model); });
}

void TensorBoard::write(const TrainingRecord& record) {
  EventSummary summary;
  const std::string prefix = record.kind == "epoch" ? "epoch/" : "";
  if (record.loss) summary.add_scalar(prefix + "loss", *record.loss);
  if (record.rows_per_second) summary.add_scalar(prefix + "rows_per_second", *record.rows_per_second);
  if (record.kind == "step") {
    if (record.learning_rate) summary.add_scalar("learning_rate", *record.learning_rate);
    summary.add_scalar("memory/resident_bytes", static_cast<double>(record.resident_bytes));
    summary.add_scalar("memory/arena_bytes", static_cast<double>(record.arena_bytes));
  }
  for (const auto& [name, value] : record.metrics) summary.add_scalar("evaluation/" + name, value);
  writer_->add(summary, record.step);
}

void TensorBoard::after_step(RunContext& run, int64_t previous_step) {
  const int64_t every = options_.histogram_steps;
  if (every == 0 || run.step / every == previous_step / every) return;
  EventSummary summary;
  const session::Session& session = std::as_const(run.model).session();
  for (const auto& name : run.model.parameter_names()) {
    if (!is_floating(session.global_type(name).dtype)) continue;
    // Where it is split, all ranks make it whole together, also where rank 0 cannot write any more.
    if (!is_open() && !session.is_split(name)) continue;
    const Tensor value = run.model.value(name);
    if (is_open()) summary.add_histogram("weights/" + name, histogram_of(value));
  }
  attempt([&] { writer_->add(summary, run.step); });
}

void TensorBoard::close(RunContext& run) {
  if (!options_.hyper_parameters.empty()) {
    EventSummary summary;
    summary.add_session_end(run.has_failed, writer_->wall_time());
    writer_->add(summary, run.step);
  }
  writer_->close();
}

void TensorBoard::let_go() { writer_.reset(); }

void TensorBoard::add_scalar(const std::string& tag, double value) {
  require_begun();
  attempt([&] {
    EventSummary summary;
    summary.add_scalar(tag, value);
    writer_->add(summary, step());
  });
}

void TensorBoard::add_histogram(const std::string& tag, const Tensor& value) {
  require_begun();
  attempt([&] {
    EventSummary summary;
    summary.add_histogram(tag, histogram_of(value));
    writer_->add(summary, step());
  });
}

void TensorBoard::add_text(const std::string& tag, const std::string& text) {
  require_begun();
  attempt([&] {
    EventSummary summary;
    summary.add_text(tag, text);
    writer_->add(summary, step());
  });
}

void TensorBoard::add_image(const std::string& tag, const EncodedImage& image) {
  require_begun();
  attempt([&] {
    EventSummary summary;
    summary.add_image(tag, image);
    writer_->add(summary, step());
  });
}

}  // namespace tessera::train
