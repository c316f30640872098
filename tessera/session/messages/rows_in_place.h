// Rows of a table that a receiver reads where the sender keeps the table: nobody looks them up, and none is copied but
// to the place that wants it. A message says of each place where its row lies, i64, in elements of the sender's part of
// the table: kOfAnother, another sender says it, or kOfNone, the place gets zeros. Behind them comes the sender's part
// of the table, of which only these rows are read; where ranks do not reach each other's memory, all of it travels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/mesh/box.h"
#include "tessera/tensor/tensor.h"

namespace tessera::session {

inline constexpr int64_t kOfAnother = -1;
inline constexpr int64_t kOfNone = -2;

// What a sender knows of the places of one slot.
struct RowsInPlace {
  TensorView table;           // this sender's part, dense, [n, size]
  mesh::Range own;            // the rows of the table that it sends, of those in its part: the first ones
  int64_t first_element = 0;  // of a row that the receiver wants
  bool says_none = false;     // whether it is the one that says kOfNone
  TensorView numbers;         // i32 or i64, dense: rows in the table
  TensorView places;          // i32: of each place, which of the numbers is its row's, counted from its begin; -1: none
  std::vector<int64_t> begins;  // by index in dim 0 of places
};

// Sends them to rank 1 of the pair. What lies at the views is read when it is called.
class RowsInPlaceSender {
 public:
  explicit RowsInPlaceSender(RowsInPlace wanted);
  void operator()(comm::Communicator& pair, const std::string& who);

 private:
  template <typename Number>
  void find_rows();

  RowsInPlace wanted_;
  Tensor own_places_;               // dense
  std::vector<int64_t> positions_;  // of the message
};

// Copies them from rank 0 of the pair, whose part of the table has so many elements. `rows`: the places, dense; what
// another sender says stays as it is. Throws IoError for a position beyond the part.
class RowsInPlaceReceiver {
 public:
  RowsInPlaceReceiver(const TensorView& rows, int64_t num_elements, std::string table);
  void operator()(comm::Communicator& pair, const std::string& who);

 private:
  void require_positions(const comm::Communicator& pair) const;
  // Of the part's bytes [begin, begin + size), which lie at `from`.
  void put(const std::byte* from, int64_t begin, int64_t size);

  TensorView rows_;
  int64_t num_elements_;
  std::string table_;
  int64_t row_elements_;
  std::vector<int64_t> positions_;
};

}  // namespace tessera::session
