// Copies between two strided views, as bits: runs by memcpy, transposes block by block.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/tensor/shape.h"

namespace tessera {

// Prepared once for two views of one shape, run on any addresses. Does not allocate.
class StridedCopy {
 public:
  // Strides in elements, which may be negative. `from` may repeat elements (stride 0); no two elements of `to` may
  // share memory. element_bytes is 1, 2, 4 or 8.
  StridedCopy(const Shape& shape, const Strides& from, const Strides& to, size_t element_bytes);

  // Parts that threads may copy independently, and how many of them are worth a thread.
  int64_t num_units() const { return num_outer_ * units_per_outer_; }
  int64_t grain() const { return grain_; }
  void run(const void* from, void* to) const { run(from, to, 0, num_units()); }
  void run(const void* from, void* to, int64_t begin, int64_t end) const;

 private:
  struct Dim {
    int64_t size = 1;
    int64_t from = 1;
    int64_t to = 1;
  };

  void take_dims(const Shape& shape, const Strides& from, const Strides& to);
  void choose_across();
  void divide(int64_t element_bytes);
  template <typename Bits>
  void run_units(const Bits* from, Bits* to, int64_t begin, int64_t end) const;
  template <typename Bits>
  void copy_plane(const Bits* from, Bits* to, int64_t across_size, int64_t inner_size) const;
  template <typename Bits>
  void copy_piece(const Bits* from, Bits* to, int64_t a_end, int64_t i_end) const;

  size_t element_bytes_;
  std::array<Dim, kMaxNdim> outer_{};  // outermost first
  int num_outer_dims_ = 0;
  int64_t num_outer_ = 1;
  // The dim along which the result's elements lie densest, and, in a transpose, the one along which the operand's do.
  Dim inner_;
  Dim across_;
  // A unit is so many of across, or of inner where there is nothing across.
  int64_t unit_size_ = 1;
  int64_t units_per_outer_ = 1;
  int64_t grain_ = 1;
};

}  // namespace tessera
