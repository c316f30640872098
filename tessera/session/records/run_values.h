// RunValues: an observer that makes entries of the values of a run, each by what it is of the logical graph. What
// fusion has taken away, and what only moves between operators, is in no schedule: of that there are none.
#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/executor/executor.h"
#include "tessera/session/records/value_entry.h"

namespace tessera::session {

// The names of the values that the nodes of a logical graph make, by ValueId; of its inputs they have no operator.
std::vector<ValueName> names_of_values(const ir::Graph& logical);

// The piece of a value that `rank` has by this layout. Throws InvalidArgument where the rank is not in its mesh.
ValueEntry entry_of(const ValueName& name, int64_t number, const Type& type, const mesh::Layout& layout, int rank);

class RunValues final : public executor::ValueObserver {
 public:
  // What was compiled, and whose part of it: it outlives this. `run`: the micro-batch, from 1.
  RunValues(const compiler::Compiled& compiled, int rank, int64_t run);

  // A data input, which is there before the run.
  void add_input(const ir::Input& input, const TensorView& piece);
  bool wants(int value) const override;
  void see(int value, const Tensor& elements) override;

  // In the order in which they came. Values that are there twice are in it once.
  std::vector<ValueEntry> take() { return std::move(entries_); }
  // How many values of the graph no step has made under their name.
  int64_t num_missing() const;

 private:
  // The value that a place of the logical graph is, and how it lies there.
  struct Found {
    ir::ValueId value = ir::kNone;
    mesh::Layout layout;
  };
  Found find(const ir::LogicalPlace& place) const;
  const ir::LogicalPlace& place_of(int value) const;

  const compiler::Compiled& compiled_;
  int rank_;
  std::vector<ValueName> names_;
  std::vector<bool> is_whole_seen_;  // by ValueId of the logical graph
  std::vector<bool> is_part_seen_;
  std::vector<ValueEntry> entries_;
};

// What is recorded of the runs of a session's training steps. One is a part of the session; a step looks into it.
struct ValueWatch {
  bool is_on = false;
  int64_t num_runs = 0;  // since it was begun
  int64_t num_missing = 0;
  std::vector<ValueEntry> entries = {};

  void begin() { *this = {.is_on = true}; }
};

}  // namespace tessera::session
