#include "tessera/train/batch_place.h"

namespace tessera::train {

void BatchPlace::add_piece(const session::Executable& executable, const std::string& name, const TensorView& whole) {
  if (executable.compiled().logical.find_input(name) == nullptr) return;
  pieces.emplace_back(mesh::piece_of(whole, executable.input_slice(name)), executable.input(name));
}

void BatchPlace::distribute() const {
  for (const auto& [from, to] : pieces) copy_elements(from, to);
}

}  // namespace tessera::train
