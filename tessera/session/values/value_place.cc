#include "tessera/session/values/value_place.h"

#include "tessera/base/error.h"

namespace tessera::session {

ValuePlace::ValuePlace(executor::Arena& arena, int64_t offset, const Type& type)
    : arena_(&arena), offset_(offset), type_(type) {}

std::optional<TensorView> ValuePlace::in_place() const {
  if (arena_->device() != nullptr) return std::nullopt;
  return mark();
}

Tensor ValuePlace::read() const {
  Tensor copy(type_);
  read_to(copy.view());
  return copy;
}

void ValuePlace::read_to(const TensorView& to) const {
  if (const auto here = in_place()) return copy_elements(*here, to);
  check(to.type() == type_ && to.is_dense(), "a value is read to memory that is not like it");
  arena_->queue().copy(to.data, mark().data, to.size_bytes(), CopyWay::kToHost);
  arena_->queue().synchronize();
}

void ValuePlace::write(const TensorView& elements) const {
  if (const auto here = in_place()) return copy_elements(elements, *here);
  Tensor dense(type_);
  copy_elements(elements, dense.view());
  arena_->queue().copy(mark().data, dense.view().data, dense.size_bytes(), CopyWay::kToDevice);
  arena_->queue().synchronize();
}

void ValuePlace::set_zero() const {
  arena_->queue().fill(mark().data, std::byte{0}, type_.size_bytes());
  arena_->queue().synchronize();
}

}  // namespace tessera::session
