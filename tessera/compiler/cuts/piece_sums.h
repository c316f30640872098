// PieceSums: what any stretch of a network's pieces takes, without going over them again: sums over the pieces before
// each.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/compiler/cuts/choose_cuts.h"

namespace tessera::compiler {

class PieceSums {
 public:
  explicit PieceSums(const CutProblem& problem);

  // What these say is of a chunk of the pieces begin..end-1.

  double seconds(int begin, int end) const { return at(seconds_, end) - at(seconds_, begin); }
  int num_with_parameters(int begin, int end) const { return at(with_parameters_, end) - at(with_parameters_, begin); }
  // That holds so many micro-batches at once.
  int64_t bytes(int begin, int end, int held_micro_batches) const;

 private:
  template <typename T>
  static T at(const std::vector<T>& sums, int piece) {
    return sums[static_cast<size_t>(piece)];
  }

  std::vector<double> seconds_ = {0};
  std::vector<int64_t> persistent_ = {0};
  std::vector<int64_t> kept_ = {0};
  std::vector<int> with_parameters_ = {0};
  // Of messages that a chunk receives, by its first piece, and by one past its last.
  std::vector<int64_t> received_at_begin_ = {0};
  std::vector<int64_t> received_at_end_ = {0};
};

}  // namespace tessera::compiler
