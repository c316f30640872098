#include "tessera/nn/container.h"

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/ops/functions/shape_functions.h"

namespace tessera::nn {

void CellList::append(std::shared_ptr<Cell> cell) {
  if (cell == nullptr) throw InvalidArgument("cell \"{}\": a null cell cannot be appended", ir::cell_name(path()));
  cells_.push_back(cell.get());
  adopt(std::to_string(cells_.size() - 1), std::move(cell));
}

Cell& CellList::operator[](int index) const {
  if (index < 0 || index >= size()) {
    throw InvalidArgument("cell \"{}\" has {} children, there is no number {}", ir::cell_name(path()), size(), index);
  }
  return *cells_[static_cast<size_t>(index)];
}

Value Sequential::construct(Value x) {
  for (int i = 0; i < size(); ++i) x = (*this)[i](x);
  return x;
}

Value Flatten::construct(Value x) { return ops::flatten(x); }

}  // namespace tessera::nn
