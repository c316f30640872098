#include "tessera/session/values.h"

#include "tessera/base/error.h"

namespace tessera::session {

void Values::add(const std::string& name, const Type& type) {
  layout_.add(name, type);
  arena_.grow_to(layout_.bytes);
}

const Type& Values::type(const std::string& name) const {
  const auto it = layout_.types.find(name);
  if (it == layout_.types.end()) throw InvalidArgument("no parameter or state is named \"{}\"", name);
  return it->second;
}

std::optional<TensorView> Values::in_place(const std::string& name) const {
  const Type& type = this->type(name);
  if (arena_.device() != nullptr) return std::nullopt;
  return TensorView(address(name), type);
}

Tensor Values::read(const std::string& name) const {
  if (const auto here = in_place(name)) return Tensor::copy_of(*here);
  Tensor copy(type(name));
  arena_.queue().copy(copy.view().data, address(name), copy.size_bytes(), CopyWay::kToHost);
  arena_.queue().synchronize();
  return copy;
}

void Values::write(const std::string& name, const TensorView& elements) {
  if (const auto here = in_place(name)) return copy_elements(elements, *here);
  Tensor dense(type(name));
  copy_elements(elements, dense.view());
  arena_.queue().copy(address(name), dense.view().data, dense.size_bytes(), CopyWay::kToDevice);
  arena_.queue().synchronize();
}

void Values::set_zero(const std::string& name) {
  arena_.queue().fill(address(name), std::byte{0}, type(name).size_bytes());
  arena_.queue().synchronize();
}

}  // namespace tessera::session
