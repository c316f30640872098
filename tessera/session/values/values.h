// Values: this rank's pieces of parameters and states, by name, in the front part of an arena. The only way to their
// memory, which the host may not reach.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tessera/base/files/scratch_file.h"
#include "tessera/ir/schedule.h"
#include "tessera/session/values/value_place.h"

namespace tessera::session {

class DeviceSnapshot;
class SlicedRead;
class SlicedWrite;
class TransferSlices;

class Values {
 public:
  // The arena outlives them.
  explicit Values(executor::Arena& arena) : arena_(arena) {}

  // A value that lies in a file, and how it is held here.
  struct Spilled {
    std::string name;
    Type type;
  };
  // Has the values of these names, which will be added, lie in that file, in front of all others: each where it is as
  // long as the session. The arena has nothing yet, and may spill. Throws what Arena::spill() throws.
  void spill(std::span<const Spilled> values, const ScratchFile& file);
  bool is_spilled(const std::string& name) const { return spilled_.contains(name); }
  int64_t spilled_bytes() const { return arena_.spilled_bytes(); }
  // Makes room for one more. Throws InvalidArgument for a name that is there.
  void add(const std::string& name, const Type& type);
  // Forgets all of them. What lies in a file stays there for the value that is added by its name.
  void clear();
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

  // For values that are too large to be copied as a whole, where in_place() has nothing: their elements through pinned
  // slices of the host's memory, as they are when the work is done that the arena's queue has been given. nullptr on
  // the host. What is made here may be used as long as the values are where they are now.
  std::shared_ptr<const SlicedRead> sliced_read(const std::string& name) const;
  // Until it is finished nobody else reads or writes the value.
  std::unique_ptr<SlicedWrite> sliced_write(const std::string& name);
  // For copies of values within the device's memory; nullptr on the host.
  std::unique_ptr<DeviceSnapshot> make_snapshot() const;

 private:
  struct PlaceInFile {
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  TransferSlices& slices() const;

  executor::Arena& arena_;
  mutable std::shared_ptr<TransferSlices> slices_;  // once they were used
  ir::PersistentLayout layout_;
  std::map<std::string, PlaceInFile> spilled_;
};

}  // namespace tessera::session
