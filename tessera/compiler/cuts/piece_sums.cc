#include "tessera/compiler/cuts/piece_sums.h"

namespace tessera::compiler {

PieceSums::PieceSums(const CutProblem& problem) {
  for (const CutPiece& piece : problem.pieces) {
    seconds_.push_back(seconds_.back() + piece.seconds);
    persistent_.push_back(persistent_.back() + piece.persistent_bytes);
    kept_.push_back(kept_.back() + piece.kept_bytes);
    with_parameters_.push_back(with_parameters_.back() + (piece.has_parameters ? 1 : 0));
  }
  for (const CutPlace& place : problem.places) {
    received_at_begin_.push_back(place.forward_bytes);
    received_at_end_.push_back(place.backward_bytes);
  }
  received_at_end_.push_back(0);
}

int64_t PieceSums::bytes(int begin, int end, int held_micro_batches) const {
  const int64_t slot = at(kept_, end) - at(kept_, begin) + at(received_at_begin_, begin) + at(received_at_end_, end);
  return at(persistent_, end) - at(persistent_, begin) + held_micro_batches * slot;
}

}  // namespace tessera::compiler
