// RowTiles: how lines of elements, each of which is looked at as a whole, are dealt to threads: a warp for each short
// line, a block for each long one.
#pragma once

#include <string>

#include "tessera/kernels/cuda/core/device_program.h"
#include "tessera/kernels/cuda/core/writer.h"

namespace tessera::cuda {

// Several views as `count` lines of `size` elements: where each line begins, and where its elements are from there.
class RowTiles {
 public:
  // `lines` and `elements` have the strides of the same views, in the same order, with equal names; a view that has one
  // element a line, or one line, is missing in the other.
  RowTiles(Shape line_shape, std::vector<NamedStrides> lines, Shape element_shape, std::vector<NamedStrides> elements);

  int64_t count() const { return line_shape_.num_elements(); }
  int64_t size() const { return element_shape_.num_elements(); }
  // Declares `row`, `lane` and, for each view, row_NAME: the offset of the line. Threads without a line return.
  std::string begin_text() const;
  // "for (...) {" over the thread's elements: `i`, the number k of it, and at_NAME, offsets from the line's.
  std::string loop_text() const;
  // Whether a thread has few enough elements to keep them: in an array of kept() numbers by k.
  bool keeps() const { return per_thread_ <= 32; }
  int64_t kept() const { return keeps() ? per_thread_ : 1; }
  // "sum_row(x)", "max_row(x)" are sum_warp or sum_block.
  std::string functions_text() const;
  int threads() const { return is_block_ ? threads_ : 128; }
  int64_t blocks() const { return is_block_ ? count() : (count() + 3) / 4; }

 private:
  Shape line_shape_;
  std::vector<NamedStrides> lines_;
  Shape element_shape_;
  std::vector<NamedStrides> elements_;
  bool is_block_ = false;
  int threads_ = 32;  // of a line
  int64_t per_thread_ = 1;
};

}  // namespace tessera::cuda
