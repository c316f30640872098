// Cells of cells: Sequential calls its children one after the other, CellList only holds them. Children are named
// "0", "1", ... Flatten stands between them.
#pragma once

#include "tessera/nn/cell.h"

namespace tessera::nn {

// A CellList has cells in a list, named by their position. It has no construct() of its own.
class CellList : public Cell {
 public:
  // Makes a cell at the end.
  template <typename T, typename... Args>
  T& append(Args&&... args) {
    auto made = std::make_unique<T>(std::forward<Args>(args)...);
    T& result = *made;
    append(std::shared_ptr<Cell>(std::move(made)));
    return result;
  }
  void append(std::shared_ptr<Cell> cell);

  int size() const { return static_cast<int>(cells_.size()); }
  // Throws InvalidArgument when there is no such cell.
  Cell& operator[](int index) const;

 private:
  std::vector<Cell*> cells_;
};

// x -> the last child of ... of the first child of x.
//   Sequential net;
//   net.append<Dense>(64, 256);
//   net.append<ReLU>();
class Sequential : public CellList {
 public:
  using Cell::construct;
  Value construct(Value x) override;
};

// [n, ...] -> [n, product of the rest].
class Flatten : public Cell {
 public:
  using Cell::construct;
  Value construct(Value x) override;
};

}  // namespace tessera::nn
