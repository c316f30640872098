// StaleStep: one rank's part in a training step with parameter servers that do not wait for all workers. A worker asks
// for values, computes the gradients of its rows of the batch and gives them to the servers; a server answers and
// updates until all workers have done this step.
//
// To whoever trains it is one executable: its inputs are whole batches. A worker's loss is that of its rows, a server's
// the mean over the rows of all workers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/session/session.h"
#include "tessera/train/modes/mode.h"
#include "tessera/train/modes/stages/server_exchange.h"
#include "tessera/train/modes/stages/stale_training.h"
#include "tessera/train/modes/stages/worker_graphs.h"

namespace tessera::train {

class StaleStep final : public session::Executable {
 public:
  // For workers that have so many rows of a batch.
  struct BatchPart {
    int64_t rows = 0;
    WorkerGraphs graphs;
    std::unique_ptr<session::Executable> numbers;  // of a worker with so many rows; null: nothing is looked up
    std::unique_ptr<session::Executable> step;     // likewise
    std::unique_ptr<session::Executable> update;   // of a server
  };
  struct Parts {
    InputSpecs inputs;
    std::vector<BatchPart> parts;
    std::vector<size_t> part_of;       // by worker
    std::vector<mesh::Range> rows_of;  // by worker, of the batch
  };
  StaleStep(compiler::Compiled compiled, cluster::Context& context, StaleTraining& training, Parts parts);
  ~StaleStep() override;

  const TensorView& input(const std::string& name) const override;
  const TensorView& output(const std::string& name) const override;
  std::vector<mesh::Range> input_slice(const std::string& name) const override;
  std::vector<mesh::Range> output_slice(const std::string& name) const override;
  void run(const std::string& input_noun = "input") override;
  void set_before_update(const std::function<void(const TensorView&)>& call) override;
  std::vector<TensorView> updated() const override;
  void set_profiling(bool on) override;
  bool may_skip() const override { return false; }
  std::string find_non_finite() override;

  // Of a worker: how many updates of each worker the values had that the latest step has computed with; of several
  // servers the least.
  const std::vector<int64_t>& seen() const { return seen_; }

  // Of a server: updates by a worker's gradients, and what a worker asks for.
  void apply(const ServerExchange::Message& push);
  std::vector<std::byte> answer(const ServerExchange::Message& pull) const;

 private:
  bool is_server() const { return training_.ranks.stage_of(context().rank()) == 0; }
  int worker() const { return context().rank() - training_.ranks.first(1); }
  BatchPart& own_part() { return parts_.parts[parts_.part_of[static_cast<size_t>(worker())]]; }

  // Of a worker.
  void compute(const std::string& input_noun);
  void read_batch(session::Executable& executable, const ir::Graph& graph) const;
  void pull(BatchPart& part, const std::string& input_noun);
  void push(BatchPart& part);
  void count_noise(const BatchPart& part);

  // Of a server: what it takes of each worker.
  std::vector<ServerExchange::Sizes> sizes_of_messages() const;

  // How servers have a parameter.
  const mesh::Layout& layout_of(const std::string& parameter) const;
  // The piece of a parameter, or of a value that is split as it is, that a server has; whether workers get it from
  // there.
  std::vector<mesh::Range> piece_of(const std::string& parameter, const Shape& shape, int server) const;
  bool gives(const std::string& parameter, int server) const;
  Type type_of_piece(const std::string& parameter, int server) const;
  // What of a result of a worker's graph a server gets.
  std::vector<mesh::Range> pushed_piece(const std::string& name, const Shape& shape, int server) const;
  Type type_of_pushed(const std::string& name, const Type& type, int server) const;

  StaleTraining& training_;
  Parts parts_;
  int64_t number_;
  bool draws_noise_ = false;
  std::map<std::string, Tensor> batch_;
  std::map<std::string, TensorView> inputs_;
  Tensor loss_;
  TensorView loss_view_;
  std::vector<int64_t> seen_;
  std::function<void(const TensorView&)> before_update_;
};

}  // namespace tessera::train
