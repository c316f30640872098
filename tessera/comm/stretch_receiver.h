// StretchReceiver: an interface that a communicator has, too, if its ranks reach each other's memory. It hands a
// message over where the sender has it, so that the receiver reads it once and puts it where it belongs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "tessera/tensor/dtype.h"

namespace tessera::comm {

class StretchReceiver {
 public:
  // Reads bytes [begin, begin + count) of the message, which lie at `from` until it returns.
  using Take = std::function<void(const std::byte* from, int64_t begin, int64_t count)>;

  virtual ~StretchReceiver() = default;
  // Whether peers reach these bytes of this rank's. Else a message of them comes in several stretches, by copies.
  virtual bool is_in_reach(const void* data, int64_t bytes) const = 0;
  // As Communicator::receive(), but `take` is called for one stretch of the message after the other: for one alone
  // where the sender's bytes are in reach, for none where the count is 0.
  virtual void receive_stretches(const Take& take, int64_t count, DType dtype, int from, std::string_view who) = 0;
};

}  // namespace tessera::comm
