// BatchPlace: where a batch goes: the memory of a step's inputs, which the data set writes, or, where every rank reads
// the whole batch, that of the batch, and this rank's pieces of it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/session/session.h"

namespace tessera::train {

struct BatchPlace {
  std::vector<TensorView> written;                        // by column
  std::vector<std::pair<TensorView, TensorView>> pieces;  // from, to

  // This rank's piece of a whole input. None where the step does not read that input.
  void add_piece(const session::Executable& executable, const std::string& name, const TensorView& whole);
  // Copies the pieces.
  void distribute() const;
};

}  // namespace tessera::train
