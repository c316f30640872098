// WorkerGraphs: a training graph of StepPart::kPush, cut for a worker that has nothing of what servers keep: their
// values enter it as data inputs.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::train {

struct WorkerGraphs {
  // Rows of a table that the batch alone names: a data input of `step`, and of what `numbers` has as a result of that
  // name, i64 of the input's shape without the table's other dims, which row each is.
  struct Lookup {
    std::string name;
    std::string table;
  };
  ir::Graph step;                   // inputs: the batch, parameters by name, looked up rows, the number of noise
  ir::Graph numbers;                // inputs: the batch; no results where nothing is looked up
  std::vector<Lookup> lookups;      // of `step`, as its inputs are named
  std::vector<std::string> whole;   // parameters of which `step` reads all
  std::vector<std::string> pushed;  // results of `step` for the servers
  bool draws_noise = false;         // `step` has the input nn::kRandomStep
};

// `served`: parameters, by name. Throws InvalidArgument for a graph that assigns anything but the number of noise:
// nobody else would hear of it.
WorkerGraphs cut_for_worker(const ir::Graph& graph, const std::set<std::string>& served);

}  // namespace tessera::train
