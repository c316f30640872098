// TensorBoard: a training as an event file that TensorBoard shows (docs/watching.md).
#pragma once

#include <optional>
#include <string>

#include "tessera/train/logs/event_writer.h"
#include "tessera/train/logs/training_log.h"

namespace tessera::train {

struct TensorBoardOptions {
  LogOptions log = {};
  // Histograms of the parameters that are trained in floating numbers, after each step whose number is a multiple: then
  // each is read whole, which takes as long as saving them. Where parameters are split over ranks, every rank must have
  // the callback. 0: none.
  int64_t histogram_steps = 0;
  // The graph of the training step's forward pass as it was compiled, before the first step (graph_message()).
  bool graph = true;
  HyperParameters hyper_parameters = {};  // none: the training is none of the HPARAMS page
};

// Writes an event file of its own into `directory` for each call of train(). Tags are loss, learning_rate,
// rows_per_second, memory/resident_bytes, memory/arena_bytes; epoch/loss and epoch/rows_per_second; evaluation/NAME of
// metrics; weights/NAME; and beside them there is the network's graph. A training that goes on from a checkpoint voids
// what older files of the directory have of later steps, a new one all that they have.
class TensorBoard : public TrainingLog {
 public:
  explicit TensorBoard(std::string directory, TensorBoardOptions options = {});
  // At the present step, while a training goes on that has the callback, or else InvalidArgument. Only rank 0 writes.
  void add_scalar(const std::string& tag, double value);
  void add_histogram(const std::string& tag, const Tensor& value);
  void add_text(const std::string& tag, const std::string& text);  // Markdown
  void add_image(const std::string& tag, const EncodedImage& image);

 protected:
  double open(RunContext& run, Beginning beginning) override;
  void start(RunContext& run) override;
  void write(const TrainingRecord& record) override;
  void close(RunContext& run) override;
  void let_go() override;
  void after_step(RunContext& run, int64_t previous_step) override;

 private:
  std::string directory_;
  TensorBoardOptions options_;
  std::optional<EventWriter> writer_;
};

}  // namespace tessera::train
