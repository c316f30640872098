// Values: this rank's pieces of parameters and states, by name, in the front part of an arena. The only way to their
// memory, which the host may not reach.
#pragma once

#include <optional>
#include <string>

#include "tessera/ir/schedule.h"
#include "tessera/session/values/value_place.h"

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

  // Throws InvalidArgument naming the nearest name that there is.
  [[noreturn]] void throw_unknown(const std::string& name) const;
  // All that follows does that for an unknown name.
  const Type& type(const std::string& name) const;
  ValuePlace place(const std::string& name) const;
  // These do what ValuePlace does.
  std::optional<TensorView> in_place(const std::string& name) const { return place(name).in_place(); }
  Tensor read(const std::string& name) const { return place(name).read(); }
  void write(const std::string& name, const TensorView& elements) { place(name).write(elements); }
  void set_zero(const std::string& name) { place(name).set_zero(); }

 private:
  executor::Arena& arena_;
  ir::PersistentLayout layout_;
};

}  // namespace tessera::session
