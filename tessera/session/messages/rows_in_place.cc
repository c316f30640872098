#include "tessera/session/messages/rows_in_place.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/comm/stretch_receiver.h"

namespace tessera::session {

RowsInPlaceSender::RowsInPlaceSender(RowsInPlace wanted)
    : wanted_(std::move(wanted)),
      own_places_(wanted_.places.type()),
      positions_(static_cast<size_t>(wanted_.places.num_elements())) {}

void RowsInPlaceSender::operator()(comm::Communicator& pair, const std::string& who) {
  copy_elements(wanted_.places, own_places_.view());
  if (wanted_.numbers.dtype == DType::kI32) {
    find_rows<int32_t>();
  } else {
    find_rows<int64_t>();
  }
  pair.send(positions_.data(), std::ssize(positions_), DType::kI64, 1, who);
  pair.send(wanted_.table.data, wanted_.table.num_elements(), wanted_.table.dtype, 1, who);
}

template <typename Number>
void RowsInPlaceSender::find_rows() {
  const auto places = own_places_.values<int32_t>();
  const auto* numbers = wanted_.numbers.as<Number>();
  const size_t per_begin = wanted_.begins.empty() ? 1 : places.size() / wanted_.begins.size();
  const int64_t size = wanted_.table.shape[1];
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] < 0) {
      positions_[i] = wanted_.says_none ? kOfNone : kOfAnother;
      continue;
    }
    const int64_t row = numbers[wanted_.begins[i / per_begin] + places[i]] - wanted_.own.offset;
    const bool is_own = row >= 0 && row < wanted_.own.size;
    positions_[i] = is_own ? row * size + wanted_.first_element : kOfAnother;
  }
}

RowsInPlaceReceiver::RowsInPlaceReceiver(const TensorView& rows, int64_t num_elements, std::string table)
    : rows_(rows),
      num_elements_(num_elements),
      table_(std::move(table)),
      row_elements_(rows.shape.back()),
      positions_(static_cast<size_t>(row_elements_ == 0 ? 0 : rows.num_elements() / row_elements_)) {}

void RowsInPlaceReceiver::operator()(comm::Communicator& pair, const std::string& who) {
  pair.receive(positions_.data(), std::ssize(positions_), DType::kI64, 0, who);
  require_positions(pair);
  const auto row_bytes = static_cast<size_t>(row_elements_) * size_bytes(rows_.dtype);
  for (size_t i = 0; i < positions_.size(); ++i) {
    if (positions_[i] == kOfNone) std::memset(static_cast<std::byte*>(rows_.data) + i * row_bytes, 0, row_bytes);
  }
  if (auto* reaches = dynamic_cast<comm::StretchReceiver*>(&pair); reaches != nullptr) {
    const auto take = [this](const std::byte* from, int64_t begin, int64_t size) { put(from, begin, size); };
    reaches->receive_stretches(take, num_elements_, rows_.dtype, 0, who);
    return;
  }
  const Tensor part(Type{rows_.dtype, {num_elements_}});
  pair.receive(part.view().data, num_elements_, rows_.dtype, 0, who);
  put(static_cast<const std::byte*>(part.view().data), 0, part.type().size_bytes());
}

void RowsInPlaceReceiver::require_positions(const comm::Communicator& pair) const {
  const auto is_wrong = [&](int64_t p) { return p < kOfNone || (p >= 0 && p > num_elements_ - row_elements_); };
  const auto wrong = std::ranges::find_if(positions_, is_wrong);
  if (wrong == positions_.end()) return;
  throw IoError(
      "rank {}, a parameter server, sends rank {} rows of \"{}\": that of place {} is said to lie at element {}, and "
      "the server's part of the table has {}. The message is damaged; a job that is started again goes on from its "
      "newest checkpoint",
      pair.ranks()[0], pair.ranks()[1], table_, wrong - positions_.begin(), *wrong, num_elements_);
}

void RowsInPlaceReceiver::put(const std::byte* from, int64_t begin, int64_t size) {
  const auto element = static_cast<int64_t>(size_bytes(rows_.dtype));
  const int64_t row_bytes = row_elements_ * element;
  auto* const places = static_cast<std::byte*>(rows_.data);
  for (size_t i = 0; i < positions_.size(); ++i) {
    if (positions_[i] < 0) continue;
    // Of a part that comes in several stretches, what this one has of the row.
    const int64_t row = positions_[i] * element;
    const int64_t first = std::max(row, begin);
    const int64_t last = std::min(row + row_bytes, begin + size);
    if (first >= last) continue;
    std::memcpy(places + static_cast<int64_t>(i) * row_bytes + (first - row), from + (first - begin),
                static_cast<size_t>(last - first));
  }
}

}  // namespace tessera::session
