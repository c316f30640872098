// ValuePlace: where a value lies in the arena, and the only way by which the host reaches it. On a device that way is a
// copy.
#pragma once

#include <optional>

#include "tessera/executor/arena.h"
#include "tessera/tensor/tensor.h"

namespace tessera::session {

class ValuePlace {
 public:
  // What lies there is dense and row-major. The arena outlives the place.
  ValuePlace(executor::Arena& arena, int64_t offset, const Type& type);

  const Type& type() const { return type_; }
  // Its address and type, by which others know it; the host may look there only where in_place() says so.
  TensorView mark() const { return {arena_->data() + offset_, type_}; }
  // The value itself, where the host reaches it: for what is too large to be copied for nothing. nullopt on a device.
  std::optional<TensorView> in_place() const;
  // These wait for work that is under way in the arena's queue. A copy in the host's memory.
  Tensor read() const;
  // Copies to dense memory of the host.
  void read_to(const TensorView& to) const;
  // Takes elements of the host's, of the value's shape and of any dtype and strides.
  void write(const TensorView& elements) const;
  void set_zero() const;

 private:
  executor::Arena* arena_;
  int64_t offset_;
  Type type_;
};

}  // namespace tessera::session
