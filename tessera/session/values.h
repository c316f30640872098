// Values: this rank's pieces of parameters and states, by name, in the front part of an arena. The only way to their
// memory, which the host may not reach.
#pragma once

#include <optional>
#include <string>

#include "tessera/executor/arena.h"
#include "tessera/ir/schedule.h"
#include "tessera/tensor/tensor.h"

namespace tessera::session {

class Values {
 public:
  // The arena outlives them.
  explicit Values(executor::Arena& arena) : arena_(arena) {}

  // Makes room for one more. Throws InvalidArgument for a name that is there.
  void add(const std::string& name, const Type& type);
  // Forgets all of them.
  void clear() { layout_ = {}; }
  // Where they lie.
  const ir::PersistentLayout& layout() const { return layout_; }

  // All that follows throws InvalidArgument for an unknown name, and waits for work that is under way on the value.
  const Type& type(const std::string& name) const;
  // A copy in the host's memory.
  Tensor read(const std::string& name) const;
  // Takes elements of the host's, of the value's shape and of any dtype and strides.
  void write(const std::string& name, const TensorView& elements);
  void set_zero(const std::string& name);
  // The value itself, where the host reaches it: what is too large to be copied for nothing. nullopt on a device.
  std::optional<TensorView> in_place(const std::string& name) const;

 private:
  void* address(const std::string& name) const { return arena_.data() + layout_.offsets.at(name); }

  executor::Arena& arena_;
  ir::PersistentLayout layout_;
};

}  // namespace tessera::session
